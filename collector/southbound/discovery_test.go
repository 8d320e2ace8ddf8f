// SPDX-License-Identifier: Apache-2.0

package southbound

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"

	"github.com/netsketch/netsketch/collector/topology"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/internal/test/testkit"
)

// Configured links are reported even if no switch has a gNMI session, and again after the
// configuration changed.
func TestConfiguredLinksWithoutSessions(t *testing.T) {
	const switches = "devices:\n" +
		"  - {name: leaf1, address: \"127.0.0.1:1\", device-id: 1, pipeline: univmon, tls: {plaintext: true}}\n" +
		"  - {name: spine1, address: \"127.0.0.1:2\", device-id: 2, pipeline: univmon, tls: {plaintext: true}}\n" +
		"outputs:\n  - {type: gnmi, address: \"127.0.0.1:0\", tls: {plaintext: true}}\n"
	load := func(links string) *config.Config {
		cfg, err := config.Parse("test.yaml", []byte(switches+links))
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	d, err := New(load("links:\n  - {from: leaf1/1, to: spine1/1}\n"), Dependencies{
		Exclusive: func(f func()) bool { f(); return true }})
	if err != nil {
		t.Fatal(err)
	}
	d.Start()
	defer d.Stop()
	testkit.Until(t, "both ends are reported", func() bool {
		links := d.Links()
		return len(links) == 2 && links[0].Status == Configured && links[0].Configured == links[1].Port
	})
	if err := d.Reload(load(""), config.Changes{}); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "no link is left", func() bool { return len(d.Links()) == 0 })
}

// Links are discovered although switches report changes without a pause.
func TestChangesWithoutPause(t *testing.T) {
	cfg, err := config.Parse("test.yaml", []byte("devices:\n"+
		"  - {name: leaf1, address: \"127.0.0.1:1\", device-id: 1, pipeline: univmon, tls: {plaintext: true}}\n"+
		"  - {name: spine1, address: \"127.0.0.1:2\", device-id: 2, pipeline: univmon, tls: {plaintext: true}}\n"+
		"outputs:\n  - {type: gnmi, address: \"127.0.0.1:0\", tls: {plaintext: true}}\n"+
		"links:\n  - {from: leaf1/1, to: spine1/1}\n"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(cfg, Dependencies{Exclusive: func(f func()) bool { f(); return true }})
	if err != nil {
		t.Fatal(err)
	}
	d.Start()
	var work sync.WaitGroup
	flapping, stop := context.WithCancel(t.Context())
	work.Go(func() {
		for flapping.Err() == nil {
			d.changed()
			time.Sleep(settleTime / 20)
		}
	})
	defer d.Stop()
	defer work.Wait()
	defer stop()
	testkit.Until(t, "both ends are reported", func() bool { return len(d.Links()) == 2 })
}

// A switch is isolated if its neighbors report the ports of all links to it as down, also after
// LLDP has withdrawn the links. If a neighbor has no session, its own neighbors decide.
func TestIsolated(t *testing.T) {
	port := func(name string, number uint32) topology.Port { return topology.Port{Switch: name, Number: number} }
	session := func(state State, ports ...Port) *Session {
		return &Session{status: Status{State: state}, facts: Facts{Ports: ports}}
	}
	down, up := Port{ID: 1, Down: true}, Port{ID: 1}
	for name, tc := range map[string]struct {
		sessions map[string]*Session
		want     bool
	}{
		"no session":           {nil, false},
		"all down":             {map[string]*Session{"b": session(Synced, down), "c": session(Synced, down)}, true},
		"one up":               {map[string]*Session{"b": session(Synced, down), "c": session(Synced, up)}, false},
		"a port is not there":  {map[string]*Session{"b": session(Synced, down), "c": session(Synced)}, false},
		"a neighbor is off":    {map[string]*Session{"b": session(Synced, down), "d": session(Synced, down)}, true},
		"the way to d is open": {map[string]*Session{"b": session(Synced, down), "d": session(Synced, up)}, false},
		"old values of a switch": {map[string]*Session{"b": session(Synced, down), "c": session(Down, down),
			"d": session(Synced, up)}, false},
	} {
		d := &Discovery{sessions: tc.sessions, peers: map[topology.Port]string{port("b", 1): "a", port("c", 1): "a",
			port("a", 1): "b", port("a", 2): "c", port("c", 2): "d", port("d", 1): "c"}}
		if got := d.Isolated("a"); got != tc.want {
			t.Errorf("%s: isolated is %v", name, got)
		}
	}
}

// topologies is the newest topology that a Discovery reported.
type topologies struct {
	mu  sync.Mutex
	now *topology.Topology
}

func (n *topologies) Add(config.Device) error { return nil }

func (n *topologies) SetTopology(t *topology.Topology) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.now = t
}

// uses reports whether a route of a switch uses a port.
func (n *topologies) uses(name string, port uint32) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.now == nil || slices.ContainsFunc(n.now.Routes(name).Groups, func(g topology.Group) bool {
		return slices.ContainsFunc(g.Hops, func(h topology.NextHop) bool { return h.Port == port })
	})
}

