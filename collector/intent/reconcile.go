// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"context"
	"slices"

	"github.com/netsketch/netsketch/p4/p4rt"
)

// Reconcile brings the entries of a device up to date. The device's P4Runtime session calls it when
// it begins, with itself as the switch, before it is ready; so a switch that was away or was given
// its pipeline anew holds the desired state before it is measured.
func (c *Component) Reconcile(ctx context.Context, name string, sw Reconciler) error {
	d := c.device(name)
	if d == nil {
		return nil // the device has been removed
	}
	d.storing.Lock()
	defer d.storing.Unlock()
	d.writing.Lock()
	defer d.writing.Unlock()
	_ = d.adopt(ctx) // without the entries of plans, the device is measured nevertheless; see Sync
	return d.reconcile(ctx, sw)
}

// reconcile makes a switch hold what it must hold. d.writing is held.
func (d *deviceIntent) reconcile(ctx context.Context, sw Reconciler) error {
	parts := d.desired()
	if len(parts) == 0 {
		return nil
	}
	err := sw.Reconcile(ctx, parts...)
	if err == nil {
		d.absent = nil
	}
	return err
}

// desired returns what the switch must hold: forwarding, then the entries of plans, which replace
// forwarding entries of the same key, without those that a plan of the owner before deletes.
// d.writing is held.
func (d *deviceIntent) desired() []p4rt.Desired {
	parts := slices.Clone(d.forwarding)
	if len(d.applied)+len(d.absent) == 0 {
		return parts
	}
	return append(parts, p4rt.Desired{Entries: sorted(d.applied), Absent: d.absent})
}
