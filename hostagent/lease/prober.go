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

// pair is this host and an address of a peer.
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

// outstanding is a probe whose answer is recognized.
type outstanding struct {
	pair    *pair
	at      time.Duration
	port    int
	size    int
	carrier bool
	trial   *trial // current trial; nil: none
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
	p.peering.Peers = nil // there may be many
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

// behind orders hosts, beginning with the hosts whose numbers follow this host's number.
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

// settle goes on after longer packets arrived or did not.
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

// wait is the time that an answer has.
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

// Change is a set of changes of leases.
type Change uint8

// The changes: a lease that is only Renewed lasts for a while without being passed on.
const (
	Unchanged Change = iota
	Renewed
	Urgent // begun, revoked, or of another length
)

// Changed returns the changes of leases since Passed was called.
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

// Settled reports whether every pair has had a lease, or has a reason for having none.
func (p *Prober) Settled() bool {
	return p.online && !slices.ContainsFunc(p.pairs, func(x *pair) bool { return !x.settled })
}

// PairStatus is the state of a pair without a lease, or with a short one.
type PairStatus struct {
	Peer
	State State
	// Reason says why there is no lease, or why it is short.
	Reason string
	// MaxLength is the longest packet that the lease allows, 0 without a lease.
	MaxLength int
}

// Status returns how many pairs are in each state, and the first pairs without a lease, at most
// limit. Pairs that are not wanted are not counted, if leases are on demand.
func (p *Prober) Status(now time.Duration, limit int) (counts map[State]int, without []PairStatus) {
	counts = map[State]int{}
	for _, x := range p.pairs {
		counts[x.state]++
		reason, length := x.reason, 0
		if x.until > now {
			if x.maxLength >= p.full(x) {
				continue
			}
			length = x.maxLength
			reason = fmt.Sprintf("a lease for packets of up to %d bytes only: longer ones do not arrive in the carrier", length)
		}
		if len(without) < limit {
			without = append(without, PairStatus{Peer: x.Peer, State: x.state, Reason: reason, MaxLength: length})
		}
	}
	if n := len(p.waiting); n > 0 {
		counts[Waiting] = n
		reason := fmt.Sprintf("more than %d probes a second would be needed", p.cfg.Budget)
		for _, peer := range p.waiting[:min(n, max(limit-len(without), 0))] {
			without = append(without, PairStatus{Peer: peer, State: Waiting, Reason: reason})
		}
	}
	return counts, without
}
