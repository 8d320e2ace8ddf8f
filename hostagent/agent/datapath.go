// SPDX-License-Identifier: Apache-2.0

// Package agent connects the data paths of one host with the collector.
package agent

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/lease"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/hostagent/role"
)

// DataPath measures the packets of one host for one role. RolePath implements it for a role in Go,
// packages kernel below hostagent for programs in the kernel. All methods but Close may be called
// from any goroutine.
type DataPath interface {
	// Role is the name under which plugins send settings and receive reports; constant.
	Role() string
	// Apply applies settings in the format that the role defines; nil ends the measurement: packets
	// pass unchanged, except that LightGuardian's sketchlets are removed. After an error the previous
	// settings stay in force. Settings equal to the current ones change nothing, so a data path that
	// outlives the agent keeps its results.
	Apply(settings []byte) error
	// Since is the first epoch that was measured whole since settings are in force or since Reset;
	// ok is false without settings.
	Since() (epoch uint64, ok bool)
	// Epoch is the current epoch: the newest that Advance or a packet brought.
	Epoch() uint64
	// Advance advances to an epoch and reports whether it is newer than the current one.
	Advance(epoch uint64) bool
	// Reset drops all results and begins in the epoch, which may be older than the current one.
	// Settings stay in force.
	Reset(epoch uint64) error
	// Seal ends an epoch that is over and returns its report. It returns nil if there is no data of
	// the epoch, because the epoch was sealed before, is too old, or no settings are in force.
	Seal(epoch uint64) (role.Report, error)
	// Close ends the use of the data path. It is called once, after all other calls.
	Close() error
}

// Scheduler is implemented by data paths that can advance the epoch while the agent does not run.
type Scheduler interface {
	// Schedule sets the clock by which the data path advances if the agent is late by more than
	// slack: epoch n begins at zero + n*length. It has no effect without settings.
	Schedule(zero time.Time, length, slack time.Duration)
}

// Notifier is implemented by data paths that report when an epoch begins. For other data paths the
// agent records when it notices the new epoch.
type Notifier interface {
	// OnAdvance calls f with each epoch that begins from now on. f does not block.
	OnAdvance(f func(epoch uint64))
}

// Streamer is implemented by data paths whose role may report parts of an epoch before it ends.
type Streamer interface {
	// Streams reports whether the role reports parts of an epoch before its end. It always returns
	// the same.
	Streams() bool
	// Part is the Part of role.Streamer.
	Part(full bool) (epoch uint64, part role.Report)
	// OnFull calls f each time when a message becomes full. f does not block.
	OnFull(f func())
}

// RolePath is the data path of a role in Go. Its caller brings the packets.
type RolePath struct {
	create func(*epoch.Clock) role.Role
	name   string
	serial atomic.Uint64 // serial number of the role, changed with it

	mu        sync.Mutex
	clock     *epoch.Clock
	role      role.Role
	settings  []byte // nil: no settings are in force
	scheduled bool
	since     uint64
	notify    func(epoch uint64)
	full      func() // called when a message is full; may be nil
	leases    []lease.Lease
	probe     func(lease.Received) // receives probes; may be nil
	transmit  func(frame []byte)   // nil: the caller sends no packets of the role
	hidden    bool                 // whether another role hides the flows of packets
}

var (
	_ DataPath = (*RolePath)(nil)
	_ Notifier = (*RolePath)(nil)
	_ Streamer = (*RolePath)(nil)

	_ Scheduler  = (*RolePath)(nil)
	_ lease.Path = (*RolePath)(nil)

	_ role.Hider     = (*RolePath)(nil)
	_ role.Blindable = (*RolePath)(nil)
)

// NewRolePath returns the data path of the role that create returns. Reset creates it again.
func NewRolePath(create func(*epoch.Clock) role.Role) *RolePath {
	p := &RolePath{create: create, clock: epoch.NewClock(0, 0)}
	p.role = p.fresh(p.clock)
	p.name = p.role.Name()
	return p
}

// fresh creates the role.
func (p *RolePath) fresh(clock *epoch.Clock) role.Role {
	r := p.create(clock)
	if s, ok := r.(role.Streamer); ok && p.full != nil {
		s.OnFull(p.full)
	}
	if b, ok := r.(role.Blindable); ok && p.hidden {
		b.SetHidden(true)
	}
	return r
}

// Hides implements role.Hider.
func (p *RolePath) Hides() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	h, ok := p.role.(role.Hider)
	return ok && h.Hides()
}

// SetHidden implements role.Blindable.
func (p *RolePath) SetHidden(hidden bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b, ok := p.role.(role.Blindable); ok && hidden != p.hidden {
		b.SetHidden(hidden)
	}
	p.hidden = hidden
}

// Out receives packets that the host sends, in their order, and may change them.
func (p *RolePath) Out(frames []*packet.Frame) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.role.Out(frames)
}

// In receives packets that arrived at the host, in their order, and may change or drop them.
func (p *RolePath) In(frames []*packet.Frame) {
	p.mu.Lock()
	p.role.In(frames)
	l, ok := p.role.(role.Leaser)
	if !ok {
		p.mu.Unlock()
		return
	}
	arrived, f := l.TakeProbes(), p.probe
	p.mu.Unlock()
	for _, r := range arrived {
		if f != nil {
			f(r)
		}
	}
}

