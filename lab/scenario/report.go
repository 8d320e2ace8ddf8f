// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/netsketch/netsketch/collector"
	"github.com/netsketch/netsketch/lab"
	"github.com/netsketch/netsketch/lab/scenario/score"
)

// Report is the result of a run. It marshals to one JSON object.
type Report struct {
	OK       bool      `json:"ok"`
	Scenario string    `json:"scenario"`
	Error    string    `json:"error,omitempty"`
	Hint     string    `json:"hint,omitempty"` // advice about a failed run
	Clock    string    `json:"clock"`          // wall, virtual or paced
	Switches int       `json:"switches"`
	Hosts    int       `json:"hosts"`
	Program  string    `json:"program"`
	Plugins  []string  `json:"plugins"`           // names of the plugins that run
	GNMI     string    `json:"gnmi"`              // address of the collector's gNMI server
	Console  string    `json:"console,omitempty"` // URL of the console
	Started  time.Time `json:"started"`

	Epochs   []EpochScore  `json:"epochs"`
	Totals   []score.Total `json:"totals"`
	Expected []Verdict     `json:"expected"`
	Network  NetworkStats  `json:"network"`
	Latency  *Latency      `json:"latency,omitempty"`
	Traces   []TraceStats  `json:"traces,omitempty"` // capture files of the traffic
}

// TraceStats describes a capture file.
type TraceStats struct {
	File    string `json:"file"`
	Packets int    `json:"packets"`
	// LongerRecords counts records that hold more bytes than the file says their packets had.
	LongerRecords int `json:"records_longer_than_packets"`
	// TimeSteps is how often the clock of the file jumps, more than a minute ahead or a second back;
	// packets after a jump are played as if there were no jump. In a scenario with one capture file,
	// pauses of more than a minute are jumps.
	TimeSteps int `json:"time_steps"`
	// Pauses is how often the file pauses for more than a minute in a scenario with several capture
	// files. Only what is a pause of all of them is cut.
	Pauses int `json:"pauses,omitempty"`
	// Refused counts the packets that belong to no flow, by reason.
	Refused map[string]int `json:"refused,omitempty"`
	// Played counts the packets of the run, including repetitions. It is absent where the scenario
	// ends the trace.
	Played *int64 `json:"played,omitempty"`
}

// EpochScore is one epoch compared with the ground truth.
type EpochScore struct {
	Epoch  uint64    `json:"epoch"`
	End    time.Time `json:"end"`
	Status string    `json:"status"` // complete, partial or lost
	Stages Stages    `json:"stages"`
	// Absent has the reasons why switches and hosts are missing from the epoch, by name.
	Absent map[string]string `json:"absent,omitempty"`
	// Failed has the errors of plugins without results, by plugin.
	Failed map[string]string `json:"failed,omitempty"`
	// Rows has the numbers of rows that plugins published, by plugin.
	Rows map[string]int `json:"rows,omitempty"`
	// Results holds the results of the scored algorithms, by plugin. It is empty in an epoch that the
	// scenario does not score.
	Results map[string]*score.Result `json:"results"`
}

// missing returns how many views have no result, of all views.
func (e *EpochScore) missing() (n, of int) {
	for _, r := range e.Results {
		n, of = n+len(r.Missing), of+r.Views
	}
	return n, of
}

// whole reports whether the epoch covers all switches and hosts, and no plugin lost it.
func (e *EpochScore) whole() bool { return e.Status == "COMPLETE" && len(e.Failed) == 0 }

// reasons returns why the epoch is not whole, in one line.
func (e *EpochScore) reasons() string {
	var out []string
	for _, all := range []map[string]string{e.Absent, e.Failed} {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			out = append(out, name+": "+all[name])
		}
	}
	return strings.Join(out, "; ")
}

