// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// omHeader is OmniMon's header.
type omHeader struct {
	epoch       uint16
	index       uint32
	hops        uint8 // bit 7 marks a probe
	slots       []uint16
	differences []uint32
}

// omnimon models OmniMon's switch, as docs/omnimon.md describes it.
type omnimon struct {
	layout                               layout
	arrays, slots, words                 int
	arrived, departed, noHeader, badSlot int
	counts, uncounted                    *omRegister
	units                                []*omUnit
	queueUnits                           []*omUnit // in egress
	depth                                int       // depth of the queue that the next packet finds
	all                                  []*omRegister
	first, size                          uint16         // window
	arrayOf                              map[uint32]int // slot array of each port
	counted                              [4]int64
}

type omRegister struct {
	register *p4values.Register
	cells    []uint32
}

func (r *omRegister) add(bank, cell int, n uint32) { r.cells[bank*r.register.Readout.Cells+cell] += n }

// omUnit is a unit of queries.
type omUnit struct {
	control string // full name
	queue   bool   // the filter matches the queue depth
	entries []omFilter
}

// omFilter is an entry of a filter, the first match of which applies.
type omFilter struct {
	src, srcMask     uint32
	flags, flagsMask byte
	protocol, length [2]int // ranges
	srcPort, queue   [2]int
	action           string
}

// newOmniMon makes the model of a program; nil if it has no such control.
func newOmniMon(cat *p4values.Catalog) *omnimon {
	o := &omnimon{arrayOf: map[uint32]int{}}
	for _, r := range cat.Registers.All() {
		a, ok := r.Annotations.Find("netsketch_omnimon")
		if !ok {
			continue
		}
		number := func(key string) int {
			n, _ := a.Int(key) // an absent field stays zero
			return int(n)
		}
		reg := &omRegister{r, make([]uint32, r.Size)}
		o.all = append(o.all, reg)
		switch a.Values["part"] {
		case "counts":
			o.counts = reg
			o.layout = layout{etherType: uint16(number("ethertype")), slots: number("slots_per_flow"),
				differences: number("differences")}
			o.arrays, o.slots, o.words = number("arrays"), number("slots"), number("words")
			o.arrived, o.departed = number("arrived"), number("departed")
			for n := range number("units") {
				o.units = append(o.units, &omUnit{control: fmt.Sprintf("ingress.omnimon.unit%d.", n)})
			}
			for n := range number("queue_units") {
				o.queueUnits = append(o.queueUnits, &omUnit{control: fmt.Sprintf("egress.omnimon.unit%d.", n), queue: true})
			}
		case "uncounted":
			o.uncounted, o.noHeader, o.badSlot = reg, number("no_header"), number("bad_slot")
		}
	}
	if o.counts == nil {
		return nil
	}
	return o
}

// header reads OmniMon's header at an offset.
func (l layout) header(f []byte, at int) (h omHeader) {
	word := binary.BigEndian.Uint32(f[at+2:])
	h = omHeader{epoch: binary.BigEndian.Uint16(f[at:]), index: word >> 8, hops: byte(word)}
	for i := range l.slots {
		h.slots = append(h.slots, binary.BigEndian.Uint16(f[at+6+2*i:]))
	}
	for i := range l.differences {
		h.differences = append(h.differences, binary.BigEndian.Uint32(f[at+6+2*l.slots+4*i:]))
	}
	return h
}

// parse parses a frame: with a carrier, the TCP header must be whole.
func (o *omnimon) parse(f []byte) packet {
	p := o.layout.parse(f, false)
	if p.body > 0 && p.flags > 0 && len(f) < p.flags+20 {
		return p.without("truncated")
	}
	return p
}

// expect is expect with the hops that the switch counts.
func (o *omnimon) expect(f []byte) (port uint32, out []byte, forwarded bool) {
	p := o.parse(f)
	if p.counted && p.body > 0 {
		f = slices.Clone(f)
		f[p.body+5] = f[p.body+5]&0x80 | (f[p.body+5]+1)&0x7f
	}
	return expectOf(f, p)
}

// pass counts a frame that enters by port in and leaves by port out.
func (o *omnimon) pass(f []byte, in, out uint32, forwarded bool) {
	p := o.parse(f)
	if !p.counted {
		return
	}
	if p.body == 0 {
		o.uncounted.add(int(o.first&3), o.noHeader, 1)
		return
	}
	s := o.layout.header(f, p.body)
	if s.hops&0x80 != 0 {
		return
	}
	bank := int(s.epoch & 3)
	slot := int(s.slots[int(s.hops)%o.layout.slots])
	switch {
	case s.epoch-o.first >= o.size:
		o.uncounted.add(bank, int(s.epoch>>2&127), 1)
		return
	case slot >= o.slots:
		o.uncounted.add(bank, o.badSlot, 1)
		return
	}
	slot += o.arrayOf[in] * o.slots
	values, fields := o.values(f, &p)
	for i, v := range append(values, s.differences...) {
		o.counts.add(bank, slot*o.words+i, v)
	}
	o.counts.add(bank, o.arrived+int(in), 1)
	o.counted[bank]++
	if forwarded {
		o.counts.add(bank, o.departed+int(out), 1)
		o.counted[bank]++
	}
	units := slot*o.words + 7 + o.layout.differences
	for i, u := range o.units {
		o.counts.add(bank, units+i, u.match(fields))
	}
	if !forwarded {
		return
	}
	fields.queue = o.depth
	for i, u := range o.queueUnits {
		o.counts.add(bank, units+len(o.units)+i, u.match(fields))
	}
}

// omFields are what filters match and units add.
type omFields struct {
	src                                    uint32
	protocol, length, ttl, window, srcPort int
	flags                                  byte
	queue                                  int
}

// values returns the statistics of a packet, and its fields.
func (o *omnimon) values(f []byte, p *packet) (values []uint32, fields omFields) {
	fields = omFields{protocol: int(p.protocol), srcPort: int(binary.BigEndian.Uint16(p.ports[:])), length: p.length}
	bare := 40
	if p.v6 {
		bare, fields.ttl = 60, int(f[p.ip+7])
	} else {
		fields.src, fields.ttl = binary.BigEndian.Uint32(p.src), int(f[p.ip+8])
	}
	values = make([]uint32, 7)
	values[0], values[1] = 1, uint32(fields.length)
	if p.flags == 0 {
		return values, fields
	}
	tcp := f[p.flags:]
	fields.flags, fields.window = tcp[13], int(binary.BigEndian.Uint16(tcp[14:]))
	fin, syn, rst, ack := fields.flags&1 != 0, fields.flags&2 != 0, fields.flags&4 != 0, fields.flags&16 != 0
	for i, holds := range []bool{syn && !ack, fin || rst, syn && ack, ack && !syn && !fin && !rst,
		fields.length == bare} {
		if holds {
			values[2+i] = 1
		}
	}
	return values, fields
}

// match returns what a packet adds to the unit.
func (u *omUnit) match(f omFields) (amount uint32) {
	in := func(v int, r [2]int) bool { return v >= r[0] && v <= r[1] }
	for _, e := range u.entries {
		if (f.src^e.src)&e.srcMask != 0 || (f.flags^e.flags)&e.flagsMask != 0 || !in(f.protocol, e.protocol) ||
			!in(f.length, e.length) || !in(f.srcPort, e.srcPort) ||
			!in(f.queue, e.queue) {
			continue
		}
		switch e.action {
		case "add_one":
			return 1
		case "add_length":
			return uint32(f.length)
		case "add_ttl":
			return uint32(f.ttl)
		case "add_window":
			return uint32(f.window)
		}
		return 0
	}
	return 0
}
