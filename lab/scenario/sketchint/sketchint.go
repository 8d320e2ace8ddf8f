// SPDX-License-Identifier: Apache-2.0

// Package sketchint declares how the results of the plugin sketchint are scored: the latency of
// flows at switches, inflated latencies, heavy hitters and heavy changes of each switch, paths and
// their changes. The ground truth is how long each packet that a host received was in the pipeline
// and the queues of each switch, which the lab knows from its own events.
package sketchint

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/openconfig/gnmi/proto/gnmi"

	"github.com/netsketch/netsketch/lab/scenario/score"
	"github.com/netsketch/netsketch/lab/truth"
	"github.com/netsketch/netsketch/plugins/sketchint/plugin"
	"github.com/netsketch/netsketch/settings"
	"github.com/netsketch/netsketch/sketch/flow"
)

// Measures that a scenario can bound.
const (
	LatencyARE     = "latency-are"          // mean latencies of published flows at switches
	InflatedF1     = "inflated-f1"          // flows at switches with inflated latencies
	HeavyHitterF1  = "heavy-hitter-f1"      // heavy hitters of each switch, each host and the network
	HeavyChangeF1  = "heavy-change-f1"      // heavy changes of each switch, each host and the network
	FlowSizeARE    = "flow-size-are"        // packets of published flows
	PathsExact     = "paths-exact"          // share of the published flows with the exact path
	PathChangeF1   = "path-change-f1"       // heavy flows with another path
	SwitchPackets  = "switch-packets-error" // packets of switches
	SwitchLatency  = "switch-latency-error" // mean latencies of switches
	AlertF1        = "latency-alert-f1"     // switches with inflated latencies
	BytesShare     = "collection-bytes-share"
	PacketsShare   = "collection-packets-share"
	LostResults    = "lost" // share of epochs without a complete result
	latencyAlert   = "LATENCY_INFLATED"
	mostFlowAlerts = 10 // flows with inflated latencies at a switch from which an alert must be active
)

// Lists of the plugin.
const (
	summary     = "summary"
	flows       = "flow"
	hops        = "hop"
	inflations  = "inflation"
	hitters     = "heavy-hitter"
	changes     = "heavy-change"
	pathChanges = "path-change"
	switches    = "switch"
	alerts      = "alert"
	cost        = "cost"
)

// rows is the number of rows in the report and on the screen.
const rows = 8

var network = score.View{Device: score.Network}

// Algorithm declares how SketchINT is scored.
func Algorithm() score.Algorithm {
	of := func(name, list string, stat score.Stat, leaves ...string) score.Measure {
		return score.Measure{Name: name, List: list, Stat: stat, Leaves: leaves,
			Dimension: func(*score.Epoch, score.View) (string, bool) { return "", true }}
	}
	return score.Algorithm{
		Plugin: "sketchint", Root: "sketchint",
		Summary: summary, Status: "status", Lost: LostResults,
		Views:       func(*score.Setting) []score.View { return []score.View{network} },
		GroundTruth: groundTruth,
		Measures: []score.Measure{
			of(LatencyARE, hops, score.FoundError, "latency-avg"),
			of(InflatedF1, inflations, score.F1),
			of(HeavyHitterF1, hitters, score.F1),
			of(HeavyChangeF1, changes, score.F1),
			of(FlowSizeARE, flows, score.FoundError, "packets"),
			of(PathsExact, flows, score.FoundCorrect, "path"),
			of(PathChangeF1, pathChanges, score.F1),
			of(SwitchPackets, switches, score.RelativeError, "packets"),
			of(SwitchLatency, switches, score.RelativeError, "latency-avg"),
			of(AlertF1, alerts, score.F1),
			of(BytesShare, cost, published, "bytes-ratio"),
			of(PacketsShare, cost, published, "packets-ratio"),
		},
		Report: []string{summary, cost, switches, alerts},
		Top: []score.Top{
			{Title: "mean latency of switches, ns", List: switches, Leaf: "latency-avg", Rows: rows, Shown: rows},
			{Title: "inflated latencies by flow and switch: the worst, ns", List: inflations, Leaf: "latency-max", Rows: rows,
				Shown: rows},
		},
		Screen: score.Screen{
			Columns: []score.Column{
				{Head: "packets", Width: 9, Cell: score.Measured(summary, "packets")},
				{Head: "heavy", Width: 6, Cell: score.Measured(summary, "heavy-flows")},
				{Head: "latency ARE", Width: 12, Cell: score.ScoreOf(LatencyARE)},
				{Head: "inflated F1", Width: 12, Cell: score.ScoreOf(InflatedF1)},
				{Head: "heavy F1", Width: 9, Cell: score.ScoreOf(HeavyHitterF1)},
				{Head: "alerts", Width: 7, Cell: score.Measured(summary, "active-alerts")},
			},
			Commands: []string{
				"gnmic -a %s --insecure -e proto --format flat get --path /sketchint/alerts/alert",
				"gnmic -a %s --insecure -e proto --format flat get --path /sketchint/path-changes/path-change",
				"gnmic -a %s --insecure -e proto --format flat subscribe --mode stream --path /sketchint/switches/switch",
			},
		},
		Watch: watch,
	}
}

