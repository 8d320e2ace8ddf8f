// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"net/netip"

	"github.com/netsketch/netsketch/hostagent/inband"
	"github.com/netsketch/netsketch/hostagent/varint"
	"github.com/netsketch/netsketch/sketch/family"
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
	u := varint.Append
	b = u(append(b, version), r.First, r.Last)
	if r.Last == 0 {
		return b, nil
	}
	for _, counts := range [][]uint64{r.Problems[:], r.Versions[:], r.Counters[:]} {
		b = varint.AppendCounters(b, counts)
	}
	b = u(b, uint64(len(r.Heavy)))
	for i := range r.Heavy {
		h := &r.Heavy[i]
		b = u(varint.AppendFlow(b, &h.Key), uint64(h.Changes), uint64(len(h.Path)))
		for _, n := range h.Path {
			b = u(b, uint64(n))
		}
	}
	b = u(b, uint64(len(r.Inflated)))
	for i := range r.Inflated {
		f := &r.Inflated[i]
		b = u(varint.AppendFlow(b, &f.Key), uint64(f.Node), uint64(f.Packets), uint64(f.Worst))
	}
	b = u(b, uint64(len(r.Nodes)))
	for _, n := range r.Nodes {
		b = u(b, uint64(n.ID), n.Packets, n.Sum, uint64(n.Worst), n.Drops)
	}
	b = u(b, uint64(len(r.Sources)))
	for i := range r.Sources {
		s := &r.Sources[i]
		b = appendAddress(b, s.Address)
		b = u(b, uint64(s.Node), uint64(s.Hardware), s.Received, s.Lost, s.Late, s.Restarts)
	}
	b = u(b, uint64(len(r.Faults)))
	for _, f := range r.Faults {
		b = u(appendAddress(b, f.Address), uint64(f.Problem), f.Packets)
	}
	b = u(b, uint64(len(r.Queues)))
	for _, q := range r.Queues {
		b = u(b, uint64(q.Node), uint64(q.ID), q.Packets, q.Timed, q.Sum, q.Occupancy, uint64(q.Worst))
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

func appendAddress(b []byte, a netip.Addr) []byte {
	s := a.AsSlice()
	return append(varint.Append(b, uint64(len(s))), s...)
}

func address(p *varint.Reader) netip.Addr {
	a, ok := netip.AddrFromSlice(p.Bytes(int(p.Number(16))))
	if !ok {
		p.Fail("the address of a source has neither 4 nor 16 bytes")
	}
	return a
}

// ParseReport decodes a report.
func ParseReport(b []byte) (*Report, error) {
	if len(b) == 0 || b[0] != version {
		return nil, fmt.Errorf("report of role %s: %.1x is no version of it; expected %d", Role, b, version)
	}
	p := &varint.Reader{Rest: b[1:]}
	r := &Report{First: p.U64(), Last: p.U64()}
	if r.Last != 0 {
		r.read(p)
	}
	p.End()
	if err := p.Err(); err != nil {
		return nil, fmt.Errorf("report of role %s: %w", Role, err)
	}
	return r, nil
}

// read reads what follows the epochs.
func (r *Report) read(p *varint.Reader) {
	p.Counters(r.Problems[:])
	p.Counters(r.Versions[:])
	p.Counters(r.Counters[:])
	for range p.Count(3) {
		h := Heavy{Key: p.Flow(), Changes: p.U32()}
		for range min(p.Count(1), inband.MaxHops+1) {
			h.Path = append(h.Path, p.U32())
		}
		r.Heavy = append(r.Heavy, h)
	}
	for range p.Count(4) {
		r.Inflated = append(r.Inflated, Inflated{Key: p.Flow(), Node: p.U32(), Packets: p.U32(), Worst: p.U32()})
	}
	for range p.Count(5) {
		r.Nodes = append(r.Nodes, Node{ID: p.U32(), Packets: p.U64(), Sum: p.U64(), Worst: p.U32(), Drops: p.U64()})
	}
	for range p.Count(7) {
		r.Sources = append(r.Sources, Source{Address: address(p), Node: p.U32(), Hardware: uint8(p.Number(255)),
			Received: p.U64(), Lost: p.U64(), Late: p.U64(), Restarts: p.U64()})
	}
	for range p.Count(7) {
		r.Faults = append(r.Faults, Fault{Address: address(p),
			Problem: inband.Problem(p.Number(uint64(inband.Problems - 1))), Packets: p.U64()})
	}
	for range p.Count(7) {
		r.Queues = append(r.Queues, Queue{Node: p.U32(), ID: uint8(p.Number(255)), Packets: p.U64(), Timed: p.U64(),
			Sum: p.U64(), Occupancy: p.U64(), Worst: p.U32()})
	}
	r.Flows, r.Latencies = new(tower.Sketch[family.P4]), new(tower.Latency[family.P4])
	for _, t := range []interface{ UnmarshalBinary([]byte) error }{r.Flows, r.Latencies} {
		if data := p.Bytes(p.Count(1)); p.Err() == nil {
			if err := t.UnmarshalBinary(data); err != nil {
				p.Fail("%w", err)
			}
		}
	}
}
