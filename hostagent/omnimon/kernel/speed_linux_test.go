// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/internal/test/kerneltest"
)

// Setups of BenchmarkVeth besides the carriers.
const (
	plain = "plain" // without programs
	empty = "empty" // programs at TC that do nothing
)

// manySockets is the count of sockets, and so of flows, of one of the measurements. The files of
// three setups stay below a limit of 20,000.
const manySockets = 5_000

// ends are sockets at both ends of a pair. They block, and do not belong to Go's network poller:
// while a goroutine waits in it, the kernel wakes it for every packet that a socket of the poller
// has sent.
type ends struct {
	listener int   // at host 1
	near     []int // datagrams from host 0 to host 1
	turn     int   // next index into near
}

// The addresses of streams and of datagrams.
var (
	streams   = unix.SockaddrInet4{Port: 10, Addr: address(1, false).As4()}
	datagrams = unix.SockaddrInet4{Port: 9, Addr: streams.Addr}
)

func socket(kind int) (int, error) { return unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0) }

// listen opens the sockets of host 1 and one of host 0.
func (p *pair) listen() *ends {
	e := &ends{near: p.dial(1)}
	p.in(1, func() error {
		far, err := socket(unix.SOCK_DGRAM)
		var wrong error
		e.listener, wrong = socket(unix.SOCK_STREAM)
		if err = errors.Join(err, wrong); err != nil {
			return err
		}
		p.t.Cleanup(func() { _, _ = unix.Close(far), unix.Close(e.listener) })
		return errors.Join(unix.Bind(far, &datagrams), unix.Bind(e.listener, &streams), unix.Listen(e.listener, 1))
	})
	return e
}

// dial opens datagram sockets of host 0.
func (p *pair) dial(count int) (near []int) {
	p.in(0, func() error {
		for range count {
			s, err := socket(unix.SOCK_DGRAM)
			if err != nil {
				return err
			}
			p.t.Cleanup(func() { _ = unix.Close(s) })
			if err := unix.Connect(s, &datagrams); err != nil {
				return err
			}
			near = append(near, s)
		}
		return nil
	})
	return near
}

// cost is what passed, and the time that it took, in seconds.
type cost struct{ n, time, processor float64 }

// stream counts the bytes that a TCP stream brings in a time, and the processor time of the threads
// that send and receive.
func (p *pair) stream(e *ends, d time.Duration) (c cost) {
	var near int
	p.in(0, func() (err error) {
		if near, err = socket(unix.SOCK_STREAM); err == nil {
			err = unix.Connect(near, &streams)
		}
		return err
	})
	defer unix.Close(near)
	far, _, err := unix.Accept(e.listener)
	if err != nil {
		p.t.Fatal(err)
	}
	defer unix.Close(far)
	done := make(chan float64)
	start := time.Now()
	go func() {
		done <- kerneltest.ProcessorTime(func() {
			b := make([]byte, 1<<18)
			for {
				n, err := unix.Read(far, b)
				if n <= 0 || err != nil {
					return
				}
				c.n += float64(n)
			}
		})
	}()
	sent := kerneltest.ProcessorTime(func() {
		data := make([]byte, 1<<18)
		for time.Since(start) < d && err == nil {
			_, err = unix.Write(near, data)
		}
	})
	if err = errors.Join(err, unix.Shutdown(near, unix.SHUT_WR)); err != nil {
		p.t.Error(err)
	}
	c.processor = sent + <-done
	c.time = time.Since(start).Seconds()
	return c
}

// small counts the datagrams of 18 bytes that the near sockets send in turn in a time, and the
// processor time of the thread, in which the kernel runs the receiving end as well.
func (p *pair) small(e *ends, d time.Duration) (c cost) {
	start := time.Now()
	c.processor = kerneltest.ProcessorTime(func() {
		for data := make([]byte, 18); time.Since(start) < d; {
			for range 64 {
				if _, err := unix.Write(e.near[e.turn], data); err != nil {
					p.t.Errorf("sendto: %v", err)
					return
				}
				e.turn = (e.turn + 1) % len(e.near)
				c.n++
			}
		}
	})
	c.time = time.Since(start).Seconds()
	return c
}

