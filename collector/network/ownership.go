// SPDX-License-Identifier: Apache-2.0

package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/netsketch/netsketch/collector/cluster/ownership"
	"github.com/netsketch/netsketch/collector/device"
	"github.com/netsketch/netsketch/collector/device/banks"
	"github.com/netsketch/netsketch/p4/p4rt"
)

// In a cluster, package ownership decides which collector has the session with a device. This file
// reports events to it and carries out its actions: a session begins or ends, and the epoch engine
// collects from the session or from the collector that owns the device.

// Ownership is what a view of the cluster says about the devices.
type Ownership struct {
	// View returns what the view says about one device.
	View func(device string) ownership.View
	// Fence returns the high part of the election id of sessions that begin now. It is higher than
	// the fence of every earlier owner.
	Fence func() uint64
	// Writes allows writing entries. Without it, sessions continue and measure, but nothing is
	// written, because another collector may own the devices by now.
	Writes bool
}

// ErrForeign is wrapped by the reason why a device of another collector has no session.
var ErrForeign = errors.New("owns it")

// errNoLease is the reason why entries are not written.
var errNoLease = fmt.Errorf("%w: the collector holds no lease in its cluster and writes no entries", p4rt.ErrNotReady)

// Move is a device that another collector takes over.
type Move struct {
	Device string
	// To is the collector that takes it.
	To string
	// Banks is the state of the device's banks; nil if the device is not measured.
	Banks *banks.Handover
	// Objects are the registers that were read.
	Objects []string
}

// change is a decision about a device, which follow carries out.
type change struct {
	m     *managed
	next  ownership.Device
	do    ownership.Action
	banks *banks.Handover // handed over by the former owner; nil if it handed over none
}

// session sets, before a device is created, whether it has a session, and how the session bids. A
// device whose session is not to be opened has a fault.
func (c *Component) session(m *managed, dc *device.Config, do ownership.Action) {
	o := c.ownership.Load()
	if o == nil {
		return
	}
	if d := m.decided(); d.State == ownership.Elsewhere {
		dc.Fault = fmt.Errorf("%s %w", cmp.Or(d.Holder, "no collector of the cluster"), ErrForeign)
		return
	}
	fence, low := o.Fence(), max(m.cfg.ElectionID.Low, 1)
	dc.Session.Yields = do.Has(ownership.OpenBackup)
	dc.Session.ElectionID = p4rt.ElectionID{High: fence, Low: low}
	dc.Session.Bid = func(highest p4rt.ElectionID, vacant bool) (p4rt.ElectionID, bool) {
		now := fence
		if vacant {
			now = c.ownership.Load().Fence()
		}
		id, ok := ownership.Bid(now, low, ownership.ElectionID(highest), vacant)
		return p4rt.ElectionID(id), ok
	}
}

// follow carries out decisions, and ends the sessions of several devices in parallel.
func (c *Component) follow(changes ...change) error {
	var errs []error
	var opened []change
	var sessions sync.WaitGroup
	c.mu.Lock()
	topo := c.topology
	c.mu.Unlock()
	loaded := pipelines{}
	for _, ch := range changes {
		was := ch.m.decided()
		// The fault of a device without a session here names the collector that holds the device.
		holderChanged := was.State == ownership.Elsewhere && was.Holder != ch.next.Holder
		switch {
		case ch.do.Has(ownership.Open | ownership.OpenBackup | ownership.Close), holderChanged:
			next, err := c.build(ch.m.cfg, topo, loaded, ch.next, ch.do)
			if errs = append(errs, err); err != nil {
				continue
			}
			c.deps.Engine.Remove(ch.m.name())
			c.deps.Banks.Remove(ch.m.name())
			sessions.Go(func() {
				c.deps.Intent.Leave(ch.m.name())
				c.close(ch.m.device)
			})
			opened = append(opened, change{m: next, next: ch.next})
		case was.Foreign() != ch.next.Foreign(), ch.do.Has(ownership.Adopt):
			errs = append(errs, c.keep(ch))
		default:
			ch.m.own.Store(&ch.next)
		}
	}
	sessions.Wait()
	for _, ch := range opened {
		errs = append(errs, c.add(ch.m))
	}
	if slices.ContainsFunc(opened, func(ch change) bool { return ch.next.State != ownership.Elsewhere }) {
		c.deps.OnModel(c.ctx) // the model may lack the registers of these devices
	}
	for _, ch := range opened {
		c.connect(ch.m)
	}
	return errors.Join(errs...)
}

