// SPDX-License-Identifier: Apache-2.0

package score

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/openconfig/gnmi/proto/gnmi"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// Scorer scores the epochs of a run in their order.
type Scorer struct {
	algorithm *Algorithm
	truth     func(*Epoch) Tables
	views     map[View]bool   // views that should have results
	never     map[View]string // those without a complete result until now, with the newest problem
	epochs    int
	before    *Truth
	watched   bool
	watch     []*gnmi.Path // paths that are not yet subscribed to
	history   History

	wanted, published map[asked]bool // dimensions of which there were rows
}

// New begins the scoring of a run. The error is about the plugin's configuration.
func New(a Algorithm, s Setting) (*Scorer, error) {
	out := &Scorer{algorithm: &a, views: map[View]bool{}, never: map[View]string{}, history: History{Setting: &s},
		wanted: map[asked]bool{}, published: map[asked]bool{}}
	var err error
	if out.truth, err = a.GroundTruth(&s); err != nil {
		return nil, fmt.Errorf("%s: config: %w", a.Plugin, err)
	}
	if a.Views != nil {
		for _, v := range a.Views(&s) {
			out.views[v], out.never[v] = true, ""
		}
	}
	return out, nil
}

// Algorithm returns the declaration of the algorithm that is scored.
func (s *Scorer) Algorithm() *Algorithm { return s.algorithm }

// History returns the run so far.
func (s *Scorer) History() *History { return &s.history }

// Score compares an epoch with the ground truth.
func (s *Scorer) Score(e *Epoch) (*Result, error) {
	a := s.algorithm
	e.Setting, e.Before = s.history.Setting, s.before
	var err error
	e.Published, err = Read(e.Leaves, cmp.Or(s.algorithm.Marker, DefaultMarker), e.Number, s.algorithm.ViewKeys)
	if err != nil {
		return nil, err
	}
	actual := s.truth(e)
	r := &Result{Index: e.Index, Status: e.Status}
	s.missing(r, e, actual)
	for i := range a.Measures {
		s.measure(r, &a.Measures[i], e, actual)
	}
	for i := range a.Claims {
		r.check(&a.Claims[i], e.Published, actual)
	}
	if a.FalseClaims != "" {
		r.Scores = append(r.Scores, Score{Measure: a.FalseClaims, View: View{Device: Network},
			Value: float64(len(r.FalseClaims))})
	}
	for i := range a.Top {
		r.addTop(&a.Top[i], e.Published, actual)
	}
	r.Published, r.Truth = e.Published.only(a.Report), actual.only(a.Report)
	if a.Watch != nil && s.history.Watch > 0 && !s.watched {
		s.watch = a.Watch(e)
		s.watched = len(s.watch) > 0
	}
	s.before = e.Truth
	s.history.Results = append(s.history.Results, r)
	return r, nil
}

// asked is a dimension that a measure asks for.
type asked struct{ measure, list, dimension string }

// look notes whether rows of the dimensions that measures ask for are published, and whether the
// ground truth has some.
func (s *Scorer) look(m *Measure, e *Epoch, actual Tables) {
	for _, dimension := range m.Dimensions {
		at := asked{m.Name, m.List, dimension}
		for view, rows := range e.Published[m.List] {
			if view.Dimension == dimension && len(rows) > 0 {
				s.published[at] = true
			}
		}
		for view, rows := range actual[cmp.Or(m.Truth, m.List)] {
			for _, row := range rows {
				if view.Dimension == dimension && !row.Unwanted {
					s.wanted[at] = true
				}
			}
		}
	}
}

