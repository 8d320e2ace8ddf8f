// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/netsketch/netsketch/p4/p4rt"
)

// window sets the window of switch and model.
func (b *bench) window(first, size uint16) {
	b.t.Helper()
	b.settle()
	err := b.client.SetDefaultAction(b.ctx, "ingress.omnimon.window", "set_window", p4rt.Uint("first", uint64(first)),
		p4rt.Uint("size", uint64(size)))
	if err != nil {
		b.t.Fatal(err)
	}
	b.omnimon.first, b.omnimon.size = first, size
}

// anything matches all packets.
func anything(action string) omFilter {
	return omFilter{protocol: [2]int{0, 255}, length: [2]int{0, 1 << 17}, srcPort: [2]int{0, 65535},
		queue: [2]int{0, 1<<19 - 1}, action: action}
}

// filters writes entries into the filters of all units but the first one, which has none.
func (b *bench) filters() {
	b.t.Helper()
	syn := anything("add_one")
	syn.flags, syn.flagsMask, syn.protocol = 2, 0x12, [2]int{6, 6}
	host := anything("add_length")
	host.src, host.srcMask = 10<<24|9<<16, 0xffff0000
	small := anything("skip")
	small.length = [2]int{0, 43}
	low := anything("add_ttl")
	low.srcPort = [2]int{0, 20_000}
	for i, entries := range [][]omFilter{nil, {syn, anything("skip")}, {small, host, low}, {anything("add_window")}} {
		if i < len(b.omnimon.units) {
			b.filter(b.omnimon.units[i], entries)
		}
	}
	long := anything("add_length")
	long.queue[0] = 1
	for i, entries := range [][]omFilter{{long, syn, low}, {anything("add_window")}} {
		if i < len(b.omnimon.queueUnits) {
			b.filter(b.omnimon.queueUnits[i], entries)
		}
	}
}

// filter writes entries into the filter of a unit.
func (b *bench) filter(u *omUnit, entries []omFilter) {
	b.t.Helper()
	u.entries = entries
	var out []p4rt.Entry
	number := func(v int, bytes int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(v))[4-bytes:] }
	for n, e := range entries {
		span := func(field string, r [2]int, bytes int) p4rt.Match {
			return p4rt.Range(field, number(r[0], bytes), number(r[1], bytes))
		}
		match := []p4rt.Match{p4rt.Ternary("src", number(int(e.src), 4), number(int(e.srcMask), 4)),
			p4rt.Ternary("flags", []byte{e.flags}, []byte{e.flagsMask}), span("protocol", e.protocol, 1),
			span("length", e.length, 4), span("src_port", e.srcPort, 2)}
		if u.queue {
			match = append(match, span("queue", e.queue, 3))
		}
		out = append(out, p4rt.Entry{Table: u.control + "filter", Priority: int32(100 - n), Action: u.control + e.action,
			Match: match})
	}
	if err := b.client.Reconcile(b.ctx, p4rt.Desired{Entries: out}); err != nil {
		b.t.Fatal(err)
	}
}

// conformOmniMon compares all banks with the model: packets of epochs inside and outside of the
// window, with slots inside and beyond the arrays, all TCP flags, and windows that move.
func (b *bench) conformOmniMon() {
	b.t.Helper()
	o := b.omnimon
	b.filters()
	if o.arrays > 1 {
		o.arrayOf[1] = o.arrays - 1
		err := b.client.Reconcile(b.ctx, p4rt.Desired{Entries: []p4rt.Entry{{Table: "ingress.omnimon.port_array",
			Action: "ingress.omnimon.use_array", Match: []p4rt.Match{p4rt.Exact("port", []byte{1})},
			Params: []p4rt.Param{p4rt.Uint("array", uint64(o.arrays-1))}}}})
		if err != nil {
			b.t.Fatal(err)
		}
	}
	for round, w := range [][2]uint16{{0, 0}, {0xfffe, 4}, {0xffff, 3}, {2, 4}} {
		b.window(w[0], w[1])
		r := rand.New(rand.NewPCG(uint64(round), 3))
		for i, f := range slices.Concat(oddFrames(), flowFrames(uint64(30+round), 400, 60)) {
			b.send(fmt.Sprintf("round %d, frame %d without header", round, i), 0, f)
			kind := carriers[(i+round)%len(carriers)]
			if f = b.tagged(r, kind, f); f == nil {
				continue
			}
			b.send(fmt.Sprintf("round %d, frame %d in a %s", round, i, kind), 0, f)
			if i%20 < len(carriers) {
				b.send(fmt.Sprintf("round %d, frame %d in a %s, cut short", round, i, kind), 0,
					f[:min(len(f), 12+r.IntN(100))])
			}
		}
		for i, f := range o.layout.carrierFrames(func() omHeader { return o.anyHeader(r) }) {
			b.send(fmt.Sprintf("round %d, carrier %d", round, i), 0, f)
		}
		for bank := range 4 {
			if round != 1 || bank == 2 { // the bank that is read next
				b.compare(bank)
			}
		}
	}
	b.compareCounters()
}

