// SPDX-License-Identifier: Apache-2.0

// Package univmon declares how the results of the plugin univmon are scored: summaries, heavy
// hitters, changes and victims of attacks, by switch and flow key.
package univmon

import (
	"slices"

	"github.com/netsketch/netsketch/hostagent/univmon/wire"
	"github.com/netsketch/netsketch/internal/program"
	"github.com/netsketch/netsketch/lab/scenario/score"
	"github.com/netsketch/netsketch/lab/truth"
	"github.com/netsketch/netsketch/plugins/univmon/plugin"
	"github.com/netsketch/netsketch/settings"
	"github.com/netsketch/netsketch/sketch/flow"
)

// Measures that a scenario can bound. Dimensions are flow keys. F1 scores pool true and false
// positives over all epochs and switches; errors are means of relative errors.
const (
	HeavyHitterF1     = "heavy-hitter-f1"     // flows above the configured threshold
	HeavyHitterError  = "heavy-hitter-error"  // packets of heavy hitters
	ChangeF1          = "heavy-change-f1"     // flows that changed by more than the configured threshold
	EntropyError      = "entropy-error"       // entropy of the flow sizes
	DistinctError     = "distinct-error"      // number of flows
	SecondMomentError = "second-moment-error" // sum of the squares of the flow sizes
	PacketsError      = "packets-error"       // packets of a switch
	VictimF1          = "ddos-f1"             // destinations of at least the configured number of sources
	LostViews         = "lost"                // share of switches and epochs without a result
)

// topFlows is the number of flows in the report, by view.
const topFlows = 10

// Algorithm declares how UnivMon is scored.
func Algorithm() score.Algorithm {
	return score.Algorithm{
		Plugin: "univmon", Root: "univmon",
		ViewKeys: []string{"node", "dimension"}, Summary: "node-summary",
		Lost: LostViews, Settles: 4, // manifests take two epochs
		GroundTruth: groundTruth, Rule: rule,
		Measures: []score.Measure{
			{Name: HeavyHitterF1, List: "heavy-hitter", Stat: score.F1},
			{Name: HeavyHitterError, List: "heavy-hitter", Stat: score.RelativeError, Leaves: []string{"packets"}},
			{Name: ChangeF1, List: "heavy-change", Stat: score.F1},
			{Name: VictimF1, List: "ddos-victim", Stat: score.F1,
				Dimension: func(*score.Epoch, score.View) (string, bool) { return "dst", true }},
			{Name: EntropyError, List: "node-summary", Stat: score.RelativeError, Leaves: []string{"entropy"}},
			{Name: DistinctError, List: "node-summary", Stat: score.RelativeError, Leaves: []string{"distinct-flows"}},
			{Name: SecondMomentError, List: "node-summary", Stat: score.RelativeError, Leaves: []string{"second-moment"}},
			{Name: PacketsError, List: "node-summary", Stat: score.RelativeError, Leaves: []string{"packets"}},
		},
		Report: []string{"summary", "node-summary", "ddos-victim", "alert"},
		Top: []score.Top{
			{Title: "top flows of %s, packets", List: "heavy-hitter", Leaf: "packets", Rows: topFlows, Shown: 5},
			{Title: "largest changes since the epoch before, packets", List: "heavy-change", Leaf: "delta",
				Rows: topFlows, Shown: 3},
			{Title: "destinations under attack, sources", List: "ddos-victim", Leaf: "distinct-sources", Rows: topFlows,
				Shown: 3},
		},
		Screen: score.Screen{
			Columns: []score.Column{
				{Head: "switch", Width: -10, Cell: func(_ *score.Result, v score.View) string { return v.Device }},
				{Head: "by", Width: -8, Cell: func(_ *score.Result, v score.View) string { return v.Dimension }},
				{Head: "packets", Width: 9, Cell: score.Measured("node-summary", "packets")},
				{Head: "flows (true)", Width: 16, Cell: score.WithTrue("node-summary", "distinct-flows", 0)},
				{Head: "entropy (true)", Width: 20, Cell: score.WithTrue("node-summary", "entropy", 3)},
				{Head: "heavy found", Width: 17, Cell: score.Found(HeavyHitterF1)},
				{Head: "F1", Width: 8, Cell: score.ScoreOf(HeavyHitterF1)},
				{Head: "chg. F1", Width: 8, Cell: score.ScoreOf(ChangeF1)},
			},
			Rows: 12,
			Commands: []string{
				"gnmic -a %s --insecure -e proto --format flat subscribe --path /univmon/heavy-hitters --stream-mode on-change",
				program.Name() + " query /univmon/node-summaries --address %s",
			},
		},
	}
}

// configuration returns the plugin's configuration.
func configuration(s *score.Setting) (c plugin.Configuration, err error) {
	err = settings.DecodeJSON(s.Config, &c)
	return c, err
}

