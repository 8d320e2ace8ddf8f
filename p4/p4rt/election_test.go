// SPDX-License-Identifier: Apache-2.0

package p4rt_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/p4/p4rt"
)

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

// vacancy is a client's stream. It calls taken when the client has handled the message that {0,0}
// is the highest election id; the client handles one message after the other.
type vacancy struct {
	grpc.ClientStream
	vacant bool
	taken  func()
}

func (s *vacancy) RecvMsg(m any) error {
	if s.vacant {
		s.taken()
	}
	err := s.ClientStream.RecvMsg(m)
	r, ok := m.(*p4v1.StreamMessageResponse)
	s.vacant = err == nil && ok && proto.Equal(r.GetArbitration().GetElectionId(), &p4v1.Uint128{})
	return err
}

func afterVacancy(taken func()) grpc.DialOption {
	return grpc.WithStreamInterceptor(func(ctx context.Context, d *grpc.StreamDesc, c *grpc.ClientConn, method string,
		open grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		s, err := open(ctx, d, c, method, opts...)
		return &vacancy{ClientStream: s, taken: taken}, err
	})
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
		if st := waitState(t, b, p4rt.Standby); !strings.Contains(st.Reason.Error(), "when the controller with 5 ends") {
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
	t.Run("an unset id is taken as {0,0} and elected", func(t *testing.T) { // as BMv2 does
		s := startSwitch(t)
		taken := make(chan struct{}) // closed when b has handled the message that there is no primary
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
		cfg.DialOptions = []grpc.DialOption{afterVacancy(sync.OnceFunc(func() { close(taken) }))}
		b := dial(t, cfg)
		waitState(t, b, p4rt.Standby)
		s.dropRequests()
		asked := make(chan struct{}, 1)
		s.meddle(func(m *meddler) { // b learns that there is no primary while it checks for a new pipeline
			m.get = func(ctx context.Context) (*p4v1.GetForwardingPipelineConfigResponse, error) {
				select {
				case asked <- struct{}{}:
				default:
				}
				<-taken
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
		var may atomic.Bool // whether to bid without a primary
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
	t.Run("another client bids first", func(t *testing.T) {
		s := startSwitch(t)
		cfg := config(s, program(t, "forwarding"))
		cfg.ElectionID = p4rt.ElectionID{High: 9}
		a := dial(t, cfg)
		waitReady(t, a)
		clock, waiting := newFakeClock(), cfg
		until := func(what string, ok func(time.Duration) bool) {
			t.Helper()
			for over := time.After(patience); ; {
				select {
				case d := <-clock.waited:
					if ok(d) {
						return
					}
				case <-over:
					t.Fatalf("not within %v: %s", patience, what)
				}
			}
		}
		waiting.ElectionID, waiting.Clock, waiting.PipelinePoll = p4rt.ElectionID{Low: 5}, clock, time.Hour
		waiting.Bid = func(_ p4rt.ElectionID, vacant bool) (p4rt.ElectionID, bool) {
			return p4rt.ElectionID{High: 100}, vacant
		}
		b := dial(t, waiting)
		waitState(t, b, p4rt.Standby)
		a.Close()
		until("b is about to bid", func(d time.Duration) bool { return d < time.Hour })
		cfg.ElectionID = p4rt.ElectionID{High: 50}
		waitReady(t, dial(t, cfg))
		until("b is in standby again", func(d time.Duration) bool { return d == time.Hour })
		if st := b.Status(); st.Highest.High != 50 || st.Bid.Low != 5 {
			t.Errorf("the bid is %v after one of %v, want 5: no other one was sent", st.Bid, st.Highest)
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
		c.Close() // the remaining client keeps its state even if there is no primary
		waitStatus(t, b, "informed that there is no primary",
			func(st p4rt.Status) bool { return st.State == p4rt.ReadOnly })
		for _, a := range arbitrations(s) {
			if a.ElectionId != nil && a.ElectionId.Low != 1 {
				t.Errorf("a backup bid %v", a)
			}
		}
	})
}
