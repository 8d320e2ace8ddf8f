// SPDX-License-Identifier: Apache-2.0

package inband

import (
	"bytes"
	"encoding/binary"

	"net/netip"
	"slices"

	"testing"

	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/internal/test/inbandtest"
	"github.com/netsketch/netsketch/sketch/flow"
)

// marks enables all carriers. The numbers without an assignment are arbitrary.
func marks() Marks {
	return Marks{DSCP: 0x17, DSCPMask: 0x3f, UDPPort: 5000, GRE: 0x8844, VXLAN: 4790, Geneve: 6081,
		GeneveClass: 0x0103, GeneveType: 0x81, Probe: 0xdeadbeef0badcafe}
}

func sent(proto uint8, v6 bool) inbandtest.Sent {
	s := inbandtest.Sent{Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.9.8.2"), Proto: proto,
		SrcPort: 40000, DstPort: 443, DSCP: 10, ECN: 1, Payload: []byte("application data")}
	if v6 {
		s.Src, s.Dst = netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
	}
	return s
}

// int2 has three hops with switch id and latency.
func int2() inbandtest.INT {
	return inbandtest.INT{Version: 2, HopWords: 2, Remaining: 5, Instructions: 0xa000, Stack: inbandtest.Hops(3, 71, 1000)}
}

func int1() inbandtest.INT {
	i := int2()
	i.Version = 1
	return i
}

// be joins 16-bit words.
func be(words ...uint16) (b []byte) {
	for _, w := range words {
		b = binary.BigEndian.AppendUint16(b, w)
	}
	return b
}

// tunnel is a UDP packet to a port with a header in front of an inner frame.
func tunnel(v6 bool, port uint16, head ...[]byte) inbandtest.Sent {
	inner := sent(packet.ProtocolTCP, false)
	s := sent(packet.ProtocolUDP, v6)
	s.DstPort, s.Payload = port, slices.Concat(slices.Concat(head...), inner.Frame())
	return s
}