// published returns a published value unchanged.
func published(m *score.Measure, rows, _ score.Rows) (score.Score, bool) {
	v, ok := rows[""].Number(m.Leaves[0])
	return score.Score{Value: v}, ok
}

// watch requests flows of the first epoch, of all sizes, at all switches.
func watch(e *score.Epoch) (rows []*gnmi.Path) {
	if e.Truth.Stays == nil {
		return nil
	}
	keys := slices.SortedFunc(maps.Keys(e.Truth.Stays.Packets), flow.Key.Compare)
	n := min(len(keys), e.Watch)
	for i := range n {
		rows = append(rows, &gnmi.Path{Elem: []*gnmi.PathElem{{Name: "sketchint"}, {Name: "hops"},
			{Name: "hop", Key: map[string]string{"flow": keys[i*len(keys)/n].String()}}}})
	}
	return rows
}

// groundTruth returns the function that computes the ground truth of an epoch.
func groundTruth(s *score.Setting) (func(*score.Epoch) score.Tables, error) {
	var c plugin.Configuration
	if err := settings.DecodeJSON(s.Config, &c); err != nil {
		return nil, err
	}
	if c.Interval > s.Epoch {
		return nil, fmt.Errorf("interval: %s is longer than the scenario's epoch, %v; expected the same, because each "+
			"epoch is scored", c.Interval, s.Epoch)
	}
	normal := map[truth.FlowAt]float64{}
	return func(e *score.Epoch) score.Tables {
		t := score.Tables{}
		if e.Truth.Stays == nil {
			return t
		}
		x := &exact{c: &c, t: t, now: e.Truth.Stays, normal: normal}
		if e.Before != nil {
			x.before = e.Before.Stays
		}
		x.flows()
		x.places()
		x.elements()
		x.alerts(e.Published[alerts][network])
		t.Rows(cost, network).Add("", nil)
		normal = x.lasting
		return t
	}, nil
}

// exact computes the ground truth of one epoch.
type exact struct {
	c           *plugin.Configuration
	t           score.Tables
	now, before *truth.StaysEpoch
	inflated    map[string]int // flows, by switch
	// normal holds the mean latency before the inflation of each flow whose latency was inflated in
	// the previous interval; 0 if that mean is not known. lasting holds the same mean for the flows
	// whose latency is inflated in this interval.
	normal, lasting map[truth.FlowAt]float64
}

// flows adds the flows, their paths and changes of paths.
func (x *exact) flows() {
	packets := uint64(0)
	all, changed := x.t.Rows(flows, network), x.t.Rows(pathChanges, network)
	least := uint64(min(x.c.Heavy, x.c.Change)) // least packets of the flows whose paths are measured
	for k, n := range x.now.Packets {
		packets += n
		p := x.now.Paths[k]
		all.Add(k.String(), score.Leaves{"packets": score.Number(n), "path": score.Text(strings.Join(p.Switches, " "))})
		var was truth.Path
		sizeBefore := uint64(0)
		if x.before != nil {
			was, sizeBefore = x.before.Paths[k], x.before.Packets[k]
		}
		other := was.Switches != nil && !slices.Equal(was.Switches, p.Switches)
		if other || p.Previous != nil {
			row := changed.Add(k.String(), nil)
			row.Optional = !other || n < least || sizeBefore < least
		}
	}
	x.t.Rows(summary, network).Add("", score.Leaves{"packets": score.Number(packets),
		"flows": score.Number(len(x.now.Packets))})
}

