// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"os"
	"testing"

	lab "github.com/netsketch/netsketch/internal/test/chamelemon"
	"github.com/netsketch/netsketch/lab/traffic"
)

// TestBursts: after a jump from 0.5 % victims to up to 50 %, everything is decoded in the fourth
// epoch at the latest, and in at least five of the first nine. At least two are lost, because a
// decision applies to the epoch after the next. One or two later ones may be lost, too, because the
// number of victims is an estimate while it is too large. `make figures-check` plays all jumps.
func TestBursts(t *testing.T) {
	t.Parallel()
	all := os.Getenv("NETSKETCH_FIGURES") != ""
	distributions := map[string][]traffic.SizePoint{"Pareto": pareto}
	for _, name := range []string{"DCTCP", "CACHE", "VL2", "HADOOP"} {
		sizes, err := traffic.Workload(name)
		if err != nil {
			t.Fatal(err)
		}
		distributions[name] = sizes
	}
	for name, sizes := range distributions {
		for i, to := range []float64{0.03, 0.1, 0.15, 0.2, 0.3, 0.5} {
			for j, loss := range []float64{0.001, 0.05, 1} {
				if !all && (name != "DCTCP" || to != 0.15 && to != 0.5 || j != i%3) {
					continue
				}
				f := newFabricOf(t, lab.Config{Seed: uint64(100*i + j)}, `{}`)
				d := lab.Traffic{Sizes: sizes, Flows: 50_000, Victims: 0.005, Loss: 0.01}
				for range 7 {
					f.play(f.bed.Flows(d))
				}
				d.Victims, d.Loss = to, loss
				states, first, lost := "", 0, 0
				for epoch := 1; epoch <= 9; epoch++ {
					r := f.play(f.bed.Flows(d))
					a := row(t, r, attentionList)
					if a["status"] == "COMPLETE" {
						states += a["network-state"][:1]
						if first == 0 {
							first = epoch
						}
						continue
					}
					lost++
					states += "("
					for _, e := range lab.Rows(r, encoderList) {
						if e["quality"] == "ESTIMATE" {
							states += e["part"] + " " + e["load-factor"] + " "
						}
					}
					states += ")"
				}
				line := fmt.Sprintf("%s to %g victims that lose %g: %s", name, to, loss, states)
				t.Log(line)
				if first < 1 || first > 4 || lost > 4 {
					t.Errorf("%s: decoded from epoch %d on, %d epochs were not", line, first, lost)
				}
			}
		}
	}
}
