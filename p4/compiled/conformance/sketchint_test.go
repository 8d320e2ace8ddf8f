// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/netsketch/netsketch/p4/p4rt"
)

// intBench is a switch that runs sketchint or sketchint-edge, with what the model counts.
type intBench struct {
	*bench
	node    uint32
	mtu     int
	leftOut [10]int64
	edge    bool   // the program is sketchint-edge
	latest  uint64 // ingress timestamp
	reports uint32
}

const (
	toReport, reportPort, reportSession = 3, 9, 5 // 10.3.128.0/17 leaves by port 3
	toHost, toReport6                   = 5, 6    // the default routes
	sourcePort                          = 4242    // of flows that begin to carry INT
)

// ends counts a packet whose INT ends at this switch. The towers of sketchint-edge read up to four
// hops with a node id and a latency.
func (i *intBench) ends(m *intMD) {
	read := m.hopWords == 2 && m.instructions == 0xa000 && len(m.stack)%2 == 0 && len(m.stack) <= 8
	if i.edge && len(m.stack) > 0 && !read {
		i.leftOut[9]++
	}
}

// plausible checks measured values: times in whole microseconds that rise from packet to packet, a
// latency that is their difference, and hardly a queue.
func (i *intBench) plausible(label string, v hopValues, instructions uint16) {
	i.t.Helper()
	has := func(bit int) bool { return instructions&(0x8000>>bit) != 0 }
	if has(4) {
		if v.ingress%1000 != 0 || v.ingress < i.latest || v.ingress-i.latest > uint64(10*patience) {
			i.t.Errorf("%s: ingress timestamp %d after %d", label, v.ingress, i.latest)
		}
		i.latest = v.ingress
	}
	if has(4) && has(5) && (v.egress%1000 != 0 || v.egress < v.ingress ||
		has(2) && uint64(v.latency) != v.egress-v.ingress) {
		i.t.Errorf("%s: ingress %d, egress %d, latency %d", label, v.ingress, v.egress, v.latency)
	}
	if has(2) && (v.latency%1000 != 0 || v.latency > 4e9) || has(3) && v.occupancy > 64 {
		i.t.Errorf("%s: latency %d, occupancy %d", label, v.latency, v.occupancy)
	}
}

func startINT(t testing.TB, sw target, program string) *intBench {
	i := &intBench{bench: newBench(t, load(t, program), sw), mtu: 1500, edge: program == "sketchint-edge"}
	i.install()
	return i
}

func (i *intBench) set(table, action string, params ...p4rt.Param) {
	i.t.Helper()
	if err := i.client.SetDefaultAction(i.ctx, "egress.sketchint."+table, action, params...); err != nil {
		i.t.Fatal(err)
	}
}

func (i *intBench) setNode(id uint32) {
	i.node = id
	i.set("node", "set_node", p4rt.Uint("id", uint64(id)))
}
func (i *intBench) setMTU(n int) { i.mtu = n; i.set("mtu", "set_mtu", p4rt.Uint("bytes", uint64(n))) }

// configure writes sinks, reports, and instructions for the flows from sourcePort.
func (i *intBench) configureINT(instructions uint16, hops byte) {
	i.t.Helper()
	port := func(n byte) []p4rt.Match { return []p4rt.Match{p4rt.Exact("port", []byte{n})} }
	sinks := []p4rt.Entry{{Table: "egress.sketchint.sink", Action: "egress.sketchint.remove", Match: port(toHost)}}
	for _, n := range []byte{toReport, toReport6} {
		sinks = append(sinks, p4rt.Entry{Table: "egress.sketchint.sink", Action: "egress.sketchint.report", Match: port(n),
			Params: []p4rt.Param{p4rt.Uint("session", reportSession)}})
	}
	number := binary.BigEndian.AppendUint16(nil, sourcePort)
	for _, family := range []string{"ipv4", "ipv6"} {
		sinks = append(sinks, p4rt.Entry{Table: "ingress.sketchint.source_" + family, Priority: 1,
			Action: "ingress.sketchint.start", Match: []p4rt.Match{p4rt.Range("src_port", number, number)},
			Params: []p4rt.Param{p4rt.Uint("instructions", uint64(instructions)), p4rt.Uint("hops", uint64(hops))}})
	}
	if err := i.client.Reconcile(i.ctx, p4rt.Desired{Entries: sinks}); err != nil {
		i.t.Fatal(err)
	}
}

