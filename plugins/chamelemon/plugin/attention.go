// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"maps"
	"math"
	"slices"
	"sort"

	"github.com/netsketch/netsketch/sketch/estimate"
)

// State is the state of the network (§4.3).
type State uint8

// States of the network. While it is healthy the HL encoders hold all victim flows; while it is
// ill, they hold the victim flows of at least Tl packets, and the LL encoders a sample of the
// others.
const (
	Healthy State = iota
	Ill
)

// String returns the state as in the YANG module.
func (s State) String() string {
	if s == Ill {
		return "ILL"
	}
	return "HEALTHY"
}

// Sampled is the sample value that takes every LL candidate.
const Sampled = 1 << 16

// maxThreshold is the largest size that the classifier can represent.
const maxThreshold = 65534

// Load factors (§4.3.1): the target is 0.7; below 0.6 a part shrinks.
const (
	targetLoad = 0.7
	lowLoad    = 0.6
	// illLoad is the load below which thresholds and sample rate are recomputed while ill. Memory
	// is fixed in this state, so the parts then hold as many flows as in the paper's figures.
	illLoad = 0.66
	// cautiousLoad is the target load of an HH part that was not decoded or becomes much smaller: the
	// number of flows above a Th far from the present one is known to 30 % only.
	cautiousLoad = 0.6
	// tooHigh is close to the limit of decoding, 1/1.23: in a fuller part the next small burst
	// cannot be decoded. With all memory given to HL the network is healthy up to this load.
	tooHigh = 0.78
)

// step returns the load at which a part of the sketch may be when its threshold goes down by vague
// sizes: the geometric mean of the present load and the target load. With the target load at once,
// sizes that are far off would make the part overflow.
func step(load float64) float64 { return math.Sqrt(max(load, 0.01) * targetLoad) }

// arrays is the number of arrays of an encoder.
const arrays = 3

// families is the number of address families. IPv4 and IPv6 have separate encoders.
const families = 2

// Room is the size of the encoders of one family and their fixed divisions, in buckets per array.
type Room struct {
	Up, Down     int // sizes of the whole encoder
	Reserve      int // minimum of HL while healthy
	IllHL, IllLL int // the fixed division while ill
}

// Parts is a division, in buckets per array.
type Parts struct{ LL, HL int }

// Attention is the configuration of the data plane in an epoch.
type Attention struct {
	State State
	// Tentative is set if the network became ill because of the estimate of an HL part without all of
	// the memory. Such a network becomes healthy again while the load is below tooHigh, not only below
	// targetLoad.
	Tentative bool
	Tl        uint32
	Sample    uint32            // encoded LL candidates of 65,536
	Seed      uint32            // selects the encoded LL candidates; odd
	Parts     [families]Parts   // sizes of the HL and LL parts; HH has the rest of the memory
	Th        map[string]uint32 // Th by edge switch
}

// hitters is the size of the HH part in buckets per array.
func (a *Attention) hitters(f int, room *[families]Room) int {
	return max(room[f].Up-a.Parts[f].LL-a.Parts[f].HL, 0)
}

// begin returns the initial attention: all flows are HH candidates, unless the configuration sets
// thresholds. With a Tl above 1 it is an attention for an ill network.
func begin(c *Configuration, room *[families]Room, edges []string) Attention {
	a := Attention{State: Healthy, Tl: 1, Seed: seedOf(0), Th: make(map[string]uint32)}
	for f := range room {
		a.Parts[f].HL = room[f].Reserve
	}
	if c.Start.Low > 1 {
		a.State, a.Tl, a.Sample = Ill, uint32(c.Start.Low), rate(c.Start.Sample*Sampled)
		for f, r := range room {
			a.Parts[f] = Parts{LL: r.IllLL, HL: r.IllHL}
		}
	}
	for _, e := range edges {
		a.Th[e] = uint32(max(c.Start.High, int(a.Tl)))
	}
	return a
}

// count is the number of flows in an encoder.
type count struct {
	flows   float64 // exact when decoded, by linear counting otherwise
	decoded bool
	few     int     // flows that could not be separated, if all others were decoded
	high    float64 // upper bound of an estimate; 0 if exact
}

// known reports whether all flows were decoded, or all but a few that could not be separated.
func (c count) known() bool { return c.decoded || c.few > 0 }

