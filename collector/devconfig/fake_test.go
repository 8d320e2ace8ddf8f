// SPDX-License-Identifier: Apache-2.0

package devconfig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	extpb "github.com/openconfig/gnmi/proto/gnmi_ext"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/collector/southbound"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/yang"
)

// fake is a device with a gNMI server. Its state follows its configuration.
type fake struct {
	gpb.UnimplementedGNMIServer
	mu         sync.Mutex
	config     map[string]string // leaves by path
	interfaces []string
	commits    bool  // commit-confirmed is served
	extensions error // error of every Set with an extension; nil if extensions are accepted
	commit     string
	saved      map[string]string // before the pending commit
	dead       map[string]bool   // state leaves that do not follow
	sets       []*gpb.SetRequest // the Sets that change something
	form       form              // the only form of values that is taken; forms takes all
	// fault, if set, is called for each Set that changes something. A Set whose effect is less than 1
	// carries out that part of its leaves; then the error is returned.
	fault func(n int) (effect float64, err error)
	// onSet is called after each Set that changes something.
	onSet func(n int)
	// early sends the sync_response before the values; open leaves the stream open after them.
	early, open bool
	// serves, if set, reports whether the device answers a subscription with values.
	serves     func(*gpb.SubscriptionList) bool
	subscribed int // subscriptions of any kind

	server *grpc.Server
	addr   string
}

const (
	node  = "/components/component[name=ic0]/integrated-circuit/config/node-id"
	eth0  = "/interfaces/interface[name=Ethernet0]/config/"
	eth4  = "/interfaces/interface[name=Ethernet4]/config/"
	lower = "/interfaces/interface[name=Ethernet8]/config/"
)

func newFake(t *testing.T) *fake {
	f := &fake{interfaces: []string{"Ethernet0", "Ethernet4", "Ethernet8"}, form: forms, config: map[string]string{
		eth0 + "enabled": "false", eth4 + "enabled": "true",
	}, dead: map[string]bool{}}
	f.start(t, "127.0.0.1:0")
	t.Cleanup(func() { f.server.Stop() })
	return f
}

func (f *fake) start(t *testing.T, addr string) {
	lis, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	f.addr, f.server = lis.Addr().String(), grpc.NewServer()
	gpb.RegisterGNMIServer(f.server, f)
	server := f.server
	go func() { _ = server.Serve(lis) }()
}

// restart ends all connections and begins with a configuration.
func (f *fake) restart(t *testing.T, config map[string]string) {
	f.server.Stop()
	f.mu.Lock()
	f.config, f.commit, f.saved = config, "", nil
	f.mu.Unlock()
	f.start(t, f.addr)
}

func (f *fake) get(path string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.config[path]
}

func (f *fake) put(path, value string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.config[path] = value
}

func (f *fake) all() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.config)
}

