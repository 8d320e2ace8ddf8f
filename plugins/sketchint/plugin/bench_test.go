// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/netsketch/netsketch/hostagent/sketchint/wire"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/sdktest"
)

// BenchmarkAnalyze is an interval of 4 hosts with 9,000 flows each over paths of 3 switches, in
// towers of the default sizes.
func BenchmarkAnalyze(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 2))
	p := New()
	h := sdktest.Start(b, p, sdktest.Options{Network: simNetwork()})
	var flows []simFlow
	for i := range 36_000 {
		flows = append(flows, simFlow{to: i % 4, port: i / 4, path: []uint32{leaf1, spine1, leaf2},
			packets: uint32(min(1/(random.Float64()+1e-4), 5000)) + 1, latencies: []uint32{1000, 2000, 3000},
			slow: uint32(i % 7 / 6)})
	}
	var epochs []*sdk.Epoch
	for i := range uint64(2) {
		epochs = append(epochs, simEpoch(b, h, i, flows[:len(flows)-int(i)*1000]))
	}
	if p.setup.settings.Plan.Hosts[0].Role != wire.Role {
		b.Fatal("no settings")
	}
	b.ResetTimer()
	for b.Loop() {
		for _, e := range epochs {
			if _, err := p.Analyze(context.Background(), e); err != nil {
				b.Fatal(err)
			}
		}
		p.previous = nil
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(2*4*b.N), "µs/host-interval")
}
