// SPDX-License-Identifier: Apache-2.0

package sketchint

import (
	"cmp"
	"encoding/binary"
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
	sets, ways = 1 << 11, 8
	// cachedHops bounds the paths of cached flows. Longer ones enter the towers packet by packet.
	cachedHops = 6
	// maxNodes bounds the switches of an interval.
	maxNodes = 1 << 14
)

// set is what is known of the entries of a set without an access to them.
type set struct {
	tags uint64       // 8 bits of the hash of each way
	seen [ways]uint32 // packets and reports of each way in the cache; 0: the way is free
	_    [24]byte     // a set has one cache line
}

// entry is a cached flow with one path: four cache lines. A packet with five hops or fewer accesses
// the first two.
type entry struct {
	src, dst uint64 // first halves of the addresses
	label    uint64 // the rest of the key and the count of hops, or 0
	hash     uint64 // of the flow and the path
	digest   uint32 // of the key
	packets  uint32
	heavyAt  uint32 // packets from which the flow enters the table of heavy flows
	_        uint32
	hop      [cachedHops]hop
	node     [cachedHops]uint32
	// packets and latencies that the tower had when the flow entered the cache
	before         [cachedHops]uint32
	sumBefore      [cachedHops]uint64
	srcLow, dstLow uint64 // second halves of IPv6 addresses
}

// hop is a cached flow at a switch: its packets with a latency, the sum of these latencies, and the
// worst one. Packets and sum include what the tower had when the flow entered the cache.
type hop struct {
	sum            uint64
	packets, worst uint32
}

// block is the count of packets that are read before they are measured, so that their cache misses
// overlap.
const block = 16

// arrival is a packet, or a telemetry report, that has been read.
type arrival struct {
	key  flow.Key
	hash uint64 // of the flow and the path
	flow bool   // has one
	way  uint8  // of the cache that had this tag when the packet was read, or ways
	hops uint8
	path [inband.MaxHops + 1]inband.Step // the latest hop first
}

// label is the rest of the key and the count of hops.
func (a *arrival) label() uint64 {
	k := &a.key
	label := uint64(k.SrcPort)<<48 | uint64(k.DstPort)<<32 | uint64(k.Proto)<<24 | uint64(a.hops)<<16 | 1
	if k.V6 {
		label |= 1 << 8
	}
	return label
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
	sets     *[sets]set
	cache    *[sets][ways]entry
	heavy    map[flow.Key]*wire.Heavy
	inflated map[place]*wire.Inflated
	nodes    map[uint32]*wire.Node
	recent   [128]*wire.Node // of nodes, by the last bits of their ids
	queues   map[queue]*wire.Queue
	faults   map[fault]*wire.Fault
	factor   uint64 // of inflated latencies, in units of 1/256

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

// reset empties the group for another interval. It is finished, so the cache is empty.
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
				g.add(a, true)
			}
		}
		frames = frames[n:]
	}
}

