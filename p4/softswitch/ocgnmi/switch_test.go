// SPDX-License-Identifier: Apache-2.0

package ocgnmi

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/openconfig/ygot/ygot"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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
	n := &network{leaf: softswitch.New(softswitch.Config{Name: "leaf"}), spine: softswitch.New(softswitch.Config{Name: "spine"})}
	join := func(from *softswitch.Switch, id uint32, to *softswitch.Switch, at uint32) {
		err := from.AddPort(id, softswitch.Port{Name: fmt.Sprintf("Ethernet%d", id), Speed: 10e9, Tx: func(pkt []byte, when time.Duration) { to.Inject(at, pkt, when) }})
		if err != nil {
			t.Fatal(err)
		}
	}
	join(n.leaf, 1, n.spine, 2)
	join(n.spine, 2, n.leaf, 1)
	for i, sw := range []*softswitch.Switch{n.leaf, n.spine} {
		name := []string{"leaf", "spine"}[i]
		n.lldp[i] = lldp.New(sw, lldp.Config{SystemName: name, SystemDescription: "a switch"})
		n.api[i] = serve(t, sw, Options{Name: name, DeviceID: uint64(7 + i), Version: "1.2", LLDP: n.lldp[i], Interval: time.Hour})
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
			s, err := ygot.PathToString(&gpb.Path{Elem: append(append([]*gpb.PathElem{}, note.GetPrefix().GetElem()...), u.GetPath().GetElem()...)})
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
	if other := leaves(t, n.api[1], "/lldp/state/chassis-id")["/lldp/state/chassis-id"]; chassis == "" || chassis != other {
		t.Errorf("leaf hears chassis %q; spine is %q", chassis, other)
	}
	for _, p := range []string{"/system/state/current-datetime", "/system/state/boot-time"} {
		if got[p] == "" {
			t.Errorf("no %s", p)
		}
	}
	// A path with the keys of both lists reaches one neighbour, and a wildcard all.
	for _, p := range []string{"/lldp/interfaces/interface[name=Ethernet1]/neighbors/neighbor[id=1]/state/ttl", "/lldp/interfaces/interface[name=*]/neighbors/neighbor[id=*]/state/ttl"} {
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
		set(e1+"/config", `{"name":"Ethernet1","enabled":false,"description":"to spine"}`), set("/system/config/hostname", `"leaf-1"`)}})
	expect(map[string]string{
		e1 + "/config/enabled": "false", e1 + "/state/enabled": "false", e1 + "/state/admin-status": "DOWN", e1 + "/state/oper-status": "DOWN",
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
	expect(map[string]string{e1 + "/config/enabled": "true", e1 + "/state/oper-status": "UP", e1 + "/config/description": "again"})
	do(&gpb.SetRequest{Delete: []*gpb.Path{parse(t, "/interfaces"), parse(t, "/system/config/hostname"), parse(t, "/interfaces/interface[name=Ethernet9]")}})
	expect(map[string]string{e1 + "/config/description": "", "/system/state/hostname": "leaf"})

	n.tick()
	do(&gpb.SetRequest{Update: []*gpb.Update{set("/lldp/interfaces/interface[name=Ethernet1]/config/enabled", "false")}})
	n.tick()
	if got := leaves(t, n.api[1], "/lldp/interfaces/interface[name=Ethernet2]/neighbors"); len(got) != 0 {
		t.Errorf("LLDP is off and leaf is still heard: %v", got)
	}
	do(&gpb.SetRequest{Update: []*gpb.Update{set("/lldp", `{"config":{"enabled":false},"interfaces":{"interface":[{"name":"Ethernet1","config":{"enabled":true}}]}}`)}})
	expect(map[string]string{"/lldp/state/enabled": "false", "/lldp/interfaces/interface[name=Ethernet1]/state/enabled": "true"})
	do(&gpb.SetRequest{Replace: []*gpb.Update{set("/lldp", `{}`)}})
	expect(map[string]string{"/lldp/state/enabled": "true"})
}

// What is wrong names the path, and nothing of the request happens.
func TestSetRefused(t *testing.T) {
	n := newNetwork(t)
	const e1 = "/interfaces/interface[name=Ethernet1]"
	good := set(e1+"/config/description", `"changed"`)
	for _, tt := range []struct {
		bad  *gpb.Update
		want string
	}{
		{set("/interfaces/interface[name=Ethernet9]/config/enabled", "false"), `no interface "Ethernet9"; it has Ethernet1`},
		{set("/lldp/interfaces/interface[name=Ethernet9]/config/enabled", "false"), `no interface "Ethernet9"`},
		{set(e1+"/config/mtu", "1500"), e1 + "/config/mtu cannot be set"},
		{set(e1+"/config/type", `"iana-if-type:l2vlan"`), e1 + "/config/type"},
		{set(e1+"/config/enabled", "3"), e1 + "/config/enabled"},
		{set(e1+"/config/description", `"`+strings.Repeat("x", 256)+`"`), "longer than 255"},
		{set("/system/config/hostname", `"-"`), "/system/config/hostname"},
		{set("/system/state/hostname", `"x"`), "is state"},
		{set("/lldp/config/hello-timer", `"5"`), "cannot be set"},
	} {
		_, err := n.api[0].Set(t.Context(), &gpb.SetRequest{Update: []*gpb.Update{good, tt.bad}})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v; expected %q", tt.bad, err, tt.want)
		}
	}
	if got := leaves(t, n.api[0], e1+"/config/description"); len(got) != 0 {
		t.Errorf("a refused Set has changed %v", got)
	}
}

// A neighbour that is heard and one that is lost reach a subscriber without the interval.
func TestNeighborsStream(t *testing.T) {
	n := newNetwork(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	stream, err := n.api[0].Subscribe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	err = stream.Send(&gpb.SubscribeRequest{Request: &gpb.SubscribeRequest_Subscribe{Subscribe: &gpb.SubscriptionList{
		Encoding:     gpb.Encoding_PROTO,
		Subscription: []*gpb.Subscription{{Mode: gpb.SubscriptionMode_ON_CHANGE, Path: parse(t, "/lldp/interfaces/interface/neighbors/neighbor/state/system-name")}},
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
