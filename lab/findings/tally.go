// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/netsketch/netsketch/lab/scenario/score"
)

// share is a count out of a total.
type share struct{ N, Of int }

func (s *share) add(hit bool) {
	s.Of++
	if hit {
		s.N++
	}
}

// value returns the share, 1 of nothing.
func (s share) value() float64 {
	if s.Of == 0 {
		return 1
	}
	return float64(s.N) / float64(s.Of)
}

// interval returns the limits of the share with a confidence of 95 % (Wilson).
func (s share) interval() (low, high float64) {
	if s.Of == 0 {
		return 0, 1
	}
	const z = 1.96
	n, p := float64(s.Of), s.value()
	center, half := p+z*z/(2*n), z*math.Sqrt(p*(1-p)/n+z*z/(4*n*n))
	return max(0, (center-half)/(1+z*z/n)), min(1, (center+half)/(1+z*z/n))
}

// rate returns the limits of n events in so many epochs, for each epoch, with a confidence of 95 %
// (exact for a Poisson distribution).
func (s share) rate() (low, high float64) {
	below := func(mean float64, n int) (p float64) { // at most n events
		for k, term := 0, math.Exp(-mean); k <= n; k++ {
			p += term
			term *= mean / float64(k+1)
		}
		return p
	}
	solve := func(f func(mean float64) bool) float64 { // f is true from some mean on
		low, high := 0.0, 10*float64(s.N+1)
		for range 60 {
			if m := (low + high) / 2; f(m) {
				high = m
			} else {
				low = m
			}
		}
		return high
	}
	epochs := float64(max(s.Of, 1))
	if s.N > 0 {
		low = solve(func(m float64) bool { return 1-below(m, s.N-1) >= 0.025 })
	}
	return low / epochs, solve(func(m float64) bool { return below(m, s.N) <= 0.025 }) / epochs
}

// finding counts what was reported of one fault: alerts, or rows of each epoch.
type finding struct {
	Found share // share of the faults at least 1.5 times above their threshold that were found within two intervals
	// Incomplete counts the faults, and those found, in epochs of which the plugin itself publishes
	// that findings can be missing. They do not count in Found.
	Incomplete share
	Near       share // share of the results within 1.5 times of a threshold that were reported
	Right      share // share of what was reported that is a fault, or near its threshold
	// Exactly counts all results by the threshold itself. Alerts near it are right.
	Exactly score.Confusion
}

// tally counts the findings of an algorithm. Its fields are exported for the JSON of -keep.
type tally struct {
	Kinds   map[string]*finding
	Healthy map[string]*share // by disturbance: false alerts out of the number of epochs
	Notes   []string          // each false alert and each fault that was not found
	Skipped int               // epochs without results
}

func newTally() *tally { return &tally{Kinds: map[string]*finding{}, Healthy: map[string]*share{}} }

func (t *tally) kind(name string) *finding {
	if t.Kinds[name] == nil {
		t.Kinds[name] = &finding{}
	}
	return t.Kinds[name]
}

func (t *tally) add(o *tally) {
	for name, f := range o.Kinds {
		g := t.kind(name)
		for _, p := range [][2]*share{{&g.Found, &f.Found}, {&g.Incomplete, &f.Incomplete}, {&g.Near, &f.Near},
			{&g.Right, &f.Right}} {
			p[0].N, p[0].Of = p[0].N+p[1].N, p[0].Of+p[1].Of
		}
		g.Exactly.Add(f.Exactly)
	}
	for name, s := range o.Healthy {
		if t.Healthy[name] == nil {
			t.Healthy[name] = &share{}
		}
		t.Healthy[name].N, t.Healthy[name].Of = t.Healthy[name].N+s.N, t.Healthy[name].Of+s.Of
	}
	t.Notes, t.Skipped = append(t.Notes, o.Notes...), t.Skipped+o.Skipped
}

// instance is a fault of the ground truth, as long as its rows are there.
type instance struct {
	began    int // epoch of the run in which the first results are published that require an alert, or any
	required bool
	found    bool
	unsure   bool // the plugin published that it can be missing
}

// within is how many intervals an alert may take.
const within = 2