// output returns the next frame that leaves.
func (i *intBench) output(label string) frameOut {
	i.t.Helper()
	select {
	case got := <-i.sw.output():
		return got
	case <-time.After(patience):
		i.t.Fatalf("%s: no frame left", label)
		return frameOut{}
	}
}

// same sends a frame and expects want to leave, as a switch without INT forwards it.
func (i *intBench) same(label string, f, want []byte) []byte {
	i.t.Helper()
	if err := i.sw.inject(1, f); err != nil {
		i.t.Fatal(err)
	}
	return i.left(label, want)
}

// left compares the frame that leaves with want, as forwarded.
func (i *intBench) left(label string, want []byte) []byte {
	i.t.Helper()
	port, want, forwarded := expect(want)
	if !forwarded {
		i.t.Fatalf("%s: the test has a frame that is not forwarded: % x", label, want)
	}
	got := i.output(label)
	if got.port != port || !bytes.Equal(got.frame, want) {
		i.t.Fatalf("%s: left by port %d as\n% x, want by port %d\n% x", label, got.port, got.frame, port, want)
	}
	return got.frame
}

// transit sends plain with m and expects the hop of the switch. before is the INT that the switch
// extends: m or, at a source, a new header.
func (i *intBench) transit(label string, plain, f []byte, before intMD) []byte {
	i.t.Helper()
	if err := i.sw.inject(1, f); err != nil {
		i.t.Fatal(err)
	}
	port, _, _ := expect(plain)
	got := i.output(label)
	size := len(before.with(plain)) - locate(plain).ip
	v := hopValues{node: i.node, inPort: 1, outPort: uint16(port)}
	after, reason := before.push(v, size, i.mtu)
	if i.leftOut[reason]++; reason == 0 {
		m := measured(got.frame, before.instructions)
		i.plausible(label, m, before.instructions)
		m.node, m.inPort, m.outPort = v.node, v.inPort, v.outPort
		after, _ = before.push(m, size, i.mtu)
	}
	_, want, _ := expect(after.with(plain))
	if got.port != port || !bytes.Equal(got.frame, want) {
		i.t.Fatalf("%s: left by port %d as\n% x, want by port %d\n% x", label, got.port, got.frame, port, want)
	}
	return got.frame
}

// plainFrames are TCP and UDP over both families to a destination, with payloads of odd and even
// length, tags, options and no checksum.
func plainFrames(v4 [4]byte, v6 [16]byte, src uint16) (out [][]byte) {
	r := rand.New(rand.NewPCG(5, uint64(src)))
	payload := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}
	tcp := func(options, n int) []byte {
		h := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, src), 80)
		h = append(h, payload(8)...)
		h = append(h, byte(20+options)<<2, 0x18, 1, 2, 0, 0, 0, 0)
		return slices.Concat(h, bytes.Repeat([]byte{1}, options), payload(n))
	}
	udp := func(sum byte, n int) []byte {
		h := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, src), 53)
		return slices.Concat(h, []byte{0, 0, 0, sum}, payload(n))
	}
	for k, n := range []int{0, 1, 6, 100, 777} {
		tags := [][]uint16{nil, {0x8100}, {0x88a8, 0x8100}}[k%3]
		for _, segment := range [][]byte{tcp(0, n), tcp(12, n), tcp(40, n), udp(1, n), udp(0, n)} {
			protocol := byte(17)
			if len(segment) > 12 && segment[3] == 80 {
				protocol = 6
			}
			options := bytes.Repeat([]byte{1}, 4*(k%2))
			src4 := [4]byte{10, 9, 0, byte(n)}
			out = append(out, ethernet(0x0800, tags, ipv4(src4, v4, protocol, 64, 0x4000, options, segment)),
				ethernet(0x86dd, tags, ipv6(address6(9), v6, protocol, 64, segment)))
		}
	}
	for i, f := range out {
		setTos(f[locate(f).ip:], locate(f).v6, byte(i)<<2|byte(i%4)) // ECN as well
		f = seal(f, byte(i)%intDSCP)
		if s := locate(f); s.udp && len(f) == s.payload+100 && binary.BigEndian.Uint16(f[s.sum:]) != 0 {
			last := f[len(f)-2:] // so that the checksum comes to zero, which UDP writes as ones
			sum := uint32(binary.BigEndian.Uint16(last)) + uint32(binary.BigEndian.Uint16(f[s.sum:]))
			binary.BigEndian.PutUint16(last, uint16(sum+sum>>16))
			f = seal(f, byte(i)%intDSCP)
		}
		out[i] = f
	}
	return out
}

