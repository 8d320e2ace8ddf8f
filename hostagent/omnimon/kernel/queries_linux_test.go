// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
)

// reported returns the only result of queries in the report of an epoch.
func reported(t *testing.T, p *Path, epoch uint64) *wire.QueryRow {
	t.Helper()
	g, err := p.Seal(epoch)
	if err != nil || g == nil {
		t.Fatalf("report %v, error %v", g, err)
	}
	defer g.Release()
	r, err := wire.Open(g.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	r.SkipEgress()
	var row wire.QueryRow
	if _, ok := r.NextHost(); ok || !r.NextQuery(&row) {
		t.Fatalf("no result of a query; error %v", r.Err())
	}
	return &row
}

// TestUnreadPackets: packets for which map events has no room are counted as missing in the results
// of the epoch, and of no other.
func TestUnreadPackets(t *testing.T) {
	needBPF(t)
	s := defaults(0)
	s.Queries = []wire.Query{{Text: totalsQuery},
		{Text: `x = packets.filter(payload contains "?").reduce(keys=(src), n=count())`}}
	p := newPath(t, Config{}, s)
	const packets, payload = 1500, 3400
	frame := ipFrame(address(0, false), address(1, false), packet.ProtocolUDP, 1, 2, 0, 0, make([]byte, payload))
	for range packets {
		run(t, p.tables.egress, frame, tcNext)
	}
	p.Advance(101)
	row := reported(t, p, 100)
	room := uint64(p.tables.maps[omnimonMapEvents].MaxEntries())
	unread := row.Dropped
	row.Dropped = 0
	read, _ := totalsOf(t, row)
	if unread+uint64(read) != packets || uint64(read) > room/payload || uint64(read) < room/payload*9/10 {
		t.Errorf("%d of %d packets read, %d counted as unread; the map has %d bytes", read, packets, unread, room)
	}
	run(t, p.tables.egress, frame, tcNext)
	p.Advance(102)
	if read, _ := totalsOf(t, reported(t, p, 101)); read != 1 {
		t.Errorf("%d packets in the next epoch, want 1", read)
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
		if sent := time.Duration(newest(t, p).Sent); sent < before || sent > monotonic() {
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
	if e := newest(t, p); e.Epoch != 100 || e.Sent != 0 {
		t.Errorf("event %+v: a time that no query reads", e)
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
	if n := p.tables.events.AvailableBytes(); n == 0 {
		t.Error("no packets for the queries")
	}
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
	if n := p.tables.events.AvailableBytes(); n != 0 || p.tables.control.Events != 0 {
		t.Errorf("%d bytes in map events without queries", n)
	}
}
