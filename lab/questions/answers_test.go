// SPDX-License-Identifier: Apache-2.0

package questions

import (
	"math"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// scenarios are the scenarios of docs/yang.md, with the epochs that are played.
var scenarios = map[string]struct {
	file   string
	epochs int
}{
	"omnimon":    {"examples/omnimon/fat-tree.yaml", 7},
	"chamelemon": {"examples/chamelemon/link-loss.yaml", 9},
	"univmon":    {"lab/scenario/default.yaml", 5},
	"sketchint":  {"examples/sketchint/queue.yaml", 5},
}

// Headings of docs/yang.md.
const (
	large   = "Which flows are large on a link or at a node?"
	lossy   = "Which flows lost packets, and where?"
	slow    = "How long were the packets of a flow at each switch?"
	quality = "Is a value exact, bounded or an estimate?"
	covered = "Which time do the values cover?"
)

// answer says how the answers to a question are compared with each other and with the ground truth.
type answer struct {
	keys  []string // that tell the rows of the answer apart
	leaf  string   // that all three languages return
	check func(p *played, plugin string, rows []row)
}

// answers are the questions of the page by plugin.
var answers = map[string]map[string]answer{
	large: {
		"omnimon":    {[]string{"flow"}, "packets-low", (*played).linkFlows},
		"chamelemon": {[]string{"flow"}, "packets", sizes("entered", 0.001)},
		"univmon":    {[]string{"flow"}, "packets", sizes("packets", 0.01)},
		"sketchint":  {[]string{"flow"}, "packets", sizes("packets", 0.01)},
	},
	lossy: {
		"omnimon":    {[]string{"flow", "location"}, "lost-low", (*played).losses},
		"chamelemon": {[]string{"flow"}, "lost-packets", (*played).victims},
	},
	slow: {
		"sketchint": {[]string{"node"}, "latency-avg", (*played).latencies},
	},
	quality: {
		"omnimon":    {[]string{"flow", "location"}, "determined", (*played).losses},
		"chamelemon": {[]string{"flow"}, "exact", (*played).victims},
	},
	covered: {
		"omnimon":    {nil, "end-time", (*played).covers},
		"chamelemon": {nil, "end-time", (*played).covers},
		"univmon":    {nil, "end-time", (*played).covers},
		"sketchint":  {nil, "end-time", (*played).covers},
	},
}

// TestQuestions plays the scenario of each plugin and asks all questions of docs/yang.md about it.
func TestQuestions(t *testing.T) {
	all := queries(t)
	for plugin, s := range scenarios {
		t.Run(plugin, func(t *testing.T) {
			play(t, s.file, s.epochs, func(p *played) {
				for _, q := range all {
					a, ok := answers[q.question][plugin]
					if q.plugin != plugin {
						continue
					}
					if !ok {
						t.Errorf("%s: no check of %s", q.question, q.gnmi)
						continue
					}
					a.check(p, plugin, p.ask(q, a.keys, a.leaf))
				}
			})
		})
	}
	want := 0
	for _, of := range answers {
		want += len(of)
	}
	if len(all) != want {
		t.Errorf("docs/yang.md has %d blocks of queries; %d are checked", len(all), want)
	}
}

// at returns the ground truth of a plugin's epochs by flow, at one node.
func (p *played) at(plugin, node string) map[string]row {
	out := map[string]row{}
	for _, r := range p.of(plugin) {
		if r["node"] == node {
			out[r["flow"]] = r
		}
	}
	return out
}

// linkFlows checks the flows of a link between switches: the true number of packets that were sent
// on the link is within the bounds, and no flow that is not listed sent more than a listed one.
func (p *played) linkFlows(plugin string, rows []row) {
	link := rows[0]["link"]
	from, to := sdk.LinkNodes(link)
	entered, left, network := p.at(plugin, from), p.at(plugin, to), p.at(plugin, "network")
	sent := map[string]float64{}
	for flow, r := range network {
		n, ok := lostAt(p.t, r, link)
		if a, b := entered[flow], left[flow]; a != nil && b != nil && b.number(p.t, "hop") == a.number(p.t, "hop")+1 {
			n, ok = n+b.number(p.t, "packets"), true
		}
		if ok {
			sent[flow] = n
		}
	}
	least := math.Inf(1)
	for _, r := range rows {
		low, high := r.number(p.t, "packets-low"), r.number(p.t, "packets-high")
		if n := sent[r["flow"]]; n < low || n > high || low == 0 {
			p.t.Errorf("%s: %s sent %v packets; %v to %v were published", link, r["flow"], n, low, high)
		}
		delete(sent, r["flow"])
		least = min(least, high)
	}
	for flow, n := range sent {
		if n > least {
			p.t.Errorf("%s: %s sent %v packets and is not listed", link, flow, n)
		}
	}
}

// lostAt returns the packets of a flow that were lost at a place.
func lostAt(t *testing.T, r row, place string) (float64, bool) {
	t.Helper()
	for _, text := range strings.Fields(r["lost-at"]) {
		if name, n, _ := strings.Cut(text, "="); name == place {
			return row{"n": n}.number(t, "n"), true
		}
	}
	return 0, false
}

// sizes checks flows at a node: the sum of the differences from the true packets is at most a share
// of them.
func sizes(column string, share float64) func(p *played, plugin string, rows []row) {
	return func(p *played, plugin string, rows []row) {
		actual := p.at(plugin, rows[0]["node"])
		sum, off, listed := 0.0, 0.0, 0
		for _, r := range rows {
			if r["packets"] == "" {
				continue
			}
			n := 0.0
			if x := actual[r["flow"]]; x != nil && x[column] != "" {
				n = x.number(p.t, column)
			}
			sum, off, listed = sum+n, off+math.Abs(r.number(p.t, "packets")-n), listed+1
			if r["exact"] == "true" && r.number(p.t, "packets") != n {
				p.t.Errorf("%s: exactly %s packets of %s; there were %v", plugin, r["packets"], r["flow"], n)
			}
		}
		p.t.Logf("%s: %d flows, error %.5f", plugin, listed, off/sum)
		if listed == 0 || off > share*sum {
			p.t.Errorf("%s: %d flows with %v packets; the sum of the errors is %v", plugin, listed, sum, off)
		}
	}
}

// losses checks where flows lost packets: each true loss is published, within the bounds, and a
// determined one exactly; and nothing else.
func (p *played) losses(plugin string, rows []row) {
	actual := map[string]float64{}
	for _, r := range p.at(plugin, "network") {
		for _, text := range strings.Fields(r["lost-at"]) {
			place, n, _ := strings.Cut(text, "=")
			actual[r["flow"]+" "+place] = row{"n": n}.number(p.t, "n")
		}
	}
	for _, r := range rows {
		key := r["flow"] + " " + r["location"]
		low, high := r.number(p.t, "lost-low"), r.number(p.t, "lost-high")
		if n := actual[key]; n < low || n > high || low != high && r["determined"] == "true" {
			p.t.Errorf("%s lost %v packets; %v to %v were published", key, n, low, high)
		}
		delete(actual, key)
	}
	p.t.Logf("%d losses", len(rows))
	if len(rows) < 10 || len(actual) > 0 {
		p.t.Errorf("%d losses were published, %d are missing: %v", len(rows), len(actual), actual)
	}
}

// victims checks the flows that lost packets: all are published, and exact numbers are.
func (p *played) victims(plugin string, rows []row) {
	actual := map[string]float64{}
	for flow, r := range p.at(plugin, "network") {
		if n := r.number(p.t, "lost"); n > 0 {
			actual[flow] = n
		}
	}
	exact := 0
	for _, r := range rows {
		n, lost := r.number(p.t, "lost-packets"), actual[r["flow"]]
		if r["exact"] == "true" {
			exact++
		}
		if n > lost || n < lost && r["exact"] == "true" {
			p.t.Errorf("%s lost %v packets; %v were published, exact: %s", r["flow"], lost, n, r["exact"])
		}
		delete(actual, r["flow"])
	}
	p.t.Logf("%d victims, %d exact", len(rows), exact)
	if len(rows) < 10 || exact < 10 || len(actual) > 0 {
		p.t.Errorf("%d victims were published, %d exact, %d are missing: %v", len(rows), exact, len(actual), actual)
	}
}

// latencies checks the mean time of a flow at each switch of its path.
func (p *played) latencies(plugin string, rows []row) {
	path := map[string]row{}
	for _, r := range p.of(plugin) {
		if r["flow"] == rows[0]["flow"] && r["node"] != "network" {
			path[r["node"]] = r
		}
	}
	for _, r := range rows {
		x := path[r["node"]]
		if x == nil {
			p.t.Errorf("%s did not pass %s", r["flow"], r["node"])
			continue
		}
		got, want := r.number(p.t, "latency-avg"), x.number(p.t, "delay-mean-ns")
		p.t.Logf("%s: %v ns, true %v", r["node"], got, want)
		if math.Abs(got-want) > 0.01*want || r.number(p.t, "position") != x.number(p.t, "hop")+1 {
			p.t.Errorf("%s: %v ns at position %s; true are %v at hop %s", r["node"], got, r["position"], want, x["hop"])
		}
	}
	if len(rows) != len(path) {
		p.t.Errorf("%d switches were published, the flow passed %d", len(rows), len(path))
	}
}

// covers checks that the epochs of the results have their length.
func (p *played) covers(plugin string, rows []row) {
	r := rows[0]
	epochs := r.number(p.t, "last-epoch") - r.number(p.t, "first-epoch") + 1
	length := r.number(p.t, "end-time") - r.number(p.t, "start-time")
	if want := epochs * float64(p.epoch); math.Abs(length-want) > 1e3 {
		p.t.Errorf("%s: %v epochs have %v ns, not %v", plugin, epochs, length, want)
	}
	p.of(plugin) // the ground truth has these epochs
}
