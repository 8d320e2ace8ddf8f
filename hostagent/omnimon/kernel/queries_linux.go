// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"cmp"
	"fmt"
	"maps"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/netsketch/netsketch/hostagent/omnimon"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
)

// Program egress sends the fields of packets that queries read through map events, and this process
// runs the queries. Packets that found the map full are counted, and are missing in the results.

// Bits of control.events, as in bpf/omnimon.c.
const (
	eventsOfPackets = 1 << iota
	eventsWithDNS
	eventsWithPayload
	eventsWithTime
)

// pollEvents is how often map events is read. It has room for 50,000 packets without payload.
const pollEvents = 5 * time.Millisecond

// applied are queries and the first epoch that they run in.
type applied struct {
	since   uint64
	queries omnimon.Queries
	problem string // why they do not run
}

// needs returns control.events for queries.
func needs(q omnimon.Queries) (bits uint32) {
	if q.Use() {
		bits |= eventsOfPackets
	}
	if q.Use("dns_type", "dns_response") {
		bits |= eventsWithDNS
	}
	if q.Use("payload") {
		bits |= eventsWithPayload
	}
	if q.Use("flowlet") {
		bits |= eventsWithTime
	}
	return bits
}

// adopted returns the queries of an earlier process. Results in the epochs up to now are lost.
func adopted(settings *wire.Settings, now uint64) []applied {
	q := omnimon.ParseQueries(settings, omnimon.Queries{})
	return []applied{{queries: q, problem: "the agent was restarted in this epoch"}, {since: now + 1, queries: q}}
}

// setQueries runs other queries, from the next epoch on.
func (p *Path) setQueries(settings *wire.Settings) {
	q := omnimon.ParseQueries(settings, p.queries[len(p.queries)-1].queries)
	at := &p.tables.control.Events
	atomic.StoreUint32(at, atomic.LoadUint32(at)|needs(q)) // before the epoch that they begin with
	p.queries = append(p.queries, applied{since: p.Epoch() + 1, queries: q})
}

// stepsOf returns the steps of the queries of an epoch.
func (p *Path) stepsOf(epoch uint64) *omnimon.Steps {
	steps, ok := p.steps[epoch]
	if ok {
		return steps
	}
	steps = new(omnimon.Steps)
	for _, a := range p.queries {
		switch {
		case a.since > epoch:
		case a.problem != "":
			steps = a.queries.Fail(a.problem)
		default:
			steps = a.queries.Start()
		}
	}
	p.steps[epoch] = steps
	return steps
}

// retireQueries drops the queries that no epoch needs, and the results of epochs that are gone.
func (p *Path) retireQueries() {
	oldest := p.now
	if len(p.open) > 0 {
		oldest = p.open[0]
	}
	for len(p.queries) > 1 && p.queries[1].since <= oldest {
		p.queries = p.queries[1:]
	}
	maps.DeleteFunc(p.steps, func(epoch uint64, _ *omnimon.Steps) bool { return epoch < oldest })
	if n := len(p.queries); n > 0 && p.queries[n-1].since <= p.now {
		atomic.StoreUint32(&p.tables.control.Events, needs(p.queries[n-1].queries))
	}
}

// readEvents runs the queries on the packets in map events.
func (p *Path) readEvents() error {
	const recordHeader = 8
	r := p.tables.events
	for rest := r.AvailableBytes(); rest > 0; { // not those that arrive meanwhile
		if err := r.ReadInto(&p.record); err != nil {
			return fmt.Errorf("map events: %w", err)
		}
		data := p.record.RawSample
		rest -= recordHeader + (len(data)+7)/8*8
		const size = int(unsafe.Sizeof(omnimonEvent{}))
		if len(data) < size {
			return fmt.Errorf("map events: a record of %d bytes, expected at least %d", len(data), size)
		}
		e := (*omnimonEvent)(unsafe.Pointer(&data[0]))
		if steps := p.stepsOf(e.Epoch); steps.Run() {
			e.packets(data[size:], func(ip *packet.IP) { steps.Add(ip, e.Index, time.Duration(e.Sent)) })
		}
	}
	return nil
}

// packets calls f for a packet, or for each of its segments.
func (e *omnimonEvent) packets(payload []byte, f func(*packet.IP)) {
	const ( // flags of one segment alone
		last  = packet.FIN | packet.PSH
		first = 0x80 // congestion window reduced
	)
	ip := &packet.IP{Key: key(&e.Key), TTL: e.Ttl, Window: e.Window, TCP: e.Key.Proto == packet.ProtocolTCP,
		Payload: payload}
	rest := int(e.Length) - int(e.Headers)
	segment := cmp.Or(int(e.Segment), rest)
	for i := 0; i == 0 || rest > 0; i++ {
		ip.Length, ip.Flags = int(e.Headers)+rest, e.Flags
		if i > 0 {
			ip.Flags &^= first
		}
		if rest -= segment; rest > 0 {
			ip.Length = int(e.Headers) + segment
			ip.Flags &^= last
		}
		f(ip)
	}
}
