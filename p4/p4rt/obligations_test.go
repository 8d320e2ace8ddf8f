// SPDX-License-Identifier: Apache-2.0

package p4rt_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/internal/testkit"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// The tests in this file hold the client to the obligations of a P4Runtime controller, by their
// numbers in docs/p4runtime.md.

func config(s *testSwitch, p *p4rt.Program) p4rt.Config {
	return p4rt.Config{Target: s.addr, DeviceID: 1, Program: p}
}

// ready starts a switch and a client that is its primary.
func ready(t testing.TB, p *p4rt.Program) (*testSwitch, *p4rt.Client) {
	t.Helper()
	s := startSwitch(t)
	c := dial(t, config(s, p))
	waitReady(t, c)
	return s, c
}

func arbitrations(s *testSwitch) []*p4v1.MasterArbitrationUpdate {
	var out []*p4v1.MasterArbitrationUpdate
	for _, m := range seen[*p4v1.StreamMessageRequest](s.meddler) {
		if a := m.GetArbitration(); a != nil {
			out = append(out, a)
		}
	}
	return out
}

func TestObligation01FirstMessageIsArbitration(t *testing.T) {
	s, _ := ready(t, program(t, "forwarding"))
	all := seen[*p4v1.StreamMessageRequest](s.meddler)
	if len(all) == 0 {
		t.Fatal("no message came, though the session is ready")
	}
	first := all[0].GetArbitration()
	if first == nil || first.GetDeviceId() != 1 || first.GetStatus() != nil || first.GetRole() != nil {
		t.Errorf("the first message is %v", first)
	}
	if e := first.GetElectionId(); e == nil || e.GetHigh() == 0 && e.GetLow() == 0 {
		t.Errorf("a primary bids %v", e)
	}
	s.dropRequests()
	b := dial(t, p4rt.Config{Target: s.addr, DeviceID: 1, Mode: p4rt.Backup})
	waitReady(t, b)
	if a := arbitrations(s); len(a) != 1 || a[0].ElectionId != nil {
		t.Errorf("a backup sent %v: its election id must be unset, not {0, 0}", a)
	}
	if _, err := p4rt.Dial(t.Context(), p4rt.Config{Target: s.addr}); err == nil ||
		!strings.Contains(err.Error(), "device id 0") {
		t.Errorf("device id 0: %v", err)
	}
}