// most returns the upper bound of the number of flows.
func (c count) most() float64 { return max(c.flows, c.high) }

// edgeState is the control's input from one edge switch.
type edgeState struct {
	hitters [families]count
	counted bool                  // all flows of the HH parts are counted, if not all decoded
	sizes   func() *estimate.Tail // estimated flow sizes, computed on the first call
	vague   bool                  // flows share too many counters for good sizes
	// candidates estimates the number of HH candidates at a threshold, collisions included.
	candidates func(uint32) float64
}

// recorded reports whether all flows of the HH parts are known or counted.
func (e *edgeState) recorded() bool {
	return e.counted || e.hitters[0].decoded && e.hitters[1].decoded
}

// victimSize is the size of a flow that lost packets, for the victims' distribution.
type victimSize struct {
	family  int
	size    float64
	weight  float64 // number of victim flows that the candidate represents
	heavy   bool    // whether the flow was in an HL part
	sampled bool    // the flow is, or would be, in the sample of light flows
}

// measured is the control's input from one epoch (§4.3, "monitoring").
type measured struct {
	edges   map[string]*edgeState // edge switches that delivered all cells
	deltas  bool                  // HL and LL are valid: every edge delivered, every HH part was counted
	hl, ll  [families]count
	victims []victimSize // while ill
	// expected is the number of victim flows if their share of the flows were that of the newest epoch
	// whose losses were decoded; 0 if unknown.
	expected [families]float64
}

// smallest returns the smallest threshold from least on that at most n flows reach.
func smallest(atLeast func(uint32) float64, n float64, least uint32) uint32 {
	x := least + uint32(sort.Search(int(maxThreshold-min(least, maxThreshold)),
		func(d int) bool { return atLeast(least+uint32(d)) <= n }))
	return min(max(x, 1), maxThreshold)
}

func buckets(perArray int) float64 { return float64(arrays * perArray) }

// odd returns the largest odd number that is not above n, for n of 1 or more. HL and HH parts have
// an odd number of buckets per array. Bucket numbers are remainders of one hash: if the two sizes
// had a common divisor, flows that share all buckets of an HH part would be more likely to share
// all buckets of the HL part, too. While healthy the two sizes add up to a power of two, so odd
// sizes have no common divisor.
func odd(n int) int { return (n - 1) | 1 }

// needed returns the size of a part that holds flows at the target load, in buckets per array.
func needed(flows float64) int { return int(math.Ceil(flows/targetLoad/arrays)) | 1 }

// shift computes the attention of epoch N + 2 from the measurements of epoch N (§4.3.1 and §4.3.2).
// last is the latest network state, decided for the other time bit. Without measured losses the
// state and the attention's own state stay. The reasons are for the log.
func shift(now Attention, last State, m *measured, room *[families]Room) (next Attention, state State,
	reasons []string,
) {
	s := shifter{next: now, now: &now, state: last, m: m, room: room}
	s.next.Th = maps.Clone(now.Th)
	s.run()
	s.order()
	return s.next, s.state, s.reasons
}

type shifter struct {
	now     *Attention
	next    Attention
	state   State // state of the network
	m       *measured
	room    *[families]Room
	reasons []string
}

func (s *shifter) addReason(reason string) { s.reasons = append(s.reasons, reason) }

func (s *shifter) run() {
	s.expect()
	if failed := s.hittersFirst(); failed {
		return
	}
	if !s.m.deltas {
		return // an edge switch is missing: without losses the settings stay
	}
	s.decide()
	switch {
	case s.state == s.now.State && s.state == Ill:
		if s.lightFailed() {
			return
		}
		s.ill()
	case s.state == s.now.State:
		s.healthy()
	case s.state == Ill:
		s.becomeIll()
	default:
		s.becomeHealthy()
	}
	s.hittersLast()
}

