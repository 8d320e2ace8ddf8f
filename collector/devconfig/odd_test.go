// SPDX-License-Identifier: Apache-2.0

// Devices whose gNMI servers deviate from the specification: in ways that public bug reports
// describe, and in some others.

package devconfig

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/collector/southbound"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/yang"
)

// odd is a device with a gNMI server. The hooks make the server deviate from the specification.
type odd struct {
	gpb.UnimplementedGNMIServer
	mu    sync.Mutex
	tree  map[string]string // configuration; the state follows
	names [3]string         // names of the interfaces
	addr  string

	encodings []gpb.Encoding                                     // of Capabilities; nil for Unimplemented
	hangs     bool                                               // whether Capabilities hangs
	judge     func(request) error                                // judges each request
	shape     func([]*gpb.Notification) []*gpb.Notification      // changes the notifications of an answer
	value     func(path, v string) *gpb.TypedValue               // writes a value
	answer    func([]*gpb.Notification) []*gpb.SubscribeResponse // orders the answer to a subscription
	bare      bool                                               // the state has only the names of interfaces
	open      bool                                               // whether ONCE is left without sync_response
	takes     func(*gpb.TypedValue) error                        // judges each value of a Set
	rewrite   func(path, v string) string                        // changes a value of a Set
	defaults  bool                                               // whether a deleted "enabled" is shown as true
}

// request is what a device is asked.
type request struct {
	call      string // "once", "stream", "get" or "set"
	prefix    *gpb.Path
	paths     []*gpb.Path
	encoding  gpb.Encoding
	modes     []gpb.SubscriptionMode
	intervals []time.Duration
	kind      gpb.GetRequest_DataType
}

func newOdd(t *testing.T, change func(*odd)) *odd {
	o := &odd{names: [3]string{"Ethernet0", "Ethernet4", "Ethernet8"}, encodings: []gpb.Encoding{gpb.Encoding_JSON_IETF,
		gpb.Encoding_PROTO}}
	change(o)
	o.tree = map[string]string{o.leaf(0, "enabled"): "false", o.leaf(1, "enabled"): "true"}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.addr = lis.Addr().String()
	server := grpc.NewServer()
	gpb.RegisterGNMIServer(server, o)
	go func() { _ = server.Serve(lis) }()
	t.Cleanup(server.Stop)
	return o
}

func (o *odd) leaf(i int, name string) string {
	return at("/interfaces/interface[name=*]/config/", o.names[i]) + name
}

func (o *odd) all() map[string]string {
	o.mu.Lock()
	defer o.mu.Unlock()
	m := maps.Clone(o.tree)
	maps.DeleteFunc(m, func(path, _ string) bool { return strings.HasSuffix(path, "/config/name") })
	return m
}

func withoutModule(name string) string { return name[strings.IndexByte(name, ':')+1:] }

// selected reports whether a request's path selects a leaf.
func selected(prefix, sub *gpb.Path, leaf []*gpb.PathElem) bool {
	elems := slices.Concat(prefix.GetElem(), sub.GetElem())
	if len(elems) > len(leaf) {
		return false
	}
	for i, e := range elems {
		if withoutModule(e.GetName()) != leaf[i].GetName() {
			return false
		}
		for k, v := range e.GetKey() {
			if v != "*" && v != leaf[i].GetKey()[k] {
				return false
			}
		}
	}
	return true
}

