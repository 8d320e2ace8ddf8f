// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/netsketch/netsketch/hostagent/sketchint/wire"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/sketch/estimate"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/tower"
)

// networkElement is the element of results over all hosts together.
const networkElement = "network"

// hitter is a heavy hitter, or a heavy change, of one element.
type hitter struct {
	key           flow.Key
	before, after uint32
}

func (h hitter) by() uint32 { return max(h.before, h.after) - min(h.before, h.after) }

// elements are flows by element: hosts, switches and the network.
type elements map[string][]hitter

// add adds a flow to elements.
func (e elements) add(names []string, h hitter) {
	for _, name := range names {
		e[name] = append(e[name], h)
	}
}

// sort orders each element's flows, the largest first, and leaves out the flows beyond the limit.
// The limit applies to the flows of the network, and again to those of all hosts and switches
// together.
func (e elements) sort(r *interval, size func(h hitter) uint32) {
	var network, others []*[]hitter
	rows := make(map[string]*[]hitter, len(e))
	for name, flows := range e {
		slices.SortFunc(flows, func(a, b hitter) int { return cmp.Or(cmp.Compare(size(b), size(a)), a.key.Compare(b.key)) })
		rows[name] = &flows
		if name == networkElement {
			network = append(network, &flows)
		} else {
			others = append(others, &flows)
		}
	}
	r.omitted += sdk.CutByRank(r.config.Limits.SwitchFlows, network...)
	r.omitted += sdk.CutByRank(r.config.Limits.SwitchFlows, others...)
	for name, flows := range rows {
		e[name] = *flows
	}
}

// elementsOf returns the elements, apart from switches, of a flow that an observer has.
func (r *interval) elementsOf(o *observer) (names []string) {
	if r.counted(o) {
		names = append(names, networkElement)
	}
	if !o.edge {
		names = append(names, o.name)
	}
	return names
}

// hitters returns the heavy hitters (paper, section V): flows of at least Heavy packets at their
// host or at a switch. All packets of a flow count at each switch of its path, unless the path
// changed in the interval. hitters also counts the heavy hitters of each switch.
func (r *interval) hitters() elements {
	out := elements{}
	for _, o := range r.observers {
		for key := range o.heavy {
			if n, ok := o.size(&key); ok && n >= r.config.Heavy && !o.edge {
				out.add([]string{o.name}, hitter{key: key, after: n})
			}
		}
	}
	for _, f := range r.flows {
		if f.heavy(r) && r.counted(f.at) {
			out.add([]string{networkElement}, hitter{key: f.key, after: f.packets})
		}
		for _, node := range r.listed(f.switches()) {
			if n, ok := f.at.sizeAt(&f.key, node); ok && n >= r.config.Heavy {
				name := r.name(node)
				r.switches[name].heavyFlows++
				out.add([]string{name}, hitter{key: f.key, after: n})
			}
		}
	}
	out.sort(r, func(h hitter) uint32 { return h.after })
	return out
}

// heavy reports whether the flow is a heavy hitter.
func (f *heavyFlow) heavy(r *interval) bool { return f.known && f.packets >= r.config.Heavy }

// switches returns the switches that a flow may have passed, some of them several times.
func (f *heavyFlow) switches() []uint32 {
	if f.at.edge {
		return f.at.candidates(&f.key)
	}
	return slices.Concat(f.path, f.previous)
}

// changes returns the heavy changes: flows whose packets in two consecutive intervals differ by
// more than Change, at their host or at a switch. Each flow is in the table of heavy flows of one
// of the intervals, and the towers have its packets in both. A flow that moved to another path
// changed at the switches that it left and joined.
func (r *interval) changes(before *interval) elements {
	out := elements{}
	if before == nil {
		return out
	}
	for _, o := range r.observers {
		was := before.observer(o.name)
		if was == nil || !was.whole || !o.whole {
			continue
		}
		flows := maps.Clone(was.heavy)
		maps.Copy(flows, o.heavy)
		for key := range flows {
			b, okB := was.size(&key)
			a, okA := o.size(&key)
			if c := (hitter{key, b, a}); okA && okB && c.by() > r.config.Change {
				out.add(r.elementsOf(o), c)
			}
			var nodes []uint32
			for _, h := range []*wire.Heavy{was.heavy[key], o.heavy[key]} {
				if h != nil {
					nodes = append(nodes, h.Path...)
				}
			}
			if o.edge {
				nodes = slices.Concat(was.candidates(&key), o.candidates(&key))
			}
			for _, node := range r.listed(nodes) {
				b, okB := was.sizeAt(&key, node)
				a, okA := o.sizeAt(&key, node)
				if c := (hitter{key, b, a}); okA && okB && c.by() > r.config.Change {
					out.add([]string{r.name(node)}, c)
				}
			}
		}
	}
	out.sort(r, hitter.by)
	return out
}

