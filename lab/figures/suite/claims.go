// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Claim is a sentence of a paper about a figure, and how it is compared with the rows measured
// here. The page of a suite lists its claims as data. A claim has a rule, or Here and Holds.
type Claim struct {
	Figure string // figure, table or section of the paper
	Paper  string // the paper's statement
	// Here states the measured result in words. An expression in braces stands for its value, with
	// three digits or, as in {%.1f x}, in another format. Package expr describes expressions;
	// define.go lists the functions that they may call.
	Here string
	// Holds is an expression. It is true if the paper's statement holds for the measured rows. It is
	// "" for a statement that cannot be decided here: Why then has the reason.
	Holds string
	// Why is the reason why the statement does not hold on the standard trace, or why it is not
	// decided; "" if it holds.
	Why string
	// Better is an expression. It is true if the result here is strictly better than the paper's
	// statement. Rules with limits need none, unless Vague.
	Better string
	Vague  bool // the paper states no number: limits follow from its words or axes
	// Apart is the reason why the statement cannot be compared with the measurement, by the kind of
	// the reason, one of kinds. The claim is then undecided, whatever the values are.
	Apart map[string]string

	Rule         string // name of a rule; "" for Here and Holds
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
	Open          bool // set if the statement cannot be decided here
	Holds         bool
	Why           string // the reason, if it does not hold
	Better        bool   // Holds, and what was measured is strictly better than stated
	Tie           bool   // Holds, but two values are equal although the statement calls one of them better
	Apart         string // why it cannot be compared, "" if it can
}

// kinds are the differences for which a statement cannot be compared: another kind of hardware or
// workload; a formula instead of a measurement; a truth that the system itself has decided; memory
// that the paper's structure does not have; a setting that is not the default, or that the paper
// does not use.
var kinds = []string{"hardware", "workload", "formula", "truth", "memory", "setting"}

// Mark returns the verdict in a word, with the reason if the claim does not hold.
func (v *Verdict) Mark() string {
	switch {
	case v.Apart != "":
		return "not comparable: " + v.Apart
	case v.Open:
		return "open: " + v.Why
	case v.Holds && v.Tie:
		return "yes: a tie"
	case v.Holds && v.Better:
		return "yes: better"
	case v.Holds:
		return "yes"
	case v.Why != "":
		return "no: " + v.Why
	}
	return "no"
}

// SayOnce replaces a reason that an earlier verdict has by the figure of that verdict.
func SayOnce(all []Verdict) {
	said := map[string]string{} // the figure by reason
	once := func(reason, figure string) string {
		before, ok := said[reason]
		switch {
		case reason == "":
			return ""
		case !ok:
			said[reason] = figure
			return reason
		case before == figure:
			return "as above"
		}
		return "as in " + before
	}
	for i := range all {
		v := &all[i]
		if kind, reason, ok := strings.Cut(v.Apart, ", "); ok {
			v.Apart = kind + ", " + once(reason, v.Figure)
		} else if v.Apart == "" && !v.Holds && !v.Open {
			v.Why = once(v.Why, v.Figure)
		}
	}
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
			v.Here, v.Holds, v.Better, v.Tie, err = c.judge(rows)
		} else if v.Here, err = fill(c.Here, env); err == nil {
			v.Open = c.Holds == ""
			v.Holds, err = truth(c.Holds, env)
			if v.Open && c.Why == "" && len(c.Apart) == 0 {
				err = errors.New("it has neither a rule nor holds, and no reason")
			}
		}
		if err == nil && c.Better != "" {
			v.Better, err = truth(c.Better, env)
		}
		if v.Holds && v.Better && len(c.Apart) == 0 {
			v.Apart = s.other()
		}
		for kind, why := range c.Apart {
			v.Apart = kind + ", " + why
			if !slices.Contains(kinds, kind) || why == "" || len(c.Apart) > 1 {
				err = fmt.Errorf("apart %q: expected one of %s, with a reason", c.Apart,
					strings.Join(kinds, ", "))
			}
		}
		if err != nil {
			return nil, fmt.Errorf("figure %s, %q: %w", c.Figure, c.Paper, err)
		}
		verdicts = append(verdicts, v)
	}
	return verdicts, nil
}