// decide computes the network-wide state, with hysteresis. The epochs of each time bit have
// separate attentions, but one state. The network becomes ill if the victim flows would fill all
// downstream memory beyond tooHigh, healthy if they fit at the target load, and otherwise keeps its
// state. The upper bound of an estimate counts: if the network is ill too early, a sample of the
// light victim flows is published for two epochs, and then all of them again; if it is ill too
// late, two more epochs cannot be decoded.
func (s *shifter) decide() {
	fits, beyond := true, false
	for f := range families {
		hl, down := s.m.hl[f], buckets(s.room[f].Down)
		if s.now.State == Ill {
			n, deviation := s.victims(f)
			limit, margin := targetLoad*down, 2*deviation
			if s.now.Tentative {
				limit, margin = tooHigh*down, deviation
			}
			decoded := hl.known() && s.m.ll[f].known()
			fits = fits && decoded && n+margin <= limit
			beyond = beyond || !decoded || n-2*deviation > tooHigh*down
			continue
		}
		fits = fits && hl.known() && hl.flows <= targetLoad*down
		beyond = beyond || hl.most() > tooHigh*down
	}
	switch {
	case beyond:
		s.state, s.next.Tentative = Ill, false
	case fits:
		s.state = Healthy
	}
}

// victims estimates the number of victim flows of a family while ill, and the standard deviation
// that sampling causes.
func (s *shifter) victims(f int) (n, deviation float64) {
	variance := 0.0
	for _, v := range s.m.victims {
		if v.family == f {
			n += v.weight
			variance += v.weight * (v.weight - 1)
		}
	}
	return n, math.Sqrt(variance)
}

// expect grows the HL parts of a healthy network for the expected victim flows if an HH part was
// not decoded. The losses are then unknown, so an HL part that is too small for more flows would
// show only after the HH parts are decoded again, and cost another decision.
func (s *shifter) expect() {
	failed := func(e *edgeState) bool { return !e.recorded() }
	if s.now.State == Ill || !slices.ContainsFunc(slices.Collect(maps.Values(s.m.edges)), failed) {
		return
	}
	for f := range families {
		if to := min(needed(s.m.expected[f]), odd(s.room[f].Down)); s.m.expected[f] > 0 && to > s.next.Parts[f].HL {
			s.next.Parts[f].HL = to
			s.addReason("HH parts were not decoded and there are more flows: the HL part grows in proportion")
		}
	}
}

// hittersFirst is step 1 of both states: it raises Th of switches whose HH part was not decoded.
func (s *shifter) hittersFirst() (failed bool) {
	for _, name := range slices.Sorted(maps.Keys(s.m.edges)) {
		e := s.m.edges[name]
		if e.recorded() {
			continue
		}
		failed = true
		th := s.now.Th[name]
		s.next.Th[name] = min(max(s.threshold(e, th, &s.next, th+1, cautiousLoad), th+1), maxThreshold)
		s.addReason("HH part of " + name + " was not decoded: Th goes up")
	}
	return failed
}

// threshold returns the smallest Th, from least on, at which the HH candidates of an edge switch
// fill its HH parts at most to a load. The classifier's candidates are scaled by the measured ones.
func (s *shifter) threshold(e *edgeState, th uint32, a *Attention, least uint32, load float64) uint32 {
	base := e.candidates(th)
	limit, total := math.Inf(1), 0.0
	for f := range families {
		total += e.hitters[f].flows
	}
	for f := range families {
		var share float64 // measured candidates per estimated candidate
		switch {
		case total == 0 && f == 0:
			share = 1 // without a measurement, all memory is for IPv4
		case total == 0:
		case base == 0:
			share = e.hitters[f].flows / total
		default:
			share = e.hitters[f].flows / base
		}
		if share > 0 {
			limit = min(limit, load*buckets(a.hitters(f, s.room))/share)
		}
	}
	x := smallest(e.candidates, limit, least)
	// With a Th of 1 all flows are candidates, so the scale of another Th does not apply.
	for f := range families {
		if x == 1 && total > 0 && e.sizes().AtLeast(1)*e.hitters[f].flows/total > load*buckets(a.hitters(f, s.room)) {
			x = 2
		}
	}
	return x
}

