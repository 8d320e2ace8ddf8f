// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/netsketch/netsketch/collector/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func prefixes(texts ...string) (ps []netip.Prefix) {
	for _, s := range texts {
		ps = append(ps, netip.MustParsePrefix(s))
	}
	return ps
}

// leafSpine has 2 spines and 2 leaves with 2 hosts each. The parts are added in random order.
func leafSpine(t testing.TB, seed uint64) *topology.Topology {
	t.Helper()
	var adds []func(*topology.Builder)
	for l := 1; l <= 2; l++ {
		leaf := fmt.Sprintf("leaf%d", l)
		adds = append(adds,
			func(b *topology.Builder) { b.AddSwitch(topology.Switch{Name: leaf}) },
			func(b *topology.Builder) { b.AddSwitch(topology.Switch{Name: fmt.Sprintf("spine%d", l)}) })
		for s := 1; s <= 2; s++ {
			link := topology.Link{A: topology.Port{Switch: leaf, Number: uint32(s)},
				B: topology.Port{Switch: fmt.Sprintf("spine%d", s), Number: uint32(l)}}
			if s == 2 {
				link.A, link.B = link.B, link.A
			}
			host := topology.Host{
				Name: fmt.Sprintf("h%d", 2*l+s-2), Port: topology.Port{Switch: leaf, Number: uint32(10 + s)},
				Prefixes: prefixes(fmt.Sprintf("10.0.%d.%d/32", l, s), fmt.Sprintf("2001:db8:%d::%d/128", l, s)),
			}
			adds = append(adds, func(b *topology.Builder) { b.AddLink(link) },
				func(b *topology.Builder) { b.AddHost(host) })
		}
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	rng.Shuffle(len(adds), func(i, j int) { adds[i], adds[j] = adds[j], adds[i] })
	var b topology.Builder
	for _, add := range adds {
		add(&b)
	}
	topo, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return topo
}

func TestRoutesOfALeaf(t *testing.T) {
	topo := leafSpine(t, 1)
	r := topo.Routes("leaf1")
	var got []string
	for _, route := range r.Routes {
		g, _ := r.Group(route.Group)
		var hops []string
		for _, h := range g.Hops {
			hops = append(hops, fmt.Sprintf("%d:%s", h.Port, h.Peer))
		}
		got = append(got, fmt.Sprintf("%s group %d %s", route.Prefix, route.Group, strings.Join(hops, " ")))
	}
	want := []string{
		"10.0.1.1/32 group 1 11:h1", "10.0.1.2/32 group 2 12:h2",
		"10.0.2.1/32 group 3 1:spine1 2:spine2", "10.0.2.2/32 group 3 1:spine1 2:spine2",
		"2001:db8:1::1/128 group 1 11:h1", "2001:db8:1::2/128 group 2 12:h2",
		"2001:db8:2::1/128 group 3 1:spine1 2:spine2", "2001:db8:2::2/128 group 3 1:spine1 2:spine2",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	switches := topo.Switches()
	leaf1, spine2 := switches[0], switches[3]
	if hop := r.Groups[2].Hops[1]; hop.Source != leaf1.MAC || hop.Destination != spine2.MAC {
		t.Errorf("addresses of %+v are not those of leaf1 and spine2", hop)
	}
}

// all returns the forwarding state of every switch.
func all(t *topology.Topology) (routes []topology.Routes) {
	for _, s := range t.Switches() {
		routes = append(routes, t.Routes(s.Name))
	}
	return routes
}

func TestOrderOfPartsDoesNotMatter(t *testing.T) {
	want := all(leafSpine(t, 1))
	for seed := uint64(2); seed < 10; seed++ {
		if diff := cmp.Diff(want, all(leafSpine(t, seed)),
			cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
			t.Fatalf("seed %d (-1 +other):\n%s", seed, diff)
		}
	}
}

func TestUnreachableHostsHaveNoRoute(t *testing.T) {
	var b topology.Builder
	for i := uint32(1); i <= 2; i++ {
		sw := fmt.Sprintf("s%d", i)
		b.AddSwitch(topology.Switch{Name: sw})
		b.AddHost(topology.Host{Name: fmt.Sprintf("h%d", i), Port: topology.Port{Switch: sw, Number: 1},
			Prefixes: prefixes(fmt.Sprintf("10.0.0.%d/32", i))})
	}
	topo, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	if r := topo.Routes("s1"); len(r.Routes) != 1 {
		t.Errorf("routes %+v, want only that of its own host", r.Routes)
	}
}

// Routes use no link with an unused port at one of its ends, and no host at an unused port.
func TestAvoiding(t *testing.T) {
	full := leafSpine(t, 1)
	link := full.Links()[0] // of leaf1 and spine1
	leaf, spine := link.A, link.B
	if topo := full.Avoiding(nil); topo != full {
		t.Error("another topology, although all ports are used")
	}
	for name, c := range map[string]struct {
		unused topology.Port
		want   string
	}{
		"a link":             {leaf, "11 12 2"},
		"a link's other end": {spine, "11 12 2"},
		"a host":             {topology.Port{Switch: "leaf1", Number: 11}, "1,2 12"},
	} {
		topo := full.Avoiding(map[topology.Port]bool{c.unused: true})
		var groups []string
		for _, g := range topo.Routes("leaf1").Groups {
			var ports []string
			for _, h := range g.Hops {
				ports = append(ports, fmt.Sprint(h.Port))
			}
			groups = append(groups, strings.Join(ports, ","))
		}
		slices.Sort(groups)
		if got := strings.Join(groups, " "); got != c.want {
			t.Errorf("without %s: groups %s; expected %s", name, got, c.want)
		}
		if _, ok := topo.Peer(c.unused); !ok || len(topo.Links()) != len(full.Links()) {
			t.Errorf("without %s: the network has lost a link", name)
		}
	}
	if got := len(full.Routes("leaf1").Groups); got != 3 {
		t.Errorf("the full network has %d groups afterwards; expected 3", got)
	}
}

func TestBuildReportsEveryError(t *testing.T) {
	var b topology.Builder
	b.AddSwitch(topology.Switch{Name: "s1"})
	b.AddSwitch(topology.Switch{Name: "s1"})
	b.AddHost(topology.Host{Name: "s1", Port: topology.Port{Switch: "s1", Number: 1},
		Prefixes: prefixes("10.0.0.1/32")})
	b.AddHost(topology.Host{Name: "h", Port: topology.Port{Switch: "s1", Number: 1}, Prefixes: prefixes("10.0.0.1/32")})
	b.AddLink(topology.Link{A: topology.Port{Switch: "s1", Number: 0}, B: topology.Port{Switch: "s9", Number: 1}})
	_, err := b.Build()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"switch s1 is defined twice", "host s1 has the name of a switch", "port s1/1 is used twice",
		"numbers of ports count from 1", `no switch "s9"`, "10.0.0.1/32 belongs to host h and to host s1",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in:\n%v", want, err)
		}
	}
}

