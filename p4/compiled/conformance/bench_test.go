// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"testing"
	"time"
)

// BenchmarkChameleMon is what an edge switch costs on the soft switch: packets that
// enter and leave there, and the read-out of a bank over P4Runtime on loopback.
func BenchmarkChameleMon(b *testing.B) {
	sw := startSoft(b)
	n := newBench(b, load(b, "chamelemon"), sw)
	n.install()
	n.configure(cmConfig{entry: []uint32{1}, exit: []uint32{2, 4},
		epochs: [2]cmEpoch{smallEpoch(40, 1, 0), smallEpoch(40, 1, 0)}})
	for _, f := range []struct {
		name  string
		frame []byte
	}{{"IPv4", oddFrames()[0]}, {"IPv6", oddFrames()[1]}} {
		for _, side := range []struct {
			name string
			port uint32
		}{{"both edges", 1}, {"only forwarded", 3}} {
			b.Run(f.name+"/"+side.name, func(b *testing.B) {
				for b.Loop() {
					sw.sw.Inject(side.port, f.frame, 0)
					<-sw.out
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "packets/s")
			})
		}
	}
	for _, r := range []struct {
		name      string
		registers []string
	}{
		{"classifier", []string{"ingress.chamelemon.tower8", "ingress.chamelemon.tower16"}},
		{"upstream", []string{"ingress.chamelemon.upstream"}},
		{"downstream", []string{"chamelemon_downstream"}},
		{"IPv6", []string{"ingress.chamelemon.upstream_ipv6", "chamelemon_downstream_ipv6"}},
		{"all", []string{
			"ingress.chamelemon.tower8", "ingress.chamelemon.tower16", "ingress.chamelemon.upstream",
			"chamelemon_downstream",
			"ingress.chamelemon.upstream_ipv6", "chamelemon_downstream_ipv6",
		}},
	} {
		b.Run("read-out/"+r.name, func(b *testing.B) {
			best := time.Hour
			for b.Loop() {
				for _, frame := range oddFrames()[:2] { // else a bank is known to be empty, and not read
					sw.sw.Inject(1, frame, 0)
					<-sw.out
				}
				start := time.Now()
				if _, err := n.client.ReadBanks(n.ctx, 0, r.registers...); err != nil {
					b.Fatal(err)
				}
				best = min(best, time.Since(start))
			}
			b.ReportMetric(best.Seconds()*1e3, "best-ms")
		})
	}
}
