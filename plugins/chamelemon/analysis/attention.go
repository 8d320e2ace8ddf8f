// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sort"
)

// State is the network's state (§4.3).
type State uint8

// The states. While the network is healthy the HL encoders have room for every flow
// that loses packets; while it is ill, only for those of at least Tl packets and a
// sample of the others.
const (
	Healthy State = iota
	Ill
)

// String returns the state as the YANG module has it.
func (s State) String() string {
	if s == Ill {
		return "ill"
	}
	return "healthy"
}

// Sampled is the sample value that takes every LL candidate.
const Sampled = 1 << 16

// maxThreshold is the largest size that the classifier tells apart.
const maxThreshold = 65534

// Target load factors (§4.3.1): 0.7 is aimed at, below 0.6 memory is taken back.
const (
	targetLoad = 0.7
	lowLoad    = 0.6
	// illLoad is where thresholds and the sample rate are set anew while ill, to hold as many flows as in
	// the paper's figures (more than 65 %): memory is fixed then, so nothing else is disturbed.
	illLoad = 0.66
	// tooHigh is near what can be decoded at all, 1/1.23: a part that is fuller does not
	// survive the next small burst. With all memory given to HL the network is healthy up to it.
	tooHigh = 0.78
)

// arrays is how many arrays an encoder has.
const arrays = 3

// prime is that of the encoders, Prime32 of sketch/fermat.
const prime = 4294967291

// families are IPv4 and IPv6, which have encoders of their own.
const families = 2

// Room is what the switches' encoders of one family hold, in buckets an array, and how
// it is divided when nothing is left to choose.
type Room struct {
	Up, Down     int // of a whole encoder
	Reserve      int // the least for HL while healthy
	IllHL, IllLL int // the fixed division while ill
}

// Parts is a division, in buckets an array.
type Parts struct{ LL, HL int }

// Attention is what the data plane is set to in an epoch.
type Attention struct {
	State  State
	Tl     uint32
	Sample uint32            // of 65,536 LL candidates
	Parts  [families]Parts   // HH has the rest
	Th     map[string]uint32 // by edge switch
}

// hitters is the HH part in buckets an array.
func (a *Attention) hitters(f int, room *[families]Room) int {
	return max(room[f].Up-a.Parts[f].LL-a.Parts[f].HL, 0)
}

// begin is the attention before anything is known: everything is an HH candidate, unless
// the configuration says otherwise. With a Tl above 1 it is that of an ill network.
func begin(c *Configuration, room *[families]Room, edges []string) Attention {
	a := Attention{State: Healthy, Tl: 1, Th: make(map[string]uint32)}
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

// count is what is known of the flows in an encoder.
type count struct {
	flows     float64 // exact when decoded, by linear counting otherwise
	decoded   bool
	low, high float64 // bounds of linear counting's number; 0 where it is exact
}

// least and most are what to reckon with.
func (c count) least() float64 {
	if c.low > 0 {
		return c.low
	}
	return c.flows
}

func (c count) most() float64 { return max(c.flows, c.high) }

// edgeState is what was measured at an edge switch.
type edgeState struct {
	hitters [families]count
	known   bool         // all flows of the HH parts are counted, though not all may be decoded
	sizes   func() *tail // estimated sizes of its flows; work, so asked for where they matter
	// shown estimates how many flows the classifier shows with at least so many packets, those
	// that share their counters with others included.
	shown func(uint32) float64
}

// victimSize is the size of a flow that lost packets, for the victims' distribution.
type victimSize struct {
	family int
	size   float64
	weight float64 // how many victims it stands for
}

// measured is what an epoch tells the control (§4.3, "monitoring").
type measured struct {
	edges   map[string]*edgeState // those that delivered everything
	deltas  bool                  // HL and LL could be formed: every edge delivered, every HH part was decoded
	hl, ll  [families]count
	victims []victimSize // while ill
}

// tail is a distribution of sizes as the number of flows of at least so many packets.
type tail struct {
	sizes []float64 // ascending
	flows []float64 // of at least that size
}

// newTail makes a tail of weighted sizes.
func newTail(sizes, weights []float64) tail {
	order := make([]int, len(sizes))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(sizes[a], sizes[b]) })
	t := tail{sizes: make([]float64, len(sizes)), flows: make([]float64, len(sizes))}
	sum := 0.0
	for i := len(order) - 1; i >= 0; i-- {
		sum += weights[order[i]]
		t.sizes[i], t.flows[i] = sizes[order[i]], sum
	}
	return t
}

