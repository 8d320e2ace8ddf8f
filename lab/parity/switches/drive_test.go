// SPDX-License-Identifier: Apache-2.0

package switches

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/internal/test/p4tap"
	"github.com/netsketch/netsketch/internal/test/switchtest"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/p4/p4rt/p4values"
	"github.com/netsketch/netsketch/p4/softswitch/dataplane"
)

// arrival is a packet to inject.
type arrival struct {
	port  uint32
	frame []byte
}

const (
	patience  = 2 * time.Minute // for one step of a switch that shares its cores
	flipEvery = 5000            // packets
	inFlight  = 24              // packets in queues: BMv2's hold 64 each and drop in silence
	window    = 200             // packets; they make no more than inFlight packet-ins
)

// driver runs one program on one switch.
type driver struct {
	t       *testing.T
	ctx     context.Context
	tgt     *target
	prog    *program
	client  *p4rt.Client
	cat     *p4values.Catalog
	data    *dataplane.Client
	tap     *p4tap.Tap
	expect  *result // result of the other switch, which this one waits to reach; nil if there is none
	packets int     // number of packets to inject; higher ids are barriers

	res      *result
	arrived  int             // packets injected
	sent     int             // packets injected, barriers and packet-outs
	left     int             // packets that have come
	waiting  int             // packets and packet-ins that are expected and have not come
	barriers map[uint64]bool // barriers that have arrived
	barrier  uint64
}

// drive runs a program on a switch and returns everything that it observes. expect is the result of
// another switch, from which drive knows when a packet has had all its effects; it may be nil for a
// switch that reports its own progress.
func drive(t *testing.T, tgt *target, prog *program, in []arrival, expect *result) *result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	d := &driver{t: t, ctx: ctx, tgt: tgt, prog: prog, expect: expect, packets: len(in), barriers: map[uint64]bool{},
		res: &result{outputs: make([][]output, len(in))}}
	defer d.connect()()
	d.install()
	defer d.open()()
	rng := rand.New(rand.NewPCG(5, 1))
	most := inFlight
	if prog.serial {
		most = 1
	}
	for i, a := range in {
		if i%flipEvery == 0 {
			d.flip(uint64(i / flipEvery))
			d.packetOuts(rng, 10)
		}
		if i%window == 0 {
			d.await(i / window)
		}
		for d.waiting >= most {
			d.receive()
		}
		d.inject(a, uint64(i+1))
		d.arrived++
		if d.expect != nil {
			d.waiting += len(d.expect.outputs[i])
		}
	}
	d.quiesce()
	d.finish()
	return d.res
}

// await waits after each window of packets: on the switch that sets the expectations for all
// results of the packets, on the other switch for the same number of packet-ins.
func (d *driver) await(n int) {
	d.t.Helper()
	if d.expect == nil {
		d.settle()
		d.res.punted = append(d.res.punted, len(d.res.packetIns))
		return
	}
	want := d.expect.punted[n]
	if n+1 < len(d.expect.punted) && d.expect.punted[n+1]-want > inFlight {
		d.t.Fatalf("%d packet-ins of packets %d and on: BMv2 would lose some; take a smaller window",
			d.expect.punted[n+1]-want, n*window)
	}
	for len(d.res.packetIns) < want {
		d.receive()
	}
}

func (d *driver) connect() (closeAll func()) {
	d.t.Helper()
	var err error
	if d.cat, err = p4values.NewCatalog(d.prog.P4Info); err != nil {
		d.t.Fatal(err)
	}
	d.tap = p4tap.New(d.cat, deviceID, 1<<14)
	d.client, err = p4rt.Dial(d.ctx, p4rt.Config{Target: d.tgt.p4runtime, DeviceID: deviceID, Program: d.prog.Program,
		DialOptions: d.tap.DialOptions()})
	if err != nil {
		d.t.Fatal(err)
	}
	soon, done := context.WithTimeout(d.ctx, patience)
	defer done()
	if err := d.client.WaitReady(soon); err != nil {
		d.t.Fatalf("%s: %v; %+v", d.tgt.name, err, d.client.Status())
	}
	for _, digest := range d.cat.Digests.All() {
		d.write(p4v1.Update_INSERT, &p4v1.Entity{Entity: &p4v1.Entity_DigestEntry{DigestEntry: &p4v1.DigestEntry{
			DigestId: digest.ID,
			Config: &p4v1.DigestEntry_Config{MaxTimeoutNs: time.Millisecond.Nanoseconds(), MaxListSize: 32,
				AckTimeoutNs: time.Minute.Nanoseconds()},
		}}})
	}
	return func() { _ = d.client.Close() } // the results are in
}

