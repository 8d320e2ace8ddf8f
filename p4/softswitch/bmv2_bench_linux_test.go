// SPDX-License-Identifier: Apache-2.0

package softswitch_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/p4/softswitch/afport"
)

// BenchmarkBMv2 holds the soft switch's speed against BMv2's on the same program, packets and
// machine, one core each.
//
//   - bmv2: simple_switch_grpc, all its threads on core 0, its ports on veth pairs. A generator on
//     another core keeps 48 packets under way (BMv2's queues hold 64, and drop in silence), so that
//     the switch is never idle and nothing is lost.
//   - veth: the soft switch in its place, on core 0 too, with AF_PACKET ports on the same pairs and
//     the same generator.
//   - memory: the soft switch without the kernel between, on one core.
//
// On a machine with other work to do packets a second say little, so that each reports packets per
// second of processor time as well, and the ratio, x-bmv2, is of those. BMv2's is of its user time
// alone where ours has no interfaces, and of all its time where it has.
//
// The packets are those of the trace that the program forwards. Without simple_switch_grpc on the
// PATH, or without the right to make interfaces, it measures what there is and says so.
func BenchmarkBMv2(b *testing.B) {
	for _, name := range []string{"forwarding", "univmon-300k", "univmon"} {
		js := forwardAll(b, name)
		prog, err := softswitch.Compile(js)
		if err != nil {
			b.Fatal(err)
		}
		pkts := forwarded(b, prog)
		var bmv2, withKernel float64
		b.Run(name+"/bmv2", func(b *testing.B) {
			path, err := exec.LookPath("simple_switch_grpc")
			if err != nil {
				b.Skip("simple_switch_grpc is not on the PATH: the soft switch alone is measured")
			}
			l := newLinks(b)
			file := filepath.Join(b.TempDir(), "program.json")
			if err := os.WriteFile(file, js, 0o600); err != nil {
				b.Fatal(err)
			}
			cmd := startPinned(b, path, "--log-console", "--log-level", "off", "--thrift-port", freePort(b), "-i",
				"0@"+l.name(0, "s"), "-i", "1@"+l.name(1, "s"),
				file, "--", "--grpc-server-addr", "127.0.0.1:"+freePort(b), "--cpu-port", "255")
			defer func() {
				_ = cmd.Process.Kill()
				_ = cmd.Wait() // returns that the process was killed
			}()
			before := processTime(b, cmd.Process.Pid, true)
			bmv2 = l.drive(b, pkts, func() time.Duration { return processTime(b, cmd.Process.Pid, false) })
			withKernel = float64(b.N) / max(processTime(b, cmd.Process.Pid, true)-before, 1).Seconds()
		})
		b.Run(name+"/veth", func(b *testing.B) {
			l := newLinks(b)
			s := softswitch.New(softswitch.Config{})
			defer s.Close()
			if err := s.Load(prog); err != nil {
				b.Fatal(err)
			}
			undo := pin(b, 0) // the ports' threads are made by this one, and stay where it is
			for i := range uint32(2) {
				p, err := afport.Open(s, i, afport.Config{Interface: l.name(int(i), "s")})
				if err != nil {
					undo()
					b.Fatal(err)
				}
				defer p.Close()
			}
			undo()
			rate := l.drive(b, pkts, func() time.Duration { return softswitch.CPUTime() - threadTime() })
			if withKernel > 0 {
				b.ReportMetric(rate/withKernel, "x-bmv2")
			}
		})
		b.Run(name+"/memory", func(b *testing.B) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			s := softswitch.New(softswitch.Config{})
			defer s.Close()
			if err := s.Load(prog); err != nil {
				b.Fatal(err)
			}
			for i := range uint32(2) {
				if err := s.AddPort(i, softswitch.Port{Tx: func([]byte, time.Duration) {}}); err != nil {
					b.Fatal(err)
				}
			}
			before := softswitch.CPUTime()
			b.ResetTimer()
			for i := range b.N {
				s.Inject(0, pkts[i%len(pkts)], time.Duration(i))
			}
			used := max(softswitch.CPUTime()-before, 1)
			ours := float64(b.N) / used.Seconds()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "packets/s")
			b.ReportMetric(ours, "packets/cpu-s")
			if bmv2 > 0 {
				b.ReportMetric(ours/bmv2, "x-bmv2")
			}
		})
	}
}

// forwardAll is one of the programs with routes that lead to port 1.
func forwardAll(b *testing.B, name string) []byte {
	b.Helper()
	js, err := os.ReadFile(filepath.Join("..", "compiled", name+".json"))
	if err != nil {
		b.Fatal(err)
	}
	var tree map[string]any
	if err := json.Unmarshal(js, &tree); err != nil {
		b.Fatal(err)
	}
	forward := map[any]bool{}
	for _, a := range tree["actions"].([]any) {
		if a := a.(map[string]any); a["name"] == "ingress.forwarding.forward" {
			forward[a["id"]] = true
		}
	}
	routes := 0
	for _, p := range tree["pipelines"].([]any) {
		for _, t := range p.(map[string]any)["tables"].([]any) {
			t := t.(map[string]any)
			if t["name"] != "ingress.forwarding.ipv4_lpm" && t["name"] != "ingress.forwarding.ipv6_lpm" {
				continue
			}
			for _, id := range t["action_ids"].([]any) {
				if forward[id] {
					t["default_entry"] = map[string]any{"action_id": id, "action_const": false,
						"action_data": []string{"0x1", "0x2", "0x3"}, "action_entry_const": false}
					routes++
				}
			}
		}
	}
	if routes != 2 {
		b.Fatalf("%s: %d routes, not 2", name, routes)
	}
	if js, err = json.Marshal(tree); err != nil {
		b.Fatal(err)
	}
	return js
}