// atLeast returns how many flows have at least x packets.
func (t *tail) atLeast(x uint32) float64 {
	i := sort.SearchFloat64s(t.sizes, float64(x))
	if i == len(t.flows) {
		return 0
	}
	return t.flows[i]
}

// smallest returns the smallest threshold from least on with at most n flows of that size.
func (t *tail) smallest(n float64, least uint32) uint32 { return smallest(t.atLeast, n, least) }

// smallest returns the smallest threshold from least on that at most n flows reach.
func smallest(atLeast func(uint32) float64, n float64, least uint32) uint32 {
	x := least + uint32(sort.Search(int(maxThreshold-min(least, maxThreshold)), func(d int) bool { return atLeast(least+uint32(d)) <= n }))
	return min(max(x, 1), maxThreshold)
}

func buckets(perArray int) float64 { return float64(arrays * perArray) }

// odd is the largest odd number that is not above n, of 1 or more. Parts of HL and HH have an
// odd number of buckets an array. Bucket numbers are remainders of one hash: had the two parts a divisor
// in common, flows that share all buckets of an HH part, and are unknown for it, would be more likely to
// share those of the HL part, too, or always would where one number is the other's multiple. While
// healthy the two make up all of an array, a power of two, so odd ones have none.
func odd(n int) int { return (n - 1) | 1 }

// needed is the part that holds so many flows at the target load, in buckets an array.
func needed(flows float64) int { return int(math.Ceil(flows/targetLoad/arrays)) | 1 }

// shift decides the attention of the epoch after the next from what was measured under
// this one (§4.3.1 and §4.3.2). The state of the network is the one that was decided last, for the
// other time bit; where nothing is known of losses, it and the attention's own stay what they are.
// The reasons are for people.
func shift(now Attention, last State, m *measured, room *[families]Room) (next Attention, state State, reasons []string) {
	s := shifter{next: now, now: &now, state: last, m: m, room: room}
	s.next.Th = maps.Clone(now.Th)
	s.run()
	s.order()
	return s.next, s.state, s.reasons
}

type shifter struct {
	now     *Attention
	next    Attention
	state   State // of the network
	m       *measured
	room    *[families]Room
	reasons []string
}

func (s *shifter) because(reason string) { s.reasons = append(s.reasons, reason) }

func (s *shifter) run() {
	if failed := s.hittersFirst(); failed {
		return
	}
	if !s.m.deltas {
		return // an edge switch is missing: nothing is known of losses, what is set stays
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
		s.turnIll()
	default:
		s.turnHealthy()
	}
	s.hittersLast()
}

// decide decides the network's state. There is one, though the epochs of each time bit have an
// attention of their own: it turns ill when all memory holds the victims at too high a load, healthy
// when it does at the target load, and in between it stays what was decided last.
func (s *shifter) decide() {
	fits, beyond := true, false
	for f := range families {
		hl, down := s.m.hl[f], buckets(s.room[f].Down)
		if s.now.State == Ill {
			n, deviation := s.victims(f)
			decoded := hl.decoded && s.m.ll[f].decoded
			fits = fits && decoded && n+2*deviation <= targetLoad*down
			beyond = beyond || !decoded || n-2*deviation > tooHigh*down
			continue
		}
		fits = fits && hl.decoded && hl.flows <= targetLoad*down
		beyond = beyond || hl.least() > tooHigh*down // where it is not sure, more memory is tried first
	}
	switch {
	case fits:
		s.state = Healthy
	case beyond:
		s.state = Ill
	}
}

// victims estimates, while ill, how many flows of a family lost packets. The deviation is that of the sample.
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

// hittersFirst is step 1 of both states: where an HH part was not decoded, Th goes up.
func (s *shifter) hittersFirst() (failed bool) {
	for _, name := range slices.Sorted(maps.Keys(s.m.edges)) {
		e := s.m.edges[name]
		if e.known || e.hitters[0].decoded && e.hitters[1].decoded {
			continue
		}
		failed = true
		th := s.now.Th[name]
		to := s.threshold(e, th, &s.next, th+1)
		if e.shown(1) == 0 {
			to = 2 * th // nothing is known of the sizes
		}
		s.next.Th[name] = min(max(to, th+1), maxThreshold)
		s.because("HH part of " + name + " was not decoded: Th goes up")
	}
	return failed
}

