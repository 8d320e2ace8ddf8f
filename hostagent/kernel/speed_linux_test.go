// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/netsketch/netsketch/hostagent/agent"
	"github.com/netsketch/netsketch/hostagent/inband"
	lightguardian "github.com/netsketch/netsketch/hostagent/lightguardian/kernel"
	lightguardianwire "github.com/netsketch/netsketch/hostagent/lightguardian/wire"
	sketchint "github.com/netsketch/netsketch/hostagent/sketchint/kernel"
	sketchintwire "github.com/netsketch/netsketch/hostagent/sketchint/wire"
	univmon "github.com/netsketch/netsketch/hostagent/univmon/kernel"
	univmonwire "github.com/netsketch/netsketch/hostagent/univmon/wire"
	"github.com/netsketch/netsketch/internal/test/kerneltest"
	"github.com/netsketch/netsketch/internal/test/testkit"
)

// variant is what runs on one end of a veth of its own, host0 and so on.
type variant struct {
	name  string
	start func(host string) (io.Closer, error)
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
		{"plain", func(string) (io.Closer, error) { return closers{}, nil }},
		{"empty", startEmpty},
		{"univmon", func(host string) (io.Closer, error) {
			s := &univmonwire.Settings{Packets: univmonwire.Packets{Sent: true, Received: true},
				Sketches: univmonwire.Sketches()}
			settings, wrong := s.Append(nil)
			p, err := univmon.Open(univmon.Config{Interface: host})
			return role(p, err, settings, wrong)
		}},
		{"lightguardian", func(host string) (io.Closer, error) {
			settings, wrong := (&lightguardianwire.Settings{Kept: 1 << 24, Flows: 1 << 16}).Append(nil)
			p, err := lightguardian.Open(lightguardian.Config{Interface: host})
			return role(p, err, settings, wrong)
		}},
		{"sketchint", func(host string) (io.Closer, error) {
			s := &sketchintwire.Settings{Marks: inband.Marks{DSCP: 0x17, DSCPMask: 0x3f}, Interval: 1, Flows: 1 << 18,
				Latencies: 1 << 20, Heavy: 500, HeavyFlows: 4096, Inflation: 5, InflatedFlows: 4096}
			settings, wrong := s.Append(nil)
			p, err := sketchint.Open(sketchint.Config{Interface: host})
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
func startEmpty(host string) (io.Closer, error) {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "Apache-2.0",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()}})
	if err != nil {
		return nil, err
	}
	all := closers{p}
	i, err := net.InterfaceByName(host)
	for _, at := range directions {
		if err == nil {
			var l link.Link
			if l, err = link.AttachTCX(link.TCXOptions{Program: p, Interface: i.Index, Attach: at}); err == nil {
				all = append(all, l)
			}
		}
	}
	return all, err
}

var directions = []ebpf.AttachType{ebpf.AttachTCXEgress, ebpf.AttachTCXIngress}

// pair is the sockets at both ends of a veth, near on the host and far in a namespace of its own.
// The sockets block and do not belong to Go's network poller: while a goroutine of an agent waits
// in the poller, the kernel wakes the goroutine for every packet that a socket of the poller has
// sent.
type pair struct {
	host      string // interface
	near, far unix.SockaddrInet4
	listener  int
	datagram  [2]int // the UDP sockets of near and far
}

