// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/netsketch/netsketch/internal/test/p4tap"
	"github.com/netsketch/netsketch/p4/compiled"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/p4/p4rt/p4values"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/testing/protocmp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const deviceID = 1

// target is a switch without a program.
type target interface {
	address() string // address of the P4Runtime service
	inject(port uint32, frame []byte) error
	output() <-chan frameOut // frames that leave by the ports
}

type frameOut struct {
	port  uint32
	frame []byte
}

// bench is a switch under test, its controller and the model.
type bench struct {
	t        testing.TB
	program  string
	ctx      context.Context
	sw       target
	client   *p4rt.Client
	tap      *p4tap.Tap
	cat      *p4values.Catalog
	univmons map[string]*univmon
	unparsed *unparsed   // nil in programs without it
	inner    bool        // whether inner flows are measured of packets in tunnels
	duties   *duties     // nil without entries
	edge     *chamelemon // nil in programs without it
	omnimon  *omnimon    // model of an OmniMon switch; nil for other programs
	drops    [dropReasons]int64
	behind   *int // the bank of a dropped frame that no frame that left has followed
}

// conform runs a program on a switch and compares it with the model.
func conform(t *testing.T, program *compiled.Program, sw target) *bench {
	b := newBench(t, program, sw)
	b.install()
	if b.edge != nil {
		b.configure(cmConfig{
			entry: []uint32{1}, exit: []uint32{2, 4, 11},
			epochs: [2]cmEpoch{smallEpoch(40, 9, 30_000), smallEpoch(300, 2, 500)},
			dscp:   map[byte]byte{46: 7, 10: 3},
		})
	}

	if b.omnimon != nil {
		b.conformOmniMon()
	}
	theseDuties().install(b)
	for i, f := range oddFrames() {
		b.send(fmt.Sprintf("odd frame %d", i), 0, f)
	}
	if b.unparsed != nil {
		for i, f := range encapsulatedFrames() {
			b.send(fmt.Sprintf("encapsulated frame %d", i), 0, f)
		}
		b.tunnels(0)
	}
	if b.omnimon == nil {
		r := rand.New(rand.NewPCG(13, 3))
		header := func() omHeader {
			return omHeader{epoch: uint16(r.Uint32()), index: r.Uint32N(1 << 24), hops: byte(r.Uint32())}
		}
		for i, f := range ofHosts.carrierFrames(header) {
			b.send(fmt.Sprintf("carrier %d", i), 0, f)
		}
	}
	for i, f := range flowFrames(7, 1500, 300) {
		b.send(fmt.Sprintf("bank 0, frame %d", i), 0, f)
	}
	b.flip(1)
	for i, f := range flowFrames(8, 500, 400) {
		b.send(fmt.Sprintf("bank 1, frame %d", i), 1, f)
	}
	if b.unparsed != nil {
		b.tunnels(1)
	}
	if b.unparsed != nil && slices.Contains(b.unparsed.cells[1:1+len(b.unparsed.reasons)], 0) {
		t.Errorf("no packet for one of the reasons %v: %v", b.unparsed.reasons, b.unparsed.cells[:8])
	}
	if b.unparsed != nil && slices.Contains(b.unparsed.cells[10:15], 0) { // all but not-ip
		t.Errorf("no packet in a tunnel for one of the reasons %v: %v", b.unparsed.reasons, b.unparsed.cells[8:15])
	}
	b.compare(0)
	b.compare(0) // cleared
	for i, f := range flowFrames(9, 100, 50) {
		b.send(fmt.Sprintf("bank 1 again, frame %d", i), 1, f)
	}
	b.compare(1)
	for i, f := range flowFrames(10, 100, 50) {
		b.send(fmt.Sprintf("before the refusals, frame %d", i), 1, f)
	}
	b.packetOut()
	b.compareCounters()
	b.refusals()
	if err := b.client.WaitReady(b.ctx); err != nil { // the client was outbid, and is primary again
		b.t.Fatal(err)
	}
	b.compare(1)
	b.compare(0)
	return b
}

