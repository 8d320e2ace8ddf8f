// SPDX-License-Identifier: Apache-2.0

package baseline

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/netsketch/netsketch/internal/test/zipf"
	"github.com/netsketch/netsketch/sketch"
	"github.com/netsketch/netsketch/sketch/family"
)

const heavyLimit = 500

// f1 returns the F1 score of the found flows with at least heavyLimit packets.
func f1(exact map[string]uint32, found []Flow) float64 {
	hits, want, got := 0, 0, 0
	for _, n := range exact {
		if n >= heavyLimit {
			want++
		}
	}
	for _, f := range found {
		if f.Count >= heavyLimit {
			got++
			if exact[string(f.Key)] >= heavyLimit {
				hits++
			}
		}
	}
	return 2 * float64(hits) / float64(want+got)
}

// TestHeavyHitters: on 500,000 packets of Zipf 1.1, all three structures find the heavy flows.
func TestHeavyHitters(t *testing.T) {
	tr := zipf.New(2, 500_000, 60_000, 1.1, 13)
	e, err1 := NewElastic[family.Fast](300_000, 13, 1)
	h, err2 := NewCountHeap[family.Fast](300_000, 13, 1024, 1)
	p, err3 := NewHashPipe[family.Fast](100_000, 13, 6, 1)
	x := NewExact()
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	for i := range tr.Len() {
		k := tr.Key(i)
		x.Insert(k)
		if err := errors.Join(e.Insert(k), h.Insert(k), p.Insert(k)); err != nil {
			t.Fatal(err)
		}
	}
	for name, flows := range map[string][]Flow{"elastic": e.Heavy(), "Count-heap": h.Heavy(), "HashPipe": p.Heavy()} {
		if score := f1(tr.Count, flows); score < 0.98 {
			t.Errorf("%s: F1 %.4f", name, score)
		}
	}
	for k, n := range tr.Count {
		if x.Query([]byte(k)) != int64(n) {
			t.Fatalf("exact: %x", k)
		}
		if got := p.Query([]byte(k)); got > int64(n) {
			t.Fatalf("HashPipe: %x has %d packets, want %d", k, got, n)
		}
	}
	if n, ok := e.Cardinality(); !ok || math.Abs(n/float64(len(tr.Count))-1) > 0.02 {
		t.Errorf("elastic: %.0f flows, want %d", n, len(tr.Count))
	}
	d, err := e.Distribution()
	if err != nil || math.Abs(d.Packets()/500_000-1) > 0.05 {
		t.Errorf("elastic: %v packets (%v)", d.Packets(), err)
	}
	are, _ := tr.Errors(func(k []byte) float64 { return float64(e.Query(k)) })
	if are > 0.5 {
		t.Errorf("elastic: ARE %.3f", are)
	}
}

// TestMemory: every structure uses at most its configured memory, and not much less.
func TestMemory(t *testing.T) {
	const given = 200_000
	type sized interface{ Memory() int }
	coco, err1 := NewCoco[family.Fast](given, 13, 1)
	elastic, err2 := NewElastic[family.Fast](given, 13, 1)
	fcm, err3 := NewFCM[family.Fast](given, 13, 1)
	onSwitch, err4 := NewElasticSwitch[family.Fast](given, 13, 1)
	heap, err5 := NewCountHeap[family.Fast](given, 13, 1024, 1)
	pipe, err6 := NewHashPipe[family.Fast](given, 13, 6, 1)
	flows, err7 := NewFlowRadar[family.Fast](given, 13, 1)
	losses, err8 := NewLossRadar[family.Fast](given, 13, 1)
	if err := errors.Join(err1, err2, err3, err4, err5, err6, err7, err8); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]sized{
		"CocoSketch": coco, "elastic": elastic, "FCM": fcm, "elastic on a switch": onSwitch, "Count-heap": heap,
		"HashPipe": pipe, "FlowRadar": flows, "LossRadar": losses,
	} {
		if m := s.Memory(); m > given || m < given*9/10 {
			t.Errorf("%s: configured %d bytes, uses %d", name, given, m)
		}
	}
}

