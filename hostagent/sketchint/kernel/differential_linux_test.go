// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/inband"
	"github.com/netsketch/netsketch/hostagent/omnimon/header"
	omnimon "github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/hostagent/role"
	"github.com/netsketch/netsketch/hostagent/sketchint"
	"github.com/netsketch/netsketch/hostagent/sketchint/wire"
	"github.com/netsketch/netsketch/internal/test/inbandtest"
	"github.com/netsketch/netsketch/internal/test/kerneltest"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/tower"
)

const (
	dscp    = 0x17
	xdpPass = 2
	next    = 1<<32 - 1 // TCX: the next program decides
)

func defaults() *wire.Settings {
	return &wire.Settings{Marks: inband.Marks{DSCP: dscp, DSCPMask: 0x3f}, Interval: 1, Flows: 1 << 12, Latencies: 1 << 14,
		Heavy: 20, HeavyFlows: 16, Inflation: 2.5, InflatedFlows: 64}
}

// allMarks enables all carriers.
func allMarks() inband.Marks {
	return inband.Marks{DSCP: dscp, DSCPMask: 0x3f, Probe: 0x0123456789abcdef, UDPPort: 5555, GRE: 0x1234, VXLAN: 4790,
		Geneve: 6081, GeneveClass: 0x103, GeneveType: 0x81}
}

func encoded(t testing.TB, s *wire.Settings) []byte {
	t.Helper()
	data, err := s.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// twin is a host in the kernel and in Go.
type twin struct {
	t      testing.TB
	kernel *Path
	clock  *epoch.Clock
	role   *sketchint.Role
}

// newTwin returns a twin in epoch 10. Its program runs at TC, or at XDP if first is set; INT in GRE
// needs XDP.
func newTwin(t testing.TB, s *wire.Settings, first bool) *twin {
	kerneltest.NeedBPF(t)
	kerneltest.OnProcessor(t, 0)
	p, err := Open(Config{Generic: first})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	w := &twin{t: t, kernel: p, clock: epoch.NewClock(0, 9)}
	w.role = sketchint.New(w.clock)
	p.Advance(9)
	if err := errors.Join(p.Apply(encoded(t, s)), w.role.Apply(encoded(t, s))); err != nil {
		t.Fatal(err)
	}
	w.advance(10)
	return w
}

func (w *twin) advance(e uint64) {
	w.clock.Advance(e)
	w.kernel.Advance(e)
}

// run runs a program on a frame and returns what the stack receives; ok is false if the kernel
// makes no packet of the frame.
func run(t testing.TB, prog *ebpf.Program, frame []byte) (out []byte, ok bool) {
	t.Helper()
	opts := &ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256)}
	got, err := prog.Run(opts)
	if errors.Is(err, unix.EINVAL) && prog.Type() == ebpf.SchedCLS {
		return nil, false
	}
	if err != nil {
		t.Fatalf("%d bytes: %v", len(frame), err)
	}
	if want := map[ebpf.ProgramType]uint32{ebpf.XDP: xdpPass, ebpf.SchedCLS: next}[prog.Type()]; got != want {
		t.Fatalf("verdict %d for %x", got, frame)
	}
	return opts.DataOut, true
}

// hasOldTag reports whether a frame has a VLAN tag of EtherType 0x9100. The kernel does not know
// such tags, and at TC refuses to remove bytes behind them.
func hasOldTag(frame []byte) bool {
	old := []byte{0x91, 0}
	return len(frame) >= 18 && (bytes.Equal(frame[12:14], old) || bytes.Equal(frame[16:18], old))
}

// in receives a frame in the kernel and in Go, and compares the results.
func (w *twin) in(frame []byte) {
	w.t.Helper()
	prog := w.kernel.Tables().hook.Program
	atTC := prog.Type() == ebpf.SchedCLS
	if len(frame) < 14 || atTC && (hasOldTag(frame) || len(frame) > 3000) { // the kernel refuses it
		return
	}
	got, ok := run(w.t, prog, frame)
	if !ok {
		return
	}
	f := packet.NewFrame(frame)
	w.role.In([]*packet.Frame{f})
	want := f.Bytes()
	if link, err := packet.ParseLink(frame); atTC && err == nil && link.TypeAt > 12 && len(want) < len(frame) {
		want = slices.Concat(want[:12], want[16:]) // the kernel has moved the tag out of the packet
	}
	if !bytes.Equal(got, want) {
		w.t.Fatalf("received %x\nkernel %x\nGo     %x", frame, got, want)
	}
}

