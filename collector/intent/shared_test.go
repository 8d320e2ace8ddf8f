// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// record is the Cluster of one member. It holds the entries of one device.
type record struct {
	name      string // the other members know this member by this name
	elsewhere bool   // all plugins are at home at other members

	mu      sync.Mutex
	plans   []SharedPlan
	sent    []Outcome
	held    Held
	own     bool
	fail    error  // error of Store
	storing func() // called by Store
	stores  int    // counts calls of Store
}

func (s *record) Member() string            { return s.name }
func (s *record) AtHome(string) bool        { return !s.elsewhere }
func (s *record) Present(string) bool       { return true }
func (s *record) Settings(string, sdk.Plan) {}

func (s *record) Share(plans []SharedPlan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plans = plans
}

func (s *record) Forward(o Outcome) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.Maker == "" && !s.elsewhere {
		return false
	}
	s.sent = append(s.sent, o)
	return true
}

func (s *record) Take(context.Context, string) (Held, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.own
	s.own = true
	return s.held, own, nil
}

func (s *record) Store(_ context.Context, _ string, held Held) error {
	if s.storing != nil {
		s.storing()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stores++
	if s.fail == nil {
		s.held = held
	}
	return s.fail
}

// sharedDevice is a device that is reconciled. It calls check before and after each write.
type sharedDevice struct {
	*fakeDevice
	check func()
}

func (d *sharedDevice) Write(ctx context.Context, updates ...p4rt.Update) error {
	d.check()
	defer d.check()
	return d.fakeDevice.Write(ctx, updates...)
}

func (d *sharedDevice) Reconcile(_ context.Context, parts ...p4rt.Desired) error {
	d.do(func(d *fakeDevice) {
		for _, part := range parts {
			d.applied = slices.DeleteFunc(d.applied, func(table string) bool {
				return slices.ContainsFunc(part.Absent, func(e p4rt.Entry) bool { return e.Table == table })
			})
			for _, e := range part.Entries {
				if !slices.Contains(d.applied, e.Table) {
					d.applied = append(d.applied, e.Table)
				}
			}
		}
	})
	return nil
}

// sharedRig returns a rig in a cluster with one device, which holds the entry "before". taken
// counts the moments at which another collector could have taken the device.
func sharedRig(t *testing.T) (r *rig, shared *record, taken func() int) {
	r, shared = newRig(t, 1), &record{name: "c1"}
	r.c.cluster = shared
	n := 0
	d := &sharedDevice{fakeDevice: r.devices["s1"]}
	d.check = func() {
		n++
		shared.mu.Lock()
		next := newRig(t, 1)
		next.c.cluster = &record{name: "c2", held: shared.held}
		shared.mu.Unlock()
		copied := &sharedDevice{&fakeDevice{name: "s1", applied: r.applied("s1")}, func() {}}
		next.c.AddDevice(copied, false, false)
		if err := next.c.Reconcile(t.Context(), "s1", copied); err != nil {
			t.Error(err)
		}
		known := slices.Sorted(maps.Keys(next.c.device("s1").applied))
		if got := slices.Sorted(slices.Values(copied.applied)); !slices.Equal(got, known) {
			t.Errorf("the device holds %q, and its next owner knows %q", got, known)
		}
	}
	r.c.AddDevice(d, false, false)
	if err := r.c.Reconcile(t.Context(), "s1", d); err != nil {
		t.Fatal(err)
	}
	r.step()
	r.c.Add(t.Context(), plugin, sdk.Plan{ID: 1, Writes: []sdk.DeviceWrite{planWrite("s1", "before")}})
	r.step()
	r.expectApplied("s1", "before")
	return r, shared, func() int { return n }
}

// If an owner dies between any two steps of a plan, the next owner knows everything that the
// device holds.
func TestNextOwnerKnowsWhatTheDeviceHolds(t *testing.T) {
	for name, writes := range map[string][]sdk.DeviceWrite{
		"insertions": {planWrite("s1", "a"), planWrite("s1", "b")},
		"a deletion": {{Device: "s1", Op: sdk.Delete, Entry: sdk.TableEntry{Table: "before"}}},
		"both": {planWrite("s1", "a"), {Device: "s1", Op: sdk.Delete, Entry: sdk.TableEntry{Table: "before"}},
			planWrite("s1", "b")},
	} {
		for kind, apply := range map[string]func(r *rig){
			"at a flip": func(r *rig) {
				r.c.Add(t.Context(), plugin, sdk.Plan{ID: 2, Writes: writes})
				r.step()
			},
			"before its epoch": func(r *rig) {
				r.c.Add(t.Context(), plugin, sdk.Plan{ID: 2, FromEpoch: r.open + 1, PreEpoch: true, Writes: writes})
			},
			"of another collector, and undone": func(r *rig) {
				plan := SharedPlan{Number: 2, Plugin: plugin, Plan: sdk.Plan{ID: 2, FromEpoch: r.open + 1, PreEpoch: true,
					Writes: writes}}
				for range 2 {
					r.c.Follow(t.Context(), "c2", []SharedPlan{plan})
					r.c.work.Wait()
					plan.Undo = true
				}
				r.expectApplied("s1", "before")
			},
			"refused": func(r *rig) {
				r.devices["s1"].do(func(d *fakeDevice) { d.refuse = tableFull })
				r.c.Add(t.Context(), plugin, sdk.Plan{ID: 2, FromEpoch: r.open + 1, PreEpoch: true, Writes: writes})
				r.devices["s1"].do(func(d *fakeDevice) { d.refuse = nil })
				r.c.Sync(t.Context())
				r.expectApplied("s1", "before")
			},
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				r, shared, taken := sharedRig(t)
				before := taken()
				apply(r)
				r.c.Sync(t.Context())
				if n := taken() - before; n < 2 {
					t.Errorf("the device was written %d times", n/2)
				}
				var tables []string
				for _, e := range shared.held.Entries {
					tables = append(tables, e.Table)
				}
				if got := r.applied("s1"); !slices.Equal(slices.Sorted(slices.Values(got)), tables) ||
					len(shared.held.Absent) > 0 {
					t.Errorf("the device holds %q, and %+v is shared", got, shared.held)
				}
			})
		}
	}
}

