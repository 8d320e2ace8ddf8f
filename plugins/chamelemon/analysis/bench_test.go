// SPDX-License-Identifier: Apache-2.0

//go:build unix

package analysis

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// processorTime is a clock that runs while this process does.
func processorTime() time.Time {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Unix(0, u.Utime.Nano()+u.Stime.Nano())
}

// BenchmarkResponse is from all sketches in hand to the new configuration (response), and to
// the results (epoch): four edge switches of the paper's sizes. Run it with -cpu 1.
func BenchmarkResponse(b *testing.B) {
	for _, bc := range []struct {
		name    string
		flows   int
		victims float64
	}{{"10000-10%", 10_000, 0.1}, {"40000-10%", 40_000, 0.1}, {"70000-10%", 70_000, 0.1}, {"100000-10%", 100_000, 0.1}, {"50000-25%", 50_000, 0.25}} {
		b.Run(bc.name, func(b *testing.B) {
			f := newFabric(b, 31, `{}`)
			for range 9 {
				f.play(f.flows(bc.flows, bc.victims, 0))
			}
			e := f.record(f.flows(bc.flows, bc.victims, 0))
			n := network()
			p := New()
			p.now = processorTime // other work on the machine does not count
			if _, err := p.Configure(context.Background(), sdk.Config{}, n); err != nil {
				b.Fatal(err)
			}
			// The attention that the epoch was recorded under, from the model of the tables.
			held := p.ledger.Plans[0].Attention
			for name, s := range f.sw {
				bit := e.BankOf(e.Number, 2)
				held.Th[name], held.Tl, held.Sample = s.th[bit], s.tl[bit], s.sample[bit]
				for fam := range families {
					held.Parts[fam] = Parts{LL: s.up[bit][fam][codeHL].first, HL: s.up[bit][fam][codeHL].buckets}
				}
			}
			if held.Tl > 1 {
				held.State = Ill
			}
			p.ledger.Plans[0].Attention = held
			p.settled = 1
			decoded, response, total := "", time.Duration(0), time.Duration(0)
			b.ResetTimer()
			for range b.N {
				if p.ledger.Plans = p.ledger.Plans[:1]; p.previous != nil {
					p.previous.number = e.Number - 1 // so that changes are told, too
				}
				r, err := p.Analyse(context.Background(), e)
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				state := row(b, r, attentionList)
				decoded = state["decoded"]
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

// BenchmarkSaveState is what handing over the state takes after each epoch: four edge switches of
// the paper's sizes.
func BenchmarkSaveState(b *testing.B) {
	f := newFabric(b, 32, `{}`)
	p := New()
	if _, err := p.Configure(context.Background(), sdk.Config{}, network()); err != nil {
		b.Fatal(err)
	}
	if _, err := p.Analyse(context.Background(), f.record(f.flows(24_000, 0.1, 0))); err != nil {
		b.Fatal(err)
	}
	size, begin := 0, processorTime()
	b.ResetTimer()
	for range b.N {
		s, err := p.SaveState()
		if err != nil {
			b.Fatal(err)
		}
		size = len(s.Data)
	}
	b.ReportMetric(processorTime().Sub(begin).Seconds()*1e3/float64(b.N), "cpu-ms/op")
	b.ReportMetric(float64(size), "bytes")
}
