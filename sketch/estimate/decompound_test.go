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

// TestDecompoundDiverges: with so many flows that the recursion diverges there is no result. A
// result does not have many more packets than the counters that can contain such flows.
func TestDecompoundDiverges(t *testing.T) {
	failed := 0
	for _, largest := range []int{1, 10} {
		for load := 1; load <= 16; load++ {
			r := rand.New(rand.NewPCG(uint64(load), uint64(largest)))
			var sizes []uint32
			for range load * 16384 {
				sizes = append(sizes, uint32(1+r.IntN(largest)))
			}
			row := spread(9, sizes, 16384)
			for _, limits := range [][2]uint32{{1, 500}, {1, 5000}, {1, 65535}, {255, 500}, {255, 5000}, {255, 65535}} {
				d, err := Decompound(row, limits[0], limits[1])
				most, half := 1.0, limits[1]/2048 // of the width of a class
				for _, v := range row {
					if v+half >= limits[0] {
						most += float64(v + half)
					}
				}
				switch {
				case errors.Is(err, sketch.ErrLimit):
					failed++
					if load == 1 {
						t.Errorf("sizes to %d, %d to %d: %v", largest, limits[0], limits[1], err)
					}
				case err != nil || !(d.Packets() <= 3.001*most):
					t.Errorf("sizes to %d, load %d, %d to %d: %.3g packets in counters of %.3g, %v", largest, load, limits[0],
						limits[1], d.Packets(), most, err)
				}
			}
		}
	}
	if failed < 50 {
		t.Errorf("%d failed", failed)
	}
}
