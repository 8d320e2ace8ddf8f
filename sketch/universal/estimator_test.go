// SPDX-License-Identifier: Apache-2.0

package universal

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/netsketch/netsketch/sketch/flow"
)

// TestKeeps: a flow is lost only if the slots of all ways hold larger flows, or as large ones,
// which are kept half of the time.
func TestKeeps(t *testing.T) {
	full := table{{{2, 2, 2, 2}, {0, 2, 2, 3}}}
	for _, tc := range []struct{ size, want float64 }{
		{1, 1 - 1*0.75}, {2, 1 - 0.5*(0.25+0.25)}, {3, 1 - 0*0.125}, {4, 1},
	} {
		if got := full.keeps(0, tc.size); math.Abs(got-tc.want) > 1e-12 {
			t.Errorf("flow of %v packets: kept with probability %v, want %v", tc.size, got, tc.want)
		}
	}
}

// TestCountCells: the number of flows of any sizes follows from the cells, without a bias.
func TestCountCells(t *testing.T) {
	const columns, rows, seeds = 128, 3, 2000
	for _, flows := range []int{20, 60, 100} {
		mean := 0.0
		for seed := range uint64(seeds) {
			r := rand.New(rand.NewPCG(seed, 3))
			var cells [rows * columns]int32
			for range flows {
				size := 1 + r.Int32N(3)
				for row := range rows {
					cells[row*columns+r.IntN(columns)] += size * (1 - 2*r.Int32N(2))
				}
			}
			n, _, _ := countCells(cells[:], columns, rows)
			mean += n / seeds
		}
		t.Logf("%d flows: %.2f", flows, mean)
		if math.Abs(mean-float64(flows)) > 0.35 {
			t.Errorf("%d flows counted as %.2f on average", flows, mean)
		}
	}
}

// TestChangeOfFlows: a change has the flow's packets before and after it.
func TestChangeOfFlows(t *testing.T) {
	count := func(packets ...int) *Estimate {
		s := measure(t, small, nil)
		for i, n := range packets {
			k := flow.Key{Mask: flow.FiveTuple, Proto: 6, SrcPort: uint16(i)}
			for range n {
				s.Update(&k)
			}
		}
		return s.Reading().Estimate()
	}
	c, err := Compare(count(100, 30, 7), count(40, 250, 7))
	if err != nil {
		t.Fatal(err)
	}
	found := c.Above(1)
	if len(found) != 2 || found[0].Before != 30 || found[0].After != 250 || found[0].Packets != 220 ||
		found[1].Before != 100 || found[1].After != 40 || found[1].Packets != -60 {
		t.Errorf("found %+v", found)
	}
	if got := c.Total(); math.Abs(got-280) > 1 {
		t.Errorf("total change %v, want 280", got)
	}
}

// TestMomentOfFloods: the sum of squares has no bias where noise makes small flows look larger.
func TestMomentOfFloods(t *testing.T) {
	for name, l := range map[string]Layout{"univmon": src1M, "univmon-300k": src300K} {
		var errors []float64
		for seed := range uint32(24) {
			e, packets, _ := sources(t, l, 50_000, 99_999*seed)
			few := packets - 50_000 // nine packets of every 50th flow
			errors = append(errors, e.Moment2()/(50_000+few/9*99)-1)
		}
		mean, deviation := moments(errors)
		t.Logf("%s: %+.4f, deviation %.4f", name, mean, deviation)
		if math.Abs(mean) > 0.01+2*deviation/math.Sqrt(float64(len(errors))) || deviation > 0.06 {
			t.Errorf("%s: off by %+.4f on average, deviation %.4f", name, mean, deviation)
		}
	}
}
