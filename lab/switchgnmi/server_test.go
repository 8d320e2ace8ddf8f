// SPDX-License-Identifier: Apache-2.0

package switchgnmi

import (
	"context"
	"sync"
	"testing"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"go.uber.org/goleak"

	"github.com/netsketch/netsketch/internal/test/grpctest"
	"github.com/netsketch/netsketch/internal/test/yangtest"
	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/yang/table"
)

func TestMain(m *testing.M) {
	// ygot, which validates tables, imports glog, which starts a goroutine.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/golang/glog.(*fileSink).flushDaemon"))
}

// fakePorts is a switch with two ports.
type fakePorts struct {
	mu    sync.Mutex
	ports []softswitch.PortStatus
	watch map[int]func(softswitch.PortStatus)
}

func newPorts() *fakePorts {
	return &fakePorts{
		ports: []softswitch.PortStatus{
			{ID: 1, Name: "Ethernet1", Speed: 10e9, Up: true, LastChange: 1500 * time.Millisecond,
				Counters: softswitch.PortCounters{InPackets: 10, InOctets: 1000, InErrors: 1, InMulticast: 3,
					InBroadcast: 2, OutPackets: 20, OutOctets: 2000, OutDiscards: 2}},
			{ID: 2, Name: "Ethernet2", Speed: 1},
			{ID: 0},
		},
		watch: map[int]func(softswitch.PortStatus){},
	}
}

func (f *fakePorts) Ports() []softswitch.PortStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]softswitch.PortStatus(nil), f.ports...)
}

func (f *fakePorts) WatchPorts(call func(softswitch.PortStatus)) func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := len(f.watch)
	f.watch[id] = call
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.watch, id)
	}
}

func (f *fakePorts) set(i int, up bool) {
	f.mu.Lock()
	f.ports[i].Up = up
	p := f.ports[i]
	calls := make([]func(softswitch.PortStatus), 0, len(f.watch))
	for _, c := range f.watch {
		calls = append(calls, c)
	}
	f.mu.Unlock()
	for _, c := range calls {
		c(p)
	}
}

func (f *fakePorts) SetPortEnabled(id uint32, enabled bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.ports {
		if f.ports[i].ID == id {
			f.ports[i].Disabled, f.ports[i].Up = !enabled, enabled
		}
	}
	return nil
}

func serve(t *testing.T, ports Ports, o Options) gpb.GNMIClient {
	t.Helper()
	s, err := New(ports, o)
	if err != nil {
		t.Fatal(err)
	}
	conn := grpctest.Serve(t, s.Register)
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return gpb.NewGNMIClient(conn)
}

func TestTableFitsTheModels(t *testing.T) {
	s, err := New(newPorts(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	for _, make := range []func([]softswitch.PortStatus, settings) (*table.Table, error){s.interfaces, s.components,
		s.system} {
		tab, err := make(newPorts().Ports(), s.settings)
		if err != nil {
			t.Fatal(err)
		}
		yangtest.Check(t, tab)
	}
}

func TestGetInterface(t *testing.T) {
	c := serve(t, newPorts(), Options{Name: "leaf1", Now: func() time.Time { return time.Unix(1000, 0) }})
	resp, err := c.Get(t.Context(), &gpb.GetRequest{
		Prefix:   &gpb.Path{Target: "any name"},
		Encoding: gpb.Encoding_JSON_IETF,
		Path: []*gpb.Path{{Elem: []*gpb.PathElem{
			{Name: "interfaces"}, {Name: "interface", Key: map[string]string{"name": "Ethernet1"}}, {Name: "state"}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	n := resp.GetNotification()[0]
	if n.GetPrefix().GetTarget() != "any name" || n.GetTimestamp() != 1000e9 {
		t.Errorf("prefix %v, timestamp %d", n.GetPrefix(), n.GetTimestamp())
	}
	want := `{"openconfig-interfaces:name":"Ethernet1","openconfig-interfaces:type":"iana-if-type:ethernetCsmacd",` +
		`"openconfig-interfaces:enabled":true,"openconfig-interfaces:ifindex":1,"netsketch-p4rt-ids:id":1,` +
		`"netsketch-platform:hardware-port":"port1",` +
		`"openconfig-interfaces:admin-status":"UP","openconfig-interfaces:oper-status":"UP",` +
		`"openconfig-interfaces:last-change":150,` +
		`"openconfig-interfaces:counters":{"in-unicast-pkts":"5","in-multicast-pkts":"3","in-broadcast-pkts":"2",` +
		`"in-octets":"1000","in-errors":"1","in-discards":"0",` +
		`"out-unicast-pkts":"20","out-multicast-pkts":"0","out-broadcast-pkts":"0","out-octets":"2000","out-errors":"0",` +
		`"out-discards":"2"}}`
	if got := string(n.GetUpdate()[0].GetVal().GetJsonIetfVal()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestPortGoesDown follows oper-status over a stream. The port reports the change; the interval is
// too long to find it.
func TestPortGoesDown(t *testing.T) {
	ports := newPorts()
	c := serve(t, ports, Options{Interval: time.Hour})
	stream, err := c.Subscribe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = stream.Send(&gpb.SubscribeRequest{Request: &gpb.SubscribeRequest_Subscribe{Subscribe: &gpb.SubscriptionList{
		Encoding: gpb.Encoding_PROTO,
		Subscription: []*gpb.Subscription{{Mode: gpb.SubscriptionMode_ON_CHANGE, Path: &gpb.Path{Elem: []*gpb.PathElem{
			{Name: "interfaces"}, {Name: "interface"}, {Name: "state"}, {Name: "oper-status"}}}}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	synced, status := false, ""
	for status != "DOWN" {
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if m.GetSyncResponse() {
			synced = true
			if status != "UP" {
				t.Errorf("after the initial values Ethernet1 is %q", status)
			}
			ports.set(0, false)
		}
		for _, u := range m.GetUpdate().GetUpdate() {
			if u.GetPath().GetElem()[0].GetKey()["name"] == "Ethernet1" {
				status = u.GetVal().GetStringVal()
			}
		}
	}
	if !synced {
		t.Error("no sync_response")
	}
}
