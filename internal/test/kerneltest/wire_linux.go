// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kerneltest

import (
	"encoding/binary"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	hostkernel "github.com/netsketch/netsketch/hostagent/kernel"
	"github.com/netsketch/netsketch/internal/test/testkit"
)

// Counts returns how many sent and how many received packets a role has counted on an interface
// since the last call.
type Counts func() (sent, received uint64)

// Types and flags of struct virtio_net_hdr.
const (
	needsChecksum = 1
	gsoTCPv4      = 1
	gsoTCPv6      = 4
	gsoUDP        = 5
	gsoInUDP      = 0x20 // segmentation inside a UDP tunnel over IPv4
)

// onWire is a super-packet that a virtual machine or a packet socket sends.
type onWire struct {
	name       string
	gso        byte
	frame      super
	l4         int // offset of the innermost TCP or UDP header
	outer, nh  int // offsets of a tunnel's outer UDP header and inner IP header
	headers    int
	routed     bool // whether the kernel forwards the packet (IPv4)
	checksumAt int  // offset of the checksum in the header at l4
}

const (
	wireSegment = 500
	wirePackets = 7
)

func wireKinds() []onWire {
	data := make([]byte, wireSegment*wirePackets-100)
	const eth, v4, v6, t, u = 14, 20, 40, 32, 8
	vxlan := []byte{8, 0, 0, 0, 0, 0, 9, 0}
	inner := tcp(12, data).ipv4(6, 0)
	return []onWire{
		{name: "tcp", gso: gsoTCPv4, frame: inner.ethernet(0x0800), l4: eth + v4, headers: eth + v4 + t, routed: true,
			checksumAt: 16},
		{name: "udp", gso: gsoUDP, frame: super(data).udp(5000).ipv4(17, 0).ethernet(0x0800), l4: eth + v4,
			headers: eth + v4 + u, routed: true, checksumAt: 6},
		{name: "tcp over IPv6", gso: gsoTCPv6, frame: tcp(12, data).ipv6(6).ethernet(0x86dd), l4: eth + v6,
			headers: eth + v6 + t, checksumAt: 16},
		{name: "tcp behind extension headers", gso: gsoTCPv6, frame: tcp(12, data).behind(6, 0, 1, 4, 0, 0, 0, 0).ipv6(60).
			ethernet(0x86dd), l4: eth + v6 + 8, headers: eth + v6 + 8 + t, checksumAt: 16},
		{name: "VLAN", gso: gsoTCPv4, frame: inner.ethernet(0x0800, 5), l4: eth + 4 + v4, headers: eth + 4 + v4 + t,
			checksumAt: 16},
		{name: "VXLAN", gso: gsoTCPv4 | gsoInUDP, frame: inner.ethernet(0x0800).behind(vxlan...).udp(4789).ipv4(17, 0).
			ethernet(0x0800), l4: eth + v4 + u + 8 + eth + v4, headers: eth + v4 + u + 8 + eth + v4 + t, outer: eth + v4,
			nh: eth + v4 + u + 8 + eth, routed: true, checksumAt: 16},
		{name: "Geneve", gso: gsoTCPv4 | gsoInUDP, frame: inner.ethernet(0x0800).behind(1, 0, 0x65, 0x58, 0, 0, 9, 0, 1, 2,
			3, 0).udp(6081).ipv4(17, 0).ethernet(0x0800), l4: eth + v4 + u + 12 + eth + v4,
			headers: eth + v4 + u + 12 + eth + v4 + t, outer: eth + v4, nh: eth + v4 + u + 12 + eth, routed: true,
			checksumAt: 16},
	}
}

// header returns a struct virtio_net_hdr of the given size in bytes.
func (w onWire) header(size int) []byte {
	h := make([]byte, size)
	h[0], h[1] = needsChecksum, w.gso
	for at, v := range map[int]int{2: w.headers, 4: wireSegment, 6: w.l4, 8: w.checksumAt} {
		binary.NativeEndian.PutUint16(h[at:], uint16(v))
	}
	if size == tunnelHeader {
		binary.LittleEndian.PutUint16(h[20:], uint16(w.outer))
		binary.LittleEndian.PutUint16(h[22:], uint16(w.nh))
	}
	return h
}

const (
	plainHeader  = 10 // bytes of struct virtio_net_hdr
	tunnelHeader = 24 // bytes of struct virtio_net_hdr_v1_hash_tunnel
)