// seal compares and returns the reports of an epoch.
func (w *twin) seal(e uint64) *wire.Report {
	w.t.Helper()
	k, err := w.kernel.Seal(e)
	if err != nil {
		w.t.Fatal(err)
	}
	g := w.role.Seal(e)
	if k == nil || g == nil {
		w.t.Fatalf("epoch %d: report in the kernel: %v, in Go: %v", e, k != nil, g != nil)
	}
	same := bytes.Equal(k.Append(nil), g.Append(nil))
	got, want := open(w.t, k), open(w.t, g)
	for name, same := range map[string]bool{
		"flows":     slices.Equal(got.Flows.Words(), want.Flows.Words()),
		"latencies": slices.Equal(got.Latencies.Words(), want.Latencies.Words()),
		"problems":  got.Problems == want.Problems, "versions": got.Versions == want.Versions,
		"counters": got.Counters == want.Counters, "inflated": slices.Equal(got.Inflated, want.Inflated),
		"heavy": fmt.Sprint(got.Heavy) == fmt.Sprint(want.Heavy),
		"nodes": slices.Equal(got.Nodes, want.Nodes), "queues": slices.Equal(got.Queues, want.Queues),
		"faults": slices.Equal(got.Faults, want.Faults),
		"epochs": got.First == want.First && got.Last == want.Last,
	} {
		if !same {
			got.Flows, got.Latencies, want.Flows, want.Latencies = nil, nil, nil, nil
			w.t.Fatalf("%s differ in epoch %d\nkernel %+v\nGo     %+v", name, e, got, want)
		}
	}
	if !same {
		w.t.Fatalf("reports of epoch %d differ", e)
	}
	return got
}

