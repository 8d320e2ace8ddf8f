// SPDX-License-Identifier: Apache-2.0

package sketchint

import (
	"cmp"
	"errors"
	"math"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/netsketch/netsketch/hostagent/inband"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/hostagent/sketchint/wire"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/rowhash"
)

const (
	// sets of ways flows each are cached: their packets are added up before they enter the towers,
	// as the paper's per-flow information. The cache has 4 MiB.
	sets, ways = 1 << 12, 4
	// cachedHops bounds the paths of cached flows. Longer ones enter the towers packet by packet.
	cachedHops = 6
	// maxNodes bounds the switches of an interval.
	maxNodes = 1 << 14
)

// hop is a switch on the path of a cached flow.
type hop struct {
	node           uint32
	packets, worst uint32 // with a latency, since the flow entered the cache
	before         uint32 // packets in the tower at that time
	sum            uint64
	sumBefore      uint64
}

// entry is a cached flow with one path: four cache lines.
type entry struct {
	key      flow.Key
	digest   uint32 // of the key
	seen     uint32 // packets and reports in the cache
	packets  uint32
	estimate uint32 // of the tower when the flow entered the cache
	hops     uint8
	used     bool
	heavy    bool // is in the table of heavy flows
	hop      [cachedHops]hop
}

// block is the count of packets that are read before they are measured, so that their cache misses
// overlap.
const block = 16

// arrival is a packet, or a telemetry report, that has been read.
type arrival struct {
	packet  inband.Packet
	link    packet.Link
	flow    bool   // has one
	digest  uint32 // of its key
	hash    uint64 // of the flow and the path
	way     int    // of the cache that had this hash when the packet was read, or ways
	hops    int
	path    [inband.MaxHops + 1]uint32 // node ids, the latest hop first
	latency [inband.MaxHops + 1]uint32
}

// place is a flow at a switch.
type place struct {
	key  flow.Key
	node uint32
}

// fault is a problem of one sender.
type fault struct {
	address netip.Addr
	problem inband.Problem
}

// group is what one lane measures in one interval: the paper's group of sketches.
type group struct {
	settings *wire.Settings
	interval uint64
	wire.Report
	tags     [][ways]uint64 // hashes of the cached flows
	cache    [][ways]entry
	heavy    map[flow.Key]*wire.Heavy
	inflated map[place]*wire.Inflated
	nodes    map[uint32]*wire.Node
	queues   map[queue]*wire.Queue
	faults   map[fault]*wire.Fault
	factor   uint64 // of inflated latencies, in units of 1/256

	decoder *inband.Decoder
	reader  *inband.Reader
	report  inband.Report
	block   [block]arrival // packets in work
	long    [1]hop         // of a path that is not cached
	touched uint64         // so that the compiler keeps the accesses of touch
	scratch [flow.MaxBinary]byte
}

func newGroup(s *wire.Settings) (*group, error) {
	g := &group{settings: s, tags: make([][ways]uint64, sets), cache: make([][ways]entry, sets),
		heavy: map[flow.Key]*wire.Heavy{}, inflated: map[place]*wire.Inflated{}, nodes: map[uint32]*wire.Node{},
		queues: map[queue]*wire.Queue{},
		faults: map[fault]*wire.Fault{}, factor: s.Factor(),
		decoder: inband.NewDecoder(s.Marks), reader: inband.NewReader(s.Marks)}
	var err error
	g.Flows, g.Latencies, err = s.NewTowers()
	return g, err
}

// reset empties the group for another interval. It is finished, so the cache is empty.
func (g *group) reset() {
	flows, latencies := g.Flows, g.Latencies
	flows.Reset()
	latencies.Reset()
	g.Report = wire.Report{Flows: flows, Latencies: latencies}
	clear(g.heavy)
	clear(g.inflated)
	clear(g.nodes)
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
		for i := range n {
			g.touch(&g.block[i])
		}
		for i, f := range frames[:n] {
			a := &g.block[i]
			if a.flow {
				g.add(a, true)
			}
			if p := &a.packet; p.HasINT() {
				g.Counters[wire.WithINT]++
				g.Counters[wire.INTBytes] += uint64(p.Size())
				p.Strip(f, a.link)
			}
		}
		frames = frames[n:]
	}
}

// read reads a packet.
func (g *group) read(a *arrival, f *packet.Frame) {
	p := &a.packet
	a.flow = false
	link, err := packet.ParseLink(f.Bytes())
	if err != nil {
		g.Problems[inband.Malformed]++
		p.Clear()
		return
	}
	a.link = link
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
		g.hops(a, p, 0)
	}
}

