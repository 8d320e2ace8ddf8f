// SPDX-License-Identifier: Apache-2.0

package switchgnmi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/openconfig/ygot/ygot"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/outputs/gnmi/server"
	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/p4/softswitch/lldp"
)

// network is two real switches, Ethernet1 of leaf joined to Ethernet2 of spine.
type network struct {
	leaf, spine *softswitch.Switch
	lldp        [2]*lldp.Agent
	api         [2]gpb.GNMIClient
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{leaf: softswitch.New(softswitch.Config{Name: "leaf"}),
		spine: softswitch.New(softswitch.Config{Name: "spine"})}
	join := func(from *softswitch.Switch, id uint32, to *softswitch.Switch, at uint32) {
		err := from.AddPort(id, softswitch.Port{Name: fmt.Sprintf("Ethernet%d", id), Speed: 10e9,
			Tx: func(pkt []byte, when time.Duration) { to.Inject(at, pkt, when) }})
		if err != nil {
			t.Fatal(err)
		}
	}
	join(n.leaf, 1, n.spine, 2)
	join(n.spine, 2, n.leaf, 1)
	for i, sw := range []*softswitch.Switch{n.leaf, n.spine} {
		name := []string{"leaf", "spine"}[i]
		n.lldp[i] = lldp.New(sw, lldp.Config{SystemName: name, SystemDescription: "a switch"})
		n.api[i] = serve(t, sw, Options{Name: name, DeviceID: uint64(7 + i), Version: "1.2", LLDP: n.lldp[i],
			Interval: time.Hour})
		t.Cleanup(func() {
			n.lldp[i].Close()
			sw.Close()
		})
	}
	return n
}

func (n *network) tick() {
	n.lldp[0].Tick()
	n.lldp[1].Tick()
}

