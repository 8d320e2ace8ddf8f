// SPDX-License-Identifier: Apache-2.0

// Package omnimon declares how the results of the plugin omnimon are scored: the packets of every
// published flow, and every lost packet by its flow and the switch or link that lost it.
package omnimon

import (
	"github.com/netsketch/netsketch/lab/scenario/score"
	"github.com/netsketch/netsketch/sketch/flow"
)

// Measures that a scenario can bound.
const (
	FlowsExact  = "flows-exact"  // share of the published flows with exact sent and lost packets
	LossF1      = "loss-f1"      // flows and elements that lost packets
	LossesExact = "losses-exact" // share of these with the exact number of lost packets
	LinksExact  = "links-exact"  // share of the links with exact sent packets and exact losses
	LostPackets = "lost-packets-error"
	FalseClaims = "false-claims" // values published as exact that are not, mean over the epochs
	LostResults = "lost"         // share of epochs without a complete result
)

// Lists of the plugin.
const (
	summary = "summary"
	flows   = "flow"
	losses  = "loss"
	links   = "link"
)

// rows is the number of rows in the report and on the screen.
const rows = 8

// Algorithm declares how OmniMon is scored.
func Algorithm() score.Algorithm {
	of := func(name, list string, stat score.Stat, leaves ...string) score.Measure {
		return score.Measure{Name: name, List: list, Stat: stat, Leaves: leaves,
			Dimension: func(*score.Epoch, score.View) (string, bool) { return "", true }}
	}
	return score.Algorithm{
		Plugin: "omnimon", Root: "omnimon", Marker: []string{"summary", "state", "epoch"},
		Summary: summary, Status: "status", Lost: LostResults, FalseClaims: FalseClaims,
		Views:       func(*score.Setting) []score.View { return []score.View{{Device: score.Network}} },
		GroundTruth: groundTruth,
		Measures: []score.Measure{
			of(FlowsExact, flows, score.FoundCorrect, "packets", "lost-packets"),
			of(LossF1, losses, score.F1),
			of(LossesExact, losses, score.Correct, "lost-low", "lost-high"),
			of(LinksExact, links, score.Correct, "lost-low", "lost-high"),
			of(LostPackets, summary, score.RelativeError, "lost-packets"),
		},
		Claims: []score.Claim{
			{List: flows, If: "exact", Leaves: []string{"packets", "lost-packets"}},
			{List: losses, If: "determined", Leaves: []string{"lost-low", "lost-high"}},
			{List: links, If: "determined", Leaves: []string{"lost-low", "lost-high"}},
			{List: summary, If: "exact", Leaves: []string{"packets", "flows", "lost-packets", "lossy-flows"}},
		},
		Report: []string{summary},
		Top: []score.Top{{Title: "lost packets, by element and flow", List: losses, Leaf: "lost-low", Rows: rows,
			Shown: rows}},
		Screen: score.Screen{
			Columns: []score.Column{
				{Head: "packets", Width: 9, Cell: score.Measured(summary, "packets")},
				{Head: "flows", Width: 8, Cell: score.Measured(summary, "flows")},
				{Head: "lossy", Width: 6, Cell: score.Measured(summary, "lossy-flows")},
				{Head: "lost", Width: 6, Cell: score.Measured(summary, "lost-packets")},
			},
			Commands: []string{
				"gnmic -a %s --insecure get --path /omnimon/losses/loss",
				"gnmic -a %s --insecure subscribe --mode stream --path /omnimon/links/link",
			},
		},
	}
}

// groundTruth returns the function that computes the ground truth of an epoch.
func groundTruth(*score.Setting) (func(*score.Epoch) score.Tables, error) {
	return func(e *score.Epoch) score.Tables {
		t, network := score.Tables{}, score.View{Device: score.Network}
		j := e.Truth.Journal
		if j == nil {
			return t
		}
		lost, byFlow, byElement := uint64(0), map[flow.Key]uint64{}, map[string]uint64{}
		for l, n := range j.Lost {
			lost += n
			byFlow[l.Flow] += n
			byElement[l.Element] += n
			t.Rows(losses, network).Add(l.Element+"/"+l.Flow.String(),
				score.Leaves{"lost-low": score.Number(n), "lost-high": score.Number(n)})
		}
		t.Rows(losses, network) // without losses none may be published
		for k, n := range j.Sent {
			t.Rows(flows, network).Add(k.String(),
				score.Leaves{"packets": score.Number(n), "lost-packets": score.Number(byFlow[k])})
		}
		for name := range e.Published[links][network] {
			n := byElement[name]
			t.Rows(links, network).Add(name, score.Leaves{"lost-low": score.Number(n), "lost-high": score.Number(n)})
		}
		t.Rows(summary, network).Add("", score.Leaves{"packets": score.Number(j.Sent.Packets()),
			"flows": score.Number(len(j.Sent)), "lost-packets": score.Number(lost),
			"lossy-flows": score.Number(len(byFlow))})
		return t
	}, nil
}
