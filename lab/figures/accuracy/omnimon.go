// SPDX-License-Identifier: Apache-2.0

package accuracy

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/internal/test/omnimon/simulation"
	"github.com/netsketch/netsketch/sketch/flow"
)

// omnimonAccuracy sends flows through the paper's testbed, with 1 % of the flows losing a tenth of
// their packets at one switch or link, and analyzes them as the plugin does. A value is wrong if it
// is published as exact and is not, and a loss if it is outside of its published bounds.
func omnimonAccuracy(_ context.Context, _ string, sizes []int, seed uint64) ([]published, error) {
	random := rand.New(rand.NewPCG(seed, 1))
	sim := simulation.New(simulation.Testbed(), simulation.Settings{Flows: len(sizes), Slots: 3072, Counters: true})
	lossy := make(map[flow.Key]*simulation.Flow)
	for i, n := range sizes {
		from := random.IntN(sim.Hosts)
		f := sim.Add(from, (from+1+random.IntN(sim.Hosts-1))%sim.Hosts,
			flow.Key{Proto: 6, SrcPort: uint16(i), DstPort: uint16(i >> 16)})
		f.Sent = wire.Values{wire.Packets: int64(n), wire.Bytes: int64(n) * (64 + random.Int64N(1400)), wire.Ack: int64(n)}
		f.Received = f.Sent
		if i%100 == 0 {
			lost := int64(n+9) / 10
			at := &f.Lost[random.IntN(len(f.Lost))]
			*at = wire.Values{wire.Packets: lost, wire.Bytes: lost * (f.Sent[wire.Bytes] / int64(n)), wire.Ack: lost}
			f.Received.Sub(at)
			lossy[f.Key] = f
		}
	}
	sim.Count()
	result, err := sim.Analyze()
	if err != nil {
		return nil, err
	}
	flows, wrong := 0, 0
	for _, f := range simulation.Complete(result) {
		flows++
		if want := sim.Route(&f.Key); want == nil || want.Lossy() || f.Sent != want.Sent || f.Path != want.Path {
			wrong++
		}
	}
	known, outside := 0, 0
	for _, f := range result.Lossy {
		want := lossy[f.Key]
		if want == nil || f.Lost[wire.Packets] != want.Sent[wire.Packets]-want.Received[wire.Packets] {
			outside++
			continue
		}
		exact := true
		for i := range f.Losses {
			b := f.Losses[i].Packets
			if lost := want.Lost[i][wire.Packets]; lost < b.Low || lost > b.High {
				outside++
			}
			exact = exact && b.Exact()
		}
		if exact {
			known++
		}
	}
	return []published{
		{"values of flows at each switch", float64(wrong + len(sizes) - len(lossy) - flows),
			fmt.Sprintf("%d of %d, %d wrong", flows, len(sizes)-len(lossy), wrong),
			fmt.Sprintf("%d reasons", len(simulation.Reasons(result))), wrong > 0},
		{"lossy flows", float64(len(lossy) - len(result.Lossy)), fmt.Sprintf("%d of %d", len(result.Lossy), len(lossy)), "",
			false},
		{"places of losses", float64(outside) + 1 - float64(known)/float64(max(len(lossy), 1)),
			fmt.Sprintf("exact for %d of %d flows, %d numbers outside of their bounds", known, len(lossy), outside), "",
			outside > 0},
	}, nil
}
