// SPDX-License-Identifier: Apache-2.0

// Package agent is the session of one host with the collector: it drives the epochs of the host's
// data paths, applies the settings that plugins send, and reports each epoch.
//
//	clock ──▶ Agent ──▶ DataPath (one per role): Advance, Apply, Seal
//	            │
//	            ├── epochs up and down: small messages, sent first
//	            └── reports: sealed on request, sent in chunks, kept until acknowledged
//
// The epoch follows algorithm 1 of OmniMon: it advances by the host's clock, by packets of a newer
// epoch (in the data path), or by the collector. Only an advance by the host's clock is sent to the
// collector. While the agent has a session, its clock moves the epoch at most one epoch beyond the
// collector's, so that wrong clocks do not move the network: all hosts and switches accept packets
// of that epoch. The agent still sends the epoch of its clock, so that the collector names the
// host.
//
// Without a session the agent goes on to count; data paths keep epochs until they are requested, as
// far as their memory allows.
//
// # Concurrency
//
// Methods of Agent may be called from any goroutine; Run is called once. All goroutines have ended
// when Run returns.
package agent

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"google.golang.org/grpc/codes"

	"github.com/netsketch/netsketch/hostagent/hostv1"
	"github.com/netsketch/netsketch/hostagent/lease"
	"github.com/netsketch/netsketch/hostagent/role"
)

const (
	// maxLead is the largest count of epochs by which a host's clock moves the host ahead of the
	// newest epoch of the collector. It equals the distance beyond which other hosts do not accept an
	// epoch in a packet.
	maxLead = 1
	// maxAhead is the largest count of epochs that a host may be ahead of a collector that begins a
	// schedule. Beyond it, the numbers of the collector have gone back.
	maxAhead = 4
	// DefaultMaxBuffered is the default of Config.MaxBuffered, in bytes.
	DefaultMaxBuffered = 256 << 20
	// MaxSettings is the largest size of a role's settings in bytes.
	MaxSettings = 4 << 20

	// maxSlack is the longest delay after which a data path advances without the agent.
	maxSlack = 100 * time.Millisecond

	// partInterval is the longest time that a role's streamed results wait until a message is full, as
	// in LightGuardian's paper.
	partInterval = 100 * time.Millisecond

	// busyWait is how long reports wait when the load is high.
	busyWait = 100 * time.Millisecond

	// maxHops bounds the redirections that follow each other without a pause.
	maxHops = 4

	// Pauses between attempts grow from firstBackoff to maxBackoff, varied by half. Another collector
	// of a cluster serves the host at most 3 s after the end of its own.
	firstBackoff = 200 * time.Millisecond
	maxBackoff   = time.Second
	// maxRefusals is how many refusals in a row end the measurement, after some 5 s. A collector that
	// starts, or whose cluster assigns hosts, may refuse a host that it knows a moment later.
	maxRefusals = 8
)

// Config configures an agent.
type Config struct {
	// Address is the collector's, host:port.
	Address string
	// Others are the addresses of other collectors of its cluster, which are tried in turn. Each of
	// them redirects the agent to the collector that serves the host.
	Others []string
	// TLS returns what secures a session with an address, and has the host's certificate; nil:
	// plaintext.
	TLS func(address string) (*tls.Config, error)
	// Host is the name of the host. With TLS it may be empty; otherwise it must equal the name in the
	// certificate.
	Host string
	// Version is the version of the program.
	Version string
	// BootID identifies the boot of the system.
	BootID string
	// DataPaths are the roles of this host, with different names. The caller closes them after Run.
	DataPaths []DataPath
	// MaxBuffered bounds the reports that wait for their acknowledgment, in bytes. Beyond it the
	// oldest are dropped and counted. 0 is DefaultMaxBuffered.
	MaxBuffered int64
	// UDP sends epochs over UDP if the collector offers it.
	UDP bool
	// Leases configures the probes of data paths that tag packets only with a lease.
	Leases lease.Config
	// Busy, if set, reports whether the load of the host is high. Reports wait then; it is called
	// again after 100 ms, and before each chunk. Epochs do not wait.
	Busy func() bool
}

