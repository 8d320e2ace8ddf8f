// SPDX-License-Identifier: Apache-2.0

package universal

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/netsketch/netsketch/sketch/flow"
)

// equal fails unless a value is a number, up to rounding.
func equal(t *testing.T, what string, got, want float64) {
	t.Helper()
	if got != want && !(math.Abs(got-want) <= 1e-9*(1+math.Abs(want))) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestMedians: a size, a sum of squares and an uncertainty are medians over three to five rows, by
// hand.
func TestMedians(t *testing.T) {
	for _, c := range []struct {
		rows              int
		cells             []int32 // two columns a row; the flow is in the first one
		negative          uint8
		size              int32
		moment, one, none float64 // sum of squares; mean square of the second column, and of both
	}{
		{3, []int32{5, 1, -1, 2, 9, 4}, 0, 5, 26, 4, 13},
		{3, []int32{5, 1, -1, 2, 9, 4}, 0b100, -1, 26, 4, 13},
		{4, []int32{1, 3, 9, 2, 2, 1, 100, 7}, 0, 5, (10 + 85) / 2., (4 + 9) / 2., 95 / 4.},
		{5, []int32{9, 1, 1, 5, 100, 2, 2, 4, 50, 3}, 0, 9, 82, 9, 41},
		{5, []int32{9, 1, 1, 5, 100, 2, 2, 4, 50, 3}, 0b10101, -9, 82, 9, 41},
	} {
		lv := &level{rest: c.cells}
		f := &estimated{negative: c.negative}
		one, all := make([]uint8, len(c.cells)), make([]uint8, len(c.cells))
		for row := range c.rows {
			f.cells[row] = int32(2 * row)
			one[2*row] = 1
			all[2*row], all[2*row+1] = 1, 2
		}
		rows := float64(c.rows)
		equal(t, "size", float64(lv.median(f, c.rows)), float64(c.size))
		equal(t, "moment", moment(c.cells, c.rows), c.moment)
		equal(t, "a flow", lv.uncertainty(make([]estimated, 1), one, c.rows), math.Sqrt(c.one*2*1.5/rows))
		equal(t, "no flow", lv.uncertainty(nil, make([]uint8, len(c.cells)), c.rows), math.Sqrt(c.none*1.5/rows))
		equal(t, "no free cell", lv.uncertainty(make([]estimated, 4), all, c.rows), 0)
		lv.noise = 1000
		equal(t, "noise", lv.uncertainty(nil, one, c.rows), 1000)
	}
}

// TestDeviationByHand: a listed size has the deviation of the noise and of the bias by which a flow
// is listed.
func TestDeviationByHand(t *testing.T) {
	sizes := []int32{10, 14, 20, 30}
	for _, c := range []struct {
		sizes       []int32
		size        int32
		error, bias float64
	}{
		{sizes, 30, 4, 16 * (math.Log(2./2)/4 + 1./30)}, {sizes, 22, 4, 16 * (math.Log(3./2)/4 + 1./22)},
		{sizes, -22, 4, 16 * (math.Log(3./2)/4 + 1./22)}, {sizes, 22, 3.5, 12.25 * (math.Log(3./2)/4 + 1./22)},
		{sizes, 14, 4, 16 * (math.Log(5./4)/4 + 1./14)}, // not below the smallest size
		{sizes, 12, 4, 16 * (math.Log(4./3)/4 + 1./12)}, // from 12 to 16, because 8 is below the smallest
		{nil, 12, 4, 16 * (1. / 12)}, {sizes, 30, 0, 0}, {sizes, 3, 100, 3}, {sizes, 0, 4, 0}, {sizes, 1, 0.5, 0.25},
	} {
		lv := &level{sizes: c.sizes, error: c.error}
		equal(t, "deviation", lv.deviation(c.size), math.Hypot(c.error, c.bias))
	}
}

// TestComplete: the size from which nearly all flows are known is one above the counts in the slots
// of both epochs, but not above the limit. It is never below four times the noise.
func TestComplete(t *testing.T) {
	slots := func(counts ...uint32) table { return table{{counts}} }
	for _, c := range []struct {
		table, earlier table
		noise, limit   float64
		want           float64
	}{
		{slots(3, 3), nil, 0, 100, 4}, {nil, slots(7, 7), 0, 100, 8}, {slots(3, 3), slots(7, 7), 0, 100, 8},
		{slots(7, 7), slots(3, 3), 0, 100, 8}, {slots(7, 7), nil, 0, 5, 5}, {slots(7, 7), nil, 3, 5, 12},
		{slots(0, 0), nil, 0, 100, 1}, {slots(99, 99), nil, 0, 1000, 102}, {slots(0, 0), nil, 0, 1, 1},
		{slots(append(make([]uint32, 19), 9)...), nil, 0, 100, 1}, // 19 of 20 are nearly all
	} {
		e := &Estimate{reading: &Reading{table: c.table, earlier: c.earlier}, levels: []level{{noise: c.noise}}}
		equal(t, "size", e.complete(0, c.limit), c.want)
	}
}

// TestSumOfCells: flows of at least the size are added up, the cells without them give the others,
// and the deviation is that of the cells without the variance of the flows.
func TestSumOfCells(t *testing.T) {
	const rows, columns = 3, 16
	cells := make([]int32, rows*columns)
	flows := []estimated{{size: -50}, {size: 2}, {size: 3}}
	for row := range rows {
		for i := range flows {
			flows[i].cells[row] = int32(row*columns + 5*row + i)
		}
		cells[row*columns+14], cells[row*columns+15] = 1, -4
		cells[row*columns+5*row] = 9 // beside the large flow
	}
	lv := &level{rest: cells}
	rest := make([]int32, 0, rows*columns) // by hand: no cell of the large flow, and the small ones in theirs
	for row := range rows {
		for c := range columns {
			switch v := cells[row*columns+c]; c {
			case 5 * row:
			case 5*row + 1:
				rest = append(rest, v+2)
			case 5*row + 2:
				rest = append(rest, v+3)
			default:
				rest = append(rest, v)
			}
		}
	}
	sum, variance, _ := addUp(rest, 256, func(t float64) float64 { return 2 / (256 * math.Pow(math.Sin(t/2), 2)) })
	squares := 0.0
	for _, v := range rest {
		squares += float64(v*v) / float64(len(rest))
	}
	got, spread := lv.sumFlows(4, flows, rows)
	equal(t, "sum", got, 50+sum*columns)
	equal(t, "deviation of the sum", spread, columns*math.Sqrt(variance-squares/(rows*columns)))
	n, variance, fill := addUp(rest, 256, func(float64) float64 { return 4. / 256 })
	got, spread, share := lv.countFlows(4, flows, rows)
	equal(t, "flows", got, 1+n*columns)
	equal(t, "deviation of the flows", spread, columns*math.Sqrt(variance-n/(rows*columns)))
	equal(t, "share", share, fill)
	equal(t, "no flows", spreadOf(0, 3, columns), 0)
	equal(t, "rounding", spreadOf(1e-9, 0, columns), 0.5)
}

// TestFanInsByHand: the sources of a destination follow from its flows in the sample.
func TestFanInsByHand(t *testing.T) {
	for _, c := range []struct {
		name           string
		sources, flows int     // in the sample, and flows of a source
		even, atLeast  float64 // weight of a flow
		found          bool
		each, more     float64 // flows of a source; the same with the pairs that chance adds
	}{
		{"all known", 4, 2, 1, 4, true, 2, 8 / (4 - math.Sqrt(5))},
		{"one too few", 4, 2, 1, 4.1, false, 0, 0},
		{"below 1", 4, 2, 0.5, 4, true, 2, 8 / (4 - math.Sqrt(5))},
		{"one source", 1, 3, 1, 1, true, 3, 3},
		{"sampled", 100, 1, 3, 299, true, 1, flowsEach(100, 99, 1, 300)},
		{"pairs", 100, 2, 3, 100, true, flowsEach(200, 100, 100, 600),
			flowsEach(200, 100-math.Sqrt(101), 100+math.Sqrt(101), 600)},
		{"may be large by chance", 3, 1, 10, 22, false, 0, 0},
		{"large enough", 12, 1, 2, 20, true, 1, flowsEach(12, 11, 1, 24)},
	} {
		e := &Estimate{layout: Layout{Key: flow.FiveTuple}, reading: &Reading{}}
		for i := range c.sources * c.flows {
			k := flow.Key{Mask: flow.FiveTuple, SrcPort: uint16(i)}
			binary.BigEndian.PutUint32(k.Src[:], uint32(i%c.sources))
			e.sample = append(e.sample, Weighted{Flow: Flow{Key: k}, even: c.even})
		}
		found := e.FanIns(c.atLeast)
		if len(found) > 0 != c.found {
			t.Errorf("%s: %+v", c.name, found)
		}
		for _, f := range found {
			n, weight := float64(c.sources*c.flows), math.Max(c.even, 1)
			sources := math.Max(n*weight/c.each, float64(c.sources))
			chance := math.Sqrt(n*weight*(weight-1)) / c.each
			if f.Seen != c.sources || f.Flows != n*weight {
				t.Errorf("%s: %+v", c.name, f)
			}
			equal(t, c.name+", sources", f.Sources, sources)
			equal(t, c.name+", deviation", f.Deviation, math.Hypot(chance, n*weight/c.each*(c.more/c.each-1)))
		}
	}
	e := &Estimate{layout: Layout{Key: flow.FiveTuple}, reading: &Reading{}}
	for i := range 60 { // ten destinations of 1 to 10 sources, and one of 5
		k := flow.Key{Mask: flow.FiveTuple}
		n := int(math.Sqrt(float64(8*i+1))+1) / 2
		binary.BigEndian.PutUint32(k.Src[:], uint32(i))
		binary.BigEndian.PutUint32(k.Dst[:], uint32(n*7%11))
		e.sample = append(e.sample, Weighted{Flow: Flow{Key: k}, even: 1})
	}
	found := e.FanIns(1)
	if len(found) != 11 || !slices.IsSortedFunc(found, func(a, b FanIn) int {
		return cmp.Or(cmp.Compare(b.Sources, a.Sources), a.Destination.Compare(b.Destination))
	}) {
		t.Errorf("%d destinations, not the most sources first: %+v", len(found), found)
	}
	for _, e := range []*Estimate{{layout: Layout{Key: flow.Src}, reading: &Reading{}, sample: make([]Weighted, 1)},
		{layout: Layout{Key: flow.FiveTuple}, reading: &Reading{difference: true}, sample: make([]Weighted, 1)}} {
		if e.FanIns(0) != nil {
			t.Error("a sketch of sources, or a difference, has fan-ins")
		}
	}
}

// TestCapture: a level contributes flows of a size if the size exceeds four times the level's
// noise, and if the level's slots keep such a flow with a probability of at least one half. The
// last level does not need the second condition.
func TestCapture(t *testing.T) {
	empty := [maxWays][]uint32{{0, 0}}
	e := &Estimate{reading: &Reading{table: table{empty, {{5, 5}}, {{7, 7}}}},
		levels: []level{{noise: 1}, {noise: 0.5}, {noise: 0.25}}}
	classes := e.capture(8)
	for class, want := range []captured{{0, 0}, {0, 4}, {0, 4}, {0, 4}, {0.5, 5}, {0.5 + 0.125, 7}, {0.75, 7},
		{0.75 + 0.125, 7}, {1, 7}} {
		if classes[class] != want {
			t.Errorf("flows of %d packets: %+v, want %+v", class, classes[class], want)
		}
	}
	if len(classes) != 9 || XLogX(8) != 24 || XLogX(0) != 0 || XLogX(-1) != 0 {
		t.Errorf("%d classes, x·log2 x of 8, 0 and -1: %v, %v, %v", len(classes), XLogX(8), XLogX(0), XLogX(-1))
	}
}

// TestSlots: a reading has the keys of all slots by level and hash, and the slots' counts by level
// and way, ascending. A sum has those of one sketch.
func TestSlots(t *testing.T) {
	l := small
	l.Slots = 2
	first, second := zipfPackets(5, 3000, 300, 1.1), zipfPackets(6, 3000, 300, 1.1)
	a, b := measure(t, l, first), measure(t, l, second)
	sum, err := Sum([]*Reading{a.Reading(), b.Reading()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Merge(b); err != nil {
		t.Fatal(err)
	}
	r := a.Reading()
	if !slices.Equal(sum.keys, r.keys) || !reflect.DeepEqual(sum.table, r.table) || !slices.Equal(sum.cells, r.cells) {
		t.Error("the sum of two readings is not that of the merged sketches")
	}
	if !slices.IsSortedFunc(r.keys, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.level, b.level), cmp.Compare(a.hash, b.hash))
	}) {
		t.Error("keys are not by level and hash")
	}
	keys := 0
	for level := range l.Levels {
		for way := range l.Ways {
			var counts []uint32
			for i := range l.Slots {
				slot := a.slot((level*l.Ways+way)*l.Slots+i, l.Words())
				if counts = append(counts, slot[wordCount]); slot[wordCount] > 0 {
					keys++
				}
			}
			if slices.Sort(counts); !slices.Equal(counts, r.table[level][way]) {
				t.Errorf("level %d, way %d: %v, want %v", level, way, r.table[level][way], counts)
			}
		}
	}
	if len(r.keys) != keys || keys < 20 {
		t.Errorf("%d keys, want %d", len(r.keys), keys)
	}
	before := b.Reading()
	if err := sum.Subtract(before); err != nil || !reflect.DeepEqual(sum.earlier, before.table) {
		t.Errorf("a difference lacks the counts of the slots before: %v", err)
	}
	if err := sum.Subtract(before); !errors.Is(err, ErrMismatch) {
		t.Errorf("a difference is subtracted from: %v", err)
	}
	if _, err := Sum(nil, nil); !errors.Is(err, ErrMismatch) {
		t.Errorf("a sum of nothing: %v", err)
	}
	other := first[0].Key // the fields of another flow
	other.Mask = flow.Src
	if f := r.Estimate().Flow(other); f != (Flow{Key: other}) {
		t.Errorf("a key with other fields: %+v", f)
	}
}

