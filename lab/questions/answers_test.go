// SPDX-License-Identifier: Apache-2.0

package questions

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/openconfig/gnmi/proto/gnmi"

	"github.com/netsketch/netsketch/hostagent/lease"
	"github.com/netsketch/netsketch/lab/questions/volume"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// scenarios are the scenarios of docs/yang.md, with the epochs that are played, and the volume of
// the last one, which docs/evidence/collector.md has.
var scenarios = map[string]struct {
	file   string
	epochs int
	volume volume.Volume
}{
	"omnimon":    {"examples/omnimon/fat-tree.yaml", 7, recorded(1233, 9927, 286, 1368, 8910)},
	"chamelemon": {"examples/chamelemon/link-loss.yaml", 9, recorded(736, 1819, 126, 862, 4157)},
	"univmon":    {"lab/scenario/default.yaml", 5, recorded(613, 3112, 43, 656, 3248)},
	"sketchint":  {"examples/sketchint/queue.yaml", 5, recorded(615, 2520, 31, 646, 3458)},
	// Random drops at agg2-1 in the fifth epoch. Its results are those of the sixth.
	"lightguardian": {"examples/lightguardian/faults.yaml", 6, recorded(1454, 11577, 726, 2216, 11344)},
}

func recorded(rows, updates, deletes, points, series int) volume.Volume {
	return volume.Volume{Rows: rows, Updates: updates, Deletes: deletes, Points: points, Series: series}
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
	least int      // values that are compared with the ground truth in the scenario of the page, at least
	// check compares the rows with the ground truth, and returns how many values it compared.
	check func(p *played, plugin string, rows []row) int
}

// answers are the questions of the page by plugin, or by plugin and container if the plugin has
// several answers.
var answers = map[string]map[string]answer{
	large: {
		// Each of 96 links has an equal part of 500 rows.
		"omnimon":    {[]string{"flow"}, "packets-low", 5, (*played).linkFlows},
		"chamelemon": {[]string{"flow"}, "packets", 5, (*played).sizes},
		"univmon":    {[]string{"flow"}, "packets", 10, (*played).sizes},
		"sketchint":  {[]string{"flow"}, "packets", 1, (*played).sizes},

		"lightguardian": {[]string{"flow"}, "packets", 10, (*played).sizes},
	},
	lossy: {
		"omnimon":    {[]string{"flow", "location"}, "lost-packets-low", 10, (*played).losses},
		"chamelemon": {[]string{"flow"}, "lost-packets", 10, (*played).victims},

		"lightguardian/faults": {[]string{"flow", "node"}, "value", 10, (*played).shares},
		"lightguardian/flows":  {[]string{"flow"}, "lost-packets", 10, (*played).missing},
	},
	slow: {
		"sketchint":     {[]string{"node"}, "latency-avg", 3, (*played).latencies},
		"lightguardian": {[]string{"node", "lower"}, "packets", 3, (*played).delays},
	},
	quality: {
		"omnimon":    {[]string{"flow", "location"}, "quality", 10, (*played).losses},
		"chamelemon": {[]string{"flow"}, "quality", 10, (*played).victims},

		"lightguardian": {[]string{"flow"}, "packets-quality", 10, (*played).hopQualities},
		"univmon":       {[]string{"flow"}, "packets-error", 50, (*played).sizeErrors},
		"sketchint":     {[]string{"flow"}, "packets-quality", 10, (*played).flowQualities},
	},
	covered: {
		"omnimon":    {nil, "end-time", 1, (*played).covers},
		"chamelemon": {nil, "end-time", 1, (*played).covers},
		"univmon":    {nil, "end-time", 1, (*played).covers},
		"sketchint":  {nil, "end-time", 1, (*played).covers},

		"lightguardian": {nil, "end-time", 1, (*played).covers},
	},
}

