// SPDX-License-Identifier: Apache-2.0

package score

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/openconfig/gnmi/proto/gnmi"
)

var leaf1 = View{Device: "leaf1"}

// rows makes rows with one leaf n.
func rows(values map[string]float64) Rows {
	out := Rows{}
	for key, n := range values {
		out.Add(key, Leaves{"n": Number(n)})
	}
	return out
}

// TestStats compares published rows with true ones: a is right, b wrong, c missing, d false.
func TestStats(t *testing.T) {
	published, actual := rows(map[string]float64{"a": 10, "b": 6, "d": 4}),
		rows(map[string]float64{"a": 10, "b": 5, "c": 5})
	unwanted := actual.Add("e", Leaves{"n": Number(9)})
	unwanted.Unwanted = true
	actual.Add("f", nil).Optional = true
	for _, tt := range []struct {
		name string
		stat Stat
		tol  float64
		want float64
	}{
		{"F1", F1, 0, 2. * 2 / (2*2 + 1 + 1)}, {"precision", Precision, 0, 2. / 3}, {"recall", Recall, 0, 2. / 3},
		{"correct", Correct, 0, 1. / 3}, {"correct within 20 %", Correct, 0.2, 2. / 3},
		{"found and correct", FoundCorrect, 0, 1. / 2},
		{"relative error", RelativeError, 0, (0 + 0.2 + 1) / 3}, {"error of those found", FoundError, 0, 0.2 / 2},
		{"error of the sum", SumError, 0, 0}, {"WMRE", WMRE, 0, 2 * (1. + 5 + 4 + 9) / (20 + 20)},
	} {
		m := Measure{Leaves: []string{"n"}, Tolerance: tt.tol}
		if got, ok := tt.stat(&m, published, actual); !ok || math.Abs(got.Value-tt.want) > 1e-12 {
			t.Errorf("%s: %v, want %v", tt.name, got.Value, tt.want)
		}
	}
	// Published rows that are wrong, and optional rows that were published.
	published.Add("e", Leaves{"n": Number(9)})
	published.Add("f", nil)
	unwanted.Near = true
	if s := confusion(published, actual); *s.Counts != (Confusion{2, 2, 1}) || *s.Near != (Confusion{0, 1, 0}) ||
		!slices.Equal(s.False, []string{"d"}) || !slices.Equal(s.Missed, []string{"c"}) {
		t.Errorf("%+v, %+v near, false %v, missed %v", s.Counts, s.Near, s.False, s.Missed)
	}
	if !Near(100, 149) || !Near(149, 100) || Near(150, 100) || Near(100, 151) {
		t.Error("near the threshold")
	}
}

// TestNothing: measures of empty tables.
func TestNothing(t *testing.T) {
	m := Measure{Leaves: []string{"n"}}
	for name, tt := range map[string]struct {
		stat              Stat
		published, actual Rows
		want              float64
		ok                bool
	}{
		"F1 of nothing":                 {F1, nil, nil, 1, true},
		"error of a list without rows":  {RelativeError, nil, Rows{}, 0, true},
		"error of a leaf not published": {RelativeError, Rows{"": {}}, rows(map[string]float64{"": 3}), 0, false},
		"error of a row not published":  {RelativeError, nil, rows(map[string]float64{"": 3}), 1, true},
		"error of none found":           {FoundError, nil, rows(map[string]float64{"a": 3}), 0, false},
		"distribution not published":    {WMRE, nil, rows(map[string]float64{"1": 3}), 0, false},
		"share without a row":           {Share, nil, nil, 0, true},
		"share of a complete row":       {Share, Rows{"": {Leaves: Leaves{"n": Text("COMPLETE")}}}, nil, 1, true},
		"share of a partial row":        {Share, Rows{"": {Leaves: Leaves{"n": Text("PARTIAL")}}}, nil, 0, true},
	} {
		if got, ok := tt.stat(&m, tt.published, tt.actual); ok != tt.ok || got.Value != tt.want {
			t.Errorf("%s: %v, %v; want %v, %v", name, got.Value, ok, tt.want, tt.ok)
		}
	}
}

