// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"io"
	"net/netip"
	"time"
)

// Config configures a Prober.
type Config struct {
	// Budget bounds the probes of the host, in probes a second; 0 is DefaultBudget.
	Budget int
	// Random is the source of nonces; nil: crypto/rand.
	Random io.Reader
}

// Prober earns leases by probes. New makes one.
type Prober struct {
	cfg     Config
	peering Peering
	online  bool
	pairs   []*pair
	by      map[netip.Addr]*pair
	// onDemand: there are more peers than the budget can renew leases for. Those to which the host
	// sends packets are in pairs, by Want; otherwise all are.
	onDemand bool
	waiting  []Peer // peers of the last Want for which the budget had no room
	sent     map[Nonce]*outstanding
	order    []Nonce // keys of sent, oldest first
	budget   bucket
	need     int // number of probes that wait for the budget
	changed  Change
}

// pair is the state of the lease between this host and one address of a peer.
type pair struct {
	Peer
	state  State
	wanted time.Duration // time of the last Want with the peer
	reason string        // reason for the missing lease
	due    time.Duration // time of the next action

	until     time.Duration // end of the lease; 0: no lease
	maxLength int           // longest packet that the lease allows

	// low is the longest packet that arrived, high the shortest that did not; size is the length that
	// is being probed. All include the carrier.
	low, high, size int

	ports [Ports]port
	port  int // source port that the search uses
	began time.Duration

	trials   []*trial // without a result, oldest first
	excess   excess
	failures int // leases that were revoked since a lease last held for long
	carriers samples
	twins    samples

	rtt     time.Duration // longest of recent round-trip times
	settled bool          // a search has had a result
	recent  bool          // twins are as recent as carriers
	since   time.Duration // when the lease began

	grow      time.Duration // when longer packets are tried next
	grown     uint8         // source ports from which longer packets arrived
	stretched int           // attempts with longer packets
	stretchAt time.Duration // time of the first longer packet
	// shrunk states that the lease was made shorter: the longest length below high is searched while
	// it lasts.
	shrunk bool
}

// port is the knowledge about a source port of a pair, for packets of the probed length.
type port struct {
	asked  bool          // probes leave from this port until one returns in the carrier
	due    time.Duration // time of the next probe
	tried  int           // probes in the carrier since the last reply
	silent int           // attempts since the last reply at the probed length
	proved time.Duration // when the newest probe left that came back in the carrier
	// reached is the time at which the newest answered short probe without the carrier was sent.
	reached time.Duration
}

// dead reports whether packets from the source port do not arrive at all, short ones without the
// carrier neither. The carrier costs nothing there.
func (q *port) dead() bool { return q.silent >= 2*attempts && q.reached <= q.proved }

// outstanding is a probe whose answer is recognized.
type outstanding struct {
	pair    *pair
	at      time.Duration
	port    int
	size    int
	carrier bool
	trial   *trial // current trial; nil: no trial is running
}

// New returns a Prober that is offline and has no peers.
func New(cfg Config) *Prober {
	if cfg.Budget <= 0 {
		cfg.Budget = DefaultBudget
	}
	if cfg.Random == nil {
		cfg.Random = rand.Reader
	}
	return &Prober{cfg: cfg, by: map[netip.Addr]*pair{}, sent: map[Nonce]*outstanding{},
		budget: bucket{rate: float64(cfg.Budget)}}
}

// SetOnline states whether the agent has a session with the collector. Without one leases are not
// renewed, so that a host that the collector cannot reach does not tag packets.
func (p *Prober) SetOnline(now time.Duration, online bool) {
	if p.online == online {
		return
	}
	p.online = online
	for _, x := range p.pairs {
		if online {
			p.start(now, x)
		} else {
			p.apply(now, x, stopped)
		}
	}
}

// start begins to probe a pair that is offline.
func (p *Prober) start(now time.Duration, x *pair) {
	if x.until > now {
		p.apply(now, x, resumed)
	} else {
		p.apply(now, x, started)
	}
}

