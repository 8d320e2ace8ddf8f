// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/plugins/chamelemon/sizes"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/alert"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/yang/table"
)

// The lists of module netsketch-chamelemon.
const (
	root          = "/netsketch-chamelemon:chamelemon/"
	victimList    = root + "victims/victim"
	totalList     = root + "summary"
	summaryList   = root + "node-summaries/node-summary"
	hitterList    = root + "heavy-hitters/heavy-hitter"
	changeList    = root + "heavy-changes/heavy-change"
	rangeList     = root + "ranges/range"
	flowList      = root + "flows/flow"
	attentionList = root + "attention"
	thresholdList = root + "thresholds/threshold"
	encoderList   = root + "encoders/encoder"
	alertList     = root + "alerts/alert"
)

// view is the results of a switch, or of the network.
type view struct {
	device  string
	whole   bool        // whether all its switches delivered all cells
	decoded bool        // the HH parts were decoded
	quality sdk.Quality // of packets
	packets uint64
	covered float64 // share of the edge switches that delivered all cells
	flows   float64
	counted bool
	sizes   sizes.Sizes
	hitters []sized
	changes []changed
	problem string
	empty   bool // nothing was delivered
	compare bool // changes can be computed
	// high is the highest Th in force: a flow of fewer packets can be missing from the HH part. before
	// is the highest Th of the preceding epoch.
	high, before uint64
	// No heavy hitter of hittersFrom packets is missing, and no heavy change by changesFrom packets.
	hittersFrom, changesFrom uint64
	limited                  bool // Th exceeds the threshold of the heavy hitters or changes
}

// sized is a flow with its packets.
type sized struct {
	raw            string
	packets, least uint64 // the flow has at least least packets, and at most packets
	quality        sdk.Quality
}

// changed is a flow with its packets in two epochs, and the least that it can have in each.
type changed struct {
	raw                     string
	before, after           uint64
	leastBefore, leastAfter uint64
	quality                 sdk.Quality // of both numbers
}

func (c changed) by() uint64 { return max(c.before, c.after) - min(c.before, c.after) }

// low and high are bounds of the difference, whatever collisions added to the classifier.
func (c changed) low() int64  { return int64(c.leastAfter) - int64(c.before) }
func (c changed) high() int64 { return int64(c.after) - int64(c.leastBefore) }

// views computes the results of each edge switch and of the network. A flow enters at one edge
// switch, so network results are sums over the edge switches.
func (a *analysis) views() []*view {
	all := &view{device: Network, whole: a.b.problem == "", decoded: true, counted: true,
		compare: a.b.problem == "", problem: a.b.problem, empty: true}
	hitters, changes := make(map[string]sized), make(map[string]changed)
	out := []*view{all}
	first, delivered, absent := true, 0, []string(nil)
	for i := range a.b.edges {
		name := a.b.edges[i].name
		at := slices.IndexFunc(a.readings, func(r *reading) bool { return r.edge.name == name })
		if at < 0 {
			absent = append(absent, name)
			out = append(out, &view{device: name, empty: true, problem: a.problemOf(name)})
			continue
		}
		r := a.readings[at]
		v := &view{device: name, whole: r.whole, decoded: r.decoded, quality: a.packetsQuality(r), covered: 1,
			packets: r.packets, flows: r.flows, counted: r.counted, sizes: r.sizes, problem: a.problemOf(name),
			high: uint64(r.th)}
		v.sizes.OK = v.sizes.Exact || v.sizes.OK && !r.vague()
		v.hitters = make([]sized, 0, len(r.hitters))
		q := r.hitterQuality()
		for raw, n := range r.hitters {
			v.hitters = append(v.hitters, sized{raw, uint64(n) + uint64(r.th) - 1, uint64(n), q})
		}
		a.changes(v, r)
		for _, h := range v.hitters {
			if h.packets*uint64(len(a.b.edges)) < a.config.HeavyHitters.Packets {
				continue // below the threshold even if all edge switches counted the same
			}
			of := hitters[h.raw]
			hitters[h.raw] = sized{h.raw, of.packets + h.packets, of.least + h.least, h.quality.Plus(of.quality)}
		}
		for _, c := range v.changes {
			of := changes[c.raw]
			changes[c.raw] = changed{c.raw, of.before + c.before, of.after + c.after, of.leastBefore + c.leastBefore,
				of.leastAfter + c.leastAfter, c.quality.Plus(of.quality)}
		}
		all.empty = false
		all.whole, all.decoded = all.whole && v.whole, all.decoded && v.decoded
		all.quality = v.quality.Plus(all.quality)
		if v.whole {
			delivered++
		}
		all.packets, all.flows, all.counted = all.packets+v.packets, all.flows+v.flows, all.counted && v.counted
		all.compare = all.compare && v.compare
		all.high, all.before = max(all.high, v.high), max(all.before, v.before)
		all.sizes.OK = v.sizes.OK && (all.sizes.OK || first)
		all.sizes.Exact = v.sizes.Exact && (all.sizes.Exact || first)
		all.sizes.Add(&v.sizes)
		first = false
		out = append(out, v)
	}
	all.covered = float64(delivered) / float64(max(len(a.b.edges), 1))
	if a.b.problem != "" { // packets that enter elsewhere are missing
		all.quality = sdk.LowerBound.Plus(all.quality)
	}
	if len(absent) > 0 {
		all.whole, all.compare = false, false
		all.quality = sdk.LowerBound.Plus(all.quality)
		all.problem = "no data of " + strings.Join(absent, ", ")
	}
	all.hitters = slices.Collect(maps.Values(hitters))
	all.changes = slices.Collect(maps.Values(changes))
	for _, v := range out {
		a.heaviest(v)
	}
	return out
}