// TestSplit: two flows that share two of three cells have their own sizes, within a packet.
func TestSplit(t *testing.T) {
	for _, negative := range []uint8{0, 0b001, 0b011, 0b100, 0b101} { // of the second flow
		for _, sizes := range [][2]int32{{10, 20}, {200, 10}, {-7, 50}} {
			flows := []estimated{{cells: [maxRows]int32{0, 2, 4}}, {cells: [maxRows]int32{0, 2, 5}, negative: negative}}
			lv := &level{rest: make([]int32, 6)}
			for i := range flows {
				flows[i].size = sizes[i]
				flows[i].addTo(lv.rest, 3)
				flows[i].size = 0
			}
			e := &Estimate{layout: Layout{Rows: 3}}
			users := lv.users(flows, 3)
			e.peel(lv, flows)
			e.split(lv, flows, users)
			if max(flows[0].size-sizes[0], sizes[0]-flows[0].size, flows[1].size-sizes[1], sizes[1]-flows[1].size) > 1 {
				t.Errorf("signs %b: flows of %v packets have %d and %d", negative, sizes, flows[0].size, flows[1].size)
			}
		}
	}
}

// TestPeel: sizes of flows in crowded cells converge over several rounds. At least as many are
// exact as when this test was written.
func TestPeel(t *testing.T) {
	const flows, columns, rows = 12, 16, 3
	exact := 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		lv := &level{rest: make([]int32, rows*columns)}
		found, sizes := make([]estimated, flows), make([]int32, flows)
		for i := range found {
			f := &found[i]
			f.hash, f.negative = uint32(i), uint8(r.IntN(8))
			for row := range rows {
				f.cells[row] = int32(row*columns + r.IntN(columns))
			}
			f.size = int32(math.Exp(r.Float64() * 9))
			sizes[i] = f.size
			f.addTo(lv.rest, rows)
			f.size = 0
		}
		e := &Estimate{layout: Layout{Rows: rows}}
		e.peel(lv, found)
		for i := range found {
			if found[i].size == sizes[i] {
				exact++
			}
		}
	}
	if exact < 2219 {
		t.Errorf("%d of %d sizes are exact", exact, 200*flows)
	}
}

