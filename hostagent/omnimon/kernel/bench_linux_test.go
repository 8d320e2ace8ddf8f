// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	hostkernel "github.com/netsketch/netsketch/hostagent/kernel"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
)

// BenchmarkPacket measures a packet in each program, by the kernel's statistics of programs, less
// what they measure of a program that does nothing. Between two packets lies a system call, so the
// caches are colder than under load.
func BenchmarkPacket(b *testing.B) {
	needBPF(b)
	for _, flows := range []int{1, 10_000, 1_000_000} {
		b.Run(fmt.Sprintf("flows=%d", flows), func(b *testing.B) { benchmark(b, flows, "") })
	}
	b.Run("flows=1/query", func(b *testing.B) { benchmark(b, 1, totalsQuery) })
}

func benchmark(b *testing.B, flows int, query string) {
	settings := func(host int) *wire.Settings {
		s := defaults(host)
		if query != "" {
			s.Queries = []wire.Query{{Text: query}}
		}
		s.Slots, s.Flows, s.IngressSlots = 3072, 1<<20, 1<<20
		return s
	}
	source := newPath(b, Config{Generations: 8}, settings(0))
	destination := newPath(b, Config{Generations: 8}, settings(1))
	empty, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "Apache-2.0",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()}})
	if err != nil {
		b.Fatal(err)
	}
	defer empty.Close()
	frames := make([][]byte, flows)
	for i := range frames {
		frames[i] = ipFrame(address(0, false), address(1, false), packet.ProtocolTCP, uint16(i), uint16(i>>16), packet.ACK,
			0, nil)
		run(b, destination.tables.ingress, run(b, source.tables.egress, frames[i], tcNext), xdpPass)
	}
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		b.Fatal(err)
	}
	defer stats.Close()
	programs := []*ebpf.Program{source.tables.egress, destination.tables.ingress, empty}
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
		run(b, destination.tables.ingress, run(b, source.tables.egress, frame, tcNext), xdpPass)
		run(b, empty, frame, tcNext)
		if err := source.readEvents(); err != nil {
			b.Fatal(err)
		}
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

// Setups of BenchmarkVeth.
const (
	plain     = "plain"     // veth passes packets of 64 KB whole
	segments  = "segments"  // the kernel segments, as for any device that does not
	emptyXDP  = "empty XDP" // and a program that does nothing receives
	withAgent = "agent"     // and the data path sends and receives
)

// BenchmarkVeth sends packets from one namespace to another: UDP packets with 18 bytes, in packets
// per second, and one TCP stream in both directions, in bytes per second. For each program it
// reports the time of a packet by the kernel's statistics.
func BenchmarkVeth(b *testing.B) {
	for _, protocol := range []string{"udp", "tcp"} {
		for _, setup := range []string{plain, segments, emptyXDP, withAgent} {
			b.Run(protocol+"/"+setup, func(b *testing.B) { benchmarkVeth(b, setup, protocol == "tcp") })
		}
	}
}

func benchmarkVeth(b *testing.B, setup string, tcp bool) {
	p := newPair(b)
	var programs []*ebpf.Program
	for host := range 2 {
		if setup == segments || setup == emptyXDP {
			p.in(host, func() error {
				found, err := offloads("eth0")
				if err != nil {
					return err
				}
				return hostkernel.Disable("eth0", found)
			})
		}
		if setup == emptyXDP {
			p.in(host, func() error {
				pass, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "Apache-2.0",
					Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()}})
				if err != nil {
					return err
				}
				b.Cleanup(func() { _ = pass.Close() })
				i, err := net.InterfaceByName("eth0")
				if err != nil {
					return err
				}
				l, err := link.AttachXDP(link.XDPOptions{Program: pass, Interface: i.Index, Flags: link.XDPDriverMode})
				if err == nil {
					b.Cleanup(func() { _ = l.Close() })
				}
				return err
			})
		}
	}
	if setup == withAgent {
		for host := range 2 {
			p.open(host, nil)
			programs = append(programs, p.paths[host].tables.egress, p.paths[host].tables.ingress)
		}
		if !tcp { // what the kernel measures takes time
			stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
			if err != nil {
				b.Fatal(err)
			}
			defer stats.Close()
		}
	}
	if tcp {
		const size = 64 << 20
		for b.Loop() {
			p.transfer(size, false)
		}
		megabytes := 2 * size * float64(b.N) / 1e6
		b.ReportMetric(megabytes/b.Elapsed().Seconds(), "MB/s")
		return
	}
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
	for b.Loop() {
		if _, err := c.Write(payload); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "packets/s")
	for i, name := range []string{"egress-ns", "ingress-ns"} {
		if setup != withAgent {
			break
		}
		s, err := programs[3*i].Stats() // egress of host 0, ingress of host 1
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(s.Runtime)/float64(s.RunCount), name)
	}
}
