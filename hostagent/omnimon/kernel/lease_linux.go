// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/netsketch/netsketch/hostagent/lease"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
)

var _ lease.Path = (*Path)(nil)

// leasing is the part of a path that holds leases.
type leasing struct {
	probe atomic.Pointer[func(lease.Received)]

	// used is set once SetLeases was called. Until then the leases hold that an earlier process
	// left in the map.
	used   bool
	leases []lease.Lease

	readers sync.WaitGroup // readers of probes

	mu      sync.Mutex
	sockets map[netip.AddrPort]int
}

// Now implements lease.Path.
func (p *Path) Now() time.Duration { return monotonic() }

// Peering implements lease.Path.
func (p *Path) Peering() (lease.Peering, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.settings == nil {
		return lease.Peering{}, false
	}
	s := p.settings
	g := lease.Peering{Host: s.Host, Addresses: s.Hosts[s.Host], MTU: int(p.tables.control.Mtu),
		OverheadIPv4: overhead(s, false), OverheadIPv6: overhead(s, true)}
	for host, addresses := range s.Hosts {
		for _, a := range addresses {
			if host != s.Host {
				g.Peers = append(g.Peers, lease.Peer{Host: host, Address: a})
			}
		}
	}
	return g, true
}

// overhead is by how many bytes the carrier lengthens an IP packet, or a frame.
func overhead(s *wire.Settings, v6 bool) int {
	body := 6 + 2*s.SlotsPerFlow + 4*len(s.Extremes)
	fixed, option := 20, (2+body+3)&^3
	if v6 {
		fixed, option = 40, (4+body+7)&^7
	}
	switch s.Carrier {
	case wire.CarrierOption:
		return option
	case wire.CarrierTunnel:
		return fixed + 8 + 8 + 4 + (body+3)&^3
	}
	return body + 2
}

// SetLeases implements lease.Path.
func (p *Path) SetLeases(leases []lease.Lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leasing.used, p.leasing.leases = true, leases
	if p.tables != nil {
		p.grant()
	}
}

// grant writes the leases into the map. p.mu is held.
func (p *Path) grant() {
	t := p.tables
	if mtu, err := p.mtu(); err == nil {
		atomic.StoreUint32(&t.control.Mtu, uint32(mtu))
	}
	if !p.leasing.used {
		return
	}
	until := make([]uint64, len(t.numbers))
	for _, l := range p.leasing.leases {
		n, ok := t.numbers[l.Address]
		if !ok {
			continue
		}
		atomic.StoreUint32(&t.lease(n).MaxLength, uint32(l.MaxLength))
		until[n] = uint64(l.Until)
	}
	for n := range until {
		atomic.StoreUint64(&t.lease(uint32(n)).Until, until[n])
	}
}

// Wanted implements lease.Path.
func (p *Path) Wanted() (out []lease.Peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tables == nil {
		return nil
	}
	now := uint32(monotonic() >> 30) // the unit of used
	for n, peer := range p.tables.peers {
		if used := atomic.LoadUint32(&p.tables.lease(uint32(n)).Used); used != 0 && now-used <= 1 {
			out = append(out, peer)
		}
	}
	return out
}

// mtu returns the length of the longest IP packet that the interface sends.
func (p *Path) mtu() (int, error) {
	if p.cfg.Interface == "" {
		return math.MaxInt32, nil
	}
	i, err := net.InterfaceByName(p.cfg.Interface)
	if err != nil {
		return 0, fmt.Errorf("interface %s: %w", p.cfg.Interface, err)
	}
	return i.MTU, nil
}

// OnProbe implements lease.Path.
func (p *Path) OnProbe(f func(lease.Received)) { p.leasing.probe.Store(&f) }

// readProbes hands probes on until the reader is closed.
func (p *Path) readProbes(r *ringbuf.Reader) {
	var record ringbuf.Record
	for r.ReadInto(&record) == nil {
		f := p.leasing.probe.Load()
		if f == nil || len(record.RawSample) < int(unsafe.Sizeof(omnimonProbe{})) {
			continue
		}
		in := (*omnimonProbe)(unsafe.Pointer(&record.RawSample[0]))
		m, ok := lease.ParseMessage(in.Message[:])
		if !ok {
			continue
		}
		k := key(&in.Key)
		(*f)(lease.Received{Message: m, Source: k.SrcAddr(), Destination: k.DstAddr(), SourcePort: in.Key.Sport,
			Carried: in.Carried != 0, CarrierHops: in.Hops, Length: int(in.Length)})
	}
}

// Send implements lease.Path. Program egress puts the probe into the carrier.
func (p *Path) Send(probe lease.Probe) error {
	p.leasing.mu.Lock()
	defer p.leasing.mu.Unlock()
	port := probe.SourcePort
	if port < lease.FirstPort || port >= lease.FirstPort+lease.Ports {
		port = lease.FirstPort
	}
	s, ok := p.leasing.sockets[netip.AddrPortFrom(probe.Source, port)]
	if !ok {
		return fmt.Errorf("probe from %s: not an address of this host", probe.Source)
	}
	err := unix.Sendto(s, probe.AppendPayload(nil), unix.MSG_DONTWAIT, socketAddress(probe.Destination, lease.Port))
	if err != nil {
		return fmt.Errorf("probe from %s to %s: %w", probe.Source, probe.Destination, err)
	}
	return nil
}

// openSockets opens the sockets of probes from the addresses of this host, and closes all others.
func (p *Path) openSockets(addresses []netip.Addr) error {
	if p.cfg.Interface == "" {
		return nil
	}
	p.leasing.mu.Lock()
	defer p.leasing.mu.Unlock()
	before := p.leasing.sockets
	p.leasing.sockets = map[netip.AddrPort]int{}
	var err error
	for _, a := range addresses {
		for i := range uint16(lease.Ports) {
			from := netip.AddrPortFrom(a, lease.FirstPort+i)
			s, ok := before[from]
			if !ok {
				var e error
				if s, e = probeSocket(from); e != nil {
					err = errors.Join(err, fmt.Errorf("socket for probes from %s: %w", from, e))
					continue
				}
			}
			delete(before, from)
			p.leasing.sockets[from] = s
		}
	}
	for _, s := range before {
		_ = unix.Close(s)
	}
	return err
}

func (p *Path) closeSockets() {
	p.leasing.mu.Lock()
	defer p.leasing.mu.Unlock()
	for _, s := range p.leasing.sockets {
		_ = unix.Close(s)
	}
	p.leasing.sockets = nil
}

// probeSocket returns a UDP socket that never fragments packets and ignores the MTU of the path.
// Its address need not be assigned yet, and other programs may use its port.
func probeSocket(from netip.AddrPort) (int, error) {
	family, level, discover, free := unix.AF_INET, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_FREEBIND
	if from.Addr().Is6() {
		family, level, discover, free = unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_FREEBIND
	}
	s, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	err = errors.Join(unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.SetsockoptInt(s, level, discover, unix.IP_PMTUDISC_PROBE), // IPv6 has the same number
		unix.SetsockoptInt(s, level, free, 1),
		unix.Bind(s, socketAddress(from.Addr(), int(from.Port()))))
	if err != nil {
		_ = unix.Close(s)
		return 0, err
	}
	return s, nil
}

func socketAddress(a netip.Addr, port int) unix.Sockaddr {
	if a.Is4() {
		return &unix.SockaddrInet4{Addr: a.As4(), Port: port}
	}
	return &unix.SockaddrInet6{Addr: a.As16(), Port: port}
}
