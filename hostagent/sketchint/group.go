// SPDX-License-Identifier: Apache-2.0

package sketchint

import (
	"math/bits"
	"net/netip"

	"github.com/netsketch/netsketch/hostagent/inband"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/hostagent/sketchint/wire"
	"github.com/netsketch/netsketch/sketch/flow"
)

// block is the count of packets that are read before they are measured, so that their cache misses
// overlap.
const block = 16

// arrival is a packet, or a telemetry report, that has been read.
type arrival struct {
	key flow.Key
	// hash selects the set of the cache. It is the flow's hash; reports of single switches add the
	// switch, because they have entries of their own.
	hash  uint64
	route uint64 // hash of the flow and the path
	flow  bool   // whether the packet has a flow
	whole bool   // counts as a packet of the flow
	cut   bool   // whether the header states that hops are missing
	way   uint8  // way of the cache that had this tag when the packet was read; ways if none had it
	hops  uint8
	path  [inband.MaxHops + 1]inband.Step // the latest hop first
}

// label returns the rest of the key, and whether the packet counts as a packet of the flow.
func (a *arrival) label() uint64 {
	k := &a.key
	label := uint64(k.SrcPort)<<48 | uint64(k.DstPort)<<32 | uint64(k.Proto)<<24 | 1
	if k.V6 {
		label |= 1 << 8
	}
	if !a.whole {
		label |= 1 << 9
	}
	return label
}

// group has one lane's measurements of one interval: the paper's group of sketches.
type group struct {
	settings *wire.Settings
	interval uint64
	wire.Report
	sets     *[sets]set
	cache    *[sets][ways]entry
	heavy    map[flow.Key]*wire.Heavy
	inflated map[place]*wire.Inflated
	nodes    map[uint32]*wire.Node
	recent   [128]*wire.Node // recent nodes, by the last bits of their ids
	queues   map[queue]*wire.Queue
	faults   map[fault]*wire.Fault
	factor   uint64 // factor of inflated latencies, in units of 1/256

	decoder *inband.Decoder
	packet  inband.Packet
	reader  *inband.Reader
	report  inband.Report
	block   [block]arrival // packets in work
	long    entry          // one hop of a path that is not cached
	scratch [flow.MaxBinary]byte
	// Words of the towers that packets in work will access, and a sum so that the compiler keeps the
	// accesses of touch.
	flows, latencies []uint32
	touched          uint64
}

func newGroup(s *wire.Settings) (*group, error) {
	g := &group{settings: s, sets: new([sets]set), cache: new([sets][ways]entry),
		heavy: map[flow.Key]*wire.Heavy{}, inflated: map[place]*wire.Inflated{}, nodes: map[uint32]*wire.Node{},
		queues: map[queue]*wire.Queue{},
		faults: map[fault]*wire.Fault{}, factor: s.Factor(),
		decoder: inband.NewDecoder(s.Marks), reader: inband.NewReader(s.Marks)}
	var err error
	g.Flows, g.Latencies, err = s.NewTowers()
	return g, err
}

// reset empties the towers of a finished group, so that it can measure another interval. Its cache
// must be empty.
func (g *group) reset() {
	flows, latencies := g.Flows, g.Latencies
	flows.Reset()
	latencies.Reset()
	g.Report = wire.Report{Flows: flows, Latencies: latencies}
	clear(g.heavy)
	clear(g.inflated)
	clear(g.nodes)
	clear(g.recent[:])
	clear(g.queues)
	clear(g.faults)
}

// receive measures packets that arrived at the host, in their order, and removes their INT.
func (g *group) receive(frames []*packet.Frame) {
	for len(frames) > 0 {
		n := min(len(frames), block)
		for i, f := range frames[:n] {
			g.read(&g.block[i], f)
		}
		g.touch(g.block[:n])
		for i := range n {
			if a := &g.block[i]; a.flow {
				g.add(a)
			}
		}
		frames = frames[n:]
	}
}

// read parses a packet and removes its INT.
func (g *group) read(a *arrival, f *packet.Frame) {
	if hops, size, ok := g.decoder.Take(f, &a.key, a.path[:inband.MaxHops]); ok {
		g.Problems[inband.None]++
		g.Counters[wire.Packets]++
		g.removed(size)
		a.cut = false
		g.identify(a, hops, true)
		return
	}
	a.flow = false
	link, err := packet.ParseLink(f.Bytes())
	if err != nil {
		g.Problems[inband.Malformed]++
		return
	}
	p := &g.packet
	problem := g.decoder.Decode(f.Bytes(), link, p)
	g.Problems[problem]++
	if problem > inband.NotIP {
		g.fault(link.Source(f.Bytes()), problem)
	}
	if problem == inband.NotIP || problem == inband.Malformed {
		return
	}
	g.Counters[wire.Packets]++
	if problem == inband.UnknownVersion {
		g.Versions[p.Version]++
	}
	if p.IP.Key.Mask == flow.FiveTuple {
		g.flags(p, problem)
		g.hops(a, p, 0, true)
	}
	if p.HasINT() {
		g.removed(p.Size())
		p.Strip(f, link)
	}
}

// removed counts INT that is removed from a packet.
func (g *group) removed(size int) {
	g.Counters[wire.WithINT]++
	g.Counters[wire.INTBytes] += uint64(size)
}

