// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/netsketch/netsketch/hostagent/lease"
	"github.com/netsketch/netsketch/hostagent/omnimon/header"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
)

// TestFullTable: a table takes as many flows as it has entries, each packet counts for its flow,
// and flows that leave make room for as many others, wherever their buckets were.
func TestFullTable(t *testing.T) {
	needBPF(t)
	const flows = 1 << 16 // half of the cells, the most that are in use
	s := defaults(0)
	s.Carrier, s.Flows, s.IdleEpochs = wire.CarrierOption, flows, 1
	p := newPath(t, Config{}, s)
	send := func(to byte, i int) {
		frame := ipFrame(address(0, i&1 > 0), address(to, i&1 > 0), packet.ProtocolUDP, uint16(i), 9, 0, 0, nil)
		run(t, p.tables.egress, frame, tcNext)
	}
	for generation := range byte(2) {
		e := p.Epoch()
		for range 2 {
			for i := range flows {
				send(1+generation, i)
			}
		}
		for i := range 10 {
			send(2-generation, i)
		}
		p.Advance(e + 1)
		g, err := p.Seal(e)
		if err != nil || g == nil {
			t.Fatalf("epoch %d: %v", e, err)
		}
		r, err := wire.Open(g.Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		if r.EgressRows != flows || r.Counters[wire.Untracked] != 10 {
			t.Errorf("epoch %d: %d flows, want %d; %d packets untracked, want 10", e, r.EgressRows, flows,
				r.Counters[wire.Untracked])
		}
		var row wire.EgressRow
		for v := new(wire.Values); r.NextEgress(&row); {
			if err := v.Decode(row.Values); err != nil {
				t.Fatal(err)
			}
			if v[wire.Packets] != 2 || row.Key.DstAddr() != address(1+generation, row.Key.V6) {
				t.Fatalf("epoch %d: flow %s has %d packets, want 2", e, row.Key, v[wire.Packets])
			}
		}
		g.Release()
		for range 5 {
			e++
			p.Advance(e + 1)
			if g, err := p.Seal(e); err != nil {
				t.Fatal(err)
			} else if g != nil {
				g.Release()
			}
		}
	}
}

// TestReturningFlow: a flow that left the table is a new flow when it returns, whether or not
// another flow has its former entry.
func TestReturningFlow(t *testing.T) {
	needBPF(t)
	s := defaults(0)
	s.Carrier, s.IdleEpochs = wire.CarrierOption, 1
	p := newPath(t, Config{}, s)
	sent := map[uint16]int64{} // packets in the open epoch, by source port
	send := func(port uint16) {
		frame := ipFrame(address(0, false), address(1, false), packet.ProtocolUDP, port, 9, 0, 0, nil)
		run(t, p.tables.egress, frame, tcNext)
		sent[port]++
	}
	seal := func() {
		e := p.Epoch()
		p.Advance(e + 1)
		g, err := p.Seal(e)
		if err != nil || g == nil {
			t.Fatalf("epoch %d: %v", e, err)
		}
		defer g.Release()
		r, err := wire.Open(g.Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		var row wire.EgressRow
		for v := new(wire.Values); r.NextEgress(&row); {
			if err := v.Decode(row.Values); err != nil {
				t.Fatal(err)
			}
			if port := row.Key.SrcPort; v[wire.Packets] != sent[port] {
				t.Errorf("epoch %d: port %d has %d packets, want %d", e, port, v[wire.Packets], sent[port])
			}
			delete(sent, row.Key.SrcPort)
		}
		for port, n := range sent {
			t.Errorf("epoch %d: port %d is not in the report, want %d packets", e, port, n)
		}
		clear(sent)
	}
	leave := func() {
		for range 6 {
			seal()
		}
		if p.tables.control.Cells != [len(p.tables.control.Cells)]uint32{} {
			t.Errorf("cells of flows that left: %v", p.tables.control.Cells)
		}
	}
	send(1)
	seal()
	leave()
	send(1) // alone
	seal()
	leave()
	send(2) // takes the entry
	send(1)
	seal()
}

// TestManyHosts: with 10,000 hosts, whose directory has fewer places than cells, each packet counts
// for its source host and index, in any epoch, until the epoch has as many pages as are configured.
func TestManyHosts(t *testing.T) {
	needBPF(t)
	const hosts, pages = 10_000, 1024
	s := defaults(0)
	s.Flows, s.IngressSlots, s.Shares, s.Slots = 1<<16, pages*pageSlots, 2*hosts, 1024
	s.Hosts = nil
	at := func(host int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, byte(host >> 8), byte(host)}) }
	for host := range hosts {
		s.Hosts = append(s.Hosts, []netip.Addr{at(host)})
	}
	layout := header.Layout{EtherType: s.EtherType, Slots: s.SlotsPerFlow}
	for _, start := range []uint64{100, 3<<30 - 2, 1<<32 - 3} { // epochs whose lower 32 bits are negative, or wrap
		p := newPathAt(t, Config{}, s, start)
		var most uint64
		for _, m := range p.tables.maps {
			most = max(most, uint64(m.MaxEntries())*uint64(m.ValueSize()))
		}
		if limit := uint64(64 << 20); most > limit {
			t.Errorf("a map of %d bytes, want at most %d", most, limit)
		}
		r := rand.New(rand.NewPCG(start, 1))
		for e := start; e < start+20; e++ {
			type cell struct{ host, index int }
			want, dropped := map[cell]int64{}, uint64(0)
			used := map[cell]bool{} // pages
			for range 2500 {
				c := cell{1 + r.IntN(hosts-1), r.IntN(1 << 16)}
				if r.IntN(2) == 0 {
					c = cell{1 + c.host%40, c.index % 300} // some have several flows
				}
				f := packet.NewFrame(ipFrame(at(c.host), at(0), packet.ProtocolUDP, uint16(c.index), 9, 0, 0, nil))
				layout.Insert(f, packet.Link{TypeAt: 12, Type: packet.EtherTypeIPv4}, &header.Header{Epoch: uint16(e),
					HostIndex: uint32(c.index)})
				run(t, p.tables.ingress, f.Bytes(), tcNext)
				if page := (cell{c.host, c.index / pageSlots}); used[page] || len(used) < pages {
					used[page] = true
					want[c]++
				} else {
					dropped++
				}
			}
			p.Advance(e + 1)
			g, err := p.Seal(e)
			if err != nil || g == nil {
				t.Fatalf("epoch %d: %v, %v", e, g, err)
			}
			report, err := wire.Open(g.Append(nil))
			if err != nil {
				t.Fatal(err)
			}
			report.SkipEgress()
			for host, ok := report.NextHost(); ok; host, ok = report.NextHost() {
				for row := new(wire.IngressRow); report.NextIngress(row); {
					var v wire.Values
					if err := v.Decode(row.Values); err != nil {
						t.Fatal(err)
					}
					c := cell{host, int(row.Index)}
					if v[wire.Packets] != want[c] {
						t.Fatalf("epoch %d: %d packets of %+v, want %d", e, v[wire.Packets], c, want[c])
					}
					delete(want, c)
				}
			}
			if got := report.Counters[wire.IngressFull]; len(want) > 0 || got != dropped || dropped == 0 {
				t.Fatalf("epoch %d: %d flows are not in the report; %d packets had no page, want %d", e, len(want), got, dropped)
			}
			g.Release()
		}
		for host := 1; host < 3000; host += 7 {
			run(t, p.tables.egress, ipFrame(at(0), at(host), packet.ProtocolUDP, 1, 9, 0, 0, nil), tcNext)
		}
		wanted := p.Wanted()
		slices.SortFunc(wanted, func(a, b lease.Peer) int { return a.Host - b.Host })
		if len(wanted) != 429 || wanted[0] != (lease.Peer{Host: 1, Address: at(1)}) || wanted[428].Address != at(2997) {
			t.Errorf("%d addresses are wanted: %v", len(wanted), wanted[:min(len(wanted), 5)])
		}
	}
}
