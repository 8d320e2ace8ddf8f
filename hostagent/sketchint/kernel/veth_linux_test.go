// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	hostkernel "github.com/netsketch/netsketch/hostagent/kernel"
	"github.com/netsketch/netsketch/hostagent/sketchint/wire"
	"github.com/netsketch/netsketch/internal/test/inbandtest"
	"github.com/netsketch/netsketch/internal/test/kerneltest"
	"github.com/netsketch/netsketch/internal/test/testkit"
)

// TestVeth: the program removes INT on an interface, also without an agent; the next agent takes
// over, and settings that end remove everything.
func TestVeth(t *testing.T) {
	if kerneltest.Isolated(t) {
		testVeth(t, "receive")
	}
}

// TestVethMerged: the program runs at XDP on an interface on which the kernel merges packets.
func TestVethMerged(t *testing.T) {
	if !kerneltest.Isolated(t) {
		return
	}
	if out, err := exec.Command("ethtool", "-K", "host", "gro", "on").CombinedOutput(); err != nil {
		t.Skipf("ethtool turns on GRO: %v: %s", err, out)
	}
	testVeth(t, "receive_first")
}

const ethernet = 14 // bytes of a header

// broadcast returns a frame to the broadcast address, which every stack takes.
func broadcast(f []byte) []byte {
	copy(f, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	return f
}

func testVeth(t *testing.T, program string) {
	cfg := Config{Interface: "host", Pin: filepath.Join(kerneltest.BPFFS(t), "sketchint")}
	from, to := kerneltest.Socket(t, "net"), kerneltest.Stack(t, "10.9.9.9", unix.IPPROTO_UDP)
	sent := inbandtest.Sent{Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.9.9.9"), Proto: 17,
		SrcPort: 7, DstPort: 80, Payload: make([]byte, 64)}
	marked := (&inbandtest.INT{Version: 2, HopWords: 2, Remaining: 3, Instructions: 0xa000,
		Stack: inbandtest.Hops(2, 1, 1000)}).Mark(sent, dscp)
	// The kernel drops what is sent before the link is up, which takes long on a busy machine.
	early := sent
	early.SrcPort = 9
	first := broadcast(early.Frame())
	testkit.Until(t, "the link is up", func() bool {
		if _, err := unix.Write(from, first); err != nil {
			return false
		}
		n, err := unix.Read(to, make([]byte, 2048))
		return err == nil && n == len(first)-ethernet
	})
	expect := func(what string, want []byte) {
		t.Helper()
		if _, err := unix.Write(from, broadcast(marked.Frame())); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 2048)
		testkit.Until(t, what, func() bool {
			n, err := unix.Read(to, got[:cap(got)])
			got = got[:max(n, 0)]
			return err == nil && !bytes.Equal(got, first[ethernet:])
		})
		if want = want[ethernet:]; !bytes.Equal(got, want) {
			t.Errorf("%s: got %x\nwant %x", what, got, want)
		}
	}
	start := func() *Path {
		t.Helper()
		p, err := Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		p.Advance(10)
		if err := p.Apply(encoded(t, defaults())); err != nil {
			t.Fatal(err)
		}
		p.Advance(11)
		return p
	}
	expect("before", marked.Frame())
	p := start()
	expect("with an agent", sent.Frame())
	if got := p.Tables().hook.Name; got != program {
		t.Errorf("program %s runs, want %s", got, program)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	expect("without an agent", sent.Frame())
	p = start()
	expect("with the next agent", sent.Frame())
	p.Advance(12)
	sealed, err := p.Seal(11)
	if err != nil {
		t.Fatal(err)
	}
	if r := open(t, sealed); r.Counters[wire.WithINT] != 1 || r.Counters[wire.Hops] != 2 {
		t.Errorf("counters %v, want those of one packet", r.Counters)
	}
	if err := p.Apply(nil); err != nil {
		t.Fatal(err)
	}
	expect("after the settings", sent.Frame())
	testkit.Until(t, "the pins are removed", func() bool {
		_, err := os.Stat(cfg.Pin)
		return errors.Is(err, os.ErrNotExist)
	})
	expect("later", marked.Frame())
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if warnings, err := Check(cfg); err != nil || len(warnings) > 0 {
		t.Errorf("check: %v, %q", err, warnings)
	}
	cfg.Pin = "/tmp/elsewhere"
	if _, err := Check(cfg); err == nil || !strings.Contains(err.Error(), "not in a BPF file system") {
		t.Errorf("check of pins elsewhere: %v", err)
	}
}

// TestInterfaceAgain: the interface is deleted and created again. The program removes INT on the
// new one, and the epoch in between has no report.
func TestInterfaceAgain(t *testing.T) {
	if !kerneltest.Isolated(t) {
		return
	}
	p, err := Open(Config{Interface: "host", Pin: filepath.Join(kerneltest.BPFFS(t), "sketchint")})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	p.Advance(10)
	if err := p.Apply(encoded(t, defaults())); err != nil {
		t.Fatal(err)
	}
	p.Advance(11)
	kerneltest.Recreate(t)
	kerneltest.NoReport(t, p, 11)
	sent := inbandtest.Sent{Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.9.9.9"), Proto: 17,
		SrcPort: 7, DstPort: 80, Payload: make([]byte, 64)}
	marked := (&inbandtest.INT{Version: 2, HopWords: 2, Remaining: 3, Instructions: 0xa000,
		Stack: inbandtest.Hops(2, 1, 1000)}).Mark(sent, dscp)
	from, to := kerneltest.Socket(t, "net"), kerneltest.Stack(t, "10.9.9.9", unix.IPPROTO_UDP)
	testkit.Until(t, "INT is removed again", func() bool {
		if _, err := unix.Write(from, broadcast(marked.Frame())); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 2048)
		n, err := unix.Read(to, got)
		return err == nil && bytes.Equal(got[:n], sent.Frame()[ethernet:])
	})
}