// keep changes who collects from a device whose session continues: this collector, if it measures
// the device, or the collector that does.
func (c *Component) keep(ch change) error {
	ch.m.own.Store(&ch.next)
	ch.m.awaited = false
	c.deps.Engine.Remove(ch.m.name())
	c.deps.Banks.Remove(ch.m.name())
	err := c.add(ch.m)
	if ch.next.Foreign() {
		c.await(ch.m)
	} else {
		c.measure(ch.m, ch.banks)
	}
	return err
}

// Assign takes over a new view of the cluster. When writing is allowed again, it writes the routes.
func (c *Component) Assign(ctx context.Context, o Ownership) error {
	was := c.ownership.Swap(&o)
	var changes []change
	for _, m := range c.all() {
		h, err := c.deps.Banks.Handover(m.name())
		next, do := m.decided().View(o.View(m.name()), h != nil || err != nil)
		changes = append(changes, change{m: m, next: next, do: do})
	}
	err := c.follow(changes...)
	if was != nil && !was.Writes && o.Writes {
		err = errors.Join(err, c.setRoutes(ctx))
	}
	return errors.Join(err, c.observe(func(s ownership.Session) bool { return s.Deposed }))
}

// Observe passes the states of sessions to package ownership. Call it after OnTaken.
func (c *Component) Observe() error { return c.observe(func(ownership.Session) bool { return true }) }

// observe does the work of Observe for some sessions.
func (c *Component) observe(which func(ownership.Session) bool) error {
	var changes []change
	for _, m := range c.all() {
		if which(c.sessionState(m)) {
			next, do := c.observed(m)
			changes = append(changes, change{m: m, next: next, do: do})
		}
	}
	return c.follow(changes...)
}

// observed returns the next state of a device, and the actions, after an event made from the state
// of its session.
func (c *Component) observed(m *managed) (ownership.Device, ownership.Action) {
	return m.decided().Session(c.sessionState(m), c.ownership.Load().View(m.name()))
}

// sessionState describes the session for package ownership.
func (c *Component) sessionState(m *managed) ownership.Session {
	st, fence := m.device.Status().Session, c.ownership.Load().Fence()
	_, err := m.device.Ready()
	return ownership.Session{Primary: err == nil, Deposed: st.State == p4rt.Standby &&
		ownership.Deposes(ownership.ElectionID(st.Highest), ownership.ElectionID(st.Bid), fence)}
}

// EndEpoch signals that the banks of an epoch have been read. It returns the devices that can be
// handed over in the open epoch, and the names of those that moved without a handover because they
// have waited for too long.
func (c *Component) EndEpoch() (moves []Move, forced []string, err error) {
	if !c.ownership.Load().Writes {
		return nil, nil, nil
	}
	var changes []change
	for _, m := range c.all() {
		h, busy := c.deps.Banks.Handover(m.name())
		next, do := m.decided().Epoch(busy == nil)
		changes = append(changes, change{m: m, next: next, do: do})
		if do.Has(ownership.Force) {
			forced = append(forced, m.name())
		}
		if do.Has(ownership.Offer) {
			moves = append(moves, Move{Device: m.name(), To: next.Next, Banks: h, Objects: c.boundTo(m.name())})
		}
	}
	return moves, forced, c.follow(changes...)
}

// boundTo returns the registers of a device that plugins read.
func (c *Component) boundTo(device string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(slices.Values(c.bound[device]))
}