// conformTrace sends n packets of real traffic, some of them broken.
func conformTrace(t *testing.T, program string, sw target, n int) {
	frames := realFrames(t, n)
	b := newBench(t, load(t, program), sw)
	b.install()
	for i, f := range frames {
		b.send(fmt.Sprintf("packet %d of the trace", i+1), 0, f)
	}
	b.compare(0)
	b.compareCounters()
}

// conformFlips lets traffic run while banks are flipped, read and cleared without any wait, and
// accounts for every packet: in every instance, the banks' counts by level add up to the packets
// sent.
func conformFlips(t *testing.T, program string, sw target, n int) {
	const flips = 12
	b := newBench(t, load(t, program), sw)
	b.install()
	sent, n := b.traffic(n)

	counted := map[string]uint32{}
	collect := func(bank int) {
		for _, u := range b.univmons {
			counters := b.readBank(u.counterRegister.Name, bank)
			for level := range u.levels {
				counted[u.key] += counters.At(u.packets + level)
			}
		}
	}
	for i := range flips {
		b.flip(uint64(1 - i%2))
		collect(i % 2)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	collect(0)
	collect(1)
	for key, got := range counted {
		if got != uint32(n) {
			t.Errorf("%s: the banks' counts come to %d packets, %d were sent", key, got, n)
		}
	}
}

// traffic sends up to n packets, several at a time, each of which leaves by a port. It returns
// their number, and a channel that is closed when all have left.
func (b *bench) traffic(n int) (sent <-chan error, packets int) {
	const inFlight = 16 // BMv2's queues hold 64 packets and drop in silence
	var frames [][]byte
	for _, f := range flowFrames(11, 4*n, 3000) {
		if port, _, forwarded := expect(f); forwarded && port != cpuPort && len(frames) < n {
			frames = append(frames, f)
		}
	}
	done := make(chan error, 1)
	go func() {
		for i := range len(frames) + inFlight {
			if i >= inFlight && !b.leaves() {
				done <- fmt.Errorf("packet %d or one of the %d before it did not leave", i+1-inFlight, inFlight)
				return
			}
			if i < len(frames) {
				if err := b.sw.inject(1, frames[i]); err != nil {
					done <- err
					return
				}
			}
		}
		done <- nil
	}()
	return done, len(frames)
}

// load returns a committed program.
func load(t testing.TB, name string) *compiled.Program {
	t.Helper()
	p, err := compiled.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func newBench(t testing.TB, p *compiled.Program, sw target) *bench {
	cat, err := p4values.NewCatalog(p.P4Info)
	if err != nil {
		t.Fatal(err)
	}
	tap := p4tap.New(cat, deviceID, 64)
	ctx, cancel := context.WithTimeout(context.Background(), 10*patience)
	client, err := p4rt.Dial(ctx, p4rt.Config{
		Target: sw.address(), DeviceID: deviceID, ReadoutTimeout: patience, DialOptions: tap.DialOptions(),
		Program: &p4rt.Program{Name: p.Name, DeviceConfig: p.JSON, P4Info: p.P4Info},
	})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(); cancel() })
	if err := client.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	return &bench{t: t, program: p.Name, ctx: ctx, sw: sw, client: client, tap: tap, cat: cat, univmons: instances(cat),
		unparsed: newUnparsed(cat), edge: newChameleMon(cat), omnimon: newOmniMon(cat)}
}

const (
	seed     = 0x1b873593 // seed of the ECMP hash
	group    = 7
	members  = 3
	arpFrame = 0x0806
)

var (
	routerMAC = []byte{2, 0, 0, 0, 1, 1}
	hostMAC   = []byte{2, 0, 0, 0, 2, 2}
)

// routes of both families; a destination's third number, or the seventh byte of an
// IPv6 address, chooses among them.
var routes = []struct {
	prefix string
	action string
	port   uint64
}{
	{"10.0.0.0/8", "forward", 2},
	{"10.1.0.0/16", "ecmp", 0},
	{"10.2.0.0/16", "drop", 0},
	{"10.3.0.0/16", "to_cpu", 0},
	{"10.3.128.0/17", "forward", 3},
	{"0.0.0.0/0", "forward", 5},
	{"2001:db8::/32", "forward", 4},
	{"2001:db8:1::/48", "ecmp", 0},
	{"2001:db8:2::/48", "to_cpu", 0},
	{"::/0", "forward", 6},
}

