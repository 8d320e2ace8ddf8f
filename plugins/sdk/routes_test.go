// SPDX-License-Identifier: Apache-2.0

package sdk_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/routes"
	"github.com/netsketch/netsketch/sketch/flow"
)

// network returns two leaves with one host each, and two spines. The collector does not install
// the routes of leaf2.
func network(managed bool) *sdk.Network {
	n := &sdk.Network{Hosts: []sdk.Host{{Name: "h1", Addresses: []string{"10.0.0.1"}}, {Name: "h2",
		Addresses: []string{"10.0.1.0/24", "2001:db8::2"}}}}
	link := func(a string, from uint32, b string, to uint32) {
		n.Links = append(n.Links, sdk.Link{A: sdk.Endpoint{Node: a, Port: from}, B: sdk.Endpoint{Node: b, Port: to}})
	}
	link("h1", 0, "leaf1", 3)
	link("leaf2", 3, "h2", 0)
	for i, spine := range []string{"spine1", "spine2"} {
		link("leaf1", uint32(i+1), spine, 1)
		link("leaf2", uint32(i+1), spine, 2)
	}
	groups := []sdk.PortGroup{{Ports: []uint32{1, 2}}, {Ports: []uint32{2}}, {Ports: []uint32{3}}}
	for i, name := range []string{"leaf1", "spine1", "spine2", "leaf2"} {
		group := []int{0, 1, 1, 2}[i]
		d := sdk.Device{Name: name, Forwarding: &sdk.Forwarding{Seed: 0x9e3779b1, Groups: groups,
			Routes: []sdk.Route{{Prefix: "10.0.1.0/24", Group: group}, {Prefix: "2001:db8::/64", Group: group}}}}
		if name == "leaf2" && !managed {
			d.Forwarding = nil
		}
		n.Devices = append(n.Devices, d)
	}
	return n
}

func TestPaths(t *testing.T) {
	r := routes.New(network(true))
	spines := map[string]int{}
	for port := range uint16(100) {
		k, err := flow.New(netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.1.7"), 6, port+1, 80)
		if err != nil {
			t.Fatal(err)
		}
		path := r.Path(&k)
		if len(path) != 3 || path[0] != "leaf1" || path[2] != "leaf2" {
			t.Fatalf("path %v", path)
		}
		spines[path[1]]++
		if all := r.Paths(&k); !slices.Equal(all, []string{"leaf1", "spine1", "spine2", "leaf2"}) {
			t.Fatalf("paths %v", all)
		}
		if from, to := r.Ends(&k); from != "h1" || to != "h2" {
			t.Fatalf("from %q to %q", from, to)
		}
		if path := routes.New(network(false)).Path(&k); path != nil {
			t.Fatalf("path %v over a switch whose routes are not known", path)
		}
	}
	if len(spines) != 2 {
		t.Errorf("spines %v", spines)
	}
	unknown, err := flow.New(netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("10.0.1.7"), 6, 1, 80)
	if err != nil {
		t.Fatal(err)
	}
	if from, to := r.Ends(&unknown); r.Path(&unknown) != nil || from != "" || to != "h2" {
		t.Errorf("a flow of no host: path %v from %q to %q", r.Path(&unknown), from, to)
	}
	if names := r.Neighbors("spine1"); !slices.Equal(names, []string{"leaf1", "leaf2"}) || r.Neighbors("x") != nil {
		t.Errorf("neighbors %v", names)
	}
}
