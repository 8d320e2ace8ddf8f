// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"bufio"
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"
)

func compiled(tb testing.TB, name string) *Program {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join("..", "compiled", name+".json"))
	if err != nil {
		tb.Skip(err)
	}
	p, err := Compile(b)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func sharedTrace(tb testing.TB, n int) (pkts [][]byte) {
	tb.Helper()
	f, err := os.Open("../../../shared/traces/mixed-165k.pcap.gz")
	if err != nil {
		tb.Skip("no trace")
	}
	defer f.Close()
	z, err := gzip.NewReader(bufio.NewReader(f))
	if err != nil {
		tb.Fatal(err)
	}
	r, err := pcapgo.NewReader(z)
	if err != nil {
		tb.Fatal(err)
	}
	for len(pkts) < n {
		d, _, err := r.ReadPacketData()
		if err != nil {
			break
		}
		pkts = append(pkts, d)
	}
	return pkts
}

func BenchmarkPipeline(b *testing.B) {
	for _, name := range []string{"forwarding", "univmon-300k", "univmon"} {
		b.Run(name, func(b *testing.B) {
			p := compiled(b, name)
			pkts := sharedTrace(b, 20000)
			s := New(Config{Seed: 1})
			if err := s.Load(p); err != nil {
				b.Fatal(err)
			}
			for i := range uint32(4) {
				_ = s.AddPort(i, Port{Tx: func([]byte, time.Duration) {}})
			}
			act := Action{Name: "ingress.forwarding.forward", Params: [][]byte{{1}, {2}, {3}}}
			for _, t := range []string{"ingress.forwarding.ipv4_lpm", "ingress.forwarding.ipv6_lpm"} {
				if err := s.SetDefault(t, &act); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				s.Inject(0, pkts[i%len(pkts)], time.Duration(i))
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "packets/s")
		})
	}
}
