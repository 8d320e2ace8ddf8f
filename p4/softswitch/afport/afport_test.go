// SPDX-License-Identifier: Apache-2.0

//go:build linux

package afport_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/netsketch/netsketch/internal/test/switchtest"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/p4/softswitch/afport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 2 * time.Minute

func ip(t *testing.T, args string) {
	t.Helper()
	if err := testkit.IP(args); err != nil {
		t.Fatal(err)
	}
}

// veth makes a pair NAME and NAME-far, both up.
func veth(t *testing.T, name string) {
	t.Helper()
	for _, f := range []string{"all", "default"} { // a kernel without IPv6 has no such file
		_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+f+"/disable_ipv6", []byte("1"), 0o644)
	}
	ip(t, fmt.Sprintf("link add name %s type veth peer name %s-far", name, name))
	ip(t, "link set up dev "+name)
	ip(t, "link set up dev "+name+"-far")
}

// forwarder is a switch with routes: 10.0.1.0/24 by port 1 and 10.0.2.0/24 by port 2.
func forwarder(t *testing.T) *softswitch.Switch {
	t.Helper()
	sw := switchtest.New(t, "", "forwarding")
	for port := byte(1); port <= 2; port++ {
		err := sw.InsertEntry("ingress.forwarding.ipv4_lpm", softswitch.Entry{
			Match: []softswitch.Match{{Kind: softswitch.MatchLPM, Value: []byte{10, 0, port, 0}, PrefixLen: 24}},
			Action: softswitch.Action{Name: "ingress.forwarding.forward",
				Params: [][]byte{{port}, switchMAC, hostMAC(port)}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return sw
}

var switchMAC = []byte{2, 0, 0, 0, 1, 0}

func hostMAC(n byte) []byte { return []byte{2, 0, 0, 0, 2, n} }

func open(t *testing.T, sw *softswitch.Switch, number uint32, cfg afport.Config) *afport.Port {
	t.Helper()
	p, err := afport.Open(sw, number, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	testkit.Until(t, "the port is up: the kernel takes a moment to see a carrier", func() bool {
		st, err := sw.PortStatus(number)
		return err == nil && st.Up
	})
	return p
}

// host runs f in a network namespace of its own, with the far end of a veth pair as 10.0.N.1 there
// and a route to everything by the switch.
func host(t *testing.T, veth string, n byte, f func() error) <-chan error {
	t.Helper()
	return testkit.InNamespace(t, veth+"-far", []string{
		fmt.Sprintf("link set dev %s-far address %s up", veth, net.HardwareAddr(hostMAC(n))),
		fmt.Sprintf("addr add 10.0.%d.1/24 dev %s-far", n, veth),
		fmt.Sprintf("route add default via 10.0.%d.254", n),
		fmt.Sprintf("neigh add 10.0.%d.254 lladdr %s dev %s-far", n, net.HardwareAddr(switchMAC), veth),
	}, f)
}

// Two hosts, kernels with addresses of their own, talk UDP through the switch.
func TestForwardingBetweenHosts(t *testing.T) {
	if !testkit.Isolated(t) {
		return
	}
	const messages = 200
	veth(t, "a")
	veth(t, "b")
	sw := forwarder(t)
	a := open(t, sw, 1, afport.Config{Interface: "a"})
	b := open(t, sw, 2, afport.Config{Interface: "b", Name: "to b"})
	if st, err := sw.PortStatus(2); err != nil || st.Name != "to b" {
		t.Errorf("port 2 is %+v, %v", st, err)
	}

	listening := make(chan struct{})
	server := host(t, "b", 2, func() error {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(10, 0, 2, 1), Port: 7})
		if err != nil {
			close(listening)
			return err
		}
		defer c.Close()
		close(listening)
		if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		buf := make([]byte, 2000)
		for range messages {
			n, from, err := c.ReadFromUDPAddrPort(buf)
			if err != nil {
				return fmt.Errorf("server: %w", err)
			}
			if _, err := c.WriteToUDPAddrPort(buf[:n], from); err != nil {
				return err
			}
		}
		return nil
	})
	<-listening
	configured, start := make(chan struct{}), make(chan struct{})
	client := host(t, "a", 1, func() error {
		close(configured)
		<-start
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(10, 0, 1, 1), Port: 9})
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		buf := make([]byte, 2000)
		for i := range messages {
			if _, err := c.WriteToUDPAddrPort(bytes.Repeat([]byte{byte(i)}, 1+i*7),
				netip.MustParseAddrPort("10.0.2.1:7")); err != nil {
				return err
			}
			n, err := c.Read(buf)
			if err != nil {
				return fmt.Errorf("client, message %d: %w", i, err)
			}
			if want := bytes.Repeat([]byte{byte(i)}, 1+i*7); !bytes.Equal(buf[:n], want) {
				return fmt.Errorf("message %d of %d bytes came back with %d", i, len(want), n)
			}
		}
		return nil
	})
	<-configured
	testkit.Until(t, "the ports are up: their far ends have moved", func() bool {
		return !slices.ContainsFunc(sw.Ports(), func(st softswitch.PortStatus) bool { return !st.Up })
	})
	close(start)
	if err := errors.Join(<-client, <-server); err != nil {
		t.Errorf("%v\nport a %+v, port b %+v, switch %+v", err, a.Stats(), b.Stats(), sw.Stats())
	}
	for _, p := range []*afport.Port{a, b} {
		testkit.Until(t, "all messages are counted", func() bool { return p.Stats().Sent == messages })
		if s := p.Stats(); s.Received < messages || s.Lost+s.Truncated+s.Unsent != 0 {
			t.Errorf("%+v", s)
		}
	}
}

// TestTCP: a stream passes between hosts whose kernels leave segmentation and checksums to devices.
func TestTCP(t *testing.T) {
	if !testkit.Isolated(t) {
		return
	}
	const size = 4 << 20
	veth(t, "a")
	veth(t, "b")
	sw := forwarder(t)
	a, b := open(t, sw, 1, afport.Config{Interface: "a"}), open(t, sw, 2, afport.Config{Interface: "b"})
	stream := make([]byte, size)
	for i := range stream {
		stream[i] = byte(i * i >> 8)
	}
	listening := make(chan struct{})
	server := host(t, "b", 2, func() error {
		l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(10, 0, 2, 1), Port: 7})
		close(listening)
		if err != nil {
			return err
		}
		defer l.Close()
		if err := l.SetDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		c, err := l.Accept()
		if err != nil {
			return fmt.Errorf("server: %w", err)
		}
		defer c.Close()
		got, err := io.ReadAll(c)
		if err == nil && !bytes.Equal(got, stream) {
			err = fmt.Errorf("%d bytes arrived, not those that were sent", len(got))
		}
		return err
	})
	<-listening
	configured, start := make(chan struct{}), make(chan struct{})
	client := host(t, "a", 1, func() error {
		close(configured)
		<-start
		c, err := (&net.Dialer{Timeout: patience}).Dial("tcp4", "10.0.2.1:7")
		if err != nil {
			return err
		}
		if _, err := c.Write(stream); err != nil {
			return err
		}
		return c.Close()
	})
	<-configured
	testkit.Until(t, "the ports are up: their far ends have moved", func() bool {
		return !slices.ContainsFunc(sw.Ports(), func(st softswitch.PortStatus) bool { return !st.Up })
	})
	close(start)
	if err := errors.Join(<-client, <-server); err != nil {
		t.Errorf("%v\nport a %+v, port b %+v, switch %+v", err, a.Stats(), b.Stats(), sw.Stats())
	}
	if s := a.Stats(); s.Received < size/1460 || s.Truncated+s.Unsplit != 0 {
		t.Errorf("port a: %+v; want at least %d packets", s, size/1460)
	}
	if s := b.Stats(); s.Unsent != 0 {
		t.Errorf("port b: %+v", s)
	}
}

