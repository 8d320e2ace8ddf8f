// SPDX-License-Identifier: Apache-2.0

package p4rtserver_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/p4/softswitch/p4rtserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 2 * time.Minute

// rig is a soft switch with its server, and a connection to it. The tests speak the protocol
// itself: no client is in between.
type rig struct {
	t    testing.TB
	sw   *softswitch.Switch
	srv  *p4rtserver.Server
	conn *grpc.ClientConn
	rpc  p4v1.P4RuntimeClient
	cat  *p4values.Catalog
}

// compiler compiles each program once for all switches of the tests.
var compiler softswitch.Compiler

func newRig(t testing.TB, opt p4rtserver.Options) *rig {
	t.Helper()
	r := &rig{t: t, sw: softswitch.New(softswitch.Config{})}
	for id := uint32(1); id <= 4; id++ {
		if err := r.sw.AddPort(id, softswitch.Port{}); err != nil {
			t.Fatal(err)
		}
	}
	opt.DeviceID = 1
	if opt.Compile == nil {
		opt.Compile = compiler.Compile
	}
	r.srv = p4rtserver.New(r.sw, opt)
	l := bufconn.Listen(1 << 20)
	g := grpc.NewServer(p4rtserver.ServerOptions()...)
	r.srv.Register(g)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = g.Serve(l)
	}()
	var err error
	r.conn, err = grpc.NewClient("passthrough:switch", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	r.rpc = p4v1.NewP4RuntimeClient(r.conn)
	t.Cleanup(func() {
		r.conn.Close()
		g.Stop()
		<-done
		r.srv.Close()
		r.sw.Close()
	})
	return r
}

// pipelined is a rig with the program that has an object of every kind, and its primary.
func pipelined(t testing.TB) (*rig, *controller) {
	t.Helper()
	r := newRig(t, p4rtserver.Options{})
	c := r.primary(1)
	r.ok(r.set(p4v1.SetForwardingPipelineConfigRequest_VERIFY_AND_COMMIT, c.id, r.entities(7)))
	return r, c
}

// entities is the configuration of the program that has an object of every kind.
func (r *rig) entities(cookie uint64) *p4v1.ForwardingPipelineConfig {
	r.t.Helper()
	json, err := os.ReadFile("testdata/entities.json")
	if err != nil {
		r.t.Fatal(err)
	}
	text, err := os.ReadFile("testdata/entities.p4info.txtpb")
	if err != nil {
		r.t.Fatal(err)
	}
	info := &p4configv1.P4Info{}
	if err := prototext.Unmarshal(text, info); err != nil {
		r.t.Fatal(err)
	}
	if r.cat, err = p4values.NewCatalog(info); err != nil {
		r.t.Fatal(err)
	}
	return &p4v1.ForwardingPipelineConfig{P4Info: info, P4DeviceConfig: json,
		Cookie: &p4v1.ForwardingPipelineConfig_Cookie{Cookie: cookie}}
}

func (r *rig) ok(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatalf("%v", status.Convert(err).Proto())
	}
}

// refused checks the code of an error, and that its message says something.
func (r *rig) refused(err error, code codes.Code, says string) {
	r.t.Helper()
	if status.Code(err) != code || !strings.Contains(err.Error(), says) {
		r.t.Errorf("got %v, want %v saying %q", err, code, says)
	}
}

func id128(low uint64) *p4v1.Uint128 { return &p4v1.Uint128{Low: low} }

func (r *rig) set(action p4v1.SetForwardingPipelineConfigRequest_Action, id *p4v1.Uint128,
	cfg *p4v1.ForwardingPipelineConfig,
) error {
	_, err := r.rpc.SetForwardingPipelineConfig(r.t.Context(),
		&p4v1.SetForwardingPipelineConfigRequest{DeviceId: 1, ElectionId: id, Action: action, Config: cfg})
	return err
}

// controller is one stream.
type controller struct {
	r      *rig
	id     *p4v1.Uint128
	role   string
	stream p4v1.P4Runtime_StreamChannelClient
	in     chan *p4v1.StreamMessageResponse
	end    chan error
	cancel context.CancelFunc
}

