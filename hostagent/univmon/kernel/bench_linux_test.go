// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/netsketch/netsketch/hostagent/univmon/wire"
	"github.com/netsketch/netsketch/internal/test/kerneltest"
)

const next = -1 // TCX: the next program decides

// BenchmarkPacket measures a packet in program send with the sketches of the P4 program univmon,
// less a program that does nothing. Flows are in random order.
//
//   - packet-ns: one packet in each system call, by the kernel's statistics of programs. The caches
//     are colder than under load.
//   - burst-ns: 2,000 packets in a system call, by its duration; a median. A program in front
//     writes the addresses of each packet.
func BenchmarkPacket(b *testing.B) {
	kerneltest.NeedBPF(b)
	empty := program(b, asm.Instructions{asm.Mov.Imm(asm.R0, next), asm.Return()})
	for _, encapsulation := range wire.Encapsulations {
		for _, flows := range []int{1, 1000, 20_000} {
			b.Run(fmt.Sprintf("%s/flows=%d", encapsulation, flows), func(b *testing.B) {
				s := &wire.Settings{Packets: both(encapsulation), Sketches: wire.Sketches()}
				programs := [2]*ebpf.Program{open(b, Config{}, s).Tables().Programs[univmonProgSend], empty}
				frames, random := make([][]byte, 1<<15), rand.New(rand.NewPCG(1, 2))
				for i := range frames {
					v := uint16(random.IntN(flows))
					frames[i] = udp()
					binary.BigEndian.PutUint16(frames[i][28:], v)
					binary.BigEndian.PutUint16(frames[i][32:], v/3)
					fix(frames[i])
				}
				b.Run("packets", func(b *testing.B) { single(b, programs, frames) })
				b.Run("bursts", func(b *testing.B) { bursts(b, programs, frames) })
			})
		}
	}
}

func program(b *testing.B, code asm.Instructions) *ebpf.Program {
	b.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "Apache-2.0", Instructions: code})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = p.Close() })
	return p
}

// single measures packets one by one.
func single(b *testing.B, programs [2]*ebpf.Program, frames [][]byte) {
	kerneltest.OnProcessor(b, 0)
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		b.Fatal(err)
	}
	defer stats.Close()
	measure := func() (ns, runs [2]float64) {
		for i, p := range programs {
			s, err := p.Stats()
			if err != nil {
				b.Fatal(err)
			}
			ns[i], runs[i] = float64(s.Runtime), float64(s.RunCount)
		}
		return ns, runs
	}
	each := func(frame []byte) {
		for _, p := range programs {
			if _, err := p.Run(&ebpf.RunOptions{Data: frame}); err != nil {
				b.Fatal(err)
			}
		}
	}
	for _, f := range frames[:len(frames)/2] {
		each(f)
	}
	ns, runs := measure()
	for n := 0; b.Loop(); n++ {
		each(frames[n%len(frames)])
	}
	after, count := measure()
	idle := (after[1] - ns[1]) / (count[1] - runs[1])
	b.ReportMetric((after[0]-ns[0])/(count[0]-runs[0])-idle, "packet-ns")
	b.ReportMetric(idle, "empty-ns")
}

// bursts measures many packets in a system call.
func bursts(b *testing.B, programs [2]*ebpf.Program, frames [][]byte) {
	kerneltest.OnProcessor(b, 0)
	var took [2][]float64
	var writers [2]*ebpf.Program
	for i, p := range programs {
		writers[i] = writer(b, p, frames)
	}
	for b.Loop() {
		for i, p := range writers {
			_, each, err := p.Benchmark(frames[0], 2000, nil)
			if err != nil {
				b.Fatal(err)
			}
			took[i] = append(took[i], float64(each.Nanoseconds()))
		}
	}
	idle := kerneltest.Median(took[1])
	b.ReportMetric(kerneltest.Median(took[0])-idle, "burst-ns")
	b.ReportMetric(idle, "empty-ns")
}

