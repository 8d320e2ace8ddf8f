// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
)

// results returns the results of queries in the report of an epoch.
func results(t *testing.T, p *Path, epoch uint64) (rows []wire.QueryRow) {
	t.Helper()
	g, err := p.Seal(epoch)
	if err != nil || g == nil {
		t.Fatalf("report %v, error %v", g, err)
	}
	defer g.Release()
	return queryRows(t, g.Append(nil))
}

// queryRows returns the results of queries in a report.
func queryRows(t testing.TB, data []byte) (rows []wire.QueryRow) {
	t.Helper()
	r, err := wire.Open(data)
	if err != nil {
		t.Fatal(err)
	}
	r.SkipEgress()
	for _, ok := r.NextHost(); ok; _, ok = r.NextHost() {
		for in := new(wire.IngressRow); r.NextIngress(in); {
		}
	}
	var row wire.QueryRow
	for r.NextQuery(&row) {
		rows = append(rows, row)
	}
	if r.Err() != nil {
		t.Fatal(r.Err())
	}
	return rows
}

// reported returns the only result of queries in the report of an epoch.
func reported(t *testing.T, p *Path, epoch uint64) *wire.QueryRow {
	t.Helper()
	rows := results(t, p, epoch)
	if len(rows) != 1 {
		t.Fatalf("results of queries: %+v", rows)
	}
	return &rows[0]
}

// TestUnreadPackets: packets for which map copies has no room are counted as missing in the results
// of the query that needs the copies, of the epoch, and in no other.
func TestUnreadPackets(t *testing.T) {
	needBPF(t)
	s := defaults(0)
	const copied = `x = packets.filter(proto == UDP && (dport == 2 || dport == 3) && !(payload contains "?"))
		.reduce(keys=(proto), n=count(), bytes=sum(length))`
	s.Queries = []wire.Query{{Text: totalsQuery}, {Text: copied}}
	p := newPath(t, Config{}, s)
	const packets, payload = 1500, 3400
	frame := func(dport uint16) []byte {
		return ipFrame(address(0, false), address(1, false), packet.ProtocolUDP, 1, dport, 0, 0, make([]byte, payload))
	}
	for range packets {
		run(t, p.tables.egress, frame(2), tcNext)
		run(t, p.tables.egress, frame(4), tcNext) // matches no query that needs copies
	}
	p.Advance(101)
	rows := results(t, p, 100)
	if n, _ := totalsOf(t, &rows[0]); n != 2*packets || rows[0].Copied != "" {
		t.Errorf("%d packets counted in the kernel, want %d; copied: %q", n, 2*packets, rows[0].Copied)
	}
	room := uint64(p.tables.maps[omnimonMapCopies].MaxEntries())
	unread, why := rows[1].Dropped, rows[1].Copied
	rows[1].Dropped = 0
	read, _ := totalsOf(t, &rows[1])
	if unread+uint64(read) != packets || uint64(read) > room/payload || uint64(read) < room/payload*9/10 {
		t.Errorf("%d of %d packets read, %d counted as unread; the map has %d bytes", read, packets, unread, room)
	}
	if why != string(errPayload) {
		t.Errorf("copied: %q", why)
	}
	run(t, p.tables.egress, frame(3), tcNext)
	p.Advance(102)
	rows = results(t, p, 101)
	for i := range rows {
		if n, _ := totalsOf(t, &rows[i]); n != 1 {
			t.Errorf("%d packets in the next epoch, want 1", n)
		}
	}
}

// TestQueryOverflow: packets above the largest count of tuples are counted, so that a result
// without them is not taken for complete.
func TestQueryOverflow(t *testing.T) {
	needBPF(t)
	const groups = `x = packets.reduce(keys=(sport), n=count())`
	const distinct = `x = packets.distinct(src, sport)`
	const raw = `x = packets.map(sport) y = x`
	s := defaults(0)
	s.QueryTuples = 300
	s.Queries = []wire.Query{{Text: groups}, {Text: distinct}, {Text: raw}}
	p := newPath(t, Config{}, s)
	const flows, each = 900, 3
	for range each {
		for i := range flows {
			frame := ipFrame(address(0, false), address(1, false), packet.ProtocolUDP, uint16(i), 2, 0, 0, nil)
			run(t, p.tables.egress, frame, tcNext)
		}
	}
	p.Advance(101)
	rows := results(t, p, 100)
	for i, text := range []string{groups, distinct, raw} {
		dropped := rows[i].Dropped
		rows[i].Dropped = 0
		tuples := tuplesOf(t, &rows[i], text)
		counted := uint64(0)
		for _, tuple := range tuples {
			switch text {
			case groups:
				counted += uint64(tuple[1].Int)
			case raw:
				counted++
			default:
				counted += each
			}
		}
		if len(tuples) != s.QueryTuples || dropped == 0 || (text != groups && counted+dropped != flows*each) {
			t.Errorf("%s: %d tuples with %d packets, %d dropped", text, len(tuples), counted, dropped)
		}
	}
	run(t, p.tables.egress, ipFrame(address(0, false), address(1, false), packet.ProtocolUDP, 1, 2, 0, 0, nil), tcNext)
	p.Advance(102)
	for i, row := range results(t, p, 101) {
		if row.Dropped != 0 {
			t.Errorf("query %d: %d dropped in the next epoch", i, row.Dropped)
		}
	}
}

