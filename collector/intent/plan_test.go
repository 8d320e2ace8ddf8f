// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// A plan for the epoch after the next, as ChameleMon makes in each epoch, is written when it is
// accepted. It is in force two epochs later, and then in every second epoch only.
func TestPreEpochPlanIsWrittenBeforeItsEpoch(t *testing.T) {
	r := newRig(t, 2)
	first := r.step()
	r.expectStates(sdk.DeviceState{Device: "s1"}, sdk.DeviceState{Device: "s2"})
	r.plan(sdk.Plan{ID: 7, FromEpoch: first + 3, PreEpoch: true,
		Writes: []sdk.DeviceWrite{planWrite("s1", "a"), planWrite("s2", "b"), planWrite("s1", "c")}})
	r.step() // closes first+1
	r.expectApplied("s1", "a", "c")
	r.expectApplied("s2", "b")
	r.step() // closes first+2, which uses the other bank
	r.expectStates(sdk.DeviceState{Device: "s1"}, sdk.DeviceState{Device: "s2"})
	r.expectOutcomes(sdk.PlanOutcome{Plan: 7, FromEpoch: first + 3, Device: "s1", Status: sdk.PlanApplied},
		sdk.PlanOutcome{Plan: 7, FromEpoch: first + 3, Device: "s2", Status: sdk.PlanApplied})
	for range 2 {
		r.step() // closes first+3, and then first+5
		r.expectStates(sdk.DeviceState{Device: "s1", Plan: 7}, sdk.DeviceState{Device: "s2", Plan: 7})
		r.expectOutcomes()
		r.step() // closes first+4, and then first+6
		r.expectStates(sdk.DeviceState{Device: "s1"}, sdk.DeviceState{Device: "s2"})
	}
}

// A plan for a bank that an earlier epoch still uses is written after that epoch has been read.
func TestPreEpochPlanWaitsForItsBank(t *testing.T) {
	r := newRig(t, 1)
	first := r.step()
	r.plan(sdk.Plan{ID: 7, FromEpoch: first + 4, PreEpoch: true, Writes: []sdk.DeviceWrite{planWrite("s1", "a")}})
	r.step() // closes first+1; the open epoch, first+2, uses the bank of first+4
	r.expectApplied("s1")
	r.step() // closes first+2
	r.expectApplied("s1", "a")
}

func TestLatePlanIsNotWritten(t *testing.T) {
	r := newRig(t, 1)
	first := r.step()
	r.plan(sdk.Plan{ID: 7, FromEpoch: first + 2, PreEpoch: true, Writes: []sdk.DeviceWrite{planWrite("s1", "a")}})
	r.step() // closes first+1, opens first+2
	r.step()
	r.expectApplied("s1")
	r.expectStates(sdk.DeviceState{Device: "s1"})
	r.expectOutcomes(sdk.PlanOutcome{Plan: 7, FromEpoch: first + 2, Device: "s1", Status: sdk.PlanLate,
		Reason: "is already open"})
	// A plan also counts as late if there is too little time before the flip.
	r.step() // closes first+3, opens first+4
	r.clock.Advance(time.Second - guard)
	r.c.Add(t.Context(), plugin, sdk.Plan{ID: 8, FromEpoch: first + 5, PreEpoch: true,
		Writes: []sdk.DeviceWrite{planWrite("s1", "a")}})
	r.step()
	r.expectApplied("s1")
	r.expectOutcomes(sdk.PlanOutcome{Plan: 8, FromEpoch: first + 5, Device: "s1", Status: sdk.PlanLate,
		Reason: "begins in"})
	if n := strings.Count(r.log.String(), "plan is late"); n != 2 {
		t.Errorf("%d lines about late plans:\n%s", n, r.log)
	}
	if got := r.c.Counts(plugin); got.Late != 2 || got.Applied+got.Failed != 0 ||
		!strings.Contains(got.LastProblem, "begins in") {
		t.Errorf("counts %+v", got)
	}
}

// tableFull is the error of a write whose only update was refused.
var tableFull = &p4rt.WriteError{Total: 1, Failed: []*p4rt.UpdateError{{Code: codes.ResourceExhausted,
	Message: "the table is full"}}}