// BenchmarkVeth compares what passes between two namespaces without programs, with programs at TC
// that do nothing, and with agents at both ends, for each carrier: one TCP stream, and UDP packets
// with 18 bytes of one socket and of many, of which each is a flow. Each setup has a veth of its
// own. The setups take turns in slices of a few milliseconds, so that other load of the machine
// reaches all of them; a round is many slices. It prints ratios to the setups without programs and
// with empty ones: the median of the rounds, with the least and the most, by time, and by the
// processor time of both ends, which depends less on other load. NETSKETCH_ROUNDS is the count of
// rounds.
//
// Then it prints the time of a packet of UDP in each program, by the kernel's statistics of
// programs, less what they measure of an empty one.
func BenchmarkVeth(b *testing.B) {
	count := kerneltest.Rounds(b)
	setups := []string{plain, empty, string(wire.CarrierOption), string(wire.CarrierTunnel), string(wire.CarrierShim)}
	few := map[string]bool{plain: true, empty: true, string(wire.CarrierOption): true} // of those with many sockets
	pairs, one, many := map[string]*pair{}, map[string]*ends{}, map[string]*ends{}
	for _, setup := range setups {
		p := newPair(b)
		for host := range 2 {
			switch setup {
			case plain:
			case empty:
				p.attachEmpty(host)
			default:
				p.open(host, func(_ *Config, s *wire.Settings) {
					s.Carrier, s.Flows, s.IngressSlots = wire.Carrier(setup), 1<<16, 1<<16
				})
			}
		}
		pairs[setup], one[setup] = p, p.listen()
	}
	for setup := range few {
		many[setup] = &ends{near: pairs[setup].dial(manySockets)}
	}
	var text strings.Builder // b.Log prints ten lines of its own at most
	load, _ := os.ReadFile("/proc/loadavg")
	fmt.Fprintf(&text, "\n%d rounds, load %s\n", count, strings.Join(strings.Fields(string(load))[:1], ""))
	for _, m := range []struct {
		name    string
		unit    float64
		what    string
		ends    map[string]*ends
		slice   time.Duration
		measure func(*pair, *ends, time.Duration) cost
	}{
		{"TCP", 1e6, "MB/s", one, 50 * time.Millisecond, (*pair).stream},
		{"UDP", 1e3, "kpackets/s", one, 10 * time.Millisecond, (*pair).small},
		{fmt.Sprintf("UDP, %d flows", manySockets), 1e3, "kpackets/s", many, 20 * time.Millisecond, (*pair).small},
	} {
		byTime, byProcessor := map[string][]float64{}, map[string][]float64{}
		for r := range count + 1 {
			sums := map[string]*cost{}
			for n := range int(time.Second / m.slice) {
				for k := range setups {
					setup := setups[(n+k)%len(setups)]
					e := m.ends[setup]
					if e == nil {
						continue
					}
					if sums[setup] == nil {
						sums[setup] = new(cost)
					}
					c := m.measure(pairs[setup], e, m.slice)
					sums[setup].n += c.n
					sums[setup].time += c.time
					sums[setup].processor += c.processor
				}
			}
			for setup, c := range sums {
				if r > 0 { // the first round fills tables and caches
					byTime[setup] = append(byTime[setup], c.n/c.time)
					byProcessor[setup] = append(byProcessor[setup], c.n/c.processor)
				}
			}
		}
		for _, setup := range setups {
			if byTime[setup] == nil {
				continue
			}
			fmt.Fprintf(&text, "%s %-7s %.0f %s", m.name, setup, kerneltest.Median(byTime[setup])/m.unit, m.what)
			for _, by := range []struct {
				name  string
				rates map[string][]float64
			}{{"time", byTime}, {"processor time", byProcessor}} {
				text.WriteString("; by " + by.name)
				for _, base := range []string{plain, empty} {
					if base == setup {
						continue
					}
					middle, least, most := kerneltest.Ratios(by.rates[setup], by.rates[base])
					fmt.Fprintf(&text, " %.2f of %s (%.2f to %.2f)", middle, base, least, most)
				}
			}
			text.WriteByte('\n')
		}
	}
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		b.Fatal(err)
	}
	defer stats.Close()
	for _, of := range []map[string]*ends{one, many} {
		nothing := pairs[empty].programs(of[empty])
		for _, setup := range setups[2:] {
			if of[setup] == nil {
				continue
			}
			each := pairs[setup].programs(of[setup])
			fmt.Fprintf(&text, "UDP, %d flows, %s: egress %.0f ns, ingress %.0f ns a packet\n", len(of[setup].near), setup,
				each[0]-nothing[0], each[1]-nothing[1])
		}
	}
	fmt.Print(text.String())
	for b.Loop() { // the rounds are the measurement
	}
}

// programs returns the nanoseconds of a small packet in program egress of host 0 and in program
// ingress of host 1.
func (p *pair) programs(e *ends) (each [2]float64) {
	programs := p.empty
	if p.paths[0] != nil {
		programs = [2]*ebpf.Program{p.paths[0].tables.egress, p.paths[1].tables.ingress}
	}
	var before, after [2]*ebpf.ProgramStats
	read := func(to *[2]*ebpf.ProgramStats) {
		for i, program := range programs {
			var err error
			if to[i], err = program.Stats(); err != nil {
				p.t.Fatal(err)
			}
		}
	}
	read(&before)
	p.small(e, time.Second)
	read(&after)
	for i := range each {
		each[i] = float64(after[i].Runtime-before[i].Runtime) / float64(after[i].RunCount-before[i].RunCount)
	}
	return each
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
		p.empty[host] = prog
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