// places adds the latencies of flows at switches, and the latencies of switches.
func (x *exact) places() {
	x.inflated, x.lasting = map[string]int{}, map[truth.FlowAt]float64{}
	all, beyond := x.t.Rows(hops, network), x.t.Rows(inflations, network)
	sums := map[string]truth.Delays{}
	for at, d := range x.now.Delays {
		key := at.Flow.String() + "/" + at.Switch
		all.Add(key, score.Leaves{"latency-avg": score.Number(d.Mean())})
		sum := sums[at.Switch]
		sums[at.Switch] = truth.Delays{Packets: sum.Packets + d.Packets, Sum: sum.Sum + d.Sum}
		excess := x.excess(at, d)
		if excess > 1 {
			x.inflated[at.Switch]++
			if was, ok := x.normal[at]; ok {
				x.lasting[at] = was
			} else {
				x.lasting[at] = x.meanBefore(at)
			}
		}
		if excess > 1/score.Margin {
			row := beyond.Add(key, score.Leaves{"latency-max": score.Number(uint64(d.Worst))})
			row.Unwanted, row.Near = excess <= 1, score.Near(excess, 1)
		}
	}
	for name, d := range sums {
		x.t.Rows(switches, network).Add(name, score.Leaves{"packets": score.Number(d.Packets),
			"latency-avg": score.Number(d.Mean())})
	}
}

// excess returns the latency of a flow at a switch as a multiple of the threshold. The latency is
// inflated if the largest latency exceeds the configured multiple of the mean of the flow's other
// packets there, or of the mean of the interval before. In a queue that stays full all of these
// rise: an inflation lasts while the mean exceeds the multiple of the mean before the inflation.
func (x *exact) excess(at truth.FlowAt, d truth.Delays) (most float64) {
	others := truth.Delays{Packets: d.Packets - 1, Sum: d.Sum - d.Worst}
	if others.Packets > 0 {
		most = float64(d.Worst) / (x.c.Inflation * others.Mean())
	}
	if mean := x.meanBefore(at); mean > 0 {
		most = max(most, float64(d.Worst)/(x.c.Inflation*mean))
	}
	if mean := x.normal[at]; mean > 0 {
		most = max(most, d.Mean()/(x.c.Inflation*mean))
	}
	return most
}

// meanBefore returns the mean latency in the interval before, 0 if it is not known.
func (x *exact) meanBefore(at truth.FlowAt) float64 {
	if x.before == nil || x.before.Delays[at].Packets == 0 {
		return 0
	}
	return x.before.Delays[at].Mean()
}

// sizes returns the packets of flows by element: switches, the hosts whose agents measure them, and
// the network.
func (x *exact) sizes(e *truth.StaysEpoch) map[string]map[flow.Key]uint64 {
	out := map[string]map[flow.Key]uint64{}
	add := func(element string, k flow.Key, n uint64) {
		if out[element] == nil {
			out[element] = map[flow.Key]uint64{}
		}
		out[element][k] = n
	}
	for at, d := range e.Delays {
		add(at.Switch, at.Flow, d.Packets)
	}
	for k, n := range e.Packets {
		add(score.Network, k, n)
		if r := x.c.Reports; r != nil {
			add(r.Host, k, n)
		} else {
			add(e.Paths[k].Host, k, n)
		}
	}
	return out
}

// elements adds the heavy hitters and the heavy changes.
func (x *exact) elements() {
	now := x.sizes(x.now)
	heavy := x.t.Rows(hitters, network)
	for element, flows := range now {
		for k, n := range flows {
			if n >= uint64(x.c.Heavy) {
				heavy.Add(k.String()+"/"+element, score.Leaves{"packets": score.Number(n)})
			}
		}
	}
	if x.before == nil {
		return
	}
	before, changed := x.sizes(x.before), x.t.Rows(changes, network)
	for element := range before {
		if now[element] == nil {
			now[element] = map[flow.Key]uint64{}
		}
	}
	for element, flows := range now {
		for _, f := range truth.Changes(before[element], flows) {
			if f.Packets > uint64(x.c.Change) {
				changed.Add(f.Key.String()+"/"+element, nil)
			}
		}
	}
}

// alerts adds the alerts of inflated latencies. The switch with the most inflated flows must have
// an alert; other switches with such flows may have one.
func (x *exact) alerts(published score.Rows) {
	rows := x.t.Rows(alerts, network)
	most := 0
	for _, n := range x.inflated {
		most = max(most, n)
	}
	for name, n := range x.inflated {
		rows.Add(latencyAlert+"/"+name, nil).Optional = n < most || n < mostFlowAlerts
	}
	for key, row := range published {
		if kind, _, _ := strings.Cut(key, "/"); kind != latencyAlert || !row.Is("active") {
			rows.Add(key, nil).Optional = true // the alert is of another kind, or has ended
		}
	}
}
