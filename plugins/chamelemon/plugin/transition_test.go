// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/netsketch/netsketch/sketch/estimate"

	"github.com/netsketch/netsketch/settings"
)

// near is a network with a number of victims near the turn, as its epochs would be measured.
type near struct {
	room    [families]Room
	victims int     // victims among the 50,000 flows, more or less in each epoch
	heavy   float64 // share of the victims that has at least two packets
	r       *rand.Rand
}

// measure simulates the measurements of an epoch under an attention. An encoder is decoded up to a
// load of about 0.815, sharp to 1 % at this number of buckets; linear counting and the sample have
// their statistical errors.
func (n *near) measure(a *Attention) *measured {
	truth := float64(n.victims) + math.Sqrt(float64(n.victims))*n.r.NormFloat64()
	part := func(flows float64, width int) count {
		m := buckets(width)
		if flows <= m*(0.815+0.005*n.r.NormFloat64()) {
			return count{flows: math.Round(flows), decoded: true}
		}
		t := flows / float64(width)
		error := math.Sqrt(math.Exp(t)-t-1) / (t * math.Sqrt(m))
		if m*math.Exp(-t) < 1 {
			return count{flows: flows, high: crowdMargin * flows}
		}
		flows *= 1 + error*n.r.NormFloat64()
		return count{flows: flows, high: flows * (1 + 2*error)}
	}
	sizes := estimate.NewTail([]float64{1, 2, 100}, []float64{50_000 * (1 - n.heavy), 50_000*n.heavy - 500, 500})
	m := &measured{deltas: true, edges: map[string]*edgeState{"a": {hitters: [families]count{{flows: 2000,
		decoded: true}, {decoded: true}}, counted: true, sizes: func() *estimate.Tail { return &sizes },
		candidates: sizes.AtLeast}}}
	m.hl[1], m.ll = count{decoded: true}, [families]count{{decoded: true}, {decoded: true}}
	if a.State == Healthy {
		m.hl[0] = part(truth, a.Parts[0].HL)
		return m
	}
	heavy := truth * n.heavy
	if a.Tl > 2 {
		heavy = truth / 100
	}
	rate := float64(a.Sample) / Sampled
	light := (truth - heavy) * rate
	light = math.Round(light + math.Sqrt(light*(1-rate))*n.r.NormFloat64())
	m.hl[0], m.ll[0] = part(heavy, a.Parts[0].HL), part(light, a.Parts[0].LL)
	for range int(m.hl[0].flows) {
		m.victims = append(m.victims, victimSize{size: 2, weight: 1, heavy: true})
	}
	for range int(m.ll[0].flows) {
		m.victims = append(m.victims, victimSize{size: 1, weight: 1 / rate, sampled: true})
	}
	return m
}

// TestOneState: however many victims there are, the epochs of both time bits come to the same state
// and stay in it, though what they measure differs. From few victims that is healthy up to the load
// that is too high, from many it is ill down to the target load.
func TestOneState(t *testing.T) {
	c := settings.Default[Configuration]()
	room := (&layout{up: [families]int{4096, 1024}, down: [families]int{3072, 768}}).room(&c)
	const settle, epochs = 24, 120
	for _, heavy := range []float64{0.02, 0.45} { // as of CACHE, and of VL2
		for _, from := range []State{Healthy, Ill} {
			for victims := 5500; victims <= 9000; victims += 250 {
				n := &near{room, victims, heavy, rand.New(rand.NewPCG(uint64(victims), uint64(1000*heavy)))}
				first := begin(&c, &room, []string{"a"})
				first.Parts[0].HL = 2500
				if from == Ill {
					first.State, first.Tl, first.Sample = Ill, 2, Sampled/5
					first.Parts = [families]Parts{{room[0].IllLL, room[0].IllHL}, {room[1].IllLL, room[1].IllHL}}
				}
				inForce, last := [2]Attention{first, first}, from
				turns, differ := 0, 0
				for epoch := range epochs {
					now := &inForce[epoch%2]
					next, state, _ := shift(*now, last, n.measure(now), &room)
					if epoch >= settle {
						if state != last {
							turns++
						}
						if inForce[0].State != inForce[1].State {
							differ++
						}
					}
					*now, last = next, state
				}
				want, sure := Healthy, true
				switch load := float64(victims) / buckets(room[0].Down); {
				case load > 0.81 || load > 0.78 && from == Ill:
					want = Ill
				case load > 0.72 || load > 0.68 && from == Ill:
					sure = false // the state may change once, at any time
				}
				if turns > 1 || turns > 0 && sure || differ > 2*turns || sure && last != want {
					t.Errorf("%d victims, %.2f of them heavy, from %s: %s, %d turns, %d epochs in which the two differed", victims,
						heavy, from, last, turns, differ)
				}
			}
		}
	}
}

