// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/hostagent/inband"
	"github.com/netsketch/netsketch/hostagent/sketchint/wire"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/alert"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/yang/table"
)

// The lists of module netsketch-sketchint.
const (
	root          = "/netsketch-sketchint:sketchint/"
	summaryList   = root + "summary"
	flowList      = root + "flows/flow"
	hopList       = root + "hops/hop"
	inflationList = root + "inflations/inflation"
	hitterList    = root + "heavy-hitters/heavy-hitter"
	changeList    = root + "heavy-changes/heavy-change"
	pathList      = root + "path-changes/path-change"
	summariesList = root + "node-summaries/node-summary"
	rangeList     = root + "ranges/range"
	switchList    = root + "switches/switch"
	queueList     = root + "queues/queue"
	hostList      = root + "hosts/host"
	sourceList    = root + "sources/source"
	faultList     = root + "faults/fault"
	costList      = root + "cost"
	alertList     = root + "alerts/alert"
)

// publish builds the tables of an interval. Each replaces its whole list. The caller holds the
// lock.
func (p *Plugin) publish(ctx context.Context, r *interval) (*sdk.Results, error) {
	out := &sdk.Results{}
	all := heaviest(r.flows)
	flows, latencies := r.watched()
	for key, f := range flows {
		latencies[key] = cmp.Or(latencies[key], f)
	}
	for _, f := range limit(r, all, r.config.Limits.Flows) {
		if flows[f.key] == nil {
			flows[f.key] = f
		}
	}
	listed := heaviest(flows)
	for _, f := range all[:min(len(all), r.config.Limits.Latencies)] {
		if latencies[f.key] == nil {
			latencies[f.key] = f
		}
	}
	for _, f := range all {
		if latencies[f.key] == nil {
			r.omitted += uint64(len(r.listed(f.path)))
		}
	}
	r.switches = r.states()
	r.bound()
	hitters := r.hitters()
	changed := r.pathChanges(all)
	measurements := r.measurements()
	r.alarm(changed)
	out.Events = alertEvents(p.alerts.Update(r.epoch, r.problems))
	out.Add(r.flowTable(listed))
	out.Add(r.hopTable(heaviest(latencies)))
	out.Add(r.inflationTable())
	out.Add(r.hitterTable(hitters))
	out.Add(r.changeTable(r.changes(p.before(r))))
	out.Add(r.pathTable(changed))
	out.Add(r.nodeTable(measurements))
	out.Add(r.rangeTable(measurements))
	out.Add(r.switchTable())
	out.Add(r.queueTable())
	out.Add(r.hostTable())
	out.Add(r.sourceTable())
	out.Add(r.faultTable())
	out.Add(r.costTable())
	out.Add(p.alerts.Table(alertList, severity))
	out.Add(r.summaryTable(p.alerts.Active(), &measurements[0])) // last, because it counts omitted rows
	return out, cmp.Or(out.Err(), ctx.Err())
}

// watched returns the flows that clients watch, as flows or by their latency at a switch.
func (r *interval) watched() (flows, latencies map[flow.Key]*heavyFlow) {
	flows, latencies = map[flow.Key]*heavyFlow{}, map[flow.Key]*heavyFlow{}
	for _, row := range r.epoch.Watched {
		f := r.flow(row.Keys["flow"])
		if f == nil {
			continue
		}
		switch row.List {
		case flowList:
			flows[f.key] = f
		case hopList:
			latencies[f.key] = f
		}
	}
	return flows, latencies
}

// limit returns the first rows of a list, and counts the rows that it leaves out.
func limit[T any](r *interval, rows []T, most int) []T {
	if len(rows) <= most {
		return rows
	}
	r.omitted += uint64(len(rows) - most)
	return rows[:most]
}