// fault counts a problem by the sender of the packet or datagram, if it has an address.
func (g *group) fault(from netip.Addr, problem inband.Problem) {
	if !from.IsValid() {
		return
	}
	at := fault{from, problem}
	f := g.faults[at]
	if f == nil {
		if len(g.faults) >= wire.MaxFaults {
			g.Counters[wire.FaultsFull]++
			return
		}
		f = &wire.Fault{Address: from, Problem: problem}
		g.faults[at] = f
	}
	f.Packets++
}

// flags counts what the header of a packet states, if it was read.
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

// hops copies the hops of a packet behind the first n of the path. The flow is that of a.packet.
func (g *group) hops(a *arrival, p *inband.Packet, n int) {
	p.Path(a.path[n:], a.latency[n:])
	a.flow, a.hops = true, n+p.Hops()
	g.Counters[wire.Hops] += uint64(a.hops)
	g.measureQueues(p)
	a.identify()
}

// identify computes the hash of the flow and the path.
func (a *arrival) identify() {
	hash := a.packet.IP.Key.Hash(0)
	for _, node := range a.path[:a.hops] {
		hash = (hash ^ uint64(node)) * 0x9e3779b97f4a7c15
	}
	a.hash = hash
}

// touch brings what add will access into the cache.
func (g *group) touch(a *arrival) {
	if !a.flow {
		return
	}
	set := setOf(a.hash)
	tags, entries := &g.tags[set], &g.cache[set]
	// The loop has a fixed length, because which way it is cannot be predicted.
	way, other := 0, 1
	for _, tag := range tags {
		if tag == a.hash {
			other = 0
		}
		way += other
	}
	a.way = way
	if way < ways {
		e := &entries[way]
		g.touched += uint64(e.digest) + e.hop[1].sum + e.hop[3].sum
		if a.hops > 4 {
			g.touched += e.hop[5].sum
		}
		return
	}
	// The flow enters the cache, and another one leaves it.
	sum := g.Flows.Touch(uint64(g.digest(a)))
	for _, node := range a.path[:min(a.hops, cachedHops)] {
		sum += g.Latencies.Touch(uint64(rowhash.Next(a.digest, node)))
	}
	e := &entries[victim(entries)]
	if e.used {
		sum += g.Flows.Touch(uint64(e.digest))
		for i := range e.places() {
			sum += g.Latencies.Touch(uint64(rowhash.Next(e.digest, e.hop[i].node)))
		}
	}
	g.touched += sum
}

// digest computes the digest of the flow.
func (g *group) digest(a *arrival) uint32 {
	a.digest = rowhash.Key(a.packet.IP.Key.AppendBinary(g.scratch[:0]))
	return a.digest
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

// individual measures one telemetry report. A report with the metadata of earlier hops is that of a
// sink, and counts a packet of the flow. Others count at their own switch alone, since each switch
// of the path sends one, unless settings state that only sinks do.
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
		a.path[0], a.latency[0] = r.Node, inband.NoLatency
		if r.Hop.Has.Contains(inband.Latency) {
			a.latency[0] = r.Hop.Latency
		}
		g.measureQueue(r.Node, &r.Hop)
		n = 1
	}
	if p.Hops() > 0 && r.Intermediate {
		p = new(inband.Packet) // the sink reports the same hops
	}
	a.packet.IP.Key = r.Packet.IP.Key
	g.hops(a, p, n)
	g.add(a, sink)
}

// add adds a packet of a flow with its hops. It counts as a packet of the flow if whole is set.
func (g *group) add(a *arrival, whole bool) {
	k, n, path := &a.packet.IP.Key, a.hops, a.path[:a.hops]
	e := g.cacheEntry(a)
	e.seen++
	if whole {
		e.packets++
		if !e.heavy && uint64(e.estimate)+uint64(e.packets) >= uint64(g.settings.Heavy) {
			e.heavy = g.mark(k, path)
		}
	}
	latencies := a.latency[:len(path)]
	if n <= cachedHops {
		g.measure(k, e.hop[:n], latencies)
		return
	}
	for i := range path {
		g.enter(e.digest, &g.long[0], path[i])
		g.measure(k, g.long[:], latencies[i:i+1])
		g.leave(e.digest, &g.long[0])
	}
}

// measure adds the latencies of a packet to hops of its flow.
func (g *group) measure(k *flow.Key, hops []hop, latencies []uint32) {
	latencies = latencies[:len(hops)]
	factor, missing, inflated := g.factor, uint64(0), uint64(0) // inflated has a bit for each hop
	for i := range hops {
		h, latency := &hops[i], latencies[i]
		if latency == inband.NoLatency {
			missing++
			continue
		}
		h.packets++
		h.sum += uint64(latency)
		h.worst = max(h.worst, latency)
		// Inflated: latency * packets > factor / 256 * sum, in 128 bits.
		x := uint64(latency) * min(uint64(h.before)+uint64(h.packets), math.MaxUint32)
		high, low := bits.Mul64(factor, h.sumBefore+h.sum)
		if x>>56 > high || x>>56 == high && x<<8 > low {
			inflated |= 1 << (i % 64)
		}
	}
	g.Counters[wire.NoLatency] += missing
	for ; inflated != 0; inflated &= inflated - 1 {
		i := bits.TrailingZeros64(inflated)
		g.inflate(k, hops[i].node, latencies[i])
	}
}