// conformINT compares a switch with the model of INT.
func conformINT(t *testing.T, sw target, program string) {
	i := startINT(t, sw, program)
	i.setNode(0x01020304)
	entity := &p4v1.Entity{Entity: &p4v1.Entity_PacketReplicationEngineEntry{
		PacketReplicationEngineEntry: &p4v1.PacketReplicationEngineEntry{
			Type: &p4v1.PacketReplicationEngineEntry_CloneSessionEntry{CloneSessionEntry: &p4v1.CloneSessionEntry{
				SessionId: reportSession, Replicas: []*p4v1.Replica{{PortKind: &p4v1.Replica_EgressPort{EgressPort: reportPort},
					Instance: 1}}}}}}}
	if err := i.tap.Write(i.ctx, p4v1.Update_INSERT, entity); err != nil {
		t.Fatal(err)
	}
	i.set("collector", "send", p4rt.Uint("src_mac", 0x0a0b0c0d0e0f), p4rt.Uint("dst_mac", 0x010203040506),
		p4rt.Uint("src", 0xc0000201), p4rt.Uint("dst", 0xc0000202), p4rt.Uint("src_port", 5000),
		p4rt.Uint("dst_port", 32766))
	i.configureINT(0xfdff, 3)
	i.source()
	i.transits()
	i.foreign()
	i.sinks()
	i.path()
	i.compareCounters()
	got := i.readCounter("sketchint_left_out")
	if want := i.leftOut[:len(got)]; !slices.Equal(got[1:], want[1:]) {
		t.Errorf("sketchint_left_out is %v, the model has %v", got, want)
	}
}

var toSwitch6 = address6(0, 0, 7) // leaves by port 4

func (i *intBench) source() {
	i.t.Helper()
	start := func(f []byte, instructions uint16, hops byte) intMD {
		return intMD{kind: 1, version: 2, dscp: tosOf(f) >> 2, hopWords: words(instructions), remaining: hops,
			instructions: instructions}
	}
	for n, f := range plainFrames([4]byte{10, 0, 0, 2}, toSwitch6, sourcePort) {
		i.transit(fmt.Sprintf("source, frame %d", n), f, f, start(f, 0xfdff, 3))
	}
	for n, f := range plainFrames([4]byte{10, 0, 0, 2}, toSwitch6, sourcePort) {
		for _, kind := range carriers {
			label := fmt.Sprintf("source, frame %d in a %s", n, kind)
			switch f := ofHosts.carry(kind, f, someHeader); {
			case f == nil:
			case kind == "option" && !parse(f).v6:
				i.transit(label, f, f, start(f, 0xfdff, 3))
			default:
				i.same(label, f, f)
			}
		}
	}
	for n, f := range plainFrames([4]byte{10, 0, 0, 2}, toSwitch6, 4243) {
		i.same(fmt.Sprintf("another flow, frame %d", n), f, f)
	}
	frames := plainFrames([4]byte{10, 0, 0, 2}, toSwitch6, sourcePort)
	for bit := range 16 {
		i.configureINT(0x8000>>bit, 255)
		i.transit(fmt.Sprintf("source, instruction %d", bit), frames[bit], frames[bit], start(frames[bit], 0x8000>>bit, 255))
	}
	// An MTU with room for the packet, for the header, and for the metadata.
	i.configureINT(0xfc00, 3)
	for n, f := range frames {
		size := len(f) - locate(f).ip
		for _, more := range []int{0, 15, 16, 47, 48} {
			i.setMTU(size + more)
			label := fmt.Sprintf("source, frame %d of %d bytes, MTU %d", n, size, i.mtu)
			if more < 16 {
				i.same(label, f, f)
				i.leftOut[7]++
			} else {
				i.transit(label, f, f, start(f, 0xfc00, 3))
			}
		}
	}
	i.setMTU(1500)
	// Fragments carry no INT.
	for _, fragment := range []uint16{0x2000, 0x2005} {
		f := slices.Clone(frames[0])
		h := f[locate(f).ip:][:20]
		binary.BigEndian.PutUint16(h[6:], fragment)
		h[10], h[11] = 0, 0
		binary.BigEndian.PutUint16(h[10:], checksum(h))
		i.same("a fragment", f, f)
	}
}