// BenchmarkVeth sends packets of 5 hops and 100 bytes from one end of veth to the other: without a
// program, with one that does nothing, and with the data path.
func BenchmarkVeth(b *testing.B) {
	if !kerneltest.Isolated(b) {
		return
	}
	from := kerneltest.Socket(b, "net")
	frame := (&inbandtest.INT{Version: 2, HopWords: 2, Remaining: 3, Instructions: 0xa000,
		Stack: inbandtest.Hops(5, 1, 1000)}).Mark(inbandtest.Sent{Src: netip.MustParseAddr("10.0.0.1"),
		Dst: netip.MustParseAddr("10.9.9.9"), Proto: 6, SrcPort: 7, DstPort: 80, Payload: make([]byte, 100)}, dscp)
	data := frame.Frame()
	send := func(b *testing.B) {
		for b.Loop() {
			if _, err := unix.Write(from, data); err != nil && !errors.Is(err, unix.ENOBUFS) {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mpackets/s")
	}
	b.Run("no program", send)
	b.Run("empty program", func(b *testing.B) {
		empty, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "Apache-2.0",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()}})
		if err != nil {
			b.Fatal(err)
		}
		defer empty.Close()
		a := hostkernel.NewAttachment(Config{Interface: "host"}, nil)
		if err := a.Set(nil, hostkernel.Hook{Program: empty, At: ebpf.AttachXDP}); err != nil {
			b.Fatal(err)
		}
		defer a.Close()
		send(b)
	})
	b.Run("data path", func(b *testing.B) {
		p, err := Open(Config{Interface: "host"})
		if err != nil {
			b.Fatal(err)
		}
		defer p.Close()
		if err := p.Apply(encoded(b, defaults())); err != nil {
			b.Fatal(err)
		}
		send(b)
		stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
		if err != nil {
			b.Fatal(err)
		}
		defer stats.Close()
		for range 10_000 {
			if _, err := unix.Write(from, data); err != nil {
				b.Fatal(err)
			}
		}
		s, err := p.Tables().hook.Program.Stats()
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(s.Runtime)/float64(s.RunCount), "packet-ns")
	})
}