// TestQuestions plays the scenario of each plugin and asks all questions of docs/yang.md about it.
func TestQuestions(t *testing.T) {
	all := queries(t)
	for plugin, s := range scenarios {
		t.Run(plugin, func(t *testing.T) {
			play(t, load(t, s.file), []int{s.epochs}, func(p *played) {
				for _, q := range all {
					if q.plugin != plugin {
						continue
					}
					a, ok := q.answer()
					if !ok {
						t.Errorf("%s: no check of %s", q.question, q.gnmi)
						continue
					}
					n := a.check(p, plugin, p.ask(q, a.keys, a.leaf))
					if t.Logf("%s %s: %d values are compared", q.question, q.gnmi, n); n < a.least {
						t.Errorf("%s: %d values are compared, want %d", q.gnmi, n, a.least)
					}
				}
				t.Logf("%d more values are compared", p.everywhere(plugin))
				t.Logf("%d rows are the same in gNMI, InfluxDB and Prometheus", p.same(plugin))
				p.panels(plugin)
				if state, config := p.get(plugin, gnmi.GetRequest_STATE), p.get(plugin, gnmi.GetRequest_CONFIG); state == 0 ||
					config > 0 {
					t.Errorf("gNMI returns %d updates of state and %d of configuration", state, config)
				}
				if v := p.volume(plugin); v.Above(s.volume) {
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

// answer returns how the answers to a query are checked.
func (q query) answer() (a answer, ok bool) {
	if a, ok = answers[q.question][q.plugin]; !ok {
		a, ok = answers[q.question][strings.Join(strings.Split(q.gnmi, "/")[1:3], "/")]
	}
	return a, ok
}

// at returns the ground truth of a plugin's epochs by flow, at one node.
func (p *played) at(plugin, node string) map[string]row {
	p.t.Helper()
	known := p.flows[plugin]
	if known == nil {
		known = map[string]map[string]row{}
		for _, r := range p.of(plugin) {
			if known[r["node"]] == nil {
				known[r["node"]] = map[string]row{}
			}
			known[r["node"]][r["flow"]] = merged(p.t, known[r["node"]][r["flow"]], r)
		}
		p.flows[plugin] = known
	}
	return known[node]
}

// along returns the ground truth of a plugin's epochs by node, of one flow at the switches.
func (p *played) along(plugin, flow string) map[string]row {
	out := map[string]row{}
	for _, r := range p.of(plugin) {
		if r["flow"] == flow && r["node"] != "network" {
			out[r["node"]] = merged(p.t, out[r["node"]], r)
		}
	}
	return out
}

// merged returns the sums of two rows of a flow at a node.
func merged(t *testing.T, before, r row) row {
	t.Helper()
	if before == nil {
		return r
	}
	out := maps.Clone(before)
	for _, name := range []string{"packets", "entered", "lost"} {
		if r[name] != "" {
			n := r.number(t, name)
			if before[name] != "" {
				n += before.number(t, name)
			}
			out[name] = fmt.Sprint(int(n))
		}
	}
	lost := map[string]float64{}
	for _, x := range []row{before, r} {
		for place, n := range lostPackets(t, x) {
			lost[place] += n
		}
	}
	var places []string
	for _, place := range slices.Sorted(maps.Keys(lost)) {
		places = append(places, fmt.Sprintf("%s=%d", place, int(lost[place])))
	}
	out["lost-at"] = strings.Join(places, " ")
	if r["delay-mean-ns"] != "" && before["delay-mean-ns"] != "" {
		a, b := before.number(t, "packets"), r.number(t, "packets")
		mean := (a*before.number(t, "delay-mean-ns") + b*r.number(t, "delay-mean-ns")) / max(a+b, 1)
		out["delay-mean-ns"] = fmt.Sprint(int(mean))
		out["delay-max-ns"] = fmt.Sprint(int(max(before.number(t, "delay-max-ns"), r.number(t, "delay-max-ns"))))
	}
	return out
}

// lostPackets returns the packets that a flow lost, by switch or link.
func lostPackets(t *testing.T, r row) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for _, text := range strings.Fields(r["lost-at"]) {
		place, n, _ := strings.Cut(text, "=")
		out[place] += row{"n": n}.number(t, "n")
	}
	return out
}

// dropped returns the packets of each flow that a switch lost. LightGuardian counts packets that
// leave a switch.
func (p *played) dropped(plugin, node string) map[string]float64 {
	out := map[string]float64{}
	if plugin == "lightguardian" {
		for _, r := range p.of(plugin) {
			out[r["flow"]] += lostPackets(p.t, r)[node]
		}
	}
	return out
}

// all reports whether a plugin says that its results are complete, and that its limits left no row
// out. Otherwise a list can lack rows.
func (p *played) all(plugin string) bool {
	p.t.Helper()
	s := p.rows("/" + plugin + "/summary/state")[0]
	return s["status"] == "COMPLETE" && s.number(p.t, "omitted-rows") == 0
}

// claims checks what a row says about a number of packets. It returns whether there was anything to
// check.
func (p *played) claims(r row, leaf string, n float64) bool {
	p.t.Helper()
	quality := cmp.Or(r[leaf+"-quality"], r["quality"])
	low, high := math.Inf(-1), math.Inf(1)
	if r[leaf] != "" && (quality == "EXACT" || quality == "LOWER_BOUND") {
		low = r.number(p.t, leaf)
	}
	if r[leaf] != "" && (quality == "EXACT" || quality == "UPPER_BOUND") {
		high = r.number(p.t, leaf)
	}
	if quality != "ESTIMATE" && r[leaf+"-low"] != "" {
		low = max(low, r.number(p.t, leaf+"-low"))
	}
	if quality != "ESTIMATE" && r[leaf+"-high"] != "" {
		high = min(high, r.number(p.t, leaf+"-high"))
	}
	other := quality == "LOWER_BOUND" && r[leaf+"-high"] != "" || quality == "UPPER_BOUND" && r[leaf+"-low"] != ""
	if other || quality == "" || n < low || n > high || r["confidence"] == "" && low > high {
		p.t.Errorf("true are %v %s; published is %v", n, leaf, r)
	}
	return low > math.Inf(-1) || high < math.Inf(1)
}

// known reports whether the ground truth has the flow of a row. It has not those of agents' probes,
// and no rows of hosts.
func (p *played) known(r row, known bool) bool {
	p.t.Helper()
	probe := strconv.Itoa(lease.Port)
	if !known && r["type"] != "HOST" && r["source-port"] != probe && r["destination-port"] != probe {
		p.t.Errorf("the ground truth has no flow %s at %q", r["flow"], r["node"])
	}
	return known
}

// everywhere checks the claims of all rows about flows at links and nodes, not only of those that a
// question asks about. It returns the number of checked values.
func (p *played) everywhere(plugin string) (n int) {
	p.t.Helper()
	if plugin == "omnimon" {
		links := map[string][]row{}
		for _, r := range p.rows("/omnimon/link-flows/link-flow") {
			links[r["link"]] = append(links[r["link"]], r)
		}
		for _, rows := range links {
			if strings.Count(rows[0]["link"], "/") == 2 { // the ground truth has no links of hosts
				n += p.linkFlows(plugin, rows)
			}
		}
		return n
	}
	list := "/" + plugin + "/heavy-hitters/heavy-hitter"
	switch plugin {
	case "univmon": // sizeErrors has all rows
		return 0
	case "lightguardian":
		list = "/lightguardian/hops/hop"
	}
	column := p.column(plugin)
	dropped := map[string]map[string]float64{}
	for _, r := range p.rows(list) {
		node := r["node"]
		x := p.there(plugin, r)
		if r["packets"] == "" || !p.known(r, x != nil) {
			continue
		}
		if dropped[node] == nil {
			dropped[node] = p.dropped(plugin, node)
		}
		if x[column] != "" && p.claims(r, "packets", inTime(p.t, plugin, r, x.number(p.t, column)-dropped[node][r["flow"]])) {
			n++
		}
	}
	return n
}

// column is the ground truth of the packets of a flow at a node.
func (*played) column(plugin string) string {
	if plugin == "chamelemon" { // it counts flows where they enter the network
		return "entered"
	}
	return "packets"
}

// there returns the ground truth of the flow of a row at its node. It has none of a flow that was
// lost before, of which no packet came there.
func (p *played) there(plugin string, r row) row {
	p.t.Helper()
	x := p.at(plugin, r["node"])[r["flow"]]
	if x == nil && p.at(plugin, "network")[r["flow"]] != nil {
		return row{"packets": "0", "entered": "0", "delay-mean-ns": "0"}
	}
	return x
}

// linkFlows checks the flows of a link between switches: the true number of packets that were sent
// on the link is within the bounds, and no flow that is not listed sent more than a listed one.
func (p *played) linkFlows(plugin string, rows []row) int {
	if len(rows) == 0 {
		return 0
	}
	link := rows[0]["link"]
	sent := p.sent(plugin, link)
	least := math.Inf(1)
	for _, r := range rows {
		p.claims(r, "packets", sent[r["flow"]])
		if sent[r["flow"]] == 0 {
			p.t.Errorf("%s sent no packet on %s", r["flow"], link)
		}
		delete(sent, r["flow"])
		if r["quality"] != "LOWER_BOUND" {
			least = min(least, r.number(p.t, "packets-high"))
		}
	}
	for flow, n := range sent {
		if n > least {
			p.t.Errorf("%s: %s sent %v packets and is not listed", link, flow, n)
		}
	}
	return len(rows)
}

// sent returns the packets that flows sent on a link between switches.
func (p *played) sent(plugin, link string) map[string]float64 {
	from, to := sdk.LinkNodes(link)
	entered, left, sent := p.at(plugin, from), p.at(plugin, to), map[string]float64{}
	for flow, r := range p.at(plugin, "network") {
		n, ok := lostPackets(p.t, r)[link]
		if a, b := entered[flow], left[flow]; a != nil && b != nil && b.number(p.t, "hop") == a.number(p.t, "hop")+1 {
			n, ok = n+b.number(p.t, "packets"), true
		}
		if ok {
			sent[flow] = n
		}
	}
	return sent
}

// sizes checks flows at a node: the claims of each row hold, the sum of the differences from the
// true packets is at most a hundredth of them, and the largest flows are the truly largest, unless
// the plugin says that data is missing.
func (p *played) sizes(plugin string, rows []row) int {
	if len(rows) == 0 {
		return 0
	}
	column := p.column(plugin)
	actual, dropped := map[string]float64{}, p.dropped(plugin, rows[0]["node"])
	for flow, r := range p.at(plugin, rows[0]["node"]) {
		if r[column] != "" {
			actual[flow] = r.number(p.t, column) - dropped[flow]
		}
	}
	type size struct {
		flow            string
		published, true float64
	}
	var listed []size
	sum, off := 0.0, 0.0
	for _, r := range rows {
		if r["packets"] == "" {
			continue
		}
		n := actual[r["flow"]]
		// Until more buckets arrive, a loop looks like other flows, and the sent packets are an estimate.
		if x := p.at(plugin, "network")[r["flow"]]; plugin == "lightguardian" && x != nil && n > 2*x.number(p.t, "packets") {
			p.t.Logf("%s is in a loop: %s packets, true %v", r["flow"], r["packets"], n)
			continue
		}
		p.claims(r, "packets", inTime(p.t, plugin, r, n))
		x := size{r["flow"], r.number(p.t, "packets"), n}
		listed = append(listed, x)
		sum, off = sum+n, off+math.Abs(x.published-n)
	}
	p.t.Logf("%s at %s: %d flows, coverage %q, error %.5f", plugin, rows[0]["node"], len(listed), rows[0]["coverage"],
		off/max(sum, 1))
	if off > 0.01*sum {
		p.t.Errorf("%s: %d flows with %v packets; the sum of the errors is %v", plugin, len(listed), sum, off)
	}
	if plugin == "lightguardian" || len(listed) == 0 { // its list has flows with faults first
		return len(listed)
	}
	if plugin == "sketchint" && rows[0]["node"] != "network" && len(p.run.Report().Plugins) > 1 {
		return len(listed) // INT of other flows ends in front of switches with other programs
	}
	slices.SortFunc(listed, func(a, b size) int { return cmp.Compare(b.published, a.published) })
	top := listed[:min(len(listed), 10)]
	largest := slices.SortedFunc(maps.Values(actual), func(a, b float64) int { return cmp.Compare(b, a) })
	if least := largest[min(len(top), len(largest))-1]; top[len(top)-1].true < 0.95*least && p.complete(plugin) {
		var unlisted []string
		for flow, n := range actual {
			if n >= least && !slices.ContainsFunc(listed, func(x size) bool { return x.flow == flow }) {
				unlisted = append(unlisted, flow)
			}
		}
		p.t.Errorf("%s: %v is among the largest %d flows, the last of which truly has %v packets; not listed: %q", plugin,
			top[len(top)-1], len(top), least, unlisted)
	}
	return len(listed)
}

// losses checks where flows lost packets: each loss is within its bounds, an exact one exactly;
// each true loss is published, unless a limit left it out because it is smaller; and nothing else.
func (p *played) losses(plugin string, rows []row) int {
	actual := map[string]float64{}
	for flow, r := range p.at(plugin, "network") {
		for place, n := range lostPackets(p.t, r) {
			actual[flow+" "+place] = n
		}
	}
	least := math.Inf(1)
	for _, r := range rows {
		key := r["flow"] + " " + r["location"]
		// An estimate says which packets are missing so far. None are late here.
		low, high := r.number(p.t, "lost-packets-low"), math.Inf(1)
		if r["quality"] != "LOWER_BOUND" || r["lost-packets-high"] != "" {
			high = r.number(p.t, "lost-packets-high")
		}
		if n := actual[key]; n < low || n > high || low != high && r["quality"] == "EXACT" {
			p.t.Errorf("%s lost %v packets; %v to %v were published", key, n, low, high)
		}
		least = min(least, high)
		delete(actual, key)
	}
	complete := p.all(plugin)
	for key, n := range actual {
		if complete || n > least {
			p.t.Errorf("%s lost %v packets and is not listed", key, n)
		}
	}
	return len(rows)
}

// victims checks the flows that lost packets: numbers that are published as exact are exact, and
// the others are bounds. All these flows are published, unless the plugin says that it lists only
// some. In an ill network, all flows that lost at least low-threshold packets are published, and
// the plugin estimates how many flows lost packets.
func (p *played) victims(plugin string, rows []row) int {
	actual, heavy := map[string]float64{}, map[string]float64{}
	state := p.rows("/" + plugin + "/attention/state")[0]
	ill := state["network-state"] == "ILL"
	for flow, r := range p.at(plugin, "network") {
		if r["lost"] != "" && r.number(p.t, "lost") > 0 {
			actual[flow] = r.number(p.t, "lost")
			if ill && actual[flow] >= state.number(p.t, "low-threshold") {
				heavy[flow] = actual[flow]
			}
		}
	}
	if all := float64(len(actual)); ill && math.Abs(state.number(p.t, "victims")-all) > 0.1*all {
		p.t.Errorf("the number of victims is %v, published is %s", all, state["victims"])
	}
	compared, heavies := 0, len(heavy)
	for _, r := range rows {
		if p.claims(r, "lost-packets", actual[r["flow"]]) {
			compared++
		}
		delete(actual, r["flow"])
		delete(heavy, r["flow"])
	}
	p.t.Logf("%d victims, %d not listed; ill: %v, %d of %d that lost the low threshold not listed", len(rows), len(actual),
		ill, len(heavy), heavies)
	if ill {
		actual = heavy
	}
	if len(actual) > 0 && p.all(plugin) {
		p.t.Errorf("%d victims are missing: %v", len(actual), actual)
	}
	return compared
}

// latencies checks the mean time of a flow at each switch of its path.
func (p *played) latencies(plugin string, rows []row) int {
	if len(rows) == 0 {
		return 0
	}
	path := p.along(plugin, rows[0]["flow"])
	for _, r := range rows {
		x := path[r["node"]]
		if x == nil {
			p.t.Errorf("%s did not pass %s", r["flow"], r["node"])
			continue
		}
		if x["delay-mean-ns"] == "" { // the packets of an epoch by the marks of hosts
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
	return len(rows)
}

// sizeErrors checks the sizes of all heavy hitters against their standard errors, and the packets
// of switches that are said to be exact.
func (p *played) sizeErrors(plugin string, _ []row) int {
	within, all := 0, 0
	// The network's sketch is the sum of the sketches of leaf, edge and core switches, minus the
	// sketches of the other switches.
	counted := map[string]float64{}
	for _, r := range p.of(plugin) {
		switch name := strings.TrimRight(r["node"], "0123456789-"); name {
		case "leaf", "edge", "core":
			counted[r["flow"]] += r.number(p.t, "packets")
		case "spine", "agg":
			counted[r["flow"]] -= r.number(p.t, "packets")
		}
	}
	for _, r := range p.rows("/univmon/heavy-hitters/heavy-hitter[dimension=5-tuple]") {
		x := p.at(plugin, r["node"])[r["flow"]]
		if !p.known(r, x != nil) {
			continue
		}
		n := x.number(p.t, "packets")
		// the network's sketch may not count a lost packet, so the switches' counts are combined
		if r["node"] == "network" && n > 0 && x["lost"] != "" && len(counted) > 0 {
			n = counted[r["flow"]]
		}
		off := math.Abs(r.number(p.t, "packets") - n)
		if all++; off <= 2*r.number(p.t, "packets-error") {
			within++
		}
		if r["quality"] != "ESTIMATE" {
			p.t.Errorf("%s at %s has quality %q", r["flow"], r["node"], r["quality"])
		}
	}
	p.t.Logf("%d of %d sizes are within twice their standard error", within, all)
	// If there are few sizes, more than one in 20 can be off by chance.
	if n := float64(all); float64(all-within) > 0.05*n+3*math.Sqrt(0.0475*n) {
		p.t.Errorf("%d of %d sizes are within twice their standard error", within, all)
	}
	for _, r := range p.rows("/univmon/node-summaries/node-summary") { // all dimensions have the same packets
		if r["packets"] == "" || len(p.at(plugin, r["node"])) == 0 {
			continue
		}
		n := 0.0
		for _, x := range p.at(plugin, r["node"]) {
			n += x.number(p.t, "packets")
		}
		if p.claims(r, "packets", n) {
			all++
		}
	}
	return all
}

// flowQualities checks the published number of packets that hosts received of each flow against the
// published quality of the number.
func (p *played) flowQualities(plugin string, rows []row) (compared int) {
	actual := p.at(plugin, "network")
	for _, r := range rows {
		x := actual[r["flow"]]
		if r["packets"] == "" || !p.known(r, x != nil) {
			continue
		}
		n := x.number(p.t, "packets")
		if x["lost"] != "" {
			n -= x.number(p.t, "lost")
		}
		// Packets that are on their way at the end count in the next interval.
		if r["packets-quality"] == "UPPER_BOUND" {
			if compared++; r.number(p.t, "packets") < n-onTheirWay {
				p.t.Errorf("%s has %v packets; at most %s were published", r["flow"], n, r["packets"])
			}
		} else if r["packets-quality"] != "ESTIMATE" {
			p.t.Errorf("%s has packets of quality %q", r["flow"], r["packets-quality"])
		}
	}
	return compared
}

// hopQualities checks the published packets and latencies of flows at a switch against their
// published quality.
func (p *played) hopQualities(plugin string, rows []row) (compared int) {
	if len(rows) == 0 {
		return 0
	}
	dropped := p.dropped(plugin, rows[0]["node"])
	for _, r := range rows {
		x := p.there(plugin, r)
		if r["packets"] == "" || !p.known(r, x != nil) {
			continue
		}
		if p.claims(r, "packets", inTime(p.t, plugin, r, x.number(p.t, "packets")-dropped[r["flow"]])) {
			compared++
		}
		if x["packets"] == "0" || r["latency-avg-low"] == "" {
			continue
		}
		// Bounds of the latency are estimates: packets of other flows can share all buckets.
		if low, mean := r.number(p.t, "latency-avg-low"), x.number(p.t, "delay-mean-ns"); mean < 0.98*low ||
			r["latency-avg-high"] != "" && mean > 1.02*r.number(p.t, "latency-avg-high") {
			p.t.Errorf("%s took %v ns at %s; %s to %q were published", r["flow"], mean, r["node"], r["latency-avg-low"],
				r["latency-avg-high"])
		}
	}
	return compared
}

// looped returns the flows that LightGuardian lists with the fault LOOP.
func (p *played) looped(plugin string) map[string]bool {
	p.t.Helper()
	out := map[string]bool{}
	if plugin == "lightguardian" {
		for _, r := range p.rows("/lightguardian/faults/fault[kind=LOOP]") {
			out[r["flow"]] = true
		}
	}
	return out
}

// shares checks the shares of packets that are missing at switches, also at those that pass almost
// none. Places with a confidence of at least 0.9 are those of true losses, as often as their
// confidence says, and the shares are near the true ones in the mean. Each flow that lost at least
// a tenth of its packets, and 20, is listed, as lost or in a loop, unless the plugin says that data
// is missing or follows.
func (p *played) shares(plugin string, rows []row) int {
	type place struct{ flow, node string }
	lost, sent := map[place]float64{}, map[string]float64{}
	// If hosts mark no epoch, losses are in the rows of the switches at which flows enter.
	for _, r := range p.of(plugin) {
		if r["node"] == "network" {
			sent[r["flow"]] += r.number(p.t, "packets")
		}
		for name, n := range lostPackets(p.t, r) {
			if _, to := sdk.LinkNodes(name); to != "" { // packets that a link lost are missing behind it
				name = to
			}
			lost[place{r["flow"], name}] += n
		}
	}
	for flow := range p.looped(plugin) { // its packets are lost at any switch of the loop
		maps.DeleteFunc(lost, func(at place, _ float64) bool { return at.flow == flow })
	}
	located, doubt, off := 0, 0.0, 0.0
	var wrong []string
	for _, r := range append(rows, p.rows("/lightguardian/faults/fault[kind=BLACKHOLE]")...) {
		at := place{r["flow"], r["node"]}
		want, share := lost[at]/sent[at.flow], r.number(p.t, "value")
		if strings.HasSuffix(r["kind"], "BLACKHOLE") { // its value is the share that is left
			share = 1 - share
		}
		delete(lost, at)
		if r["located"] == "true" {
			located++
			confidence := r.number(p.t, "confidence")
			if confidence < 0.9 {
				continue
			}
			doubt += 1 - confidence
			off += math.Abs(share - want)
			if math.Abs(share-want) > 0.5*share {
				for _, hop := range p.rows("/lightguardian/hops/hop[flow=" + at.flow + "]") {
					p.t.Logf("published %v; true %v", hop, p.along(plugin, at.flow)[hop["node"]])
				}
				wrong = append(wrong, fmt.Sprintf("%v lost %v; %s %s was published with confidence %s", at, want,
					r["kind"], r["value"], r["confidence"]))
			}
		}
	}
	p.t.Logf("%.2f wrong places expected, found %q", doubt, wrong)
	if float64(len(wrong)) > math.Ceil(doubt+2*math.Sqrt(doubt)) {
		p.t.Errorf("%d of %d places are wrong, the confidences allow %.2f: %q", len(wrong), located, doubt, wrong)
	}
	if off > 0.02*float64(located) {
		p.t.Errorf("the shares of %d places differ from the true ones by %.4f in the mean", located, off/float64(located))
	}
	complete := p.complete(plugin)
	for at, n := range lost {
		if n >= 20 && n >= 0.1*sent[at.flow] && complete {
			p.t.Errorf("%v lost %v of %v packets and is not listed", at, n, sent[at.flow])
		}
	}
	p.t.Logf("%d flows at switches lost packets, %d places are located, also of blackholes", len(rows), located)
	return located
}

// complete reports whether a plugin says that no data is missing, and that none follows.
func (p *played) complete(plugin string) bool {
	p.t.Helper()
	s := p.rows("/" + plugin + "/summary/state")[0]
	return s["status"] == "COMPLETE" && s["final"] == "true"
}

// onTheirWay is the largest number of packets of a flow that were in the network at the end of an
// epoch.
const onTheirWay = 2

// inTime returns how many of n packets that a flow sent in an epoch left a switch in it.
// LightGuardian counts packets in the interval in which they leave a switch. Packets that are still
// on their way to the switch when an interval ends count in the next interval.
func inTime(t *testing.T, plugin string, r row, n float64) float64 {
	t.Helper()
	if plugin != "lightguardian" || r["packets"] == "" {
		return n
	}
	return min(n, max(r.number(t, "packets"), n-onTheirWay))
}

// missing checks the packets that did not arrive: they were lost, or did not pass the last switch
// of the path in the epoch, because they were in a queue or a loop; a few were on their way at its
// begin or end. All flows that lost more are listed.
func (p *played) missing(plugin string, rows []row) int {
	actual := map[string]float64{}
	for flow, r := range p.at(plugin, "network") {
		if r["lost"] != "" {
			actual[flow] = r.number(p.t, "lost")
		}
	}
	victims := 0
	for _, r := range rows {
		lost, known := actual[r["flow"]]
		if r["lost-packets"] == "" || !p.known(r, known) {
			continue
		}
		n := r.number(p.t, "lost-packets")
		late := lost
		if path := strings.Fields(r["path"]); len(path) > 0 {
			late = p.at(plugin, "network")[r["flow"]].number(p.t, "packets") - p.passed(plugin, path[len(path)-1])[r["flow"]]
		}
		if math.Abs(n-lost) > onTheirWay && math.Abs(n-late) > onTheirWay {
			p.t.Errorf("%s lost %v packets, and %v did not pass the last switch; %v were published", r["flow"], lost, late, n)
		}
		if lost > 0 {
			victims++
		}
		delete(actual, r["flow"])
	}
	complete := p.all(plugin)
	for flow, n := range actual {
		if n > onTheirWay && complete {
			p.t.Errorf("%s lost %v packets and is not listed", flow, n)
		}
	}
	p.t.Logf("%d victims of %d flows", victims, len(rows))
	return victims
}

// passed returns the packets of each flow that passed a switch and were not lost there, nor on a
// link behind it.
func (p *played) passed(plugin, node string) map[string]float64 {
	p.t.Helper()
	known := p.left[node]
	if known == nil {
		known = map[string]float64{}
		for flow, r := range p.at(plugin, node) {
			known[flow] = r.number(p.t, "packets")
		}
		for _, r := range p.of(plugin) {
			for place, n := range lostPackets(p.t, r) {
				if from, _ := sdk.LinkNodes(place); from == node || place == node {
					known[r["flow"]] -= n
				}
			}
		}
		p.left[node] = known
	}
	return known
}

// delays checks the packets of a flow in ranges of delays: at each switch of its path the ranges
// have at least the packets of the flow, and the true mean and the longest delay are within them. A
// switch without ranges is not measured, as its row in the list of hops says.
func (p *played) delays(plugin string, rows []row) int {
	if len(rows) == 0 {
		return 0
	}
	path := p.along(plugin, rows[0]["flow"])
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
		mean, longest := x.number(p.t, "delay-mean-ns"), x.number(p.t, "delay-max-ns")
		n := x.number(p.t, "packets") - p.dropped(plugin, node)[rows[0]["flow"]]
		p.t.Logf("%s: %+v; true %v packets, mean %v ns, longest %v", node, s, n, mean, longest)
		if s.packets < n || mean < s.low/s.packets || mean >= s.high/s.packets ||
			longest < s.top || longest >= s.most {
			p.t.Errorf("%s: %+v; true are %v packets, mean %v ns, longest %v ns", node, s, n, mean, longest)
		}
	}
	for node := range path {
		if _, published := at[node]; published {
			continue
		}
		hop := p.rows(fmt.Sprintf("/lightguardian/hops/hop[flow=%s][node=%s]", rows[0]["flow"], node))
		if (len(hop) != 1 || hop[0]["packets"] != "") && p.complete(plugin) {
			p.t.Errorf("the flow passed %s, which has no delays and is not said to be unmeasured: %v", node, hop)
		}
	}
	p.ranges(plugin)
	return len(at)
}

// ranges checks, for each flow at each switch, that the ranges of delays have at most 2 % more
// packets than passed. One in ten may have more: other flows share all its received buckets.
func (p *played) ranges(plugin string) {
	type at struct{ flow, node string }
	sums, passed, beyond := map[at]float64{}, map[at]float64{}, 0
	for _, r := range p.rows("/lightguardian/delays/delay") {
		sums[at{r["flow"], r["node"]}] += r.number(p.t, "packets")
	}
	for _, r := range p.of(plugin) {
		if r["node"] != "network" {
			passed[at{r["flow"], r["node"]}] += r.number(p.t, "packets")
		}
	}
	for k, n := range sums {
		if n > 1.02*passed[k] {
			beyond++
		}
	}
	p.t.Logf("%d of %d flows at switches have more packets in ranges of delays than passed", beyond, len(sums))
	if beyond > len(sums)/10 {
		p.t.Errorf("%d of %d flows at switches have more packets in ranges of delays than passed", beyond, len(sums))
	}
}

// covers checks that the epochs of the results have their length, and that results say why they are
// not complete.
func (p *played) covers(plugin string, rows []row) int {
	r := rows[0]
	epochs := r.number(p.t, "last-epoch") - r.number(p.t, "first-epoch") + 1
	length := r.number(p.t, "end-time") - r.number(p.t, "start-time")
	if want := epochs * float64(p.epoch); math.Abs(length-want) > 1e3 {
		p.t.Errorf("%s: %v epochs have %v ns, not %v", plugin, epochs, length, want)
	}
	if (r["reason"] == "") != (r["problem"] == "") || r["status"] != "COMPLETE" && r["reason"] == "" {
		p.t.Errorf("%s: the status is %s for the reason %q: %q", plugin, r["status"], r["reason"], r["problem"])
	}
	p.of(plugin) // the ground truth has these epochs
	return 1
}