// Dependencies are what New needs from its caller. Zero values are usable.
type Dependencies struct {
	// Clock is the time; nil is the wall clock.
	Clock Clock
	// Logger receives state changes; nil disables logging.
	Logger *slog.Logger
	// Dial opens a connection to the collector; nil: TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// After calls f after d in the time of the leases' probes; nil: Clock.AfterFunc. An emulation sets
	// it to call f where it moves packets.
	After func(d time.Duration, f func()) (stop func() bool)
	// OnChange, if set, is called after Status has changed. It must not block.
	OnChange func()
}

func (d Dependencies) withDefaults() Dependencies {
	if d.Clock == nil {
		d.Clock = wallClock{}
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if d.After == nil {
		d.After = d.Clock.AfterFunc
	}
	if d.Dial == nil {
		d.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}
	}
	return d
}

// Clock is the time of a host. The clocks of package collector/epoch implement it.
type Clock interface {
	// Now is the time of day.
	Now() time.Time
	// AfterFunc calls f in a goroutine of its own after d. stop prevents the call.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

type wallClock struct{}

func (wallClock) Now() time.Time { return time.Now() }

func (wallClock) AfterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }

// Status is the state of an agent.
type Status struct {
	// Connected: the collector has accepted the session.
	Connected bool
	// LastError says why the latest session ended or was refused.
	LastError string
	// Sessions counts accepted sessions.
	Sessions uint64
	// Epoch is the newest epoch of the data paths.
	Epoch uint64
	// Given is the newest epoch that the host's clock or the collector brought. Packets move Epoch
	// beyond it by one.
	Given uint64
	// EpochsSent counts epochs that this host's clock began.
	EpochsSent uint64
	// EpochsHeld counts boundaries at which the host's clock was more than an epoch ahead.
	EpochsHeld uint64
	// ReportsAcknowledged, ReportsRefused and ReportsDropped count reports that the collector took,
	// that it refused, and that exceeded MaxBuffered.
	ReportsAcknowledged, ReportsRefused, ReportsDropped uint64
	// ChunksHeld counts times at which a part of a report waited because of Config.Busy.
	ChunksHeld uint64
	// Buffered is the size of the reports that wait for their acknowledgment, in bytes.
	Buffered int64
}

// Agent connects the data paths of one host with the collector.
type Agent struct {
	cfg      Config
	deps     Dependencies
	log      *slog.Logger
	instance string
	paths    map[string]DataPath
	leases   map[string]*leases // leases of the roles that need them
	outbox   outbox
	begins   begins

	filled chan struct{} // signals that a role has a full message

	// taking is held from the call that takes data from a data path until the data is in the outbox,
	// so that the outbox has the parts of an epoch before its report.
	taking sync.Mutex
	parts  uint64 // number of parts that were taken from data paths

	mu       sync.Mutex
	status   Status
	session  *session // nil while there is no session
	schedule schedule
	newest   uint64 // epoch of the collector
	aside    bool   // whether the collector ignores this host's clock
	by       uint64 // epochs by which this host's clock is ahead, if it is not followed
	timer    func() bool
	// partTimer stops the timer that sends parts of reports; nil before the first session.
	partTimer func() bool
	ended     bool
	leaving   map[string]func() bool // roles that end, each with the function that stops the timer of its end

	refusals int // refusals of this host in a row; used by Run
}

// schedule states how epochs follow from the time of day. The zero value has no epochs.
type schedule struct {
	length time.Duration
	zero   time.Time // start of epoch 0
}

// at returns the epoch at a time of day.
func (s schedule) at(t time.Time) uint64 { return uint64(max(0, t.Sub(s.zero)) / s.length) }

// next returns the time from t to the next boundary.
func (s schedule) next(t time.Time) time.Duration {
	since := t.Sub(s.zero) % s.length
	if since < 0 {
		since += s.length
	}
	return s.length - since
}

