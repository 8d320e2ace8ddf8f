// SPDX-License-Identifier: Apache-2.0

package sketchint

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"

	"github.com/netsketch/netsketch/hostagent/inband"
	"github.com/netsketch/netsketch/hostagent/sketchint/wire"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/rowhash"
)

const (
	// sets of ways flows each are cached: their packets are added up before they enter the towers,
	// as the paper's per-flow information. The cache has 5 MiB.
	sets, ways = 1 << 11, 8
	// cachedHops bounds the paths of cached flows. Hops of longer paths enter the towers packet by
	// packet.
	cachedHops = 6
)

// set summarizes the entries of a set, so that a lookup needs no access to them.
type set struct {
	tags uint64       // 8 bits of the hash of each way
	seen [ways]uint32 // packets and reports of each way in the cache; 0: the way is free
	_    [24]byte     // fills a cache line with a set
}

// entry is a cached flow with its latest path: five cache lines. A packet with five hops or fewer
// accesses the first two.
type entry struct {
	src, dst uint64 // first halves of the addresses
	label    uint64 // rest of the key, or 0
	route    uint64 // hash of the flow and the path
	digest   uint32 // digest of the key
	packets  uint32
	heavyAt  uint32 // packets from which the flow enters the table of heavy flows; inTable: it has
	changes  uint16 // changes of the path, before the flow entered the table of heavy flows
	hops     uint8  // hops of the path; 0: no packet stated a path
	_        uint8
	hop      [cachedHops]hop
	node     [cachedHops]uint32
	inflated [cachedHops]uint32 // latencies that exceeded their multiple of the mean before them
	// packets and latencies that the tower had when the hop entered the cache
	before         [cachedHops]uint32
	sumBefore      [cachedHops]uint64
	srcLow, dstLow uint64 // second halves of IPv6 addresses
	_              [40]byte
}

// inTable is the heavyAt of an entry whose flow is in the table of heavy flows.
const inTable = math.MaxUint32

// hop is a cached flow at a switch: its packets with a latency, the sum of these latencies, and the
// worst one. Packets and sum include the tower's counts when the hop entered the cache.
type hop struct {
	sum            uint64
	packets, worst uint32
}

// touch finds the entries of packets, and brings the memory that add will access into the caches of
// the processor. Accesses that do not wait for each other overlap, so touch does them apart from
// other work.
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

// inflated returns 1 if a latency exceeds its multiple of the mean before it, and 0 otherwise,
// without a branch: latency * packets > factor / 256 * sum, in 128 bits. A first packet has no mean
// before it.
func (h *hop) inflated(latency uint32, factor uint64) uint64 {
	return exceeds(latency, h.packets, h.sum, factor)
}

// extreme returns 1 if the worst latency exceeds its multiple of the mean of the other packets.
func (h *hop) extreme(factor uint64) uint64 {
	return exceeds(h.worst, h.packets-1, h.sum-uint64(h.worst), factor)
}

// exceeds returns 1 if a latency exceeds factor / 256 times the mean of packets, and 0 otherwise.
func exceeds(latency, packets uint32, sum, factor uint64) uint64 {
	x := uint64(latency) * uint64(packets)
	high, low := bits.Mul64(factor, sum)
	_, more := bits.Sub64(low, x<<8, 0)
	_, more = bits.Sub64(high, x>>56, more)
	return more
}

func setOf(hash uint64) uint64 { return hash >> 40 % sets }

func tagOf(hash uint64) uint64 { return hash >> 24 & 0xff }

// tagOnes is 1 for each way of a word of tags.
const tagOnes = 0x01010101_01010101

// leastSeen returns the way for a new flow: a free way, or the way of the flow with the fewest
// packets.
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

// cacheEntry returns the entry of a flow, which has one more packet. A new entry replaces the entry
// with the fewest packets.
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

// is reports whether the entry has the flow.
func (e *entry) is(a *arrival) bool {
	k := &a.key
	return e.label == a.label() && e.src == binary.LittleEndian.Uint64(k.Src[:]) &&
		e.dst == binary.LittleEndian.Uint64(k.Dst[:]) &&
		(!k.V6 || e.srcLow == binary.LittleEndian.Uint64(k.Src[8:]) && e.dstLow == binary.LittleEndian.Uint64(k.Dst[8:]))
}

// identify sets the flow of the entry.
func (e *entry) identify(a *arrival) {
	k := &a.key
	e.src, e.srcLow = binary.LittleEndian.Uint64(k.Src[:]), binary.LittleEndian.Uint64(k.Src[8:])
	e.dst, e.dstLow = binary.LittleEndian.Uint64(k.Dst[:]), binary.LittleEndian.Uint64(k.Dst[8:])
	e.label = a.label()
}

// key returns the key of the flow.
func (e *entry) key() (k flow.Key) {
	binary.LittleEndian.PutUint64(k.Src[:], e.src)
	binary.LittleEndian.PutUint64(k.Dst[:], e.dst)
	k.SrcPort, k.DstPort, k.Proto = uint16(e.label>>48), uint16(e.label>>32), uint8(e.label>>24)
	k.Mask, k.V6 = flow.FiveTuple, e.label>>8&1 != 0
	if k.V6 {
		binary.LittleEndian.PutUint64(k.Src[8:], e.srcLow)
		binary.LittleEndian.PutUint64(k.Dst[8:], e.dstLow)
	}
	return k
}

// nodes returns the nodes of the cached hops.
func (e *entry) nodes() []uint32 {
	if e.hops > cachedHops {
		return nil
	}
	return e.node[:e.hops]
}

