// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// supplyOf returns a supply of n packets over each path.
func supplyOf(switches int, packets float64, paths ...[]int) *supply {
	s := &supply{passed: make([]float64, switches)}
	for _, p := range paths {
		s.paths, s.packets = append(s.paths, p), append(s.packets, packets)
		for _, at := range p {
			s.passed[at] += packets
		}
	}
	return s
}

// TestChoose: with enough packets each switch inserts what is wanted, although a packet carries one
// sketchlet at most; with too few, nearly every packet carries one, and switches share them evenly.
func TestChoose(t *testing.T) {
	const columns = 1000.
	line, back := []int{0, 1, 2, 3}, []int{3, 2, 1, 0}
	for _, tt := range []struct {
		name    string
		packets float64 // packets on each of two paths
		wanted  float64
		low     float64 // least and most sketchlets of a switch
		high    float64
		carried float64 // least share of packets with a sketchlet
	}{
		{"enough", 10_000, 2000, 1900, 2100, 0.35},
		{"just enough", 4500, 2000, 1800, 2100, 0.8},
		{"too few", 1000, 2000, 350, 650, 0.9},
	} {
		s := supplyOf(4, tt.packets, line, back)
		lambda, in := s.choose(tt.wanted, columns, 0), make([]float64, 4)
		s.inserted(in, lambda)
		sum := 0.
		for at, n := range in {
			sum += n
			if n < tt.low || n > tt.high {
				t.Errorf("%s: switch %d inserts %.0f sketchlets, want %.0f to %.0f; λc %v", tt.name, at, n, tt.low, tt.high, lambda)
			}
		}
		if share := sum / (2 * tt.packets); share < tt.carried || share > 1+1e-9 {
			t.Errorf("%s: %.2f of the packets carry a sketchlet, want %.2f", tt.name, share, tt.carried)
		}
	}
	if lambda := supplyOf(4, 1e9, line, back).choose(2000, columns, 0.0625); slices.Min(lambda) != 0.0625 ||
		slices.Max(lambda) != 0.0625 {
		t.Errorf("with very many packets λc is %v, want the least one", lambda)
	}
}

// TestChooseAnyPaths: on any paths λc is from the least one to 1, and at least as many columns
// arrive as with the least one everywhere.
func TestChooseAnyPaths(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		switches := 1 + r.IntN(30)
		var paths [][]int
		for range 1 + r.IntN(40) {
			paths = append(paths, r.Perm(switches)[:1+r.IntN(min(switches, 6))])
		}
		s := supplyOf(switches, 100*r.ExpFloat64(), paths...)
		least, equal := 1./16, slices.Repeat([]float64{1. / 16}, switches)
		lambda, in, before := s.choose(2000, 1000, least), make([]float64, switches), make([]float64, switches)
		s.inserted(in, lambda)
		s.inserted(before, equal)
		a, b := 0., 0.
		for at := range in {
			a, b = a+min(in[at], 2000), b+min(before[at], 2000)
		}
		if slices.Min(lambda) < least || slices.Max(lambda) > 1 || a < b {
			t.Errorf("seed %d: λc %v, %.0f sketchlets instead of %.0f", seed, lambda, a, b)
		}
	}
}

// lambdas returns λc in parts of 65,536 that plans give to switches.
func lambdas(plans []sdk.Plan) map[string]uint32 {
	out := map[string]uint32{}
	for _, p := range plans {
		for _, w := range p.Writes {
			if w.Entry.Table == "ingress.lightguardian.carry" {
				out[w.Device] = binary.BigEndian.Uint32(append([]byte{0}, w.Entry.Params[1].Value...))
			}
		}
	}
	return out
}

// TestCarry: few packets pass, so that λc of the switches on their path rises, once. If the plan
// fails, it is planned again. Another configuration of the network keeps it, and copies 0 does not
// choose λc.
func TestCarry(t *testing.T) {
	h, k, s := start(t, ""), simKey(t, 2, "spine1"), newSim(t)
	s.send(k, 2, 100, "leaf1", "spine1", "leaf2")
	out := play(t, h, 5, s)
	got := lambdas(out.Plans)
	for _, name := range []string{"leaf1", "spine1", "leaf2"} {
		if got[name] < 65_536/4 {
			t.Errorf("λc of %s is %d of 65,536", name, got[name])
		}
	}
	if got["leaf2"] != 65_536 {
		t.Errorf("λc of the last switch is %d; every packet without a sketchlet can carry one", got["leaf2"])
	}
	if out.Plans[0].FromEpoch != 7 || out.Plans[0].ID == h.Settings().Plan.ID {
		t.Errorf("plan %d from epoch %d", out.Plans[0].ID, out.Plans[0].FromEpoch)
	}
	failed := out.Plans[0].ID
	if again := lambdas(h.Analyze(simEpoch(t, h, 7, s, s, everything)).Plans); len(again) > 0 {
		t.Errorf("planned again: %v", again)
	}
	e := simEpoch(t, h, 8, s, s, everything)
	e.Plans = []sdk.PlanOutcome{{Plan: failed, Device: "spine1", Status: sdk.PlanFailed, Reason: "no reply"}}
	if again := lambdas(h.Analyze(e).Plans); len(again) != 1 || again["spine1"] != got["spine1"] {
		t.Errorf("after a failure %v is planned, want λc of spine1", again)
	}
	settings, err := h.Configure(simConfig(""), simNetwork(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if now := lambdas([]sdk.Plan{*settings.Plan}); now["leaf1"] != got["leaf1"] {
		t.Errorf("after a configuration λc of leaf1 is %d, want %d", now["leaf1"], got["leaf1"])
	}
	if settings, err = h.Configure(simConfig(`, "copies": 0`), simNetwork(), 0); err != nil {
		t.Fatal(err)
	}
	if now := lambdas([]sdk.Plan{*settings.Plan}); now["leaf1"] != 4096 {
		t.Errorf("with copies 0 λc of leaf1 is %d, want 1/16", now["leaf1"])
	}
	if plans := lambdas(h.Analyze(simEpoch(t, h, 9, s, s, everything)).Plans); len(plans) > 0 {
		t.Errorf("with copies 0 λc %v is planned", plans)
	}
}
