// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"context"
	"slices"

	"github.com/netsketch/netsketch/p4/p4rt"
)

// Reconcile updates a device's entries to the desired state. A new P4Runtime session calls it with
// itself as the switch before the session is ready, so that a switch that was away, or whose
// pipeline was pushed again, has the desired entries before it is measured.
func (c *Component) Reconcile(ctx context.Context, name string, sw Reconciler) error {
	d := c.device(name)
	if d == nil {
		return nil // the device has been removed
	}
	d.storing.Lock()
	defer d.storing.Unlock()
	d.writing.Lock()
	defer d.writing.Unlock()
	_ = d.adopt(ctx) // if the entries of plans are missing, the device is measured nevertheless; Sync adds them
	return d.reconcile(ctx, sw)
}

// reconcile makes the switch's entries equal to the desired ones. The caller holds d.writing.
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

// desired returns the entries that the switch must hold: the forwarding entries and then the
// entries of plans, which replace forwarding entries with the same key. It leaves out entries that
// a plan of the previous owner deletes. The caller holds d.writing.
func (d *deviceIntent) desired() []p4rt.Desired {
	parts := slices.Clone(d.forwarding)
	if len(d.applied)+len(d.absent) == 0 {
		return parts
	}
	return append(parts, p4rt.Desired{Entries: sorted(d.applied), Absent: d.absent})
}