// carriers returns, for each carrier, a packet with INT and the packet as its sender wrote it.
func carriers(v6 bool) map[string][2]inbandtest.Sent {
	i1, i2 := int1(), int2()
	tcp, udp := sent(packet.ProtocolTCP, v6), sent(packet.ProtocolUDP, v6)
	options := tcp
	options.Options = []byte{2, 4, 5, 0xb4, 1, 1, 4, 2}
	zero := udp
	zero.NoChecksum = true
	with := func(s inbandtest.Sent, payload ...[]byte) inbandtest.Sent {
		s.Payload = slices.Concat(payload...)
		return s
	}
	port := with(udp, i2.Shim(1, 1<<2, udp.DstPort), udp.Payload)
	port.DstPort = 5000
	zeroPort := with(zero, i2.Shim(1, 1<<2, udp.DstPort), udp.Payload)
	zeroPort.DstPort = 5000
	encap := with(zero, i2.Shim(1, 2<<2, 6), tcp.Transport())
	encap.SrcPort, encap.DstPort = 999, 5000
	probe := binary.BigEndian.AppendUint64(nil, marks().Probe)
	gre := func(head []byte, int []byte) inbandtest.Sent {
		s := sent(protocolGRE, v6)
		inner := sent(packet.ProtocolTCP, false)
		body := slices.Concat(head, int, inner.IP())
		if head[0]&0x80 != 0 {
			binary.BigEndian.PutUint16(body[4:], onesComplement(body))
		}
		s.SrcPort, s.DstPort, s.Payload = 0, 0, body
		return s
	}
	vxlan := func(port, flags, next uint16, int []byte) inbandtest.Sent {
		return tunnel(v6, port, be(flags, next), []byte{0, 0, 9, 0}, int)
	}
	gpe := vxlan(4790, 0x0c00, 3, nil)
	keyed := gre(be(0x3000, 0x0800, 1, 2, 3, 4), nil)
	domain := i2
	domain.HopWords, domain.Domain, domain.DomainInstructions = 3, 0x5453, 0x4000
	domain.Stack = []uint32{73, 1002, 0xd0d0d0d0, 72, 1001, 0xd1d1d1d1, 71, 1000, 0xd2d2d2d2}
	chain := slices.Concat(i2.Shim(1, 0, vxlanINT2), []byte{2 << 4, 1, 0, 3, 0xde, 0xad, 0xbe, 0xef})
	option := func(kind byte, body []byte) []byte {
		return slices.Concat([]byte{1, 3, kind, byte(len(body) / 4)}, body)
	}
	other := []byte{9, 9, 1, 1, 7, 7, 7, 7}
	optionINT := option(0x81, i2.Bytes())
	geneve := func(flags byte, options ...[]byte) inbandtest.Sent {
		all := slices.Concat(options...)
		return tunnel(v6, 6081, []byte{byte(len(all) / 4), flags, 0x65, 0x58, 0, 0, 9, 0}, all)
	}
	return map[string][2]inbandtest.Sent{
		"tcp 2.1":             {i2.Mark(tcp, 0x17), tcp},
		"tcp 1.0":             {i1.Mark(tcp, 0x17), tcp},
		"tcp options":         {i2.Mark(options, 0x17), options},
		"tcp domain":          {domain.Mark(tcp, 0x17), tcp},
		"udp 2.1":             {i2.Mark(udp, 0x17), udp},
		"udp 1.0":             {i1.Mark(udp, 0x17), udp},
		"udp no checksum":     {i2.Mark(zero, 0x17), zero},
		"udp in geneve":       {i2.Mark(geneve(0), 0x17), geneve(0)},
		"port":                {port, udp},
		"port no checksum":    {zeroPort, zero},
		"inserted udp":        {encap, tcp},
		"probe tcp":           {with(tcp, probe, i2.Shim(1, 0, 0), tcp.Payload), tcp},
		"probe udp":           {with(udp, probe, i1.Shim(1, 0, 0), udp.Payload), udp},
		"gre":                 {gre(be(0, 0x8844), i2.Shim(1, 0, 0x0800)), gre(be(0, 0x0800), nil)},
		"gre checksum":        {gre(be(0x8000, 0x8844, 0, 0), i2.Shim(1, 0, 0x0800)), gre(be(0x8000, 0x0800, 0, 0), nil)},
		"gre key, sequence":   {gre(be(0x3000, 0x8844, 1, 2, 3, 4), i2.Shim(1, 0, 0x0800)), keyed},
		"vxlan gpe":           {vxlan(4790, 0x0c00, 0x80, i2.Shim(1, 0, 3)), gpe},
		"vxlan gpe 1.0":       {vxlan(4790, 0x0c00, 0x08, i1.Shim(1, 0, 3)), gpe},
		"vxlan":               {vxlan(4790, 0x0c00, 0x80, i2.Shim(1, 0, 0x8003)), vxlan(4789, 0x0800, 0, nil)},
		"vxlan chain":         {vxlan(4790, 0x0c00, 0x80, chain), gpe},
		"geneve":              {geneve(0x40, optionINT), geneve(0)},
		"geneve, two options": {geneve(0x40, other, optionINT), geneve(0, other)},
	}
}

// onesComplement is the checksum of GRE.
func onesComplement(b []byte) uint16 {
	s := uint32(0)
	for i, v := range b {
		s += uint32(v) << (8 * (1 - i%2))
		s = s>>16 + s&0xffff
	}
	return ^uint16(s)
}