// notes returns the leaves that a request selects, a notification for each entry.
func (o *odd) notes(r request) []*gpb.Notification {
	o.mu.Lock()
	defer o.mu.Unlock()
	leaves := map[string]string{"/components/component[name=ic0]/state/type": "INTEGRATED_CIRCUIT"}
	for _, name := range o.names {
		state := at("/interfaces/interface[name=*]/state/", name)
		leaves[state+"name"] = name
		if !o.bare {
			leaves[state+"oper-status"], leaves[state+"enabled"] = "UP", "true"
		}
	}
	for path, v := range o.tree {
		leaves[path], leaves[strings.Replace(path, "/config/", "/state/", 1)] = v, v
	}
	byEntry := map[string]*gpb.Notification{}
	for _, path := range slices.Sorted(maps.Keys(leaves)) {
		p := gnmiPath(path)
		isConfig := strings.Contains(path, "/config/")
		if !slices.ContainsFunc(r.paths, func(sub *gpb.Path) bool { return selected(r.prefix, sub, p.GetElem()) }) ||
			r.kind == gpb.GetRequest_CONFIG && !isConfig || r.kind == gpb.GetRequest_STATE && isConfig {
			continue
		}
		entry := yang.PathString(p.GetElem()[:2])
		if byEntry[entry] == nil {
			byEntry[entry] = &gpb.Notification{Timestamp: time.Now().UnixNano()}
		}
		val := &gpb.TypedValue{Value: &gpb.TypedValue_StringVal{StringVal: leaves[path]}}
		if r.encoding != gpb.Encoding_PROTO {
			data, _ := json.Marshal(leaves[path])
			val = &gpb.TypedValue{Value: &gpb.TypedValue_JsonIetfVal{JsonIetfVal: data}}
		}
		if o.value != nil {
			val = o.value(path, leaves[path])
		}
		byEntry[entry].Update = append(byEntry[entry].Update, &gpb.Update{Path: p, Val: val})
	}
	var out []*gpb.Notification
	for _, entry := range slices.Sorted(maps.Keys(byEntry)) {
		out = append(out, byEntry[entry])
	}
	if o.shape != nil {
		out = o.shape(out)
	}
	return out
}

func (o *odd) admit(r request) error {
	if o.judge == nil {
		return nil
	}
	return o.judge(r)
}

func (o *odd) Capabilities(ctx context.Context, _ *gpb.CapabilityRequest) (*gpb.CapabilityResponse, error) {
	switch {
	case o.hangs:
		<-ctx.Done()
		return nil, ctx.Err()
	case o.encodings == nil:
		return nil, status.Error(codes.Unimplemented, "no Capabilities")
	}
	return &gpb.CapabilityResponse{SupportedEncodings: o.encodings}, nil
}

