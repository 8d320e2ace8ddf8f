// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/plugins/omnimon/analysis"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/alert"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/yang/table"
)

// The lists of module netsketch-omnimon.
const (
	root           = "/netsketch-omnimon:omnimon/"
	summaryList    = root + "summary"
	settledList    = root + "settled"
	flowList       = root + "flows/flow"
	hopList        = root + "hops/hop"
	lossList       = root + "losses/loss"
	switchList     = root + "switches/switch"
	linkList       = root + "links/link"
	linkFlowList   = root + "link-flows/link-flow"
	hostList       = root + "hosts/host"
	completionList = root + "completions/completion"
	alertList      = root + "alerts/alert"
	queryList      = root + "queries/query"
	withdrawalList = root + "withdrawals/withdrawal"
	requestList    = root + "requests/request"
	countList      = queryList + "/counts/count"
	resultList     = queryList + "/results/result"
)

// settledOf returns the list of the settled epoch that corresponds to a list of the newest epoch.
func settledOf(list string) string { return settledList + "/" + strings.TrimPrefix(list, root) }

// builder returns the builder of a list of losses: of the newest epoch, or of the settled one.
func (r *run) builder(list string) *table.Builder {
	if r.settling {
		list = settledOf(list)
	}
	return table.NewBuilder(list)
}

