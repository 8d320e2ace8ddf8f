// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/netsketch/netsketch/hostagent/omnimon"
	"github.com/netsketch/netsketch/hostagent/omnimon/query"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
)

// The kernel runs queries by a program that is generated from them (compile_linux.go), and this
// process reads the maps of the program when an epoch is over. It also runs the steps itself that
// the kernel cannot run, on packets that the kernel copies for them (bpf/queries.h).

// Constants of bpf/queries.h.
const (
	needCompiled = 1 << iota
	needDNS
	needFlowlet
	needData

	queryGenerations = 2
	queryPrograms    = 16
	copyProgram      = 2 * queryGenerations * queryPrograms
)

// Counters behind the counters of package wire, as in bpf/omnimon.c.
const (
	unreadCounter = int(wire.Counters) + iota
	uncountedCounter
)

// pollQueries is how often the maps are looked at while queries run. Map copies has room for 20,000
// packets without payload.
const pollQueries = 5 * time.Millisecond

// applied are queries and the first epoch that they run in.
type applied struct {
	since   uint64
	queries omnimon.Queries
	problem string    // reason for which the queries do not run
	set     *querySet // nil: no queries, or they have ended
	copied  []string  // reason for which the agent runs a step; empty: the kernel runs it
}

// querySet is the part of queries that the kernel runs.
type querySet struct {
	number    int // number of the set in bpf/queries.h
	generated [queryGenerations]*generated
}

// first is the number of the first program of a generation in map queries.
func (s *querySet) first(generation int) int {
	return (s.number*queryGenerations + generation) * queryPrograms
}

// end removes a set that no packet uses from the kernel.
func (s *querySet) end(t *tables) {
	for g := range s.generated {
		for i := range queryPrograms {
			_ = t.maps[omnimonMapQueries].Delete(uint32(s.first(g) + i)) // the entry may be missing
		}
	}
	s.close()
}

// close ends the use of a set by this process.
func (s *querySet) close() {
	for _, g := range s.generated {
		if g != nil {
			g.close()
		}
	}
}

// prepareQueries makes the query set with this number in the tables, which no packet may use yet.
// The queries begin in epoch since. If one cannot run, the result has the problem.
func prepareQueries(t *tables, q omnimon.Queries, number int, since uint64) applied {
	a := applied{since: since, queries: q}
	steps := q.Steps()
	if len(steps) == 0 {
		return a
	}
	a.copied = make([]string, len(steps))
	if !t.tailCalls {
		for i := range a.copied {
			a.copied[i] = "this kernel has no tail calls in programs with functions"
		}
	}
	s := &querySet{number: number}
	for i := 0; i < queryGenerations; i++ {
		var err error
		s.generated[i], err = generate(t, steps, q.Tuples(), s.first(i), a.copied)
		if why, ok := errors.AsType[refused](err); ok && slices.Contains(a.copied, "") {
			for i := range a.copied {
				a.copied[i] = cmp.Or(a.copied[i], "the kernel refuses the program: "+why.Error())
			}
			s.end(t)
			i = -1 // the first generation is made again
			continue
		}
		if err != nil {
			s.end(t)
			a.problem = err.Error()
			return a
		}
	}
	c := &t.control.QuerySets[number]
	c.Needs, c.Gap, c.Owners = needs(q, a.copied), uint64(q.Gap()), [queryGenerations]uint64{}
	a.set = s
	return a
}

// needs returns the bits of query_set.needs.
func needs(q omnimon.Queries, copied []string) (bits uint64) {
	if slices.Contains(copied, "") {
		bits |= needCompiled
	}
	if q.Use("dns_type", "dns_response") {
		bits |= needDNS
	}
	if q.Use("flowlet") {
		bits |= needFlowlet
	}
	if q.Use("payload") {
		bits |= needData
	}
	return bits
}

// number returns the number of a set in map control.
func (a *applied) number() uint32 {
	if a.set == nil {
		return 0
	}
	return uint32(a.set.number + 1)
}

