// SPDX-License-Identifier: Apache-2.0

package attention

import (
	"context"
	"os"
	"testing"

	"github.com/netsketch/netsketch/internal/test/chamelemon"
	"github.com/netsketch/netsketch/lab/traffic"
)

// TestNearTheTurn plays 70,000 to 90,000 flows at 10 % victims, and 50,000 flows at 14 to 18 %, in
// a network of a quarter of the paper's size. In the first 8 epochs the number of victims is an
// estimate; after them, the state changes at most once. Below a load of 0.77 the network becomes
// healthy again, in 24 runs with other seeds in the 5th to 11th epoch, and stays so.
// `make figures-check` plays all of these numbers of flows and victims, other runs only those near
// the change.
func TestNearTheTurn(t *testing.T) {
	sizes, err := traffic.Workload("CACHE")
	if err != nil {
		t.Fatal(err)
	}
	var places []Place
	for _, flows := range []int{70_000, 74_000, 76_000, 80_000, 90_000} {
		places = append(places, Place{flows, 0.1})
	}
	for _, victims := range []float64{0.14, 0.15, 0.18} {
		places = append(places, Place{50_000, victims})
	}
	const epochs = 18
	for i, p := range places {
		if next := p.Flows == 76_000 || p.Flows == 80_000 || p.Victim == 0.15; !next &&
			os.Getenv("NETSKETCH_FIGURES") == "" {
			continue
		}
		d, err := chamelemon.Start(context.Background(),
			chamelemon.Config{Seed: uint64(i), Shape: chamelemon.Paper().Scaled(4)}, newPlugin(), configuration)
		if err != nil {
			t.Fatal(err)
		}
		var states string
		load := p.Victim * float64(p.Flows) / (chamelemon.Arrays * 3072)
		first := 8 // epoch from which changes count
		if load < 0.77 {
			first = 12
		}
		turns, last := 0, "healthy"
		for epoch := range epochs {
			x, err := d.Play(context.Background(),
				d.Testbed.Flows(chamelemon.Traffic{Sizes: sizes, Flows: p.Flows / 4, Victims: p.Victim, Loss: 0.01}))
			if err != nil {
				t.Fatal(err)
			}
			if x.Next != last && epoch >= first {
				turns++
			}
			last = x.Next
			states += map[bool]string{true: x.State[:1], false: "-"}[x.Decoded]
		}
		t.Logf("%d flows, %.2f victims: %s, then %d turns", p.Flows, p.Victim, states, turns)
		if turns > 1 || load < 0.77 && (turns > 0 || last != "healthy") || load > 0.79 && last != "ill" {
			t.Errorf("%d flows, %.2f victims: %s, %d turns", p.Flows, p.Victim, states, turns)
		}
	}
}

// TestFigure9 plays the ten changes of examples/chamelemon/figure9.yaml in a network of half the
// paper's size: within three epochs of each, everything is decoded in the state decided for the
// following epochs. Measurements vary more in smaller networks, so parts of the same load fail more
// often.
func TestFigure9(t *testing.T) {
	sizes, err := traffic.Workload("DCTCP")
	if err != nil {
		t.Fatal(err)
	}
	d, err := chamelemon.Start(context.Background(), chamelemon.Config{Seed: 11, Shape: chamelemon.Paper().Scaled(2)},
		newPlugin(), configuration)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for phase, p := range []Place{{20_000, 0.025}, {40_000, 0.025}, {40_000, 0.05}, {40_000, 0.1}, {40_000, 0.25},
		{40_000, 0.1}, {40_000, 0.05}, {40_000, 0.025}, {20_000, 0.025}, {20_000, 0.1}, {40_000, 0.1}} {
		balance := 0
		for epoch := range 4 {
			x, err := d.Play(context.Background(),
				d.Testbed.Flows(chamelemon.Traffic{Sizes: sizes, Flows: p.Flows / 2, Victims: p.Victim, Loss: 0.05}))
			if err != nil {
				t.Fatal(err)
			}
			if !x.Decoded || x.State != x.Next {
				balance = epoch + 1
			}
			seen[x.State] = true
		}
		t.Logf("%d flows, %.3f victims: balance after %d epochs", p.Flows, p.Victim, balance)
		if balance > 3 {
			t.Errorf("%d flows, %.3f victims (phase %d): balance after %d epochs", p.Flows, p.Victim, phase+1, balance)
		}
	}
	if len(seen) != 2 {
		t.Errorf("states %v: the test needs both states", seen)
	}
}