// other is why a result that is better than the paper's number cannot be compared with it: the
// page's traffic replaces a trace that is not public, or its rows are times of one processor. "" if
// it can.
func (s *Suite) other() string {
	switch {
	case strings.HasPrefix(s.Workload, "Zipf "):
		return "workload, better here, but the paper's number is of a trace that is not public"
	case s.Hardware == "processor":
		return "hardware, better here, but the paper's number is of another processor"
	}
	return ""
}

// truth evaluates a condition; "" is false.
func truth(text string, env map[string]any) (bool, error) {
	if text == "" {
		return false, nil
	}
	value, err := evaluate(text, env)
	if err != nil {
		return false, err
	}
	is, ok := value.(bool)
	if !ok {
		return false, fmt.Errorf("%s is neither true nor false", text)
	}
	return is, nil
}

// Short writes a number with three digits, and a dash for a missing one.
func Short(x float64) string {
	if math.IsNaN(x) {
		return "–"
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}

// judge compares a claim that has a rule with rows.
func (c *Claim) judge(v Values) (here string, holds, better, tie bool, err error) {
	rule, ok := rules[c.Rule]
	if !ok || len(c.Memory) == 0 || len(c.Structures) == 0 || len(c.Limits) > len(c.Structures) ||
		rule.limited && len(c.Limits) == 0 {
		return "", false, false, false, fmt.Errorf(
			"figure %s, %q: rule %q lacks memory, structures or limits, or is unknown", c.Figure, c.Paper, c.Rule)
	}
	get := func(structure string, memory int) float64 { return v.Get(structure, memory, c.Task, c.Metric) }
	here, holds, better = rule.judge(c, get)
	if !rule.limited { // a tie with the second best, at any memory
		tie = !c.atEach(get, func(values []float64) bool { return slices.Index(values[1:], values[0]) < 0 })
	}
	return here, holds, holds && better && !c.Vague, holds && tie, nil
}

// rules are the comparisons that several claims share.
var rules = map[string]struct {
	limited bool // needs limits
	judge   func(c *Claim, get func(structure string, memory int) float64) (here string, holds, better bool)
}{
	// times: the first structure's metric is at least the limit's factor below the others'.
	"times": {true, func(c *Claim, get func(string, int) float64) (string, bool, bool) {
		ours := get(c.Structures[0], c.Memory[0])
		var parts []string
		holds, better := true, true
		for _, other := range c.Structures[1:] {
			ratio := get(other, c.Memory[0]) / ours
			parts = append(parts, other+" "+Short(ratio))
			holds, better = holds && ratio >= c.Limits[0]*(1-c.Tie), better && ratio > c.Limits[0]
		}
		here := fmt.Sprintf("%s %s; times that: %s", c.Structures[0], Short(ours), strings.Join(parts, ", "))
		return here, holds, better
	}},
	// order: at each memory no structure is better than the one before it.
	"order": {false, func(c *Claim, get func(string, int) float64) (string, bool, bool) {
		return c.ends(get), c.atEach(get, func(values []float64) bool {
			for i := range values[1:] {
				if !c.noWorse(values[i], values[i+1]) {
					return false
				}
			}
			return true
		}), false
	}},
	// best: at each memory no structure is better than the first.
	"best": {false, func(c *Claim, get func(string, int) float64) (string, bool, bool) {
		best := func(values []float64) bool { return c.noWorse(values[0], slices.Min(values)) }
		return c.ends(get), c.atEach(get, best), false
	}},
	// within: structures are at least as good as their limits; those without a limit are shown.
	"within": {true, func(c *Claim, get func(string, int) float64) (string, bool, bool) {
		holds, better := true, true
		for i, limit := range c.Limits {
			x := get(c.Structures[i], c.Memory[0])
			holds = holds && (c.Larger && x >= limit*(1-c.Tie) || !c.Larger && x <= limit*(1+c.Tie))
			better = better && (c.Larger && x > limit || !c.Larger && x < limit)
		}
		return c.at(get, c.Memory[0]), holds, better
	}},
	// beyond: all structures are worse than the limit.
	"beyond": {true, func(c *Claim, get func(string, int) float64) (string, bool, bool) {
		holds := true
		for _, structure := range c.Structures {
			x := get(structure, c.Memory[0])
			holds = holds && (c.Larger && x < c.Limits[0] || !c.Larger && x > c.Limits[0])
		}
		return c.at(get, c.Memory[0]), holds, false
	}},
}

// noWorse reports whether a value is at most another value, or equal within the tie.
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