// A plan that is not shared yet when its epoch begins is written at the next flip. If sharing
// fails, the plan is written nevertheless, unless another collector owns the device.
func TestPlansWaitUntilTheyAreShared(t *testing.T) {
	r, shared, _ := sharedRig(t)
	shared.storing = func() {
		shared.storing = nil
		r.step()
		r.expectApplied("s1", "before")
	}
	r.c.Add(t.Context(), plugin, sdk.Plan{ID: 2, Writes: []sdk.DeviceWrite{planWrite("s1", "a")}})
	r.step()
	r.expectApplied("s1", "before", "a")
	r, shared, _ = sharedRig(t)
	r.c.device("s1").Device.(*sharedDevice).check = func() {}
	shared.fail = errors.New("no NATS server")
	before := shared.stores
	r.c.Add(t.Context(), plugin, sdk.Plan{ID: 2, Writes: []sdk.DeviceWrite{planWrite("s1", "a")}})
	r.step()
	r.c.Add(t.Context(), plugin, sdk.Plan{ID: 3, FromEpoch: r.open + 1, PreEpoch: true,
		Writes: []sdk.DeviceWrite{planWrite("s1", "b")}})
	r.expectApplied("s1", "before", "a", "b")
	if shared.stores -= before; shared.stores != 1 {
		t.Errorf("plans waited for %d attempts to share them, want 1", shared.stores)
	}
	shared.fail = nil
	r.c.Sync(t.Context())
	if n := len(shared.held.Entries); n != 3 {
		t.Errorf("%d entries are shared after a failure, want 3", n)
	}
	shared.fail = ErrDeposed
	r.c.Add(t.Context(), plugin, sdk.Plan{ID: 4, FromEpoch: r.open + 1, PreEpoch: true,
		Writes: []sdk.DeviceWrite{planWrite("s1", "c")}})
	r.expectApplied("s1", "before", "a", "b")
}

// losing is a device whose session ends when Key is called.
type losing struct {
	*fakeDevice
	over bool
}

func (d *losing) Key(e p4rt.Entry) (string, error) {
	if d.over {
		return "", p4rt.ErrNotReady
	}
	return d.fakeDevice.Key(e)
}

// If a session ends before it has taken over all entries, the others are neither dropped nor shared
// as deleted: the next session takes them over.
func TestSessionEndsBeforeEntriesAreTaken(t *testing.T) {
	r, shared := newRig(t, 1), &record{held: Held{Desired: p4rt.Desired{Entries: []p4rt.Entry{{Table: "before"}}}}}
	r.c.cluster = shared
	d := &losing{fakeDevice: r.devices["s1"], over: true}
	r.c.AddDevice(d, false, false)
	if err := r.c.Reconcile(t.Context(), "s1", d); err != nil {
		t.Fatal(err)
	}
	d.over = false
	r.c.Sync(t.Context())
	if n := len(shared.held.Entries); n != 1 || len(r.c.device("s1").applied) != 1 {
		t.Errorf("%d entries are shared, and the collector knows %v", n, r.c.device("s1").applied)
	}
}
