// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Claim is a sentence of a paper about a figure, and what is measured here.
type Claim struct {
	Figure string
	Paper  string
	Ours   func(v Values) string
	// Holds reports whether the paper's statement holds here; nil if the statement is a number
	// that depends on the paper's trace.
	Holds func(v Values) bool
	// Why it does not hold on the standard trace; "" where it does.
	Why string
}

// Values are rows to look up.
type Values []Row

// Get returns a value; NaN if there is no value.
func (v Values) Get(structure string, memory int, task, metric string) float64 {
	for i := range v {
		if r := &v[i]; r.Structure == structure && r.Memory == memory && r.Task == task && r.Metric == metric {
			return r.Value
		}
	}
	return math.NaN()
}

// Variant is a value by structure and variant.
func (v Values) Variant(structure, variant, task, metric string) float64 {
	for i := range v {
		if r := &v[i]; r.Structure == structure && r.Variant == variant && r.Task == task && r.Metric == metric {
			return r.Value
		}
	}
	return math.NaN()
}

func Short(x float64) string {
	if math.IsNaN(x) {
		return "–"
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}

// Times claims the factor by which one structure's error is below the others'.
func Times(figure, paper string, memory int, task, metric, ours string, others []string, atLeast float64,
	why string,
) Claim {
	ratio := func(v Values, other string) float64 {
		return v.Get(other, memory, task, metric) / v.Get(ours, memory, task, metric)
	}
	return Claim{
		Figure: figure, Paper: paper, Why: why,
		Ours: func(v Values) string {
			var parts []string
			for _, o := range others {
				parts = append(parts, fmt.Sprintf("%s %s", o, Short(ratio(v, o))))
			}
			return fmt.Sprintf("%s %s; times that: %s", ours, Short(v.Get(ours, memory, task, metric)),
				strings.Join(parts, ", "))
		},
		Holds: func(v Values) bool {
			for _, o := range others {
				if !(ratio(v, o) >= atLeast) {
					return false
				}
			}
			return true
		},
	}
}

// Order claims that at each memory the structures' metric is in an order: the first is the
// smallest, or the largest when down.
func Order(figure, paper, task, metric string, memories []int, down bool, structures []string, why string) Claim {
	return Claim{
		Figure: figure, Paper: paper, Why: why,
		Ours: func(v Values) string {
			var parts []string
			for _, m := range []int{memories[0], memories[len(memories)-1]} {
				var x []string
				for _, s := range structures {
					x = append(x, s+" "+Short(v.Get(s, m, task, metric)))
				}
				parts = append(parts, fmt.Sprintf("%d KB: %s", m/1000, strings.Join(x, ", ")))
				if len(memories) == 1 {
					break
				}
			}
			return strings.Join(parts, "; ")
		},
		Holds: func(v Values) bool {
			for _, m := range memories {
				for i := range structures[1:] {
					a, b := v.Get(structures[i], m, task, metric), v.Get(structures[i+1], m, task, metric)
					if down {
						a, b = b, a
					}
					if !(a <= b) {
						return false
					}
				}
			}
			return true
		},
	}
}

// Within claims that a metric of structures at one memory is at most, or at least when down,
// the paper's.
func Within(figure, paper string, memory int, task, metric string, structures []string, limits []float64, down bool,
	why string,
) Claim {
	return Claim{
		Figure: figure, Paper: paper, Why: why,
		Ours: func(v Values) string {
			var parts []string
			for _, s := range structures {
				parts = append(parts, s+" "+Short(v.Get(s, memory, task, metric)))
			}
			return strings.Join(parts, ", ")
		},
		Holds: func(v Values) bool {
			for i, limit := range limits {
				x := v.Get(structures[i], memory, task, metric)
				if down && !(x >= limit) || !down && !(x <= limit) {
					return false
				}
			}
			return true
		},
	}
}

// Best claims that a structure's metric is no worse than any other's at each memory: no
// larger, or no smaller when down.
func Best(figure, paper, task, metric string, memories []int, down bool, ours string, others []string,
	why string,
) Claim {
	c := Order(figure, paper, task, metric, memories, down, append([]string{ours}, others...), why)
	c.Holds = func(v Values) bool {
		for _, o := range others {
			if !Order(figure, paper, task, metric, memories, down, []string{ours, o}, why).Holds(v) {
				return false
			}
		}
		return true
	}
	return c
}

// Beyond claims that the structures' metric at one memory is worse than a limit: below it when
// down.
func Beyond(figure, paper string, memory int, task, metric string, others []string, limit float64, down bool,
	why string,
) Claim {
	c := Within(figure, paper, memory, task, metric, others, nil, down, why)
	c.Holds = func(v Values) bool {
		for _, o := range others {
			if x := v.Get(o, memory, task, metric); down && !(x < limit) || !down && !(x > limit) {
				return false
			}
		}
		return true
	}
	return c
}
