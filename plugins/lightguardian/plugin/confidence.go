// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"slices"

	"github.com/netsketch/netsketch/plugins/lightguardian/analysis"
)

// weigh sets the probability that each fault is wrong. Loops and changed paths are searched for at
// so many switches that other flows look like one somewhere: their doubts are corrected for the
// number of switches that were compared. Losses of a flow that left its path for certain only if
// another one did not add the packets are as doubtful as the change of the path.
func (i *interval) weigh(flows []*flowState) {
	var loops, turns []*fault
	looped, turned := 0, 0 // switches that were compared
	for _, f := range flows {
		turned += f.compared
		if f.size() >= uint64(i.config.Rules.Packets) &&
			(!f.counted() || f.lost() >= uint64(max(i.config.Rules.DropPackets, 1))) {
			looped += len(f.hops)
		}
		for j := range f.faults {
			switch x := &f.faults[j]; {
			case x.kind == analysis.Loop.String():
				loops = append(loops, x)
			case x.turned:
				turns = append(turns, x)
			default:
				x.wrong = max(x.wrong, x.doubt)
			}
		}
	}
	correct(loops, looped)
	correct(turns, turned)
	for _, f := range flows {
		most := 0.0
		for _, x := range f.faults {
			if x.turned {
				most = max(most, x.wrong)
			}
		}
		for j := range f.faults {
			x := &f.faults[j]
			x.wrong = min(max(x.wrong, most), 1)
		}
	}
}

// correct raises the probability that each of the faults that were found in a number of comparisons
// is wrong to the number of faults that other flows are expected to cause with as little doubt, for
// each fault that was found (Benjamini and Hochberg, 1995).
func correct(found []*fault, comparisons int) {
	slices.SortFunc(found, func(a, b *fault) int { return cmp.Compare(a.doubt, b.doubt) })
	least := 1.0
	for j, x := range slices.Backward(found) {
		least = min(least, x.doubt*float64(comparisons)/float64(j+1))
		x.wrong = max(x.wrong, least)
	}
}