// newPair makes a veth with the addresses 10.0.n.1 and 10.0.n.2, and opens the sockets.
func newPair(b *testing.B, n int) *pair {
	b.Helper()
	p := &pair{host: fmt.Sprint("host", n), near: unix.SockaddrInet4{Port: 9, Addr: [4]byte{10, 0, byte(n), 1}},
		far: unix.SockaddrInet4{Port: 9, Addr: [4]byte{10, 0, byte(n), 2}}}
	peer := fmt.Sprint("net", n)
	kerneltest.IP(b, fmt.Sprintf("link add name %s type veth peer name %s", peer, p.host))
	kerneltest.IP(b, fmt.Sprintf("addr add 10.0.%d.1/24 dev %s", n, p.host))
	kerneltest.IP(b, "link set up dev "+p.host)
	opened, end := make(chan error), make(chan struct{})
	commands := []string{"link set up dev " + peer, fmt.Sprintf("addr add 10.0.%d.2/24 dev %s", n, peer)}
	done := testkit.InNamespace(b, peer, commands, func() (err error) {
		if p.listener, err = open(unix.SOCK_STREAM, &p.far); err == nil {
			err = unix.Listen(p.listener, 1)
		}
		if err == nil {
			p.datagram[1], err = open(unix.SOCK_DGRAM, &p.far)
		}
		opened <- err
		<-end // the namespace ends with the goroutine
		return errors.Join(unix.Close(p.listener), unix.Close(p.datagram[1]))
	})
	select {
	case err := <-done:
		b.Fatal(err)
	case err := <-opened:
		if err != nil {
			b.Fatal(err)
		}
	}
	b.Cleanup(func() {
		close(end)
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
	var err error
	if p.datagram[0], err = open(unix.SOCK_DGRAM, &p.near); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = unix.Close(p.datagram[0]) })
	return p
}

// open opens a socket with an address.
func open(kind int, address unix.Sockaddr) (int, error) {
	s, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Bind(s, address)
	}
	return s, err
}

// cost is what was sent or arrived, and the time that it took, in seconds.
type cost struct{ n, time, processor float64 }

// streams counts the bytes that a TCP stream brings in a time, in both directions one after the
// other, and the processor time of the threads that send and receive.
func (p *pair) streams(d time.Duration) (c cost, err error) {
	near, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return c, err
	}
	defer unix.Close(near)
	if err := unix.Connect(near, &p.far); err != nil {
		return c, err
	}
	far, _, err := unix.Accept(p.listener)
	if err != nil {
		return c, err
	}
	defer unix.Close(far)
	for _, direction := range [][2]int{{near, far}, {far, near}} {
		var arrived, took float64
		done := make(chan error)
		go func() {
			var err error
			took = kerneltest.ProcessorTime(func() {
				for b, n := make([]byte, 1<<18), 1; n > 0; arrived += float64(max(n, 0)) {
					n, err = unix.Read(direction[1], b)
				}
			})
			done <- err
		}()
		c.processor += kerneltest.ProcessorTime(func() {
			data := make([]byte, 1<<18)
			for start := time.Now(); time.Since(start) < d/2 && err == nil; {
				_, err = unix.Write(direction[0], data)
			}
			err = errors.Join(err, unix.Shutdown(direction[0], unix.SHUT_WR))
		})
		err = errors.Join(err, <-done)
		c.n += arrived
		c.processor += took
	}
	return c, err
}

// datagrams counts the datagrams of 18 bytes that a socket sends in a time, in both directions one
// after the other, and the processor time of the thread, in which the kernel runs the receiving end
// as well.
func (p *pair) datagrams(d time.Duration) (c cost, err error) {
	for i, to := range []unix.Sockaddr{&p.far, &p.near} {
		c.processor += kerneltest.ProcessorTime(func() {
			for data, start := make([]byte, 18), time.Now(); time.Since(start) < d/2 && err == nil; {
				for range 64 {
					if err = unix.Sendto(p.datagram[i], data, 0, to); err != nil {
						break
					}
					c.n++
				}
			}
		})
	}
	return c, err
}

