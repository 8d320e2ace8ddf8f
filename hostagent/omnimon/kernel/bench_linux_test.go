// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
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
		b.Run(fmt.Sprintf("flows=%d", flows), func(b *testing.B) { benchmark(b, flows) })
	}
}

func benchmark(b *testing.B, flows int) {
	settings := func(host int) *wire.Settings {
		s := defaults(host)
		s.Slots, s.Flows, s.IngressSlots = 3072, 1<<20, 1<<20
		return s
	}
	source := newPath(b, Config{Generations: 4}, settings(0))
	destination := newPath(b, Config{Generations: 4}, settings(1))
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