// count compares the alerts of a run with the ground truth of the network, and alerts of healthy
// epochs with the happenings. The results of an epoch are about the epoch before.
func (t *trial) count(results []*score.Result) *tally {
	out := newTally()
	open := map[alert]*instance{}
	recent := map[alert]int{} // newest epoch of the run in which the ground truth allows an alert
	end := func(at alert, x *instance) {
		f := out.kind(at.kind)
		switch {
		case x.required && x.unsure:
			f.Incomplete.add(x.found)
		case x.required:
			f.Found.add(x.found)
		default:
			f.Near.add(x.found)
		}
		if x.found {
			f.Exactly.TruePositive++
		} else {
			f.Exactly.FalseNegative++
		}
		if x.required && !x.found {
			out.note(t, x.began, "not found: %s %s", at.kind, at.subject)
		}
		delete(open, at)
	}
	last := len(results) - 1 - t.algorithm.lag
	var before *score.Result
	skipped := false // whether the epoch before has no results
	for e, r := range results[:last+1] {
		later := results[e+t.algorithm.lag]
		if r == nil || later == nil {
			out.Skipped++
			skipped = true
			continue
		}
		active, ended := t.algorithm.active(later), map[alert]bool{}
		if skipped { // an alert that ended now was active in the epoch that was skipped
			ended = t.algorithm.alerts(later, false)
		}
		skipped = len(later.Published) == 0
		for _, kind := range t.algorithm.finds() {
			if t.algorithm.truth == nil {
				break
			}
			for subject, row := range t.algorithm.truth(r.Truth, kind) {
				at := alert{kind, subject}
				if row.Optional && !row.Near {
					recent[at] = max(recent[at], e) // an alert of this subject counts neither as right nor as wrong
					continue
				}
				recent[at] = e
				x := open[at]
				if x == nil {
					x = &instance{began: e}
					open[at] = x
				}
				if !row.Optional && !x.required { // its intervals count from here
					x.began, x.required = e, true
				}
				x.unsure = x.unsure || t.unsure(r, kind, subject)
			}
		}
		var after *score.Result
		if e < last {
			after = results[e+1]
		}
		out.measured(t, e, before, r, after)
		before = r
		for at, x := range open {
			_, is := active[at]
			x.found = x.found || (is || ended[at]) && e < x.began+within
			if recent[at] < e && e >= x.began+within-1 || e == last && e >= x.began+within-1 {
				end(at, x)
			}
		}
		fault, healthy := t.during(e-3, e), true
		for _, s := range t.spans {
			healthy = healthy && (fault == "" || !t.faulty || s.what == "")
		}
		if healthy {
			if fault == "" {
				fault = "nothing"
			}
			if out.Healthy[fault] == nil {
				out.Healthy[fault] = &share{}
			}
			out.Healthy[fault].Of++
		}
		for _, at := range slices.SortedFunc(maps.Keys(active), compareAlerts) {
			if !active[at] {
				continue
			}
			when, allowed := recent[at]
			right := allowed && when > e-within || t.algorithm.truth == nil && !healthy
			if t.algorithm.truth != nil {
				out.kind(at.kind).Right.add(right)
			}
			if !right {
				if t.algorithm.truth != nil {
					out.kind(at.kind).Exactly.FalsePositive++
				}
				if healthy {
					out.Healthy[fault].N++
				}
				out.note(t, e, "false alert: %s %s (%s): %s", at.kind, at.subject, fault, text(later, at))
			}
		}
	}
	return out
}

// unsure reports whether the plugin publishes that findings of a kind can be missing from an epoch.
func (t *trial) unsure(r *score.Result, kind, of string) bool {
	return t.algorithm.incomplete != nil && t.algorithm.incomplete(r, kind, of)
}

// same returns the score of another epoch in the same view; one without rows if there is none.
func same(s *score.Score, other *score.Result) *score.Score {
	if other != nil {
		for i := range other.Scores {
			if x := &other.Scores[i]; x.Measure == s.Measure && x.View == s.View {
				return x
			}
		}
	}
	return &score.Score{}
}

// measured adds the rows of an epoch that the scorer has compared with the ground truth. Like an
// alert, a row may be one epoch late: a fault whose row is published in the next epoch is found,
// and a row that was true in the epoch before is right. before and after are nil if there are none.
func (t *tally) measured(of *trial, epoch int, before, r, after *score.Result) {
	for i := range r.Scores {
		s := &r.Scores[i]
		finds, ok := of.algorithm.measures[s.Measure]
		if !ok || s.Counts == nil || s.View.Device != score.Network {
			continue
		}
		f, c, near := t.kind(finds), s.Counts, s.Near
		actual, reported := same(s, before).Actual, same(s, after).Reported
		wrong := slices.DeleteFunc(slices.Clone(s.False), func(key string) bool { return actual[key] })
		missed := slices.DeleteFunc(slices.Clone(s.Missed), func(key string) bool { return reported[key] })
		sum, clear := &f.Found, c.TruePositive-near.TruePositive
		if of.unsure(r, finds, cmp.Or(s.Dimension, s.View.Dimension)) {
			sum = &f.Incomplete
		}
		sum.N, sum.Of = sum.N+clear+len(s.Missed)-len(missed), sum.Of+clear+len(s.Missed)
		f.Near.N += near.TruePositive + near.FalsePositive
		f.Near.Of += near.TruePositive + near.FalsePositive + near.FalseNegative
		f.Right.N, f.Right.Of = f.Right.N+c.TruePositive+c.FalsePositive-len(wrong), f.Right.Of+c.TruePositive+c.FalsePositive
		f.Exactly.Add(*c)
		t.noteRows(of, epoch, "not found: "+finds, s.View.Dimension, missed)
		t.noteRows(of, epoch, "false: "+finds, s.View.Dimension, wrong)
	}
}

// noteRows notes the first rows that are wrong for one reason.
func (t *tally) noteRows(of *trial, epoch int, what, dimension string, keys []string) {
	const most = 3
	for _, key := range keys[:min(len(keys), most)] {
		t.note(of, epoch, "%s %s %s (one of %d)", what, dimension, key, len(keys))
	}
}

func (t *tally) note(of *trial, epoch int, format string, args ...any) {
	t.Notes = append(t.Notes, fmt.Sprintf("%v: epoch %d: %s", of, epoch, fmt.Sprintf(format, args...)))
}

// text returns the text of an alert.
func text(r *score.Result, at alert) string {
	for _, rows := range r.Published["alert"] {
		if row := rows[at.kind+"/"+at.subject]; row != nil {
			return row.Text("text")
		}
	}
	return ""
}

func compareAlerts(a, b alert) int {
	return slices.Compare([]string{a.kind, a.subject}, []string{b.kind, b.subject})
}
