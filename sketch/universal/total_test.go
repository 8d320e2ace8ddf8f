// SPDX-License-Identifier: Apache-2.0

package universal

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/netsketch/netsketch/sketch/flow"
)

// drawn are the packets of sources in an epoch.
type drawn struct {
	sources []uint32
	sizes   []int
}

func (d *drawn) estimate(t *testing.T, l Layout) *Estimate {
	t.Helper()
	return d.sketch(t, l).Reading().Estimate()
}

// sketch counts the packets.
func (d *drawn) sketch(t *testing.T, l Layout) *Sketch {
	t.Helper()
	s := measure(t, l, nil)
	k := flow.Key{Mask: flow.Src}
	for i, n := range d.sizes {
		binary.BigEndian.PutUint32(k.Src[:], d.sources[i])
		for range n {
			s.Update(&k)
		}
	}
	return s
}

// draw draws the packets of n sources: one for each with shape 0, otherwise Pareto-distributed with
// this shape.
func draw(random *rand.Rand, n int, shape float64) drawn {
	d := drawn{make([]uint32, n), make([]int, n)}
	for i := range n {
		d.sources[i], d.sizes[i] = random.Uint32(), 1
		if shape > 0 {
			d.sizes[i] = int(min(math.Pow(1-random.Float64(), -1/shape), 20_000))
		}
	}
	return d
}

// change returns another epoch, and the total change. Every tenth source is replaced, or all change
// a little, or 50 of them grow.
func (d *drawn) change(random *rand.Rand, kind string) (after drawn, total float64) {
	after = drawn{slices.Clone(d.sources), slices.Clone(d.sizes)}
	for i, n := range d.sizes {
		switch {
		case kind == "replaced" && i%10 == 0:
			after.sources[i] = random.Uint32()
			total += 2 * float64(n)
		case kind == "noise":
			after.sizes[i] = max(0, n+int(random.NormFloat64()*math.Sqrt(float64(n))))
		case kind == "growth" && i%(1+len(d.sizes)/50) == 0:
			after.sizes[i] *= 3
		}
		total += math.Abs(float64(after.sizes[i] - n))
	}
	return after, total
}

// TestTotalChange: the total change is off by at most four of its standard deviations, and nearly
// always by less than two, whatever traffic changes in whichever way. The deviation is small.
func TestTotalChange(t *testing.T) {
	within, runs := 0, 0
	for name, l := range map[string]Layout{"univmon": src1M, "univmon-300k": src300K} {
		for _, n := range []int{1000, 10_000, 100_000, 1_000_000} {
			for _, shape := range []float64{0, 1.4, 1, 0.8} {
				for _, kind := range []string{"replaced", "noise", "growth"} {
					if n > 10_000 && testing.Short() || n > 100_000 && (shape > 0 || kind != "replaced") {
						continue
					}
					random := rand.New(rand.NewPCG(uint64(n), uint64(10*shape)))
					before := draw(random, n, shape)
					after, want := before.change(random, kind)
					c, err := Compare(before.estimate(t, l), after.estimate(t, l))
					if err != nil {
						t.Fatal(err)
					}
					off := math.Abs(c.Total()-want) / c.Deviation()
					if !c.Known() || off > 4 || c.Deviation() > 0.15*want {
						t.Errorf("%s, %d flows of shape %v, %s: total change %.0f ± %.0f (known %v), want %.0f", name, n, shape,
							kind, c.Total(), c.Deviation(), c.Known(), want)
					}
					if runs++; off < 2 {
						within++
					}
				}
			}
		}
	}
	t.Logf("%d of %d total changes are within two deviations", within, runs)
	if within < runs*9/10 {
		t.Errorf("%d of %d total changes are within two deviations", within, runs)
	}
}

// TestTooManyChanges: a total change that the last level cannot count is unknown, and so is one
// beyond which the sketch could not tell the flows of its cells apart.
func TestTooManyChanges(t *testing.T) {
	few := src300K
	few.Levels = wideLevels
	random := rand.New(rand.NewPCG(1, 2))
	before := draw(random, 400_000, 0)
	quiet, _ := before.change(random, "growth")
	other := draw(random, 400_000, 0)
	e := before.estimate(t, few)
	if c, err := Compare(e, other.estimate(t, few)); err != nil || c.Known() {
		t.Errorf("800,000 flows changed: known %v, %.0f ± %.0f, %v", c.Known(), c.Total(), c.Deviation(), err)
	}
	c, err := Compare(e, quiet.estimate(t, few))
	if err != nil || !c.Known() || math.Abs(c.Total()-100) > 10 {
		t.Errorf("50 of 400,000 flows grew by 100: known %v, %.0f ± %.0f, %v", c.Known(), c.Total(), c.Deviation(), err)
	}
}

// TestSharedCells: two known flows that share two of three cells do not take the packets of an
// unknown flow in the third cell of one of them.
func TestSharedCells(t *testing.T) {
	l := Layout{Key: flow.Src, Levels: 2, Rows: 3, Columns: 32, Ways: 2, Slots: 64}
	at := func(i uint32) (flow.Key, estimated) {
		k := flow.Key{Mask: flow.Src}
		binary.BigEndian.PutUint32(k.Src[:], i)
		h := hashOf(&k, l.Key)
		r := Reading{layout: l}
		return k, r.locate(candidate{key: k, hash: h, level: int32(levelOf(h, l.Levels))})
	}
	shared := func(a, b *estimated) (rows []int) {
		for row := range l.Rows {
			if a.level == b.level && a.cells[row] == b.cells[row] {
				rows = append(rows, row)
			}
		}
		return rows
	}
	find := func(ok func(f *estimated) bool) flow.Key {
		for i := uint32(2); ; i++ {
			if k, f := at(i); ok(&f) {
				return k
			}
		}
	}
	first, one := at(1)
	second := find(func(f *estimated) bool { return slices.Equal(shared(&one, f), []int{0, 1}) })
	_, two := at(binary.BigEndian.Uint32(second.Src[:]))
	third := find(func(f *estimated) bool { return len(shared(&one, f)) == 0 && slices.Equal(shared(&two, f), []int{2}) })
	s := measure(t, l, nil)
	send := func(k flow.Key, n int) {
		for range n {
			s.Update(&k)
		}
	}
	send(first, 10)
	send(second, 20)
	before := s.Reading().Clone()
	send(third, 126)
	after := s.Reading().Clone()
	after.keys = slices.DeleteFunc(after.keys, func(c candidate) bool { return c.key == third })
	c, err := Compare(before.Estimate(), after.Estimate())
	if err != nil {
		t.Fatal(err)
	}
	if found := c.Above(1); len(found) > 0 {
		t.Errorf("flows that did not change: %v", found)
	}
	if math.Abs(c.Total()-126) > 3 {
		t.Errorf("total change %.1f, want 126", c.Total())
	}
}

// TestLargeCells: cells of up to a quarter of the longest period give the sum of the sizes, and
// larger ones say that they do not.
func TestLargeCells(t *testing.T) {
	const rows, columns, most = 3, 64, mostPeriod / 4
	for value, known := range map[int32]bool{most - 1: true, 1 - most: true, most: false, -most: false} {
		lv := level{rest: make([]int32, rows*columns)}
		for row := range rows {
			lv.rest[row*columns+row] = value
		}
		sum, spread := lv.sumFlows(smallFlows, nil, rows)
		if math.IsInf(spread, 1) == known || known && math.Abs(sum-(most-1)) > 2*spread {
			t.Errorf("a flow of %d packets: %.0f ± %.0f", value, sum, spread)
		}
	}
}
