// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// rows are the errors of two structures at two memories, and speeds by threads.
var rows = []Row{
	{Structure: "A", Memory: 1000, Task: "size", Metric: "ARE", Value: 0.1},
	{Structure: "B", Memory: 1000, Task: "size", Metric: "ARE", Value: 0.4},
	{Structure: "A", Memory: 2000, Task: "size", Metric: "ARE", Value: 0.05},
	{Structure: "B", Memory: 2000, Task: "size", Metric: "ARE", Value: 0.05},
	{Structure: "A", Variant: "threads 1", Task: "speed", Metric: "Mpps", Value: 20},
	{Structure: "A", Variant: "threads 2", Task: "speed", Metric: "Mpps", Value: 30},
}

func page(t *testing.T, text string) Suite {
	t.Helper()
	var s Suite
	if err := yaml.UnmarshalWithOptions([]byte(text), &s.Page, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	return s
}

const sizes = "task: size, metric: ARE, "

// TestRules checks the verdict of every rule on both sides of its limit, and with a tie.
func TestRules(t *testing.T) {
	for claim, want := range map[string]bool{
		"rule: times, memory: [1000], structures: [A, B], limits: [4]":              true,
		"rule: times, memory: [1000], structures: [A, B], limits: [4.1]":            false,
		"rule: times, memory: [1000], structures: [A, B], limits: [4.1], tie: 0.05": true,
		"rule: order, memory: [1000, 2000], structures: [A, B]":                     true,
		"rule: order, memory: [1000, 2000], structures: [B, A]":                     false,
		"rule: order, memory: [1000, 2000], structures: [B, A], larger: true":       true,
		"rule: order, memory: [3000], structures: [A, B]":                           false,
		"rule: best, memory: [2000], structures: [B, A]":                            true,
		"rule: best, memory: [1000, 2000], structures: [B, A]":                      false,
		"rule: within, memory: [1000], structures: [A, B], limits: [0.1]":           true,
		"rule: within, memory: [1000], structures: [A, B], limits: [0.1, 0.3]":      false,
		"rule: within, memory: [3000], structures: [A], limits: [1]":                false,
		"rule: beyond, memory: [1000], structures: [B], limits: [0.3]":              true,
		"rule: beyond, memory: [1000], structures: [A, B], limits: [0.3]":           false,
	} {
		s := page(t, "claims: [{"+sizes+claim+"}]")
		v, err := s.Judge(rows)
		if err != nil || v[0].Holds != want {
			t.Errorf("%s: %+v, %v; want %v", claim, v, err, want)
		}
	}
}

// TestExpressions fills a text, uses a definition with and without parameters, and reports a
// missing row as a dash for which nothing holds.
func TestExpressions(t *testing.T) {
	s := page(t, `
define:
  counts: '[1, 2]'
  speed(n): 'v("A", text("threads %v", n), "speed", "Mpps")'
claims:
  - here: '{speed(1)} to {%.2f most(map(counts, speed(#)))}, {v("B", 1000, "size", "ARE")}'
    holds: speed(2) > speed(1) and not falling(map(counts, speed(#)))
  - {here: '{speed(3)} and {%.1f speed(3)}', holds: speed(3) > 0}
  - here: '{grown([speed(3), speed(1), speed(2)])}'
    why: no number
`)
	got, err := s.Judge(rows)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []Verdict{{Here: "20 to 30.00, 0.4", Holds: true}, {Here: "– and –"},
		{Here: "1.5", Open: true, Why: "no number"}} {
		if got[i] != want {
			t.Errorf("%+v, want %+v", got[i], want)
		}
	}
	if !math.IsNaN(Values(rows).Variant("A", "threads 9", "speed", "Mpps")) {
		t.Error("a row that is not there has a value")
	}
}

// TestMarks: a result is called better only if it is strictly better than a number of the paper. A
// tie is equal, and what cannot be compared is neither, whatever the values are.
func TestMarks(t *testing.T) {
	const within = sizes + "rule: within, memory: [1000], structures: "
	for claim, want := range map[string]string{
		within + "[A], limits: [0.2]":                                                       "yes: better",
		within + "[A], limits: [0.1]":                                                       "yes",
		within + "[A], limits: [0.2], vague: true":                                          "yes",
		within + "[A], limits: [0.09], tie: 0.2":                                            "yes",
		within + "[A, B], limits: [0.2, 0.4]":                                               "yes",
		within + "[A], limits: [0.2], apart: {memory: M}":                                   "not comparable: memory, M",
		within + "[B], limits: [0.2], apart: {truth: T}":                                    "not comparable: truth, T",
		sizes + "rule: times, memory: [1000], structures: [A, B], limits: [3.9]":            "yes: better",
		sizes + "rule: times, memory: [1000], structures: [A, B], limits: [4.1], tie: 0.05": "yes",
		sizes + "rule: best, memory: [1000], structures: [A, B]":                            "yes",
		sizes + "rule: best, memory: [1000, 2000], structures: [A, B]":                      "yes: a tie",
		sizes + "rule: order, memory: [2000], structures: [B, A]":                           "yes: a tie",
		"here: x, holds: 1 < 2":                                                             "yes",
		"here: x, holds: 1 < 2, better: 1 < 2":                                              "yes: better",
		"here: x, holds: 1 < 2, better: 2 < 2":                                              "yes",
		"here: x, holds: 2 < 1, better: 1 < 2":                                              "no",
		"here: x, why: W":                                                                   "open: W",
		"here: x, holds: 1 < 2, apart: {hardware: H}":                                       "not comparable: hardware, H",
	} {
		s := page(t, "claims: [{"+claim+"}]")
		v, err := s.Judge(rows)
		if err != nil || v[0].Mark() != want {
			t.Errorf("%s: %q, %v; want %q", claim, v[0].Mark(), err, want)
		}
	}
}

// TestOtherWorkload: a result is not called better than a number of a trace or a processor that is
// not used here. One that is equal or worse is judged.
func TestOtherWorkload(t *testing.T) {
	const within = "claims: [{" + sizes + "rule: within, memory: [1000], structures: [A], limits: [%v]}]"
	for _, tt := range []struct {
		hardware, workload string
		limit              float64
		want               string
	}{
		{"any", "Zipf 1.1, 2 million packets", 0.2, "not comparable: workload, "},
		{"any", "Zipf 1.1, 2 million packets", 0.1, "yes"},
		{"any", "Zipf 1.1, 2 million packets", 0.05, "no"},
		{"processor", "none: configurations", 0.2, "not comparable: hardware, "},
		{"any", "DCTCP sizes", 0.2, "yes: better"},
	} {
		s := page(t, fmt.Sprintf(within, tt.limit))
		s.Hardware, s.Workload = tt.hardware, tt.workload
		v, err := s.Judge(rows)
		if err != nil || !strings.HasPrefix(v[0].Mark(), tt.want) || tt.want == "yes" && v[0].Mark() != "yes" {
			t.Errorf("%+v: %q, %v", tt, v[0].Mark(), err)
		}
	}
}

// TestMistakes: a claim with a mistake is an error that names the figure, not a verdict.
func TestMistakes(t *testing.T) {
	for _, claim := range []string{
		"{figure: '9', rule: unknown, memory: [1], structures: [A], limits: [1]}",
		"{figure: '9', rule: within, memory: [1], structures: [A]}",
		"{figure: '9', rule: within, memory: [1], structures: [A], limits: [1, 2]}",
		"{figure: '9', rule: order, structures: [A]}",
		"{figure: '9', here: '{unknown(1)}'}",
		"{figure: '9', here: '{v(1)}'}",
		"{figure: '9', here: x, holds: 'speed('}",
		"{figure: '9', here: x, holds: '7'}",
		"{figure: '9', here: x, better: '7'}",
		"{figure: '9', here: x}",
		"{figure: '9', here: x, apart: {luck: some}}",
		"{figure: '9', here: x, apart: {hardware: ''}}",
		"{figure: '9', here: x, apart: {hardware: a, setting: b}}",
	} {
		s := page(t, "claims: ["+claim+"]")
		if v, err := s.Judge(rows); err == nil || !strings.Contains(err.Error(), "figure 9") {
			t.Errorf("%s: %+v, %v", claim, v, err)
		}
	}
	s := page(t, "{define: {'f(a, b)': a + b}, claims: [{figure: '9', here: '{f(1)}'}]}")
	if _, err := s.Judge(rows); err == nil || !strings.Contains(err.Error(), "2 parameters") {
		t.Errorf("a call with too few arguments: %v", err)
	}
}

// A reason stands once on a page; later verdicts name its figure.
func TestSayOnce(t *testing.T) {
	all := []Verdict{
		{Figure: "7(a)", Why: "a reason"}, {Figure: "7(a)", Why: "a reason"}, {Figure: "8", Why: "a reason"},
		{Figure: "8", Holds: true, Why: "a reason"}, {Figure: "9", Apart: "memory, another one"},
		{Figure: "9", Apart: "memory, another one"}, {Figure: "9"},
	}
	SayOnce(all)
	want := []string{"no: a reason", "no: as above", "no: as in 7(a)", "yes", "not comparable: memory, another one",
		"not comparable: memory, as above", "no"}
	for i := range all {
		if got := all[i].Mark(); got != want[i] {
			t.Errorf("verdict %d: %q, want %q", i, got, want[i])
		}
	}
}

// TestOmitted: a page without a claim for each sentence of the paper is refused: with a claim less
// or more, or without a figure.
func TestOmitted(t *testing.T) {
	const claims = "{figure: 1(a), here: x}, {figure: 1(a), here: x}, {figure: 1(b), here: x}"
	for sentences, want := range map[string]int{
		"1(a): 2, 1(b): 1": 0, "1(a): 3, 1(b): 1": 1, "1(a): 1, 1(b): 1": 1, "1(a): 2": 1, "1(a): 2, 1(b): 1, 1(c): 1": 1,
		"": 2,
	} {
		s := page(t, "{sentences: {"+sentences+"}, claims: ["+claims+"]}")
		if got := s.omitted(); len(got) != want {
			t.Errorf("%s: %v, want %d problems", sentences, got, want)
		}
	}
}