// New returns an agent that is not connected.
func New(cfg Config, deps Dependencies) (*Agent, error) {
	deps = deps.withDefaults()
	if cfg.MaxBuffered <= 0 {
		cfg.MaxBuffered = DefaultMaxBuffered
	}
	a := &Agent{cfg: cfg, deps: deps, log: deps.Logger, instance: randomID(), paths: map[string]DataPath{},
		leases: map[string]*leases{}, filled: make(chan struct{}, 1)}
	a.outbox.limit, a.leaving = cfg.MaxBuffered, map[string]func() bool{}
	for _, p := range cfg.DataPaths {
		if a.paths[p.Role()] != nil {
			return nil, fmt.Errorf("agent: two data paths of role %q; one is possible", p.Role())
		}
		a.paths[p.Role()] = p
		if n, ok := p.(Notifier); ok {
			n.OnAdvance(a.began)
		}
		if s, ok := p.(Streamer); ok {
			s.OnFull(a.full)
		}
		if l, ok := p.(lease.Path); ok {
			a.leases[p.Role()] = newLeases(l, cfg.Leases, deps.After, func(m *hostv1.Leases) { a.reportLeases(p.Role(), m) })
		}
	}
	if len(a.paths) == 0 {
		return nil, errors.New("agent: no data path; expected at least one role")
	}
	return a, nil
}

func randomID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// Run keeps a session with the collector until ctx ends, and returns nil then.
func (a *Agent) Run(ctx context.Context) error {
	defer a.stopClock()
	delays := &backoff.ExponentialBackOff{InitialInterval: firstBackoff, MaxInterval: maxBackoff,
		Multiplier: backoff.DefaultMultiplier, RandomizationFactor: backoff.DefaultRandomizationFactor}
	address, failures, hops := a.cfg.Address, 0, 0
	for {
		accepted, err := a.connect(ctx, address)
		if ctx.Err() != nil {
			return nil
		}
		a.disconnected(address, err)
		if accepted {
			delays.Reset()
			failures, hops = 0, 0
		}
		refused, _ := errors.AsType[errStatus](err)
		a.exclude(refused.code == codes.PermissionDenied)
		if redirect, ok := errors.AsType[*redirectError](err); ok && hops < maxHops {
			address, hops = redirect.address, hops+1
			continue
		}
		hops = 0
		if !accepted { // tries the next address; after a session that ended, the same address
			all := append([]string{a.cfg.Address}, a.cfg.Others...)
			failures++
			address = all[failures%len(all)]
		}
		timer := time.NewTimer(delays.NextBackOff())
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// disconnected records why a session ended, and logs it if the reason is new.
func (a *Agent) disconnected(address string, err error) {
	a.mu.Lock()
	was := a.status
	a.status.Connected, a.status.LastError = false, err.Error()
	a.mu.Unlock()
	if was.Connected || was.LastError != err.Error() {
		a.log.Warn("no session with the collector", "address", address, "error", err)
	}
	a.changed()
}

// exclude ends the measurement of all roles if collectors refuse this host maxRefusals times in a
// row, because it is configured without an agent or the certificate names no such host. The agent
// then refuses the probes of peers, and removes its programs from the kernel when peers hold no
// leases any more. The next session brings settings again.
func (a *Agent) exclude(refused bool) {
	if !refused {
		a.refusals = 0
		return
	}
	if a.refusals++; a.refusals != maxRefusals {
		return
	}
	a.log.Warn("the collector refuses this host: the measurement ends, and the programs in the kernel are removed when " +
		"no other host sends headers to this one")
	for _, role := range a.roles() {
		if err := a.apply(role, nil); err != nil {
			a.log.Error("the measurement of a role cannot be ended", "role", role, "error", err)
		}
	}
}

func (a *Agent) changed() {
	if a.deps.OnChange != nil {
		a.deps.OnChange()
	}
}

// Status returns the agent's state.
func (a *Agent) Status() Status {
	a.mu.Lock()
	s := a.status
	a.mu.Unlock()
	s.Epoch = a.epoch()
	s.Buffered, s.ReportsDropped = a.outbox.stats()
	return s
}

// epoch is the newest epoch of the data paths.
func (a *Agent) epoch() (newest uint64) {
	for _, p := range a.paths {
		newest = max(newest, p.Epoch())
	}
	return newest
}

// Tick advances the epoch by the host's clock, as the agent does at each boundary. An emulation
// calls it after it has moved a virtual clock, before it moves packets.
func (a *Agent) Tick() {
	a.mu.Lock()
	s, newest, session := a.schedule, a.newest, a.session
	a.mu.Unlock()
	if s.length == 0 {
		return
	}
	e := s.at(a.deps.Clock.Now())
	switch {
	case session == nil:
		e -= min(e, a.correction())
	case e > newest+a.lead(e):
		a.hold(e - newest)
		session.sendEpoch(e) // the collector names this host
		return
	default:
		a.correct(0)
	}
	if !a.advance(e) {
		return
	}
	a.mu.Lock()
	a.status.EpochsSent++
	a.mu.Unlock()
	if session != nil {
		session.sendEpoch(e)
	}
}

// lead returns how many epochs the clock may be ahead of the collector's newest epoch.
func (a *Agent) lead(e uint64) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.aside = a.aside && e > a.newest; a.aside {
		return 0
	}
	return maxLead
}

// correct states by how many epochs the host's clock is ahead. Data paths that advance without the
// agent subtract this number. A difference of one epoch may be the time that the collector's newest
// epoch takes to arrive.
func (a *Agent) correct(by uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if by == a.by || by > 0 && by == a.by+1 {
		return
	}
	a.by = by
	for _, p := range a.paths {
		a.follow(p)
	}
}

// correction returns by how many epochs the clock was ahead of the collector's.
func (a *Agent) correction() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.by
}

