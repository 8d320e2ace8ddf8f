// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/hostagent/lightguardian/wire"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/alert"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/yang/table"
)

// The lists of module netsketch-lightguardian.
const (
	root          = "/netsketch-lightguardian:lightguardian/"
	summaryList   = root + "summary"
	flowList      = root + "flows/flow"
	hopList       = root + "hops/hop"
	delayList     = root + "delays/delay"
	faultList     = root + "faults/fault"
	summariesList = root + "node-summaries/node-summary"
	rangeList     = root + "ranges/range"
	coverageList  = root + "coverage/interval"
	hostList      = root + "hosts/host"
	alertList     = root + "alerts/alert"
)

// publish builds the tables of an epoch. Each replaces its whole list. p.mu is held.
func (p *Plugin) publish(ctx context.Context, r *run) (*sdk.Results, error) {
	out := &sdk.Results{}
	p.alarm(r)
	out.Events = events(p.alerts.Update(r.epoch, r.problems))
	listed := r.listed()
	out.Add(r.hostTable())
	out.Add(p.coverageTable(r))
	out.Add(p.alerts.Table(alertList, severity))
	out.End = r.epoch.Range(r.first, r.last).End
	out.Add(r.flowTable(listed[flowList]))
	out.Add(r.hopTable(listed[hopList]))
	out.Add(r.delayTable(listed[delayList]))
	out.Add(r.faultTable(p.since))
	out.Add(r.nodeTable())
	out.Add(r.rangeTable())
	out.Add(r.summaryTable(p.alerts.Active())) // last, because it counts omitted rows
	return out, cmp.Or(out.Err(), ctx.Err())
}

// listed returns the flows of each list: the first flows, and the flows that clients watch.
func (r *run) listed() map[string][]*flowState {
	out := map[string][]*flowState{}
	for list, most := range map[string]int{flowList: r.config.Limits.Flows, hopList: r.config.Limits.Hops,
		delayList: r.config.Limits.Hops} {
		first := r.flows[:min(len(r.flows), most)]
		for _, f := range r.flows[len(first):] {
			switch list {
			case flowList:
				r.omitted++
			case hopList:
				r.omitted += uint64(len(f.hops))
			case delayList:
				r.omitted += f.delays()
			}
		}
		out[list] = slices.Clone(first)
		seen := map[flow.Key]bool{}
		for _, f := range first {
			seen[f.key] = true
		}
		for _, row := range r.epoch.Watched {
			if row.List != list {
				continue
			}
			f := r.asked(row.Keys["flow"])
			if f == nil {
				continue
			}
			if at := slices.IndexFunc(out[list], func(o *flowState) bool { return o.key == f.key }); seen[f.key] && at >= 0 {
				out[list][at] = f
				continue
			}
			seen[f.key] = true
			out[list] = append(out[list], f)
		}
	}
	return out
}

// delays returns the number of ranges of delays with packets of the flow, over all hops.
func (f *flowState) delays() (n uint64) {
	for i := range f.hops {
		for _, packets := range f.hops[i].Delays {
			if packets > 0 {
				n++
			}
		}
	}
	return n
}

// asked returns the flow that a client requested; nil if the text is no flow, or if its path and
// its packets are not known.
func (i *interval) asked(text string) *flowState {
	key, err := flow.Parse(flow.FiveTuple, text)
	if err != nil {
		return nil
	}
	f := i.follow(key)
	if f == nil || len(f.hops) == 0 && f.size() == 0 {
		return nil
	}
	f.text = text
	return f
}

// appendFlow appends a flow: as a client wrote it, or in its usual form.
func appendFlow(to *table.TextAppender, f *flowState) {
	if f.text != "" {
		to.Append(f.text)
		return
	}
	to.AppendText(&f.key)
}