func open(t testing.TB, sealed role.Report) *wire.Report {
	t.Helper()
	if sealed == nil {
		t.Fatal("no report")
	}
	r, err := wire.ParseReport(sealed.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	sealed.Release()
	return r
}

// traffic makes packets with INT of all kinds, and damages some.
type traffic struct {
	*rand.Rand
	marks  inband.Marks
	damage int // one packet of this count
}

func (r *traffic) sent(number int) inbandtest.Sent {
	s := inbandtest.Sent{Src: netip.AddrFrom4([4]byte{10, 0, byte(number >> 8), byte(number)}),
		Dst: netip.MustParseAddr("10.9.9.9"), Proto: 17, SrcPort: uint16(number), DstPort: 80,
		DSCP: uint8(r.IntN(8)), ECN: uint8(r.IntN(4)), Payload: make([]byte, r.IntN(40)), NoChecksum: r.IntN(4) == 0}
	if number%3 == 0 {
		s.Src, s.Dst = netip.AddrFrom16([16]byte{0x20, 1, 14: byte(number >> 8), 15: byte(number)}),
			netip.MustParseAddr("2001:db8::9")
	}
	if number%2 == 0 {
		s.Proto, s.NoChecksum = 6, false
		s.Options = make([]byte, 4*r.IntN(11))
	}
	for i := range s.Payload {
		s.Payload[i] = byte(r.Uint32())
	}
	return s
}

// header returns INT with hops of a path that the flow has nearly always.
func (r *traffic) header(number int) *inbandtest.INT {
	i := &inbandtest.INT{Version: 2, Remaining: uint8(r.IntN(4)), Instructions: 0xa000}
	if r.IntN(3) == 0 {
		i.Version = 1
	}
	if r.IntN(4) == 0 {
		i.Instructions = uint16(r.Uint32()) | 0x8000
	}
	words := 0
	for bit := range 16 {
		if i.Instructions>>(15-bit)&1 == 1 {
			words++
			if bit == 6 || i.Version == 2 && (bit == 4 || bit == 5) {
				words++
			}
		}
	}
	if i.Version == 2 && r.IntN(8) == 0 {
		i.Domain, i.DomainInstructions = uint16(r.IntN(2)), uint16(1<<r.IntN(3))
		words += r.IntN(2)
	}
	if r.IntN(16) == 0 {
		i.Flags, i.MTU = uint8(r.IntN(16)), i.Version == 1
	}
	i.HopWords = uint8(words)
	hops := number % 9
	if r.IntN(50) == 0 {
		hops = r.IntN(66)
	}
	for hop := range hops {
		i.Stack = append(i.Stack, uint32(number%5*8+hop))
		for range words - 1 {
			v := r.Uint32N(1000)
			if r.IntN(10) == 0 {
				v = math.MaxUint32 >> r.IntN(3)
			}
			i.Stack = append(i.Stack, v)
		}
	}
	if (len(i.Bytes())+3)/4 > 254 {
		i.Stack = nil
	}
	return i
}

// tunnel returns a packet of a flow in GRE, VXLAN or Geneve with INT.
func (r *traffic) tunnel(number int) inbandtest.Sent {
	inner, s, i := r.sent(number), r.sent(number), r.header(number)
	body := inner.Frame()
	u8 := func(values ...int) uint8 { return uint8(values[r.IntN(len(values))]) }
	if r.IntN(3) == 0 {
		return r.gre(&inner, s, i)
	}
	s.Proto, s.Options, s.DstPort, s.NoChecksum = 17, nil, r.marks.VXLAN, r.IntN(2) == 0
	if r.IntN(2) == 0 {
		next := u8(0x80, 0x80, 0x08)
		head := []byte{u8(0x0c, 0x0c, 0x08), 0, 0, next, 0, 0, 9, 0}
		for n := r.IntN(10); n > 0 && r.IntN(2) == 0; n-- {
			head = append(head, []byte{u8(0x20, 0x10), 1, 0, next, 1, 2, 3, 4}...)
		}
		head = slices.Concat(head, i.Shim(1, 0, uint16(u8(0, 0x80))<<8|uint16(u8(3, 3, 0x80))))
		for range r.IntN(3) {
			head = append(head, 0x20, 1, u8(0, 0x80), u8(3, 3, 0x80), 1, 2, 3, 4)
		}
		s.Payload = append(head, body...)
		return s
	}
	s.DstPort = r.marks.Geneve
	var options []byte
	add := func(class uint16, kind uint8, data []byte) {
		if len(options)+4+len(data) <= 252 && len(data) <= 124 {
			options = append(binary.BigEndian.AppendUint16(options, class), kind, uint8(len(data)/4))
			options = append(options, data...)
		}
	}
	for range r.IntN(4) {
		add(9, u8(1, 0x81), make([]byte, 4*r.IntN(20)))
	}
	add(r.marks.GeneveClass, r.marks.GeneveType, i.Bytes())
	for range r.IntN(3) {
		add(9, u8(1, 0x81), make([]byte, 4*r.IntN(20)))
	}
	s.Payload = slices.Concat([]byte{uint8(len(options) / 4), u8(0, 0x40), 0x65, 0x58, 0, 0, 9, 0}, options, body)
	return s
}

// gre returns a packet in GRE with INT, some of which the INT source has put there.
func (r *traffic) gre(inner *inbandtest.Sent, s inbandtest.Sent, i *inbandtest.INT) inbandtest.Sent {
	body := inner.Frame()
	next, second := binary.BigEndian.Uint16(body[12:]), uint8(8*r.IntN(2))
	switch r.IntN(4) {
	case 0:
		next = 0x6558
		if r.IntN(2) == 0 {
			body = slices.Concat(body[:12], []byte{0x81, 0, 0, 5}, body[12:])
		}
	case 1:
		next, body = uint16(r.Uint32()), body[:r.IntN(len(body))] // not IP, or cut short
	default:
		body = body[14:]
	}
	flags := uint16(r.IntN(16)) << 12 &^ 0x4000
	if r.IntN(20) == 0 {
		flags |= 0x4000 // source routes
	}
	head := binary.BigEndian.AppendUint16(nil, flags)
	head = binary.BigEndian.AppendUint16(head, r.marks.GRE)
	for _, bit := range []uint16{0x8000, 0x2000, 0x1000} {
		if flags&bit != 0 {
			head = binary.BigEndian.AppendUint32(head, r.Uint32())
		}
	}
	s.Proto, s.Options, s.Payload = 47, nil, slices.Concat(head, i.Shim(1, second, next), body)
	return s
}

// frame returns a packet of a flow, with INT in a random carrier.
func (r *traffic) frame(number int) []byte {
	s := r.sent(number)
	i := r.header(number)
	switch n := r.IntN(14); {
	case n == 0:
	case n == 1: // probe marker
		probe := binary.BigEndian.AppendUint64(nil, r.marks.Probe)
		s.Payload = slices.Concat(probe, i.Shim(1, 0, 0), s.Payload)
	case n == 2 && s.Proto == 17: // by UDP port
		if i.Version == 1 {
			i.Version = 2
		}
		s.Payload = append(i.Shim(1, uint8(1<<2), s.DstPort), s.Payload...)
		s.DstPort = r.marks.UDPPort
	case n == 3 && s.Proto == 17: // behind an additional UDP header
		inner := s.Transport()
		next := s.Proto
		s.Payload = slices.Concat(i.Shim(1, uint8(2<<2), uint16(next)), inner)
		s.DstPort, s.NoChecksum = r.marks.UDPPort, r.IntN(2) == 0
	case n == 5 && r.IntN(8) == 0: // cut short
		s.Payload = slices.Concat([]byte{0x10, byte(r.IntN(3)), 0, 0, 0x20, 0, 2, 0, 0xa0, 0, 0, 0}, s.Payload)
		s.DSCP = dscp
	case n >= 12:
		s = r.tunnel(number)
	case n == 4 && r.IntN(4) == 0: // for the sink alone, or INT-MX
		s.Payload = append(i.Shim(uint8(2+r.IntN(2)), 0, uint16(s.DSCP)<<2), s.Payload...)
		s.DSCP = dscp
	default:
		s = i.Mark(s, dscp)
	}
	f := s.Frame()
	for range r.IntN(3) {
		if r.IntN(3) == 0 {
			f = slices.Concat(f[:12], []byte{0x81, 0, 0, 5}, f[12:])
		}
	}
	if r.IntN(4) == 0 {
		f = r.marked(f)
	}
	if r.IntN(r.damage) != 0 {
		return f
	}
	switch r.IntN(3) {
	case 0:
		return f[:r.IntN(len(f))]
	case 1:
		for range 1 + r.IntN(3) {
			f[12+r.IntN(min(len(f), 140)-12)] = byte(r.Uint32())
		}
	default:
		at := 14 + r.IntN(min(len(f), 100)-14)
		f[at] ^= 1 << r.IntN(8)
	}
	return f
}

// marked inserts OmniMon's option, of any size, into an IPv6 packet.
func (r *traffic) marked(frame []byte) []byte {
	f := packet.NewFrame(frame)
	layout := header.Layout{Carrier: omnimon.CarrierOption, EtherType: header.DefaultEtherType,
		Slots: 1 + r.IntN(header.MaxSlots), Differences: r.IntN(1 + header.MaxDifferences)}
	if link, err := packet.ParseLink(frame); err == nil && link.Type == packet.EtherTypeIPv6 {
		layout.Insert(f, link, &header.Header{Epoch: uint16(r.Uint32()), HostIndex: uint32(r.IntN(1 << 24))})
	}
	return f.Bytes()
}

// TestSameAsGo: random packets of all carriers that the kernel reads, whole and damaged, give the
// same bytes, the same towers and the same tables in the kernel as in Go.
func TestSameAsGo(t *testing.T) {
	sum := wire.Report{}
	var carriers [inband.Geneve + 1]int // packets whose INT is removed
	for _, tc := range []struct {
		name   string
		change func(*wire.Settings)
		flows  int
	}{
		{"few flows", func(*wire.Settings) {}, 40},
		{"more flows than the cache holds", func(s *wire.Settings) { s.Heavy = 2 }, 30_000},
		{"overflows", func(s *wire.Settings) { s.Flows, s.Latencies, s.Inflation = 40*5, 24*3, 1.001 }, 40},
		{"before options", func(s *wire.Settings) { s.Marks.BeforeOptions = true }, 100},
		{"intervals", func(s *wire.Settings) { s.Interval = 2 }, 40},
	} {
		sameAsGo := func(t *testing.T, first bool) {
			s := defaults()
			s.Marks = allMarks()
			if !first {
				s.Marks.GRE = 0 // at XDP only
			}
			s.Marks.SourceOnly = []inband.SourceOnly{{Domain: 1, Instruction: 1, Words: 2}, {Domain: 1, Instruction: 2}}
			s.HeavyFlows = 1 << 16
			s.InflatedFlows = 1 << 16
			tc.change(s)
			w := newTwin(t, s, first)
			r := &traffic{rand.New(rand.NewPCG(1, uint64(tc.flows))), s.Marks, 6}
			d := inband.NewDecoder(s.Marks)
			for e := uint64(10); e < 14; e++ {
				for range 4000 {
					frame := r.frame(r.IntN(tc.flows))
					w.in(frame)
					var p inband.Packet
					if link, err := packet.ParseLink(frame); err == nil {
						d.Decode(frame, link, &p)
						carriers[p.Carrier]++
					}
				}
				w.advance(e + 1)
				if (e+1)%s.Interval != 0 {
					continue
				}
				got := w.seal(e)
				for i, n := range got.Problems {
					sum.Problems[i] += n
				}
				for i, n := range got.Counters {
					sum.Counters[i] += n
				}
				if len(got.Heavy) == 0 || len(got.Inflated) == 0 || len(got.Nodes) == 0 || len(got.Faults) == 0 ||
					len(got.Queues) == 0 {
					t.Errorf("%d heavy flows, %d inflated, %d nodes, %d faults", len(got.Heavy), len(got.Inflated),
						len(got.Nodes), len(got.Faults))
				}
			}
		}
		t.Run(tc.name+"/XDP", func(t *testing.T) { sameAsGo(t, true) })
		t.Run(tc.name+"/TC", func(t *testing.T) { sameAsGo(t, false) })
	}
	for c, n := range carriers {
		if n < 100 {
			t.Errorf("%d packets with carrier %d", n, c)
		}
	}
	for i, n := range sum.Problems[:inband.BadReportLength] {
		if n == 0 {
			t.Errorf("no packet with problem %v", inband.Problem(i))
		}
	}
	for _, c := range []wire.Counter{wire.WithINT, wire.NoLatency, wire.Copies, wire.MTUExceeded, wire.HopLimit,
		wire.UnknownInstruct} {
		if sum.Counters[c] == 0 {
			t.Errorf("no packet with counter %v", c)
		}
	}
}

// TestNearlyPlain: packets that differ from what most packets are by one bit, or by a length, are
// measured and restored as in Go, whether or not their flow is in the cache.
func TestNearlyPlain(t *testing.T) {
	t.Run("XDP", func(t *testing.T) { testNearlyPlain(t, true) })
	t.Run("TC", func(t *testing.T) { testNearlyPlain(t, false) })
}

func testNearlyPlain(t *testing.T, first bool) {
	s := defaults()
	s.Marks = allMarks()
	s.Marks.Probe = 0
	if !first {
		s.Marks.GRE = 0
	}
	w := newTwin(t, s, first)
	e := uint64(10)
	for _, marked := range []bool{false, true} {
		for _, proto := range []uint8{packet.ProtocolTCP, packet.ProtocolUDP} {
			m := inbandtest.Sent{Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.9.9.9"), Proto: proto,
				SrcPort: 1000, DstPort: 80, DSCP: 9, ECN: 1, Payload: []byte("payload of 24 bytes, here")}
			if marked {
				m = (&inbandtest.INT{Version: 2, HopWords: 2, Remaining: 3, Instructions: 0xa000,
					Stack: inbandtest.Hops(2, 1, 1000)}).Mark(m, dscp)
			}
			plain := m.Frame()
			w.in(plain)
			try := func(change func(frame []byte)) {
				frame := slices.Clone(plain)
				change(frame)
				w.in(frame)
				w.in(frame)
			}
			for bit := 12 * 8; bit < len(plain)*8; bit++ {
				try(func(frame []byte) { frame[bit/8] ^= 1 << (bit % 8) })
			}
			for n := range len(plain) + 2 {
				try(func(frame []byte) { binary.BigEndian.PutUint16(frame[14+2:], uint16(n)) })
				try(func(frame []byte) { binary.BigEndian.PutUint16(frame[14+20+4:], uint16(n)) })
				w.in(plain[:min(n, len(plain))])
			}
			try(func(frame []byte) { frame[14+20+6], frame[14+20+7] = 0, 0 }) // UDP without a checksum
			w.in(append(slices.Clone(plain), 1, 2, 3))                        // three bytes after the IP packet
			w.advance(e + 1)
			w.seal(e)
			for range s.Heavy {
				w.in(plain)
			}
			slow := slices.Clone(plain)
			if marked {
				slow[len(slow)-len("payload of 24 bytes, here")-3]++ // adds 65,536 to the latency
			}
			w.in(slow)
			w.advance(e + 2)
			got, hops := w.seal(e+1), 0
			if marked {
				hops = 1
			}
			if len(got.Heavy) != 1 || len(got.Inflated) != hops {
				t.Errorf("marked %v: heavy flows %v, inflated %v", marked, got.Heavy, got.Inflated)
			}
			e += 2
		}
	}
}

// TestBounds: full tables count what they have no room for, and the next interval begins with empty
// ones.
func TestBounds(t *testing.T) {
	s := defaults()
	s.Heavy, s.HeavyFlows, s.Inflation, s.InflatedFlows = 1, 2, 1.5, 3
	w := newTwin(t, s, false)
	frame := func(number int, latency uint32) []byte {
		i := inbandtest.INT{Version: 2, HopWords: 2, Remaining: 3, Instructions: 0xa000, Stack: []uint32{72, latency}}
		m := i.Mark(inbandtest.Sent{Src: netip.AddrFrom4([4]byte{10, 0, byte(number >> 8), byte(number)}),
			Dst: netip.MustParseAddr("10.9.9.9"), Proto: 17, DstPort: 80}, dscp)
		return m.Frame()
	}
	for e := uint64(10); e < 12; e++ {
		for flow := range wire.MaxFaults + 7 {
			w.in(frame(flow, 1))
			broken := frame(flow, 2)
			broken[14+6] = 0x20 // a fragment
			w.in(broken)
			if flow < 5 {
				w.in(frame(flow, 100))
			}
		}
		w.advance(e + 1)
		sealed, err := w.kernel.Seal(e)
		if err != nil {
			t.Fatal(err)
		}
		got := open(t, sealed)
		if len(got.Heavy) != 2 || len(got.Inflated) != 3 || len(got.Faults) != wire.MaxFaults ||
			got.Counters[wire.FaultsFull] != 7 || got.Counters[wire.InflatedFull] != 2 || got.Counters[wire.HeavyFull] == 0 {
			t.Errorf("%d heavy flows, %d inflated, %d faults, counters %v", len(got.Heavy), len(got.Inflated),
				len(got.Faults), got.Counters)
		}
	}
}

// TestLongHeaders: INT behind the longest options of Geneve and in the most headers of VXLAN is
// removed as in Go, also from a frame in fragments; one that does not fit into the first fragment
// passes unchanged and is counted.
func TestLongHeaders(t *testing.T) {
	s := defaults()
	s.Marks = allMarks()
	w := newTwin(t, s, true)
	udp := func(port uint16, payload ...[]byte) []byte {
		p := inbandtest.Sent{Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.9.9.9"), Proto: 17,
			DstPort: port, Payload: slices.Concat(payload...)}
		return p.Frame()
	}
	i := inbandtest.INT{Version: 2, HopWords: 2, Remaining: 3, Instructions: 0xa000, Stack: inbandtest.Hops(5, 1, 1000)}
	options := slices.Repeat([]byte{0, 9, 1, 0}, (252-56)/4)
	option := slices.Concat([]byte{1, 3, s.Marks.GeneveType, 13}, i.Bytes())
	vxlan := func(headers, words int) []byte {
		h := append([]byte{0x20, byte(words), 0, 0x80}, make([]byte, 4*words)...)
		return slices.Concat([]byte{0x0c, 0, 0, 0x80, 0, 0, 9, 0}, slices.Repeat(h, headers-1), i.Shim(1, 0, 3))
	}
	for _, size := range []int{40, 3000} {
		body := make([]byte, size)
		w.in(udp(s.Marks.Geneve, []byte{63, 0, 0x65, 0x58, 0, 0, 9, 0}, options, option, body))
		w.in(udp(s.Marks.VXLAN, vxlan(8, 100), body))
		w.in(udp(s.Marks.VXLAN, vxlan(9, 1), body))
	}
	w.advance(11)
	if got := w.seal(10); got.Counters[wire.WithINT] != 4 || got.Problems[inband.UnknownType] != 2 {
		t.Errorf("%v, %v", got.Counters, got.Problems)
	}
	long := udp(s.Marks.VXLAN, vxlan(8, 255))
	if got, _ := run(t, w.kernel.Tables().hook.Program, long); !bytes.Equal(got, long) {
		t.Errorf("received %x\ngot      %x", long, got)
	}
	w.advance(12)
	sealed, err := w.kernel.Seal(11)
	if err != nil {
		t.Fatal(err)
	}
	if got := open(t, sealed); got.Counters[wire.Unread] != 1 {
		t.Errorf("%v, want a packet that could not be changed", got.Counters)
	}
}

// TestSpreadFlow: a flow whose packets several processors measure is heavy by all of its packets.
func TestSpreadFlow(t *testing.T) {
	kerneltest.NeedBPF(t)
	if runtime.NumCPU() < 2 {
		t.Skip("the machine has one processor; packets of one flow need two")
	}
	s := defaults() // heavy from 20 packets on
	p, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	p.Advance(10)
	if err := p.Apply(encoded(t, s)); err != nil {
		t.Fatal(err)
	}
	p.Advance(11)
	for flow, packets := range []int{15, 9} {
		m := (&inbandtest.INT{Version: 2, HopWords: 2, Remaining: 3, Instructions: 0xa000, Stack: []uint32{72, 1, 71, 1}}).
			Mark(inbandtest.Sent{Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.9.9.9"), Proto: 17,
				SrcPort: uint16(flow), DstPort: 80}, dscp)
		done := make(chan bool)
		for n := range 2 {
			go func() {
				defer func() { done <- true }()
				kerneltest.OnProcessor(t, n)
				for range packets {
					if _, ok := run(t, p.Tables().hook.Program, m.Frame()); !ok {
						t.Error("a frame is refused")
					}
				}
			}()
		}
		<-done
		<-done
	}
	p.Advance(12)
	sealed, err := p.Seal(11)
	if err != nil {
		t.Fatal(err)
	}
	heavy := open(t, sealed).Heavy
	if len(heavy) != 1 || heavy[0].Key.SrcPort != 0 || !slices.Equal(heavy[0].Path, []uint32{71, 72}) {
		t.Errorf("heavy flows %+v", heavy)
	}
}

// TestLanes: several processors measure while intervals end. What they measured adds up: no packet
// is lost or counted twice.
func TestLanes(t *testing.T) {
	kerneltest.NeedBPF(t)
	if runtime.NumCPU() < 2 {
		t.Skip("the machine has one processor; packets of one flow need two")
	}
	s := defaults()
	s.Heavy = 1 << 31
	p, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	p.Advance(10)
	if err := p.Apply(encoded(t, s)); err != nil {
		t.Fatal(err)
	}
	p.Advance(11)
	frame := func(number int) []byte {
		m := (&inbandtest.INT{Version: 2, HopWords: 2, Remaining: 3, Instructions: 0xa000,
			Stack: inbandtest.Hops(5, 1, uint32(number))}).Mark(inbandtest.Sent{Src: netip.MustParseAddr("10.0.0.1"),
			Dst: netip.MustParseAddr("10.9.9.9"), Proto: 17, SrcPort: uint16(number), DstPort: 80}, dscp)
		return m.Frame()
	}
	const packets, processors = 5000, 2
	done := make(chan bool)
	for n := range processors {
		go func() {
			defer func() { done <- true }()
			kerneltest.OnProcessor(t, n)
			for i := range packets {
				run(t, p.Tables().hook.Program, frame(i%50))
			}
		}()
	}
	var wantFlows, flows *tower.Sketch[family.P4]
	var wantLatencies, latencies *tower.Latency[family.P4]
	wantFlows, wantLatencies, err = s.NewTowers()
	if err == nil {
		flows, latencies, err = s.NewTowers()
	}
	if err != nil {
		t.Fatal(err)
	}
	total, at, ended := uint64(0), uint64(0), 0
	for e := uint64(11); ended < processors || e < 14; e++ {
		for ended < processors {
			select {
			case <-done:
				ended++
				continue
			case <-time.After(time.Millisecond):
			}
			break
		}
		p.Advance(e + 1)
		sealed, err := p.Seal(e)
		if err != nil {
			t.Fatal(err)
		}
		got := open(t, sealed)
		total += got.Counters[wire.Packets]
		if len(got.Nodes) > 0 {
			at += got.Nodes[0].Packets
		}
		if err := errors.Join(flows.Merge(got.Flows), latencies.Merge(got.Latencies)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range packets {
		k, err := flow.New(netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.9.9.9"), 17, uint16(i%50), 80)
		if err != nil {
			t.Fatal(err)
		}
		wantFlows.Add(k.AppendBinary(nil), processors)
		for hop := range uint32(5) {
			wantLatencies.Add(wire.AppendKey(nil, &k, 1+hop), processors, processors*uint64(uint32(i%50)+hop))
		}
	}
	if total != processors*packets || at != processors*packets || !slices.Equal(flows.Words(), wantFlows.Words()) ||
		!slices.Equal(latencies.Words(), wantLatencies.Words()) {
		t.Errorf("%d packets, %d at a switch, want %d; or towers differ", total, at, processors*packets)
	}
}

// FuzzSameAsGo: any frames give the same bytes and the same reports in the kernel as in Go.
func FuzzSameAsGo(f *testing.F) {
	s := defaults()
	s.Marks = allMarks()
	s.Marks.SourceOnly = []inband.SourceOnly{{Domain: 1, Instruction: 1, Words: 2}}
	s.Heavy, s.HeavyFlows, s.InflatedFlows = 1, 1<<16, 1<<16
	r := &traffic{rand.New(rand.NewPCG(1, 1)), s.Marks, 1 << 30}
	for i := range 40 {
		f.Add(r.frame(i))
	}
	twins := []*twin{newTwin(f, s, true)}
	s.Marks.GRE = 0
	twins = append(twins, newTwin(f, s, false))
	e, frames := uint64(10), 0
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) > 3000 { // BPF_PROG_TEST_RUN has a page, and fragments beyond it
			return
		}
		kerneltest.OnProcessor(t, 0)
		for _, w := range twins {
			w.t = t
			w.in(frame)
			w.in(frame)
		}
		if frames++; frames%20 == 0 { // a report waits for all processors
			e++
			for _, w := range twins {
				w.advance(e)
				w.seal(e - 1)
			}
		}
	})
}

// TestRefused: settings that the program cannot apply are refused with the way out, and the
// previous ones stay in force.
func TestRefused(t *testing.T) {
	w := newTwin(t, defaults(), false)
	s := defaults()
	s.Conservative, s.Marks.SourceOnly = true, make([]inband.SourceOnly, maxSourceOnly+1)
	err := w.kernel.Apply(encoded(t, s))
	if err == nil || !strings.Contains(err.Error(), "use packets.source: bridge") ||
		!strings.Contains(err.Error(), "sourceOnly: 9 rows") {
		t.Errorf("%v", err)
	}
	r := &traffic{rand.New(rand.NewPCG(1, 1)), s.Marks, 6}
	w.in(r.frame(1))
	w.advance(11)
	w.seal(10)
}

// BenchmarkPacket measures a packet in the program, by the kernel's statistics of programs, less
// what they measure of a program that does nothing. Between two packets lies a system call, so the
// caches are colder than under load.
func BenchmarkPacket(b *testing.B) {
	for _, flows := range []int{1, 9000, 60_000} {
		for _, hops := range []int{0, 5} {
			for _, first := range []bool{false, true} {
				name := map[bool]string{false: "TC", true: "XDP"}[first]
				b.Run(fmt.Sprintf("%s/flows=%d/hops=%d", name, flows, hops), func(b *testing.B) {
					benchmarkPacket(b, flows, hops, first)
				})
			}
		}
	}
}

func benchmarkPacket(b *testing.B, flows, hops int, first bool) {
	s := defaults()
	s.Flows, s.Latencies, s.Heavy, s.HeavyFlows, s.InflatedFlows = 1<<20, 3<<20, 1500, 1024, 1024
	s.Inflation = 5
	w := newTwin(b, s, first)
	empty, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: w.kernel.Tables().hook.Program.Type(), License: "Apache-2.0",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()}})
	if err != nil {
		b.Fatal(err)
	}
	defer empty.Close()
	r := rand.New(rand.NewPCG(1, 1))
	frames := make([][]byte, 20_000)
	for i := range frames {
		number := r.IntN(flows)
		sent := inbandtest.Sent{Src: netip.AddrFrom4([4]byte{10, 0, byte(number >> 8), byte(number)}),
			Dst: netip.MustParseAddr("10.9.9.9"), Proto: 6, SrcPort: 1000, DstPort: 80, Payload: make([]byte, 100)}
		if hops > 0 {
			sent = (&inbandtest.INT{Version: 2, HopWords: 2, Remaining: 3, Instructions: 0xa000,
				Stack: inbandtest.Hops(hops, uint32(number%16)*8, 1000+r.Uint32N(1000))}).Mark(sent, dscp)
		}
		frames[i] = sent.Frame()
	}
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		b.Fatal(err)
	}
	defer stats.Close()
	programs := []*ebpf.Program{w.kernel.Tables().hook.Program, empty}
	measure := func() (ns, runs [2]float64) {
		for i, p := range programs {
			s, err := p.Stats()
			if err != nil {
				b.Fatal(err)
			}
			ns[i], runs[i] = float64(s.Runtime), float64(s.RunCount)
		}
		return ns, runs
	}
	out := make([]byte, 1024)
	each := func(frame []byte) {
		for _, p := range programs {
			if _, err := p.Run(&ebpf.RunOptions{Data: frame, DataOut: out}); err != nil {
				b.Fatal(err)
			}
		}
	}
	for _, f := range frames {
		each(f)
	}
	ns, runs := measure()
	for n := 0; b.Loop(); n++ {
		each(frames[n%len(frames)])
	}
	after, count := measure()
	idle := (after[1] - ns[1]) / (count[1] - runs[1])
	b.ReportMetric((after[0]-ns[0])/(count[0]-runs[0])-idle, "packet-ns")
	b.ReportMetric(idle, "empty-ns")
}

// TestWire: super-packets count as the packets on the wire.
func TestWire(t *testing.T) {
	kerneltest.Wire(t, func(name string) kerneltest.Counts {
		p, err := Open(Config{Interface: name})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		p.Advance(10)
		if err := p.Apply(encoded(t, defaults())); err != nil {
			t.Fatal(err)
		}
		p.Advance(11)
		return func() (sent, received uint64) {
			e := p.Epoch()
			p.Advance(e + 1)
			sealed, err := p.Seal(e)
			if err != nil {
				t.Fatal(err)
			}
			if sealed != nil { // an interval without packets has no report
				received = open(t, sealed).Counters[wire.Packets]
			}
			return kerneltest.NotCounted, received
		}
	})
}