// hold records that the host's clock is too far ahead.
func (a *Agent) hold(by uint64) {
	a.correct(by)
	a.mu.Lock()
	first := a.status.EpochsHeld == 0
	a.status.EpochsHeld++
	a.mu.Unlock()
	if first {
		a.log.Error("the host's clock is ahead of the collector's; epochs follow the collector. Synchronize the clock",
			"epochs", by)
	}
}

// busy reports whether reports wait because the load of the host is high.
func (a *Agent) busy() bool {
	if a.cfg.Busy == nil || !a.outbox.waiting() || !a.cfg.Busy() {
		return false
	}
	a.mu.Lock()
	first := a.status.ChunksHeld == 0
	a.status.ChunksHeld++
	a.mu.Unlock()
	if first {
		a.log.Info("reports wait while the load of this host is high; this is logged once")
	}
	return true
}

// advance advances all data paths and reports whether the epoch is new for one of them.
func (a *Agent) advance(epoch uint64) bool {
	newer := false
	for _, p := range a.paths {
		newer = p.Advance(epoch) || newer
	}
	a.began(a.epoch())
	a.mu.Lock()
	a.status.Given = max(a.status.Given, epoch)
	a.mu.Unlock()
	return newer
}

// full signals that a message is full, so that it is sent.
func (a *Agent) full() {
	select {
	case a.filled <- struct{}{}:
	default:
	}
}

// began records the begin of an epoch, if it is new.
func (a *Agent) began(epoch uint64) { a.begins.add(epoch, a.deps.Clock.Now()) }

// collectorEpoch takes an epoch that the collector sent. If it is behind the host's epoch, the
// collector has refused the epochs of the host's clock; the host then follows the collector from
// now on.
func (a *Agent) collectorEpoch(epoch uint64) {
	own := a.epoch()
	a.mu.Lock()
	a.newest = max(a.newest, epoch)
	a.aside = a.aside || a.newest < own
	a.mu.Unlock()
	a.advance(epoch)
}

