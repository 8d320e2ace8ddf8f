// SPDX-License-Identifier: Apache-2.0

package switches

import (
	"bytes"
	"context"
	"encoding"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/inband"
	"github.com/netsketch/netsketch/hostagent/role"
	"github.com/netsketch/netsketch/hostagent/sketchint"
	"github.com/netsketch/netsketch/hostagent/sketchint/wire"
	"github.com/netsketch/netsketch/internal/test/inbandtest"
	"github.com/netsketch/netsketch/internal/test/switchtest"
	"github.com/netsketch/netsketch/p4/bmv2"
	"github.com/netsketch/netsketch/p4/compiled"
	"github.com/netsketch/netsketch/p4/p4rt"
)

// TestEdgeTowers: the towers of an edge switch and those of the role of host agents, which receives
// the reports of the same switch about the same packets, have equal counters. The switch pushes its
// own latency into neither INT nor a tower twice, so the reports have it.
func TestEdgeTowers(t *testing.T) {
	targets := map[string]func(*testing.T) *target{"soft switch": startSoft}
	if _, err := switchtest.BMv2Version(t.Context()); err == nil {
		targets["BMv2"] = startBMv2
	} else if !errors.Is(err, bmv2.ErrNotInstalled) {
		t.Fatal(err)
	} else {
		t.Logf("%v: the soft switch alone runs", err)
	}
	for name, start := range targets {
		t.Run(name, func(t *testing.T) { compareTowers(t, start(t)) })
	}
}

// Sizes of the towers of sketchint-edge, in bytes.
const edgeFlows, edgeLatencies = 194_560, 196_608

// checksum is the bytes behind the words of a serialized tower.
const checksum = 4

// edgePackets are packets with INT of one to four hops, of a few large and many small flows.
func edgePackets() (in []arrival) {
	r := rand.New(rand.NewPCG(9, 9))
	for range 1500 {
		n := r.IntN(200)
		if r.IntN(2) == 0 {
			n = r.IntN(3) // counters of 2 and 4 bits overflow for these flows
		}
		s := inbandtest.Sent{Src: netip.AddrFrom4([4]byte{10, 1, 0, byte(n)}), Dst: netip.MustParseAddr("10.2.0.1"),
			Proto: 6 + uint8(n%2)*11, SrcPort: uint16(1000 + n), DstPort: 80, Payload: []byte("telemetry")}
		if n%5 == 0 {
			s.Src, s.Dst = netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(n)}), netip.MustParseAddr("fd00::1")
		}
		latency := r.Uint32N(5000)
		switch r.IntN(20) {
		case 0:
			latency = 1<<32 - 1 // no latency
		case 1:
			latency = 1<<32 - 2 - latency // sums of 24 bits overflow
		}
		hops := 1 + n%4
		i := inbandtest.INT{Version: 2, HopWords: 2, Remaining: 7, Instructions: 0xa000}
		for h := hops; h > 0; h-- {
			i.Stack = append(i.Stack, uint32(h), latency)
		}
		m := i.Mark(s, 0x17)
		in = append(in, arrival{1, m.Frame()})
	}
	return in
}

