// SPDX-License-Identifier: Apache-2.0

package sketchint

import (
	"encoding/binary"
	"math/bits"

	"github.com/netsketch/netsketch/hostagent/sketchint/wire"
	"github.com/netsketch/netsketch/sketch/rowhash"
)

const (
	// sets of ways flows each are cached: their packets are added up before they enter the towers,
	// as the paper's per-flow information. The cache has 4 MiB.
	sets, ways = 1 << 11, 8
	// cachedHops bounds the paths of cached flows. Longer ones enter the towers packet by packet.
	cachedHops = 6
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

// inflated returns 1 if the latency of the last packet is inflated, and 0 otherwise, without a
// branch: latency * packets > factor / 256 * sum, in 128 bits.
func (h *hop) inflated(latency uint32, factor uint64) uint64 {
	x := uint64(latency) * uint64(h.packets)
	high, low := bits.Mul64(factor, h.sum)
	_, more := bits.Sub64(low, x<<8, 0)
	_, more = bits.Sub64(high, x>>56, more)
	return more
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