// listed returns the switches of paths that have rows, each once.
func (r *interval) listed(nodes []uint32) (out []uint32) {
	for _, node := range nodes {
		if r.switches[r.name(node)] != nil && !slices.Contains(out, node) {
			out = append(out, node)
		}
	}
	return out
}

// sizeAt returns the packets of a flow at a switch. If all packets of the flow took one path, the
// result is all of them or 0. If they did not, or the path is not known, the result comes from the
// tower of latencies; without latencies it is all packets.
func (o *observer) sizeAt(k *flow.Key, node uint32) (packets uint32, ok bool) {
	h := o.heavy[*k]
	switch {
	case o.edge:
		return o.sizeOnRoute(k, node)
	case h != nil && h.Path != nil && h.Changes == 0:
		if !slices.Contains(h.Path, node) {
			return 0, true
		}
		return o.size(k)
	case len(o.report.Nodes) == 0:
		return o.size(k)
	}
	packets, _, _ = o.latency(k, node)
	return packets, packets != tower.Overflow
}

// measurement holds the results of the local tasks of one host, or of all hosts.
type measurement struct {
	element string
	packets uint64
	flows   float64
	counted bool // whether flows is known
	sizes   estimate.Distribution
	large   []uint32 // sizes of flows that are too large for the distribution
	ok      bool     // whether sizes is known
	inexact string   // why results are not known, or not exact
}

// crowd sets inexact, and leaves the distribution out, if too many flows or packets share the
// counters: with a flow for each counter of the first row, the distribution has a weighted mean
// relative error of 0.12 (docs/evidence/accuracy.md).
func (m *measurement) crowd(t *tower.Sketch[family.P4], least uint32) {
	if first := t.Rows()[0].Width; !m.counted || m.flows > float64(first) {
		m.ok = false
		m.inexact = fmt.Sprintf("too many flows share the %d counters of a row: the distribution of their sizes and the "+
			"entropy are unknown; set the tower's size higher", first)
		if !m.counted {
			m.inexact = strings.Replace(m.inexact, "the distribution", "their number, the distribution", 1)
		}
	}
	if over := t.Bound(least, m.packets).Over; over >= float64(least) {
		m.inexact = strings.TrimPrefix(m.inexact+fmt.Sprintf("; sizes of flows may be %.0f packets too high, so flows below "+
			"the thresholds may be listed", over), "; ")
	}
}

// measure estimates the number of flows, and the distribution of their sizes, of a host (paper,
// section V-A). Flows in the table of heavy flows count with their sizes; the distribution of the
// others comes from the tower's rows.
func (r *interval) measure(o *observer) (m measurement) {
	m = measurement{element: o.name, packets: o.report.Counters[wire.Packets], ok: true}
	limit := uint64(r.config.threshold())
	if o.edge || o.report.Counters[wire.HeavyFull] > 0 { // some heavy flows are not known
		limit = math.MaxUint16
	}
	limit = min(limit, math.MaxUint16)
	var rows [][]uint32
	var widths []int
	var limits []uint32
	for i, row := range o.report.Flows.Rows() {
		rows, widths = append(rows, o.report.Flows.Row(i)), append(widths, row.Bits)
		limits = append(limits, uint32(1<<row.Bits-1))
		if uint64(1)<<row.Bits-1 >= limit {
			break
		}
	}
	m.flows, m.counted = estimate.Flows(rows...)
	if m.crowd(o.report.Flows, r.config.threshold()); !m.ok {
		return m
	}
	var err error
	if r.config.Conservative && !o.edge {
		for i, row := range rows {
			for j, v := range row {
				row[j] = min(v, limits[i])
			}
		}
		m.sizes, err = estimate.Maxima(rows, limits)
	} else {
		m.sizes, err = estimate.Rows(rows, widths, estimate.MRAC{})
	}
	if err != nil {
		m.ok = false
		return m
	}
	m.sizes = m.sizes[:min(uint64(len(m.sizes)), limit)]
	for key := range o.heavy {
		if n, ok := o.size(&key); ok && uint64(n) >= limit {
			m.large = append(m.large, n)
		}
	}
	return m
}

