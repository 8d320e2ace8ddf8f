// SPDX-License-Identifier: Apache-2.0

package inband

import (
	"encoding/binary"
	"encoding/hex"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/hostagent/packet"
)

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// group is a group header of version 2 in front of reports.
func group(hardware uint8, sequence, node uint32, reports ...[]byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, 2<<28|uint32(hardware)<<22|sequence)
	return slices.Concat(binary.BigEndian.AppendUint32(b, node), slices.Concat(reports...))
}

// individual is an individual report; flags are D, Q, F and I in the upper half.
func individual(kind, inside, flags byte, metadata int, rest ...[]byte) []byte {
	b := slices.Concat(rest...)
	b = append(b, make([]byte, (4-len(b)%4)%4)...)
	return append([]byte{kind<<4 | inside, byte(len(b) / 4), byte(metadata / 4), flags}, b...)
}

// inner is a packet with INT-MD of three hops, cut behind it.
func inner(etherType bool) []byte {
	i := int2()
	s := sent(packet.ProtocolTCP, false)
	m := i.Mark(s, 0x17)
	if etherType {
		return m.Frame()[:len(m.Frame())-len(s.Payload)]
	}
	return m.IP()[:len(m.IP())-len(s.Payload)]
}

// TestReports2 reads datagrams of version 2.x, with one and several reports of all inner types.
func TestReports2(t *testing.T) {
	md := be(0x5000, 0, 0, 0, 3, 4, 7<<8, 0x123) // ports, queue
	extension := []byte{0 << 4, 2, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8}
	tlv := func(kind byte, b []byte) []byte {
		return slices.Concat([]byte{kind << 4, byte(len(b) / 4), 0, 0}, b)
	}
	domain := be(0x2000, 0x5453, 0x8000, 1, 0, 99, 0xd0d0, 0xd0d0) // latency, one word of a domain
	reason := be(0x0001, 0, 0, 0, 5<<8|17, 0)                      // queue id and drop reason
	large := append(inner(false), make([]byte, 1200)...)
	huge := individual(1, inIPv4, 0x20, 8, md, large)
	huge[1] = toTheEnd
	datagram := group(9, 1<<22-1, 77,
		individual(1, inIPv4, 0x20, 8, md, inner(false)),
		individual(1, inTLV, 0xf0, 8, domain, extension, tlv(2, inner(false))),
		individual(0, inEthernet, 0x40, 0, inner(true)),
		individual(1, 0, 0x80, 4, reason),
		individual(2, 0, 0, 0, be(1, 2)),
		huge)
	type result struct {
		problem, packet                     Problem
		has                                 Fields
		latency                             uint32
		hops                                int
		dropped, congested, tracked, middle bool
	}
	node := Fields(1 << NodeID)
	want := []result{
		{has: node | 1<<Ports | 1<<Queue, hops: 3, tracked: true},
		{has: node | 1<<Latency, latency: 99, hops: 3, dropped: true, congested: true, tracked: true, middle: true},
		{has: node, hops: 3, congested: true},
		{has: node, packet: NotIP, dropped: true},
		{problem: UnknownReport},
		{has: node | 1<<Ports | 1<<Queue, hops: 3, tracked: true},
	}
	r := NewReader(marks())
	if version, problem := r.Begin(datagram); version != 2 || problem != None {
		t.Fatal(version, problem)
	}
	var got []result
	for {
		var out Report
		problem, ok := r.Next(&out)
		if !ok {
			break
		}
		if out.Node != 77 || out.Hardware != 9 || out.Sequence != 1<<22-1 || out.SequenceBits() != 22 {
			t.Errorf("node %d, hardware %d, sequence %d", out.Node, out.Hardware, out.Sequence)
		}
		if out.Hop.Has.Contains(Ports) && (out.Hop.IngressPort != 3 || out.Hop.EgressPort != 4 || out.Hop.QueueID != 7 ||
			out.Hop.QueueOccupancy != 0x123) {
			t.Errorf("%+v", out.Hop)
		}
		if out.Dropped && !out.Tracked && (!out.HasReason || out.DropReason != 17 || out.Hop.QueueID != 5) {
			t.Errorf("drop reason %d, queue %d", out.DropReason, out.Hop.QueueID)
		}
		if out.Packet.Hops() > 0 && (out.Packet.Node(2) != 71 || out.Packet.IP.Key.DstPort != 443) {
			t.Errorf("first hop %d of %v", out.Packet.Node(2), out.Packet.IP.Key)
		}
		got = append(got, result{problem, out.Problem, out.Hop.Has, out.Hop.Latency, out.Packet.Hops(), out.Dropped,
			out.Congested, out.Tracked, out.Intermediate})
	}
	got[4] = result{problem: got[4].problem}
	if !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// TestReportsGolden reads reports written by hand from the specifications: all metadata of version
// 1.0, and the first example of version 2.0.
func TestReportsGolden(t *testing.T) {
	const tcp = "45 28 0028 0000 0000 40 06 0000 0a000001 0a090802 9c40 01bb 00000001 00000000 5010 2000 0000 0000"
	for name, tc := range map[string]struct {
		datagram string
		want     Report
	}{
		// Version 1, length 10, IPv4, all six kinds of metadata, dropped and tracked, hardware 5.
		"1.0": {"1a 3f 81 45 0000004d 80000001 00000064 00030004 00000009 07000123 0000006d 07110000 0000000b" + tcp,
			Report{Version: 1, Hardware: 5, Sequence: 1<<31 + 1, Node: 77, Dropped: true, Tracked: true, DropReason: 17,
				HasReason: true, Problem: Absent, Hop: Hop{NodeID: 77, IngressTime: 100, EgressTime: 109, Latency: 9,
					IngressPort: 3, EgressPort: 4, QueueID: 7, QueueOccupancy: 0x123, Utilization: 11,
					Has: 1<<NodeID | 1<<Ports | 1<<Latency | 1<<Queue | 1<<IngressTime | 1<<EgressTime | 1<<Utilization}}},
		// Version 1, length 5, IPv4, egress timestamp alone: the latency is the difference.
		"1.0 timestamps": {"15 22 00 00 0000004d 00000002 fffffff0 00000010" + tcp, Report{Version: 1, Sequence: 2, Node: 77,
			Problem: Absent, Hop: Hop{NodeID: 77, IngressTime: 0xfffffff0, EgressTime: 16, Latency: 32,
				Has: 1<<NodeID | 1<<Latency | 1<<IngressTime | 1<<EgressTime}}},
		"2.0": {"20000007 0000004d 14 0e 02 20 50000000 00000000 00030004 07000123" + tcp, Report{Version: 2, Sequence: 7,
			Node: 77, Tracked: true, Problem: Absent, Hop: Hop{NodeID: 77, IngressPort: 3, EgressPort: 4, QueueID: 7,
				QueueOccupancy: 0x123, Has: 1<<NodeID | 1<<Ports | 1<<Queue}}},
	} {
		r := NewReader(marks())
		if _, problem := r.Begin(unhex(t, tc.datagram)); problem != None {
			t.Fatal(name, problem)
		}
		var got Report
		problem, ok := r.Next(&got)
		if problem != None || !ok || got.Packet.IP.Key.SrcPort != 40000 {
			t.Errorf("%s: %v, %v, flow %v", name, problem, ok, got.Packet.IP.Key)
		}
		got.Packet = Packet{}
		if !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", name, got, tc.want)
		}
		if _, ok := r.Next(&got); ok {
			t.Errorf("%s: a second report", name)
		}
	}
}