func (r *run) summaryTable(active uint64) (*table.Table, error) {
	b := table.NewBuilder(summaryList)
	one := func(name string, v uint64) { b.Uint("state/" + name).Append(v) }
	of := r.epoch.Range(r.first, r.last)
	of.Status, of.Provisional = r.status(), r.epoch.Number < r.settled()
	of.Reason, of.Problem = r.reason()
	if r.few != "" && of.Status == sdk.StatusComplete {
		of.Status = sdk.StatusPartial
	}
	of.Problem = alert.Clip(of.Problem)
	of.Append(b)
	one("newest-epoch", r.epoch.Number)
	one("final-epoch", r.settled())
	b.Float("state/coverage").Append(table.Decimal(r.received(), 6))
	one("hosts", uint64(len(r.hosts)))
	one("hosts-delivered", uint64(r.delivered()))
	one("switches", uint64(len(r.own)))
	sending, old := 0, uint64(0)
	for _, name := range r.own {
		if r.share(name) > 0 {
			sending++
		}
	}
	var counters [wire.Counters]uint64
	for _, x := range r.reports {
		old += x.old
		if x.report != nil {
			for c, n := range x.report.Counters {
				counters[c] += n
			}
		}
	}
	one("switches-received", uint64(sending))
	valid, judged := 0, 0
	for _, f := range r.flows {
		for j := range f.hops {
			if judged++; f.hops[j].Valid {
				valid++
			}
		}
	}
	one("flows", uint64(len(r.flows)))
	b.Float("state/hop-coverage").Append(table.Decimal(float64(valid)/float64(max(judged, 1)), 6))
	one("faults", uint64(r.faults))
	one("sketchlets", counters[wire.Sketchlets])
	one("in-band-bytes", counters[wire.InBandBytes])
	one("old-sketchlets", old)
	one("omitted-rows", r.omitted)
	one("warnings", uint64(len(r.inexact)))
	one("active-alerts", active)
	return b.Table()
}

// reason returns why results are not complete, as a condition and in words, or "".
func (r *run) reason() (condition, problem string) {
	for _, name := range r.own {
		if r.share(name) == 0 {
			return sdk.SwitchMissing, "no column of switch " + name + " was received"
		}
	}
	for _, host := range r.hosts {
		if !r.measures(host) {
			return sdk.HostMissing, "host " + host + " did not report the whole interval"
		}
	}
	switch {
	case len(r.own) == 0:
		return sdk.Inexact, "no switch sends sketchlets"
	case r.few != "":
		return string(fewSketchlets), r.few
	case len(r.inexact) > 0:
		return sdk.Inexact, r.inexact[0]
	}
	return "", ""
}

func (r *run) flowTable(flows []*flowState) (*table.Table, error) {
	b := table.NewBuilder(flowList)
	keys := b.TextKey("flow")
	from, to := b.Text("state/source-node"), b.Text("state/destination-node")
	sent, received, lost := b.Uint("state/packets"), b.Uint("state/received-packets"), b.Int("state/lost-packets")
	quality, lostQuality := b.Text("state/quality"), b.Text("state/lost-packets-quality")
	path, valid, faults := b.Text("state/path"), b.Uint("state/measured-hops"), b.Uint("state/faults")
	for _, f := range flows {
		appendFlow(keys, f)
		from.AppendSome(alert.Clip(f.from))
		to.AppendSome(alert.Clip(f.to))
		sent.AppendIf(f.sent, f.known[0])
		received.AppendIf(f.got, f.known[1])
		lost.AppendIf(int64(f.sent)-int64(f.got), f.counted())
		if f.known[0] || f.known[1] {
			quality.Append(string(r.hostQuality(f)))
		}
		if f.counted() {
			lostQuality.Append(string(sdk.Estimate))
		}
		var names []string
		n := uint64(0)
		for j := range f.hops {
			names = append(names, f.hops[j].name)
			if f.hops[j].Valid {
				n++
			}
		}
		path.AppendSome(alert.Clip(strings.Join(names, " ")))
		valid.Append(n)
		faults.Append(uint64(len(f.faults)))
	}
	return b.Table()
}