func setOf(hash uint64) uint64 { return hash >> 40 % sets }

// victim returns the way that a new flow takes: a free one, or that with the fewest packets.
func victim(entries *[ways]entry) int {
	way := 0
	for i := range entries {
		if e := &entries[i]; !e.used || e.seen < entries[way].seen {
			if way = i; !e.used {
				break
			}
		}
	}
	return way
}

// cacheEntry returns the entry of a flow and its path. A new one replaces that with the fewest
// packets.
func (g *group) cacheEntry(a *arrival) *entry {
	set := setOf(a.hash)
	tags, entries := &g.tags[set], &g.cache[set]
	if a.way < ways && tags[a.way] == a.hash {
		if e := &entries[a.way]; e.is(a) {
			return e
		}
	}
	for i, tag := range tags {
		if e := &entries[i]; tag == a.hash && e.is(a) {
			return e
		}
	}
	way := victim(entries)
	e := &entries[way]
	g.flush(e)
	g.load(e, a)
	tags[way] = a.hash
	return e
}

// is reports whether the entry has the flow and the path. Of a longer path it has the hash alone.
func (e *entry) is(a *arrival) bool {
	k := &a.packet.IP.Key
	// The keys are compared by their fields, because comparing them whole takes a call.
	if !e.used || int(e.hops) != a.hops || e.key.Src != k.Src || e.key.Dst != k.Dst || e.key.Proto != k.Proto ||
		e.key.SrcPort != k.SrcPort || e.key.DstPort != k.DstPort || e.key.V6 != k.V6 || e.key.Mask != k.Mask {
		return false
	}
	hops := e.places()
	path := a.path[:len(hops)]
	for i := range hops {
		if hops[i].node != path[i] {
			return false
		}
	}
	return true
}

// places returns the cached hops.
func (e *entry) places() []hop {
	if e.hops > cachedHops {
		return nil
	}
	return e.hop[:e.hops]
}

// load puts a flow into the cache, with what the towers have of it.
func (g *group) load(e *entry, a *arrival) {
	e.key, e.digest, e.hops, e.used, e.heavy = a.packet.IP.Key, g.digest(a), uint8(a.hops), true, false
	e.seen, e.packets, e.estimate = 0, 0, g.Flows.QueryDigest(uint64(e.digest))
	for i := range e.places() {
		g.enter(e.digest, &e.hop[i], a.path[i])
	}
}

// enter begins a hop with what the tower has of it. digest is that of the flow.
func (g *group) enter(digest uint32, h *hop, node uint32) {
	*h = hop{node: node}
	if n, sum, ok := g.Latencies.QueryDigest(uint64(rowhash.Next(digest, node))); ok {
		h.before, h.sumBefore = n, sum
	}
}

// leave adds a hop to the tower.
func (g *group) leave(digest uint32, h *hop) {
	if h.packets == 0 {
		return
	}
	g.Latencies.AddDigest(uint64(rowhash.Next(digest, h.node)), h.packets, h.sum)
	if n := g.node(h.node); n != nil {
		n.Packets += uint64(h.packets)
		n.Sum += h.sum
		n.Worst = max(n.Worst, h.worst)
	} else {
		g.Counters[wire.NodesFull] += uint64(h.packets)
	}
	h.packets = 0
}

// flush adds a cached flow to the towers.
func (g *group) flush(e *entry) {
	if !e.used {
		return
	}
	if e.packets > 0 {
		g.Flows.AddDigest(uint64(e.digest), e.packets)
		e.packets = 0
	}
	for i := range e.places() {
		g.leave(e.digest, &e.hop[i])
	}
	e.used = false
}

// finish adds all cached flows to the towers.
func (g *group) finish() {
	for set := range g.cache {
		for way := range ways {
			g.flush(&g.cache[set][way])
		}
	}
}

// mark puts a flow and its path into the table of heavy flows, and reports whether it has room.
func (g *group) mark(k *flow.Key, path []uint32) bool {
	h := g.heavy[*k]
	if h == nil {
		if len(g.heavy) >= g.settings.HeavyFlows {
			g.Counters[wire.HeavyFull]++
			return false
		}
		h = &wire.Heavy{Key: *k}
		g.heavy[*k] = h
	}
	if len(path) > 0 { // the latest hop is the first one
		path = slices.Clone(path)
		slices.Reverse(path)
		if h.Path != nil && !slices.Equal(h.Path, path) {
			h.Changes++
		}
		h.Path = path
	}
	return true
}

