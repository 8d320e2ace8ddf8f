// SPDX-License-Identifier: Apache-2.0

// Package sweep plays a scenario with several values of its keys and several seeds, and draws the
// measures. It keeps no state between sweeps.
package sweep

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/lab/scenario"
	"github.com/netsketch/netsketch/p4/softswitch"
)

// Axis is a key of a scenario with the values that a sweep gives it.
type Axis struct {
	Key    string
	Values []string
}

// ParseAxis reads an axis such as traffic[0].flows=1000,5000. Commas in brackets or braces are part
// of a value.
func ParseAxis(text string) (Axis, error) {
	key, values, ok := strings.Cut(text, "=")
	if !ok || key == "" || values == "" {
		return Axis{}, fmt.Errorf("%q: expected a key of the scenario and its values, such as traffic[0].flows=1000,5000",
			text)
	}
	axis := Axis{Key: key}
	depth, from := 0, 0
	for i, c := range values + "," {
		switch c {
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		case ',':
			if depth <= 0 {
				axis.Values = append(axis.Values, strings.TrimSpace(values[from:i]))
				from = i + 1
			}
		}
	}
	if depth > 0 || slices.Contains(axis.Values, "") {
		return axis, fmt.Errorf("%q: expected values between commas", text)
	}
	for i, value := range axis.Values {
		if slices.Index(axis.Values, value) < i {
			return axis, fmt.Errorf("%q: the value %s is there twice; --seeds repeats a run with other seeds", text, value)
		}
	}
	return axis, nil
}

// Sweep plays a scenario once for each combination of the values of its axes and each seed.
type Sweep struct {
	Axes []Axis
	// Seeds is the number of seeds, beginning with the seed of the scenario.
	Seeds int
	// Load reads the scenario with changes.
	Load    func(changes ...scenario.Change) (*scenario.Scenario, error)
	Options scenario.Options
}

// Played is one run of a sweep.
type Played struct {
	Run, Of int      // number of the run, from 1, and number of all runs
	Values  []string // values of the axes
	Seed    uint64
	Report  *scenario.Report
}

// Line says in one line which run of a sweep it is, and why it failed.
func (p *Played) Line(axes []Axis) string {
	var point []string
	for i, a := range axes {
		point = append(point, a.Key+"="+p.Values[i])
	}
	text := "ok"
	if r := p.Report; !r.OK {
		reasons := []string{}
		if r.Error != "" {
			reasons = append(reasons, strings.ReplaceAll(r.Error, "\n", "; "))
		}
		for _, v := range r.Expected {
			if !v.OK {
				reasons = append(reasons, strings.TrimSpace(fmt.Sprintf("%s %s: %g", v.Bound, v.Dimension, v.Value)))
			}
		}
		text = strings.TrimSuffix("failed: "+strings.Join(reasons, "; "), ": ")
	}
	return fmt.Sprintf("run %d of %d: %s, seed %d: %s", p.Run, p.Of, strings.Join(point, ", "), p.Seed, text)
}

// CheckKeys returns an error if axes change the same key, of which only the last would count.
func CheckKeys(axes []Axis) error {
	for i, a := range axes {
		if slices.IndexFunc(axes, func(o Axis) bool { return o.Key == a.Key }) < i {
			return fmt.Errorf("%s is there twice; list all of its values in one, as %s=1,2", a.Key, a.Key)
		}
	}
	return nil
}

// Play plays all runs and passes each to done when it has ended. It loads all scenarios first, so
// that a wrong value is found at once.
func (w *Sweep) Play(ctx context.Context, done func(Played) error) error {
	var scenarios []*scenario.Scenario
	grid := [][]scenario.Change{nil}
	for _, axis := range w.Axes {
		var next [][]scenario.Change
		for _, point := range grid {
			for _, v := range axis.Values {
				next = append(next, append(slices.Clone(point), scenario.Change{Key: axis.Key, Value: v}))
			}
		}
		grid = next
	}
	for _, point := range grid {
		s, err := w.Load(point...)
		if err != nil {
			return err
		}
		scenarios = append(scenarios, s)
	}
	if w.Options.Compiler == nil {
		w.Options.Compiler = &softswitch.Compiler{}
	}
	p := Played{Of: len(grid) * w.Seeds}
	for i, s := range scenarios {
		p.Values = nil
		for _, c := range grid[i] {
			p.Values = append(p.Values, c.Value)
		}
		first := s.Seed
		for n := range w.Seeds {
			s.Seed = first + uint64(n)
			p.Run, p.Seed = p.Run+1, s.Seed
			o := w.Options
			o.Point = p.Values
			p.Report = play(ctx, s, o)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := done(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// play plays a scenario to its end.
func play(ctx context.Context, s *scenario.Scenario, o scenario.Options) *scenario.Report {
	r, err := scenario.Open(ctx, s, o)
	if err != nil {
		return &scenario.Report{Scenario: s.Name, Error: err.Error()}
	}
	report, err := r.Play(ctx)
	if err = errors.Join(err, r.Close()); err != nil {
		report.OK, report.Error = false, err.Error()
	}
	return report
}

// Summary is the mean of a measure over the seeds of one point of a sweep.
type Summary struct {
	Values                        []string // values of the axes
	Algorithm, Measure, Dimension string
	// Mean ± Half is the 95 % confidence interval by Student's t distribution; Half is NaN for one
	// run.
	Mean, Half float64
	Runs       int // runs that measured it
}

// Summarize summarizes the rows of a sweep, in their order. Runs that are not successful count too.
func Summarize(rows []Row) (out []Summary) {
	values := map[string][]float64{}
	key := func(values []string, algorithm, measure, dimension string) string {
		return strings.Join(append(slices.Clone(values), algorithm, measure, dimension), "\x00")
	}
	for _, r := range rows {
		k := key(r.Values, r.Algorithm, r.Measure, r.Dimension)
		if _, seen := values[k]; !seen {
			out = append(out, Summary{Values: r.Values, Algorithm: r.Algorithm, Measure: r.Measure, Dimension: r.Dimension})
		}
		if values[k] = append(values[k], r.Value); math.IsNaN(r.Value) {
			values[k] = values[k][:len(values[k])-1]
		}
	}
	for i := range out {
		s := &out[i]
		s.Mean, s.Half, s.Runs = Confidence(values[key(s.Values, s.Algorithm, s.Measure, s.Dimension)])
	}
	return out
}

// Confidence returns the mean of values, and half the width of its 95 % confidence interval, which
// is NaN for fewer than two values.
func Confidence(values []float64) (mean, half float64, n int) {
	n = len(values)
	for _, v := range values {
		mean += v / float64(n)
	}
	if n == 0 {
		mean = math.NaN()
	}
	if n < 2 {
		return mean, math.NaN(), n
	}
	squares := 0.0
	for _, v := range values {
		squares += (v - mean) * (v - mean)
	}
	t := student95[min(n-1, len(student95))-1]
	return mean, t * math.Sqrt(squares/float64(n-1)/float64(n)), n
}

// student95 are the 97.5 % quantiles of Student's t distribution for 1 to 30 degrees of freedom.
// The last one is used for more.
var student95 = []float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
	2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042}
