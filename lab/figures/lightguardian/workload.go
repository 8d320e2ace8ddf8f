// SPDX-License-Identifier: Apache-2.0

package lightguardian

import (
	"math/rand/v2"

	"github.com/netsketch/netsketch/lab/figures/trace"
	"github.com/netsketch/netsketch/sketch/family"
)

// The paper's trace has 6 million packets of 0.9 million flows. Traffic of Zipf 1.0 with these
// ranks has as many flows.
const (
	tracePackets = 6_000_000
	traceRanks   = 2_600_000
	top          = 500 // flows of Figures 11(a) and 12(a)
	kilobytes768 = 768 * 1000
)

// local is the family of the sketches of Figures 11 and 12, as in Figure 5.
type local = family.Fast

// workloadOf returns a trace of the paper's shape with a share of its packets.
func workloadOf(scale float64, seed uint64) (*trace.Trace, error) {
	return trace.Zipf("Zipf 1.0", 1, int(traceRanks*scale), int(tracePackets*scale), seed)
}

// tops are the numbers of the largest flows in Figures 11(a) and 12(c) to (e).
var tops = []int{500, 1000, 2000, 5000, 10_000, 20_000, 50_000}

// measured is the trace with its ground truth.
type measured struct {
	t     *trace.Trace
	seed  uint64
	scale float64
}

// rangesOf draws the delay range of each packet.
func (m *measured) rangesOf(l delayLaw) []uint8 {
	r := rand.New(rand.NewPCG(m.seed, 0x64656c6179))
	out := make([]uint8, m.t.Len())
	for i := range out {
		out[i] = l.draw(r)
	}
	return out
}