// measurements returns the measurements of all hosts and edge switches that delivered data, and
// their sum, because each flow ends at only one of them.
func (r *interval) measurements() []measurement {
	all := measurement{element: networkElement, counted: true, ok: true}
	out := []measurement{all}
	own := make([]measurement, len(r.observers))
	var group errgroup.Group
	group.SetLimit(workers)
	for i, o := range r.observers {
		if o.report != nil {
			group.Go(func() error {
				own[i] = r.measure(o)
				return nil
			})
		}
	}
	_ = group.Wait() // has no error
	for i, o := range r.observers {
		if o.report == nil {
			continue
		}
		m := own[i]
		out = append(out, m)
		if m.inexact != "" {
			r.inexact = append(r.inexact, fmt.Sprintf("%s %s: %s", o.kind(), o.name, m.inexact))
		}
		if !r.counted(o) {
			continue
		}
		all.packets, all.flows, all.counted, all.ok = all.packets+m.packets, all.flows+m.flows, all.counted && m.counted,
			all.ok && m.ok
		for len(all.sizes) < len(m.sizes) {
			all.sizes = append(all.sizes, 0)
		}
		for size, n := range m.sizes {
			all.sizes[size] += n
		}
		all.large = append(all.large, m.large...)
	}
	out[0] = all
	return out
}

// entropy returns the entropy of packets over flows, in bits.
func (m *measurement) entropy() float64 {
	total, h := m.sizes.Packets(), 0.0
	for _, n := range m.large {
		total += float64(n)
	}
	if total == 0 {
		return 0
	}
	add := func(size, flows float64) {
		if flows > 0 {
			h -= flows * size / total * math.Log2(size/total)
		}
	}
	for size := 1; size < len(m.sizes); size++ {
		add(float64(size), m.sizes[size])
	}
	for _, n := range m.large {
		add(float64(n), 1)
	}
	return h
}

// ranges returns flows by the binary logarithm of their size: range i is 2^i to 2^(i+1)-1 packets.
func (m *measurement) ranges() (out [32]float64) {
	for size := 1; size < len(m.sizes); size++ {
		out[bits.Len(uint(size))-1] += m.sizes[size]
	}
	for _, n := range m.large {
		out[bits.Len32(max(n, 1))-1]++
	}
	return out
}

// switchState is a switch in one interval, over all packets that hosts received.
type switchState struct {
	id              uint32
	packets, sum    uint64 // packets with a latency, and the sum of latencies in nanoseconds
	worst           uint64 // the largest latency in nanoseconds
	drops           uint64
	inflatedFlows   uint64
	inflatedPackets uint64
	inflatedWorst   uint64
	lasting         uint64 // flows whose mean is inflated
	lastingPackets  uint64 // packets of the lasting flows
	inflated        []*inflation
	since           uint64 // epoch in which the first inflated flow began
	heavyFlows      uint64
}

// inflation is a flow at a switch with inflated latencies.
type inflation struct {
	wire.Inflated
	at *observer
	onset
}

// worst returns the largest inflated latency in nanoseconds.
func (f *inflation) worst() uint64 { return uint64(f.Worst) * f.at.unit }

// onset is when inflated latencies of a flow at a switch began.
type onset struct {
	since  uint64  // first epoch of the first interval
	normal float64 // mean latency in the interval before; 0: not known
}

// lasts reports whether the mean latency is inflated, compared with the normal one.
func (f *inflation) lasts(r *interval) bool {
	return f.normal > 0 && f.at.mean(&f.Key, f.Node) > r.config.Inflation*f.normal
}

// mean returns the mean latency of a flow at a switch, or 0 if it is not known.
func (o *observer) mean(k *flow.Key, node uint32) float64 {
	if o.report == nil {
		return 0
	}
	n, sum, ok := o.latency(k, node)
	if !ok {
		return 0
	}
	return float64(sum) / float64(n)
}

// observer returns the observer with a name, or nil.
func (r *interval) observer(name string) *observer {
	if r == nil {
		return nil
	}
	i, ok := slices.BinarySearchFunc(r.observers, name, func(o *observer, name string) int {
		return strings.Compare(o.name, name)
	})
	if !ok {
		return nil
	}
	return r.observers[i]
}