// hittersLast is the last step of both states: it sets Th for the target load of the HH parts' new
// memory.
func (s *shifter) hittersLast() {
	least := lowLoad
	if s.next.State == Ill {
		least = illLoad
	}
	for _, name := range slices.Sorted(maps.Keys(s.m.edges)) {
		e := s.m.edges[name]
		th := s.now.Th[name]
		low, high, far, most := true, false, false, 0.0
		for f := range families {
			load := e.hitters[f].flows / max(buckets(s.next.hitters(f, s.room)), 1)
			low = low && load < least
			high = high || load > targetLoad
			far = far || load > tooHigh
			most = max(most, load)
		}
		if !high && (!low || th == 1) || e.candidates(1) == 0 {
			continue
		}
		from, to := uint32(1), targetLoad
		if high {
			from = th + 1
		}
		if far {
			to = cautiousLoad
		}
		if e.vague && !high {
			// A share that few candidates give at this Th can be far off at a much lower one.
			s.next.Th[name] = min(s.threshold(e, th, &s.next, th-th/8-1, step(most)), th)
		} else {
			s.next.Th[name] = s.threshold(e, th, &s.next, from, to)
		}
		if s.next.Th[name] != th {
			s.addReason("HH part of " + name + " returns to the target load: Th changes")
		}
	}
}

// healthy is step 2 of §4.3.1.
func (s *shifter) healthy() {
	for f := range families {
		p, r, hl := &s.next.Parts[f], &s.room[f], s.m.hl[f]
		if r.Down == 0 {
			continue
		}
		need, load := needed(hl.most()), hl.flows/buckets(p.HL)
		switch {
		case !hl.known(): // grows by at least a quarter, if there is room
			p.HL = min(max(need, (p.HL+p.HL/4+1)|1), odd(r.Down))
			s.addReason("HL part was not decoded: it grows")
		case load < lowLoad && p.HL > r.Reserve:
			p.HL = max(need, r.Reserve)
			s.addReason("HL part is filled below 60 %: it shrinks")
		case load > targetLoad && p.HL < odd(r.Down):
			p.HL = min(need, odd(r.Down))
			s.addReason("HL part is filled above 70 %: it grows")
		}
	}
}

// becomeHealthy changes the state from ill to healthy.
func (s *shifter) becomeHealthy() {
	s.addReason("the HL parts can hold all victims: the network is healthy")
	s.next.State, s.next.Tentative, s.next.Tl, s.next.Sample = Healthy, false, 1, 0
	for f := range families {
		n, deviation := s.victims(f) // with a margin, because an overfull part costs two epochs
		s.next.Parts[f] = Parts{HL: min(max(needed(n+2*deviation), s.room[f].Reserve), odd(s.room[f].Down))}
	}
}

// becomeIll changes the state from healthy to ill. It chooses Tl so that the HL part is filled if
// victim flows have the size distribution of all flows. The paper starts at Th, which leaves much
// of the part empty and needs a second decision; Th differs by switch, so its least is taken.
func (s *shifter) becomeIll() {
	s.addReason("the HL parts cannot hold all victims at a stable load: the network is ill")
	s.next.State = Ill
	s.next.Sample = Sampled
	all := s.sizes()
	tl := uint32(2)
	for f := range families {
		r := &s.room[f]
		s.next.Tentative = s.next.Tentative || s.now.Parts[f].HL < odd(r.Down) && !s.m.hl[f].known()
		s.next.Parts[f] = Parts{LL: r.IllLL, HL: r.IllHL}
		n := s.m.hl[f].most() // an upper bound: an overfull part costs two epochs
		if n <= 0 {
			continue
		}
		s.next.Sample = min(s.next.Sample, rate(Sampled*targetLoad*buckets(r.IllLL)/n))
		if flows := all.AtLeast(1); flows > 0 {
			tl = max(tl, smallest(s.candidates, flows*targetLoad*buckets(r.IllHL)/n, 2))
		}
	}
	s.next.Tl = tl
}

// candidates returns how many flows the classifiers count with at least x packets.
func (s *shifter) candidates(x uint32) (flows float64) {
	for _, name := range slices.Sorted(maps.Keys(s.m.edges)) { // in order, so that sums are the same in each run
		flows += s.m.edges[name].candidates(x)
	}
	return flows
}

// sizes returns the size distribution of all flows.
func (s *shifter) sizes() estimate.Tail {
	var sizes, weights []float64
	for _, name := range slices.Sorted(maps.Keys(s.m.edges)) {
		t := s.m.edges[name].sizes()
		for i, x := range t.Sizes {
			sizes, weights = append(sizes, x), append(weights, t.Number(i))
		}
	}
	return estimate.NewTail(sizes, weights)
}

func rate(x float64) uint32 { return uint32(min(max(math.Ceil(x), 1), Sampled)) }

