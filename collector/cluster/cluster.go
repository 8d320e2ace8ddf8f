// SPDX-License-Identifier: Apache-2.0

// Package cluster makes several collectors share the devices, hosts and plugins of one
// configuration. Each collector is a member.
//
//	lease in a key-value bucket --> fence (its revision), one collector per name
//	beats of all members --------> View: the live members --> Owner of each device, host and plugin
//
// A member renews its lease and publishes a beat four times in Config.Lease. A member whose beats
// stop for Config.Lease is gone, and the others take over what it owned. A view gives each key one
// owner, by weighted rendezvous hashing (Owner).
//
// Only a member with a lease takes anything over. A member that cannot renew its lease, because
// NATS is away or because it is in the minority of a split network, keeps its devices and measures
// them, but writes no entries. Should others have taken them over, their fence is higher, and the
// switch obeys them: the fence is the high part of P4Runtime's election id.
//
// The upper half of a fence is the time at which the bucket was created, and the lower half the
// revision of the member's lease in the bucket. A new fence is therefore above all earlier ones,
// also if the bucket was lost. If NATS servers have lost its entries, the bucket is made again.
//
// # Concurrency
//
// Methods of Component may be called from any goroutine. OnView is called by one goroutine. Stop
// waits for all goroutines.
package cluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/netsketch/netsketch/collector/cluster/bus"
	"github.com/netsketch/netsketch/collector/cluster/clusterv1"
)

// DefaultLease is the default of Config.Lease.
const DefaultLease = 2 * time.Second

// renewals is how often a lease is renewed in its duration.
const renewals = 4

// Config configures a member.
type Config struct {
	// Member is the name of this collector, unique in the cluster.
	Member string
	// Weight is its share relative to other members; at least 1.
	Weight int
	// Version is the version of the program.
	Version string
	// Agents is the address for host agents; "" if they are not served.
	Agents string
	// Digests are the digests, by name, of the sections of the configuration that all members must
	// share.
	Digests map[string]string
	// Lease is the time without a beat after which a member is gone; DefaultLease if 0.
	Lease time.Duration
	// Now is the clock that begins epochs; the member compares it with the NATS server's clock. The
	// default is time.Now.
	Now func() time.Time
}

// Dependencies are what New needs from its caller.
type Dependencies struct {
	Bus    *bus.Bus     // required
	Logger *slog.Logger // nil disables logging
	// OnView is called when owners, members or the lease have changed in View. It may take long:
	// views that are superseded meanwhile are left out.
	OnView func()
	// Epoch returns the number of the open epoch, 0 if none is open. It may be nil.
	Epoch func() uint64
	// Holds returns the devices, hosts and plugins that this member has not handed over. It may be
	// nil.
	Holds func() Holdings
	// Counts returns the counters of this member. It may be nil.
	Counts func() Counts
	// OnOffer takes over the devices that another member offers, and returns the reply. If OnOffer is
	// nil, the member takes over no devices.
	OnOffer func(*clusterv1.Offer) *clusterv1.OfferReply
}

// Component is this collector in its cluster.
type Component struct {
	cfg  Config
	deps Dependencies
	log  *slog.Logger

	ctx    context.Context // ends with Stop
	cancel context.CancelFunc
	work   sync.WaitGroup
	beats  chan beat
	wake   chan struct{} // makes run renew the lease, after a command or a new view
	views  chan struct{} // OnView is due

	lease lease // used by run only
	joins bool  // whether this member has ever had a lease; used by run only
	peers map[string]peer
	// stranger is the time at which a lease or beat that cannot be read was last found; used by run
	// only.
	stranger time.Time

	mu     sync.Mutex
	self   Member
	view   View
	first  chan struct{} // closed when the first view with a lease is known
	logged string        // reason that was logged last
}

// peer is another member with the time of its latest beat.
type peer struct {
	Member
	at time.Time
}

// beat is a message of a member.
type beat struct {
	data []byte
	at   time.Time
}

