// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// shim is OmniMon's header.
type shim struct {
	epoch       uint16
	index       uint32
	hops        uint8
	slots       []uint16
	differences []uint32
}

// omnimon models OmniMon's switch, as docs/omnimon.md describes it.
type omnimon struct {
	etherType                            uint16
	slotsPerFlow, differences            int
	arrays, slots, words                 int
	arrived, departed, noHeader, badSlot int
	counts, uncounted                    *omRegister
	units                                []*omUnit
	queueUnits                           []*omUnit // in egress
	depth                                int       // of the queue that the next packet finds
	all                                  []*omRegister
	first, size                          uint16         // window
	arrayOf                              map[uint32]int // by port
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
	queue   bool   // it matches the queue depth
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
			o.counts, o.etherType, o.slotsPerFlow = reg, uint16(number("ethertype")), number("slots_per_flow")
			o.differences, o.arrays, o.slots, o.words = number("differences"), number("arrays"), number("slots"), number("words")
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

func (o *omnimon) length() int { return 8 + 2*o.slotsPerFlow + 4*o.differences }

// typeAt is the offset of the EtherType after at most two VLAN tags, 0 if the frame ends before.
func typeAt(f []byte) int {
	at := 12
	for tags := 0; tags < 2 && len(f) >= at+2; tags++ {
		if kind := binary.BigEndian.Uint16(f[at:]); kind != 0x8100 && kind != 0x88a8 && kind != 0x9100 {
			break
		}
		at += 4
	}
	if len(f) < at+2 {
		return 0
	}
	return at
}

// insert returns the frame with a header.
func (o *omnimon) insert(f []byte, s shim) []byte {
	at := typeAt(f)
	h := binary.BigEndian.AppendUint16(slices.Clone(f[:at]), o.etherType)
	h = binary.BigEndian.AppendUint16(h, s.epoch)
	h = binary.BigEndian.AppendUint32(h, s.index<<8|uint32(s.hops))
	for _, slot := range s.slots {
		h = binary.BigEndian.AppendUint16(h, slot)
	}
	for _, d := range s.differences {
		h = binary.BigEndian.AppendUint32(h, d)
	}
	return append(h, f[at:]...)
}

// strip returns the frame without its header; nil, nil if it has none, and true if it is cut short.
func (o *omnimon) strip(f []byte) (inner []byte, s *shim, short bool) {
	at := typeAt(f)
	if at == 0 || binary.BigEndian.Uint16(f[at:]) != o.etherType {
		return nil, nil, false
	}
	b := f[at+2:]
	if len(b) < o.length() {
		return nil, nil, true
	}
	word := binary.BigEndian.Uint32(b[2:])
	s = &shim{epoch: binary.BigEndian.Uint16(b), index: word >> 8, hops: byte(word)}
	for i := range o.slotsPerFlow {
		s.slots = append(s.slots, binary.BigEndian.Uint16(b[6+2*i:]))
	}
	for i := range o.differences {
		s.differences = append(s.differences, binary.BigEndian.Uint32(b[6+2*o.slotsPerFlow+4*i:]))
	}
	return append(slices.Clone(f[:at]), b[o.length()-2:]...), s, false
}

// tcpOf returns the TCP header of a packet with a flow; false if it is cut short, which is an error
// only behind OmniMon's header.
func tcpOf(f []byte, p *packet) (tcp []byte, whole bool) {
	h := f[p.ip:]
	next, first := 40, true
	switch {
	case !p.v6:
		next, first = int(h[0]&15)*4, binary.BigEndian.Uint16(h[6:])&0x1fff == 0
	case h[6] == 44:
		next, first = 48, binary.BigEndian.Uint16(h[42:])>>3 == 0
	}
	if p.protocol != 6 || !first {
		return nil, true
	}
	if len(h) < next+20 {
		return nil, false
	}
	return h[next:][:20], true
}

// expect is expect for frames with a header as well.
func (o *omnimon) expect(f []byte) (port uint32, out []byte, forwarded bool) {
	inner, s, short := o.strip(f)
	if short {
		return dropMalformed, nil, false
	}
	if s == nil {
		return expect(f)
	}
	p := parse(inner)
	if p.drop == dropNotIP {
		return dropNotIP, nil, false // the trap does not look behind the header
	}
	if p.counted || p.drop == dropChecksum {
		if _, whole := tcpOf(inner, &p); !whole {
			return dropMalformed, nil, false
		}
	}
	if port, out, forwarded = expect(inner); !forwarded {
		return port, nil, false
	}
	s.hops++
	return port, o.insert(out, *s), true
}

// pass counts a frame that enters by port in and leaves by port out.
func (o *omnimon) pass(f []byte, in, out uint32, forwarded bool) {
	inner, s, short := o.strip(f)
	if short {
		return
	}
	if s == nil {
		if parse(f).counted {
			o.uncounted.add(int(o.first&3), o.noHeader, 1)
		}
		return
	}
	p := parse(inner)
	tcp, whole := []byte(nil), false
	if p.counted {
		tcp, whole = tcpOf(inner, &p)
	}
	if !whole {
		return
	}
	bank := int(s.epoch & 3)
	slot := int(s.slots[int(s.hops)%o.slotsPerFlow])
	switch {
	case s.epoch-o.first >= o.size:
		o.uncounted.add(bank, int(s.epoch>>2&127), 1)
		return
	case slot >= o.slots:
		o.uncounted.add(bank, o.badSlot, 1)
		return
	}
	slot += o.arrayOf[in] * o.slots
	values, fields := o.values(inner, &p, tcp)
	for i, v := range append(values, s.differences...) {
		o.counts.add(bank, slot*o.words+i, v)
	}
	o.counts.add(bank, o.arrived+int(in), 1)
	o.counted[bank]++
	if forwarded {
		o.counts.add(bank, o.departed+int(out), 1)
		o.counted[bank]++
	}
	for i, u := range o.units {
		o.counts.add(bank, slot*o.words+7+o.differences+i, u.match(fields))
	}
	if !forwarded {
		return
	}
	fields.queue = o.depth
	for i, u := range o.queueUnits {
		o.counts.add(bank, slot*o.words+7+o.differences+len(o.units)+i, u.match(fields))
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
func (o *omnimon) values(f []byte, p *packet, tcp []byte) (values []uint32, fields omFields) {
	h := f[p.ip:]
	fields = omFields{protocol: int(p.protocol), srcPort: int(binary.BigEndian.Uint16(p.ports[:]))}
	bare := 40
	if p.v6 {
		bare, fields.length, fields.ttl = 60, 40+int(binary.BigEndian.Uint16(h[4:])), int(h[7])
	} else {
		fields.src = binary.BigEndian.Uint32(p.src)
		fields.length, fields.ttl = int(binary.BigEndian.Uint16(h[2:])), int(h[8])
	}
	values = make([]uint32, 7)
	values[0], values[1] = 1, uint32(fields.length)
	if tcp == nil {
		return values, fields
	}
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
