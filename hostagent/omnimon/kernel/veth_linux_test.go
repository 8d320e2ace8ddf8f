// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/netsketch/netsketch/hostagent/omnimon/header"
	"github.com/netsketch/netsketch/hostagent/omnimon/query"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/internal/test/testkit"
)

// pair is two network namespaces with a link between them: host 0 and host 1 of defaults.
type pair struct {
	t     testing.TB
	names [2]string // names of the namespaces
	paths [2]*Path
	pins  [2]string
	empty [2]*ebpf.Program // programs that attachEmpty has attached
}

const (
	vethMTU = 1600
	headers = 12 // bytes
)

var pairs atomic.Int32 // pairs that this process has made

func newPair(t testing.TB) *pair {
	needBPF(t)
	for _, tool := range []string{"ip"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	p := &pair{t: t}
	number := pairs.Add(1)
	for i := range p.names {
		p.names[i] = fmt.Sprintf("netsketch-test-%d-%d-%d", os.Getpid(), number, i)
		if out, err := exec.Command("ip", "netns", "add", p.names[i]).CombinedOutput(); err != nil {
			t.Skipf("no network namespace: %s", out)
		}
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", p.names[i]).Run() })
	}
	p.ip("link", "add", "eth0", "mtu", strconv.Itoa(vethMTU), "netns", p.names[0], "type", "veth",
		"peer", "name", "eth0", "mtu", strconv.Itoa(vethMTU), "netns", p.names[1])
	for i, name := range p.names {
		p.ip("-n", name, "link", "set", "eth0", "up")
		p.ip("-n", name, "addr", "add", fmt.Sprintf("10.0.0.%d/24", i+1), "dev", "eth0")
		p.ip("-n", name, "addr", "add", fmt.Sprintf("2001:db8::%d/64", i+1), "dev", "eth0", "nodad")
		p.ip("-n", name, "route", "change", "10.0.0.0/24", "dev", "eth0", "mtu", "1500")
		p.ip("-n", name, "-6", "route", "add", "2001:db8::/64", "dev", "eth0", "mtu", "1500", "metric", "1")
	}
	return p
}

func (p *pair) ip(args ...string) {
	p.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		p.t.Fatalf("ip %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// in runs f in the namespace of a host.
func (p *pair) in(host int, f func() error) {
	p.t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		done <- func() error {
			ns, err := os.Open("/run/netns/" + p.names[host])
			if err != nil {
				return err
			}
			defer ns.Close()
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				return err
			}
			return f()
		}()
	}()
	if err := <-done; err != nil {
		p.t.Fatal(err)
	}
}

// open starts the data path of a host in epoch 100.
func (p *pair) open(host int, change func(*Config, *wire.Settings)) {
	p.t.Helper()
	cfg := Config{Interface: "eth0", DisableOffloads: true, manual: true, Pin: p.pins[host]}
	s := defaults(host)
	if change != nil {
		change(&cfg, s)
	}
	p.in(host, func() (err error) {
		if p.paths[host], err = Open(cfg); err != nil {
			return err
		}
		path := p.paths[host]
		path.Advance(100)
		path.SetLeases(allLeases(s))
		return path.Apply(encoded(p.t, s))
	})
	path := p.paths[host]
	p.t.Cleanup(func() {
		if path == p.paths[host] {
			_ = path.Close()
		}
	})
}

// receiveBuffer is the receive buffer of the tests' TCP connections. Its packets fit into the 256
// places of a veth queue, so that none is lost if a busy machine empties the queue late.
const receiveBuffer = 64 << 10

// transfer sends n bytes over one TCP connection from host 0 to host 1, which then sends them back.
func (p *pair) transfer(n int64, v6 bool) {
	p.t.Helper()
	var l net.Listener
	p.in(1, func() (err error) {
		l, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(address(1, v6), 0)))
		return err
	})
	defer l.Close()
	served := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			served <- err
			return
		}
		defer c.Close()
		if err = c.(*net.TCPConn).SetReadBuffer(receiveBuffer); err == nil {
			var all []byte
			if all, err = io.ReadAll(io.LimitReader(c, n)); err == nil {
				_, err = c.Write(all)
			}
		}
		served <- err
	}()
	var c *net.TCPConn
	p.in(0, func() (err error) {
		c, err = net.DialTCP("tcp", nil, l.Addr().(*net.TCPAddr))
		return err
	})
	defer c.Close()
	if err := c.SetReadBuffer(receiveBuffer); err != nil {
		p.t.Fatal(err)
	}
	go func() { _, _ = c.Write(make([]byte, n)) }()
	if got, err := io.Copy(io.Discard, c); err != nil || got != n {
		p.t.Fatalf("%d of %d bytes came back: %v", got, n, err)
	}
	if err := <-served; err != nil {
		p.t.Fatal(err)
	}
}

