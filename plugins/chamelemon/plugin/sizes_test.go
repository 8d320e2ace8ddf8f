// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"math"
	"testing"

	lab "github.com/netsketch/netsketch/internal/test/chamelemon"
	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/plugins/chamelemon/sizes"
)

// TestSizes compares the published distribution of flow sizes and the entropy with the ground
// truth, on the paper's workloads, with as many flows as make Th small and large.
func TestSizes(t *testing.T) {
	t.Parallel()
	for _, workload := range []string{"DCTCP", "CACHE", "VL2", "HADOOP"} {
		of, err := traffic.Workload(workload)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{7500, 15_000, 22_500} { // flows in a network of a quarter of the paper's size
			f := newSmall(t, uint64(n)+13, `{}`)
			d := lab.Traffic{Sizes: of, Flows: n, Victims: 0.05, Loss: 0.05}
			for range 5 {
				f.play(f.bed.Flows(d))
			}
			flows := f.bed.Flows(d)
			r := f.play(flows)
			truth := truthOf(nil, flows, -1)
			diff, sum, worst := 0.0, 0.0, 1.0
			line := ""
			reported := make(map[string]float64)
			for _, m := range lab.Rows(r, rangeList) {
				if m["node"] == Network {
					reported[m["lower"]] = float(m["flows"])
				}
			}
			for first, want := range truth.byRange {
				got := reported[first]
				diff += math.Abs(got - float64(want))
				sum += (got + float64(want)) / 2
				if want >= 500 && float(first) > sizes.Single {
					worst = max(worst, got/float64(want), float64(want)/got)
					line += fmt.Sprintf(" %s: %.0f of %d;", first, got, want)
				}
				delete(reported, first)
			}
			for _, got := range reported {
				diff, sum = diff+got, sum+got/2
			}
			a := row(t, r, attentionList)
			entropy := float(row(t, r, summaryList, "node", Network)["entropy"])/truth.entropy - 1
			text := fmt.Sprintf("%s, %d flows, Th %s: WMRE %.4f, entropy off by %+.4f, a range by a factor of %.3f:%s", workload,
				n, a["highest-threshold"], diff/sum, entropy, worst, line)
			t.Log(text)
			limit := 0.06
			if workload == "CACHE" { // most flows have one or two packets
				limit = 0.15
			}
			if diff/sum > limit || math.Abs(entropy) > 0.005 || worst > 1.2 {
				t.Error(text)
			}
		}
	}
}
