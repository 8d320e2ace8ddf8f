// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/collector/device"
	"github.com/netsketch/netsketch/collector/topology"
	"github.com/netsketch/netsketch/internal/test/fakeswitch"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/p4/compiled"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/plugins/sdk"
)

func program(tb testing.TB, name string) *p4rt.Program {
	tb.Helper()
	p, err := compiled.Load(name)
	if err != nil {
		tb.Fatal(err)
	}
	return &p4rt.Program{Name: p.Name, DeviceConfig: p.JSON, P4Info: p.P4Info}
}

// noEpoch is an epoch engine before its first epoch.
type noEpoch struct{}

func (noEpoch) Current() (uint64, time.Time) { return 0, time.Time{} }

// bench is a component with one device s1, connected to a fake switch over P4Runtime.
type bench struct {
	t          *testing.T
	c          *Component
	d          *device.Device
	sw         *fakeswitch.Switch
	reconciled atomic.Int64 // counts calls of Reconcile
}

// newBench starts a fake switch and a device for it. With forwards, the component owns the
// forwarding tables.
func newBench(t *testing.T, forwards bool) *bench {
	t.Helper()
	p := program(t, "univmon-300k")
	sw := fakeswitch.Start(t, p.P4Info)
	return connect(t, sw, forwards, p4rt.Config{Program: p})
}

// connect connects a device of a new component to a fake switch.
func connect(t *testing.T, sw *fakeswitch.Switch, forwards bool, cfg p4rt.Config) *bench {
	t.Helper()
	b := &bench{t: t, sw: sw, c: New(Config{}, Dependencies{Epochs: noEpoch{}, BankShift: func() uint64 { return 0 }})}
	cfg.Target, cfg.DeviceID, cfg.CallTimeout = sw.Address, 1, 5*time.Second
	cfg.Backoff = p4rt.Backoff{Min: time.Millisecond, Max: 20 * time.Millisecond}
	cfg.Reconcile = func(ctx context.Context, sw *p4rt.Client) error {
		b.reconciled.Add(1)
		return b.c.Reconcile(ctx, "s1", sw)
	}
	var err error
	if b.d, err = device.New(device.Config{Name: "s1", Role: "edge", Session: cfg}, device.Dependencies{}); err != nil {
		t.Fatal(err)
	}
	b.c.AddDevice(b.d, forwards, false)
	return b
}

// start begins the device's session and waits until it is ready.
func (b *bench) start() {
	b.t.Helper()
	if err := b.d.Start(context.Background()); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := b.d.Close(); err != nil {
			b.t.Error(err)
		}
	})
	b.ready(1)
}

// ready waits for a session that is ready.
func (b *bench) ready(session uint64) {
	b.t.Helper()
	testkit.Until(b.t, "the session is ready", func() bool {
		st := b.d.Status().Session
		return st.State == p4rt.Ready && st.Session >= session
	})
}

// write writes updates as a part of a plan.
func (b *bench) write(ctx context.Context, writes ...sdk.DeviceWrite) (undo func(context.Context) error, err error) {
	p := newPlan(plugin, sdk.Plan{PreEpoch: true, Writes: writes}).parts[0]
	err = b.c.device("s1").apply(ctx, p)
	return p.of.undos["s1"], err
}

func (b *bench) expectEntries(want int) {
	b.t.Helper()
	if n := b.sw.Entries(); n != want {
		b.t.Errorf("%d entries, want %d", n, want)
	}
}

// prefix returns a write of a route for a prefix of 8 bits.
func prefix(op sdk.WriteOp, first byte, action string) sdk.DeviceWrite {
	return sdk.DeviceWrite{Device: "s1", Op: op, Entry: sdk.TableEntry{
		Table: "ipv4_lpm", Matches: []sdk.FieldMatch{{Field: "hdr.ipv4.dst", Value: []byte{first, 0, 0, 0},
			PrefixLen: 8}}, Action: action,
	}}
}

// routes returns the routes of a leaf with one host of its own and one behind two spines: four
// routes, and two next hops in a group.
func routes(t *testing.T) topology.Routes {
	t.Helper()
	var b topology.Builder
	for _, n := range []string{"s1", "s2", "spine1", "spine2"} {
		b.AddSwitch(topology.Switch{Name: n})
	}
	for i, leaf := range []string{"s1", "s2"} {
		b.AddHost(topology.Host{
			Name: "h" + leaf, Port: topology.Port{Switch: leaf, Number: 1},
			Prefixes: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), 0}), 24),
				netip.MustParsePrefix("fd00:0:0:" + string(rune('1'+i)) + "::/64")},
		})
		for j, spine := range []string{"spine1", "spine2"} {
			b.AddLink(topology.Link{A: topology.Port{Switch: leaf, Number: uint32(2 + j)},
				B: topology.Port{Switch: spine, Number: uint32(1 + i)}})
		}
	}
	topo, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return topo.Routes("s1")
}