func parse(t *testing.T, p string) *gpb.Path {
	t.Helper()
	path, err := ygot.StringToStructuredPath(p)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// leaves gets what is at and below a path, as "path=value" lines without the path.
func leaves(t *testing.T, c gpb.GNMIClient, p string) map[string]string {
	t.Helper()
	resp, err := c.Get(t.Context(), &gpb.GetRequest{Encoding: gpb.Encoding_PROTO, Path: []*gpb.Path{parse(t, p)}})
	if status.Code(err) == codes.NotFound {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, note := range resp.GetNotification() {
		for _, u := range note.GetUpdate() {
			s, err := ygot.PathToString(&gpb.Path{Elem: append(append([]*gpb.PathElem{}, note.GetPrefix().GetElem()...),
				u.GetPath().GetElem()...)})
			if err != nil {
				t.Fatal(err)
			}
			v := u.GetVal().ProtoReflect()
			f := v.WhichOneof(v.Descriptor().Oneofs().ByName("value"))
			out[s] = v.Get(f).String()
		}
	}
	return out
}

func TestNeighborsComponentsSystem(t *testing.T) {
	n := newNetwork(t)
	n.tick()
	got := leaves(t, n.api[0], "/")
	for path, want := range map[string]string{
		"/lldp/interfaces/interface[name=Ethernet1]/neighbors/neighbor[id=1]/state/system-name":     "spine",
		"/lldp/interfaces/interface[name=Ethernet1]/neighbors/neighbor[id=1]/state/port-id":         "Ethernet2",
		"/lldp/interfaces/interface[name=Ethernet1]/neighbors/neighbor[id=1]/state/port-id-type":    "INTERFACE_NAME",
		"/lldp/interfaces/interface[name=Ethernet1]/neighbors/neighbor[id=1]/state/chassis-id-type": "MAC_ADDRESS",
		"/lldp/interfaces/interface[name=Ethernet1]/neighbors/neighbor[id=1]/state/ttl":             "120",
		"/lldp/interfaces/interface[name=Ethernet1]/state/counters/frame-in":                        "1",
		"/lldp/interfaces/interface[name=Ethernet1]/config/enabled":                                 "true",
		"/lldp/state/system-name":                                                          "leaf",
		"/lldp/state/hello-timer":                                                          "30",
		"/components/component[name=chassis]/state/type":                                   "CHASSIS",
		"/components/component[name=port1]/state/oper-status":                              "ACTIVE",
		"/components/component[name=integrated-circuit0]/integrated-circuit/state/node-id": "7",
		"/components/component[name=os]/state/software-version":                            "1.2",
		"/system/state/hostname":                                                           "leaf",
		"/system/config/hostname":                                                          "leaf",
		"/system/state/software-version":                                                   "1.2",
		"/interfaces/interface[name=Ethernet1]/state/counters/in-multicast-pkts":           "1",
		"/interfaces/interface[name=Ethernet1]/state/id":                                   "1",
	} {
		if got[path] != want {
			t.Errorf("%s is %q; expected %q", path, got[path], want)
		}
	}
	chassis := got["/lldp/interfaces/interface[name=Ethernet1]/neighbors/neighbor[id=1]/state/chassis-id"]
	if other := leaves(t, n.api[1], "/lldp/state/chassis-id")["/lldp/state/chassis-id"]; chassis == "" ||
		chassis != other {
		t.Errorf("leaf receives chassis %q; spine is %q", chassis, other)
	}
	for _, p := range []string{"/system/state/current-datetime", "/system/state/boot-time"} {
		if got[p] == "" {
			t.Errorf("no %s", p)
		}
	}
	// A path with the keys of both lists reaches one neighbor, and a wildcard all.
	for _, p := range []string{"/lldp/interfaces/interface[name=Ethernet1]/neighbors/neighbor[id=1]/state/ttl",
		"/lldp/interfaces/interface[name=*]/neighbors/neighbor[id=*]/state/ttl"} {
		if got := leaves(t, n.api[0], p); len(got) != 1 {
			t.Errorf("%s: %v", p, got)
		}
	}
	if got := leaves(t, n.api[0], "/lldp/interfaces/interface[name=Ethernet9]/neighbors"); len(got) != 0 {
		t.Errorf("a port that is not there: %v", got)
	}
}

func set(p, json string) *gpb.Update {
	path, err := ygot.StringToStructuredPath(p)
	if err != nil {
		panic(err)
	}
	return &gpb.Update{Path: path, Val: &gpb.TypedValue{Value: &gpb.TypedValue_JsonIetfVal{JsonIetfVal: []byte(json)}}}
}

func TestSet(t *testing.T) {
	n := newNetwork(t)
	c := n.api[0]
	const e1 = "/interfaces/interface[name=Ethernet1]"
	do := func(req *gpb.SetRequest) {
		t.Helper()
		if _, err := c.Set(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(want map[string]string) {
		t.Helper()
		got := leaves(t, c, "/")
		for p, v := range want {
			if got[p] != v {
				t.Errorf("%s is %q; expected %q", p, got[p], v)
			}
		}
	}
	do(&gpb.SetRequest{Update: []*gpb.Update{
		set(e1+"/config", `{"name":"Ethernet1","enabled":false,"description":"to spine"}`),
		set("/system/config/hostname", `"leaf-1"`)}})
	expect(map[string]string{
		e1 + "/config/enabled": "false", e1 + "/state/enabled": "false", e1 + "/state/admin-status": "DOWN",
		e1 + "/state/oper-status": "DOWN",
		e1 + "/state/description": "to spine", "/system/state/hostname": "leaf-1", "/lldp/state/system-name": "leaf-1",
		"/components/component[name=port1]/state/oper-status": "DISABLED",
	})
	if st, _ := n.leaf.PortStatus(1); st.Up || !st.Disabled {
		t.Errorf("the switch's port is %+v", st)
	}
	// The link coming up does not enable the port; only Set does.
	_ = n.leaf.SetPortUp(1, true)
	expect(map[string]string{e1 + "/state/oper-status": "DOWN"})
	do(&gpb.SetRequest{Replace: []*gpb.Update{set(e1+"/config", `{"description":"again"}`)}})
	expect(map[string]string{e1 + "/config/enabled": "true", e1 + "/state/oper-status": "UP",
		e1 + "/config/description": "again"})
	do(&gpb.SetRequest{Delete: []*gpb.Path{parse(t, "/interfaces"), parse(t, "/system/config/hostname"),
		parse(t, "/interfaces/interface[name=Ethernet9]")}})
	expect(map[string]string{e1 + "/config/description": "", "/system/state/hostname": "leaf"})

	n.tick()
	do(&gpb.SetRequest{Update: []*gpb.Update{set("/lldp/interfaces/interface[name=Ethernet1]/config/enabled",
		"false")}})
	n.tick()
	if got := leaves(t, n.api[1], "/lldp/interfaces/interface[name=Ethernet2]/neighbors"); len(got) != 0 {
		t.Errorf("LLDP is off and leaf is still a neighbor: %v", got)
	}
	do(&gpb.SetRequest{Update: []*gpb.Update{set("/lldp",
		`{"config":{"enabled":false},"interfaces":{"interface":[{"name":"Ethernet1","config":{"enabled":true}}]}}`)}})
	expect(map[string]string{"/lldp/state/enabled": "false",
		"/lldp/interfaces/interface[name=Ethernet1]/state/enabled": "true"})
	do(&gpb.SetRequest{Replace: []*gpb.Update{set("/lldp", `{}`)}})
	expect(map[string]string{"/lldp/state/enabled": "true"})
}

// TestSetRefused checks that an error names the path and that nothing of the request is applied.
func TestSetRefused(t *testing.T) {
	n := newNetwork(t)
	const e1 = "/interfaces/interface[name=Ethernet1]"
	good := set(e1+"/config/description", `"changed"`)
	for _, tt := range []struct {
		bad  *gpb.Update
		code codes.Code
		want string
	}{
		{set("/interfaces/interface[name=Ethernet9]/config/enabled", "false"), codes.InvalidArgument,
			`no interface "Ethernet9"; it has Ethernet1`},
		{set("/lldp/interfaces/interface[name=Ethernet9]/config/enabled", "false"), codes.InvalidArgument,
			`no interface "Ethernet9"`},
		{set(e1+"/config/type", `"iana-if-type:l2vlan"`), codes.InvalidArgument,
			e1 + `/config/type: "l2vlan" cannot be applied; expected iana-if-type:ethernetCsmacd`},
		{set(e1+"/config/type", `"iana-if-type:nonsense"`), codes.InvalidArgument, e1 + "/config/type"},
		{set(e1+"/config/type", "6"), codes.InvalidArgument, "is a number"},
		{set(e1+"/config/name", `"Ethernet2"`), codes.InvalidArgument, "Ethernet2"},
		{set(e1, `{"config":{"name":"Ethernet2"}}`), codes.InvalidArgument, "Ethernet2"},
		{set("/lldp/interfaces/interface[name=Ethernet1]/config/name", `"Ethernet2"`), codes.InvalidArgument,
			"Ethernet2"},
		{set(e1+"/config/enabled", "3"), codes.InvalidArgument, e1 + "/config/enabled"},
		{set(e1+"/config/enabled", `"false"`), codes.InvalidArgument, "the leaf is a boolean"},
		{set(e1+"/config/description", "7"), codes.InvalidArgument, "the leaf is a string"},
		{set(e1+"/config/description", `"`+strings.Repeat("x", 256)+`"`), codes.InvalidArgument,
			e1 + "/config/description: the value has 256 bytes; expected at most 255"},
		{set(e1+"/config/mtu", "70000"), codes.InvalidArgument, e1 + "/config/mtu"},
		{set(e1+"/config/mtu", "-1"), codes.InvalidArgument, e1 + "/config/mtu"},
		{set(e1+"/config/mtu", "1500"), codes.Unimplemented, e1 + "/config/mtu cannot be set"},
		{set("/lldp/config/hello-timer", `"5"`), codes.Unimplemented, "/lldp/config/hello-timer cannot be set"},
		{set("/system/config/hostname", `"-"`), codes.InvalidArgument, "/system/config/hostname"},
		{set("/system/state/hostname", `"x"`), codes.InvalidArgument, "is state"},
	} {
		_, err := n.api[0].Set(t.Context(), &gpb.SetRequest{Update: []*gpb.Update{good, tt.bad}})
		if status.Code(err) != tt.code || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v; expected %s with %q", tt.bad, err, tt.code, tt.want)
		}
	}
	if got := leaves(t, n.api[0], e1+"/config/description"); len(got) != 0 {
		t.Errorf("a refused Set has changed %v", got)
	}
}

// TestSetWithoutLLDP checks that a switch without agent has no LLDP configuration.
func TestSetWithoutLLDP(t *testing.T) {
	c := serve(t, newPorts(), Options{})
	_, err := c.Set(t.Context(), &gpb.SetRequest{Update: []*gpb.Update{set("/lldp/config/enabled", "false")}})
	if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(),
		"/lldp/config/enabled cannot be set: this switch has no LLDP agent") {
		t.Error(err)
	}
}

// TestSettingsAreTyped decodes leaves as they would arrive from a reader that checks nothing: the
// generated structs alone reject a wrong type, range, pattern, identity or key.
func TestSettingsAreTyped(t *testing.T) {
	const e1 = "/interfaces/interface[name=Ethernet1]/config/"
	decode := func(path string, v any) (settings, error) {
		return newSettings().with(map[string]server.Edit{path: {Path: parse(t, path).GetElem(), Value: v}})
	}
	for _, tt := range []struct {
		path string
		v    any
		want string
	}{
		{e1 + "enabled", "yes", e1 + "enabled"},
		{e1 + "description", true, e1 + "description"},
		{e1 + "mtu", uint64(70000), e1 + "mtu"},
		{e1 + "type", "iana-if-type:nonsense", e1 + "type"},
		{e1 + "name", "Ethernet2", "Ethernet2"},
		{e1 + "nonsense", "x", e1 + "nonsense"},
		{"/system/config/hostname", "-", "/system"},
		{"/system/config/hostname", strings.Repeat("x", 254), "/system"},
	} {
		if _, err := decode(tt.path, tt.v); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s = %v: %v; expected an error with %q", tt.path, tt.v, err, tt.want)
		}
	}
	got, err := decode(e1+"enabled", false)
	if err != nil {
		t.Fatal(err)
	}
	removed, err := got.with(map[string]server.Edit{})
	if err != nil {
		t.Fatal(err)
	}
	if p := removed.port(softswitch.PortStatus{ID: 1, Name: "Ethernet1"}, false); p != (portSettings{enabled: true,
		lldp: true, id: 1}) {
		t.Errorf("without its leaf the port has %+v", p)
	}
	if p := got.port(softswitch.PortStatus{ID: 1, Name: "Ethernet1"}, false); p != (portSettings{lldp: true, id: 1}) {
		t.Errorf("the disabled port has %+v", p)
	}
	if p := got.port(softswitch.PortStatus{ID: 2, Name: "Ethernet2"}, false); p != (portSettings{enabled: true, lldp: true,
		id: 2}) {
		t.Errorf("the port with defaults has %+v", p)
	}
}

// A switch that starts unconfigured has no device id and no port numbers, and its ports take no
// packets, until these are set.
func TestUnconfigured(t *testing.T) {
	ports, device := newPorts(), uint64(0)
	var connected error
	api := serve(t, ports, Options{DeviceID: 7, Unconfigured: true, SetDeviceID: func(id uint64) error {
		if connected == nil {
			device = id
		}
		return connected
	}})
	const (
		node = "/components/component[name=integrated-circuit0]/integrated-circuit"
		e1   = "/interfaces/interface[name=Ethernet1]"
	)
	send := func(code codes.Code, want string, updates ...*gpb.Update) {
		t.Helper()
		if _, err := api.Set(t.Context(), &gpb.SetRequest{Update: updates}); status.Code(err) != code ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v; expected %s with %q", err, code, want)
		}
	}
	for _, path := range []string{node, e1 + "/state/id", e1 + "/config/id"} {
		if got := leaves(t, api, path); len(got) != 0 {
			t.Errorf("%s has %v", path, got)
		}
	}
	if p := ports.Ports(); p[0].Up || p[2].Disabled {
		t.Errorf("ports %+v", p)
	}
	send(codes.InvalidArgument, "this port has the number 1, which is fixed; found 2", set(e1+"/config/id", "2"))
	send(codes.InvalidArgument, "component \"chassis\"",
		set("/components/component[name=chassis]/integrated-circuit/config/node-id", `"9"`))
	connected = errors.New("a controller is connected")
	send(codes.FailedPrecondition, "a controller is connected", set(node+"/config/node-id", `"9"`),
		set(e1+"/config/id", "1"))
	if ports.Ports()[0].Up {
		t.Error("a refused Set has effect")
	}
	connected = nil
	send(codes.OK, "", set(node+"/config/node-id", `"9"`), set(e1+"/config/id", "1"))
	if p := ports.Ports(); device != 9 || !p[0].Up || p[1].Up {
		t.Errorf("device id %d, ports %+v", device, p)
	}
	if got := leaves(t, api, node+"/state/node-id"); len(got) != 1 {
		t.Errorf("state %v", got)
	}
	if _, err := api.Set(t.Context(), &gpb.SetRequest{Delete: []*gpb.Path{parse(t, node+"/config/node-id"),
		parse(t, e1+"/config/id")}}); err != nil || device != 0 || ports.Ports()[0].Up {
		t.Errorf("deleted: error %v, device id %d, ports %+v", err, device, ports.Ports())
	}
}