// Stages are the parts of the time from an epoch's end until its results could be
// read, as the collector measured them.
type Stages struct {
	FlipNS    int64 `json:"flip_ns"`
	SkewNS    int64 `json:"skew_ns"` // time from the first switch's flip to the last one's
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

// NetworkStats account for every packet of the run:
//
//	Sent + Copied + FromControllers = Received + Lost + all of Dropped + InFlight
type NetworkStats struct {
	Sent            uint64            `json:"packets_sent"`
	Copied          uint64            `json:"packets_copied"` // further copies that switches sent on
	FromControllers uint64            `json:"packets_from_controllers"`
	Received        uint64            `json:"packets_received"`
	Lost            uint64            `json:"packets_lost_on_links"`
	Dropped         map[string]uint64 `json:"packets_dropped_by_switches"` // dropped packets by reason
	InFlight        uint64            `json:"packets_in_flight"`           // at the end of the run
	// Altered are the packets of Received that are not as they were sent, as lab.Network.Altered
	// counts them.
	Altered uint64 `json:"packets_altered"`
	// largest delay of an event behind the machine's clock
	LagNS int64 `json:"lag_ns"`
}

// Balanced reports whether every packet is accounted for.
func (s *NetworkStats) Balanced() bool {
	gone := s.Received + s.Lost + s.InFlight
	for _, n := range s.Dropped {
		gone += n
	}
	return s.Sent+s.Copied+s.FromControllers == gone
}

// Latency is the time from an epoch's end to this subscriber's first gNMI update, over all epochs.
type Latency struct {
	MedianNS int64 `json:"median_ns"`
	WorstNS  int64 `json:"worst_ns"`
	Epochs   int   `json:"epochs"`
}

// Verdict is the result of one bound.
type Verdict struct {
	Bound     string  `json:"bound"`
	Dimension string  `json:"dimension"`
	Value     float64 `json:"value"`
	OK        bool    `json:"ok"`
}

// finish computes the results that depend on all epochs.
func (r *Report) finish(bounds []Bound, scorers map[string]*score.Scorer) {
	if r.Epochs == nil {
		r.Epochs = []EpochScore{} // an array in JSON too
	}
	r.Totals = slices.Concat(partials(r.Epochs), durations(r.Epochs), volumes(r.Epochs))
	bounded := func(measure string) bool {
		return slices.ContainsFunc(bounds, func(b Bound) bool { return b.Measure == measure })
	}
	for _, name := range slices.Sorted(maps.Keys(scorers)) {
		r.Totals = append(r.Totals, scorers[name].Totals()...)
		if n, text := scorers[name].Never(); n > 0 && !bounded(scorers[name].Algorithm().Lost) {
			r.Expected = append(r.Expected, Verdict{Bound: text, Value: float64(n)})
		}
	}
	r.Expected = append(judge(bounds, r.Totals), r.Expected...)
	if v := failures(r.Epochs); v.Value > 0 && !bounded(PartialEpochs) {
		r.Expected = append(r.Expected, v)
	}
	for _, t := range r.Traces {
		if t.Played != nil {
			r.Expected = append(r.Expected, Verdict{Bound: "packets of " + filepath.Base(t.File) + " played",
				Value: float64(*t.Played), OK: *t.Played >= int64(t.Packets)})
		}
	}
	if n := r.Network.Dropped[lab.TooLong]; n > 0 {
		r.Expected = append(r.Expected, Verdict{Bound: "packets " + lab.TooLong, Value: float64(n)})
	}
	r.OK = r.Error == "" && len(r.Epochs) > 0
	for _, v := range r.Expected {
		r.OK = r.OK && v.OK
	}
}

// pacedClock names the clock of a run with Options.Paced.
const pacedClock = "paced"

// slow returns a hint if the machine was too slow for the clock, and otherwise an empty text.
func (r *Report) slow(interval time.Duration) string {
	lag := time.Duration(r.Network.LagNS)
	if r.Clock == pacedClock && lag > interval {
		return fmt.Sprintf("the run was up to %v behind this machine's clock, which does not change the results",
			lag.Round(time.Millisecond))
	}
	if r.Clock == pacedClock || lag < interval/10 ||
		!slices.ContainsFunc(r.Epochs, func(e EpochScore) bool { return !e.whole() }) {
		return ""
	}
	return fmt.Sprintf("packets were up to %v late: this machine is too slow, or has too much else to do, for epochs "+
		"of %v on the wall clock; --virtual takes the time that it needs",
		lag.Round(time.Millisecond), interval)
}

// Measures of every scenario. Durations are real time in milliseconds on every clock: the median,
// and the longest as the worst.
const (
	PartialEpochs = "partial-epochs" // share of the epochs that are not complete, or that a plugin lost
	CollectionMS  = "collection-ms"  // read-out, without the wait for the network to drain
	ResponseMS    = "response-ms"    // time from the end of the read-out to the plugin's answer
	Rows          = "rows"           // largest number of rows that a plugin publishes in an epoch
)

func durations(epochs []EpochScore) (out []score.Total) {
	for _, m := range []struct {
		name string
		of   func(*Stages) int64
	}{{CollectionMS, func(s *Stages) int64 { return s.ReadNS }},
		{ResponseMS, func(s *Stages) int64 { return s.PluginNS }}} {
		var all []int64
		for i := range epochs {
			all = append(all, m.of(&epochs[i].Stages))
		}
		if len(all) == 0 {
			continue
		}
		slices.Sort(all)
		out = append(out, score.Total{Measure: m.name, Value: float64(all[len(all)/2]) / 1e6,
			Worst: float64(all[len(all)-1]) / 1e6, Views: len(all)})
	}
	return out
}

// volumes returns the largest number of rows of each plugin.
func volumes(epochs []EpochScore) (out []score.Total) {
	most := map[string]int{}
	for i := range epochs {
		for name, n := range epochs[i].Rows {
			most[name] = max(most[name], n)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(most)) {
		out = append(out, score.Total{Algorithm: name, Measure: Rows, Value: float64(most[name]),
			Worst: float64(most[name]), Views: len(epochs)})
	}
	return out
}

func partials(epochs []EpochScore) []score.Total {
	if len(epochs) == 0 {
		return nil
	}
	t := score.Total{Measure: PartialEpochs, Views: len(epochs)}
	for i := range epochs {
		if !epochs[i].whole() {
			t.Value += 1 / float64(len(epochs))
			t.Worst = 1
		}
	}
	return []score.Total{t}
}

// failures counts the epochs that a plugin lost. The run then fails, unless the scenario states how
// many partial epochs it allows.
func failures(epochs []EpochScore) Verdict {
	v, names := Verdict{}, map[string]string{}
	for i := range epochs {
		v.Value += float64(min(len(epochs[i].Failed), 1))
		maps.Copy(names, epochs[i].Failed)
	}
	v.Bound = "no epoch without results of " + strings.Join(slices.Sorted(maps.Keys(names)), ", ")
	return v
}

// judge compares the totals with the bounds. A bound without a measured value is broken.
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
			if t.Measure != b.Measure || b.Dimension != "" && b.Dimension != t.Dimension || b.Algorithm != "" &&
				b.Algorithm != t.Algorithm {
				continue
			}
			found = true
			ok := !math.IsNaN(t.Value) && (b.AtLeast == nil || t.Value >= *b.AtLeast) &&
				(b.AtMost == nil || t.Value <= *b.AtMost)
			out = append(out, Verdict{text, t.Dimension, t.Value, ok})
		}
		if !found {
			out = append(out, Verdict{text + " (nothing was measured)", b.Dimension, 0, false})
		}
	}
	return out
}
