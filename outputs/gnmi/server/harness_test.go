// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/openconfig/ygot/ygot"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/internal/test/grpctest"
	"github.com/netsketch/netsketch/internal/test/yangtest"
	"github.com/netsketch/netsketch/yang"
	"github.com/netsketch/netsketch/yang/table"
)

func TestMain(m *testing.M) {
	// ygot and openconfig's client import glog, which starts a goroutine.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/golang/glog.(*fileSink).flushDaemon"))
}

var testSchema = sync.OnceValue(func() *yang.Schema {
	s, err := yang.Load(yangtest.Modules()...)
	if err != nil {
		panic(err)
	}
	return s
})

// fixture is a server over a store with UnivMon's lists.
type fixture struct {
	tb     testing.TB
	store  *store.Store
	server *Server
	epoch  uint64
}

var nan = math.NaN()

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newFixture(tb testing.TB, set ...func(*Options)) *fixture {
	tb.Helper()
	st := store.New(store.Options{Schema: testSchema()})
	o := Options{Store: st, Schema: testSchema, LowestInterval: 10 * time.Millisecond}
	for _, f := range set {
		f(&o)
	}
	s, err := New(o)
	if err != nil {
		tb.Fatal(err)
	}
	f := &fixture{tb: tb, store: st, server: s}
	tb.Cleanup(f.close)
	return f
}

func (f *fixture) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := f.server.Close(ctx); err != nil {
		f.tb.Error("closing the server:", err)
	}
	f.store.Close()
}

// dial serves over an in-memory connection, and returns a client.
func (f *fixture) dial(opts ...grpc.DialOption) gpb.GNMIClient {
	return gpb.NewGNMIClient(f.conn(opts...))
}

// conn serves over an in-memory connection, and returns the connection.
func (f *fixture) conn(opts ...grpc.DialOption) *grpc.ClientConn {
	f.tb.Helper()
	return grpctest.Serve(f.tb, f.server.Register, opts...)
}

// publish publishes tables as the next epoch.
func (f *fixture) publish(tables ...*table.Table) {
	f.tb.Helper()
	f.epoch++
	b := store.Batch{Time: t0.Add(time.Duration(f.epoch) * time.Second), Epoch: f.epoch}
	for _, t := range tables {
		b.Tables = append(b.Tables, store.Publication{Table: t, Replace: true})
	}
	if err := f.store.Publish(b); err != nil {
		f.tb.Fatal(err)
	}
}

// hitters returns a table of heavy hitters of dimension src, from lines of "device flow packets".
func hitters(tb testing.TB, lines ...string) *table.Table {
	tb.Helper()
	b := table.NewBuilder("/netsketch-univmon:univmon/heavy-hitters/heavy-hitter")
	device, dimension, flow := b.TextKey("node"), b.TextKey("dimension"), b.TextKey("flow")
	packets := b.Uint("state/packets")
	for _, l := range lines {
		var d, fl string
		var p uint64
		if _, err := fmt.Sscan(l, &d, &fl, &p); err != nil {
			tb.Fatal(err)
		}
		device.Append(d)
		dimension.Append("src")
		flow.Append(fl)
		packets.Append(p)
	}
	return built(tb, b)
}

// summary returns a table with the totals of one device; a NaN entropy makes the leaf absent.
func summary(tb testing.TB, device string, epoch, packets uint64, entropy float64) *table.Table {
	tb.Helper()
	b := table.NewBuilder("/netsketch-univmon:univmon/node-summaries/node-summary")
	b.TextKey("node").Append(device)
	b.TextKey("dimension").Append("src")
	b.Uint("state/second-moment").Append(epoch)
	b.Text("state/status").Append("COMPLETE")
	b.Uint("state/packets").Append(packets)
	b.Float("state/entropy").AppendIf(entropy, !math.IsNaN(entropy))
	b.Uint("state/heavy-hitters").Append(3)
	return built(tb, b)
}

func built(tb testing.TB, b *table.Builder) *table.Table {
	tb.Helper()
	t, err := b.Table()
	if err != nil {
		tb.Fatal(err)
	}
	if err := testSchema().Validate(t); err != nil {
		tb.Fatal(err)
	}
	return t
}

// path parses a path, which may have modules and wildcards.
func path(s string) *gpb.Path {
	p, err := ygot.StringToStructuredPath(s)
	if err != nil {
		panic(err)
	}
	return p
}

// subscriptions returns a request with the mode and paths, ON_CHANGE and encoding PROTO.
func subscriptions(mode gpb.SubscriptionList_Mode, paths ...string) *gpb.SubscribeRequest {
	l := &gpb.SubscriptionList{Mode: mode, Encoding: gpb.Encoding_PROTO}
	for _, p := range paths {
		l.Subscription = append(l.Subscription, &gpb.Subscription{Path: path(p), Mode: gpb.SubscriptionMode_ON_CHANGE})
	}
	return &gpb.SubscribeRequest{Request: &gpb.SubscribeRequest_Subscribe{Subscribe: l}}
}

