// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/univmon/manifest"
	"github.com/netsketch/netsketch/settings"
)

// ring is five switches in a ring, each with a host of address 10.0.N.0/24, N from 1, on port 3. It
// has an odd cycle, so no weights count each packet once. Port 1 leads to the next switch, port 2
// to the one before.
type ring struct {
	t       *testing.T
	plugin  *Plugin
	network sdk.Network
	tables  map[string]map[string]uint64 // entries by device, with their bank
	plans   map[string][banks]uint64
	pending []sdk.Plan
	absent  map[string]bool
	right   int // packets go right to sites that are at most this many switches away on the right
	sent    int

	manifests []map[string]string // rows of the latest epoch
}

var duty = map[string]string{"src": "1", "5-tuple": "3"}

func newRing(t *testing.T, scheme string) *ring {
	r := &ring{t: t, plugin: New(), tables: map[string]map[string]uint64{}, plans: map[string][banks]uint64{},
		absent: map[string]bool{}, network: sdk.Network{Version: 1}, right: 2}
	for i := range 5 {
		d := sdk.Device{Name: name(i), Objects: objects(), Forwarding: &sdk.Forwarding{Groups: []sdk.PortGroup{
			{Ports: []uint32{1}}, {Ports: []uint32{2}}, {Ports: []uint32{3}}}}}
		for j := range d.Objects {
			if values := d.Objects[j].Annotations[annotation]; values["part"] == "counters" {
				values["duty"] = duty[values["key"]]
			}
		}
		d.Forwarding.Routes = r.routes(i)
		r.network.Devices = append(r.network.Devices, d)
		r.network.Hosts = append(r.network.Hosts, sdk.Host{Name: fmt.Sprint("h", i+1), Addresses: []string{site(i).String()}})
		r.network.Links = append(r.network.Links, sdk.Link{A: sdk.Endpoint{Node: fmt.Sprint("h", i+1)},
			B: sdk.Endpoint{Node: name(i), Port: 3}}, sdk.Link{A: sdk.Endpoint{Node: name(i), Port: 1},
			B: sdk.Endpoint{Node: name((i + 1) % 5), Port: 2}})
		r.tables[name(i)] = map[string]uint64{}
	}
	const text = `{"switches": false, "network": {"scheme": %q, "manifests": true}}`
	config := sdk.Config{JSON: fmt.Appendf(nil, text, scheme)}
	if _, err := r.plugin.Configure(t.Context(), config, r.network); err != nil {
		t.Fatal(err)
	}
	return r
}

// routes are the routes of a switch.
func (r *ring) routes(at int) (routes []sdk.Route) {
	for to := range 5 {
		group := 2
		if away := (to - at + 5) % 5; away > r.right {
			group = 1
		} else if away > 0 {
			group = 0
		}
		routes = append(routes, sdk.Route{Prefix: site(to).String(), Group: group})
	}
	return routes
}

func name(i int) string { return fmt.Sprint("s", i+1) }

func site(i int) netip.Prefix { return netip.MustParsePrefix(fmt.Sprintf("10.0.%d.0/24", i+1)) }

// entryKey is the text of an entry's table and key.
func entryKey(table string, bank int, rest ...any) string { return fmt.Sprint(table, bank, rest) }

func (r *ring) write(w sdk.DeviceWrite) {
	number := func(b []byte) (v uint64) {
		for _, x := range b {
			v = v<<8 | uint64(x)
		}
		return v
	}
	var rest []any
	for _, m := range w.Entry.Matches[1:] {
		if m.Field == "address" {
			a, _ := netip.AddrFromSlice(m.Value)
			rest = append(rest, netip.PrefixFrom(a, int(m.PrefixLen)))
		} else {
			rest = append(rest, number(m.Value))
		}
	}
	table := strings.TrimPrefix(w.Entry.Table, "ingress.duties.")
	r.tables[w.Device][entryKey(table, int(number(w.Entry.Matches[0].Value)), rest...)] = number(w.Entry.Params[0].Value)
}

