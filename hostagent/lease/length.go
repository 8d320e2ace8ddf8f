// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"math/bits"
	"time"
)

// full is the length of the longest packet with its carrier.
func (p *Prober) full(x *pair) int { return min(p.peering.MTU, 65535) }

// least is the length of a packet that every path carries.
func (p *Prober) least(x *pair) int {
	if x.Address.Is4() {
		return min(minIPv4, p.full(x))
	}
	return min(minIPv6, p.full(x))
}

func (p *Prober) overhead(x *pair) int {
	if x.Address.Is4() {
		return p.peering.OverheadIPv4
	}
	return p.peering.OverheadIPv6
}

// stretch sends packets longer than the lease allows.
func (p *Prober) stretch(now time.Duration, x *pair, out []Probe) []Probe {
	if x.state != Leased || x.size == p.full(x) || now < x.grow {
		return out
	}
	if x.stretched == attempts { // longer packets do not arrive
		x.high = p.longer(x)
		if p.settle(now, x); now < x.grow {
			return out
		}
	}
	if x.stretched == 0 {
		x.grown, x.stretchAt = 0, now
	}
	if !p.budget.take(Ports - bits.OnesCount8(x.grown)) {
		return out
	}
	for i := range Ports {
		if x.grown&(1<<i) == 0 {
			out = append(out, p.probe(now, x, i, p.longer(x), true, nil))
		}
	}
	x.grow = now + x.wait()
	x.stretched++
	x.due = min(x.due, x.grow)
	return out
}

// longer returns the length that stretch tries: the full length, or, while a shortened lease grows,
// a length between the longest that arrives and the shortest that does not.
func (p *Prober) longer(x *pair) int {
	if x.shrunk {
		return (x.size + x.high) / 2
	}
	return p.full(x)
}

// settle ends an attempt with longer packets, whether or not they arrived, and sets when the next
// attempt begins: at once while a shortened lease grows, otherwise after growAfter.
func (p *Prober) settle(now time.Duration, x *pair) {
	x.stretched = 0
	if x.shrunk = x.shrunk && x.high-x.size > sizeStep; x.shrunk {
		x.grow = now
	} else {
		x.grow = now + growAfter
	}
}

// lengths are the lengths of the longest packets of common links and tunnels, the longest first.
var lengths = []int{8192, 4352, 1500, 1492, 1472, 1450, 1400, 1350, minIPv6, 1006, minIPv4}

// shorten sends carrier packets that are shorter than the lease allows from a source port where
// only short packets arrive. The longest comes first, so that it is the first to come back.
func (p *Prober) shorten(now time.Duration, x *pair, i int, out []Probe) []Probe {
	for _, size := range lengths {
		if size >= p.least(x) && size < x.size && p.budget.take(1) {
			out = append(out, p.probe(now, x, i, size, true, nil))
		}
	}
	return out
}

// shrink makes a lease shorter at once, because packets of its length do not arrive from a source
// port where packets of this size do. A path that carries long packets in the carrier carries short
// ones, so the lease lasts as long as before; probes of the new length renew it.
func (p *Prober) shrink(now time.Duration, x *pair, size int) {
	x.high, x.size = x.size, size
	x.maxLength, p.changed = size, Urgent
	x.shrunk, x.due = true, now
	p.settle(now, x)
	x.carriers, x.twins, x.recent = samples{}, samples{}, true
	for i := range x.ports {
		q := &x.ports[i]
		if q.due, q.tried = now, 0; !q.dead() {
			q.silent = 0
		}
	}
}

// search chooses the next length, or ends the search.
func (p *Prober) search(now time.Duration, x *pair) {
	full, least := p.full(x), p.least(x)
	switch {
	case x.low == 0:
		x.size = least
	case x.high-x.low <= sizeStep || x.low == full:
		x.size = x.low
		p.apply(now, x, found)
	case x.high == full+1:
		x.size = full
	default:
		x.size = (x.low + x.high) / 2
	}
	if x.state == Searching {
		p.ask(now, x, 1<<x.port)
	}
}