// totals is what a report counts.
type totals struct {
	counters       [wire.Counters]uint64
	sent, received int64 // packets
	sentBytes      int64
	untagged       wire.Untagged
	receivedBytes  int64
	flows          int
	queries        []wire.QueryRow
	egress         map[uint32]wire.Values
	ingress        map[[2]uint32]wire.Values
}

func (p *pair) seal(host int, e uint64) (sum totals) {
	p.t.Helper()
	path := p.paths[host]
	path.Advance(e + 1)
	g, err := path.Seal(e)
	if err != nil || g == nil {
		p.t.Fatalf("epoch %d of host %d: %v", e, host, err)
	}
	defer g.Release()
	r, err := wire.Open(g.Append(nil))
	if err != nil {
		p.t.Fatal(err)
	}
	sum.counters = r.Counters
	sum.egress, sum.ingress = map[uint32]wire.Values{}, map[[2]uint32]wire.Values{}
	var row wire.EgressRow
	var v wire.Values
	for r.NextEgress(&row) {
		if err := v.Decode(row.Values); err != nil {
			p.t.Fatal(err)
		}
		sum.egress[row.Index] = v
		sum.untagged.Packets += row.Untagged.Packets
		sum.untagged.Bytes += row.Untagged.Bytes
		sum.sent += v[wire.Packets]
		sum.sentBytes += v[wire.Bytes]
		sum.flows++
	}
	for {
		from, ok := r.NextHost()
		if !ok {
			break
		}
		var in wire.IngressRow
		for r.NextIngress(&in) {
			if err := v.Decode(in.Values); err != nil {
				p.t.Fatal(err)
			}
			sum.ingress[[2]uint32{uint32(from), in.Index}] = v
			sum.received += v[wire.Packets]
			sum.receivedBytes += v[wire.Bytes]
		}
	}
	var q wire.QueryRow
	for r.NextQuery(&q) {
		sum.queries = append(sum.queries, q)
	}
	if r.Err() != nil {
		p.t.Fatal(r.Err())
	}
	return sum
}