// TestSetDelete resets configuration at each level above a leaf, with and without keys of lists.
func TestSetDelete(t *testing.T) {
	n := newNetwork(t)
	const e1 = "/interfaces/interface[name=Ethernet1]"
	for _, path := range []string{"/", "/interfaces", "/interfaces/interface", e1, e1 + "/config",
		e1 + "/config/description"} {
		for _, req := range []*gpb.SetRequest{
			{Update: []*gpb.Update{set(e1+"/config/description", `"x"`)}},
			{Delete: []*gpb.Path{parse(t, path)}},
		} {
			if _, err := n.api[0].Set(t.Context(), req); err != nil {
				t.Fatal(err)
			}
		}
		if got := leaves(t, n.api[0], e1+"/config/description"); len(got) != 0 {
			t.Errorf("after deleting %s: %v", path, got)
		}
	}
}

// New and lost neighbors reach a subscriber without the interval.
func TestNeighborsStream(t *testing.T) {
	n := newNetwork(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	stream, err := n.api[0].Subscribe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	err = stream.Send(&gpb.SubscribeRequest{Request: &gpb.SubscribeRequest_Subscribe{Subscribe: &gpb.SubscriptionList{
		Encoding: gpb.Encoding_PROTO,
		Subscription: []*gpb.Subscription{{Mode: gpb.SubscriptionMode_ON_CHANGE,
			Path: parse(t, "/lldp/interfaces/interface/neighbors/neighbor/state/system-name")}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	wait := func(ok func(*gpb.SubscribeResponse) bool) {
		t.Helper()
		for {
			m, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if ok(m) {
				return
			}
		}
	}
	wait(func(m *gpb.SubscribeResponse) bool { return m.GetSyncResponse() })
	n.tick()
	wait(func(m *gpb.SubscribeResponse) bool {
		u := m.GetUpdate().GetUpdate()
		return len(u) > 0 && u[0].GetVal().GetStringVal() == "spine"
	})
	if err := n.leaf.SetPortUp(1, false); err != nil {
		t.Fatal(err)
	}
	wait(func(m *gpb.SubscribeResponse) bool { return len(m.GetUpdate().GetDelete()) > 0 })
}
