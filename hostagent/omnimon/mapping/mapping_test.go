// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func share(t testing.TB, k, d, host, hosts int) *Share {
	t.Helper()
	s, err := NewShare(k, d, host, hosts, 1)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSharesPartitionAllMappings: together, all hosts have every set of d slots exactly once.
func TestSharesPartitionAllMappings(t *testing.T) {
	for _, tc := range []struct{ k, d, hosts, total int }{
		{5, 1, 5, 5}, {7, 2, 3, 21}, {64, 2, 8, 2016}, {20, 3, 7, 1140}, {16, 4, 5, 1820}, {4, 4, 1, 1},
	} {
		seen := map[Slots]bool{}
		for host := range tc.hosts {
			s := share(t, tc.k, tc.d, host, tc.hosts)
			for i := range s.Len() {
				m := s.At(i)
				slices.Sort(m[:tc.d])
				if seen[m] {
					t.Fatalf("k=%d d=%d: %v twice", tc.k, tc.d, m)
				}
				seen[m] = true
				for j := range tc.d {
					if int(m[j]) >= tc.k || j > 0 && m[j] <= m[j-1] {
						t.Fatalf("k=%d d=%d: %v is not a set of slots", tc.k, tc.d, m)
					}
				}
			}
		}
		if len(seen) != tc.total {
			t.Errorf("k=%d d=%d: %d mappings, want %d", tc.k, tc.d, len(seen), tc.total)
		}
	}
}

// TestSharesSpreadOverSlots: the first mappings of a share use all slots about equally often at
// each position, so that flows are spread at every hop. A few flows use as many slots as if each
// drew its d slots at random, which is nd without common slots (paper, appendix B).
func TestSharesSpreadOverSlots(t *testing.T) {
	const k, flows = 512, 20_000
	for d := 2; d <= MaxSlots; d++ {
		s := share(t, k, d, 3, 5)
		var count [MaxSlots][k]int
		for i := range uint64(flows) {
			for j, slot := range s.At(i) {
				count[j][slot]++
			}
		}
		want := float64(flows) / k
		for j := range d {
			for slot, n := range count[j] {
				if math.Abs(float64(n)-want) > 6*math.Sqrt(want) {
					t.Errorf("d=%d: slot %d has %d of %d flows at position %d, expected about %.0f", d, slot, n, flows, j, want)
				}
			}
		}
		const few = 20
		used := 0
		for i := range uint64(flows / few) {
			slots := map[uint16]bool{}
			for n := range uint64(few) {
				m := s.At(i*few + n)
				for _, slot := range m[:d] {
					slots[slot] = true
				}
			}
			used += len(slots)
		}
		expected := k * (1 - math.Pow(1-float64(d)/k, few))
		if mean := float64(used) / (flows / few); math.Abs(mean-expected) > 0.01*expected {
			t.Errorf("d=%d: %d flows use %.2f slots, expected %.2f", d, few, mean, expected)
		}
	}
}

func TestLargestSpace(t *testing.T) {
	s := share(t, MaxK, MaxSlots, 0, 2)
	if got, want := s.total, uint64(768543969628897280); got != want {
		t.Errorf("C(65536, 4) = %d, want %d", got, want)
	}
	if m := s.unrank(s.total - 1); m != (Slots{65532, 65533, 65534, 65535}) {
		t.Errorf("the last mapping is %v", m)
	}
}

func TestErrors(t *testing.T) {
	for _, tc := range []struct {
		k, d, host, hosts int
		want              string
	}{
		{10, 0, 0, 1, "0 slots per flow"}, {10, 5, 0, 1, "5 slots per flow"}, {1, 2, 0, 1, "1 slots per switch"},
		{1 << 17, 2, 0, 1, "131072 slots"}, {10, 2, 3, 3, "host 3 of 3"}, {4, 2, 0, 7, "6 mappings"},
	} {
		if _, err := NewShare(tc.k, tc.d, tc.host, tc.hosts, 0); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}

func TestPoolTakesUnusedThenLeastRecentlyUsed(t *testing.T) {
	s := share(t, 4, 2, 0, 1) // six mappings
	p := NewPool(s, 100)
	take := func() uint32 {
		n, slots := p.Take()
		if slots != s.At(uint64(n)) {
			t.Fatalf("mapping %d has slots %v", n, slots)
		}
		return n
	}
	for i := range uint32(6) {
		if n := take(); n != i {
			t.Fatalf("flow %d got mapping %d", i, n)
		}
	}
	p.Return(4)
	p.Return(2)
	for _, want := range []uint32{4, 2, 0, 1, 3} { // two unused, then the least recently used
		if n := take(); n != want {
			t.Errorf("got mapping %d, want %d", n, want)
		}
	}
	if p.Used() != 6 || !p.Shared(0) || p.Shared(5) {
		t.Errorf("%d used, 0 shared %v, 5 shared %v", p.Used(), p.Shared(0), p.Shared(5))
	}
	p.Return(0) // one of two flows
	if n := take(); n != 5 {
		t.Errorf("got mapping %d, want the least recently used, 5", n)
	}
	for n, flows := range p.flows {
		for range flows {
			p.Return(uint32(n))
		}
	}
	if p.Used() != 0 || p.recent != (list{}) {
		t.Errorf("%d used, recent %+v after all flows ended", p.Used(), p.recent)
	}
}

// TestPoolIsBoundedByFlows: a pool needs no more mappings than it may have flows.
func TestPoolIsBoundedByFlows(t *testing.T) {
	p := NewPool(share(t, 3072, 2, 0, 8), 10)
	seen := map[uint32]bool{}
	for range 10 {
		n, _ := p.Take()
		seen[n] = true
	}
	if len(seen) != 10 || len(p.flows) != 10 {
		t.Errorf("10 flows have %d mappings, the pool has room for %d", len(seen), len(p.flows))
	}
}

func BenchmarkTake(b *testing.B) {
	p := NewPool(share(b, 3072, 2, 0, 8), 1<<16)
	for b.Loop() {
		n, _ := p.Take()
		p.Return(n)
	}
}