// statistic reads a counter of the interface of a host.
func (p *pair) statistic(host int, name string) (n uint64) {
	p.t.Helper()
	out, err := exec.Command("ip", "netns", "exec", p.names[host], "cat",
		filepath.Join("/sys/class/net/eth0/statistics", name)).Output()
	if err != nil {
		p.t.Skipf("no counters of the interface: %v", err)
	}
	n, err = strconv.ParseUint(strings.TrimSpace(string(out)), 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

// totalsQuery adds up all packets that a host sends.
const totalsQuery = "x = packets.reduce(keys=(proto), n=count(), bytes=sum(length))"

func totalsOf(t testing.TB, row *wire.QueryRow) (packets, bytes int64) {
	t.Helper()
	for _, v := range tuplesOf(t, row, totalsQuery) {
		packets, bytes = packets+v[1].Int, bytes+v[2].Int
	}
	return packets, bytes
}

// tuplesOf returns the tuples of a query that hosts run.
func tuplesOf(t testing.TB, row *wire.QueryRow, text string) []query.Tuple {
	t.Helper()
	q, err := query.Parse("query", text)
	if err != nil {
		t.Fatal(err)
	}
	tuples, err := q.Place().Steps[row.Step].DecodeTuples(row.Tuples)
	if err != nil || row.Problem != "" || row.Dropped > 0 {
		t.Fatalf("query: %+v, %v", row, err)
	}
	return tuples
}

// TestTCPOverVeth: two hosts exchange TCP streams. What one counts as sent, the other counts as
// received, and both equal the counters of the interfaces. The kernel takes long to check the
// programs of each host, so that a case has several settings; TestTagged has none of them.
func TestTCPOverVeth(t *testing.T) {
	for name, change := range map[string]func(*Config, *wire.Settings){
		"option": func(_ *Config, s *wire.Settings) { s.Carrier = wire.CarrierOption },
		"tunnel, queries": func(_ *Config, s *wire.Settings) {
			s.Carrier = wire.CarrierTunnel
			s.Queries = []wire.Query{{Text: totalsQuery}}
		},
		"maxima and a string": func(_ *Config, s *wire.Settings) {
			s.Match = "zorro"
			s.Extremes = []wire.Extreme{{Field: wire.FieldLength}, {Field: wire.FieldWindow}}
		},
		"clsact, queries": func(c *Config, s *wire.Settings) {
			c.Clsact = true
			s.Queries = []wire.Query{{Text: totalsQuery}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t)
			var before [2]uint64
			for host := range 2 {
				p.open(host, change)
			}
			for host := range 2 {
				before[host] = p.statistic(host, "tx_packets")
			}
			p.transfer(3<<20, false)
			p.transfer(1<<20, true)
			var sums [2]totals
			var device [2]uint64
			for host := range 2 {
				device[host] = p.statistic(host, "tx_packets") - before[host]
			}
			for host := range 2 {
				sums[host] = p.seal(host, 100)
			}
			for host, s := range sums {
				peer := sums[1-host]
				t.Logf("host %d: sent %d packets in %d flows, received %d; counters %v",
					host, s.sent, s.flows, s.received, s.counters)
				for index, v := range s.egress {
					if got := peer.ingress[[2]uint32{uint32(host), index}]; got != v {
						t.Errorf("host %d, flow %d: sent %v, received %v", host, index, v, got)
					}
				}
				if len(s.queries) > 0 {
					if n, bytes := totalsOf(t, &s.queries[0]); n != s.sent || bytes != s.sentBytes {
						t.Errorf("host %d: query: %d packets, %d bytes; flows: %d packets, %d bytes", host, n, bytes, s.sent,
							s.sentBytes)
					}
				}
				for c, n := range s.counters {
					if n > 0 && wire.Counter(c).Inexact() {
						t.Errorf("host %d: %d packets %v", host, n, wire.Counter(c))
					}
				}
				// Packets of neighbor discovery, for example, have no flow, and are also sent between the
				// two readings. With other carriers than the default, veth passes packets before they are
				// segmented, so the device counts fewer.
				rest := s.counters[wire.NotIP] + s.counters[wire.Foreign]
				if sent := uint64(s.sent); s.flows < 2 || p.paths[host].settings.Carrier == "" && (sent > device[host] ||
					sent+rest+16 < device[host]) {
					t.Errorf("host %d: counted %d packets in %d flows and %d others; the device sent %d", host, s.sent, s.flows,
						rest, device[host])
				}
				if s.sentBytes < 4<<20 {
					t.Errorf("host %d: %d bytes", host, s.sentBytes)
				}
			}
		})
	}
}

// queueMemory sends n bytes over TCP from host 0 to host 1. It returns how much memory they take
// in the queue of the socket there.
func (p *pair) queueMemory(n int, v6 bool) (memory uint32) {
	p.t.Helper()
	var l net.Listener
	p.in(1, func() (err error) {
		l, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(address(1, v6), 0)))
		return err
	})
	defer l.Close()
	var c net.Conn
	p.in(0, func() (err error) {
		c, err = net.Dial("tcp", l.Addr().String())
		return err
	})
	defer c.Close()
	if _, err := c.Write(make([]byte, n)); err != nil {
		p.t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		p.t.Fatal(err)
	}
	defer server.Close()
	raw, err := server.(*net.TCPConn).SyscallConn()
	if err != nil {
		p.t.Fatal(err)
	}
	buffer := make([]byte, n)
	err = errors.Join(raw.Read(func(fd uintptr) bool { // until all is there
		got, _, err := unix.Recvfrom(int(fd), buffer, unix.MSG_PEEK)
		return err == nil && got == n
	}), raw.Control(func(fd uintptr) {
		var words [unix.SK_MEMINFO_VARS]uint32
		size := uint32(unsafe.Sizeof(words))
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_MEMINFO,
			uintptr(unsafe.Pointer(&words)), uintptr(unsafe.Pointer(&size)), 0)
		if errno != 0 {
			p.t.Error(errno)
		}
		memory = words[unix.SK_MEMINFO_RMEM_ALLOC]
	}))
	if err != nil {
		p.t.Fatal(err)
	}
	return memory
}