// mask is what a switch counts of a packet, as duties.p4.
func (r *ring) mask(device string, bank, port int, src, dst netip.Addr) uint64 {
	t := r.tables[device]
	lookup := func(table string, a netip.Addr) uint64 {
		p, _ := a.Prefix(24)
		return t[entryKey(table, bank, p)]
	}
	origin, destination := lookup("origins", src), lookup("destinations", dst)
	if origin != 0 && destination != 0 {
		return t[entryKey("pairs", bank, origin, destination)]
	}
	if m, ok := t[entryKey("ports", bank, uint64(port))]; ok {
		return m
	}
	return all
}

// epoch sends 40 flows from each host to each other one, and 100 packets from an unknown address,
// and returns the results by dimension: status, problem, packets.
func (r *ring) epoch(number uint64) map[string][3]string {
	r.t.Helper()
	bank := int(number % banks)
	r.pending = slices.DeleteFunc(r.pending, func(p sdk.Plan) bool {
		if p.FromEpoch > number {
			return false
		}
		for _, w := range p.Writes {
			r.write(w)
			b := r.plans[w.Device]
			b[p.FromEpoch%banks] = p.ID
			r.plans[w.Device] = b
		}
		return true
	})
	var devices []string
	for i := range 5 {
		devices = append(devices, name(i))
	}
	f := newFabric(r.t, devices...)
	r.sent = 0
	send := func(src, dst string, from, to, n int) {
		k := key(r.t, src, dst, 80)
		r.sent += n
		port := 3
		for at := from; ; {
			m := r.mask(name(at), bank, port, netip.MustParseAddr(src), netip.MustParseAddr(dst))
			for dimension, bit := range map[string]int{"src": 0, "5-tuple": 2} {
				for range n * int(m>>bit&1) {
					f[name(at)][dimension].Update(&k)
				}
			}
			if at == to {
				return
			}
			if (to-at+5)%5 <= r.right {
				at, port = (at+1)%5, 2
			} else {
				at, port = (at+4)%5, 1
			}
		}
	}
	for from := range 5 {
		for to := range 5 {
			for i := range 40 {
				if from != to {
					send(fmt.Sprintf("10.0.%d.%d", from+1, i), fmt.Sprintf("10.0.%d.9", to+1), from, to, 3)
				}
			}
		}
	}
	send("192.0.2.1", "10.0.4.9", 1, 3, 100)
	e := f.epoch(number, slices.DeleteFunc(devices, func(d string) bool { return !r.absent[d] })...)
	for _, d := range e.Expected {
		e.States = append(e.States, sdk.DeviceState{Device: d, Plan: r.plans[d][bank]})
	}
	out, err := r.plugin.Analyze(r.t.Context(), e)
	if err != nil {
		r.t.Fatal(err)
	}
	r.pending = append(r.pending, out.Plans...)
	r.manifests = rows(out, manifestList)
	got := map[string][3]string{}
	for _, row := range rows(out, summaryList) {
		got[row["dimension"]] = [3]string{row["state/status"], row["state/problem"], row["state/packets"]}
	}
	return got
}

// Under every scheme the sketches of a ring add up to those of one switch, from the second epoch
// after the plugin started; packets of unknown pairs count where they enter.
func TestAssignedViews(t *testing.T) {
	for _, scheme := range []string{"manifest", "ingress", "greedy", "query"} {
		r := newRing(t, scheme)
		for n := uint64(1); n <= 4; n++ {
			for dimension, got := range r.epoch(n) {
				want := [3]string{"COMPLETE", "", fmt.Sprint(r.sent)}
				switch n {
				case 1, 2:
					want = [3]string{"LOST", got[1], ""}
				case 3:
					want[1] = "changes are unknown: there are no complete results of the epoch before"
				}
				if got != want || n <= 2 && !strings.Contains(got[1], "no manifests are in force") {
					t.Errorf("%s, epoch %d, %s: %q; expected %q", scheme, n, dimension, got, want)
				}
			}
		}
	}
}