const routeEntries = 4 + 2

// A push clears the switch; forwarding and the entries of plans come back together, before the
// session is ready.
func TestDesiredStateComesBackAfterAReboot(t *testing.T) {
	b := newBench(t, true)
	if err := b.c.SetRoutes(t.Context(), "s1", routes(t)); err != nil {
		t.Fatal(err)
	}
	b.start()
	b.expectEntries(routeEntries)
	for range 2 { // the second time as a plugin that was restarted
		if _, err := b.write(t.Context(), prefix(sdk.Insert, 10, "drop"), prefix(sdk.Insert, 11, "drop")); err != nil {
			t.Fatal(err)
		}
	}
	b.expectEntries(routeEntries + 2)
	b.sw.Reboot()
	testkit.Until(t, "the pipeline is pushed again", func() bool { return b.sw.Pushes() == 2 })
	b.ready(2)
	b.expectEntries(routeEntries + 2)

	if _, err := b.write(t.Context(), prefix(sdk.Delete, 11, "")); err != nil {
		t.Fatal(err)
	}
	b.expectEntries(routeEntries + 1)
	if err := b.c.SetRoutes(t.Context(), "s1", topology.Routes{Switch: "s1"}); err != nil {
		t.Fatal(err)
	}
	b.expectEntries(1) // the plan's entry
	b.c.RemoveDevice("s1")
	if err := b.c.SetRoutes(t.Context(), "s1", routes(t)); err != nil {
		t.Fatal(err)
	}
	b.expectEntries(1)
}

// A device that is away misses a pre-epoch plan and receives the plan when it returns. Each of the
// device's sessions is reconciled once, and later sessions hold the plan's entries.
func TestDeviceGoesAwayAndReturns(t *testing.T) {
	b := newBench(t, true)
	if err := b.c.SetRoutes(t.Context(), "s1", routes(t)); err != nil {
		t.Fatal(err)
	}
	b.start()
	if _, err := b.write(t.Context(), prefix(sdk.Insert, 11, "drop")); err != nil {
		t.Fatal(err)
	}
	if err := b.sw.Demote(); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "standby", func() bool { return b.d.Status().Session.State == p4rt.Standby })
	b.c.Add(t.Context(), plugin, sdk.Plan{ID: 7, FromEpoch: 2, PreEpoch: true,
		Writes: []sdk.DeviceWrite{prefix(sdk.Insert, 12, "drop"), prefix(sdk.Delete, 11, "")}})
	if got := b.c.Outcomes(plugin); len(got) != 1 || got[0].Status != sdk.PlanFailed ||
		!strings.Contains(got[0].Reason, "is away") {
		t.Errorf("outcomes %+v", got)
	}
	b.c.ApplyPending(t.Context(), "s2") // applies to another device
	b.expectEntries(routeEntries + 1)
	if err := b.sw.Promote(); err != nil {
		t.Fatal(err)
	}
	b.ready(1)
	b.c.ApplyPending(t.Context(), "s1")
	b.expectEntries(routeEntries + 1)
	if got := b.c.Counts(plugin); got.Applied != 1 {
		t.Errorf("counts %+v, last outcomes %+v", got, b.c.Outcomes(plugin))
	}
	before := b.reconciled.Load()
	session := b.d.Status().Session.Session
	b.sw.Reboot()
	b.ready(session + 1)
	b.expectEntries(routeEntries + 1)
	sessions := b.d.Status().Session.Session - session
	if n := b.reconciled.Load() - before; n < 1 || n > int64(sessions) {
		t.Errorf("%d sessions were reconciled %d times", sessions, n)
	}
	var failed *p4rt.WriteError
	if err := b.d.Write(t.Context(), update(prefix(sdk.Insert, 12, "drop"))); !errors.As(err, &failed) ||
		failed.Failed[0].Code != codes.AlreadyExists {
		t.Errorf("the plan's entry is not there: %v", err)
	}
}