// random returns INT of an earlier switch.
func random(r *rand.Rand) intMD {
	m := intMD{kind: 1, version: 2, dscp: byte(r.IntN(64)), remaining: byte(1 + r.IntN(255)),
		instructions: uint16(r.Uint32()), domain: uint16(r.Uint32()), dsInstructions: uint16(r.Uint32()),
		dsFlags: uint16(r.Uint32()), discard: r.IntN(2) == 0, mtuExceeded: r.IntN(2) == 0}
	m.hopWords = min(31, words(m.instructions)+byte(r.IntN(4)))
	for range int(m.hopWords) * r.IntN(4) {
		m.stack = append(m.stack, r.Uint32())
	}
	return m
}

func (i *intBench) transits() {
	i.t.Helper()
	r := rand.New(rand.NewPCG(6, 7))
	for n, f := range plainFrames([4]byte{10, 0, 0, 3}, toSwitch6, 1000) {
		for range 4 {
			m := random(r)
			label := fmt.Sprintf("transit, frame %d, %+v", n, m)
			i.transit(label, f, m.with(f), m)
			full := m
			full.remaining = 0
			i.transit(label+", no hops remain", f, full.with(f), full)
			small := m
			if small.hopWords = words(m.instructions); small.hopWords > 0 {
				small.hopWords--
				i.transit(label+", too few words", f, small.with(f), small)
			}
			if m.hopWords > 0 {
				i.setMTU(len(m.with(f)) - locate(f).ip + 4*int(m.hopWords) - r.IntN(2))
				i.transit(label+", at the MTU", f, m.with(f), m)
				i.setMTU(1500)
			}
		}
		for _, length := range []int{241, 242, 252} {
			m := intMD{kind: 1, version: 2, remaining: 9, instructions: 0xfc80, hopWords: 11,
				stack: make([]uint32, length)}
			i.setMTU(9000)
			i.transit(fmt.Sprintf("transit, frame %d, stack of %d words", n, length), f, m.with(f), m)
			i.setMTU(1500)
		}
	}
}

// foreign sends packets with the DSCP of INT that are left alone: what follows is not INT-MD
// version 2, or has wrong lengths.
func (i *intBench) foreign() {
	i.t.Helper()
	frames := plainFrames([4]byte{10, 0, 0, 4}, toSwitch6, sourcePort)
	for n, f := range frames {
		good := intMD{kind: 1, version: 2, hopWords: 1, remaining: 4, instructions: 0x8000, stack: []uint32{5}}
		for _, c := range []struct {
			reason int
			change func(*intMD)
		}{
			{1, func(m *intMD) { m.kind = 2 }}, {1, func(m *intMD) { m.kind = 3 }}, {1, func(m *intMD) { m.npt = 1 }},
			{1, func(m *intMD) { m.version = 1 }}, {1, func(m *intMD) { m.version = 3 }},
			{2, func(m *intMD) { m.length = 2 }}, {2, func(m *intMD) { m.length = 1 }},
			{2, func(m *intMD) { m.length = 5 + (len(f)-locate(f).payload)/4 }}, {2, func(m *intMD) { m.length = 255 }},
		} {
			m := good
			c.change(&m)
			whole := m.with(f)
			i.same(fmt.Sprintf("frame %d, %+v", n, m), whole, whole)
			i.leftOut[c.reason]++
		}
		// A packet that is too short for INT, and packets that are cut off within INT.
		whole := seal(slices.Concat(f[:locate(f).payload], make([]byte, n%16)), intDSCP)
		plain := slices.Clone(whole)
		plain[locate(f).l4], plain[locate(f).l4+1] = 1, 2 // not of sourcePort
		plain = seal(plain, intDSCP)
		i.same(fmt.Sprintf("frame %d, %d bytes with the DSCP of INT", n, n%16), plain, plain)
		whole = good.with(f)
		at := locate(f).payload
		for _, cut := range []int{at + 3, at + 15, at + 19} {
			if err := i.sw.inject(1, whole[:cut]); err != nil {
				i.t.Fatal(err)
			}
			i.drops[dropMalformed]++
		}
	}
	for _, f := range frames {
		if s := locate(f); !s.udp && s.payload > s.l4+20 { // within the options of TCP
			if err := i.sw.inject(1, f[:s.payload-1]); err != nil {
				i.t.Fatal(err)
			}
			i.drops[dropMalformed]++
		}
	}
}