// threshold returns the smallest Th, from least on, with which the HH candidates of an
// edge fill its HH parts to the target load. The sizes that the classifier tells are put
// to the scale of the candidates that there were.
func (s *shifter) threshold(e *edgeState, th uint32, a *Attention, least uint32) uint32 {
	base := e.shown(th)
	limit, total := math.Inf(1), 0.0
	for f := range families {
		total += e.hitters[f].flows
	}
	for f := range families {
		var share float64 // candidates for each flow that there should be
		switch {
		case total == 0 && f == 0:
			share = 1 // nothing known: as if all were IPv4
		case total == 0:
		case base == 0:
			share = e.hitters[f].flows / total
		default:
			share = e.hitters[f].flows / base
		}
		if share > 0 {
			limit = min(limit, targetLoad*buckets(a.hitters(f, s.room))/share)
		}
	}
	x := smallest(e.shown, limit, least)
	// With a Th of 1 all flows are candidates, whatever the scale of those above another Th.
	for f := range families {
		if x == 1 && total > 0 && e.sizes().atLeast(1)*e.hitters[f].flows/total > targetLoad*buckets(a.hitters(f, s.room)) {
			x = 2
		}
	}
	return x
}

// hittersLast is the last step of both states: Th is brought back to the target load
// of what memory the HH parts have now.
func (s *shifter) hittersLast() {
	least := lowLoad
	if s.next.State == Ill {
		least = illLoad
	}
	for _, name := range slices.Sorted(maps.Keys(s.m.edges)) {
		e := s.m.edges[name]
		th := s.now.Th[name]
		low, high := true, false
		for f := range families {
			load := e.hitters[f].flows / max(buckets(s.next.hitters(f, s.room)), 1)
			low = low && load < least
			high = high || load > targetLoad
		}
		if !high && (!low || th == 1) || e.shown(1) == 0 {
			continue
		}
		from := uint32(1)
		if high {
			from = th + 1
		}
		s.next.Th[name] = s.threshold(e, th, &s.next, from)
		if s.next.Th[name] != th {
			s.because("HH part of " + name + " comes to the target load by Th")
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
		need, load := needed(hl.flows), hl.flows/buckets(p.HL)
		switch {
		case !hl.decoded: // more than before in any case: it was not enough
			p.HL = min(max(need, (p.HL+p.HL/4+1)|1), odd(r.Down))
			s.because("HL part was not decoded: it grows")
		case load < lowLoad && p.HL > r.Reserve:
			p.HL = max(need, r.Reserve)
			s.because("HL part is filled below 60 %: it shrinks")
		case load > targetLoad && p.HL < odd(r.Down):
			p.HL = min(need, odd(r.Down))
			s.because("HL part is filled above 70 %: it grows")
		}
	}
}

// turnHealthy is the turn from ill to healthy.
func (s *shifter) turnHealthy() {
	s.because("the HL parts can hold all victims: the network is healthy")
	s.next.State, s.next.Tl, s.next.Sample = Healthy, 1, 0
	for f := range families {
		n, deviation := s.victims(f) // a part that is overfull costs two epochs
		s.next.Parts[f] = Parts{HL: min(max(needed(n+2*deviation), s.room[f].Reserve), odd(s.room[f].Down))}
	}
}

// turnIll is the turn from healthy to ill. Tl becomes what the HL part holds when victims are of the
// sizes that flows are. The paper begins at Th, which leaves much of the part empty and takes a second
// decision.
func (s *shifter) turnIll() {
	s.because("the HL parts cannot hold all victims at a load that lasts: the network is ill")
	s.next.State = Ill
	s.next.Sample = Sampled
	all := s.sizes()
	tl := uint32(2)
	for f := range families {
		r := &s.room[f]
		s.next.Parts[f] = Parts{LL: r.IllLL, HL: r.IllHL}
		n := s.m.hl[f].most() // a part that is overfull once more costs two epochs
		if n <= 0 {
			continue
		}
		s.next.Sample = min(s.next.Sample, rate(Sampled*targetLoad*buckets(r.IllLL)/n))
		if flows := all.atLeast(1); flows > 0 {
			tl = max(tl, all.smallest(flows*targetLoad*buckets(r.IllHL)/n, 2))
		}
	}
	s.next.Tl = tl
}

// sizes is the distribution of all flows' sizes.
func (s *shifter) sizes() tail {
	var sizes, weights []float64
	for _, name := range slices.Sorted(maps.Keys(s.m.edges)) {
		t := s.m.edges[name].sizes()
		for i, x := range t.sizes {
			w := t.flows[i]
			if i+1 < len(t.flows) {
				w -= t.flows[i+1]
			}
			sizes, weights = append(sizes, x), append(weights, w)
		}
	}
	return newTail(sizes, weights)
}

func rate(x float64) uint32 { return uint32(min(max(math.Ceil(x), 1), Sampled)) }

// lightFailed is step 1 of §4.3.2 for the LL part: fewer are sampled.
func (s *shifter) lightFailed() bool {
	if s.m.ll[0].decoded && s.m.ll[1].decoded {
		return false
	}
	s.next.Sample = min(s.sampleRate(), max(s.now.Sample*7/8, 1))
	s.because("LL part was not decoded: the sample rate goes down")
	return true
}

// sampleRate is the one for the target load. A higher Tl makes more flows light.
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
	if !s.m.hl[0].decoded || !s.m.hl[1].decoded {
		s.next.Tl = max(s.lowThreshold(s.now.Tl+1), s.now.Tl+1)
		s.because("HL part was not decoded: Tl goes up")
		s.next.Sample = min(s.sampleRate(), s.now.Sample)
		return
	}
	low, high := s.loads(s.m.hl, illLoad, tooHigh, func(p Parts) int { return p.HL })
	switch {
	case high:
		s.next.Tl = s.lowThreshold(s.now.Tl + 1)
		s.because("HL part is filled almost to what can be decoded: Tl goes up")
	case low:
		s.next.Tl = min(s.lowThreshold(2), s.now.Tl)
		if s.next.Tl != s.now.Tl {
			s.because("HL part has room: Tl goes down")
		}
	}
	if low, high = s.loads(s.m.ll, illLoad, targetLoad, func(p Parts) int { return p.LL }); low || high || s.next.Tl > s.now.Tl {
		if s.next.Sample = s.sampleRate(); s.next.Sample != s.now.Sample {
			s.because("LL part is brought to the target load by the sample rate")
		}
	}
}