func decode(t testing.TB, m Marks, frame []byte) (*packet.Frame, packet.Link, *Packet, Problem) {
	t.Helper()
	f := packet.NewFrame(frame)
	link, err := packet.ParseLink(f.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	p := new(Packet)
	problem := NewDecoder(m).Decode(f.Bytes(), link, p)
	taken(t, m, frame)
	return f, link, p, problem
}

// taken reports whether Take reads a frame. It does what Decode, Path and Strip do, or nothing.
func taken(t testing.TB, m Marks, frame []byte) bool {
	t.Helper()
	d, f, want := NewDecoder(m), packet.NewFrame(frame), packet.NewFrame(frame)
	link, err := packet.ParseLink(frame)
	if err != nil {
		t.Fatal(err)
	}
	var k flow.Key
	var path, wantPath [MaxHops]Step
	hops, size, ok := d.Take(f, &k, path[:])
	if !ok {
		if !bytes.Equal(f.Bytes(), frame) {
			t.Errorf("not taken, and changed: %x\nto %x", frame, f.Bytes())
		}
		return false
	}
	var p Packet
	problem := d.Decode(want.Bytes(), link, &p)
	p.Path(wantPath[:])
	if problem != None || p.Hops() != hops || path != wantPath || p.IP.Key != k || p.Size() != size || p.Kind != MD ||
		p.Copy || p.HopLimit || p.MTU || p.Remaining == 0 || p.Unknown() || p.Instructions&(1<<(15-Queue)) != 0 {
		t.Errorf("%x: took %v, path %v, %d bytes; decoded %v: %+v, path %v", frame, k, path[:hops], size, problem, p,
			wantPath[:p.Hops()])
	}
	if p.Strip(want, link); !bytes.Equal(f.Bytes(), want.Bytes()) {
		t.Errorf("took %x\nremains %x\nwant    %x", frame, f.Bytes(), want.Bytes())
	}
	return true
}

// TestTake: Take handles the packets that nearly all traffic consists of.
func TestTake(t *testing.T) {
	common := map[string]bool{"tcp 2.1": true, "tcp options": true, "udp 2.1": true, "udp no checksum": true}
	for name, c := range carriers(false) {
		if got := taken(t, marks(), c[0].Frame()); got != common[name] {
			t.Errorf("%s: taken %v", name, got)
		}
	}
	for _, tc := range []struct {
		name   string
		change func(*inbandtest.INT)
		want   bool
	}{
		{"ports, and a reserved word of the hop", func(i *inbandtest.INT) {
			i.Instructions, i.HopWords, i.Stack = 0xe000, 4, []uint32{7, 8, 9, 10, 6, 5, 4, 3}
		}, true},
		{"64 hops", func(i *inbandtest.INT) { i.Stack = inbandtest.Hops(64, 1, 1) }, true},
		{"65 hops", func(i *inbandtest.INT) { i.Stack = inbandtest.Hops(65, 1, 1) }, false},
		{"no hop", func(i *inbandtest.INT) { i.Stack = nil }, false},
		{"a part of a hop", func(i *inbandtest.INT) { i.Stack = append(i.Stack, 1) }, false},
		{"a switch without latency", func(i *inbandtest.INT) { i.Stack[3] = invalid }, false},
		{"queues", func(i *inbandtest.INT) { i.Instructions, i.HopWords = 0xb000, 3 }, false},
		{"a reserved instruction", func(i *inbandtest.INT) { i.Instructions, i.HopWords = 0xa002, 3 }, false},
		{"no remaining hops", func(i *inbandtest.INT) { i.Remaining = 0 }, false},
		{"a flag", func(i *inbandtest.INT) { i.Flags = 2 }, false},
		{"hops shorter than instructions", func(i *inbandtest.INT) { i.HopWords = 1 }, false},
	} {
		i := int2()
		tc.change(&i)
		m := i.Mark(sent(packet.ProtocolUDP, false), 0x17)
		if got := taken(t, marks(), m.Frame()); got != tc.want {
			t.Errorf("%s: taken %v", tc.name, got)
		}
	}
}

// TestCarriers reads INT in all carriers and removes it: the packet is as its sender wrote it, byte
// by byte.
func TestCarriers(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for name, c := range carriers(v6) {
			f, link, p, problem := decode(t, marks(), c[0].Frame())
			if problem != None || p.Hops() != 3 || p.Remaining != 5 {
				t.Errorf("%s, IPv6 %v: %v, %d hops, %d remaining", name, v6, problem, p.Hops(), p.Remaining)
				continue
			}
			var path [3]Step
			if p.Path(path[:]); path != [3]Step{{73, 1002}, {72, 1001}, {71, 1000}} {
				t.Errorf("%s, IPv6 %v: path %v", name, v6, path)
			}
			key := p.IP.Key
			p.Strip(f, link)
			want := c[1].Frame()
			if !bytes.Equal(f.Bytes(), want) {
				t.Errorf("%s, IPv6 %v:\ngot  %x\nwant %x", name, v6, f.Bytes(), want)
			}
			_, _, again, problem := decode(t, marks(), f.Bytes())
			if problem != Absent || again.IP.Key != key {
				t.Errorf("%s, IPv6 %v: afterwards %v; flow %v, with INT %v", name, v6, problem, again.IP.Key, key)
			}
		}
	}
}

