// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/netsketch/netsketch/hostagent/inband"
	"github.com/netsketch/netsketch/hostagent/sketchint/wire"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/alert"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/tower"
)

// interval holds the measurements of hosts in one interval. Once analyzed, it does not change,
// except that late reports are added until the next interval is analyzed.
type interval struct {
	*setup
	number    uint64 // number of the interval: an epoch's number divided by the epochs of an interval
	epoch     *sdk.Epoch
	observers []*observer // sorted by name
	flows     map[flow.Key]*heavyFlow
	problems  []alert.Problem
	// inexact are the reasons why results are not exact, apart from the errors of sketches.
	inexact []string
	cost    collection
	omitted uint64 // rows that limits leave out
	// switches are the switches that have rows: all switches of the plan, and a limited number of
	// others.
	switches   map[string]*switchState
	inflations []*inflation
}

// observer is a host, or an edge switch with towers, in one interval.
type observer struct {
	name    string
	edge    bool
	report  *wire.Report // nil: not delivered
	whole   bool         // whether the report includes the whole interval
	problem string
	heavy   map[flow.Key]*wire.Heavy
	unit    uint64     // of latencies in the report, in nanoseconds
	routes  []*routing // routes in force in the interval, for an edge switch, the newest last
}

// heavyFlow is a flow that gets rows.
type heavyFlow struct {
	key      flow.Key
	at       *observer
	packets  uint32
	known    bool     // whether packets is known
	path     []uint32 // node ids; nil: not known
	changes  uint32
	previous []uint32 // path of the previous interval if it differs; nil: the same, or not known
	text     string   // text of the flow in the path of a client; empty: the canonical text
}

// place is a flow at a switch.
type place struct {
	key  flow.Key
	node uint32
}

// collection holds the cost of collecting the reports.
type collection struct{ bytes, packets uint64 }

// segment is the payload of a packet of a host's session with the collector, in bytes: an MTU of
// 1,500 without the headers of IPv4 and TCP with timestamps.
const segment = 1448

func (c *collection) add(bytes int) {
	c.bytes += uint64(bytes)
	c.packets += uint64((bytes + segment - 1) / segment)
}

// Analyze implements sdk.Plugin. The last epoch of an interval has the results of the whole
// interval; the other epochs publish nothing.
func (p *Plugin) Analyze(ctx context.Context, epoch *sdk.Epoch) (*sdk.Results, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.setup == nil {
		return nil, fmt.Errorf("sketchint: epoch %d before a configuration", epoch.Number)
	}
	p.late(epoch)
	p.gather(epoch)
	for i := range epoch.Hosts {
		if epoch.Hosts[i].Role == wire.Role {
			p.collects.add(len(epoch.Hosts[i].Data))
		}
	}
	for _, o := range epoch.Plans {
		if o.Status != sdk.PlanApplied {
			p.failures = append(p.failures, alert.Problem{Location: o.Device, Kind: planFailed,
				Text: fmt.Sprintf("the plan of this configuration is %v: %s", o.Status, o.Reason)})
		}
	}
	follow, err := p.follow(epoch)
	if err != nil {
		return nil, fmt.Errorf("epoch %d: %w", epoch.Number, err)
	}
	if (epoch.Number+1)%p.setup.epochs != 0 {
		return follow, nil
	}
	r := &interval{setup: p.setup, number: epoch.Number / p.setup.epochs, epoch: epoch, cost: p.collects,
		flows: map[flow.Key]*heavyFlow{}, problems: p.failures}
	p.collects, p.failures = collection{}, nil
	r.read()
	r.readEdges(p.edges, slices.Clone(p.routes))
	p.routes = retire(p.routes)
	r.find(p.before(r))
	p.inflate(r, p.before(r))
	out, err := p.publish(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("epoch %d: %w", epoch.Number, err)
	}
	out.Plans, out.Events = follow.Plans, append(out.Events, follow.Events...)
	p.previous = r
	p.newest.Store(r)
	return out, nil
}

// before returns the interval in front of r, or nil if the plugin does not have it.
func (p *Plugin) before(r *interval) *interval {
	if p.previous == nil || p.previous.number+1 != r.number || p.previous.epochs != r.epochs {
		return nil
	}
	return p.previous
}

