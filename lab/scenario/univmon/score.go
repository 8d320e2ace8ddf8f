// SPDX-License-Identifier: Apache-2.0

package univmon

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/lab/scenario/score"
	"github.com/netsketch/netsketch/lab/truth"
	"github.com/netsketch/netsketch/plugins/univmon/analysis"
	"github.com/netsketch/netsketch/sketch/flow"
)

// ViewScore is one view of one epoch beside the truth.
type ViewScore struct {
	View
	Packets      score.Figure       `json:"packets"`
	Entropy      score.Figure       `json:"entropy_bits"`
	Distinct     score.Figure       `json:"distinct_flows"`
	SecondMoment score.Figure       `json:"second_moment"`
	HeavyHitters score.Confusion    `json:"heavy_hitters"`
	HeavyError   float64            `json:"heavy_hitter_error"`
	Changes      *score.Confusion   `json:"heavy_changes,omitempty"` // nil where the epoch before is not known
	Top          []score.FlowFigure `json:"top"`
	TopChanges   []score.FlowFigure `json:"top_changes,omitempty"`
}

// Score is one epoch beside the truth.
type Score struct {
	Views []ViewScore `json:"views"`
	// Victims are the destinations reported as attacked in the network's view, with
	// their distinct sources.
	Victims []score.FlowFigure `json:"victims,omitempty"`
	// Absent are the views that have no complete result for this epoch.
	Absent []View `json:"missing,omitempty"`
}

// topFlows is how many flows are shown of each view.
const topFlows = 10

// limits are what makes a flow heavy: a share of the whole, and a number of packets.
type limits struct{ heavy, iceberg, change analysis.Threshold }

// least is the number of packets from which a flow is heavy in a whole of so many.
func least(t analysis.Threshold, whole float64) float64 {
	return math.Max(t.Packets, t.Share*whole)
}

// scoreView sets one view's results beside the true counts of its epoch; before is
// the counts of the epoch before, nil when they are not known.
func scoreView(v View, r *Results, now, before truth.Counts, l limits) (ViewScore, error) {
	fields, err := flow.ParseFields(v.Dimension)
	if err != nil {
		return ViewScore{}, fmt.Errorf("univmon: dimension: %w", err)
	}
	s := r.Summaries[v]
	now = now.Project(fields)
	total := float64(now.Packets())
	out := ViewScore{
		View:         v,
		Packets:      score.Of(float64(s.Packets), total),
		Entropy:      score.Of(s.Entropy, now.Entropy()),
		Distinct:     score.Of(s.Distinct, float64(len(now))),
		SecondMoment: score.Of(s.SecondMoment, now.SecondMoment()),
	}
	reported := map[flow.Key]*Heavy{}
	for k, h := range r.Heavy[v] {
		if h.Epoch == s.Epoch {
			reported[k] = h
		}
	}
	heavy := l.heavy
	if v.Device == score.Network {
		heavy = l.iceberg
	}
	above := now.AtLeast(least(heavy, total))
	out.HeavyHitters = score.Compare(reported, above)
	for _, f := range above {
		measured := 0.0
		if h := reported[f.Key]; h != nil {
			measured = h.Packets
		}
		out.HeavyError += score.Of(measured, float64(f.Packets)).Error() / float64(len(above))
	}
	for _, f := range now.Top(topFlows) {
		fig := score.FlowFigure{Flow: f.Key.String(), Figure: score.Of(0, float64(f.Packets))}
		if h := reported[f.Key]; h != nil {
			fig.Measured = h.Packets
		}
		out.Top = append(out.Top, fig)
	}
	if before == nil {
		return out, nil
	}
	before = before.Project(fields)
	changed := map[flow.Key]*Change{}
	for k, c := range r.Changes[v] {
		if c.Epoch == s.Epoch {
			changed[k] = c
		}
	}
	actual, sum := truth.Changes(before, now), 0.0
	for _, f := range actual {
		sum += float64(f.Packets)
	}
	limit := least(l.change, sum)
	actual = slices.DeleteFunc(actual, func(f truth.Flow) bool { return float64(f.Packets) < limit })
	c := score.Compare(changed, actual)
	out.Changes = &c
	for _, f := range actual[:min(topFlows, len(actual))] {
		fig := score.FlowFigure{Flow: f.Key.String(), Figure: score.Of(0, float64(now[f.Key])-float64(before[f.Key]))}
		if c := changed[f.Key]; c != nil {
			fig.Measured = c.Delta
		}
		out.TopChanges = append(out.TopChanges, fig)
	}
	return out, nil
}

// scoreVictims sets the victims that are reported of the network beside the number of
// sources that really sent to them.
func scoreVictims(r *Results, now truth.Counts) []score.FlowFigure {
	sources := map[string]map[flow.Key]bool{}
	for destination := range r.Victims[score.Network] {
		sources[destination] = map[flow.Key]bool{}
	}
	for k := range now {
		if s := sources[k.Project(flow.Dst).String()]; s != nil {
			s[k.Project(flow.Src)] = true
		}
	}
	var out []score.FlowFigure
	for destination, n := range r.Victims[score.Network] {
		out = append(out, score.FlowFigure{Flow: destination, Figure: score.Of(n, float64(len(sources[destination])))})
	}
	slices.SortFunc(out, func(a, b score.FlowFigure) int {
		return cmp.Or(cmp.Compare(b.Measured, a.Measured), strings.Compare(a.Flow, b.Flow))
	})
	return out
}

// Missing implements score.Result.
func (s *Score) Missing() (n, of int) { return len(s.Absent), len(s.Absent) + len(s.Views) }

// Samples implements score.Result.
func (s *Score) Samples() []score.Sample {
	var out []score.Sample
	for i := range s.Views {
		v := &s.Views[i]
		d := v.Dimension
		out = append(out, score.F1(HeavyHitterF1, d, v.HeavyHitters))
		if v.Changes != nil {
			out = append(out, score.F1(ChangeF1, d, *v.Changes))
		}
		out = append(out,
			score.Mean(HeavyHitterError, d, v.HeavyError), score.Mean(EntropyError, d, v.Entropy.Error()),
			score.Mean(DistinctError, d, v.Distinct.Error()), score.Mean(SecondMomentError, d, v.SecondMoment.Error()),
			score.Mean(PacketsError, d, v.Packets.Error()), score.Mean(LostViews, d, 0))
	}
	for _, v := range s.Absent {
		out = append(out, score.Mean(LostViews, v.Dimension, 1))
	}
	return out
}

// sorted lists devices and dimensions in order.
func sorted(views map[View]bool) []View {
	out := slices.Collect(maps.Keys(views))
	slices.SortFunc(out, func(a, b View) int { return strings.Compare(a.String(), b.String()) })
	return out
}