// client is the client's end of a stream.
type client struct {
	tb     testing.TB
	stream gpb.GNMI_SubscribeClient
	cancel context.CancelFunc
}

func subscribe(tb testing.TB, c gpb.GNMIClient, req *gpb.SubscribeRequest) *client {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	tb.Cleanup(cancel)
	s, err := c.Subscribe(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	if req != nil {
		// Send returns EOF if the stream has already ended; receiving returns the reason.
		if err := s.Send(req); err != nil && !errors.Is(err, io.EOF) {
			tb.Fatal(err)
		}
	}
	return &client{tb, s, cancel}
}

// next returns one response as lines.
func (c *client) next() []string {
	c.tb.Helper()
	m, err := c.stream.Recv()
	if err != nil {
		c.tb.Fatal("receiving:", err)
	}
	return lines(m)
}

// until collects lines up to the first one that contains text, such as "sync".
func (c *client) until(text string) []string {
	c.tb.Helper()
	var out []string
	for {
		for _, l := range c.next() {
			out = append(out, l)
			if strings.Contains(l, text) {
				return out
			}
		}
	}
}

// end receives until the stream ends and returns its error.
func (c *client) end() error {
	for {
		if _, err := c.stream.Recv(); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// lines writes a response as text: "sync", "/a/b[k=v]/c = value", "- /a/b".
func lines(m *gpb.SubscribeResponse) []string {
	if m.GetSyncResponse() {
		return []string{"sync"}
	}
	n := m.GetUpdate()
	if n == nil {
		return []string{"neither update nor sync"}
	}
	head := ""
	if n.GetPrefix().GetTarget() != "" {
		head += n.GetPrefix().GetTarget() + " "
	}
	if n.GetPrefix().GetOrigin() != "" {
		head += n.GetPrefix().GetOrigin() + ":"
	}
	if n.GetAtomic() {
		head = "atomic " + yang.PathString(n.GetPrefix().GetElem()) + ": " + head
	}
	full := func(p *gpb.Path) string {
		return yang.PathString(slices.Concat(n.GetPrefix().GetElem(), p.GetElem()))
	}
	var out []string
	for _, u := range n.GetUpdate() {
		l := head + full(u.GetPath()) + " = " + valueText(u.GetVal())
		if u.GetDuplicates() > 0 {
			l += fmt.Sprintf(" (%d)", u.GetDuplicates())
		}
		out = append(out, l)
	}
	for _, d := range n.GetDelete() {
		out = append(out, "- "+head+full(d))
	}
	return out
}

func valueText(v *gpb.TypedValue) string {
	switch x := v.GetValue().(type) {
	case *gpb.TypedValue_JsonVal:
		return "json " + string(x.JsonVal)
	case *gpb.TypedValue_JsonIetfVal:
		return "ietf " + string(x.JsonIetfVal)
	case *gpb.TypedValue_UintVal:
		return fmt.Sprint("uint ", x.UintVal)
	case *gpb.TypedValue_IntVal:
		return fmt.Sprint("int ", x.IntVal)
	case *gpb.TypedValue_DoubleVal:
		return fmt.Sprint("double ", x.DoubleVal)
	case *gpb.TypedValue_BoolVal:
		return fmt.Sprint("bool ", x.BoolVal)
	case *gpb.TypedValue_StringVal:
		return "string " + x.StringVal
	}
	return fmt.Sprint(v)
}

// fakeStream is a stream without a network, for tests on a virtual clock. It puts sent responses
// into sent. A nil request in recv closes the client's side.
type fakeStream struct {
	ctx  context.Context
	recv chan *gpb.SubscribeRequest
	sent chan *gpb.SubscribeResponse
}

func (f *fakeStream) Context() context.Context     { return f.ctx }
func (f *fakeStream) SetHeader(metadata.MD) error  { return nil }
func (f *fakeStream) SendHeader(metadata.MD) error { return nil }
func (f *fakeStream) SetTrailer(metadata.MD)       {}
func (f *fakeStream) SendMsg(any) error            { return nil }
func (f *fakeStream) RecvMsg(any) error            { return nil }

func (f *fakeStream) Send(m *gpb.SubscribeResponse) error {
	raw, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	out := new(gpb.SubscribeResponse)
	if err := proto.Unmarshal(raw, out); err != nil {
		return err
	}
	select {
	case f.sent <- out:
		return nil
	case <-f.ctx.Done():
		return f.ctx.Err()
	}
}

func (f *fakeStream) Recv() (*gpb.SubscribeRequest, error) {
	select {
	case m := <-f.recv:
		if m == nil {
			return nil, io.EOF
		}
		return m, nil
	case <-f.ctx.Done():
		return nil, f.ctx.Err()
	}
}