func (f *fake) Subscribe(stream gpb.GNMI_SubscribeServer) error {
	req, err := stream.Recv()
	if err != nil {
		return err
	}
	sync := &gpb.SubscribeResponse{Response: &gpb.SubscribeResponse_SyncResponse{SyncResponse: true}}
	f.mu.Lock()
	f.subscribed++
	if f.serves != nil && !f.serves(req.GetSubscribe()) {
		f.mu.Unlock()
		return stream.Send(sync)
	}
	early, open := f.early, f.open
	n := &gpb.Notification{}
	add := func(path, v string) {
		p := gnmiPath(path)
		n.Update = append(n.Update, &gpb.Update{Path: p,
			Val: &gpb.TypedValue{Value: &gpb.TypedValue_StringVal{StringVal: v}}})
	}
	add("/components/component[name=ic0]/state/type", "INTEGRATED_CIRCUIT")
	for _, name := range f.interfaces {
		if f.config["/interfaces/interface[name="+name+"]/config/enabled"] == "" {
			add("/interfaces/interface[name="+name+"]/state/enabled", "true")
		}
	}
	for _, path := range slices.Sorted(maps.Keys(f.config)) {
		add(path, f.config[path])
		if state := strings.Replace(path, "/config/", "/state/", 1); !f.dead[state] {
			add(state, f.config[path])
		}
	}
	f.mu.Unlock()
	var answer []*gpb.SubscribeResponse
	for part := range slices.Chunk(n.GetUpdate(), 1000) {
		answer = append(answer, &gpb.SubscribeResponse{Response: &gpb.SubscribeResponse_Update{
			Update: &gpb.Notification{Update: part}}})
	}
	answer = append(answer, sync)
	if early {
		slices.Reverse(answer)
	}
	for _, m := range answer {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	if open {
		<-stream.Context().Done()
	}
	return nil
}

func (f *fake) Set(ctx context.Context, req *gpb.SetRequest) (*gpb.SetResponse, error) {
	var commit *extpb.Commit
	if len(req.GetExtension()) > 0 {
		commit = req.GetExtension()[0].GetCommit()
	}
	if f.extensions != nil && commit != nil {
		return nil, f.extensions
	}
	if commit != nil && commit.GetCommit() == nil {
		return &gpb.SetResponse{}, f.end(commit)
	}
	f.mu.Lock()
	if f.commits && f.commit != "" {
		f.mu.Unlock()
		return nil, status.Error(codes.FailedPrecondition, "a commit is pending")
	}
	f.sets = append(f.sets, req)
	n, before, effect := len(f.sets), maps.Clone(f.config), 1.0
	var err error
	if f.fault != nil {
		effect, err = f.fault(n)
	}
	ops := len(req.GetDelete()) + len(req.GetUpdate())
	if f.form == forms || len(req.GetUpdate()) == 0 || f.form == formOf(req.GetUpdate()[0].GetVal()) {
		for i := range int(effect * float64(ops)) {
			if i < len(req.GetDelete()) {
				delete(f.config, yang.PathString(req.GetDelete()[i].GetElem()))
				continue
			}
			u := req.GetUpdate()[i-len(req.GetDelete())]
			f.config[yang.PathString(u.GetPath().GetElem())] = textOf(u.GetVal())
		}
		if f.commits && commit != nil && err == nil {
			f.commit, f.saved = commit.GetId(), before
		}
	} else {
		err = status.Error(codes.InvalidArgument, "this form of a value is not taken")
	}
	onSet := f.onSet
	f.mu.Unlock()
	if onSet != nil {
		onSet(n)
	}
	if errors.Is(err, errHang) {
		<-ctx.Done()
	}
	return &gpb.SetResponse{}, err
}

// errHang makes a Set hang until its client gives up.
var errHang = status.Error(codes.Internal, "hang")

func (f *fake) end(c *extpb.Commit) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case !f.commits:
		return nil
	case f.commit == "":
		return status.Error(codes.FailedPrecondition, "no commit is pending")
	case f.commit != c.GetId():
		return status.Error(codes.InvalidArgument, "another commit is pending")
	case c.GetCancel() != nil:
		f.config = f.saved
	}
	f.commit, f.saved = "", nil
	return nil
}

func formOf(v *gpb.TypedValue) form {
	if json := v.GetJsonIetfVal(); v.GetJsonVal() != nil {
		return plain
	} else if json == nil {
		return typed
	} else if json[0] == '{' {
		return wrapped
	}
	return bare
}

func textOf(v *gpb.TypedValue) string {
	switch x := v.GetValue().(type) {
	case *gpb.TypedValue_UintVal:
		return fmt.Sprint(x.UintVal)
	case *gpb.TypedValue_BoolVal:
		return fmt.Sprint(x.BoolVal)
	case *gpb.TypedValue_StringVal:
		return x.StringVal
	}
	var value any
	_ = json.Unmarshal(append(v.GetJsonIetfVal(), v.GetJsonVal()...), &value)
	if m, ok := value.(map[string]any); ok {
		for _, inner := range m {
			value = inner
		}
	}
	return fmt.Sprint(value)
}

// sessions are fake P4Runtime sessions. A session connects if its device has the right device id.
type sessions struct {
	mu        sync.Mutex
	device    *fake
	suspended bool
	log       []string
	refuse    error
}

func (s *sessions) add(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, what)
	s.suspended = what == "suspend"
}

func (s *sessions) Suspend(string) { s.add("suspend") }
func (s *sessions) Resume(string)  { s.add("resume") }

func (s *sessions) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.log)
}

func (s *sessions) closed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.suspended
}

func (s *sessions) Connected(string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.refuse != nil:
		return s.refuse
	case s.suspended:
		return errors.New("the session is closed")
	case s.device.get(node) != "1":
		return errors.New("Switch does not have a Device ID")
	}
	return nil
}

// rig is a component with one device, leaf1.
type rig struct {
	*Component
	t        *testing.T
	device   *fake
	sessions *sessions
	cfg      *config.Config
	dir      string
	records  Records // records of the cluster; nil without a cluster
	owner    string  // collector that has the device; "" for this one
	onChange func()
	form     func(string) (southbound.Form, bool)
	known    func(context.Context, string)
	now      time.Time
	log      testkit.Log
	mu       sync.Mutex
}

func newRig(t *testing.T, device *fake, mode config.Configure) *rig {
	r := &rig{t: t, device: device, sessions: &sessions{device: device}, dir: t.TempDir(), now: time.Now()}
	r.cfg = &config.Config{
		Devices: []config.Device{{Name: "leaf1", DeviceID: 1, Timeout: 2 * time.Second, GNMI: config.GNMI{
			Address: device.addr, Configure: mode, Ports: []config.DevicePort{{Number: 1, Interface: "Ethernet0"},
				{Number: 2, Interface: "Ethernet4", Description: "to spine1"}}}}},
		Links: []config.Link{{From: config.PortRef{Switch: "leaf1", Port: 1}, To: config.PortRef{Switch: "x",
			Port: 1}}},
		DeviceConfiguration: config.DeviceConfiguration{Directory: r.dir, Interval: time.Hour},
	}
	return r
}

