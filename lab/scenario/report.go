// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/netsketch/netsketch/collector"
	"github.com/netsketch/netsketch/lab/scenario/score"
)

// Report is all that a run came to. It marshals to one JSON object.
type Report struct {
	OK       bool      `json:"ok"`
	Scenario string    `json:"scenario"`
	Error    string    `json:"error,omitempty"`
	Hint     string    `json:"hint,omitempty"` // what to do about a run that did not go well
	Clock    string    `json:"clock"`          // wall or virtual
	Switches int       `json:"switches"`
	Hosts    int       `json:"hosts"`
	Program  string    `json:"program"`
	GNMI     string    `json:"gnmi"` // address of the collector's gNMI server
	Started  time.Time `json:"started"`

	Epochs   []EpochScore  `json:"epochs"`
	Totals   []score.Total `json:"totals"`
	Expected []Verdict     `json:"expected"`
	Network  NetworkStats  `json:"network"`
	Latency  *Latency      `json:"latency,omitempty"`
}

// EpochScore is one epoch beside the truth.
type EpochScore struct {
	Epoch  uint64    `json:"epoch"`
	End    time.Time `json:"end"`
	Status string    `json:"status"` // complete, partial or lost
	Stages Stages    `json:"stages"`
	// Failed says why plugins have no results, by plugin.
	Failed map[string]string `json:"failed,omitempty"`
	// Results are those of the algorithms that are scored, by plugin. There are none in an epoch that
	// the scenario does not score.
	Results map[string]score.Result `json:"results"`
}

// missing is how many of how many results are not there.
func (e *EpochScore) missing() (n, of int) {
	for _, r := range e.Results {
		a, b := r.Missing()
		n, of = n+a, of+b
	}
	return n, of
}

// Stages are the parts of the time from an epoch's end until its results could be
// read, as the collector measured them.
type Stages struct {
	FlipNS    int64 `json:"flip_ns"`
	SkewNS    int64 `json:"skew_ns"` // from the first switch's flip to the last one's
	WaitNS    int64 `json:"wait_ns"`
	ReadNS    int64 `json:"read_out_ns"`
	PluginNS  int64 `json:"plugin_ns"`
	PublishNS int64 `json:"publish_ns"`
	TotalNS   int64 `json:"total_ns"`
}

func stagesOf(s collector.Stages) Stages {
	return Stages{
		FlipNS: int64(s.Flip), SkewNS: int64(s.Skew), WaitNS: int64(s.Wait), ReadNS: int64(s.Read),
		PluginNS: int64(s.Plugin), PublishNS: int64(s.Publish), TotalNS: int64(s.Total),
	}
}

// NetworkStats are counts over the whole run.
type NetworkStats struct {
	Sent     uint64 `json:"packets_sent"`
	Received uint64 `json:"packets_received"`
	Lost     uint64 `json:"packets_lost_on_links"`
	LagNS    int64  `json:"lag_ns"` // how late a packet was at most on the wall clock
}

// Latency is from the end of an epoch to the first gNMI update at this subscriber,
// over all epochs of the run.
type Latency struct {
	MedianNS int64 `json:"median_ns"`
	WorstNS  int64 `json:"worst_ns"`
	Epochs   int   `json:"epochs"`
}

// Verdict is what became of one bound.
type Verdict struct {
	Bound     string  `json:"bound"`
	Dimension string  `json:"dimension"`
	Value     float64 `json:"value"`
	OK        bool    `json:"ok"`
}

// finish computes what depends on all epochs.
func (r *Report) finish(bounds []Bound, scorers map[string]score.Scorer) {
	if r.Epochs == nil {
		r.Epochs = []EpochScore{} // an array in JSON too
	}
	r.Totals = partials(r.Epochs)
	for _, name := range slices.Sorted(maps.Keys(scorers)) {
		var results []score.Result
		for i := range r.Epochs {
			if res := r.Epochs[i].Results[name]; res != nil {
				results = append(results, res)
			}
		}
		r.Totals = append(r.Totals, score.Totals(name, results)...)
		for _, t := range scorers[name].Totals() {
			t.Algorithm = name
			r.Totals = append(r.Totals, t)
		}
	}
	r.Expected = judge(bounds, r.Totals)
	r.OK = r.Error == "" && len(r.Epochs) > 0
	for _, v := range r.Expected {
		r.OK = r.OK && v.OK
	}
}

// slow says what to do when the machine was too slow for the wall clock: epochs are not complete, and packets were late by
// a good part of one. It returns nothing otherwise.
func (r *Report) slow(interval time.Duration) string {
	lag := time.Duration(r.Network.LagNS)
	if i := slices.IndexFunc(r.Totals, func(t score.Total) bool { return t.Measure == PartialEpochs }); i < 0 || r.Totals[i].Value == 0 || lag < interval/10 {
		return ""
	}
	return fmt.Sprintf("packets were up to %v late: this machine is too slow, or has too much else to do, for epochs of %v on the wall clock; --virtual takes the time that it needs",
		lag.Round(time.Millisecond), interval)
}

// PartialEpochs is the measure of every scenario: the share of the epochs that are not complete, or that a plugin lost.
const PartialEpochs = "partial-epochs"

func partials(epochs []EpochScore) []score.Total {
	if len(epochs) == 0 {
		return nil
	}
	t := score.Total{Measure: PartialEpochs, Views: len(epochs)}
	for i := range epochs {
		if epochs[i].Status != "complete" || len(epochs[i].Failed) > 0 {
			t.Value += 1 / float64(len(epochs))
			t.Worst = 1
		}
	}
	return []score.Total{t}
}

// judge holds the totals against the bounds. A bound that nothing was measured for is
// broken.
func judge(bounds []Bound, totals []score.Total) []Verdict {
	var out []Verdict
	for _, b := range bounds {
		text := b.Measure
		if b.Algorithm != "" {
			text = b.Algorithm + " " + text
		}
		if b.AtLeast != nil {
			text += fmt.Sprintf(" ≥ %g", *b.AtLeast)
		}
		if b.AtMost != nil {
			text += fmt.Sprintf(" ≤ %g", *b.AtMost)
		}
		found := false
		for _, t := range totals {
			if t.Measure != b.Measure || b.Dimension != "" && b.Dimension != t.Dimension || b.Algorithm != "" && b.Algorithm != t.Algorithm {
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