// open opens a stream and sends nothing on it.
func (r *rig) open() *controller {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	s, err := r.rpc.StreamChannel(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	c := &controller{r: r, stream: s, in: make(chan *p4v1.StreamMessageResponse, 1000), end: make(chan error, 1),
		cancel: cancel}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			m, err := s.Recv()
			if err != nil {
				c.end <- err
				return
			}
			c.in <- m
		}
	}()
	r.t.Cleanup(func() {
		cancel()
		<-done
	})
	return c
}

func (c *controller) send(m *p4v1.StreamMessageRequest) {
	c.r.t.Helper()
	if err := c.stream.Send(m); err != nil && !errors.Is(err, io.EOF) {
		c.r.t.Fatal(err)
	}
}

func (c *controller) bid(m *p4v1.MasterArbitrationUpdate) {
	c.r.t.Helper()
	c.send(&p4v1.StreamMessageRequest{Update: &p4v1.StreamMessageRequest_Arbitration{Arbitration: m}})
}

// next is the next message of the stream.
func (c *controller) next() *p4v1.StreamMessageResponse {
	c.r.t.Helper()
	select {
	case m := <-c.in:
		return m
	case err := <-c.end:
		c.r.t.Fatalf("the stream ended: %v", err)
	case <-time.After(patience):
		c.r.t.Fatal("no message came")
	}
	return nil
}

// ended waits for the end of the stream.
func (c *controller) ended() error {
	c.r.t.Helper()
	select {
	case err := <-c.end:
		return err
	case <-time.After(patience):
		c.r.t.Fatal("the stream goes on")
		return nil
	}
}

// advised checks the next advisory: its code, and the highest election id in it (0: unset).
func (c *controller) advised(code codes.Code, highest uint64) {
	c.r.t.Helper()
	a := c.next().GetArbitration()
	if a == nil || codes.Code(a.GetStatus().GetCode()) != code || a.GetElectionId().GetLow() != highest ||
		(a.ElectionId == nil) != (highest == 0) ||
		a.GetDeviceId() != 1 || a.GetRole().GetName() != c.role {
		c.r.t.Errorf("received %v, want %v with highest %d", a, code, highest)
	}
}

// join opens a stream, and bids; no id stands for an unset one.
func (r *rig) join(role string, id ...uint64) *controller {
	r.t.Helper()
	c := r.open()
	c.role = role
	m := &p4v1.MasterArbitrationUpdate{DeviceId: 1}
	if role != "" {
		m.Role = &p4v1.Role{Name: role}
	}
	if len(id) > 0 {
		c.id = id128(id[0])
		m.ElectionId = c.id
	}
	c.bid(m)
	return c
}

// primary is a stream that bid and was elected.
func (r *rig) primary(id uint64) *controller {
	r.t.Helper()
	c := r.join("", id)
	c.advised(codes.OK, id)
	return c
}

// write sends updates as the primary of the default role, and returns the error of each.
func (r *rig) write(c *controller, updates ...*p4v1.Update) []*p4v1.Error {
	r.t.Helper()
	return r.writeAs(c, p4v1.WriteRequest_CONTINUE_ON_ERROR, updates...)
}

func (r *rig) writeAs(c *controller, atomicity p4v1.WriteRequest_Atomicity, updates ...*p4v1.Update) []*p4v1.Error {
	r.t.Helper()
	_, err := r.rpc.Write(r.t.Context(), &p4v1.WriteRequest{DeviceId: 1, Role: c.role, ElectionId: c.id,
		Updates: updates, Atomicity: atomicity})
	if err == nil {
		return make([]*p4v1.Error, len(updates))
	}
	st := status.Convert(err)
	var out []*p4v1.Error
	for _, d := range st.Details() {
		out = append(out, d.(*p4v1.Error))
	}
	if st.Code() != codes.Unknown || len(out) != len(updates) {
		r.t.Fatalf("%v with %d details for %d updates", err, len(out), len(updates))
	}
	return out
}

// must writes updates that must succeed.
func (r *rig) must(c *controller, updates ...*p4v1.Update) {
	r.t.Helper()
	for i, e := range r.write(c, updates...) {
		if e.GetCanonicalCode() != 0 {
			r.t.Fatalf("update %d: %v", i, e)
		}
	}
}