// TestLateCollection: packets of an epoch for which the maps of queries are not free yet, because
// the agent did not read them, are counted as missing.
func TestLateCollection(t *testing.T) {
	needBPF(t)
	s := defaults(0)
	s.Queries = []wire.Query{{Text: totalsQuery}}
	p := newPath(t, Config{}, s)
	frame := ipFrame(address(0, false), address(1, false), packet.ProtocolUDP, 1, 2, 0, 0, nil)
	send := func(n int) {
		for range n {
			run(t, p.tables.egress, frame, tcNext)
		}
	}
	for e := range uint64(3) {
		p.Advance(100 + e) // maintain is called only after these epochs
		send(10 + int(e))
	}
	p.mu.Lock()
	err := p.maintain()
	p.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	send(5)
	p.Advance(103)
	for e, want := range map[uint64][2]uint64{100: {10, 0}, 101: {11, 0}, 102: {5, 12}} {
		row := reported(t, p, e)
		dropped := row.Dropped
		row.Dropped = 0
		if n, _ := totalsOf(t, row); uint64(n) != want[0] || dropped != want[1] {
			t.Errorf("epoch %d: %d packets, %d missing; want %v", e, n, dropped, want)
		}
	}
}

// TestQueriesOnProcessors: packets that several processors send at the same time, of the same
// flows, are counted once each.
func TestQueriesOnProcessors(t *testing.T) {
	needBPF(t)
	const flows, rounds = 500, 50 // more flows than the table of a processor has room for
	const groups = `x = packets.reduce(keys=(sport), n=count(), bytes=sum(length), most=max(length), least=min(length))`
	const distinct = `x = packets.distinct(src, sport).map(n = 1).reduce(keys=(n), n2=count())`
	s := defaults(0)
	s.Queries = []wire.Query{{Text: groups}, {Text: distinct}}
	p := newPath(t, Config{}, s)
	processors := runtime.NumCPU()
	var wait sync.WaitGroup
	for n := range processors {
		wait.Go(func() {
			runtime.LockOSThread()
			set := unix.CPUSet{}
			set.Set(n)
			_ = unix.SchedSetaffinity(0, &set)
			for range rounds {
				for i := range flows {
					frame := ipFrame(address(0, false), address(1, false), packet.ProtocolUDP, uint16(i), 2, 0, 0, make([]byte, n))
					if _, err := p.tables.egress.Run(&ebpf.RunOptions{Data: frame}); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	wait.Wait()
	p.Advance(101)
	rows := results(t, p, 100)
	for _, tuple := range tuplesOf(t, &rows[0], groups) {
		n := int64(processors * rounds)
		bytes := int64(0)
		for i := range processors {
			bytes += int64(rounds * (28 + i))
		}
		if tuple[1].Int != n || tuple[2].Int != bytes || tuple[3].Int != int64(27+processors) || tuple[4].Int != 28 {
			t.Errorf("%v, want %d packets and %d bytes", tuple, n, bytes)
		}
	}
	if tuples := tuplesOf(t, &rows[0], groups); len(tuples) != flows {
		t.Errorf("%d flows, want %d", len(tuples), flows)
	}
	if tuples := tuplesOf(t, &rows[1], distinct); len(tuples) != 1 || tuples[0][1].Int != flows {
		t.Errorf("distinct: %v, want %d", tuples, flows)
	}
}

// TestQueriesWhileSending: while processors send, epochs pass and queries change, a query counts
// the packets of an epoch that the flow table counts.
func TestQueriesWhileSending(t *testing.T) {
	needBPF(t)
	const groups = `x = packets.reduce(keys=(sport), n=count())`
	s := defaults(0)
	s.Queries = []wire.Query{{ID: 1, Text: groups}}
	p := newPath(t, Config{}, s)
	p.tables.synchronous = false
	var done atomic.Bool
	var wait sync.WaitGroup
	for n := range runtime.NumCPU() {
		wait.Go(func() {
			for i := uint16(0); !done.Load(); i++ {
				frame := ipFrame(address(0, false), address(1, false), packet.ProtocolUDP, i%300, 2, 0, 0, make([]byte, n))
				if _, err := p.tables.egress.Run(&ebpf.RunOptions{Data: frame}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	defer wait.Wait()
	defer done.Store(true)
	counted := 0
	for e := uint64(100); e < 130; e++ {
		running := s.Queries
		if e%3 == 0 {
			s.Queries = []wire.Query{{ID: e, Text: totalsQuery}, {ID: 1, Text: groups}}[e%2:]
			if err := p.Apply(encoded(t, s)); err != nil {
				t.Fatal(err)
			}
		}
		p.Advance(e + 1)
		g, err := p.Seal(e)
		if err != nil || g == nil {
			t.Fatal(g, err)
		}
		data := g.Append(nil)
		g.Release()
		r, err := wire.Open(data)
		if err != nil {
			t.Fatal(err)
		}
		var sent int64
		var v wire.Values
		for row := new(wire.EgressRow); r.NextEgress(row); {
			if err := v.Decode(row.Values); err != nil {
				t.Fatal(err)
			}
			sent += v[wire.Packets] + int64(row.Untagged.Packets)
		}
		rows := queryRows(t, data)
		if len(rows) != len(running) {
			t.Fatalf("epoch %d: results %+v of queries %+v", e, rows, running)
		}
		for i := range rows {
			n := int64(0)
			for _, tuple := range tuplesOf(t, &rows[i], running[i].Text) {
				n += tuple[1].Int
			}
			if n != sent {
				t.Errorf("epoch %d: %s counts %d packets, the flow table %d", e, running[i].Text, n, sent)
			}
			counted += int(n)
		}
	}
	if counted == 0 {
		t.Error("no packets")
	}
}

// TestQueriesOnSegments: queries on a super-packet have the results of queries on its segments, in
// the kernel and on copies.
func TestQueriesOnSegments(t *testing.T) {
	needBPF(t)
	r := rand.New(rand.NewPCG(4, 5))
	s := defaults(0)
	w := newTwin(t, s)
	for i, text := range []string{
		`x = packets.reduce(keys=(length, flags), n=count(), bytes=sum(length), least=min(length), most=max(flags))`,
		`x = packets.distinct(src, length).map(half = length / 2).reduce(keys=(half), n=count())`,
		`x = packets.map(length, share = 100 / (length - 60)) y = x`,
		`x = packets.filter(payload contains "abba").reduce(keys=(length, flags), n=count())`,
	} {
		s.Queries = append(s.Queries, wire.Query{ID: uint64(i), Text: text})
	}
	if err := errors.Join(w.role.Apply(encoded(t, s)), w.kernel.Apply(encoded(t, s))); err != nil {
		t.Fatal(err)
	}
	w.kernel.SetLeases(nil) // packets leave without a header, and are counted as such
	w.advance(101)
	for range 300 {
		v6, flags := r.IntN(2) == 0, byte(r.Uint32())
		data := make([]byte, 1+r.IntN(3000)) // a test run takes a page
		for i := range data {
			data[i] = "ab"[r.IntN(2)&r.IntN(2)&r.IntN(2)]
		}
		frame := func(flags byte, data []byte) []byte {
			return ipFrame(address(0, v6), address(1, v6), packet.ProtocolTCP, 1, 2, flags, 3, data)
		}
		size := 1 + r.IntN(900)
		segments := (len(data) + size - 1) / size
		gso := make([]byte, 192) // struct __sk_buff
		if segments > 1 {
			binary.NativeEndian.PutUint32(gso[176:], uint32(size))
			if r.IntN(2) == 0 {
				binary.NativeEndian.PutUint32(gso[164:], uint32(segments))
			}
		}
		if _, err := w.kernel.tables.egress.Run(&ebpf.RunOptions{Data: frame(flags, data), Context: gso}); err != nil {
			t.Fatal(err)
		}
		for i := range segments {
			each := flags
			if i > 0 {
				each &^= 0x80 // congestion window reduced
			}
			if i < segments-1 {
				each &^= packet.FIN | packet.PSH
			}
			w.role.Out([]*packet.Frame{packet.NewFrame(frame(each, data[i*size:min(len(data), (i+1)*size)]))})
		}
	}
	w.advance(102)
	want, got := w.role.Seal(101), results(t, w.kernel, 101)
	defer want.Release()
	for i, row := range queryRows(t, want.Append(nil)) {
		if got[i].Copied = ""; !reflect.DeepEqual(row, got[i]) || row.Dropped > 0 || len(row.Tuples) < 4 {
			t.Errorf("%s\nin Go %+v\nin the kernel %+v", s.Queries[i].Text, row, got[i])
		}
	}
}

// TestQueryOnTraffic: a query counts every one of a million packets that a socket sends as fast as
// it can, one by one and in super-packets.
func TestQueryOnTraffic(t *testing.T) {
	p := newPair(t)
	for host := range 2 {
		p.open(host, func(_ *Config, s *wire.Settings) {
			s.Carrier, s.Queries = wire.CarrierOption, benchmarkQueries(1)
		})
	}
	p.datagrams(50_000, 1)
	p.datagrams(950_000, 50)
	sum := p.seal(0, 100)
	if sum.sent != 1_000_000 || len(sum.queries) != 1 {
		t.Fatalf("%d packets were sent, %d queries", sum.sent, len(sum.queries))
	}
	if n, _ := totalsOf(t, &sum.queries[0]); n != sum.sent || sum.queries[0].Dropped != 0 {
		t.Errorf("the query counted %d of %d packets, %d missed", n, sum.sent, sum.queries[0].Dropped)
	}
}

// flowletsOf returns each flowlet with its packets.
func flowletsOf(t *testing.T, row *wire.QueryRow, text string) string {
	t.Helper()
	var out []string
	for _, v := range tuplesOf(t, row, text) {
		out = append(out, fmt.Sprint(v[0].Int, " ", v[1].Int))
	}
	return strings.Join(out, ", ")
}

// TestFlowlets: flowlets follow from the time at which the kernel sent a packet, not from the time
// at which the agent reads it, and go on when the gap changes.
func TestFlowlets(t *testing.T) {
	needBPF(t)
	const text = "x = packets.reduce(keys=(flowlet), n=count())"
	const pause = 20 * time.Millisecond
	for gap, want := range map[time.Duration]string{pause: "0 1, 1 1, 2 1", time.Hour: "0 3"} {
		s := defaults(0)
		s.FlowletGap, s.Queries = gap, []wire.Query{{Text: text}}
		p := newPath(t, Config{}, s)
		frame := ipFrame(address(0, false), address(1, false), packet.ProtocolUDP, 1, 2, 0, 0, nil)
		before := monotonic()
		for range 3 {
			run(t, p.tables.egress, frame, tcNext)
			time.Sleep(pause)
		}
		if sent := time.Duration(newest(p)); sent < before || sent > monotonic() {
			t.Errorf("sent at %v, which is not between %v and %v", sent, before, monotonic())
		}
		p.Advance(101)
		if got := flowletsOf(t, reported(t, p, 100), text); got != want {
			t.Errorf("gap %v: %q, want %q", gap, got, want)
		}
		s.FlowletGap = pause + time.Hour - gap
		if err := p.Apply(encoded(t, s)); err != nil {
			t.Fatal(err)
		}
		p.Advance(102)
		run(t, p.tables.egress, frame, tcNext)
		p.Advance(103)
		want = map[time.Duration]string{pause: "2 1", time.Hour: "1 1"}[gap]
		if got := flowletsOf(t, reported(t, p, 102), text); got != want {
			t.Errorf("gap %v after %v: %q, want %q", s.FlowletGap, gap, got, want)
		}
	}
	s := defaults(0)
	s.Queries = []wire.Query{{Text: totalsQuery}}
	p := newPath(t, Config{}, s)
	run(t, p.tables.egress, ipFrame(address(0, false), address(1, false), packet.ProtocolUDP, 1, 2, 0, 0, nil), tcNext)
	if last := newest(p); last != 0 {
		t.Errorf("time %d of a packet, which no query reads", last)
	}
}

// TestChangeQueries: other queries run from the next epoch on, and leave the flow table as it is.
func TestChangeQueries(t *testing.T) {
	needBPF(t)
	s := defaults(0)
	p := newPath(t, Config{}, s)
	frame := ipFrame(address(0, false), address(1, false), packet.ProtocolUDP, 1, 2, 0, 0, nil)
	send := func() { run(t, p.tables.egress, frame, tcNext) }
	apply := func(texts ...string) {
		s.Queries = nil
		for _, text := range texts {
			s.Queries = append(s.Queries, wire.Query{Text: text})
		}
		if err := p.Apply(encoded(t, s)); err != nil {
			t.Fatal(err)
		}
	}
	send()
	apply(totalsQuery)
	send()
	p.Advance(101)
	send()
	apply()
	send()
	p.Advance(102)
	send()
	g, err := p.Seal(100)
	if err != nil {
		t.Fatal(err)
	}
	r, err := wire.Open(g.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	r.SkipEgress()
	if _, ok := r.NextHost(); ok || r.Counters[wire.Restarted] > 0 || r.NextQuery(&wire.QueryRow{}) || r.Err() != nil {
		t.Errorf("epoch 100: counters %v, a query or an error: %v", r.Counters, r.Err())
	}
	if read, _ := totalsOf(t, reported(t, p, 101)); read != 2 {
		t.Errorf("%d packets in epoch 101, want 2", read)
	}
	send()
	if n := p.tables.control.Queries; n != 0 {
		t.Errorf("%d, but there are no queries", n)
	}
}