// beginQueries makes the tables run queries from the beginning, before packets pass.
func beginQueries(t *tables, settings *wire.Settings, epoch uint64) []applied {
	a := prepareQueries(t, omnimon.ParseQueries(settings, omnimon.Queries{}), 0, epoch)
	t.control.QueryChange, t.control.QueryAfter, t.control.Queries = 0, a.number(), min(a.number(), 1)
	return []applied{a}
}

// adoptQueries replaces the queries of an earlier process. Results in the epochs up to now are
// lost.
func (p *Path) adoptQueries(settings *wire.Settings) error {
	c := p.tables.control
	atomic.StoreUint32(&c.QueryAfter, 0)
	atomic.StoreUint64(&c.QueryChange, 0)
	q := omnimon.ParseQueries(settings, omnimon.Queries{})
	p.queries = []applied{{queries: q, problem: "the agent was restarted in this epoch"}}
	return p.setQueries(settings)
}

// setQueries runs other queries, from the next epoch on.
func (p *Path) setQueries(settings *wire.Settings) error {
	t := p.tables
	c := t.control
	pending := &p.queries[len(p.queries)-1]
	if pending.since <= p.Epoch() {
		atomic.StoreUint32(&c.QueryBefore, pending.number())
		pending = nil
	}
	atomic.StoreUint64(&c.QueryChange, math.MaxUint64)
	now := p.Epoch()
	if err := errors.Join(t.wait(), p.collect(now)); err != nil {
		return err
	}
	if pending != nil { // the pending set is replaced before it begins
		if pending.set != nil {
			pending.set.end(t)
		}
		begun := pending.since <= now
		pending.set = nil
		if pending.problem = changedInEpoch; !begun {
			p.queries = p.queries[:len(p.queries)-1]
		}
	}
	number := 0
	inForce := atomic.LoadUint32(&c.QueryBefore)
	for i := range p.queries {
		a := &p.queries[i]
		switch {
		case a.set == nil:
		case a.number() == inForce:
			number = 1 - a.set.number
		default:
			a.set.end(t)
			a.set = nil
		}
	}
	q := omnimon.ParseQueries(settings, omnimon.Queries{})
	if q.Use("flowlet") && (inForce == 0 || c.QuerySets[inForce-1].Needs&needFlowlet == 0) {
		clear(t.flowlets)
	}
	a := prepareQueries(t, q, number, 0)
	atomic.StoreUint32(&c.QueryAfter, a.number())
	if inForce+a.number() > 0 {
		atomic.StoreUint32(&c.Queries, 1)
	}
	for {
		a.since = p.Epoch() + 1
		atomic.StoreUint64(&c.QueryChange, a.since)
		if p.Epoch() < a.since {
			break
		}
		p.queries = append(p.queries, applied{since: a.since, queries: q, problem: changedInEpoch})
	}
	p.queries = append(p.queries, a)
	return nil
}

const changedInEpoch = "the queries changed in this epoch"

// queriesOf returns the queries of an epoch, or nil.
func (p *Path) queriesOf(epoch uint64) (found *applied) {
	for i := range p.queries {
		if p.queries[i].since <= epoch {
			found = &p.queries[i]
		}
	}
	return found
}

// stepsOf returns the steps of the queries of an epoch.
func (p *Path) stepsOf(epoch uint64) *omnimon.Steps {
	steps, ok := p.steps[epoch]
	if ok {
		return steps
	}
	steps = new(omnimon.Steps)
	if a := p.queriesOf(epoch); a != nil {
		if a.problem != "" {
			steps = a.queries.Fail(a.problem)
		} else {
			steps = a.queries.Start()
			for i, why := range a.copied {
				if why == "" {
					steps.Elsewhere(i)
				} else {
					steps.SetCopied(i, why)
				}
			}
		}
	}
	p.steps[epoch] = steps
	return steps
}

