// SPDX-License-Identifier: Apache-2.0

package universal

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/netsketch/netsketch/sketch/flow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var small = Layout{Key: flow.FiveTuple, Levels: 8, Rows: 3, Columns: 300, Ways: 2, Slots: 16}

// TestCellsByTheBook updates registers as p4/programs/include/univmon.p4 does, word by word and
// without optimizations, and compares every cell.
func TestCellsByTheBook(t *testing.T) {
	be := func(v uint32) uint32 { return crc32.ChecksumIEEE(binary.BigEndian.AppendUint32(nil, v)) }
	for _, l := range []Layout{
		small, {flow.Src, 10, 3, 512, 2, 64}, {flow.Dst, 16, 4, 13, 3, 5}, {flow.Dst, 3, 3, 960, 4, 32},
		{flow.FiveTuple, 4, 5, 64, 3, 8},
		{flow.Src | flow.Dst, 4, 3, 64, 4, 8}, {flow.Dst | flow.DstPort, 4, 3, 64, 4, 8}, {flow.Proto, 4, 3, 8, 4, 8},
	} {
		t.Run(l.String(), func(t *testing.T) {
			packets := zipfPackets(3, 10_000, 4000, 1)
			s := measure(t, l, packets)
			counters, heavy := make([]int32, l.CounterCells()), make([]uint32, l.HeavyCells())
			levels := make([]uint32, l.Levels)
			rowOdd := []uint32{0x9e3779b1, 0x85ebca6b, 0xc2b2ae35, 0x27d4eb2f, 0x165667b1}
			wayOdd := []uint32{0x7feb352d, 0x846ca68b, 0xd6e8feb9, 0xb5297a4d}
			for _, p := range packets {
				k := p.Key.Project(l.Key)
				h := crc32.ChecksumIEEE(k.AppendBinary(nil))
				z := 0
				for v := be(h * 0x2545f491); z < l.Levels-1 && v>>31 == 1; v <<= 1 {
					z++
				}
				levels[z]++
				wide, deep, share := min(z, 8), max(z-8, 0), 1 // four columns or slots share one in deep levels
				if z >= 8 {
					share = 4
				}
				ceil := func(n, by int) int { return (n + by - 1) / by }
				est := make([]int32, l.Rows)
				for r := range l.Rows {
					v := be(h*rowOdd[r]) % uint32(2*l.Columns)
					cell := l.Rows*(wide*l.Columns+deep*ceil(l.Columns, 4)) + r*ceil(l.Columns, share) + int(v>>1)/share
					sign := int32(1)
					if v%2 == 1 {
						sign = -1
					}
					counters[cell] += sign
					est[r] = sign * counters[cell]
				}
				est = est[:3]
				slices.Sort(est)
				take := -1
				for w := range l.Ways {
					slot := l.Ways*(wide*l.Slots+deep*ceil(l.Slots, 4)) + w*ceil(l.Slots, share)
					slot = (slot + int(be(h*wayOdd[w])%uint32(l.Slots))/share) * l.Words()
					if heavy[slot] != 0 && heavy[slot+1] == h {
						take = slot
						break
					}
					if take < 0 || heavy[slot] < heavy[take] || heavy[slot] == heavy[take] && heavy[slot+1] > heavy[take+1] {
						take = slot
					}
				}
				more := int64(est[1]) - int64(heavy[take])
				if est[1] > 0 && (more > 0 || more == 0 && h < heavy[take+1]) {
					heavy[take] = uint32(est[1])
					k.V6 = p.Key.V6 // a key without addresses has no family, so its slot has the family of the packet
					putKey(heavy[take+1:], k, h)
				}
			}
			for i, v := range s.Counters() {
				if int32(v) != counters[i] {
					t.Fatalf("counter %d is %d, want %d", i, int32(v), counters[i])
				}
			}
			if !slices.Equal(s.Heavy(), heavy) {
				t.Error("heavy-key slots differ")
			}
			if !slices.Equal(s.Packets(), levels) {
				t.Errorf("packets by level %v, want %v", s.Packets(), levels)
			}
		})
	}
}

func putKey(words []uint32, k flow.Key, h uint32) {
	addr := func(words []uint32, a [16]byte) {
		for i := range 4 {
			words[i] = binary.BigEndian.Uint32(a[4*i:])
		}
	}
	words[0], words[1] = h, 4<<8|uint32(k.Proto)
	if k.V6 {
		words[1] = 6<<8 | uint32(k.Proto)
	}
	switch k.Mask {
	case flow.Src:
		addr(words[2:], k.Src)
	case flow.Dst:
		addr(words[2:], k.Dst)
	case flow.Src | flow.Dst:
		addr(words[2:], k.Src)
		addr(words[6:], k.Dst)
	case flow.Dst | flow.DstPort:
		words[2] = uint32(k.DstPort)
		addr(words[3:], k.Dst)
	case flow.Proto:
	default:
		words[2] = uint32(k.SrcPort)<<16 | uint32(k.DstPort)
		addr(words[3:], k.Src)
		addr(words[7:], k.Dst)
	}
}