// late adds reports that arrived late to the newest interval. Its results were published as
// partial, but the changes of the next interval are computed from them.
func (p *Plugin) late(epoch *sdk.Epoch) {
	for i := range epoch.Late {
		l := &epoch.Late[i]
		if l.Role != wire.Role {
			continue
		}
		p.collects.add(len(l.Data))
		if p.previous == nil || l.Epoch != p.previous.epoch.Number {
			continue
		}
		at := slices.IndexFunc(p.previous.observers, func(o *observer) bool { return o.name == l.Host })
		if at < 0 || p.previous.observers[at].report != nil {
			continue
		}
		next := *p.previous // queries read the old interval
		next.observers = slices.Clone(next.observers)
		o := &observer{name: l.Host, unit: uint64(next.config.TimeUnit)}
		next.observers[at] = o
		o.read(&next, l.Data)
		next.flows = map[flow.Key]*heavyFlow{}
		next.find(nil)
		p.previous = &next
	}
}

// workers bounds the reports that are parsed or measured at the same time.
const workers = 4

// read parses the reports of all hosts with an agent.
func (r *interval) read() {
	missing := r.epoch.MissingHosts()
	for _, name := range slices.Sorted(maps.Keys(r.hosts)) {
		r.observers = append(r.observers, &observer{name: name, unit: uint64(r.config.TimeUnit)})
	}
	var group errgroup.Group
	group.SetLimit(workers)
	seen := map[int]bool{}
	for i := range r.epoch.Hosts {
		h := &r.epoch.Hosts[i]
		at, ok := slices.BinarySearchFunc(r.observers, h.Host, func(o *observer, name string) int {
			return strings.Compare(o.name, name)
		})
		if ok && h.Role == wire.Role && seen[at] {
			r.inexact = append(r.inexact, fmt.Sprintf("host %s: two agents have its name", h.Host))
			continue
		}
		if ok && h.Role == wire.Role {
			seen[at] = true
			group.Go(func() error {
				r.observers[at].read(r, h.Data)
				return nil
			})
		}
	}
	_ = group.Wait() // errors are problems of their hosts
	for _, o := range r.observers {
		if o.report == nil {
			m := missing[o.name]
			o.problem = cmp.Or(o.problem, m.Reason, "no report arrived")
			r.problems = append(r.problems, alert.OfMissing(o.name, hostMissing, o.problem, m))
			continue
		}
		for c, n := range o.report.Counters {
			if c := wire.Counter(c); n > 0 && c.Inexact() {
				o.problem = cmp.Or(o.problem, fmt.Sprintf("%d %v", n, c))
				r.inexact = append(r.inexact, fmt.Sprintf("host %s: %d %v", o.name, n, c))
			}
		}
		r.unread(o)
	}
}

// read parses the report of an observer.
func (o *observer) read(r *interval, data []byte) {
	rep, err := wire.ParseReport(data)
	switch {
	case err != nil:
		o.problem = err.Error()
		return
	case rep.Last == 0:
		o.problem = "its interval has not ended: its settings are outdated"
		return
	case rep.Last != r.epoch.Number:
		o.problem = fmt.Sprintf("its report of epoch %d arrived too late", rep.Last)
		return
	case rep.Flows.Memory() != r.towers[0] || rep.Latencies.Memory() != r.towers[1]:
		o.problem = "its towers have another size: its settings are outdated"
		return
	}
	o.report = rep
	first := r.number * r.epochs
	if o.whole = rep.First == first; !o.whole {
		o.problem = fmt.Sprintf("it measured from epoch %d on; the interval began with epoch %d", rep.First, first)
	}
	o.heavy = make(map[flow.Key]*wire.Heavy, len(rep.Heavy))
	for i := range rep.Heavy {
		o.heavy[rep.Heavy[i].Key] = &rep.Heavy[i]
	}
}

// unread reports packets whose INT, and telemetry reports, that a host could not read.
func (r *interval) unread(o *observer) {
	sum, worst := uint64(0), inband.None
	for p, n := range o.report.Problems {
		switch p := inband.Problem(p); p {
		case inband.None, inband.Absent, inband.NotIP:
		default:
			if sum += n; n > o.report.Problems[worst] || worst == inband.None && n > 0 {
				worst = p
			}
		}
	}
	if sum > 0 {
		r.problem(o.name, unread, "INT of %d packets could not be read; most of them: %v", sum, worst)
	}
}