// New returns a member that has not joined.
func New(cfg Config, deps Dependencies) *Component {
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Lease == 0 {
		cfg.Lease = DefaultLease
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	id := make([]byte, 8)
	_, _ = rand.Read(id) // never fails
	c := &Component{cfg: cfg, deps: deps, log: deps.Logger, beats: make(chan beat, 1024), wake: make(chan struct{}, 1),
		views: make(chan struct{}, 1), peers: map[string]peer{}, first: make(chan struct{})}
	c.self = Member{Name: cfg.Member, Incarnation: hex.EncodeToString(id), Protocol: clusterv1.Version,
		Version: cfg.Version, Weight: max(cfg.Weight, 1), State: Active, Started: time.Now().UTC(),
		Agents: cfg.Agents, Digests: cfg.Digests}
	c.view, c.lease.now = View{Self: cfg.Member}, cfg.Now
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Start joins the cluster in the background: NATS may be away.
func (c *Component) Start() error {
	receive := func(m *nats.Msg) {
		select {
		case c.beats <- beat{m.Data, time.Now()}:
		default: // run is behind: the member's next beat replaces this one
		}
	}
	if _, err := c.deps.Bus.Conn().Subscribe(c.deps.Bus.Subject("beat"), receive); err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	err := c.respond("control", c.control)
	if c.deps.OnOffer != nil {
		err = errors.Join(err, c.respond("moves", c.offered))
	}
	if err != nil {
		return err
	}
	c.work.Go(c.run)
	c.work.Go(c.publish)
	return nil
}

// Stop leaves the cluster: the other members take over at once.
func (c *Component) Stop() {
	c.cancel()
	c.work.Wait()
}

// View returns the newest view.
func (c *Component) View() View {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.view
}

// Incarnation returns the identifier of this start of the collector.
func (c *Component) Incarnation() string { return c.self.Incarnation }

// WaitView waits until the member has joined, or ctx ends, and reports whether it has.
func (c *Component) WaitView(ctx context.Context) bool {
	select {
	case <-c.first:
		return true
	case <-ctx.Done():
		return false
	}
}

// SetDigests takes over the digests of a changed configuration.
func (c *Component) SetDigests(digests map[string]string) {
	c.change(func(m *Member) { m.Digests = digests })
}

// change changes the description of this member.
func (c *Component) change(f func(*Member)) {
	c.mu.Lock()
	f(&c.self)
	c.mu.Unlock()
	c.offer()
}

// offer makes run send a beat and compute the view.
func (c *Component) offer() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *Component) current() Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.self
}

// publish calls OnView for new views. It renews the lease first, so that the member's fence is
// above the fences of sessions that others hand over to this member.
func (c *Component) publish() {
	for {
		select {
		case <-c.views:
			c.offer()
			c.deps.OnView()
		case <-c.ctx.Done():
			return
		}
	}
}

// run keeps the lease, sends beats and computes views, until Stop.
func (c *Component) run() {
	every := time.NewTicker(c.cfg.Lease / renewals)
	defer every.Stop()
	c.renew()
	for {
		select {
		case b := <-c.beats:
			c.take(b)
			if len(c.beats) == 0 {
				c.evaluate(time.Now())
			}
		case <-every.C:
			c.renew()
		case <-c.wake:
			c.renew()
		case <-c.ctx.Done():
			c.leave()
			return
		}
	}
}

// renew renews the lease, sends a beat and computes the view.
func (c *Component) renew() {
	was := c.lease.held(time.Now(), c.cfg.Lease)
	ctx, cancel := context.WithTimeout(c.ctx, c.cfg.Lease/renewals)
	found, err := c.lease.renew(ctx, c.deps.Bus, c.current(), c.cfg.Lease)
	cancel()
	if c.ctx.Err() != nil {
		return
	}
	now := time.Now()
	if err != nil {
		c.complain("no lease in the cluster; devices are measured, and no entries are written: " + err.Error())
	} else if !was { // the lease was lost, and with it the beats of other members
		for name, p := range c.peers {
			p.at = now
			c.peers[name] = p
		}
		for _, m := range found {
			if m.Protocol == 0 {
				c.stranger = now
			} else {
				c.peers[m.Name] = peer{m, now}
			}
		}
		c.join(found)
	}
	c.drainBeats()
	c.judge(err == nil && !was)
	if c.joins { // without a lease this collector is no member: another one may have its name
		c.beat()
	}
	c.evaluate(now)
}

// drainBeats takes the beats that arrived while the lease was renewed.
func (c *Component) drainBeats() {
	for {
		select {
		case b := <-c.beats:
			c.take(b)
		default:
			return
		}
	}
}

// take takes a beat of another member.
func (c *Component) take(b beat) {
	m, err := decodeMember(b.data)
	if err != nil {
		c.stranger = b.at
		if c.joins && c.current().State != Refused { // a refused member keeps the reason of its refusal
			c.complain("a collector of another version of netsketch is in the cluster, and is ignored; stop it: its beats " +
				"cannot be read: " + err.Error())
		}
		return
	}
	switch {
	case m.Name == c.cfg.Member:
		if m.Incarnation != c.self.Incarnation && m.State != Left {
			c.complain("another collector is member " + m.Name + ", too; give each a cluster.member of its own")
		}
	case m.State == Left:
		if p, ok := c.peers[m.Name]; ok && p.Incarnation == m.Incarnation {
			delete(c.peers, m.Name)
		}
	default:
		if p, ok := c.peers[m.Name]; ok && p.Incarnation != m.Incarnation && p.Started.After(m.Started) {
			return // the beat is of an earlier incarnation
		}
		c.peers[m.Name] = peer{m, b.at}
	}
}

