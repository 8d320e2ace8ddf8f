// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"testing"

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
