// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/hostagent/role"
	"github.com/netsketch/netsketch/hostagent/univmon"
	"github.com/netsketch/netsketch/hostagent/univmon/wire"
	"github.com/netsketch/netsketch/internal/test/kerneltest"
	"github.com/netsketch/netsketch/internal/test/packettest"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/universal"
)

// small are sketches with few cells and odd sizes, so that flows collide in each.
var small = []universal.Layout{
	{Key: flow.Src, Levels: 3, Rows: 3, Columns: 7, Ways: 2, Slots: 1},
	{Key: flow.Dst, Levels: 10, Rows: 4, Columns: 64, Ways: 3, Slots: 5},
	{Key: flow.FiveTuple, Levels: 16, Rows: 5, Columns: 33, Ways: 4, Slots: 7},
	{Key: flow.Src | flow.Dst, Levels: 4, Rows: 3, Columns: 16, Ways: 4, Slots: 2},
	{Key: flow.Dst | flow.DstPort, Levels: 2, Rows: 3, Columns: 9, Ways: 4, Slots: 3},
	{Key: flow.Proto, Levels: 2, Rows: 3, Columns: 1, Ways: 2, Slots: 2},
	{Key: flow.Src | flow.SrcPort, Levels: 5, Rows: 3, Columns: 16, Ways: 4, Slots: 2},
}

func encoded(t testing.TB, s *wire.Settings) []byte {
	t.Helper()
	data, err := s.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// open returns a data path with settings in epoch 11.
func open(t testing.TB, cfg Config, s *wire.Settings) *Path {
	t.Helper()
	p, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	p.Advance(10)
	if err := p.Apply(encoded(t, s)); err != nil {
		t.Fatal(err)
	}
	p.Advance(11)
	return p
}

// seal returns the report of an epoch.
func seal(t testing.TB, p *Path, e uint64) *wire.Report {
	t.Helper()
	p.Advance(e + 1)
	sealed, err := p.Seal(e)
	if err != nil {
		t.Fatal(err)
	}
	return report(t, sealed)
}

func report(t testing.TB, sealed role.Report) *wire.Report {
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

// same compares reports.
func same(t testing.TB, got, want *wire.Report) {
	t.Helper()
	if got.Epoch != want.Epoch || got.Counters != want.Counters {
		t.Errorf("kernel: epoch %d, counters %v; Go: epoch %d, counters %v", got.Epoch, got.Counters, want.Epoch,
			want.Counters)
	}
	for i, w := range want.Sketches {
		g := got.Sketches[i]
		if !slices.Equal(g.Counters(), w.Counters()) || !slices.Equal(g.Heavy(), w.Heavy()) ||
			!slices.Equal(g.Packets(), w.Packets()) {
			t.Errorf("epoch %d, sketch of %v: cells differ", want.Epoch, w.Layout().Key)
		}
	}
}

// frames makes packets of all kinds, and damages some.
type frames struct{ *rand.Rand }

func (r frames) next() []byte {
	f := make([]byte, 12)
	for range max(0, r.IntN(8)-4) {
		f = append(f, 0x81, 0, 0, byte(r.IntN(9)))
	}
	segment := make([]byte, 20)
	for i := range 4 {
		segment[i] = byte(r.IntN(3))
	}
	protocol := []byte{6, 17, 6, 1, 44}[r.IntN(5)]
	if r.IntN(3) == 0 {
		ip := make([]byte, 40)
		ip[0], ip[6] = 0x60, protocol
		for i := 8; i < 40; i++ {
			ip[i] = byte(r.IntN(8) / 7)
		}
		if protocol == 44 {
			segment = append([]byte{[]byte{6, 17, 58}[r.IntN(3)], 0, 0, byte(r.IntN(16))}, segment...)
		}
		f = slices.Concat(f, []byte{0x86, 0xdd}, ip, segment)
	} else {
		ip := make([]byte, 4*(5+max(0, r.IntN(21)-10)))
		ip[0], ip[9] = 0x40|byte(len(ip)/4), protocol
		ip[7] = byte(r.IntN(10) / 9)
		copy(ip[12:], []byte{10, 0, 0, byte(r.IntN(9)), 10, 0, byte(r.IntN(2)), 1})
		sum := uint32(0)
		for i := 0; i < len(ip); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(ip[i:]))
		}
		sum = sum>>16 + sum&0xffff
		binary.BigEndian.PutUint16(ip[10:], ^uint16(sum+sum>>16))
		f = slices.Concat(f, []byte{8, 0}, ip, segment)
	}
	switch r.IntN(12) {
	case 0:
		return f[:34+r.IntN(len(f)-34)]
	case 1:
		f[12+r.IntN(len(f)-12)] ^= 1 << r.IntN(8)
	}
	return f
}

