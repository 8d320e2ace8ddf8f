// SPDX-License-Identifier: Apache-2.0

package questions

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/lab"
	"github.com/netsketch/netsketch/lab/scenario"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// Environment variables.
const (
	everyEnv = "NETSKETCH_QUESTIONS" // "all": ask about all shipped scenarios, or a part of their names
	seedEnv  = "NETSKETCH_SEED"      // seed of the drawn networks
	mostEnv  = "NETSKETCH_EPOCHS"    // most epochs of a scenario that are played, instead of mostEpochs
)

// mostEpochs bounds the epochs of a scenario that are played.
const mostEpochs = 16

// epochs returns the epochs after which questions are asked: for each fault and each change of the
// traffic, the epoch whose results show its first epoch, and one epoch that follows all of them.
func epochs(t *testing.T, s *scenario.Scenario) (out []int) {
	t.Helper()
	after := 0
	for _, a := range s.Algorithms {
		var instance struct {
			Plugin string
			Config struct {
				Interval int `json:"interval-epochs"`
			}
		}
		text, err := a.JSON()
		if err = errors.Join(err, json.Unmarshal(text, &instance)); err != nil {
			t.Fatal(err)
		}
		if instance.Plugin == "lightguardian" { // LightGuardian publishes results of the interval before
			after = max(instance.Config.Interval, 1)
		}
	}
	most, err := strconv.Atoi(os.Getenv(mostEnv))
	if err != nil {
		most = mostEpochs
	}
	var changes []time.Duration
	for _, f := range s.Faults {
		changes = append(changes, f.From)
	}
	for _, c := range s.Traffic {
		changes = append(changes, c.From)
		for _, x := range c.Changes {
			changes = append(changes, x.From)
		}
	}
	last := max(s.WarmUp+3, 5)
	for _, from := range changes {
		n := int(from/s.Epoch) + 1 // counted from 1
		last = max(last, n+2)
		if n += after; from > 0 && n >= 3 && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	last = min(last, cmp.Or(s.Epochs, last), most)
	return append(slices.DeleteFunc(out, func(n int) bool { return n >= last }), last)
}

// TestQuestionsOfDrawnNetworks asks all questions about networks, traffic and faults that are
// drawn: one for each plugin alone, and one whose switches run the programs of all.
func TestQuestionsOfDrawnNetworks(t *testing.T) {
	seed := uint64(1)
	if text := os.Getenv(seedEnv); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	for i, plugin := range slices.Sorted(maps.Keys(scenarios)) {
		t.Run(plugin, func(t *testing.T) {
			every(t, drawn(t, plugin, rand.New(rand.NewPCG(seed, uint64(i)))))
		})
	}
	t.Run("mixed", func(t *testing.T) {
		if os.Getenv(everyEnv) == "" {
			t.Skipf("slow: run make questions, which sets %s", everyEnv)
		}
		every(t, drawnMix(t, rand.New(rand.NewPCG(seed, 99))))
	})
}

// TestQuestionsOfShippedScenarios asks all questions about all scenarios that ship.
func TestQuestionsOfShippedScenarios(t *testing.T) {
	which := os.Getenv(everyEnv)
	if which == "" {
		t.Skipf("slow: run make questions, which sets %s to all, or to a part of the names of scenarios", everyEnv)
	}
	files, err := filepath.Glob("../../examples/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, file := range append(files, "../../lab/scenario/default.yaml") {
		if _, err := scenario.Load(file); err != nil { // a configuration of a collector or an agent
			continue
		}
		if n++; which != "all" && !strings.Contains(file, which) {
			continue
		}
		name := strings.TrimSuffix(strings.TrimPrefix(file, "../../"), ".yaml")
		t.Run(name, func(t *testing.T) {
			s, err := scenario.Load(file)
			if err != nil {
				t.Fatal(err)
			}
			every(t, s)
		})
	}
	if n < 22 {
		t.Errorf("%d scenarios", n)
	}
}

// needs are programs, agents and settings that a plugin needs, as keys of a scenario.
var needs = map[string]string{
	"omnimon":    "epoch: 500ms\nprogram: omnimon\nagents: [omnimon]\n",
	"chamelemon": "epoch: 50ms\nprograms: {edge: chamelemon, transit: forwarding}\n",
	"univmon":    "epoch: 1s\nprogram: univmon\n",
	"sketchint":  "epoch: 1s\nprogram: sketchint\nagents: [sketchint]\n",

	"lightguardian": "epoch: 2s\nprogram: lightguardian\nagents: [lightguardian]\n",
}

// drawn draws a network of switches that run the program of one plugin, traffic, and a fault.
func drawn(t *testing.T, plugin string, rng *rand.Rand) *scenario.Scenario {
	t.Helper()
	queue := ""
	if plugin == "sketchint" || plugin == "lightguardian" { // they measure times, which are 0 without queues
		queue = fmt.Sprintf(", queue-rate: %d, queue-depth: 4096", 6000+rng.IntN(6000))
	}
	topology := "{kind: fat-tree, k: 4, latency: 10us" + queue + "}"
	link, node := fmt.Sprintf("agg%d-1-core1-1", 1+rng.IntN(4)), fmt.Sprintf("agg%d-2", 1+rng.IntN(4))
	if rng.IntN(2) == 0 {
		leaves, spines := 2+rng.IntN(5), 1+rng.IntN(3)
		topology = fmt.Sprintf("{kind: leaf-spine, leaves: %d, spines: %d, hosts-per-leaf: %d, latency: %dus%s}", leaves,
			spines, 1+rng.IntN(3), 5+rng.IntN(30), queue)
		link = fmt.Sprintf("leaf%d-spine%d", 1+rng.IntN(leaves), 1+rng.IntN(spines))
		node = fmt.Sprintf("spine%d", 1+rng.IntN(spines))
	}
	// The fault is in the third epoch and later.
	from := cmp.Or(map[string]string{"chamelemon": "100ms", "lightguardian": "4s", "omnimon": "1s"}[plugin], "2s")
	fault := fmt.Sprintf("{link: %s, loss: %.3f, from: %s}", link, 0.02+0.3*rng.Float64(), from)
	if rng.IntN(2) == 0 {
		fault = fmt.Sprintf("{switch: %s, loss: %.3f, from: %s}", node, 0.02+0.3*rng.Float64(), from)
	}
	settings := map[string]string{"sketchint": ", config: {interval: 1s, heavy: 100}",
		"lightguardian": ", config: {sketch: {delays: [50us, 200us, 1ms]}, rules: {slow: 1ms}}"}[plugin]
	return parse(t, fmt.Sprintf(`
name: drawn-%s
seed: %d
epochs: 40
%stopology: %s
traffic:
  - {name: web, rate: %d, flows: %d, zipf: %.2f, udp: 0.3, ipv6: %.1f}
faults:
  - %s
algorithms:
  - {plugin: %s%s}
`, plugin, rng.Uint32(), needs[plugin], topology, 3000+rng.IntN(9000), 200+rng.IntN(1500), 0.6+0.7*rng.Float64(),
		[]float64{0, 0.2}[rng.IntN(2)], fault, plugin, settings))
}

// drawnMix draws a fat tree whose switches run the programs of all plugins.
func drawnMix(t *testing.T, rng *rand.Rand) *scenario.Scenario {
	t.Helper()
	f, err := lab.FatTree(4, 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	programs := []string{"omnimon", "omnimon", "univmon", "forwarding", "chamelemon", "lightguardian", "sketchint"}
	of := []string{f.Switches[0].Name + ": omnimon"} // without such a switch, hosts get no settings
	for _, s := range f.Switches[1:] {
		of = append(of, s.Name+": "+programs[rng.IntN(len(programs))])
	}
	return parse(t, fmt.Sprintf(`
name: mixed
seed: %d
epochs: 40
epoch: 500ms
program: omnimon
programs: {%s}
topology: {kind: fat-tree, k: 4, latency: 10us}
agents: [univmon, lightguardian, sketchint, omnimon]
traffic:
  - {name: web, rate: %d, flows: %d, zipf: 1.0, udp: 0.3, ipv6: 0.2}
algorithms:
  - {plugin: univmon, config: {hosts: {packets: all}}}
  - {plugin: chamelemon}
  - {plugin: lightguardian}
  - {plugin: sketchint, config: {interval: 500ms, heavy: 20}}
  - {plugin: omnimon}
`, rng.Uint32(), strings.Join(of, ", "), 2000+rng.IntN(3000), 200+rng.IntN(300)))
}

func parse(t *testing.T, text string) *scenario.Scenario {
	t.Helper()
	t.Log(text)
	s, err := scenario.Parse("drawn.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// every plays a scenario and asks each question of docs/yang.md to each of its plugins, about the
// busiest link, node and flow. It logs a row for each, with why a question cannot be asked.
func every(t *testing.T, s *scenario.Scenario) {
	all, at := queries(t), epochs(t, s)
	play(t, s, at, func(p *played) {
		for _, plugin := range p.run.Report().Plugins {
			if _, ours := scenarios[plugin]; !ours {
				t.Logf("| %s | %s | all | not asked: docs/yang.md has no queries for it |", s.Name, plugin)
				continue
			}
			asked := map[string]bool{}
			for _, q := range all {
				a, ok := q.answer()
				if q.plugin != plugin || !ok {
					continue
				}
				asked[q.question] = true
				here, why := p.here(q, a.leaf)
				if why != "" {
					t.Logf("| %s, epoch %d | %s | %s | not asked: %s |", s.Name, p.n, plugin, q.question, why)
					continue
				}
				n := a.check(p, plugin, p.ask(here, a.keys, a.leaf))
				t.Logf("| %s, epoch %d | %s | %s | %s: %d compared |", s.Name, p.n, plugin, q.question, here.gnmi, n)
			}
			t.Logf("| %s, epoch %d | %s | all rows of flows at links or nodes | %d compared |", s.Name, p.n, plugin,
				p.everywhere(plugin))
			t.Logf("| %s, epoch %d | %s | rows in gNMI, InfluxDB and Prometheus | %d the same |", s.Name, p.n, plugin,
				p.same(plugin))
			if p.n < slices.Max(at) {
				continue
			}
			for _, question := range slices.Sorted(maps.Keys(answers)) {
				if !asked[question] {
					t.Logf("| %s | %s | %s | not asked: it does not measure this |", s.Name, plugin, question)
				}
			}
			most := 0
			for _, e := range p.run.Report().Epochs {
				most = max(most, e.Rows[plugin])
			}
			t.Logf("| %s | %s | volume | %d rows at most in %d epochs; the last one: %+v |", s.Name, plugin, most, p.n,
				p.volume(plugin))
		}
	})
}

// named matches the keys in a path that name a link, a node or a flow of a scenario of the page.
var named = regexp.MustCompile(`\[(link|node|flow)=([^\]]+)\]`)

// here returns a query about this scenario: the busiest link, node or flow of which rows have a
// leaf stands for the one of the page. why says why there is none.
func (p *played) here(q query, leaf string) (out query, why string) {
	p.t.Helper()
	m := named.FindStringSubmatch(q.gnmi)
	if m == nil {
		return q, ""
	}
	kind, name := m[1], m[2]
	for _, other := range p.busiest(q.plugin, kind) {
		out = q
		for _, text := range []*string{&out.gnmi, &out.influxql, &out.promql} {
			*text = strings.ReplaceAll(*text, name, other)
		}
		if slices.ContainsFunc(p.rows(out.gnmi), func(r row) bool { return r[leaf] != "" }) {
			return out, ""
		}
	}
	return q, "no " + kind + " has rows with " + leaf
}

// busiest returns all links between switches, all nodes, or all flows: those with the most packets
// first. Node "network", which has the packets of all others, comes last.
func (p *played) busiest(plugin, kind string) []string {
	p.t.Helper()
	packets := map[string]float64{}
	switch kind {
	case "flow":
		for flow, r := range p.at(plugin, "network") {
			packets[flow] = r.number(p.t, "packets")
		}
	case "node":
		for _, r := range p.of(plugin) {
			if n := r.number(p.t, "packets"); r["node"] != "network" {
				packets[r["node"]] += n
			}
		}
	case "link":
		for _, l := range p.rows("/topology/links/link/state") {
			from, to := sdk.LinkNodes(l["name"])
			if strings.Count(l["name"], "/") == 2 && from != to {
				for _, n := range p.sent(plugin, l["name"]) {
					packets[l["name"]] += n
				}
			}
		}
	}
	out := slices.SortedFunc(maps.Keys(packets), func(a, b string) int {
		return cmp.Or(cmp.Compare(packets[b], packets[a]), strings.Compare(a, b))
	})
	if out = out[:min(len(out), 50)]; kind == "node" {
		out = append(out, "network")
	}
	return out
}