func key4(i int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(i)) }

// TestFlowRadar decodes 1,000 flows from 1.5 cells per flow, which fails for fewer than one in
// 1,000 seeds, and reports an incomplete result if there are too many flows.
func TestFlowRadar(t *testing.T) {
	for n, want := range map[int]bool{1000: true, 3000: false} {
		r, err := NewFlowRadar[family.Fast](20_000, 4, 1)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			for range 2 {
				if err := r.Insert(key4(i), int64(i)); err != nil {
					t.Fatal(err)
				}
			}
		}
		flows, complete := r.Decode()
		if complete != want {
			t.Errorf("%d flows in %d cells: complete %v", n, len(r.flows), complete)
		}
		if !complete {
			continue
		}
		missing := n - len(flows) // false positives of the filter: about 1 % with 10 bits per flow
		if missing > 2 {
			t.Errorf("%d of %d flows missing", missing, n)
		}
	}
}

// TestLossRadar finds every lost packet by key.
func TestLossRadar(t *testing.T) {
	up, err1 := NewLossRadar[family.Fast](20_000, 4, 1)
	down, err2 := NewLossRadar[family.Fast](20_000, 4, 1)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	want := map[string]int64{}
	for i := range 2000 {
		for packet := range 10 {
			_ = up.Insert(key4(i), uint16(packet))
			if i%10 == 0 && packet < 4 {
				want[string(key4(i))]++
			} else {
				_ = down.Insert(key4(i), uint16(packet))
			}
		}
	}
	if err := up.Subtract(down); err != nil {
		t.Fatal(err)
	}
	lost, complete := up.Decode()
	if !complete || len(lost) != len(want) {
		t.Fatalf("%d flows of %d, complete %v", len(lost), len(want), complete)
	}
	for k, n := range want {
		if lost[k] != n {
			t.Errorf("%x: %d lost, want %d", k, lost[k], n)
		}
	}
	other, _ := NewLossRadar[family.Fast](30_000, 4, 1)
	if !errors.Is(up.Subtract(other), sketch.ErrMismatch) || up.Subtract(nil) == nil {
		t.Error("subtracted a sketch of another shape")
	}
	if _, complete := down.Decode(); complete {
		t.Error("20,000 packets decode from 2,000 cells")
	}
}

func TestBadInput(t *testing.T) {
	for _, memory := range []int{-5, 0, 10, math.MaxInt} {
		for _, size := range []int{0, 13, 65} {
			_, a := NewElastic[family.Fast](memory, size, 0)
			_, b := NewCountHeap[family.Fast](memory, size, 10, 0)
			_, c := NewHashPipe[family.Fast](memory, size, 6, 0)
			_, d := NewFlowRadar[family.Fast](memory, size, 0)
			_, e := NewLossRadar[family.Fast](memory, size, 0)
			for i, err := range []error{a, b, c, d, e} {
				if !errors.Is(err, sketch.ErrConfig) {
					t.Errorf("structure %d, %d bytes, keys of %d: %v", i, memory, size, err)
				}
			}
		}
	}
	a, _ := NewElastic[family.Fast](10_000, 4, 0)
	b, _ := NewCountHeap[family.Fast](10_000, 4, 10, 0)
	c, _ := NewHashPipe[family.Fast](10_000, 4, 6, 0)
	d, _ := NewFlowRadar[family.Fast](10_000, 4, 0)
	e, _ := NewLossRadar[family.Fast](10_000, 4, 0)
	k := []byte{1, 2, 3}
	for i, err := range []error{a.Insert(k), b.Insert(k), c.Insert(k), d.Insert(k, 1), e.Insert(k, 1)} {
		if !errors.Is(err, sketch.ErrMismatch) {
			t.Errorf("structure %d: %v", i, err)
		}
	}
}
