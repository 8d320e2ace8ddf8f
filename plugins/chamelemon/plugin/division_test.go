// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"testing"

	"github.com/netsketch/netsketch/sketch/estimate"

	"github.com/netsketch/netsketch/settings"
)

// divisor is the greatest common one.
func divisor(a, b int) int {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}

// TestOddParts: whatever the division, it fits, and while healthy arrays of HL and HH have no
// divisor in common.
func TestOddParts(t *testing.T) {
	c := settings.Default[Configuration]()
	sizes := estimate.NewTail([]float64{1, 10}, []float64{1000, 10})
	for _, reserve := range []int{0, 1, 2, 511, 512} {
		c.Division.Reserve = reserve
		room := (&layout{up: [families]int{4096, 1024}, down: [families]int{3072, 768}}).room(&c)
		check := func(a Attention) {
			t.Helper()
			for f, p := range a.Parts {
				if hh := a.hitters(f, &room); p.HL%2 == 0 || hh%2 == 0 || p.HL+p.LL > room[f].Down || hh < 1 ||
					a.State == Healthy && divisor(p.HL, hh) > 1 {
					t.Errorf("reserve %d, %s: %+v and %d for HH", reserve, a.State, p, hh)
				}
			}
		}
		check(begin(&c, &room, []string{"a"}))
		for flows := 0.0; flows < 20_000; flows += 97 {
			for _, decoded := range []bool{false, true} {
				for _, ill := range []bool{false, true} {
					now := begin(&c, &room, []string{"a"})
					if ill {
						now.State, now.Tl, now.Sample = Ill, 2, Sampled
						for f := range families {
							now.Parts[f] = Parts{LL: room[f].IllLL, HL: room[f].IllHL}
						}
					}
					m := &measured{edges: map[string]*edgeState{"a": {hitters: [families]count{{flows: 100,
						decoded: true}, {flows: 10, decoded: true}}, sizes: func() *estimate.Tail { return &sizes },
						candidates: sizes.AtLeast}}, deltas: true}
					m.hl, m.ll = [families]count{{flows: flows, decoded: decoded},
						{flows: flows / 4, decoded: decoded}}, [families]count{{decoded: true}, {decoded: true}}
					m.victims = []victimSize{{size: 5, weight: flows}, {family: 1, size: 5, weight: flows / 4}}
					next, _, _ := shift(now, now.State, m, &room)
					check(next)
				}
			}
		}
	}
}