// writer returns a program that writes what differs of one of the frames in turn over the packet,
// and calls another program.
func writer(b *testing.B, next *ebpf.Program, frames [][]byte) *ebpf.Program {
	b.Helper()
	value := make([]byte, 8) // a count
	for _, f := range frames {
		value = append(value, f[28], f[29], f[32], f[33], f[24], f[25], 0, 0)
	}
	table := func(t ebpf.MapType, value any, size int) *ebpf.Map {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: t, KeySize: 4, ValueSize: uint32(size), MaxEntries: 1,
			Contents: []ebpf.MapKV{{Key: uint32(0), Value: value}}})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = m.Close() })
		return m
	}
	templates, calls := table(ebpf.Array, value, len(value)), table(ebpf.ProgramArray, next, 4)
	const data, end = 76, 80 // fields of __sk_buff
	return program(b, asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R2, asm.R6, data, asm.Word), asm.LoadMem(asm.R3, asm.R6, end, asm.Word),
		asm.Mov.Reg(asm.R4, asm.R2), asm.Add.Imm(asm.R4, 42),
		asm.JGT.Reg(asm.R4, asm.R3, "out"),
		asm.LoadMapValue(asm.R5, templates.FD(), 0),
		asm.LoadMem(asm.R1, asm.R5, 0, asm.DWord), asm.Add.Imm(asm.R1, 1), asm.StoreMem(asm.R5, 0, asm.R1, asm.DWord),
		asm.And.Imm(asm.R1, int32(len(frames)-1)), asm.LSh.Imm(asm.R1, 3), asm.Add.Reg(asm.R5, asm.R1),
		asm.LoadMem(asm.R0, asm.R5, 8, asm.Half), asm.StoreMem(asm.R2, 28, asm.R0, asm.Half),
		asm.LoadMem(asm.R0, asm.R5, 10, asm.Half), asm.StoreMem(asm.R2, 32, asm.R0, asm.Half),
		asm.LoadMem(asm.R0, asm.R5, 12, asm.Half), asm.StoreMem(asm.R2, 24, asm.R0, asm.Half),
		asm.Mov.Reg(asm.R1, asm.R6), asm.LoadMapPtr(asm.R2, calls.FD()), asm.Mov.Imm(asm.R3, 0),
		asm.FnTailCall.Call(), asm.Mov.Imm(asm.R0, 0).WithSymbol("out"), asm.Return(),
	})
}

// fix sets the checksum of an IPv4 header without options behind an untagged link layer.
func fix(frame []byte) {
	frame[24], frame[25] = 0, 0
	sum := uint32(0)
	for i := 14; i < 34; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(frame[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(frame[24:], ^uint16(sum+sum>>16))
}

// BenchmarkVeth measures packets that a socket sends over veth with the role and without it, in
// turn; medians.
func BenchmarkVeth(b *testing.B) {
	if !kerneltest.Isolated(b) {
		return
	}
	kerneltest.OnProcessor(b, 0)
	p := open(b, Config{Interface: "host"}, &wire.Settings{Packets: both(""), Sketches: wire.Sketches()})
	if err := p.Apply(nil); err != nil {
		b.Fatal(err)
	}
	settings := encoded(b, &wire.Settings{Packets: both(""), Sketches: wire.Sketches()})
	socket, frame, random := kerneltest.Socket(b, "host"), udp(), rand.New(rand.NewPCG(1, 2))
	send := func() float64 {
		const packets = 10_000
		start := time.Now()
		for range packets {
			v := uint16(random.IntN(1000))
			binary.BigEndian.PutUint16(frame[28:], v)
			binary.BigEndian.PutUint16(frame[32:], v/3)
			fix(frame)
			if _, err := unix.Write(socket, frame); err != nil {
				b.Fatal(err)
			}
		}
		return packets / time.Since(start).Seconds()
	}
	var with, without []float64
	for b.Loop() {
		without = append(without, send())
		if err := p.Apply(settings); err != nil {
			b.Fatal(err)
		}
		with = append(with, send())
		if err := p.Apply(nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(kerneltest.Median(with), "packets/s")
	b.ReportMetric(kerneltest.Median(without), "plain-packets/s")
	b.ReportMetric(kerneltest.Median(with)/kerneltest.Median(without), "x-plain")
}