// TestTotalByHand: strata whose cells do not give the sum have large flows, which are known, and as
// much of small ones as the strata below them.
func TestTotalByHand(t *testing.T) {
	const rows, columns = 3, 16
	sizes := [][]int32{{50}, {8, -30}, {4, 20}}
	e := &Estimate{layout: Layout{Rows: rows}, reading: &Reading{table: table{{{9, 9}}, {{5, 5}}, {{0, 0}}}}}
	for i, noise := range []float64{1, 1.25, 0} {
		e.levels = append(e.levels, level{rest: make([]int32, rows*columns), noise: noise})
		lv := &e.levels[i]
		lv.moment = []float64{2600, 1000, 16 + 400}[i]
		for _, size := range sizes[i] {
			e.flows = append(e.flows, estimated{candidate: candidate{level: int32(i)}, size: size})
		}
	}
	e.levels[2].counted = true
	// Flows of the deeper strata are all known if they have 6 packets or more; flows of any stratum,
	// if they have 10 or more.
	second := (8 + 30.) + 4
	sum := (4 + 20) + second + 50 + (second - 30) + 4
	variance := 1000 - 8*8 - 30*30 + 2*1.25*1.25 + 16
	variance = 4*variance + 2600 - 50*50 + 1 + (1000 - 30*30) + 16
	got, deviation := e.total()
	equal(t, "sum", got, sum)
	equal(t, "deviation", deviation*deviation, variance)
	e.levels[2].counted = false
	got, deviation = e.total()
	equal(t, "unknown sum", got, 0)
	equal(t, "unknown deviation", deviation, math.Inf(1))
}

