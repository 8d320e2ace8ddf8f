// SPDX-License-Identifier: Apache-2.0

// Package lightguardian declares how the results of the plugin lightguardian are scored: sizes,
// delays and gaps of flows at switches, the six faults and their alerts, flows and entropy of
// switches. The ground truth is what the lab knows of each packet: where it entered, which switches
// it left and when, and what lost it. Results of an epoch are about the epoch before.
package lightguardian

import (
	"encoding/json"
	"strings"

	"github.com/openconfig/gnmi/proto/gnmi"

	"github.com/netsketch/netsketch/lab/scenario/score"
	"github.com/netsketch/netsketch/plugins/lightguardian/plugin"
)

// Measures that a scenario can bound.
const (
	Received        = "received"          // share of the columns, as published
	Valid           = "valid"             // share of the hops with a bucket, as published
	HopSizeARE      = "hop-size-are"      // packets of published flows at switches
	DelayARE        = "delay-are"         // packets of published flows in ranges of delays
	GapARE          = "gap-are"           // maximum inter-arrival times of published flows
	FaultF1         = "fault-f1"          // flows at switches with a fault, by its kind
	AlertF1         = "fault-alert-f1"    // switches with faults, by their kind
	AlertIntervals  = "alert-intervals"   // from the beginning of a fault to its alert
	FlowsError      = "flows-error"       // flows of switches
	EntropyError    = "entropy-error"     // entropy of switches
	PacketsError    = "packets-error"     // packets of switches
	DistributionErr = "distribution-wmre" // sizes of flows of switches
	LostResults     = "lost"              // share of epochs without a complete result
)

// Lists of the plugin.
const (
	summary  = "summary"
	hops     = "hop"
	delays   = "delay"
	faults   = "fault"
	switches = "switch"
	ranges   = "range"
	alerts   = "alert"
)

// The faults.
const (
	slow      = "inflated-latency"
	drops     = "random-drops"
	loop      = "loop"
	blackhole = "blackhole"
	jitter    = "abnormal-jitter"
	path      = "abnormal-path"
)

var kinds = []string{slow, drops, loop, blackhole, jitter, path}

// rows is the number of rows in the report and on the screen.
const rows = 8

var network = score.View{Device: score.Network}

// Algorithm declares how LightGuardian is scored.
func Algorithm() score.Algorithm {
	of := func(name, list string, stat score.Stat, leaves ...string) score.Measure {
		return score.Measure{Name: name, List: list, Stat: stat, Leaves: leaves,
			Dimension: func(*score.Epoch, score.View) (string, bool) { return "", true }}
	}
	measures := []score.Measure{
		of(Received, summary, published, "received"),
		of(Valid, summary, published, "valid"),
		of(HopSizeARE, hops, score.FoundError, "packets"),
		of(DelayARE, delays, score.FoundError, "packets"),
		of(GapARE, hops, score.FoundError, "gap"),
		of(FlowsError, switches, score.FoundError, "flows"),
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
		Plugin: "lightguardian", Root: "lightguardian", Marker: []string{"summary", "state", "epoch"},
		Summary: summary, Status: "status", Lost: LostResults,
		GroundTruth: groundTruth,
		Measures:    measures,
		RunMeasures: map[string]func(*score.History) (score.Total, bool){AlertIntervals: alertIntervals},
		Report:      append([]string{summary, alerts}, alertTables()...),
		Top:         []score.Top{{Title: "packets of switches", List: switches, Leaf: "packets", Rows: rows, Shown: rows}},
		Screen: score.Screen{
			Columns: []score.Column{
				{Head: "flows", Width: 7, Cell: score.Measured(summary, "flows")},
				{Head: "received", Width: 9, Cell: score.Measured(summary, "received")},
				{Head: "valid", Width: 9, Cell: score.Measured(summary, "valid")},
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

// published is a published value itself.
func published(m *score.Measure, rows, _ score.Rows) (score.Score, bool) {
	v, ok := rows[""].Number(m.Leaves[0])
	return score.Score{Value: v}, ok
}

// alertIntervals is how many intervals after the beginning of a fault its alert is active: the mean
// and the largest of all faults. A fault without an alert counts with the rest of the run.
func alertIntervals(h *score.History) (t score.Total, ok bool) {
	for _, kind := range kinds {
		open := map[string]int{} // result in which the fault of a switch began to be visible
		for n, r := range h.Results {
			truth, found := r.Truth[alerts+" "+kind][network], r.Published[alerts][network]
			for key, row := range truth {
				_, began := open[key]
				if !began && !row.Optional {
					open[key] = n
				}
				at, began := open[key]
				if began && at >= 0 && found[key].Is("active") {
					after := float64(n - at + 1) // results are about the interval before
					t.Value, t.Worst, t.Views = t.Value+after, max(t.Worst, after), t.Views+1
					open[key] = -1
				}
			}
			for key := range open {
				if truth[key] == nil && open[key] == -1 {
					delete(open, key)
				}
			}
		}
		for _, at := range open {
			if at >= 0 {
				after := float64(len(h.Results) - at + 1)
				t.Value, t.Worst, t.Views = t.Value+after, max(t.Worst, after), t.Views+1
			}
		}
	}
	t.Value /= float64(max(t.Views, 1))
	return t, t.Views > 0
}

// groundTruth returns the function that computes the ground truth of an epoch.
func groundTruth(s *score.Setting) (func(*score.Epoch) score.Tables, error) {
	c := plugin.DefaultConfiguration()
	if s.Config != nil {
		if err := json.Unmarshal(s.Config, &c); err != nil {
			return nil, err
		}
	}
	normal := paths{}
	return func(e *score.Epoch) score.Tables {
		t := score.Tables{}
		row := e.Published.Row(summary, network, "")
		if e.Truth != nil && len(e.Truth.Devices) > 0 {
			normal.learn(e.Truth)
		}
		if e.Before == nil || row == nil || row.Value("received") == 0 {
			return t // the first intervals are not sent
		}
		x := &exact{c: &c, t: t, now: e.Before, normal: normal}
		x.compute()
		x.unlocated(e.Published[faults][network])
		for key, row := range e.Published[alerts][network] {
			kind, _, _ := strings.Cut(key, "/")
			if list := t[alerts+" "+kind]; list != nil && !row.Is("active") && list[network][key] == nil {
				list[network].Add(key, nil).Optional = true // it has ended
			}
		}
		return t
	}, nil
}