// wire sends and receives single frames at the far end of a pair.
type wire struct {
	t  *testing.T
	fd int
}

func openWire(t *testing.T, name string) *wire {
	t.Helper()
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, int(htons(unix.ETH_P_ALL)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	i, err := net.InterfaceByName(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: i.Index}); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO,
		&unix.Timeval{Sec: int64(patience / time.Second)}); err != nil {
		t.Fatal(err)
	}
	return &wire{t, fd}
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

func (w *wire) send(frame []byte) {
	w.t.Helper()
	if _, err := unix.Write(w.fd, frame); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wire) receive() []byte {
	w.t.Helper()
	buf := make([]byte, 1<<16)
	n, err := unix.Read(w.fd, buf)
	for errors.Is(err, unix.EINTR) { // a signal of the runtime
		n, err = unix.Read(w.fd, buf)
	}
	if err != nil {
		w.t.Fatalf("nothing came: %v", err)
	}
	return buf[:n]
}

// frame is an IPv4 packet to 10.0.N.9 behind tags.
func frame(n byte, ttl byte, tags ...byte) []byte {
	f := slices.Concat(switchMAC, hostMAC(9))
	for _, tag := range tags {
		f = append(f, 0x81, 0, 0, tag)
	}
	f = append(f, 8, 0)
	h := []byte{0x45, 0, 0, 84, 0, 0, 0, 0, ttl, 253, 0, 0, 10, 0, 9, 9, 10, 0, n, 9}
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(h[i])<<8 | uint32(h[i+1])
	}
	sum = ^(sum>>16 + sum&0xffff)
	h[10], h[11] = byte(sum>>8), byte(sum)
	return append(append(f, h...), make([]byte, 64)...)
}

