// SPDX-License-Identifier: Apache-2.0

package universal

import "math"

// Change estimates changes between two epochs (paper, section 4.3).
type Change struct {
	before, after, difference *Estimate
}

// FlowChange is a flow and its packets in two epochs.
type FlowChange struct {
	Flow          // Packets is the change, negative for a flow that shrank
	Before, After float64
}

// Compare estimates the change from one epoch to the next. It first subtracts the two sketches, so
// that unchanged flows are not noise. It fails if the layouts differ.
func Compare(before, after *Estimate) (*Change, error) {
	r := after.reading.Clone()
	if err := r.Subtract(before.reading); err != nil {
		return nil, err
	}
	// A flow is known if it was large in either epoch, even if it changed little.
	sizes := func(f *estimated) (float64, float64) {
		return math.Abs(before.sizeOf(f)), math.Abs(after.sizeOf(f))
	}
	return &Change{before: before, after: after, difference: r.estimate(sizes)}, nil
}

// Total returns the sum of the changes of all flows, in packets.
func (c *Change) Total() float64 { return c.difference.Sum(Packets) }

// Above returns the flows among both epochs' heavy keys that changed by at least the
// given number of packets, the largest change first.
func (c *Change) Above(packets float64) []FlowChange {
	flows := c.difference.Above(packets)
	out := make([]FlowChange, len(flows))
	for i, f := range flows {
		// The change is the most accurate of the three numbers, followed by the larger size.
		before, after := max(c.before.Size(f.Key), 0), max(c.after.Size(f.Key), 0)
		if f.Packets > 0 {
			before = max(after-f.Packets, 0)
		} else {
			after = max(before+f.Packets, 0)
		}
		out[i] = FlowChange{Flow: f, Before: before, After: after}
	}
	return out
}
