// SPDX-License-Identifier: Apache-2.0

package p4rt_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// The tests named TestObligation hold the client to the obligations of a P4Runtime controller, by
// their numbers in docs/evidence/p4runtime.csv.

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
	// Errors in another order, and one of them twice.
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
