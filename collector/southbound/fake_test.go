// SPDX-License-Identifier: Apache-2.0

package southbound

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/yang"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/golang/glog.(*fileSink).flushDaemon"))
}

var testSchema = sync.OnceValue(func() *yang.Schema {
	s, err := yang.Load(slices.Concat(yang.CollectorModules(), yang.SwitchModules())...)
	if err != nil {
		panic(err)
	}
	return s
})

// fakeSwitch is a gNMI server over real gRPC, controlled by a test.
type fakeSwitch struct {
	gpb.UnimplementedGNMIServer
	addr string
	rpc  *grpc.Server

	mu         sync.Mutex
	refuse     error                                                // error of every call
	answer     func(path string) ([]*gpb.Notification, error)       // reply to a subscription; an error ends the stream
	check      func(*gpb.SubscriptionList) (silent bool, err error) // judges a whole request; silent: no values
	late       func(path string) error                              // ends a stream after its values and before its sync
	closes     bool                                                 // ends each stream after its sync
	pause      time.Duration                                        // how long closes waits before it ends a stream
	noSync     bool
	encoded    []gpb.Encoding // encodings that the switch supports
	subscribed []string       // all subscriptions, as "mode path"
	user       []string       // credentials of the latest call
	streams    int
	drop       chan struct{}  // closed to end all streams
	opened     map[string]int // streams by the first path of their subscriptions
	ends       map[string]chan error
	more       map[chan *gpb.Notification]string
}

func newFake(t *testing.T, opts ...grpc.ServerOption) *fakeSwitch {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeSwitch{addr: lis.Addr().String(), rpc: grpc.NewServer(opts...), drop: make(chan struct{}),
		more: map[chan *gpb.Notification]string{}, opened: map[string]int{}, ends: map[string]chan error{},
		encoded: []gpb.Encoding{gpb.Encoding_PROTO}}
	gpb.RegisterGNMIServer(f.rpc, f)
	served := make(chan error, 1)
	go func() { served <- f.rpc.Serve(lis) }()
	t.Cleanup(func() {
		f.rpc.Stop()
		<-served
	})
	return f
}

func (f *fakeSwitch) admit(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	md, _ := metadata.FromIncomingContext(ctx)
	f.user = append(md.Get("username"), md.Get("password")...)
	return f.refuse
}

func (f *fakeSwitch) Capabilities(ctx context.Context, _ *gpb.CapabilityRequest) (*gpb.CapabilityResponse, error) {
	return &gpb.CapabilityResponse{SupportedEncodings: f.encoded}, f.admit(ctx)
}

func (f *fakeSwitch) Subscribe(s gpb.GNMI_SubscribeServer) error {
	if err := f.admit(s.Context()); err != nil {
		return err
	}
	req, err := s.Recv()
	if err != nil {
		return err
	}
	subs := req.GetSubscribe().GetSubscription()
	more := make(chan *gpb.Notification, 256)
	path := yang.NamesOf(subs[0].GetPath().GetElem())
	f.mu.Lock()
	for _, sub := range subs {
		f.subscribed = append(f.subscribed, sub.GetMode().String()+" "+yang.NamesOf(sub.GetPath().GetElem()))
	}
	answer, noSync, drop, check := f.answer, f.noSync, f.drop, f.check
	late, closes, pause := f.late, f.closes, f.pause
	f.opened[path]++
	end := make(chan error, 1)
	f.ends[path] = end
	f.more[more] = path
	f.streams++
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.more, more)
		f.streams--
		f.mu.Unlock()
	}()
	var notes []*gpb.Notification
	if check != nil {
		silent, err := check(req.GetSubscribe())
		if err != nil {
			return err
		}
		if silent {
			answer = nil
		}
	}
	for _, sub := range subs {
		if answer == nil {
			break
		}
		some, err := answer(sub.GetMode().String() + " " + yang.NamesOf(sub.GetPath().GetElem()))
		if err != nil {
			return err
		}
		notes = append(notes, some...)
	}
	for _, n := range notes {
		if err := s.Send(&gpb.SubscribeResponse{Response: &gpb.SubscribeResponse_Update{Update: n}}); err != nil {
			return err
		}
	}
	for _, sub := range subs {
		if late == nil {
			break
		}
		if err := late(yang.NamesOf(sub.GetPath().GetElem())); err != nil {
			return err
		}
	}
	if !noSync {
		if err := s.Send(&gpb.SubscribeResponse{
			Response: &gpb.SubscribeResponse_SyncResponse{SyncResponse: true},
		}); err != nil {
			return err
		}
	}
	if closes {
		time.Sleep(pause)
		return nil
	}
	for {
		select {
		case err := <-end:
			return err
		case n := <-more:
			if err := s.Send(&gpb.SubscribeResponse{Response: &gpb.SubscribeResponse_Update{Update: n}}); err != nil {
				return err
			}
		case <-drop:
			return status.Error(codes.Unavailable, "the switch restarts")
		case <-s.Context().Done():
			return s.Context().Err()
		}
	}
}