// Left ends the sessions of devices that other collectors have accepted. Devices for which an epoch
// has ended since EndEpoch stay.
func (c *Component) Left(moves []Move) error {
	open, _ := c.deps.Engine.Current()
	var changes []change
	for _, move := range moves {
		m := c.find(move.Device)
		if m == nil || move.Banks != nil && move.Banks.Epoch != open {
			continue
		}
		next, do := m.decided().Accepted(move.To)
		changes = append(changes, change{m: m, next: next, do: do})
	}
	return c.follow(changes...)
}

// Accept takes a device over from another collector, which ends its session next. The error says
// why this collector cannot take the device.
func (c *Component) Accept(from string, move Move) error {
	m := c.find(move.Device)
	if m == nil {
		return fmt.Errorf("collector %s has no device %s", move.To, move.Device)
	}
	early := c.early(m, from, move)
	next, do := m.decided().Offered(from, c.sessionState(m), early == nil)
	if do.Has(ownership.Refuse) {
		return cmp.Or(early, fmt.Errorf("collector %s does not take device %s over from %s: its state there is %v", move.To,
			move.Device, from, next.State))
	}
	if !slices.Equal(move.Objects, c.boundTo(move.Device)) {
		move.Banks = nil // the former owner read other registers than plugins read here
	}
	return c.follow(change{m, next, do, move.Banks})
}

// early returns why this collector cannot take a device yet; nil if it can.
func (c *Component) early(m *managed, from string, move Move) error {
	st, fence := m.device.Status().Session, c.ownership.Load().Fence()
	if st.State != p4rt.Standby && st.State != p4rt.Ready {
		return &p4rt.NotReadyError{Target: m.device.Address(), Status: st}
	}
	// the owner's fence is higher: this collector's election id would lose
	if of, known := ownership.FenceOf(ownership.ElectionID(st.Highest), fence); known && of > fence {
		return fmt.Errorf("collector %s has not renewed its lease since the session of %s with device %s began", move.To,
			from, move.Device)
	}
	if open, _ := c.deps.Engine.Current(); move.Banks != nil && move.Banks.Epoch == open+1 {
		// The session would end here before the epoch that this collector still has to close.
		return fmt.Errorf("device %s is handed over in epoch %d, which has not begun at collector %s", move.Device,
			move.Banks.Epoch, move.To)
	}
	return nil
}

// Await makes the epoch engine wait for the readings of devices of other collectors, if
// Dependencies.Elsewhere has a source for them.
func (c *Component) Await() {
	for _, m := range c.all() {
		if m.decided().Foreign() {
			c.await(m)
		}
	}
}

// await makes the epoch engine wait for one device's data from its owner.
func (c *Component) await(m *managed) {
	s := c.deps.Elsewhere(m.name())
	switch wanted := s != nil && m.device.Measured(); {
	case wanted == m.awaited:
	case wanted:
		c.deps.Engine.Add(s)
	default:
		c.deps.Engine.Remove(m.name())
	}
	m.awaited = s != nil && m.device.Measured()
}

// Own returns the devices that this collector measures or tries to acquire, sorted by name.
func (c *Component) Own() (names []string) {
	for _, m := range c.all() {
		if !m.decided().Foreign() {
			names = append(names, m.name())
		}
	}
	return names
}

// Owner returns the collector that has a device, and whether it is this one.
func (c *Component) Owner(name string) (owner string, own bool) {
	if m := c.find(name); m != nil && m.decided().Foreign() {
		return m.decided().Holder, false
	}
	return "", true
}

// Foreign reports whether this collector does not measure a device.
func (c *Component) Foreign(name string) bool {
	m := c.find(name)
	return m != nil && m.decided().Foreign()
}

// decided returns what package ownership decided last. Without a cluster, this collector owns all
// devices.
func (m *managed) decided() ownership.Device { return *m.own.Load() }

// mayWrite returns why entries cannot be written to any device; nil if they can.
func (c *Component) mayWrite() error {
	if o := c.ownership.Load(); o != nil && !o.Writes {
		return errNoLease
	}
	return nil
}