// TestGREEncap reads INT in front of a packet that the INT source put into GRE.
func TestGREEncap(t *testing.T) {
	for _, bridged := range []bool{false, true} {
		for _, v6 := range []bool{false, true} {
			inner := sent(packet.ProtocolTCP, v6)
			i := int2()
			body, next := inner.IP(), binary.BigEndian.Uint16(inner.Frame()[12:])
			if bridged {
				body, next = inner.Frame(), etherBridged
			}
			outer := sent(protocolGRE, false)
			outer.Payload = slices.Concat(be(0, 0x8844), i.Shim(1, 8, next), body)
			f, link, p, problem := decode(t, marks(), outer.Frame())
			key := p.IP.Key
			if problem != None || p.Hops() != 3 || key.DstPort != 443 || key.V6 != v6 {
				t.Fatalf("%v, %d hops of %v", problem, p.Hops(), key)
			}
			if p.Strip(f, link); !bytes.Equal(f.Bytes(), inner.Frame()) {
				t.Errorf("got %x\nwant %x", f.Bytes(), inner.Frame())
			}
		}
	}
}

// TestBeforeOptions reads INT between the header of TCP and its options.
func TestBeforeOptions(t *testing.T) {
	m := marks()
	m.BeforeOptions = true
	s := sent(packet.ProtocolTCP, false)
	s.Options = []byte{1, 1, 1, 1}
	i := int2()
	marked := s
	marked.Front, marked.DSCP = i.Shim(1, 0, uint16(s.DSCP)<<2), 0x17
	f, link, p, problem := decode(t, m, marked.Frame())
	if problem != None || p.Hops() != 3 {
		t.Fatalf("%v, %d hops", problem, p.Hops())
	}
	if p.Strip(f, link); !bytes.Equal(f.Bytes(), s.Frame()) {
		t.Errorf("got %x\nwant %x", f.Bytes(), s.Frame())
	}
}

// TestNextProtocol reads INT with another next protocol of VXLAN GPE.
func TestNextProtocol(t *testing.T) {
	m := marks()
	i := int2()
	s := tunnel(false, 4790, be(0x0c00, 0x82, 0, 9<<8), i.Shim(1, 0, 3))
	if _, _, _, problem := decode(t, m, s.Frame()); problem != Absent {
		t.Errorf("0x82 without the mark: %v", problem)
	}
	m.VXLANNext = 0x82
	if _, _, p, problem := decode(t, m, s.Frame()); problem != None || p.Hops() != 3 {
		t.Errorf("0x82 with the mark: %v, %d hops", problem, p.Hops())
	}
}

// TestMX reads instructions without metadata.
func TestMX(t *testing.T) {
	s := sent(packet.ProtocolUDP, false)
	i := inbandtest.INT{Version: 2, Instructions: 0xa000}
	marked := s
	marked.Payload, marked.DSCP = slices.Concat(i.Shim(3, 0, uint16(s.DSCP)<<2), s.Payload), 0x17
	f, link, p, problem := decode(t, marks(), marked.Frame())
	if problem != None || p.Kind != MX || p.Hops() != 0 || p.Instructions != 0xa000 {
		t.Fatalf("%v, kind %d, %d hops", problem, p.Kind, p.Hops())
	}
	if p.Strip(f, link); !bytes.Equal(f.Bytes(), s.Frame()) {
		t.Errorf("got %x\nwant %x", f.Bytes(), s.Frame())
	}
}

// TestAllInstructions reads every field in both versions, among reserved instructions, and values
// that a hop does not have.
func TestAllInstructions(t *testing.T) {
	want := Hop{Has: 1<<fields - 1, NodeID: 1, IngressPort: 2, EgressPort: 3, Latency: 4, QueueID: 5, QueueOccupancy: 6,
		IngressTime: 7, EgressTime: 8, LogicalIngressPort: 9, LogicalEgressPort: 10, Utilization: 11, BufferID: 12,
		BufferOccupancy: 13}
	v2 := []uint32{1, 2<<16 | 3, 4, 5<<24 | 6, 0, 7, 0, 8, 9, 10, 11, 12<<24 | 13, 14, 15, 16, 17, 18, 19, 0xabad1dea}
	v1 := []uint32{1, 2<<16 | 3, 4, 5<<24 | 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 0xabad1dea}
	none := slices.Repeat([]uint32{invalid}, len(v2))
	want1 := want
	want1.Has, want1.BufferID, want1.BufferOccupancy = want.Has&^(1<<Buffer), 0, 0
	for _, tc := range []struct {
		name    string
		version uint8
		stack   []uint32
		want    Hop
	}{
		{"2.1", 2, v2, want},
		{"1.0", 1, v1, want1},
		{"2.1 unavailable", 2, none, Hop{}},
		{"1.0 unavailable", 1, none[:len(v1)], Hop{}},
	} {
		i := inbandtest.INT{Version: tc.version, HopWords: uint8(len(tc.stack)), Instructions: 0xffff, Stack: tc.stack}
		marked := i.Mark(sent(packet.ProtocolTCP, false), 0x17)
		_, _, p, problem := decode(t, marks(), marked.Frame())
		if problem != None || p.Hops() != 1 || !p.Unknown() {
			t.Fatalf("%s: %v, %d hops, reserved instructions %v", tc.name, problem, p.Hops(), p.Unknown())
		}
		var h Hop
		if p.Hop(0, &h); h != tc.want {
			t.Errorf("%s: got %+v\nwant %+v", tc.name, h, tc.want)
		}
	}
}