// Each pair has one row for each dimension, of the switch whose entries count it.
func TestManifestsInForce(t *testing.T) {
	r := newRing(t, "manifest")
	for n := uint64(1); n <= 3; n++ {
		r.epoch(n)
		if n < 3 && len(r.manifests) > 0 {
			t.Errorf("epoch %d without manifests has %v", n, r.manifests)
		}
	}
	address := func(name string) netip.Addr { return site(int(name[1] - '1')).Addr() }
	seen := map[string]bool{}
	for _, row := range r.manifests {
		bit := map[string]int{"src": 0, "5-tuple": 2}[row["dimension"]]
		mask := r.mask(row["node"], 1, 3, address(row["entry-node"]), address(row["exit-node"]))
		if mask>>bit&1 == 0 {
			t.Errorf("%v; the entries count %#x", row, mask)
		}
		seen[row["dimension"]+row["entry-node"]+row["exit-node"]] = true
	}
	if len(seen) != 2*20 || len(r.manifests) != len(seen) {
		t.Errorf("%d rows about %d of 20 pairs in 2 dimensions", len(r.manifests), len(seen))
	}
}

// TestUncounted: results are partial if no switch can count some of the pairs, and say how many.
func TestUncounted(t *testing.T) {
	r := newRing(t, "manifest")
	for n := uint64(1); n <= 4; n++ {
		all := r.epoch(n)
		if n == 1 {
			r.plugin.duties.wanted.Uncovered = make([]manifest.Duty, 2)
		}
		for dimension, got := range all {
			if n > 2 && (got[0] != "PARTIAL" || !strings.Contains(got[1], "2 of 20 pairs are not counted by any switch")) {
				t.Errorf("epoch %d, %s: %q", n, dimension, got)
			}
		}
	}
}

// A switch that does not answer makes two epochs partial; then others count what it did, and
// results are complete. The same when it is back, and when routes change. Changes since the epoch
// in which manifests change may be inexact, too.
func TestReassign(t *testing.T) {
	r := newRing(t, "manifest")
	for n := uint64(1); n <= 16; n++ {
		switch n {
		case 5:
			r.absent[name(2)] = true
		case 9:
			r.absent[name(2)] = false
		case 13:
			r.right = 3
			for i := range r.network.Devices {
				r.network.Devices[i].Forwarding = &sdk.Forwarding{Routes: r.routes(i),
					Groups: r.network.Devices[i].Forwarding.Groups}
			}
			r.plugin.NetworkChanged(t.Context(), r.network)
		}
		all := r.epoch(n)
		if len(all) != 2 {
			t.Fatalf("epoch %d: %v", n, all)
		}
		for dimension, got := range all {
			status := "COMPLETE"
			switch {
			case n <= 2:
				status = "LOST"
			case n == 5 || n == 6:
				status = "PARTIAL"
			case n == 13 || n == 14:
				status = "PARTIAL"
				if !strings.Contains(got[1], "routes changed") {
					t.Errorf("epoch %d, %s: problem %q", n, dimension, got[1])
				}
			}
			if got[0] != status || status == "COMPLETE" && got[2] != fmt.Sprint(r.sent) {
				t.Errorf("epoch %d, %s: %q; expected %s, %d packets", n, dimension, got, status, r.sent)
			}
			if changed := n == 7 || n == 11 || n == 15; changed != strings.Contains(got[1], "manifests changed") {
				t.Errorf("epoch %d, %s: problem %q", n, dimension, got[1])
			}
			if after := n == 8 || n == 12 || n == 16; after != strings.Contains(got[1], "packets of the epoch before") {
				t.Errorf("epoch %d, %s: changes are compared with an inexact epoch: problem %q", n, dimension, got[1])
			}
		}
	}
}

// TestRoutesReturn: epochs are partial also if the manifests in force are those of the routes at
// the epoch's end: when routes changed in the epoch before and return, and when they change and
// return within an epoch.
func TestRoutesReturn(t *testing.T) {
	r := newRing(t, "manifest")
	route := func(right int) {
		r.right = right
		devices := slices.Clone(r.network.Devices)
		for i := range devices {
			devices[i].Forwarding = &sdk.Forwarding{Routes: r.routes(i), Groups: devices[i].Forwarding.Groups}
		}
		r.network.Devices = devices
		r.plugin.NetworkChanged(t.Context(), r.network)
	}
	for n := uint64(1); n <= 14; n++ {
		switch n {
		case 5:
			route(3)
		case 6:
			route(2)
		case 12:
			route(3)
			route(2)
		}
		for dimension, got := range r.epoch(n) {
			partial := n >= 5 && n <= 7 || n == 12
			if n > 2 && partial != (got[0] == "PARTIAL") || partial && !strings.Contains(got[1], "routes changed") {
				t.Errorf("epoch %d, %s: %q", n, dimension, got)
			}
		}
	}
}