// encapsulated makes packets with tunnels, too, and damages some.
func (r frames) encapsulated() []byte {
	if r.IntN(4) == 0 {
		return r.next()
	}
	f := packettest.Random(r.Rand).Bytes
	if r.IntN(6) == 0 {
		f = packettest.Deep(r.Rand)
	}
	switch r.IntN(8) {
	case 0:
		return f[:14+r.IntN(len(f)-13)]
	case 1:
		f[12+r.IntN(len(f)-12)] ^= 1 << r.IntN(8)
	}
	return f
}

// both are the packets that are sent and received.
func both(e wire.Encapsulation) wire.Packets {
	return wire.Packets{Sent: true, Received: true, Encapsulation: e}
}

// twin is a host in the kernel and in Go.
type twin struct {
	kernel *Path
	clock  *epoch.Clock
	role   *univmon.Role
}

func newTwin(t testing.TB, s *wire.Settings) *twin {
	kerneltest.NeedBPF(t)
	w := &twin{clock: epoch.NewClock(0, 10)}
	w.role = univmon.New(w.clock)
	if err := w.role.Apply(encoded(t, s)); err != nil {
		t.Fatal(err)
	}
	w.kernel = open(t, Config{}, s)
	w.clock.Advance(11)
	return w
}

// pass runs a program on a frame, and the Go role on the same frame. Both count it as the given
// number of segments.
func (w *twin) pass(t testing.TB, frame []byte, sent bool, segments uint32) {
	t.Helper()
	program := w.kernel.Tables().Programs[univmonProgReceive]
	if sent {
		program = w.kernel.Tables().Programs[univmonProgSend]
	}
	context := make([]byte, 192) // struct __sk_buff
	binary.LittleEndian.PutUint32(context[164:], segments)
	if _, err := program.Run(&ebpf.RunOptions{Data: frame, Context: context}); err != nil {
		if errors.Is(err, unix.EINVAL) { // the kernel refuses a frame without a whole IP header
			return
		}
		t.Fatal(err)
	}
	for range max(segments, 1) {
		f := packet.NewFrame(frame)
		if sent {
			w.role.Out([]*packet.Frame{f})
		} else {
			w.role.In([]*packet.Frame{f})
		}
	}
}

// TestSameAsGo: random packets, whole and damaged, give the same cells and counts in the kernel as
// in Go.
func TestSameAsGo(t *testing.T) {
	kerneltest.NeedBPF(t)
	sum := wire.Report{}
	for _, encapsulation := range wire.Encapsulations {
		t.Run(string(encapsulation), func(t *testing.T) {
			kerneltest.OnProcessor(t, 0) // keys of several compete for slots when their cells are added up
			w := newTwin(t, &wire.Settings{Packets: both(encapsulation), Sketches: small})
			r := frames{rand.New(rand.NewPCG(1, 4))}
			for e := uint64(11); e < 13; e++ {
				for range 1500 {
					w.pass(t, r.encapsulated(), r.IntN(2) == 0, uint32(max(0, r.IntN(40)-30)))
				}
				w.clock.Advance(e + 1)
				got := seal(t, w.kernel, e)
				same(t, got, report(t, w.role.Seal(e)))
				for i, n := range got.Counters {
					sum.Counters[i] += n
				}
			}
		})
	}
	for c := range wire.Missed {
		if sum.Counters[c] == 0 {
			t.Errorf("no packet is counted as %v", c)
		}
	}
}

