// SPDX-License-Identifier: Apache-2.0

package universal

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/netsketch/netsketch/internal/test/golden"
	"github.com/netsketch/netsketch/sketch"
	"github.com/netsketch/netsketch/sketch/flow"
)

// TestInsertIsUpdate: inserting keys as bytes, one by one or in batches, has the same result as
// Update.
func TestInsertIsUpdate(t *testing.T) {
	packets := zipfPackets(3, 5000, 800, 1)
	for _, f := range []flow.Fields{flow.Src, flow.Dst, flow.FiveTuple} {
		l := small
		l.Key = f
		want, one, batch := measure(t, l, packets), measure(t, l, nil), measure(t, l, nil)
		for _, v6 := range []bool{false, true} {
			var keys []byte
			for _, p := range packets {
				if p.Key.V6 == v6 {
					keys = p.Key.Project(f).AppendBinary(keys)
				}
			}
			if err := batch.InsertBatch(keys, f.Size(v6)); err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range packets {
			if err := one.Insert(p.Key.Project(f).AppendBinary(nil)); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(one.counters, want.counters) || !slices.Equal(one.heavy, want.heavy) ||
			!slices.Equal(one.packets, want.packets) {
			t.Errorf("%v: one by one the cells differ", f)
		}
		if !slices.Equal(batch.counters, want.counters) {
			t.Errorf("%v: in batches the counters differ", f)
		}
		for _, err := range []error{one.Insert(nil), one.Insert(make([]byte, 14)),
			one.InsertBatch(make([]byte, 14), 14), one.InsertBatch(make([]byte, 5), f.Size(false)),
			one.InsertBatch(nil, 0)} {
			if !errors.Is(err, sketch.ErrMismatch) {
				t.Errorf("%v: %v", f, err)
			}
		}
		if n := one.Query([]byte{1}); n != 0 {
			t.Errorf("a key of another length has %d packets", n)
		}
	}
}

// TestQueryWithinBound: the error of Query exceeds Bound for no more flows than the bound states.
func TestQueryWithinBound(t *testing.T) {
	packets := zipfPackets(9, 50_000, 6000, 1.1)
	s := measure(t, small, packets)
	truth, b := exact(packets, small.Key), s.Bound()
	off := 0
	for k, n := range truth.flows {
		if d := math.Abs(float64(s.Query(k.AppendBinary(nil))) - n); d > b.Over {
			off++
		}
	}
	if b.Over <= 0 || b.Over != b.Under || float64(off) > b.Failure*float64(len(truth.flows)) {
		t.Errorf("%+v: %d of %d flows are further off", b, off, len(truth.flows))
	}
}

// TestSketchesAddUp: a merged sketch has the counters of a single sketch, and finds heavy keys as
// well as a single sketch does.
func TestSketchesAddUp(t *testing.T) {
	// The two parts have different flows, and thus different heavy ones.
	packets := slices.Concat(zipfPackets(5, 15_000, 5000, 1.2), zipfPackets(6, 25_000, 5000, 1.2))
	all, a, b := measure(t, small, packets), measure(t, small, packets[:15_000]), measure(t, small, packets[15_000:])
	before := slices.Clone(a.counters)
	if err := a.Merge(b); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(a.counters, all.counters) || !slices.Equal(a.packets, all.packets) {
		t.Error("the sum is not the sketch of all packets")
	}
	truth, limit := exact(packets, small.Key), 200.
	if one, two := truth.f1(all.Reading().Estimate().Above(limit), limit),
		truth.f1(a.Reading().Estimate().Above(limit), limit); two < one-0.05 {
		t.Errorf("heavy hitters: F1 %.3f of the sum, %.3f of one sketch", two, one)
	}
	if err := a.Subtract(b); err != nil || !slices.Equal(a.counters, before) {
		t.Errorf("the difference is not the first part (%v)", err)
	}
	if err := a.Subtract(all); !errors.Is(err, ErrMismatch) || !slices.Equal(a.counters, before) {
		t.Errorf("more than there is was subtracted: %v", err)
	}
	if err := a.Merge(a); err != nil {
		t.Fatal(err)
	}
	for i, v := range a.counters {
		if v != 2*before[i] {
			t.Fatal("merged with itself it is not twice what it was")
		}
	}
	if err := a.Subtract(a); err != nil || slices.Max(a.heavy) != 0 || slices.Max(a.counters) != 0 {
		t.Errorf("less itself it is not empty (%v)", err)
	}
	a.packets[0] = 1 << 30
	if err := a.Merge(a); !errors.Is(err, sketch.ErrLimit) || a.packets[0] != 1<<30 {
		t.Errorf("2^31 packets in counters of 32 bits: %v", err)
	}
	other := small
	other.Slots++
	for _, err := range []error{a.Merge(nil), a.Merge(measure(t, other, nil)), a.Subtract(nil)} {
		if !errors.Is(err, sketch.ErrMismatch) {
			t.Error(err)
		}
	}
}

func TestFit(t *testing.T) {
	for _, f := range []flow.Fields{flow.Src, flow.FiveTuple} {
		for _, memory := range []int{10_000, 300_000, 1 << 20, 7_777_777} {
			l, err := Fit(f, memory)
			if err != nil || l.Bytes() > memory || l.Bytes() < memory*98/100 {
				t.Errorf("%v, %d bytes: %v takes %d (%v)", f, memory, l, l.Bytes(), err)
			}
		}
		for _, memory := range []int{-1, 0, 100, sketch.MaxMemory + 1} {
			if _, err := Fit(f, memory); !errors.Is(err, sketch.ErrConfig) {
				t.Errorf("%d bytes: %v", memory, err)
			}
		}
	}
	if _, err := Fit(0, 1<<20); !errors.Is(err, sketch.ErrConfig) {
		t.Errorf("a key without fields: %v", err)
	}
	if _, err := New(Layout{flow.FiveTuple, 16, 5, 1 << 24, 4, 1 << 20}); !errors.Is(err, sketch.ErrConfig) {
		t.Errorf("5 GiB: %v", err)
	}
}

func TestBytes(t *testing.T) {
	l := Layout{Key: flow.Src, Levels: 2, Rows: 3, Columns: 4, Ways: 2, Slots: 2}
	s := measure(t, l, zipfPackets(1, 50, 10, 1))
	golden.Check(t, "universal", s, new(Sketch))
	open, err := Open(l, s.counters, s.heavy, nil)
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "universal-unknown-packets", open, new(Sketch))
}

func FuzzBytes(f *testing.F) {
	l := Layout{Key: flow.FiveTuple, Levels: 2, Rows: 3, Columns: 2, Ways: 2, Slots: 1}
	golden.Fuzz(f, []golden.Sketch{measure(f, l, zipfPackets(1, 50, 10, 1))},
		func() golden.Sketch { return new(Sketch) }, func(g golden.Sketch) {
			s := g.(*Sketch)
			_ = s.Insert(make([]byte, 13))
			s.Query(make([]byte, 13))
			s.Bound()
			_ = s.Merge(s)
			s.Reading().Estimate().Entropy()
		})
}
