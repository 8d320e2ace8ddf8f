// SPDX-License-Identifier: Apache-2.0

package universal

// Change estimates changes between two epochs (paper, section 4.3).
type Change struct {
	before, after, difference *Estimate
	total, deviation          float64
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
	c := &Change{before: before, after: after, difference: r.Estimate()}
	c.total, c.deviation = c.difference.total()
	return c, nil
}

// Total returns the sum of the changes of all flows, in packets. It is unknown unless Known.
func (c *Change) Total() float64 { return c.total }

// Deviation returns the standard deviation of Total.
func (c *Change) Deviation() float64 { return c.deviation }

// Known returns false if more flows changed than the sketch can count.
func (c *Change) Known() bool { return c.deviation <= MostDeviation*c.total+fewFlows }

// Above returns the flows among both epochs' heavy keys that changed by at least the
// given number of packets, the largest change first.
func (c *Change) Above(packets float64) []FlowChange {
	flows := c.difference.Above(packets)
	out := make([]FlowChange, len(flows))
	for i, f := range flows {
		// Of the change and the two sizes, the change is the most accurate, then the larger size.
		// The smaller size is the difference of both.
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
