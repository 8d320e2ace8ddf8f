// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"testing"

	"github.com/netsketch/netsketch/lab/scenario"
	"github.com/netsketch/netsketch/lab/scenario/chamelemon"
	"github.com/netsketch/netsketch/lab/scenario/score"
)

// viewScore is one view of UnivMon or ChameleMon; nil where nothing was measured.
type viewScore struct {
	score.View
	Packets                         score.Figure
	Distinct, Entropy, SecondMoment *score.Figure
	Hitters, Changes                *score.Confusion
	WMRE, SizeARE                   *float64
}

// univmonScore is an epoch of UnivMon.
type univmonScore struct {
	Views   []*viewScore
	Victims []score.FlowFigure
	Absent  []score.View
}

// viewOf collects the scores of a view.
func viewOf(r *score.Result, v score.View) *viewScore {
	out := &viewScore{View: v}
	figure := func(leaf string) *score.Figure {
		f, ok := r.Figure("node-summary", v, leaf)
		if !ok {
			return nil
		}
		return &f
	}
	counts := func(measure string) *score.Confusion {
		if s := r.Score(measure, v); s != nil {
			return s.Counts
		}
		return nil
	}
	value := func(measure string) *float64 {
		if s := r.Score(measure, v); s != nil {
			return &s.Value
		}
		return nil
	}
	if f := figure("packets"); f != nil {
		out.Packets = *f
	}
	out.Distinct, out.Entropy, out.SecondMoment = figure("distinct-flows"), figure("entropy"), figure("second-moment")
	out.Hitters, out.Changes = counts(chamelemon.HeavyHitterF1), counts(chamelemon.HeavyChangeF1)
	out.WMRE, out.SizeARE = value(chamelemon.DistributionWMRE), value(chamelemon.FlowSizeARE)
	return out
}

// of returns the rows that UnivMon published in an epoch.
func of(e scenario.EpochScore) univmonScore {
	r := e.Results["univmon"]
	if r == nil {
		return univmonScore{}
	}
	out := univmonScore{Absent: r.Missing}
	for _, v := range r.Published.Views("node-summary") {
		if r.Scored("node-summary", v) {
			out.Views = append(out.Views, viewOf(r, v))
		}
	}
	for _, top := range r.Top {
		if top.List == "ddos-victim" {
			out.Victims = top.Rows
		}
	}
	return out
}

// lossScore is an epoch of ChameleMon.
type lossScore struct {
	*chamelemon.Attention
	Victims *score.Figure    // number of flows that lost packets; nil if not published
	Found   *score.Confusion // nil if the epoch has no ground truth or no result
	Exact   int              // victims with the exact number of lost packets
	Views   map[string]*viewScore
}

// losses returns what ChameleMon published in an epoch. A claim of exactness that is not true is an
// error.
func losses(t *testing.T, e *scenario.EpochScore) *lossScore {
	t.Helper()
	r := e.Results["chamelemon"]
	if r == nil {
		t.Fatalf("epoch %d has no result of ChameleMon", e.Epoch)
	}
	for _, f := range r.FalseClaims {
		t.Errorf("epoch %d of the run: published as exact, and is not: %s", r.Index+1, f)
	}
	network := score.View{Device: score.Network}
	var edges []string
	out := &lossScore{Views: map[string]*viewScore{}}
	for _, v := range r.Published.Views("node-summary") {
		if _, ok := r.Figure("node-summary", v, "packets"); ok {
			out.Views[v.Device] = viewOf(r, v)
		}
		if v.Device != score.Network {
			edges = append(edges, v.Device)
		}
	}
	out.Attention = chamelemon.AttentionOf(r, edges)
	if f, ok := r.Figure("attention", network, "victims"); ok {
		out.Victims = &f
	}
	if s := r.Score(chamelemon.VictimF1, network); s != nil {
		out.Found, out.Exact = s.Counts, r.Score(chamelemon.VictimsExact, network).Counts.TruePositive
	}
	return out
}