// lossTables builds the tables of losses.
func (r *run) lossTables(flows, hops []*published) (out []*table.Table, err error) {
	for _, build := range []func() (*table.Table, error){
		func() (*table.Table, error) { return r.flowTable(flows) },
		func() (*table.Table, error) { return r.hopTable(hops) },
		r.lossTable, r.switchTable, r.linkTable, r.linkFlowTable,
	} {
		t, err := build()
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// publish builds the tables of the epoch. Each replaces its whole list. The caller holds the lock.
func (r *run) publish(p *Plugin) (*sdk.Results, error) {
	out := &sdk.Results{}
	flows := slices.DeleteFunc(r.traffic.top, func(f *published) bool { return r.traffic.watched[f.Key] != nil })
	watched := slices.SortedFunc(maps.Values(r.traffic.watched), func(a, b *published) int {
		return a.Key.Compare(b.Key)
	})
	hops := slices.Concat(flows[:min(len(flows), r.config.Limits.Hops)], watched)
	flows = append(flows, watched...)
	incomplete := func(flows []*published) []*published {
		return slices.DeleteFunc(slices.Clone(flows), func(f *published) bool {
			return f.reason != "" || !lacksPackets(&f.Flow)
		})
	}
	answers := r.answers(p.queries())
	// Losses are published now as provisional, and again with their values when the epoch is settled.
	later := *r
	later.settling = true
	held, err := later.lossTables(incomplete(flows), incomplete(hops))
	if err != nil {
		return nil, err
	}
	answers = p.results.hold(r, held, answers)
	tables, err := r.lossTables(flows, hops)
	if err != nil {
		return nil, err
	}
	out.Events = alertEvents(p.alerts.Update(r.epoch, r.problems))
	out.Add(r.summaryTable(p.alerts.Active(), r.omitted(flows, hops)))
	out.Add(r.hostTable())
	out.Add(r.completionTable())
	out.Add(p.alerts.Table(alertList, severity))
	out.Add(p.results.table())
	out.Add(r.queryTable(answers))
	out.Add(r.resultTable(answers))
	out.Add(r.countTable(answers))
	out.Add(r.requestTable(p.requests))
	for _, t := range tables {
		out.Add(t, nil)
	}
	if r.settled != nil {
		out.End = r.epoch.Range(r.settled.Epoch, r.settled.Epoch).End
	}
	out.Add(r.settledTable())
	for _, t := range r.settledTables(held) {
		out.Add(t, nil)
	}
	return out, out.Err()
}

// settledTables have the losses of the settled epoch. They have no rows if the losses are not
// known. newest are the same tables of the newest epoch.
func (r *run) settledTables(newest []*table.Table) (out []*table.Table) {
	if r.settled != nil && r.doubt == "" {
		return r.settled.tables
	}
	for _, t := range newest {
		out = append(out, t.Slice(0, 0))
	}
	return out
}

// settledTable describes the epoch that is settled.
func (r *run) settledTable() (*table.Table, error) {
	b := table.NewBuilder(settledList)
	x, reason := r.settled, "no epoch is settled"
	if x == nil {
		b.Text("state/problem").Append(reason)
		return b.Table()
	}
	reason = cmp.Or(r.doubt, x.Problem)
	of := r.epoch.Range(x.Epoch, x.Epoch)
	of.Status, of.Problem = x.Status, alert.Clip(reason)
	if r.doubt == "" {
		of.Reason = x.Reason
	}
	of.Append(b)
	sure, quality := r.doubt == "", b.Text("state/quality")
	known(b.Uint("state/lossy-flows"), x.LossyFlows, sure)
	b.Int("state/lost-packets").AppendIf(x.LostPackets, sure && x.LostPackets >= 0)
	if sure {
		quality.Append(string(sdk.ExactIf(reason == "")))
	}
	return b.Table()
}

// status is the status of the results.
func (r *run) status() sdk.Status {
	switch {
	case r.result == nil || len(r.numbers) > 0 && r.result.Missing == len(r.numbers):
		return sdk.StatusLost
	case r.result.Missing > 0 || slices.ContainsFunc(r.switches, func(s switchState) bool { return !s.delivered }):
		return sdk.StatusPartial
	}
	return sdk.StatusComplete
}

// reason returns why sums over all flows are not exact, or "".
func (r *run) reason() string {
	switch {
	case r.result == nil:
		return "no switch measures, or no host has an agent"
	case len(r.inexact) > 0:
		return r.inexact[0]
	}
	for n := range r.hosts {
		if h := &r.hosts[n]; h.name != "" && !h.delivered {
			return fmt.Sprintf("%d hosts are missing, such as %s: %s", r.result.Missing, h.name, h.problem)
		}
	}
	for n := range r.hosts {
		if reason := r.result.Hosts[n]; reason != "" {
			return fmt.Sprintf("host %s: %s", r.hosts[n].name, reason)
		}
	}
	for _, flows := range [][]analysis.Flow{r.result.Odd, r.result.Unplaced} {
		for i := range flows {
			if reason := r.result.Reason(&flows[i]); reason != "" {
				return fmt.Sprintf("flow %v: %s", flows[i].Key, reason)
			}
		}
	}
	switch {
	case r.traffic.inexact > 0:
		return fmt.Sprintf("%d flows are not exact: %d packets were sent without a header", r.traffic.inexact,
			r.traffic.untagged)
	case r.result.Unknown:
		return "switches counted packets of flows that no host reported"
	case len(r.result.Contradictions) > 0:
		return r.result.Contradictions[0]
	}
	return ""
}

// absent returns why the data of a switch is missing, "" if none is.
func (r *run) absent() string {
	i := slices.IndexFunc(r.switches, func(s switchState) bool { return !s.delivered })
	if i < 0 {
		return ""
	}
	return fmt.Sprintf("switch %s: %s", r.network.switches[i].name, cmp.Or(r.switches[i].problem, "nothing was delivered"))
}

// condition returns what is missing, if something is, as a condition.
func (r *run) condition() string {
	switch {
	case r.result != nil && r.result.Missing > 0:
		return sdk.HostMissing
	case slices.ContainsFunc(r.switches, func(s switchState) bool { return !s.delivered }):
		return sdk.SwitchMissing
	}
	return ""
}

// appendFlow appends a flow: as a client wrote it, or in its usual form.
func appendFlow(to *table.TextAppender, f *published) {
	if f.text != "" {
		to.Append(f.text)
		return
	}
	to.AppendText(&f.Key)
}

// known appends a number if ok is set and the number is not negative.
func known(a *table.UintAppender, v int64, ok bool) { a.AppendIf(uint64(v), ok && v >= 0) }

// omitted returns how many rows limits leave out of the tables of the newest epoch, which list
// these flows and hops.
func (r *run) omitted(flows, hops []*published) uint64 {
	if r.result == nil {
		return 0
	}
	_, losses := r.losses()
	out := r.traffic.rows + uint64(losses)
	for _, f := range flows {
		if f.reported {
			out--
		}
	}
	for _, f := range hops {
		if f.reported {
			out -= uint64(len(f.Path.Hops))
		}
	}
	for i := range r.traffic.links {
		out -= uint64(len(r.traffic.links[i].top))
	}
	return out
}

func (r *run) summaryTable(active, omitted uint64) (*table.Table, error) {
	b := table.NewBuilder(summaryList)
	one := func(name string, v uint64) { b.Uint("state/" + name).Append(v) }
	reason := r.reason()
	of := r.epoch.Range(r.epoch.Number, r.epoch.Number)
	of.Status, of.Provisional, of.Reason = r.status(), r.provisional(), r.condition()
	of.Problem = alert.Clip(cmp.Or(reason, r.absent(), r.pendingReason(true)))
	of.Append(b)
	b.Text("state/quality").Append(string(sdk.ExactIf(reason == "")))
	lost := sdk.ExactIf(reason == "")
	if reason == "" && r.provisional() {
		lost = sdk.UpperBound
	}
	b.Text("state/lost-packets-quality").Append(string(lost))
	hosts, switches, used, owned := 0, 0, uint64(0), uint64(0)
	for i := range r.hosts {
		if h := &r.hosts[i]; h.delivered {
			hosts, used, owned = hosts+1, used+h.summary.MappingsUsed, owned+h.summary.MappingsOwned
		}
	}
	measuring := 0
	for i := range r.switches {
		if r.network.switches[i].counts != nil {
			measuring++
		}
		if r.switches[i].delivered {
			switches++
		}
	}
	unplaced, unknowns, determined, share := 0, 0, 0, 1.0
	if r.result != nil {
		unplaced, unknowns, determined = len(r.result.Unplaced), r.result.Variables, r.result.Determined
		one("flows", uint64(r.result.Flows))
	}
	if unknowns > 0 {
		share = float64(int(1e6*float64(determined)/float64(unknowns))) / 1e6 // never rounded up to 1
	}
	one("packets", r.traffic.packets)
	one("bytes", r.traffic.bytes)
	one("untagged-packets", r.traffic.untagged+r.traffic.untracked)
	one("foreign-packets", r.traffic.foreign)
	one("inexact-flows", r.traffic.inexact)
	one("lossy-flows", uint64(r.lossyFlows()))
	one("unplaced-flows", uint64(unplaced))
	b.Int("state/lost-packets").Append(int64(r.traffic.lost))
	one("unknowns", uint64(unknowns))
	one("determined", uint64(determined))
	b.Float("state/determined-share").Append(share)
	one("hosts", uint64(len(r.numbers)))
	one("hosts-delivered", uint64(hosts))
	one("switches", uint64(measuring))
	one("switches-delivered", uint64(switches))
	one("mappings-used", used)
	one("mappings-owned", owned)
	one("slots", uint64(r.slots))
	one("slots-per-flow", uint64(r.config.SlotsPerFlow))
	one("epoch-deviation", uint64(max(r.epoch.Deviation, 0)))
	one("analysis-time", uint64(r.elapsed))
	one("warnings", uint64(len(r.inexact)))
	one("active-alerts", active)
	one("omitted-rows", omitted)
	return b.Table()
}

// extremeNames are the leaves of maxima and minima.
var extremeNames = []wire.Extreme{{Field: wire.FieldLength}, {Field: wire.FieldLength, Min: true},
	{Field: wire.FieldTTL}, {Field: wire.FieldTTL, Min: true}, {Field: wire.FieldWindow},
	{Field: wire.FieldWindow, Min: true}}

func extremeName(e wire.Extreme) string {
	if e.Min {
		return "min-" + string(e.Field)
	}
	return "max-" + string(e.Field)
}

// extremeColumns adds the leaves of maxima and minima to a table.
func extremeColumns(b *table.Builder) (columns []*table.UintAppender) {
	for _, e := range extremeNames {
		columns = append(columns, b.Uint("state/"+extremeName(e)))
	}
	return columns
}

// appendExtremes appends the configured maxima and minima to a row. value returns the value of one,
// by its number in the configuration.
func (r *run) appendExtremes(columns []*table.UintAppender, value func(i int) (v int64, ok bool)) {
	for n, column := range columns {
		i := slices.Index(r.config.Extremes, extremeNames[n])
		if i < 0 {
			known(column, 0, false)
			continue
		}
		v, ok := value(i)
		known(column, v, ok)
	}
}

func (r *run) flowTable(flows []*published) (*table.Table, error) {
	b := r.builder(flowList)
	keys := b.TextKey("flow")
	source, destination, path := b.Text("state/source-node"), b.Text("state/destination-node"), b.Text("state/path")
	var values []*table.UintAppender
	for s := wire.Packets; s < wire.FirstExtreme; s++ {
		values = append(values, b.Uint("state/"+s.String()))
	}
	extremes := extremeColumns(b)
	received, bytes := b.Uint("state/received-packets"), b.Uint("state/received-bytes")
	untagged, lost, duration := b.Uint("state/untagged-packets"), b.Int("state/lost-packets"), b.Uint("state/duration")
	quality, lostQuality, problem := b.Text("state/quality"), b.Text("state/lost-packets-quality"), b.Text("state/problem")
	var text []byte
	for _, f := range flows {
		appendFlow(keys, f)
		source.Append(r.hosts[f.Source].name)
		if f.Destination >= 0 { // else no host has the address
			destination.AppendSome(r.hosts[f.Destination].name)
		}
		text = r.network.describe(f.Path, text[:0])
		path.AppendBytes(text)
		packets, size := volume(&f.Flow)
		for s, a := range values {
			v := f.Sent[s]
			switch wire.Statistic(s) {
			case wire.Packets:
				v = int64(packets)
			case wire.Bytes:
				v = int64(size)
			}
			known(a, v, f.reason == "")
		}
		r.appendExtremes(extremes, func(i int) (v int64, ok bool) {
			return f.Sent[wire.FirstExtreme+wire.Statistic(i)], f.Sent[wire.Packets] > 0 && f.Untagged.Packets == 0
		})
		isKnown := f.Known() && f.reason == ""
		known(received, f.Sent[wire.Packets]-f.Lost[wire.Packets], isKnown)
		known(bytes, f.Sent[wire.Bytes]-f.Lost[wire.Bytes], isKnown)
		known(untagged, int64(f.Untagged.Packets), f.reason == "")
		lost.AppendIf(f.Lost[wire.Packets], isKnown && f.Lost[wire.Packets] >= 0)
		duration.Append(f.Age + 1)
		waits := f.reason == "" && lacksPackets(&f.Flow)
		reason := cmp.Or(r.flowReason(f), r.pendingReason(waits))
		if f.reason == "" {
			quality.Append(string(r.sentQuality(&f.Flow)))
		}
		if isKnown {
			lostQuality.Append(string(r.lostQuality(&f.Flow, waits)))
		}
		problem.AppendSome(alert.Clip(reason))
	}
	return b.Table()
}

// sentQuality is the quality of what the source of a flow sent.
func (r *run) sentQuality(f *analysis.Flow) sdk.Quality {
	least, _ := r.result.AtLeast(f)
	switch {
	case !r.exact() || !least:
		return sdk.Estimate
	case !r.result.AllSent(f):
		return sdk.LowerBound
	}
	return sdk.Exact
}

// lostQuality is the quality of the lost packets of a flow. waits states that packets of the flow
// are missing and that some of them may still arrive.
func (r *run) lostQuality(f *analysis.Flow, waits bool) sdk.Quality {
	q := r.sentQuality(f)
	switch {
	case !waits || !r.provisional():
		return q
	case q == sdk.Exact:
		return sdk.UpperBound
	}
	return sdk.Estimate
}

// passedQuality is the quality of the bounds of the packets of a flow that passed a place. Packets
// that are missing may still pass.
func (r *run) passedQuality(f *analysis.Flow, b analysis.Bounds) sdk.Quality {
	least, most := r.result.AtLeast(f)
	switch {
	case !r.exact() || !least:
		return sdk.Estimate
	case !most || r.provisional() && lacksPackets(f):
		return sdk.LowerBound
	case !b.Exact() || !r.result.AllSent(f):
		return sdk.Bounded
	}
	return sdk.Exact
}

func (r *run) hopTable(flows []*published) (*table.Table, error) {
	b := r.builder(hopList)
	keys, name := b.TextKey("flow"), b.TextKey("node")
	position, link := b.Uint("state/position"), b.Text("state/link")
	low, high, bytes := b.Uint("state/packets-low"), b.Uint("state/packets-high"), b.Uint("state/bytes")
	extremes := extremeColumns(b)
	quality, problem := b.Text("state/quality"), b.Text("state/problem")
	for _, f := range flows {
		if f.reason != "" {
			continue
		}
		reason := cmp.Or(r.sentReason(f), r.pendingReason(lacksPackets(&f.Flow)))
		for i, h := range f.Path.Hops {
			appendFlow(keys, f)
			position.Append(uint64(i + 1))
			name.Append(r.network.switches[h.Switch].name)
			link.Append(r.network.links[h.Link].name)
			least, most, size, exact := f.Sent[wire.Packets], f.Sent[wire.Packets], f.Sent[wire.Bytes], true
			if f.lossy != nil {
				lost, bytes, ok := lostBefore(f.lossy, 2*i+1)
				least, most, size, exact = least-lost.High, most-lost.Low, size-bytes, ok
			}
			if !f.Known() && f.lossy == nil {
				least, exact = 0, false
			}
			passed := r.passedQuality(&f.Flow, analysis.Bounds{Low: least, High: most})
			known(low, least, true)
			known(high, most+int64(f.Untagged.Packets), passed != sdk.LowerBound)
			known(bytes, size, exact && f.Untagged.Packets == 0)
			r.appendExtremes(extremes, func(n int) (v int64, ok bool) {
				if v, ok = f.Sent[wire.FirstExtreme+wire.Statistic(n)], f.Sent[wire.Packets] > 0; f.lossy != nil {
					v, ok = f.lossy.Extreme(n, r.config.Extremes[n].Min, i)
				}
				return v, ok && passed == sdk.Exact
			})
			quality.Append(string(passed))
			problem.AppendSome(alert.Clip(reason))
		}
	}
	return b.Table()
}

// lacksPackets reports whether packets of a flow are missing, or may be.
func lacksPackets(f *analysis.Flow) bool { return !f.Known() || f.Lost != (wire.Values{}) }

// lossyFlows counts the flows that are known to have lost packets.
func (r *run) lossyFlows() (n int) {
	if r.result == nil {
		return 0
	}
	n = len(r.result.Lossy)
	for i := range r.result.Unplaced {
		if f := &r.result.Unplaced[i]; f.Known() && f.Lost[wire.Packets] > 0 {
			n++
		}
	}
	return n
}

// sentReason returns why the sent packets of a flow are not known, "" if they are.
func (r *run) sentReason(f *published) string {
	if len(r.inexact) == 0 && r.result.AllSent(&f.Flow) {
		return ""
	}
	return r.flowReason(f)
}

// lossTable lists the largest losses of flows.
func (r *run) lossTable() (*table.Table, error) {
	b := r.builder(lossList)
	keys, location := b.TextKey("flow"), b.TextKey("location")
	kinds := b.Text("state/kind")
	low, high, quality := lostBounds(b)
	bytes, problem := b.Uint("state/lost-bytes"), b.Text("state/problem")
	if r.result == nil {
		return b.Table()
	}
	losses, _ := r.losses()
	for _, l := range losses {
		keys.AppendText(&l.flow.Key)
		name, k := r.network.element(l.flow.Path, l.at)
		location.Append(name)
		kinds.Append(k)
		low.Append(max(l.Packets.Low, 0))
		reason := cmp.Or(r.sentReason(&published{Flow: l.flow.Flow}), r.pendingReason(true))
		q := r.lostQuality(&l.flow.Flow, true)
		switch {
		case q == sdk.UpperBound: // a late packet may have been lost at another place
			q = sdk.Estimate
		case q == sdk.Exact && !l.Packets.Exact():
			q = sdk.Bounded
		}
		high.AppendIf(l.Packets.High, l.Packets.High >= 0 && q != sdk.LowerBound)
		quality.Append(string(q))
		known(bytes, l.Values[wire.Bytes], l.Exact)
		problem.AppendSome(alert.Clip(reason))
	}
	return b.Table()
}

// lostBounds returns the columns of the bounds of lost packets and of their quality.
func lostBounds(b *table.Builder) (low, high *table.IntAppender, quality *table.TextAppender) {
	return b.Int("state/lost-packets-low"), b.Int("state/lost-packets-high"), b.Text("state/quality")
}

// loss is a loss of a flow with its position on the path.
type loss struct {
	*analysis.Loss
	flow *analysis.LossyFlow
	at   int
}

// losses are the largest possible losses of flows. Possible losses of an open flow on the link to
// its destination are left out, because the packets may have arrived.
func (r *run) losses() (out []loss, omitted int) {
	for _, flows := range [][]analysis.LossyFlow{r.result.Lossy, r.result.Open} {
		for i := range flows {
			f := &flows[i]
			for at := range f.Losses {
				if l := &f.Losses[at]; l.Packets.Low > 0 || l.Packets.High > 0 && !(f.Open && at == len(f.Losses)-1) {
					out = append(out, loss{l, f, at})
				}
			}
		}
	}
	slices.SortStableFunc(out, func(a, b loss) int {
		return cmp.Or(cmp.Compare(b.Packets.Low, a.Packets.Low), cmp.Compare(b.Packets.High, a.Packets.High))
	})
	listed := min(len(out), r.config.Limits.Losses)
	return out[:listed], len(out) - listed
}

func (r *run) switchTable() (*table.Table, error) {
	b := r.builder(switchList)
	names := b.TextKey("node")
	status, problem := b.Text("state/status"), b.Text("state/problem")
	packets, noHeader, counted := b.Uint("state/packets"), b.Uint("state/no-header"), b.Text("state/packets-quality")
	low, high, quality := lostBounds(b)
	lossy := b.Uint("state/lossy-flows")
	flows := make([]uint64, len(r.switches))
	if r.result != nil {
		for i := range r.result.Lossy {
			f := &r.result.Lossy[i]
			for hop, h := range f.Path.Hops {
				if f.Losses[2*hop+1].Packets.High > 0 {
					flows[h.Switch]++
				}
			}
		}
	}
	for i := range r.switches {
		s := &r.switches[i]
		if r.network.switches[i].counts == nil {
			continue
		}
		names.Append(r.network.switches[i].name)
		if s.delivered {
			status.Append(sdk.StatusComplete.String())
		} else {
			status.Append(sdk.StatusLost.String())
		}
		problem.AppendSome(alert.Clip(s.problem))
		switch {
		case !s.delivered:
		case s.problem == "" && r.exact() && r.provisional():
			counted.Append(string(sdk.LowerBound))
		default:
			counted.Append(string(sdk.ExactIf(s.problem == "" && r.exact())))
		}
		known(packets, int64(s.arrived), s.delivered)
		known(noHeader, int64(s.noHeader), s.delivered)
		r.bounds(low, high, quality, i)
		lossy.Append(flows[i])
	}
	return b.Table()
}

// bounds appends the sum of losses at an element: switches, then links.
func (r *run) bounds(low, high *table.IntAppender, quality *table.TextAppender, element int) {
	if r.result == nil {
		return
	}
	lost, problem := analysis.Bounds{}, r.result.Elements[element]
	if n := len(r.switches); element < n {
		lost = r.result.Switches[element]
		if s := &r.switches[element]; s.delivered {
			problem = s.problem
		}
	} else {
		lost = r.result.Links[element-n]
	}
	limited := lost.High < analysis.Unlimited
	low.Append(max(lost.Low, 0))
	high.AppendIf(max(lost.High, 0), limited)
	q := sdk.Bounded
	switch {
	case !r.exact() || problem != "" || r.provisional():
		q = sdk.Estimate
	case lost.Exact():
		q = sdk.Exact
	case !limited:
		q = sdk.LowerBound
	}
	quality.Append(string(q))
}

func (r *run) linkTable() (*table.Table, error) {
	b := r.builder(linkList)
	names := b.TextKey("link")
	flows := b.Uint("state/flows")
	packets, bytes, load := b.Uint("state/packets"), b.Uint("state/bytes"), b.Text("state/packets-quality")
	low, high, quality := lostBounds(b)
	problem := b.Text("state/problem")
	all := r.reason()
	for i := range r.network.links {
		l, of, reason := &r.network.links[i], &r.traffic.links[i], all
		if r.result != nil {
			reason = r.linkReason(i)
		}
		names.Append(l.name)
		flows.Append(of.flows)
		packets.Append(of.packets)
		bytes.Append(of.bytes)
		if q := sdk.ExactIf(reason == ""); reason == undetermined && !r.provisional() {
			load.Append(string(sdk.UpperBound))
		} else {
			load.Append(string(q))
		}
		problem.AppendSome(alert.Clip(reason))
		r.bounds(low, high, quality, len(r.switches)+i)
	}
	return b.Table()
}

func (r *run) linkFlowTable() (*table.Table, error) {
	b := r.builder(linkFlowList)
	names, keys := b.TextKey("link"), b.TextKey("flow")
	rank := b.Uint("state/rank")
	low, high, bytes := b.Uint("state/packets-low"), b.Uint("state/packets-high"), b.Uint("state/bytes")
	quality := b.Text("state/quality")
	for i := range r.network.links {
		for n, f := range r.traffic.links[i].top {
			if r.settling && !lacksPackets(&f.Flow) {
				continue // the row of the newest epoch was settled
			}
			names.Append(r.network.links[i].name)
			keys.AppendText(&f.Key)
			rank.Append(uint64(n + 1))
			passed := r.passedQuality(&f.Flow, f.packets)
			known(low, f.packets.Low, true)
			known(high, f.packets.High, passed != sdk.LowerBound)
			sure := r.exact() && !(r.provisional() && lacksPackets(&f.Flow))
			known(bytes, f.bytes, f.exact && sure)
			quality.Append(string(passed))
		}
	}
	return b.Table()
}

func (r *run) hostTable() (*table.Table, error) {
	b := table.NewBuilder(hostList)
	names, number := b.TextKey("node"), b.Uint("state/number")
	status, problem, quality := b.Text("state/status"), b.Text("state/problem"), b.Text("state/quality")
	flows, used, owned := b.Uint("state/flows"), b.Uint("state/mappings-used"), b.Uint("state/mappings-owned")
	var counters []*table.UintAppender
	for c := wire.Counter(0); c < wire.Counters; c++ {
		counters = append(counters, b.Uint("state/"+c.String()))
	}
	for n := range r.hosts {
		h := &r.hosts[n]
		if h.name == "" {
			continue
		}
		names.Append(h.name)
		number.Append(uint64(n))
		if h.delivered {
			status.Append(sdk.StatusComplete.String())
		} else {
			status.Append(sdk.StatusLost.String())
		}
		problem.AppendSome(alert.Clip(h.problem))
		if h.delivered {
			quality.Append(string(sdk.ExactIf(h.problem == "" && r.exact())))
		}
		known(flows, int64(h.flows), h.delivered)
		known(used, int64(h.summary.MappingsUsed), h.delivered)
		known(owned, int64(h.summary.MappingsOwned), h.delivered)
		for c, a := range counters {
			known(a, int64(h.summary.Counters[c]), h.delivered)
		}
	}
	return b.Table()
}

func (r *run) completionTable() (*table.Table, error) {
	b := table.NewBuilder(completionList)
	epochs, flows := b.UintKey("epochs"), b.Uint("state/flows")
	for i, n := range r.traffic.completions {
		if n > 0 {
			epochs.Append(1 << min(i, 63))
			flows.Append(n)
		}
	}
	return b.Table()
}

// flowIndex finds flows of one epoch. It does not change once it is made, so queries read it while
// the next epoch is analyzed.
type flowIndex struct{ *run }

// find returns the values of a flow, or nil if they are not known.
func (x flowIndex) find(key flow.Key) *published {
	f := x.silent(key)
	if f == nil {
		return nil
	}
	for _, flows := range [][]analysis.LossyFlow{x.result.Lossy, x.result.Open} {
		if at := slices.IndexFunc(flows, func(l analysis.LossyFlow) bool { return l.Key == key }); at >= 0 {
			return &published{Flow: flows[at].Flow, lossy: &flows[at]}
		}
	}
	for _, flows := range [][]analysis.Flow{x.result.Unplaced, x.result.Odd} {
		if at := slices.IndexFunc(flows, func(u analysis.Flow) bool { return u.Key == key }); at >= 0 {
			return &published{Flow: flows[at]}
		}
	}
	if !x.result.Delivered(f.Source) {
		return f
	}
	rep, err := wire.Open(x.input.Reports[f.Source])
	if err != nil {
		return nil
	}
	var row wire.EgressRow
	for n := 0; rep.NextEgress(&row); n++ {
		if row.Key != key {
			continue
		}
		f.Path = x.result.Path(f.Source, n, f.Path)
		if f.Sent.Decode(row.Values) != nil {
			return nil
		}
		f.Index, f.Age, f.Untagged, f.reason = row.Index, row.Age, row.Untagged, ""
		break
	}
	return f
}

// Query implements sdk.Querier: a flow, or a flow at a switch, in the newest analyzed epoch.
func (p *Plugin) Query(_ context.Context, row sdk.RowKey) ([]*table.Table, uint64, error) {
	if row.List != flowList {
		return nil, 0, fmt.Errorf("omnimon: rows of %s cannot be queried; use %s", row.List, flowList)
	}
	key, err := flow.Parse(flow.FiveTuple, row.Keys["flow"])
	if err != nil {
		return nil, 0, fmt.Errorf("omnimon: %w", err)
	}
	x := p.newest.Load()
	if x == nil {
		return nil, 0, nil
	}
	f := x.find(key)
	if f == nil {
		return nil, x.epoch.Number, nil
	}
	f.text = row.Keys["flow"]
	t, err := x.flowTable([]*published{f})
	if err != nil {
		return nil, 0, err
	}
	return []*table.Table{t}, x.epoch.Number, nil
}
