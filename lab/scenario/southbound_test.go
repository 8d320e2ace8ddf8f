// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	gpb "github.com/openconfig/gnmi/proto/gnmi"

	"github.com/netsketch/netsketch/collector"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/lab"
	"github.com/netsketch/netsketch/lab/scenario"
	"github.com/netsketch/netsketch/p4/compiled"
)

// Switches that start without ids are configured over gNMI, and all their packets are measured.
func TestUnconfiguredSwitches(t *testing.T) {
	s, err := scenario.Load("../../examples/scenarios/unconfigured.yaml")
	if err != nil {
		t.Fatal(err)
	}
	check(t, play(t, s), s.Epochs)
	s.Unconfigured = []string{"leaf9"}
	if err := s.Validate(); err == nil || !strings.Contains(err.Error(), "found \"leaf9\"") {
		t.Errorf("error %v", err)
	}
}

// observed is a collector against a lab, whose store a test can wait on.
type observed struct {
	t   *testing.T
	net *lab.Network
	col *collector.Collector
}

// observe starts a collector with the devices that a function writes, and nothing else.
func observe(t *testing.T, device func(lab.Device) string, rest string) *observed {
	t.Helper()
	f, err := lab.LeafSpine(2, 1, 1, time.Microsecond)
	if err != nil {
		t.Fatal(err)
	}
	p, err := compiled.Load("univmon-300k")
	if err != nil {
		t.Fatal(err)
	}
	n, err := lab.New(lab.Config{Fabric: f, Program: p})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	var text strings.Builder
	text.WriteString("name: netsketch\ndevice-defaults: {pipeline: univmon-300k, forwarding: managed, tls: " +
		"{plaintext: true}, gnmi: {tls: {plaintext: true}}}\ndevices:\n")
	for _, d := range n.Devices() {
		fmt.Fprintf(&text, "  - {name: %s, address: %q, %s}\n", d.Name, d.Address, device(d))
	}
	text.WriteString(rest)
	cfg, err := config.Parse("test.yaml", []byte(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	c, err := collector.New(cfg, collector.Dependencies{Programs: scenario.Programs})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return &observed{t, n, c}
}

// wait waits until the leaf at a path of a target has a value, "" for none.
func (o *observed) wait(target, path, want string) {
	o.t.Helper()
	q := store.ParseQuery(target, path)
	sub, err := o.col.Store().Subscribe(store.SubscribeOptions{Queries: []store.Query{q}})
	if err != nil {
		o.t.Fatal(err)
	}
	defer sub.Close()
	limit := time.After(2 * time.Minute)
	name := path[strings.LastIndexByte(path, '/')+1:]
	for {
		got := ""
		for row := range o.col.Store().View().Rows(q) {
			for i, v := range row.Values {
				if l := row.List.Leaves[i].Path; l[len(l)-1] == name && !v.Absent() {
					got = v.String()
				}
			}
		}
		if got == want {
			return
		}
		for more := true; more; {
			_, more = sub.Pull(100)
		}
		select {
		case <-sub.Ready():
		case <-limit:
			o.t.Fatalf("%s %s is %q; expected %q", target, path, got, want)
		}
	}
}

const hosts = `hosts:
  - {name: h1, port: leaf1/1, addresses: [10.0.0.0/24]}
  - {name: h2, port: leaf2/1, addresses: [10.0.1.0/24]}
`

// Links and device ids that the configuration does not have are discovered, the collector
// routes over them, and a switch's values are served under its name.
func TestDiscovery(t *testing.T) {
	o := observe(t, func(d lab.Device) string { return fmt.Sprintf("gnmi: {address: %q}", d.Address) }, hosts)
	for port, peer := range map[string]string{"leaf1/2": "spine1/1", "spine1/1": "leaf1/2", "leaf2/2": "spine1/2",
		"spine1/2": "leaf2/2"} {
		at := "/collector/links/link[port=" + port + "]/state"
		o.wait("netsketch", at+"/status", "DISCOVERED")
		o.wait("netsketch", at+"/peer-discovered", peer)
	}
	for i, d := range o.net.Devices() {
		o.wait("netsketch", "/collector/devices/device[node="+d.Name+"]/state/device-id", fmt.Sprint(i+1))
		o.wait("netsketch", "/collector/devices/device[node="+d.Name+"]/state/connection", "READY")
		o.wait("netsketch", "/collector/devices/device[node="+d.Name+"]/gnmi/state/connection", "SYNCED")
		o.wait(d.Name, "/system/state/hostname", d.Name)
	}
	// leaf1 has a route to the host behind leaf2, over the discovered link.
	deadline := time.After(2 * time.Minute)
	for {
		entries, err := o.net.Switch(0).ReadEntries("ingress.forwarding.ipv4_lpm")
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) == 2 {
			break
		}
		select {
		case <-deadline:
			t.Fatalf("leaf1 has %d routes; expected 2", len(entries))
		case <-time.After(20 * time.Millisecond):
		}
	}
	// A port that goes down is seen under the switch's name, and so is the neighbor's loss.
	if err := o.net.SetLink("leaf1-spine1", lab.LinkState{Down: true}); err != nil {
		t.Fatal(err)
	}
	o.wait("leaf1", "/interfaces/interface[name=Ethernet2]/state/oper-status", "DOWN")
	o.wait("spine1", "/interfaces/interface[name=Ethernet1]/state/oper-status", "DOWN")
	o.wait("netsketch", "/collector/links/link[port=leaf1/2]/state/status", "")
	// A value that a controller sets on the switch is also received.
	conn, err := grpc.NewClient(o.net.Devices()[1].Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = gpb.NewGNMIClient(conn).Set(t.Context(), &gpb.SetRequest{Update: []*gpb.Update{{
		Path: &gpb.Path{Elem: []*gpb.PathElem{{Name: "interfaces"},
			{Name: "interface", Key: map[string]string{"name": "Ethernet2"}}, {Name: "config"}, {Name: "enabled"}}},
		Val: &gpb.TypedValue{Value: &gpb.TypedValue_BoolVal{BoolVal: false}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	o.wait("leaf2", "/interfaces/interface[name=Ethernet2]/state/admin-status", "DOWN")
	o.wait("spine1", "/interfaces/interface[name=Ethernet2]/state/oper-status", "DOWN")
	// A switch that dies takes its values with it.
	o.net.StopSwitch(2)
	o.wait("netsketch", "/collector/devices/device[node=spine1]/gnmi/state/connection", "DOWN")
	o.wait("spine1", "/system/state/hostname", "")
}

// Configured links are confirmed, a wrong one is a mismatch, and switches without gNMI work
// as before.
func TestConfiguredLinks(t *testing.T) {
	o := observe(t, func(d lab.Device) string {
		s := fmt.Sprintf("device-id: %d", d.DeviceID)
		if d.Name != "leaf2" {
			s += fmt.Sprintf(", gnmi: {address: %q, subscriptions: [{path: /interfaces/interface/state/counters, "+
				"mode: sample, sample-interval: 1s}]}", d.Address)
		}
		return s
	}, hosts+"links:\n  - {from: leaf1/2, to: spine1/2}\n  - {from: leaf2/2, to: spine1/1}\n")
	o.wait("netsketch", "/collector/links/link[port=leaf1/2]/state/status", "MISMATCH")
	o.wait("netsketch", "/collector/links/link[port=leaf1/2]/state/peer-discovered", "spine1/1")
	o.wait("netsketch", "/collector/links/link[port=leaf2/2]/state/status", "CONFIGURED")
	o.wait("netsketch", "/collector/devices/device[node=leaf2]/state/connection", "READY")
	o.wait("netsketch", "/collector/devices/device[node=leaf2]/gnmi/state/connection", "")
	o.wait("leaf1", "/interfaces/interface[name=Ethernet2]/state/counters/in-errors", "0")
	o.wait("leaf2", "/interfaces/interface[name=Ethernet2]/state/oper-status", "")
}