func TestObligation02Election(t *testing.T) {
	t.Run("outbid, then no client is primary", func(t *testing.T) {
		s := startSwitch(t)
		high := dial(t, p4rt.Config{Target: s.addr, DeviceID: 1, Program: program(t, "forwarding"),
			ElectionID: p4rt.ElectionID{High: 1, Low: 3}})
		waitReady(t, high)
		low := dial(t, p4rt.Config{Target: s.addr, DeviceID: 1, Program: program(t, "forwarding"),
			ElectionID: p4rt.ElectionID{Low: ^uint64(0)}})
		st := waitState(t, low, p4rt.Standby)
		if st.Highest != (p4rt.ElectionID{High: 1, Low: 3}) || !errors.Is(st.Reason, p4rt.ErrNotPrimary) {
			t.Errorf("standing by: %+v", st)
		}
		high.Close()
		waitReady(t, low)
		if st := low.Status(); st.Bid.Compare(p4rt.ElectionID{High: 1, Low: 3}) < 0 {
			t.Errorf("bid %v, below the highest", st.Bid)
		}
	})
	for name, id := range map[string]p4rt.ElectionID{"given id in use": {Low: 5}, "default id in use": {}} {
		t.Run(name, func(t *testing.T) {
			s := startSwitch(t)
			cfg := p4rt.Config{Target: s.addr, DeviceID: 1, Program: program(t, "forwarding"), ElectionID: id}
			a := dial(t, cfg)
			waitReady(t, a)
			bid := a.Status().Bid
			b := dial(t, cfg)
			st := waitState(t, b, p4rt.Standby)
			if !errors.Is(st.Reason, p4rt.ErrNotPrimary) ||
				!strings.Contains(st.Reason.Error(), fmt.Sprintf("another controller uses election id %v", bid)) {
				t.Errorf("reason %v", st.Reason)
			}
			if st := a.Status(); st.State != p4rt.Ready || b.Stats().SessionsLost != 0 {
				t.Errorf("the first is %v, the second lost %d sessions", st.State, b.Stats().SessionsLost)
			}
			for _, m := range arbitrations(s) {
				if e := m.GetElectionId(); e != nil && e.GetLow() != bid.Low {
					t.Errorf("bid %v; only %v is configured", e, bid)
				}
			}
			a.Close()
			waitReady(t, b)
			if got := b.Status().Bid; got != bid {
				t.Errorf("bid %v as the only controller, want %v", got, bid)
			}
		})
	}
	t.Run("a higher id that yields", func(t *testing.T) {
		s := startSwitch(t)
		cfg := config(s, program(t, "forwarding"))
		cfg.ElectionID = p4rt.ElectionID{Low: 5}
		a := dial(t, cfg)
		waitReady(t, a)
		cfg.ElectionID, cfg.Yields = p4rt.ElectionID{Low: 7}, true
		b := dial(t, cfg)
		if st := waitState(t, b, p4rt.Standby); !strings.Contains(st.Reason.Error(), "takes over when the one with 5 ends") {
			t.Errorf("reason %v", st.Reason)
		}
		if st := a.Status(); st.State != p4rt.Ready || st.Term != 1 {
			t.Errorf("the first is %v in term %d", st.State, st.Term)
		}
		a.Close()
		waitReady(t, b)
		if st := b.Status(); st.Bid.Low != 7 || st.Pushed || b.Stats().SessionsLost != 0 {
			t.Errorf("the second took over as %+v", st)
		}
	})
	t.Run("an unset id is taken as {0,0} and elected", func(t *testing.T) { // as by BMv2
		s := startSwitch(t)
		told := make(chan struct{}) // closed when there is no primary
		s.meddle(func(m *meddler) {
			m.up = func(r *p4v1.StreamMessageRequest) (*p4v1.StreamMessageRequest, error) {
				if a := r.GetArbitration(); a != nil && a.ElectionId == nil {
					a.ElectionId = &p4v1.Uint128{}
				}
				return r, nil
			}
			m.down = func(r *p4v1.StreamMessageResponse) *p4v1.StreamMessageResponse {
				if a := r.GetArbitration(); a.GetStatus().GetCode() == int32(codes.NotFound) {
					a.ElectionId, a.Status = &p4v1.Uint128{}, &rpcstatus.Status{Code: int32(codes.OK)}
					close(told)
				}
				return r
			}
		})
		cfg := config(s, program(t, "forwarding"))
		cfg.ElectionID, cfg.Yields = p4rt.ElectionID{Low: 7}, true
		a := dial(t, cfg)
		waitReady(t, a)
		if st := a.Status(); st.Bid.Low != 7 || st.Highest.Low != 7 || !st.Pushed {
			t.Errorf("the only client is %+v", st)
		}
		cfg.ElectionID, cfg.PipelinePoll = p4rt.ElectionID{Low: 8}, time.Millisecond
		b := dial(t, cfg)
		waitState(t, b, p4rt.Standby)
		s.dropRequests()
		asked := make(chan struct{}, 1)
		s.meddle(func(m *meddler) { // b learns that there is no primary while it looks for a new pipeline
			m.get = func(ctx context.Context) (*p4v1.GetForwardingPipelineConfigResponse, error) {
				select {
				case asked <- struct{}{}:
				default:
				}
				<-told
				time.Sleep(20 * time.Millisecond) // until b has it, too; otherwise this test proves less
				return m.P4RuntimeServer.GetForwardingPipelineConfig(ctx, &p4v1.GetForwardingPipelineConfigRequest{DeviceId: 1,
					ResponseType: p4v1.GetForwardingPipelineConfigRequest_COOKIE_ONLY})
			}
		})
		<-asked
		a.Close()
		waitReady(t, b)
		if sent := arbitrations(s); len(sent) != 1 || sent[0].GetElectionId().GetLow() != 8 {
			t.Errorf("the second one is ready after the bids %v, not after 8", sent)
		}
	})
	t.Run("bids that the caller decides", func(t *testing.T) {
		s := startSwitch(t)
		cfg := config(s, program(t, "forwarding"))
		cfg.ElectionID = p4rt.ElectionID{High: 9}
		a := dial(t, cfg)
		waitReady(t, a)
		var may atomic.Bool // bid without a primary
		cfg.ElectionID, cfg.PipelinePoll = p4rt.ElectionID{Low: 5}, time.Millisecond
		cfg.Bid = func(highest p4rt.ElectionID, vacant bool) (p4rt.ElectionID, bool) {
			return highest.Next(), vacant && may.Load()
		}
		b := dial(t, cfg)
		waitState(t, b, p4rt.Standby)
		a.Close()
		waitStatus(t, b, "a backup without a primary", func(st p4rt.Status) bool {
			return st.State == p4rt.Standby && strings.Contains(st.Reason.Error(), "may not bid above 9:0")
		})
		may.Store(true)
		waitReady(t, b)
		cfg.Bid = func(highest p4rt.ElectionID, _ bool) (p4rt.ElectionID, bool) { return highest.Next(), true }
		c := dial(t, cfg)
		waitReady(t, c)
		waitState(t, b, p4rt.Standby)
		if got := c.Status().Bid; got != (p4rt.ElectionID{High: 9, Low: 2}) {
			t.Errorf("the last one is the primary with %v", got)
		}
	})
	t.Run("given id taken while the session is down", func(t *testing.T) {
		clock := newFakeClock()
		s := startSwitch(t)
		cfg := p4rt.Config{Target: s.addr, DeviceID: 1, Program: program(t, "forwarding"),
			ElectionID: p4rt.ElectionID{Low: 5}, Clock: clock, Backoff: p4rt.Backoff{Min: time.Second, Max: time.Second}}
		a := dial(t, cfg)
		waitReady(t, a)
		s.rpc.Stop()
		waitState(t, a, p4rt.Down)
		<-clock.waited
		s.listen(t)
		cfg.Clock, cfg.Backoff = nil, p4rt.Backoff{}
		b := dial(t, cfg)
		waitReady(t, b)
		clock.advance(time.Second)
		waitState(t, a, p4rt.Standby)
		if st := b.Status(); st.State != p4rt.Ready || st.Bid.Low != 5 {
			t.Errorf("the new primary is %v with bid %v", st.State, st.Bid)
		}
	})
	t.Run("a lower id is accepted", func(t *testing.T) {
		s := startSwitch(t)
		s.meddle(func(m *meddler) {
			m.down = func(r *p4v1.StreamMessageResponse) *p4v1.StreamMessageResponse {
				if a := r.GetArbitration(); a != nil {
					a = proto.Clone(a).(*p4v1.MasterArbitrationUpdate)
					a.ElectionId, a.Status = &p4v1.Uint128{Low: 99}, &rpcstatus.Status{Code: int32(codes.OK)}
					return &p4v1.StreamMessageResponse{Update: &p4v1.StreamMessageResponse_Arbitration{Arbitration: a}}
				}
				return r
			}
		})
		c := dial(t, config(s, program(t, "forwarding")))
		st := waitState(t, c, p4rt.Standby)
		if !strings.Contains(st.Reason.Error(), "99") {
			t.Errorf("reason %v", st.Reason)
		}
		if n := len(seen[*p4v1.SetForwardingPipelineConfigRequest](s.meddler)); n != 0 {
			t.Errorf("%d pipelines were pushed without being primary", n)
		}
	})
	t.Run("unknown device", func(t *testing.T) {
		s := startSwitch(t)
		c := dial(t, p4rt.Config{Target: s.addr, DeviceID: 2, Program: program(t, "forwarding")})
		if st := waitState(t, c, p4rt.Down); !strings.Contains(st.Reason.Error(), "no device 2") {
			t.Errorf("reason %v", st.Reason)
		}
	})
}

