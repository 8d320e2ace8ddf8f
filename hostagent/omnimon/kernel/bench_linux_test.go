// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/internal/test/kerneltest"
)

// BenchmarkPacket measures a packet in each program, by the kernel's statistics of programs, less
// what they measure of a program that does nothing. Between two packets lies a system call, so the
// caches are colder than under load.
func BenchmarkPacket(b *testing.B) {
	needBPF(b)
	for _, flows := range []int{1, 3, 300, 10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("flows=%d", flows), func(b *testing.B) { benchmark(b, flows, traffic{}) })
	}
	for name, l := range map[string]traffic{"UDP": {udp: true}, "IPv6": {v6: true}, "default-table": {table: 1 << 16},
		"full-table": {table: 10_000}, "d=4,x=4": {extremes: 4}} {
		b.Run("flows=10000/"+name, func(b *testing.B) { benchmark(b, 10_000, l) })
	}
	for _, queries := range []int{1, 4, 16} {
		for _, flows := range []int{1, 10_000} {
			b.Run(fmt.Sprintf("flows=%d/queries=%d", flows, queries), func(b *testing.B) {
				benchmark(b, flows, traffic{queries: queries})
			})
		}
	}
}

// benchmarkQueries returns queries of four kinds that take turns.
func benchmarkQueries(count int) (all []wire.Query) {
	texts := []string{totalsQuery,
		"x = packets.filter(proto == TCP && dport < 1024).reduce(keys=(dst), n=count(), bytes=sum(length))",
		"x = packets.distinct(src, dst, sport).map(dst, n = 1).reduce(keys=(dst), flows=sum(n))",
		"x = packets.reduce(keys=(src, dst, proto, sport, dport), n=count())"}
	for i := range count {
		all = append(all, wire.Query{ID: uint64(i), Text: texts[i%len(texts)]})
	}
	return all
}

// traffic is what a measurement of BenchmarkPacket has besides flows of TCP over IPv4, in a table
// of 2^20.
type traffic struct {
	queries, table, extremes int // extremes: of which as many slots of switches come along
	udp, v6                  bool
}

func benchmark(b *testing.B, flows int, l traffic) {
	settings := func(host int) *wire.Settings {
		s := defaults(host)
		s.Carrier = wire.CarrierOption
		s.Queries = benchmarkQueries(l.queries)
		s.Slots, s.Flows, s.IngressSlots = 3072, cmp.Or(l.table, 1<<20), 1<<20
		if l.extremes > 0 {
			s.SlotsPerFlow, s.Extremes = l.extremes, make([]wire.Extreme, l.extremes)
			for i := range s.Extremes {
				s.Extremes[i].Field = wire.FieldLength
			}
		}
		return s
	}
	source := newPath(b, Config{Generations: 8}, settings(0))
	destination := newPath(b, Config{Generations: 8}, settings(1))
	nothing, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "Apache-2.0",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()}})
	if err != nil {
		b.Fatal(err)
	}
	defer nothing.Close()
	frames := make([][]byte, flows)
	protocol := byte(packet.ProtocolTCP)
	if l.udp {
		protocol = packet.ProtocolUDP
	}
	for i := range frames {
		frames[i] = ipFrame(address(0, l.v6), address(1, l.v6), protocol, uint16(i), uint16(i>>16), packet.ACK, 0, nil)
		run(b, destination.tables.ingress, run(b, source.tables.egress, frames[i], tcNext), tcNext)
	}
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		b.Fatal(err)
	}
	defer stats.Close()
	programs := []*ebpf.Program{source.tables.egress, destination.tables.ingress, nothing}
	measure := func() (ns, runs [3]float64) {
		for i, p := range programs {
			s, err := p.Stats()
			if err != nil {
				b.Fatal(err)
			}
			ns[i], runs[i] = float64(s.Runtime), float64(s.RunCount)
		}
		return ns, runs
	}
	r := rand.New(rand.NewPCG(1, 1))
	ns, runs := measure()
	for b.Loop() {
		frame := frames[r.IntN(flows)]
		run(b, destination.tables.ingress, run(b, source.tables.egress, frame, tcNext), tcNext)
		run(b, nothing, frame, tcNext)
	}
	after, count := measure()
	var each [3]float64
	for i := range each {
		each[i] = (after[i] - ns[i]) / (count[i] - runs[i])
	}
	b.ReportMetric(each[0]-each[2], "egress-ns")
	b.ReportMetric(each[1]-each[2], "ingress-ns")
	b.ReportMetric(each[0]+each[1]-2*each[2], "both-ns")
	b.ReportMetric(each[2], "empty-ns")
}

