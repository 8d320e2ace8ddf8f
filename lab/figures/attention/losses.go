// SPDX-License-Identifier: Apache-2.0

package attention

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// healthyPlace is a workload and a number of flows at which every victim of a healthy network must
// be published: 10,000 to 70,000 flows with 10 % victims.
type healthyPlace struct {
	workload string
	flows    int
}

func (x *Sample) healthyPlace() (p healthyPlace, ok bool) {
	return healthyPlace{x.Workload, x.Flows}, !x.Sweep.Victims && x.Flows <= 70_000
}

// tally counts epochs by their result.
type tally struct{ epochs, decoded, exact, wrong, seeds int }

// illness is the accuracy of the decoded epochs of an ill network.
type illness struct {
	epochs, decoded int
	heavy, recorded Score   // of all epochs together
	worst           float64 // F1 of heavy in an epoch
	low, high       float64 // estimate of the number of victims
	squares         float64
}

func (w *illness) add(x *Sample) {
	if w.epochs == 0 {
		w.worst, w.low, w.high = 1, 1, 1
	}
	w.epochs++
	if !x.Decoded {
		return
	}
	w.decoded++
	w.heavy.Add(x.HeavyVictims)
	w.recorded.Add(x.Recorded)
	w.worst = min(w.worst, x.HeavyVictims.F1())
	w.low, w.high = min(w.low, x.Estimate), max(w.high, x.Estimate)
	w.squares += (x.Estimate - 1) * (x.Estimate - 1)
}

func (w *illness) error() float64 { return math.Sqrt(w.squares / float64(max(w.decoded, 1))) }

// divide groups samples by the requirements on them. A seed is exact at a place if its first
// measured epoch is.
func divide(samples []Sample) (healthy map[healthyPlace]*tally, ill map[string]*illness, wrong int) {
	healthy, ill = make(map[healthyPlace]*tally), make(map[string]*illness)
	type seed struct {
		healthyPlace
		seed uint64
	}
	seen := make(map[seed]bool)
	for i := range samples {
		x := &samples[i]
		if x.False > 0 {
			wrong++
		}
		if x.State == "ill" {
			if ill[x.Workload] == nil {
				ill[x.Workload] = &illness{}
			}
			ill[x.Workload].add(x)
		}
		p, ok := x.healthyPlace()
		if !ok {
			continue
		}
		c := healthy[p]
		if c == nil {
			c = &tally{}
			healthy[p] = c
		}
		count := func(n *int, is bool) {
			if is {
				*n++
			}
		}
		c.epochs++
		count(&c.decoded, x.Decoded)
		count(&c.exact, x.Exact)
		count(&c.wrong, x.False > 0)
		if s := (seed{p, x.Seed}); !seen[s] {
			seen[s] = true
			count(&c.seeds, x.Exact)
		}
	}
	return healthy, ill, wrong
}

// LossClaims compares the published victims with the requirements: exact while the network is
// healthy; while it is ill, heavy victims with an F1 of 0.99 and their number within 10 %.
func LossClaims(samples []Sample) (out []Claim) {
	healthy, ill, wrong := divide(samples)
	var all tally
	for _, c := range healthy {
		all.epochs, all.exact = all.epochs+c.epochs, all.exact+c.exact
	}
	if all.epochs > 0 {
		out = append(out, claim("healthy: every victim published with its exact number of lost packets",
			fmt.Sprintf("in %d of %d epochs", all.exact, all.epochs), all.exact == all.epochs, ""))
	}
	for _, name := range slices.Sorted(maps.Keys(ill)) {
		w := ill[name]
		out = append(out,
			claim(name+", ill: flows that lost at least Tl packets with F1 of at least 0.99",
				fmt.Sprintf("%.4f, at least %.4f in a decoded epoch", w.heavy.F1(), w.worst), w.heavy.F1() >= 0.99, ""),
			claim(name+", ill: number of victims within 10 %",
				fmt.Sprintf("%+.1f to %+.1f %%", 100*(w.low-1), 100*(w.high-1)), w.low >= 0.9 && w.high <= 1.1, ""))
	}
	return append(out, claim("no published victim or number is wrong",
		fmt.Sprintf("%d of %d epochs have a wrong victim or number", wrong, len(samples)), wrong == 0, ""))
}

// lossPage compares the published victims with the ground truth.
func lossPage(samples []Sample, list []Claim, method string) string {
	healthy, ill, _ := divide(samples)
	var b strings.Builder
	fmt.Fprintf(&b, "# Lost packets, published and true (ChameleMon)\n\n%s\n\n", method)
	claims(&b, "requirement", list)
	b.WriteString("\n## Healthy\n\nMeasured epochs in which every victim was published with its exact number of lost " +
		"packets, at 10 % victims, and seeds whose first measured epoch was one of these.\n\n| |")
	places := slices.SortedFunc(maps.Keys(healthy), func(a, b healthyPlace) int {
		return cmp.Or(cmp.Compare(a.workload, b.workload), cmp.Compare(a.flows, b.flows))
	})
	var axis []int
	for _, p := range places {
		if !slices.Contains(axis, p.flows) {
			axis = append(axis, p.flows)
		}
	}
	slices.Sort(axis)
	for _, x := range axis {
		fmt.Fprintf(&b, " %dK |", x/1000)
	}
	fmt.Fprintf(&b, "\n|%s", strings.Repeat("---|", 1+len(axis)))
	last := ""
	for _, p := range places {
		if p.workload != last {
			fmt.Fprintf(&b, "\n| %s |", p.workload)
			last = p.workload
		}
		c := healthy[p]
		fmt.Fprintf(&b, " %d of %d, %d seeds |", c.exact, c.epochs, c.seeds)
	}
	b.WriteString("\n\n## Ill\n\nHeavy victims are flows that lost at least Tl packets. F1 compares them with the flows " +
		"whose published losses are at least Tl, over all decoded epochs and in the worst one. " +
		"Losses of an unsampled flow before its Tl-th packet are not recorded. The next column is the F1 of flows " +
		"that lost a packet while the classifier had them as HL or HH candidates (§4.2), which the model decides " +
		"itself. The number of victims is estimated from the sample.\n\n" +
		"| | epochs | decoded | heavy victims | F1 | worst F1 | F1 of candidates | number of victims | its standard " +
		"error |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(ill)) {
		w := ill[name]
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %.4f | %.4f | %.4f | %+.1f to %+.1f %% | %.1f %% |\n", name, w.epochs,
			w.decoded, w.heavy.Hits+w.heavy.Missed, w.heavy.F1(), w.worst, w.recorded.F1(), 100*(w.low-1),
			100*(w.high-1), 100*w.error())
	}
	return b.String()
}