func (d *driver) install() {
	d.t.Helper()
	if err := d.client.Reconcile(d.ctx, p4rt.Desired{Entries: d.prog.entries}); err != nil {
		d.t.Fatal(err)
	}
	for _, e := range d.prog.entities {
		d.write(p4v1.Update_INSERT, e)
	}
	for _, a := range d.prog.defaults {
		if err := d.client.SetDefaultAction(d.ctx, a.table, a.action, a.params...); err != nil {
			d.t.Fatal(err)
		}
	}
	d.write(p4v1.Update_MODIFY, d.prog.settings...)
	d.fillValueSets()
}

// write writes entities other than the entries that the client writes.
func (d *driver) write(kind p4v1.Update_Type, entities ...*p4v1.Entity) {
	d.t.Helper()
	if err := d.tap.Write(d.ctx, kind, entities...); err != nil {
		d.t.Fatal(err)
	}
}

// fillValueSets fills the parser's value sets, in the way that the switch supports.
func (d *driver) fillValueSets() {
	d.t.Helper()
	entries := map[string]*p4v1.ValueSetEntry{}
	for _, m := range d.prog.valueSets {
		set := lookup(d.t, d.cat.ValueSets, m.set)
		if d.tgt.addToSet != nil {
			if err := d.tgt.addToSet(d.ctx, m.set, bytes.Join(m.fields, nil)); err != nil {
				d.t.Fatal(err)
			}
			continue
		}
		e := entries[m.set]
		if e == nil {
			e = &p4v1.ValueSetEntry{ValueSetId: set.ID}
			entries[m.set] = e
		}
		member := &p4v1.ValueSetMember{}
		for i, v := range m.fields {
			member.Match = append(member.Match, &p4v1.FieldMatch{FieldId: set.Match[i].ID,
				FieldMatchType: &p4v1.FieldMatch_Exact_{Exact: &p4v1.FieldMatch_Exact{Value: v}}})
		}
		e.Members = append(e.Members, member)
	}
	for _, e := range entries {
		d.write(p4v1.Update_MODIFY, &p4v1.Entity{Entity: &p4v1.Entity_ValueSetEntry{ValueSetEntry: e}})
	}
}