func TestReportProblems(t *testing.T) {
	md := be(0x5000, 0, 0, 0, 3, 4, 7, 8)
	whole := group(1, 2, 3, individual(1, inIPv4, 0, 8, md, inner(false)))
	edit := func(at int, value byte) []byte {
		b := slices.Clone(whole)
		b[at] = value
		return b
	}
	one := append(unhex(t, "14 20 00 00 0000004d 00000002 00000003"), inner(false)...)
	for _, tc := range []struct {
		name     string
		datagram []byte
		begin    Problem
		next     Problem
		inner    Problem
	}{
		{"empty", nil, Truncated, 0, 0},
		{"version 0", edit(0, 0), UnknownVersion, 0, 0},
		{"version 3", edit(0, 0x30), UnknownVersion, 0, 0},
		{"group header cut", whole[:7], Truncated, 0, 0},
		{"report header cut", whole[:11], None, Truncated, 0},
		{"report cut", whole[:len(whole)-4], None, BadReportLength, 0},
		{"metadata longer than the report", edit(8+2, 200), None, BadReportLength, 0},
		{"metadata shorter than its bits", edit(8+2, 1), None, BadHopLength, 0},
		{"reserved inner type", edit(8, 0x1f), None, None, NotIP},
		{"inner packet cut", group(1, 2, 3, individual(1, inIPv4, 0, 8, md, inner(false)[:24])), None, None, Malformed},
		{"INT cut", group(1, 2, 3, individual(1, inIPv4, 0, 8, md, inner(false)[:60])), None, None, Truncated},
		{"1.0", one, None, None, None},
		{"1.0 cut", one[:15], Truncated, 0, 0},
		{"1.0 shorter than its bits", append([]byte{0x14, 0x3f, 0x80}, one[3:]...), None, BadReportLength, 0},
		{"1.0 longer than the datagram", append([]byte{0x1f}, one[1:17]...), None, BadReportLength, 0},
		{"1.0 unknown next protocol", append([]byte{0x14, 0xe0}, one[2:]...), None, None, UnknownType},
	} {
		r := NewReader(marks())
		if _, problem := r.Begin(tc.datagram); problem != tc.begin {
			t.Errorf("%s: %v; want %v", tc.name, problem, tc.begin)
		}
		var out Report
		problem, ok := r.Next(&out)
		if ok != (tc.begin == None) || problem != tc.next || ok && problem == None && out.Problem != tc.inner {
			t.Errorf("%s: %v, %v, inner %v; want %v, %v", tc.name, problem, ok, out.Problem, tc.next, tc.inner)
		}
	}
}

// FuzzReports: reading any datagram ends, and never reads beyond the datagram.
func FuzzReports(f *testing.F) {
	md := be(0x5000, 0, 0, 0, 3, 4, 7, 8)
	f.Add(group(1, 2, 3, individual(1, inIPv4, 0, 8, md, inner(false)), individual(0, inEthernet, 0, 0, inner(true))))
	f.Add(append(unhex(f, "1a 3f 81 45 0000004d 80000001 00000064 00030004 00000009 07000123 0000006d 07110000 0000000b"),
		inner(false)...))
	f.Add(group(1, 2, 3, individual(1, inTLV, 0, 8, md, []byte{0, 1, 0, 0, 1, 2, 3, 4, 0x10, 40, 0, 0}, inner(true))))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReader(marks())
		_, problem := r.Begin(b)
		count := 0
		for {
			var out Report
			p, ok := r.Next(&out)
			if !ok {
				break
			}
			if count++; problem != None || count > len(b)/4+1 {
				t.Fatalf("%d reports in %d bytes after %v", count, len(b), problem)
			}
			if p == None && out.Problem == None {
				for i := range out.Packet.Hops() {
					var h Hop
					out.Packet.Hop(i, &h)
				}
			}
		}
	})
}
