// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/netsketch/netsketch/collector/device/banks"
	"github.com/netsketch/netsketch/p4/p4rt"
)

// A device moves from one collector to another without a lost epoch in this way:
//
//	next owner   session that yields: it is a backup as long as the owner has one
//	owner        reads the bank of an epoch, and offers the state of the banks (Leaving)
//	next owner   keeps the state (Accept)
//	owner        ends its session (Left)
//	next owner   is the primary; goes on with the banks, and seals the open epoch at its end
//
// If the next owner does not take the device, the owner measures the open epoch, too, and tries
// again in the next one, at most maxTries times. Then it ends its session anyway, and the next
// owner begins as after the loss of a collector.
//
// A collector that another one has outbid, as after it was cut off from the cluster, keeps its
// session and is the next owner: the device is handed over to it when it is back.

// maxTries bounds how many epochs a handover can be delayed before the owner ends its session
// anyway.
const maxTries = 10

// Move is a device that another collector takes over.
type Move struct {
	Device string
	// To is the collector that takes it.
	To string
	// Banks is the state of its banks; nil: it is not measured.
	Banks *banks.Handover
	// Objects are the registers that were read.
	Objects []string
}

// moving is the time between the sessions of two owners of a device.
type moving struct {
	epoch uint64 // the epoch that was open when the move began
	over  context.Context
	stop  context.CancelFunc
}

func (c *Component) newMoving() *moving {
	v := &moving{}
	v.epoch, _ = c.deps.Engine.Current()
	v.over, v.stop = context.WithCancel(c.ctx)
	return v
}

func (v *moving) end() {
	if v != nil {
		v.stop()
	}
}

// underWay returns the device's move if it began in the open epoch and is not over, otherwise nil.
func (m *member) underWay() *moving {
	v := m.moving.Load()
	if open, _ := m.c.deps.Engine.Current(); v == nil || v.epoch != open || v.over.Err() != nil {
		return nil
	}
	return v
}

// Settle implements intent.Elsewhere: it waits while the device moves, at most half an epoch and
// half the time that ctx has left.
func (m *member) Settle(ctx context.Context) {
	v := m.underWay()
	if v == nil {
		return
	}
	limit := m.c.deps.Clock.IOLimit(m.c.cfg.Epoch.Interval)
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end))
	}
	ctx, cancel := context.WithTimeout(ctx, limit/2)
	defer cancel()
	select {
	case <-v.over.Done():
	case <-ctx.Done():
	}
}

// Leaving returns the devices that can be handed over now. Call it once in each epoch, when the
// banks of the previous epoch have been read. forced are the devices whose handover was delayed
// too often: call Left for them.
func (c *Component) Leaving() (moves []Move, forced []Move) {
	if !c.ownership.Load().Writes {
		return nil, nil
	}
	for _, d := range c.Devices() {
		m := c.member(d.Name())
		if m == nil || m.next == "" {
			continue
		}
		move := Move{Device: m.Name(), To: m.next, Objects: c.boundTo(m.Name())}
		h, err := c.deps.Banks.Handover(m.Name())
		move.Banks = h
		m.tries++
		switch {
		case m.tries > maxTries:
			forced = append(forced, move)
		case err == nil:
			moves = append(moves, move)
		}
	}
	return moves, forced
}

// boundTo returns the registers of a device that plugins read.
func (c *Component) boundTo(device string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(slices.Values(c.bound[device]))
}

// Left ends the sessions of devices that another collector takes over. Devices for which an epoch
// has ended since Leaving stay.
func (c *Component) Left(moves []Move) error {
	c.mu.Lock()
	topo := c.topology
	c.mu.Unlock()
	loaded := pipelines{}
	open, _ := c.deps.Engine.Current()
	var errs []error
	var left []*member
	var sessions sync.WaitGroup
	for _, move := range moves {
		m := c.member(move.Device)
		if m == nil || m.next != move.To || move.Banks != nil && move.Banks.Epoch != open && m.tries <= maxTries {
			continue
		}
		next, err := c.build(m.cfg, topo, loaded, "")
		errs = append(errs, err)
		if err != nil {
			continue
		}
		left = append(left, next)
		c.deps.Engine.Remove(m.Name())
		m.moving.Store(c.newMoving())
		sessions.Go(func() { c.close(m) })
	}
	sessions.Wait()
	for _, next := range left {
		errs = append(errs, c.replace(next))
		c.await(next)
	}
	return errors.Join(errs...)
}