func (b *bench) install() {
	mac := []p4rt.Param{p4rt.Bytes("src_mac", routerMAC), p4rt.Bytes("dst_mac", hostMAC)}
	var entries []p4rt.Entry
	for m := range uint64(members) {
		entries = append(entries, p4rt.Entry{
			Table: "ecmp_members", Action: "forward", Params: append([]p4rt.Param{p4rt.Uint("port", 10+m)}, mac...),
			Match: []p4rt.Match{
				p4rt.Exact("meta.ecmp_group", []byte{group}), p4rt.Exact("meta.ecmp_member", []byte{byte(m)}),
			},
		})
	}
	for _, r := range routes {
		e := p4rt.Entry{Table: "ipv4_lpm", Action: "ingress.forwarding." + r.action}
		prefix, field := netip.MustParsePrefix(r.prefix), "hdr.ipv4.dst"
		if prefix.Addr().Is6() {
			e.Table, field = "ipv6_lpm", "hdr.ipv6.dst"
		}
		e.Match = []p4rt.Match{p4rt.Prefix(field, prefix)}
		switch r.action {
		case "forward":
			e.Params = append([]p4rt.Param{p4rt.Uint("port", r.port)}, mac...)
		case "ecmp":
			e.Params = []p4rt.Param{p4rt.Uint("group", group), p4rt.Uint("size", members)}
		}
		entries = append(entries, e)
	}
	entries = append(entries, p4rt.Entry{
		Table: "trap", Action: "to_cpu", Match: []p4rt.Match{p4rt.Exact("hdr.ethernet.ether_type",
			binary.BigEndian.AppendUint16(nil, arpFrame))},
	})
	if err := b.client.Reconcile(b.ctx, p4rt.Desired{Entries: entries}); err != nil {
		b.t.Fatal(err)
	}
	if err := b.client.SetDefaultAction(b.ctx, "ecmp_seed", "choose_member", p4rt.Uint("seed", seed)); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) flip(bank uint64) {
	b.settle()
	if len(b.cat.Annotated(p4values.AnnotationBank)) == 0 {
		return
	}
	if err := b.client.SetDefaultAction(b.ctx, "ingress.bank.bank", "set_bank", p4rt.Uint("bank", bank)); err != nil {
		b.t.Fatal(err)
	}
}

const cpuPort = 255

// expect returns what the switch does with a frame: the port it leaves by and the
// frame then, or false and the port is the reason it is dropped for.
func expect(f []byte) (port uint32, out []byte, forwarded bool) { return expectOf(f, parse(f)) }

// expectOf is expect for a frame with encapsulations.
func expectOf(f []byte, p packet) (port uint32, out []byte, forwarded bool) {
	out = slices.Clone(f)
	if !p.counted {
		if p.drop == dropNotIP && binary.BigEndian.Uint16(f[12:]) == arpFrame {
			return cpuPort, out, true
		}
		return uint32(p.drop), nil, false
	}
	h := out[p.ip:]
	ttl := &h[8]
	if p.v6 {
		ttl = &h[7]
	}
	if *ttl <= 1 {
		return dropTTL, nil, false
	}
	*ttl--
	if !p.v6 {
		header := h[:int(h[0]&15)*4]
		header[10], header[11] = 0, 0
		binary.BigEndian.PutUint16(header[10:], checksum(header))
	}
	dst, _ := netip.AddrFromSlice(p.dst)
	best := -1
	for i, r := range routes {
		prefix := netip.MustParsePrefix(r.prefix)
		if prefix.Contains(dst) && (best < 0 || prefix.Bits() > netip.MustParsePrefix(routes[best].prefix).Bits()) {
			best = i
		}
	}
	if best < 0 || routes[best].action == "drop" {
		return dropRoute, nil, false
	}
	port = uint32(routes[best].port)
	switch routes[best].action {
	case "to_cpu":
		return cpuPort, out, true
	case "ecmp":
		port = 10 + mix(crc32.ChecksumIEEE(p.fiveTuple()), seed)%members
	}
	copy(out, hostMAC)
	copy(out[6:], routerMAC)
	return port, out, true
}