// Routes do not use a port that its switch reports as disabled, on either end of a link, until the
// switch reports it as enabled. Known waits until these ports are known.
func TestDisabledPorts(t *testing.T) {
	const one = "/interfaces/interface[name=Ethernet1]/state/"
	tree := &gpb.TypedValue{Value: &gpb.TypedValue_JsonIetfVal{
		JsonIetfVal: []byte(`{"state": {"enabled": false, "id": 1}}`)}}
	disabled := &gpb.TypedValue{Value: &gpb.TypedValue_BoolVal{}}
	for name, c := range map[string]struct {
		first []any // what the switch sends first
		used  bool
	}{
		"disabled":                   {[]any{one + "id", 1, one + "enabled", disabled, one + "oper-status", "DOWN"}, false},
		"a number of the file":       {[]any{one + "enabled", disabled}, false},
		"in JSON":                    {[]any{"/interfaces/interface[name=Ethernet1]", tree}, false},
		"enabled and without a peer": {[]any{one + "id", 1, one + "oper-status", "DOWN"}, true},
		"up nevertheless":            {[]any{one + "id", 1, one + "enabled", disabled, one + "oper-status", "UP"}, true},
		"another port":               {[]any{one + "id", 9, one + "enabled", disabled}, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.answer = func(path string) ([]*gpb.Notification, error) {
				if path == "ON_CHANGE "+operStatus {
					return []*gpb.Notification{note(5, c.first...)}, nil
				}
				return nil, nil
			}
			cfg, err := config.Parse("test.yaml", fmt.Appendf(nil, `
devices:
  - {name: leaf1, address: "127.0.0.1:1", device-id: 1, tls: {plaintext: true},
     gnmi: {address: %q, tls: {plaintext: true}, ports: [{number: 1, interface: Ethernet1}]}}
  - {name: leaf2, address: "127.0.0.1:2", device-id: 2, tls: {plaintext: true}}
links: [{from: leaf1/1, to: leaf2/1}]
hosts:
  - {name: h1, port: leaf1/2, mac: "02:00:00:00:00:01", addresses: [10.0.0.1]}
  - {name: h2, port: leaf2/2, mac: "02:00:00:00:00:02", addresses: [10.0.0.2]}
outputs: [{type: gnmi, address: "127.0.0.1:0", tls: {plaintext: true}}]
`, f.addr))
			if err != nil {
				t.Fatal(err)
			}
			d, err := New(cfg, Dependencies{Exclusive: func(f func()) bool { f(); return true }, Schema: testSchema,
				Publish: func(store.Batch) error { return nil }})
			if err != nil {
				t.Fatal(err)
			}
			var got topologies
			d.SetNetwork(&got)
			d.Start()
			defer d.Stop()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			d.Known(ctx, "leaf1")
			d.Known(ctx, "leaf2") // has no gNMI
			if ctx.Err() != nil {
				t.Fatal("the switch's ports are not known after a minute")
			}
			if got.uses("leaf1", 1) != c.used || got.uses("leaf2", 1) != c.used {
				t.Fatalf("leaf1 uses the port: %v, leaf2: %v; expected %v", got.uses("leaf1", 1), got.uses("leaf2", 1), c.used)
			}
			if again, err := d.Topology(cfg); err != nil || c.used != slices.ContainsFunc(again.Routes("leaf1").Routes,
				func(r topology.Route) bool { return r.Prefix.String() == "10.0.0.2/32" }) {
				t.Errorf("the topology for a reload: %+v, %v", again.Routes("leaf1"), err)
			}
			f.send(operStatus, note(6, one+"enabled",
				&gpb.TypedValue{Value: &gpb.TypedValue_BoolVal{BoolVal: true}}))
			testkit.Until(t, "routes over the enabled port", func() bool { return got.uses("leaf1", 1) && got.uses("leaf2", 1) })
		})
	}
}

// Known waits until sessions are open. It does not wait for a switch that cannot be read.
func TestKnownWithoutSwitch(t *testing.T) {
	f := newFake(t)
	f.rpc.Stop()
	cfg, err := config.Parse("test.yaml", fmt.Appendf(nil, "devices: [{name: leaf1, address: \"127.0.0.1:1\", "+
		"device-id: 1, tls: {plaintext: true}, gnmi: {address: %q, tls: {plaintext: true}}}]\n"+
		"outputs: [{type: gnmi, address: \"127.0.0.1:0\", tls: {plaintext: true}}]\n", f.addr))
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(cfg, Dependencies{Exclusive: func(f func()) bool { f(); return true }, Schema: testSchema,
		Publish: func(store.Batch) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	early, end := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer end()
	d.Known(early, "leaf1")
	if early.Err() == nil {
		t.Error("Known did not wait for the sessions of the configuration")
	}
	d.Start()
	defer d.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	d.Known(ctx, "leaf1")
	if ctx.Err() != nil {
		t.Error("still waiting after a minute")
	}
}