// Accept takes a device over from another collector, which ends its session next. If this
// collector already has the device, Accept succeeds. The error says why this collector cannot take
// the device.
func (c *Component) Accept(from string, move Move) error {
	m := c.member(move.Device)
	if m == nil || m.foreign && !m.takes {
		return fmt.Errorf("collector %s does not take device %s over from %s", move.To, move.Device, from)
	}
	if _, notReady := m.Device.Ready(); !m.foreign && notReady == nil {
		return nil
	}
	st, fence := m.Status().Session, c.ownership.Load().Fence()
	if st.State != p4rt.Standby && st.State != p4rt.Ready {
		return &p4rt.NotReadyError{Target: m.Address(), Status: st}
	}
	// this collector may not bid above a higher fence
	if of, known := fenceOf(st.Highest, fence); known && of > fence {
		return fmt.Errorf("collector %s has not renewed its lease since the session of %s with device %s began", move.To,
			from, move.Device)
	}
	if open, _ := c.deps.Engine.Current(); move.Banks != nil && move.Banks.Epoch == open+1 {
		// The session would end here before the epoch that this collector still has to close.
		return fmt.Errorf("device %s is handed over in epoch %d, which has not begun at collector %s", move.Device,
			move.Banks.Epoch, move.To)
	}
	if !slices.Equal(move.Objects, c.boundTo(move.Device)) {
		move.Banks = nil // the banks of other registers have not been read
	}
	return c.take(m, move.Banks)
}

// Take acquires the devices whose sessions became ready without a handover, because their owner
// ended its session. If another collector outbid this one, ownership passes to the other
// collector, which hands the device over later if it is to return.
func (c *Component) Take() error {
	errs := []error{c.deposed()}
	for _, d := range c.Devices() {
		errs = append(errs, c.takeReady(c.member(d.Name())))
	}
	return errors.Join(errs...)
}

func (c *Component) takeReady(m *member) error {
	if m == nil || !m.takes {
		return nil
	}
	if _, err := m.Device.Ready(); err != nil {
		return nil // Accept takes the device, or Take once its session is ready
	}
	return c.take(m, nil)
}

// deposed passes the ownership of devices to the collectors that outbid this one. The session of a
// device that is to return by a handover stays open.
func (c *Component) deposed() (err error) {
	o := c.ownership.Load()
	var lost []Move
	for _, d := range c.Devices() {
		m := c.member(d.Name())
		if m == nil || !m.outbid(o) {
			continue
		}
		if m.next != "" {
			lost = append(lost, Move{Device: m.Name(), To: m.next})
		} else if holder := o.Before(m.Name()); holder != "" { // an empty holder means that the view is older
			next := m.with(holder)
			next.foreign, next.takes = true, true
			err = errors.Join(err, c.succeed(m, next))
			c.await(next)
			err = errors.Join(err, c.takeReady(next)) // the session may be ready again by now
		}
	}
	return errors.Join(err, c.Left(lost))
}

// with returns a copy of a device with another owner and the same session.
func (m *member) with(owner string) *member {
	return &member{Device: m.Device, cfg: m.cfg, program: m.program, fault: m.fault, owner: owner, c: m.c}
}

// succeed replaces device m by next, which has m's session.
func (c *Component) succeed(m, next *member) error {
	c.deps.Engine.Remove(m.Name())
	c.deps.Banks.Remove(m.Name())
	return c.add(next)
}

// take makes this collector the owner of a device, whose session stays open.
func (c *Component) take(m *member, h *banks.Handover) error {
	next := m.with(c.ownership.Load().Self)
	next.moving.Store(c.newMoving())
	err := c.succeed(m, next)
	if _, notReady := next.Ready(); notReady == nil {
		next.moving.Load().end()
	}
	c.measure(next, h)
	return err
}

// Overdue acquires devices that another collector should have handed over long ago, or that a
// collector took before it disappeared: this collector outbids it. Call Overdue once in each
// epoch. It returns the devices' names.
func (c *Component) Overdue() (names []string, err error) {
	o := c.ownership.Load()
	if !o.Writes {
		return nil, nil
	}
	c.mu.Lock()
	topo := c.topology
	c.mu.Unlock()
	loaded := pipelines{}
	for _, d := range c.Devices() {
		m := c.member(d.Name())
		if m == nil {
			continue
		}
		if !m.takes && !m.outbid(o) {
			if m.next == "" { // Leaving counts the tries of devices with a next owner
				m.tries = 0
			}
			continue
		}
		limit := 2 * maxTries
		if !m.takes { // no other collector hands the device over, or the view is old
			limit = maxTries
		}
		if m.tries++; m.tries <= limit {
			continue
		}
		next, buildErr := c.build(m.cfg, topo, loaded, "")
		err = errors.Join(err, buildErr)
		if buildErr == nil {
			names = append(names, m.Name())
			err = errors.Join(err, c.replace(next))
			c.connect(next)
		}
	}
	return names, err
}

// Own returns the devices that this collector measures or tries to acquire, sorted by name.
func (c *Component) Own() (names []string) {
	for _, d := range c.Devices() {
		if m := c.member(d.Name()); m != nil && !m.foreign {
			names = append(names, m.Name())
		}
	}
	return names
}
