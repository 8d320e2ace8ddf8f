// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/collector/cluster/ownership"
	"github.com/netsketch/netsketch/collector/device/banks"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/p4/p4rt"
)

// A device is not taken over in an epoch that has not begun at the next owner, because the session
// would begin in the previous epoch. The owner offers the device again.
func TestAcceptBeforeTheEpoch(t *testing.T) {
	r := newRig(t, twoSwitches, true)
	r.deps.Elsewhere = func(string) epoch.Source { return nil }
	wait := func(context.Context, time.Duration) error { return nil }
	if err := r.deps.Engine.Open(t.Context(), time.Now(), wait); err != nil {
		t.Fatal(err)
	}
	view := ownership.View{Self: "c2", Leased: true, Owner: "c2", Before: "c1", Present: []string{"c1", "c2"}}
	if err := r.Assign(t.Context(), Ownership{View: func(string) ownership.View { return view },
		Fence: func() uint64 { return 7 }, Writes: true}); err != nil {
		t.Fatal(err)
	}
	open, _ := r.deps.Engine.Current()
	offer := func(epoch uint64) error {
		return r.Accept("c1", Move{Device: "s1", To: "c2", Banks: &banks.Handover{Epoch: epoch}})
	}
	if err := offer(open + 1); err == nil || !strings.Contains(err.Error(), "has not begun at collector c2") ||
		!r.Foreign("s1") {
		t.Errorf("s1 in the next epoch: error %v, of another collector %v", err, r.Foreign("s1"))
	}
	if err := offer(open); err != nil || r.Foreign("s1") || !r.Foreign("s2") {
		t.Errorf("s1 in the open epoch: error %v, of another collector %v", err, r.Foreign("s1"))
	}
}

// Fences of the collectors in tests, and an election id of another controller.
const (
	bucket = uint64(1_790_000_000) << 32
	first  = bucket | 7
	second = bucket | 9
	third  = bucket | 11
)

var forged = p4rt.ElectionID{High: 1 << 63, Low: 9}

// owned is a rig with an ownership of collector c1 that tests change and assign again.
type owned struct {
	*rig
	Ownership
	owner, before string
	taken         int // counts calls of OnTaken
}

func newOwned(t *testing.T) *owned {
	r := &owned{rig: newRig(t, twoSwitches, true), owner: "c1"}
	t.Cleanup(r.deps.Banks.Stop)
	r.deps.Elsewhere = func(string) epoch.Source { return nil }
	r.deps.OnTaken = func() { r.taken++ }
	r.Ownership = Ownership{Fence: func() uint64 { return first }, Writes: true}
	r.assign()
	return r
}

func (r *owned) assign() {
	r.t.Helper()
	r.View = func(string) ownership.View {
		return ownership.View{Self: "c1", Leased: r.Writes, Owner: r.owner, Before: r.before, Present: []string{r.before}}
	}
	if err := r.Assign(r.t.Context(), r.Ownership); err != nil {
		r.t.Fatal(err)
	}
}

func (r *owned) observe() {
	r.t.Helper()
	if err := r.Observe(); err != nil {
		r.t.Fatal(err)
	}
}

// session sets and signals the state of a device's session.
func (r *owned) session(name string, st p4rt.Status) {
	r.devices[name].session.Store(&st)
	r.changed(r.devices[name])
}

// open opens an epoch in which the device is measured, and returns the epoch's number.
func (r *owned) open(name string) uint64 {
	r.t.Helper()
	r.session(name, p4rt.Status{State: p4rt.Ready, Bid: p4rt.ElectionID{High: first, Low: 1}})
	wait := func(context.Context, time.Duration) error { return nil }
	if err := r.deps.Engine.Open(r.t.Context(), time.Now(), wait); err != nil {
		r.t.Fatal(err)
	}
	testkit.Until(r.t, name+" is measured", func() bool {
		h, err := r.deps.Banks.Handover(name)
		return h != nil && err == nil
	})
	open, _ := r.deps.Engine.Current()
	return open
}

// outbid makes another controller the primary of a device.
func (r *owned) outbid(name string, highest p4rt.ElectionID) {
	r.session(name, p4rt.Status{State: p4rt.Standby, Bid: p4rt.ElectionID{High: first, Low: 1}, Highest: highest})
}

