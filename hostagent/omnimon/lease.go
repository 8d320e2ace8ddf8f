// SPDX-License-Identifier: Apache-2.0

package omnimon

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/netsketch/netsketch/hostagent/lease"
	"github.com/netsketch/netsketch/hostagent/omnimon/header"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/sketch/flow"
)

// leases is a role's knowledge of the addresses of other hosts.
type leases struct {
	mtu  int // MTU of the interface; 0: no leases are needed
	link func(to netip.Addr) []byte

	held    []lease.Lease // leases as they were set
	bounds  []bound       // bounds by number of the address
	wanted  []lease.Peer  // peers with packets since the last call of Wanted
	links   [][]byte      // link layer of frames to an address, by number; nil: not known
	arrived []lease.Received
}

// bound is the lease for an address: packets with carrier of up to length bytes may be tagged.
type bound struct {
	until  time.Duration
	length int
	wanted bool // the address is in leases.wanted
}

func (b bound) holds(now time.Duration) bool { return b.length > 0 && now < b.until }

// longest is the length of the longest IP packet that may be sent to an address.
func (r *Role) longest(to *address) int {
	if b := r.leases.bounds[to.number]; b.holds(r.sent) {
		return min(b.length, r.leases.mtu)
	}
	return r.leases.mtu
}

// NeedLeases implements role.Leaser.
func (r *Role) NeedLeases(mtu int, link func(to netip.Addr) []byte) {
	r.leases.mtu, r.leases.link = mtu, link
}

// Peering implements role.Leaser.
func (r *Role) Peering() (p lease.Peering, ok bool) {
	if r.settings == nil || r.leases.mtu == 0 {
		return lease.Peering{}, false
	}
	p = lease.Peering{Host: r.settings.Host, Addresses: r.settings.Hosts[r.settings.Host],
		OverheadIPv4: r.layout.Overhead(false), OverheadIPv6: r.layout.Overhead(true), MTU: r.leases.mtu,
		Own: r.leases.link != nil}
	for host, list := range r.settings.Hosts {
		for _, a := range list {
			p.Peers = append(p.Peers, lease.Peer{Host: host, Address: a})
		}
	}
	return p, true
}

// Now implements role.Leaser.
func (r *Role) Now() time.Duration { return r.time() }

// SetLeases implements role.Leaser.
func (r *Role) SetLeases(held []lease.Lease) {
	for _, granted := range []bool{false, true} {
		if granted {
			r.leases.held = slices.Clone(held)
		}
		for _, l := range r.leases.held {
			if a := r.hosts.lookup(l.Address); a != nil && int(a.number) < len(r.leases.bounds) {
				b := &r.leases.bounds[a.number]
				if b.until, b.length = l.Until, l.MaxLength; !granted {
					b.length = 0
				}
			}
		}
	}
}

// Wanted implements role.Leaser.
func (r *Role) Wanted() []lease.Peer {
	out := r.leases.wanted
	r.leases.wanted = nil
	for _, peer := range out {
		if a := r.hosts.lookup(peer.Address); a != nil {
			r.leases.bounds[a.number].wanted = false
		}
	}
	return out
}

// readdress carries leases and link-layer headers over to new settings, which number the addresses
// anew.
func (r *Role) readdress(old *addresses) {
	l := &r.leases
	links := l.links
	l.bounds, l.links, l.wanted = make([]bound, r.hosts.count), make([][]byte, r.hosts.count), nil
	for i := range old.cells {
		c := &old.cells[i]
		if a := r.hosts.find(&c.bytes, c.v6); c.used && a != nil && int(c.number) < len(links) {
			l.links[a.number] = links[c.number]
		}
	}
	r.SetLeases(l.held)
}

// allowed returns counted if a packet to an address may be tagged.
func (r *Role) allowed(w *work, to *address) wire.Counter {
	if r.leases.mtu > 0 {
		b := &r.leases.bounds[to.number]
		if !b.wanted {
			b.wanted = true
			r.leases.wanted = append(r.leases.wanted, lease.Peer{Host: int(to.host), Address: w.ip.Key.DstAddr()})
		}
		if !b.holds(r.sent) {
			return wire.NoLease
		}
	}
	if !r.layout.Fits(w.link.Type, w.frame.Bytes()[w.link.TypeAt+2:]) ||
		r.leases.mtu > 0 && w.ip.Length+r.layout.Overhead(w.ip.Key.V6) > r.longest(to) {
		return wire.NoRoom
	}
	return counted
}