// TestLatencyOfTimestamps takes the difference of timestamps if the hops state no latency; the 32
// bits of version 1.0 wrap around.
func TestLatencyOfTimestamps(t *testing.T) {
	for _, i := range []inbandtest.INT{
		{Version: 1, HopWords: 3, Instructions: 0x8c00, Stack: []uint32{1, invalid - 9, 20}},
		{Version: 2, HopWords: 5, Instructions: 0x8c00, Stack: []uint32{1, 6, invalid - 9, 7, 20}},
	} {
		marked := i.Mark(sent(packet.ProtocolTCP, false), 0x17)
		_, _, p, problem := decode(t, marks(), marked.Frame())
		var path [1]Step
		if p.Path(path[:]); problem != None || path[0].Latency != 30 {
			t.Errorf("version %d: %v, latency %d", i.Version, problem, path[0].Latency)
		}
	}
}

// TestClockGoesBack: a hop whose egress timestamp is before that of its ingress has no latency.
// Timestamps of other switches do not matter: only those of one hop are compared.
func TestClockGoesBack(t *testing.T) {
	for _, i := range []inbandtest.INT{
		{Version: 1, HopWords: 3, Instructions: 0x8c00, Stack: []uint32{2, 7, 37, 1, 9_000, 8_990}},
		{Version: 2, HopWords: 5, Instructions: 0x8c00, Stack: []uint32{2, 0, 7, 0, 37, 1, 6, 9_000, 6, 8_990}},
	} {
		marked := i.Mark(sent(packet.ProtocolTCP, false), 0x17)
		_, _, p, problem := decode(t, marks(), marked.Frame())
		if problem != None || p.Hops() != 2 {
			t.Fatalf("version %d: %v, %d hops", i.Version, problem, p.Hops())
		}
		var first, last Hop
		p.Hop(0, &last)
		p.Hop(1, &first)
		if !last.Has.Contains(Latency) || last.Latency != 30 || first.Has.Contains(Latency) {
			t.Errorf("version %d: %+v behind %+v", i.Version, last, first)
		}
	}
}

// TestGolden reads packets written by hand from the examples of the specification.
func TestGolden(t *testing.T) {
	const (
		ethernet = "020000000002 020000000001 0800 "
		// Three devices, switch id and queue occupancy, a maximum of 8 hops, two hops so far.
		metadata = "20 00 02 06 9000 0000 0000 0000 0000000b 07000123 0000000a 07000045 "
		tcp      = "9c40 01bb 00000001 00000000 5010 2000 0000 0000 "
	)
	source := "20 00 01 05 8000 5453 8000 4000 0000000c 0000000b 0000000a a61af6b1 647d0000 "
	ip := func(dscp string, length, protocol string) string {
		return "45 " + dscp + length + " 0000 0000 40 " + protocol + " 0000 0a000001 0a090802 "
	}
	withSource := marks()
	withSource.SourceOnly = []SourceOnly{{Domain: 0x5453, Instruction: 0x8000, Words: 2}}
	for _, tc := range []struct {
		name, packet string
		marks        Marks
		carrier      Carrier
		hops         int
		first        uint32
	}{
		{"INT-MD over TCP", ethernet + ip("5c", "004a", "06") + tcp + "10 07 00 28 " + metadata + "6869",
			marks(), TCP, 2, 11},
		{"new UDP header before TCP", ethernet + ip("28", "0050", "11") + "1234 1388 003c 0000 18 07 00 06 " + metadata + tcp,
			marks(), UDPEncap, 2, 11},
		{"between UDP header and payload",
			ethernet + ip("28", "003e", "11") + "1234 1388 002a 0000 14 07 01bb " + metadata + "6869",
			marks(), UDPPort, 2, 11},
		{"over GRE", ethernet + ip("28", "0060", "2f") + "0000 8844 18 07 0800 " + metadata + ip("28", "0028", "06") + tcp,
			marks(), GREEncap, 2, 11},
		{"source-only metadata", ethernet + ip("5c", "004c", "06") + tcp + "10 08 00 28 " + source, withSource, TCP, 3, 12},
	} {
		_, _, p, problem := decode(t, tc.marks, unhex(t, tc.packet))
		if problem != None || p.Carrier != tc.carrier || p.Hops() != tc.hops {
			t.Errorf("%s: %v, carrier %d, %d hops", tc.name, problem, p.Carrier, p.Hops())
			continue
		}
		for i := range p.Hops() {
			if p.Node(i) != tc.first-uint32(i) {
				t.Errorf("%s: hop %d is node %d", tc.name, i, p.Node(i))
			}
		}
		var h Hop
		if p.Hop(0, &h); h.Has.Contains(Queue) && (h.QueueID != 7 || h.QueueOccupancy != 0x123) {
			t.Errorf("%s: %+v", tc.name, h)
		}
	}
}