// packetsQuality is the quality of the packets that an edge switch counted.
func (a *analysis) packetsQuality(r *reading) sdk.Quality {
	switch {
	case !r.whole || a.mixed:
		return sdk.Estimate
	case r.exact:
		return sdk.Exact
	}
	return sdk.LowerBound // a counter is full
}

// changes computes the changes of the flows in the HH part of this or the preceding epoch (§4.2),
// if both were delivered and decoded completely.
func (a *analysis) changes(v *view, r *reading) {
	if a.previous == nil || a.previous.number+1 != a.epoch.Number || !r.whole || !r.decoded {
		return
	}
	before := a.previous.edges[v.device]
	if before == nil || !before.decoded {
		return
	}
	v.compare, v.before = true, uint64(before.th)
	add := func(raw string) {
		x, leastX, q := before.size([]byte(raw))
		y, leastY, to := r.size([]byte(raw))
		v.changes = append(v.changes, changed{raw, x, y, leastX, leastY, to.Plus(q)})
	}
	for raw := range r.hitters {
		add(raw)
	}
	for raw := range before.hitters {
		if _, both := r.hitters[raw]; !both {
			add(raw)
		}
	}
}

// heaviest keeps the flows above the thresholds and sorts them, largest first. If Th is above a
// threshold, flows between the two are missing, which is a problem of the epoch.
func (a *analysis) heaviest(v *view) {
	c := a.config
	least := max(c.HeavyHitters.Packets, uint64(math.Ceil(c.HeavyHitters.Share*float64(v.packets))), 1)
	v.hittersFrom = max(least, v.high)
	// A flow in no HH part has fewer packets than Th in both epochs, so its change is below Th, too.
	high := max(v.high, v.before)
	v.changesFrom = max(c.HeavyChanges.Packets+1, high)
	v.limited = !v.empty && (v.decoded && v.high > least || v.compare && high > c.HeavyChanges.Packets+1)
	if v.limited {
		text := fmt.Sprintf("the HH part holds flows of at least %d packets: heavy hitters of fewer than %d packets and "+
			"changes of fewer than %d can be missing", v.high, v.hittersFrom, v.changesFrom)
		a.problem(v.device, highThreshold, text)
		v.problem = cmp.Or(v.problem, text)
	}
	v.hitters = slices.DeleteFunc(v.hitters, func(h sized) bool { return h.packets < least })
	slices.SortFunc(v.hitters, func(x, y sized) int {
		return cmp.Or(cmp.Compare(y.packets, x.packets), strings.Compare(x.raw, y.raw))
	})
	if v.device == Network && !v.compare {
		v.changes = nil // incomplete: only some switches have changes
	}
	// Estimates are up to Th - 1 too high: a flow that may have changed by changesFrom is listed, too.
	v.changes = slices.DeleteFunc(v.changes, func(x changed) bool {
		return x.by() <= c.HeavyChanges.Packets && uint64(max(x.high(), -x.low(), 0)) < v.changesFrom
	})
	slices.SortFunc(v.changes, func(x, y changed) int {
		return cmp.Or(cmp.Compare(y.by(), x.by()), strings.Compare(x.raw, y.raw))
	})
}