// TestQueueMemory: data that arrived with a header takes no more memory in the queue of a socket
// than data that arrived without. A receiver that runs out of memory discards packets that its
// window allowed, and with them their acknowledgments, so that a connection can hang whose ends
// both send.
func TestQueueMemory(t *testing.T) {
	const bytes = 40_000
	for _, carrier := range []wire.Carrier{wire.CarrierShim, wire.CarrierOption, wire.CarrierTunnel} {
		for _, single := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, single segments %v", carrier, single), func(t *testing.T) {
				p := newPair(t)
				var plain, carried [2]uint32
				for i, v6 := range []bool{false, true} {
					plain[i] = p.queueMemory(bytes, v6)
				}
				for host := range 2 {
					p.open(host, func(_ *Config, s *wire.Settings) {
						s.Carrier = carrier
						if single {
							s.Extremes = []wire.Extreme{{Field: wire.FieldLength}}
						}
					})
				}
				for i, v6 := range []bool{false, true} {
					carried[i] = p.queueMemory(bytes, v6)
				}
				t.Log(plain, carried)
				for i, n := range carried {
					if n > plain[i]+plain[i]/8 {
						t.Errorf("%d bytes take %d bytes of memory, without a header %d", bytes, n, plain[i])
					}
				}
			})
		}
	}
}

// TestJumbo: on links and routes with an MTU of 9,000 bytes, where the MTU alone limits the MSS,
// segments are as long as fits with the carrier, none leaves without it, and the sums of both ends
// agree.
func TestJumbo(t *testing.T) {
	const mtu = 9000
	for _, carrier := range []wire.Carrier{wire.CarrierOption, wire.CarrierTunnel, wire.CarrierShim} {
		t.Run(string(carrier), func(t *testing.T) {
			p := newPair(t)
			for host, name := range p.names {
				p.ip("-n", name, "link", "set", "eth0", "mtu", strconv.Itoa(mtu))
				p.ip("-n", name, "route", "change", "10.0.0.0/24", "dev", "eth0", "mtu", strconv.Itoa(mtu))
				p.ip("-n", name, "-6", "route", "change", "2001:db8::/64", "dev", "eth0", "mtu", strconv.Itoa(mtu), "metric", "1")
				p.open(host, func(_ *Config, s *wire.Settings) {
					s.Carrier = carrier
					s.Extremes = []wire.Extreme{{Field: wire.FieldLength}} // then the kernel segments before
				})
			}
			p.transfer(1<<20, false)
			p.transfer(1<<20, true)
			sums := [2]totals{p.seal(0, 100), p.seal(1, 100)}
			for host, s := range sums {
				if s.untagged.Packets > 0 || s.counters[wire.NoRoom] > 0 || s.flows < 2 {
					t.Errorf("host %d: %d packets without a header, counters %v, %d flows", host, s.untagged.Packets, s.counters,
						s.flows)
				}
				longest := map[int64]bool{}
				for index, v := range s.egress {
					if got := sums[1-host].ingress[[2]uint32{uint32(host), index}]; got != v {
						t.Errorf("host %d, flow %d: sent %v, received %v", host, index, v, got)
					}
					longest[v[wire.FirstExtreme]] = true
				}
				settings := p.paths[host].settings
				for _, v6 := range []bool{false, true} {
					if want := int64(mtu - overhead(settings, v6)); !longest[want] {
						t.Errorf("host %d: the longest packets have %v bytes, want %d (IPv6: %v)", host, longest, want, v6)
					}
				}
			}
		})
	}
}

