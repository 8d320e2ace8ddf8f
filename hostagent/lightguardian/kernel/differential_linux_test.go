// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/lightguardian"
	"github.com/netsketch/netsketch/hostagent/lightguardian/wire"
	"github.com/netsketch/netsketch/hostagent/omnimon/header"
	omnimon "github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/hostagent/role"
	"github.com/netsketch/netsketch/internal/test/kerneltest"
)

const next = 1<<32 - 1 // TCX: the next program decides

func defaults() *wire.Settings {
	s := &wire.Settings{Kept: 1 << 24, Flows: 1 << 12}
	for id := range uint16(40) {
		s.Devices = append(s.Devices, wire.Device{ID: id, Columns: 64, Words: 1 + int(id)*6})
	}
	return s
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
	role   *lightguardian.Role
}

// newTwin returns a twin in epoch 9. The test runs on one processor: the buffers of several are
// read one after the other, not in the order of arrival.
func newTwin(t testing.TB, s *wire.Settings) *twin {
	kerneltest.NeedBPF(t)
	kerneltest.OnProcessor(t, 0)
	p, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	w := &twin{t: t, kernel: p, clock: epoch.NewClock(0, 9)}
	w.role = lightguardian.New(w.clock, monotonic)
	p.Advance(9)
	if err := errors.Join(p.Apply(encoded(t, s)), w.role.Apply(encoded(t, s))); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *twin) advance(e uint64) {
	w.clock.Advance(e)
	w.kernel.Advance(e)
	w.kernel.Finish(func() {}) // packets from before the first epoch count in the current one
}

// run runs program receive on a frame and returns what the stack gets.
func run(t testing.TB, prog *ebpf.Program, frame []byte) []byte {
	t.Helper()
	opts := &ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256)}
	got, err := prog.Run(opts)
	if err != nil {
		t.Fatalf("%d bytes: %v", len(frame), err)
	}
	if got != next {
		t.Fatalf("verdict %d for %x", got, frame)
	}
	return opts.DataOut
}

// hasOldTag reports whether a frame has a VLAN tag of EtherType 0x9100, which the kernel does not
// know as one: it removes no bytes behind it.
func hasOldTag(frame []byte) bool {
	old := []byte{0x91, 0}
	return len(frame) >= 18 && (bytes.Equal(frame[12:14], old) || bytes.Equal(frame[16:18], old))
}

// withoutTag returns a frame without its first VLAN tag.
func withoutTag(frame []byte) []byte { return slices.Concat(frame[:12], frame[16:]) }

// in receives a frame in the kernel and in Go, and compares the results.
func (w *twin) in(frame []byte) {
	w.t.Helper()
	if hasOldTag(frame) {
		return
	}
	f := packet.NewFrame(frame)
	opts := &ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256)}
	_, err := w.kernel.Tables().Programs[lightguardianProgReceive].Run(opts)
	if errors.Is(err, unix.EINVAL) { // the kernel makes no packet without a whole IP header
		return
	}
	if err != nil {
		w.t.Fatalf("%d bytes: %v", len(frame), err)
	}
	w.role.In([]*packet.Frame{f})
	want := f.Bytes()
	if link, err := packet.ParseLink(frame); err == nil && link.TypeAt > 12 && len(want) < len(frame) {
		want = withoutTag(want) // the kernel has moved the tag out of the packet
	}
	if got := opts.DataOut; !bytes.Equal(got, want) {
		w.t.Fatalf("received %x\nkernel %x\nGo     %x", frame, got, want)
	}
}

// out sends a frame, which neither the kernel nor Go changes.
func (w *twin) out(frame []byte) {
	w.t.Helper()
	opts := &ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256)}
	_, err := w.kernel.Tables().Programs[lightguardianProgSend].Run(opts)
	if errors.Is(err, unix.EINVAL) { // the kernel sends no frame without a whole IP header
		return
	}
	if w.role.Out([]*packet.Frame{packet.NewFrame(frame)}); err != nil || !bytes.Equal(opts.DataOut, frame) {
		w.t.Fatalf("sent %x: %v, got %x", frame, err, opts.DataOut)
	}
}