// forwarded are the packets of the trace that leave on port 1 and fit the interfaces.
func forwarded(b *testing.B, prog *softswitch.Program) (out [][]byte) {
	b.Helper()
	s := softswitch.New(softswitch.Config{})
	defer s.Close()
	if err := s.Load(prog); err != nil {
		b.Fatal(err)
	}
	n := 0
	for i := range uint32(2) {
		if err := s.AddPort(i, softswitch.Port{Tx: func([]byte, time.Duration) { n += int(i) }}); err != nil {
			b.Fatal(err)
		}
	}
	for _, p := range softswitch.SharedTrace(b, 20000) {
		if n = 0; len(p) >= 60 && len(p) <= 1514 {
			s.Inject(0, p, 0)
		}
		if n == 1 {
			out = append(out, p)
		}
	}
	return out
}

// links are two veth pairs: ends "s" are the switch's, ends "h" the generator's.
type links struct{ sockets [2]int }

func (l *links) name(i int, end string) string {
	return fmt.Sprintf("nsb%d%s%d", os.Getpid()%100000, end, i)
}

func newLinks(b *testing.B) *links {
	b.Helper()
	l := &links{}
	for i := range l.sockets {
		ends := []string{l.name(i, "h"), l.name(i, "s")}
		if out, err := exec.CommandContext(b.Context(), "ip", "link", "add", ends[0], "type", "veth", "peer", "name",
			ends[1]).CombinedOutput(); err != nil {
			b.Skipf("no veth pairs can be made here: %v: %s", err, out)
		}
		b.Cleanup(func() { _ = exec.Command("ip", "link", "del", ends[0]).Run() })
		for _, e := range ends {
			// no frames of the kernel's own
			_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+e+"/disable_ipv6", []byte("1"), 0)
			if out, err := exec.CommandContext(b.Context(), "ip", "link", "set", e, "up", "promisc",
				"on").CombinedOutput(); err != nil {
				b.Fatalf("%v: %s", err, out)
			}
		}
		l.sockets[i] = packetSocket(b, ends[0])
	}
	return l
}

func packetSocket(b *testing.B, name string) int {
	b.Helper()
	dev, err := net.InterfaceByName(name)
	if err != nil {
		b.Fatal(err)
	}
	const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, all)
	if err != nil {
		b.Skipf("no packet sockets here: %v", err)
	}
	b.Cleanup(func() { _ = unix.Close(fd) })
	if err := errors.Join(
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: dev.Index}),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
	); err != nil {
		b.Fatal(err)
	}
	return fd
}

const window = 48

// drive sends packets into port 0 as fast as they come out of port 1, and returns how many do in a
// second of the switch's processor time.
func (l *links) drive(b *testing.B, pkts [][]byte, cpu func() time.Duration) float64 {
	b.Helper()
	defer pin(b, runtime.NumCPU()-1)()
	buf := make([]byte, 2048)
	got := func() (n int) {
		for {
			// Recvfrom would make garbage, whose collection would count as processor time of the switch
			if k, err := unix.Read(l.sockets[1], buf); err != nil || k == 0 {
				return n
			}
			n++
		}
	}
	// until the switch is there
	for deadline := time.Now().Add(20 * time.Second); got() == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatal("the switch forwards nothing")
		}
		_ = unix.Send(l.sockets[0], pkts[0], 0)
	}
	for quiet := 0; quiet < 10; quiet++ {
		time.Sleep(10 * time.Millisecond)
		if got() > 0 {
			quiet = 0
		}
	}
	sent, received, lost := 0, 0, 0
	runtime.GC() // so that no running collection counts as processor time of the switch
	b.ResetTimer()
	before, last := cpu(), time.Now()
	for received+lost < b.N {
		for sent < b.N && sent-received-lost < window {
			if err := unix.Send(l.sockets[0], pkts[sent%len(pkts)], 0); err != nil {
				break
			}
			sent++
		}
		if n := got(); n > 0 {
			received += n
			last = time.Now()
		} else if time.Since(last) > 100*time.Millisecond {
			lost, last = sent-received, time.Now()
		}
	}
	rate := float64(received) / max(cpu()-before, 1).Seconds()
	b.ReportMetric(float64(received)/b.Elapsed().Seconds(), "packets/s")
	b.ReportMetric(rate, "packets/cpu-s")
	b.ReportMetric(float64(lost), "lost")
	return rate
}

// pin keeps the goroutine, and what it starts, on one core until the function it returns is called.
func pin(b *testing.B, core int) (undo func()) {
	b.Helper()
	runtime.LockOSThread()
	var before, one unix.CPUSet
	one.Set(core)
	if err := errors.Join(unix.SchedGetaffinity(0, &before), unix.SchedSetaffinity(0, &one)); err != nil {
		b.Fatal(err)
	}
	return func() {
		_ = unix.SchedSetaffinity(0, &before)
		runtime.UnlockOSThread()
	}
}

func startPinned(b *testing.B, path string, args ...string) *exec.Cmd {
	b.Helper()
	defer pin(b, 0)()
	cmd := exec.Command(path, args...)
	cmd.Dir = b.TempDir()
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	return cmd
}

// processTime returns the processor time of a process in hundredths of a second: the time in user
// mode and, if kernel is set, also the time in the kernel.
func processTime(b *testing.B, pid int, kernel bool) time.Duration {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		b.Fatal(err)
	}
	if !kernel {
		system = 0
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

// threadTime returns the processor time of the calling thread, which is the generator's.
func threadTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func freePort(b *testing.B) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	return port
}
