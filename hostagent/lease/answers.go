// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"fmt"
	"slices"
	"time"
)

// trial is a probe in the carrier with its plain twin. Its result says which of the two came back.
type trial struct {
	at            time.Duration
	carrier, twin bool
}

// excess counts how many more probes in the carrier than plain twins were lost. A trial adds 1 if
// only the twin came back, and subtracts 2 if only the probe in the carrier came back, but never
// goes below 0. If the network treats both alike, these results are equally likely whatever share
// of packets it loses, and excess reaches n once in at least φⁿ of them on average, where φ is
// 1.618.
type excess int

func (e *excess) add(t *trial) {
	switch {
	case t.twin && !t.carrier:
		*e++
	case t.carrier && !t.twin:
		*e = max(0, *e-2)
	}
}

// samples are the latest round-trip times.
type samples struct {
	values [Ports]time.Duration
	n      int
}

func (s *samples) add(d time.Duration) { s.values[s.n%Ports] = d; s.n++ }

func (s *samples) full() bool { return s.n >= Ports }

func (s *samples) median() time.Duration {
	v := s.values
	slices.Sort(v[:])
	return (v[Ports/2-1] + v[Ports/2]) / 2
}

// judge takes the results of trials into account.
func (p *Prober) judge(now time.Duration, x *pair) {
	for len(x.trials) > 0 && x.trials[0].at+x.wait() <= now {
		x.excess.add(x.trials[0])
		x.trials = x.trials[1:]
	}
	if x.state == Leased {
		if x.excess >= revokeAt {
			x.reason = "carrier lost on the path"
			p.apply(now, x, failed)
		}
		return
	}
	missing, dead, alive := false, -1, false
	for i := range x.ports {
		q := &x.ports[i]
		lost, silent := x.excess >= refuseAt, q.silent >= attempts && q.due <= now
		if x.state == Proving {
			// a port without an answer since its last proof may have no path
			silent = silent && q.reached > q.proved
		}
		switch {
		case !q.asked:
			alive = true
		case lost || silent:
			p.verdict(now, x, i, lost)
			return
		case x.state == Proving && q.dead() && q.due <= now:
			dead = i
		default:
			missing = true
		}
	}
	switch {
	case missing:
	case alive:
		p.prove(now, x)
	default:
		p.verdict(now, x, dead, false)
	}
}

// expire drops probes whose answer is not recognized any more.
func (p *Prober) expire(now time.Duration) {
	n := 0
	for ; n < len(p.order); n++ {
		o := p.sent[p.order[n]]
		if o != nil && o.at+remember > now {
			break
		}
		delete(p.sent, p.order[n])
	}
	p.order = slices.Delete(p.order, 0, n)
}

// verdict ends the probing of a length that does not arrive from a source port. lost states that
// its plain twins do.
func (p *Prober) verdict(now time.Duration, x *pair, i int, lost bool) {
	x.port = i // the search goes on at the port where it failed
	switch {
	case x.size > p.least(x) && lost:
		x.reason = fmt.Sprintf("carrier lost on the path in packets of %d bytes, shorter ones are tried", x.size)
	case x.size > p.least(x):
		x.reason = fmt.Sprintf("packets of %d bytes do not arrive, shorter ones are tried", x.size)
	case lost:
		x.reason = "carrier lost on the path"
	default:
		x.reason = "the peer does not answer"
	}
	switch {
	case x.size > p.least(x) && x.state == Proving:
		p.apply(now, x, shorter)
	case x.size > p.least(x) || x.low > 0:
		x.high = x.size
		p.search(now, x)
	case lost:
		p.apply(now, x, failed)
	default:
		p.apply(now, x, unanswered)
	}
}

