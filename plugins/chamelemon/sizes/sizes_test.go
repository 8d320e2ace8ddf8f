// SPDX-License-Identifier: Apache-2.0

package sizes

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestOf: sizes below a limit are counted, those from the limit on are listed in order.
func TestOf(t *testing.T) {
	s := Of(map[string]int64{"a": 1, "b": 3, "c": 3, "d": 4, "e": 9, "f": 5}, 4)
	if diff := cmp.Diff([]float64{0, 1, 0, 2}, []float64(s.Small)); diff != "" {
		t.Errorf("small sizes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]uint64{4, 5, 9}, s.Rest); diff != "" || !s.OK || !s.Exact {
		t.Errorf("OK %v, exact %v, rest (-want +got):\n%s", s.OK, s.Exact, diff)
	}
}

// TestRangeOf: ranges follow each other without a gap, and each above Single is twice as long as
// the one before.
func TestRangeOf(t *testing.T) {
	for x := uint64(1); x <= Single; x++ {
		if first, last := RangeOf(x); first != x || last != x {
			t.Errorf("%d is from %d to %d", x, first, last)
		}
	}
	before := uint64(Single)
	for length := uint64(Single); before < 1<<40; length *= 2 {
		for _, x := range []uint64{before + 1, before + length/2, before + length} {
			if first, last := RangeOf(x); first != before+1 || last != before+length {
				t.Fatalf("%d is from %d to %d, want %d to %d", x, first, last, before+1, before+length)
			}
		}
		before += length
	}
}

// TestDrawn compares ranges, entropy and tail with sums over the flows, for drawn flows that enter
// at two switches.
func TestDrawn(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 5))
		var at [2]map[string]int64
		packets, sum, ranges := 0.0, 0.0, map[uint64]float64{}
		atLeast := map[uint32]float64{1: 0, 3: 0, 33: 0, 500: 0} // flows by least size
		for i := range at {
			at[i] = map[string]int64{}
			for n := range 1 + rng.IntN(300) {
				x := int64(1 + rng.ExpFloat64()*[]float64{2, 100, 4000}[rng.IntN(3)])
				at[i][fmt.Sprint(n)] = x
				packets, sum = packets+float64(x), sum+float64(x)*math.Log2(float64(x))
				first, _ := RangeOf(uint64(x))
				ranges[first]++
				for least := range atLeast {
					if x >= int64(least) {
						atLeast[least]++
					}
				}
			}
		}
		// The limits differ, as the thresholds of switches can.
		s, other := Of(at[0], 1+rng.Uint32N(400)), Of(at[1], 1+rng.Uint32N(400))
		s.Add(&other)
		if want := math.Log2(packets) - sum/packets; math.Abs(s.Entropy()-want) > 1e-9 {
			t.Errorf("seed %d: entropy %v, want %v", seed, s.Entropy(), want)
		}
		got, last := map[uint64]float64{}, uint64(0)
		for _, r := range s.Ranges() {
			if r.First <= last || r.Last < r.First {
				t.Errorf("seed %d: %+v follows a range to %d", seed, r, last)
			}
			got[r.First], last = r.Flows, r.Last
		}
		if diff := cmp.Diff(ranges, got); diff != "" {
			t.Errorf("seed %d: ranges (-want +got):\n%s", seed, diff)
		}
		tail := s.Tail()
		for least, want := range atLeast {
			if n := tail.AtLeast(least); math.Abs(n-want) > 1e-9 {
				t.Errorf("seed %d: %v flows of at least %v packets, want %v", seed, n, least, want)
			}
		}
	}
	if empty := Of(nil, 8); empty.Entropy() != 0 || len(empty.Rest) != 0 {
		t.Errorf("no flows have entropy %v", empty.Entropy())
	}
}
