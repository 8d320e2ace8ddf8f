// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"io"
	"math/bits"
	"net/netip"
	"slices"
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
	sent    map[Nonce]*outstanding
	order   []Nonce // of sent, oldest first
	budget  bucket
	need    int // probes that wait for the budget
	changed Change
}

// pair is this host and an address of a peer.
type pair struct {
	Peer
	state  State
	reason string        // why there is no lease
	due    time.Duration // of what comes next

	until     time.Duration // end of the lease; 0: none
	maxLength int           // of the lease

	// low is the longest packet that arrived, high the shortest that did not; size is the one in
	// question. All include the carrier.
	low, high, size int

	// The round in progress sends probes from the source ports of asked, until all came back.
	port     int   // source port that the search and the renewal use
	asked    uint8 // bit set of source ports
	arrived  uint8 // those whose probe in the carrier came back
	plain    bool  // a twin of the round came back
	tried    int   // attempts of the round
	began    time.Duration
	removed  bool // a probe arrived without its carrier
	carriers samples
	twins    samples

	rtt     time.Duration // longest of recent round-trip times
	settled bool          // a search has had a result
	grow    time.Duration // when longer packets are tried next
	grown   uint8         // source ports from which they arrived
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

// outstanding is a probe whose answer is recognized.
type outstanding struct {
	pair    *pair
	at      time.Duration
	port    int
	size    int
	carrier bool
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

// SetPeering sets what leases are needed for. Pairs that stay keep their lease, unless the carrier
// or the MTU changed.
func (p *Prober) SetPeering(now time.Duration, g Peering) {
	keep := p.peering.OverheadIPv4 == g.OverheadIPv4 && p.peering.OverheadIPv6 == g.OverheadIPv6 &&
		p.peering.MTU == g.MTU && slices.Equal(p.peering.Addresses, g.Addresses)
	old := p.by
	p.peering, p.by, p.pairs = g, map[netip.Addr]*pair{}, nil
	p.changed = Urgent
	for _, peer := range g.Peers {
		source := p.source(peer.Address)
		if peer.Host == g.Host && (!g.Own || peer.Address == source) || !source.IsValid() || p.by[peer.Address] != nil {
			continue
		}
		x := old[peer.Address]
		if x == nil || !keep || x.Host != peer.Host {
			x = &pair{Peer: peer, reason: "no session with the collector"}
		}
		p.by[peer.Address] = x
		p.pairs = append(p.pairs, x)
	}
	// Hosts begin with the peers behind them, so that a budget that is too small leaves out other
	// peers at each host.
	slices.SortStableFunc(p.pairs, func(a, b *pair) int { return cmp.Compare(g.behind(a.Host), g.behind(b.Host)) })
	room := p.room()
	for i, x := range p.pairs {
		switch {
		case !p.online:
			p.apply(now, x, stopped)
		case i >= room:
			p.start(now, x)
			p.apply(now, x, crowded)
		default:
			p.start(now, x)
			p.apply(now, x, admitted)
		}
	}
}

// behind orders hosts, beginning with those whose number follows that of this host.
func (g *Peering) behind(host int) int {
	if host > g.Host {
		return host
	}
	return host + 1<<16
}

// room is the count of pairs whose leases the budget can renew. Renewals take at most about nine
// tenths of it, so that other pairs can prove theirs.
func (p *Prober) room() int { return max(int(0.4*float64(p.cfg.Budget)*Interval.Seconds()), 1) }

// source is the address from which probes to a peer leave.
func (p *Prober) source(to netip.Addr) netip.Addr {
	for _, a := range p.peering.Addresses {
		if a.Is4() == to.Is4() {
			return a
		}
	}
	return netip.Addr{}
}

// SetOnline states whether the agent has a session with the collector. Without one leases are not
// renewed, so that a host that the collector cannot reach does not tag packets.
func (p *Prober) SetOnline(now time.Duration, online bool) {
	if p.online == online {
		return
	}
	p.online = online
	room := p.room()
	for i, x := range p.pairs {
		switch {
		case !online:
			p.apply(now, x, stopped)
		case i >= room:
			p.apply(now, x, crowded)
		default:
			p.start(now, x)
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

// RevokeAll gives up all leases at once.
func (p *Prober) RevokeAll() {
	for _, x := range p.pairs {
		p.revoke(x)
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

// enter does what belongs to a new state.
func (p *Prober) enter(now time.Duration, x *pair, from State) {
	failed := x.size
	x.asked, x.due = 0, now
	x.settled = x.settled || x.state != Searching && x.state != Proving && x.state != Offline
	switch x.state {
	case Offline: // the lease lasts until its end
		x.reason = "no session with the collector"
	case Waiting:
		p.revoke(x)
		x.reason = fmt.Sprintf("more than %d probes a second would be needed", p.cfg.Budget)
	case Searching:
		x.low, x.high, x.size = 0, p.full(x)+1, p.full(x)
		switch from {
		case Proving, Leased: // the length in question does not arrive from a source port
			x.high, x.size = failed, p.least(x)
		case Silent:
			x.size = p.least(x)
		default:
		}
		if x.reason == "" || from == Offline || from == Waiting {
			x.reason = "probes are on their way"
		}
	case Proving:
		x.carriers, x.twins = samples{}, samples{}
		if from == Leased {
			x.reason = "the lease ended before probes came back"
		}
	case Leased:
		x.reason = ""
		x.due = now + p.pause()
		x.grow = now + growAfter
	case Lost:
		p.revoke(x)
		x.due = now + retryLost
	case Slow:
		p.revoke(x)
		x.reason = fmt.Sprintf("the carrier is slow: %v there and back, %v without it", x.carriers.median(),
			x.twins.median())
		x.due = now + retryLost
	case Silent: // a lease lasts until its end
		x.reason = "the peer does not answer"
		x.due = now + retrySilent
	case Refused:
		p.revoke(x)
		x.reason = "the peer refuses: its agent ends"
		x.due = now + retrySilent
	}
}

// pause is the time to the next renewal of a lease, varied so that hosts do not probe together.
func (p *Prober) pause() time.Duration {
	var b [1]byte
	_, _ = io.ReadFull(p.cfg.Random, b[:])
	return Interval - Interval/8*time.Duration(b[0])/256
}

// revoke ends the lease of a pair.
func (p *Prober) revoke(x *pair) {
	if x.until != 0 {
		x.until, p.changed = 0, Urgent
	}
}

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

// Next returns the time until Due has something to do; more than an hour without peers.
func (p *Prober) Next(now time.Duration) time.Duration {
	next := now + 2*time.Hour
	work := false
	for _, x := range p.pairs {
		if x.until > now {
			next = min(next, x.until)
		}
		switch x.state {
		case Offline, Waiting:
		default:
			next = min(next, x.due)
			work = work || x.due <= now
		}
	}
	if work { // a bucket without tokens delays it
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
		if x.until != 0 && x.until <= now { // ended by itself
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

// work does what is due for a pair.
func (p *Prober) work(now time.Duration, x *pair, out []Probe) []Probe {
	switch x.state {
	case Offline, Waiting:
		return out
	case Lost, Slow, Silent, Refused:
		p.apply(now, x, again)
	case Searching, Proving, Leased:
	}
	switch {
	case x.asked == 0:
	case x.arrived == x.asked:
		p.assess(now, x)
	case x.tried == attempts:
		p.verdict(now, x)
	}
	if x.due > now {
		return out
	}
	if x.asked == 0 { // a new round
		switch x.state {
		case Proving:
			x.asked = 1<<Ports - 1
		case Leased:
			x.port = (x.port + 1) % Ports
			x.asked = 1 << x.port
		default:
			x.asked = 1 << x.port
		}
		x.arrived, x.tried, x.plain, x.removed, x.began = 0, 0, false, false, now
	}
	missing := x.asked &^ x.arrived
	if n := 2 * bits.OnesCount8(missing); !p.budget.take(n) {
		p.need = cmp.Or(p.need, n)
		if x.tried == 0 {
			x.asked = 0
		}
		return out
	}
	for port := range Ports {
		if missing&(1<<port) == 0 {
			continue
		}
		carrier, twin := p.probe(now, x, port, x.size, true), p.probe(now, x, port, x.size, false)
		if port%2 == 0 { // neither of the two is always the one that waits behind the other
			out = append(out, carrier, twin)
		} else {
			out = append(out, twin, carrier)
		}
	}
	x.tried++
	x.due = now + x.wait()
	if x.state == Leased && x.size < p.full(x) && now >= x.grow && p.budget.take(Ports) {
		x.grow, x.grown = now+growAfter, 0
		for port := range Ports {
			out = append(out, p.probe(now, x, port, p.full(x), true))
		}
	}
	return out
}

// wait is the time that an answer has.
func (x *pair) wait() time.Duration { return min(max(firstWait, 2*x.rtt), maxWait) }

// probe returns a probe and remembers it.
func (p *Prober) probe(now time.Duration, x *pair, port, size int, carrier bool) Probe {
	m := Message{Kind: KindProbe}
	if carrier {
		m.Flags = FlagCarrier
	}
	_, _ = io.ReadFull(p.cfg.Random, m.Nonce[:])
	p.sent[m.Nonce] = &outstanding{pair: x, at: now, port: port, size: size, carrier: carrier}
	p.order = append(p.order, m.Nonce)
	return Probe{Message: m, Source: p.source(x.Address), Destination: x.Address, SourcePort: uint16(FirstPort + port),
		Length: size - p.overhead(x)}
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

// verdict ends a round in which not all probes came back.
func (p *Prober) verdict(now time.Duration, x *pair) {
	x.port = bits.TrailingZeros8(x.asked &^ x.arrived) // the search goes on where it failed
	lost := x.plain || x.removed
	if lost {
		p.revoke(x)
	}
	if lost || x.state != Leased && x.state != Silent {
		x.reason = "the peer does not answer"
		switch {
		case x.removed:
			x.reason = "carrier removed on the path"
		case x.plain:
			x.reason = "carrier lost on the path"
		}
	}
	switch {
	case x.size > p.least(x) && x.state != Searching:
		p.apply(now, x, shorter)
	case x.state == Searching && (x.low > 0 || x.size > p.least(x)):
		x.high = x.size
		p.search(now, x)
	case lost:
		p.apply(now, x, failed)
	default:
		p.apply(now, x, unanswered)
	}
}

// search chooses the next length, or ends the search.
func (p *Prober) search(now time.Duration, x *pair) {
	x.asked, x.due = 0, now
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
}

// Received takes a probe or reply. A probe shows that its sender is there; replies to other probes
// than those of this Prober have no effect.
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
	if x.state == Offline || x.state == Waiting {
		return
	}
	if r.Flags&FlagRefuses != 0 {
		p.apply(now, x, refused)
		return
	}
	delete(p.sent, r.Nonce)
	rtt := now - o.at
	x.rtt = max(rtt, x.rtt-x.rtt/8)
	current := x.asked != 0 && o.at >= x.began && o.size == x.size && x.asked&(1<<o.port) != 0
	switch {
	case !o.carrier:
		x.twins.add(rtt)
		x.plain = x.plain || current
	case r.Flags&FlagCarrier == 0:
		x.removed = x.removed || current
	default:
		x.carriers.add(rtt)
		if x.state == Leased {
			p.lengthen(x, o)
			p.renew(x, o)
		}
		switch {
		case current:
			x.arrived |= 1 << o.port
		case x.state == Searching && o.port == x.port && o.size > x.low: // an answer that came late
			if o.size >= x.high {
				x.high = p.full(x) + 1
			}
			x.low = o.size
			p.search(now, x)
		}
	}
	p.assess(now, x)
}

// renew extends the lease from the sending of a probe that came back.
func (p *Prober) renew(x *pair, o *outstanding) {
	if until := o.at + Lifetime; until > x.until && o.size == x.size {
		if p.changed = max(p.changed, Renewed); x.until == 0 {
			p.changed = Urgent
		}
		x.until, x.maxLength = until, x.size
	}
}

// lengthen takes the full length into use once it arrived from all source ports.
func (p *Prober) lengthen(x *pair, o *outstanding) {
	if o.size <= x.size {
		return
	}
	if x.grown |= 1 << o.port; x.grown == 1<<Ports-1 {
		x.size, x.asked, x.until = o.size, 0, 0 // renew follows
	}
}

// assess ends a round whose probes all came back.
func (p *Prober) assess(now time.Duration, x *pair) {
	if x.asked == 0 || x.arrived != x.asked {
		return
	}
	switch x.state {
	case Searching:
		if x.until != 0 && x.maxLength > x.size { // longer ones did not arrive
			p.revoke(x)
		}
		x.low = x.size
		p.search(now, x)
	case Proving:
		if !x.twins.full() && now < x.due {
			return // twins are still missing
		}
		if p.isSlow(x) {
			p.apply(now, x, delayed)
			return
		}
		p.apply(now, x, proved)
		p.renew(x, &outstanding{at: x.began, size: x.size})
	case Leased:
		if p.isSlow(x) {
			p.apply(now, x, delayed)
			return
		}
		x.asked, x.due = 0, max(now, x.began+p.pause())
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

// Change is what has happened to leases.
type Change uint8

// The changes: a lease that is only Renewed lasts for a while without being passed on.
const (
	Unchanged Change = iota
	Renewed
	Urgent // begun, revoked, or of another length
)

// Changed returns what has happened to leases since Passed was called.
func (p *Prober) Changed() Change { return p.changed }

// Passed states that Leases have been passed on.
func (p *Prober) Passed() { p.changed = Unchanged }

// Leases returns the leases that have not ended, in the order of peers.
func (p *Prober) Leases(now time.Duration) (out []Lease) {
	for _, x := range p.pairs {
		if x.until > now {
			out = append(out, Lease{Peer: x.Peer, MaxLength: x.maxLength, Until: x.until})
		}
	}
	return out
}

// Settled reports whether all pairs have had a lease, or a reason why there is none.
func (p *Prober) Settled() bool {
	return p.online && !slices.ContainsFunc(p.pairs, func(x *pair) bool { return !x.settled })
}

// PairStatus is the state of a pair without a lease, or with a short one.
type PairStatus struct {
	Peer
	State State
	// Reason is why there is no lease.
	Reason string
	// MaxLength is that of the lease, 0 without one.
	MaxLength int
}

// Status returns how many pairs are in each state, and the first pairs without a lease, at most
// limit.
func (p *Prober) Status(now time.Duration, limit int) (counts map[State]int, without []PairStatus) {
	counts = map[State]int{}
	for _, x := range p.pairs {
		counts[x.state]++
		if x.until <= now && len(without) < limit {
			without = append(without, PairStatus{Peer: x.Peer, State: x.state, Reason: x.reason})
		}
	}
	return counts, without
}