// mustNot writes one update that must be refused.
func (r *rig) mustNot(c *controller, code codes.Code, says string, u *p4v1.Update) {
	r.t.Helper()
	e := r.write(c, u)[0]
	if codes.Code(e.GetCanonicalCode()) != code || !strings.Contains(e.GetMessage(), says) || code != 0 &&
		e.GetSpace() == "" {
		r.t.Errorf("%v: got %v, want %v saying %q", u, e, code, says)
	}
}

// read returns what queries find.
func (r *rig) read(queries ...*p4v1.Entity) []*p4v1.Entity {
	r.t.Helper()
	out, err := r.tryRead(&p4v1.ReadRequest{DeviceId: 1, Entities: queries})
	r.ok(err)
	return out
}

func (r *rig) tryRead(q *p4v1.ReadRequest) ([]*p4v1.Entity, error) {
	s, err := r.rpc.Read(r.t.Context(), q)
	if err != nil {
		return nil, err
	}
	var out []*p4v1.Entity
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, m.GetEntities()...)
	}
}

// readsBack checks that a query finds exactly what is wanted, in any order.
func (r *rig) readsBack(query *p4v1.Entity, want ...*p4v1.Entity) {
	r.t.Helper()
	keys := func(es []*p4v1.Entity) []string {
		var out []string
		for _, e := range es {
			b, err := proto.MarshalOptions{Deterministic: true}.Marshal(e)
			r.ok(err)
			out = append(out, string(b))
		}
		slices.Sort(out)
		return out
	}
	if got := r.read(query); !slices.Equal(keys(got), keys(want)) {
		r.t.Errorf("%v\nreads back\n%v\nwant\n%v", query, got, want)
	}
}

// entity makes an entity of its text form, in which $NAME stands for the id of an object.
func (r *rig) entity(text string) *p4v1.Entity {
	r.t.Helper()
	e := &p4v1.Entity{}
	if err := prototext.Unmarshal([]byte(r.expand(text)), e); err != nil {
		r.t.Fatalf("%v in %s", err, text)
	}
	return e
}

// expand replaces $NAME by the id of the object with that alias.
func (r *rig) expand(text string) string {
	info := r.cat.P4Info()
	var pairs []string
	add := func(p *p4configv1.Preamble) {
		pairs = append(pairs, "$"+p.GetAlias()+" ", uitoa(p.GetId())+" ")
	}
	for _, x := range info.GetTables() {
		add(x.GetPreamble())
	}
	for _, x := range info.GetActions() {
		add(x.GetPreamble())
	}
	for _, x := range info.GetActionProfiles() {
		add(x.GetPreamble())
	}
	for _, x := range info.GetCounters() {
		add(x.GetPreamble())
	}
	for _, x := range info.GetDirectCounters() {
		add(x.GetPreamble())
	}
	for _, x := range info.GetMeters() {
		add(x.GetPreamble())
	}
	for _, x := range info.GetRegisters() {
		add(x.GetPreamble())
	}
	for _, x := range info.GetDigests() {
		add(x.GetPreamble())
	}
	for _, x := range info.GetValueSets() {
		add(x.GetPreamble())
	}
	return strings.NewReplacer(pairs...).Replace(strings.ReplaceAll(text, "\n", " ") + " ")
}

func uitoa(v uint32) string {
	var b []byte
	for ; v > 0 || len(b) == 0; v /= 10 {
		b = append([]byte{byte('0' + v%10)}, b...)
	}
	return string(b)
}

func insert(e *p4v1.Entity) *p4v1.Update { return &p4v1.Update{Type: p4v1.Update_INSERT, Entity: e} }
func modify(e *p4v1.Entity) *p4v1.Update { return &p4v1.Update{Type: p4v1.Update_MODIFY, Entity: e} }
func remove(e *p4v1.Entity) *p4v1.Update { return &p4v1.Update{Type: p4v1.Update_DELETE, Entity: e} }

// frame is an Ethernet frame of a type.
func frame(dst, src byte, kind uint16) []byte {
	f := make([]byte, 64)
	copy(f, []byte{2, 0, 0, 0, 0, dst, 2, 0, 0, 0, 0, src, byte(kind >> 8), byte(kind)})
	return f
}