// BenchmarkRoles prints the speed of TCP, and of small packets of UDP, over veth with each role on
// one end, as ratios to an end without programs and to one with programs that do nothing: by time,
// and by the processor time of both ends, which depends less on other work of the machine. Each
// has a veth of its own. They take turns in slices of a few milliseconds, so that other work meets
// all of them; a round is many slices, a ratio is the median of those of the rounds, and least and
// most are of the rounds. NETSKETCH_ROUNDS is their count.
//
// Then it prints the time of a run of each program with these small packets, by the kernel's
// statistics of programs, which take most of the time of a program that does nothing. A packet runs
// one program of the host: that of its direction.
func BenchmarkRoles(b *testing.B) {
	if !kerneltest.Isolated(b) {
		return
	}
	rounds := kerneltest.Rounds(b)
	all := variants()
	pairs := make([]*pair, len(all))
	for i, v := range all {
		pairs[i] = newPair(b, i)
		running, err := v.start(pairs[i].host)
		if err != nil {
			b.Fatalf("%s: %v", v.name, err)
		}
		b.Cleanup(func() { _ = running.Close() })
	}
	var table strings.Builder
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		fmt.Fprintf(&table, "\n%d rounds, load %s\n", rounds, strings.Fields(string(load))[0])
	}
	for _, m := range []struct {
		name    string
		unit    float64
		what    string
		slice   time.Duration
		measure func(*pair, time.Duration) (cost, error)
	}{
		{"TCP", 1e6, "MB/s", 50 * time.Millisecond, (*pair).streams},
		{"UDP", 1e3, "kpackets/s", 10 * time.Millisecond, (*pair).datagrams},
	} {
		byTime, byProcessor := make([][]float64, len(all)), make([][]float64, len(all))
		for range rounds {
			sums := make([]cost, len(all))
			for n := range int(time.Second / m.slice) {
				for k := range all {
					i := (n + k) % len(all)
					start := time.Now()
					c, err := m.measure(pairs[i], m.slice)
					if err != nil {
						b.Fatalf("%s: %v", all[i].name, err)
					}
					sums[i].n += c.n
					sums[i].time += time.Since(start).Seconds()
					sums[i].processor += c.processor
				}
			}
			for i, c := range sums {
				byTime[i], byProcessor[i] = append(byTime[i], c.n/c.time), append(byProcessor[i], c.n/c.processor)
			}
		}
		for i, v := range all {
			fmt.Fprintf(&table, "%s %-14s %6.0f %s, %6.0f per processor", m.name, v.name,
				kerneltest.Median(byTime[i])/m.unit, m.what, kerneltest.Median(byProcessor[i])/m.unit)
			for _, of := range []struct {
				name  string
				rates [][]float64
			}{{"time", byTime}, {"processor time", byProcessor}} {
				table.WriteString("  by " + of.name)
				for k, base := range []string{"plain", "empty"} {
					middle, least, most := kerneltest.Ratios(of.rates[i], of.rates[k])
					fmt.Fprintf(&table, " %.2f of %s (%.2f to %.2f)", middle, base, least, most)
				}
			}
			table.WriteByte('\n')
		}
	}
	for i, v := range all[1:] {
		each, err := pairs[i+1].programs()
		if err != nil {
			b.Fatalf("%s: %v", v.name, err)
		}
		fmt.Fprintf(&table, "UDP %-14s %s\n", v.name, each)
	}
	fmt.Print(table.String())
	for b.Loop() {
	}
}

// programs returns the time of a run of the programs on the host with small packets, in each
// direction.
func (p *pair) programs() (string, error) {
	i, err := net.InterfaceByName(p.host)
	if err != nil {
		return "", err
	}
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		return "", err
	}
	defer stats.Close()
	if _, err := p.datagrams(time.Second); err != nil {
		return "", err
	}
	var text []string
	for _, at := range directions {
		r, err := link.QueryPrograms(link.QueryOptions{Target: i.Index, Attach: at})
		if err != nil {
			return "", err
		}
		for _, x := range r.Programs {
			program, err := ebpf.NewProgramFromID(x.ID)
			if err != nil {
				return "", err
			}
			s, err := program.Stats()
			if err = errors.Join(err, program.Close()); err != nil {
				return "", err
			}
			text = append(text, fmt.Sprintf("%v %.0f ns", at, float64(s.Runtime.Nanoseconds())/float64(s.RunCount)))
		}
	}
	return strings.Join(text, ", "), nil
}