// Unpublished returns an error if a measure asks for a dimension of which the plugin published no
// row in the whole run, although the ground truth has some.
func (s *Scorer) Unpublished() error {
	var errs []error
	for at := range s.wanted {
		if !s.published[at] {
			errs = append(errs, fmt.Errorf("score: measure %s: plugin %s published no row of the list %s with the dimension %s",
				at.measure, s.algorithm.Plugin, at.list, at.dimension))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// Never returns the number of views without a complete result in the whole run, and a text that
// names one of them with its problem; 0 if the run is too short to tell.
func (s *Scorer) Never() (n int, text string) {
	all := slices.SortedFunc(maps.Keys(s.never), compareViews)
	if a := s.algorithm; a.Settles == 0 || s.epochs < a.Settles || len(all) == 0 {
		return 0, ""
	}
	text = fmt.Sprintf("complete results of %s, %v", s.algorithm.Plugin, all[0])
	if len(all) > 1 {
		text += fmt.Sprintf(" and %d more", len(all)-1)
	}
	if problem := s.never[all[0]]; problem != "" {
		text += " (" + problem + ")"
	}
	return len(all), text
}

// Watch returns the rows to subscribe to since the call before.
func (s *Scorer) Watch() []*gnmi.Path {
	rows := s.watch
	s.watch = nil
	return rows
}

// missing notes the views without a complete result.
func (s *Scorer) missing(r *Result, e *Epoch, actual Tables) {
	a := s.algorithm
	due := e.Published.Views(a.Summary)
	if a.Due != nil {
		due = a.Due(e.Published, actual)
	}
	for _, view := range due {
		if !s.views[view] {
			s.never[view] = ""
		}
		s.views[view] = true
	}
	s.epochs++
	r.Views = len(s.views)
	for _, view := range slices.SortedFunc(maps.Keys(s.views), compareViews) {
		row, lost := e.Published.Row(a.Summary, view, ""), 0.0
		if row == nil || actual.Row(a.Summary, view, "") == nil || a.Status != "" && row.Text(a.Status) != "COMPLETE" {
			r.Missing, lost = append(r.Missing, view), 1
		}
		if _, never := s.never[view]; row != nil && row.Text("status") == "COMPLETE" {
			delete(s.never, view)
		} else if never && row != nil {
			s.never[view] = row.Text("problem")
		}
		r.Scores = append(r.Scores, Score{Measure: a.Lost, Dimension: view.Dimension, View: view, Value: lost})
	}
}

func (s *Scorer) measure(r *Result, m *Measure, e *Epoch, actual Tables) {
	s.look(m, e, actual)
	truth := cmp.Or(m.Truth, m.List)
	for _, view := range actual.Views(truth) {
		dimension, ok := view.Dimension, e.Published.Row(s.algorithm.Summary, view, "") != nil
		if m.Dimension != nil {
			dimension, ok = m.Dimension(e, view)
		}
		if !ok {
			continue
		}
		if score, ok := m.Stat(m, e.Published[m.List][view].where(m.Where), actual[truth][view]); ok {
			score.Measure, score.Dimension, score.View = m.Name, dimension, view
			r.Scores = append(r.Scores, score)
		}
	}
}

// check appends the rows that make a claim which is not true.
func (r *Result) check(c *Claim, published, actual Tables) {
	for _, view := range published.Views(c.List) {
		known, ok := actual[c.List][view]
		if !ok {
			continue
		}
		rows := published[c.List][view]
		for _, key := range slices.Sorted(maps.Keys(rows)) {
			where := strings.TrimSpace(fmt.Sprintf("%s %s %s", c.List, view, key))
			switch {
			case c.Of == "":
				r.checkRow(c, where, rows[key], known[key])
			case rows[key].Text(c.Quality) == string(sdk.Exact):
				r.checkAll(c, where, published[c.Of][view], actual[c.Of][view])
			}
		}
	}
}

func (r *Result) checkRow(c *Claim, where string, row, actual *Row) {
	if actual == nil {
		actual = &Row{}
	}
	quality := sdk.Exact
	if c.Quality != "" {
		quality = sdk.Quality(row.Text(c.Quality))
	}
	for _, leaf := range c.Leaves {
		if wrong := c.wrong(leaf, quality, row, actual); wrong != "" {
			r.FalseClaims = append(r.FalseClaims, where+": "+leaf+" "+wrong)
		}
	}
}

// wrong says why a leaf of a row is not what its quality says, "" if it is.
func (c *Claim) wrong(leaf string, quality sdk.Quality, row, actual *Row) string {
	got, published := row.Leaves[leaf]
	want, known := actual.Leaves[leaf]
	low, below := row.Number(leaf + "-low")
	high, above := row.Number(leaf + "-high")
	bad := false
	switch {
	case !published && !below && !above && (c.Quality == "" || quality != sdk.Exact), got.Text != "" && !known,
		quality == sdk.Estimate:
		return ""
	case above && quality == sdk.LowerBound || below && quality == sdk.UpperBound:
		return fmt.Sprintf("is a %s and has the other bound, too", quality)
	case below && low > want.Number || above && high < want.Number:
		return fmt.Sprintf("is from %v to %v; the true value is %v", low, high, want.Number)
	case quality == sdk.Exact && !published:
		if !below || !above || low != high {
			return fmt.Sprintf("is not published, or between two values; %s is %s", c.Quality, quality)
		}
	case quality == sdk.Exact:
		bad = !same(got, want, c.Tolerance)
	case quality == sdk.LowerBound:
		bad = got.Number > want.Number
	case quality == sdk.UpperBound:
		bad = got.Number < want.Number
	case quality != sdk.Bounded || !below && !above:
		return fmt.Sprintf("has no bounds, or no quality in %s: %q", c.Quality, quality)
	}
	if bad {
		return fmt.Sprintf("is published as %s with %v; the true value is %v", quality, got.text(), want.text())
	}
	return ""
}

func (r *Result) checkAll(c *Claim, where string, published, actual Rows) {
	counts := confusion(published, actual).Counts
	right := correct(&Measure{Leaves: c.Leaves, Tolerance: c.Tolerance}, published, actual, true)
	if right.FalseNegative+counts.FalsePositive > 0 {
		r.FalseClaims = append(r.FalseClaims, fmt.Sprintf("%s: %s is EXACT, but of the rows of %s %d of %d are right, "+
			"and %d should not be there",
			where, c.Quality, c.Of, right.TruePositive, right.TruePositive+right.FalseNegative, counts.FalsePositive))
	}
}

func (v Value) text() any {
	if v.Text != "" {
		return v.Text
	}
	return v.Number
}

// addTop appends the largest true rows of each view.
func (r *Result) addTop(t *Top, published, actual Tables) {
	for _, view := range actual.Views(t.List) {
		var rows []FlowFigure
		for key, row := range actual[t.List][view] {
			rows = append(rows, FlowFigure{key, Figure{published.Row(t.List, view, key).Value(t.Leaf), row.Value(t.Leaf)}})
		}
		slices.SortFunc(rows, func(a, b FlowFigure) int {
			if x, y := math.Abs(a.True), math.Abs(b.True); x != y {
				return int(math.Copysign(1, y-x))
			}
			return strings.Compare(a.Flow, b.Flow)
		})
		if rows = rows[:min(len(rows), t.Rows)]; len(rows) > 0 {
			r.Top = append(r.Top, TopRows{t.List, view, rows})
		}
	}
}

// Totals pools the scores of all epochs and adds the measures of the whole run.
func (s *Scorer) Totals() []Total {
	out := totals(s.algorithm.Plugin, s.history.Results)
	if len(s.history.Results) == 0 {
		return out
	}
	for _, name := range slices.Sorted(maps.Keys(s.algorithm.RunMeasures)) {
		if t, ok := s.algorithm.RunMeasures[name](&s.history); ok {
			t.Algorithm, t.Measure = s.algorithm.Plugin, name
			out = append(out, t)
		}
	}
	return out
}