// open opens the stream of packets.
func (d *driver) open() (closeAll func()) {
	d.t.Helper()
	conn, err := grpc.NewClient(d.tgt.data, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(d.ctx)
	stuck := time.AfterFunc(patience, cancel)
	if d.data, err = switchtest.OpenDataPlane(ctx, conn, deviceID, 1, barrier()); err != nil {
		d.t.Fatal(err)
	}
	stuck.Stop()
	d.sent++
	d.left++
	return func() {
		d.data.Close()
		cancel()
		conn.Close()
	}
}

func (d *driver) inject(a arrival, id uint64) {
	d.t.Helper()
	if err := d.data.Inject(a.port, a.frame, id); err != nil {
		d.t.Fatal(err)
	}
	d.sent++
}

// flip makes a bank the one that measures, when no packet is under way.
func (d *driver) flip(bank uint64) {
	d.t.Helper()
	d.quiesce()
	if d.prog.bankTable == "" {
		return
	}
	if err := d.client.SetDefaultAction(d.ctx, d.prog.bankTable, "set_bank", p4rt.Uint("bank", bank)); err != nil {
		d.t.Fatal(err)
	}
}

// packetOuts sends packets as a controller, one at a time.
func (d *driver) packetOuts(rng *rand.Rand, n int) {
	d.t.Helper()
	for range n {
		payload := make([]byte, 14+rng.IntN(1400))
		for i := range payload {
			payload[i] = byte(rng.Uint32())
		}
		if err := d.tap.PacketOut(payload, d.prog.packetOut(1+rng.Uint32N(9))...); err != nil {
			d.t.Fatal(err)
		}
		d.sent++
		for want := len(d.res.packetOuts) + 1; len(d.res.packetOuts) < want; {
			d.receive()
		}
	}
}

// quiesce waits until no packet is under way: it sends one more packet, and waits for it and for
// all expected results.
func (d *driver) quiesce() {
	d.t.Helper()
	d.barrier++
	id := uint64(d.packets) + d.barrier
	d.inject(arrival{1, barrier()}, id)
	for !d.barriers[id] || d.waiting > 0 {
		d.receive()
	}
	delete(d.barriers, id)
	if d.expect == nil {
		d.settle()
	}
}

// settle waits until a switch that reports its progress has processed all packets and all results
// have arrived.
func (d *driver) settle() {
	d.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	var now progress
	for deadline := time.Now().Add(patience); ; {
		come := progress{d.sent, d.left, len(d.res.packetIns), len(d.res.digests)}
		if come.left >= now.left && come.packetIns >= now.packetIns && come.digests >= now.digests {
			now = d.tgt.soFar() // all that the switch had sent the last time has come
		}
		if now == come {
			return
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("%s: %d packets were sent, %d have come back, %d packet-ins, %d digests; it reports %+v",
				d.tgt.name, d.sent, d.left, len(d.res.packetIns), len(d.res.digests), now)
		}
		d.receiveOr(tick.C)
	}
}

// receive takes one message that the switch sent.
func (d *driver) receive() {
	d.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	if !d.receiveOr(timer.C) {
		d.t.Fatalf("%s: nothing came for %v; %d packets are in, %d to come, %d packet-ins, %d digests: %+v%s",
			d.tgt.name, patience, d.arrived, d.waiting, len(d.res.packetIns), len(d.res.digests), d.client.Stats(),
			d.missing())
	}
}

// missing shows the first packet that left the other switch more often.
func (d *driver) missing() string {
	if d.expect == nil {
		return ""
	}
	for i := range d.arrived {
		if got, want := d.res.outputs[i], d.expect.outputs[i]; len(got) < len(want) {
			return fmt.Sprintf("\npacket %d left by%s\nit left the other switch by%s", i, format(got), format(want))
		}
	}
	return ""
}

// receiveOr takes one message that the switch sent, or returns false if the other channel is ready
// first.
func (d *driver) receiveOr(other <-chan time.Time) bool {
	d.t.Helper()
	select {
	case p, ok := <-d.data.Packets():
		if !ok {
			d.t.Fatalf("%s ended the stream of packets: %v", d.tgt.name, d.data.Err())
		}
		d.take(p)
		return true
	case p := <-d.tap.Packets:
		d.res.packetIns = append(d.res.packetIns, d.flatten(p))
		return true
	case l := <-d.tap.Digests:
		d.learn(l)
		return true
	case <-other:
		return false
	}
}

// learn takes a list of digests, and acknowledges it.
func (d *driver) learn(l *p4v1.DigestList) {
	d.t.Helper()
	for _, data := range l.GetData() {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(data)
		if err != nil {
			d.t.Fatal(err)
		}
		d.res.digests = append(d.res.digests, b)
	}
	if err := d.tap.Ack(l); err != nil {
		d.t.Fatal(err)
	}
}

func (d *driver) take(p dataplane.Packet) {
	d.t.Helper()
	o := output{p.Port, p.Frame}
	d.left++
	switch {
	case p.ID == 0:
		d.res.packetOuts = append(d.res.packetOuts, o)
	case p.ID > uint64(d.packets):
		d.barriers[p.ID] = true
	default:
		i := int(p.ID - 1)
		if d.expect != nil {
			if len(d.res.outputs[i]) >= len(d.expect.outputs[i]) {
				d.t.Fatalf("packet %d leaves %s once more than the other switch:%s\nthere%s",
					i, d.tgt.name, format(append(d.res.outputs[i], o)), format(d.expect.outputs[i]))
			}
			d.waiting--
		}
		d.res.outputs[i] = append(d.res.outputs[i], o)
		slices.SortFunc(d.res.outputs[i], output.compare)
	}
}

// flatten is a packet-in as bytes: each field of its header, then the payload.
func (d *driver) flatten(p *p4v1.PacketIn) (out []byte) {
	for _, f := range d.cat.PacketIn.Fields {
		v, _ := d.tap.Uint(p, f.Name)
		out = binary.BigEndian.AppendUint64(out, v)
	}
	return append(out, p.GetPayload()...)
}

// finish waits for results that come on other streams than packets, and reads counters and
// registers.
func (d *driver) finish() {
	d.t.Helper()
	if d.expect != nil {
		for len(d.res.packetIns) < len(d.expect.packetIns) || len(d.res.digests) < len(d.expect.digests) {
			d.receive()
		}
	}
	for _, c := range d.cat.Counters.All() {
		d.readCounter(c)
	}
	slices.SortFunc(d.res.counters, func(a, b counter) int { return cmp.Compare(a.name, b.name) })
	if all := d.cat.Registers.All(); len(d.cat.Readouts()) < len(all) && !d.prog.inFrames {
		d.t.Errorf("%s: %d of %d registers can be read", d.prog.Name, len(d.cat.Readouts()), len(all))
	}
	for _, r := range d.cat.Readouts() {
		for n := range r.Readout.Banks {
			read, err := d.client.ReadBanks(d.ctx, n, r.Name)
			if err != nil {
				d.t.Fatal(err)
			}
			cells := read[0]
			b := bank{fmt.Sprintf("%s, bank %d", r.Name, n), make([]uint32, cells.Len())}
			for i := range b.cells {
				b.cells[i] = cells.At(i)
			}
			d.res.banks = append(d.res.banks, b)
		}
	}
	if s := d.client.Stats(); s.StreamErrors+s.SessionsLost+d.tap.Dropped() > 0 {
		d.t.Errorf("%s: the controller lost something: %+v", d.tgt.name, s)
	}
}

func (d *driver) readCounter(c *p4values.Counter) {
	d.t.Helper()
	query := &p4v1.Entity{Entity: &p4v1.Entity_CounterEntry{CounterEntry: &p4v1.CounterEntry{CounterId: c.ID}}}
	if c.Table != nil {
		query = &p4v1.Entity{Entity: &p4v1.Entity_DirectCounterEntry{
			DirectCounterEntry: &p4v1.DirectCounterEntry{TableEntry: &p4v1.TableEntry{TableId: c.Table.ID}}}}
	}
	read, err := d.tap.Read(d.ctx, query)
	if err != nil {
		d.t.Fatalf("read counter %s: %v", c.Name, err)
	}
	for _, e := range read {
		cell := counter{name: c.Name}
		data := e.GetCounterEntry().GetData()
		if direct := e.GetDirectCounterEntry(); direct != nil {
			data = direct.GetData()
			key := &p4v1.TableEntry{Match: direct.GetTableEntry().GetMatch(),
				Priority: direct.GetTableEntry().GetPriority()}
			slices.SortFunc(key.Match, func(a, b *p4v1.FieldMatch) int {
				return cmp.Compare(a.GetFieldId(),
					b.GetFieldId())
			})
			b, err := proto.MarshalOptions{Deterministic: true}.Marshal(key)
			if err != nil {
				d.t.Fatal(prototext.Format(key), err)
			}
			cell.name += fmt.Sprintf(", entry %x", b)
		} else {
			cell.name += fmt.Sprintf(", cell %04d", e.GetCounterEntry().GetIndex().GetIndex())
		}
		cell.packets, cell.bytes = data.GetPacketCount(), data.GetByteCount()
		switch c.Unit { // BMv2 counts both, whatever the program declares
		case configv1.CounterSpec_PACKETS:
			cell.bytes = 0
		case configv1.CounterSpec_BYTES:
			cell.packets = 0
		}
		if cell.packets != 0 || cell.bytes != 0 {
			d.res.counters = append(d.res.counters, cell)
		}
	}
}
