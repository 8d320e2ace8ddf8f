// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// SetPeering sets what leases are needed for. Pairs that stay keep their lease, unless the carrier
// or the MTU changed.
func (p *Prober) SetPeering(now time.Duration, g Peering) {
	keep := p.peering.OverheadIPv4 == g.OverheadIPv4 && p.peering.OverheadIPv6 == g.OverheadIPv6 &&
		p.peering.MTU == g.MTU && slices.Equal(p.peering.Addresses, g.Addresses)
	old := p.by
	p.peering, p.by, p.pairs, p.waiting = g, map[netip.Addr]*pair{}, nil, nil
	p.changed = Urgent
	n := 0
	for _, peer := range g.Peers {
		if p.needs(peer) {
			n++
		}
	}
	p.onDemand = n > p.room()
	for _, peer := range g.Peers {
		x := old[peer.Address]
		if p.by[peer.Address] != nil || !p.needs(peer) || p.onDemand && x == nil {
			continue
		}
		if x == nil || !keep || x.Host != peer.Host {
			x = &pair{Peer: peer, wanted: now, reason: "no session with the collector"}
		}
		p.add(now, x)
	}
	p.peering.Peers = nil // p.pairs has them; thousands would take memory twice
	// Each host begins with the peers that follow it in the order of hosts, so that hosts probe a peer
	// at different times.
	slices.SortStableFunc(p.pairs, func(a, b *pair) int { return cmp.Compare(g.behind(a.Host), g.behind(b.Host)) })
}

// needs reports whether packets to a peer need a lease, and can get one.
func (p *Prober) needs(peer Peer) bool {
	source := p.source(peer.Address)
	return source.IsValid() && (peer.Host != p.peering.Host || p.peering.Own && peer.Address != source)
}

// add begins to probe a pair.
func (p *Prober) add(now time.Duration, x *pair) {
	p.by[x.Address] = x
	p.pairs = append(p.pairs, x)
	if p.online {
		p.start(now, x)
	} else {
		p.apply(now, x, stopped)
	}
}

// OnDemand reports whether only peers that were wanted get leases.
func (p *Prober) OnDemand() bool { return p.onDemand }

// Want states to which peers the host has sent packets since the last call. They get leases as far
// as the budget has room. If it has none, they take the places of peers to which the host has sent
// nothing for the longest time.
func (p *Prober) Want(now time.Duration, peers []Peer) {
	if !p.onDemand {
		return
	}
	for _, peer := range peers {
		if x := p.by[peer.Address]; x != nil {
			x.wanted = now
		}
	}
	for i, x := range slices.Backward(p.pairs) {
		if now-x.wanted > unwanted {
			p.drop(i)
		}
	}
	p.waiting = nil
	for _, peer := range peers {
		if p.by[peer.Address] != nil || !p.needs(peer) {
			continue
		}
		if full := len(p.pairs) >= p.room(); full && (len(p.waiting) > 0 || !p.makeRoom(now)) {
			p.waiting = append(p.waiting, peer)
			continue
		}
		p.add(now, &pair{Peer: peer, wanted: now, reason: "no session with the collector"})
	}
}

// makeRoom drops the pair that was wanted the longest ago, if that is long enough.
func (p *Prober) makeRoom(now time.Duration) bool {
	oldest := 0
	for i, x := range p.pairs {
		if x.wanted < p.pairs[oldest].wanted {
			oldest = i
		}
	}
	if now-p.pairs[oldest].wanted < replaced {
		return false
	}
	p.drop(oldest)
	return true
}

// drop gives up pair number i.
func (p *Prober) drop(i int) {
	p.revoke(p.pairs[i])
	delete(p.by, p.pairs[i].Address)
	p.pairs = slices.Delete(p.pairs, i, i+1)
}

// behind returns a key by which hosts are sorted so that the hosts after this one come first.
func (g *Peering) behind(host int) int {
	if host > g.Host {
		return host
	}
	return host + 1<<16
}

// room returns the number of pairs whose leases the budget can renew. Renewals take at most four
// fifths of the budget, so that other pairs can prove their leases.
func (p *Prober) room() int {
	return max(int(0.8*float64(p.cfg.Budget)*Interval.Seconds()/Ports), 1)
}

// source is the address from which probes to a peer leave.
func (p *Prober) source(to netip.Addr) netip.Addr {
	for _, a := range p.peering.Addresses {
		if a.Is4() == to.Is4() {
			return a
		}
	}
	return netip.Addr{}
}
