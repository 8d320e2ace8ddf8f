// SPDX-License-Identifier: Apache-2.0

package collector_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/collector"
	"github.com/netsketch/netsketch/collector/epoch"
)

// stageSum adds up the stages of epochs for a benchmark.
type stageSum struct {
	collector.Stages
	n int
}

func (s *stageSum) add(rep collector.Report) {
	s.Flip += rep.Stages.Flip
	s.Skew += rep.Stages.Skew
	s.Wait += rep.Stages.Wait
	s.Read += rep.Stages.Read
	s.Plugin += rep.Stages.Plugin
	s.Publish += rep.Stages.Publish
	s.n++
}

func (s *stageSum) report(b *testing.B) {
	for _, m := range []struct {
		unit string
		d    time.Duration
	}{{"flip-ms", s.Flip}, {"skew-ms", s.Skew}, {"wait-ms", s.Wait}, {"read-ms", s.Read}, {"plugin-ms", s.Plugin},
		{"publish-ms", s.Publish}} {
		b.ReportMetric(m.d.Seconds()*1000/float64(s.n), m.unit)
	}
}

// BenchmarkEpochToSubscriber is the time from an epoch's end to the first gNMI update of its
// results at a subscriber, with its parts, for one switch with the 1 MB program and 2,000 flows.
func BenchmarkEpochToSubscriber(b *testing.B) {
	for _, program := range []string{"univmon-300k", "univmon"} {
		b.Run(program, func(b *testing.B) { benchmarkToSubscriber(b, program) })
	}
}

func benchmarkToSubscriber(b *testing.B, program string) {
	r := startReal(b, program)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stream := subscribe(b, ctx, serveGNMI(b, r.c), "univmon", "heavy-hitters", "heavy-hitter")
	first := make(chan time.Time, 1<<20)
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			if m.GetUpdate() != nil {
				first <- time.Now()
			}
		}
	}()
	var sum stageSum
	var update time.Duration
	for b.Loop() {
		b.StopTimer()
		for flow := range 200 {
			r.switch1.send(byte(flow), 1+2000/(flow+1))
		}
		for len(first) > 0 {
			<-first
		}
		b.StartTimer()
		begin := time.Now()
		rep := r.step()
		update += (<-first).Sub(begin)
		if rep.Status != epoch.Complete || rep.Plugins[0].Err != nil {
			b.Fatalf("report %+v", rep)
		}
		sum.add(rep)
	}
	sum.report(b)
	b.ReportMetric(update.Seconds()*1000/float64(sum.n), "first-update-ms")
}

// Benchmark64Switches is one epoch of 64 soft switches with the 300 KB program and 200 flows each,
// read and analyzed on this machine; The benchmark also reports the heap afterwards, which shows
// whether memory grows.
func Benchmark64Switches(b *testing.B) {
	const n = 64
	switches := make([]*realSwitch, 0, n)
	var more []string
	for i := 2; i <= n; i++ {
		sw := startSwitch(b, "127.0.0.1:0")
		switches = append(switches, sw)
		more = append(more, fmt.Sprintf("  - {name: s%d, address: %q, device-id: 1, pipeline: univmon-300k, "+
			"tls: {plaintext: true}}", i, sw.address))
	}
	r := startReal(b, "univmon-300k", strings.Join(more, "\n"))
	switches = append(switches, r.switch1)
	r.ready()
	if err := r.c.Open(context.Background(), r.end, r.wait); err != nil {
		b.Fatal(err)
	}
	r.untilStatus(epoch.Complete)
	var sum stageSum
	for b.Loop() {
		b.StopTimer()
		for _, sw := range switches {
			for flow := range 200 {
				sw.send(byte(flow), 1)
			}
		}
		b.StartTimer()
		rep := r.step()
		if rep.Status != epoch.Complete || rep.Plugins[0].Err != nil {
			b.Fatalf("report %+v", rep)
		}
		sum.add(rep)
	}
	sum.report(b)
	runtime.GC()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	b.ReportMetric(float64(mem.HeapInuse)/(1<<20), "heap-MiB")
}