func TestNamesSortByNumber(t *testing.T) {
	var b topology.Builder
	for _, n := range []string{"leaf10", "leaf2", "a", "leaf1", "pod2-edge1", "pod10-edge1", "leaf02"} {
		b.AddSwitch(topology.Switch{Name: n})
	}
	topo, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range topo.Switches() {
		got = append(got, s.Name)
	}
	if diff := cmp.Diff([]string{"a", "leaf1", "leaf2", "leaf02", "leaf10", "pod2-edge1", "pod10-edge1"},
		got); diff != "" {
		t.Error(diff)
	}
}

// BenchmarkRoutes computes the routes of 80 switches for 128 hosts: a fat tree with k = 8.
func BenchmarkRoutes(b *testing.B) {
	var tb topology.Builder
	const k = 8
	for core := range k * k / 4 {
		tb.AddSwitch(topology.Switch{Name: fmt.Sprintf("core%d", core)})
	}
	for pod := range k {
		for i := range k / 2 {
			edge, agg := fmt.Sprintf("pod%d-edge%d", pod, i), fmt.Sprintf("pod%d-agg%d", pod, i)
			tb.AddSwitch(topology.Switch{Name: edge})
			tb.AddSwitch(topology.Switch{Name: agg})
			for j := range k / 2 {
				tb.AddLink(topology.Link{A: topology.Port{Switch: edge, Number: uint32(j + 1)},
					B: topology.Port{Switch: fmt.Sprintf("pod%d-agg%d", pod, j), Number: uint32(i + 1)}})
				tb.AddLink(topology.Link{A: topology.Port{Switch: agg, Number: uint32(k/2 + j + 1)},
					B: topology.Port{Switch: fmt.Sprintf("core%d", i*k/2+j), Number: uint32(pod + 1)}})
				addr := netip.AddrFrom4([4]byte{10, byte(pod), byte(i), byte(j + 1)})
				tb.AddHost(topology.Host{Name: fmt.Sprintf("h-%d-%d-%d", pod, i, j),
					Port:     topology.Port{Switch: edge, Number: uint32(k/2 + j + 1)},
					Prefixes: []netip.Prefix{netip.PrefixFrom(addr, 32)}})
			}
		}
	}
	topo, err := tb.Build()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if r := all(topo); len(r) != 80 || len(r[79].Routes) != 128 {
			b.Fatalf("%d switches", len(r))
		}
	}
}
