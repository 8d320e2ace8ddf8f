// SPDX-License-Identifier: Apache-2.0

package omnimon

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/netsketch/netsketch/hostagent/omnimon/query"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
)

// switchFields are fields of packets that hosts do not have.
var switchFields = []string{"queue"}

// Queries are the queries of settings, as a host runs them on the packets that it sends.
type Queries struct {
	running  []running
	tuples   int           // most tuples of an operator in an epoch; further tuples are only counted
	gap      time.Duration // the longest time between two packets of a flowlet
	flowlets flowlets      // nil: no query reads the field flowlet
}

// running is a query of the settings.
type running struct {
	id      uint64
	plan    *query.Plan
	problem string // reason for which this host cannot run the query
}

// Steps are the steps of all queries in one epoch, and their results.
type Steps struct {
	list     []step
	payload  bool // a step reads the payload
	gap      time.Duration
	flowlets flowlets
}

type step struct {
	wire.QueryRow
	local *query.Local // nil with a problem, and for a step that runs elsewhere
	runs  bool
}

// flowlets numbers the flowlets of the flows that a host sends, by host index.
type flowlets []flowlet

type flowlet struct {
	last   time.Duration // when the latest packet was sent
	number uint32
	began  bool
}

// number returns the flowlet of a packet. A packet that was sent more than gap after all others of
// its flow begins the next flowlet.
func (l flowlets) number(index uint32, sent, gap time.Duration) int {
	if l == nil {
		return 0
	}
	f := &l[index]
	if f.began && sent-f.last > gap {
		f.number++
	}
	if !f.began || sent > f.last {
		f.last, f.began = sent, true
	}
	return int(f.number)
}

// ParseQueries prepares the queries of settings, which the plugin has checked. A query that this
// agent cannot run is reported with the reason. Numbers of flowlets continue from the earlier
// queries if the flow table is the same.
func ParseQueries(settings *wire.Settings, before Queries) Queries {
	out := Queries{tuples: cmp.Or(settings.QueryTuples, wire.DefaultQueryTuples), gap: settings.FlowletGap}
	for _, s := range settings.Queries {
		r := running{id: s.ID}
		if q, err := query.Parse("query", s.Text); err != nil {
			r.problem = err.Error()
		} else {
			r.plan = q.Place()
			for _, f := range switchFields {
				if r.uses(f) {
					r.problem = "hosts do not know the field " + f
				}
			}
		}
		out.running = append(out.running, r)
	}
	if out.Use("flowlet") {
		if out.flowlets = before.flowlets; out.flowlets == nil {
			out.flowlets = make(flowlets, settings.Flows)
		}
	}
	return out
}

// Drop drops the flowlets of a flow, whose index becomes free.
func (q Queries) Drop(index uint32) {
	if q.flowlets != nil {
		q.flowlets[index] = flowlet{}
	}
}

func (r *running) uses(field string) bool {
	return slices.ContainsFunc(r.plan.Steps, func(s query.Step) bool { return s.Uses(field) })
}

// Use reports whether a query that this host runs reads one of the fields of packets. Without
// fields it reports whether there is any query.
func (q Queries) Use(fields ...string) bool {
	return slices.ContainsFunc(q.running, func(r running) bool {
		return r.problem == "" && (len(fields) == 0 || slices.ContainsFunc(fields, r.uses))
	})
}

// Tuples is the largest count of tuples that an operator keeps in one epoch.
func (q Queries) Tuples() int { return q.tuples }

// Gap is the longest time between two packets of a flowlet.
func (q Queries) Gap() time.Duration { return q.gap }

// Steps are the steps that this host runs, of all queries.
func (q Queries) Steps() (all []*query.Step) {
	for _, r := range q.running {
		if r.problem != "" {
			continue
		}
		for i := range r.plan.Steps {
			if s := &r.plan.Steps[i]; s.Source == "packets" {
				all = append(all, s)
			}
		}
	}
	return all
}

