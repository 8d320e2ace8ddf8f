// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/netip"
	"slices"

	"github.com/netsketch/netsketch/p4/p4rt"
)

// duties models duties.p4 for bank 1. Bank 0 has no entries: all packets count in all dimensions.
type duties struct {
	origins, destinations map[netip.Prefix]uint64
	pairs                 map[[2]uint64]uint64
	ports                 map[uint32]uint64
}

// theseDuties has sites within sites (one of them is site 0), pairs without an entry, and packets
// without a site. All frames arrive at one port, which has an entry.
func theseDuties() *duties {
	p := netip.MustParsePrefix
	return &duties{
		origins: map[netip.Prefix]uint64{p("10.9.0.0/24"): 1, p("10.9.0.0/16"): 2, p("10.9.3.0/24"): 0,
			p("2001:db8:900::/40"): 3},
		destinations: map[netip.Prefix]uint64{p("10.0.0.0/16"): 1, p("10.1.0.0/16"): 2, p("2001:db8:1::/48"): 2},
		pairs:        map[[2]uint64]uint64{{1, 1}: 1, {2, 2}: 6, {1, 2}: 7, {3, 2}: 4},
		ports:        map[uint32]uint64{1: 2},
	}
}

// install writes the entries if the program has their tables.
func (d *duties) install(b *bench) {
	if len(b.univmons) == 0 {
		return
	}
	var entries []p4rt.Entry
	add := func(table, action string, param p4rt.Param, match ...p4rt.Match) {
		entries = append(entries, p4rt.Entry{Table: "ingress.duties." + table, Action: "ingress.duties." + action,
			Params: []p4rt.Param{param}, Match: append([]p4rt.Match{p4rt.Exact("bank", []byte{1})}, match...)})
	}
	for _, side := range []struct {
		table, action string
		sites         map[netip.Prefix]uint64
	}{{"origins", "from", d.origins}, {"destinations", "to", d.destinations}} {
		for prefix, site := range side.sites {
			table := side.table
			if prefix.Addr().Is6() {
				table += "_ipv6"
			}
			add(table, side.action, p4rt.Uint("site", site), p4rt.Prefix("address", prefix))
		}
	}
	for pair, dimensions := range d.pairs {
		add("pairs", "count", p4rt.Uint("dimensions", dimensions), p4rt.Exact("origin", []byte{byte(pair[0])}),
			p4rt.Exact("destination", []byte{byte(pair[1])}))
	}
	for port, dimensions := range d.ports {
		add("ports", "count", p4rt.Uint("dimensions", dimensions), p4rt.Exact("port", []byte{byte(port)}))
	}
	var updates []p4rt.Update
	for _, e := range entries {
		updates = append(updates, p4rt.Insert(e))
	}
	if err := b.client.Write(b.ctx, updates...); err != nil {
		b.t.Fatal(err)
	}
	b.duties = d
}

// countsAny reports whether the switch counts any packets of a port, without their sites.
func (d *duties) countsAny(bank int, port uint32) bool {
	if d == nil || bank == 0 {
		return true
	}
	dimensions, ok := d.ports[port]
	return !ok || dimensions != 0
}

// counts reports whether the switch counts a packet of this bank by a key.
func (d *duties) counts(bank int, port uint32, p packet, key string) bool {
	if d == nil || bank == 0 {
		return true
	}
	site := func(sites map[netip.Prefix]uint64, address []byte) (found uint64) {
		a, _ := netip.AddrFromSlice(address)
		bits := -1
		for prefix, s := range sites {
			if prefix.Contains(a) && prefix.Bits() > bits {
				found, bits = s, prefix.Bits()
			}
		}
		return found
	}
	dimensions, ok := d.ports[port]
	if !ok {
		dimensions = 0xff
	}
	if from, to := site(d.origins, p.src), site(d.destinations, p.dst); from != 0 && to != 0 {
		dimensions = d.pairs[[2]uint64{from, to}]
	}
	bit := slices.Index([]string{"src", "dst", "5-tuple", "src+dst", "dst+dst-port", "proto"}, key)
	return dimensions>>bit&1 == 1
}