// OnTransmit passes packets of the role itself, probes, to f, which does not block and keeps no
// frame. The caller of Out and In sends them as they are.
func (p *RolePath) OnTransmit(f func(frame []byte)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.transmit = f
}

// Peering implements lease.Path.
func (p *RolePath) Peering() (lease.Peering, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l, ok := p.role.(role.Leaser); ok {
		return l.Peering()
	}
	return lease.Peering{}, false
}

// Now implements lease.Path.
func (p *RolePath) Now() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l, ok := p.role.(role.Leaser); ok {
		return l.Now()
	}
	return 0
}

// Send implements lease.Path. A probe to an address to which no packet has been sent is not sent,
// because its link layer is not known.
func (p *RolePath) Send(q lease.Probe) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	l, ok := p.role.(role.Leaser)
	if !ok || p.transmit == nil {
		return errors.New("the source of packets sends no probes")
	}
	if frame := l.Probe(q); frame != nil {
		p.transmit(frame)
	}
	return nil
}

// OnProbe implements lease.Path.
func (p *RolePath) OnProbe(f func(lease.Received)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.probe = f
}

// SetLeases implements lease.Path.
func (p *RolePath) SetLeases(leases []lease.Lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leases = leases
	if l, ok := p.role.(role.Leaser); ok {
		l.SetLeases(leases)
	}
}

// Wanted implements lease.Path.
func (p *RolePath) Wanted() []lease.Peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l, ok := p.role.(role.Leaser); ok {
		return l.Wanted()
	}
	return nil
}

// Schedule implements Scheduler: the agent moves the epoch by the host's clock.
func (p *RolePath) Schedule(time.Time, time.Duration, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.scheduled = true
	p.clock.Scheduled()
}

// Lane returns a receiver of arriving packets for one goroutine. Lanes of a role.Parallel run at
// the same time, lanes of another role one after the other.
func (p *RolePath) Lane() role.Lane { return &lane{path: p} }

// lane is a lane of the role of a path.
type lane struct {
	path   *RolePath
	serial uint64 // serial number of the role
	own    role.Lane
}

func (l *lane) In(frames []*packet.Frame) {
	p := l.path
	if l.own == nil || l.serial != p.serial.Load() {
		p.mu.Lock()
		l.own, l.serial = p, p.serial.Load()
		if r, ok := p.role.(role.Parallel); ok {
			l.own = r.NewLane()
		}
		p.mu.Unlock()
	}
	l.own.In(frames)
}

// Receive receives telemetry reports, if the role is a role.Receiver.
func (p *RolePath) Receive(datagrams []role.Datagram) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r, ok := p.role.(role.Receiver); ok {
		r.Receive(datagrams)
	}
}

// Inspect calls f with the role, while it receives no packets.
func (p *RolePath) Inspect(f func(role.Role)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(p.role)
}

// Role implements DataPath.
func (p *RolePath) Role() string { return p.name }

// Apply implements DataPath.
func (p *RolePath) Apply(settings []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if settings == nil {
		p.role, p.settings = p.fresh(p.clock), nil
		p.serial.Add(1)
		return nil
	}
	if p.settings != nil && bytes.Equal(settings, p.settings) {
		return nil
	}
	if err := p.role.Apply(settings); err != nil {
		return err
	}
	if p.settings == nil {
		p.since = p.clock.Current() + 1
	}
	p.settings = append([]byte{}, settings...)
	return nil
}

// Since implements DataPath.
func (p *RolePath) Since() (epoch uint64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.since, p.settings != nil
}

// Epoch implements DataPath.
func (p *RolePath) Epoch() uint64 { return p.current().Current() }

// Advance implements DataPath.
func (p *RolePath) Advance(epoch uint64) bool { return p.current().Advance(epoch) }

func (p *RolePath) current() *epoch.Clock {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clock
}

// Reset implements DataPath.
func (p *RolePath) Reset(to uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	clock := epoch.NewClock(0, to)
	if p.scheduled {
		clock.Scheduled()
	}
	if p.notify != nil {
		clock.OnAdvance(p.notify)
	}
	fresh := p.fresh(clock)
	if p.settings != nil {
		if err := fresh.Apply(p.settings); err != nil {
			return fmt.Errorf("apply the settings in force: %w", err)
		}
		if l, ok := fresh.(role.Leaser); ok {
			l.SetLeases(p.leases)
		}
	}
	p.clock, p.role, p.since = clock, fresh, to+1
	p.serial.Add(1)
	return nil
}

// Seal implements DataPath.
func (p *RolePath) Seal(epoch uint64) (role.Report, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.role.Seal(epoch), nil
}

// Streams implements Streamer.
func (p *RolePath) Streams() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.role.(role.Streamer)
	return ok
}

// Part implements Streamer.
func (p *RolePath) Part(full bool) (epoch uint64, part role.Report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, ok := p.role.(role.Streamer)
	if !ok || p.settings == nil {
		return 0, nil
	}
	return s.Part(full)
}

// OnFull implements Streamer.
func (p *RolePath) OnFull(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.full = f
	if s, ok := p.role.(role.Streamer); ok {
		s.OnFull(f)
	}
}

// OnAdvance implements Notifier.
func (p *RolePath) OnAdvance(f func(epoch uint64)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.notify = f
	p.clock.OnAdvance(f)
}

// Close implements DataPath.
func (p *RolePath) Close() error { return nil }