// apply moves a pair to the state that follows an event.
func (p *Prober) apply(now time.Duration, x *pair, e event) {
	to := transitions[x.state][e]
	if to == same || to == x.state {
		return
	}
	from := x.state
	x.state = to
	p.enter(now, x, from)
}

// enter carries out the actions of a new state.
func (p *Prober) enter(now time.Duration, x *pair, from State) {
	failed := x.size
	x.due = now
	x.settled = x.settled || x.state != Searching && x.state != Proving && x.state != Offline
	switch x.state {
	case Offline: // the lease lasts until its end
		x.reason = "no session with the collector"
	case Searching:
		x.low, x.high, x.size = 0, p.full(x)+1, p.full(x)
		switch from {
		case Proving: // the length in question does not arrive from a source port
			x.high, x.size = failed, p.least(x)
		case Lost, Silent:
			x.size = p.least(x)
		default:
		}
		if x.reason == "" || from == Offline {
			x.reason = "probes are on their way"
		}
		p.ask(now, x, 1<<x.port)
	case Proving:
		x.carriers, x.twins, x.recent = samples{}, samples{}, true
		if from == Leased {
			x.reason = "the lease ended before probes came back"
		}
		p.ask(now, x, 1<<Ports-1)
	case Leased:
		x.reason = ""
		x.since, x.grow, x.stretched, x.shrunk = now, now+growAfter, 0, false
		for i := range x.ports { // spreads the probes, so that each path is probed often
			q, pause := &x.ports[i], p.pause(x)
			q.asked, q.tried, q.due = true, 0, min(now+pause*time.Duration(i+1)/Ports, q.proved+pause)
		}
		x.due = x.next()
	case Lost:
		x.due = now + p.penalty(now, x, from)
	case Slow:
		x.reason = fmt.Sprintf("the carrier is slow: %v there and back, %v without it", x.carriers.median(),
			x.twins.median())
		x.due = now + p.penalty(now, x, from)
	case Silent:
		x.reason = "the peer does not answer"
		x.port = (x.port + 1) % Ports // the path of this port may be down
		x.due = now + retrySilent
	case Refused:
		p.revoke(x)
		x.reason = "the peer refuses: its agent ends"
		x.due = now + retrySilent
	}
}

// penalty ends a lease, and returns the time until the pair is probed again. The time doubles with
// each lease that ends soon, so that a path that loses a part of the packets in the carrier gets
// few of them.
func (p *Prober) penalty(now time.Duration, x *pair, from State) time.Duration {
	if from == Leased {
		if now-x.since >= steady {
			x.failures = 0
		}
		x.failures++
	}
	p.revoke(x)
	return min(retryLost<<min(max(x.failures-1, 0), 8), steady)
}

// ask begins to send packets of the length in question from a set of source ports, until one from
// each has come back in the carrier.
func (p *Prober) ask(now time.Duration, x *pair, set uint8) {
	for i := range x.ports {
		x.ports[i] = port{asked: set&(1<<i) != 0, due: now}
	}
	x.trials, x.excess, x.began, x.due = nil, 0, now, now
}

// pause is the time to the next renewal from a source port, varied so that hosts do not probe
// together. It leaves more time for further attempts where answers take long.
func (p *Prober) pause(x *pair) time.Duration {
	var b [1]byte
	_, _ = io.ReadFull(p.cfg.Random, b[:])
	d := max(Interval-2*(x.wait()-firstWait), firstWait)
	return d - d/8*time.Duration(b[0])/256
}

// revoke ends the lease of a pair.
func (p *Prober) revoke(x *pair) {
	if x.until != 0 {
		x.until, p.changed = 0, Urgent
	}
}

// Next returns the time until Due must be called; more than an hour without peers.
func (p *Prober) Next(now time.Duration) time.Duration {
	next := now + 2*time.Hour
	work := false
	for _, x := range p.pairs {
		if x.until > now {
			next = min(next, x.until)
		}
		switch x.state {
		case Offline:
		default:
			next = min(next, x.due)
			work = work || x.due <= now
		}
	}
	if work { // without tokens the work is delayed
		return max(p.budget.after(p.need), time.Millisecond)
	}
	return max(next-now, 0)
}

