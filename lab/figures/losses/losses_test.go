// SPDX-License-Identifier: Apache-2.0

package losses

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"testing"

	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
)

// TestLeast: the least memory at which 99.9 % decode follows from probability. Two of n flows meet
// in all three rows of M buckets with probability n²/2·(3/M)³ (which comes to 24·n^(2/3) buckets
// for 0.1 %). 4,000 tries measure 0.1 % to 0.05 %, and so the memory to 17 %. The limits are 1.5
// times that error, and the seed is fixed.
func TestLeast(t *testing.T) {
	r := &recorders[0]
	for _, tc := range []struct {
		flows  int
		lo, hi float64 // limits of the memory, as multiples of the memory of 24·n^(2/3) buckets
	}{{30, 0.75, 1.25}} {
		l := losses{}
		for i := range tc.flows {
			l.flows = append(l.flows, trace.Flow{Key: string(binary.BigEndian.AppendUint32(nil, uint32(i)*2654435761)),
				Packets: 100})
			l.lost = append(l.lost, 3)
		}
		o := suite.Options{Seed: 1, Decodings: 4000}
		if n := r.tries(l, o); n != o.Decodings {
			t.Fatalf("%d tries", n)
		}
		memory, err := r.least(t.Context(), l, o)
		if err != nil {
			t.Fatal(err)
		}
		want := 24 * math.Pow(float64(tc.flows), 2./3) * 8
		t.Logf("%d flows: %d bytes, probability requires %.0f", tc.flows, memory, want)
		if x := float64(memory) / want; x < tc.lo || x > tc.hi {
			t.Errorf("%d flows: %d bytes, probability requires %.0f", tc.flows, memory, want)
		}
	}
	l := losses{flows: []trace.Flow{{Key: "abcd", Packets: 100_000}}, lost: []uint32{70_000}}
	if memory, err := recorders[3].least(t.Context(), l, suite.Options{Seed: 1, Decodings: 20}); err != nil ||
		memory != 0 {
		t.Errorf("LossRadar, 70,000 packets of one flow: %d bytes (%v), want none", memory, err)
	}
}

func TestBracket(t *testing.T) {
	for _, limit := range []int{300, 5000, 100_000, 3_000_000} {
		lo, hi, err := bracket(256, 1<<22, func(m int) (bool, error) { return m >= limit, nil })
		if err != nil || lo >= limit || hi < limit || float64(hi) > 1.03*float64(limit)+16 {
			t.Errorf("limit %d: %d to %d (%v)", limit, lo, hi, err)
		}
	}
	if _, hi, err := bracket(256, 1<<20, func(int) (bool, error) { return false, nil }); err != nil || hi != 0 {
		t.Errorf("nothing is enough: %d (%v)", hi, err)
	}
	if _, _, err := bracket(256, 1<<20, func(int) (bool, error) { return false, io.ErrClosedPipe }); !errors.Is(err,
		io.ErrClosedPipe) {
		t.Errorf("%v", err)
	}
}