func TestMergeIsTheSketchOfAll(t *testing.T) {
	packets := zipfPackets(5, 20_000, 3000, 1.1)
	all := measure(t, small, packets).Reading()
	first, b := measure(t, small, packets[:7000]).Reading(), measure(t, small, packets[7000:]).Reading()
	before := slices.Clone(b.cells)
	a, err := Sum([]*Reading{first, b}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(a.cells, all.cells) {
		t.Error("the sum of two sketches is not the sketch of all packets")
	}
	if n, ok := a.Packets(); n != 20_000 || !ok {
		t.Errorf("Packets() = %d, %v", n, ok)
	}
	if err := a.Subtract(b); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(a.cells, measure(t, small, packets[:7000]).counters) {
		t.Error("the difference is not the sketch of the first part")
	}
	if !slices.Equal(b.cells, before) {
		t.Error("the merged reading was changed")
	}
}

func TestMismatch(t *testing.T) {
	s := measure(t, small, nil)
	for _, l := range []Layout{
		{flow.Src, 8, 3, 300, 2, 16}, {flow.FiveTuple, 7, 3, 300, 2, 16}, {flow.FiveTuple, 8, 4, 300, 2, 16},
		{flow.FiveTuple, 8, 3, 301, 2, 16}, {flow.FiveTuple, 8, 3, 300, 3, 16}, {flow.FiveTuple, 8, 3, 300, 2, 17},
	} {
		o := measure(t, l, nil).Reading()
		r := s.Reading()
		for name, f := range map[string]func(*Reading) error{
			"Subtract": r.Subtract,
			"Sum":      func(o *Reading) error { _, err := Sum([]*Reading{r, r}, []*Reading{o}); return err },
		} {
			if err := f(o); !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), "levels of") {
				t.Errorf("%s with %v: %v, want ErrMismatch", name, l, err)
			}
		}
	}
	if _, err := Open(small, s.counters[1:], s.heavy, nil); !errors.Is(err, ErrMismatch) {
		t.Errorf("Open with a counter missing: %v", err)
	}
	if _, err := Open(small, s.counters, s.heavy[1:], nil); !errors.Is(err, ErrMismatch) {
		t.Errorf("Open with a heavy cell missing: %v", err)
	}
	if _, err := Open(small, s.counters, s.heavy, s.packets[1:]); !errors.Is(err, ErrMismatch) {
		t.Errorf("Open with a level missing: %v", err)
	}
}

func TestLayoutErrors(t *testing.T) {
	for _, tc := range []struct {
		l    Layout
		want string
	}{
		{Layout{0, 8, 3, 300, 2, 16}, "key none"}, {Layout{32, 8, 3, 300, 2, 16}, "expected fields of a 5-tuple"},
		{Layout{flow.Src, 1, 3, 300, 2, 16}, "1 levels"},
		{Layout{flow.Src, 8, 6, 300, 2, 16}, "6 rows"},
		{Layout{flow.Src, 8, 3, 0, 2, 16}, "0 columns"},
		{Layout{flow.Src, 8, 3, 300, 5, 16}, "5 ways"},
		{Layout{flow.Src, 8, 3, 300, 2, -1}, "-1 slots"},
	} {
		if _, err := New(tc.l); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("New(%+v): %v, want %q", tc.l, err, tc.want)
		}
	}
}

func TestUpdateDoesNotAllocate(t *testing.T) {
	packets := zipfPackets(1, 1000, 500, 1)
	for _, f := range []flow.Fields{flow.Src, flow.Dst, flow.FiveTuple} {
		l := small
		l.Key = f
		s := measure(t, l, nil)
		i := 0
		if n := testing.AllocsPerRun(900, func() { s.Update(&packets[i].Key); i++ }); n != 0 {
			t.Errorf("%v: %v allocations an update", f, n)
		}
	}
}

// TestEmpty: without packets, the results are zero, and nothing is divided by zero.
func TestEmpty(t *testing.T) {
	e := measure(t, small, nil).Reading().Estimate()
	n, ok := e.Packets()
	if n != 0 || !ok || e.Distinct() != 0 || e.Entropy() != 0 || e.EntropyDeviation() != 0 || e.Moment2() != 0 ||
		e.Sum(one) != 0 || len(e.Above(0)) != 0 {
		t.Errorf("an empty sketch has %v packets, %v flows, entropy %v, F2 %v", n, e.Distinct(), e.Entropy(),
			e.Moment2())
	}
}

// FuzzRegisters: whatever registers a switch returns, all results are finite.
func FuzzRegisters(f *testing.F) {
	l := Layout{Key: flow.Src, Levels: 2, Rows: 3, Columns: 8, Ways: 2, Slots: 2}
	s, err := New(l)
	if err != nil {
		f.Fatal(err)
	}
	for _, p := range zipfPackets(1, 50, 10, 1) {
		s.Update(&p.Key)
	}
	var seed []byte
	for _, v := range slices.Concat(s.counters, s.heavy, s.packets) {
		seed = binary.LittleEndian.AppendUint32(seed, v)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, b []byte) {
		cells := make([]uint32, l.CounterCells()+l.HeavyCells()+l.Levels)
		for i := range cells {
			if len(b) < 4*i+4 {
				break
			}
			cells[i] = binary.LittleEndian.Uint32(b[4*i:])
		}
		n, m := l.CounterCells(), l.CounterCells()+l.HeavyCells()
		s, err := Open(l, cells[:n], cells[n:m], cells[m:])
		if err != nil {
			t.Fatal(err)
		}
		r := s.Reading()
		e := r.Estimate()
		packets, _ := e.Packets()
		for name, v := range map[string]float64{
			"packets": packets, "distinct": e.Distinct(), "entropy": e.Entropy(), "F2": e.Moment2(),
			"L1": e.Sum(Packets),
		} {
			if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
				t.Errorf("%s = %v", name, v)
			}
		}
		d := r.Clone()
		if err := d.Subtract(r); err != nil {
			t.Fatal(err)
		}
		if got := d.Estimate().Above(1); len(got) != 0 {
			t.Errorf("a reading less itself has changes: %v", got)
		}
	})
}
