// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"reflect"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// diamond is a switch with a host and a prefix, two switches in parallel, and a switch with two
// hosts. Ports 1 and 2 of the ends lead to the middle.
func diamond() *sdk.Network {
	end := func(node string, port uint32) sdk.Endpoint { return sdk.Endpoint{Node: node, Port: port} }
	forwarding := func(groups []sdk.PortGroup, routes ...sdk.Route) *sdk.Forwarding {
		return &sdk.Forwarding{Groups: groups, Routes: routes}
	}
	one, both := sdk.PortGroup{Ports: []uint32{1}}, sdk.PortGroup{Ports: []uint32{1, 2}}
	two, host := sdk.PortGroup{Ports: []uint32{2}}, sdk.PortGroup{Ports: []uint32{3}}
	west, east := "10.0.1.0/24", "10.0.2.1/32"
	middle := forwarding([]sdk.PortGroup{one, two}, sdk.Route{Prefix: west, Group: 0}, sdk.Route{Prefix: east, Group: 1})
	return &sdk.Network{
		Devices: []sdk.Device{
			{Name: "a", Forwarding: forwarding([]sdk.PortGroup{both, host}, sdk.Route{Prefix: east, Group: 0},
				sdk.Route{Prefix: west, Group: 1})},
			{Name: "b", Forwarding: middle}, {Name: "c", Forwarding: middle},
			{Name: "d", Forwarding: forwarding([]sdk.PortGroup{both, host}, sdk.Route{Prefix: west, Group: 0},
				sdk.Route{Prefix: east, Group: 1})},
		},
		Hosts: []sdk.Host{{Name: "h1", Addresses: []string{"10.0.1.0/24"}}, {Name: "h2", Addresses: []string{"10.0.2.1"}},
			{Name: "h3", Addresses: []string{"10.0.2.1"}}},
		Links: []sdk.Link{{A: end("h1", 0), B: end("a", 3)}, {A: end("h2", 0), B: end("d", 3)},
			{A: end("h3", 0), B: end("d", 4)}, {A: end("a", 1), B: end("b", 1)}, {A: end("a", 2), B: end("c", 1)},
			{A: end("b", 2), B: end("d", 1)}, {A: end("c", 2), B: end("d", 2)}},
	}
}

// Read returns the paths of the routes, including all of equal length, and local pairs of switches
// with two hosts.
func TestRead(t *testing.T) {
	m, err := Read(diamond(), Routing{})
	if err != nil {
		t.Fatal(err)
	}
	want := []Pair{{3, 0, [][]int{{3, 1, 0}, {3, 2, 0}}}, {0, 3, [][]int{{0, 1, 3}, {0, 2, 3}}}, {3, 3, [][]int{{3}}}}
	if !reflect.DeepEqual(m.Problem.Pairs, want) {
		t.Errorf("pairs %v; expected %v", m.Problem.Pairs, want)
	}
	if want := [][]uint32{{1, 2}, {1, 2}, {1, 2}, {1, 2}}; !reflect.DeepEqual(m.Internal, want) {
		t.Errorf("internal ports %v; expected %v", m.Internal, want)
	}
	if len(m.Sites[0]) != 1 || m.Sites[3][0].String() != "10.0.2.1/32" || len(m.Sites[1]) != 0 {
		t.Errorf("sites %v", m.Sites)
	}
}

// Without routes, or with a loop, only the ends of a path are certain; without a route, the switch
// that drops the packets is the last one.
func TestReadUnknownPaths(t *testing.T) {
	for name, test := range map[string]struct {
		change func(n *sdk.Network)
		want   [][]int
	}{
		"not managed": {func(n *sdk.Network) { n.Devices[1].Forwarding = nil }, [][]int{{0, 3}}},
		"loop":        {func(n *sdk.Network) { n.Devices[1].Forwarding.Routes[1].Group = 0 }, [][]int{{0, 3}}},
		"no route": {func(n *sdk.Network) {
			f := *n.Devices[1].Forwarding
			f.Routes = f.Routes[:1]
			n.Devices[1].Forwarding = &f
		}, [][]int{{0, 1}, {0, 2, 3}}},
	} {
		n := diamond()
		test.change(n)
		m, err := Read(n, Routing{})
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Problem.Pairs[1].Paths; !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: paths %v; expected %v", name, got, test.want)
		}
	}
}

// Paths of switches whose routes others install are the shortest ones, or those of the
// configuration.
func TestReadPathsOfOthers(t *testing.T) {
	unmanaged := func() *sdk.Network {
		n := diamond()
		for i := range n.Devices {
			n.Devices[i].Forwarding = nil
		}
		return n
	}
	for name, test := range map[string]struct {
		change  func(n *sdk.Network)
		routing Routing
		want    [][]int // paths from switch a to switch d
	}{
		"shortest": {func(*sdk.Network) {}, Routing{Shortest: true}, [][]int{{0, 1, 3}, {0, 2, 3}}},
		"a part is managed": {func(n *sdk.Network) { n.Devices[1].Forwarding = diamond().Devices[1].Forwarding },
			Routing{Shortest: true}, [][]int{{0, 1, 3}, {0, 2, 3}}},
		"a link is gone": {func(n *sdk.Network) { n.Links = n.Links[:len(n.Links)-1] }, Routing{Shortest: true},
			[][]int{{0, 1, 3}}},
		"no path":    {func(n *sdk.Network) { n.Links = n.Links[:3] }, Routing{Shortest: true}, [][]int{{0, 3}}},
		"configured": {func(*sdk.Network) {}, Routing{Paths: []string{"a c d"}, Shortest: true}, [][]int{{0, 2, 3}}},
		"two paths": {func(*sdk.Network) {}, Routing{Paths: []string{"a c d", "a b d", "d c a"}},
			[][]int{{0, 2, 3}, {0, 1, 3}}},
	} {
		n := unmanaged()
		test.change(n)
		m, err := Read(n, test.routing)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Problem.Pairs[1].Paths; !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: paths %v; expected %v", name, got, test.want)
		}
	}
	for path, want := range map[string]string{"a x": `no switch is called "x"`, " ": "a path is empty"} {
		if _, err := Read(diamond(), Routing{Paths: []string{path}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; expected %s", path, err, want)
		}
	}
}

// Prefixes of the configuration make a switch an end of pairs.
func TestReadOwners(t *testing.T) {
	m, err := Read(diamond(), Routing{Owners: map[string]string{"10.9.1.7/16": "b"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Sites[1]; len(got) != 1 || got[0].String() != "10.9.0.0/16" || len(m.Problem.Pairs) != 7 {
		t.Errorf("sites %v, %d pairs; expected 10.9.0.0/16 and 7", got, len(m.Problem.Pairs))
	}
	for text, want := range map[string]string{"10.9.0.0": "is not a prefix", "10.9.0.0/8": `no switch is called "x"`} {
		_, err := Read(diamond(), Routing{Owners: map[string]string{text: "x"}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; expected %s", text, err, want)
		}
	}
}