// publish builds the tables. Each replaces its whole list. Raised and cleared alerts become log
// events.
func (p *Plugin) publish(a *analysis, out *sdk.Results) (*sdk.Results, error) {
	views := a.views()
	out.Add(a.victimTable())
	out.Add(a.summaryTable(views))
	out.Add(a.hitterTable(views))
	out.Add(a.changeTable(views))
	out.Add(a.rangeTable(views))
	out.Add(a.watchedTable())
	out.Add(a.thresholdTable())
	out.Add(a.encoderTable())
	out.Events = append(out.Events, alertEvents(p.alerts.Update(a.epoch, a.problems))...)
	a.alerts = published(p.alerts)
	out.Add(a.alerts.Table(alertList, severity))
	a.total = p.now().Sub(a.began)
	out.Add(a.attentionTable())
	out.Add(a.totalTable(views[0])) // last, because it counts the rows that other tables omitted
	return out, out.Err()
}

// limit returns the first rows of a list, and counts the rows that it leaves out.
func limit[T any](a *analysis, rows []T, most int) []T {
	if len(rows) <= most {
		return rows
	}
	a.omitted += uint64(len(rows) - most)
	return rows[:most]
}

// cut leaves out and counts rows beyond two limits: one for the network, the first view, one for
// all switches together, each of which keeps its rows up to the same rank.
func cut[T any](a *analysis, rows [][]T, most int) {
	a.omitted += sdk.CutByRank(most, &rows[0])
	switches := make([]*[]T, 0, len(rows)-1)
	for i := range rows[1:] {
		switches = append(switches, &rows[i+1])
	}
	a.omitted += sdk.CutByRank(most, switches...)
}

func (a *analysis) victimTable() (*table.Table, error) {
	b := table.NewBuilder(victimList)
	flows, rank := b.TextKey("flow"), b.Uint("state/rank")
	lost, quality, kind := b.Int("state/lost-packets"), b.Text("state/quality"), b.Text("state/kind")
	packets, sizeQuality := b.Uint("state/packets"), b.Text("state/packets-quality")
	entry, exit := b.Text("state/entry-node"), b.Text("state/exit-node")
	for i, v := range limit(a, a.losses.victims, a.config.Victims.Limit) {
		flows.Append(v.key.String())
		rank.Append(uint64(i + 1))
		lost.Append(v.lost)
		quality.Append(string(v.quality))
		kind.Append(map[bool]string{true: "HEAVY", false: "LIGHT"}[v.heavy])
		packets.Append(v.size)
		sizeQuality.Append(string(v.sizeQuality))
		entry.AppendSome(v.entry)
		exit.AppendSome(v.exit)
	}
	return b.Table()
}

// head has the first key columns of most lists. The flows of all results are 5-tuples.
type head struct{ node, dimension *table.TextAppender }

func newHead(b *table.Builder) head { return head{b.TextKey("node"), b.TextKey("dimension")} }

func (h head) append(v *view) {
	h.node.Append(v.device)
	h.dimension.Append(fiveTuple)
}

var fiveTuple = flow.FiveTuple.String()

