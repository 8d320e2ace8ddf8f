// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/netsketch/netsketch/hostagent/inband"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/tower"
)

// A report is
//
//	version    byte
//	epochs     first, last
//	problems   a count, then counters
//	versions   a count, then counters
//	counters   a count, then counters
//	heavy      a count, then rows: key, changes, a count of nodes, nodes
//	inflated   a count, then rows: key, node, packets, worst
//	nodes      a count, then rows: id, packets, sum, worst, drops
//	sources    a count, then rows: length of the address, address, node, hardware, four counters
//	faults     a count, then rows: length of the address, address, problem, packets
//	queues     a count, then rows: node, id, packets, timed, sum, occupancy, worst
//	flows      length, the serialized tower
//	latencies  length, the serialized tower
//
// It ends behind the epochs if the interval has not ended. Integers are unsigned varints. A key is
// its length and its canonical bytes.
const version = 2

// Append appends the encoded report.
func (r *Report) Append(b []byte) ([]byte, error) {
	u := binary.AppendUvarint
	b = u(u(append(b, version), r.First), r.Last)
	if r.Last == 0 {
		return b, nil
	}
	for _, counts := range [][]uint64{r.Problems[:], r.Versions[:], r.Counters[:]} {
		b = u(b, uint64(len(counts)))
		for _, n := range counts {
			b = u(b, n)
		}
	}
	b = u(b, uint64(len(r.Heavy)))
	for i := range r.Heavy {
		h := &r.Heavy[i]
		b = u(u(appendFlow(b, &h.Key), uint64(h.Changes)), uint64(len(h.Path)))
		for _, n := range h.Path {
			b = u(b, uint64(n))
		}
	}
	b = u(b, uint64(len(r.Inflated)))
	for i := range r.Inflated {
		f := &r.Inflated[i]
		b = u(u(u(appendFlow(b, &f.Key), uint64(f.Node)), uint64(f.Packets)), uint64(f.Worst))
	}
	b = u(b, uint64(len(r.Nodes)))
	for _, n := range r.Nodes {
		b = u(u(u(u(u(b, uint64(n.ID)), n.Packets), n.Sum), uint64(n.Worst)), n.Drops)
	}
	b = u(b, uint64(len(r.Sources)))
	for i := range r.Sources {
		s := &r.Sources[i]
		b = appendAddress(b, s.Address)
		b = u(u(u(u(u(u(b, uint64(s.Node)), uint64(s.Hardware)), s.Received), s.Lost), s.Late), s.Restarts)
	}
	b = u(b, uint64(len(r.Faults)))
	for _, f := range r.Faults {
		b = u(u(appendAddress(b, f.Address), uint64(f.Problem)), f.Packets)
	}
	b = u(b, uint64(len(r.Queues)))
	for _, q := range r.Queues {
		b = u(u(u(u(u(u(u(b, uint64(q.Node)), uint64(q.ID)), q.Packets), q.Timed), q.Sum), q.Occupancy), uint64(q.Worst))
	}
	flows, err := r.Flows.MarshalBinary()
	if err != nil {
		return nil, err
	}
	latencies, err := r.Latencies.MarshalBinary()
	if err != nil {
		return nil, err
	}
	b = append(u(b, uint64(len(flows))), flows...)
	return append(u(b, uint64(len(latencies))), latencies...), nil
}

func appendFlow(b []byte, k *flow.Key) []byte {
	b = append(b, byte(k.Mask.Size(k.V6)))
	return k.AppendBinary(b)
}