func TestPlanThatOneDeviceRefusesIsUndoneOnAll(t *testing.T) {
	r := newRig(t, 3)
	first := r.step()
	r.devices["s2"].do(func(d *fakeDevice) { d.refuse = tableFull })
	all := []sdk.DeviceWrite{planWrite("s1", "a"), planWrite("s2", "b"), planWrite("s3", "c")}
	r.plan(sdk.Plan{ID: 7, FromEpoch: first + 3, PreEpoch: true, Writes: all})
	r.step()
	for _, name := range r.names {
		r.expectApplied(name)
	}
	r.step()
	r.expectOutcomes(sdk.PlanOutcome{Plan: 7, FromEpoch: first + 3, Device: "s1", Status: sdk.PlanFailed,
		Reason: "because s2 did not"},
		sdk.PlanOutcome{Plan: 7, FromEpoch: first + 3, Device: "s2", Status: sdk.PlanFailed,
			Reason: "the table is full"},
		sdk.PlanOutcome{Plan: 7, FromEpoch: first + 3, Device: "s3", Status: sdk.PlanFailed,
			Reason: "because s2 did not"})
	r.step()
	r.expectStates(sdk.DeviceState{Device: "s1"}, sdk.DeviceState{Device: "s2"}, sdk.DeviceState{Device: "s3"})

	// A device that may hold some of the entries is in a mixed state.
	r.devices["s2"].do(func(d *fakeDevice) { d.refuse = errors.New("the session was lost") })
	number := r.closed
	r.plan(sdk.Plan{ID: 8, FromEpoch: number + 3, PreEpoch: true, Writes: all})
	r.step()
	r.step()
	r.step() // number+3
	r.expectStates(sdk.DeviceState{Device: "s1"}, sdk.DeviceState{Device: "s2", Mixed: true},
		sdk.DeviceState{Device: "s3"})
}

// A plan is written without a device that is away. The device receives the plan when it returns.
func TestPlanForADeviceThatIsAway(t *testing.T) {
	r := newRig(t, 2)
	first := r.step()
	r.devices["s2"].do(func(d *fakeDevice) { d.down = errors.New("its session is down") })
	r.plan(sdk.Plan{ID: 7, FromEpoch: first + 3, PreEpoch: true,
		Writes: []sdk.DeviceWrite{planWrite("s1", "a"), planWrite("s2", "b")}})
	r.step() // first+1
	r.expectApplied("s1", "a")
	r.step() // first+2
	r.expectOutcomes(sdk.PlanOutcome{Plan: 7, FromEpoch: first + 3, Device: "s1", Status: sdk.PlanApplied},
		sdk.PlanOutcome{Plan: 7, FromEpoch: first + 3, Device: "s2", Status: sdk.PlanFailed, Reason: "is away"})
	r.devices["s2"].do(func(d *fakeDevice) { d.down = nil })
	r.c.ApplyPending(t.Context(), "s2") // called when the session is ready
	r.expectApplied("s2", "b")
	r.step() // first+3, which is mixed: s2 was changed during the epoch
	r.expectStates(sdk.DeviceState{Device: "s1", Plan: 7}, sdk.DeviceState{Device: "s2", Mixed: true})
	r.step()
	r.step() // first+5
	r.expectStates(sdk.DeviceState{Device: "s1", Plan: 7}, sdk.DeviceState{Device: "s2", Plan: 7})
}

// Outcomes are delivered again if the plugin failed.
func TestOutcomesAreKeptUntilDelivered(t *testing.T) {
	r := newRig(t, 1)
	first := r.step()
	r.plan(sdk.Plan{ID: 7, FromEpoch: first + 2, Writes: []sdk.DeviceWrite{planWrite("s1", "a")}})
	r.step()
	r.failing = true
	want := sdk.PlanOutcome{Plan: 7, FromEpoch: first + 3, Device: "s1", Status: sdk.PlanApplied}
	r.step() // first+2 closes and first+3 opens: the plan came too late for the previous flip
	r.expectOutcomes(want)
	r.failing = false
	r.step()
	r.expectOutcomes(want)
	r.expectStates(sdk.DeviceState{Device: "s1", Plan: 7})
	r.step()
	r.expectOutcomes()
}

// The memory of pending plans is bounded for unknown devices, devices that do not return and
// epochs in the far future. Each device keeps the newest plans.
func TestPendingPlansAreBounded(t *testing.T) {
	r := newRig(t, 1)
	first := r.step()
	large := func(id uint64, device string, preEpoch bool) sdk.Plan {
		w := planWrite(device, "t")
		w.Entry.Params = []sdk.ActionParam{{Name: "p", Value: make([]byte, maxPending/4)}}
		return sdk.Plan{ID: id, FromEpoch: first + 1_000_000, PreEpoch: preEpoch, Writes: []sdk.DeviceWrite{w}}
	}
	for id := range uint64(10) {
		r.c.Add(t.Context(), plugin, large(id+1, "unknown", false))
		r.c.Add(t.Context(), plugin, large(id+11, "s1", false))
		r.c.Add(t.Context(), plugin, large(id+21, "s1", true))
	}
	r.c.mu.Lock()
	var kept []uint64
	for _, p := range r.c.devices["s1"].pending {
		kept = append(kept, p.of.id)
	}
	early := len(r.c.early)
	r.c.mu.Unlock()
	if !slices.Equal(kept, []uint64{18, 19, 20}) || early != 3 {
		t.Errorf("plans %v are pending for s1, %d for their banks", kept, early)
	}
	reasons := map[string]int{}
	for _, o := range r.c.Outcomes(plugin) {
		if o.Status != sdk.PlanFailed {
			t.Errorf("outcome %+v", o)
		}
		reasons[o.Reason]++
	}
	want := map[string]int{
		noDevice: 10, "dropped: more than 16 MiB of plans are pending for the device": 7,
		"dropped: more than 16 MiB of plans are pending for their epochs": 7,
	}
	if diff := cmp.Diff(want, reasons); diff != "" {
		t.Error(diff)
	}
	if got := r.c.Counts(plugin).Failed; got != 24 {
		t.Errorf("%d plans are counted as failed", got)
	}
}

