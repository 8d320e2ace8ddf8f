// SPDX-License-Identifier: Apache-2.0

package southbound

import (
	"testing"

	"github.com/netsketch/netsketch/collector/topology"
	"github.com/netsketch/netsketch/internal/config"
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

// A switch is isolated if its neighbors report the ports of all links to it as down, also after
// LLDP has withdrawn the links. Neighbors without a session report nothing; theirs decide.
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