func TestObligation03Demotion(t *testing.T) {
	t.Run("stops writing at once", func(t *testing.T) {
		s, c := ready(t, program(t, "forwarding"))
		block := make(chan struct{})
		s.meddle(func(m *meddler) {
			m.write = func(ctx context.Context, _ *p4v1.WriteRequest) (*p4v1.WriteResponse, error) {
				close(block)
				return nil, hang(ctx)
			}
		})
		writing := make(chan error, 1)
		go func() { writing <- c.Write(t.Context(), insertRoute(t, "10.0.0.0/8")) }()
		<-block
		other := dial(t, p4rt.Config{Target: s.addr, DeviceID: 1, ElectionID: p4rt.ElectionID{Low: 9}})
		if err := <-writing; !errors.Is(err, p4rt.ErrNotPrimary) {
			t.Errorf("the write under way: %v", err)
		}
		waitState(t, c, p4rt.Standby)
		s.dropRequests()
		if err := c.SetDefaultAction(t.Context(), "ecmp_seed", "set_ecmp_seed"); !errors.Is(err, p4rt.ErrNotPrimary) {
			t.Errorf("a write after demotion: %v", err)
		}
		if n := len(seen[*p4v1.WriteRequest](s.meddler)); n != 0 {
			t.Errorf("%d writes were sent after demotion", n)
		}
		_ = other
	})
	t.Run("PERMISSION_DENIED is not retried", func(t *testing.T) {
		s, c := ready(t, program(t, "forwarding"))
		s.dropRequests()
		s.meddle(func(m *meddler) {
			m.write = func(context.Context, *p4v1.WriteRequest) (*p4v1.WriteResponse, error) {
				return nil, status.Error(codes.PermissionDenied, "not primary")
			}
		})
		if err := c.Write(t.Context(), insertRoute(t, "10.0.0.0/8")); !errors.Is(err, p4rt.ErrNotPrimary) {
			t.Errorf("got %v", err)
		}
		waitState(t, c, p4rt.Standby)
		if n := len(seen[*p4v1.WriteRequest](s.meddler)); n != 1 {
			t.Errorf("the write was sent %d times", n)
		}
	})
}