func (o *odd) Subscribe(stream gpb.GNMI_SubscribeServer) error {
	req, err := stream.Recv()
	if err != nil {
		return err
	}
	list := req.GetSubscribe()
	r := request{call: "stream", prefix: list.GetPrefix(), encoding: list.GetEncoding()}
	if list.GetMode() == gpb.SubscriptionList_ONCE {
		r.call = "once"
	}
	for _, s := range list.GetSubscription() {
		r.paths, r.modes = append(r.paths, s.GetPath()), append(r.modes, s.GetMode())
		r.intervals = append(r.intervals, time.Duration(s.GetSampleInterval()))
	}
	switch err := o.admit(r); {
	case status.Code(err) == codes.OutOfRange: // the device ends the stream without an error
		return nil
	case err != nil:
		return err
	}
	answer := inOrder
	if o.answer != nil {
		answer = o.answer
	}
	for _, m := range answer(o.notes(r)) {
		if o.open && r.call == "once" && m.GetSyncResponse() {
			continue
		}
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	if r.call == "stream" || o.open {
		<-stream.Context().Done()
	}
	return nil
}

func inOrder(notes []*gpb.Notification) (out []*gpb.SubscribeResponse) {
	for _, n := range notes {
		out = append(out, &gpb.SubscribeResponse{Response: &gpb.SubscribeResponse_Update{Update: n}})
	}
	return append(out, synced())
}

func synced() *gpb.SubscribeResponse {
	return &gpb.SubscribeResponse{Response: &gpb.SubscribeResponse_SyncResponse{SyncResponse: true}}
}

func (o *odd) Get(_ context.Context, req *gpb.GetRequest) (*gpb.GetResponse, error) {
	r := request{call: "get", prefix: req.GetPrefix(), paths: req.GetPath(), encoding: req.GetEncoding(),
		kind: req.GetType()}
	if err := o.admit(r); err != nil {
		return nil, err
	}
	return &gpb.GetResponse{Notification: o.notes(r)}, nil
}

func (o *odd) Set(_ context.Context, req *gpb.SetRequest) (*gpb.SetResponse, error) {
	r := request{call: "set", prefix: req.GetPrefix(), paths: req.GetDelete()}
	for _, u := range req.GetUpdate() {
		r.paths = append(r.paths, u.GetPath())
		if o.takes != nil {
			if err := o.takes(u.GetVal()); err != nil {
				return nil, err
			}
		}
	}
	if err := o.admit(r); err != nil && len(r.paths) > 0 {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	text := func(p *gpb.Path) string {
		var elems []*gpb.PathElem
		for _, e := range p.GetElem() {
			elems = append(elems, &gpb.PathElem{Name: withoutModule(e.GetName()), Key: e.GetKey()})
		}
		return yang.PathString(elems)
	}
	for _, d := range req.GetDelete() {
		delete(o.tree, text(d))
		if o.defaults && strings.HasSuffix(text(d), "/enabled") {
			o.tree[text(d)] = "true"
		}
	}
	for _, u := range req.GetUpdate() {
		path, v := text(u.GetPath()), textOf(u.GetVal())
		if o.rewrite != nil {
			v = o.rewrite(path, v)
		}
		o.tree[path] = v
	}
	return &gpb.SetResponse{}, nil
}

// odds are the deviating devices, each with the source of its behavior.
var odds = map[string]func(*odd){
	"nothing odd": func(*odd) {},
	// influxdata/telegraf 12273, Huawei
	"an empty prefix is refused": func(o *odd) {
		o.judge = func(r request) error {
			if r.prefix != nil {
				return status.Error(codes.InvalidArgument, "Argument 'elem' error.")
			}
			return nil
		}
	},
	// openconfig/gnmic 40, Cumulus; subscribe.go of openconfig/gnmi
	"a prefix with a target is needed": func(o *odd) {
		o.judge = func(r request) error {
			switch target := r.prefix.GetTarget(); {
			case r.prefix == nil:
				return status.Error(codes.InvalidArgument, "request must contain a prefix")
			case target == "":
				return status.Error(codes.InvalidArgument, "missing target")
			case target != "*" && target != "dut":
				return status.Errorf(codes.NotFound, "no such target: %q", target)
			}
			return nil
		}
	},
	// documents of SONiC's management framework
	"a target and names of modules are needed": func(o *odd) {
		o.judge = func(r request) error {
			if r.prefix.GetTarget() != "OC-YANG" {
				return status.Error(codes.Unimplemented, "Empty target data not supported yet")
			}
			for _, p := range r.paths {
				if !strings.Contains(p.GetElem()[0].GetName(), ":") {
					return status.Error(codes.InvalidArgument, "Invalid URI")
				}
			}
			return nil
		}
	},
	// influxdata/telegraf 14670, IOS XE
	"keys are needed": func(o *odd) {
		o.judge = func(r request) error {
			for _, p := range r.paths {
				if e := p.GetElem(); e[0].GetName() == "interfaces" && len(e[1].GetKey()) == 0 {
					return status.Error(codes.InvalidArgument, "Subscription to filter '/oc-if:interfaces/interface/state' has "+
						"missing keys. All key values must be specified for parent lists.")
				}
			}
			return nil
		}
	},
	// akarneliuk/pygnmi 145, IOS XR 7.10.2
	"origins of prefix and path must agree": func(o *odd) {
		o.judge = func(r request) error {
			for _, p := range r.paths {
				if r.prefix != nil && r.prefix.GetOrigin() != p.GetOrigin() {
					return status.Error(codes.Internal, "prefix and path origins do not match")
				}
			}
			return nil
		}
	},
	// sonic-net/sonic-gnmi: the shortest interval is 30 s, and only SAMPLE is served
	"long sample intervals": func(o *odd) {
		o.judge = func(r request) error {
			for i, interval := range r.intervals {
				if r.call == "stream" && (r.modes[i] != gpb.SubscriptionMode_SAMPLE || interval > 0 && interval < 30*time.Second) {
					return status.Error(codes.InvalidArgument, "the shortest SampleInterval is 30s")
				}
			}
			return nil
		}
	},
	// openconfig/gnmi-gateway 22, IOS XR; this device does not serve Capabilities, either
	"only PROTO, and no Capabilities": func(o *odd) {
		o.encodings = nil
		o.judge = func(r request) error {
			if r.call != "set" && r.encoding != gpb.Encoding_PROTO {
				return status.Errorf(codes.Unimplemented, "gNMI: subscribe: unsupported encoding: %s", r.encoding)
			}
			return nil
		}
	},
	// cisco-ie/pipeline-gnmi 57, IOS XE
	"only JSON, no origin, and other Capabilities": func(o *odd) {
		o.judge = func(r request) error {
			if r.call != "set" && r.encoding != gpb.Encoding_JSON {
				return status.Errorf(codes.Unimplemented, "Requested encoding %q not supported", r.encoding)
			}
			for _, p := range r.paths {
				if p.GetOrigin() != "" {
					return status.Error(codes.InvalidArgument, "unknown origin")
				}
			}
			return nil
		}
		o.takes = func(v *gpb.TypedValue) error {
			if v.GetJsonVal() == nil {
				return status.Error(codes.Unknown, "only json_val")
			}
			return nil
		}
	},
	// sdcio/data-server 442: "not supported val type"
	"only protobuf values in a Set": func(o *odd) {
		o.takes = func(v *gpb.TypedValue) error {
			if v.GetJsonVal() != nil || v.GetJsonIetfVal() != nil {
				return status.Error(codes.Internal, "not supported val type: 11")
			}
			return nil
		}
	},
	"Capabilities hangs": func(o *odd) { o.hangs = true },
	// influxdata/telegraf 12831, 16507
	"names of modules everywhere": func(o *odd) {
		o.shape = func(notes []*gpb.Notification) []*gpb.Notification {
			for _, n := range notes {
				for _, u := range n.Update {
					for _, e := range u.Path.Elem {
						keys := map[string]string{}
						for k, v := range e.Key {
							keys["openconfig-interfaces:"+k] = v
						}
						e.Name, e.Key = "openconfig-interfaces:"+e.Name, keys
					}
				}
				n.Prefix = &gpb.Path{Elem: n.Update[0].Path.Elem[:2], Origin: "openconfig-interfaces", Target: "someone"}
				for _, u := range n.Update {
					u.Path = &gpb.Path{Elem: u.Path.Elem[2:]}
				}
			}
			return notes
		}
	},
	"paths of gNMI before 0.4": func(o *odd) {
		o.shape = func(notes []*gpb.Notification) []*gpb.Notification {
			for _, n := range notes {
				for _, u := range n.Update {
					old := &gpb.Path{}
					for _, e := range u.Path.Elem {
						text := strings.TrimPrefix(yang.PathString([]*gpb.PathElem{e}), "/")
						old.Element = append(old.Element, text) //nolint:staticcheck // as the device sends it
					}
					u.Path = old
				}
			}
			return notes
		}
	},
	// openconfig/featureprofiles 3265, Junos: Get has no type ALL
	"Get by type, and no ONCE": func(o *odd) {
		o.judge = func(r request) error {
			switch {
			case r.call == "once":
				return status.Error(codes.Unimplemented, "ONCE is not served")
			case r.call == "get" && r.kind == gpb.GetRequest_ALL:
				return status.Error(codes.Unimplemented, "Unsupported 'type' for /gnmi.gNMI/Get request")
			}
			return nil
		}
	},
	// openconfig/gnmic 502
	"ONCE without sync_response": func(o *odd) { o.open = true },
	"an unknown origin ends the stream": func(o *odd) {
		o.judge = func(r request) error {
			for _, p := range r.paths {
				if p.GetOrigin() != "" {
					return status.Error(codes.OutOfRange, "")
				}
			}
			return nil
		}
	},
	"values of other types": func(o *odd) {
		o.value = func(path, v string) *gpb.TypedValue {
			one := &gpb.TypedValue{Value: &gpb.TypedValue_StringVal{StringVal: v}}
			switch {
			case strings.HasSuffix(path, "/id"):
				return &gpb.TypedValue{Value: &gpb.TypedValue_DoubleVal{DoubleVal: float64(v[0] - '0')}}
			case strings.HasSuffix(path, "/node-id"):
				return &gpb.TypedValue{Value: &gpb.TypedValue_DecimalVal{ // devices still send it
					DecimalVal: &gpb.Decimal64{Digits: int64(v[0]-'0') * 100, Precision: 2}}} //nolint:staticcheck // the same
			case strings.HasSuffix(path, "/enabled"):
				return &gpb.TypedValue{Value: &gpb.TypedValue_IntVal{IntVal: int64(map[string]int{"true": 1}[v])}}
			}
			return &gpb.TypedValue{Value: &gpb.TypedValue_LeaflistVal{LeaflistVal: &gpb.ScalarArray{
				Element: []*gpb.TypedValue{one}}}}
		}
	},
	"one JSON value for everything": func(o *odd) { o.shape = oneJSON },
	"names with separators": func(o *odd) {
		o.names = [3]string{`et-0/0/1:2[a=b]`, `Vlan "7"\`, "port 1/[x]:"}
	},
	"interfaces that have only a name": func(o *odd) { o.bare = true },
	"the origin rfc7951": func(o *odd) {
		o.shape = func(notes []*gpb.Notification) []*gpb.Notification {
			for _, n := range notes {
				n.Prefix = &gpb.Path{Origin: "rfc7951"}
			}
			return notes
		}
	},
	// karimra/gnmic 303, onosproject/onos-config 1038
	"timestamps in seconds, in the future and missing": func(o *odd) {
		o.shape = func(notes []*gpb.Notification) []*gpb.Notification {
			for i, n := range notes {
				n.Timestamp = []int64{time.Now().Unix(), time.Now().AddDate(10, 0, 0).UnixNano(), 0}[i%3]
			}
			return notes
		}
	},
	"syncs, empty messages and a delete of everything before the values": func(o *odd) {
		o.answer = func(notes []*gpb.Notification) []*gpb.SubscribeResponse {
			n := &gpb.Notification{Prefix: &gpb.Path{Target: "x"}, Delete: []*gpb.Path{{}}}
			head := []*gpb.SubscribeResponse{{Response: &gpb.SubscribeResponse_Update{Update: n}}, {},
				{Response: &gpb.SubscribeResponse_Update{Update: &gpb.Notification{}}},
				{Response: &gpb.SubscribeResponse_Update{}}}
			return slices.Concat(head, inOrder(notes), []*gpb.SubscribeResponse{synced(), {}})
		}
	},
	"values of its command line at the same paths": func(o *odd) {
		o.shape = func(notes []*gpb.Notification) (out []*gpb.Notification) {
			for _, n := range notes {
				fake := proto.CloneOf(n)
				fake.Prefix = &gpb.Path{Origin: "cli"}
				for _, u := range fake.Update {
					u.Val = &gpb.TypedValue{Value: &gpb.TypedValue_StringVal{StringVal: "77"}}
				}
				out = append(out, n, fake)
			}
			return out
		}
	},
	"every value twice, one a message": func(o *odd) {
		o.shape = func(notes []*gpb.Notification) (out []*gpb.Notification) {
			for _, n := range notes {
				for _, u := range n.Update {
					u.Duplicates = 3
					one := &gpb.Notification{Timestamp: n.Timestamp, Update: []*gpb.Update{u}}
					out = append(out, one, one)
				}
			}
			slices.Reverse(out)
			return out
		}
	},
	"older values after the newer ones": func(o *odd) {
		o.shape = func(notes []*gpb.Notification) (out []*gpb.Notification) {
			for _, n := range notes {
				old := proto.CloneOf(n)
				old.Timestamp -= int64(time.Minute)
				for _, u := range old.Update {
					if !strings.HasSuffix(yang.NamesOf(u.Path.Elem), "/type") {
						u.Val = &gpb.TypedValue{Value: &gpb.TypedValue_StringVal{StringVal: "4"}}
					}
				}
				out = append(out, n, old)
			}
			return out
		}
	},
	// influxdata/telegraf 15500, Junos
	"atomic notifications in parts": func(o *odd) {
		o.shape = func(notes []*gpb.Notification) (out []*gpb.Notification) {
			for _, n := range notes {
				for _, u := range n.Update {
					out = append(out, &gpb.Notification{Timestamp: n.Timestamp, Atomic: true,
						Prefix: &gpb.Path{Elem: u.Path.Elem[:2]}, Update: []*gpb.Update{{Path: &gpb.Path{Elem: u.Path.Elem[2:]},
							Val: u.Val}}})
				}
			}
			return out
		}
	},
	"slow": func(o *odd) {
		o.judge = func(request) error {
			time.Sleep(300 * time.Millisecond)
			return nil
		}
	},
	"half of the paths are refused": func(o *odd) {
		o.judge = func(r request) error {
			for _, p := range r.paths {
				if s := yang.NamesOf(p.GetElem()); strings.Contains(s, "/lldp") || strings.Contains(s, "/hardware-port") ||
					r.call != "set" && (strings.Contains(s, "/description") || strings.HasSuffix(s, "/component/config")) {
					return status.Error(codes.Unknown, "no such element")
				}
			}
			return nil
		}
	},
}

// oneJSON puts all leaves of interfaces into one JSON value, in the encoding JSON_IETF.
func oneJSON(notes []*gpb.Notification) (out []*gpb.Notification) {
	entries := map[string]map[string]any{}
	for _, n := range notes {
		for _, u := range n.Update {
			e := u.Path.Elem
			if e[0].Name != "interfaces" {
				out = append(out, &gpb.Notification{Timestamp: n.Timestamp, Update: []*gpb.Update{u}})
				continue
			}
			name := e[1].Key["name"]
			if entries[name] == nil {
				entries[name] = map[string]any{"openconfig-interfaces:name": name, "vendor:thing": nil,
					"ethernet": map[string]any{}}
			}
			inner, _ := entries[name][e[2].Name].(map[string]any)
			if inner == nil {
				inner = map[string]any{"loopback-mode": nil}
				entries[name][e[2].Name] = inner
			}
			inner["vendor:"+e[3].Name] = textOf(u.Val)
		}
	}
	list := slices.Collect(maps.Values(entries))
	data, _ := json.Marshal(map[string]any{"openconfig-interfaces:interface": list})
	return append(out, &gpb.Notification{Timestamp: time.Now().UnixNano(), Update: []*gpb.Update{{
		Path: &gpb.Path{Elem: []*gpb.PathElem{{Name: "interfaces"}}},
		Val:  &gpb.TypedValue{Value: &gpb.TypedValue_JsonIetfVal{JsonIetfVal: data}}}}})
}

// oddRig is a component for an odd device.
func oddRig(t *testing.T, o *odd) *rig {
	r := newRig(t, &fake{addr: o.addr}, config.ConfigureApply)
	r.cfg.Devices[0].Timeout = time.Second
	for i := range r.cfg.Devices[0].GNMI.Ports {
		r.cfg.Devices[0].GNMI.Ports[i].Interface = o.names[i]
	}
	return r.start()
}

// Each deviating device is read, configured and reverted; after it is configured, everything is in
// effect.
func TestOddDevices(t *testing.T) {
	for name, change := range odds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOdd(t, change)
			before := o.all()
			r := oddRig(t, o)
			r.sessions.device = &fake{config: map[string]string{node: "1"}}
			if p := r.plan(); p.Error != "" || p.Refused() {
				t.Fatalf("plan\n%s%s", shown(p), p.Error)
			}
			if err := r.apply(); err != nil {
				t.Fatal(err)
			}
			want := map[string]string{node: "1", o.leaf(0, "id"): "1", o.leaf(0, "enabled"): "true", o.leaf(1, "id"): "2",
				o.leaf(1, "enabled"): "true", o.leaf(1, "description"): "to spine1"}
			if got := o.all(); !maps.Equal(got, want) {
				t.Errorf("the device has\n%v\nexpected\n%v", got, want)
			}
			if p := r.plan(); len(p.Changes) > 0 {
				t.Errorf("after apply\n%s", shown(p))
			}
			reads(t, o)
			if restored, err := r.Revert(t.Context(), "leaf1"); err != nil || !restored {
				t.Fatal(restored, err)
			}
			if got := o.all(); !maps.Equal(got, before) {
				t.Errorf("after revert the device has\n%v\nexpected\n%v", got, before)
			}
		})
	}
}

// reads opens a session, and expects the ports and the device id of a configured device.
func reads(t *testing.T, o *odd) {
	t.Helper()
	s, err := southbound.NewSession(southbound.SessionConfig{Name: "leaf1", Endpoint: southbound.Endpoint{Address: o.addr},
		Schema: testSchema, Publish: func(store.Batch) error { return nil }, CallTimeout: 500 * time.Millisecond,
		BackoffBase: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	s.Start(t.Context())
	defer s.Close()
	var f southbound.Facts
	ports := func() string {
		var out []string
		for _, p := range f.Ports {
			out = append(out, fmt.Sprintf("%s %d", p.Name, p.ID))
		}
		return strings.Join(out, ", ")
	}
	want := []string{o.names[0] + " 1", o.names[1] + " 2", o.names[2] + " 0"}
	if o.bare { // nothing is known of the third port
		want = want[:2]
	}
	slices.Sort(want)
	testkit.Until(t, "the ports", func() bool {
		f = s.Facts()
		return s.Status().State == southbound.Synced && ports() == strings.Join(want, ", ") && slices.Equal(f.DeviceIDs,
			[]uint64{1})
	})
	if t.Failed() {
		t.Errorf("status %+v, ports %s, device ids %v", s.Status(), ports(), f.DeviceIDs)
	}
}

// A device stores another value than the Set has. The change is taken back, and the log names the
// leaves that cannot be restored.
func TestRewrittenValues(t *testing.T) {
	upper := func(path, v string) string {
		if strings.HasSuffix(path, "/description") {
			return strings.ToUpper(v)
		}
		return v
	}
	o := newOdd(t, func(o *odd) { o.rewrite = upper })
	before := o.all()
	r := oddRig(t, o)
	want := o.leaf(1, "description") + ` has "TO SPINE1" instead of "to spine1"`
	if err := r.apply(); err == nil || !strings.Contains(err.Error(), "is as before") || !strings.Contains(err.Error(),
		want) {
		t.Errorf("error %v; expected %q", err, want)
	}
	if got := o.all(); !maps.Equal(got, before) {
		t.Errorf("the device has\n%v\nexpected\n%v", got, before)
	}
	o.tree[o.leaf(1, "description")] = "by hand"
	err := r.apply()
	want = o.leaf(1, "description") + ` has "BY HAND"`
	if err == nil || !strings.Contains(err.Error(), "is not as before") || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v; expected %q", err, want)
	}
}

// A device shows the default value of a leaf that was deleted from its configuration. Undoing a
// change and reverting to the original values both finish, although the leaf was absent originally.
func TestDefaultsAreShown(t *testing.T) {
	o := newOdd(t, func(o *odd) {
		o.defaults, o.bare = true, true
		o.rewrite = func(path, v string) string {
			if strings.HasSuffix(path, "/description") {
				return "another text"
			}
			return v
		}
	})
	o.tree = map[string]string{}
	shown := map[string]string{o.leaf(0, "enabled"): "true", o.leaf(1, "enabled"): "true"}
	r := oddRig(t, o)
	r.sessions.device = &fake{config: map[string]string{node: "1"}}
	if err := r.apply(); err == nil || !strings.Contains(err.Error(), "leaf1 is as before") {
		t.Errorf("error %v", err)
	}
	if got := o.all(); !maps.Equal(got, shown) {
		t.Errorf("after the undo the device has\n%v\nexpected\n%v", got, shown)
	}

	o.mu.Lock()
	o.rewrite, o.tree = nil, map[string]string{}
	o.mu.Unlock()
	if err := r.apply(); err != nil {
		t.Fatal(err)
	}
	if restored, err := r.Revert(t.Context(), "leaf1"); err != nil || !restored {
		t.Errorf("restored %v, error %v", restored, err)
	}
	if got := o.all(); !maps.Equal(got, shown) {
		t.Errorf("after the revert the device has\n%v\nexpected\n%v", got, shown)
	}
}
