// SPDX-License-Identifier: Apache-2.0

package universal

import (
	"testing"

	"github.com/netsketch/netsketch/internal/test/zipf"
	"github.com/netsketch/netsketch/sketch/flow"
)

// BenchmarkUpdate measures the speed of the data structure on one core, with Zipf 1.1 traffic. The
// layout of 14 levels with 5 rows is the one in the authors' figure, with 2.2 million packets a
// second.
func BenchmarkUpdate(b *testing.B) {
	packets := zipfPackets(1, 1_000_000, 300_000, 1.1)
	for _, bm := range []struct {
		name string
		l    Layout
	}{
		{"5-tuple, program univmon", fiveTuple1M},
		{"src, program univmon", src1M},
		{"5-tuple, 14 levels of 5 rows", Layout{flow.FiveTuple, 14, 5, 2048, 2, 64}},
	} {
		b.Run(bm.name, func(b *testing.B) {
			s := measure(b, bm.l, nil)
			zipf.Speed(b, len(packets), func() {
				for i := range packets {
					s.Update(&packets[i].Key)
				}
			})
		})
	}
}

// BenchmarkEstimate measures the collector's cost for one sketch in one epoch: a sketch filled by
// a million packets, and a sketch of one second of real traffic.
func BenchmarkEstimate(b *testing.B) {
	full := zipfPackets(1, 1_000_000, 300_000, 1.1)
	light := epochs(realPackets(b))[0]
	for _, bm := range []struct {
		name    string
		l       Layout
		packets []timedKey
	}{
		{"5-tuple, program univmon, full", fiveTuple1M, full}, {"src, program univmon, full", src1M, full},
		{"5-tuple, program univmon, real", fiveTuple1M, light}, {"src, program univmon, real", src1M, light},
	} {
		b.Run(bm.name, func(b *testing.B) {
			s := measure(b, bm.l, bm.packets)
			before := s.Reading().Estimate()
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				e := s.Reading().Estimate()
				e.Entropy()
				e.Moment2()
				e.Above(500)
				if _, err := Compare(before, e); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(b.Elapsed().Seconds()*1e3/float64(b.N), "ms/sketch")
		})
	}
}
