// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/netsketch/netsketch/collector"
	"github.com/netsketch/netsketch/lab/truth"
	"github.com/netsketch/netsketch/plugins/univmon/analysis"
	"github.com/netsketch/netsketch/sketch/flow"
)

// The measures a scenario can bound. F1 scores pool true and false positives over all
// epochs and switches; errors are the mean of the relative errors.
const (
	HeavyHitterF1     = "heavy-hitter-f1"     // flows above the threshold: found and true
	HeavyHitterError  = "heavy-hitter-error"  // their packets
	ChangeF1          = "heavy-change-f1"     // flows that changed by more than the threshold
	EntropyError      = "entropy-error"       //
	DistinctError     = "distinct-error"      //
	SecondMomentError = "second-moment-error" //
	PacketsError      = "packets-error"       // packets a switch counted
	LostViews         = "lost"                // share of switches and epochs without a complete result
)

// Measures lists the measures.
func Measures() []string {
	return []string{HeavyHitterF1, HeavyHitterError, ChangeF1, EntropyError, DistinctError, SecondMomentError, PacketsError, LostViews}
}

// confusion counts flows that were reported and are true.
type confusion struct {
	TruePositive  int `json:"true_positive"`
	FalsePositive int `json:"false_positive"`
	FalseNegative int `json:"false_negative"`
}

func (c confusion) f1() float64 {
	if c.TruePositive+c.FalsePositive+c.FalseNegative == 0 {
		return 1 // nothing to find, nothing found
	}
	return 2 * float64(c.TruePositive) / float64(2*c.TruePositive+c.FalsePositive+c.FalseNegative)
}

func (c *confusion) add(o confusion) {
	c.TruePositive += o.TruePositive
	c.FalsePositive += o.FalsePositive
	c.FalseNegative += o.FalseNegative
}

// compare counts reported flows against true ones.
func compare[V any](reported map[flow.Key]V, actual []truth.Flow) confusion {
	var c confusion
	for _, f := range actual {
		if _, ok := reported[f.Key]; ok {
			c.TruePositive++
		} else {
			c.FalseNegative++
		}
	}
	c.FalsePositive = len(reported) - c.TruePositive
	return c
}

// Figure is a measured value beside the true one.
type Figure struct {
	Measured float64 `json:"measured"`
	True     float64 `json:"true"`
}

// Error is the relative error; of a true value of 0 it is 0 or 1.
func (f Figure) Error() float64 {
	if f.True == 0 {
		if f.Measured == 0 {
			return 0
		}
		return 1
	}
	return math.Abs(f.Measured-f.True) / math.Abs(f.True)
}

// FlowFigure is a flow with its packets, measured and true.
type FlowFigure struct {
	Flow string `json:"flow"`
	Figure
}

// ViewScore is one view of one epoch beside the truth.
type ViewScore struct {
	View
	Packets      Figure       `json:"packets"`
	Entropy      Figure       `json:"entropy_bits"`
	Distinct     Figure       `json:"distinct_flows"`
	SecondMoment Figure       `json:"second_moment"`
	HeavyHitters confusion    `json:"heavy_hitters"`
	HeavyError   float64      `json:"heavy_hitter_error"`
	Changes      *confusion   `json:"heavy_changes,omitempty"` // nil where the epoch before is not known
	Top          []FlowFigure `json:"top"`
	TopChanges   []FlowFigure `json:"top_changes,omitempty"`
}

// EpochScore is one epoch beside the truth.
type EpochScore struct {
	Epoch  uint64      `json:"epoch"`
	End    time.Time   `json:"end"`
	Status string      `json:"status"` // complete, partial or lost
	Stages Stages      `json:"stages"`
	Views  []ViewScore `json:"views"`
	// Victims are the destinations reported as attacked in the network's view, with
	// their distinct sources.
	Victims []FlowFigure `json:"victims,omitempty"`
	// Missing are the views that have no complete result for this epoch.
	Missing []View `json:"missing,omitempty"`
}

// networkDevice is the device of results for the network as a whole.
const networkDevice = "network"

// Stages are the parts of the time from an epoch's end until its results could be
// read, as the collector measured them.
type Stages struct {
	FlipNS    int64 `json:"flip_ns"`
	WaitNS    int64 `json:"wait_ns"`
	ReadNS    int64 `json:"read_out_ns"`
	PluginNS  int64 `json:"plugin_ns"`
	PublishNS int64 `json:"publish_ns"`
	TotalNS   int64 `json:"total_ns"`
}

func stagesOf(s collector.Stages) Stages {
	return Stages{
		FlipNS: int64(s.Flip), WaitNS: int64(s.Wait), ReadNS: int64(s.Read),
		PluginNS: int64(s.Plugin), PublishNS: int64(s.Publish), TotalNS: int64(s.Total),
	}
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
		return ViewScore{}, fmt.Errorf("scenario: dimension: %w", err)
	}
	s := r.Summaries[v]
	now = now.Project(fields)
	total := float64(now.Packets())
	out := ViewScore{
		View:         v,
		Packets:      Figure{float64(s.Packets), total},
		Entropy:      Figure{s.Entropy, now.Entropy()},
		Distinct:     Figure{s.Distinct, float64(len(now))},
		SecondMoment: Figure{s.SecondMoment, now.SecondMoment()},
	}
	reported := map[flow.Key]*Heavy{}
	for k, h := range r.Heavy[v] {
		if h.Epoch == s.Epoch {
			reported[k] = h
		}
	}
	heavy := l.heavy
	if v.Device == networkDevice {
		heavy = l.iceberg
	}
	above := now.AtLeast(least(heavy, total))
	out.HeavyHitters = compare(reported, above)
	for _, f := range above {
		measured := 0.0
		if h := reported[f.Key]; h != nil {
			measured = h.Packets
		}
		out.HeavyError += Figure{measured, float64(f.Packets)}.Error() / float64(len(above))
	}
	for _, f := range now.Top(topFlows) {
		fig := FlowFigure{f.Key.String(), Figure{True: float64(f.Packets)}}
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
	c := compare(changed, actual)
	out.Changes = &c
	for _, f := range actual[:min(topFlows, len(actual))] {
		fig := FlowFigure{f.Key.String(), Figure{True: float64(now[f.Key]) - float64(before[f.Key])}}
		if c := changed[f.Key]; c != nil {
			fig.Measured = c.Delta
		}
		out.TopChanges = append(out.TopChanges, fig)
	}
	return out, nil
}

