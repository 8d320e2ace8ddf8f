// SPDX-License-Identifier: Apache-2.0

// Package chamelemon declares how the results of the plugin chamelemon are scored: flows that lost
// packets, the tasks about what entered, and how attention follows the network.
package chamelemon

import (
	"strings"

	"github.com/openconfig/gnmi/proto/gnmi"

	"github.com/netsketch/netsketch/lab/scenario/score"
)

// Measures that a scenario can bound. Those about lost packets have as dimension the state in which
// the epoch was measured: healthy or ill; undecoded if not everything was decoded; unsettled if the
// switches did not measure alike.
const (
	VictimF1          = "victim-f1"           // flows that lost packets
	VictimPrecision   = "victim-precision"    //
	VictimRecall      = "victim-recall"       //
	VictimsExact      = "victims-exact"       // share of the true victims with the exact number of lost packets
	VictimsCountError = "victims-count-error" // error of the number of victims, which is estimated in state ill
	LostPacketsError  = "lost-packets-error"  // error of the sum of all lost packets
	HeavyVictimF1     = "heavy-victim-f1"     // flows that lost at least Tl packets
	// share of the victims found with the switches where they entered and left
	VictimEnds    = "victim-ends"
	VictimSizeARE = "victim-size-are" // error of the sizes of victims

	// Measures of the entering traffic have the dimension edge or network. Errors are means of
	// relative errors.
	FlowSizeARE      = "flow-size-are" // error of the sizes of the flows that the scenario watches
	HeavyHitterF1    = "heavy-hitter-f1"
	HeavyChangeF1    = "heavy-change-f1"
	EntropyError     = "entropy-error"
	DistinctError    = "distinct-error"
	PacketsError     = "packets-error"
	DistributionWMRE = "distribution-wmre"

	// Measures of the run have no dimension.
	FalseClaims   = "false-claims"   // values published as exact that are not, mean over the epochs
	Decoded       = "decoded"        // share of epochs in which everything was decoded
	LostResults   = "lost"           // share of edge switches and epochs without a complete result
	BalanceEpochs = "balance-epochs" // largest number of epochs from a change of the network to balance
)

// topVictims is the number of victims in the report.
const topVictims = 5

// Algorithm declares how ChameleMon is scored.
func Algorithm() score.Algorithm {
	lost := func(name, list string, stat score.Stat, leaves ...string) score.Measure {
		return score.Measure{Name: name, List: list, Stat: stat, Leaves: leaves, Dimension: stateOf}
	}
	entered := func(name, list string, stat score.Stat, required string, leaves ...string) score.Measure {
		return score.Measure{Name: name, List: list, Stat: stat, Leaves: leaves, Dimension: viewWith(required)}
	}
	heavy := lost(HeavyVictimF1, "victim", score.F1)
	heavy.Truth, heavy.Where = "heavy-victim", map[string]string{"kind": "HEAVY"}
	return score.Algorithm{
		Plugin: "chamelemon", Root: "chamelemon",
		ViewKeys: []string{"node"},
		Summary:  "node-summary", Status: "status", Lost: LostResults, FalseClaims: FalseClaims, Claims: claims(),
		GroundTruth: groundTruth,
		Views: func(s *score.Setting) []score.View {
			views := []score.View{network}
			for _, name := range s.Edges {
				views = append(views, score.View{Device: name})
			}
			return views
		},
		Measures: []score.Measure{
			lost(VictimF1, "victim", score.F1), lost(VictimPrecision, "victim", score.Precision),
			lost(VictimRecall, "victim", score.Recall),
			lost(VictimsExact, "victim", score.Correct, "lost-packets"),
			lost(VictimEnds, "victim", score.FoundCorrect, "entry-node", "exit-node"),
			lost(VictimSizeARE, "victim", score.FoundError, "packets"),
			lost(LostPacketsError, "victim", score.SumError, "lost-packets"),
			lost(VictimsCountError, "attention", score.RelativeError, "victims"), heavy,
			entered(PacketsError, "node-summary", score.RelativeError, "packets", "packets"),
			entered(DistinctError, "node-summary", score.RelativeError, "packets", "distinct-flows"),
			entered(EntropyError, "node-summary", score.RelativeError, "packets", "entropy"),
			entered(HeavyHitterF1, "heavy-hitter", score.F1, "heavy-hitters"),
			entered(HeavyChangeF1, "heavy-change", score.F1, "changes"),
			entered(DistributionWMRE, "range", score.WMRE, "packets", "flows"),
			entered(FlowSizeARE, "flow", score.FoundError, "packets", "packets"),
			{Name: Decoded, List: "attention", Stat: score.Share, Leaves: []string{"status"},
				Dimension: func(*score.Epoch, score.View) (string, bool) { return "", true }},
		},
		RunMeasures: map[string]func(*score.History) (score.Total, bool){BalanceEpochs: balance},
		Report:      []string{"summary", "attention", "node-summary", "threshold", "encoder", "alert"},
		Top: []score.Top{{Title: "flows that lost most, packets lost", List: "victim", Leaf: "lost-packets",
			Rows: topVictims, Shown: topVictims}},
		Screen: screen(),
		Watch:  watch,
	}
}

// stateOf returns the dimension of measures about lost packets.
func stateOf(e *score.Epoch, _ score.View) (string, bool) {
	a := e.Published.Row("attention", network, "")
	switch {
	case a == nil:
		return "", false
	case !a.Is("configuration-known"):
		return "unsettled", true
	case a.Text("status") != "COMPLETE":
		return "undecoded", true
	}
	return strings.ToLower(a.Text("network-state")), true
}

// viewWith returns the dimension of measures about entering traffic; views whose summary lacks the
// leaf do not count.
func viewWith(leaf string) func(*score.Epoch, score.View) (string, bool) {
	return func(e *score.Epoch, v score.View) (string, bool) {
		dimension := "edge"
		if v.Device == score.Network {
			dimension = score.Network
		}
		_, ok := e.Published.Row("node-summary", v, "").Number(leaf)
		return dimension, ok
	}
}

// watch picks flows evenly from all edge switches, each with its paths there and in the network.
func watch(e *score.Epoch) (rows []*gnmi.Path) {
	counts := entered(e.Truth, e.Edges)
	if counts[score.Network] == nil {
		return nil
	}
	for _, name := range e.Edges {
		for _, key := range keysOf(counts[name], (e.Watch+len(e.Edges)-1)/len(e.Edges)) {
			for _, device := range []string{name, score.Network} {
				rows = append(rows, &gnmi.Path{Elem: []*gnmi.PathElem{
					{Name: "chamelemon"}, {Name: "flows"},
					{Name: "flow", Key: map[string]string{"node": device, "flow": key}},
				}})
			}
		}
	}
	return rows
}