// sinks sends packets with INT to ports of hosts, without and with reports.
func (i *intBench) sinks() {
	i.t.Helper()
	r := rand.New(rand.NewPCG(8, 9))
	for n, f := range plainFrames([4]byte{192, 0, 2, 1}, toSwitch6, 2000) {
		if locate(f).v6 {
			continue // port 4 is no sink
		}
		m := random(r)
		m.discard, m.dscp = false, tosOf(f)>>2
		i.same(fmt.Sprintf("sink, frame %d, %+v", n, m), m.with(f), f)
		i.ends(&m)
		if f := ofHosts.carry("option", f, someHeader); f != nil {
			i.same(fmt.Sprintf("sink, frame %d in an option, %+v", n, m), m.with(f), f)
			i.ends(&m)
		}
		broken, want := m.with(f), slices.Clone(f)
		if s := locate(f); len(f) > s.payload { // a damaged frame does not become valid
			broken[len(broken)-1] ^= 0x55
			want[len(want)-1] ^= 0x55
			i.same(fmt.Sprintf("sink, frame %d, corrupted", n), broken, want)
			i.ends(&m)
		}
	}
	for n, f := range plainFrames([4]byte{10, 3, 200, 1}, [16]byte{0xfd}, 2000) {
		for _, words := range []int{0, 8, 180, 252} {
			m := intMD{kind: 1, version: 2, dscp: tosOf(f) >> 2, discard: n%7 == 3, hopWords: 8, remaining: 4,
				instructions: 0xfc00}
			for range words {
				m.stack = append(m.stack, r.Uint32())
			}
			i.reported(fmt.Sprintf("report, frame %d, %d words, %+v", n, words, m), f, m.with(f), len(m.bytes()), m.discard)
			i.ends(&m)
		}
	}
	for n, f := range plainFrames([4]byte{10, 3, 200, 1}, [16]byte{0xfd}, sourcePort) {
		i.reported(fmt.Sprintf("report of one switch, frame %d", n), f, f, 0, false)
		if f = ofHosts.carry("option", f, someHeader); f != nil && !parse(f).v6 { // IPv6 carries no INT then
			i.reported(fmt.Sprintf("report of one switch, frame %d in an option", n), f, f, 0, false)
		}
	}
}

