// SPDX-License-Identifier: Apache-2.0

// Package univmon scores the results of the plugin univmon in a scenario: summaries, heavy
// hitters, changes and victims of attacks, by switch and dimension.
package univmon

import (
	"encoding/json"
	"fmt"

	"github.com/netsketch/netsketch/lab/scenario/score"
	"github.com/netsketch/netsketch/lab/truth"
	"github.com/netsketch/netsketch/plugins/univmon/analysis"
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

// Algorithm returns how UnivMon is scored.
func Algorithm() score.Algorithm {
	return score.Algorithm{
		Plugin:   "univmon",
		Measures: []string{HeavyHitterF1, HeavyHitterError, ChangeF1, EntropyError, DistinctError, SecondMomentError, PacketsError, LostViews},
		New:      newScorer,
	}
}

type scorer struct {
	limits limits
	known  map[View]bool           // that had a result in some epoch
	before map[string]truth.Counts // by device: the 5-tuples of the epoch before, where known
	newest *Score
}

// newScorer reads from the plugin's configuration what it calls heavy.
func newScorer(s score.Setting) (score.Scorer, error) {
	c := analysis.DefaultConfiguration()
	if s.Config != nil {
		if err := json.Unmarshal(s.Config, &c); err != nil {
			return nil, fmt.Errorf("univmon: config: %w", err)
		}
	}
	out := &scorer{limits: limits{heavy: c.HeavyHitters, iceberg: c.HeavyHitters, change: c.HeavyChanges}, known: map[View]bool{}}
	if c.Icebergs != nil {
		out.limits.iceberg = *c.Icebergs
	}
	return out, nil
}

func (s *scorer) Subtrees() [][]string { return [][]string{{"univmon"}} }

func (s *scorer) Marker() []string {
	return []string{"univmon", "summaries", "summary", "state", "epoch"}
}

func (s *scorer) Totals() []score.Total { return nil }

// Score implements score.Scorer.
func (s *scorer) Score(e *score.Epoch) (score.Result, error) {
	res, err := read(e.Leaves)
	if err != nil {
		return nil, err
	}
	counts := map[string]truth.Counts{}
	for name, d := range e.Truth.Devices {
		counts[name] = d.All
	}
	if e.Truth.Complete {
		counts[score.Network] = e.Truth.Network
	}
	out := &Score{Views: []ViewScore{}}
	for v := range res.Summaries {
		s.known[v] = true
	}
	for _, v := range sorted(s.known) {
		now, summary := counts[v.Device], res.Summaries[v]
		if now == nil || summary == nil || summary.Epoch != e.Number {
			out.Absent = append(out.Absent, v)
			continue
		}
		view, err := scoreView(v, res, now, s.before[v.Device], s.limits)
		if err != nil {
			return nil, err
		}
		out.Views = append(out.Views, view)
	}
	out.Victims = scoreVictims(res, counts[score.Network])
	s.before, s.newest = counts, out
	return out, nil
}

// Draw implements score.Scorer.
func (s *scorer) Draw(c *score.Canvas) {
	s.newest.summaries(c)
	if f := s.newest.focus(); f != nil {
		c.Flows(fmt.Sprintf("top flows at %s by %s, packets", f.Device, f.Dimension), f.Top, 5)
		c.Flows("largest changes since the epoch before, packets", f.TopChanges, 3)
	}
	c.Flows("destinations under attack, sources", s.newest.Victims, 3)
}

// Commands implements score.Scorer.
func (s *scorer) Commands(addr string) []string {
	return []string{
		"gnmic -a " + addr + " --insecure subscribe --path /univmon/heavy-hitters --stream-mode on-change",
		"gnmi_cli -a " + addr + " -insecure -query_type once -q /univmon/summaries",
	}
}

// maxRows is how many views the summary table shows.
const maxRows = 12

func (s *Score) summaries(c *score.Canvas) {
	c.WriteString(c.Dim(fmt.Sprintf("%-10s %-8s %9s %16s %20s %17s %8s %8s\n",
		"switch", "flows by", "packets", "flows (true)", "entropy/bit (true)", "heavy hitters", "F1", "chg. F1")))
	for i := range s.Views {
		v := &s.Views[i]
		if i == maxRows {
			c.Printf("… and %d more\n", len(s.Views)-i)
			break
		}
		h := v.HeavyHitters
		change := "-"
		if v.Changes != nil {
			change = fmt.Sprintf("%.3f", v.Changes.F1())
		}
		c.Printf("%-10s %-8s %9.0f %16s %20s %17s %8.3f %8s\n", v.Device, v.Dimension, v.Packets.Measured,
			fmt.Sprintf("%.0f (%.0f)", v.Distinct.Measured, v.Distinct.True),
			fmt.Sprintf("%.3f (%.3f)", v.Entropy.Measured, v.Entropy.True),
			fmt.Sprintf("%d of %d", h.TruePositive, h.TruePositive+h.FalseNegative), h.F1(), change)
	}
	c.WriteByte('\n')
}

// focus is the view whose flows are shown: the busiest switch, by 5-tuple if it has that.
func (s *Score) focus() *ViewScore {
	var best *ViewScore
	for i := range s.Views {
		v := &s.Views[i]
		if best == nil || v.Packets.Measured > best.Packets.Measured ||
			v.Packets.Measured == best.Packets.Measured && len(v.Dimension) > len(best.Dimension) {
			best = v
		}
	}
	return best
}
