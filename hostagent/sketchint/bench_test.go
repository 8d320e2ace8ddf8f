// SPDX-License-Identifier: Apache-2.0

package sketchint

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/internal/test/inbandtest"
)

// trace returns packets of 5 hops in random order. Sizes of flows follow a Zipf distribution;
// exponent 0 makes them equal.
func trace(flows, packets int, exponent float64) [][]byte {
	r := rand.New(rand.NewPCG(1, 1))
	sums := make([]float64, flows)
	total := 0.0
	for i := range sums {
		total += math.Pow(float64(i+1), -exponent)
		sums[i] = total
	}
	out := make([][]byte, packets)
	for i := range out {
		x, at := r.Float64()*total, 0
		for low, high := 0, flows; low < high; {
			if at = (low + high) / 2; sums[at] < x {
				low = at + 1
			} else {
				high = at
			}
			at = low
		}
		stack := inbandtest.Hops(5, uint32(at%16)*8, 1000+r.Uint32N(1000))
		out[i] = with(at, stack...)
	}
	return out
}

// BenchmarkIn reads, removes and inserts packets of 5 hops: of one host of the paper's testbed
// (9,000 flows), and of more flows than the cache holds, in random order.
func BenchmarkIn(b *testing.B) {
	for _, c := range []struct {
		name     string
		flows    int
		exponent float64
		lanes    int
	}{{"testbed", 9000, 1, 1}, {"testbed", 9000, 1, 2}, {"uniform", 60_000, 0, 1}} {
		data := trace(c.flows, 20_000, c.exponent)
		b.Run(fmt.Sprintf("%s/lanes=%d", c.name, c.lanes), func(b *testing.B) {
			s := defaults()
			s.Flows, s.Latencies, s.Heavy, s.HeavyFlows, s.InflatedFlows = 1<<20, 3<<20, 1500, 1024, 1024
			r, _ := start(b, s)
			began, before := time.Now(), processorTime(b)
			var work sync.WaitGroup
			for range c.lanes {
				l := r.Lane()
				work.Go(func() {
					in := make([]*packet.Frame, 64)
					for i := range in {
						in[i] = new(packet.Frame)
					}
					for n := 0; n < b.N; n += len(in) {
						for i, f := range in {
							f.Set(data[(n+i)%len(data)])
						}
						l.In(in)
					}
				})
			}
			work.Wait()
			packets := float64(b.N * c.lanes)
			b.ReportMetric(packets/1e6/(processorTime(b)-before).Seconds(), "Mpackets/cpu-s")
			b.ReportMetric(packets/1e6/time.Since(began).Seconds(), "Mpackets/s")
		})
	}
}

// BenchmarkSeal ends an interval and encodes its report.
func BenchmarkSeal(b *testing.B) {
	s := defaults()
	s.Flows, s.Latencies = 1<<20, 3<<20
	r, clock := start(b, s)
	var data []byte
	for e := uint64(10); b.Loop(); e++ {
		r.In(frames(with(1, 72, 5)))
		clock.Advance(e + 1)
		sealed := r.Seal(e)
		data = sealed.Append(data[:0])
		sealed.Release()
	}
	b.ReportMetric(float64(len(data)), "bytes")
}

func processorTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
