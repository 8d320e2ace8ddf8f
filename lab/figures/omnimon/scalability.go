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
	slot := float64(forms[1].total-forms[0].total) / memorySlots // bytes of a slot in all epochs
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
	return suite.New(suite.Suite{
		Name: "omnimon-13",
		Measure: func(ctx context.Context, _ *trace.Trace, _ suite.Options) ([]suite.Row, error) {
			return scalability(ctx)
		},
	})
}
