// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsketch/netsketch/hostagent/lightguardian/wire"
	"github.com/netsketch/netsketch/internal/test/kerneltest"
	"github.com/netsketch/netsketch/internal/test/testkit"
)

const ethernet = 14 // bytes of a header

// packetWithData returns a packet of TCP, with a right checksum of IPv4.
func packetWithData() []byte {
	return slices.Concat(bytes.Repeat([]byte{0xff}, 6), make([]byte, 6), []byte{8, 0, 0x45, 0, 0, 60, 0, 0, 0x40, 0, 64,
		6, 0x26, 0xba, 10, 0, 0, 1, 10, 0, 0, 2}, make([]byte, 12), []byte{5 << 4}, make([]byte, 7),
		bytes.Repeat([]byte("data"), 5))
}

// TestVeth: the programs remove sketchlets on an interface before there are settings, with an agent
// and without one. The next agent reports what arrived meanwhile.
func TestVeth(t *testing.T) {
	if !kerneltest.Isolated(t) {
		return
	}
	cfg := Config{Interface: "host", Pin: filepath.Join(kerneltest.BPFFS(t), wire.Role), AtOnce: true}
	from, host := kerneltest.Socket(t, "net"), kerneltest.Socket(t, "host")
	to := kerneltest.Stack(t, "10.0.0.2", unix.IPPROTO_TCP)
	plain := packetWithData()
	// The kernel drops what is sent before the link is up, which takes long on a busy machine.
	testkit.Until(t, "the link is up", func() bool {
		if _, err := unix.Write(from, plain); err != nil {
			return false
		}
		n, err := unix.Read(to, make([]byte, 2048))
		return err == nil && n == len(plain)-ethernet
	})
	column := uint16(0)
	expect := func(what string, stripped bool) {
		t.Helper()
		sent := bytes.Clone(plain[:54])
		sent[46] |= 8
		sent = append(wire.Append(sent, 3, column, 0, make([]uint32, 19)), plain[54:]...)
		sent[17] += 86 // the length, and with it the checksum
		sent[25] -= 86
		column++
		if _, err := unix.Write(from, sent); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 2048)
		testkit.Until(t, what, func() bool {
			n, err := unix.Read(to, got[:cap(got)])
			got = got[:max(n, 0)]
			return err == nil && (n == len(sent)-ethernet || n == len(plain)-ethernet && column > 1)
		})
		want := sent
		if stripped { // the checksum changes by the difference
			want = bytes.Clone(plain)
			copy(want[50:52], got[50-ethernet:])
		}
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
		return p
	}
	apply := func(p *Path) {
		t.Helper()
		p.Advance(10)
		if err := p.Apply(encoded(t, defaults())); err != nil {
			t.Fatal(err)
		}
		p.Advance(11)
	}
	columns := func(p *Path, e uint64) (out []uint16) {
		t.Helper()
		p.Advance(e + 1)
		sealed, err := p.Seal(e)
		if err != nil {
			t.Fatal(err)
		}
		r := open(t, sealed)
		for s := range r.All {
			out = append(out, s.Column())
		}
		if len(r.Flows) != 1 || r.Flows[0].Received != 1 || r.Flows[0].Sent != 2 || r.Counters[wire.Sent] < 2 {
			t.Errorf("epoch %d: flows %+v, counters %v", e, r.Flows, r.Counters)
		}
		slices.Sort(out) // the buffers of processors are read one after the other
		return out
	}
	send := func() {
		t.Helper()
		for range 2 {
			if _, err := unix.Write(host, plain); err != nil {
				t.Fatal(err)
			}
		}
	}
	expect("before", false)
	p := start()
	expect("without settings", true)
	apply(p)
	expect("with an agent", true)
	send()
	if got := columns(p, 11); !slices.Equal(got, []uint16{1, 2}) {
		t.Errorf("columns %v", got)
	}
	if err := p.Apply(nil); err != nil {
		t.Fatal(err)
	}
	expect("after the settings", true)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	expect("without an agent", true)
	cfg.AtOnce = false
	p = start()
	expect("with the next agent", true)
	apply(p)
	expect("with settings", true)
	send()
	if got := columns(p, 11); !slices.Equal(got, []uint16{3, 4, 5, 6}) {
		t.Errorf("columns %v", got)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(cfg.Pin); err != nil {
		t.Fatal(err)
	}
	marked := append(wire.Append(bytes.Clone(plain[:54]), 3, 0, 0, make([]uint32, 19)), plain[54:]...)
	marked[46], marked[17], marked[25] = marked[46]|8, marked[17]+86, marked[25]-86
	testkit.Until(t, "without pins, which the kernel removes later", func() bool {
		if _, err := unix.Write(from, marked); err != nil {
			t.Fatal(err)
		}
		n, err := unix.Read(to, make([]byte, 2048))
		return err == nil && n == len(marked)-ethernet
	})
	if out, err := exec.Command("ip", "link", "set", "dev", "host", "down").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if i, err := net.InterfaceByName("host"); err != nil || i.Flags&net.FlagUp != 0 {
		t.Fatalf("interface %+v: %v", i, err)
	}
	if warnings, err := Check(cfg); err != nil || !slices.Equal(warnings, []string{"interface host is down"}) {
		t.Errorf("check: %v, %q", err, warnings)
	}
	cfg.Pin = "/tmp/elsewhere"
	if _, err := Check(cfg); err == nil || !strings.Contains(err.Error(), "not in a BPF file system") {
		t.Errorf("check of pins elsewhere: %v", err)
	}
}