// openTap returns a tap device that accepts super-packets, as a virtual machine's does, and the
// size of their header. Linux supports super-packets in tunnels since version 6.17.
func openTap(t *testing.T, name string) (file *os.File, header int) {
	t.Helper()
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("no tap devices: %v", err)
	}
	file = os.NewFile(uintptr(fd), "tap")
	t.Cleanup(func() { _ = file.Close() })
	r, err := unix.NewIfreq(name)
	if err != nil {
		t.Fatal(err)
	}
	r.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, r); err != nil {
		t.Skipf("tap device: %v", err)
	}
	const offloads, inTunnels = 0x01 | 0x02 | 0x04 | 0x20 | 0x40, 0x080 // checksums, TCP, UDP; the same in UDP tunnels
	if unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, tunnelHeader) == nil &&
		unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, offloads|inTunnels) == nil {
		return file, tunnelHeader
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, plainHeader); err != nil {
		t.Fatal(err)
	}
	return file, plainHeader
}

// SegmentBefore makes the kernel segment super-packets before they reach an interface.
func SegmentBefore(t *testing.T, name string) {
	t.Helper()
	features, err := hostkernel.Features(name)
	if err != nil {
		t.Skipf("features of %s: %v", name, err)
	}
	for _, f := range features {
		if strings.Contains(f, "segmentation") || strings.Contains(f, "gso") {
			_ = hostkernel.Disable(name, []string{f}) // some offloads are fixed
		}
	}
}

// Wire compares the packets that a role counts with the packets on the wire. It sends super-packets
// from a packet socket by interface host, and super-packets of a virtual machine, which arrive at a
// tap device and which the kernel forwards to host. start runs the role on an interface. The kernel
// segments after interface host, so each frame at the other end is a packet on the wire.
func Wire(t *testing.T, start func(name string) Counts) {
	if !Isolated(t) {
		return
	}
	SegmentBefore(t, "host")
	tap, header := openTap(t, "vm")
	machine, err := net.InterfaceByName("vm")
	if err != nil {
		t.Fatal(err)
	}
	// The neighbor's MAC address is that of no interface, so frames that arrive at net are not
	// forwarded.
	for _, args := range []string{"link set dev vm up", "addr add 10.0.1.1/24 dev vm", "addr add 10.0.2.1/24 dev host",
		"neigh add 10.0.2.9 lladdr 02:00:00:00:02:09 dev host"} {
		if err := testkit.IP(args); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	far, near := Socket(t, "net"), Socket(t, "host")
	if err := unix.SetsockoptInt(near, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
		t.Fatal(err)
	}
	atHost, atVM := start("host"), start("vm")
	b := make([]byte, 1<<17)
	frames := func() (n uint64) { // number of frames on the wire since the last call
		for {
			size, err := unix.Read(far, b)
			if err != nil {
				return n
			}
			if kind := binary.BigEndian.Uint16(b[12:]); size > 60 && (kind == 0x0800 || kind == 0x86dd) {
				n++
			}
		}
	}
	const many = 10
	for _, w := range wireKinds() {
		for _, virtual := range []bool{false, true} {
			if virtual && (!w.routed || w.gso&gsoInUDP != 0 && header == plainHeader) || !virtual && w.gso&gsoInUDP != 0 {
				continue
			}
			frame := append(super(nil), w.frame...)
			copy(frame, machine.HardwareAddr)
			name := w.name + " of a packet socket"
			if virtual {
				name = w.name + " of a virtual machine"
			}
			frames()
			_, _ = atHost()
			_, _ = atVM()
			for range many {
				if virtual {
					_, err = tap.Write(append(w.header(header), frame...))
				} else {
					_, err = unix.Write(near, append(w.header(plainHeader), frame...))
				}
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			}
			wire := uint64(0)
			testkit.Until(t, name, func() bool {
				wire += frames()
				return wire >= many*wirePackets
			})
			sent, _ := atHost()
			_, received := atVM()
			if wire != many*wirePackets || sent != NotCounted && sent != wire || virtual && received != wire {
				t.Errorf("%s: %d packets on the wire, %d sent, %d received", name, wire, sent, received)
			}
		}
	}
}

// NotCounted stands for the count of a direction that a role does not count.
const NotCounted = 1<<64 - 1
