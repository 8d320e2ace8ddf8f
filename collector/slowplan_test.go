// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"testing"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// slowDevice takes writes while something else goes on.
type slowDevice struct {
	*fakeDevice
	meanwhile func()
}

func (d slowDevice) Apply(ctx context.Context, writes []sdk.DeviceWrite) (func(context.Context) error, error) {
	d.meanwhile()
	return d.fakeDevice.Apply(ctx, writes)
}

// Writes that take over the beginning of an epoch: some packets of it were counted before they were in force, so it is not
// said to have been measured under them. Nobody is kept from the flip meanwhile.
func TestPlanThatTakesOverAFlip(t *testing.T) {
	r := newRig(t, devicesYAML(1)+pluginsYAML(t, "fake"), nil)
	first := r.step().Number
	r.c.plans.add(t.Context(), "fake", sdk.Plan{ID: 7, Writes: []sdk.DeviceWrite{planWrite("s1", "a")}})
	slow := slowDevice{r.devices["s1"], func() {
		r.step() // first+1 closes, first+2 begins
		r.expectStates(sdk.DeviceState{Device: "s1"})
	}}
	r.c.plans.apply(t.Context(), slow, r.c.opened(), false)
	expectRows(t, r.applied("s1"), "a")
	r.step() // first+2
	r.expectStates(sdk.DeviceState{Device: "s1", Mixed: true})
	r.expectOutcomes(sdk.PlanOutcome{Plan: 7, FromEpoch: first + 3, Device: "s1", Status: sdk.PlanApplied})
	r.step()
	r.expectStates(sdk.DeviceState{Device: "s1", Plan: 7})
}

// Who waits for the devices waits for their configuration, whoever writes it: the first epoch is measured under it.
func TestReadyIsConfigured(t *testing.T) {
	r := newRig(t, devicesYAML(1)+pluginsYAML(t, "fake"), nil)
	r.c.plans.add(t.Context(), "fake", sdk.Plan{ID: 7, Writes: []sdk.DeviceWrite{planWrite("s1", "a"), planWrite("s1", "b")}})
	if missing := r.c.WaitReady(t.Context()); missing != nil {
		t.Errorf("%v are not ready", missing)
	}
	expectRows(t, r.applied("s1"), "a", "b")
}