// inflate finds the flows at switches with inflated latencies, those with the most packets first,
// and notes since when they have them. Hosts compare latencies with the means of the interval and
// of the interval before. If a queue stays full, both means rise until no latency is inflated. An
// inflation therefore goes on while the flow's mean is inflated compared with the interval before
// the inflation began.
func (p *Plugin) inflate(r, before *interval) {
	found := map[place]*inflation{}
	for _, o := range r.observers {
		if o.report == nil {
			continue
		}
		for _, f := range o.report.Inflated {
			at := place{f.Key, f.Node}
			if known := found[at]; known != nil {
				known.Packets += f.Packets
				known.Worst = max(known.Worst, f.Worst)
				continue
			}
			begin := onset{since: r.number * r.epochs}
			if was := p.inflated[at]; was != nil {
				begin = was.onset
			} else if b := before.observer(o.name); b != nil {
				begin.normal = b.mean(&f.Key, f.Node)
			}
			found[at] = &inflation{f, o, begin}
		}
	}
	for at, was := range p.inflated {
		o := r.observer(was.at.name)
		if found[at] != nil || o == nil {
			continue
		}
		f := &inflation{wire.Inflated{Key: at.key, Node: at.node}, o, was.onset}
		if f.lasts(r) {
			found[at] = f
		}
	}
	p.inflated = found
	r.inflations = slices.SortedFunc(maps.Values(found), func(a, b *inflation) int {
		return cmp.Or(cmp.Compare(b.Packets, a.Packets), cmp.Compare(a.Node, b.Node), a.Key.Compare(b.Key))
	})
}

// states returns the switches of the plan, and the switches that hosts saw, by name.
func (r *interval) states() map[string]*switchState {
	out := map[string]*switchState{}
	for _, name := range r.own {
		out[name] = &switchState{id: r.nodes[name]}
	}
	at := func(node uint32) *switchState {
		name := r.name(node)
		if out[name] == nil {
			out[name] = &switchState{id: node}
		}
		return out[name]
	}
	for _, o := range r.observers {
		if o.report == nil {
			continue
		}
		for _, n := range o.report.Nodes {
			s := at(n.ID)
			s.packets, s.sum, s.drops = s.packets+n.Packets, s.sum+n.Sum*o.unit, s.drops+n.Drops
			s.worst = max(s.worst, uint64(n.Worst)*o.unit)
		}
	}
	for _, f := range r.inflations {
		s := at(f.Node)
		if s.inflatedFlows++; s.inflatedFlows == 1 || f.since < s.since {
			s.since = f.since
		}
		s.inflatedPackets += uint64(f.Packets)
		if f.lasts(r) {
			n, _, _ := f.at.latency(&f.Key, f.Node)
			s.lasting, s.lastingPackets = s.lasting+1, s.lastingPackets+uint64(n)
		}
		s.inflatedWorst = max(s.inflatedWorst, f.worst())
		s.inflated = append(s.inflated, f)
	}
	return out
}

// path returns the names of switches, separated by spaces.
func (r *interval) path(nodes []uint32) string {
	var b strings.Builder
	for i, n := range nodes {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(r.name(n))
	}
	return b.String()
}

// fork returns the last switch that two paths have in common from their beginning, or the path's
// first switch if they have none in common.
func fork(before, now []uint32) uint32 {
	at := 0
	for at < len(before) && at < len(now) && before[at] == now[at] {
		at++
	}
	return now[max(at-1, 0)]
}

// status returns COMPLETE if all observers are complete, LOST if all are lost, and PARTIAL
// otherwise.
func (r *interval) status() sdk.Status {
	of := map[sdk.Status]int{}
	for _, o := range r.observers {
		of[o.status()]++
	}
	switch n := len(r.observers); {
	case of[sdk.StatusLost] == n:
		return sdk.StatusLost
	case of[sdk.StatusComplete] < n:
		return sdk.StatusPartial
	}
	return sdk.StatusComplete
}

// kind returns "host" or "switch".
func (o *observer) kind() string {
	if o.edge {
		return "switch"
	}
	return "host"
}

// reason returns why results are not complete and exact, as a condition and in words, or "".
func (r *interval) reason() (condition, problem string) {
	if len(r.observers) == 0 {
		return sdk.Inexact, "no host has an agent, and no switch has towers"
	}
	for _, o := range r.observers {
		if !o.whole {
			missing := sdk.Missing{Host: !o.edge}
			return missing.Condition(), fmt.Sprintf("%s %s: %s", o.kind(), o.name, o.problem)
		}
	}
	if len(r.inexact) > 0 {
		return sdk.Inexact, r.inexact[0]
	}
	return "", ""
}
