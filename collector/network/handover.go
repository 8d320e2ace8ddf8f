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

// maxTries bounds the epochs for which a handover is put off.
const maxTries = 10

// Move is a device that another collector is to take over.
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
	epoch uint64 // that was open when it began
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

// underWay returns the move of a device that is not over in its epoch; nil if there is none.
func (m *member) underWay() *moving {
	v := m.moving.Load()
	if open, _ := m.c.deps.Engine.Current(); v == nil || v.epoch != open || v.over.Err() != nil {
		return nil
	}
	return v
}

// Settle implements intent.Elsewhere: it waits in the epoch in which the device moves, at most for
// half of an epoch and of the time that ctx has.
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
// banks of the epoch before have been read. forced are those that have been put off too often: Left
// is due.
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

// boundTo returns the registers of a device that are read.
func (c *Component) boundTo(device string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(slices.Values(c.bound[device]))
}

// Left ends the sessions of devices that another collector takes over. Those of which an epoch has
// ended since Leaving stay.
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

// Accept takes a device over from another collector, whose session ends next, unless it has it
// already. The error is why this collector cannot.
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
	if of, known := fenceOf(st.Highest, fence); known && of > fence { // this one may not bid above
		return fmt.Errorf("collector %s has not renewed its lease since the session of %s with device %s began", move.To,
			from, move.Device)
	}
	if open, _ := c.deps.Engine.Current(); move.Banks != nil && move.Banks.Epoch == open+1 {
		// The session would end here before the epoch that this collector still has to close.
		return fmt.Errorf("device %s is handed over in epoch %d, which has not begun at collector %s", move.Device,
			move.Banks.Epoch, move.To)
	}
	if !slices.Equal(move.Objects, c.boundTo(move.Device)) {
		move.Banks = nil // banks of other registers have not been read
	}
	return c.take(m, move.Banks)
}

// Take makes devices this collector's whose sessions are ready without a handover, because the
// owner has ended its own. Devices of this collector that another one has taken are that one's: it
// hands them over again if they are to be this collector's.
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
		return nil // Accept takes it, or Take when it is
	}
	return c.take(m, nil)
}

// deposed makes devices other collectors' that have outbid this one. The session of a device that
// is to be handed over to it again goes on.
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
		} else if holder := o.Before(m.Name()); holder != "" { // otherwise the view is older
			next := m.with(holder)
			next.foreign, next.takes = true, true
			err = errors.Join(err, c.succeed(m, next))
			c.await(next)
			err = errors.Join(err, c.takeReady(next)) // it may be ready again by now
		}
	}
	return errors.Join(err, c.Left(lost))
}

// with returns a device of another owner that has the session of this one.
func (m *member) with(owner string) *member {
	return &member{Device: m.Device, cfg: m.cfg, program: m.program, fault: m.fault, owner: owner, c: m.c}
}

// succeed replaces a device by one that has its session.
func (c *Component) succeed(m, next *member) error {
	c.deps.Engine.Remove(m.Name())
	c.deps.Banks.Remove(m.Name())
	return c.add(next)
}

// take makes a device this collector's. Its session stays.
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

// Overdue makes devices this collector's that another one was to hand over long ago, or has taken
// and is gone since: it outbids it. Call it once in each epoch. It returns their names.
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
			if m.next == "" { // otherwise Leaving counts
				m.tries = 0
			}
			continue
		}
		limit := 2 * maxTries
		if !m.takes { // no other collector hands it over, or the view is old
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

// Own returns the devices that this collector measures, or tries to, sorted by name.
func (c *Component) Own() (names []string) {
	for _, d := range c.Devices() {
		if m := c.member(d.Name()); m != nil && !m.foreign {
			names = append(names, m.Name())
		}
	}
	return names
}
