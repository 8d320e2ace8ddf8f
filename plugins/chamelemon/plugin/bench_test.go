// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"slices"
	"testing"
	"time"

	lab "github.com/netsketch/netsketch/internal/test/chamelemon"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// BenchmarkResponse measures the time from when all sketches are there to the new configuration
// (response) and to the results (epoch), for four edge switches of the paper's sizes. Run it with
// -cpu 1.
func BenchmarkResponse(b *testing.B) {
	for _, bc := range []struct {
		name    string
		flows   int
		victims float64
	}{{"10000-10%", 10_000, 0.1}, {"40000-10%", 40_000, 0.1}, {"70000-10%", 70_000, 0.1}, {"100000-10%", 100_000, 0.1},
		{"50000-25%", 50_000, 0.25}} {
		b.Run(bc.name, func(b *testing.B) {
			p := NewAt(lab.ProcessorTime) // other work on the machine does not count
			d, err := lab.Start(context.Background(), lab.Config{Seed: 31}, p, `{}`)
			if err != nil {
				b.Fatal(err)
			}
			flows := func() []lab.Flow {
				return d.Testbed.Flows(lab.Traffic{Sizes: pareto, Flows: bc.flows, Victims: bc.victims, Loss: 0.1})
			}
			for range 9 {
				if _, err := d.Play(context.Background(), flows()); err != nil {
					b.Fatal(err)
				}
			}
			e, err := d.Testbed.Record(flows())
			if err != nil {
				b.Fatal(err)
			}
			before := p.ledger
			decoded, response, total := "", time.Duration(0), time.Duration(0)
			b.ResetTimer()
			for range b.N {
				p.ledger = before
				p.ledger.Plans = slices.Clone(before.Plans)
				p.previous.number = e.Number - 1 // so that changes are computed, too
				r, err := p.Analyze(context.Background(), e)
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				state := row(b, r, attentionList)
				decoded = state["status"]
				response += time.Duration(float(state["response-time"]))
				total += time.Duration(float(state["analysis-time"]))
				b.StartTimer()
			}
			if decoded != "true" {
				b.Log("the epoch was not decoded")
			}
			b.ReportMetric(response.Seconds()*1e3/float64(b.N), "cpu-ms/response")
			b.ReportMetric(total.Seconds()*1e3/float64(b.N), "cpu-ms/epoch")
		})
	}
}

// BenchmarkSaveState measures saving the state after each epoch, for four edge switches of the
// paper's sizes.
func BenchmarkSaveState(b *testing.B) {
	f := newFabric(b, 32, `{}`)
	p := New()
	if _, err := p.Configure(context.Background(), sdk.Config{}, network()); err != nil {
		b.Fatal(err)
	}
	if _, err := p.Analyze(context.Background(), f.record(f.flows(24_000, 0.1, 0))); err != nil {
		b.Fatal(err)
	}
	size, begin := 0, lab.ProcessorTime()
	b.ResetTimer()
	for range b.N {
		s, err := p.SaveState()
		if err != nil {
			b.Fatal(err)
		}
		size = len(s.Data)
	}
	b.ReportMetric(lab.ProcessorTime().Sub(begin).Seconds()*1e3/float64(b.N), "cpu-ms/op")
	b.ReportMetric(float64(size), "bytes")
}