// bound leaves out the switches with the fewest packets among the switches that the plugin does not
// configure, because senders of INT can name any number of them.
func (r *interval) bound() {
	var foreign []string
	for name := range r.switches {
		if _, own := slices.BinarySearch(r.own, name); !own {
			foreign = append(foreign, name)
		}
	}
	slices.SortFunc(foreign, func(a, b string) int {
		return cmp.Or(cmp.Compare(r.switches[b].packets, r.switches[a].packets), strings.Compare(a, b))
	})
	for _, name := range foreign[min(len(foreign), r.config.Limits.Foreign):] {
		r.omitted++
		delete(r.switches, name)
	}
}

// mean appends a mean in nanoseconds, or null without packets.
func mean[T ~uint32 | ~uint64](a *table.UintAppender, sum uint64, packets T, ok bool) {
	a.AppendIf(sum/max(uint64(packets), 1), ok && packets > 0)
}

func (r *interval) summaryTable(active uint64, all *measurement) (*table.Table, error) {
	b := table.NewBuilder(summaryList)
	one := func(name string, v uint64) { b.Uint("state/" + name).Append(v) }
	of := r.epoch.Range(r.number*r.epochs, r.epoch.Number)
	of.Status = r.status()
	of.Reason, of.Problem = r.reason()
	of.Problem = alert.Clip(of.Problem)
	of.Append(b)
	delivered, heavy := uint64(0), uint64(0)
	var counters [wire.Counters]uint64
	for _, o := range r.observers {
		if o.report != nil && !o.edge {
			delivered++
		}
		if r.counted(o) {
			for c, n := range o.report.Counters {
				counters[c] += n
			}
		}
	}
	for _, f := range r.flows {
		if f.heavy(r) {
			heavy++
		}
	}
	one("hosts", uint64(len(r.hosts)))
	one("hosts-delivered", delivered)
	one("switches", uint64(len(r.own)))
	for _, c := range []wire.Counter{wire.Packets, wire.WithINT, wire.Hops, wire.Reports} {
		one(c.String(), counters[c])
	}
	b.Uint("state/flows").AppendIf(table.Whole(all.flows), all.counted && r.status() != sdk.StatusLost)
	one("heavy-flows", heavy)
	one("omitted-rows", r.omitted)
	one("warnings", uint64(len(r.inexact)))
	one("active-alerts", active)
	return b.Table()
}

// appendFlow appends a flow: as a client wrote it, or in its usual form.
func appendFlow(to *table.TextAppender, k *flow.Key, text string) {
	if text != "" {
		to.Append(text)
		return
	}
	to.AppendText(k)
}

// appendIf appends a quality, or null.
func appendIf(to *table.TextAppender, q sdk.Quality, ok bool) {
	if ok {
		to.Append(string(q))
	}
}

// exact reports whether an observer counted all packets of the interval.
func (o *observer) exact() bool { return o.whole && o.problem == "" }

// bound returns the quality of sizes in the towers of an observer.
func (o *observer) bound() sdk.Quality {
	if o.exact() {
		return sdk.UpperBound
	}
	return sdk.Estimate
}

// bounds returns the quality of the sizes of flows at a host, at a switch or of the network. At a
// switch they depend on the paths of flows.
func (r *interval) bounds(name string) sdk.Quality {
	o := r.observer(name)
	switch {
	case name == networkElement && r.received() == sdk.Exact, o != nil && !o.edge && o.exact():
		return sdk.UpperBound
	}
	return sdk.Estimate
}

// received returns the quality of counts of all packets that observers received.
func (r *interval) received() sdk.Quality {
	if r.status() != sdk.StatusComplete ||
		slices.ContainsFunc(r.observers, func(o *observer) bool { return !o.exact() }) {
		return sdk.LowerBound
	}
	return sdk.Exact
}