// TestProblems: every fault of INT is named. INT is removed nevertheless if its extent is known.
func TestProblems(t *testing.T) {
	s := sent(packet.ProtocolTCP, false)
	mark := func(change func(*inbandtest.INT)) []byte {
		i := int2()
		change(&i)
		m := i.Mark(s, 0x17)
		return m.Frame()
	}
	plain := mark(func(*inbandtest.INT) {})
	edit := func(at int, value byte) []byte {
		b := slices.Clone(plain)
		b[at] = value
		return b
	}
	const ip, shim = 14, 14 + 20 + 20
	udp := sent(packet.ProtocolUDP, false)
	i := int2()
	m := i.Mark(udp, 0x17)
	longUDP := m.Frame()
	longUDP[ip+20+4]++
	arp := slices.Clone(plain)
	arp[12], arp[13] = 8, 6
	fragment := edit(ip+6, 0x20)
	last := edit(ip+7, 9)
	last[ip+6] = 0
	six := sent(packet.ProtocolUDP, true)
	six = i.Mark(six, 0x17)
	fragment6 := six.Frame()
	fragment6 = slices.Concat(fragment6[:ip+6], []byte{protocolV6Frag}, fragment6[ip+7:ip+40],
		[]byte{packet.ProtocolUDP, 0, 0, 1, 0, 0, 0, 7}, fragment6[ip+40:])
	fragment6[ip+5] += 8
	port := udp
	port.DstPort, port.Payload = 5000, i.Shim(1, 0, 0)
	chain := func(n int) []byte { // the others are for the sink alone
		more := slices.Concat(i.Shim(1, 0, vxlanINT2), slices.Repeat([]byte{2 << 4, 0, 0, vxlanINT2}, n-2),
			[]byte{2 << 4, 0, 0, 3})
		s := tunnel(false, 4790, be(0x0c00, vxlanINT2, 0, 9<<8), more)
		return s.Frame()
	}
	for _, tc := range []struct {
		name    string
		frame   []byte
		problem Problem
		strip   bool
	}{
		{"arp", arp, NotIP, false},
		{"IP header cut", plain[:ip+19], Malformed, false},
		{"not marked", edit(ip+1, 0), Absent, false},
		{"frame cut", plain[:len(plain)-20], LengthMismatch, false},
		{"IP longer than the frame", edit(ip+3, plain[ip+3]+1), LengthMismatch, false},
		{"INT longer than IP", edit(ip+3, 60), LengthMismatch, false},
		{"shim longer than IP", edit(shim+1, 200), LengthMismatch, false},
		{"UDP longer than IP", longUDP, LengthMismatch, false},
		{"first fragment", fragment, Fragment, false},
		{"last fragment", last, Fragment, false},
		{"fragment of IPv6", fragment6, Fragment, false},
		{"shim type 0 of version 1", edit(shim, 0), UnknownType, false},
		{"shim type 7", edit(shim, 0x70), UnknownType, false},
		{"port without next protocol", port.Frame(), UnknownType, false},
		{"9 headers", chain(9), UnknownType, false},
		{"8 headers", chain(8), None, true},
		{"header shorter than version 2", edit(shim+1, 2), Truncated, true},
		{"no header", edit(shim+1, 0), Truncated, true},
		{"version 3", edit(shim+4, 0x30), UnknownVersion, true},
		{"version 0", edit(shim+4, 0), UnknownVersion, true},
		{"hops shorter than instructions", mark(func(i *inbandtest.INT) { i.HopWords = 1 }), BadHopLength, true},
		{"hops of no length", mark(func(i *inbandtest.INT) { i.HopWords, i.Instructions = 0, 0 }), BadHopLength, true},
		{"stack longer than announced", mark(func(i *inbandtest.INT) { i.Stack = append(i.Stack, 1) }), BadStackLength, true},
		{"65 hops", mark(func(i *inbandtest.INT) { i.Stack = inbandtest.Hops(65, 1, 1) }), TooManyHops, true},
		{"64 hops", mark(func(i *inbandtest.INT) { i.Stack = inbandtest.Hops(64, 1, 1) }), None, true},
		{"no node ids", mark(func(i *inbandtest.INT) { i.Instructions = 0x2000 }), NoNodeID, true},
		{"unknown domain", mark(func(i *inbandtest.INT) { i.Domain, i.DomainInstructions = 7, 1 }), UnknownDomain, true},
		{"domain without instructions", mark(func(i *inbandtest.INT) { i.Domain = 7 }), None, true},
		{"no hop", mark(func(i *inbandtest.INT) { i.Stack = nil }), None, true},
	} {
		f, link, p, problem := decode(t, marks(), tc.frame)
		if problem != tc.problem || p.HasINT() != tc.strip {
			t.Errorf("%s: %v, removable %v; want %v, %v", tc.name, problem, p.HasINT(), tc.problem, tc.strip)
		}
		if problem != None && p.Hops() != 0 {
			t.Errorf("%s: %v with %d hops", tc.name, problem, p.Hops())
		}
		before := bytes.Clone(f.Bytes())
		p.Strip(f, link)
		if !tc.strip && !bytes.Equal(before, f.Bytes()) {
			t.Errorf("%s: the packet has changed", tc.name)
		}
		if tc.strip && tc.problem > UnknownVersion && !bytes.Equal(f.Bytes(), s.Frame()) {
			t.Errorf("%s: got %x\nwant %x", tc.name, f.Bytes(), s.Frame())
		}
	}
}

