// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/netsketch/netsketch/hostagent/lightguardian/wire"
	"github.com/netsketch/netsketch/internal/test/kerneltest"
)

const (
	frameBytes = 414  // length of the benchmark's frames
	frameBegin = 176  // length of the headers and the sketchlet, a multiple of 8
	rotation   = 64   // frames that a program of the benchmark writes in turn
	burst      = 2000 // packets in a system call
)

// frameOf returns a frame of a kind, tcp4, tcp6 or udp4, from a port, with a sketchlet or without.
// Its checksums are zero: they change by the difference.
func frameOf(kind string, port uint16, sketchlet []byte) []byte {
	ip := []byte{0x45, 0, 1, 144, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2}
	l4 := make([]byte, 20)
	l4[12] = 5 << 4
	ether := []byte{8, 0}
	switch kind {
	case "tcp6":
		ip = slices.Concat([]byte{0x60, 0, 0, 0, 1, 104, 6, 64}, make([]byte, 31), []byte{1})
		ether = []byte{0x86, 0xdd}
	case "udp4":
		l4 = []byte{0, 0, 0, 80, 1, 124, 1, 1}
		ip[9] = 17
	}
	switch {
	case sketchlet == nil:
	case kind == "udp4":
		ip[6] |= 0x80
	default:
		l4[12] |= 8
	}
	binary.BigEndian.PutUint16(l4, port)
	f := slices.Concat(make([]byte, 12), ether, ip, l4, sketchlet, make([]byte, frameBytes))
	return f[:frameBytes]
}

// BenchmarkPacket measures a packet in program receive, less a program that does nothing: an
// iteration is a packet for each of the two. Sketchlets have 21 cells.
//
//   - packet-ns: one packet in each system call, by its duration in the kernel. The caches are
//     colder than under load.
//   - burst-ns: 2,000 packets in a system call, by its duration. A program in front writes each
//     packet and gives it its length back, for which a few nanoseconds are part of the result.
func BenchmarkPacket(b *testing.B) {
	for _, c := range []struct {
		kind  string
		mark  bool
		flows int
	}{{"tcp4", false, 0}, {"tcp4", true, 0}, {"tcp6", true, 0}, {"udp4", true, 0}, {"tcp4", false, 1}, {"tcp4", true, 1},
		{"tcp4", false, 1000}, {"tcp4", true, 1000}} {
		b.Run(fmt.Sprintf("%s/flows=%d/sketchlet=%v", c.kind, c.flows, c.mark), func(b *testing.B) {
			benchmarkPacket(b, c.kind, c.flows, c.mark)
		})
	}
}

func benchmarkPacket(b *testing.B, kind string, flows int, mark bool) {
	s := &wire.Settings{Kept: 1 << 24, Flows: flows, Devices: []wire.Device{{ID: 7, Columns: 1 << 16, Words: 21}}}
	w := newTwin(b, s)
	r := rand.New(rand.NewPCG(1, 2))
	frames := make([][]byte, 20_000)
	for i := range frames {
		var sketchlet []byte
		if mark {
			cells := make([]uint32, 21)
			for k := range cells {
				cells[k] = r.Uint32N(1 << r.IntN(20))
			}
			sketchlet = wire.Append(nil, 7, uint16(i), 0, cells)
		}
		frames[i] = frameOf(kind, uint16(i%max(flows, 1)), sketchlet)
	}
	empty, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "Apache-2.0",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()}})
	if err != nil {
		b.Fatal(err)
	}
	defer empty.Close()
	programs := [2]*ebpf.Program{w.kernel.Tables().Programs[lightguardianProgReceive], empty}
	b.Run("packets", func(b *testing.B) { single(b, programs, frames) })
	b.Run("bursts", func(b *testing.B) { bursts(b, w.kernel, programs, frames[:rotation]) })
}

// single measures packets one by one. packet-ns is the difference of the medians, late-ns of the
// 90th percentiles, and mean-ns of the means, which include interrupts and other work of the
// processor.
func single(b *testing.B, programs [2]*ebpf.Program, frames [][]byte) {
	kerneltest.OnProcessor(b, 0)
	var took [2][]float64
	each := func(frame []byte) {
		for i, p := range programs {
			_, ran, err := p.Benchmark(frame, 1, nil)
			if err != nil {
				b.Fatal(err)
			}
			took[i] = append(took[i], float64(ran.Nanoseconds()))
		}
	}
	for _, f := range frames {
		each(f)
	}
	took = [2][]float64{}
	for n := 0; b.Loop(); n++ {
		each(frames[n%len(frames)])
	}
	report(b, "packet-ns", took)
	late := b.N * 9 / 10
	b.ReportMetric(took[0][late]-took[1][late], "late-ns")
}