// seal compares and returns the reports of an epoch.
func (w *twin) seal(e uint64) *wire.Report {
	w.t.Helper()
	k, err := w.kernel.Seal(e)
	if err != nil {
		w.t.Fatal(err)
	}
	got, want := open(w.t, k), open(w.t, w.role.Seal(e))
	if got.Counters != want.Counters || !bytes.Equal(got.Sketchlets, want.Sketchlets) {
		w.t.Fatalf("counters or sketchlets of epoch %d differ\nkernel %v, %d bytes\nGo     %v, %d bytes", e, got.Counters,
			len(got.Sketchlets), want.Counters, len(want.Sketchlets))
	}
	for i := range got.Flows { // the clocks are read at other times
		f := &got.Flows[i]
		if now := uint64(monotonic().Microseconds()); f.Sent < 2 && f.SentGap > 0 || f.Received < 2 && f.ReceivedGap > 0 ||
			max(f.SentGap, f.ReceivedGap) >= now {
			w.t.Errorf("epoch %d: gaps of %+v", e, f)
		}
		f.SentGap, f.ReceivedGap = 0, 0
	}
	for i := range want.Flows {
		want.Flows[i].SentGap, want.Flows[i].ReceivedGap = 0, 0
	}
	if a, b := fmt.Sprint(got.Flows), fmt.Sprint(want.Flows); a != b || got.Epoch != want.Epoch {
		w.t.Fatalf("flows of epoch %d differ\nkernel %s\nGo     %s", e, a, b)
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

// traffic makes packets with sketchlets of all kinds, and damages some. Fields that are not read,
// and checksums, which change by the difference, are random.
type traffic struct{ *rand.Rand }

func (r traffic) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func (r traffic) sketchlet() []byte {
	cells := make([]uint32, 1+r.IntN(40)*6)
	device := uint16(len(cells) / 6)
	for i := range cells {
		cells[i] = r.Uint32()
	}
	if r.IntN(3) == 0 { // the same sketchlets again
		clear(cells)
	}
	switch r.IntN(20) {
	case 0:
		device += 100
	case 1:
		cells = append(cells, 1)
	}
	b := wire.Append(nil, device, uint16(r.IntN(66)), uint8(r.IntN(2)), cells)
	switch r.IntN(20) {
	case 0:
		b[r.IntN(len(b))] ^= 1 << r.IntN(8)
	case 1:
		b = b[:r.IntN(len(b))]
	}
	return b
}

// segment returns a TCP or UDP packet, with the mark and a sketchlet or without.
func (r traffic) segment(protocol byte, mark bool) []byte {
	body := r.bytes(r.IntN(60))
	if mark {
		body = append(r.sketchlet(), body...)
	}
	header := r.bytes(8)
	if protocol == packet.ProtocolTCP {
		header = r.bytes(4 * (5 + r.IntN(11)))
		header[12] = byte(len(header))<<2 | header[12]&7
		if mark {
			header[12] |= 8
		}
	}
	copy(header, []byte{0, byte(r.IntN(3)), 0, 80})
	sum := header[6:8]
	if protocol == packet.ProtocolTCP {
		sum = header[16:18]
	}
	switch r.IntN(6) {
	case 0:
		clear(sum)
	case 1:
		copy(sum, []byte{0xff, 0xff})
	}
	return append(header, body...)
}

// marked inserts OmniMon's option, of any size, into an IPv6 packet.
func (r traffic) marked(frame []byte) []byte {
	f := packet.NewFrame(frame)
	layout := header.Layout{Carrier: omnimon.CarrierOption, EtherType: header.DefaultEtherType,
		Slots: 1 + r.IntN(header.MaxSlots), Differences: r.IntN(1 + header.MaxDifferences)}
	if link, err := packet.ParseLink(frame); err == nil && link.Type == packet.EtherTypeIPv6 {
		layout.Insert(f, link, &header.Header{Epoch: uint16(r.Uint32()), HostIndex: uint32(r.IntN(1 << 24))})
	}
	return f.Bytes()
}

func (r traffic) frame() []byte {
	link := r.bytes(12)
	for range max(0, r.IntN(8)-4) {
		link = append(link, 0x81, 0, 0, byte(r.IntN(9)))
	}
	protocol := byte(packet.ProtocolTCP)
	switch r.IntN(10) {
	case 0, 1, 2, 3:
		protocol = packet.ProtocolUDP
	case 4:
		protocol = byte(r.IntN(60))
	}
	mark := r.IntN(3) > 0
	var f []byte
	if v6 := r.IntN(3) == 0; v6 {
		segment := r.segment(protocol, mark && protocol == packet.ProtocolTCP)
		next := protocol
		if r.IntN(10) == 0 {
			segment = append([]byte{protocol, 0, 0, byte(r.IntN(2) * 8), 1, 2, 3, 4}, segment...)
			next = 44
		}
		ip := r.bytes(40)
		ip[0] = 0x60
		binary.BigEndian.PutUint16(ip[4:], uint16(len(segment)))
		ip[6] = next
		copy(ip[8:], make([]byte, 32))
		ip[8], ip[23], ip[39] = 0x20, byte(r.IntN(3)), 1
		f = slices.Concat(link, []byte{0x86, 0xdd}, ip, segment)
	} else {
		segment := r.segment(protocol, mark)
		ip := r.bytes(4 * (5 + max(0, r.IntN(21)-10)))
		ip[0] = 0x40 | byte(len(ip)/4)
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)+len(segment)))
		ip[6], ip[7], ip[9] = byte(r.IntN(2))<<6, 0, protocol
		if mark && protocol == packet.ProtocolUDP {
			ip[6] |= 0x80
		}
		if r.IntN(20) == 0 {
			ip[6], ip[7] = ip[6]|byte(r.IntN(2))<<5, byte(r.IntN(2))
		}
		copy(ip[12:], []byte{10, 0, 0, byte(r.IntN(3)), 10, 0, 1, 1})
		f = slices.Concat(link, []byte{8, 0}, ip, segment)
	}
	if r.IntN(4) == 0 {
		f = r.marked(f)
	}
	switch r.IntN(12) {
	case 0:
		return f[:14+r.IntN(len(f)-14)]
	case 1:
		f[12+r.IntN(min(len(f), 90)-12)] ^= 1 << r.IntN(8)
	case 2: // padding of the link layer
		f = append(f, r.bytes(r.IntN(20))...)
	}
	return f
}