// flags counts the flags in the header of a packet, if the header was read.
func (g *group) flags(p *inband.Packet, problem inband.Problem) {
	if !p.HasINT() || p.Kind != inband.MD || problem == inband.UnknownVersion || problem == inband.Truncated {
		return
	}
	if p.Copy {
		g.Counters[wire.Copies]++
	}
	if p.MTU {
		g.Counters[wire.MTUExceeded]++
	}
	if p.HopLimit || p.Remaining == 0 {
		g.Counters[wire.HopLimit]++
	}
	if p.Unknown() {
		g.Counters[wire.UnknownInstruct]++
	}
}

// hops reads the flow of a packet, and its hops behind the first n of the path.
func (g *group) hops(a *arrival, p *inband.Packet, n int, whole bool) {
	a.key = p.IP.Key
	p.Path(a.path[n:])
	g.measureQueues(p)
	a.cut = p.MTU || p.HopLimit
	g.identify(a, n+p.Hops(), whole)
}

// identify computes the hashes of the flow and the path.
func (g *group) identify(a *arrival, hops int, whole bool) {
	a.hash = a.key.Hash(0)
	a.route = a.hash
	for i := range a.path[:hops] {
		a.route = (a.route ^ uint64(a.path[i].Node)) * 0x9e3779b97f4a7c15
	}
	if !whole {
		a.hash = a.route
	}
	a.flow, a.whole, a.hops = true, whole, uint8(hops)
	g.Counters[wire.Hops] += uint64(hops)
}

// datagram measures the telemetry reports of one datagram, which is valid.
func (g *group) datagram(from netip.Addr) {
	r := &g.report
	for {
		problem, ok := g.reader.Next(r)
		if !ok {
			return
		}
		g.Counters[wire.Reports]++
		g.Problems[problem]++
		if problem != inband.None {
			g.fault(from, problem)
			continue
		}
		g.individual(r, from)
	}
}

// individual measures one telemetry report. A report with the metadata of earlier hops comes from a
// sink, and counts a packet of the flow. Other reports count at their own switch alone, since each
// switch of the path sends one, unless settings state that only sinks send reports.
func (g *group) individual(r *inband.Report, from netip.Addr) {
	p := &r.Packet
	if r.Dropped {
		g.Counters[wire.Drops]++
		if n := g.node(r.Node); n != nil {
			n.Drops++
		}
	}
	switch {
	case r.Problem == inband.NotIP || r.Problem == inband.Malformed || p.IP.Key.Mask != flow.FiveTuple:
		g.Counters[wire.ReportsNoFlow]++
		return
	case r.Problem != inband.None && r.Problem != inband.Absent:
		g.Problems[r.Problem]++
		g.fault(from, r.Problem)
		if r.Problem == inband.UnknownVersion {
			g.Versions[p.Version]++
		}
	}
	g.flags(p, r.Problem)
	a := &g.block[0]
	n, sink := 0, (p.Hops() > 0 || g.settings.SinkReports) && !r.Intermediate
	if p.Hops() == 0 || p.Node(0) != r.Node { // the node may have added itself to the stack
		a.path[0] = inband.Step{Node: r.Node, Latency: inband.NoLatency}
		if r.Hop.Has.Contains(inband.Latency) {
			a.path[0].Latency = r.Hop.Latency
		}
		g.measureQueue(r.Node, &r.Hop)
		n = 1
	}
	if p.Hops() > 0 && r.Intermediate {
		p = &inband.Packet{IP: p.IP} // the sink reports the same hops
	}
	g.hops(a, p, n, sink)
	g.add(a)
}

// add adds a packet of a flow with its hops. A packet without hops, or with missing hops, does not
// change the path of its flow.
func (g *group) add(a *arrival) {
	e := g.cacheEntry(a)
	path := a.path[:a.hops]
	if e.route != a.route && len(path) > 0 && !a.cut {
		g.follow(e, a)
	}
	if a.whole {
		e.packets++
		if e.packets >= e.heavyAt && g.mark(e, a) {
			e.heavyAt = inTable
		}
	}
	switch {
	case len(path) == 0:
	case e.route == a.route && len(path) <= cachedHops:
		g.measure(e, path)
	default:
		g.measureUncached(e, path)
	}
}

// measure adds the latencies of a packet to the cached hops of its flow.
func (g *group) measure(e *entry, path []inband.Step) {
	missing, inflated := addLatencies(e.hop[:len(path)], path, g.factor)
	g.Counters[wire.NoLatency] += missing
	for ; inflated != 0; inflated &= inflated - 1 {
		e.inflated[bits.TrailingZeros64(inflated)]++
	}
}

// addLatencies returns how many latencies are missing, and a bit for each hop whose latency is
// inflated.
func addLatencies(hops []hop, path []inband.Step, factor uint64) (missing, inflated uint64) {
	path = path[:len(hops)]
	for i := range hops {
		h, latency := &hops[i], path[i].Latency
		if latency == inband.NoLatency {
			missing++
			continue
		}
		inflated |= h.inflated(latency, factor) << i
		h.packets++
		h.sum += uint64(latency)
		h.worst = max(h.worst, latency)
	}
	return missing, inflated
}
