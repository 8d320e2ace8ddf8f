// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/internal/test/kerneltest"
)

// BenchmarkPacket measures program egress of one host followed by program ingress of another one. A
// program in front of them gives each packet the ports of a random flow and passes control to
// egress, then, with the packet that egress left, to ingress. The kernel repeats it
// (BPF_PROG_TEST_RUN) for a batch of packets, which takes less time than a slice of the scheduler.
// The time of a batch less that of a batch with empty programs is one measurement; both take turns.
// The benchmark reports the least, which other work of the machine hardly changes, and the median.
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

// traffic describes a measurement of BenchmarkPacket by what differs from flows of TCP over IPv4 in
// a table of 2^20 flows.
type traffic struct {
	queries, table, extremes int // extremes is the number of maxima, and of slots per flow
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
	protocol := byte(packet.ProtocolTCP)
	if l.udp {
		protocol = packet.ProtocolUDP
	}
	var frame []byte
	for i := range flows {
		frame = ipFrame(address(0, l.v6), address(1, l.v6), protocol, uint16(i), uint16(i>>16), packet.ACK, 0, nil)
		run(b, destination.tables.ingress, run(b, source.tables.egress, frame, tcNext), tcNext)
	}
	programs := []*ebpf.Program{dispatcher(b, flows, l.v6, source.tables.egress, destination.tables.ingress),
		dispatcher(b, flows, l.v6, nothing, nothing)}
	var both, empty []float64
	for b.Loop() {
		for i, to := range []*[]float64{&both, &empty} {
			_, each, err := programs[i].Benchmark(frame, 2*batch, func() {})
			if err != nil {
				b.Fatal(err)
			}
			*to = append(*to, 2*float64(each.Nanoseconds()))
		}
	}
	b.ReportMetric(slices.Min(both)-slices.Min(empty), "least-ns")
	b.ReportMetric(kerneltest.Median(both)-kerneltest.Median(empty), "median-ns")
	b.ReportMetric(0, "ns/op")
	for _, p := range []*Path{source, destination} { // every packet had a header
		p.Advance(101)
		g, err := p.Seal(100)
		if err != nil {
			b.Fatal(err)
		}
		r, err := wire.Open(g.Append(nil))
		if err != nil {
			b.Fatal(err)
		}
		g.Release()
		if r.Counters != [wire.Counters]uint64{} {
			b.Errorf("counters %v, want none", r.Counters)
		}
	}
}

// dispatcher returns a program that passes control to egress with a packet without a header, to
// which it gives the ports of a random one of the flows, and to ingress with a packet that has a
// header.
func dispatcher(b *testing.B, flows int, v6 bool, egress, ingress *ebpf.Program) *ebpf.Program {
	b.Helper()
	open := func(spec *ebpf.MapSpec) *ebpf.Map {
		m, err := ebpf.NewMap(spec)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = m.Close() })
		return m
	}
	targets := open(&ebpf.MapSpec{Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 2})
	random := open(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err := errors.Join(targets.Put(uint32(0), egress), targets.Put(uint32(1), ingress)); err != nil {
		b.Fatal(err)
	}
	at, plain, ports := int16(14), int32(0x45), int16(14+20) // of the byte that shows a header
	if v6 {
		at, plain, ports = 14+6, packet.ProtocolTCP, 14+40
	}
	const data, end = 76, 80 // in struct __sk_buff
	code := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R7, asm.R6, data, asm.Word),
		asm.LoadMem(asm.R2, asm.R6, end, asm.Word),
		asm.Mov.Reg(asm.R3, asm.R7),
		asm.Add.Imm(asm.R3, int32(ports)+4),
		asm.JGT.Reg(asm.R3, asm.R2, "end"),
		asm.LoadMem(asm.R2, asm.R7, at, asm.Byte),
		asm.Mov.Imm(asm.R3, 1),
		asm.JNE.Imm(asm.R2, plain, "call"),
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, random.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "end"),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.LoadImm(asm.R2, 6364136223846793005, asm.DWord),
		asm.Mul.Reg(asm.R1, asm.R2),
		asm.Add.Imm(asm.R1, 1442695041),
		asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
		asm.RSh.Imm(asm.R1, 32),
		asm.Mul.Imm(asm.R1, int32(flows)),
		asm.RSh.Imm(asm.R1, 32), // the number of a flow
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.RSh.Imm(asm.R2, 16),
		asm.HostTo(asm.BE, asm.R1, asm.Half),
		asm.HostTo(asm.BE, asm.R2, asm.Half),
		asm.StoreMem(asm.R7, ports, asm.R1, asm.Half),
		asm.StoreMem(asm.R7, ports+2, asm.R2, asm.Half),
		asm.Mov.Imm(asm.R3, 0),
		asm.Mov.Reg(asm.R1, asm.R6).WithSymbol("call"),
		asm.LoadMapPtr(asm.R2, targets.FD()),
		asm.FnTailCall.Call(),
		asm.Mov.Imm(asm.R0, -1).WithSymbol("end"),
		asm.Return(),
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "Apache-2.0", Instructions: code})
	if err != nil {
		b.Fatalf("%+v", err)
	}
	b.Cleanup(func() { _ = p.Close() })
	return p
}