var testSchema = sync.OnceValue(func() *yang.Schema {
	s, err := yang.Load(yang.SwitchModules()...)
	if err != nil {
		panic(err)
	}
	return s
})

func (r *rig) build() {
	r.Component = New(r.cfg, Dependencies{
		Dial: func(d config.Device) (func(...grpc.DialOption) (*grpc.ClientConn, error), error) {
			return func(o ...grpc.DialOption) (*grpc.ClientConn, error) {
				return grpc.NewClient(d.GNMI.Address, append(o, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
			}, nil
		},
		Form: r.form, Known: r.known, Schema: testSchema, Sessions: r.sessions, Logger: r.log.Logger(), Records: r.records,
		Owner: func(string) (string, bool) { r.mu.Lock(); defer r.mu.Unlock(); return r.owner, r.owner == "" },
		OnChange: func() {
			if r.onChange != nil {
				r.onChange()
			}
		},
		Now: func() time.Time { r.mu.Lock(); defer r.mu.Unlock(); return r.now },
		Times: Times{Config: 200 * time.Millisecond, State: 200 * time.Millisecond, Session: 200 * time.Millisecond,
			Known: time.Second, Poll: 10 * time.Millisecond, Retry: 10 * time.Millisecond},
	})
}

// pass moves the clock on.
func (r *rig) pass(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = r.now.Add(d)
}

// start starts a component that is stopped with the test.
func (r *rig) start() *rig {
	r.t.Helper()
	r.build()
	if err := r.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(r.Stop)
	return r
}

func (r *rig) plan() *Plan {
	r.t.Helper()
	plans, err := r.Plan(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return plans[0]
}

// apply makes a plan and carries it out.
func (r *rig) apply() error {
	r.t.Helper()
	_, err := r.Apply(r.t.Context(), r.plan().Digest)
	return err
}

func (r *rig) record() *Record {
	r.t.Helper()
	var keep Records = records(r.dir)
	if r.records != nil {
		keep = r.records
	}
	data, _, err := keep.Load(r.t.Context(), "leaf1")
	var rec *Record
	if err == nil {
		rec, err = parseRecord("leaf1", data)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return rec
}

// until waits for a state.
func (r *rig) until(want State) {
	r.t.Helper()
	testkit.Until(r.t, "state "+string(want), func() bool { s, _ := r.Status("leaf1"); return s.State == want })
}

// settled is the configuration of a fake device that agrees with the file.
func settled() map[string]string {
	return map[string]string{node: "1", eth0 + "id": "1", eth0 + "enabled": "true", eth4 + "id": "2",
		eth4 + "enabled": "true", eth4 + "description": "to spine1",
		"/components/component[name=ic0]/config/name": "ic0"}
}

// expect compares the configuration of the device, without the key leaves of list entries.
func (r *rig) expect(want map[string]string) {
	r.t.Helper()
	got := r.device.all()
	for _, m := range []map[string]string{got, want} {
		maps.DeleteFunc(m, func(path, _ string) bool { return strings.HasSuffix(path, "/config/name") })
	}
	if !maps.Equal(got, want) {
		r.t.Errorf("the device has\n%v\nexpected\n%v", got, want)
	}
}

func copyDir(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(records(from).path("leaf1"))
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err == nil {
		err = os.WriteFile(records(to).path("leaf1"), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// own names the collector that owns the device; "" is this collector.
func (r *rig) own(owner string) {
	r.mu.Lock()
	r.owner = owner
	r.mu.Unlock()
	r.Wake("leaf1")
}

// shared are the records of a cluster in memory.
type shared struct {
	mu       sync.Mutex
	data     map[string][]byte
	revision uint64
	// fault, if set, is called for each Save, which returns the error. With lost set, the record is
	// saved nevertheless.
	fault func(n int) (lost bool, err error)
	saves int
}

func (s *shared) Load(_ context.Context, device string) ([]byte, uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.data[device], s.revision, nil
}

func (s *shared) Save(_ context.Context, device string, data []byte, revision uint64) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saves++
	var lost bool
	var err error
	if s.fault != nil {
		lost, err = s.fault(s.saves)
	}
	if err != nil && !lost {
		return 0, err
	}
	if revision != s.revision {
		return 0, ErrDeposed
	}
	if s.data == nil {
		s.data = map[string][]byte{}
	}
	s.data[device] = data
	s.revision++
	return s.revision, err
}
