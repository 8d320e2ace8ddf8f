// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/netsketch/netsketch/hostagent/agent"
	"github.com/netsketch/netsketch/hostagent/inband"
	"github.com/netsketch/netsketch/hostagent/kernel/kerneltest"
	lightguardian "github.com/netsketch/netsketch/hostagent/lightguardian/kernel"
	lightguardianwire "github.com/netsketch/netsketch/hostagent/lightguardian/wire"
	sketchint "github.com/netsketch/netsketch/hostagent/sketchint/kernel"
	sketchintwire "github.com/netsketch/netsketch/hostagent/sketchint/wire"
	univmon "github.com/netsketch/netsketch/hostagent/univmon/kernel"
	univmonwire "github.com/netsketch/netsketch/hostagent/univmon/wire"
	"github.com/netsketch/netsketch/internal/testkit"
)

// variant is what runs on interface host.
type variant struct {
	name  string
	start func() (io.Closer, error) // nil: nothing
}

// variants are nothing, programs that do nothing, and the roles.
func variants() []variant {
	role := func(p agent.DataPath, err error, settings []byte, wrong error) (io.Closer, error) {
		if err := errors.Join(err, wrong); err != nil {
			return nil, err
		}
		p.Advance(10)
		if err := p.Apply(settings); err != nil {
			return nil, errors.Join(err, p.Close())
		}
		p.Advance(11)
		return p, nil
	}
	return []variant{
		{"plain", nil},
		{"empty", startEmpty},
		{"univmon", func() (io.Closer, error) {
			s := &univmonwire.Settings{Packets: univmonwire.Packets{Sent: true, Received: true},
				Sketches: univmonwire.Sketches()}
			settings, wrong := s.Append(nil)
			p, err := univmon.Open(univmon.Config{Interface: "host"})
			return role(p, err, settings, wrong)
		}},
		{"lightguardian", func() (io.Closer, error) {
			settings, wrong := (&lightguardianwire.Settings{Kept: 1 << 24, Flows: 1 << 16}).Append(nil)
			p, err := lightguardian.Open(lightguardian.Config{Interface: "host"})
			return role(p, err, settings, wrong)
		}},
		{"sketchint", func() (io.Closer, error) {
			s := &sketchintwire.Settings{Marks: inband.Marks{DSCP: 0x17, DSCPMask: 0x3f}, Interval: 1, Flows: 1 << 18,
				Latencies: 1 << 20, Heavy: 500, HeavyFlows: 4096, Inflation: 5, InflatedFlows: 4096}
			settings, wrong := s.Append(nil)
			p, err := sketchint.Open(sketchint.Config{Interface: "host"})
			return role(p, err, settings, wrong)
		}},
	}
}

type closers []io.Closer

func (c closers) Close() (err error) {
	for _, x := range c {
		err = errors.Join(err, x.Close())
	}
	return err
}

// startEmpty runs programs that do nothing at TC, in both directions.
func startEmpty() (io.Closer, error) {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "Apache-2.0",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()}})
	if err != nil {
		return nil, err
	}
	all := closers{p}
	i, err := net.InterfaceByName("host")
	for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
		if err == nil {
			var l link.Link
			if l, err = link.AttachTCX(link.TCXOptions{Program: p, Interface: i.Index, Attach: at}); err == nil {
				all = append(all, l)
			}
		}
	}
	return all, err
}

// peer is sockets at the other end of veth, 10.0.0.2, in a namespace of their own.
type peer struct {
	listener net.Listener
	datagram *net.UDPConn
}