// collect reads the results of epochs before one; their packets are all counted.
func (p *Path) collect(before uint64) error {
	for i := range p.queries {
		s := p.queries[i].set
		if s == nil {
			continue
		}
		owners := &p.tables.control.QuerySets[s.number].Owners
		for g := range owners {
			owner := atomic.LoadUint64(&owners[g])
			if owner == 0 || owner > before {
				continue
			}
			epoch := owner - 1
			a := p.queriesOf(epoch)
			wanted := a == &p.queries[i] && a.problem == ""
			for n, r := range s.generated[g].rows {
				if r == nil {
					continue
				}
				tuples, undefined, dropped, err := r.take(epoch, a.queries.Tuples())
				if err != nil {
					return fmt.Errorf("maps of queries: %w", err)
				}
				if wanted {
					p.stepsOf(epoch).SetRow(n, tuples, undefined, dropped)
				}
			}
			atomic.StoreUint64(&owners[g], 0)
		}
	}
	return nil
}

// retireQueries drops the queries that no epoch needs, and the results of epochs that are gone.
func (p *Path) retireQueries() {
	oldest := p.now
	if len(p.open) > 0 {
		oldest = p.open[0]
	}
	for len(p.queries) > 1 && p.queries[1].since <= oldest {
		if s := p.queries[0].set; s != nil {
			s.end(p.tables)
		}
		p.queries = p.queries[1:]
	}
	maps.DeleteFunc(p.steps, func(epoch uint64, _ *omnimon.Steps) bool { return epoch < oldest })
	if n := len(p.queries); n > 0 && p.queries[n-1].since <= p.now && p.queries[n-1].set == nil {
		atomic.StoreUint32(&p.tables.control.Queries, 0)
	}
}

// closeQueries ends the use of all sets.
func closeQueries(all []applied) {
	for i := range all {
		if all[i].set != nil {
			all[i].set.close()
		}
	}
}

// copies reports whether the kernel copies packets.
func (p *Path) copies() bool {
	return slices.ContainsFunc(p.queries, func(a applied) bool {
		return slices.ContainsFunc(a.copied, func(why string) bool { return why != "" })
	})
}

// readCopies runs queries on the packets in map copies.
func (p *Path) readCopies() error {
	const recordHeader = 8
	r := p.tables.copies
	for rest := r.AvailableBytes(); rest > 0; { // excludes packets that arrive in the meantime
		if err := r.ReadInto(&p.record); err != nil {
			return fmt.Errorf("map copies: %w", err)
		}
		data := p.record.RawSample
		rest -= recordHeader + (len(data)+7)/8*8
		const size = int(unsafe.Sizeof(omnimonSample{}))
		if len(data) < size {
			return fmt.Errorf("map copies: a record of %d bytes, expected at least %d", len(data), size)
		}
		e := (*omnimonSample)(unsafe.Pointer(&data[0]))
		if steps := p.stepsOf(e.Epoch); steps.Run() {
			e.packets(data[size:], func(ip *packet.IP) { steps.AddOf(ip, int(e.Flowlet)) })
		}
	}
	return nil
}

// packets calls f for a packet, or for each of its segments.
func (e *omnimonSample) packets(payload []byte, f func(*packet.IP)) {
	ip := &packet.IP{Key: key(&e.Key), TTL: e.Ttl, Window: e.Window, TCP: e.Key.Proto == packet.ProtocolTCP}
	segment := len(payload)
	if e.Pieces > 1 {
		segment = min(segment, int(e.Segment))
	}
	for i := range min(int(e.Pieces), len(e.Piece)) {
		ip.Length, ip.Flags = int(e.Piece[i].Length), e.Piece[i].Flags
		for range e.Piece[i].Packets {
			n := min(segment, len(payload))
			if i == int(e.Pieces)-1 {
				n = len(payload)
			}
			ip.Payload, payload = payload[:n], payload[n:]
			f(ip)
		}
	}
}

