// SPDX-License-Identifier: Apache-2.0

package omnimon

import (
	"encoding/binary"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/omnimon/query"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/hostagent/role"
	"github.com/netsketch/netsketch/internal/test/omnimon/workload"
)

const (
	portsQuery = "x = packets.filter(proto == TCP).distinct(src, dport).reduce(keys=(src), ports=count())"
	textQuery  = `x = packets.filter(payload contains "zorro").reduce(keys=(dst), n=sum(length))`
	queueQuery = "x = packets.filter(queue > 3).reduce(keys=(dst), n=count())"
)

// Hosts run queries on the packets that they send, in each epoch that begins with the settings.
func TestQueries(t *testing.T) {
	n := newNetwork(t, func(s *wire.Settings) {
		s.Queries = []wire.Query{{ID: 1, Text: portsQuery}, {ID: 2, Text: textQuery}, {ID: 3, Text: queueQuery},
			{ID: 4, Text: "x ="}}
	})
	for port := range uint16(5) {
		n.out(0, tcpFrame("10.0.0.1", "10.0.0.2", 1000, 80+port%3, packet.ACK, []byte("a zorro")))
	}
	n.clocks[0].Advance(101)
	report := n.hosts[0].Seal(100)
	r, err := wire.Open(report.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	r.SkipEgress()
	if _, ok := r.NextHost(); ok {
		t.Error("packets from a host")
	}
	want := map[uint64]string{1: "10.0.0.1 3", 2: "10.0.0.2 235", 3: "hosts do not know the field queue",
		4: "query:1:"}
	var row wire.QueryRow
	for r.NextQuery(&row) {
		got := row.Problem
		if text := map[uint64]string{1: portsQuery, 2: textQuery}[row.ID]; text != "" {
			q, err := query.Parse("query", text)
			if err != nil {
				t.Fatal(err)
			}
			tuples, err := q.Place().Steps[row.Step].DecodeTuples(row.Tuples)
			if err != nil || len(tuples) != 1 {
				t.Fatalf("query %d: %v, %v", row.ID, tuples, err)
			}
			got = tuples[0][0].String() + " " + tuples[0][1].String()
		}
		if !strings.HasPrefix(got, want[row.ID]) || row.Dropped+row.Undefined > 0 {
			t.Errorf("query %d: %+v, %q, want %q", row.ID, row, got, want[row.ID])
		}
		delete(want, row.ID)
	}
	if len(want) > 0 || r.Err() != nil {
		t.Errorf("no results of %v, %v", want, r.Err())
	}
	report.Release()
	// Changed queries do not restart the flow table.
	apply(t, n.hosts[0], defaults(0))
	n.out(0, tcpFrame("10.0.0.1", "10.0.0.2", 1000, 80, packet.ACK, nil))
	if g := n.seal(0, 101); g.Counters[wire.Restarted] > 0 {
		t.Error("the flow table was restarted")
	}
}

// resultOf returns the rows of a query of the settings in a report, each as text.
func resultOf(t *testing.T, g role.Report, text string) (rows []string) {
	t.Helper()
	defer g.Release()
	r, err := wire.Open(g.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	r.SkipEgress()
	var row wire.QueryRow
	if _, ok := r.NextHost(); ok || !r.NextQuery(&row) || row.Problem != "" || row.Dropped+row.Undefined > 0 {
		t.Fatalf("packets from a host, or no result: %+v, %v", row, r.Err())
	}
	q, err := query.Parse("query", text)
	if err != nil {
		t.Fatal(err)
	}
	plan := q.Place()
	s := &plan.Steps[row.Step]
	tuples, err := s.DecodeTuples(row.Tuples)
	if err != nil {
		t.Fatal(err)
	}
	tuples, _ = plan.Finish(map[string][]query.Tuple{s.Name: tuples}, nil)
	for _, tuple := range tuples {
		rows = append(rows, tuple.String())
	}
	return rows
}

// TestFlowletHistogram: the example query on traffic with times has the result that follows from
// the times of packets without the role.
func TestFlowletHistogram(t *testing.T) {
	text, err := os.ReadFile("../../examples/omnimon/queries/flowlet-size-histogram.query")
	if err != nil {
		t.Fatal(err)
	}
	packets := workload.Traffic(20_000, 8_000, 60)
	s := defaults(0)
	s.Flows, s.FlowletGap, s.Queries = 1<<14, workload.FlowletGap, []wire.Query{{Text: string(text)}}
	addresses := map[netip.Addr]bool{}
	for i := range packets {
		addresses[netip.MustParseAddr(packets[i].Src)] = true
		addresses[netip.MustParseAddr(packets[i].Dst)] = true
	}
	s.Hosts = [][]netip.Addr{slices.Collect(maps.Keys(addresses))}
	clock, now := epoch.NewClock(time.Second, 100), time.Time{}
	r := New(clock, func() time.Duration { return now.Sub(time.Time{}) })
	apply(t, r, s)
	for i := range packets {
		p := &packets[i]
		f := tcpFrame(p.Src, p.Dst, uint16(p.SrcPort), uint16(p.DstPort), packet.ACK, nil)
		f[14+9] = byte(p.Proto) // the ports of UDP are at the same place
		now = time.Time{}.Add(p.Sent)
		r.Out([]*packet.Frame{packet.NewFrame(f)})
	}
	clock.Advance(101)
	got, want := resultOf(t, r.Seal(100), string(text)), workload.Results["flowlet-size-histogram"](packets)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) || len(want) < 5 {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// TestFlowlets: a packet that is sent more than the gap after the previous one of its flow begins
// the next flowlet. Numbers go on in the next epoch and when queries change, and begin again with a
// flow that has left the table. A changed gap applies from the next epoch on.
func TestFlowlets(t *testing.T) {
	const text, other = "x = packets.reduce(keys=(sport, flowlet), n=count())", "x = packets.distinct(src, flowlet)"
	n := newNetwork(t, func(s *wire.Settings) {
		s.FlowletGap, s.Flows, s.IdleEpochs, s.Queries = 500*time.Microsecond, 2, 2, []wire.Query{{Text: text}}
	})
	send := func(port uint16, micros ...time.Duration) {
		for _, d := range micros {
			n.now = n.now.Add(d * time.Microsecond)
			n.out(0, tcpFrame("10.0.0.1", "10.0.0.2", port, 80, packet.ACK, nil))
		}
	}
	change := func(gap time.Duration, texts ...string) {
		s := defaults(0)
		s.FlowletGap, s.Flows, s.IdleEpochs = gap, 2, 2
		for _, text := range texts {
			s.Queries = append(s.Queries, wire.Query{Text: text})
		}
		apply(t, n.hosts[0], s)
	}
	end := func(epoch uint64, want ...string) {
		t.Helper()
		n.clocks[0].Advance(epoch + 1)
		if got := resultOf(t, n.hosts[0].Seal(epoch), text); !slices.Equal(got, want) {
			t.Errorf("epoch %d: %q, want %q", epoch, got, want)
		}
	}
	send(1, 0, 500, 501)
	send(2, 400)
	send(1, 100) // within the gap of its own flow, by the time of the same flow only
	end(100, "1 0 2", "1 1 2", "2 0 1")
	send(1, 100)
	change(10*time.Microsecond, text, other)
	send(1, 100, -50, 549, 501) // the clock goes back by 50 µs: no pause since the newest packet
	end(101, "1 1 4", "1 2 1")
	send(1, 10, 11)
	end(102, "1 2 1", "1 3 1")
	if r := n.hosts[0]; r.current.steps.flowlets == nil {
		t.Error("no flowlets while a query reads them")
	}
	for e := range uint64(4) { // both flows end
		n.clocks[0].Advance(104 + e)
		n.hosts[0].Out(nil)
		if g := n.hosts[0].Seal(103 + e); g != nil {
			g.Release()
		}
	}
	send(3, 1000, 1000)
	send(1, 1000)
	end(107, "1 0 1", "3 0 1", "3 1 1")
	change(10*time.Microsecond, portsQuery)
	n.clocks[0].Advance(109)
	send(1, 1000)
	if r := n.hosts[0]; r.current.steps.flowlets != nil || r.queries.flowlets != nil {
		t.Error("flowlets are numbered without a query that reads them")
	}
}

func TestDNS(t *testing.T) {
	message := func(flags byte, questions uint16, rest ...byte) *packet.IP {
		b := binary.BigEndian.AppendUint16([]byte{1, 2, flags, 0}, questions)
		p := &packet.IP{Payload: append(append(b, 0, 0, 0, 0, 0, 0), rest...)}
		p.Key.Proto, p.Key.SrcPort = packet.ProtocolUDP, 53
		return p
	}
	for _, tt := range []struct {
		packet         *packet.IP
		kind, response int
	}{
		{message(0x80, 1, 1, 'a', 2, 'b', 'c', 0, 0, 46, 0, 1), 46, 1},
		{message(0, 1, 0, 0, 1), 1, 0},
		{message(0x80, 0), 0, 1},
		{message(0x80, 1, 63, 'a'), 0, 1},
		{message(0x80, 1, 0xc0, 12, 0, 1), 0, 1},
		{&packet.IP{}, 0, 0},
	} {
		if kind, response := dns(tt.packet); kind != tt.kind || response != tt.response {
			t.Errorf("%x: %d, %d", tt.packet.Payload, kind, response)
		}
	}
}