func (r *interval) problem(subject string, k alert.Kind, format string, args ...any) {
	r.problems = append(r.problems, alert.Problem{Location: subject, Kind: k, Text: fmt.Sprintf(format, args...)})
}

// size returns the packets of a flow; ok is false without a report or if all its counters have
// overflowed.
func (o *observer) size(k *flow.Key) (packets uint32, ok bool) {
	if o.report == nil {
		return 0, false
	}
	packets = o.report.Flows.Query(k.AppendBinary(nil))
	return packets, packets != tower.Overflow
}

// latency returns the packets of a flow at a switch and the sum of their latencies, in nanoseconds.
func (o *observer) latency(k *flow.Key, node uint32) (packets uint32, sum uint64, ok bool) {
	packets, sum, ok = o.report.Latencies.Query(wire.AppendKey(nil, k, node))
	return packets, sum * o.unit, ok
}

// find collects the heavy flows of all observers, and compares their paths with the paths of the
// interval before. A flow that several observers report belongs to the observer with the most of
// its packets, among the observers that sums over the network include.
func (r *interval) find(before *interval) {
	for _, o := range r.observers {
		for _, h := range o.heavy {
			f := &heavyFlow{key: h.Key, at: o, path: h.Path, changes: h.Changes}
			f.packets, f.known = o.size(&h.Key)
			if other := r.flows[h.Key]; other != nil {
				if first := r.counted(other.at); first != r.counted(o) && first || first == r.counted(o) &&
					other.packets >= f.packets {
					continue
				}
			}
			r.flows[h.Key] = f
			if before == nil || f.path == nil {
				continue
			}
			if was := before.flows[h.Key]; was != nil && was.path != nil && !slices.Equal(was.path, f.path) {
				f.previous = was.path
			}
		}
	}
}

// heaviest returns flows by their packets, the largest first.
func heaviest(flows map[flow.Key]*heavyFlow) []*heavyFlow {
	return slices.SortedFunc(maps.Values(flows), func(a, b *heavyFlow) int {
		return cmp.Or(cmp.Compare(b.packets, a.packets), a.key.Compare(b.key))
	})
}

// flow returns a flow that clients asked for; nil if no observer may have seen it.
func (r *interval) flow(text string) *heavyFlow {
	key, err := flow.Parse(flow.FiveTuple, text)
	if err != nil {
		return nil
	}
	if f := r.flows[key]; f != nil {
		named := *f
		named.text = text
		return &named
	}
	f := &heavyFlow{key: key, text: text}
	for _, o := range r.observers {
		packets, ok := o.size(&key)
		if o.report == nil {
			continue
		}
		if r.at[key.DstAddr().String()] == o.name {
			f.at, f.packets, f.known = o, packets, ok
			return f
		}
		if f.at == nil || packets > f.packets {
			f.at, f.packets, f.known = o, packets, ok
		}
	}
	if f.at == nil {
		return nil
	}
	return f
}

// hop is a flow at one switch.
type hop struct {
	node     uint32
	position int // on the path, from 1; 0 if the path is not known
	packets  uint32
	sum      uint64
	known    bool
}

// latency returns the sum of the mean latencies along the path of a flow; ok is false if one is not
// known.
func (f *heavyFlow) latency() (sum uint64, ok bool) {
	for _, node := range f.path { // a loop passes a switch again
		packets, latencies, known := f.at.latency(&f.key, node)
		if !known {
			return 0, false
		}
		sum += latencies / uint64(packets)
	}
	return sum, f.path != nil
}

// hops returns a flow at the switches of its path. A flow without a path has the switches that it
// may have passed and at which the tower has packets of it.
func (f *heavyFlow) hops() (out []hop) {
	for i, node := range f.path {
		if slices.Contains(f.path[:i], node) {
			continue // a loop
		}
		h := hop{node: node, position: i + 1}
		h.packets, h.sum, h.known = f.at.latency(&f.key, node)
		out = append(out, h)
	}
	if f.path != nil {
		return out
	}
	for _, node := range f.at.candidates(&f.key) {
		h := hop{node: node}
		if h.packets, h.sum, h.known = f.at.latency(&f.key, node); h.known {
			out = append(out, h)
		}
	}
	return out
}