// TestSameAsGo: random packets, whole and damaged, give the same bytes and the same reports in the
// kernel as in Go.
func TestSameAsGo(t *testing.T) {
	for _, flows := range []int{0, 1 << 12, 5} {
		t.Run(fmt.Sprintf("flows=%d", flows), func(t *testing.T) {
			s := defaults()
			s.Flows = flows
			w := newTwin(t, s)
			r := traffic{rand.New(rand.NewPCG(1, uint64(flows)))}
			sum := wire.Report{}
			for e := uint64(9); e < 13; e++ {
				for range 3000 {
					if w.in(r.frame()); r.IntN(4) == 0 {
						w.out(r.frame())
					}
				}
				w.advance(e + 1)
				if e == 9 {
					continue
				}
				got := w.seal(e)
				for i, n := range got.Counters {
					sum.Counters[i] += n
				}
				if (len(got.Flows) == 0) != (flows == 0) || len(got.Sketchlets) < 1<<16 {
					t.Errorf("%d flows, %d bytes of sketchlets", len(got.Flows), len(got.Sketchlets))
				}
			}
			for c := range wire.Counters {
				rare := c == wire.Full || c == wire.Missed || c == wire.Stale || c == wire.Unread || c == wire.Hidden
				ofFlows := c == wire.NoFlow && flows == 0 || c == wire.FlowsFull && flows != 5
				if c != wire.DevicesFull && (sum.Counters[c] == 0) != (rare || ofFlows) {
					t.Errorf("counter %v is %d", c, sum.Counters[c])
				}
			}
		})
	}
}

// FuzzSameAsGo: any frames give the same bytes and the same reports in the kernel as in Go.
func FuzzSameAsGo(f *testing.F) {
	r := traffic{rand.New(rand.NewPCG(1, 1))}
	for range 40 {
		f.Add(r.frame())
	}
	w := newTwin(f, defaults())
	w.advance(10)
	e, frames := uint64(10), 0
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) < 14 || len(frame) > 3000 { // the kernel refuses it
			return
		}
		w.t = t
		kerneltest.OnProcessor(t, 0)
		w.in(frame)
		w.out(frame)
		if frames++; frames%20 == 0 { // a report waits for all processors
			e++
			w.advance(e)
			w.seal(e - 1)
		}
	})
}

