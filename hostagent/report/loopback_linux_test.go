// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/net/ipv4"

	"github.com/netsketch/netsketch/hostagent/agent"
	"github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/role"
	"github.com/netsketch/netsketch/hostagent/sketchint"
	"github.com/netsketch/netsketch/hostagent/sketchint/wire"
	"github.com/netsketch/netsketch/internal/test/inbandtest"
)

// reportOf is a telemetry report of version 2.0 about a packet with INT of four hops.
func reportOf(b []byte, sequence uint32, ip []byte) []byte {
	b = binary.BigEndian.AppendUint32(b[:0], 2<<28|sequence)
	b = append(b, 0, 0, 0, 77, 0x14, byte(3+len(ip)/4), 1, 0x20, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0xe8)
	return append(b, ip[:len(ip)/4*4]...)
}

// BenchmarkSketchINT sends b.N telemetry reports at 200,000 a second over loopback to a receiver
// with the role sketchint, and reports how many were lost. The processor time includes the sender.
func BenchmarkSketchINT(b *testing.B) {
	const rate, burst = 200_000, 50
	clock := epoch.NewClock(0, 1)
	path := agent.NewRolePath(func(*epoch.Clock) role.Role { return sketchint.New(clock) })
	s := &wire.Settings{Interval: 1, Flows: 1 << 20, Latencies: 3 << 20, Heavy: 1500, HeavyFlows: 1024, Inflation: 5,
		InflatedFlows: 1024}
	s.Marks.DSCP, s.Marks.DSCPMask = 0x17, 0x3f
	settings, err := s.Append(nil)
	if err != nil {
		b.Fatal(err)
	}
	if err := path.Apply(settings); err != nil {
		b.Fatal(err)
	}
	clock.Advance(2)
	sockets, err := Receiver{Address: "127.0.0.1:0"}.open()
	if err != nil {
		b.Fatal(err)
	}
	defer sockets[0].conn.Close()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan Stats, 1)
	go func() {
		stats, err := serve(ctx, sockets, []Path{path})
		if err != nil {
			b.Error(err)
		}
		ended <- stats
	}()
	c, err := net.Dial("udp", sockets[0].conn.LocalAddr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	var packets [][]byte
	for flow := range 1000 {
		i := inbandtest.INT{Version: 2, HopWords: 2, Remaining: 4, Instructions: 0xa000, Stack: inbandtest.Hops(4, 1, 1000)}
		address := netip.AddrFrom4([4]byte{10, 0, byte(flow >> 8), byte(flow)})
		p := inbandtest.Sent{Src: address, Dst: address, Proto: 17, SrcPort: 9, DstPort: 80}
		m := i.Mark(p, 0x17)
		packets = append(packets, m.IP())
	}
	out := make([]ipv4.Message, burst)
	for i := range out {
		out[i].Buffers = [][]byte{make([]byte, 0, 256)}
	}
	writer := ipv4.NewPacketConn(c.(*net.UDPConn))
	before := processorTime(b)
	b.ResetTimer()
	began := time.Now()
	sent := 0
	for ; sent < b.N; sent += burst {
		for i := range out {
			n := sent + i
			out[i].Buffers[0] = reportOf(out[i].Buffers[0], uint32(n)%(1<<22), packets[n%len(packets)])
		}
		for rest := out; len(rest) > 0; {
			n, err := writer.WriteBatch(rest, 0)
			if err != nil {
				b.Fatal(err)
			}
			rest = rest[n:]
		}
		time.Sleep(time.Until(began.Add(time.Duration(sent) * time.Second / rate)))
	}
	spent := time.Since(began)
	time.Sleep(100 * time.Millisecond) // the receiver empties its buffer
	cancel()
	stats := <-ended
	b.ReportMetric(float64(sent)/spent.Seconds(), "reports/s")
	b.ReportMetric(float64(sent)-float64(stats.Received), "lost")
	b.ReportMetric((processorTime(b)-before).Seconds()/spent.Seconds(), "processors")
	clock.Advance(3)
	sealed, err := path.Seal(2)
	if err != nil || sealed == nil {
		b.Fatal(sealed, err)
	}
	report, err := wire.ParseReport(sealed.Append(nil))
	if err != nil {
		b.Fatal(err)
	}
	if report.Sources[0].Received != stats.Received || report.Counters[wire.Hops] != 5*stats.Received {
		b.Errorf("%d received; the role has %+v and %d hops", stats.Received, report.Sources[0], report.Counters[wire.Hops])
	}
}