// setSchedule takes the collector's schedule and its current epoch. If epoch numbers have gone
// back, as after a restart of the collector, data paths begin again.
func (a *Agent) setSchedule(s schedule, current uint64) error {
	for name, p := range a.paths {
		e := p.Epoch()
		if e <= current+maxAhead {
			p.Advance(current)
			continue
		}
		a.log.Warn("epochs begin again: the collector's epoch is far behind", "role", name, "epoch", e, "collector", current)
		if err := p.Reset(current); err != nil {
			return fmt.Errorf("role %s: begin again in epoch %d: %w", name, current, err)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.schedule, a.newest = s, current
	if a.by = 0; s.length > 0 {
		if e := s.at(a.deps.Clock.Now()); e > current+maxAhead {
			a.by = e - current
		}
	}
	a.arm()
	for _, p := range a.paths {
		a.follow(p)
	}
	return nil
}

// follow passes the schedule to a data path that can go on without the agent. a.mu is held.
func (a *Agent) follow(p DataPath) {
	if s, ok := p.(Scheduler); ok && a.schedule.length > 0 {
		zero := a.schedule.zero.Add(time.Duration(a.by) * a.schedule.length)
		s.Schedule(zero, a.schedule.length, min(a.schedule.length/4, maxSlack))
	}
}

// arm starts the timer of the next boundary. a.mu is held.
func (a *Agent) arm() {
	if a.timer != nil {
		a.timer()
	}
	if a.ended || a.schedule.length == 0 {
		return
	}
	s := a.schedule
	a.timer = a.deps.Clock.AfterFunc(s.next(a.deps.Clock.Now()), func() {
		a.mu.Lock()
		current := !a.ended && a.schedule == s
		a.mu.Unlock()
		if !current {
			return
		}
		a.Tick()
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.schedule == s {
			a.arm()
		}
	})
}

func (a *Agent) stopClock() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	if a.timer != nil {
		a.timer()
	}
	if a.partTimer != nil {
		a.partTimer()
	}
	for role, stop := range a.leaving {
		stop()
		delete(a.leaving, role)
	}
}

// apply applies settings of a role; nil ends the role's measurement, once no peer holds a lease for
// this host.
func (a *Agent) apply(role string, settings []byte) error {
	p := a.paths[role]
	if p == nil {
		return fmt.Errorf("this agent has no role %q; it has: %s", role, strings.Join(a.roles(), ", "))
	}
	l := a.leases[role]
	a.mu.Lock()
	if stop := a.leaving[role]; stop != nil {
		stop()
		delete(a.leaving, role)
	}
	a.mu.Unlock()
	if settings == nil && l != nil {
		if d := l.leave(); d > 0 {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.leaving[role] = a.deps.After(d, func() { a.left(role) })
			return nil
		}
	}
	if err := p.Apply(settings); err != nil {
		return err
	}
	a.hide()
	if l != nil {
		l.refresh()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.follow(p)
	return nil
}

// hide tells each role whether another role hides the flows of packets.
func (a *Agent) hide() {
	hides := func(p DataPath) bool {
		h, ok := p.(role.Hider)
		return ok && h.Hides()
	}
	for name, p := range a.paths {
		b, ok := p.(role.Blindable)
		if !ok {
			continue
		}
		hidden := false
		for other, q := range a.paths {
			hidden = hidden || other != name && hides(q)
		}
		b.SetHidden(hidden)
	}
}

// left ends the measurement of a role whose peers hold no leases for this host any more.
func (a *Agent) left(role string) {
	a.mu.Lock()
	stop := a.leaving[role]
	delete(a.leaving, role)
	a.mu.Unlock()
	if stop == nil {
		return // other settings have arrived
	}
	if err := a.paths[role].Apply(nil); err != nil {
		a.log.Error("the measurement of a role that was removed cannot be ended", "role", role, "error", err)
	}
	a.hide()
	a.leases[role].refresh()
}

// reportLeases sends the state of a role's leases to the collector.
func (a *Agent) reportLeases(role string, m *hostv1.Leases) {
	a.mu.Lock()
	s := a.session
	a.mu.Unlock()
	if s != nil {
		m.Role = role
		s.reply(&hostv1.AgentMessage{Message: &hostv1.AgentMessage_Leases{Leases: m}})
	}
}

// Leave prepares to close data paths that remove carriers only while they are open: it gives up all
// leases, refuses the probes of peers, and waits until no peer tags packets to this host. Without
// leases it returns at once.
func (a *Agent) Leave(ctx context.Context) {
	wait := time.Duration(0)
	for _, l := range a.leases {
		wait = max(wait, l.leave())
	}
	if wait > 0 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// Close ends the timers of leases. It is called after Run.
func (a *Agent) Close() {
	for _, l := range a.leases {
		l.end()
	}
}

// Settled reports whether there is a decision on each lease of the data paths.
func (a *Agent) Settled() bool {
	for _, l := range a.leases {
		if !l.settled() {
			return false
		}
	}
	return true
}

// roles lists the names of the roles, sorted.
func (a *Agent) roles() []string { return slices.Sorted(maps.Keys(a.paths)) }