// scoreVictims sets the victims that are reported of the network beside the number of
// sources that really sent to them.
func scoreVictims(r *Results, now truth.Counts) []FlowFigure {
	sources := map[string]map[flow.Key]bool{}
	for destination := range r.Victims[networkDevice] {
		sources[destination] = map[flow.Key]bool{}
	}
	for k := range now {
		if s := sources[k.Project(flow.Dst).String()]; s != nil {
			s[k.Project(flow.Src)] = true
		}
	}
	var out []FlowFigure
	for destination, n := range r.Victims[networkDevice] {
		out = append(out, FlowFigure{destination, Figure{n, float64(len(sources[destination]))}})
	}
	slices.SortFunc(out, func(a, b FlowFigure) int {
		return cmp.Or(cmp.Compare(b.Measured, a.Measured), strings.Compare(a.Flow, b.Flow))
	})
	return out
}

// Total is what a measure came to over a whole run.
type Total struct {
	Measure   string  `json:"measure"`
	Dimension string  `json:"dimension"`
	Value     float64 `json:"value"`
	Worst     float64 `json:"worst"` // of one view of one epoch
	Views     int     `json:"views"` // views and epochs it rests on
}

// totals pools the scores of all epochs by measure and dimension.
func totals(epochs []EpochScore) []Total {
	type pool struct {
		c          confusion
		sum, worst float64
		n          int
		f1         bool
	}
	pools := map[[2]string]*pool{}
	at := func(measure, dimension string) *pool { return entry(pools, [2]string{measure, dimension}) }
	mean := func(measure, dimension string, x float64) {
		p := at(measure, dimension)
		p.sum += x
		p.worst = math.Max(p.worst, x)
		p.n++
	}
	f1 := func(measure, dimension string, c confusion) {
		p := at(measure, dimension)
		if p.n == 0 {
			p.worst = 1
		}
		p.f1 = true
		p.c.add(c)
		p.worst = math.Min(p.worst, c.f1())
		p.n++
	}
	for _, e := range epochs {
		for _, v := range e.Views {
			f1(HeavyHitterF1, v.Dimension, v.HeavyHitters)
			if v.Changes != nil {
				f1(ChangeF1, v.Dimension, *v.Changes)
			}
			mean(HeavyHitterError, v.Dimension, v.HeavyError)
			mean(EntropyError, v.Dimension, v.Entropy.Error())
			mean(DistinctError, v.Dimension, v.Distinct.Error())
			mean(SecondMomentError, v.Dimension, v.SecondMoment.Error())
			mean(PacketsError, v.Dimension, v.Packets.Error())
			mean(LostViews, v.Dimension, 0)
		}
		for _, v := range e.Missing {
			mean(LostViews, v.Dimension, 1)
		}
	}
	var out []Total
	for k, p := range pools {
		t := Total{Measure: k[0], Dimension: k[1], Worst: p.worst, Views: p.n}
		if p.f1 {
			t.Value = p.c.f1()
		} else {
			t.Value = p.sum / float64(p.n)
		}
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b Total) int {
		return strings.Compare(a.Dimension+"\x00"+a.Measure, b.Dimension+"\x00"+b.Measure)
	})
	return out
}

// Verdict is what became of one bound.
type Verdict struct {
	Bound     string  `json:"bound"`
	Dimension string  `json:"dimension"`
	Value     float64 `json:"value"`
	OK        bool    `json:"ok"`
}

// judge holds the totals against the bounds. A bound that nothing was measured for is
// broken.
func judge(bounds []Bound, totals []Total) []Verdict {
	var out []Verdict
	for _, b := range bounds {
		text := b.Measure
		if b.AtLeast != nil {
			text += fmt.Sprintf(" ≥ %g", *b.AtLeast)
		}
		if b.AtMost != nil {
			text += fmt.Sprintf(" ≤ %g", *b.AtMost)
		}
		found := false
		for _, t := range totals {
			if t.Measure != b.Measure || b.Dimension != "" && b.Dimension != t.Dimension {
				continue
			}
			found = true
			ok := !math.IsNaN(t.Value) && (b.AtLeast == nil || t.Value >= *b.AtLeast) && (b.AtMost == nil || t.Value <= *b.AtMost)
			out = append(out, Verdict{text, t.Dimension, t.Value, ok})
		}
		if !found {
			out = append(out, Verdict{text + " (nothing was measured)", b.Dimension, 0, false})
		}
	}
	return out
}

// sorted lists devices and dimensions in order.
func sorted(views map[View]bool) []View {
	out := slices.Collect(maps.Keys(views))
	slices.SortFunc(out, func(a, b View) int { return strings.Compare(a.String(), b.String()) })
	return out
}