// take reads the results of an epoch, and makes the maps empty. tuples bounds the results.
func (r *rows) take(epoch uint64, tuples int) (out []query.Tuple, undefined, dropped uint64, err error) {
	add := func(key, values []byte) {
		t := r.tuple(key, values)
		n := uint64(1)
		if r.repeated {
			n = binary.NativeEndian.Uint64(values)
			t = t[:len(t)-1]
		}
		for ; n > 0; n-- {
			if len(out) == tuples && r.repeated {
				dropped += n
				return
			}
			out = append(out, t)
		}
	}
	var fronts [][]byte // front of the pipeline, by processor
	if err := r.front.Lookup(uint32(0), &fronts); err != nil {
		return nil, 0, 0, err
	}
	for _, b := range fronts {
		if binary.NativeEndian.Uint64(b) == epoch+1 {
			undefined += binary.NativeEndian.Uint64(b[8:])
			dropped += binary.NativeEndian.Uint64(b[16:])
		}
		for e := range slices.Chunk(b[frontHeader:frontHeader+r.entries*r.entry()], r.entry()) {
			if binary.NativeEndian.Uint64(e) == epoch+1 {
				add(e[entryHeader:entryHeader+r.key], e[entryHeader+r.key:])
			}
		}
	}
	result := r.groups
	for i, m := range r.seen {
		if result == nil && i == len(r.seen)-1 {
			result = m
			break
		}
		if err := takeAll(m, func(_, _ []byte) {}); err != nil {
			return nil, 0, 0, err
		}
	}
	if err := takeAll(result, add); err != nil {
		return nil, 0, 0, err
	}
	out = r.step.Merge(out)
	if len(out) > tuples {
		dropped += uint64(len(out) - tuples)
		out = out[:tuples]
	}
	return out, undefined, dropped, nil
}

// tuple returns a tuple from the key and the values of a map.
func (r *rows) tuple(key, values []byte) query.Tuple {
	t := make(query.Tuple, len(r.columns))
	for i := range r.columns {
		c := &r.columns[i]
		switch {
		case c.constant != nil:
			t[i] = *c.constant
		case c.inValues:
			t[i] = query.Value{Type: query.Integer, Int: int64(binary.NativeEndian.Uint64(values[8*c.at:]))}
		case c.kind == query.Address:
			a := netip.AddrFrom16([16]byte(key[c.at:]))
			if key[c.family] == 0 {
				a = netip.AddrFrom4([4]byte(key[c.at:]))
			}
			t[i] = query.Value{Type: query.Address, Address: a}
		case c.size == asm.DWord:
			t[i] = query.Value{Type: query.Integer, Int: int64(binary.NativeEndian.Uint64(key[c.at:]))}
		default:
			t[i] = query.Value{Type: query.Integer, Int: int64(binary.NativeEndian.Uint32(key[c.at:]))}
		}
	}
	return t
}

// takeAll removes all entries of a hash map that no program uses, and calls f for each.
func takeAll(m *ebpf.Map, f func(key, value []byte)) error {
	const batch = 4096
	word := reflect.TypeFor[uint64]()
	list := func(bytes uint32) reflect.Value {
		return reflect.MakeSlice(reflect.SliceOf(reflect.ArrayOf(int(bytes)/8, word)), batch, batch)
	}
	keys, values := list(m.KeySize()), list(m.ValueSize())
	raw := func(v reflect.Value) []byte {
		return unsafe.Slice((*byte)(v.UnsafePointer()), batch*int(v.Type().Elem().Size()))
	}
	rawKeys, rawValues := raw(keys), raw(values)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookupAndDelete(&cursor, keys.Interface(), values.Interface(), nil)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
		for i := range n {
			f(rawKeys[i*int(m.KeySize()):][:m.KeySize()], rawValues[i*int(m.ValueSize()):][:m.ValueSize()])
		}
		if err != nil {
			return nil
		}
	}
}