// TestFullAndStale: sketchlets that the agent does not read in time are counted, and no packet
// keeps one.
func TestFullAndStale(t *testing.T) {
	s := defaults()
	s.Devices[0] = wire.Device{ID: 0, Columns: 1 << 16, Words: 255}
	w := newTwin(t, s)
	w.advance(10)
	header := slices.Concat(make([]byte, 12), []byte{8, 0, 0x45, 0, 5, 0, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10,
		0, 0, 2}, make([]byte, 12), []byte{5<<4 | 8}, make([]byte, 7))
	cells := make([]uint32, 255)
	const packets = 5000
	receive := w.kernel.Tables().Programs[lightguardianProgReceive]
	w.kernel.Finish(func() { // nothing is read meanwhile
		for i := range uint16(packets) {
			got := run(t, receive, wire.Append(header, 0, i, 0, cells))
			if len(got) != len(header) {
				t.Fatalf("packet %d has %d bytes, want %d", i, len(got), len(header))
			}
		}
	})
	seal := func(e uint64) *wire.Report {
		t.Helper()
		w.kernel.Advance(e + 1)
		sealed, err := w.kernel.Seal(e)
		if err != nil {
			t.Fatal(err)
		}
		return open(t, sealed)
	}
	got := seal(10)
	kept, full := uint64(len(got.Sketchlets)/1030), got.Counters[wire.Full]
	if uint64(laneBytes(len(w.kernel.Tables().rings))/1088) != kept || kept+full != packets ||
		got.Counters[wire.Sketchlets] != packets ||
		len(got.Flows) != 1 || got.Flows[0].Received != packets || !slices.Equal(got.Flows[0].Devices, []uint16{0}) {
		t.Errorf("%d kept, %d without room, counters %v, flows %v", kept, full, got.Counters, got.Flows)
	}
	tables := w.kernel.Tables()
	w.kernel.Finish(func() { tables.maxAge = -1 })
	run(t, w.kernel.Tables().Programs[lightguardianProgReceive], wire.Append(header, 0, 1, 0, cells))
	if got := seal(11); got.Counters[wire.Stale] != 1 || got.Counters[wire.Sketchlets] != 1 || len(got.Sketchlets) > 0 {
		t.Errorf("counters %v", got.Counters)
	}
}

// TestProcessors: two processors receive while epochs end. No packet and no sketchlet is lost or
// counted twice.
func TestProcessors(t *testing.T) {
	s := defaults()
	s.Devices = []wire.Device{{ID: 0, Columns: 1 << 16, Words: 1}, {ID: 1, Columns: 1 << 16, Words: 1}}
	w := newTwin(t, s)
	w.advance(10)
	const packets = 4000
	done := make(chan bool, 2)
	for n := range uint16(2) {
		go func() {
			defer func() { done <- true }()
			kerneltest.OnProcessor(t, int(n))
			for i := range uint16(packets) {
				f := slices.Concat(make([]byte, 12), []byte{8, 0, 0x45, 0, 0, 54, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0,
					byte(i % 9), 10, 0, 0, 2}, make([]byte, 12), []byte{5<<4 | 8}, make([]byte, 7))
				run(t, w.kernel.Tables().Programs[lightguardianProgReceive], wire.Append(f, n, i, 0, []uint32{uint32(i)}))
			}
		}()
	}
	var arrived, sketchlets, ofFlows uint64
	for e, ended := uint64(10), 0; ended < 2; e++ {
		select {
		case <-done:
			ended++
			if ended < 2 {
				e--
				continue
			}
		default:
		}
		w.kernel.Advance(e + 1)
		sealed, err := w.kernel.Seal(e)
		if err != nil {
			t.Fatal(err)
		}
		got := open(t, sealed)
		arrived += got.Counters[wire.Packets]
		sketchlets += uint64(len(got.Sketchlets) / 14)
		for _, f := range got.Flows {
			ofFlows += f.Received
		}
	}
	if all := uint64(2 * packets); arrived != all || sketchlets != all || ofFlows != all {
		t.Errorf("%d packets, %d sketchlets, %d packets of flows, want %d", arrived, sketchlets, ofFlows, all)
	}
}

// TestWire: super-packets count as the packets on the wire, also those of flows.
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
			r := open(t, sealed)
			for _, f := range r.Flows {
				sent, received = sent+f.Sent, received+f.Received
			}
			if sent != r.Counters[wire.Sent] || received != r.Counters[wire.Packets] {
				t.Errorf("%d and %d packets of flows, counters %v", sent, received, r.Counters)
			}
			return sent, received
		}
	})
}
