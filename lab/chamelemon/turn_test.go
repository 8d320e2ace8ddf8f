// SPDX-License-Identifier: Apache-2.0

package chamelemon

import (
	"context"
	"testing"

	"github.com/netsketch/netsketch/lab/traffic"
)

// TestNearTheTurn plays 70,000 to 90,000 flows at 10 % victims, and 50,000 flows at 14 to 18 %, in a network of a quarter of
// the paper's size: the state turns once at most.
func TestNearTheTurn(t *testing.T) {
	sizes, err := traffic.Workload("CACHE")
	if err != nil {
		t.Fatal(err)
	}
	var places []Place
	for _, flows := range []int{70_000, 74_000, 75_000, 76_000, 80_000, 90_000} {
		places = append(places, Place{flows, 0.1})
	}
	for _, victims := range []float64{0.14, 0.15, 0.16, 0.18} {
		places = append(places, Place{50_000, victims})
	}
	const epochs = 20
	for i, p := range places {
		d, err := Start(context.Background(), Config{Seed: uint64(i), Shape: Paper().Scaled(4)}, plugin(), configuration)
		if err != nil {
			t.Fatal(err)
		}
		var states string
		turns, last := 0, "healthy"
		for range epochs {
			x, err := d.Play(context.Background(), d.Testbed.Flows(Traffic{Sizes: sizes, Flows: p.Flows / 4, Victims: p.Victim, Loss: 0.01}))
			if err != nil {
				t.Fatal(err)
			}
			if x.Next != last {
				turns++
			}
			last = x.Next
			states += map[bool]string{true: x.State[:1], false: "-"}[x.Decoded]
		}
		t.Logf("%d flows, %.2f victims: %s, %d turns", p.Flows, p.Victim, states, turns)
		if load := p.Victim * float64(p.Flows) / (arrays * 3072); turns > 1 || load < 0.77 && turns > 0 || load > 0.84 && last != "ill" {
			t.Errorf("%d flows, %.2f victims: %s, %d turns", p.Flows, p.Victim, states, turns)
		}
	}
}