// hostQuality returns the quality of the packets that the hosts of a flow counted.
func (i *interval) hostQuality(f *flowState) sdk.Quality {
	if f.known[0] && i.full[f.from] || f.known[1] && i.full[f.to] {
		return sdk.LowerBound
	}
	return sdk.Exact
}

func (r *run) hopTable(flows []*flowState) (*table.Table, error) {
	b := table.NewBuilder(hopList)
	keys, names := b.TextKey("flow"), b.TextKey("node")
	position, expected := b.Uint("state/position"), b.Bool("state/expected")
	share, packets, lost := b.Float("state/coverage"), b.Uint("state/packets"), b.Int("state/lost-packets")
	slow, gap, arrival := b.Float("state/slow"), b.Uint("state/gap"), b.Uint("state/last-arrival")
	quality, packetsQuality := b.Text("state/quality"), b.Text("state/packets-quality")
	meanLow, meanHigh := b.Uint("state/latency-avg-low"), b.Uint("state/latency-avg-high")
	for _, f := range flows {
		before, ok := f.sent, f.known[0]
		for j := range f.hops {
			h := &f.hops[j]
			appendFlow(keys, f)
			names.Append(h.name)
			position.Append(uint64(j + 1))
			expected.Append(!h.off)
			share.Append(table.Decimal(h.share, 6))
			packets.AppendIf(uint64(h.Packets), h.Valid)
			lost.AppendIf(int64(before)-int64(h.Packets), ok && h.Valid)
			total, above, sumLow, sumHigh := uint64(0), uint64(0), uint64(0), uint64(0)
			for n, v := range h.Delays {
				if total += uint64(v); n >= r.config.rules.SlowRange {
					above += uint64(v)
				}
				low, high := r.config.Sketch.delayRange(n)
				sumLow, sumHigh = sumLow+uint64(v)*uint64(low), sumHigh+uint64(v)*uint64(high)
			}
			last := len(h.Delays) - 1
			meanLow.AppendIf(sumLow/max(total, 1), total > 0)
			meanHigh.AppendIf((sumHigh+total-1)/max(total, 1), total > 0 && h.Delays[last] == 0)
			slow.AppendIf(table.Decimal(float64(above)/float64(total), 6), total > 0)
			timed := h.Valid && r.config.Sketch.Gaps && h.Packets > 0
			gap.AppendIf(r.config.nanoseconds(h.Interval), timed)
			arrival.AppendIf(r.config.nanoseconds(h.last-min(h.last, 1)), timed) // times begin with 1
			if h.Valid {
				quality.Append(string(sdk.Estimate))
				packetsQuality.Append(string(r.hopQuality(h)))
			}
			if h.Valid {
				before, ok = min(before, uint64(h.Packets)), true
				if !f.known[0] && j == 0 {
					before = uint64(h.Packets)
				}
			}
		}
	}
	return b.Table()
}

// hopQuality returns the quality of the packets at a hop. Packets of a flow that is hidden from
// hosts are in the sketches of switches by another flow, or not at all.
func (i *interval) hopQuality(h *hop) sdk.Quality {
	if h.capped || i.hidden {
		return sdk.Estimate
	}
	return sdk.UpperBound
}

func (r *run) delayTable(flows []*flowState) (*table.Table, error) {
	b := table.NewBuilder(delayList)
	keys, names, lower := b.TextKey("flow"), b.TextKey("node"), b.UintKey("lower")
	upper, packets, quality := b.Uint("state/upper"), b.Uint("state/packets"), b.Text("state/quality")
	bound := sdk.UpperBound
	if r.hidden {
		bound = sdk.Estimate
	}
	for _, f := range flows {
		for j := range f.hops {
			h := &f.hops[j]
			for n, v := range h.Delays {
				if v == 0 {
					continue
				}
				appendFlow(keys, f)
				names.Append(h.name)
				low, high := r.config.Sketch.delayRange(n)
				lower.Append(uint64(low))
				upper.AppendIf(uint64(high), high > 0)
				packets.Append(uint64(v))
				quality.Append(string(bound))
			}
		}
	}
	return b.Table()
}

