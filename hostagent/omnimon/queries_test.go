// SPDX-License-Identifier: Apache-2.0

package omnimon

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/plugins/omnimon/query"
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
