// SPDX-License-Identifier: Apache-2.0

package baseline

import (
	"errors"
	"math"
	"testing"

	"github.com/netsketch/netsketch/internal/test/zipf"
	"github.com/netsketch/netsketch/sketch"
	"github.com/netsketch/netsketch/sketch/family"
)

// TestSwitchVersions: on 500,000 packets of Zipf 1.1, FCM and ElasticSketch's switch version find
// the heavy flows, never underestimate a flow, and estimate the number and sizes of flows. FCM's
// trees have a smaller error than a row of overflowing bytes with the same memory.
func TestSwitchVersions(t *testing.T) {
	tr := zipf.New(2, 500_000, 60_000, 1.1, 13)
	var are [2]float64
	for v, build := range []func(int, int, uint64) (*FCM[family.Fast], error){NewFCM[family.Fast],
		NewElasticSwitch[family.Fast]} {
		s, err := build(300_000, 13, 1)
		if err != nil {
			t.Fatal(err)
		}
		for i := range tr.Len() {
			if err := s.Insert(tr.Key(i)); err != nil {
				t.Fatal(err)
			}
		}
		if score := f1(tr.Count, s.Heavy()); score < 0.98 {
			t.Errorf("version %d: F1 %.4f", v, score)
		}
		for k, n := range tr.Count {
			if got := s.Query([]byte(k)); got < n && got < leafFull {
				t.Fatalf("version %d: %x has %d packets, want %d", v, k, got, n)
			}
		}
		if n, ok := s.Cardinality(); !ok || math.Abs(n/float64(len(tr.Count))-1) > 0.02 {
			t.Errorf("version %d: %.0f flows, want %d", v, n, len(tr.Count))
		}
		if d, err := s.Distribution(); err != nil || math.Abs(d.Packets()/500_000-1) > 0.05 {
			t.Errorf("version %d: %v packets (%v)", v, d.Packets(), err)
		}
		are[v], _ = tr.Errors(func(k []byte) float64 { return float64(s.Query(k)) })
		if are[v] > 0.6 {
			t.Errorf("version %d: ARE %.3f", v, are[v])
		}
	}
	t.Logf("ARE: FCM %.4f, ElasticSketch %.4f", are[0], are[1])
}

// TestTree: a path counts beyond the limits of its counters, for single packets and for many at
// once, and a row of the tree sums to all packets if leaves share a parent.
func TestTree(t *testing.T) {
	for _, step := range []uint32{1, 7, 1000, 70_000} {
		c := tree{leaves: make([]uint8, 256), middle: make([]uint16, 16), roots: make([]uint32, 1)}
		total := uint32(0)
		for total < 200_000 {
			c.add(40, step)
			if total += step; c.query(40) != total {
				t.Fatalf("steps of %d: %d packets, want %d", step, c.query(40), total)
			}
		}
		if got := c.counters()[40]; got != total {
			t.Errorf("steps of %d: the row has %d, want %d", step, got, total)
		}
		c.add(41, 300)
		c.add(9, 100)
		sum := uint32(0)
		for _, v := range c.counters() {
			sum += v
		}
		if want := total + 400; sum < want-2 || sum > want || c.query(9) != 100 || c.query(41) < 300 {
			t.Errorf("steps of %d: row adds up to %d, want %d; %d of 100, %d of 300", step, sum, want, c.query(9),
				c.query(41))
		}
	}
}

// TestCoco: estimates have no bias. Over 400 seeds, the mean estimate of a flow of 50 packets,
// among 400 others in 20 buckets, is within 4 standard errors of 50, which fails for one correct
// implementation in 16,000. All packets are counted.
func TestCoco(t *testing.T) {
	const runs, size = 400, 50
	var sum, squares float64
	for seed := range uint64(runs) {
		c, err := NewCoco[family.Fast](20*8, 4, seed)
		if err != nil {
			t.Fatal(err)
		}
		for i := range size + 400 { // the flow comes first, so that all others may replace it
			if err := c.Insert(key4(max(0, i-size+1))); err != nil {
				t.Fatal(err)
			}
		}
		x := float64(c.Query(key4(0)))
		sum, squares = sum+x, squares+x*x
		total := int64(0)
		for _, f := range c.Heavy() {
			total += f.Count
		}
		if total != 400+size {
			t.Fatalf("%d packets, want %d", total, 400+size)
		}
	}
	mean := sum / runs
	if deviation := math.Sqrt((squares/runs - mean*mean) / runs); math.Abs(mean-size) > 4*deviation {
		t.Errorf("mean %.2f ± %.2f, want %d", mean, deviation, size)
	}
}

func TestBadInputSwitchVersions(t *testing.T) {
	for _, memory := range []int{-5, 0, 10, math.MaxInt} {
		for _, size := range []int{0, 13, 65} {
			_, a := NewFCM[family.Fast](memory, size, 0)
			_, b := NewElasticSwitch[family.Fast](memory, size, 0)
			_, c := NewCoco[family.Fast](memory, size, 0)
			for i, err := range []error{a, b, c} {
				if !errors.Is(err, sketch.ErrConfig) {
					t.Errorf("structure %d, %d bytes, keys of %d: %v", i, memory, size, err)
				}
			}
		}
	}
	a, _ := NewFCM[family.Fast](10_000, 4, 0)
	b, _ := NewCoco[family.Fast](10_000, 4, 0)
	for i, err := range []error{a.Insert([]byte{1}), b.Insert([]byte{1})} {
		if !errors.Is(err, sketch.ErrMismatch) {
			t.Errorf("structure %d: %v", i, err)
		}
	}
	if a.Query([]byte{1}) != 0 || b.Query([]byte{1}) != 0 {
		t.Error("packets of an invalid key")
	}
}