// TestTagged: frames with VLAN tags reach the stack without the header and are counted. VLAN 0
// needs no VLAN device.
func TestTagged(t *testing.T) {
	p := newPair(t)
	p.open(1, nil)
	var l *net.UDPConn
	var mac net.HardwareAddr
	p.in(1, func() (err error) {
		if l, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(address(1, false), 0))); err != nil {
			return err
		}
		i, err := net.InterfaceByName("eth0")
		if err == nil {
			mac = i.HardwareAddr
		}
		return err
	})
	defer l.Close()
	port := uint16(l.LocalAddr().(*net.UDPAddr).Port)
	frame := ipFrame(address(0, false), address(1, false), packet.ProtocolUDP, 1, port, 0, 0, []byte("hello"))
	copy(frame, mac)
	sum := uint32(0)
	for i := 14; i < 34; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(frame[i:]))
	}
	binary.BigEndian.PutUint16(frame[24:], ^uint16(sum+sum>>16))
	udp := frame[34+4:]
	binary.BigEndian.PutUint16(udp, uint16(8+len("hello")))
	layout := header.Layout{EtherType: header.DefaultEtherType, Slots: 2}
	tags := [][]byte{nil, {0x81, 0, 0, 0}, {0x88, 0xa8, 0, 0, 0x81, 0, 0, 0}}
	buffer := make([]byte, 100)
	for i, tag := range tags {
		f := packet.NewFrame(slices.Concat(frame[:12], tag, frame[12:]))
		link := packet.Link{TypeAt: 12 + len(tag), Type: packet.EtherTypeIPv4}
		layout.Insert(f, link, &header.Header{Epoch: 100, HostIndex: uint32(i)})
		p.in(0, func() error { return sendRaw("eth0", f.Bytes()) })
		_ = l.SetReadDeadline(time.Now().Add(time.Minute))
		if n, err := l.Read(buffer); err != nil || string(buffer[:n]) != "hello" {
			t.Fatalf("%d tags: received %q, %v", len(tag)/4, buffer[:n], err)
		}
	}
	s := p.seal(1, 100)
	if s.received != int64(len(tags)) || len(s.ingress) != len(tags) || s.counters[wire.Malformed] > 0 {
		t.Errorf("%d packets counted in %d flows, want %d; counters %v", s.received, len(s.ingress), len(tags), s.counters)
	}
}

func sendRaw(device string, frame []byte) error {
	i, err := net.InterfaceByName(device)
	if err != nil {
		return err
	}
	s, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	return unix.Sendto(s, frame, 0, &unix.SockaddrLinklayer{Ifindex: i.Index})
}