// A collector that was cut off and outbid by another collector keeps its session, and receives the
// device by a handover when it is back. A collector that another controller has outbid still owns
// the device.
func TestHandedOverAfterACut(t *testing.T) {
	r := newOwned(t)
	open := r.open("s1")
	s1 := r.devices["s1"]
	r.Writes = false
	r.assign()
	r.outbid("s1", p4rt.ElectionID{High: second, Low: 1})
	r.outbid("s2", forged)
	if r.taken != 1 {
		t.Errorf("Observe is due %d times, want 1: another controller has s2", r.taken)
	}
	if err := r.Observe(); err != nil || r.Foreign("s1") {
		t.Errorf("error %v; a collector that is not known owns s1: %v", err, r.Foreign("s1"))
	}
	r.before = "c2"
	for range 2 {
		r.assign()
		if !r.Foreign("s1") || r.Foreign("s2") {
			t.Errorf("another collector owns s1: %v, s2: %v", r.Foreign("s1"), r.Foreign("s2"))
		}
	}
	for range 30 {
		if _, forced, err := r.EndEpoch(); len(forced) > 0 || err != nil {
			t.Fatalf("without a lease, %q move, error %v", forced, err)
		}
	}
	offer := Move{Device: "s1", To: "c1", Banks: &banks.Handover{Epoch: open, Unread: make([]bool, 2)}}
	r.Writes = true
	r.assign()
	if err := r.Accept("c2", offer); err == nil || !r.Foreign("s1") {
		t.Error("s1 is taken with a lease that is older than the session of c2")
	}
	r.Fence = func() uint64 { return third }
	r.assign()
	for range 2 { // the reply to the first offer may be lost
		if err := r.Accept("c2", offer); err != nil || r.Foreign("s1") {
			t.Errorf("error %v; another collector owns s1: %v", err, r.Foreign("s1"))
		}
		r.outbid("s1", p4rt.ElectionID{High: second, Low: 1}) // c1 is outbid before c2 has ended its session
		if err := r.Observe(); err != nil || r.Foreign("s1") || r.taken != 1 {
			t.Errorf("error %v; another collector owns s1: %v; Observe is due %d times", err, r.Foreign("s1"), r.taken)
		}
	}
	r.session("s1", p4rt.Status{State: p4rt.Ready, Bid: p4rt.ElectionID{High: third, Low: 1}})
	if h, err := r.deps.Banks.Handover("s1"); h == nil || err != nil || h.From != 0 {
		t.Errorf("banks %+v, error %v; expected those that were handed over", h, err)
	}
	if s1.closed || r.devices["s1"] != s1 {
		t.Error("the session of s1 has ended")
	}
}

// A collector that is outbid while it hands a device over ends its session at once, no matter who
// has the device.
func TestOutbidBeforeAHandover(t *testing.T) {
	r := newOwned(t)
	r.open("s1")
	s1 := r.devices["s1"]
	r.owner, r.before = "c2", "c2"
	r.assign()
	if moves, _, _ := r.EndEpoch(); len(moves) != 1 || s1.closed {
		t.Errorf("moves %+v, session ended %v", moves, s1.closed)
	}
	r.owner, r.Writes = "c3", false
	r.assign()
	if moves, forced, _ := r.EndEpoch(); len(moves)+len(forced) > 0 || s1.closed {
		t.Errorf("without a lease: moves %+v, forced %+v, session ended %v", moves, forced, s1.closed)
	}
	r.outbid("s1", p4rt.ElectionID{High: second, Low: 1})
	if err := r.Observe(); err != nil || r.taken != 1 || !r.Foreign("s1") || !s1.closed {
		t.Errorf("error %v; Observe is due %d times, another collector owns s1 %v, session ended %v", err, r.taken,
			r.Foreign("s1"), s1.closed)
	}
}

// This collector takes a device back with a newer lease, after several epochs, if the collector
// that took the device is gone. It does not take a device back from another controller.
func TestOutbidByACollectorThatIsGone(t *testing.T) {
	r := newOwned(t)
	r.open("s1")
	r.outbid("s1", p4rt.ElectionID{High: second, Low: 1})
	r.outbid("s2", forged)
	r.Fence = func() uint64 { return third }
	r.assign()
	const epochs = 10
	for range epochs {
		if _, names, err := r.EndEpoch(); len(names) > 0 || err != nil {
			t.Fatalf("%q are taken back, error %v", names, err)
		}
	}
	r.session("s1", p4rt.Status{State: p4rt.Ready, Bid: p4rt.ElectionID{High: first, Low: 1}})
	r.observe()
	if _, names, err := r.EndEpoch(); len(names) > 0 || err != nil {
		t.Fatalf("%q are taken back with a session that is ready, error %v", names, err)
	}
	r.outbid("s1", p4rt.ElectionID{High: second, Low: 1})
	r.observe()
	for epoch := range 2 * epochs {
		_, names, err := r.EndEpoch()
		if slices.Equal(names, []string{"s1"}) != (epoch == epochs) || len(names) > 1 || err != nil {
			t.Errorf("%q are taken back after %d epochs, error %v", names, epoch, err)
		}
	}
	if d := r.devices["s1"]; !d.started || d.cfg.Session.Yields || d.cfg.Session.ElectionID.High != third {
		t.Errorf("the next session of s1: started %v, %+v", d.started, d.cfg.Session.ElectionID)
	}
}

// An offer of a device that the collector already has is accepted as soon as its session is ready.
func TestAcceptOwn(t *testing.T) {
	r := newOwned(t)
	offer := Move{Device: "s1", To: "c1"}
	r.session("s1", p4rt.Status{State: p4rt.Down})
	if err := r.Accept("c2", offer); err == nil {
		t.Error("accepted without a session")
	}
	r.open("s1")
	had := r.find("s1").device
	if err := r.Accept("c2", offer); err != nil || r.find("s1").device != had {
		t.Errorf("error %v, replaced %v", err, r.find("s1").device != had)
	}
}