// A device that only loses its session keeps its entries. Entries that another controller changed
// meanwhile are restored.
func TestDesiredStateIsComparedInANewSession(t *testing.T) {
	b := newBench(t, true)
	if err := b.c.SetRoutes(t.Context(), "s1", routes(t)); err != nil {
		t.Fatal(err)
	}
	b.start()
	if _, err := b.write(t.Context(), prefix(sdk.Insert, 10, "drop")); err != nil {
		t.Fatal(err)
	}
	// The switch now holds an unknown entry in a table that the component owns, and lacks an entry of
	// the plan.
	if err := b.d.Write(t.Context(), update(prefix(sdk.Insert, 99, "drop")),
		update(prefix(sdk.Delete, 10, ""))); err != nil {
		t.Fatal(err)
	}
	b.expectEntries(routeEntries + 1)
	b.sw.Drop(status.Error(codes.Unavailable, "gone"))
	b.ready(2)
	b.expectEntries(routeEntries + 1)
	key := update(prefix(sdk.Insert, 10, "drop"))
	var failed *p4rt.WriteError
	if err := b.d.Write(t.Context(), key); !errors.As(err, &failed) || failed.Failed[0].Code != codes.AlreadyExists {
		t.Errorf("the plan's entry is not there: %v", err)
	}
	if err := b.d.Write(t.Context(), update(prefix(sdk.Delete, 99, ""))); !errors.As(err, &failed) ||
		failed.Failed[0].Code != codes.NotFound {
		t.Errorf("an entry that is not desired is there: %v", err)
	}
	if b.sw.Pushes() != 1 {
		t.Errorf("%d pushes", b.sw.Pushes())
	}
}

// In tables that the component does not own, reconciling keeps entries that are not desired.
func TestEntriesOfOthersStay(t *testing.T) {
	b := newBench(t, false)
	if err := b.c.SetRoutes(t.Context(), "s1", routes(t)); err != nil {
		t.Fatal(err)
	}
	b.start()
	b.expectEntries(0)
	if _, err := b.write(t.Context(), prefix(sdk.Insert, 10, "drop")); err != nil {
		t.Fatal(err)
	}
	if err := b.d.Write(t.Context(), update(prefix(sdk.Insert, 99, "drop"))); err != nil {
		t.Fatal(err)
	}
	b.sw.Drop(status.Error(codes.Unavailable, "gone"))
	b.ready(2)
	b.expectEntries(2)
}

// A plan that is refused halfway leaves no entry. Entries that exist from an earlier process are
// modified.
func TestPartIsWrittenAsAWhole(t *testing.T) {
	b := newBench(t, false)
	b.start()
	ctx := t.Context()
	undo, err := b.write(ctx, prefix(sdk.Insert, 10, "drop"), prefix(sdk.Insert, 11, "drop"))
	if err != nil {
		t.Fatal(err)
	}
	b.expectEntries(2)
	if _, err := b.write(ctx, prefix(sdk.Insert, 12, "drop"), prefix(sdk.Modify, 13, "drop")); err == nil ||
		errors.Is(err, ErrPartiallyApplied) {
		t.Errorf("error %v", err)
	}
	b.expectEntries(2)
	wrong := prefix(sdk.Insert, 12, "drop")
	wrong.Entry.Table = "ipv5_lpm"
	if _, err := b.write(ctx, prefix(sdk.Insert, 12, "drop"), wrong); err == nil ||
		!strings.Contains(err.Error(), "ipv5_lpm") || !strings.Contains(err.Error(), "write 2 of 2") {
		t.Errorf("error %v", err)
	}
	wrong = prefix(sdk.Insert, 12, "fly")
	if _, err := b.write(ctx, prefix(sdk.Insert, 12, "drop"), wrong); err == nil ||
		!strings.Contains(err.Error(), `"fly"`) || errors.Is(err, ErrPartiallyApplied) {
		t.Errorf("error %v", err)
	}
	if _, err := b.write(ctx, prefix(sdk.WriteOp(99), 12, "drop")); err == nil || errors.Is(err, ErrPartiallyApplied) {
		t.Errorf("a write of an unknown kind: %v", err)
	}
	b.expectEntries(2)
	if err := undo(ctx); err != nil {
		t.Errorf("undo: %v", err)
	}
	b.expectEntries(0)
	if _, err := b.write(ctx, prefix(sdk.Insert, 10, "drop"), prefix(sdk.Insert, 11, "drop")); err != nil {
		t.Fatal(err)
	}
	b.sw.SetFaults(fakeswitch.Faults{RefuseTable: "ipv4_lpm"})
	if _, err := b.write(ctx, prefix(sdk.Delete, 10, ""), prefix(sdk.Insert, 14, "drop")); !errors.Is(err,
		ErrPartiallyApplied) {
		t.Errorf("an entry was removed and cannot be brought back: error %v", err)
	}
	b.sw.SetFaults(fakeswitch.Faults{})

	// A collector that did not write the existing entries takes over.
	other := connect(t, b.sw, false, p4rt.Config{ElectionID: p4rt.ElectionID{Low: 1 << 50}})
	other.start()
	if _, err := other.write(ctx, prefix(sdk.Insert, 11, "drop"), prefix(sdk.Insert, 12, "drop")); err != nil {
		t.Errorf("an entry of an earlier process: %v", err)
	}
	ended, cancel := context.WithCancel(ctx)
	defer cancel()
	b.sw.SetFaults(fakeswitch.Faults{HangWrite: true, OnHang: cancel})
	if _, err := other.write(ended, prefix(sdk.Insert, 12, "drop")); !errors.Is(err, ErrPartiallyApplied) {
		t.Errorf("a write without a reply: error %v", err)
	}
}

