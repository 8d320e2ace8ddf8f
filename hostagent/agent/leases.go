// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/hostagent/hostv1"
	"github.com/netsketch/netsketch/hostagent/lease"
)

// leases earns and keeps the leases of one data path, and answers the probes of its peers.
type leases struct {
	path lease.Path
	// report passes the state of leases to the collector, if there is a session.
	report func(*hostv1.Leases)
	after  func(d time.Duration, f func()) (stop func() bool)

	mu        sync.Mutex
	prober    *lease.Prober
	responder lease.Responder
	peering   bool // settings are in force
	followed  bool // settings of the data path have been followed
	stop      func() bool
	armed     time.Duration // time for which the timer is set
	wantAt    time.Duration // when the data path is next asked which leases are wanted
	passed    time.Duration // when leases were last passed to the data path
	failed    error         // the newest error of Send
	ended     bool
	reported  *hostv1.Leases // newest report of leases
	reportAt  time.Duration  // time of the next report
}

// passEvery is the time between two calls that only renew leases, whatever their count is.
const passEvery = 250 * time.Millisecond

// wantEvery is the time between two calls of Wanted, if leases are on demand.
const wantEvery = 100 * time.Millisecond

// Leases are reported to the collector once in reportEvery, with the reasons of maxReasons
// addresses at most.
const (
	reportEvery = time.Second
	maxReasons  = 100
)

func newLeases(path lease.Path, cfg lease.Config, after func(time.Duration, func()) func() bool,
	report func(*hostv1.Leases)) *leases {
	l := &leases{path: path, report: report, after: after, prober: lease.New(cfg)}
	path.OnProbe(l.received)
	return l
}

// refresh follows the settings of the data path.
func (l *leases) refresh() {
	p, ok := l.path.Peering()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.peering = ok; !ok {
		p = lease.Peering{}
	}
	l.responder.Refuse = false
	l.followed = true
	l.prober.SetPeering(l.path.Now(), p)
	l.work()
}

// online states whether the agent has a session.
func (l *leases) online(is bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prober.SetOnline(l.path.Now(), is)
	l.reported = nil
	l.work()
}

// leave gives up all leases, and refuses the probes of peers. It returns how long peers may go on
// to tag packets to this host.
func (l *leases) leave() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.peering {
		return 0
	}
	l.responder.Refuse = true
	l.prober.SetPeering(l.path.Now(), lease.Peering{})
	l.work()
	return lease.Linger
}

// end stops the timer.
func (l *leases) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	if l.stop != nil {
		l.stop()
	}
}

// received handles a probe or reply that arrived.
func (l *leases) received(r lease.Received) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.path.Now()
	if reply, ok := l.responder.Answer(now, r); ok {
		l.send(reply)
	}
	l.prober.Received(now, r)
	l.work()
}

// work handles everything that is due, and sets the timer to the next due time. The caller holds
// l.mu.
func (l *leases) work() {
	now := l.path.Now()
	if l.prober.OnDemand() && now >= l.wantAt {
		l.wantAt = now + wantEvery
		l.prober.Want(now, l.path.Wanted())
	}
	for _, p := range l.prober.Due(now) {
		l.send(p)
	}
	if c := l.prober.Changed(); c == lease.Urgent || c == lease.Renewed && now >= l.passed+passEvery {
		l.prober.Passed()
		l.passed = now
		l.path.SetLeases(l.prober.Leases(now))
	}
	if l.ended {
		return
	}
	l.share(now)
	d := max(l.prober.Next(now), time.Millisecond)
	if l.prober.OnDemand() {
		d = min(d, l.wantAt-now)
	}
	if d > time.Hour { // without peers nothing is due
		return
	}
	if l.stop != nil && l.armed <= now+d && l.armed > now {
		return // an earlier due time sets the timer again
	}
	if l.stop != nil {
		l.stop()
	}
	l.armed = now + d
	l.stop = l.after(d, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.armed = 0
		if !l.ended {
			l.work()
		}
	})
}

// share reports the state of leases if it has changed. l.mu is held.
func (l *leases) share(now time.Duration) {
	if now < l.reportAt || !l.prober.Settled() {
		return
	}
	l.reportAt = now + reportEvery
	counts, without := l.prober.Status(now, maxReasons)
	all := 0
	for _, n := range counts {
		all += n
	}
	m := &hostv1.Leases{Held: uint32(len(l.prober.Leases(now)))}
	m.Missing = uint32(all) - m.Held
	for _, w := range without {
		m.Without = append(m.Without, &hostv1.NoLease{Address: w.Address.AsSlice(), Reason: w.Reason})
	}
	if l.reported == nil && all > 0 || l.reported != nil && !proto.Equal(m, l.reported) {
		l.reported = m
		l.report(m)
	}
}

func (l *leases) send(p lease.Probe) { l.failed = l.path.Send(p) }

// settled reports whether all leases have been decided on. Before the data path has settings, the
// leases are not known.
func (l *leases) settled() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.followed && l.prober.Settled()
}
