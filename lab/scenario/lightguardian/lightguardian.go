// SPDX-License-Identifier: Apache-2.0

// Package lightguardian declares how the results of the plugin lightguardian are scored: sizes,
// delays and gaps of flows at switches, the six faults and their alerts, flows and entropy of
// switches. The ground truth is the lab's record of each packet: where it entered, which switches
// it left and when, and which element lost it. Results are about the interval before the epoch's
// interval. Results before the final ones are scored only for the shares of columns and valid hops.
package lightguardian

import (
	"fmt"
	"maps"
	"strings"

	"github.com/openconfig/gnmi/proto/gnmi"

	"github.com/netsketch/netsketch/lab/scenario/score"
	"github.com/netsketch/netsketch/plugins/lightguardian/plugin"
	"github.com/netsketch/netsketch/settings"
)

// Measures that a scenario can bound.
const (
	Coverage         = "coverage"           // share of the columns that were received, as published
	HopCoverage      = "hop-coverage"       // share of the hops with a bucket, as published
	EarlyCoverage    = "early-coverage"     // coverage before the final results: 1/4 is the first of four epochs
	EarlyHopCoverage = "early-hop-coverage" // hop-coverage before the final results
	EarlySizeARE     = "early-size-are"     // hop-size-are before the final results
	HopSizeARE       = "hop-size-are"       // packets of published flows at switches
	DelayARE         = "delay-are"          // packets of published flows in ranges of delays
	GapARE           = "gap-are"            // maximum inter-arrival times of published flows
	FaultF1          = "fault-f1"           // flows at switches with a fault, by kind of fault
	AlertF1          = "fault-alert-f1"     // switches with faults, by kind of fault
	AlertIntervals   = "alert-intervals"    // intervals from the beginning of a fault to its alert
	FlowsError       = "flows-error"        // flows of switches
	EntropyError     = "entropy-error"      // entropy of switches
	PacketsError     = "packets-error"      // packets of switches
	DistributionErr  = "distribution-wmre"  // sizes of flows of switches
	LostResults      = "lost"               // share of epochs without a complete result
)

// Lists of the plugin.
const (
	summary  = "summary"
	hops     = "hop"
	delays   = "delay"
	faults   = "fault"
	switches = "node-summary"
	ranges   = "range"
	alerts   = "alert"
)

// The faults.
const (
	slow      = "LATENCY_INFLATED"
	drops     = "PACKETS_LOST"
	loop      = "LOOP"
	blackhole = "BLACKHOLE"
	jitter    = "ABNORMAL_JITTER"
	path      = "PATH_CHANGED"
)

var kinds = []string{slow, drops, loop, blackhole, jitter, path}

// rows is the number of rows in the report and on the screen.
const rows = 8

var network = score.View{Device: score.Network}

// Algorithm declares how LightGuardian is scored.
func Algorithm() score.Algorithm {
	of := func(name, list string, stat score.Stat, leaves ...string) score.Measure {
		return score.Measure{Name: name, List: list, Stat: stat, Leaves: leaves, Dimension: final}
	}
	measures := []score.Measure{
		share(Coverage, final, "coverage"), share(HopCoverage, final, "hop-coverage"),
		share(EarlyCoverage, early, "coverage"), share(EarlyHopCoverage, early, "hop-coverage"),
		{Name: EarlySizeARE, List: hops, Stat: score.FoundError, Leaves: []string{"packets"}, Dimension: early},
		of(HopSizeARE, hops, score.FoundError, "packets"),
		of(DelayARE, delays, score.FoundError, "packets"),
		of(GapARE, hops, score.FoundError, "gap"),
		of(FlowsError, switches, score.FoundError, "distinct-flows"),
		of(EntropyError, switches, score.FoundError, "entropy"),
		of(PacketsError, switches, score.FoundError, "packets"),
		of(DistributionErr, ranges, score.WMRE, "flows"),
	}
	for _, kind := range kinds {
		for name, list := range map[string]string{FaultF1: faults, AlertF1: alerts} {
			m := of(name, list, score.F1)
			m.Truth, m.Where = list+" "+kind, map[string]string{"kind": kind}
			m.Dimension = func(*score.Epoch, score.View) (string, bool) { return kind, true }
			measures = append(measures, m)
		}
	}
	return score.Algorithm{
		Plugin: "lightguardian", Root: "lightguardian", Marker: "newest-epoch",
		Summary: summary, Status: "status", Lost: LostResults,
		GroundTruth: groundTruth, BankEpochs: bankEpochs,
		Measures:    measures,
		RunMeasures: map[string]func(*score.History) (score.Total, bool){AlertIntervals: alertIntervals},
		Report:      append([]string{summary, alerts}, alertTables()...),
		Top:         []score.Top{{Title: "packets of switches", List: switches, Leaf: "packets", Rows: rows, Shown: rows}},
		Screen: score.Screen{
			Columns: []score.Column{
				{Head: "flows", Width: 7, Cell: score.Measured(summary, "flows")},
				{Head: "columns", Width: 9, Cell: score.Measured(summary, "coverage")},
				{Head: "hops", Width: 9, Cell: score.Measured(summary, "hop-coverage")},
				{Head: "size ARE", Width: 9, Cell: score.ScoreOf(HopSizeARE)},
				{Head: "faults", Width: 7, Cell: score.Measured(summary, "faults")},
				{Head: "alerts", Width: 7, Cell: score.Measured(summary, "active-alerts")},
			},
			Commands: []string{
				"gnmic -a %s --insecure -e proto --format flat get --path /lightguardian/alerts/alert",
				"gnmic -a %s --insecure -e proto --format flat get --path /lightguardian/faults/fault",
				"gnmic -a %s --insecure -e proto --format flat subscribe --mode stream --path /lightguardian/coverage",
			},
		},
		Watch: func(*score.Epoch) []*gnmi.Path { return nil },
	}
}

