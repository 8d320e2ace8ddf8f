// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	lab "github.com/netsketch/netsketch/internal/test/chamelemon"
	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/settings"
	"github.com/netsketch/netsketch/sketch/estimate"
	"github.com/netsketch/netsketch/sketch/tower"
)

// TestCandidates: the number of flows that a classifier counts with at least x packets matches the
// estimate, if almost all flows have one packet and if large flows fill all counters.
func TestCandidates(t *testing.T) {
	for _, tc := range []struct {
		name  string
		flows int
		size  func(r *rand.Rand) uint32
		at    []uint32
	}{
		{"small", 17_500, func(r *rand.Rand) uint32 { return 1 + uint32(0.035/math.Max(r.Float64(), 1e-3)) },
			[]uint32{1, 2, 3, 4, 10}},
		{"large", 20_000, func(r *rand.Rand) uint32 { return uint32(math.Pow(1-r.Float64(), -1/0.8)) % 20_000 },
			[]uint32{2, 50, 254, 255, 400, 3000}},
	} {
		r := rand.New(rand.NewPCG(61, 1))
		s, err := tower.New[hashes](tower.Config{Rows: []tower.Row{{Bits: 8, Width: 32768}, {Bits: 16, Width: 16384}}})
		if err != nil {
			t.Fatal(err)
		}
		key := make([]byte, 13)
		for i := range tc.flows {
			binary.BigEndian.PutUint32(key, uint32(i))
			s.Add(key, max(tc.size(r), 1))
		}
		small, large := s.Row(0), s.Row(1)
		for i := range small {
			small[i] = min(small[i], 255)
		}
		for i := range large {
			large[i] = min(large[i], 65535)
		}
		l := &layout{bits: [2]int{8, 16}}
		classified := &reading{sizer: newSizer(l, 1, [2][]uint32{small, large}),
			edge: &edge{layout: *l}}
		classified.decoded = false // sizes of the classifier alone
		classified.totals(8)
		candidates := classified.classifier().Candidates(classified.guess)
		for _, x := range tc.at {
			want := 0.0
			for i := range tc.flows {
				binary.BigEndian.PutUint32(key, uint32(i))
				if s.Query(key) >= x {
					want++
				}
			}
			if got := candidates(x); math.Abs(got-want) > 0.15*want+30 {
				t.Errorf("%s flows: %.0f estimated with %d packets or more, %.0f measured", tc.name, got, x, want)
			}
		}
	}
}

// TestAllFlows: few candidates at Th 2 do not make Th 1, with which all flows are.
func TestAllFlows(t *testing.T) {
	room := [families]Room{{Up: 4096, Down: 3072, Reserve: 511, IllHL: 2559, IllLL: 512},
		{Up: 1024, Down: 768, Reserve: 127, IllHL: 639, IllLL: 128}}
	c := settings.Default[Configuration]()
	for flows, want := range map[float64]uint32{7500: 2, 5000: 1} {
		now := begin(&c, &room, []string{"a"})
		now.Th["a"] = 2
		sizes := estimate.NewTail([]float64{1, 2}, []float64{flows - 225, 225})
		e := &edgeState{hitters: [families]count{{flows: 433, decoded: true}, {decoded: true}},
			sizes:      func() *estimate.Tail { return &sizes },
			candidates: func(x uint32) float64 { return map[bool]float64{true: flows, false: 700}[x == 1] }}
		m := &measured{edges: map[string]*edgeState{"a": e}, deltas: true,
			hl: [families]count{{flows: 3000, decoded: true}, {decoded: true}},
			ll: [families]count{{decoded: true}, {decoded: true}}}
		if next, _, reasons := shift(now, now.State, m, &room); next.Th["a"] != want {
			t.Errorf("%.0f flows: Th %d, expected %d (%v)", flows, next.Th["a"], want, reasons)
		}
	}
}

// TestCrowdedClassifier: with so many flows that their sizes cannot be estimated, all HH parts are
// decoded from the third epoch on, the first for which Th was chosen. Where sizes differ, they are
// filled to a fifth in the eighth epoch. The testbed is a sixteenth of the paper's, so these are as
// many flows for each counter as 16 times as many in the paper's testbed.
func TestCrowdedClassifier(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"flood", "DCTCP", "HADOOP"} {
		for _, n := range []int{1_000_000 / 16, 4_000_000 / 16} {
			const packets, heavy = 10_000_000 / 16, 1000 // of an epoch, and of a heavy hitter
			sizes := []traffic.SizePoint{{Packets: 1, Share: 1}}
			if name != "flood" {
				var err error
				if sizes, err = traffic.Workload(name); err != nil {
					t.Fatal(err)
				}
			}
			f := newFabricOf(t, lab.Config{Seed: uint64(n), Shape: lab.Paper().Scaled(16)},
				fmt.Sprintf(`{"heavy-hitters": {"packets": %d, "share": 0}}`, heavy))
			flows := f.bed.Flows(lab.Traffic{Sizes: sizes, Flows: n})
			sum := int64(0)
			for i := range flows {
				sum += flows[i].Packets
			}
			actual := map[string]int64{}
			for i := range flows {
				flows[i].Packets = max(1, min(flows[i].Packets, flows[i].Packets*packets/sum))
				if flows[i].Packets >= heavy {
					actual[flows[i].Key.String()] = flows[i].Packets
				}
			}
			for epoch := 1; epoch <= 8; epoch++ {
				r := f.play(flows)
				if epoch < 3 {
					continue
				}
				for _, part := range lab.Rows(r, encoderList) {
					if load := float(part["load-factor"]); part["part"] == "HH" && part["family"] == "IPV4" &&
						(part["quality"] != "EXACT" || epoch == 8 && name != "flood" && load < 0.2) {
						t.Errorf("%s, %d flows, epoch %d: %v", name, n, epoch, part)
					}
				}
				found := 0
				for _, h := range lab.Rows(r, hitterList) {
					if h["node"] == Network && actual[h["flow"]] > 0 {
						found++
					}
				}
				if found != len(actual) {
					t.Errorf("%s, %d flows, epoch %d: %d of %d heavy hitters", name, n, epoch, found, len(actual))
				}
			}
		}
	}
}
