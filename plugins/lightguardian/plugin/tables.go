// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/netsketch/netsketch/hostagent/lightguardian/wire"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/alert"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/yang/table"
)

// The lists of module netsketch-lightguardian.
const (
	root         = "/netsketch-lightguardian:lightguardian/"
	summaryList  = root + "summary"
	flowList     = root + "flows/flow"
	hopList      = root + "hops/hop"
	delayList    = root + "delays/delay"
	faultList    = root + "faults/fault"
	switchList   = root + "switches/switch"
	rangeList    = root + "distributions/range"
	coverageList = root + "coverage/interval"
	hostList     = root + "hosts/host"
	alertList    = root + "alerts/alert"
)

// publish builds the tables of an epoch. Each replaces its whole list. p.mu is held.
func (p *Plugin) publish(ctx context.Context, r *run) (*sdk.Results, error) {
	out := &sdk.Results{}
	p.alarm(r)
	out.Events = events(p.alerts.Update(r.epoch, r.problems))
	listed := r.listed()
	for _, build := range []func() (*table.Table, error){
		func() (*table.Table, error) { return r.flowTable(listed[flowList]) },
		func() (*table.Table, error) { return r.hopTable(listed[hopList]) },
		func() (*table.Table, error) { return r.delayTable(listed[delayList]) },
		func() (*table.Table, error) { return r.faultTable(p.since) },
		r.switchTable, r.rangeTable,
		func() (*table.Table, error) { return p.coverageTable(r) },
		r.hostTable,
		func() (*table.Table, error) { return p.alerts.Table(alertList, r.epoch.Number, severity) },
		func() (*table.Table, error) { return r.summaryTable(p.alerts.Active()) }, // last: counts rows
	} {
		t, err := build()
		if err != nil {
			return nil, err
		}
		out.Add(t, true)
	}
	return out, ctx.Err()
}