// send sends a notification on the streams whose first subscription is the path.
func (f *fakeSwitch) send(path string, n *gpb.Notification) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c, p := range f.more {
		if p == path {
			c <- n
		}
	}
}

// end ends the newest stream whose first subscription is the path.
func (f *fakeSwitch) end(path string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ends[path] <- err
}

// restart ends all streams.
func (f *fakeSwitch) restart() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.drop)
	f.drop = make(chan struct{})
}

func (f *fakeSwitch) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// watched is a session with a store; tests wait for its changes.
type watched struct {
	*Session
	t       *testing.T
	store   *store.Store
	changed chan struct{}
}

func watch(t *testing.T, addr string, change ...func(*SessionConfig)) *watched {
	t.Helper()
	w := &watched{t: t, store: store.New(store.Options{Schema: testSchema()}), changed: make(chan struct{}, 1)}
	c := SessionConfig{
		Name: "leaf1", Endpoint: Endpoint{Address: addr}, Schema: testSchema,
		BackoffBase: time.Millisecond, BackoffMax: 5 * time.Millisecond,
		OnChange: func(*Session) { w.poke() },
		Publish: func(b store.Batch) error {
			err := w.store.Publish(b)
			w.poke()
			return err
		},
	}
	for _, f := range change {
		f(&c)
	}
	s, err := NewSession(c)
	if err != nil {
		t.Fatal(err)
	}
	w.Session = s
	s.Start(t.Context())
	t.Cleanup(func() {
		s.Close()
		w.store.Close()
	})
	return w
}

func (w *watched) poke() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// wait waits until holds returns true. It checks after every change.
func (w *watched) wait(what string, holds func() bool) {
	w.t.Helper()
	limit := time.After(2 * time.Minute)
	for !holds() {
		select {
		case <-w.changed:
		case <-limit:
			w.t.Fatalf("timed out waiting for %s; status %+v, facts %+v, leaves %v", what, w.Status(), w.Facts(),
				w.leaves())
		}
	}
}

// leaves returns everything published under the switch's name.
func (w *watched) leaves() map[string]string {
	out := map[string]string{}
	for row := range w.store.View().Rows(store.Query{Target: "leaf1"}) {
		var elems []*gpb.PathElem
		for i, name := range row.Entry.List.Elems {
			e := &gpb.PathElem{Name: name}
			for _, k := range row.Entry.List.KeysAt(i) {
				if e.Key == nil {
					e.Key = map[string]string{}
				}
				e.Key[row.Entry.List.Keys[k].Name] = row.Entry.Keys[k].String()
			}
			elems = append(elems, e)
		}
		for i, v := range row.Values {
			if !v.Absent() {
				out[yang.PathString(elems)+"/"+row.List.Leaves[i].Name] = v.String()
			}
		}
	}
	return out
}

func text(v string) *gpb.TypedValue {
	return &gpb.TypedValue{Value: &gpb.TypedValue_StringVal{StringVal: v}}
}

func number(v uint64) *gpb.TypedValue {
	return &gpb.TypedValue{Value: &gpb.TypedValue_UintVal{UintVal: v}}
}

func parsed(path string) *gpb.Path {
	p, err := yang.ParsePath(path)
	if err != nil {
		panic(err)
	}
	return p
}

// note is a notification of "path value" pairs; a nil value deletes.
func note(at int64, pairs ...any) *gpb.Notification {
	n := &gpb.Notification{Timestamp: at}
	for i := 0; i < len(pairs); i += 2 {
		p := parsed(pairs[i].(string))
		switch v := pairs[i+1].(type) {
		case nil:
			n.Delete = append(n.Delete, p)
		case string:
			n.Update = append(n.Update, &gpb.Update{Path: p, Val: text(v)})
		case int:
			n.Update = append(n.Update, &gpb.Update{Path: p, Val: number(uint64(v))})
		case *gpb.TypedValue:
			n.Update = append(n.Update, &gpb.Update{Path: p, Val: v})
		}
	}
	return n
}
