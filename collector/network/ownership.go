// SPDX-License-Identifier: Apache-2.0

package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/netsketch/netsketch/collector/device"
	"github.com/netsketch/netsketch/collector/device/banks"
	"github.com/netsketch/netsketch/collector/intent"
	"github.com/netsketch/netsketch/p4/p4rt"
)

// Ownership states which devices are this collector's.
type Ownership struct {
	// Self is the name of this collector in the cluster.
	Self string
	// Owner returns the collector that owns a device; "" if none does.
	Owner func(device string) string
	// Before returns the collector that owns a device while this collector is not in the cluster; ""
	// if none does.
	Before func(device string) string
	// Present reports whether a collector is in the cluster, so that it can hand devices over and
	// take them. nil means that no collector is present.
	Present func(collector string) bool
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

// own sets, before a device is created, whether this collector owns it.
func (c *Component) own(m *member, dc *device.Config, holder string) {
	o := c.ownership.Load()
	if o == nil {
		return
	}
	m.owner, m.takes = o.Owner(m.cfg.Name), holder != ""
	if m.takes {
		m.owner, dc.Session.Yields = holder, true
	}
	m.foreign = m.owner == "" || m.owner != o.Self
	if m.foreign && !m.takes {
		dc.Fault = fmt.Errorf("%s %w", cmp.Or(m.owner, "no collector of the cluster"), ErrForeign)
		return
	}
	fence, low := o.Fence(), max(m.cfg.ElectionID.Low, 1)
	dc.Session.ElectionID = p4rt.ElectionID{High: fence, Low: low}
	dc.Session.Bid = func(highest p4rt.ElectionID, vacant bool) (p4rt.ElectionID, bool) {
		now := fence
		if vacant {
			now = c.ownership.Load().Fence()
		}
		return bid(now, low, highest, vacant)
	}
}

// bid returns the election id that a collector with a fence bids after a switch has reported the
// highest one; vacant: there is no primary. ok is false if it must not bid:
//
//	highest is of             primary there      no primary
//	a collector, lower fence  outbid             bid above
//	a collector, higher fence no                 no: this one is deposed
//	another controller        no                 bid above
//
// A bid above the high id of another controller has the fence in its low part, so that the next
// owner recognizes it. A session outbids with the fence that it began with: each is outbid only by
// those that began later, and two collectors cannot outbid each other again and again.
func bid(fence, low uint64, highest p4rt.ElectionID, vacant bool) (id p4rt.ElectionID, ok bool) {
	of, member := fenceOf(highest, fence)
	switch own := (p4rt.ElectionID{High: fence, Low: low}); {
	case member && of > fence, !member && !vacant:
		return own, false
	case member && of == fence:
		return highest, vacant
	case own.Compare(highest) > 0:
		return own, true
	case highest.Low < fence:
		return p4rt.ElectionID{High: highest.High, Low: fence}, true
	case highest.High < math.MaxUint64:
		return p4rt.ElectionID{High: highest.High + 1, Low: fence}, true
	}
	return highest, vacant
}

// fenceOf returns the fence in an election id. member is false if the id is not a collector's: all
// fences of a cluster share the upper half, the time at which the bucket of leases was created.
func fenceOf(id p4rt.ElectionID, fence uint64) (of uint64, member bool) {
	for _, part := range []uint64{id.Low, id.High} {
		if part>>32 == fence>>32 {
			return part, true
		}
	}
	return 0, false
}

// Assign opens the sessions of devices that this collector owns from now on, and closes the
// sessions of devices that it no longer owns. Other sessions stay open, and all sessions do if o
// allows no writes. A device moves to or from a collector that is present when it is handed over
// (Leaving, Accept). When writing is allowed again, Assign writes the routes.
func (c *Component) Assign(ctx context.Context, o Ownership) error {
	was := c.ownership.Swap(&o)
	var errs []error
	var changed []*member
	loaded := pipelines{}
	c.mu.Lock()
	topo := c.topology
	c.mu.Unlock()
	for _, d := range c.Devices() {
		m := c.member(d.Name())
		stays, holder := c.moves(m, &o)
		if stays {
			continue
		}
		next, err := c.build(m.cfg, topo, loaded, holder)
		errs = append(errs, err)
		if err == nil {
			changed = append(changed, next)
			errs = append(errs, c.replace(next))
		}
	}
	if was != nil && !was.Writes && o.Writes {
		errs = append(errs, c.setRoutes(ctx))
	}
	if len(changed) > 0 {
		c.deps.OnModel(ctx)
	}
	for _, m := range changed {
		c.connect(m)
	}
	return errors.Join(append(errs, c.deposed())...)
}

// moves returns whether a device keeps its session for now: because its owner does not change, or
// because a handover is in progress or begins here. Otherwise holder is the collector that hands
// the device over to this one; "" if none does.
func (c *Component) moves(m *member, o *Ownership) (stays bool, holder string) {
	owner, holder := o.Owner(m.Name()), m.owner
	if holder == "" {
		holder = o.Before(m.Name())
	}
	present := func(name string) bool {
		return name != "" && name != o.Self && o.Present != nil && o.Present(name)
	}
	switch {
	case !o.Writes:
		return true, ""
	case m.takes && owner == o.Self && present(m.owner):
		return true, ""
	case !m.takes && m.owner == owner:
		m.next, m.tries = "", 0
		return true, ""
	case !m.foreign && present(owner):
		if h, err := c.deps.Banks.Handover(m.Name()); h != nil || err != nil {
			m.next = owner
			return true, ""
		}
	case owner == o.Self && present(holder):
		return false, holder
	}
	return false, ""
}

// replace replaces a device whose owner changes. Entries that plugins planned for the device stay.
func (c *Component) replace(next *member) error {
	old := c.member(next.Name())
	c.deps.Engine.Remove(next.Name())
	c.deps.Banks.Remove(next.Name())
	if old == nil {
		return c.add(next)
	}
	c.close(old)
	defer old.moving.Load().end() // from now on, plans go to the next owner
	return c.add(next)
}

// outbid reports whether this collector's session is a backup because a collector with a newer
// lease has taken the switch.
func (m *member) outbid(o *Ownership) bool {
	if m.foreign || m.underWay() != nil { // the other collector's session ends
		return false
	}
	st := m.Status().Session
	if st.State != p4rt.Standby {
		return false
	}
	of, known := fenceOf(st.Highest, o.Fence())
	own, _ := fenceOf(st.Bid, o.Fence())
	return known && of > own
}

// Await makes the epoch engine wait for the readings of devices of other collectors, if
// Dependencies.Elsewhere has a source for them.
func (c *Component) Await() {
	for _, d := range c.Devices() {
		if m := c.member(d.Name()); m != nil && m.foreign {
			c.await(m)
		}
	}
}

// await applies Await to one device.
func (c *Component) await(m *member) {
	s := c.deps.Elsewhere(m.Name())
	switch wanted := s != nil && m.Measured(); {
	case wanted == m.awaited:
	case wanted:
		c.deps.Engine.Add(s)
	default:
		c.deps.Engine.Remove(m.Name())
	}
	m.awaited = s != nil && m.Measured()
}

// Foreign reports whether this collector does not own a device.
func (c *Component) Foreign(name string) bool {
	m := c.member(name)
	return m != nil && m.foreign
}

// mayWrite returns why entries cannot be written; nil if they can.
func (m *member) mayWrite() error {
	if o := m.c.ownership.Load(); o != nil && !o.Writes {
		return fmt.Errorf("device %s: %w", m.Name(), errNoLease)
	}
	return nil
}

var _ intent.Elsewhere = (*member)(nil)

// Owner implements intent.Elsewhere.
func (m *member) Owner() string {
	if m.foreign {
		return m.owner
	}
	return ""
}

// Apply implements intent.Elsewhere.
func (m *member) Apply(ctx context.Context, plugin string, updates []p4rt.Update) (undo func(context.Context) error,
	err error,
) {
	return m.c.deps.Owners.Apply(ctx, plugin, m.owner, m.Name(), updates)
}

// Ready returns the incarnation of the device's state, or why the device is away. A device of
// another collector is ready if its owner is.
func (m *member) Ready() (banks.Incarnation, error) {
	if owner := m.Owner(); owner != "" {
		return banks.Incarnation{}, m.c.deps.Owners.Ready(owner)
	}
	return m.Device.Ready()
}

// Write writes updates, unless the collector may not write.
func (m *member) Write(ctx context.Context, updates ...p4rt.Update) error {
	if err := m.mayWrite(); err != nil {
		return err
	}
	return m.Device.Write(ctx, updates...)
}

// Reconcile brings entries up to date, unless the collector may not write.
func (m *member) Reconcile(ctx context.Context, parts ...p4rt.Desired) error {
	if err := m.mayWrite(); err != nil {
		return err
	}
	return m.Device.Reconcile(ctx, parts...)
}
