// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"time"

	"github.com/netsketch/netsketch/collector/device/banks"
	"github.com/netsketch/netsketch/collector/intent"
	"github.com/netsketch/netsketch/p4/p4rt"
)

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

var _ intent.Elsewhere = (*member)(nil)

// Owner implements intent.Elsewhere.
func (m *member) Owner() string {
	if d := m.decided(); d.Foreign() {
		return d.Holder
	}
	return ""
}

// Apply implements intent.Elsewhere.
func (m *member) Apply(ctx context.Context, plugin string, updates []p4rt.Update) (undo func(context.Context) error,
	err error,
) {
	return m.c.deps.Owners.Apply(ctx, plugin, m.Owner(), m.Name(), updates)
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
