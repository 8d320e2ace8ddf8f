// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
	"time"

	"github.com/netsketch/netsketch/hostagent/hostv1"
	"github.com/netsketch/netsketch/hostagent/lease"
)

// alone is a data path whose settings name no peers.
type alone struct{ lease.Path }

func (alone) Peering() (lease.Peering, bool) { return lease.Peering{}, true }
func (alone) Now() time.Duration             { return 0 }
func (alone) OnProbe(func(lease.Received))   {}
func (alone) SetLeases([]lease.Lease)        {}

// TestSettled: a host that has a session, but has not followed settings, does not know which leases
// it needs, so they are not decided on.
func TestSettled(t *testing.T) {
	never := func(time.Duration, func()) func() bool { return func() bool { return true } }
	l := newLeases(alone{}, lease.Config{}, never, func(*hostv1.Leases) {})
	defer l.end()
	if l.online(true); l.settled() {
		t.Error("leases are decided on before there are settings")
	}
	if l.refresh(); !l.settled() {
		t.Error("the settings need no lease, but one is not decided on")
	}
}