// TestAdopt: packets are counted while no process has the data path. The next process reports the
// epochs that passed, and goes on with the same flows.
func TestAdopt(t *testing.T) {
	const bpffs = "/sys/fs/bpf"
	var fs unix.Statfs_t
	if err := unix.Statfs(bpffs, &fs); err != nil || uint32(fs.Type) != unix.BPF_FS_MAGIC {
		dir := t.TempDir()
		if err := unix.Mount("bpf", dir, "bpf", 0, ""); err != nil {
			t.Skipf("no BPF file system: %v", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
		adoptIn(t, dir)
		return
	}
	adoptIn(t, bpffs)
}

func adoptIn(t *testing.T, bpffs string) {
	p := newPair(t)
	for host := range 2 {
		p.pins[host] = fmt.Sprintf("%s/netsketch-test-%d/%d", bpffs, os.Getpid(), host)
	}
	t.Cleanup(func() { _ = os.RemoveAll(filepath.Dir(p.pins[0])) })
	withQuery := func(_ *Config, s *wire.Settings) { s.Queries = []wire.Query{{Text: totalsQuery}} }
	for host := range 2 {
		p.open(host, withQuery)
	}
	p.transfer(1<<20, false)
	for host := range 2 {
		if err := p.paths[host].Close(); err != nil {
			t.Fatal(err)
		}
	}
	p.transfer(1<<20, false) // no process has the data path
	for host := range 2 {
		p.open(host, withQuery)
		if e := p.paths[host].Epoch(); e != 100 {
			t.Errorf("host %d is in epoch %d, want 100", host, e)
		}
	}
	p.transfer(1<<20, false)
	var sums [2]totals
	for host := range 2 {
		sums[host] = p.seal(host, 100)
	}
	for host, s := range sums {
		if s.flows < 3 || s.sentBytes < 3<<20 || s.sent != sums[1-host].received {
			t.Errorf("host %d: %d flows, %d bytes, sent %d packets, received %d", host, s.flows, s.sentBytes, s.sent,
				sums[1-host].received)
		}
		for c, n := range s.counters {
			if n > 0 && wire.Counter(c).Inexact() {
				t.Errorf("host %d: %d packets %v", host, n, wire.Counter(c))
			}
		}
	}
	// Without an agent, epochs advance by packets of other hosts.
	if err := p.paths[1].Close(); err != nil {
		t.Fatal(err)
	}
	p.paths[0].Advance(103)
	p.transfer(1<<16, false)
	p.open(1, withQuery)
	if e := p.paths[1].Epoch(); e != 103 {
		t.Errorf("host 1 is in epoch %d, want 103", e)
	}
	if a, b := p.seal(0, 103), p.seal(1, 103); a.sent != b.received || a.sent == 0 {
		t.Errorf("sent %d, received %d", a.sent, b.received)
	} else if n, _ := totalsOf(t, &a.queries[0]); n != a.sent {
		t.Errorf("sent %d, query: %d", a.sent, n)
	} else if b.queries[0].Problem == "" {
		t.Error("the query has a result in an epoch that began without the agent")
	}
	p.transfer(1<<16, false)
	if b := p.seal(1, 104); b.sent == 0 {
		t.Error("no packets in epoch 104")
	} else if n, _ := totalsOf(t, &b.queries[0]); n != b.sent {
		t.Errorf("sent %d, query: %d", b.sent, n)
	}
	for host := range 2 {
		p.in(host, func() error { return p.paths[host].Apply(nil) })
	}
	p.transfer(1<<16, false)
	for host := range 2 {
		testkit.Until(t, "what arrives is stripped until leases have ended, then the pins are removed", func() bool {
			_, err := os.Stat(p.pins[host])
			return errors.Is(err, os.ErrNotExist)
		})
	}
	p.transfer(1<<16, false)
}

// TestCapabilities: CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON suffice to load and attach; without them
// the check names them.
func TestCapabilities(t *testing.T) {
	p := newPair(t)
	with := func(set uint64, f func() error) func() error {
		return func() error {
			head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			data := [2]unix.CapUserData{{Effective: uint32(set), Permitted: uint32(set)},
				{Effective: uint32(set >> 32), Permitted: uint32(set >> 32)}}
			if err := unix.Capset(&head, &data[0]); err != nil { // capabilities of this thread, which ends
				return err
			}
			return f()
		}
	}
	cfg := Config{Interface: "eth0", DisableOffloads: true}
	p.in(0, with(1<<39|1<<12|1<<38, func() error {
		if _, err := Check(cfg); err != nil {
			t.Error(err)
		}
		path, err := Open(cfg)
		if err != nil {
			return err
		}
		s := defaults(0)
		s.Queries = []wire.Query{{Text: totalsQuery}}
		err = path.Apply(encoded(t, s))
		if q := path.queries; len(q) != 1 || q[0].set == nil || q[0].copied[0] != "" {
			t.Errorf("queries %+v", q)
		}
		return errors.Join(err, path.Close())
	}))
	p.in(0, with(0, func() error {
		if _, err := Check(cfg); err == nil || !strings.Contains(err.Error(), "CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON") {
			t.Errorf("error %v, want the capabilities", err)
		}
		return nil
	}))
	p.in(1, func() error {
		path, err := Open(Config{Interface: "eth0"})
		if err != nil {
			return err
		}
		if err := path.Apply(encoded(t, defaults(1))); err == nil ||
			!strings.Contains(err.Error(), "eth0 has") || !strings.Contains(err.Error(), "ethtool -K") {
			t.Errorf("error %v, want one about segmentation", err)
		}
		return path.Close()
	})
}