// BenchmarkQueries compares what a host sends with 0, 1, 4 and 16 queries. One processor runs
// program egress on a packet again and again, without a header, which takes no other time; and UDP
// packets with 18 bytes, with a header, pass between two namespaces, one by one and in
// super-packets of 50. The setups take turns in each round. It prints the median time of a packet
// in the program, with the least and the most, the packets per second of the median, the median of
// UDP packets per second of processor time with the ratio to no query, and how many of all packets
// the queries did not count.
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
	ns, rates, merged := map[int][]float64{}, map[int][]float64{}, map[int][]float64{}
	for range rounds {
		for _, n := range counts {
			_, each, err := paths[n].tables.egress.Benchmark(frame, repeat, func() {})
			if err != nil {
				b.Fatal(err)
			}
			ns[n] = append(ns[n], float64(each))
			rates[n] = append(rates[n], pairs[n].datagrams(300_000, 1))
			merged[n] = append(merged[n], pairs[n].datagrams(1_000_000, 50))
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
		fmt.Fprintf(&text, "\n%2d queries: %.0f ns (%.0f to %.0f), %.2f million packets/s; over veth", n,
			kerneltest.Median(ns[n]), slices.Min(ns[n]), slices.Max(ns[n]), 1000/kerneltest.Median(ns[n]))
		for _, r := range []struct {
			name  string
			rates map[int][]float64
		}{{"one by one", rates}, {"in super-packets", merged}} {
			middle, least, most := kerneltest.Ratios(r.rates[n], r.rates[0])
			fmt.Fprintf(&text, " %s %.2f million packets/s (%.2f to %.2f), %.2f of none (%.2f to %.2f);", r.name,
				kerneltest.Median(r.rates[n])/1e6, slices.Min(r.rates[n])/1e6, slices.Max(r.rates[n])/1e6, middle, least, most)
		}
		fmt.Fprintf(&text, " %d missed", lost)
	}
	b.Log(text.String())
	for b.Loop() { // the rounds are the measurement
	}
}

const (
	rounds = 5
	batch  = 1000 // packets of BenchmarkPacket
)

// datagrams sends UDP packets with 18 bytes, in super-packets of so many, and returns packets per
// second of processor time of the thread, in which the kernel runs the receiving end as well.
func (p *pair) datagrams(count, together int) float64 {
	const size = 18
	var l net.PacketConn
	p.in(1, func() (err error) {
		l, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(address(1, false), 0)))
		return err
	})
	defer l.Close()
	to := unix.SockaddrInet4{Port: l.LocalAddr().(*net.UDPAddr).Port, Addr: address(1, false).As4()}
	var s int
	p.in(0, func() (err error) {
		if s, err = socket(unix.SOCK_DGRAM); err == nil {
			err = unix.Connect(s, &to)
		}
		return err
	})
	defer unix.Close(s)
	if err := unix.SetsockoptInt(s, unix.SOL_UDP, unix.UDP_SEGMENT, size); err != nil {
		p.t.Fatal(err)
	}
	payload := make([]byte, together*size)
	return float64(count) / kerneltest.ProcessorTime(func() {
		for range count / together {
			if _, err := unix.Write(s, payload); err != nil {
				p.t.Error(err)
				return
			}
		}
	})
}