// lightFailed is step 1 of §4.3.2 for the LL part: it lowers the sample rate if the part was not
// decoded.
func (s *shifter) lightFailed() bool {
	if s.m.ll[0].known() && s.m.ll[1].known() {
		return false
	}
	s.next.Sample = min(s.sampleRate(), max(s.now.Sample*7/8, 1))
	s.addReason("LL part was not decoded: the sample rate goes down")
	return true
}

// sampleRate returns the sample rate for the target load, given that a higher Tl makes more flows
// light.
func (s *shifter) sampleRate() uint32 {
	to := float64(Sampled)
	before, after := 0.0, 0.0
	for _, v := range s.m.victims {
		if v.size < float64(s.now.Tl) {
			before += v.weight
		}
		if v.size < float64(s.next.Tl) {
			after += v.weight
		}
	}
	grow := 1.0
	if before > 0 {
		grow = max(after/before, 1)
	}
	for f := range families {
		if n := s.m.ll[f].flows; n > 0 {
			to = min(to, float64(s.now.Sample)*targetLoad*buckets(s.now.Parts[f].LL)/(n*grow))
		}
	}
	return rate(to)
}

// ill is steps 2 and 3 of §4.3.2.
func (s *shifter) ill() {
	if !s.m.hl[0].known() || !s.m.hl[1].known() {
		s.next.Tl = max(s.lowThreshold(s.now.Tl+1), s.now.Tl+1)
		s.addReason("HL part was not decoded: Tl goes up")
		s.next.Sample = min(s.sampleRate(), s.now.Sample)
		return
	}
	low, high := s.loads(s.m.hl, illLoad, tooHigh, func(p Parts) int { return p.HL })
	switch {
	case high:
		s.next.Tl = s.lowThreshold(s.now.Tl + 1)
		s.addReason("HL part is filled almost to the limit of decoding: Tl goes up")
	case low:
		s.next.Tl = min(s.lowThreshold(2), s.now.Tl)
		if s.next.Tl != s.now.Tl {
			s.addReason("HL part has room: Tl goes down")
		}
	}
	low, high = s.loads(s.m.ll, illLoad, targetLoad, func(p Parts) int { return p.LL })
	if low || high || s.next.Tl > s.now.Tl {
		if s.next.Sample = s.sampleRate(); s.next.Sample != s.now.Sample {
			s.addReason("LL part is brought to the target load by the sample rate")
		}
	}
}

// loads reports whether all parts are below the load least, and whether any is above most.
func (s *shifter) loads(flows [families]count, least, most float64, part func(Parts) int) (low, high bool) {
	low = true
	for f := range families {
		load := flows[f].flows / max(buckets(part(s.now.Parts[f])), 1)
		low = low && load < least
		high = high || load > most
	}
	return low, high
}

// vague reports whether the sizes of an edge switch are vague.
func (s *shifter) vague() bool {
	for _, e := range s.m.edges {
		if e.vague {
			return true
		}
	}
	return false
}

// lowThreshold returns the smallest Tl, from least on, at which victim flows of at least Tl packets
// fill the HL part at most to the target load. The victims' sizes are scaled by the measured number
// of heavy ones; without victims the sizes of all flows are used.
func (s *shifter) lowThreshold(least uint32) uint32 {
	tl := least
	for f := range families {
		n := s.m.hl[f].flows
		room := buckets(s.now.Parts[f].HL)
		limit := targetLoad * room
		if n < limit && s.vague() {
			limit = step(n/room) * room
		}
		var sizes, weights []float64
		for _, v := range s.m.victims {
			if v.family == f {
				sizes, weights = append(sizes, v.size), append(weights, v.weight)
			}
		}
		t := estimate.NewTail(sizes, weights)
		base := t.AtLeast(s.now.Tl)
		if base == 0 && n > 0 {
			t = s.sizes()
			base = t.AtLeast(s.now.Tl)
		}
		if n > 0 && base > 0 {
			limit *= base / n
		}
		tl = max(tl, smallest(t.AtLeast, limit, least))
	}
	return tl
}

// order enforces Tl <= Th and the ranges of both.
func (s *shifter) order() {
	s.next.Tl = min(max(s.next.Tl, 1), maxThreshold)
	for name, th := range s.next.Th {
		s.next.Th[name] = min(max(th, s.next.Tl, 1), maxThreshold)
	}
}