func (r *run) faultTable(since map[place]uint64) (*table.Table, error) {
	b := table.NewBuilder(faultList)
	keys, names, kinds := b.TextKey("flow"), b.TextKey("node"), b.TextKey("kind")
	begin, previous := b.Uint("state/since-epoch"), b.Text("state/previous-node")
	value, sure := b.Float("state/value"), b.Bool("state/located")
	confidence, share := b.Float("state/confidence"), b.Float("state/coverage")
	quality := b.Text("state/quality")
	left := r.faultQuotas()
	for _, f := range r.flows {
		for _, x := range f.faults {
			if left[x.kind]--; left[x.kind] < 0 {
				r.omitted++
				continue
			}
			appendFlow(keys, f)
			names.Append(x.name)
			kinds.Append(x.kind)
			begin.Append(since[place{f.key, x.name, x.kind}])
			previous.AppendSome(alert.Clip(x.after))
			value.Append(table.Decimal(min(x.value, 1e9), 6))
			sure.Append(!x.unsure)
			confidence.Append(table.Decimal(1-x.wrong, 6))
			share.AppendIf(table.Decimal(r.share(x.name), 6), r.owns(x.name))
			quality.Append(string(sdk.Estimate))
		}
	}
	return b.Table()
}

// faultQuotas divides the limit of the list of faults among kinds of faults, so that many faults of
// one kind never hide all faults of another: a kind gets as many rows as it has faults, at most an
// equal share of the rows that kinds with fewer faults leave.
func (r *run) faultQuotas() map[string]int {
	faults := map[string]int{}
	for _, f := range r.flows {
		for _, x := range f.faults {
			faults[x.kind]++
		}
	}
	kinds := slices.SortedFunc(maps.Keys(faults), func(a, b string) int {
		return cmp.Or(cmp.Compare(faults[a], faults[b]), strings.Compare(a, b))
	})
	quotas, rest := map[string]int{}, r.config.Limits.Faults
	for i, kind := range kinds {
		quotas[kind] = min(faults[kind], rest/(len(kinds)-i))
		rest -= quotas[kind]
	}
	return quotas
}

func (r *run) nodeTable() (*table.Table, error) {
	b := table.NewBuilder(summariesList)
	names, dimension := b.TextKey("node"), b.TextKey("dimension")
	id, share, quality := b.Uint("state/device-id"), b.Float("state/coverage"), b.Text("state/quality")
	packets, flows, entropy := b.Uint("state/packets"), b.Uint("state/distinct-flows"), b.Float("state/entropy")
	for _, name := range r.own {
		names.Append(name)
		dimension.Append(flow.FiveTuple.String())
		id.Append(uint64(r.ids[name]))
		share.Append(table.Decimal(r.share(name), 6))
		t := r.tasks[name]
		if t == nil {
			continue
		}
		quality.Append(string(sdk.Estimate))
		packets.Append(table.Whole(t.packets))
		flows.AppendIf(table.Whole(t.flows), t.counted)
		if t.sizes != nil {
			entropy.Append(table.Decimal(t.entropy(), 6))
		}
	}
	return b.Table()
}

func (r *run) rangeTable() (*table.Table, error) {
	b := table.NewBuilder(rangeList)
	names, lower := b.TextKey("node"), b.UintKey("lower")
	upper, flows, quality := b.Uint("state/upper"), b.Uint("state/flows"), b.Text("state/quality")
	for _, name := range r.own {
		t := r.tasks[name]
		if t == nil || t.sizes == nil || t.crowded {
			continue
		}
		for i, n := range t.ranges() {
			if table.Whole(n) == 0 {
				continue
			}
			names.Append(name)
			lower.Append(uint64(1) << i)
			upper.Append(uint64(2)<<i - 1)
			flows.Append(table.Whole(n))
			quality.Append(string(sdk.Estimate))
		}
	}
	return b.Table()
}