// A plan that is not applied is written again as a whole.
func TestPlanNotApplied(t *testing.T) {
	var d duties
	r := newRing(t, "ingress")
	c := settings.Default[Configuration]()
	c.Network.Scheme = "ingress"
	e := &sdk.Epoch{Number: 1}
	d.want(&c, &r.network, e)
	first, ok := d.plan(e)
	if !ok {
		t.Fatal("no plan")
	}
	if _, again := d.plan(e); again {
		t.Error("the plan of the same bank is written twice")
	}
	e = &sdk.Epoch{Number: 3, Plans: []sdk.PlanOutcome{{Plan: first.ID, Device: "s1", Status: sdk.PlanLate}}}
	d.outcomes(e)
	second, ok := d.plan(e)
	n := map[string]int{}
	for _, w := range second.Writes {
		n[w.Device]++
	}
	if all := len(first.Writes) / 5; !ok || second.ID <= first.ID || n["s1"] != all || n["s2"] != 1 {
		t.Errorf("plan %d after %d with %v writes; expected a later one, %d for s1 and 1 for the others", second.ID,
			first.ID, n, all)
	}
}

// IDs are stable when switches come and go, and unique.
func TestSiteIDs(t *testing.T) {
	var names []string
	for i := range 3000 {
		names = append(names, fmt.Sprint("switch", i))
	}
	before, after := siteIDs(names), siteIDs(names[1:])
	seen := map[uint16]bool{0: true}
	changed := 0
	for i, id := range before {
		if seen[id] {
			t.Fatalf("ID %d is used twice", id)
		}
		seen[id] = true
		if i > 0 && after[i-1] != id {
			changed++
		}
	}
	if changed > 3 {
		t.Errorf("%d IDs changed with one switch", changed)
	}
}

// Packets still count once when a host or a switch comes, and no longer when a host moves, when an
// address in a prefix comes to another switch, or when routes change.
func TestFits(t *testing.T) {
	c := settings.Default[Configuration]()
	c.Network.Scheme = "manifest"
	assignment := func(change func(n *sdk.Network)) *Assignment {
		n := newRing(t, "manifest").network
		change(&n)
		a, err := c.Assign(&n, c.Network.Scheme, nil)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	host := func(address string, at int) func(n *sdk.Network) {
		return func(n *sdk.Network) {
			n.Hosts = append(n.Hosts, sdk.Host{Name: "new", Addresses: []string{address}})
			n.Links = append(n.Links, sdk.Link{A: sdk.Endpoint{Node: "new"}, B: sdk.Endpoint{Node: name(at), Port: 9}})
		}
	}
	before := assignment(func(*sdk.Network) {})
	for what, tc := range map[string]struct {
		change func(n *sdk.Network)
		fits   bool
	}{
		"nothing":              {func(*sdk.Network) {}, true},
		"a host":               {host("192.0.2.1", 2), true},
		"an address":           {host("10.0.3.7", 2), true},
		"an address elsewhere": {host("10.0.3.7", 1), false},
		"a switch": {func(n *sdk.Network) {
			n.Devices = append([]sdk.Device{{Name: "s0", Objects: n.Devices[0].Objects}}, n.Devices...)
		}, true},
		"a host is gone": {func(n *sdk.Network) { n.Hosts = n.Hosts[1:] }, true},
		"a host moves":   {func(n *sdk.Network) { n.Links[0].B.Node = name(3) }, false},
		"a link": {func(n *sdk.Network) {
			n.Links = append(n.Links, sdk.Link{A: sdk.Endpoint{Node: name(0), Port: 7}, B: sdk.Endpoint{Node: name(2), Port: 7}})
		}, false},
		"routes": {func(n *sdk.Network) {
			n.Devices[0].Forwarding.Routes = (&ring{right: 1}).routes(0)
		}, false},
	} {
		if before.fits(assignment(tc.change).Map) != tc.fits {
			t.Errorf("%s: fits is %v", what, !tc.fits)
		}
	}
}