// expect is expect for the program on the switch.
func (b *bench) expect(f []byte) (port uint32, out []byte, forwarded bool) {
	switch {
	case b.omnimon != nil:
		return b.omnimon.expect(f)
	case strings.HasPrefix(b.program, "sketchint"):
		return expectOf(f, parse(f).insertable(f, true))
	case b.program == "lightguardian":
		p := parse(f).insertable(f, false)
		if p.counted && cutSketchlet(f, p) {
			p = p.without("truncated")
		}
		return expectOf(f, p)
	}
	return expectOf(f, parseFrame(f, b.unparsed != nil))
}

// send sends a frame through switch and model, and waits for it to come out. After a frame that the
// switch should drop, send returns at once.
func (b *bench) send(label string, bank int, f []byte) {
	b.t.Helper()
	const in = 1
	if err := b.sw.inject(in, f); err != nil {
		b.t.Fatal(err)
	}
	p := parseFrame(f, b.unparsed != nil)
	measured := p
	if p.counted && b.inner {
		measured = p.inner(f)
	}
	if p.counted && measured.unparsed == "" {
		for _, u := range b.univmons {
			if b.duties.counts(bank, in, p, u.key) {
				u.count(bank, measured)
			}
		}
	}
	if b.unparsed != nil && measured.unparsed != "" && (!p.counted || b.duties.countsAny(bank, in)) {
		b.unparsed.count(bank, measured.unparsed, p.counted)
	}
	port, want, forwarded := b.expect(f)
	if b.edge != nil {
		b.edge.pass(bank, parse(f), in, port, want)
	}
	if b.omnimon != nil {
		b.omnimon.pass(f, in, port, forwarded)
	}
	if !forwarded {
		b.drops[port]++
		b.behind = &bank
		return
	}
	b.behind = nil
	var got frameOut
	select {
	case got = <-b.sw.output():
	case p := <-b.tap.Packets:
		got = frameOut{cpuPort, p.GetPayload()}
		if from, _ := b.tap.Uint(p, "ingress_port"); from != in {
			b.t.Errorf("%s: packet-in has ingress port %d, want %d", label, from, in)
		}
		if reason, _ := b.tap.Uint(p, "reason"); reason != 0 {
			b.t.Errorf("%s: packet-in has reason %d, want 0", label, reason)
		}
	case <-time.After(patience):
		b.t.Fatalf("%s: no frame left; want % x by port %d", label, want, port)
	}
	if got.port != port || !bytes.Equal(got.frame, want) {
		b.t.Fatalf("%s: left by port %d as\n% x, want by port %d\n% x", label, got.port, got.frame, port, want)
	}
}

// settle waits until the switch has processed the frames that it dropped: requests of the control
// plane may overtake frames on their way to the switch.
func (b *bench) settle() {
	b.t.Helper()
	if b.behind != nil {
		f := make([]byte, 60)
		binary.BigEndian.PutUint16(f[12:], arpFrame)
		b.send("frame behind one that is dropped", *b.behind, f)
	}
}

// tunnels sends packets in tunnels while outer flows are measured, and while inner ones are.
func (b *bench) tunnels(bank int) {
	b.t.Helper()
	for _, action := range []string{"outer", "inner", "outer"} {
		b.settle()
		err := b.client.SetDefaultAction(b.ctx, "ingress.encapsulation.choice", "ingress.encapsulation."+action)
		if err != nil {
			b.t.Fatal(err)
		}
		b.inner = action == "inner"
		for i, f := range tunnelFrames() {
			b.send(fmt.Sprintf("%s flow of tunnel %d", action, i), bank, f)
			for _, kind := range carriers {
				if f := ofHosts.carry(kind, f, someHeader); f != nil {
					b.send(fmt.Sprintf("%s flow of tunnel %d in a %s", action, i, kind), bank, f)
				}
			}
		}
	}
}