// A plan for another network's devices is refused as a whole, with one line in the log.
func TestPlanForAnotherNetwork(t *testing.T) {
	for _, preEpoch := range []bool{false, true} {
		r := newRig(t, 1)
		first := r.step()
		plan := sdk.Plan{ID: 7, FromEpoch: first + 3, PreEpoch: preEpoch,
			Writes: []sdk.DeviceWrite{planWrite("s1", "a")}}
		for i := range 50_000 {
			plan.Writes = append(plan.Writes, planWrite(fmt.Sprint("other", i), "a"))
		}
		r.c.Add(t.Context(), plugin, plan)
		if got := r.c.Outcomes(plugin); len(got) != 1 || got[0].Status != sdk.PlanFailed ||
			!strings.Contains(got[0].Reason, noDevice) {
			t.Errorf("pre-epoch %v: %d outcomes, the first %+v", preEpoch, len(got), got[:min(1, len(got))])
		}
		if n := strings.Count(r.log.String(), "plan not applied"); n != 1 {
			t.Errorf("pre-epoch %v: %d lines in the log", preEpoch, n)
		}
		r.step()
		r.step()
		r.expectApplied("s1")
	}
}

// ApplyPending waits while another call writes, so that no epoch begins before the entries are
// written.
func TestApplyPendingWaits(t *testing.T) {
	r := newRig(t, 1)
	r.step()
	r.c.Add(t.Context(), plugin, sdk.Plan{ID: 7, Writes: []sdk.DeviceWrite{planWrite("s1", "a")}})
	other := make(chan struct{})
	r.devices["s1"].writing = func() {
		go func() {
			r.c.ApplyPending(t.Context(), "s1")
			close(other)
		}()
		for range 1000 { // gives a caller that does not wait the time to return
			runtime.Gosched()
		}
		select {
		case <-other:
			t.Error("ApplyPending returned while another call was writing")
		default:
		}
	}
	r.c.ApplyPending(t.Context(), "s1")
	<-other
	r.expectApplied("s1", "a")
}

// Leave waits for the write in progress. After Leave, no entry is written: the parts wait for the
// device's next session. The plugin receives no outcome, because this collector gives up the device
// on purpose.
func TestLeaveWaitsForAWrite(t *testing.T) {
	r := newRig(t, 1)
	first := r.step()
	left := make(chan struct{})
	r.devices["s1"].writing = func() {
		r.devices["s1"].writing = nil
		go func() {
			r.c.Leave("s1")
			close(left)
		}()
		for range 1000 { // gives a caller that does not wait the time to return
			runtime.Gosched()
		}
		select {
		case <-left:
			t.Error("Leave returned while an entry was written")
		default:
		}
	}
	r.c.Add(t.Context(), plugin, sdk.Plan{ID: 7, FromEpoch: first + 2, PreEpoch: true,
		Writes: []sdk.DeviceWrite{planWrite("s1", "a")}})
	<-left
	r.expectApplied("s1", "a")
	r.c.Add(t.Context(), plugin, sdk.Plan{ID: 8, Writes: []sdk.DeviceWrite{planWrite("s1", "b")}})
	r.c.ApplyPending(t.Context(), "s1")
	r.c.Flipped(t.Context(), "s1", first+2)
	r.expectApplied("s1", "a")
	if got := r.c.Counts(plugin); got != (Counts{Applied: 1}) {
		t.Errorf("outcomes %+v, want those of the first plan", got)
	}
	r.c.AddDevice(r.devices["s1"], false, false)
	r.c.ApplyPending(t.Context(), "s1")
	r.expectApplied("s1", "a", "b")
	if got := r.c.Counts(plugin); got != (Counts{Applied: 2}) {
		t.Errorf("outcomes %+v, want those of both plans", got)
	}
}

// If writes take longer than the rest of an epoch, some packets of the next epoch are counted
// before them, so that epoch is mixed. The flip does not wait for the writes.
func TestPendingPlanThatTakesOverAFlip(t *testing.T) {
	r := newRig(t, 1)
	first := r.step()
	r.c.Add(t.Context(), plugin, sdk.Plan{ID: 7, Writes: []sdk.DeviceWrite{planWrite("s1", "a")}})
	r.devices["s1"].writing = func() {
		r.step() // first+1 closes, first+2 begins
		r.expectStates(sdk.DeviceState{Device: "s1"})
	}
	r.c.ApplyPending(t.Context(), "s1")
	r.devices["s1"].writing = nil
	r.expectApplied("s1", "a")
	r.step() // first+2
	r.expectStates(sdk.DeviceState{Device: "s1", Mixed: true})
	r.expectOutcomes(sdk.PlanOutcome{Plan: 7, FromEpoch: first + 3, Device: "s1", Status: sdk.PlanApplied})
	r.step()
	r.expectStates(sdk.DeviceState{Device: "s1", Plan: 7})
}