// TestLiteral: by the paper's rules a decoded part stays as it is above the target load, and Tl
// begins at the lowest Th when the network becomes ill; the product's grow the part, and fill it.
// Th follows the sizes alone, a decoded ill network becomes healthy at the target load by the
// sampled victims alone, and an LL part that was not decoded ends the reconfiguration. Parts that
// are filled below 60 % return to 70 %.
func TestLiteral(t *testing.T) {
	c := settings.Default[Configuration]()
	room := (&layout{up: [families]int{4096, 1024}, down: [families]int{3072, 768}}).room(&c)
	sizes := estimate.NewTail([]float64{1, 10, 100}, []float64{30_000, 15_000, 5000})
	edge := func() *edgeState {
		return &edgeState{hitters: [families]count{{flows: 1500, decoded: true}, {decoded: true}},
			sizes: func() *estimate.Tail { return &sizes }, candidates: func(uint32) float64 { return 1e9 }}
	}
	now := begin(&c, &room, []string{"a", "b"})
	now.Th["a"], now.Th["b"], now.Parts[0].HL = 50, 30, 2501
	m := &measured{edges: map[string]*edgeState{"a": edge(), "b": edge()}, deltas: true,
		hl: [families]count{{flows: 0.75 * buckets(2501), decoded: true}, {decoded: true}},
		ll: [families]count{{decoded: true}, {decoded: true}}}
	if next, _, _ := shift(now, Healthy, m, &room); next.Parts[0].HL <= 2501 {
		t.Errorf("the product's HL part has %d buckets an array", next.Parts[0].HL)
	}
	if next, _ := literal(now, m, &room); next.State != Healthy || next.Parts[0].HL != 2501 {
		t.Errorf("literal: %+v", next)
	}

	m.hl[0] = count{flows: buckets(2000), high: 1.5 * buckets(2000)} // the estimate itself counts
	if next, _ := literal(now, m, &room); next.State != Healthy || next.Parts[0].HL != 2858 {
		t.Errorf("literal: %+v", next)
	}
	m.hl[0] = count{flows: buckets(room[0].Down), high: 1.1 * buckets(room[0].Down)}
	if next, state, _ := shift(now, Healthy, m, &room); state != Ill || next.Tl != maxThreshold { // collisions count
		t.Errorf("%s, Tl %d", state, next.Tl)
	}
	ill, _ := literal(now, m, &room)
	if ill.State != Ill || ill.Tl != 30 || ill.Sample != rate(Sampled*targetLoad*buckets(room[0].IllLL)/buckets(3072)) ||
		ill.Parts[0] != (Parts{room[0].IllLL, room[0].IllHL}) {
		t.Errorf("literal: %+v", ill)
	}

	// 400 sampled victims of 6,000, and HLs outside of the sample, which do not count.
	ill.Sample = Sampled / 15
	m.hl[0], m.ll[0] = count{flows: 5000, decoded: true}, count{flows: 300, decoded: true}
	for i := range 5400 {
		m.victims = append(m.victims, victimSize{size: 40, weight: 1, heavy: i >= 300, sampled: i < 400})
	}
	if next, _ := literal(ill, m, &room); next.State != Healthy || next.Tl != 1 || next.Parts[0].LL != 0 ||
		next.Parts[0].HL != required(400*Sampled/float64(ill.Sample)) {
		t.Errorf("literal: %+v", next)
	}
	m.ll[0].decoded = false
	m.ll[0].flows = 2 * buckets(ill.Parts[0].LL)
	next, _ := literal(ill, m, &room)
	if want := rate(float64(ill.Sample) * targetLoad / 2); next.State != Ill || next.Sample != want ||
		next.Th["a"] != ill.Th["a"] {
		t.Errorf("literal: %+v, expected a sample of %d", next, want)
	}

	testLiteralLoads(t, now, ill, m, &room)

	// An HH part of 70 % at 100 packets: Th follows the sizes, whatever the classifier counts.
	e := m.edges["a"]
	e.hitters[0] = count{flows: 9000}
	if next, _ := literal(now, m, &room); next.Th["a"] != 101 || next.Th["b"] != 30 {
		t.Errorf("literal: Th %v", next.Th)
	}
}