// compare reads a bank of all registers, which clears it, and clears the model's.
func (b *bench) compare(bank int) {
	b.t.Helper()
	b.settle()
	for _, u := range b.univmons {
		b.compareRegister(u.counterRegister, bank, u.counters)
		b.compareRegister(u.heavyRegister, bank, u.heavy)
	}
	if b.unparsed != nil {
		b.compareRegister(b.unparsed.register, bank, b.unparsed.cells)
	}
	if b.edge != nil {
		for _, m := range b.edge.all {
			b.compareRegister(m.register, bank, m.cells)
		}
	}
	if b.omnimon != nil {
		for _, m := range b.omnimon.all {
			b.compareRegister(m.register, bank, m.cells)
		}
	}
}

func (b *bench) readBank(register string, bank int) *p4rt.Cells {
	b.t.Helper()
	cells, err := b.client.ReadBanks(b.ctx, bank, register)
	if err != nil {
		b.t.Fatal(err)
	}
	return cells[0]
}

func (b *bench) compareRegister(register *p4values.Register, bank int, model []uint32) {
	b.t.Helper()
	n := register.Readout.Cells
	want := model[bank*n:][:n]
	got := b.readBank(register.Name, bank)
	wrong := 0
	for i := range want {
		if got.At(i) != want[i] {
			if wrong++; wrong <= 5 {
				b.t.Errorf("%s, bank %d, cell %d is %#x, the model has %#x", register.Name, bank, i, got.At(i), want[i])
			}
		}
	}
	if wrong > 5 {
		b.t.Errorf("%s, bank %d: %d of %d cells differ", register.Name, bank, wrong, n)
	}
	clear(want)
}

// compareCounters reads the counters of drops, of DSCPs that were not kept and of packets that
// encoders took.
func (b *bench) compareCounters() {
	b.t.Helper()
	b.settle()
	var drops [dropReasons]int64
	copy(drops[:], b.readCounter("ingress.drops"))
	if drops != b.drops {
		b.t.Errorf("ingress.drops is %v, the model has %v", drops, b.drops)
	}
	if b.edge != nil {
		if got := b.readCounter("ingress.chamelemon.dscp_lost")[0]; got != b.edge.dscpLost {
			b.t.Errorf("ingress.chamelemon.dscp_lost is %d, the model has %d", got, b.edge.dscpLost)
		}
		for name, want := range b.edge.counted {
			if got := b.readCounter(name); !slices.Equal(got, want[:]) {
				b.t.Errorf("%s is %v, the model has %v", name, got, *want)
			}
		}
	}
	if b.omnimon != nil {
		if got := b.readCounter("omnimon_counted"); !slices.Equal(got, b.omnimon.counted[:]) {
			b.t.Errorf("omnimon_counted is %v, the model has %v", got, b.omnimon.counted)
		}
	}
}

func (b *bench) readCounter(name string) []int64 {
	b.t.Helper()
	c, err := b.cat.Counters.Name(name)
	if err != nil {
		b.t.Fatal(err)
	}
	got := map[int64]int64{}
	query := &p4v1.Entity{Entity: &p4v1.Entity_CounterEntry{CounterEntry: &p4v1.CounterEntry{CounterId: c.ID}}}
	read, err := b.tap.Read(b.ctx, query)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, e := range read {
		got[e.GetCounterEntry().GetIndex().GetIndex()] = e.GetCounterEntry().GetData().GetPacketCount()
	}
	out := make([]int64, len(got))
	for i, n := range got {
		out[i] = n
	}
	return out
}

// leaves waits for a frame to leave the switch.
func (b *bench) leaves() bool {
	select {
	case <-b.sw.output():
		return true
	case <-time.After(patience):
		return false
	}
}