// newPeer gives interface host the address 10.0.0.1 and opens a peer.
func newPeer(b *testing.B) *peer {
	if err := testkit.IP("addr add 10.0.0.1/24 dev host"); err != nil {
		b.Fatal(err)
	}
	p, opened, end := new(peer), make(chan struct{}), make(chan struct{})
	commands := []string{"link set dev net up", "addr add 10.0.0.2/24 dev net"}
	done := testkit.InNamespace(b, "net", commands, func() (err error) {
		defer func() {
			if err != nil {
				close(opened)
			}
		}()
		if p.listener, err = net.Listen("tcp4", "10.0.0.2:7"); err != nil {
			return err
		}
		if p.datagram, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 9}); err != nil {
			return err
		}
		close(opened)
		<-end // the namespace ends with the goroutine
		return errors.Join(p.listener.Close(), p.datagram.Close())
	})
	<-opened
	if p.datagram == nil {
		b.Fatal(<-done)
	}
	b.Cleanup(func() {
		close(end)
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
	return p
}

// streams returns how many bytes a TCP stream brings in a time, in both directions one after the
// other, and the processor time of the threads that send and receive, in seconds.
func (p *peer) streams(d time.Duration) (n, processor float64, err error) {
	near, err := net.Dial("tcp4", "10.0.0.2:7")
	if err != nil {
		return 0, 0, err
	}
	defer near.Close()
	far, err := p.listener.Accept()
	if err != nil {
		return 0, 0, err
	}
	defer far.Close()
	for _, direction := range [][2]net.Conn{{near, far}, {far, near}} {
		arrived, took := make(chan float64), make(chan float64)
		go func() {
			bytes := 0.0
			took <- ofThread(func() {
				for b := make([]byte, 1<<18); ; {
					n, err := direction[1].Read(b)
					bytes += float64(n)
					if err != nil {
						break
					}
				}
				arrived <- bytes
			})
		}()
		processor += ofThread(func() {
			data := make([]byte, 1<<18)
			for start := time.Now(); time.Since(start) < d/2 && err == nil; {
				_, err = direction[0].Write(data)
			}
		})
		_ = direction[1].SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		n += <-arrived
		processor += <-took
		_ = direction[1].SetReadDeadline(time.Time{})
	}
	return n, processor, err
}

// datagrams returns how many datagrams of 18 bytes a socket sends in a time, in both directions one
// after the other, and the processor time of the thread, in which the kernel runs the receiving end
// as well.
func (p *peer) datagrams(d time.Duration) (n, processor float64, err error) {
	near, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 9})
	if err != nil {
		return 0, 0, err
	}
	defer near.Close()
	for i, from := range []*net.UDPConn{near, p.datagram} {
		to := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(2 - i)}), 9)
		processor += ofThread(func() {
			for data, start := make([]byte, 18), time.Now(); time.Since(start) < d/2 && err == nil; {
				for range 64 {
					if _, err = from.WriteToUDPAddrPort(data, to); err != nil {
						break
					}
					n++
				}
			}
		})
	}
	return n, processor, err
}

// ofThread returns the processor time of f, in seconds.
func ofThread(f func()) float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	now := func() time.Duration {
		var r unix.Rusage
		_ = unix.Getrusage(unix.RUSAGE_THREAD, &r) // cannot fail
		return time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	before := now()
	f()
	return (now() - before).Seconds()
}

// BenchmarkRoles prints the speed of TCP, and of small packets of UDP, over veth with each role on
// one end, as ratios to an end without programs and to one with programs that do nothing: by time,
// and by the processor time of both ends, which depends less on other work of the machine. Rounds
// of all variants are interleaved, a ratio is the median of those of the rounds, and least and most
// are of the rounds. NETSKETCH_ROUNDS is their count.
func BenchmarkRoles(b *testing.B) {
	if !kerneltest.Isolated(b) {
		return
	}
	rounds := 7
	if text := os.Getenv("NETSKETCH_ROUNDS"); text != "" {
		if _, err := fmt.Sscan(text, &rounds); err != nil {
			b.Fatal(err)
		}
	}
	p := newPeer(b)
	var table strings.Builder
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		fmt.Fprintf(&table, "\n%d rounds, load %s\n", rounds, strings.Fields(string(load))[0])
	}
	for _, m := range []struct {
		name    string
		unit    float64
		what    string
		measure func(time.Duration) (n, processor float64, err error)
	}{{"TCP", 1e6, "MB/s", p.streams}, {"UDP", 1e3, "kpackets/s", p.datagrams}} {
		all := variants()
		byTime, byProcessor := make([][]float64, len(all)), make([][]float64, len(all))
		for n := range rounds {
			for k := range all {
				i := (n + k) % len(all)
				rate, each, err := round(all[i], m.measure)
				if err != nil {
					b.Fatalf("%s: %v", all[i].name, err)
				}
				byTime[i], byProcessor[i] = append(byTime[i], rate), append(byProcessor[i], each)
			}
		}
		for i, v := range all {
			fmt.Fprintf(&table, "%s %-14s %6.0f %-10s", m.name, v.name, median(byTime[i])/m.unit, m.what)
			for _, of := range []struct {
				name  string
				rates [][]float64
			}{{"time", byTime}, {"processor time", byProcessor}} {
				middle, least, most := ratios(of.rates[i], of.rates[0])
				empty, _, _ := ratios(of.rates[i], of.rates[1])
				fmt.Fprintf(&table, "  by %s %.2f of plain (%.2f to %.2f), %.2f of empty", of.name, middle, least, most, empty)
			}
			table.WriteByte('\n')
		}
	}
	fmt.Print(table.String())
	for b.Loop() {
	}
}

// round returns what arrives in a second, and in a second of processor time.
func round(v variant, measure func(time.Duration) (n, processor float64, err error)) (rate, each float64, err error) {
	if v.start != nil {
		running, err := v.start()
		if err != nil {
			return 0, 0, err
		}
		defer running.Close()
	}
	if _, _, err := measure(500 * time.Millisecond); err != nil { // until the work of the start is done
		return 0, 0, err
	}
	start := time.Now()
	n, processor, err := measure(time.Second)
	return n / time.Since(start).Seconds(), n / processor, err
}

// ratios returns the median, the least and the most of the ratios of each round.
func ratios(rates, base []float64) (middle, least, most float64) {
	var r []float64
	for i := range rates {
		r = append(r, rates[i]/base[i])
	}
	slices.Sort(r)
	return median(r), r[0], r[len(r)-1]
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}