func appendAddress(b []byte, a netip.Addr) []byte {
	s := a.AsSlice()
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// errShort is the error of bytes that end too early.
var errShort = errors.New("ends too early")

// parser reads a report; the first error stays.
type parser struct {
	b   []byte
	err error
}

func (p *parser) fail(err error) {
	if p.err == nil {
		p.err, p.b = err, nil
	}
}

func (p *parser) number(limit uint64) uint64 {
	v, n := binary.Uvarint(p.b)
	switch {
	case n <= 0:
		p.fail(errShort)
		return 0
	case v > limit:
		p.fail(fmt.Errorf("%d; expected at most %d", v, limit))
		return 0
	}
	p.b = p.b[n:]
	return v
}

func (p *parser) u64() uint64 { return p.number(1<<64 - 1) }
func (p *parser) u32() uint32 { return uint32(p.number(1<<32 - 1)) }

// count reads the count of rows of at least the given size.
func (p *parser) count(size int) int {
	n := p.u64()
	if n > uint64(len(p.b)/size) {
		p.fail(errShort)
		return 0
	}
	return int(n)
}

func (p *parser) bytes(n int) []byte {
	if n > len(p.b) {
		p.fail(errShort)
		return nil
	}
	b := p.b[:n]
	p.b = p.b[n:]
	return b
}

func (p *parser) flow() flow.Key {
	k, err := flow.ParseBinary(flow.FiveTuple, p.bytes(int(p.number(flow.MaxBinary))))
	if err != nil {
		p.fail(err)
	}
	return k
}

func (p *parser) address() netip.Addr {
	a, ok := netip.AddrFromSlice(p.bytes(int(p.number(16))))
	if !ok {
		p.fail(errors.New("the address of a source has neither 4 nor 16 bytes"))
	}
	return a
}

func (p *parser) counters(out []uint64) {
	if n := p.count(1); n != len(out) && p.err == nil {
		p.fail(fmt.Errorf("%d counters; expected %d", n, len(out)))
	}
	for i := range out {
		out[i] = p.u64()
	}
}

// ParseReport decodes a report.
func ParseReport(b []byte) (*Report, error) {
	if len(b) == 0 || b[0] != version {
		return nil, fmt.Errorf("report of role %s: %.1x is no version of it; expected %d", Role, b, version)
	}
	p := &parser{b: b[1:]}
	r := &Report{First: p.u64(), Last: p.u64()}
	if r.Last != 0 {
		p.body(r)
	}
	if p.err == nil && len(p.b) > 0 {
		p.fail(fmt.Errorf("%d bytes behind its end", len(p.b)))
	}
	if p.err != nil {
		return nil, fmt.Errorf("report of role %s: %w", Role, p.err)
	}
	return r, nil
}

func (p *parser) body(r *Report) {
	p.counters(r.Problems[:])
	p.counters(r.Versions[:])
	p.counters(r.Counters[:])
	for range p.count(3) {
		h := Heavy{Key: p.flow(), Changes: p.u32()}
		for range min(p.count(1), inband.MaxHops+1) {
			h.Path = append(h.Path, p.u32())
		}
		r.Heavy = append(r.Heavy, h)
	}
	for range p.count(4) {
		r.Inflated = append(r.Inflated, Inflated{Key: p.flow(), Node: p.u32(), Packets: p.u32(), Worst: p.u32()})
	}
	for range p.count(5) {
		r.Nodes = append(r.Nodes, Node{ID: p.u32(), Packets: p.u64(), Sum: p.u64(), Worst: p.u32(), Drops: p.u64()})
	}
	for range p.count(7) {
		r.Sources = append(r.Sources, Source{Address: p.address(), Node: p.u32(), Hardware: uint8(p.number(255)),
			Received: p.u64(), Lost: p.u64(), Late: p.u64(), Restarts: p.u64()})
	}
	for range p.count(7) {
		r.Faults = append(r.Faults, Fault{Address: p.address(),
			Problem: inband.Problem(p.number(uint64(inband.Problems - 1))), Packets: p.u64()})
	}
	for range p.count(7) {
		r.Queues = append(r.Queues, Queue{Node: p.u32(), ID: uint8(p.number(255)), Packets: p.u64(), Timed: p.u64(),
			Sum: p.u64(), Occupancy: p.u64(), Worst: p.u32()})
	}
	r.Flows, r.Latencies = new(tower.Sketch[family.P4]), new(tower.Latency[family.P4])
	for _, t := range []interface{ UnmarshalBinary([]byte) error }{r.Flows, r.Latencies} {
		if data := p.bytes(p.count(1)); p.err == nil {
			if err := t.UnmarshalBinary(data); err != nil {
				p.fail(err)
			}
		}
	}
}