func (r *interval) flowTable(flows []*heavyFlow) (*table.Table, error) {
	b := table.NewBuilder(flowList)
	keys, host := b.TextKey("flow"), b.Text("state/reporting-node")
	packets, path, previous := b.Uint("state/packets"), b.Text("state/path"), b.Text("state/previous-path")
	changes, latency := b.Uint("state/path-changes"), b.Uint("state/latency-avg")
	quality, ofPackets := b.Text("state/quality"), b.Text("state/packets-quality")
	for _, f := range flows {
		appendFlow(keys, &f.key, f.text)
		host.Append(f.at.name)
		packets.AppendIf(uint64(f.packets), f.known)
		path.AppendSome(alert.Clip(r.path(f.path)))
		previous.AppendSome(alert.Clip(r.path(f.previous)))
		changes.AppendIf(uint64(f.changes), f.path != nil)
		sum, ok := f.latency()
		latency.AppendIf(sum, ok)
		appendIf(quality, sdk.Estimate, ok)
		appendIf(ofPackets, f.at.bound(), f.known)
	}
	return b.Table()
}

func (r *interval) hopTable(flows []*heavyFlow) (*table.Table, error) {
	b := table.NewBuilder(hopList)
	keys, names := b.TextKey("flow"), b.TextKey("node")
	position, host := b.Uint("state/position"), b.Text("state/reporting-node")
	packets, latency := b.Uint("state/packets"), b.Uint("state/latency-avg")
	quality, ofPackets := b.Text("state/quality"), b.Text("state/packets-quality")
	for _, f := range flows {
		for _, h := range f.hops() {
			appendFlow(keys, &f.key, f.text)
			names.Append(r.name(h.node))
			position.AppendIf(uint64(h.position), h.position > 0)
			host.Append(f.at.name)
			packets.AppendIf(uint64(h.packets), h.known)
			mean(latency, h.sum, h.packets, h.known)
			appendIf(quality, sdk.Estimate, h.known)
			appendIf(ofPackets, f.at.bound(), h.known)
		}
	}
	return b.Table()
}

func (r *interval) inflationTable() (*table.Table, error) {
	b := table.NewBuilder(inflationList)
	keys, names := b.TextKey("flow"), b.TextKey("node")
	since, host := b.Uint("state/since-epoch"), b.Text("state/reporting-node")
	packets, worst, latency := b.Uint("state/packets"), b.Uint("state/latency-max"), b.Uint("state/latency-avg")
	normal, quality := b.Uint("state/latency-normal"), b.Text("state/quality")
	for _, f := range limit(r, r.inflations, r.config.Limits.Inflations) {
		keys.AppendText(&f.Key)
		names.Append(r.name(f.Node))
		since.Append(f.since)
		host.Append(f.at.name)
		packets.Append(uint64(f.Packets))
		worst.AppendIf(f.worst(), f.Packets > 0)
		normal.AppendIf(table.Whole(f.normal), f.normal > 0)
		n, sum, ok := f.at.latency(&f.Key, f.Node)
		mean(latency, sum, n, ok)
		quality.Append(string(sdk.Estimate))
	}
	return b.Table()
}

// fiveTuple is the dimension of all results.
var fiveTuple = flow.FiveTuple.String()

func (r *interval) hitterTable(of elements) (*table.Table, error) {
	b := table.NewBuilder(hitterList)
	names, dimension, keys := b.TextKey("node"), b.TextKey("dimension"), b.TextKey("flow")
	rank, packets, quality := b.Uint("state/rank"), b.Uint("state/packets"), b.Text("state/quality")
	for _, name := range slices.Sorted(maps.Keys(of)) {
		for i, h := range of[name] {
			names.Append(name)
			dimension.Append(fiveTuple)
			keys.AppendText(&h.key)
			rank.Append(uint64(i + 1))
			packets.Append(uint64(h.after))
			quality.Append(string(r.bounds(name)))
		}
	}
	return b.Table()
}