// TestManyFlows: flows of which the programs remember only a part give the same cells as in Go,
// when they come again, when their slots are taken by others, and in the next epochs.
func TestManyFlows(t *testing.T) {
	kerneltest.NeedBPF(t)
	kerneltest.OnProcessor(t, 0) // keys of several compete for slots when their cells are added up
	w := newTwin(t, &wire.Settings{Packets: both(""), Sketches: small})
	r, frame := rand.New(rand.NewPCG(3, 5)), udp()
	for e := uint64(11); e < 14; e++ {
		for range 10_000 {
			// Every second packet is of one of 16 flows, the others are of some thousands.
			v := r.Uint32N(16)
			if r.IntN(2) == 0 {
				v = r.Uint32N(1 << 13)
			}
			frame[29] = byte(v & 3) // last byte of the source address
			binary.BigEndian.PutUint16(frame[34:], uint16(v>>2))
			fix(frame)
			w.pass(t, frame, true, 0)
		}
		w.clock.Advance(e + 1)
		same(t, seal(t, w.kernel, e), report(t, w.role.Seal(e)))
	}
}

// FuzzSameAsGo: any frames give the same cells and counts in the kernel as in Go.
func FuzzSameAsGo(f *testing.F) {
	r := frames{rand.New(rand.NewPCG(1, 1))}
	for i := range 30 {
		f.Add(r.encapsulated(), byte(i))
	}
	kerneltest.NeedBPF(f)
	var twins []*twin
	for _, e := range wire.Encapsulations {
		twins = append(twins, newTwin(f, &wire.Settings{Packets: both(e), Sketches: small}))
	}
	e, n := uint64(11), 0
	f.Fuzz(func(t *testing.T, frame []byte, encapsulation byte) {
		if len(frame) < 14 || len(frame) > 3000 { // the kernel refuses it
			return
		}
		kerneltest.OnProcessor(t, 0)
		twins[int(encapsulation)%len(twins)].pass(t, frame, true, 0)
		if n++; n%20 == 0 { // a report waits for all processors
			for _, w := range twins {
				w.clock.Advance(e + 1)
				same(t, seal(t, w.kernel, e), report(t, w.role.Seal(e)))
			}
			e++
		}
	})
}

// TestSegments: a super-packet counts as the packets on the wire, whether or not the kernel states
// their count, which it does not for those of virtual machines.
func TestSegments(t *testing.T) {
	kerneltest.NeedBPF(t)
	p := open(t, Config{}, &wire.Settings{Packets: both(""), Sketches: small})
	e := uint64(11)
	for _, s := range kerneltest.SuperPackets() {
		for _, stated := range []uint32{0, s.Packets} {
			context := make([]byte, 192) // struct __sk_buff
			binary.LittleEndian.PutUint32(context[164:], stated)
			binary.LittleEndian.PutUint32(context[176:], s.Size)
			for _, name := range []string{univmonProgSend, univmonProgReceive} {
				program := p.Tables().Programs[name]
				if _, err := program.Run(&ebpf.RunOptions{Data: s.Frame, Context: context}); err != nil {
					t.Fatalf("%s: %v", s.Name, err)
				}
			}
			c := seal(t, p, e).Counters
			if e++; c[wire.Sent] != uint64(s.Packets) || c[wire.Received] != uint64(s.Packets) {
				t.Errorf("%s: %d sent, %d received, want %d", s.Name, c[wire.Sent], c[wire.Received], s.Packets)
			}
		}
	}
}

// udp returns a packet.
func udp() []byte {
	return slices.Concat(make([]byte, 12), []byte{8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0x66, 0xcf, 10, 0, 0, 1, 10,
		0, 0, 2}, make([]byte, 8))
}

