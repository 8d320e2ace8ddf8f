// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"math/rand/v2"
	"testing"

	"github.com/netsketch/netsketch/hostagent/lightguardian/wire"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/sdktest"
	"github.com/netsketch/netsketch/sketch/flow"
)

// BenchmarkAnalyze is an epoch of 4 switches with 3 rows of 65,536 columns, all of which arrive at
// 4 hosts, and of 10,000 flows over 3 switches.
func BenchmarkAnalyze(b *testing.B) {
	const columns, flows = 1 << 16, 10_000
	p := New()
	n := simNetwork()
	for i := range n.Devices {
		n.Devices[i].Unread = nil
	}
	h := sdktest.Start(b, p, sdktest.Options{Network: n, Config: `{"sketch": {"columns": 65536}}`})
	settings := settingsOf(b, h)
	random := rand.New(rand.NewPCG(1, 2))
	var reports []*wire.Report
	for range 4 {
		reports = append(reports, &wire.Report{})
	}
	cells := make([]uint32, 21)
	for i, d := range settings.Devices {
		for c := range columns {
			for j := range cells {
				cells[j] = uint32(random.IntN(100)) * uint32(random.IntN(2))
			}
			r := reports[(i+c)%4]
			r.Sketchlets = wire.Append(r.Sketchlets, d.ID, uint16(c), 0, cells)
		}
	}
	var own []wire.Flow
	for i := range flows {
		k, err := flow.New(simAddress(0), simAddress(2), 6, uint16(i+1), 80)
		if err != nil {
			b.Fatal(err)
		}
		own = append(own, wire.Flow{Key: k, Sent: 100})
	}
	reports[0].Flows = own
	// The sketchlets are of interval 0: of epoch 256, and carried in the next one.
	epoch := func(n uint64, sketchlets bool) *sdk.Epoch {
		e := &sdk.Epoch{Number: n, Status: sdk.StatusComplete, BankShift: banks}
		for i, name := range []string{"h1", "h2", "h3", "h4"} {
			r := *reports[i]
			if r.Epoch = n; !sketchlets {
				r.Sketchlets = nil
			}
			setReport(e, name, &r)
		}
		return e
	}
	for b.Loop() {
		b.StopTimer()
		p.intervals = map[uint64]*interval{}
		before, now := epoch(banks, false), epoch(banks+1, true)
		if _, err := p.Analyze(b.Context(), before); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if _, err := p.Analyze(b.Context(), now); err != nil {
			b.Fatal(err)
		}
		if n := p.newest.received(); n != 1 {
			b.Fatalf("%v of the columns were received", n)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(4*b.N), "ms/switch-epoch")
}