// TestFrames: frames are received and sent unchanged, including the VLAN tags that the kernel
// removes. Frames that the kernel sends by the port's own interface are not received.
func TestFrames(t *testing.T) {
	if !testkit.Isolated(t) {
		return
	}
	veth(t, "a")
	veth(t, "b")
	sw := forwarder(t)
	a := open(t, sw, 1, afport.Config{Interface: "a", RingBytes: 4 << 20})
	open(t, sw, 2, afport.Config{Interface: "b"})
	near, far, out := openWire(t, "a"), openWire(t, "a-far"), openWire(t, "b-far")
	near.send(frame(2, 50)) // as the kernel would; the frame leaves by a, so the port does not receive it
	for i, tags := range [][]byte{nil, {5}, {5, 6}, {1}} {
		ttl := byte(64 - i)
		far.send(frame(2, ttl, tags...))
		want := frame(2, ttl-1, tags...)
		copy(want, hostMAC(2))
		copy(want[6:], switchMAC)
		if got := withTag(out, t); !bytes.Equal(got, want) {
			t.Errorf("tags %v: got\n% x, want\n% x", tags, got, want)
		}
	}
	if s := a.Stats(); s.Received != 4 {
		t.Errorf("port a: %+v", s)
	}
}

// withTag receives a frame with the tag that the kernel has removed and passes as metadata.
func withTag(w *wire, t *testing.T) []byte {
	t.Helper()
	if err := unix.SetsockoptInt(w.fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1); err != nil {
		t.Fatal(err)
	}
	buf, oob := make([]byte, 1<<16), make([]byte, 256)
	n, oobn, _, _, err := unix.Recvmsg(w.fd, buf, oob, 0)
	for errors.Is(err, unix.EINTR) { // a signal of the runtime
		n, oobn, _, _, err = unix.Recvmsg(w.fd, buf, oob, 0)
	}
	if err != nil {
		t.Fatalf("no frame arrived: %v", err)
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range msgs {
		const status, tci, tpid = 0, 16, 18 // of tpacket_auxdata, little-endian where tests run
		if m.Header.Type == unix.PACKET_AUXDATA && m.Data[status]&unix.TP_STATUS_VLAN_VALID != 0 {
			tag := []byte{m.Data[tpid+1], m.Data[tpid], m.Data[tci+1], m.Data[tci]}
			return slices.Concat(buf[:12], tag, buf[12:n])
		}
	}
	return buf[:n]
}

// A port follows its interface: down, up, away, and back.
func TestLink(t *testing.T) {
	if !testkit.Isolated(t) {
		return
	}
	veth(t, "a")
	veth(t, "b")
	sw := forwarder(t)
	open(t, sw, 1, afport.Config{Interface: "a"})
	b := open(t, sw, 2, afport.Config{Interface: "b"})
	is := func(up bool) func() bool {
		return func() bool {
			st, err := sw.PortStatus(2)
			return err == nil && st.Up == up
		}
	}
	exchange := func(when string) {
		t.Helper()
		far, out := openWire(t, "a-far"), openWire(t, "b-far")
		far.send(frame(2, 64))
		if got := out.receive(); len(got) != 98 {
			t.Errorf("%s: %d bytes came", when, len(got))
		}
	}
	exchange("at first")
	ip(t, "link set down dev b-far") // no carrier
	testkit.Until(t, "the port is down", is(false))
	ip(t, "link set up dev b-far")
	testkit.Until(t, "the port is up again", is(true))
	exchange("after the far end was down")
	ip(t, "link set down dev b")
	testkit.Until(t, "the port is down", is(false))
	ip(t, "link set up dev b")
	testkit.Until(t, "the port is up again", is(true))
	exchange("after the interface was down")
	ip(t, "link del dev b")
	testkit.Until(t, "the port is down", is(false))
	veth(t, "b")
	testkit.Until(t, "the port is up again", is(true))
	exchange("after the interface was away")
	testkit.Until(t, "four frames are counted", func() bool { return b.Stats().Sent == 4 })
}

func TestLongFramesAreCounted(t *testing.T) {
	if !testkit.Isolated(t) {
		return
	}
	veth(t, "a")
	veth(t, "b")
	ip(t, "link set dev b mtu 80")
	sw := forwarder(t)
	open(t, sw, 1, afport.Config{Interface: "a"})
	b := open(t, sw, 2, afport.Config{Interface: "b"})
	openWire(t, "a-far").send(frame(2, 64))
	testkit.Until(t, "the frame is counted", func() bool { return b.Stats().Unsent == 1 })
	if st, err := sw.PortStatus(2); err != nil || st.Counters.OutDiscards != 1 {
		t.Errorf("the switch counts %+v (%v)", st.Counters, err)
	}
}

// If an interface is replaced by an interface of another kind with the same name, the log states
// each of both changes once.
func TestInterfaceIsReplaced(t *testing.T) {
	if !testkit.Isolated(t) {
		return
	}
	veth(t, "a")
	var log testkit.Log
	sw := forwarder(t)
	open(t, sw, 1, afport.Config{Interface: "a", Logger: log.Logger()})
	ip(t, "link del dev a")
	logged := func(text string) func() bool { return func() bool { return strings.Contains(log.String(), text) } }
	testkit.Until(t, "a warning that the interface is gone", logged("level=WARN msg=\"the interface is gone"))
	tun := openTun(t, "a")
	ip(t, "link set up dev a")
	testkit.Until(t, "a warning that names the link type", logged("without link-layer headers (link type 0xfffe)"))
	time.Sleep(500 * time.Millisecond) // five checks of the interface
	if n := strings.Count(log.String(), "cannot be opened again"); n != 1 {
		t.Errorf("%d lines:\n%s", n, log.String())
	}
	if err := tun.Close(); err != nil {
		t.Fatal(err)
	}
	veth(t, "a")
	testkit.Until(t, "the port is up again", logged("level=INFO msg=\"the port is up again"))
}

// openTun makes a tun device, which has a carrier until the file is closed.
func openTun(t *testing.T, name string) *os.File {
	t.Helper()
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("tun devices need /dev/net/tun: %v", err)
	}
	r, err := unix.NewIfreq(name)
	if err != nil {
		t.Fatal(err)
	}
	r.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, r); err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), name)
}