// TestProcessors: two processors count while epochs end. No packet is lost or counted twice.
func TestProcessors(t *testing.T) {
	kerneltest.NeedBPF(t)
	p := open(t, Config{}, &wire.Settings{Packets: wire.Packets{Sent: true}, Sketches: small})
	send := p.Tables().Programs[univmonProgSend]
	const packets = 2000
	done := make(chan error, 2)
	for n := range 2 {
		go func() {
			kerneltest.OnProcessor(t, n)
			frame := udp()
			frame[34] = byte(n) // first byte of the source port
			for range packets {
				if _, err := send.Run(&ebpf.RunOptions{Data: frame}); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	sent, counted := uint64(0), uint32(0)
	for e, ended := uint64(11), 0; ended < 2; e++ {
		select {
		case err := <-done:
			if ended++; err != nil {
				t.Fatal(err)
			}
		default:
		}
		got := seal(t, p, e)
		sent += got.Counters[wire.Sent]
		for _, n := range got.Sketches[0].Packets() {
			counted += n
		}
	}
	if sent != 2*packets || counted != 2*packets {
		t.Errorf("%d packets, %d of them in a sketch, want %d", sent, counted, 2*packets)
	}
}

// TestVeth: packets that pass an interface are counted, also those that are segmented later, until
// the settings are removed.
func TestVeth(t *testing.T) {
	if !kerneltest.Isolated(t) {
		return
	}
	p := open(t, Config{Interface: "host"}, &wire.Settings{Packets: both(""), Sketches: small})
	from, to := kerneltest.Socket(t, "net"), kerneltest.Socket(t, "host")
	frame := udp()
	const received, sent = 30, 20
	write := func(socket, n int) {
		t.Helper()
		for range n {
			if _, err := unix.Write(socket, frame); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := [2]uint64{}
	for e := uint64(11); got[0] == 0 || got[1] == 0; e++ { // until the link is up
		write(from, 1)
		write(to, 1)
		c := seal(t, p, e)
		got = [2]uint64{c.Counters[wire.Sent], c.Counters[wire.Received]}
		if e > 20_000 {
			t.Fatal("no packet is counted")
		}
	}
	write(from, received)
	write(to, sent)
	c := seal(t, p, p.Epoch())
	if c.Counters[wire.Sent] != sent || c.Counters[wire.Received] != received ||
		slices.Max(c.Sketches[0].Packets()) != sent+received {
		t.Errorf("counters %v, packets %v", c.Counters, c.Sketches[0].Packets())
	}
	if err := p.Apply(nil); err != nil || p.Tables() != nil {
		t.Errorf("the programs go on without settings: %v", err)
	}
	if warnings, err := Check(Config{Interface: "host"}); err != nil || len(warnings) > 0 {
		t.Errorf("check: %v, %v", warnings, err)
	}
}

// TestInterfaceAgain: the interface is deleted and created again. The programs count on the new
// one, and the epoch in between has no report.
func TestInterfaceAgain(t *testing.T) {
	if !kerneltest.Isolated(t) {
		return
	}
	p := open(t, Config{Interface: "host"}, &wire.Settings{Packets: both(""), Sketches: small})
	kerneltest.Recreate(t)
	kerneltest.NoReport(t, p, 11)
	from, frame := kerneltest.Socket(t, "net"), udp()
	testkit.Until(t, "packets are counted again", func() bool {
		if _, err := unix.Write(from, frame); err != nil {
			t.Fatal(err)
		}
		e := p.Epoch()
		p.Advance(e + 1)
		sealed, err := p.Seal(e)
		if err != nil || sealed == nil {
			return false
		}
		defer sealed.Release()
		r, err := wire.ParseReport(sealed.Append(nil))
		return err == nil && r.Counters[wire.Received] > 0
	})
}

// TestWire: super-packets count as the packets on the wire.
func TestWire(t *testing.T) {
	kerneltest.Wire(t, func(name string) kerneltest.Counts {
		p := open(t, Config{Interface: name}, &wire.Settings{Packets: both(""), Sketches: small})
		return func() (sent, received uint64) {
			c := seal(t, p, p.Epoch()).Counters
			return c[wire.Sent], c[wire.Received]
		}
	})
}

// TestLinkType: an interface without Ethernet headers is refused, by settings and by the check.
func TestLinkType(t *testing.T) {
	if !kerneltest.Isolated(t) {
		return
	}
	if err := testkit.IP("tuntap add dev tun0 mode tun"); err != nil {
		t.Skip(err)
	}
	p, err := Open(Config{Interface: "tun0"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	_, checked := Check(Config{Interface: "tun0"})
	for what, err := range map[string]error{"check": checked,
		"settings": p.Apply(encoded(t, &wire.Settings{Packets: both(""), Sketches: small}))} {
		if err == nil || !strings.Contains(err.Error(), "without link-layer headers") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
