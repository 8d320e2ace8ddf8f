// SPDX-License-Identifier: Apache-2.0

package parity_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/netsketch/netsketch/hostagent/inband"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/internal/test/switchtest"
	"github.com/netsketch/netsketch/p4/softswitch"
)

// TestINTMatchesDecoder: the decoder of host agents reads the INT that a source and two more
// switches write into packets, and the reports of a sink. Both decoder and sink restore each packet
// to what it was before INT.
func TestINTMatchesDecoder(t *testing.T) {
	t.Run("generated", func(t *testing.T) { compareINT(t, generated(t)[:2000]) })
	t.Run("real", func(t *testing.T) { compareINT(t, real(t)) })
}

// line is a switch from port 1 to port 2, with reports by port 3.
type line struct {
	*softswitch.Switch
	left, report []byte
}

func newLine(t *testing.T, program string, node uint64) *line {
	t.Helper()
	l := &line{Switch: switchtest.New(t, fmt.Sprint(node), program)}
	for port, to := range map[uint32]*[]byte{1: new([]byte), 2: &l.left, 3: &l.report} {
		err := l.AddPort(port, softswitch.Port{Tx: func(f []byte, _ time.Duration) { *to = bytes.Clone(f) }})
		if err != nil {
			t.Fatal(err)
		}
	}
	forward := call("ingress.forwarding.forward", 2, 1, 2)
	for table, size := range map[string]int{"ipv4_lpm": 4, "ipv6_lpm": 16} {
		insert(t, l.Switch, "ingress.forwarding."+table, softswitch.Entry{Action: forward,
			Match: []softswitch.Match{{Kind: softswitch.MatchLPM, Value: make([]byte, size)}}})
	}
	if program == "sketchint" {
		l.set(t, "node", call("egress.sketchint.set_node", node))
		l.set(t, "mtu", call("egress.sketchint.set_mtu", 9000))
	}
	return l
}

func (l *line) set(t *testing.T, table string, a softswitch.Action) {
	t.Helper()
	if err := l.SetDefault("egress.sketchint."+table, &a); err != nil {
		t.Fatal(err)
	}
}

// pass returns the frame that leaves by port 2; nil if none does.
func (l *line) pass(f []byte, at time.Duration) []byte {
	l.left, l.report = nil, nil
	if f != nil {
		l.Inject(1, f, at)
	}
	return l.left
}