func (a *analysis) summaryTable(views []*view) (*table.Table, error) {
	b := table.NewBuilder(summaryList)
	head, status, problem := newHead(b), b.Text("state/status"), b.Text("state/problem")
	packets, packetsQuality := b.Uint("state/packets"), b.Text("state/packets-quality")
	flows, entropy, quality := b.Uint("state/distinct-flows"), b.Float("state/entropy"), b.Text("state/quality")
	coverage := b.Float("state/coverage")
	hitters, changes := b.Uint("state/heavy-hitters"), b.Uint("state/changes")
	hittersFrom, changesFrom := b.Uint("state/heavy-hitters-from"), b.Uint("state/changes-from")
	victims, victimsQuality := b.Uint("state/victims"), b.Text("state/victims-quality")
	lost, lostQuality := b.Int("state/lost-packets"), b.Text("state/lost-packets-quality")
	for _, v := range views {
		head.append(v)
		network := v.device == Network
		s, why := a.statusOf(v)
		status.Append(s.String())
		problem.AppendSome(why)
		coverage.Append(table.Decimal(v.covered, 6))
		if v.empty {
			continue
		}
		packets.Append(v.packets)
		packetsQuality.Append(string(v.quality))
		estimated(flows, v.flows, v.counted)
		quality.Append(string(v.sizesQuality(a)))
		if v.sizes.OK {
			entropy.Append(table.Decimal(v.sizes.Entropy(), 6))
		}
		estimated(hitters, float64(len(v.hitters)), v.decoded)
		estimated(changes, float64(len(v.changes)), v.compare)
		estimated(hittersFrom, float64(v.hittersFrom), v.decoded)
		estimated(changesFrom, float64(v.changesFrom), v.compare)
		n, ok := a.losses.number(&a.attention)
		estimated(victims, n, network && ok)
		if !network || !ok {
			continue
		}
		of, sumOf := sdk.Estimate, sdk.Estimate
		switch {
		case !a.alike():
		case a.losses.complete && a.attention.Tl == 1:
			of, sumOf = sdk.Exact, sdk.Exact
		default:
			sumOf = sdk.LowerBound
		}
		victimsQuality.Append(string(of))
		total := int64(0)
		for i := range a.losses.victims {
			total += a.losses.victims[i].lost
		}
		lost.Append(total)
		lostQuality.Append(string(sumOf))
	}
	return b.Table()
}

// sizesQuality is the quality of the number of flows, and of what follows from their sizes.
func (v *view) sizesQuality(a *analysis) sdk.Quality {
	return sdk.ExactIf(v.sizes.Exact && v.quality == sdk.Exact && a.settled)
}

// statusOf returns the status of the results of a switch or of the network, and why it is not
// complete.
func (a *analysis) statusOf(v *view) (s sdk.Status, why string) {
	network := v.device == Network
	switch {
	case v.empty:
		return sdk.StatusLost, v.problem
	case !v.whole || !v.decoded || v.limited || network && (!a.losses.complete || a.warning != ""):
		if network && (v.problem == "" || v.limited) {
			return sdk.StatusPartial, cmp.Or(a.losses.reason, a.warning, v.problem)
		}
		return sdk.StatusPartial, v.problem
	}
	return sdk.StatusComplete, v.problem
}

// reasonOf returns the condition of a problem in words: that of the alert with this text, if any.
func (a *analysis) reasonOf(problem string) string {
	i := slices.IndexFunc(a.problems, func(p alert.Problem) bool { return strings.HasPrefix(p.Text, problem) })
	switch {
	case problem == "":
		return ""
	case i >= 0:
		return string(a.problems[i].Kind)
	case len(a.absent()) > 0:
		return sdk.SwitchMissing
	}
	return sdk.Inexact
}

// totalTable describes the results of the epoch as a whole. network is the view of the network.
func (a *analysis) totalTable(network *view) (*table.Table, error) {
	b := table.NewBuilder(totalList)
	of := a.epoch.Range(a.epoch.Number, a.epoch.Number)
	of.Status, of.Problem = a.statusOf(network)
	of.Reason = a.reasonOf(of.Problem)
	of.Append(b)
	b.Uint("state/active-alerts").Append(a.alerts.Active())
	b.Uint("state/omitted-rows").Append(a.omitted)
	return b.Table()
}