// listed returns the flows of each list: the first flows, and the flows that clients watch.
func (r *run) listed() map[string][]*flowState {
	first := limit(r, r.flows, r.config.Limits.Flows)
	out := map[string][]*flowState{}
	for _, list := range []string{flowList, hopList, delayList} {
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

// limit returns the first rows of a list, and counts the rows that it leaves out.
func limit[T any](r *run, rows []T, most int) []T {
	if len(rows) <= most {
		return rows
	}
	r.omitted += uint64(len(rows) - most)
	return rows[:most]
}

func optional(a *table.TextAppender, text string) {
	if text == "" {
		a.AppendNull()
		return
	}
	a.Append(alert.Clip(text))
}

// known appends a number, or null.
func known[T ~int | ~uint32 | ~uint64](a *table.UintAppender, v T, ok bool) {
	if !ok {
		a.AppendNull()
		return
	}
	a.Append(uint64(v))
}

func whole(v float64) uint64 { return uint64(max(math.Round(v), 0)) }

// digits rounds to the six digits of the module's decimals.
func digits(v float64) float64 { return math.Round(v*1e6) / 1e6 }

// keyColumn is a column of flow keys in text.
type keyColumn struct {
	*table.TextAppender
	buffer []byte
}

func (c *keyColumn) append(f *flowState) {
	if f.text != "" {
		c.Append(f.text)
		return
	}
	c.buffer, _ = f.key.AppendText(c.buffer[:0])
	c.AppendBytes(c.buffer)
}

// stamp is the columns that rows about an interval begin with.
type stamp struct {
	epoch, first *table.UintAppender
	final        *table.BoolAppender
}

func stamps(b *table.Builder) stamp {
	return stamp{b.Uint("state/epoch"), b.Uint("state/first-epoch"), b.Bool("state/final")}
}

func (s stamp) append(epoch uint64, i *interval) {
	s.epoch.Append(epoch)
	s.first.Append(i.first)
	s.final.Append(epoch >= i.settled())
}

func (r *run) summaryTable(active uint64) (*table.Table, error) {
	b := table.NewBuilder(summaryList)
	one := func(name string, v uint64) { b.Uint("state/" + name).Append(v) }
	stamps(b).append(r.epoch.Number, r.interval)
	one("last-epoch", r.last)
	one("final-epoch", r.settled())
	b.Text("state/status").Append(r.status().String())
	b.Float("state/received").Append(digits(r.received()))
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
	b.Float("state/valid").Append(digits(float64(valid) / float64(max(judged, 1))))
	one("faults", uint64(r.faults))
	one("sketchlets", counters[wire.Sketchlets])
	one("in-band-bytes", counters[wire.InBandBytes])
	one("old-sketchlets", old)
	one("omitted-rows", r.omitted)
	one("warnings", uint64(len(r.inexact)))
	one("active-alerts", active)
	return b.Table()
}

func (r *run) flowTable(flows []*flowState) (*table.Table, error) {
	b := table.NewBuilder(flowList)
	keys, at := keyColumn{TextAppender: b.TextKey("flow")}, stamps(b)
	from, to := b.Text("state/sender"), b.Text("state/receiver")
	sent, received, lost := b.Uint("state/sent"), b.Uint("state/received-packets"), b.Uint("state/lost")
	path, valid, faults := b.Text("state/path"), b.Uint("state/valid-hops"), b.Uint("state/faults")
	share := b.Float("state/received")
	for _, f := range flows {
		keys.append(f)
		at.append(r.epoch.Number, r.interval)
		optional(from, f.from)
		optional(to, f.to)
		known(sent, f.sent, f.known[0])
		known(received, f.got, f.known[1])
		known(lost, f.sent-min(f.sent, f.got), f.known[0] && f.known[1])
		var names []string
		n, least := uint64(0), 1.0
		for j := range f.hops {
			names = append(names, f.hops[j].name)
			least = min(least, f.hops[j].share)
			if f.hops[j].Valid {
				n++
			}
		}
		optional(path, strings.Join(names, " "))
		valid.Append(n)
		faults.Append(uint64(len(f.faults)))
		if len(f.hops) == 0 {
			share.AppendNull()
		} else {
			share.Append(digits(least))
		}
	}
	return b.Table()
}

func (r *run) hopTable(flows []*flowState) (*table.Table, error) {
	b := table.NewBuilder(hopList)
	keys, names, at := keyColumn{TextAppender: b.TextKey("flow")}, b.TextKey("switch"), stamps(b)
	position, expected := b.Uint("state/position"), b.Bool("state/expected")
	valid, share, packets := b.Bool("state/valid"), b.Float("state/received"), b.Uint("state/packets")
	lost, slow := b.Uint("state/lost"), b.Float("state/slow")
	gap, last := b.Uint("state/gap"), b.Uint("state/last-arrival")
	for _, f := range flows {
		before, ok := f.sent, f.known[0]
		for j := range f.hops {
			h := &f.hops[j]
			keys.append(f)
			names.Append(h.name)
			at.append(r.epoch.Number, r.interval)
			position.Append(uint64(j + 1))
			expected.Append(!h.off)
			valid.Append(h.Valid)
			share.Append(digits(h.share))
			known(packets, h.Packets, h.Valid)
			known(lost, before-min(before, uint64(h.Packets)), ok && h.Valid)
			total, above := uint64(0), uint64(0)
			for n, v := range h.Delays {
				if total += uint64(v); n >= r.config.rules.SlowRange {
					above += uint64(v)
				}
			}
			if total == 0 {
				slow.AppendNull()
			} else {
				slow.Append(digits(float64(above) / float64(total)))
			}
			timed := h.Valid && r.config.Sketch.Gaps && h.Packets > 0
			known(gap, r.config.nanoseconds(h.Interval), timed)
			known(last, r.config.nanoseconds(h.last-min(h.last, 1)), timed) // times begin with 1
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

func (r *run) delayTable(flows []*flowState) (*table.Table, error) {
	b := table.NewBuilder(delayList)
	keys, names, from, at := keyColumn{TextAppender: b.TextKey("flow")}, b.TextKey("switch"), b.UintKey("from"), stamps(b)
	to, packets, share := b.Uint("state/to"), b.Uint("state/packets"), b.Float("state/received")
	limits := r.config.Sketch.Delays
	for _, f := range flows {
		for j := range f.hops {
			h := &f.hops[j]
			for n, v := range h.Delays {
				if v == 0 {
					continue
				}
				keys.append(f)
				names.Append(h.name)
				low := time.Duration(0)
				if n > 0 {
					low = limits[n-1]
				}
				from.Append(uint64(low))
				at.append(r.epoch.Number, r.interval)
				if n < len(limits) {
					to.Append(uint64(limits[n]))
				} else {
					to.AppendNull()
				}
				packets.Append(uint64(v))
				share.Append(digits(h.share))
			}
		}
	}
	return b.Table()
}

func (r *run) faultTable(since map[place]uint64) (*table.Table, error) {
	b := table.NewBuilder(faultList)
	keys, names, kinds := keyColumn{TextAppender: b.TextKey("flow")}, b.TextKey("switch"), b.TextKey("kind")
	at, begin := stamps(b), b.Uint("state/since-epoch")
	after, value, sure := b.Text("state/after"), b.Float("state/value"), b.Bool("state/located")
	confidence, share := b.Float("state/confidence"), b.Float("state/received")
	sent, received := b.Uint("state/sent"), b.Uint("state/received-packets")
	rows := 0
	for _, f := range r.flows {
		for _, x := range f.faults {
			if rows++; rows > r.config.Limits.Faults {
				r.omitted++
				continue
			}
			keys.append(f)
			names.Append(x.name)
			kinds.Append(x.kind)
			at.append(r.epoch.Number, r.interval)
			begin.Append(since[place{f.key, x.name, x.kind}])
			optional(after, x.after)
			value.Append(digits(min(x.value, 1e9)))
			sure.Append(!x.unsure)
			confidence.Append(digits(1 - x.doubt))
			if r.owns(x.name) {
				share.Append(digits(r.share(x.name)))
			} else {
				share.AppendNull()
			}
			known(sent, f.sent, f.known[0])
			known(received, f.got, f.known[1])
		}
	}
	return b.Table()
}

func (r *run) switchTable() (*table.Table, error) {
	b := table.NewBuilder(switchList)
	names, at, id := b.TextKey("switch"), stamps(b), b.Uint("state/device-id")
	share, packets, flows, entropy := b.Float("state/received"), b.Uint("state/packets"), b.Uint("state/flows"),
		b.Float("state/entropy")
	for _, name := range r.own {
		names.Append(name)
		at.append(r.epoch.Number, r.interval)
		id.Append(uint64(r.ids[name]))
		share.Append(digits(r.share(name)))
		t := r.tasks[name]
		if t == nil {
			packets.AppendNull()
			flows.AppendNull()
			entropy.AppendNull()
			continue
		}
		packets.Append(whole(t.packets))
		known(flows, whole(t.flows), t.counted)
		if t.sizes == nil {
			entropy.AppendNull()
		} else {
			entropy.Append(digits(t.entropy()))
		}
	}
	return b.Table()
}

func (r *run) rangeTable() (*table.Table, error) {
	b := table.NewBuilder(rangeList)
	names, first, at := b.TextKey("switch"), b.UintKey("first"), stamps(b)
	last, flows, share := b.Uint("state/last"), b.Uint("state/flows"), b.Float("state/received")
	for _, name := range r.own {
		t := r.tasks[name]
		if t == nil || t.sizes == nil {
			continue
		}
		for i, n := range t.ranges() {
			if whole(n) == 0 {
				continue
			}
			names.Append(name)
			first.Append(uint64(1) << i)
			at.append(r.epoch.Number, r.interval)
			last.Append(uint64(2)<<i - 1)
			flows.Append(whole(n))
			share.Append(digits(r.share(name)))
		}
	}
	return b.Table()
}

// coverageTable has all intervals that are not final, and the intervals that have just become
// final.
func (p *Plugin) coverageTable(r *run) (*table.Table, error) {
	b := table.NewBuilder(coverageList)
	first, names, epoch := b.UintKey("first-epoch"), b.TextKey("switch"), b.Uint("state/epoch")
	last, end, final := b.Uint("state/last-epoch"), b.Uint("state/final-epoch"), b.Bool("state/final")
	columns, received, share := b.Uint("state/columns"), b.Uint("state/received-columns"), b.Float("state/received")
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
			first.Append(i.first)
			names.Append(name)
			epoch.Append(r.epoch.Number)
			last.Append(i.last)
			end.Append(i.final())
			final.Append(r.epoch.Number >= i.final())
			columns.Append(uint64(i.config.Sketch.Columns))
			received.Append(whole(i.share(name) * float64(i.config.Sketch.Columns)))
			share.Append(digits(i.share(name)))
			late.Append(uint64(c.late))
			disagreeing.Append(c.disagreeing)
			unmeasured.Append(c.unmeasured)
		}
	}
	return b.Table()
}

func (r *run) hostTable() (*table.Table, error) {
	b := table.NewBuilder(hostList)
	names, epoch := b.TextKey("host"), b.Uint("state/epoch")
	status, problem, old := b.Text("state/status"), b.Text("state/problem"), b.Uint("state/old-sketchlets")
	var counters []*table.UintAppender
	for c := wire.Counter(0); c < wire.Counters; c++ {
		counters = append(counters, b.Uint("state/"+c.String()))
	}
	for _, host := range r.hosts {
		x := r.reports[host]
		names.Append(host)
		epoch.Append(r.epoch.Number)
		switch {
		case x.report == nil:
			status.Append(sdk.StatusLost.String())
		case x.problem != "":
			status.Append(sdk.StatusPartial.String())
		default:
			status.Append(sdk.StatusComplete.String())
		}
		optional(problem, x.problem)
		known(old, x.old, x.report != nil)
		for c, a := range counters {
			if x.report == nil {
				a.AppendNull()
			} else {
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