// judge refuses this member if its configuration or version differs from the configuration or
// version of the members that joined earlier. A member that joined keeps its place when the
// configuration changes. Of two members of different versions that join at the same time, the one
// that was started later is refused.
func (c *Component) judge(joins bool) {
	self := c.current()
	joins = joins || self.State == Refused
	reason := ""
	if joins && time.Since(c.stranger) < c.cfg.Lease {
		reason = "a collector of another version of netsketch is in the cluster: its lease and beats cannot be read; stop it"
	}
	for _, name := range slices.Sorted(maps.Keys(c.peers)) {
		p := c.peers[name]
		if p.State != Refused && reason == "" && (joins || p.Protocol != self.Protocol && p.before(self)) {
			reason = self.conflict(p.Member)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case reason != "":
		if c.self.State != Refused || c.self.Reason != reason {
			c.log.Warn("cluster: this collector is refused by its cluster, and measures nothing: " + reason)
		}
		c.self.State, c.self.Reason = Refused, reason
	case c.self.State == Refused:
		c.self.State, c.self.Reason = Active, ""
	}
}

// beat sends a description of this member to the others.
func (c *Component) beat() {
	c.mu.Lock()
	c.self.Offset, c.self.Uncertainty = c.lease.offset, c.lease.uncertainty
	c.mu.Unlock()
	c.send(c.current())
}

// ClockWarnings names the members whose clocks differ from this member's clock by more than a
// bound: their epochs begin at other times.
func (c *Component) ClockWarnings(bound time.Duration) (warnings []string) {
	v := c.View()
	self, _ := v.Member(v.Self)
	for _, m := range v.Members {
		apart := m.Offset - self.Offset
		if m.Active() && apart.Abs()-m.Uncertainty-self.Uncertainty > bound {
			warnings = append(warnings, fmt.Sprintf("the clock of collector %s is %v ahead of that of %s, more than the "+
				"guard of %v", m.Name, apart.Round(time.Microsecond), v.Self, bound))
		}
	}
	return warnings
}

func (c *Component) send(m Member) {
	data, err := m.encode()
	if err == nil {
		err = c.deps.Bus.Conn().Publish(c.deps.Bus.Subject("beat"), data)
	}
	if err != nil && c.ctx.Err() == nil {
		c.log.Debug("cluster: a beat was not sent", "error", err)
	}
}

// evaluate computes the view. Without a lease, the members of the last view stay. A member is gone
// if its beats have stopped for Config.Lease and this member has renewed its own lease since. So a
// member that the network has cut off loses its lease before it takes the others for gone.
func (c *Component) evaluate(now time.Time) {
	next := View{Self: c.cfg.Member, Leased: c.lease.held(now, c.cfg.Lease), Fence: c.lease.fence()}
	self := c.current()
	c.mu.Lock()
	was := c.view
	c.mu.Unlock()
	if next.Leased {
		next.Members = append(next.Members, self)
		for name, p := range c.peers {
			if gone := p.at.Add(c.cfg.Lease); !now.Before(gone) && !c.lease.at.Before(gone) {
				delete(c.peers, name)
				continue
			}
			next.Members = append(next.Members, p.Member)
		}
		slices.SortFunc(next.Members, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	} else {
		next.Members, next.Fence = was.Members, was.Fence
	}
	changed := !next.sameOwners(was)
	c.mu.Lock()
	c.view = next
	c.mu.Unlock()
	if !changed {
		return
	}
	c.logView(was, next)
	if next.Leased {
		select {
		case <-c.first:
		default:
			close(c.first)
		}
	}
	select {
	case c.views <- struct{}{}:
	default:
	}
}

// logView logs which members joined, left or changed their state.
func (c *Component) logView(was, next View) {
	for _, m := range next.Members {
		before, known := was.Member(m.Name)
		fresh := !known || before.Incarnation != m.Incarnation
		switch {
		case m.State == Refused:
			if m.Name != next.Self && (fresh || before.State != Refused) { // judge has logged this member's own refusal
				c.log.Warn("cluster: a member is refused", "member", m.Name, "version", m.Version, "reason", m.Reason)
			}
		case fresh:
			c.log.Info("cluster: a member is present", "member", m.Name, "state", string(m.State), "version", m.Version)
		case before.State != m.State:
			c.log.Info("cluster: a member has changed", "member", m.Name, "state", string(m.State))
		}
		if before.Since != m.Since && m.Since != notYet {
			c.log.Info("cluster: plugins and hosts move", "member", m.Name, "state", string(m.State), "epoch", m.Since)
		}
		self := c.current()
		if reason := self.conflict(m); reason != "" && self.State != Refused && m.State != Refused &&
			!maps.Equal(before.Digests, m.Digests) {
			c.log.Warn("cluster: members have different configurations", "reason", reason)
		}
	}
	for _, m := range was.Members {
		if _, known := next.Member(m.Name); !known {
			c.log.Warn("cluster: a member is gone", "member", m.Name)
		}
	}
	if was.Leased != next.Leased {
		c.log.Info("cluster: lease", "held", next.Leased, "fence", next.Fence)
		c.mu.Lock()
		c.logged = ""
		c.mu.Unlock()
	}
}

// complain logs a reason once.
func (c *Component) complain(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.logged != reason {
		c.logged = reason
		c.log.Warn("cluster: " + reason)
	}
}

// leave gives the lease back.
func (c *Component) leave() {
	m := c.current()
	m.State = Left
	c.send(m)
	ctx, cancel := context.WithTimeout(context.Background(), c.cfg.Lease/2)
	defer cancel()
	c.lease.giveBack(ctx, m)
	_ = c.deps.Bus.Conn().FlushWithContext(ctx) // NATS may be away
}
