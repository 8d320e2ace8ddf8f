// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/netsketch/netsketch/collector/device/banks"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/plugins/sdk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeDevice is a device with two banks that records the tables of writes.
type fakeDevice struct {
	name string

	mu      sync.Mutex
	down    error
	refuse  error  // error of Write
	writing func() // called by Write
	applied []string
}

func (d *fakeDevice) Name() string { return d.name }
func (d *fakeDevice) Banks() int   { return 2 }

func (d *fakeDevice) Ready() (banks.Incarnation, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return banks.Incarnation{}, d.down
}

func (d *fakeDevice) Key(e p4rt.Entry) (string, error)                 { return e.Table, nil }
func (d *fakeDevice) Reconcile(context.Context, ...p4rt.Desired) error { return nil }

func (d *fakeDevice) Write(_ context.Context, updates ...p4rt.Update) error {
	if d.writing != nil {
		d.writing()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refuse != nil {
		return d.refuse
	}
	for _, u := range updates {
		if isDelete(u) {
			d.applied = slices.DeleteFunc(d.applied, func(table string) bool { return table == u.Entry.Table })
		} else {
			d.applied = append(d.applied, u.Entry.Table)
		}
	}
	return nil
}

func (d *fakeDevice) do(f func(*fakeDevice)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d)
}

const (
	plugin = "fake"
	guard  = 10 * time.Millisecond
)

// rig is a component with fake devices s1, s2, … and epochs of one second on virtual time.
type rig struct {
	t       *testing.T
	c       *Component
	clock   *epoch.Virtual
	log     *testkit.Log
	devices map[string]*fakeDevice
	names   []string

	open     uint64 // the open epoch
	end      time.Time
	plans    []sdk.Plan // plans of the plugin, accepted when the next epoch closes
	failing  bool       // the plugin loses the next epoch
	closed   uint64     // the newest closed epoch whose outcomes the plugin has received
	states   []sdk.DeviceState
	outcomes []sdk.PlanOutcome
}

func newRig(t *testing.T, devices int) *rig {
	t.Helper()
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r := &rig{
		t: t, clock: epoch.NewVirtual(start, 5*time.Second), log: &testkit.Log{}, devices: map[string]*fakeDevice{},
		open: 100, end: start.Add(time.Second),
	}
	r.c = New(Config{Guard: guard}, Dependencies{Logger: slog.New(slog.NewTextHandler(r.log, nil)), Clock: r.clock,
		Epochs: r, BankShift: r.BankShift})
	t.Cleanup(r.c.Stop)
	for i := range devices {
		d := &fakeDevice{name: fmt.Sprintf("s%d", i+1)}
		r.devices[d.name] = d
		r.names = append(r.names, d.name)
		r.c.AddDevice(d, false, false)
	}
	return r
}

func (r *rig) Current() (uint64, time.Time) { return r.open, r.end }
func (r *rig) BankShift() uint64            { return 1 }

// step closes the open epoch as the collector does, and returns its number.
func (r *rig) step() uint64 {
	r.t.Helper()
	r.clock.AdvanceTo(r.end)
	r.closed, r.open, r.end = r.open, r.open+1, r.end.Add(time.Second)
	for _, name := range r.names {
		if _, err := r.devices[name].Ready(); err == nil {
			r.c.Flipped(r.t.Context(), name, r.open)
		}
	}
	r.clock.Advance(guard)
	r.states = r.c.States(plugin, r.closed, r.names)
	r.outcomes = r.c.Outcomes(plugin)
	written := r.c.Collected(r.t.Context(), r.closed)
	if !r.failing {
		r.c.Delivered(plugin, len(r.outcomes))
		for _, p := range r.plans {
			r.c.Add(r.t.Context(), plugin, p)
		}
		r.plans = nil
	}
	written()
	return r.closed
}

// plan makes the plugin return plans with the next epoch that closes.
func (r *rig) plan(plans ...sdk.Plan) { r.plans = plans }

func (r *rig) applied(name string) (out []string) {
	r.devices[name].do(func(d *fakeDevice) { out = slices.Clone(d.applied) })
	return out
}

func (r *rig) expectApplied(name string, want ...string) {
	r.t.Helper()
	if got := r.applied(name); !slices.Equal(got, want) {
		r.t.Errorf("%s holds %v, want %v", name, got, want)
	}
}

func (r *rig) expectStates(want ...sdk.DeviceState) {
	r.t.Helper()
	if diff := cmp.Diff(want, r.states); diff != "" {
		r.t.Errorf("epoch %d: states (-want +got):\n%s", r.closed, diff)
	}
}

// expectOutcomes compares the outcomes; the reason of each must contain the expected text.
func (r *rig) expectOutcomes(want ...sdk.PlanOutcome) {
	r.t.Helper()
	got := slices.Clone(r.outcomes)
	for i := range got {
		if i >= len(want) || !strings.Contains(got[i].Reason, want[i].Reason) || want[i].Reason == "" &&
			got[i].Reason != "" {
			r.t.Errorf("outcomes %+v, want %+v", got, want)
			return
		}
		got[i].Reason = want[i].Reason
	}
	if diff := cmp.Diff(want, got); diff != "" {
		r.t.Errorf("epoch %d: outcomes (-want +got):\n%s", r.closed, diff)
	}
}

// planWrite is a write into a table of a device.
func planWrite(device, table string) sdk.DeviceWrite {
	return sdk.DeviceWrite{Device: device, Op: sdk.Insert, Entry: sdk.TableEntry{Table: table}}
}