// Start returns the steps of all queries for an epoch that begins.
func (q Queries) Start() *Steps {
	out := &Steps{payload: q.Use("payload"), gap: q.gap, flowlets: q.flowlets}
	for _, r := range q.running {
		if r.problem != "" {
			out.list = append(out.list, step{QueryRow: wire.QueryRow{ID: r.id, Problem: r.problem}})
			continue
		}
		for i := range r.plan.Steps {
			if s := &r.plan.Steps[i]; s.Source == "packets" {
				out.list = append(out.list, step{QueryRow: wire.QueryRow{ID: r.id, Step: i},
					local: s.Start(q.tuples), runs: true})
			}
		}
	}
	return out
}

// Fail returns the results of queries that do not run in an epoch.
func (q Queries) Fail(problem string) *Steps {
	out := new(Steps)
	for _, r := range q.running {
		out.list = append(out.list, step{QueryRow: wire.QueryRow{ID: r.id, Problem: cmp.Or(r.problem, problem)}})
	}
	return out
}

// Run reports whether there is any step.
func (s *Steps) Run() bool { return len(s.list) > 0 }

// Add runs the queries on an outgoing packet of the flow with a host index. Its time counts from
// any zero.
func (s *Steps) Add(p *packet.IP, index uint32, sent time.Duration) {
	s.AddOf(p, s.flowlets.number(index, sent, s.gap))
}

// AddOf is Add for a packet whose flowlet is known.
func (s *Steps) AddOf(p *packet.IP, flowlet int) {
	t := tuple(p, flowlet, s.payload)
	for i := range s.list {
		if l := s.list[i].local; l != nil {
			l.Add(t)
		}
	}
}

// Elsewhere states that step number i of Queries.Steps does not run on the packets that Add
// receives. SetRow sets its result.
func (s *Steps) Elsewhere(i int) { s.at(i).local = nil }

// SetRow sets the result of a step that runs elsewhere.
func (s *Steps) SetRow(i int, tuples []query.Tuple, undefined, dropped uint64) {
	row := s.at(i)
	row.Undefined, row.Dropped, row.Tuples = undefined, dropped, query.AppendTuples(nil, tuples)
}

// SetCopied states why the packets of step number i are copied.
func (s *Steps) SetCopied(i int, why string) { s.at(i).Copied = why }

// at returns step number i of Queries.Steps.
func (s *Steps) at(n int) *step {
	for i := range s.list {
		if !s.list[i].runs {
			continue
		}
		if n == 0 {
			return &s.list[i]
		}
		n--
	}
	panic("omnimon: no such step of queries")
}

// Rows returns the results. It counts packets that Add did not receive as dropped, and so packets
// that were not counted elsewhere.
func (s *Steps) Rows(unread, elsewhere uint64) (out []wire.QueryRow) {
	for i := range s.list {
		row := s.list[i].QueryRow
		if l := s.list[i].local; l != nil {
			tuples, undefined, dropped := l.Result()
			row.Undefined, row.Dropped = uint64(undefined), uint64(dropped)+unread
			row.Tuples = query.AppendTuples(nil, tuples)
		} else if s.list[i].runs {
			row.Dropped += elsewhere
			if row.Tuples == nil {
				row.Tuples = query.AppendTuples(nil, nil)
			}
		}
		out = append(out, row)
	}
	return out
}

// tuple returns the fields of a packet in the order of query.PacketFields. The payload is copied
// only if it is needed.
func tuple(p *packet.IP, flowlet int, payload bool) query.Tuple {
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
		{Type: query.Text, Text: text}, n(kind), n(response), n(flowlet), n(0)}
}

// dns returns the type of the first question of a DNS message over UDP port 53, and 1 for a
// response; zeros for other packets.
func dns(p *packet.IP) (kind, response int) {
	const header, label, labels = 12, 0x3f, 127 // labels: the most in a name
	b := p.Payload
	if p.Key.Proto != packet.ProtocolUDP || p.Key.SrcPort != 53 && p.Key.DstPort != 53 || len(b) < header {
		return 0, 0
	}
	response = int(b[2] >> 7)
	if binary.BigEndian.Uint16(b[4:]) == 0 { // questions
		return 0, response
	}
	b = b[header:]
	for n := 0; n < labels && len(b) > 0 && b[0] > 0 && b[0] <= label && len(b) > int(b[0]); n++ {
		b = b[b[0]+1:]
	}
	if len(b) < 3 || b[0] != 0 {
		return 0, response
	}
	return int(binary.BigEndian.Uint16(b[1:])), response
}