// TestFlags reads the flags of both versions.
func TestFlags(t *testing.T) {
	for _, tc := range []struct {
		i                 inbandtest.INT
		copied, hops, mtu bool
	}{
		{inbandtest.INT{Version: 2, Flags: 8}, true, false, false},
		{inbandtest.INT{Version: 2, Flags: 4}, false, true, false},
		{inbandtest.INT{Version: 2, Flags: 2}, false, false, true},
		{inbandtest.INT{Version: 1, Flags: 2}, true, false, false},
		{inbandtest.INT{Version: 1, Flags: 1}, false, true, false},
		{inbandtest.INT{Version: 1, Flags: 12, MTU: true}, false, false, true},
	} {
		m := tc.i.Mark(sent(packet.ProtocolTCP, false), 0x17)
		_, _, p, _ := decode(t, marks(), m.Frame())
		if p.Copy != tc.copied || p.HopLimit != tc.hops || p.MTU != tc.mtu {
			t.Errorf("version %d, flags %x: %v, %v, %v", tc.i.Version, tc.i.Flags, p.Copy, p.HopLimit, p.MTU)
		}
	}
}

// TestWrongChecksum keeps a wrong checksum wrong.
func TestWrongChecksum(t *testing.T) {
	s := sent(packet.ProtocolTCP, false)
	i := int2()
	m := i.Mark(s, 0x17)
	frame := m.Frame()
	frame[len(frame)-1] ^= 0x40
	want := s.Frame()
	want[len(want)-1] ^= 0x40
	f, link, p, _ := decode(t, marks(), frame)
	if p.Strip(f, link); !bytes.Equal(f.Bytes(), want) {
		t.Errorf("got %x\nwant %x", f.Bytes(), want)
	}
}