// loads says whether all parts are below the least load, or any above most.
func (s *shifter) loads(flows [families]count, least, most float64, part func(Parts) int) (low, high bool) {
	low = true
	for f := range families {
		load := flows[f].flows / max(buckets(part(s.now.Parts[f])), 1)
		low = low && load < least
		high = high || load > most
	}
	return low, high
}

// lowThreshold returns the smallest Tl, from least on, with which the HLs fill their part
// to the target load, if victims of at least Tl packets are HLs. The victims' sizes are put to
// the scale of the HLs that there were; when there are none, all flows' sizes serve.
func (s *shifter) lowThreshold(least uint32) uint32 {
	tl := least
	for f := range families {
		n := s.m.hl[f].flows
		limit := targetLoad * buckets(s.now.Parts[f].HL)
		var sizes, weights []float64
		for _, v := range s.m.victims {
			if v.family == f {
				sizes, weights = append(sizes, v.size), append(weights, v.weight)
			}
		}
		t := newTail(sizes, weights)
		base := t.atLeast(s.now.Tl)
		if base == 0 && n > 0 {
			t = s.sizes()
			base = t.atLeast(s.now.Tl)
		}
		if n > 0 && base > 0 {
			limit *= base / n
		}
		tl = max(tl, t.smallest(limit, least))
	}
	return tl
}

// order keeps Tl <= Th, and both in range.
func (s *shifter) order() {
	s.next.Tl = min(max(s.next.Tl, 1), maxThreshold)
	for name, th := range s.next.Th {
		s.next.Th[name] = min(max(th, s.next.Tl, 1), maxThreshold)
	}
}