// read reads a packet and removes its INT.
func (g *group) read(a *arrival, f *packet.Frame) {
	if hops, size, ok := g.decoder.Take(f, &a.key, a.path[:inband.MaxHops]); ok {
		g.Problems[inband.None]++
		g.Counters[wire.Packets]++
		g.removed(size)
		g.identify(a, hops)
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
		g.hops(a, p, 0)
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

// hops reads the flow of a packet, and its hops behind the first n of the path.
func (g *group) hops(a *arrival, p *inband.Packet, n int) {
	a.key = p.IP.Key
	p.Path(a.path[n:])
	g.measureQueues(p)
	g.identify(a, n+p.Hops())
}

// identify computes the hash of the flow and the path.
func (g *group) identify(a *arrival, hops int) {
	hash := a.key.Hash(0)
	for i := range a.path[:hops] {
		hash = (hash ^ uint64(a.path[i].Node)) * 0x9e3779b97f4a7c15
	}
	a.hash, a.flow, a.hops = hash, true, uint8(hops)
	g.Counters[wire.Hops] += uint64(hops)
}

// touch finds the entries of packets, and brings what add will access into the caches of the
// processor. Accesses that do not wait for each other overlap, so they are apart from other work.
func (g *group) touch(arrivals []arrival) {
	missed := false
	for i := range arrivals {
		missed = g.find(&arrivals[i]) || missed
	}
	sum := uint64(0)
	for i := range arrivals {
		a := &arrivals[i]
		e := &g.cache[setOf(a.hash)][a.way%ways]
		sum += e.src + e.hop[1].sum
	}
	g.touched += sum
	if missed {
		g.touchMissed(arrivals)
	}
}

// find finds the entry of a flow, and reports whether it is not cached.
func (g *group) find(a *arrival) (missed bool) {
	// The first way with the tag of the flow: the lowest byte that is zero.
	x := g.sets[setOf(a.hash)].tags ^ tagOf(a.hash)*tagOnes
	zeros := (x - tagOnes) &^ x & (tagOnes << 7)
	a.way = uint8(bits.TrailingZeros64(zeros) / 8)
	return a.flow && a.way == ways
}

// touchMissed is touch for flows without an entry: they enter the cache, and others leave it.
func (g *group) touchMissed(arrivals []arrival) {
	sum := uint64(0)
	for i := range arrivals {
		if a := &arrivals[i]; a.flow && a.way == ways {
			e := g.victim(a)
			sum += e.label + e.hop[1].sum + uint64(e.node[0]) + e.sumBefore[cachedHops-1]
		}
	}
	g.flows, g.latencies = g.flows[:0], g.latencies[:0]
	for i := range arrivals {
		a := &arrivals[i]
		if !a.flow || a.way < ways {
			continue
		}
		digest := g.digest(a)
		g.flows = g.Flows.AppendPlaces(g.flows, uint64(digest))
		for _, s := range a.path[:min(a.hops, cachedHops)] {
			g.latencies = g.Latencies.AppendPlaces(g.latencies, uint64(rowhash.Next(digest, s.Node)))
		}
		if e := g.victim(a); e.label != 0 {
			g.flows = g.Flows.AppendPlaces(g.flows, uint64(e.digest))
			for _, node := range e.nodes() {
				g.latencies = g.Latencies.AppendPlaces(g.latencies, uint64(rowhash.Next(e.digest, node)))
			}
		}
	}
	g.touched += sum + sumOf(g.Flows.Words(), g.flows) + sumOf(g.Latencies.Words(), g.latencies)
}

func sumOf(words []uint64, places []uint32) (sum uint64) {
	for _, at := range places {
		sum += words[at]
	}
	return sum
}

// digest returns the digest of the flow.
func (g *group) digest(a *arrival) uint32 { return rowhash.Key(a.key.AppendBinary(g.scratch[:0])) }

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
	g.hops(a, p, n)
	g.add(a, sink)
}

// add adds a packet of a flow with its hops. It counts as a packet of the flow if whole is set.
func (g *group) add(a *arrival, whole bool) {
	path := a.path[:a.hops]
	e := g.cacheEntry(a)
	if whole {
		e.packets++
		if e.packets >= e.heavyAt && g.mark(&a.key, path) {
			e.heavyAt = math.MaxUint32
		}
	}
	if len(path) <= cachedHops {
		g.measure(&a.key, e.hop[:len(path)], path)
		return
	}
	g.long.digest = e.digest
	for i := range path {
		g.enter(&g.long, 0, path[i].Node)
		g.measure(&a.key, g.long.hop[:1], path[i:i+1])
		g.leave(&g.long, 0)
	}
}

// measure adds the latencies of a packet to the hops of its flow.
func (g *group) measure(k *flow.Key, hops []hop, path []inband.Step) {
	missing, inflated := addLatencies(hops, path, g.factor)
	g.Counters[wire.NoLatency] += missing
	if inflated != 0 {
		g.inflations(k, hops, path)
	}
}

// addLatencies returns how many latencies are missing, and whether one is inflated.
func addLatencies(hops []hop, path []inband.Step, factor uint64) (missing, inflated uint64) {
	path = path[:len(hops)]
	for i := range hops {
		h, latency := &hops[i], path[i].Latency
		if latency == inband.NoLatency {
			missing++
			continue
		}
		h.packets++
		h.sum += uint64(latency)
		h.worst = max(h.worst, latency)
		inflated |= h.inflated(latency, factor)
	}
	return missing, inflated
}

// inflated returns 1 if the latency of the last packet is inflated, and 0 otherwise, without a
// branch: latency * packets > factor / 256 * sum, in 128 bits.
func (h *hop) inflated(latency uint32, factor uint64) uint64 {
	x := uint64(latency) * uint64(h.packets)
	high, low := bits.Mul64(factor, h.sum)
	_, more := bits.Sub64(low, x<<8, 0)
	_, more = bits.Sub64(high, x>>56, more)
	return more
}

// inflations counts the inflated latencies of a packet that has been measured.
func (g *group) inflations(k *flow.Key, hops []hop, path []inband.Step) {
	for i := range hops {
		if s := &path[i]; s.Latency != inband.NoLatency && hops[i].inflated(s.Latency, g.factor) != 0 {
			g.inflate(k, s.Node, s.Latency)
		}
	}
}

func setOf(hash uint64) uint64 { return hash >> 40 % sets }

func tagOf(hash uint64) uint64 { return hash >> 24 & 0xff }

// tagOnes is 1 for each way of a word of tags.
const tagOnes = 0x01010101_01010101

// leastSeen returns the way that a new flow takes: a free one, or that with the fewest packets.
func (s *set) leastSeen() (way int) {
	for i := range s.seen {
		if s.seen[i] < s.seen[way] {
			way = i
		}
	}
	return way
}

// victim returns the entry that a new flow takes.
func (g *group) victim(a *arrival) *entry {
	at := setOf(a.hash)
	return &g.cache[at][g.sets[at].leastSeen()]
}

// cacheEntry returns the entry of a flow and its path, which has one more packet. A new one takes
// the place of that with the fewest packets.
func (g *group) cacheEntry(a *arrival) *entry {
	at := setOf(a.hash)
	s, entries := &g.sets[at], &g.cache[at]
	if a.way < ways && entries[a.way].is(a) {
		s.seen[a.way]++
		return &entries[a.way]
	}
	for way := range entries {
		if e := &entries[way]; s.tags>>(way*8)&0xff == tagOf(a.hash) && e.is(a) {
			s.seen[way]++
			return e
		}
	}
	way := s.leastSeen()
	e := &entries[way]
	g.flush(e)
	g.load(e, a)
	s.tags ^= (s.tags>>(way*8)&0xff ^ tagOf(a.hash)) << (way * 8)
	s.seen[way] = 1
	return e
}

// is reports whether the entry has the flow and the path. Of the path it compares the hash: two
// paths of a flow have the same one once in 2^64.
func (e *entry) is(a *arrival) bool {
	k := &a.key
	return e.hash == a.hash && e.label == a.label() && e.src == binary.LittleEndian.Uint64(k.Src[:]) &&
		e.dst == binary.LittleEndian.Uint64(k.Dst[:]) &&
		(!k.V6 || e.srcLow == binary.LittleEndian.Uint64(k.Src[8:]) && e.dstLow == binary.LittleEndian.Uint64(k.Dst[8:]))
}

// nodes returns the nodes of the cached hops.
func (e *entry) nodes() []uint32 {
	hops := e.label >> 16 & 0xff
	if hops > cachedHops {
		return nil
	}
	return e.node[:hops]
}

// load puts a flow into the cache, with what the towers have of it.
func (g *group) load(e *entry, a *arrival) {
	k := &a.key
	e.src, e.srcLow = binary.LittleEndian.Uint64(k.Src[:]), binary.LittleEndian.Uint64(k.Src[8:])
	e.dst, e.dstLow = binary.LittleEndian.Uint64(k.Dst[:]), binary.LittleEndian.Uint64(k.Dst[8:])
	e.label, e.hash, e.digest = a.label(), a.hash, g.digest(a)
	e.packets = 0
	estimate := g.Flows.QueryDigest(uint64(e.digest))
	e.heavyAt = g.settings.Heavy - min(estimate, g.settings.Heavy)
	for i := range e.nodes() {
		g.enter(e, i, a.path[i].Node)
	}
}

// enter begins a hop with what the tower has of it.
func (g *group) enter(e *entry, i int, node uint32) {
	n, sum, ok := g.Latencies.QueryDigest(uint64(rowhash.Next(e.digest, node)))
	if !ok {
		n, sum = 0, 0
	}
	e.node[i], e.before[i], e.sumBefore[i] = node, n, sum
	e.hop[i] = hop{sum: sum, packets: n}
}

// leave adds a hop to the tower.
func (g *group) leave(e *entry, i int) {
	h := &e.hop[i]
	packets, sum := h.packets-e.before[i], h.sum-e.sumBefore[i]
	if packets == 0 {
		return
	}
	g.Latencies.AddDigest(uint64(rowhash.Next(e.digest, e.node[i])), packets, sum)
	if n := g.node(e.node[i]); n != nil {
		n.Packets += uint64(packets)
		n.Sum += sum
		n.Worst = max(n.Worst, h.worst)
	} else {
		g.Counters[wire.NodesFull] += uint64(packets)
	}
}

// flush adds a cached flow to the towers.
func (g *group) flush(e *entry) {
	if e.label == 0 {
		return
	}
	if e.packets > 0 {
		g.Flows.AddDigest(uint64(e.digest), e.packets)
		e.packets = 0
	}
	for i := range e.nodes() {
		g.leave(e, i)
	}
	e.label = 0
}

// finish adds all cached flows to the towers.
func (g *group) finish() {
	for at := range g.cache {
		for way := range ways {
			g.flush(&g.cache[at][way])
		}
		g.sets[at].seen = [ways]uint32{}
	}
}

// mark puts a flow and its path into the table of heavy flows, and reports whether it has room.
func (g *group) mark(k *flow.Key, path []inband.Step) bool {
	h := g.heavy[*k]
	if h == nil {
		if len(g.heavy) >= g.settings.HeavyFlows {
			g.Counters[wire.HeavyFull]++
			return false
		}
		h = &wire.Heavy{Key: *k}
		g.heavy[*k] = h
	}
	if len(path) > 0 {
		nodes := make([]uint32, len(path))
		for i := range path { // the latest hop is the first one
			nodes[len(path)-1-i] = path[i].Node
		}
		if h.Path != nil && !slices.Equal(h.Path, nodes) {
			h.Changes++
		}
		h.Path = nodes
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
	recent := &g.recent[id%uint32(len(g.recent))]
	if n := *recent; n != nil && n.ID == id {
		return n
	}
	n := g.nodes[id]
	if n == nil {
		if len(g.nodes) >= maxNodes {
			return nil
		}
		n = &wire.Node{ID: id}
		g.nodes[id] = n
	}
	*recent = n
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