// estimated appends an estimate of a count, if it is known.
func estimated(c *table.UintAppender, x float64, known bool) {
	c.AppendIf(table.Whole(x), known && x >= 0 && x <= math.MaxInt64/2)
}

// keyText returns a flow as text.
func keyText(raw string) string {
	k, err := flow.ParseBinary(flow.FiveTuple, []byte(raw))
	if err != nil {
		return fmt.Sprintf("%x", raw) // raw has the length of a 5-tuple
	}
	return k.String()
}

func (a *analysis) hitterTable(views []*view) (*table.Table, error) {
	b := table.NewBuilder(hitterList)
	head, flows, rank := newHead(b), b.TextKey("flow"), b.Uint("state/rank")
	packets, share, quality := b.Uint("state/packets"), b.Float("state/share"), b.Text("state/quality")
	low, high := b.Uint("state/packets-low"), b.Uint("state/packets-high")
	hitters := make([][]sized, len(views))
	for n, v := range views {
		hitters[n] = v.hitters
	}
	cut(a, hitters, a.config.HeavyHitters.Limit)
	for n, v := range views {
		for i, h := range hitters[n] {
			head.append(v)
			flows.Append(keyText(h.raw))
			rank.Append(uint64(i + 1))
			packets.Append(h.packets)
			bounded := h.quality != sdk.Estimate
			low.AppendIf(h.least, bounded)
			high.AppendIf(h.packets, bounded)
			quality.Append(string(bounds(h.quality)))
			share.Append(table.Decimal(min(float64(h.packets)/float64(max(v.packets, 1)), 1), 6))
		}
	}
	return b.Table()
}

func (a *analysis) changeTable(views []*view) (*table.Table, error) {
	b := table.NewBuilder(changeList)
	head, flows, rank := newHead(b), b.TextKey("flow"), b.Uint("state/rank")
	previous, current, delta, kind := b.Uint("state/previous"), b.Uint("state/current"), b.Int("state/delta"),
		b.Text("state/kind")
	low, high, quality := b.Int("state/delta-low"), b.Int("state/delta-high"), b.Text("state/quality")
	changes := make([][]changed, len(views))
	for n, v := range views {
		changes[n] = v.changes
	}
	cut(a, changes, a.config.HeavyChanges.Limit)
	for n, v := range views {
		for i, c := range changes[n] {
			head.append(v)
			flows.Append(keyText(c.raw))
			rank.Append(uint64(i + 1))
			previous.Append(c.before)
			current.Append(c.after)
			delta.Append(int64(c.after) - int64(c.before))
			bounded := c.quality != sdk.Estimate
			low.AppendIf(c.low(), bounded)
			high.AppendIf(c.high(), bounded)
			quality.Append(string(bounds(c.quality)))
			kind.Append(map[bool]string{true: "INCREASE", false: "DECREASE"}[c.after >= c.before])
		}
	}
	return b.Table()
}

// bounds returns the quality of a number of packets whose row has both bounds.
func bounds(q sdk.Quality) sdk.Quality {
	if q == sdk.UpperBound {
		return sdk.Bounded
	}
	return q
}

func (a *analysis) rangeTable(views []*view) (*table.Table, error) {
	b := table.NewBuilder(rangeList)
	node, lower, upper, flows := b.TextKey("node"), b.UintKey("lower"), b.Uint("state/upper"), b.Float("state/flows")
	quality := b.Text("state/quality")
	for _, v := range views {
		if !v.sizes.OK {
			continue
		}
		for _, x := range v.sizes.Ranges() {
			if f := table.Decimal(x.Flows, 3); f > 0 {
				node.Append(v.device)
				lower.Append(x.First)
				upper.Append(x.Last)
				flows.Append(f)
				quality.Append(string(v.sizesQuality(a)))
			}
		}
	}
	return b.Table()
}

