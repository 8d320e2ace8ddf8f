// SPDX-License-Identifier: Apache-2.0

package p4rt_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/p4/p4rt"
)

func TestObligation05Reconnect(t *testing.T) {
	clock := newFakeClock()
	s := startSwitch(t)
	cfg := config(s, program(t, "forwarding"))
	cfg.Clock = clock
	cfg.Backoff = p4rt.Backoff{Min: 100 * time.Millisecond, Max: time.Second}
	want := p4rt.Desired{Entries: []p4rt.Entry{ipv4Route(t, "10.0.1.0/24", 1), ipv4Route(t, "10.0.2.0/24", 2)},
		Tables: []string{"ipv4_lpm"}}
	c := dialReconciled(t, cfg, want)
	waitReady(t, c)
	before := entriesOn(t, s.addr, cfg.Program, "ipv4_lpm")

	// The switch goes away. Its entries change meanwhile: one is deleted, one is modified, one is
	// added.
	s.rpc.Stop()
	st := waitState(t, c, p4rt.Down)
	if st.Reason == nil {
		t.Error("down without a reason")
	}
	if err := c.Write(t.Context()); !errors.Is(err, p4rt.ErrNotReady) {
		t.Errorf("a write while down: %v", err)
	}
	for n, limit := range []time.Duration{100, 200, 400, 800, 1000, 1000} {
		got := <-clock.waited
		if limit *= time.Millisecond; got > limit || got < limit/2 {
			t.Errorf("wait %d is %v, want %v less up to half", n, got, limit)
		}
		if n < 5 {
			clock.advance(limit)
		}
	}
	table := "ingress.forwarding.ipv4_lpm"
	held, err := s.sw.ReadEntries(table)
	if err != nil || len(held) != 2 {
		t.Fatalf("the switch holds %d entries, %v", len(held), err)
	}
	gone, changed, extra := held[0], held[1], held[0]
	if err := s.sw.DeleteEntry(table, gone); err != nil {
		t.Fatal(err)
	}
	changed.Action.Params[0] = []byte{4}
	if err := s.sw.ModifyEntry(table, changed); err != nil {
		t.Fatal(err)
	}
	extra.Match[0].Value = []byte{192, 168, 0, 0}
	if err := s.sw.InsertEntry(table, extra); err != nil {
		t.Fatal(err)
	}
	s.dropRequests()
	s.listen(t)
	clock.advance(time.Second)
	waitStatus(t, c, "ready again", func(st p4rt.Status) bool { return st.State == p4rt.Ready && st.Session > 1 })
	if c.Status().Pushed {
		t.Error("the pipeline was pushed though the cookie was right")
	}
	updates := updatesIn(s)
	after := entriesOn(t, s.addr, cfg.Program, "ipv4_lpm")
	if !sameEntries(before, after) {
		t.Errorf("after the reconnect there is %v, want %v", after, before)
	}
	if updates != 3 {
		t.Errorf("reconciling took %d updates, want 3", updates)
	}
}

// dialReconciled starts a client whose sessions reconcile the switch with the parts.
func dialReconciled(t testing.TB, cfg p4rt.Config, parts ...p4rt.Desired) *p4rt.Client {
	t.Helper()
	cfg.Reconcile = func(ctx context.Context, c *p4rt.Client) error { return c.Reconcile(ctx, parts...) }
	return dial(t, cfg)
}