// bursts measures many packets in a system call. burst-ns is the difference of the medians, mean-ns
// of the means.
func bursts(b *testing.B, path *Path, programs [2]*ebpf.Program, frames [][]byte) {
	kerneltest.OnProcessor(b, 0)
	var took [2][]float64
	var writers [2]*ebpf.Program
	for i, p := range programs {
		writers[i] = writer(b, p, frames)
	}
	b.ResetTimer()
	for n := 0; n < b.N; n += burst {
		for i, p := range writers {
			_, each, err := p.Benchmark(frames[0], burst, nil)
			if err != nil {
				b.Fatal(err)
			}
			took[i] = append(took[i], float64(each.Nanoseconds()))
		}
		path.Finish(func() {})
	}
	report(b, "burst-ns", took)
}

// report reports the differences of medians and means to the empty program, and the median of the
// empty program.
func report(b *testing.B, name string, took [2][]float64) {
	var mean [2]float64
	for i, all := range took {
		slices.Sort(all)
		for _, ns := range all {
			mean[i] += ns / float64(len(all))
		}
	}
	middle := len(took[0]) / 2
	b.ReportMetric(took[0][middle]-took[1][middle], name)
	b.ReportMetric(mean[0]-mean[1], "mean-ns")
	b.ReportMetric(took[1][middle], "empty-ns")
}

// writer returns a program that writes the begin of one of the frames in turn over the packet, to
// which it gives its length back, and calls another program.
func writer(b *testing.B, next *ebpf.Program, frames [][]byte) *ebpf.Program {
	b.Helper()
	value := make([]byte, 8, 8+rotation*frameBegin) // begins with a count
	for _, f := range frames {
		value = append(value, f[:frameBegin]...)
	}
	templates, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: uint32(len(value)), MaxEntries: 1,
		Contents: []ebpf.MapKV{{Key: uint32(0), Value: value}}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = templates.Close() })
	calls, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1,
		Contents: []ebpf.MapKV{{Key: uint32(0), Value: next}}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = calls.Close() })
	const (
		length, data, end = 0, 76, 80 // fields of __sk_buff
		room              = 1         // BPF_ADJ_ROOM_MAC
	)
	code := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R3, asm.R6, length, asm.Word), asm.Mov.Imm(asm.R2, frameBytes), asm.Sub.Reg(asm.R2, asm.R3),
		asm.JEq.Imm(asm.R2, 0, "write"),
		asm.Mov.Imm(asm.R3, room), asm.Mov.Imm(asm.R4, 0),
		asm.FnSkbAdjustRoom.Call(),
		asm.LoadMem(asm.R2, asm.R6, data, asm.Word).WithSymbol("write"), asm.LoadMem(asm.R3, asm.R6, end, asm.Word),
		asm.Mov.Reg(asm.R4, asm.R2), asm.Add.Imm(asm.R4, frameBegin),
		asm.JGT.Reg(asm.R4, asm.R3, "out"),
		asm.LoadMapValue(asm.R5, templates.FD(), 0),
		asm.LoadMem(asm.R1, asm.R5, 0, asm.DWord), asm.Add.Imm(asm.R1, 1), asm.StoreMem(asm.R5, 0, asm.R1, asm.DWord),
		asm.And.Imm(asm.R1, rotation-1), asm.Mul.Imm(asm.R1, frameBegin), asm.Add.Reg(asm.R5, asm.R1),
	}
	for at := int16(0); at < frameBegin; at += 8 {
		code = append(code, asm.LoadMem(asm.R0, asm.R5, 8+at, asm.DWord), asm.StoreMem(asm.R2, at, asm.R0, asm.DWord))
	}
	code = append(code, asm.Mov.Reg(asm.R1, asm.R6), asm.LoadMapPtr(asm.R2, calls.FD()), asm.Mov.Imm(asm.R3, 0),
		asm.FnTailCall.Call(), asm.Mov.Imm(asm.R0, 0).WithSymbol("out"), asm.Return())
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "Apache-2.0", Instructions: code})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = p.Close() })
	return p
}