// inflate counts an inflated latency.
func (g *group) inflate(k *flow.Key, node, latency uint32) {
	at := place{*k, node}
	f := g.inflated[at]
	if f == nil {
		if len(g.inflated) >= g.settings.InflatedFlows {
			g.Counters[wire.InflatedFull]++
			return
		}
		f = &wire.Inflated{Key: *k, Node: node}
		g.inflated[at] = f
	}
	f.Packets++
	f.Worst = max(f.Worst, latency)
}

// node returns the counts of a switch, or nil without room.
func (g *group) node(id uint32) *wire.Node {
	n := g.nodes[id]
	if n == nil && len(g.nodes) < maxNodes {
		n = &wire.Node{ID: id}
		g.nodes[id] = n
	}
	return n
}

// merge adds what another lane measured in the same interval. Both are finished.
func (g *group) merge(o *group) error {
	for i, n := range o.Problems {
		g.Problems[i] += n
	}
	for i, n := range o.Versions {
		g.Versions[i] += n
	}
	for i, n := range o.Counters {
		g.Counters[i] += n
	}
	for k, h := range o.heavy {
		switch mine := g.heavy[k]; {
		case mine != nil:
			mine.Changes += h.Changes
			if !slices.Equal(mine.Path, h.Path) {
				mine.Changes++
			}
		case len(g.heavy) < g.settings.HeavyFlows:
			g.heavy[k] = h
		default:
			g.Counters[wire.HeavyFull]++
		}
	}
	for at, f := range o.inflated {
		switch mine := g.inflated[at]; {
		case mine != nil:
			mine.Packets += f.Packets
			mine.Worst = max(mine.Worst, f.Worst)
		case len(g.inflated) < g.settings.InflatedFlows:
			g.inflated[at] = f
		default:
			g.Counters[wire.InflatedFull]++
		}
	}
	for at, f := range o.faults {
		switch mine := g.faults[at]; {
		case mine != nil:
			mine.Packets += f.Packets
		case len(g.faults) < wire.MaxFaults:
			g.faults[at] = f
		default:
			g.Counters[wire.FaultsFull] += f.Packets
		}
	}
	for id, n := range o.nodes {
		mine := g.node(id)
		if mine == nil {
			g.Counters[wire.NodesFull] += n.Packets
			continue
		}
		mine.Packets, mine.Sum, mine.Drops = mine.Packets+n.Packets, mine.Sum+n.Sum, mine.Drops+n.Drops
		mine.Worst = max(mine.Worst, n.Worst)
	}
	g.mergeQueues(o)
	return errors.Join(g.Flows.Merge(o.Flows), g.Latencies.Merge(o.Latencies))
}

// adopt fills the tables from the rows of the report.
func (g *group) adopt() {
	for i := range g.Heavy {
		g.heavy[g.Heavy[i].Key] = &g.Heavy[i]
	}
	for i := range g.Inflated {
		g.inflated[place{g.Inflated[i].Key, g.Inflated[i].Node}] = &g.Inflated[i]
	}
	for i := range g.Nodes {
		g.nodes[g.Nodes[i].ID] = &g.Nodes[i]
	}
	for i := range g.Queues {
		g.queues[queue{g.Queues[i].Node, g.Queues[i].ID}] = &g.Queues[i]
	}
	for i := range g.Faults {
		g.faults[fault{g.Faults[i].Address, g.Faults[i].Problem}] = &g.Faults[i]
	}
}

// rows sorts the tables into the report.
func (g *group) rows() {
	g.Heavy = sorted(g.heavy, func(a, b wire.Heavy) int { return a.Key.Compare(b.Key) })
	g.Inflated = sorted(g.inflated, func(a, b wire.Inflated) int {
		return cmp.Or(a.Key.Compare(b.Key), cmp.Compare(a.Node, b.Node))
	})
	g.Queues = sorted(g.queues, func(a, b wire.Queue) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.ID, b.ID))
	})
	g.Nodes = sorted(g.nodes, func(a, b wire.Node) int { return cmp.Compare(a.ID, b.ID) })
	g.Faults = sorted(g.faults, func(a, b wire.Fault) int {
		return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Problem, b.Problem))
	})
}

func sorted[K comparable, V any](table map[K]*V, order func(a, b V) int) (rows []V) {
	for _, row := range table {
		rows = append(rows, *row)
	}
	slices.SortFunc(rows, order)
	return rows
}
