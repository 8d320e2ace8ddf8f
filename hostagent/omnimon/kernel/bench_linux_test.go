// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
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
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
)

// BenchmarkPacket measures a packet in each program, by the kernel's statistics of programs, less
// what they measure of a program that does nothing. Between two packets lies a system call, so the
// caches are colder than under load.
func BenchmarkPacket(b *testing.B) {
	needBPF(b)
	for _, flows := range []int{1, 10_000, 1_000_000} {
		b.Run(fmt.Sprintf("flows=%d", flows), func(b *testing.B) { benchmark(b, flows, 0) })
	}
	for _, queries := range []int{1, 4, 16} {
		for _, flows := range []int{1, 10_000} {
			b.Run(fmt.Sprintf("flows=%d/queries=%d", flows, queries), func(b *testing.B) { benchmark(b, flows, queries) })
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

func benchmark(b *testing.B, flows, queries int) {
	settings := func(host int) *wire.Settings {
		s := defaults(host)
		s.Carrier = wire.CarrierOption
		s.Queries = benchmarkQueries(queries)
		s.Slots, s.Flows, s.IngressSlots = 3072, 1<<20, 1<<20
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
	for i := range frames {
		frames[i] = ipFrame(address(0, false), address(1, false), packet.ProtocolTCP, uint16(i), uint16(i>>16), packet.ACK,
			0, nil)
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
			"%.2f of none (%.2f to %.2f); %d missed", n, median(ns[n]), slices.Min(ns[n]), slices.Max(ns[n]), 1000/median(ns[n]),
			median(rates[n]), median(ratios), slices.Min(ratios), slices.Max(ratios), lost)
	}
	b.Log(text.String())
	for b.Loop() { // the rounds are the measurement
	}
}

// Setups of BenchmarkVeth.
const (
	plain  = "plain"    // without programs
	empty  = "empty TC" // programs at TC that do nothing
	rounds = 5
)

// BenchmarkVeth compares what passes between two namespaces without programs, with programs at TC
// that do nothing, and with agents at both ends, for each carrier: one TCP stream, in bytes per
// second, and UDP packets with 18 bytes, in packets per second. The setups take turns in each
// round, so that other load of the machine reaches all of them. It prints the median of each, with
// the least and the most, and the median ratio to the setup without programs and to that with empty
// ones.
func BenchmarkVeth(b *testing.B) {
	setups := []string{plain, empty, string(wire.CarrierOption), string(wire.CarrierTunnel), string(wire.CarrierShim)}
	pairs := map[string]*pair{}
	var text strings.Builder // b.Log prints ten lines of its own at most
	for _, setup := range setups {
		pairs[setup] = newPair(b)
		for host := range 2 {
			switch setup {
			case plain:
			case empty:
				pairs[setup].attachEmpty(host)
			default:
				pairs[setup].open(host, func(_ *Config, s *wire.Settings) { s.Carrier = wire.Carrier(setup) })
			}
		}
	}
	for name, measure := range map[string]func(*pair) float64{"tcp/MB": (*pair).stream, "udp/packets": (*pair).datagrams} {
		rates := map[string][]float64{}
		for range rounds {
			for _, setup := range setups {
				rates[setup] = append(rates[setup], measure(pairs[setup]))
			}
		}
		for _, setup := range setups {
			var toPlain, toEmpty []float64
			for i, r := range rates[setup] {
				toPlain = append(toPlain, r/rates[plain][i])
				toEmpty = append(toEmpty, r/rates[empty][i])
			}
			slices.Sort(rates[setup])
			r := rates[setup]
			fmt.Fprintf(&text, "\n%-12s %-8s median %.0f (%.0f to %.0f), %.2f of plain (%.2f to %.2f), %.2f of empty", name,
				setup, median(r), r[0], r[len(r)-1], median(toPlain), slices.Min(toPlain), slices.Max(toPlain), median(toEmpty))
		}
	}
	b.Log(text.String())
	for b.Loop() { // the rounds are the measurement
	}
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// attachEmpty attaches programs that do nothing.
func (p *pair) attachEmpty(host int) {
	p.in(host, func() error {
		i, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "Apache-2.0",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()}})
		if err != nil {
			return err
		}
		p.t.Cleanup(func() { _ = prog.Close() })
		for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
			l, err := link.AttachTCX(link.TCXOptions{Program: prog, Interface: i.Index, Attach: at})
			if err != nil {
				return err
			}
			p.t.Cleanup(func() { _ = l.Close() })
		}
		return nil
	})
}

// stream sends over one TCP connection and returns megabytes per second.
func (p *pair) stream() float64 {
	const size = 256 << 20
	var l net.Listener
	p.in(1, func() (err error) {
		l, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(address(1, false), 0)))
		return err
	})
	defer l.Close()
	var c net.Conn
	p.in(0, func() (err error) {
		c, err = net.Dial("tcp", l.Addr().String())
		return err
	})
	defer c.Close()
	go func() {
		chunk := make([]byte, 256<<10)
		for range size / len(chunk) {
			if _, err := c.Write(chunk); err != nil {
				return
			}
		}
	}()
	in, err := l.Accept()
	if err != nil {
		p.t.Fatal(err)
	}
	defer in.Close()
	start := time.Now()
	chunk := make([]byte, 256<<10)
	for n := 0; n < size; {
		k, err := in.Read(chunk)
		if err != nil {
			p.t.Fatal(err)
		}
		n += k
	}
	return size / 1e6 / time.Since(start).Seconds()
}

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