// An interface that is down at the start is used, with a warning.
func TestInterfaceIsDown(t *testing.T) {
	if !testkit.Isolated(t) {
		return
	}
	veth(t, "a")
	ip(t, "link set down dev a")
	var log testkit.Log
	p, err := afport.Open(forwarder(t), 1, afport.Config{Interface: "a", Logger: log.Logger()})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if !strings.Contains(log.String(), "the interface is down") || !strings.Contains(log.String(), "interface=a") {
		t.Errorf("log %s", log.String())
	}
}

func TestLinkType(t *testing.T) {
	if !testkit.Isolated(t) {
		return
	}
	if err := testkit.IP("tuntap add dev tun0 mode tun"); err != nil {
		t.Skip(err)
	}
	_, err := afport.Open(forwarder(t), 1, afport.Config{Interface: "tun0"})
	if err == nil || !strings.Contains(err.Error(), "without link-layer headers (link type 0xfffe)") {
		t.Errorf("%v", err)
	}
}

func TestErrors(t *testing.T) {
	sw := forwarder(t)
	for name, tc := range map[string]struct {
		cfg   afport.Config
		wants string
	}{
		"no name":               {afport.Config{}, "no interface is named"},
		"no such interface":     {afport.Config{Interface: "nobody0"}, "interface nobody0: no such device"},
		"a name that is none":   {afport.Config{Interface: strings.Repeat("x", 40)}, "interface xxx"},
		"a ring that is no use": {afport.Config{Interface: "lo", RingBytes: 1}, "a ring of 1 bytes"},
	} {
		if _, err := afport.Open(sw, 1, tc.cfg); err == nil || !strings.Contains(err.Error(), tc.wants) {
			t.Errorf("%s: %v; want an error with %q", name, err, tc.wants)
		}
	}
	_, err := afport.Open(sw, softswitch.DropPort, afport.Config{Interface: "lo"})
	if errors.Is(err, unix.EPERM) {
		if !strings.Contains(err.Error(), "CAP_NET_RAW") {
			t.Errorf("without the right to: %v", err)
		}
	} else if !errors.Is(err, softswitch.ErrInvalid) {
		t.Errorf("a port number that is none: %v", err)
	}
}