// TestInterfaceAgain: the interface is deleted and created again, without settings and with them.
// The programs remove sketchlets on the new one, and the epoch in between has no report.
func TestInterfaceAgain(t *testing.T) {
	if !kerneltest.Isolated(t) {
		return
	}
	p, err := Open(Config{Interface: "host", Pin: filepath.Join(kerneltest.BPFFS(t), wire.Role), AtOnce: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	kerneltest.Recreate(t)
	p.Advance(10)
	if err := p.Apply(encoded(t, defaults())); err != nil {
		t.Fatal(err)
	}
	p.Advance(11)
	kerneltest.Recreate(t)
	kerneltest.NoReport(t, p, 11)
	plain := packetWithData()
	marked := append(wire.Append(bytes.Clone(plain[:54]), 3, 0, 0, make([]uint32, 19)), plain[54:]...)
	marked[46], marked[17], marked[25] = marked[46]|8, marked[17]+86, marked[25]-86
	from, to := kerneltest.Socket(t, "net"), kerneltest.Stack(t, "10.0.0.2", unix.IPPROTO_TCP)
	testkit.Until(t, "sketchlets are removed again", func() bool {
		if _, err := unix.Write(from, marked); err != nil {
			t.Fatal(err)
		}
		n, err := unix.Read(to, make([]byte, 2048))
		return err == nil && n == len(plain)-ethernet
	})
}

// TestBigTCP: super-packets of TCP above 64 KB, which have no length and over IPv6 a header that is
// not on the wire, count as the packets on the wire, as packets of their flow.
func TestBigTCP(t *testing.T) {
	if !kerneltest.Isolated(t) {
		return
	}
	for _, file := range []string{"all", "default", "host", "net"} {
		_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+file+"/disable_ipv6", []byte("0"), 0o600)
	}
	kerneltest.SegmentBefore(t, "host")
	_ = testkit.IP("link set dev host gso_ipv4_max_size 180000") // iproute2 6.3
	for _, args := range []string{"link set dev host gso_max_size 180000",
		"addr add 10.0.0.1/24 dev host", "addr add fd00::1/64 dev host nodad"} {
		if err := testkit.IP(args); err != nil {
			t.Skipf("super-packets above 64 KB: %v", err)
		}
	}
	p, err := Open(Config{Interface: "host"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	p.Advance(10)
	if err := p.Apply(encoded(t, defaults())); err != nil {
		t.Fatal(err)
	}
	p.Advance(11)
	const size, port = 8 << 20, 7
	listening := make(chan struct{})
	onWire := map[bool]uint64{} // over IPv6 or not
	sink := testkit.InNamespace(t, "net", []string{"link set dev net up", "addr add 10.0.0.2/24 dev net",
		"addr add fd00::2/64 dev net nodad"}, func() error {
		wire := kerneltest.Socket(t, "net")
		err := unix.SetsockoptInt(wire, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 256<<20)
		l4, wrong := net.Listen("tcp4", fmt.Sprintf("10.0.0.2:%d", port))
		l6, wrong6 := net.Listen("tcp6", fmt.Sprintf("[fd00::2]:%d", port))
		close(listening)
		if err := errors.Join(err, wrong, wrong6); err != nil {
			return err
		}
		for _, l := range []net.Listener{l4, l6} {
			c, err := l.Accept()
			if err != nil {
				return err
			}
			if n, err := io.Copy(io.Discard, c); err != nil || n != size {
				return fmt.Errorf("%d bytes arrived: %w", n, err)
			}
			if err := c.Close(); err != nil {
				return err
			}
		}
		frame := make([]byte, 1<<18)
		for {
			n, err := unix.Read(wire, frame)
			if errors.Is(err, unix.EAGAIN) {
				return errors.Join(l4.Close(), l6.Close())
			}
			if err != nil {
				return err
			}
			v6 := frame[12] == 0x86 && frame[20] == 6 && frame[57] == port
			if v6 || frame[12] == 8 && frame[23] == 6 && frame[37] == port {
				if onWire[v6]++; n > 1514 {
					return fmt.Errorf("a frame of %d bytes", n)
				}
			}
		}
	})
	<-listening
	for _, to := range []string{"10.0.0.2", "fd00::2"} {
		c, err := (&net.Dialer{Timeout: time.Minute}).Dial("tcp", net.JoinHostPort(to, fmt.Sprint(port)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(c); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	}
	if err := <-sink; err != nil {
		t.Fatal(err)
	}
	p.Advance(12)
	sealed, err := p.Seal(11)
	if err != nil {
		t.Fatal(err)
	}
	counted := map[bool]uint64{}
	for _, f := range open(t, sealed).Flows {
		if f.Key.Proto == 6 && f.Key.DstPort == port {
			counted[f.Key.V6] += f.Sent
		} else if f.Key.Proto == 0 && f.Key.Src[0] == 0xfd { // and not MLD of the kernel
			t.Errorf("a flow of protocol 0 with %d packets", f.Sent)
		}
	}
	for _, v6 := range []bool{false, true} {
		if counted[v6] != onWire[v6] || counted[v6] < size/1500 {
			t.Errorf("IPv6 %v: %d packets counted, %d on the wire", v6, counted[v6], onWire[v6])
		}
	}
}