// Entries listed as absent are deleted unless a part desires them; other entries stay.
func TestReconcileAbsent(t *testing.T) {
	s, c := ready(t, program(t, "forwarding"))
	route := func(prefix string) p4rt.Entry { return ipv4Route(t, prefix, 1) }
	key := route("10.0.0.0/8")
	key.Action, key.Params = "", nil
	err := c.Write(t.Context(), insertRoute(t, "10.0.0.0/8"), insertRoute(t, "11.0.0.0/8"), insertRoute(t, "12.0.0.0/8"),
		p4rt.Insert(session(7, 1)), p4rt.Insert(session(8, 1)))
	if err == nil {
		err = c.Reconcile(t.Context(), p4rt.Desired{Entries: []p4rt.Entry{route("11.0.0.0/8")},
			Absent: []p4rt.Entry{key, route("11.0.0.0/8"), route("13.0.0.0/8"), session(7, 9)}})
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := entriesOn(t, s.addr, program(t, "forwarding"), "ipv4_lpm"); len(got) != 2 {
		t.Errorf("the switch holds %v, want the routes of 11.0.0.0/8 and 12.0.0.0/8", got)
	}
	if got := s.sw.ReadCloneSessions(); len(got) != 1 || got[0].ID != 8 {
		t.Errorf("the switch holds the clone sessions %+v, want 8", got)
	}
}

// Desired entries that the switch or the program refuses are named by the status's reason, and the
// other entries are written.
func TestReconcileRefused(t *testing.T) {
	s := startSwitch(t)
	exact := func(i int) p4rt.Entry {
		return p4rt.Entry{Table: "exact_t", Match: []p4rt.Match{p4rt.Exact("hdr.ethernet.dst", []byte{byte(i)})},
			Action: "drop"}
	}
	var tooMuch p4rt.Desired
	for i := range 6 { // the table has room for four entries
		tooMuch.Entries = append(tooMuch.Entries, exact(i))
	}
	twice := p4rt.Entry{Table: "lpm_t", Match: []p4rt.Match{p4rt.LPM("hdr.ethernet.src", []byte{2, 0, 0, 0, 0, 0}, 8)},
		Action: "drop"}
	unfit := p4rt.Desired{Entries: []p4rt.Entry{{Table: "nope", Action: "drop"}, twice, twice},
		Tables: []string{"nope_either"}}
	c := dialReconciled(t, config(s, entities(t)), tooMuch, unfit)
	waitReady(t, c)
	st := c.Status()
	var we *p4rt.WriteError
	if !errors.Is(st.Reason, p4rt.ErrRefused) || !errors.As(st.Reason, &we) || len(we.Failed) != 2 ||
		we.Failed[0].Code != codes.ResourceExhausted {
		t.Errorf("reason %v", st.Reason)
	}
	for _, want := range []string{"I.exact_t", `"nope"`, `"nope_either"`, "desired twice"} {
		if !strings.Contains(st.Reason.Error(), want) {
			t.Errorf("reason %v does not contain %q", st.Reason, want)
		}
	}
	if n := len(entriesOn(t, s.addr, entities(t), "exact_t")); n != 4 {
		t.Errorf("%d entries, want 4", n)
	}
	if n := len(entriesOn(t, s.addr, entities(t), "lpm_t")); n != 1 {
		t.Errorf("%d entries that fit, want 1", n)
	}
}

// An entry of one part stays in a table that another part owns.
func TestReconcileParts(t *testing.T) {
	s, c := ready(t, program(t, "forwarding"))
	for _, p := range []string{"10.0.0.0/8", "11.0.0.0/8", "12.0.0.0/8"} {
		if err := c.Write(t.Context(), insertRoute(t, p)); err != nil {
			t.Fatal(err)
		}
	}
	s.dropRequests()
	owner := p4rt.Desired{Entries: []p4rt.Entry{ipv4Route(t, "10.0.0.0/8", 1)}, Tables: []string{"ipv4_lpm"}}
	guest := p4rt.Desired{Entries: []p4rt.Entry{ipv4Route(t, "11.0.0.0/8", 1), ipv4Route(t, "13.0.0.0/8", 1)}}
	if err := c.Reconcile(t.Context(), owner, guest); err != nil {
		t.Fatal(err)
	}
	ws := seen[*p4v1.WriteRequest](s.meddler)
	if len(ws) != 2 || updatesIn(s) != 2 || ws[0].GetUpdates()[0].GetType() != p4v1.Update_DELETE ||
		ws[1].GetUpdates()[0].GetType() != p4v1.Update_INSERT {
		t.Errorf("requests %v, want a deletion and an insertion", ws)
	}
	if n := len(entriesOn(t, s.addr, program(t, "forwarding"), "ipv4_lpm")); n != 3 {
		t.Errorf("%d entries, want 3", n)
	}
	s.dropRequests()
	if err := c.Reconcile(t.Context(), guest); err != nil || updatesIn(s) != 0 {
		t.Errorf("a part that owns no table: %d updates, %v", updatesIn(s), err)
	}
}

func updatesIn(s *testSwitch) (n int) {
	for _, w := range seen[*p4v1.WriteRequest](s.meddler) {
		n += len(w.GetUpdates())
	}
	return n
}

// sameEntries compares entries in any order.
func sameEntries(a, b []*p4v1.TableEntry) bool {
	set := map[string]int{}
	for i, es := range [][]*p4v1.TableEntry{a, b} {
		for _, e := range es {
			k, _ := proto.MarshalOptions{Deterministic: true}.Marshal(e)
			set[string(k)] += 1 - 2*i
		}
	}
	for _, n := range set {
		if n != 0 {
			return false
		}
	}
	return true
}

// TestReconcileDontCare: if a switch returns fields that match anything, or bits behind a prefix,
// its entries still equal the desired ones; an undesired entry is deleted by its canonical key.
func TestReconcileDontCare(t *testing.T) {
	prog := program(t, "forwarding")
	s, c := ready(t, prog)
	want := p4rt.Desired{Tables: []string{"ipv4_lpm"},
		Entries: []p4rt.Entry{ipv4Route(t, "0.0.0.0/0", 1), ipv4Route(t, "10.0.1.0/24", 2)}}
	if err := c.Reconcile(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	lpm := func(value []byte, prefix int32) *p4v1.FieldMatch {
		return &p4v1.FieldMatch{FieldId: 1, FieldMatchType: &p4v1.FieldMatch_Lpm{
			Lpm: &p4v1.FieldMatch_LPM{Value: value, PrefixLen: prefix}}}
	}
	s.meddle(func(m *meddler) {
		m.read = func(r *p4v1.ReadResponse) *p4v1.ReadResponse {
			for _, e := range r.GetEntities() {
				entry := e.GetTableEntry()
				switch {
				case entry == nil || entry.GetIsDefaultAction():
				case len(entry.GetMatch()) == 0:
					entry.Match = []*p4v1.FieldMatch{lpm([]byte{0}, 0)}
				default:
					entry.Priority = 24 // some switches return a priority where none is possible
					old := entry.GetMatch()[0].GetLpm()
					entry.Match = []*p4v1.FieldMatch{lpm(append(old.GetValue()[:3:3], 99), old.GetPrefixLen())}
				}
			}
			return r
		}
	})
	s.dropRequests()
	if err := c.Reconcile(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	if n := updatesIn(s); n != 0 {
		t.Errorf("reconciling what is there took %d updates", n)
	}
	want.Entries = want.Entries[1:]
	if err := c.Reconcile(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	if got := entriesOn(t, s.addr, prog, "ipv4_lpm"); len(got) != 1 {
		t.Errorf("the switch holds %v, want the route of 10.0.1.0/24", got)
	}
}
