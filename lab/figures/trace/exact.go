// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bytes"
	"math"

	"github.com/netsketch/netsketch/sketch/estimate"
)

// Exact are the true answers about a trace.
type Exact struct {
	Distribution estimate.Distribution
	Entropy      float64
	Moment2      float64 // the sum of the squares of the flows' packets
	// Before and After are the two halves of the trace. Flows of generated traffic do not change, so
	// every tenth of its flows gets another key in After.
	Before, After *Trace
	packets       map[string][2]float64 // packets of a flow in the two halves
}

// Exact returns the true answers. They are computed once.
func (t *Trace) Exact() *Exact {
	t.once.Do(func() {
		e := &t.exact
		sizes := make([]uint32, len(t.flows))
		for i, f := range t.flows {
			sizes[i] = f.Packets
			e.Moment2 += float64(f.Packets) * float64(f.Packets)
		}
		e.Distribution = estimate.Sizes(sizes)
		e.Entropy = e.Distribution.Entropy()
		e.Before, e.After = t.Window(0, t.Len()/2), t.Window(t.Len()/2, t.Len())
		if t.generated {
			e.After.keys = bytes.Clone(e.After.keys)
			for i := range e.After.Len() {
				rename(e.After.Key(i))
			}
			e.After.count()
		}
		e.packets = make(map[string][2]float64)
		for half, flows := range [][]Flow{e.Before.flows, e.After.flows} {
			for _, f := range flows {
				n := e.packets[f.Key]
				n[half] = float64(f.Packets)
				e.packets[f.Key] = n
			}
		}
	})
	return &t.exact
}

// rename gives every tenth flow another key.
func rename(key []byte) {
	if (uint32(key[0])+uint32(key[3])*3+uint32(key[min(7, len(key)-2)])*7)%10 == 0 {
		key[min(8, len(key)-1)] ^= 0x55
	}
}

// Changed returns the flows that differ by at least limit between the halves, and by how much.
func (e *Exact) Changed(limit float64) map[string]float64 {
	changes := make(map[string]float64)
	for key, n := range e.packets {
		if d := math.Abs(n[1] - n[0]); d >= limit {
			changes[key] = d
		}
	}
	return changes
}

// Change is the sum of the changes of all flows.
func (e *Exact) Change() (total float64) {
	for _, n := range e.packets {
		total += math.Abs(n[1] - n[0])
	}
	return total
}
