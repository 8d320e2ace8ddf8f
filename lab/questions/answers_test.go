// SPDX-License-Identifier: Apache-2.0

package questions

import (
	"math"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// scenarios are the scenarios of docs/yang.md, with the epochs that are played, and the volume of
// the last one, which docs/evidence/collector.md has.
var scenarios = map[string]struct {
	file   string
	epochs int
	volume volume
}{
	"omnimon":    {"examples/omnimon/fat-tree.yaml", 7, volume{1233, 8797, 286, 1368, 10520}},
	"chamelemon": {"examples/chamelemon/link-loss.yaml", 9, volume{736, 1819, 126, 862, 5273}},
	"univmon":    {"lab/scenario/default.yaml", 5, volume{613, 3112, 43, 656, 3606}},
	"sketchint":  {"examples/sketchint/queue.yaml", 5, volume{615, 2331, 31, 646, 3842}},
	// Random drops at agg2-1 in the fifth epoch. Its results are those of the sixth.
	"lightguardian": {"examples/lightguardian/faults.yaml", 6, volume{1443, 8671, 706, 2203, 10965}},
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

// answers are the questions of the page by plugin, or by plugin and container if the plugin has
// several answers.
var answers = map[string]map[string]answer{
	large: {
		"omnimon":    {[]string{"flow"}, "packets-low", (*played).linkFlows},
		"chamelemon": {[]string{"flow"}, "packets", sizes("entered", 0.001)},
		"univmon":    {[]string{"flow"}, "packets", sizes("packets", 0.01)},
		"sketchint":  {[]string{"flow"}, "packets", sizes("packets", 0.01)},

		"lightguardian": {[]string{"flow"}, "packets", sizes("packets", 0.01)},
	},
	lossy: {
		"omnimon":    {[]string{"flow", "location"}, "lost-packets-low", (*played).losses},
		"chamelemon": {[]string{"flow"}, "lost-packets", (*played).victims},

		"lightguardian/faults": {[]string{"flow", "node"}, "value", (*played).shares},
		"lightguardian/flows":  {[]string{"flow"}, "lost-packets", (*played).missing},
	},
	slow: {
		"sketchint":     {[]string{"node"}, "latency-avg", (*played).latencies},
		"lightguardian": {[]string{"node", "lower"}, "packets", (*played).delays},
	},
	quality: {
		"omnimon":    {[]string{"flow", "location"}, "quality", (*played).losses},
		"chamelemon": {[]string{"flow"}, "quality", (*played).victims},

		"lightguardian": {[]string{"flow"}, "packets-quality", (*played).hopQualities},
		"univmon":       {[]string{"flow"}, "packets-error", (*played).sizeErrors},
		"sketchint":     {[]string{"flow"}, "packets-quality", (*played).flowQualities},
	},
	covered: {
		"omnimon":    {nil, "end-time", (*played).covers},
		"chamelemon": {nil, "end-time", (*played).covers},
		"univmon":    {nil, "end-time", (*played).covers},
		"sketchint":  {nil, "end-time", (*played).covers},

		"lightguardian": {nil, "end-time", (*played).covers},
	},
}

// TestQuestions plays the scenario of each plugin and asks all questions of docs/yang.md about it.
func TestQuestions(t *testing.T) {
	all := queries(t)
	for plugin, s := range scenarios {
		t.Run(plugin, func(t *testing.T) {
			play(t, s.file, s.epochs, func(p *played) {
				for _, q := range all {
					if q.plugin != plugin {
						continue
					}
					a, ok := answers[q.question][plugin]
					if !ok {
						a, ok = answers[q.question][strings.Join(strings.Split(q.gnmi, "/")[1:3], "/")]
					}
					if !ok {
						t.Errorf("%s: no check of %s", q.question, q.gnmi)
						continue
					}
					a.check(p, plugin, p.ask(q, a.keys, a.leaf))
				}
				if v := p.volume(plugin); v.above(&s.volume) {
					t.Errorf("the last epoch has %+v; recorded are %+v", v, s.volume)
				} else {
					t.Logf("the last epoch has %+v", v)
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
			if r["quality"] == "EXACT" && r.number(p.t, "packets") != n {
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
		low, high := r.number(p.t, "lost-packets-low"), r.number(p.t, "lost-packets-high")
		if n := actual[key]; n < low || n > high || low != high && r["quality"] == "EXACT" {
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
		if r["quality"] == "EXACT" {
			exact++
		}
		if n > lost || n < lost && r["quality"] == "EXACT" {
			p.t.Errorf("%s lost %v packets; %v were published, %s", r["flow"], lost, n, r["quality"])
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

// sizeErrors checks the sizes of all heavy hitters of switches against their standard errors, and
// the packets of switches that are said to be exact.
func (p *played) sizeErrors(plugin string, rows []row) {
	within, all := 0, 0
	for _, r := range p.rows("/univmon/heavy-hitters/heavy-hitter[dimension=5-tuple]") {
		x := p.at(plugin, r["node"])[r["flow"]]
		if r["node"] == "network" || x == nil {
			continue
		}
		off := math.Abs(r.number(p.t, "packets") - x.number(p.t, "packets"))
		if all++; off <= 2*r.number(p.t, "packets-error") {
			within++
		}
		if r["quality"] != "ESTIMATE" {
			p.t.Errorf("%s at %s has quality %q", r["flow"], r["node"], r["quality"])
		}
	}
	p.t.Logf("%d of %d sizes are within twice their standard error", within, all)
	if all < 50 || float64(within) < 0.95*float64(all) {
		p.t.Errorf("%d of %d sizes are within twice their standard error", within, all)
	}
	exact := 0
	for _, r := range p.rows("/univmon/node-summaries/node-summary[dimension=5-tuple]") {
		n := 0.0
		for _, x := range p.at(plugin, r["node"]) {
			n += x.number(p.t, "packets")
		}
		got := r.number(p.t, "packets")
		p.t.Logf("%s has %v packets (%s), true %v", r["node"], got, r["packets-quality"], n)
		if r["packets-quality"] == "EXACT" {
			if exact++; got != n {
				p.t.Errorf("%s has %v packets; exactly %v were published", r["node"], n, got)
			}
		}
	}
	if exact < 2 {
		p.t.Errorf("the packets of %d switches are exact", exact)
	}
}

// flowQualities checks the packets of flows that hosts received against what is said of their
// quality.
func (p *played) flowQualities(plugin string, rows []row) {
	actual, bounds := p.at(plugin, "network"), 0
	for _, r := range rows {
		x := actual[r["flow"]]
		if x == nil || r["packets"] == "" {
			continue
		}
		n, published := x.number(p.t, "packets"), r.number(p.t, "packets")
		if x["lost"] != "" {
			n -= x.number(p.t, "lost")
		}
		if r["packets-quality"] != "UPPER_BOUND" {
			p.t.Errorf("%s has packets of quality %q", r["flow"], r["packets-quality"])
		}
		if bounds++; published < n-onTheirWay {
			p.t.Errorf("%s has %v packets; at most %v were published", r["flow"], n, published)
		}
	}
	p.t.Logf("%d bounds of %d flows", bounds, len(rows))
	if bounds < 10 {
		p.t.Errorf("%d bounds", bounds)
	}
}

// hopQualities checks the packets of flows at a switch against what is said of their quality.
func (p *played) hopQualities(plugin string, rows []row) {
	actual, bounds := p.at(plugin, rows[0]["node"]), 0
	for _, r := range rows {
		if r["packets"] == "" {
			continue
		}
		n := 0.0
		if x := actual[r["flow"]]; x != nil {
			n = x.number(p.t, "packets")
		}
		published := r.number(p.t, "packets")
		switch r["packets-quality"] {
		case "UPPER_BOUND":
			if bounds++; published < n {
				p.t.Errorf("%s has %v packets; at most %v were published", r["flow"], n, published)
			}
		case "ESTIMATE":
		default:
			p.t.Errorf("%s has packets of quality %q", r["flow"], r["packets-quality"])
		}
	}
	p.t.Logf("%d bounds of %d flows", bounds, len(rows))
	if bounds < 10 {
		p.t.Errorf("%d bounds", bounds)
	}
}

// shares checks the shares of packets that are missing at switches: each located one is that of
// the true losses, and each flow that lost at least a tenth of its packets, and 20, is listed.
func (p *played) shares(plugin string, rows []row) {
	type place struct{ flow, node string }
	lost, sent := map[place]float64{}, map[string]float64{}
	for _, r := range p.of(plugin) {
		if flow := r["flow"]; r["node"] == "network" {
			sent[flow] = r.number(p.t, "packets")
		}
		for _, text := range strings.Fields(r["lost-at"]) {
			name, n, _ := strings.Cut(text, "=")
			if _, to := sdk.LinkNodes(name); to != "" { // packets that a link lost are missing behind it
				name = to
			}
			lost[place{r["flow"], name}] += row{"n": n}.number(p.t, "n")
		}
	}
	located := 0
	for _, r := range rows {
		at := place{r["flow"], r["node"]}
		want := lost[at] / sent[at.flow]
		if r["located"] == "true" {
			if located++; math.Abs(r.number(p.t, "value")-want) > 0.02 {
				p.t.Errorf("%v lost %v of its packets; %s were published", at, want, r["value"])
			}
		}
		delete(lost, at)
	}
	for at, n := range lost {
		if n >= 20 && n >= 0.1*sent[at.flow] {
			p.t.Errorf("%v lost %v of %v packets and is not listed", at, n, sent[at.flow])
		}
	}
	p.t.Logf("%d flows at switches, %d located", len(rows), located)
	if located < 10 {
		p.t.Errorf("%d losses are located", located)
	}
}

// onTheirWay is the largest number of packets of a flow that were in the network at the end of an
// epoch.
const onTheirWay = 2

// missing checks the packets that did not arrive: they were lost, or were on their way at the end
// or the begin of the epoch. All flows that lost more are listed.
func (p *played) missing(plugin string, rows []row) {
	actual := map[string]float64{}
	for flow, r := range p.at(plugin, "network") {
		actual[flow] = r.number(p.t, "lost")
	}
	victims := 0
	for _, r := range rows {
		if r["lost-packets"] == "" {
			continue
		}
		n, lost := r.number(p.t, "lost-packets"), actual[r["flow"]]
		if math.Abs(n-lost) > onTheirWay {
			p.t.Errorf("%s lost %v packets; %v were published", r["flow"], lost, n)
		}
		if lost > 0 {
			victims++
		}
		delete(actual, r["flow"])
	}
	for flow, n := range actual {
		if n > onTheirWay {
			p.t.Errorf("%s lost %v packets and is not listed", flow, n)
		}
	}
	p.t.Logf("%d victims of %d flows", victims, len(rows))
	if victims < 10 {
		p.t.Errorf("%d victims were published", victims)
	}
}

// delays checks the packets of a flow in ranges of delays: at each switch of its path the ranges
// have the packets of the flow or a few more, and the true mean and the longest delay are within
// them.
func (p *played) delays(plugin string, rows []row) {
	path := map[string]row{}
	for _, r := range p.of(plugin) {
		if r["flow"] == rows[0]["flow"] && r["node"] != "network" {
			path[r["node"]] = r
		}
	}
	type sums struct{ packets, low, high, top, most float64 }
	at := map[string]sums{}
	for _, r := range rows {
		s, n, low, high := at[r["node"]], r.number(p.t, "packets"), r.number(p.t, "lower"), math.Inf(1)
		if r["upper"] != "" {
			high = r.number(p.t, "upper")
		}
		s.packets, s.low, s.high = s.packets+n, s.low+n*low, s.high+n*high
		s.top, s.most = max(s.top, low), max(s.most, high)
		at[r["node"]] = s
	}
	for node, s := range at {
		x := path[node]
		if x == nil {
			p.t.Errorf("%s did not pass %s", rows[0]["flow"], node)
			continue
		}
		n, mean, longest := x.number(p.t, "packets"), x.number(p.t, "delay-mean-ns"), x.number(p.t, "delay-max-ns")
		p.t.Logf("%s: %+v; true %v packets, mean %v ns, longest %v", node, s, n, mean, longest)
		if s.packets < n || s.packets > 1.02*n || mean < s.low/s.packets || mean >= s.high/s.packets ||
			longest < s.top || longest >= s.most {
			p.t.Errorf("%s: %+v; true are %v packets, mean %v ns, longest %v ns", node, s, n, mean, longest)
		}
	}
	if len(at) != len(path) {
		p.t.Errorf("%d switches were published, the flow passed %d", len(at), len(path))
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