func (r *interval) changeTable(of elements) (*table.Table, error) {
	b := table.NewBuilder(changeList)
	names, dimension, keys := b.TextKey("node"), b.TextKey("dimension"), b.TextKey("flow")
	before, after, quality := b.Uint("state/previous"), b.Uint("state/current"), b.Text("state/quality")
	for _, name := range slices.Sorted(maps.Keys(of)) {
		for _, h := range of[name] {
			names.Append(name)
			dimension.Append(fiveTuple)
			keys.AppendText(&h.key)
			before.Append(uint64(h.before))
			after.Append(uint64(h.after))
			quality.Append(string(r.bounds(name)))
		}
	}
	return b.Table()
}

func (r *interval) pathTable(changed []*pathChange) (*table.Table, error) {
	b := table.NewBuilder(pathList)
	keys, at := b.TextKey("flow"), b.Text("state/node")
	previous, path, changes := b.Text("state/previous-path"), b.Text("state/path"), b.Uint("state/path-changes")
	for _, c := range limit(r, changed, r.config.Limits.Flows) {
		keys.AppendText(&c.flow.key)
		at.Append(c.at)
		previous.AppendSome(alert.Clip(c.before))
		path.Append(r.path(c.flow.path))
		changes.Append(uint64(c.flow.changes))
	}
	return b.Table()
}

func (r *interval) nodeTable(measurements []measurement) (*table.Table, error) {
	b := table.NewBuilder(summariesList)
	names, dimension, packets := b.TextKey("node"), b.TextKey("dimension"), b.Uint("state/packets")
	flows, entropy := b.Uint("state/distinct-flows"), b.Float("state/entropy")
	quality, ofPackets := b.Text("state/quality"), b.Text("state/packets-quality")
	for i := range measurements {
		m := &measurements[i]
		names.Append(m.element)
		dimension.Append(fiveTuple)
		packets.Append(m.packets)
		quality.Append(string(sdk.Estimate))
		if o := r.observer(m.element); o != nil && o.exact() {
			ofPackets.Append(string(sdk.Exact))
		} else {
			ofPackets.Append(string(sdk.Estimate))
		}
		flows.AppendIf(table.Whole(m.flows), m.counted)
		if m.ok {
			entropy.Append(table.Decimal(m.entropy(), 6))
		}
	}
	return b.Table()
}

func (r *interval) rangeTable(measurements []measurement) (*table.Table, error) {
	b := table.NewBuilder(rangeList)
	names, lower := b.TextKey("node"), b.UintKey("lower")
	upper, flows, quality := b.Uint("state/upper"), b.Uint("state/flows"), b.Text("state/quality")
	for i := range measurements {
		if !measurements[i].ok {
			continue
		}
		for j, n := range measurements[i].ranges() {
			if table.Whole(n) == 0 {
				continue
			}
			names.Append(measurements[i].element)
			lower.Append(1 << j)
			upper.Append(1<<(j+1) - 1)
			flows.Append(table.Whole(n))
			quality.Append(string(sdk.Estimate))
		}
	}
	return b.Table()
}

func (r *interval) switchTable() (*table.Table, error) {
	b := table.NewBuilder(switchList)
	names, id := b.TextKey("node"), b.Uint("state/node-id")
	packets, latency, worst := b.Uint("state/packets"), b.Uint("state/latency-avg"), b.Uint("state/latency-max")
	drops, flows := b.Uint("state/dropped-packets"), b.Uint("state/inflated-flows")
	inflated := b.Uint("state/inflated-packets")
	heavy, status, problem := b.Uint("state/heavy-flows"), b.Text("state/tower-status"), b.Text("state/tower-problem")
	quality, ofPackets := b.Text("state/quality"), b.Text("state/packets-quality")
	for _, name := range slices.Sorted(maps.Keys(r.switches)) {
		s := r.switches[name]
		names.Append(name)
		id.Append(uint64(s.id))
		packets.Append(s.packets)
		quality.Append(string(sdk.Estimate))
		ofPackets.Append(string(r.received()))
		mean(latency, s.sum, s.packets, true)
		worst.AppendIf(s.worst, s.packets > 0)
		drops.Append(s.drops)
		flows.Append(s.inflatedFlows)
		inflated.Append(s.inflatedPackets)
		heavy.Append(s.heavyFlows)
		if o := r.observer(name); o != nil && o.edge {
			status.Append(o.status().String())
			problem.AppendSome(alert.Clip(o.problem))
		}
	}
	return b.Table()
}