// BenchmarkQueries compares what a host sends with 0, 1, 4 and 16 queries. One processor runs
// program egress on a packet again and again, without a header, which takes no other time; and UDP
// packets with 18 bytes, with a header, pass between two namespaces. The setups take turns in each
// round. It prints the median time of a packet in the program, with the least and the most, the
// packets per second of the median, the median of UDP packets per second with the ratio to no
// query, and how many of all packets the queries did not count.
func BenchmarkQueries(b *testing.B) {
	const repeat = 200_000
	counts := []int{0, 1, 4, 16}
	frame := ipFrame(address(0, false), address(1, false), packet.ProtocolTCP, 1, 80, packet.ACK, 0, nil)
	paths, pairs := map[int]*Path{}, map[int]*pair{}
	settings := func(s *wire.Settings, n int) { s.Carrier, s.Queries = wire.CarrierOption, benchmarkQueries(n) }
	for _, n := range counts {
		s := defaults(0)
		settings(s, n)
		paths[n], pairs[n] = newPath(b, Config{}, s), newPair(b)
		paths[n].SetLeases(nil)
		for host := range 2 {
			pairs[n].open(host, func(_ *Config, s *wire.Settings) { settings(s, n) })
		}
	}
	var text strings.Builder // b.Log prints ten lines of its own at most
	ns, rates := map[int][]float64{}, map[int][]float64{}
	for range rounds {
		for _, n := range counts {
			_, each, err := paths[n].tables.egress.Benchmark(frame, repeat, func() {})
			if err != nil {
				b.Fatal(err)
			}
			ns[n], rates[n] = append(ns[n], float64(each)), append(rates[n], pairs[n].datagrams())
		}
	}
	for _, n := range counts {
		missed := func(rows []wire.QueryRow, sent int64) (missed int64) {
			for _, row := range rows {
				if row.ID%4 == 0 {
					counted, _ := totalsOf(b, &row)
					missed += sent - counted
				}
				missed += int64(row.Dropped)
			}
			return missed
		}
		sum := pairs[n].seal(0, 100)
		paths[n].Advance(101)
		g, err := paths[n].Seal(100)
		if err != nil {
			b.Fatal(err)
		}
		lost := missed(queryRows(b, g.Append(nil)), rounds*repeat)
		g.Release()
		lost += missed(sum.queries, sum.sent)
		var ratios []float64
		for i, r := range rates[n] {
			ratios = append(ratios, r/rates[0][i])
		}
		fmt.Fprintf(&text, "\n%2d queries: %.0f ns (%.0f to %.0f), %.2f million packets/s; over veth %.0f packets/s, "+
			"%.2f of none (%.2f to %.2f); %d missed",
			n, kerneltest.Median(ns[n]), slices.Min(ns[n]), slices.Max(ns[n]), 1000/kerneltest.Median(ns[n]),
			kerneltest.Median(rates[n]), kerneltest.Median(ratios), slices.Min(ratios), slices.Max(ratios), lost)
	}
	b.Log(text.String())
	for b.Loop() { // the rounds are the measurement
	}
}

const rounds = 5

// datagrams sends UDP packets and returns packets per second.
func (p *pair) datagrams() float64 {
	const count = 300_000
	var l net.PacketConn
	p.in(1, func() (err error) {
		l, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(address(1, false), 0)))
		return err
	})
	defer l.Close()
	var c *net.UDPConn
	p.in(0, func() (err error) {
		c, err = net.DialUDP("udp", nil, l.LocalAddr().(*net.UDPAddr))
		return err
	})
	defer c.Close()
	payload := make([]byte, 18)
	start := time.Now()
	for range count {
		if _, err := c.Write(payload); err != nil {
			p.t.Fatal(err)
		}
	}
	return count / time.Since(start).Seconds()
}
