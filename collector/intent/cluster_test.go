// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// hub connects the members of a cluster. It delivers in order, on a goroutine of its own.
type hub struct {
	t       *testing.T
	members map[string]*rig
	deliver chan func()

	mu     sync.Mutex
	held   map[string]Held   // by device
	owners map[string]string // by device
	lost   bool              // outcomes are lost
}

// link is the Cluster of one member.
type link struct {
	*hub
	name string
}

// clock is the Epochs of one member.
type clock struct {
	*hub
	*rig
}

func (c *clock) Current() (uint64, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open, c.end
}

// loses makes the hub lose outcomes, or deliver them again.
func (h *hub) loses(lost bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost = lost
}

// newHub returns a hub with members c1, at which all plugins are at home, and c2. c1 owns the
// device s1, and c2 owns s2.
func newHub(t *testing.T) *hub {
	h := &hub{t: t, members: map[string]*rig{}, deliver: make(chan func(), 1000), held: map[string]Held{},
		owners: map[string]string{}}
	var work sync.WaitGroup
	work.Go(func() {
		for f := range h.deliver {
			f()
		}
	})
	devices := map[string]*fakeDevice{}
	for _, name := range []string{"c1", "c2"} {
		r := newRig(t, 2)
		if name == "c1" {
			devices = r.devices
		}
		r.devices = devices
		r.c.cluster, r.c.epochs = &link{h, name}, &clock{h, r}
		h.members[name] = r
		for i, device := range r.names {
			h.place(name, device, (name == "c1") == (i == 0))
		}
	}
	t.Cleanup(func() {
		for _, r := range h.members {
			r.c.Stop()
		}
		close(h.deliver)
		work.Wait()
	})
	return h
}

// place adds a device to a member, which owns the device if own is set; otherwise another member
// owns it.
func (h *hub) place(member, device string, own bool) {
	r := h.members[member]
	r.c.AddDevice(&sharedDevice{r.devices[device], func() {}}, false, !own)
	if own {
		if err := r.c.Reconcile(h.t.Context(), device, r.c.device(device)); err != nil {
			h.t.Error(err)
		}
	}
}

// step closes the open epoch at all members. Each flips the devices that it owns.
func (h *hub) step() {
	for _, name := range []string{"c1", "c2"} {
		r := h.members[name]
		r.clock.AdvanceTo(r.end)
		h.mu.Lock()
		r.closed, r.open, r.end = r.open, r.open+1, r.end.Add(time.Second)
		h.mu.Unlock()
		for _, device := range r.names {
			if !r.c.device(device).foreign {
				r.c.Flipped(h.t.Context(), device, r.open)
			}
		}
		r.c.Collected(h.t.Context(), r.closed)()
	}
}

func (l *link) Member() string            { return l.name }
func (l *link) AtHome(string) bool        { return l.name == "c1" }
func (l *link) Present(string) bool       { return true }
func (l *link) Settings(string, sdk.Plan) {}

func (l *link) Share(plans []SharedPlan) {
	l.deliver <- func() {
		for name, r := range l.members {
			if name != l.name {
				r.c.Follow(l.t.Context(), l.name, plans)
			}
		}
	}
}

func (l *link) Forward(o Outcome) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.lost {
		l.deliver <- func() { l.members[o.Maker].c.TakeOutcome(o) }
	}
	return true
}

func (l *link) Take(_ context.Context, device string) (Held, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.owners[device] == l.name
	l.owners[device] = l.name
	return l.held[device], own, nil
}

func (l *link) Store(_ context.Context, device string, held Held) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owners[device] != l.name {
		return ErrDeposed
	}
	l.held[device] = held
	return nil
}

// outcomes waits until a member has n outcomes, and returns them without their reasons.
func (h *hub) outcomes(member string, n int) (out []sdk.PlanOutcome, reasons string) {
	h.t.Helper()
	c := h.members[member].c
	testkit.Until(h.t, "the outcomes", func() bool { return len(c.Outcomes(plugin)) >= n })
	for _, o := range c.Outcomes(plugin) {
		reasons += o.Reason + "\n"
		o.Reason = ""
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b sdk.PlanOutcome) int { return strings.Compare(a.Device, b.Device) })
	c.Delivered(plugin, len(out))
	return out, reasons
}