// queueState is a queue of a switch, by names.
type queueState struct {
	name string
	id   uint8
}

// queueTable has the queues of switches that have rows.
func (r *interval) queueTable() (*table.Table, error) {
	b := table.NewBuilder(queueList)
	names, ids := b.TextKey("node"), b.UintKey("queue")
	packets, latency := b.Uint("state/packets"), b.Uint("state/latency-avg")
	occupancy, worst := b.Float("state/occupancy-avg"), b.Uint("state/occupancy-max")
	quality, ofPackets := b.Text("state/quality"), b.Text("state/packets-quality")
	all := map[queueState]wire.Queue{}
	for _, o := range r.observers {
		if o.report == nil {
			continue
		}
		for _, q := range o.report.Queues {
			at := queueState{r.name(q.Node), q.ID}
			if r.switches[at.name] == nil {
				r.omitted++
				continue
			}
			sum := all[at]
			sum.Packets, sum.Timed, sum.Sum = sum.Packets+q.Packets, sum.Timed+q.Timed, sum.Sum+q.Sum*o.unit
			sum.Occupancy, sum.Worst = sum.Occupancy+q.Occupancy, max(sum.Worst, q.Worst)
			all[at] = sum
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(all), func(a, b queueState) int {
		return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.id, b.id))
	}) {
		q := all[at]
		names.Append(at.name)
		ids.Append(uint64(at.id))
		packets.Append(q.Packets)
		quality.Append(string(sdk.Estimate))
		ofPackets.Append(string(r.received()))
		mean(latency, q.Sum, q.Timed, true)
		occupancy.Append(table.Decimal(float64(q.Occupancy)/float64(max(q.Packets, 1)), 6))
		worst.Append(uint64(q.Worst))
	}
	return b.Table()
}

func (r *interval) hostTable() (*table.Table, error) {
	b := table.NewBuilder(hostList)
	names := b.TextKey("node")
	status, problem := b.Text("state/status"), b.Text("state/problem")
	var counters, problems []*table.UintAppender
	for c := wire.Counter(0); c < wire.Counters; c++ {
		counters = append(counters, b.Uint("state/"+c.String()))
	}
	for p := inband.None; p < inband.Problems; p++ {
		problems = append(problems, b.Uint("state/int-"+p.String()))
	}
	for _, o := range r.observers {
		if o.edge {
			continue
		}
		names.Append(o.name)
		status.Append(o.status().String())
		problem.AppendSome(alert.Clip(o.problem))
		for c, a := range counters {
			a.AppendIf(o.get(func(r *wire.Report) uint64 { return r.Counters[c] }), o.report != nil)
		}
		for p, a := range problems {
			a.AppendIf(o.get(func(r *wire.Report) uint64 { return r.Problems[p] }), o.report != nil)
		}
	}
	return b.Table()
}

// status is complete if the observer delivered the whole interval, with all heavy flows.
func (o *observer) status() sdk.Status {
	switch {
	case o.report == nil:
		return sdk.StatusLost
	case !o.whole || o.report.Counters[wire.HeavyFull] > 0:
		return sdk.StatusPartial
	}
	return sdk.StatusComplete
}

// get returns a count of the report, or 0 without a report.
func (o *observer) get(of func(r *wire.Report) uint64) uint64 {
	if o.report == nil {
		return 0
	}
	return of(o.report)
}