// Received handles a probe or reply. A probe shows that its sender is there; replies to other
// Probers' probes have no effect.
func (p *Prober) Received(now time.Duration, r Received) {
	if x := p.by[r.Source]; r.Kind == KindProbe && x != nil && x.state == Silent {
		x.due = min(x.due, max(now, x.began+firstWait*attempts))
	}
	if r.Kind != KindReply {
		return
	}
	o := p.sent[r.Nonce]
	if o == nil || o.pair.Address != r.Source || p.by[r.Source] != o.pair {
		return
	}
	x := o.pair
	if x.state == Offline {
		return
	}
	if r.Flags&FlagRefuses != 0 {
		p.apply(now, x, refused)
		return
	}
	delete(p.sent, r.Nonce)
	rtt := now - o.at
	x.rtt = max(rtt, x.rtt-x.rtt/8)
	current := o.at >= x.began && o.size == x.size && x.state.probing()
	if current {
		x.ports[o.port].silent = 0
	}
	switch {
	case !o.carrier && o.trial == nil:
		q := &x.ports[o.port]
		q.reached = max(q.reached, o.at)
	case !o.carrier:
		if o.trial.twin = true; current {
			x.twins.add(rtt)
		}
	case r.Flags&FlagCarrier == 0:
		if current {
			x.reason = "carrier removed on the path"
			p.apply(now, x, failed)
		}
	default:
		if o.trial != nil {
			o.trial.carrier = true
		}
		p.arrived(now, x, o, current)
	}
}

// arrived takes the answer to a probe that arrived in the carrier. current states that it is of the
// length in question.
func (p *Prober) arrived(now time.Duration, x *pair, o *outstanding, current bool) {
	q := &x.ports[o.port]
	if current {
		x.carriers.add(now - o.at)
		q.tried, q.proved = 0, max(q.proved, o.at)
	}
	switch {
	case x.state == Searching && o.port == x.port && o.size > x.low: // accepts late answers, too
		if o.size >= x.high {
			x.high = p.full(x) + 1
		}
		x.low = o.size
		p.search(now, x)
	case x.state == Proving && current:
		q.asked = false
		p.judge(now, x)
	case x.state == Leased && current:
		q.due = o.at + p.pause(x)
		p.renew(now, x)
		if !p.isSlow(x) {
			x.recent = x.recent && !(x.carriers.full() && x.twins.full())
		} else if x.recent {
			p.apply(now, x, delayed)
		} else { // twins are rare, so their results may be old
			x.carriers, x.twins, x.recent = samples{}, samples{}, true
		}
	case x.state == Leased && o.size < x.size && q.silent > attempts && o.at > q.proved:
		p.shrink(now, x, o.size)
	case x.state == Leased && o.size > x.size && o.size == p.longer(x):
		x.grown |= 1 << o.port
		all := true
		for i := range x.ports {
			all = all && (x.grown&(1<<i) != 0 || x.ports[i].dead())
		}
		if !all {
			return
		}
		x.size = o.size
		for i := range x.ports {
			if x.grown&(1<<i) != 0 {
				x.ports[i].proved = max(x.ports[i].proved, x.stretchAt)
			}
		}
		p.settle(now, x)
		x.due = min(x.due, x.grow)
		p.renew(now, x)
	}
}

// renew extends the lease. The lease ends when no probe that left within Lifetime has come back
// from one of the source ports, so a path that begins to lose the carrier ends it in that time.
// Source ports whose packets do not arrive at all do not count: while a link of one path is down,
// flows on the other paths are measured, and losses on this path are attributed. The lease is then
// extended for half of Lifetime, so that a path that begins to lose only the carrier is noticed in
// the other half.
func (p *Prober) renew(now time.Duration, x *pair) {
	until, alive := now+Lifetime, false
	for i := range x.ports {
		if q := &x.ports[i]; q.dead() {
			until = min(until, now+Lifetime/2)
		} else {
			until, alive = min(until, q.proved+Lifetime), true
		}
	}
	if !alive {
		return
	}
	switch {
	case x.until == 0 || x.maxLength != x.size:
		p.changed = Urgent
	case until > x.until:
		p.changed = max(p.changed, Renewed)
	}
	x.until, x.maxLength = max(x.until, until), x.size
}

// prove gives a pair its lease, if packets in the carrier are not slow.
func (p *Prober) prove(now time.Duration, x *pair) {
	switch {
	case !x.twins.full() && now < x.began+x.wait(): // twins are still missing
		x.due = x.next()
	case p.isSlow(x):
		p.apply(now, x, delayed)
	default:
		p.apply(now, x, proved)
		p.renew(now, x)
	}
}

// isSlow reports whether packets in the carrier are clearly slower than others.
func (p *Prober) isSlow(x *pair) bool {
	if !x.carriers.full() || !x.twins.full() {
		return false
	}
	c, t := x.carriers.median(), x.twins.median()
	return c > slowFactor*t && c > t+slowMore
}