// learn remembers the link layer of frames to an address.
func (r *Role) learn(to *address, head []byte) {
	if r.leases.mtu > 0 && r.leases.link == nil && !bytes.Equal(r.leases.links[to.number], head) {
		r.leases.links[to.number] = bytes.Clone(head)
	}
}

// Probe implements role.Leaser.
func (r *Role) Probe(p lease.Probe) []byte {
	to := r.hosts.lookup(p.Destination)
	if r.settings == nil || to == nil {
		return nil
	}
	head := r.leases.links[to.number]
	if r.leases.link != nil {
		head = r.leases.link(p.Destination)
	}
	if head == nil {
		return nil
	}
	link := packet.Link{TypeAt: len(head), Type: packet.EtherTypeIPv4}
	if p.Destination.Is6() {
		link.Type = packet.EtherTypeIPv6
	}
	frame := packet.NewFrame(p.AppendPacket(binary.BigEndian.AppendUint16(bytes.Clone(head), link.Type)))
	if p.Carrier() {
		r.advance()
		h := header.Header{Epoch: uint16(r.now), HostIndex: header.MaxHostIndex, Hops: header.Probe,
			Flow: p.SourcePort}
		if !r.layout.Insert(frame, link, &h) {
			return nil
		}
	}
	return frame.Bytes()
}

// TakeProbes implements role.Leaser.
func (r *Role) TakeProbes() []lease.Received {
	a := r.leases.arrived
	r.leases.arrived = nil
	return a
}

// takeProbe takes a probe or reply from another host out of the traffic.
func (r *Role) takeProbe(w *work, carried bool) bool {
	in, ok := lease.Parse(&w.ip)
	if !ok {
		return false
	}
	from, to := r.hosts.find(&w.ip.Key.Src, w.ip.Key.V6), r.hosts.find(&w.ip.Key.Dst, w.ip.Key.V6)
	if from == nil || to == nil || int(to.host) != r.settings.Host ||
		int(from.host) == r.settings.Host && r.leases.link == nil {
		return false
	}
	if in.Carried = carried; carried {
		in.CarrierHops = w.header.Hops &^ header.Probe
	}
	if r.leases.mtu > 0 && r.leases.link == nil && r.leases.links[from.number] == nil {
		head := bytes.Clone(w.frame.Bytes()[:w.link.TypeAt])
		copy(head, w.frame.Bytes()[6:12]) // back to the sender
		copy(head[6:], w.frame.Bytes()[:6])
		r.leases.links[from.number] = head
	}
	r.leases.arrived = append(r.leases.arrived, in)
	w.frame.Drop()
	return true
}

// leastMSS is the smallest maximum segment size that the role sets.
const leastMSS = 536

// clamp reduces the maximum segment size of a TCP connection with another host that has an agent,
// so that full segments have room for the carrier. b is the IP packet, and other the address of the
// other host; nil: it has no agent.
func (r *Role) clamp(p *packet.IP, b []byte, other *address) {
	if !p.TCP || p.Flags&packet.SYN == 0 || r.leases.mtu == 0 || r.settings.KeepMSS || other == nil {
		return
	}
	own := r.hosts.find(&p.Key.Dst, p.Key.V6)
	if own == other {
		own = r.hosts.find(&p.Key.Src, p.Key.V6)
	}
	headers := 20 + 20
	if p.Key.V6 {
		headers = 40 + 20
	}
	if own == nil || int(own.host) != r.settings.Host || int(other.host) == r.settings.Host ||
		p.Key.V6 && b[6] != packet.ProtocolTCP {
		return
	}
	if limit := r.longest(other) - r.layout.Overhead(p.Key.V6) - headers; limit >= leastMSS {
		packet.ClampMSS(b[p.HeaderLength:], limit)
	}
}

// flowBits returns the bits of a flow's hash in a tunnel's source port.
func flowBits(k *flow.Key) uint16 { return uint16(wire.Check(k)) }