// load puts a flow into the cache, with the tower's counts of it, and without a path.
func (g *group) load(e *entry, a *arrival) {
	e.identify(a)
	e.digest, e.route, e.hops, e.packets, e.changes = g.digest(a), 0, 0, 0, 0
	estimate := g.Flows.QueryDigest(uint64(e.digest))
	e.heavyAt = g.settings.Heavy - min(estimate, g.settings.Heavy)
}

// follow gives the entry the path of the packet. The hops of the path before enter the tower.
func (g *group) follow(e *entry, a *arrival) {
	for i := range e.nodes() {
		g.leave(e, i)
	}
	if e.hops > 0 && e.changes < math.MaxUint16 {
		e.changes++
	}
	e.route, e.hops = a.route, a.hops
	for i := range e.nodes() {
		g.enter(e, i, a.path[i].Node)
	}
	if e.heavyAt == inTable {
		g.mark(e, a)
	}
}

// enter starts the counts of hop i of a flow at a node with those of the tower.
func (g *group) enter(e *entry, i int, node uint32) {
	n, sum, ok := g.Latencies.QueryDigest(uint64(rowhash.Next(e.digest, node)))
	if !ok {
		n, sum = 0, 0
	}
	e.node[i], e.before[i], e.sumBefore[i], e.inflated[i] = node, n, sum, 0
	e.hop[i] = hop{sum: sum, packets: n}
}

// leave adds a hop to the tower, and to the table of inflated latencies if its worst one is.
func (g *group) leave(e *entry, i int) {
	h, node := &e.hop[i], e.node[i]
	packets, sum := h.packets-e.before[i], h.sum-e.sumBefore[i]
	if packets == 0 {
		return
	}
	g.Latencies.AddDigest(uint64(rowhash.Next(e.digest, node)), packets, sum)
	if n := g.node(node); n != nil {
		n.Packets += uint64(packets)
		n.Sum += sum
		n.Worst = max(n.Worst, h.worst)
	} else {
		g.Counters[wire.NodesFull] += uint64(packets)
	}
	if h.extreme(g.factor) != 0 {
		g.inflate(place{e.key(), node}, max(e.inflated[i], 1), h.worst)
	}
}

// measureUncached measures hops of a packet that the cache has no place for.
func (g *group) measureUncached(e *entry, path []inband.Step) {
	l := &g.long
	l.src, l.dst, l.srcLow, l.dstLow, l.label, l.digest = e.src, e.dst, e.srcLow, e.dstLow, e.label, e.digest
	for i := range path {
		g.enter(l, 0, path[i].Node)
		g.measure(l, path[i:i+1])
		g.leave(l, 0)
	}
}

// flush adds a cached flow to the towers.
func (g *group) flush(e *entry) {
	if e.label == 0 {
		return
	}
	if e.packets > 0 {
		g.Flows.AddDigest(uint64(e.digest), e.packets)
	}
	for i := range e.nodes() {
		g.leave(e, i)
	}
}

// finish ends the interval: it adds all cached flows to the towers, also the cached flows of a data
// path outside of this process, and judges inflated latencies.
func (g *group) finish(before *earlier, cached []Cached) {
	j := g.judge(before)
	end := func(e *entry) {
		g.flush(e)
		j.entry(e)
		e.label = 0
	}
	for at := range g.cache {
		for way := range ways {
			end(&g.cache[at][way])
		}
		g.sets[at].seen = [ways]uint32{}
	}
	for i := range cached {
		e := cached[i].entry()
		end(&e)
	}
	g.gather(cached)
	j.rest()
}

// gather puts flows into the table of heavy flows that are heavy only by the packets of several
// processors together.
func (g *group) gather(cached []Cached) {
	most := make(map[flow.Key]*Cached, len(cached))
	for i := range cached {
		c := &cached[i]
		other := most[c.Key]
		if other == nil || c.Packets > other.Packets {
			most[c.Key] = c
		}
		if other == nil || g.heavy[c.Key] != nil ||
			g.Flows.Query(c.Key.AppendBinary(g.scratch[:0])) < g.settings.Heavy {
			continue
		}
		if len(g.heavy) >= g.settings.HeavyFlows {
			g.Counters[wire.HeavyFull]++
			continue
		}
		h := &wire.Heavy{Key: c.Key}
		for _, hop := range slices.Backward(most[c.Key].Hops) { // the latest hop comes first
			h.Path = append(h.Path, hop.Node)
		}
		g.heavy[c.Key] = h
	}
}

// Cached is a flow in the cache of a data path outside of this process, at the end of an interval.
type Cached struct {
	Key     flow.Key
	Packets uint32
	Hops    []CachedHop
}

// CachedHop is a cached flow at a switch: its counts since the hop entered the cache, and the
// tower's earlier counts.
type CachedHop struct {
	Node            uint32
	Packets, Before uint32 // Packets includes Before, and Sum includes SumBefore
	Worst, Inflated uint32
	Sum, SumBefore  uint64
}

func (c *Cached) entry() (e entry) {
	a := arrival{key: c.Key, whole: true}
	e.identify(&a)
	e.digest, e.packets, e.hops = rowhash.Key(c.Key.AppendBinary(nil)), c.Packets, uint8(len(c.Hops))
	for i, h := range c.Hops {
		e.hop[i] = hop{h.Sum, h.Packets, h.Worst}
		e.node[i], e.inflated[i], e.before[i], e.sumBefore[i] = h.Node, h.Inflated, h.Before, h.SumBefore
	}
	return e
}