// TestChecksums covers both forms of zero: all payloads of one word, so that every checksum
// occurs.
func TestChecksums(t *testing.T) {
	for _, proto := range []uint8{packet.ProtocolTCP, packet.ProtocolUDP} {
		s := sent(proto, false)
		s.Payload = make([]byte, 2)
		i := int2()
		d := NewDecoder(marks())
		var p Packet
		var k flow.Key
		var path [MaxHops]Step
		f := new(packet.Frame)
		for word := range 1 << 16 {
			binary.BigEndian.PutUint16(s.Payload, uint16(word))
			m := i.Mark(s, 0x17)
			f.Set(m.Frame())
			link, _ := packet.ParseLink(f.Bytes())
			d.Decode(f.Bytes(), link, &p)
			if p.Strip(f, link); !bytes.Equal(f.Bytes(), s.Frame()) {
				t.Fatalf("protocol %d, payload %x: got %x\nwant %x", proto, word, f.Bytes(), s.Frame())
			}
			f.Set(m.Frame())
			if _, _, ok := d.Take(f, &k, path[:]); !ok || !bytes.Equal(f.Bytes(), s.Frame()) {
				t.Fatalf("protocol %d, payload %x: taken %v, %x\nwant %x", proto, word, ok, f.Bytes(), s.Frame())
			}
		}
	}
}

// FuzzDecode decodes and strips any frame: no access outside of it, and what is removed is what was
// announced.
func FuzzDecode(f *testing.F) {
	for _, v6 := range []bool{false, true} {
		for _, c := range carriers(v6) {
			f.Add(c[0].Frame())
		}
	}
	m := marks()
	m.SourceOnly = []SourceOnly{{Domain: 1, Instruction: 1, Words: 2}}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, before := range []bool{false, true} {
			m.BeforeOptions = before
			frame := packet.NewFrame(b)
			link, err := packet.ParseLink(b)
			if err != nil {
				return
			}
			var p Packet
			problem := NewDecoder(m).Decode(frame.Bytes(), link, &p)
			taken(t, m, b)
			var path [MaxHops]Step
			p.Path(path[:])
			for i := range p.Hops() {
				var h Hop
				p.Hop(i, &h)
				if path[i].Node != p.Node(i) || h.Has.Contains(Latency) != (path[i].Latency != NoLatency) ||
					h.Has.Contains(Latency) && h.Latency != path[i].Latency {
					t.Fatalf("hop %d: %+v; %+v", i, path[i], h)
				}
			}
			if p.Hops() > 0 && problem != None ||
				p.HasINT() && problem != None && problem != Truncated && problem < UnknownVersion {
				t.Fatalf("%v with %d hops, removable %v", problem, p.Hops(), p.HasINT())
			}
			removed, encapsulated := p.Size(), p.Carrier == UDPEncap || p.Carrier == GREEncap
			p.Strip(frame, link)
			if !encapsulated && len(frame.Bytes()) != len(b)-removed {
				t.Fatalf("%d bytes of %d remain; INT has %d", len(frame.Bytes()), len(b), removed)
			}
		}
	})
}

func TestNoAllocations(t *testing.T) {
	i := int2()
	m := i.Mark(sent(packet.ProtocolTCP, false), 0x17)
	frame := m.Frame()
	f, d, p := packet.NewFrame(frame), NewDecoder(marks()), new(Packet)
	if n := testing.AllocsPerRun(100, func() {
		f.Set(frame)
		link, _ := packet.ParseLink(f.Bytes())
		d.Decode(f.Bytes(), link, p)
		p.Strip(f, link)
	}); n != 0 {
		t.Errorf("%v allocations for a packet", n)
	}
}

// BenchmarkDecode reads and strips packets of 5 hops, as any packet and as most packets, with the
// copy into the frame.
func BenchmarkDecode(b *testing.B) {
	i := int2()
	i.Stack = inbandtest.Hops(5, 1, 1000)
	m := i.Mark(sent(packet.ProtocolTCP, false), 0x17)
	frame := m.Frame()
	d, p := NewDecoder(marks()), new(Packet)
	frames := make([]*packet.Frame, 64)
	for i := range frames {
		frames[i] = packet.NewFrame(frame)
	}
	var k flow.Key
	var path [MaxHops]Step
	for name, read := range map[string]func(*packet.Frame){
		"any": func(f *packet.Frame) {
			link, _ := packet.ParseLink(f.Bytes())
			d.Decode(f.Bytes(), link, p)
			k = p.IP.Key
			p.Path(path[:])
			p.Strip(f, link)
		},
		"most": func(f *packet.Frame) { d.Take(f, &k, path[:]) },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				for _, f := range frames {
					f.Set(frame)
					read(f)
				}
			}
			b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(len(frames)), "ns/packet")
		})
	}
}
