// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/netsketch/netsketch/lab/scenario"
	"github.com/netsketch/netsketch/p4/bmv2"
)

// sketchintScenario is a network with queues and agents on all hosts.
func sketchintScenario(tb testing.TB, topology string, epochs int, sinks, more string) *scenario.Scenario {
	tb.Helper()
	s, err := scenario.Parse("sketchint.yaml", fmt.Appendf(nil, `
name: sketchint
seed: 43
epochs: %d
epoch: 200ms
program: sketchint
topology: %s
agents: [sketchint]
algorithms:
  - {plugin: sketchint, config: {interval: 200ms, sinks: %s, heavy: 20, change: 10,
                                 flow-tower: 8000, latency-tower: 24000,
                                 limits: {latencies: 1000, inflations: 1000, switch-flows: 10000}}}
watch: 100
%s`, epochs, topology, sinks, more))
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// TestSketchINT: a queue builds up in an epoch and a path changes in another one. Both are found,
// at the right switches and of the right flows. Latencies are those that the lab's events have.
func TestSketchINT(t *testing.T) {
	s := sketchintScenario(t, "{kind: fat-tree, k: 4, latency: 10us, queue-rate: 20000, queue-depth: 256}", 5, "hosts", `
traffic:
  - {name: web, rate: 8000, flows: 100, zipf: 0.5, udp: 0.3, ipv6: 0.2}
  - {name: service, rate: 4000, flows: 24, udp: 0.3, receivers: [h1]}
  - {name: incast, rate: 30000, flows: 16, udp: 0.5, receivers: [h1], from: 250ms, until: 260ms}
faults:
  - {link: edge3-2-agg3-1, avoid: true, from: 600ms, until: 800ms}
expect:
  - {measure: latency-are, at-most: 0.002}
  - {measure: inflated-f1, at-least: 0.85}
  - {measure: heavy-hitter-f1, at-least: 1}
  - {measure: flow-size-are, at-most: 0.0002}
  - {measure: paths-exact, at-least: 1}
  - {measure: path-change-f1, at-least: 1}
  - {measure: switch-packets-error, at-most: 0}
  - {measure: switch-latency-error, at-most: 0.0001}
  - {measure: latency-alert-f1, at-least: 1}
  - {measure: partial-epochs, at-most: 0}
`)
	var inflated, changed []string // active alerts, by epoch
	r := playWith(t, s, scenario.Options{Virtual: true, OnEpoch: func(run *scenario.Run) error {
		all := leaves(t, run.Address(), "sketchint", "alerts")
		active := func(kind string) (names []string) {
			for at, value := range all {
				if subject, ok := strings.CutSuffix(at, "["+kind+"]/state/active"); ok && value == "true" {
					names = append(names, strings.TrimPrefix(subject, "/sketchint/alerts/alert"))
				}
			}
			slices.Sort(names)
			return names
		}
		inflated = append(inflated, fmt.Sprint(active("LATENCY_INFLATED")))
		changed = append(changed, fmt.Sprint(active("PATH_CHANGED")))
		return nil
	}})
	check(t, r, s.Epochs)
	if want := []string{"[]", "[[edge1-1]]", "[]", "[]", "[]"}; !slices.Equal(inflated, want) {
		t.Errorf("alerts of inflated latencies by epoch %v, want %v", inflated, want)
	}
	// Of flows to its hosts, the switches of the senders have an alert, too.
	for i, names := range changed {
		if moved := i >= 3; moved != strings.Contains(names, "[edge3-2]") || !moved && names != "[]" {
			t.Errorf("epoch %d of the run: alerts of changed paths %v", i+1, names)
		}
	}
}

// TestSketchINTOnBMv2 compares what is published of the same traffic over BMv2 and over soft
// switches: everything but latencies, which BMv2 has in real time. Agents read INT, or one agent
// receives the telemetry reports of the last switches.
func TestSketchINTOnBMv2(t *testing.T) {
	if _, err := exec.LookPath(bmv2.Program); err != nil {
		t.Skipf("%v: the scenario is played on soft switches only", err)
	}
	const traffic = `
traffic:
  - {name: web, rate: 3000, flows: 40, zipf: 1.0, udp: 0.3, ipv6: 0.2}
expect:
  - {measure: heavy-hitter-f1, at-least: 1}
  - {measure: heavy-change-f1, at-least: 1}
  - {measure: flow-size-are, at-most: 0}
  - {measure: paths-exact, at-least: 1}
  - {measure: partial-epochs, at-most: 0}
`
	const topology = "{kind: leaf-spine, leaves: 2, spines: 2, hosts-per-leaf: 2}"
	t.Run("hosts", func(t *testing.T) {
		compareWithBMv2(t, sketchintScenario(t, topology, 2, "hosts",
			traffic+"  - {measure: switch-packets-error, at-most: 0}\n"))
	})
	t.Run("reports", func(t *testing.T) {
		// A report may arrive an epoch later than its packet.
		compareWithBMv2(t, sketchintScenario(t, topology, 3, reportsToH4,
			"receiver: h4"+traffic+"  - {measure: switch-packets-error, at-most: 0.005}\n"))
	})
}

// reportsToH4 lets INT end at switches that send telemetry reports to a host.
const reportsToH4 = `switches,
      reports: {host: h4, mac: "02:00:00:00:00:04", source: 192.0.2.1}`

// compareWithBMv2 plays a scenario on soft switches and on BMv2.
func compareWithBMv2(t *testing.T, s *scenario.Scenario) {
	var results []map[string]string
	for _, external := range [][]string{nil, {"edge", "transit"}} {
		all := map[string]string{}
		r := playWith(t, s, scenario.Options{Virtual: true, BMv2: external, OnEpoch: func(run *scenario.Run) error {
			epoch := len(run.Report().Epochs)
			for _, list := range []string{"flows", "heavy-hitters", "heavy-changes", "switches", "node-summaries", "hosts",
				"sources"} {
				for at, value := range leaves(t, run.Address(), "sketchint", list) {
					all[fmt.Sprintf("epoch %d of the run: %s", epoch, at)] = value
				}
			}
			return nil
		}})
		check(t, r, s.Epochs)
		maps.DeleteFunc(all, func(at, _ string) bool {
			return strings.HasSuffix(at, "/latency-avg") || strings.HasSuffix(at, "/latency-max") ||
				strings.Contains(at, "inflated") ||
				strings.HasSuffix(at, "/epoch")
		})
		results = append(results, all)
	}
	if len(results[0]) < 100*s.Epochs {
		t.Errorf("%d leaves to compare", len(results[0]))
	}
	if diff := gocmp.Diff(results[0], results[1]); diff != "" {
		t.Errorf("(-soft switches, +BMv2):\n%.4000s", diff)
	}
}

// TestSketchINTReports: INT ends at the last switches, which send telemetry reports to the agent of
// one host. The results are the same as with agents at all hosts, except that a report may arrive
// one epoch after its packet.
func TestSketchINTReports(t *testing.T) {
	s := sketchintScenario(t, "{kind: leaf-spine, leaves: 2, spines: 2, hosts-per-leaf: 2, queue-rate: 50000}", 3,
		reportsToH4, `
receiver: h4
traffic:
  - {name: web, rate: 3000, flows: 60, zipf: 0.8, udp: 0.3, ipv6: 0.2}
expect:
  - {measure: latency-are, at-most: 0.0005}
  - {measure: heavy-hitter-f1, at-least: 1}
  - {measure: flow-size-are, at-most: 0.0025}
  - {measure: paths-exact, at-least: 1}
  - {measure: switch-packets-error, at-most: 0.002}
  - {measure: partial-epochs, at-most: 0}
`)
	r := playWith(t, s, scenario.Options{Virtual: true, OnEpoch: func(run *scenario.Run) error {
		for at, value := range leaves(t, run.Address(), "sketchint", "sources") {
			if strings.HasSuffix(at, "/state/lost") && value != "0" {
				t.Errorf("%s: %s", at, value)
			}
		}
		return nil
	}})
	check(t, r, s.Epochs)
}

// TestSketchINTAtEdgeSwitches: without agents, towers of edge switches measure. The collector reads
// them as banks; every packet is in the results of one switch and one epoch.
func TestSketchINTAtEdgeSwitches(t *testing.T) {
	const topology = "{kind: leaf-spine, leaves: 2, spines: 2, hosts-per-leaf: 2, queue-rate: 20000}"
	s := sketchintScenario(t, topology, 3, "switches", `
programs: {edge: sketchint-edge}
traffic:
  - {name: web, rate: 8000, flows: 100, zipf: 0.5, udp: 0.3, ipv6: 0.2, until: 400ms}
`)
	s.Agents = nil
	total, atEdges := 0, 0
	r := playWith(t, s, scenario.Options{Virtual: true, OnEpoch: func(run *scenario.Run) error {
		count := func(path ...string) int {
			sum := 0
			for at, value := range leaves(t, run.Address(), append([]string{"sketchint"}, path...)...) {
				n, err := strconv.Atoi(value)
				if err == nil && strings.HasSuffix(at, "/state/packets") && !strings.Contains(at, "[network]") {
					sum += n
				}
			}
			return sum
		}
		total += count("summary")
		atEdges += count("node-summaries")
		return nil
	}})
	if sent := int(r.Network.Sent); r.Network.Received != r.Network.Sent || total != sent || atEdges != sent {
		t.Errorf("%d packets in the results, %d at edge switches; %+v", total, atEdges, r.Network)
	}
}

// TestSketchINTAtSwitchesAndHosts: edge switches measure, and agents, which receive packets without
// INT, name the heavy flows. Routes keep collisions in the small towers from adding switches.
func TestSketchINTAtSwitchesAndHosts(t *testing.T) {
	const topology = "{kind: fat-tree, k: 4, latency: 10us, queue-rate: 20000, queue-depth: 256}"
	s := sketchintScenario(t, topology, 5, "switches", `
programs: {edge: sketchint-edge}
traffic:
  - {name: web, rate: 8000, flows: 100, zipf: 0.5, udp: 0.3, ipv6: 0.2}
  - {name: service, rate: 4000, flows: 24, udp: 0.3, receivers: [h1]}
faults:
  - {link: edge3-2-agg3-1, avoid: true, from: 600ms, until: 800ms}
expect:
  - {measure: heavy-hitter-f1, at-least: 1}
  - {measure: heavy-change-f1, at-least: 1}
  - {measure: flow-size-are, at-most: 0.0008}
  - {measure: partial-epochs, at-most: 0}
`)
	r := playWith(t, s, scenario.Options{Virtual: true})
	check(t, r, s.Epochs)
}