func insertRoute(t testing.TB, prefix string) p4rt.Update {
	t.Helper()
	return p4rt.Insert(ipv4Route(t, prefix, 1))
}

func TestObligation04Roles(t *testing.T) {
	for _, role := range []string{"", "telemetry"} {
		t.Run(fmt.Sprintf("role %q", role), func(t *testing.T) {
			s := startSwitch(t)
			cfg := config(s, program(t, "forwarding"))
			cfg.Role = role
			c := dial(t, cfg)
			waitReady(t, c)
			if err := c.Write(t.Context(), insertRoute(t, "10.0.0.0/8")); err != nil {
				t.Fatal(err)
			}
			if err := c.Reconcile(t.Context(), p4rt.Desired{Tables: []string{"ipv4_lpm"}}); err != nil {
				t.Fatal(err)
			}
			if reads := seen[*p4v1.ReadRequest](s.meddler); len(reads) == 0 {
				t.Error("no read came")
			}
			if a := arbitrations(s)[0]; a.GetRole().GetName() != role || (a.Role == nil) != (role == "") {
				t.Errorf("arbitration has role %v", a.GetRole())
			}
			for _, r := range seen[interface {
				proto.Message
				GetRole() string
			}](s.meddler) {
				if r.GetRole() != role {
					t.Errorf("%T has role %q", r, r.GetRole())
				}
			}
		})
	}
	t.Run("backup reads and never writes", func(t *testing.T) {
		s, c := ready(t, program(t, "forwarding"))
		if err := c.Write(t.Context(), insertRoute(t, "10.0.0.0/8")); err != nil {
			t.Fatal(err)
		}
		b := dial(t, p4rt.Config{Target: s.addr, DeviceID: 1, Mode: p4rt.Backup})
		waitReady(t, b)
		if _, err := b.Catalog(); err != nil {
			t.Error(err)
		}
		if err := b.Reconcile(t.Context(), p4rt.Desired{Tables: []string{"ipv4_lpm"}}); !errors.Is(err,
			p4rt.ErrNotPrimary) {
			t.Errorf("a backup reconciles: %v", err)
		}
		if err := b.Write(t.Context(), insertRoute(t, "11.0.0.0/8")); !errors.Is(err, p4rt.ErrNotPrimary) {
			t.Errorf("a backup writes: %v", err)
		}
		c.Close() // even without any primary it stays what it is
		waitStatus(t, b, "informed that there is no primary",
			func(st p4rt.Status) bool { return st.State == p4rt.ReadOnly })
		for _, a := range arbitrations(s) {
			if a.ElectionId != nil && a.ElectionId.Low != 1 {
				t.Errorf("a backup bid %v", a)
			}
		}
	})
}

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

// Entries that are to be absent are deleted, unless they are desired; others stay.
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

