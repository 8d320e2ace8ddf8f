// SPDX-License-Identifier: Apache-2.0

package omnimon

import (
	"context"
	"fmt"

	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
)

// slotForEach is a switch with perfect hashing of flow keys.
const slotForEach = "a slot for each flow"

// scalability measures the memory for zero errors by flows. The slots of OmniMon are the least that
// have a mapping for each flow; a slot has the bytes of the compiled program.
func scalability(ctx context.Context) (rows []suite.Row, err error) {
	var forms [2]form
	for i := range forms {
		if forms[i], err = compile(ctx, "-DNS_OMNIMON_UNITS=0", "-DNS_OMNIMON_QUEUE_UNITS=0",
			fmt.Sprintf("-DNS_OMNIMON_SLOTS=%d", memorySlots*(i+1)), "-DNS_OMNIMON_SLOTS_PER_FLOW=2",
			"-DNS_OMNIMON_ARRAYS=1"); err != nil {
			return nil, err
		}
	}
	slot := float64(forms[1].total-forms[0].total) / memorySlots // of all epochs
	for flows := 1_000; flows <= 1_000_000; flows *= 10 {
		row := func(structure string, slots int) {
			rows = append(rows, suite.Row{Structure: structure, Variant: fmt.Sprintf("flows %d", flows), Task: "switch",
				Metric: "memory", Value: float64(slots) * slot, Unit: "bytes"})
		}
		row(slotForEach, flows)
		for _, d := range []int{2, 3} {
			row(fmt.Sprintf("OmniMon, d = %d", d), slotsFor(flows, d))
		}
	}
	return rows, nil
}

func scalabilityFigure() suite.Suite {
	get := func(v suite.Values, structure string, flows int) float64 {
		return v.Variant(structure, fmt.Sprintf("flows %d", flows), "switch", "memory")
	}
	growth := func(v suite.Values, structure string) float64 {
		return get(v, structure, 1_000_000) / get(v, structure, 1_000)
	}
	const two = "OmniMon, d = 2"
	return suite.Suite{
		Name:  "omnimon-13",
		Title: "Memory for zero errors by flows (OmniMon, Figure 13 (b), Exp#6)",
		Setup: "Slots of `p4/programs/omnimon.p4` as p4c compiles it for BMv2, of four epochs and seven statistics, " +
			"without units of queries. A flow has a mapping of its own to d of K slots; K is the least number with that many " +
			"mappings. The paper compares with SwitchPointer, whose perfect hash function gives each flow a slot, for flow " +
			"keys that are known before. Its slots are counted here with the same bytes, and without the memory of the hash " +
			"function, which is in its favor. Figure 13 (a) is about the resources of a Tofino and not measured.",
		Plots: []suite.Plot{{File: "omnimon-13", Title: "Memory of a switch (bytes)", Task: "switch", Metric: "memory",
			X: "flows", Log: true}},
		Claims: []suite.Claim{{
			Figure: "13(b)",
			Paper: "the memory of SwitchPointer grows linearly with the flow keys, that of OmniMon at a much slower " +
				"rate",
			Ours: func(v suite.Values) string {
				return fmt.Sprintf("from 10^3 to 10^6 flows %.4g and %.3g times; at 10^6 %.3g MB and %.3g KB",
					growth(v, slotForEach), growth(v, two), get(v, slotForEach, 1_000_000)/1e6, get(v, two, 1_000_000)/1e3)
			},
			Holds: func(v suite.Values) bool {
				return growth(v, slotForEach) == 1000 && growth(v, two) <= 100
			},
		}},
		Measure: func(ctx context.Context, _ *trace.Trace, _ suite.Options) ([]suite.Row, error) {
			return scalability(ctx)
		},
	}
}