// tagged returns the frame in a carrier, with other TCP flags; nil without room for the carrier.
func (b *bench) tagged(r *rand.Rand, kind string, f []byte) []byte {
	f = slices.Clone(f)
	if p := parse(f); p.counted && p.flags > 0 && len(f) >= p.flags+20 && r.IntN(4) > 0 {
		f[p.flags+13] = byte(r.Uint32())
		binary.BigEndian.PutUint16(f[p.flags+14:], uint16(r.Uint32()))
	}
	return b.omnimon.layout.carry(kind, f, b.omnimon.anyHeader(r))
}

// anyHeader returns a header; one in 16 is a probe's.
func (o *omnimon) anyHeader(r *rand.Rand) omHeader {
	s := omHeader{epoch: o.first + uint16(r.IntN(5)), index: r.Uint32N(1 << 24), hops: byte(r.Uint32() & 0x7f)}
	if r.IntN(16) == 0 {
		s.hops |= 0x80
	}
	if r.IntN(8) == 0 {
		s.epoch = uint16(r.Uint32())
	}
	for range o.layout.slots {
		slot := uint16(r.IntN(min(o.slots, 20)))
		switch r.IntN(8) {
		case 0:
			slot = uint16(o.slots - 1)
		case 1:
			slot = uint16(r.Uint32())
		}
		s.slots = append(s.slots, slot)
	}
	for range o.layout.differences {
		s.differences = append(s.differences, uint32(int32(r.IntN(100)-30)))
	}
	return s
}

// TestOmniMonQueue: a unit in egress matches the depth of the queue that a packet found, and not
// the packets behind it, and counts in the slot and the bank of the packet.
func TestOmniMonQueue(t *testing.T) {
	d := startDelayed(t)
	b := newBench(t, load(t, "omnimon"), d)
	b.install()
	b.window(8, 4)
	waited := anything("add_one")
	waited.queue = [2]int{2, 5}
	b.filter(b.omnimon.queueUnits[0], []omFilter{waited})
	r := rand.New(rand.NewPCG(1, 3))
	depths, left := map[uint32]int{}, 0
	for i, f := range flowFrames(50, 100, 60) {
		f = b.tagged(r, carriers[i%len(carriers)], f)
		d.sw.Inject(1, f, 0)
		port, _, forwarded := b.omnimon.expect(f)
		b.omnimon.depth = depths[port]
		b.omnimon.pass(f, 1, port, forwarded)
		if forwarded && port != cpuPort {
			depths[port]++
			left++
		}
	}
	d.sw.Advance(time.Second)
	counted := uint32(0)
	for bank := range 4 {
		for slot := range b.omnimon.slots {
			at := bank*b.omnimon.counts.register.Readout.Cells + (slot+1)*b.omnimon.words - 1
			counted += b.omnimon.counts.cells[at]
		}
		b.compare(bank)
	}
	if counted < 10 || len(depths) < 3 || len(d.out) != left {
		t.Errorf("%d packets counted, %d ports, %d of %d packets left", counted, len(depths), len(d.out), left)
	}
}