// reported sends f, which is plain with INT of size bytes. It expects plain to leave, and a report.
func (i *intBench) reported(label string, plain, f []byte, size int, discarded bool) {
	i.t.Helper()
	if err := i.sw.inject(1, f); err != nil {
		i.t.Fatal(err)
	}
	port, want, _ := expect(plain)
	var report []byte
	frames := 2
	if discarded {
		frames = 1
		i.leftOut[8]++
	}
	for range frames {
		got := i.output(label)
		if got.port == reportPort {
			report = got.frame
			continue
		}
		if discarded || got.port != port || !bytes.Equal(got.frame, want) {
			i.t.Fatalf("%s: left by port %d as\n% x, want by port %d\n% x", label, got.port, got.frame, port, want)
		}
	}
	_, inner, _ := expect(f)
	inner = append(slices.Clone(inner[:locate(f).payload+size]), 0, 0)
	inner = inner[:min(len(inner), 960)]
	if len(report) != 14+20+56+len(inner) {
		i.t.Fatalf("%s: a report of %d bytes, want %d: % x", label, len(report), 14+20+56+len(inner), report)
	}
	udp := binary.BigEndian.AppendUint16([]byte{5000 >> 8, 5000 & 255, 32766 >> 8, 32766 & 255}, uint16(56+len(inner)))
	udp = append(udp, 0, 0)
	udp = binary.BigEndian.AppendUint32(udp, 2<<28|i.reports)
	udp = binary.BigEndian.AppendUint32(udp, i.node)
	udp = append(udp, 0x13, byte((36+len(inner))/4), 7, 0x20, 0x7c, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, byte(port))
	i.reports++
	values := report[14+20+len(udp):][:24]
	v := hopValues{latency: binary.BigEndian.Uint32(values), occupancy: binary.BigEndian.Uint32(values[4:]),
		ingress: binary.BigEndian.Uint64(values[8:]), egress: binary.BigEndian.Uint64(values[16:])}
	i.plausible(label, v, 0xfc00)
	ip := ipv4([4]byte{192, 0, 2, 1}, [4]byte{192, 0, 2, 2}, 17, 64, 0x4000, nil, slices.Concat(udp, values, inner))
	want = slices.Concat([]byte{1, 2, 3, 4, 5, 6, 10, 11, 12, 13, 14, 15, 8, 0}, ip)
	if !bytes.Equal(report, want) {
		i.t.Fatalf("%s: report\n% x, want\n% x", label, report, want)
	}
}

// path sends packets over a source, a transit switch and a sink: the host gets what the other host
// sent, except for the fields that routers change.
func (i *intBench) path() {
	i.t.Helper()
	for n, f := range plainFrames([4]byte{10, 0, 0, 5}, toSwitch6, sourcePort) {
		if locate(f).v6 {
			continue
		}
		label := fmt.Sprintf("path, frame %d", n)
		m := intMD{kind: 1, version: 2, dscp: tosOf(f) >> 2, hopWords: 8, remaining: 3, instructions: 0xfc00}
		i.setNode(1)
		hop := i.transit(label+", source", f, f, m)
		// INT as it arrives at the second switch.
		s := locate(hop)
		m.remaining--
		for w := range 8 {
			m.stack = append(m.stack, binary.BigEndian.Uint32(hop[s.payload+16+4*w:]))
		}
		_, plain, _ := expect(f)
		i.setNode(2)
		hop = i.transit(label+", transit", plain, hop, m)
		_, plain, _ = expect(plain)
		// To the port of a host.
		for _, frame := range [][]byte{hop, plain} {
			copy(frame[s.ip+16:], []byte{192, 0, 2, 9})
		}
		hop, plain = seal(hop, intDSCP), seal(plain, tosOf(plain)>>2)
		i.same(label+", sink", hop, plain)
		i.ends(&m)
	}
	i.setNode(0x01020304)
}

// BenchmarkINT passes a packet with 100 bytes of payload through the soft switch: without INT, and
// with all metadata that the switch has at a source, a third switch and a sink.
func BenchmarkINT(b *testing.B) {
	sw := startSoft(b)
	i := startINT(b, sw, "sketchint")
	i.configureINT(0xfc00, 9)
	frame := func(dst [4]byte, src uint16) []byte { return plainFrames(dst, toSwitch6, src)[30] }
	m := intMD{kind: 1, version: 2, hopWords: 8, remaining: 9, instructions: 0xfc00, stack: make([]uint32, 16)}
	inside, host := [4]byte{10, 0, 0, 2}, [4]byte{192, 0, 2, 1}
	for name, f := range map[string][]byte{"forwarded": frame(inside, 1), "source": frame(inside, sourcePort),
		"transit": m.with(frame(inside, 1)), "sink": m.with(frame(host, 1))} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				sw.sw.Inject(1, f, 0)
				<-sw.out
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "packets/s")
		})
	}
}

// TestSoftSwitchINT: towers at the sink do not change what leaves.
func TestSoftSwitchINT(t *testing.T) {
	for _, program := range []string{"sketchint", "sketchint-edge"} {
		t.Run(program, func(t *testing.T) { conformINT(t, startDelayed(t), program) })
	}
}

func TestBMv2INT(t *testing.T) {
	for _, program := range []string{"sketchint", "sketchint-edge"} {
		t.Run(program, func(t *testing.T) { conformINT(t, startBMv2(t), program) })
	}
}