// testLiteralLoads: by the paper's rules, decoded parts change if they are filled below 60 %, and
// HH parts also above 70 %. A full HL part of an ill network raises Tl, and not the sample rate.
func testLiteralLoads(t *testing.T, healthy, ill Attention, m *measured, room *[families]Room) {
	t.Helper()
	light := targetLoad * buckets(ill.Parts[0].LL)
	for _, c := range []struct {
		now        Attention
		hh, hl, ll float64 // load factors of the parts
		decoded    bool    // the HL part
		hlPart     int
		th, tl     uint32
		sample     float64 // in units of the rate before
	}{
		{healthy, 0.61, 0.61, 0, true, 2501, 50, 1, 0},
		{healthy, 0.61, 0.59, 0, true, required(0.59 * buckets(2501)), 101, 1, 0},
		{healthy, 0.61, 0.05, 0, true, room[0].Reserve, 11, 1, 0},
		{healthy, 0.59, 0.61, 0, true, 2501, 101, 1, 0},
		{healthy, 0.71, 0.61, 0, true, 2501, 101, 1, 0},
		{ill, 0.61, 0.61, 0.61, true, ill.Parts[0].HL, 50, 30, 1},
		{ill, 0.61, 0.61, 0.59, true, ill.Parts[0].HL, 50, 30, targetLoad / 0.59},
		{ill, 0.61, 0.59, 0.61, true, ill.Parts[0].HL, 50, 41, 1},
		{ill, 0.61, 0.9, 0.59, false, ill.Parts[0].HL, 50, 41, 1},
	} {
		c.now.Th = map[string]uint32{"a": 50}
		e := *m.edges["a"]
		e.hitters[0] = count{flows: c.hh * buckets(c.now.hitters(0, room)), decoded: true}
		x := &measured{edges: map[string]*edgeState{"a": &e}, deltas: true,
			hl: [families]count{{flows: c.hl * buckets(c.now.Parts[0].HL), decoded: c.decoded}, {decoded: true}},
			ll: [families]count{{flows: c.ll * buckets(c.now.Parts[0].LL), decoded: true}, {decoded: true}}}
		for range int(light) { // victims of 40 packets, more than any part holds
			x.victims = append(x.victims, victimSize{size: 40, weight: 1, sampled: true})
		}
		next, _ := literal(c.now, x, room)
		if want := rate(c.sample * float64(c.now.Sample)); c.now.State == Ill && next.Sample != want ||
			next.State != c.now.State || next.Parts[0].HL != c.hlPart || next.Th["a"] != c.th || next.Tl != c.tl {
			t.Errorf("%+v: %+v, want a sample of %d", c, next, want)
		}
	}
}

// TestSampleRate: when Tl goes up, heavy victim flows become light, and the sample rate goes down
// for them at once: the LL part stays at the target load.
func TestSampleRate(t *testing.T) {
	c := settings.Default[Configuration]()
	room := (&layout{up: [families]int{4096, 1024}, down: [families]int{3072, 768}}).room(&c)
	sizes := newSizes()
	now := begin(&c, &room, []string{"a"})
	now.State, now.Tl, now.Sample = Ill, 2, Sampled/4
	for f, r := range room {
		now.Parts[f] = Parts{LL: r.IllLL, HL: r.IllHL}
	}
	hl, ll := 0.79*buckets(room[0].IllHL), targetLoad*buckets(room[0].IllLL)
	m := &measured{edges: map[string]*edgeState{"a": {hitters: [families]count{{flows: 2100, decoded: true},
		{decoded: true}}, counted: true, sizes: func() *estimate.Tail { return &sizes }, candidates: sizes.AtLeast}},
		deltas: true, hl: [families]count{{flows: hl, decoded: true}, {decoded: true}},
		ll:      [families]count{{flows: ll, decoded: true}, {decoded: true}},
		victims: []victimSize{{size: 1, weight: 4 * ll}, {size: 2, weight: hl / 2}, {size: 100, weight: hl / 2}}}
	next, state, _ := shift(now, Ill, m, &room)
	want := float64(now.Sample) * 4 * ll / (4*ll + hl/2)
	if state != Ill || next.Tl != 3 || math.Abs(float64(next.Sample)-want) > 1 {
		t.Errorf("%s, Tl %d, sample %d; expected a Tl of 3 and a sample of %.0f", state, next.Tl, next.Sample, want)
	}
	// A part that was not decoded gets a higher Tl, whatever its estimate.
	m.hl[0] = count{flows: hl / 2, high: hl / 2}
	if next, _, _ := shift(now, Ill, m, &room); next.Tl != 3 {
		t.Errorf("Tl is %d after a decoding that failed at a Tl of 2", next.Tl)
	}
}

// newSizes returns the sizes of 50,000 flows.
func newSizes() estimate.Tail {
	return estimate.NewTail([]float64{1, 2, 100}, []float64{30_000, 15_000, 5000})
}

// TestExpect: if an HH part was not decoded, the HL part of a healthy network grows for the
// expected victims at once, and Th leaves room for it; it does not shrink for fewer.
func TestExpect(t *testing.T) {
	c := settings.Default[Configuration]()
	room := (&layout{up: [families]int{4096, 1024}, down: [families]int{3072, 768}}).room(&c)
	sizes := estimate.NewTail([]float64{1, 10, 100}, []float64{6000, 3000, 1000})
	now := begin(&c, &room, []string{"a"})
	now.Parts[0].HL = 973 // of 2,000 victims
	m := &measured{edges: map[string]*edgeState{"a": {hitters: [families]count{{flows: 10_000}, {decoded: true}},
		sizes: func() *estimate.Tail { return &sizes }, candidates: sizes.AtLeast}}, expected: [families]float64{4000}}
	for _, tc := range []struct {
		expected float64
		hl       int
	}{{4000, 1905}, {1000, 973}, {0, 973}, {20_000, 3071}} {
		m.expected[0] = tc.expected
		next, state, _ := shift(now, Healthy, m, &room)
		if th := next.Th["a"]; next.Parts[0].HL != tc.hl || state != Healthy ||
			sizes.AtLeast(th) > targetLoad*buckets(next.hitters(0, &room)) {
			t.Errorf("%v victims expected: %+v, %s, Th %d", tc.expected, next.Parts[0], state, th)
		}
	}
}