// TestKeysByHand: keys are ordered by level, hash and value. Lists are merged in this order, each
// hash once.
func TestKeysByHand(t *testing.T) {
	key := func(level int32, hash uint32, port uint16) candidate {
		return candidate{key: flow.Key{Mask: flow.FiveTuple, SrcPort: port}, hash: hash, level: level}
	}
	keys := []candidate{key(0, 7, 1), key(0, 9, 0), key(0, 9, 1), key(1, 2, 0), key(1, 3, 0)}
	for i := range keys {
		for j := range keys {
			if got := keys[i].compare(&keys[j]); cmp.Compare(got, 0) != cmp.Compare(i, j) {
				t.Errorf("key %d and %d: %d", i, j, got)
			}
		}
	}
	want := []candidate{keys[0], keys[1], keys[3], keys[4]}
	for _, lists := range [][][]candidate{{want, nil}, {nil, want}, {want, want}, {{keys[0], keys[3]}, {keys[1], keys[4]}},
		{{keys[1], keys[4]}, {keys[0], keys[3]}}, {{keys[2]}, {keys[1], keys[3]}, {keys[0], keys[4]}}} {
		if got := mergeKeys(lists...); !slices.Equal(got, want) {
			t.Errorf("%v: %v, want %v", lists, got, want)
		}
	}
}