func (a *analysis) attentionTable() (*table.Table, error) {
	b := table.NewBuilder(attentionList)
	b.Text("state/network-state").Append(a.attention.State.String())
	b.Text("state/next-state").Append(a.next.State.String())
	status := map[bool]sdk.Status{true: sdk.StatusComplete, false: sdk.StatusPartial}[a.losses.complete]
	if !a.losses.deltas {
		status = sdk.StatusLost
	}
	b.Text("state/status").Append(status.String())
	problem := cmp.Or(a.losses.reason, a.warning, a.applied.reasons())
	b.Text("state/problem").AppendSome(problem)
	b.Text("state/reason").AppendSome(a.reasonOf(problem))
	b.Bool("state/configuration-known").Append(a.settled)
	b.Uint("state/low-threshold").Append(uint64(a.attention.Tl))
	b.Uint("state/highest-threshold").Append(uint64(slices.Max(append(slices.Collect(maps.Values(a.attention.Th)), 0))))
	b.Float("state/sample-rate").Append(table.Decimal(float64(a.attention.Sample)/Sampled, 6))
	n, ok := a.losses.number(&a.attention)
	estimated(b.Uint("state/victims"), n, ok)
	b.Uint("state/edge-switches").Append(uint64(len(a.b.edges)))
	b.Uint("state/edge-switches-delivered").Append(uint64(len(a.b.edges) - len(a.absent())))
	b.Uint("state/changed-from").AppendIf(a.transitions.From, a.transitions.Count > 0)
	b.Uint("state/last-change").AppendIf(uint64(max(a.transitions.At, 0)), a.transitions.Count > 0)
	b.Uint("state/changes").Append(a.transitions.Count)
	b.Uint("state/response-time").Append(uint64(max(a.response, 0)))
	b.Uint("state/analysis-time").Append(uint64(max(a.total, 0)))
	return b.Table()
}

func (a *analysis) thresholdTable() (*table.Table, error) {
	b := table.NewBuilder(thresholdList)
	node := b.TextKey("node")
	high, nextHigh, low, nextLow := b.Uint("state/high-threshold"), b.Uint("state/next-high-threshold"),
		b.Uint("state/low-threshold"), b.Uint("state/next-low-threshold")
	for i := range a.b.edges {
		name := a.b.edges[i].name
		node.Append(name)
		high.Append(uint64(a.attention.Th[name]))
		nextHigh.Append(uint64(a.next.Th[name]))
		low.Append(uint64(a.attention.Tl))
		nextLow.Append(uint64(a.next.Tl))
	}
	return b.Table()
}

func (a *analysis) encoderTable() (*table.Table, error) {
	b := table.NewBuilder(encoderList)
	node, families4, parts := b.TextKey("node"), b.TextKey("family"), b.TextKey("part")
	now, next, memory := b.Uint("state/buckets"), b.Uint("state/next-buckets"), b.Uint("state/memory")
	flows, load, quality := b.Uint("state/flows"), b.Float("state/load-factor"), b.Text("state/quality")
	row := func(name string, f int, part string, width, coming int, n count, known bool) {
		node.Append(name)
		families4.Append([families]string{"IPV4", "IPV6"}[f])
		parts.Append(part)
		now.Append(uint64(arrays * width))
		next.Append(uint64(arrays * coming))
		memory.Append(uint64(arrays * width * a.b.layout.words[f] * 4))
		estimated(flows, n.flows, known)
		load.AppendIf(table.Decimal(n.flows/buckets(width), 6), known && width > 0)
		if known {
			quality.Append(string(sdk.ExactIf(n.decoded)))
		}
	}
	if len(a.b.edges) == 0 {
		return b.Table()
	}
	for f := range families {
		if a.b.layout.up[f] == 0 {
			continue
		}
		row(Network, f, "HL", a.attention.Parts[f].HL, a.next.Parts[f].HL, a.losses.hl[f], a.losses.deltas)
		row(Network, f, "LL", a.attention.Parts[f].LL, a.next.Parts[f].LL, a.losses.ll[f], a.losses.deltas)
		for _, r := range a.readings {
			row(r.edge.name, f, "HH", a.attention.hitters(f, &a.b.room), a.next.hitters(f, &a.b.room), r.count[f], true)
		}
	}
	return b.Table()
}