// coverageTable has all intervals that are not final, and the intervals that have just become
// final.
func (p *Plugin) coverageTable(r *run) (*table.Table, error) {
	b := table.NewBuilder(coverageList)
	names, age := b.TextKey("node"), b.UintKey("age")
	first, last, end, final := b.Uint("state/first-epoch"), b.Uint("state/last-epoch"),
		b.Uint("state/final-epoch"), b.Bool("state/final")
	columns, received, share := b.Uint("state/columns"), b.Uint("state/received-columns"), b.Float("state/coverage")
	late, disagreeing := b.Uint("state/late-columns"), b.Uint("state/disagreeing-columns")
	unmeasured := b.Uint("state/unmeasured-sketchlets")
	for _, n := range slices.Sorted(maps.Keys(p.intervals)) {
		i := p.intervals[n]
		if i.number > r.number {
			continue // the switch carries nothing yet
		}
		for _, name := range i.own {
			c := i.switches[name]
			if c == nil {
				c = &column{}
			}
			names.Append(name)
			age.Append(r.number - i.number)
			first.Append(i.first)
			last.Append(i.last)
			end.Append(i.lastReports())
			final.Append(r.epoch.Number >= i.lastReports())
			columns.Append(uint64(i.config.Sketch.Columns))
			received.Append(table.Whole(i.share(name) * float64(i.config.Sketch.Columns)))
			share.Append(table.Decimal(i.share(name), 6))
			late.Append(uint64(c.late))
			disagreeing.Append(c.disagreeing)
			unmeasured.Append(c.unmeasured)
		}
	}
	return b.Table()
}

func (r *run) hostTable() (*table.Table, error) {
	b := table.NewBuilder(hostList)
	names := b.TextKey("node")
	status, problem, old := b.Text("state/status"), b.Text("state/problem"), b.Uint("state/old-sketchlets")
	var counters []*table.UintAppender
	for c := wire.Counter(0); c < wire.Counters; c++ {
		counters = append(counters, b.Uint("state/"+c.String()))
	}
	for _, host := range r.hosts {
		x := r.reports[host]
		names.Append(host)
		switch {
		case x.report == nil:
			status.Append(sdk.StatusLost.String())
		case x.problem != "":
			status.Append(sdk.StatusPartial.String())
		default:
			status.Append(sdk.StatusComplete.String())
		}
		problem.AppendSome(alert.Clip(x.problem))
		old.AppendIf(x.old, x.report != nil)
		for c, a := range counters {
			if x.report != nil {
				a.Append(x.report.Counters[c])
			}
		}
	}
	return b.Table()
}

// Query implements sdk.Querier: a flow, its hops or its delays in the newest interval.
func (p *Plugin) Query(_ context.Context, row sdk.RowKey) ([]*table.Table, uint64, error) {
	if _, err := flow.Parse(flow.FiveTuple, row.Keys["flow"]); err != nil {
		return nil, 0, fmt.Errorf("lightguardian: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.newest == nil {
		return nil, 0, nil
	}
	r := &run{interval: p.newest, epoch: &sdk.Epoch{Number: p.epoch}}
	build := map[string]func([]*flowState) (*table.Table, error){flowList: r.flowTable, hopList: r.hopTable,
		delayList: r.delayTable}[row.List]
	if build == nil {
		return nil, 0, fmt.Errorf("lightguardian: rows of %s cannot be queried; use %s, %s or %s", row.List, flowList,
			hopList, delayList)
	}
	f := r.asked(row.Keys["flow"])
	if f == nil {
		return nil, p.epoch, nil
	}
	t, err := build([]*flowState{f})
	if err != nil {
		return nil, 0, err
	}
	return []*table.Table{t}, p.epoch, nil
}