// What the switch or the program refuses of the desired state is the reason of the status, and the
// rest is written.
func TestReconcileRefused(t *testing.T) {
	s := startSwitch(t)
	exact := func(i int) p4rt.Entry {
		return p4rt.Entry{Table: "exact_t", Match: []p4rt.Match{p4rt.Exact("hdr.ethernet.dst", []byte{byte(i)})},
			Action: "drop"}
	}
	var tooMuch p4rt.Desired
	for i := range 6 { // the table has room for four
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

// Entries of one part are wanted in the tables that another part owns.
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

func TestObligation06Capabilities(t *testing.T) {
	s, c := ready(t, program(t, "forwarding"))
	s.mu.Lock()
	_, first := s.requests[0].(*p4v1.CapabilitiesRequest)
	s.mu.Unlock()
	if !first {
		t.Errorf("the first call is %T", s.requests[0])
	}
	if caps, err := c.Capabilities(); err != nil || caps.Version != "1.5.0" {
		t.Errorf("capabilities %+v, %v", caps, err)
	}
	old := startSwitch(t)
	old.meddle(func(m *meddler) {
		m.capabilities = func(context.Context) (*p4v1.CapabilitiesResponse, error) {
			return nil, status.Error(codes.Unimplemented, "unknown request")
		}
	})
	oc := dial(t, config(old, program(t, "forwarding")))
	waitReady(t, oc)
	if v := oc.Status().Version; v != "1.0" {
		t.Errorf("a switch without Capabilities has version %q", v)
	}
}

func TestObligation07Cookie(t *testing.T) {
	s, c := ready(t, program(t, "forwarding"))
	if !c.Status().Pushed {
		t.Error("nothing was pushed on an empty switch")
	}
	push := seen[*p4v1.SetForwardingPipelineConfigRequest](s.meddler)
	if len(push) != 1 || push[0].GetAction() != p4v1.SetForwardingPipelineConfigRequest_VERIFY_AND_COMMIT ||
		push[0].GetConfig().GetCookie().GetCookie() == 0 {
		t.Errorf("%d pushes", len(push))
	}
	if get := seen[*p4v1.GetForwardingPipelineConfigRequest](s.meddler); len(get) != 1 ||
		get[0].GetResponseType() != p4v1.GetForwardingPipelineConfigRequest_COOKIE_ONLY {
		t.Errorf("the cookie was asked for with %v", get)
	}
	c.Close()
	again := dial(t, config(s, program(t, "forwarding")))
	waitReady(t, again)
	if again.Status().Pushed {
		t.Error("the same program was pushed again")
	}
	again.Close()
	other := dial(t, config(s, entities(t)))
	waitReady(t, other)
	if !other.Status().Pushed {
		t.Error("another program was not pushed")
	}
	other.Close()
	t.Run("without a program the pipeline is kept", func(t *testing.T) {
		c := dial(t, config(s, nil))
		waitReady(t, c)
		if cat, err := c.Catalog(); err != nil || cat.Registers.All()[0].Name != "I.words" {
			t.Errorf("catalog: %v", err)
		}
	})
	t.Run("a backup follows the primary to another program", func(t *testing.T) {
		s := startSwitch(t)
		cfg := p4rt.Config{Target: s.addr, DeviceID: 1, Mode: p4rt.Backup, PipelinePoll: time.Millisecond}
		b := dial(t, cfg)
		waitReady(t, b)
		if _, err := b.Catalog(); !errors.Is(err, p4rt.ErrNotReady) {
			t.Errorf("a catalog without a pipeline: %v", err)
		}
		for _, p := range []*p4rt.Program{program(t, "forwarding"), entities(t)} {
			c := dial(t, config(s, p))
			waitReady(t, c)
			testkit.Until(t, "the backup sees "+p.Name, func() bool {
				cat, err := b.Catalog()
				return err == nil && len(cat.Tables.All()) == len(p.P4Info.GetTables())
			})
			c.Close()
		}
	})
	t.Run("refused", func(t *testing.T) {
		s := startSwitch(t)
		p := program(t, "forwarding")
		p.DeviceConfig = []byte(`{"program": "cut short`)
		c := dial(t, config(s, p))
		st := waitState(t, c, p4rt.Down)
		if !errors.Is(st.Reason, p4rt.ErrPipelineRefused) || !strings.Contains(st.Reason.Error(), `"forwarding"`) ||
			!strings.Contains(st.Reason.Error(), s.addr) {
			t.Errorf("reason %v", st.Reason)
		}
	})
}

func TestObligation08Batches(t *testing.T) {
	s := startSwitch(t)
	cfg := config(s, program(t, "forwarding"))
	cfg.MaxBatchBytes = 64 << 10
	c := dial(t, cfg)
	waitReady(t, c)
	const n = 4000
	var updates []p4rt.Update
	for i := range n {
		updates = append(updates, insertRoute(t, fmt.Sprintf("10.%d.%d.0/24", i>>8, i&255)))
	}
	s.dropRequests()
	if err := c.Write(t.Context(), updates...); err != nil {
		t.Fatal(err)
	}
	ws := seen[*p4v1.WriteRequest](s.meddler)
	for _, w := range ws {
		if size := proto.Size(w); size > cfg.MaxBatchBytes {
			t.Errorf("a request of %d bytes", size)
		}
	}
	if len(ws) < 3 || updatesIn(s) != n {
		t.Errorf("%d requests with %d updates", len(ws), updatesIn(s))
	}
	t.Run("a report larger than gRPC's usual 8 KB of metadata", func(t *testing.T) {
		c.Close()
		c := dial(t, config(s, program(t, "forwarding")))
		waitReady(t, c)
		s.dropRequests()
		err := c.Write(t.Context(), updates[:2000]...)
		var we *p4rt.WriteError
		if !errors.As(err, &we) || len(we.Failed) != 2000 || we.NotTried != 0 {
			t.Fatalf("got %.300v", err)
		}
		if len(seen[*p4v1.WriteRequest](s.meddler)) != 1 {
			t.Error("it was not one request")
		}
		for i, f := range we.Failed {
			if f.Index != i || f.Code != codes.AlreadyExists {
				t.Fatalf("update %d: %v", i, f)
			}
		}
	})
}

func TestObligation09DependentUpdates(t *testing.T) {
	s, c := ready(t, program(t, "forwarding"))
	a, b := ipv4Route(t, "10.0.0.0/8", 1), ipv4Route(t, "11.0.0.0/8", 1)
	changed := ipv4Route(t, "10.0.0.0/8", 2)
	s.dropRequests()
	if err := c.Write(t.Context(), p4rt.Insert(a), p4rt.Insert(b), p4rt.Modify(changed), p4rt.Delete(b),
		p4rt.Delete(a)); err != nil {
		t.Fatal(err)
	}
	if ws := seen[*p4v1.WriteRequest](s.meddler); len(ws) != 3 || len(ws[0].GetUpdates()) != 2 ||
		len(ws[1].GetUpdates()) != 2 {
		t.Errorf("three updates of one entry and two of another went in %d requests, want 3", len(ws))
	}
	if n := len(entriesOn(t, s.addr, program(t, "forwarding"), "ipv4_lpm")); n != 0 {
		t.Errorf("%d entries are left", n)
	}
}

func TestObligation10PerUpdateErrors(t *testing.T) {
	s, c := ready(t, program(t, "forwarding"))
	ok, bad := insertRoute(t, "10.0.0.0/8"), p4rt.Modify(ipv4Route(t, "11.0.0.0/8", 1))
	err := c.Write(t.Context(), ok, bad)
	var we *p4rt.WriteError
	if !errors.As(err, &we) {
		t.Fatalf("got %v", err)
	}
	if len(we.Failed) != 1 || we.Failed[0].Index != 1 || we.Failed[0].Code != codes.NotFound {
		t.Errorf("failed: %+v", we.Failed)
	}
	for _, want := range []string{"MODIFY", "table ingress.forwarding.ipv4_lpm", "hdr.ipv4.dst=11.0.0.0/8",
		"forward(port=1", "NotFound", "1 of 2"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	if got := entriesOn(t, s.addr, program(t, "forwarding"), "ipv4_lpm"); len(got) != 1 {
		t.Errorf("%d entries: the good update must have been applied", len(got))
	}
	s.dropRequests()
	unfit := p4rt.Delete(p4rt.Entry{Table: "nope"})
	if err := c.Write(t.Context(), p4rt.Delete(ok.Entry), unfit); !errors.Is(err, p4rt.ErrRefused) ||
		!strings.Contains(err.Error(), "update 2 of 2") || updatesIn(s) != 0 {
		t.Errorf("an update that does not fit the program: %v, %d updates sent", err, updatesIn(s))
	}
	t.Run("a report that does not fit the updates", func(t *testing.T) {
		s, c := ready(t, program(t, "forwarding"))
		s.meddle(func(m *meddler) {
			m.write = func(context.Context, *p4v1.WriteRequest) (*p4v1.WriteResponse, error) {
				return nil, status.Error(codes.Unknown, "something went wrong")
			}
		})
		err := c.Write(t.Context(), insertRoute(t, "10.0.0.0/8"), insertRoute(t, "11.0.0.0/8"))
		if !errors.As(err, &we) || we.Cause == nil || we.NotTried != 2 ||
			!strings.Contains(err.Error(), "something went wrong") {
			t.Errorf("got %v", err)
		}
	})
}

func TestObligation11CanonicalValues(t *testing.T) {
	s, c := ready(t, program(t, "forwarding"))
	want := p4rt.Desired{Entries: []p4rt.Entry{ipv4Route(t, "10.0.1.0/24", 1), ipv4Route(t, "0.1.0.0/16", 2)},
		Tables: []string{"ipv4_lpm"}}
	if err := c.Reconcile(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	for _, w := range seen[*p4v1.WriteRequest](s.meddler) {
		for _, u := range w.GetUpdates() {
			te := u.GetEntity().GetTableEntry()
			for _, m := range te.GetMatch() {
				if !isCanonical(m.GetLpm().GetValue()) {
					t.Errorf("value %x is not canonical", m.GetLpm().GetValue())
				}
			}
			for _, p := range te.GetAction().GetAction().GetParams() {
				if !isCanonical(p.GetValue()) {
					t.Errorf("parameter %x is not canonical", p.GetValue())
				}
			}
		}
	}
	// Padded values (4ward) are equal to canonical ones.
	s.meddle(func(m *meddler) {
		m.read = func(r *p4v1.ReadResponse) *p4v1.ReadResponse {
			for _, e := range r.GetEntities() {
				for _, m := range e.GetTableEntry().GetMatch() {
					m.GetLpm().Value = append([]byte{0, 0}, m.GetLpm().GetValue()...)
				}
				for _, p := range e.GetTableEntry().GetAction().GetAction().GetParams() {
					p.Value = append([]byte{0}, p.Value...)
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
		t.Errorf("%d updates for entries that are there", n)
	}
	cat, _ := c.Catalog()
	e := ipv4Route(t, "10.0.1.0/24", 512)
	if _, err := e.Build(cat); !errors.Is(err, p4values.ErrRange) || !strings.Contains(err.Error(), `"port"`) {
		t.Errorf("port 512 in 9 bits: %v", err)
	}
	e.Params[0].Value = nil
	if _, err := e.Build(cat); !errors.Is(err, p4values.ErrEmpty) {
		t.Errorf("an empty value: %v", err)
	}
}

func isCanonical(b []byte) bool { return bytes.Equal(p4values.Canonical(b), b) }

func TestObligation14Reads(t *testing.T) {
	s, c := ready(t, program(t, "forwarding"))
	want := p4rt.Desired{Entries: []p4rt.Entry{ipv4Route(t, "10.0.1.0/24", 1), ipv4Route(t, "10.0.2.0/24", 2)},
		Tables: []string{"ipv4_lpm"}}
	if err := c.Reconcile(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	// Answers in another order, and twice.
	s.meddle(func(m *meddler) {
		m.read = func(r *p4v1.ReadResponse) *p4v1.ReadResponse {
			for i, j := 0, len(r.Entities)-1; i < j; i, j = i+1, j-1 {
				r.Entities[i], r.Entities[j] = r.Entities[j], r.Entities[i]
			}
			r.Entities = append(r.Entities, r.Entities...)
			return r
		}
	})
	s.dropRequests()
	if err := c.Reconcile(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	if n := updatesIn(s); n != 0 {
		t.Errorf("%d updates for entries that are there", n)
	}
	t.Run("an error names the query", func(t *testing.T) {
		s, c := ready(t, program(t, "forwarding"))
		s.rpc.Stop()
		s.opts = append(s.opts, grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo,
			handler grpc.StreamHandler,
		) error {
			if strings.HasSuffix(info.FullMethod, "/Read") {
				refused, err := status.New(codes.Unknown,
					"").WithDetails(&p4v1.Error{CanonicalCode: int32(codes.NotFound), Message: "no such table"})
				return errors.Join(err, refused.Err())
			}
			return handler(srv, ss)
		}))
		s.listen(t)
		waitStatus(t, c, "ready again", func(st p4rt.Status) bool { return st.State == p4rt.Ready && st.Session > 1 })
		err := c.Reconcile(t.Context(), want)
		if err == nil || !strings.Contains(err.Error(), "read of table ingress.forwarding.ipv4_lpm") ||
			!strings.Contains(err.Error(), "NotFound") {
			t.Errorf("error %v", err)
		}
	})
}