// Due returns the probes to be sent now, in pairs with their plain twins.
func (p *Prober) Due(now time.Duration) (out []Probe) {
	p.budget.refill(now)
	p.need = 0
	p.expire(now)
	for _, x := range p.pairs {
		if x.until != 0 && x.until <= now { // the lease has ended by itself
			p.revoke(x)
			p.apply(now, x, lapsed)
		}
	}
	for _, leased := range []bool{true, false} { // renewals first
		for _, x := range p.pairs {
			if (x.state == Leased) == leased && x.due <= now {
				out = p.work(now, x, out)
			}
		}
	}
	return out
}

// work carries out everything that is due for a pair.
func (p *Prober) work(now time.Duration, x *pair, out []Probe) []Probe {
	switch x.state {
	case Offline:
		return out
	case Lost, Slow, Silent, Refused:
		p.apply(now, x, again)
	case Searching, Proving, Leased:
		p.judge(now, x)
	}
	if x.due > now {
		return out
	}
	for i := range x.ports {
		q := &x.ports[i]
		if !q.asked || q.due > now {
			continue
		}
		// A renewal has a twin only if the twin's result is needed.
		twin := x.state != Leased || q.tried > 0 || x.excess > 0 || !x.twins.full()
		n := 1
		if twin {
			n = 2
		}
		if !p.budget.take(n) {
			p.need = cmp.Or(p.need, n)
			return out
		}
		out = p.attempt(now, x, i, twin, out)
	}
	x.due = x.next()
	return p.stretch(now, x, out)
}

// attempt sends a probe in the carrier from a source port, and its twin.
func (p *Prober) attempt(now time.Duration, x *pair, i int, twin bool, out []Probe) []Probe {
	q := &x.ports[i]
	q.tried++
	q.silent++
	q.due = now + retryEvery
	if q.tried == 1 || q.silent >= attempts && x.state != Leased {
		q.due = now + x.wait()
	}
	if !twin {
		return append(out, p.probe(now, x, i, x.size, true, nil))
	}
	if x.state != Searching && q.silent > attempts { // tests whether the length is the cause, or nothing arrives
		if q.silent > 2*attempts {
			q.due = now + deadEvery
			if x.state == Leased {
				p.renew(now, x) // the other source ports may have been proved long ago
			}
		}
		if x.state == Leased && q.reached > q.proved {
			out = p.shorten(now, x, i, out)
		}
		return append(out, p.probe(now, x, i, x.size, true, nil), p.probe(now, x, i, p.least(x), false, nil))
	}
	t := &trial{at: now}
	x.trials = append(x.trials, t)
	carrier, plain := p.probe(now, x, i, x.size, true, t), p.probe(now, x, i, x.size, false, t)
	if i%2 == 0 { // alternates whether the carrier or its twin is sent first
		return append(out, carrier, plain)
	}
	return append(out, plain, carrier)
}

// next is the time of the next probe or result of a pair that is probed.
func (x *pair) next() time.Duration {
	next := x.began + x.wait() // end of a proof that only lacks twins
	asked := false
	for i := range x.ports {
		if q := &x.ports[i]; q.asked && (!asked || q.due < next) {
			asked, next = true, q.due
		}
	}
	return next
}

// wait is how long the Prober waits for an answer.
func (x *pair) wait() time.Duration { return min(max(firstWait, 2*x.rtt), maxWait) }

// probe returns a probe and remembers it.
func (p *Prober) probe(now time.Duration, x *pair, port, size int, carrier bool, t *trial) Probe {
	m := Message{Kind: KindProbe}
	if carrier {
		m.Flags = FlagCarrier
	}
	_, _ = io.ReadFull(p.cfg.Random, m.Nonce[:])
	p.sent[m.Nonce] = &outstanding{pair: x, at: now, port: port, size: size, carrier: carrier, trial: t}
	p.order = append(p.order, m.Nonce)
	return Probe{Message: m, Source: p.source(x.Address), Destination: x.Address, SourcePort: uint16(FirstPort + port),
		Length: size - p.overhead(x)}
}
