// SPDX-License-Identifier: Apache-2.0

// Package lease decides to which addresses a host may send packets in a carrier, the form in which
// OmniMon's header travels. A host tags packets to an address only while it holds a lease for it.
//
// Probes earn a lease. A probe is a UDP packet to the peer. Probes go out in pairs: one in the
// carrier, as long as the longest packet that will be tagged, and a plain twin. The agent of the
// peer answers both. The pair of hosts gets a lease if the probes in the carrier came back from all
// source ports, over which networks distribute flows to paths, and were not clearly slower than
// their twins. A lease ends by itself unless probes renew it, so a host stops tagging within
// Lifetime of the end of its agent, of its session with the collector, or of the peer's agent.
//
// If there are so few peers that the host can renew leases for all, it does. With more peers,
// leases are on demand: a peer gets a lease after the host has sent it a packet, which is not
// tagged.
//
//	Prober ──▶ Probe ──▶ Path (data path: puts it into the carrier) ──▶ network ──▶ Path of the peer
//	   ▲                                                                               │ Received
//	   └──────────── Received ◀── Path ◀── network ◀── Probe (reply) ◀── Responder ◀───┘
//
// The package does no I/O. The caller passes the time, the time since any instant by a clock that
// does not jump, and all methods of a Prober or Responder belong to one goroutine at a time.
package lease

import (
	"net/netip"
	"time"
)

const (
	// Lifetime is how long a lease lasts after the sending of the probes that renewed it.
	Lifetime = 3 * time.Second
	// Interval is the time between two probes from a source port that renew a lease.
	Interval = 1500 * time.Millisecond
	// Linger is how long a host that stops to remove carriers waits until no peer holds a lease for
	// it, and packets in flight have arrived.
	Linger = 3500 * time.Millisecond
	// DefaultBudget is the default of Config.Budget, in probes a second.
	DefaultBudget = 2000

	// Port is the UDP destination port of probes and replies.
	Port = 9352
	// Ports is the count of source ports of probes, FirstPort and those that follow.
	Ports     = 8
	FirstPort = 9353

	// attempts is how often a pair of probes that both get lost is sent before its length, or the
	// peer, counts as unanswered.
	attempts = 8
	// revokeAt and refuseAt are the excess of probes lost in the carrier that revokes a lease, and
	// that refuses one.
	revokeAt = 36
	refuseAt = 14
	// firstWait is the time that an answer has, as long as no longer round-trip time was measured.
	firstWait = 100 * time.Millisecond
	// retryEvery is the time between attempts, from the second one on. The first one has longer.
	retryEvery = 50 * time.Millisecond
	// deadEvery is the time between attempts from a source port whose packets do not arrive at all.
	deadEvery = 250 * time.Millisecond
	// maxWait bounds the time to wait for an answer.
	maxWait = time.Second
	// remember is how long the answer to a probe is recognized.
	remember = 2 * time.Second
	// retryLost and retrySilent are the times after which a pair without a lease is probed again:
	// where the carrier is lost or slow, and where the peer does not answer, or refuses. retryLost
	// doubles, up to steady, with each lease that ended within steady.
	retryLost   = 5 * time.Second
	retrySilent = 2 * time.Second
	steady      = 5 * time.Minute
	// With leases on demand, a peer that was not wanted for the time unwanted loses its lease; after
	// the time replaced it loses it if another peer is wanted.
	unwanted = 5 * time.Minute
	replaced = 5 * time.Second
	// growAfter is the time between probes of the full length where only a shorter one arrived.
	growAfter = 30 * time.Second

	// A carrier is slow if its median round-trip time exceeds the median of plain twins both by the
	// factor slowFactor and by slowMore.
	slowFactor = 3
	slowMore   = time.Millisecond

	// minIPv4 and minIPv6 are the sizes of IP packets that every path carries. sizeStep ends the
	// search for the largest size.
	minIPv4  = 576
	minIPv6  = 1280
	sizeStep = 8
)

// Peer is an address of another host that removes carriers.
type Peer struct {
	Host    int // number
	Address netip.Addr
}

// Lease allows tagging packets to an address.
type Lease struct {
	Peer
	// MaxLength is the length in bytes of the longest IP packet, with its carrier, that arrived.
	MaxLength int
	// Until is the end of the lease, by the clock of the caller.
	Until time.Duration
}

// Peering describes the peers for which a data path needs leases.
type Peering struct {
	// Host is the number of this host.
	Host int
	// Addresses are the addresses of this host: probes to a peer leave from the first address of the
	// peer's family.
	Addresses []netip.Addr
	// Peers are the addresses of all other hosts that may remove carriers.
	Peers []Peer
	// Own states that packets to other addresses of this host leave it, as in an emulated network.
	// They need a lease, too.
	Own bool
	// OverheadIPv4 and OverheadIPv6 are the bytes that the carrier adds to a packet.
	OverheadIPv4, OverheadIPv6 int
	// MTU is the length of the longest IP packet with its carrier that the interface sends.
	MTU int
}

// Path is a data path that tags packets while it holds leases. Methods may be called from any
// goroutine.
type Path interface {
	// Peering returns the peers for which the settings in force need leases; ok is false without
	// settings.
	Peering() (p Peering, ok bool)
	// Now is the clock of Lease.Until. For a data path in the kernel it is CLOCK_MONOTONIC.
	Now() time.Duration
	// Send sends a probe or a reply. A probe with Carrier leaves in the carrier, with bit 0x80 of its
	// hops set, with or without a lease, and is not counted as traffic.
	Send(p Probe) error
	// OnProbe calls f with each probe and reply that arrived from the address of a known host and
	// that the data path took out of the traffic. f does not block. Calls may come from any
	// goroutine, and while Send runs.
	OnProbe(f func(Received))
	// SetLeases replaces all leases.
	SetLeases([]Lease)
	// Wanted returns the peers to which the host has sent packets since the last call, and perhaps in
	// the second before it.
	Wanted() []Peer
}

// bucket bounds a rate of events.
type bucket struct {
	rate   float64 // events a second
	tokens float64
	at     time.Duration
	used   bool
}

// refill adds the tokens for the time since the last call, up to the tokens of a quarter of a
// second.
func (b *bucket) refill(now time.Duration) {
	limit := max(b.rate/4, 2*Ports)
	if !b.used {
		b.tokens, b.used = limit, true
	} else if now > b.at {
		b.tokens = min(limit, b.tokens+b.rate*(now-b.at).Seconds())
	}
	b.at = now
}

// take takes n tokens, or returns false if there are fewer.
func (b *bucket) take(n int) bool {
	if b.tokens < float64(n) {
		return false
	}
	b.tokens -= float64(n)
	return true
}

// after returns the time until n tokens are there.
func (b *bucket) after(n int) time.Duration {
	return time.Duration(max(0, float64(n)-b.tokens) / b.rate * float64(time.Second))
}