// rule returns which flow a packet in a tunnel has, and which packets hosts count. Headers are
// followed as far as switches follow them.
func rule(s *score.Setting) (truth.Rule, error) {
	c, err := configuration(s)
	hosts := c.Hosts.Packets != plugin.HostsNone
	switch {
	case c.Encapsulation == wire.EncapsulationInner || hosts && c.Hosts.Encapsulation == wire.EncapsulationInner:
		return truth.ParseInner, err
	case hosts:
		return truth.ParseEncapsulated, err
	}
	return nil, err
}

// groundTruth reads from the plugin's configuration which flows count as heavy.
func groundTruth(s *score.Setting) (func(*score.Epoch) score.Tables, error) {
	c, err := configuration(s)
	if err != nil {
		return nil, err
	}
	iceberg := c.HeavyHitters
	if c.Icebergs != nil {
		iceberg = plugin.Threshold(*c.Icebergs)
	}
	return func(e *score.Epoch) score.Tables {
		t := score.Tables{}
		for _, view := range e.Published.Views("node-summary") {
			fields, err := flow.ParseFields(view.Dimension)
			now := counts(e.Truth, view.Device)
			if err != nil || now == nil {
				continue // a view without ground truth counts as missing
			}
			now = now.Project(fields)
			heavy := c.HeavyHitters
			if view.Device == score.Network {
				heavy = iceberg
			}
			summary(t, view, now)
			hitters(t, view, now, heavy.Least(float64(now.Packets()), e.Epoch))
			if before := counts(e.Before, view.Device); before != nil {
				heavy = plugin.Threshold{Share: c.HeavyChanges.Share, Packets: c.HeavyChanges.Packets}
				changes(t, view, before.Project(fields), now, heavy)
			}
		}
		if now := counts(e.Truth, score.Network); now != nil {
			victims(t, e.Published, now, c.DDoSVictims.Sources)
		}
		return t
	}, nil
}

// counts returns the packets at a device, nil if they are not known exactly. Without switches that
// measure, hosts count arriving packets.
func counts(t *score.Truth, device string) truth.Counts {
	switch {
	case t == nil:
	case device == score.Network && len(t.Devices) == 0 && t.Stays != nil:
		return t.Stays.Packets
	case device == score.Network && t.Complete:
		return t.Network
	case t.Devices[device] != nil:
		return t.Devices[device].All
	}
	return nil
}

func summary(t score.Tables, view score.View, now truth.Counts) {
	t.Rows("node-summary", view).Add("", score.Leaves{
		"packets": score.Number(now.Packets()), "entropy": score.Number(now.Entropy()),
		"distinct-flows": score.Number(len(now)), "second-moment": score.Number(now.SecondMoment()),
	})
}

func hitters(t score.Tables, view score.View, now truth.Counts, limit float64) {
	rows := t.Rows("heavy-hitter", view)
	for _, f := range slices.Concat(now.Top(topFlows), now.AtLeast(limit)) {
		row := rows.Add(f.Key.String(), score.Leaves{"packets": score.Number(f.Packets)})
		row.Unwanted = float64(f.Packets) < limit
	}
}

func changes(t score.Tables, view score.View, before, now truth.Counts, heavy plugin.Threshold) {
	all, sum := truth.Changes(before, now), 0.0
	for _, f := range all {
		sum += float64(f.Packets)
	}
	rows, limit := t.Rows("heavy-change", view), heavy.Least(sum, 0)
	for _, f := range all {
		if n := float64(f.Packets); n >= limit/score.Margin {
			row := rows.Add(f.Key.String(), score.Leaves{"delta": score.Number(float64(now[f.Key]) - float64(before[f.Key]))})
			row.Unwanted, row.Near = n < limit, score.Near(n, limit)
		}
	}
}

// victims adds a row for each destination whose number of sources in the whole network reaches
// least, and an unwanted row for each other destination that the plugin published as a victim.
func victims(t, published score.Tables, now truth.Counts, least float64) {
	view := score.View{Device: score.Network}
	sources := map[flow.Key]map[flow.Key]bool{}
	for k := range now {
		destination := k.Project(flow.Dst)
		if sources[destination] == nil {
			sources[destination] = map[flow.Key]bool{}
		}
		sources[destination][k.Project(flow.Src)] = true
	}
	rows := t.Rows("ddos-victim", view)
	for destination, s := range sources {
		key, attacked := destination.String(), float64(len(s)) >= least
		if attacked || published["ddos-victim"][view][key] != nil {
			row := rows.Add(key, score.Leaves{"distinct-sources": score.Number(len(s))})
			row.Unwanted, row.Near = !attacked, score.Near(float64(len(s)), least)
		}
	}
}