// A pre-epoch plan is written to the devices of all members, or to none.
func TestPreEpochPlanOfACluster(t *testing.T) {
	h := newHub(t)
	h.step()
	c1 := h.members["c1"]
	plan := func(id uint64) sdk.Plan {
		return sdk.Plan{ID: id, FromEpoch: c1.open + 1, PreEpoch: true,
			Writes: []sdk.DeviceWrite{planWrite("s1", "a"), planWrite("s2", "b")}}
	}
	both := func(id uint64, status sdk.PlanStatus) []sdk.PlanOutcome {
		return []sdk.PlanOutcome{{Plan: id, FromEpoch: c1.open + 1, Device: "s1", Status: status},
			{Plan: id, FromEpoch: c1.open + 1, Device: "s2", Status: status}}
	}
	c1.devices["s2"].do(func(d *fakeDevice) { d.refuse = tableFull })
	c1.c.Add(t.Context(), plugin, plan(7))
	got, reasons := h.outcomes("c1", 2)
	if diff := cmp.Diff(both(7, sdk.PlanFailed), got); diff != "" || !strings.Contains(reasons, "the table is full") ||
		!strings.Contains(reasons, "undone, because s2 did not apply the plan") {
		t.Errorf("a plan that s2 refuses: outcomes (-want +got):\n%s\nreasons %s", diff, reasons)
	}
	c1.expectApplied("s1")
	c1.expectApplied("s2")

	// The device at the plugin's home refuses a plan with the same result.
	c1.devices["s2"].do(func(d *fakeDevice) { d.refuse = nil })
	c1.devices["s1"].do(func(d *fakeDevice) { d.refuse = tableFull })
	c1.c.Add(t.Context(), plugin, plan(8))
	if got, reasons = h.outcomes("c1", 2); cmp.Diff(both(8, sdk.PlanFailed), got) != "" {
		t.Errorf("a plan that s1 refuses: %v, reasons %s", got, reasons)
	}
	c1.expectApplied("s2")

	c1.devices["s1"].do(func(d *fakeDevice) { d.refuse = nil })
	c1.c.Add(t.Context(), plugin, plan(9))
	if got, reasons = h.outcomes("c1", 2); cmp.Diff(both(9, sdk.PlanApplied), got) != "" {
		t.Errorf("a plan that both accept: %v, reasons %s", got, reasons)
	}
	c1.expectApplied("s1", "a")
	c1.expectApplied("s2", "b")
	h.expectConcluded()
}

// expectConcluded waits until all plans are concluded at all members.
func (h *hub) expectConcluded() {
	h.t.Helper()
	for name, r := range h.members {
		testkit.Until(h.t, name+" has no plan", func() bool {
			r.c.mu.Lock()
			defer r.c.mu.Unlock()
			n := len(r.c.plans)
			for _, d := range r.c.devices {
				n += len(d.pending)
			}
			return n == 0
		})
	}
}

// A plan is written to a device once, and its outcome reaches the plugin, even if the device moves
// to another member: before the plan is written, or between the write and the report of the former
// owner.
func TestPlanWhileADeviceMoves(t *testing.T) {
	for when, written := range map[string]bool{"before it is written": false, "before its outcome arrives": true} {
		for _, refused := range []bool{false, true} {
			h := newHub(t)
			h.step()
			c1, c2 := h.members["c1"], h.members["c2"]
			h.loses(true)
			if refused {
				c1.devices["s2"].do(func(d *fakeDevice) { d.refuse = tableFull })
			}
			c1.c.Add(t.Context(), plugin, sdk.Plan{ID: 7, Writes: []sdk.DeviceWrite{planWrite("s2", "b")}})
			testkit.Until(t, "c2 has the plan, and has stored it", func() bool {
				c2.c.mu.Lock()
				defer c2.c.mu.Unlock()
				pending := c2.c.devices["s2"].pending
				return len(pending) == 1 && pending[0].stored
			})
			if written {
				h.step()
				c2.c.Sync(t.Context())
			}
			if written && refused {
				c1.devices["s2"].do(func(d *fakeDevice) { d.refuse = nil })
			}
			h.place("c2", "s2", false)
			h.place("c1", "s2", true)
			h.loses(false)
			for range 3 {
				h.step()
				c1.c.Sync(t.Context())
			}
			got, reasons := h.outcomes("c1", 1)
			if len(got) != 1 || got[0].Plan != 7 || (got[0].Status == sdk.PlanApplied) != !(refused && written) {
				t.Errorf("%s, refused %v: outcomes %v, reasons %s", when, refused, got, reasons)
			}
			if refused && written {
				c1.expectApplied("s2")
			} else {
				c1.expectApplied("s2", "b")
			}
			h.expectConcluded()
		}
	}
}

// A plan for a device whose owner does not answer is applied when the owner is back, and the epochs
// until then are mixed.
func TestPlanWithoutAnAnswer(t *testing.T) {
	h := newHub(t)
	h.step()
	c1 := h.members["c1"]
	h.loses(true)
	ctx, cancel := context.WithCancel(t.Context())
	c1.devices["s2"].writing = cancel
	c1.c.Add(ctx, plugin, sdk.Plan{ID: 7, FromEpoch: c1.open + 1, PreEpoch: true,
		Writes: []sdk.DeviceWrite{planWrite("s1", "a"), planWrite("s2", "b")}})
	if _, reasons := h.outcomes("c1", 2); !strings.Contains(reasons, noAnswer) {
		t.Errorf("reasons %s", reasons)
	}
	want := []sdk.DeviceState{{Device: "s1", Plan: 7}, {Device: "s2", Mixed: true}}
	if diff := cmp.Diff(want, c1.c.States(plugin, c1.open+1, c1.names)); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
	h.loses(false)
	testkit.Until(t, "c2 reports the outcome again", func() bool {
		h.members["c2"].c.Sync(t.Context())
		return c1.c.Counts(plugin).Applied == 2
	})
	c1.expectApplied("s2", "b")
	h.expectConcluded()
}