// edgeProgram is the program as a sink that sends a report of each packet to port 9.
func edgeProgram(t *testing.T) *program {
	t.Helper()
	p, err := compiled.Load("sketchint-edge")
	if err != nil {
		t.Fatal(err)
	}
	out := forwarding(&p4rt.Program{Name: p.Name, DeviceConfig: p.JSON, P4Info: p.P4Info}, nil)
	for _, port := range []byte{5, 6} {
		out.entries = append(out.entries, p4rt.Entry{Table: "egress.sketchint.sink", Action: "egress.sketchint.report",
			Params: []p4rt.Param{p4rt.Uint("session", 7)}, Match: []p4rt.Match{p4rt.Exact("port", []byte{port})}})
	}
	out.entities = append(out.entities, &p4v1.Entity{Entity: &p4v1.Entity_PacketReplicationEngineEntry{
		PacketReplicationEngineEntry: &p4v1.PacketReplicationEngineEntry{
			Type: &p4v1.PacketReplicationEngineEntry_CloneSessionEntry{CloneSessionEntry: &p4v1.CloneSessionEntry{
				SessionId: 7, Replicas: []*p4v1.Replica{{PortKind: &p4v1.Replica_EgressPort{EgressPort: 9}, Instance: 1}}}}}}})
	zero := []byte{2, 0, 0, 0, 0, 1}
	out.defaults = append(out.defaults,
		defaultAction{"egress.sketchint.node", "egress.sketchint.set_node", []p4rt.Param{p4rt.Uint("id", 77)}},
		defaultAction{"egress.sketchint.collector", "egress.sketchint.send", []p4rt.Param{p4rt.Bytes("src_mac", zero),
			p4rt.Bytes("dst_mac", zero), p4rt.Uint("src", 1), p4rt.Uint("dst", 2), p4rt.Uint("src_port", 3),
			p4rt.Uint("dst_port", 4)}})
	return out
}

func compareTowers(t *testing.T, tgt *target) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	d := &driver{t: t, ctx: ctx, tgt: tgt, prog: edgeProgram(t), barriers: map[uint64]bool{}, res: &result{}}
	defer d.connect()()
	d.install()
	defer d.open()()

	clock := epoch.NewClock(0, 9)
	agent := sketchint.New(clock)
	s := wire.Settings{Marks: inband.Marks{DSCP: 0x17, DSCPMask: 0x3f}, Interval: 1, Flows: edgeFlows,
		Latencies: edgeLatencies, Heavy: 1000, Inflation: 5}
	data, err := s.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Apply(data); err != nil {
		t.Fatal(err)
	}
	clock.Advance(10)
	in := edgePackets()
	d.packets = len(in)
	for i, a := range in {
		d.inject(a, uint64(i+1))
		for left := 2; left > 0; {
			select {
			case p := <-d.data.Packets():
				left--
				if p.Port == 9 {
					agent.Receive([]role.Datagram{{From: netip.MustParseAddr("192.0.2.1"), Payload: p.Frame[42:]}})
				}
			case <-ctx.Done():
				t.Fatalf("%s: packet %d: %d of 2 packets missing", tgt.name, i, left)
			}
		}
	}
	clock.Advance(11)
	sealed := agent.Seal(10)
	if sealed == nil {
		t.Fatal("no report")
	}
	report, err := wire.ParseReport(sealed.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	if n := report.Counters[wire.Reports]; n != uint64(len(in)) || report.Problems[inband.None] < n {
		t.Fatalf("%d of %d reports, problems %v", n, len(in), report.Problems)
	}
	banks, err := d.client.ReadBanks(ctx, 0, "sketchint_flows", "sketchint_latencies")
	if err != nil {
		t.Fatal(err)
	}
	for i, tower := range []encoding.BinaryMarshaler{report.Flows, report.Latencies} {
		want, err := tower.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		size := []int{edgeFlows, edgeLatencies}[i]
		want, got := want[len(want)-checksum-size:len(want)-checksum], banks[i].Data
		differ, used := 0, 0
		for c := 0; c < size; c += 4 {
			if !bytes.Equal(got[c:c+4], want[c:c+4]) {
				if differ++; differ <= 3 {
					t.Errorf("%s: %s, cell %d: % x in the switch, % x in the role", tgt.name,
						fmt.Sprintf("%T", tower), c/4, got[c:c+4], want[c:c+4])
				}
			}
			if !bytes.Equal(want[c:c+4], make([]byte, 4)) {
				used++
			}
		}
		if differ > 0 || used < 300 {
			t.Errorf("%s: %T: %d cells differ, %d are used", tgt.name, tower, differ, used)
		}
	}
}