func alertTables() (lists []string) {
	for _, kind := range kinds {
		lists = append(lists, alerts+" "+kind)
	}
	return lists
}

// share is a published share of the network.
func share(name string, of func(*score.Epoch, score.View) (string, bool), leaf string) score.Measure {
	return score.Measure{Name: name, List: summary, Stat: published, Leaves: []string{leaf}, Dimension: of}
}

// final reports whether the results of an epoch are final; earlier ones do not count.
func final(e *score.Epoch, _ score.View) (string, bool) {
	row := e.Published.Row(summary, network, "")
	return "", row != nil && row.Is("final")
}

// early returns the view of results before the final ones, by their place in the interval.
func early(e *score.Epoch, v score.View) (string, bool) {
	row := e.Published.Row(summary, network, "")
	if _, ok := final(e, v); ok || row == nil {
		return "", false
	}
	epochs := intervalOf(row).epochs
	return fmt.Sprintf("%.0f/%.0f", row.Value("newest-epoch")+epochs-row.Value("final-epoch"), epochs), true
}

// measured is the interval of a row of the summary.
type measured struct{ last, epochs float64 }

func intervalOf(row *score.Row) measured {
	last := row.Value("last-epoch")
	return measured{last, row.Value("final-epoch") - last}
}

// published returns a published value unchanged.
func published(m *score.Measure, rows, _ score.Rows) (score.Score, bool) {
	v, ok := rows[""].Number(m.Leaves[0])
	return score.ShareOf(v), ok
}

// alertIntervals returns how many intervals after the end of the fault's first interval its alert
// began: the mean and the largest number of all faults. A fault without an alert counts with the
// remaining intervals of the run.
func alertIntervals(h *score.History) (t score.Total, ok bool) {
	add := func(epochs float64, i measured) {
		after := max(epochs, 1) / i.epochs
		t.Value, t.Worst, t.Views = t.Value+after, max(t.Worst, after), t.Views+1
	}
	for _, kind := range kinds {
		open, alerted := map[string]measured{}, map[string]bool{} // switches at which a fault began
		now := 0.0
		for _, r := range h.Results {
			row := r.Published[summary][network][""]
			if row == nil || !row.Is("final") {
				continue
			}
			truth, found := r.Truth[alerts+" "+kind][network], r.Published[alerts][network]
			now = row.Value("newest-epoch")
			for key, actual := range truth {
				began, ok := open[key]
				if !ok && !actual.Optional {
					began, ok = intervalOf(row), true
					open[key] = began
				}
				if ok && !alerted[key] && found[key].Is("active") {
					add(found[key].Value("since-epoch")-began.last, began)
					alerted[key] = true
				}
			}
			maps.DeleteFunc(open, func(key string, _ measured) bool { return alerted[key] && truth[key] == nil })
			maps.DeleteFunc(alerted, func(key string, _ bool) bool { return truth[key] == nil })
		}
		for key, began := range open {
			if !alerted[key] {
				add(now+began.epochs-began.last, began)
			}
		}
	}
	t.Value /= float64(max(t.Views, 1))
	return t, t.Views > 0
}

func configuration(s *score.Setting) (c plugin.Configuration, err error) {
	err = settings.DecodeJSON(s.Config, &c)
	return c, err
}

func bankEpochs(s *score.Setting) (int, error) {
	c, err := configuration(s)
	return c.IntervalEpochs, err
}

// groundTruth returns the function that computes the ground truth of an epoch.
func groundTruth(s *score.Setting) (func(*score.Epoch) score.Tables, error) {
	c, err := configuration(s)
	if err != nil {
		return nil, err
	}
	normal, intervals := paths{}, map[uint64]*score.Truth{} // intervals by their last epoch
	return func(e *score.Epoch) score.Tables {
		t := score.Tables{}
		row := e.Published.Row(summary, network, "")
		if e.Truth != nil && len(e.Truth.Devices) > 0 {
			normal.learn(e.Truth)
			intervals[e.Number] = e.Truth
		}
		maps.DeleteFunc(intervals,
			func(last uint64, _ *score.Truth) bool { return last+3*uint64(c.IntervalEpochs) <= e.Number })
		if row == nil || row.Value("coverage") == 0 {
			return t // the first intervals are not sent
		}
		last := uint64(row.Value("last-epoch"))
		now := intervals[last]
		if now == nil {
			return t
		}
		x := &exact{c: &c, t: t, now: now, before: intervals[last-uint64(c.IntervalEpochs)], normal: normal,
			dropped: map[string]loss{}}
		if !row.Is("final") {
			x.rows(summary).Add("", nil)
			for _, j := range journeys(now) {
				x.hops(j)
			}
			return t
		}
		x.compute()
		x.unlocated(e.Published[faults][network])
		for key, row := range e.Published[alerts][network] {
			kind, _, _ := strings.Cut(key, "/")
			if list := t[alerts+" "+kind]; list != nil && !row.Is("active") && list[network][key] == nil {
				list[network].Add(key, nil).Optional = true // the alert has ended
			}
		}
		return t
	}, nil
}