// packetOut checks that a frame sent by packet-out leaves as it is, and that what is
// neither that nor a whole read-out request is dropped.
func (b *bench) packetOut() {
	b.t.Helper()
	send := func(op byte, payload []byte) {
		value := func(name string, v byte) p4tap.Field { return p4tap.Field{Name: name, Value: []byte{v}} }
		err := b.tap.PacketOut(payload, value("op", op), value("egress_port", 9), value("object", 1), value("bank", 0),
			value("index", 0), value("seq", 0))
		if err != nil {
			b.t.Fatal(err)
		}
	}
	send(1, make([]byte, 1023))
	send(2, make([]byte, 1024))
	b.drops[dropRequest] += 2
	want := bytes.Repeat([]byte{0xa5}, 90)
	send(0, want)
	select {
	case got := <-b.sw.output():
		if got.port != 9 || !bytes.Equal(got.frame, want) {
			b.t.Errorf("packet-out by port 9 left by port %d as % x", got.port, got.frame)
		}
	case <-time.After(patience):
		b.t.Error("packet-out did not leave")
	}
}

// refusals checks that the switch refuses requests for absent cells and changes nothing: a
// comparison of the registers follows. It uses P4Runtime as another controller, because the client
// does not return refusals.
func (b *bench) refusals() {
	b.t.Helper()
	object, cells, banks := uint32(1), uint32(0), uint32(2)
	if all := b.cat.Readouts(); len(all) > 0 {
		object, cells = uint32(all[0].Readout.Object), uint32(all[0].Readout.Cells)
		banks = uint32(all[0].Readout.Banks)
	}
	conn, err := grpc.NewClient(b.sw.address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	stream, err := p4v1.NewP4RuntimeClient(conn).StreamChannel(ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	exchange := func(m *p4v1.StreamMessageRequest) *p4v1.StreamMessageResponse {
		if err := stream.Send(m); err != nil {
			b.t.Fatal(err)
		}
		r, err := stream.Recv()
		if err != nil {
			b.t.Fatal(err)
		}
		return r
	}
	exchange(&p4v1.StreamMessageRequest{Update: &p4v1.StreamMessageRequest_Arbitration{
		Arbitration: &p4v1.MasterArbitrationUpdate{
			DeviceId: deviceID, ElectionId: &p4v1.Uint128{High: 1},
		}}})
	for st := range b.client.Watch(ctx) {
		if st.State == p4rt.Standby {
			break
		}
	}

	payload := bytes.Repeat([]byte{0x5a}, 1024)
	for _, r := range []struct {
		name                string
		object, bank, index uint32
	}{
		{"object", 200, 0, 0},
		{"bank", object, banks, 0},
		{"index at the end of the bank", object, 0, cells},
		{"index beyond 2^31", object, 0, 0xffffff00},
		{"index between", object, 0, 128},
	} {
		request := map[string]uint32{"op": 1, "egress_port": 0, "object": r.object, "bank": r.bank, "index": r.index,
			"seq": 77}
		answer := exchange(&p4v1.StreamMessageRequest{Update: &p4v1.StreamMessageRequest_Packet{Packet: &p4v1.PacketOut{
			Payload: payload, Metadata: b.metadata(request),
		}}}).GetPacket()
		want := b.metadata(map[string]uint32{"reason": 255, "ingress_port": cpuPort, "object": r.object, "bank": r.bank,
			"index": r.index, "seq": 77})
		if diff := cmp.Diff(want, answer.GetMetadata(), protocmp.Transform()); diff != "" {
			b.t.Errorf("%s: the answer's metadata (-want +got):\n%s", r.name, diff)
		}
		if !bytes.Equal(answer.GetPayload(), payload) {
			b.t.Errorf("%s: the payload was changed", r.name)
		}
	}
}

// metadata builds the metadata of a packet-out, or of a packet-in if a reason is given.
func (b *bench) metadata(values map[string]uint32) (out []*p4v1.PacketMetadata) {
	header := p4values.PacketOutHeader
	if _, in := values["reason"]; in {
		header = p4values.PacketInHeader
	}
	for _, h := range b.cat.P4Info().GetControllerPacketMetadata() {
		if h.GetPreamble().GetName() != header {
			continue
		}
		for _, m := range h.GetMetadata() {
			v := bytes.TrimLeft(binary.BigEndian.AppendUint32(nil, values[m.GetName()]), "\x00")
			if len(v) == 0 {
				v = []byte{0}
			}
			out = append(out, &p4v1.PacketMetadata{MetadataId: m.GetId(), Value: v})
		}
	}
	return out
}