func compareINT(t *testing.T, sent [][]byte) {
	source, second, third := newLine(t, "sketchint", 1), newLine(t, "sketchint", 2), newLine(t, "sketchint", 3)
	anything := softswitch.Match{Kind: softswitch.MatchTernary, Value: []byte{0}, Mask: []byte{0}}
	ports := softswitch.Match{Kind: softswitch.MatchRange, Value: []byte{0, 0}, Mask: []byte{0xff, 0xff}}
	for _, table := range []string{"source_ipv4", "source_ipv6"} {
		insert(t, source.Switch, "ingress.sketchint."+table, softswitch.Entry{Priority: 1,
			Match:  []softswitch.Match{anything, anything, anything, anything, ports, ports},
			Action: call("ingress.sketchint.start", 0xff80, 3)})
	}
	sink := newLine(t, "sketchint", 4)
	insert(t, sink.Switch, "egress.sketchint.sink", softswitch.Entry{Action: call("egress.sketchint.report", 7),
		Match: []softswitch.Match{{Kind: softswitch.MatchExact, Value: []byte{2}}}})
	sink.set(t, "collector", call("egress.sketchint.send", 1, 2, 3, 4, 5, 6))
	err := sink.InsertCloneSession(softswitch.CloneSession{ID: 7, Replicas: []softswitch.Replica{{Port: 3}}})
	if err != nil {
		t.Fatal(err)
	}
	var plain [3]*line
	for i := range plain {
		plain[i] = newLine(t, "forwarding", uint64(5+i))
	}

	marks := inband.Marks{DSCP: 0x17, DSCPMask: 0x3f}
	decoder, reader := inband.NewDecoder(marks), inband.NewReader(marks)
	var p inband.Packet
	var report inband.Report
	withINT, without, dropped, short, reports := 0, 0, 0, 0, 0
	for i, f := range sent {
		at := time.Duration(i) * time.Microsecond
		want := plain[2].pass(plain[1].pass(plain[0].pass(f, at), at), at)
		two := second.pass(source.pass(f, at), at)
		got := third.pass(two, at)
		link, err := packet.ParseLink(got)
		if got == nil || err != nil || decoder.Decode(got, link, &p) == inband.Absent {
			without++
			if got == nil && want != nil {
				dropped++ // the header of TCP or UDP is cut short
			} else if !bytes.Equal(got, want) {
				t.Fatalf("packet %d without INT left as % x, want % x", i, got, want)
			}
			continue
		}
		if p.IP.Length > len(got)-link.TypeAt-2 { // cut short in the capture, behind its headers
			if end := sink.pass(two, at); !bytes.Equal(end, want) {
				t.Fatalf("packet %d stripped by the sink is % x, want % x", i, end, want)
			}
			reports++
			short++
			continue
		}
		withINT++
		if problem := decoder.Decode(got, link, &p); problem != inband.None || p.Hops() != 3 || p.Remaining != 0 ||
			p.HopLimit || p.MTU || p.Instructions != 0xff80 {
			t.Fatalf("packet %d: %v, %+v: % x", i, problem, p, got)
		}
		for n := range 3 {
			checkHop(t, fmt.Sprintf("packet %d, hop %d", i, n), &p, n, uint32(3-n), at)
		}
		key := p.IP.Key
		frame := packet.NewFrame(got)
		p.Strip(frame, link)
		if !bytes.Equal(frame.Bytes(), want) {
			t.Fatalf("packet %d stripped by the agent is % x, want % x", i, frame.Bytes(), want)
		}
		if end := sink.pass(two, at); !bytes.Equal(end, want) {
			t.Fatalf("packet %d stripped by the sink is % x, want % x", i, end, want)
		}
		if len(sink.report) < 42 {
			t.Fatalf("packet %d: no report", i)
		}
		if _, problem := reader.Begin(sink.report[42:]); problem != inband.None {
			t.Fatalf("packet %d: report: %v", i, problem)
		}
		problem, ok := reader.Next(&report)
		if !ok || problem != inband.None || report.Problem != inband.None || report.Sequence != uint32(reports) ||
			!report.Tracked || report.Dropped || report.Node != 4 || report.Packet.Hops() != 2 ||
			report.Packet.IP.Key != key {
			t.Fatalf("packet %d: report %v, %+v: % x", i, problem, report, sink.report)
		}
		if h := report.Hop; h.NodeID != 4 || h.IngressPort != 1 || h.EgressPort != 2 || h.IngressTime != uint64(at) {
			t.Fatalf("packet %d: the sink reports %+v at %v", i, h, at)
		}
		for n := range 2 {
			checkHop(t, fmt.Sprintf("packet %d, hop %d of the report", i, n), &report.Packet, n, uint32(2-n), at)
		}
		if _, ok := reader.Next(&report); ok {
			t.Fatalf("packet %d: two reports", i)
		}
		reports++
	}
	t.Logf("%d packets with INT, %d with INT cut short, %d without, of which %d were dropped", withINT, short, without,
		dropped)
	if withINT < len(sent)/2 || dropped > len(sent)/1000 {
		t.Errorf("%d of %d packets have INT, %d were dropped", withINT, len(sent), dropped)
	}
}

// checkHop checks the metadata of a hop. A switch without queues and with the test's clock takes no
// time.
func checkHop(t *testing.T, label string, p *inband.Packet, n int, node uint32, at time.Duration) {
	t.Helper()
	var h inband.Hop
	p.Hop(n, &h)
	want := inband.Hop{Has: 0x3f, NodeID: node, IngressPort: 1, EgressPort: 2, IngressTime: uint64(at),
		EgressTime: uint64(at)}
	if h != want {
		t.Fatalf("%s: %+v, want %+v", label, h, want)
	}
}
