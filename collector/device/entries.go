// SPDX-License-Identifier: Apache-2.0

package device

import (
	"context"
	"fmt"

	"github.com/netsketch/netsketch/p4/p4rt"
)

// Key returns the identity of an entry on the switch. It fails before the pipeline is known, and
// for an entry that does not fit the pipeline.
func (d *Device) Key(e p4rt.Entry) (string, error) {
	s, err := d.started()
	if err != nil {
		return "", err
	}
	cat, err := s.Catalog()
	if err != nil {
		return "", err
	}
	return e.Key(cat)
}

// writable returns the session, or an error that says why entries cannot be written.
func (d *Device) writable() (session, error) {
	if d.cfg.MayWrite != nil {
		if err := d.cfg.MayWrite(); err != nil {
			return nil, fmt.Errorf("device %s: %w", d.cfg.Name, err)
		}
	}
	return d.started()
}

// Write sends updates to the switch; see [p4rt.Client.Write].
func (d *Device) Write(ctx context.Context, updates ...p4rt.Update) error {
	s, err := d.writable()
	if err != nil {
		return err
	}
	return s.Write(ctx, updates...)
}

// Reconcile writes the entries of the parts to the switch; see [p4rt.Client.Reconcile].
func (d *Device) Reconcile(ctx context.Context, parts ...p4rt.Desired) error {
	s, err := d.writable()
	if err != nil {
		return err
	}
	return s.Reconcile(ctx, parts...)
}