func (r *interval) sourceTable() (*table.Table, error) {
	b := table.NewBuilder(sourceList)
	hosts, addresses := b.TextKey("node"), b.TextKey("address")
	nodes, hardware := b.UintKey("node-id"), b.UintKey("hardware")
	name := b.Text("state/source-node")
	received, lost, late, restarts := b.Uint("state/received"), b.Uint("state/lost"), b.Uint("state/late"),
		b.Uint("state/restarts")
	for _, o := range r.observers {
		if o.report == nil {
			continue
		}
		for _, s := range limit(r, o.report.Sources, r.config.Limits.Senders) {
			hosts.Append(o.name)
			addresses.Append(s.Address.String())
			nodes.Append(uint64(s.Node))
			hardware.Append(uint64(s.Hardware))
			name.Append(r.name(s.Node))
			received.Append(s.Received)
			lost.Append(s.Lost)
			late.Append(s.Late)
			restarts.Append(s.Restarts)
		}
	}
	return b.Table()
}

func (r *interval) faultTable() (*table.Table, error) {
	b := table.NewBuilder(faultList)
	hosts, addresses, reasons := b.TextKey("node"), b.TextKey("address"), b.TextKey("reason")
	packets := b.Uint("state/packets")
	for _, o := range r.observers {
		if o.report == nil {
			continue
		}
		for _, f := range limit(r, o.report.Faults, r.config.Limits.Senders) {
			hosts.Append(o.name)
			addresses.Append(f.Address.String())
			reasons.Append(strings.ReplaceAll(strings.ToUpper(f.Problem.String()), "-", "_"))
			packets.Append(f.Packets)
		}
	}
	return b.Table()
}

// headers is the least that a report of passport mode has in front of INT: the headers of Ethernet,
// IPv4 and UDP of the packet that the sink switch sends, in bytes.
const headers = 14 + 20 + 8

// costTable compares the packets and bytes of the collection with INT's passport mode, in which the
// sink sends the headers and the INT of each packet in a packet of its own (paper, section VII).
func (r *interval) costTable() (*table.Table, error) {
	b := table.NewBuilder(costList)
	packets, bytes := uint64(0), uint64(0)
	for _, o := range r.observers {
		n, size := r.passport(o)
		packets, bytes = packets+n, bytes+size
	}
	one := func(name string, v uint64) { b.Uint("state/" + name).Append(v) }
	one("bytes", r.cost.bytes)
	one("packets", r.cost.packets)
	one("passport-bytes", bytes)
	one("passport-packets", packets)
	for _, x := range []struct {
		name   string
		of, to uint64
	}{{"bytes-ratio", r.cost.bytes, bytes}, {"packets-ratio", r.cost.packets, packets}} {
		b.Float("state/"+x.name).AppendIf(table.Decimal(float64(x.of)/float64(x.to), 6), x.to > 0)
	}
	return b.Table()
}

// Query implements sdk.Querier: a flow, or a flow at a switch, in the newest interval.
func (p *Plugin) Query(_ context.Context, row sdk.RowKey) ([]*table.Table, uint64, error) {
	if row.List != flowList && row.List != hopList {
		return nil, 0, fmt.Errorf("sketchint: rows of %s cannot be queried; use %s or %s", row.List, flowList, hopList)
	}
	if _, err := flow.Parse(flow.FiveTuple, row.Keys["flow"]); err != nil {
		return nil, 0, fmt.Errorf("sketchint: %w", err)
	}
	r := p.newest.Load()
	if r == nil {
		return nil, 0, nil
	}
	f := r.flow(row.Keys["flow"])
	if f == nil {
		return nil, r.epoch.Number, nil
	}
	build := r.flowTable
	if row.List == hopList {
		build = r.hopTable
	}
	t, err := build([]*heavyFlow{f})
	if err != nil {
		return nil, 0, err
	}
	return []*table.Table{t}, r.epoch.Number, nil
}