// If the session ends while entries are written, the plan is applied in the next session. A plan
// that is withdrawn before leaves no entry.
func TestSessionEndsWhileEntriesAreWritten(t *testing.T) {
	for _, withdrawn := range []bool{false, true} {
		b := newBench(t, false)
		b.start()
		b.sw.SetFaults(fakeswitch.Faults{HangWrite: true, OnHang: func() {
			b.sw.SetFaults(fakeswitch.Faults{})
			if err := b.sw.Demote(); err != nil {
				t.Error(err)
			}
		}})
		b.c.Add(t.Context(), plugin, sdk.Plan{ID: 7, FromEpoch: 2, PreEpoch: true,
			Writes: []sdk.DeviceWrite{prefix(sdk.Insert, 12, "drop"), prefix(sdk.Insert, 13, "drop")}})
		if got := b.c.Outcomes(plugin); len(got) != 1 || got[0].Status != sdk.PlanFailed ||
			!strings.Contains(got[0].Reason, "is away") {
			t.Errorf("outcomes %+v", got)
		}
		left := b.c.device("s1").absent // entries that the switch may hold
		if len(left) != 2 {
			t.Errorf("a new session deletes %v, want the entries of the plan", left)
		}
		want := 2
		if withdrawn {
			want = 0
			d := b.c.device("s1")
			b.c.mu.Lock()
			d.pending = nil
			b.c.mu.Unlock()
		}
		testkit.Until(t, "standby", func() bool { return b.d.Status().Session.State == p4rt.Standby })
		if err := b.sw.Promote(); err != nil {
			t.Fatal(err)
		}
		b.ready(1)
		b.c.ApplyPending(t.Context(), "s1")
		b.expectEntries(want)
		if got := b.c.Counts(plugin); !withdrawn && got.Applied != 1 {
			t.Errorf("counts %+v, last outcomes %+v", got, b.c.Outcomes(plugin))
		}
	}
}

// A device whose session has not begun, or has ended, holds no entry of a plan.
func TestWriteWithoutASession(t *testing.T) {
	b := newBench(t, false)
	if _, err := b.write(t.Context(), prefix(sdk.Insert, 10, "drop")); !errors.Is(err, device.ErrNotStarted) ||
		errors.Is(err, ErrPartiallyApplied) {
		t.Errorf("before the start: %v", err)
	}
	b.start()
	if err := b.sw.Demote(); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "standby", func() bool { return b.d.Status().Session.State == p4rt.Standby })
	if _, err := b.write(t.Context(), prefix(sdk.Insert, 10, "drop")); !errors.Is(err, p4rt.ErrNotPrimary) ||
		errors.Is(err, ErrPartiallyApplied) {
		t.Errorf("in standby: %v", err)
	}
}

func TestCheckRoutes(t *testing.T) {
	p := program(t, "univmon-300k")
	if err := CheckRoutes(p, "s1", routes(t)); err != nil {
		t.Error(err)
	}
	for _, table := range p.P4Info.Tables {
		if table.Preamble.Alias == "ipv4_lpm" {
			table.Preamble.Name, table.Preamble.Alias = "ingress.other", "other"
		}
	}
	if err := CheckRoutes(p, "s1", routes(t)); err == nil || !strings.Contains(err.Error(), "ipv4_lpm") {
		t.Errorf("error %v", err)
	}
	r := routes(t)
	r.Groups = nil
	if err := CheckRoutes(program(t, "univmon-300k"), "s1", r); err == nil ||
		!strings.Contains(err.Error(), "has no hops") {
		t.Errorf("error %v", err)
	}
}
