// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/netsketch/netsketch/sketch"
)

// TestDecompound: the numbers of flows of each power of two are close to the ground truth, with
// several flows in most counters.
func TestDecompound(t *testing.T) {
	for _, load := range []float64{0.3, 1, 2} {
		r := rand.New(rand.NewPCG(uint64(10*load), 3))
		var sizes []uint32
		truth := make(map[int]float64)
		for range int(load * 16384) {
			x := uint32(math.Exp(r.Float64() * math.Log(20_000))) // the same number of flows in each power of two
			sizes = append(sizes, x)
			truth[int(math.Log2(float64(x)))]++
		}
		d, err := Decompound(spread(8, sizes, 16384), 256, 8192)
		if err != nil {
			t.Fatal(err)
		}
		got := make(map[int]float64)
		for x, n := range d {
			if n != 0 && (x < 256 || n < 0) {
				t.Errorf("load %.1f: %.1f flows of size %d", load, n, x)
			}
			if n != 0 {
				got[int(math.Log2(float64(x)))] += n
			}
		}
		for octave := 8; octave < 13; octave++ {
			// The error grows with the number of counters that hold other flows, too.
			limit := 3 * math.Exp(load) / math.Sqrt(truth[octave])
			if off := got[octave]/truth[octave] - 1; math.Abs(off) > limit {
				t.Errorf("load %.1f: %.0f flows of %d packets and more, there are %.0f", load, got[octave], 1<<octave,
					truth[octave])
			}
		}
	}
	if _, err := Decompound(nil, 1, 2); !errors.Is(err, sketch.ErrConfig) {
		t.Error(err)
	}
	if _, err := Decompound([]uint32{9, 9, 9}, 2, 20); !errors.Is(err, sketch.ErrLimit) {
		t.Error(err)
	}
}
