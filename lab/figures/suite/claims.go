// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Claim is a sentence of a paper about a figure, and how it is compared with the rows measured
// here. The page of a suite lists its claims as data. A claim has a rule, or Here and Holds.
type Claim struct {
	Figure string // of the paper, or its table or section
	Paper  string // the paper's statement
	// Here is what was measured, in words. An expression in braces stands for its value, with three
	// digits or, as in {%.1f x}, in another format. Package expr describes expressions; define.go
	// lists what they may call.
	Here string
	// Holds is an expression. It is true if the paper's statement holds on what was measured here.
	// "" for a number that depends on the paper's trace, which nobody else has.
	Holds string
	// Why the statement does not hold on the standard trace; "" where it holds.
	Why string

	Rule         string // one of rules; "" for Here and Holds
	Task, Metric string
	Memory       []int // bytes
	Structures   []string
	Limits       []float64
	Larger       bool // a larger value of the metric is the better one
	// Tie is the share by which a value may miss its limit, or the value of another structure, and
	// still count as equal: the claim holds then.
	Tie float64
}

// Verdict is a claim after its comparison with rows.
type Verdict struct {
	Figure, Paper string
	Here          string
	Open          bool // the statement cannot be decided here
	Holds         bool
	Why           string // the reason, if it does not hold
}

// Mark returns the verdict in a word, with the reason if the claim does not hold.
func (v *Verdict) Mark() string {
	switch {
	case v.Open:
		return ""
	case v.Holds:
		return "yes"
	case v.Why != "":
		return "no: " + v.Why
	}
	return "no"
}

// Judge compares the claims of a suite with its rows.
func (s *Suite) Judge(rows []Row) ([]Verdict, error) {
	if len(s.Claims) == 0 {
		return nil, nil
	}
	env, err := environment(s.Define, rows)
	if err != nil {
		return nil, err
	}
	var verdicts []Verdict
	for i := range s.Claims {
		c := &s.Claims[i]
		v := Verdict{Figure: c.Figure, Paper: c.Paper, Why: c.Why}
		if c.Rule != "" {
			v.Here, v.Holds, err = c.judge(rows)
		} else if v.Here, err = fill(c.Here, env); err == nil && c.Holds == "" {
			v.Open = true
		} else if err == nil {
			var holds any
			holds, err = evaluate(c.Holds, env)
			isBool := false
			if v.Holds, isBool = holds.(bool); err == nil && !isBool {
				err = fmt.Errorf("%s is neither true nor false", c.Holds)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("figure %s, %q: %w", c.Figure, c.Paper, err)
		}
		verdicts = append(verdicts, v)
	}
	return verdicts, nil
}

// Short writes a number with three digits, and a dash for a missing one.
func Short(x float64) string {
	if math.IsNaN(x) {
		return "–"
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}

// judge compares a claim that has a rule with rows.
func (c *Claim) judge(v Values) (here string, holds bool, err error) {
	rule, ok := rules[c.Rule]
	if !ok || len(c.Memory) == 0 || len(c.Structures) == 0 || len(c.Limits) > len(c.Structures) ||
		rule.limited && len(c.Limits) == 0 {
		return "", false, fmt.Errorf("figure %s, %q: rule %q lacks memory, structures or limits, or is unknown", c.Figure,
			c.Paper, c.Rule)
	}
	here, holds = rule.judge(c, func(structure string, memory int) float64 {
		return v.Get(structure, memory, c.Task, c.Metric)
	})
	return here, holds, nil
}

// rules are the comparisons that several claims share.
var rules = map[string]struct {
	limited bool // needs limits
	judge   func(c *Claim, get func(structure string, memory int) float64) (here string, holds bool)
}{
	// times: the first structure's metric is at least the limit's factor below the others'.
	"times": {true, func(c *Claim, get func(string, int) float64) (string, bool) {
		ours := get(c.Structures[0], c.Memory[0])
		var parts []string
		holds := true
		for _, other := range c.Structures[1:] {
			ratio := get(other, c.Memory[0]) / ours
			parts, holds = append(parts, other+" "+Short(ratio)), holds && ratio >= c.Limits[0]*(1-c.Tie)
		}
		return fmt.Sprintf("%s %s; times that: %s", c.Structures[0], Short(ours), strings.Join(parts, ", ")), holds
	}},
	// order: at each memory no structure is better than the one before it.
	"order": {false, func(c *Claim, get func(string, int) float64) (string, bool) {
		return c.ends(get), c.atEach(get, func(values []float64) bool {
			for i := range values[1:] {
				if !c.noWorse(values[i], values[i+1]) {
					return false
				}
			}
			return true
		})
	}},
	// best: at each memory no structure is better than the first.
	"best": {false, func(c *Claim, get func(string, int) float64) (string, bool) {
		return c.ends(get), c.atEach(get, func(values []float64) bool { return c.noWorse(values[0], slices.Min(values)) })
	}},
	// within: structures are at least as good as their limits; those without a limit are shown.
	"within": {true, func(c *Claim, get func(string, int) float64) (string, bool) {
		holds := true
		for i, limit := range c.Limits {
			x := get(c.Structures[i], c.Memory[0])
			holds = holds && (c.Larger && x >= limit*(1-c.Tie) || !c.Larger && x <= limit*(1+c.Tie))
		}
		return c.at(get, c.Memory[0]), holds
	}},
	// beyond: all structures are worse than the limit.
	"beyond": {true, func(c *Claim, get func(string, int) float64) (string, bool) {
		holds := true
		for _, structure := range c.Structures {
			x := get(structure, c.Memory[0])
			holds = holds && (c.Larger && x < c.Limits[0] || !c.Larger && x > c.Limits[0])
		}
		return c.at(get, c.Memory[0]), holds
	}},
}

// noWorse reports whether a value is at most another one, or equal within the tie.
func (c *Claim) noWorse(a, b float64) bool { return a <= b+c.Tie*math.Abs(b) }

// at writes the metric of all structures at one memory.
func (c *Claim) at(get func(string, int) float64, memory int) string {
	var parts []string
	for _, structure := range c.Structures {
		parts = append(parts, structure+" "+Short(get(structure, memory)))
	}
	return strings.Join(parts, ", ")
}

// ends writes the metric at the first and the last memory.
func (c *Claim) ends(get func(string, int) float64) string {
	var parts []string
	for _, memory := range slices.Compact([]int{c.Memory[0], c.Memory[len(c.Memory)-1]}) {
		parts = append(parts, fmt.Sprintf("%d KB: %s", memory/1000, c.at(get, memory)))
	}
	return strings.Join(parts, "; ")
}

// atEach reports whether the values of the structures pass a check at each memory. The smaller
// value is the better one.
func (c *Claim) atEach(get func(string, int) float64, passes func(values []float64) bool) bool {
	for _, memory := range c.Memory {
		var values []float64
		for _, structure := range c.Structures {
			x := get(structure, memory)
			if c.Larger {
				x = -x
			}
			values = append(values, x)
		}
		if !passes(values) {
			return false
		}
	}
	return true
}