// TestClaims finds values that are published as exact and are not.
func TestClaims(t *testing.T) {
	type tables = Tables
	actual := tables{"victim": {leaf1: rows(map[string]float64{"a": 2, "b": 1})},
		"summary": {leaf1: rows(map[string]float64{"": 3})}}
	of := func(quality string, n float64, list, key string) tables {
		out := tables{}
		out.Rows(list, leaf1).Add(key, Leaves{"n": Number(n), "quality": Text(quality)})
		return out
	}
	exact := func(n float64, list, key string) tables { return of("EXACT", n, list, key) }
	between := func(quality string, low, high float64) tables {
		out := tables{}
		out.Rows("victim", leaf1).Add("a", Leaves{"n-low": Number(low), "n-high": Number(high),
			"quality": Text(quality)})
		return out
	}
	claim := Claim{List: "victim", Quality: "quality", Leaves: []string{"n"}}
	for name, tt := range map[string]struct {
		claim     Claim
		published tables
		want      string
	}{
		"right": {Claim{List: "victim", Quality: "quality", Leaves: []string{"n"}}, exact(2, "victim", "a"), ""},
		"wrong": {Claim{List: "victim", Quality: "quality", Leaves: []string{"n"}}, exact(1, "victim", "a"),
			"victim leaf1 a: n is published as EXACT with 1; the true value is 2"},
		"not there": {Claim{List: "victim", Quality: "quality", Leaves: []string{"n"}}, exact(1, "victim", "x"),
			"the true value is 0"},
		"leaf missing": {Claim{List: "victim", Quality: "quality", Leaves: []string{"size"}}, exact(2, "victim", "a"),
			"size is not published, or between two values; quality is EXACT"},
		"other leaf": {Claim{List: "victim", Quality: "sure", Leaves: []string{"n"}}, exact(2, "victim", "a"),
			"no quality in sure"},
		"estimate":         {claim, of("ESTIMATE", 9, "victim", "a"), ""},
		"lower bound":      {claim, of("LOWER_BOUND", 2, "victim", "a"), ""},
		"no lower bound":   {claim, of("LOWER_BOUND", 3, "victim", "a"), "as LOWER_BOUND with 3; the true value is 2"},
		"upper bound":      {claim, of("UPPER_BOUND", 2, "victim", "a"), ""},
		"no upper bound":   {claim, of("UPPER_BOUND", 1, "victim", "a"), "as UPPER_BOUND with 1; the true value is 2"},
		"no bounds":        {claim, of("BOUNDED", 2, "victim", "a"), "no bounds"},
		"bounds":           {claim, between("BOUNDED", 1, 2), ""},
		"too low":          {claim, between("BOUNDED", 0, 1), "is from 0 to 1; the true value is 2"},
		"too high":         {claim, between("BOUNDED", 3, 4), "is from 3 to 4; the true value is 2"},
		"equal bounds":     {claim, between("EXACT", 2, 2), ""},
		"different bounds": {claim, between("EXACT", 1, 2), "between two values"},
		"always": {Claim{List: "victim", Leaves: []string{"n", "exit"}}, exact(1, "victim", "a"),
			"the true value is 2"},
		"within tolerance": {Claim{List: "victim", Quality: "quality", Leaves: []string{"n"}, Tolerance: 0.5},
			exact(1, "victim", "a"), ""},
		"view without truth": {Claim{List: "victim", Quality: "quality", Leaves: []string{"n"}},
			tables{"victim": {View{Device: "leaf2"}: rows(map[string]float64{"a": 1})}}, ""},
		"a list missing": {Claim{List: "summary", Quality: "quality", Of: "victim", Leaves: []string{"n"}},
			exact(3, "summary", ""), "0 of 2 are right, and 0 should not be there"},
	} {
		var r Result
		r.check(&tt.claim, tt.published, actual)
		if got := strings.Join(r.FalseClaims, "\n"); (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// TestRead arranges leaves, and drops rows of other epochs.
func TestRead(t *testing.T) {
	leaf := func(v Value, list string, keys map[string]string, names ...string) Leaf {
		l := Leaf{Path: []*gnmi.PathElem{{Name: "x"}, {Name: list + "s"}, {Name: list, Key: keys}}, Value: v}
		for _, n := range names {
			l.Path = append(l.Path, &gnmi.PathElem{Name: n})
		}
		return l
	}
	a := map[string]string{"node": "leaf1", "dimension": "src", "part": "hl", "family": "ipv4"}
	leaves := []Leaf{
		leaf(Text("full"), "encoder", a, "state", "status"),
		leaf(Text("hl"), "encoder", a, "part"),
		{Path: []*gnmi.PathElem{{Name: "x"}, {Name: "attention"}, {Name: "state"}, {Name: "decoded"}},
			Value: Number(1)},
		{Path: []*gnmi.PathElem{{Name: "x"}, {Name: "summary"}, {Name: "state"}, {Name: "last-epoch"}}, Value: Number(7)},
		{Path: []*gnmi.PathElem{{Name: "x"}, {Name: "settled"}, {Name: "losses"}, {Name: "loss"}, {Name: "state"},
			{Name: "lost"}}, Value: Number(3)},
	}
	read := func(epoch uint64, viewKeys []string) Tables {
		out, err := Read(leaves, DefaultMarker, epoch, viewKeys)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	got := read(7, []string{"node", "dimension"})
	row := got.Row("encoder", View{"leaf1", "src"}, "ipv4/hl")
	if row.Text("status") != "full" || len(got["encoder"][View{"leaf1", "src"}]) != 1 || len(row.Leaves) != 1 {
		t.Errorf("%+v", got["encoder"])
	}
	if !got.Row("attention", View{Device: Network}, "").Is("decoded") {
		t.Errorf("%+v", got["attention"])
	}
	if of8 := read(8, nil); len(of8) != 1 || of8["settled/loss"] == nil {
		t.Errorf("results of epoch 7 are those of epoch 8, too: %+v", of8)
	}
	for _, tt := range []struct {
		keys map[string]string
		want string
	}{
		{map[string]string{"flow": "10.0.0.1,10.0.0.2,tcp,1,80"}, ""},
		{map[string]string{"flow": "10.0.0.1", "dimension": "src"}, ""},
		{map[string]string{"flow": "10.0.0.1", "dimension": "5-tuple"}, `list hitter: flow "10.0.0.1": `},
		{map[string]string{"flow": "h1 to h2"}, `list hitter: flow "h1 to h2": `},
		{map[string]string{"flow": "10.0.0.1", "dimension": "colour"}, "list hitter: "},
	} {
		_, err := Read([]Leaf{leaf(Number(1), "hitter", tt.keys, "state", "n")}, DefaultMarker, 7, nil)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: error %v, want %q", tt.keys, err, tt.want)
		}
	}
}

// TestScorer plays three epochs of a made-up algorithm, of which the second publishes nothing.
func TestScorer(t *testing.T) {
	a := Algorithm{
		Plugin: "x", Root: "x", ViewKeys: []string{"node"},
		Summary: "node-summary", Lost: "lost", FalseClaims: "false-claims",
		Report: []string{"node-summary"},
		GroundTruth: func(*Setting) (func(*Epoch) Tables, error) {
			return func(e *Epoch) Tables {
				if (e.Before == nil) != (e.Index == 0) {
					t.Errorf("epoch %d: the epoch before is %v", e.Index, e.Before)
				}
				return Tables{"node-summary": {leaf1: rows(map[string]float64{"": 10})}}
			}, nil
		},
		Measures: []Measure{{Name: "error", List: "node-summary", Stat: RelativeError, Leaves: []string{"n"}}},
		Claims:   []Claim{{List: "node-summary", Quality: "quality", Leaves: []string{"n"}}},
		Top:      []Top{{Title: "top of %s", List: "node-summary", Leaf: "n", Rows: 1, Shown: 1}},
		Screen:   Screen{Columns: []Column{{Head: "n (true)", Width: 12, Cell: WithTrue("node-summary", "n", 0)}}},
		RunMeasures: map[string]func(*History) (Total, bool){"epochs": func(h *History) (Total, bool) {
			return Total{Value: float64(len(h.Results))}, true
		}},
	}
	s, err := New(a, Setting{})
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range []float64{9, -1, 5} {
		e := &Epoch{Number: uint64(i + 1), Index: i, Truth: &Truth{}}
		e.Leaves = []Leaf{{Path: []*gnmi.PathElem{{Name: "summary"}, {Name: "state"}, {Name: DefaultMarker}},
			Value: Number(e.Number)}}
		quality := Text([]string{"ESTIMATE", "", "EXACT"}[i])
		for name, v := range map[string]Value{"n": Number(n), "quality": quality} {
			if n >= 0 {
				e.Leaves = append(e.Leaves, Leaf{Path: []*gnmi.PathElem{{Name: "node-summary",
					Key: map[string]string{"node": "leaf1"}}, {Name: "state"}, {Name: name}}, Value: v})
			}
		}
		r, err := s.Score(e)
		if err != nil {
			t.Fatal(err)
		}
		if missing := len(r.Missing) == 1; r.Views != 1 || missing != (n < 0) {
			t.Errorf("epoch %d: missing %v of %d", i, r.Missing, r.Views)
		}
		var c Canvas
		s.Draw(&c)
		if want := map[bool]string{true: "x has no results", false: " (10)"}[n < 0]; !strings.Contains(c.String(),
			want) {
			t.Errorf("epoch %d: no %q on the screen:\n%s", i, want, c.String())
		}
		if text, err := json.Marshal(r); err != nil || n >= 0 &&
			!strings.Contains(string(text), `"published":{"node-summary":{"leaf1":{"":{`) {
			t.Errorf("%s, %v", text, err)
		}
	}
	want := []Total{
		{"x", "error", "", 0.3, 0.5, 2}, {"x", "false-claims", "", 1. / 3, 1, 3}, {"x", "lost", "", 1. / 3, 1, 3},
		{"x", "epochs", "", 3, 0, 0},
	}
	got := s.Totals()
	for i := range got {
		got[i].Value = math.Round(got[i].Value*1e9) / 1e9
	}
	want[1].Value, want[2].Value = 0.333333333, 0.333333333
	if !slices.Equal(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	if names := a.MeasureNames(); !slices.Equal(names, []string{"lost", "error", "false-claims", "epochs"}) {
		t.Errorf("%v", names)
	}
}

func TestTotalsPool(t *testing.T) {
	share := func(v float64) Score {
		s := ShareOf(v)
		s.Measure = "share"
		return s
	}
	f1 := func(dimension string, c Confusion) Score {
		s, _ := pooled(Score{Counts: &c}, Confusion.F1)
		s.Measure, s.Dimension = "f1", dimension
		return s
	}
	results := []*Result{
		{Scores: []Score{f1("a", Confusion{TruePositive: 1}), {Measure: "error", Value: 0.1}, share(0.9)}},
		{Scores: []Score{f1("a", Confusion{1, 1, 1}), {Measure: "error", Value: 0.3}, share(1)}},
		{Scores: []Score{f1("b", Confusion{})}},
	}
	want := []Total{{"x", "error", "", 0.2, 0.3, 2}, {"x", "f1", "a", 4. / 6, 0.5, 2}, {"x", "f1", "b", 1, 1, 1}}
	want = slices.Insert(want, 1, Total{"x", "share", "", 0.95, 0.9, 2})
	if got := totals("x", results); !slices.Equal(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}

func TestFigureError(t *testing.T) {
	for _, tt := range []struct{ measured, actual, want float64 }{{0, 0, 0}, {3, 0, 1}, {9, 10, 0.1}, {-5, -10, 0.5}} {
		if got := Of(tt.measured, tt.actual).Error(); math.Abs(got-tt.want) > 1e-12 {
			t.Errorf("%v for %v: error %v, want %v", tt.measured, tt.actual, got, tt.want)
		}
	}
}

// TestUnpublished: a measure that asks for a dimension of which a run has no row is an error that
// names plugin, list and dimension, unless there was nothing to publish.
func TestUnpublished(t *testing.T) {
	const flow = "10.0.0.1"
	for _, tt := range []struct {
		dimension string // of the ground truth
		unwanted  bool
		want      string
	}{
		{"src", false, ""}, {"dst", true, ""},
		{"dst", false, "measure x-f1: plugin x published no row of the list hitter with the dimension dst"},
	} {
		view := View{Device: "leaf1", Dimension: tt.dimension}
		s, err := New(Algorithm{Plugin: "x", Root: "x", ViewKeys: []string{"node", "dimension"}, Summary: "hitter",
			Measures: []Measure{{Name: "x-f1", List: "hitter", Stat: F1, Truth: "truth", Dimensions: []string{"src", "dst"}}},
			GroundTruth: func(*Setting) (func(*Epoch) Tables, error) {
				return func(*Epoch) Tables {
					out := Tables{}
					out.Rows("truth", view).Add(flow, Leaves{}).Unwanted = tt.unwanted
					return out
				}, nil
			}}, Setting{})
		if err != nil {
			t.Fatal(err)
		}
		e := &Epoch{Number: 1, Truth: &Truth{}, Leaves: []Leaf{
			{Path: []*gnmi.PathElem{{Name: "x"}, {Name: "summary"}, {Name: "state"}, {Name: DefaultMarker}}, Value: Number(1)},
			{Path: []*gnmi.PathElem{{Name: "x"}, {Name: "hitters"}, {Name: "hitter",
				Key: map[string]string{"node": "leaf1", "dimension": "src", "flow": flow}}, {Name: "state"}, {Name: "n"}},
				Value: Number(1)}}}
		if _, err := s.Score(e); err != nil {
			t.Fatal(err)
		}
		if err := s.Unpublished(); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s, unwanted %v: error %v, want %q", tt.dimension, tt.unwanted, err, tt.want)
		}
	}
}
