// SPDX-License-Identifier: Apache-2.0

package omnimon

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/plugins/omnimon/query"
)

// maxTuples bounds the tuples of one step of a query in one epoch; others are counted.
const maxTuples = 1 << 16

// switchFields are fields of packets that hosts do not have.
var switchFields = []string{"queue", "flowlet"}

// running is a query of the settings.
type running struct {
	id      uint64
	plan    *query.Plan
	problem string // why this host cannot run it
}

// step is a step of a query in one epoch.
type step struct {
	wire.QueryRow
	local   *query.Local // nil with a problem
	payload bool         // it reads the payload
}

// parseQueries prepares the queries of the settings. The plugin has checked them; one that this
// agent cannot run is reported with the reason.
func parseQueries(settings []wire.Query) (out []running) {
	for _, s := range settings {
		r := running{id: s.ID}
		if q, err := query.Parse("query", s.Text); err != nil {
			r.problem = err.Error()
		} else {
			r.plan = q.Place()
			for i := range r.plan.Steps {
				for _, f := range switchFields {
					if r.plan.Steps[i].Uses(f) {
						r.problem = "hosts do not know the field " + f
					}
				}
			}
		}
		out = append(out, r)
	}
	return out
}

// start returns the steps of all queries for an epoch that begins.
func start(queries []running) (out []step) {
	for _, q := range queries {
		if q.problem != "" {
			out = append(out, step{QueryRow: wire.QueryRow{ID: q.id, Problem: q.problem}})
			continue
		}
		for i := range q.plan.Steps {
			if s := &q.plan.Steps[i]; s.Source == "packets" {
				out = append(out, step{QueryRow: wire.QueryRow{ID: q.id, Step: i}, local: s.Start(maxTuples),
					payload: s.Uses("payload")})
			}
		}
	}
	return out
}

// query runs the queries of the epoch on an outgoing packet.
func (g *epochSlots) query(p *packet.IP) {
	t := tuple(p, slices.ContainsFunc(g.steps, func(s step) bool { return s.payload }))
	for i := range g.steps {
		if l := g.steps[i].local; l != nil {
			l.Add(t)
		}
	}
}

// rows returns the results of the epoch's steps.
func (g *epochSlots) rows() (out []wire.QueryRow) {
	for i := range g.steps {
		s := g.steps[i].QueryRow
		if l := g.steps[i].local; l != nil {
			tuples, undefined, dropped := l.Result()
			s.Undefined, s.Dropped, s.Tuples = uint64(undefined), uint64(dropped), query.AppendTuples(nil, tuples)
		}
		out = append(out, s)
	}
	return out
}

// tuple returns the fields of a packet in the order of query.PacketFields. The payload is copied
// only if it is needed.
func tuple(p *packet.IP, payload bool) query.Tuple {
	n := func(v int) query.Value { return query.Value{Type: query.Integer, Int: int64(v)} }
	a := func(b [16]byte) query.Value {
		if p.Key.V6 {
			return query.Value{Type: query.Address, Address: netip.AddrFrom16(b)}
		}
		return query.Value{Type: query.Address, Address: netip.AddrFrom4([4]byte(b[:4]))}
	}
	text := ""
	if payload {
		text = string(p.Payload)
	}
	kind, response := dns(p)
	return query.Tuple{a(p.Key.Src), a(p.Key.Dst), n(int(p.Key.Proto)), n(int(p.Key.SrcPort)), n(int(p.Key.DstPort)),
		n(p.Length), n(int(p.TTL)), n(int(p.Flags)), n(int(p.Window)),
		{Type: query.Text, Text: text}, n(kind), n(response), n(0), n(0)}
}

// dns returns the type of the first question of a DNS message over UDP port 53, and 1 for a
// response; zeros for other packets.
func dns(p *packet.IP) (kind, response int) {
	const header, label = 12, 0x3f
	b := p.Payload
	if p.Key.Proto != packet.ProtocolUDP || p.Key.SrcPort != 53 && p.Key.DstPort != 53 || len(b) < header {
		return 0, 0
	}
	response = int(b[2] >> 7)
	if binary.BigEndian.Uint16(b[4:]) == 0 { // questions
		return 0, response
	}
	for b = b[header:]; len(b) > 0 && b[0] > 0 && b[0] <= label && len(b) > int(b[0]); {
		b = b[b[0]+1:]
	}
	if len(b) < 3 || b[0] != 0 {
		return 0, response
	}
	return int(binary.BigEndian.Uint16(b[1:])), response
}
