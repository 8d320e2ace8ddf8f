// SPDX-License-Identifier: Apache-2.0

package lightguardian

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/lightguardian/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
)

// sealed computes the checksum of b with the two bytes at offset at, RFC 1071.
func sealed(b []byte, at int, more uint32) {
	b[at], b[at+1] = 0, 0
	sum := more
	for i, v := range b {
		sum += uint32(v) << (8 * (1 - i&1))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(b[at:], ^uint16(sum))
}

// frame returns a packet with these bytes behind its header, and with the carry mark or without.
// Protocol 6 with version 4 or 6, or 17 with version 4.
func frame(version, protocol byte, mark bool, body ...[]byte) []byte {
	ip := make([]byte, 20)
	if version == 6 {
		ip = make([]byte, 40)
	}
	l4 := make([]byte, 8)
	if protocol == 6 {
		l4 = make([]byte, 24)
		l4[12] = 6 << 4
		if mark {
			l4[12] |= 8
		}
	}
	copy(l4, []byte{0x12, 0x34, 0, 80})
	segment := slices.Concat(append([][]byte{l4}, body...)...)
	pseudo := uint32(protocol) + uint32(len(segment)) + 2*(10<<8+1)
	if version == 6 {
		ip[0], ip[6], ip[7], ip[8], ip[9], ip[24], ip[25] = 0x60, protocol, 64, 10, 1, 10, 1
		binary.BigEndian.PutUint16(ip[4:], uint16(len(segment)))
	} else {
		ip[0], ip[8], ip[9], ip[12], ip[13], ip[16], ip[17] = 0x45, 64, protocol, 10, 1, 10, 1
		if ip[6] = 0x40; mark && protocol == 17 {
			ip[6] |= 0x80
		}
		binary.BigEndian.PutUint16(ip[2:], uint16(20+len(segment)))
		sealed(ip, 10, 0)
	}
	if protocol == 17 {
		binary.BigEndian.PutUint16(segment[4:], uint16(len(segment)))
		sealed(segment, 6, pseudo)
	} else {
		sealed(segment, 16, pseudo)
	}
	kind := []byte{8, 0}
	if version == 6 {
		kind = []byte{0x86, 0xdd}
	}
	return slices.Concat([]byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2}, kind, ip, segment)
}

// kinds are the packets that can carry sketchlets.
var kinds = []struct {
	name              string
	version, protocol byte
}{{"TCP over IPv4", 4, 6}, {"TCP over IPv6", 6, 6}, {"UDP over IPv4", 4, 17}}

func start(t testing.TB, s wire.Settings) (*Role, *epoch.Clock) {
	t.Helper()
	clock := epoch.NewClock(0, 10)
	r := New(clock, still)
	data, err := s.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Apply(data); err != nil {
		t.Fatal(err)
	}
	clock.Advance(11)
	return r, clock
}

var settings = wire.Settings{Kept: 1000, Devices: []wire.Device{{ID: 7, Columns: 16, Words: 3}}}

// in passes a frame through the role.
func in(r *Role, data []byte) []byte {
	f := packet.NewFrame(data)
	r.In([]*packet.Frame{f})
	return f.Bytes()
}

// seal returns the report of an epoch.
func seal(t *testing.T, r *Role, clock *epoch.Clock, e uint64) *wire.Report {
	t.Helper()
	clock.Advance(e + 1)
	sealed := r.Seal(e)
	if sealed == nil {
		t.Fatalf("epoch %d has no report", e)
	}
	out, err := wire.ParseReport(sealed.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	sealed.Release()
	return out
}

// TestBadInput: each sketchlet is counted by its reason, and every application receives its
// payload.
func TestBadInput(t *testing.T) {
	payload := []byte("the payload of an application")
	good := wire.Append(nil, 7, 15, 4, []uint32{1, 2, 3})
	changed := func(at int, b byte) []byte { c := bytes.Clone(good); c[at] ^= b; return c }
	for _, k := range kinds {
		r, clock := start(t, settings)
		plain := frame(k.version, k.protocol, false, payload)
		for _, c := range []struct {
			counter   wire.Counter
			sketchlet []byte
		}{
			{wire.Sketchlets, good}, {wire.Duplicates, good},
			{wire.Disagreeing, wire.Append(nil, 7, 15, 4, []uint32{1, 2, 4})},
			{wire.UnknownDevice, wire.Append(nil, 8, 15, 4, []uint32{1, 2, 3})},
			{wire.UnknownColumn, wire.Append(nil, 7, 16, 4, []uint32{1, 2, 3})},
			{wire.WrongWords, wire.Append(nil, 7, 15, 4, []uint32{1, 2})},
		} {
			before := r.current.Counters[c.counter]
			if got := in(r, frame(k.version, k.protocol, true, c.sketchlet, payload)); !bytes.Equal(got, plain) {
				t.Errorf("%s, %v:\n% x, want\n% x", k.name, c.counter, got, plain)
			}
			if r.current.Counters[c.counter] != before+1 {
				t.Errorf("%s: %v is %d after %d", k.name, c.counter, r.current.Counters[c.counter], before)
			}
		}
		for _, c := range []struct {
			counter wire.Counter
			body    [][]byte
		}{
			{wire.Short, nil}, {wire.Short, [][]byte{good[:9]}}, {wire.Short, [][]byte{good[:21]}},
			{wire.Short, [][]byte{changed(9, 3), payload}}, {wire.Short, [][]byte{changed(9, 0x80), payload}},
			{wire.BadCheck, [][]byte{changed(0, 1), payload}}, {wire.BadCheck, [][]byte{changed(21, 1), payload}},
			{wire.BadCheck, [][]byte{changed(9, 1), payload}}, {wire.BadCheck, [][]byte{payload[:9], {1}, payload}},
		} {
			before := r.current.Counters[c.counter]
			forged := frame(k.version, k.protocol, true, c.body...)
			if got := in(r, forged); !bytes.Equal(got, forged) || r.current.Counters[c.counter] != before+1 {
				t.Errorf("%s: % x became\n% x, %v %d after %d", k.name, forged, got, c.counter,
					r.current.Counters[c.counter], before)
			}
		}
		if got := in(r, plain); !bytes.Equal(got, plain) {
			t.Errorf("%s: a packet without the mark became % x", k.name, got)
		}
		report := seal(t, r, clock, 11)
		if want := wire.Append(nil, 7, 15, 4, []uint32{1, 2, 4}); !bytes.Equal(report.Sketchlets, want) ||
			report.Counters[wire.Packets] != 16 || report.Counters[wire.Sketchlets] != 6 {
			t.Errorf("%s: report %+v", k.name, report)
		}
	}
}

// TestTruncated: every prefix of a frame passes unchanged or is restored, and none is read beyond
// its end.
func TestTruncated(t *testing.T) {
	good := wire.Append(nil, 7, 15, 4, []uint32{1, 2, 3})
	for _, k := range kinds {
		r, _ := start(t, settings)
		whole := frame(k.version, k.protocol, true, good, []byte("payload"))
		plain := frame(k.version, k.protocol, false, []byte("payload"))
		for n := range whole {
			want := whole[:n]
			if n >= len(whole)-len("payload") {
				want = plain[:n-len(good)]
			}
			if got := in(r, bytes.Clone(whole[:n])); !bytes.Equal(got, want) {
				t.Errorf("%s, %d bytes: % x, want % x", k.name, n, got, want)
			}
		}
	}
}

// TestBounds: what does not fit and what is not requested in time is counted.
func TestBounds(t *testing.T) {
	r, clock := start(t, settings)
	send := func(column uint16) {
		in(r, frame(4, 6, true, wire.Append(nil, 7, column%16, byte(column/16), []uint32{1, 2, 3})))
	}
	for column := range uint16(50) { // 22 bytes each
		send(column)
	}
	report := seal(t, r, clock, 11)
	if len(report.Sketchlets) != 45*22 || report.Counters[wire.Full] != 5 {
		t.Errorf("%d bytes kept, %d sketchlets beyond the limit", len(report.Sketchlets), report.Counters[wire.Full])
	}
	for e := uint64(12); e < 20; e++ {
		clock.Advance(e)
		send(1)
	}
	if report = seal(t, r, clock, 19); report.Counters[wire.Missed] != 7 || len(report.Sketchlets) != 22 {
		t.Errorf("report %+v", report)
	}
	if r.Seal(19) != nil || r.Seal(20) != nil {
		t.Error("an epoch was reported twice, or before it ended")
	}
	if report = seal(t, r, clock, 20); report.Counters != [wire.Counters]uint64{} || len(report.Sketchlets) != 0 {
		t.Errorf("an epoch without packets: %+v", report)
	}
}

// TestFlows: flows are counted in both directions and have the devices of their sketchlets; what
// has no room or no key is counted.
func TestFlows(t *testing.T) {
	s := settings
	s.Flows, s.Devices = 2, nil
	for id := range uint16(wire.MaxDevices + 2) {
		s.Devices = append(s.Devices, wire.Device{ID: id, Columns: 16, Words: 3})
	}
	r, clock := start(t, s)
	out := func(data []byte) { r.Out([]*packet.Frame{packet.NewFrame(data)}) }
	for _, id := range slices.Backward(s.Devices) {
		in(r, frame(4, 6, true, wire.Append(nil, id.ID, 15, 4, []uint32{1, 2, 3}), []byte("data")))
	}
	in(r, frame(4, 6, true, wire.Append(nil, 99, 15, 4, []uint32{1, 2, 3})))
	out(frame(4, 6, false, []byte("data")))
	out(frame(6, 6, false))
	out(frame(4, 17, false))
	out(frame(4, 17, false)[:40])
	in(r, frame(4, 17, false)[:30])
	in(r, []byte("no IP packet at all"))
	report := seal(t, r, clock, 11)
	if len(report.Flows) != 2 || report.Flows[0].Key.V6 || !report.Flows[1].Key.V6 {
		t.Fatalf("flows %+v", report.Flows)
	}
	if f := report.Flows[0]; f.Received != wire.MaxDevices+3 || f.Sent != 1 || len(f.Devices) != wire.MaxDevices ||
		!slices.IsSorted(f.Devices) || f.Key.String() != "10.1.0.0,10.1.0.0,tcp,4660,80" {
		t.Errorf("flow over IPv4: %+v", f)
	}
	if f := report.Flows[1]; f.Received != 0 || f.Sent != 1 || len(f.Devices) != 0 {
		t.Errorf("flow over IPv6: %+v", f)
	}
	for c, want := range map[wire.Counter]uint64{wire.FlowsFull: 1, wire.NoFlow: 2, wire.DevicesFull: 2,
		wire.UnknownDevice: 1, wire.Packets: wire.MaxDevices + 4} {
		if report.Counters[c] != want {
			t.Errorf("%v: %d, want %d", c, report.Counters[c], want)
		}
	}
}

// TestFlowsOfFirstEpoch: the first report has the sketchlets that arrived since the settings, and
// the flows of its epoch alone.
func TestFlowsOfFirstEpoch(t *testing.T) {
	clock := epoch.NewClock(0, 10)
	r := New(clock, still)
	s := settings
	s.Flows = 9
	data, err := s.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Apply(data); err != nil {
		t.Fatal(err)
	}
	in(r, frame(4, 6, true, wire.Append(nil, 7, 15, 4, []uint32{1, 2, 3})))
	clock.Advance(11)
	in(r, frame(4, 17, false))
	if report := seal(t, r, clock, 11); len(report.Sketchlets) != 22 || len(report.Flows) != 1 ||
		report.Flows[0].Key.Proto != 17 {
		t.Errorf("report %+v", report)
	}
}

// TestLatest: the host's own results are about the epochs of an interval, and use no more
// sketchlets of older intervals than a report has.
func TestLatest(t *testing.T) {
	for _, c := range []struct {
		interval, kept      int
		sketchlets, packets int
	}{{0, 1000, 1, 1}, {2, 1000, 2, 2}, {3, 1000, 2, 2}, {4, 1000, 3, 3}, {4, 2 * 22, 2, 2}, {4, 22, 1, 1}} {
		s := settings
		s.Interval, s.Kept, s.Flows = c.interval, c.kept, 9
		r, clock := start(t, s)
		for _, e := range []uint64{11, 13, 14} {
			clock.Advance(e)
			in(r, frame(4, 6, true, wire.Append(nil, 7, uint16(e), 4, []uint32{1, 2, 3})))
		}
		if clock.Advance(15); len(r.waiting) != 2 {
			t.Fatalf("%d epochs wait", len(r.waiting))
		}
		_, got, ok := r.Latest()
		if !ok || got.Epoch != 14 || len(got.Sketchlets) != c.sketchlets*22 || len(got.Flows) != 1 ||
			got.Flows[0].Received != uint64(c.packets) || len(got.Flows[0].Devices) != 1 {
			t.Errorf("%+v: %v, report %+v", c, ok, got)
		}
	}
}

// TestParts: the parts of a report and its rest have each sketchlet once; a sketchlet that changes
// after its part was sent is sent again. Parts have no sketchlets from before the first epoch that
// is reported. Local results are complete, although parts were sent.
func TestParts(t *testing.T) {
	clock := epoch.NewClock(0, 10)
	r := New(clock, still)
	data, err := settings.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Apply(data); err != nil {
		t.Fatal(err)
	}
	part := func() *wire.Report {
		e, p := r.Part(false)
		if p == nil {
			return nil
		}
		out, err := wire.ParseReport(p.Append(nil))
		if err != nil || out.Epoch != e || len(out.Flows) > 0 {
			t.Fatalf("part of epoch %d: %+v (%v)", e, out, err)
		}
		return out
	}
	send := func(column uint16, cell uint32) []byte {
		s := wire.Append(nil, 7, column, 4, []uint32{1, 2, cell})
		in(r, frame(4, 6, true, s))
		return s
	}
	want := send(1, 3)
	if part() != nil {
		t.Error("a part before the first epoch")
	}
	clock.Advance(11)
	want = append(want, send(2, 3)...)
	if p := part(); p == nil || p.Part != 1 || !bytes.Equal(p.Sketchlets, want) {
		t.Errorf("part %+v, want % x", p, want)
	}
	if part() != nil {
		t.Error("a part without anything new")
	}
	send(2, 3)
	want = send(1, 4)
	if p := part(); p == nil || p.Part != 2 || !bytes.Equal(p.Sketchlets, want) {
		t.Errorf("part %+v, want % x", p, want)
	}
	want = send(5, 3)
	report := seal(t, r, clock, 11)
	if report.Part != 0 || report.Parts != 2 || !bytes.Equal(report.Sketchlets, want) ||
		report.Counters[wire.Disagreeing] != 1 || report.Counters[wire.Duplicates] != 1 {
		t.Errorf("rest %+v, want % x", report, want)
	}
	if _, local, _ := r.Latest(); len(local.Sketchlets) != 4*22 {
		t.Errorf("local results of %d bytes", len(local.Sketchlets))
	}
	if send(6, 3); seal(t, r, clock, 12).Parts != 0 {
		t.Error("parts of the epoch before count")
	}
}

// TestFullParts: 350 sketchlets are a message, which is stated when the last of them arrives.
func TestFullParts(t *testing.T) {
	s := settings
	s.Kept = 1 << 20
	r, _ := start(t, s)
	var stated []int
	arrived := 0
	r.OnFull(func() { stated = append(stated, arrived) })
	part := func(full bool) (sketchlets int) {
		if _, p := r.Part(full); p != nil {
			sketchlets = len(p.(*report).Sketchlets) / 22
		}
		return sketchlets
	}
	arrive := func(n int) {
		for range n {
			arrived++
			in(r, frame(4, 6, true, wire.Append(nil, 7, uint16(arrived%16), uint8(arrived/16), []uint32{1, 2, 3})))
		}
	}
	if arrive(349); part(true) != 0 {
		t.Error("a message that is not full")
	}
	arrive(700)
	if got := fmt.Sprint(part(true), part(true), part(true), part(false), part(false)); got != "350 350 0 349 0" {
		t.Errorf("parts of %s sketchlets", got)
	}
	if arrive(351); fmt.Sprint(stated) != "[350 1399]" || part(true) != 350 {
		t.Errorf("stated after %v sketchlets", stated)
	}
}

// TestWithoutSettings: sketchlets are removed although nothing reports them.
func TestWithoutSettings(t *testing.T) {
	r := New(epoch.NewClock(0, 1), still)
	plain := frame(4, 6, false, []byte("payload"))
	marked := frame(4, 6, true, wire.Append(nil, 1, 2, 3, []uint32{4}), []byte("payload"))
	if got := in(r, marked); !bytes.Equal(got, plain) {
		t.Errorf("% x, want % x", got, plain)
	}
	if r.Seal(0) != nil {
		t.Error("a report without settings")
	}
	if err := r.Apply([]byte(`{"kept": -1, "devices": [{"id": 1}, {"id": 1, "columns": 1, "words": 1}]}`)); err == nil {
		t.Error("bad settings are accepted")
	}
}

// BenchmarkIn measures how many packets one core receives from memory. Packets have 512 bytes of
// payload, and one in share packets has a sketchlet of 21 cells from one of 20 switches. flows is
// the number of flows that the role records; the packets are of 1,000 flows. The frames are
// restored in each round.
func BenchmarkIn(b *testing.B) {
	payload := make([]byte, 512)
	s := wire.Settings{Kept: 1 << 23}
	for id := range uint16(20) {
		s.Devices = append(s.Devices, wire.Device{ID: id, Columns: 4096, Words: 21})
	}
	for _, c := range []struct {
		name         string
		share, flows int
	}{{"1of16", 16, 0}, {"all", 1, 0}, {"1of16/flows", 16, 1000}} {
		b.Run(c.name, func(b *testing.B) {
			s.Flows = c.flows
			r, _ := start(b, s)
			data := make([][]byte, 4096)
			for i := range data {
				data[i] = frame(4, 6, false, payload)
				if i%c.share == 0 {
					data[i] = frame(4, 6, true, wire.Append(nil, uint16(i%20), uint16(i), 9, make([]uint32, 21)), payload)
				}
				binary.BigEndian.PutUint16(data[i][34:], uint16(i%1000)) // the port; checksums are not read
			}
			frames := make([]*packet.Frame, 64)
			for i := range frames {
				frames[i] = packet.NewFrame(nil)
			}
			before := processorTime(b)
			for n := 0; n < b.N; n += len(frames) {
				for i, f := range frames {
					f.Set(data[(n+i)%len(data)])
				}
				r.In(frames)
			}
			b.ReportMetric(float64(b.N)/1e6/(processorTime(b)-before).Seconds(), "Mpackets/cpu-s")
		})
	}
}

func processorTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// still is a clock that stands.
func still() time.Duration { return 1 }

// TestGaps: each direction of a flow has its own longest time between two packets of an epoch. A
// time that includes the end of an epoch does not count.
func TestGaps(t *testing.T) {
	now, clock := time.Duration(0), epoch.NewClock(0, 5)
	r := New(clock, func() time.Duration { return now })
	if err := r.Apply([]byte(`{"flows": 10}`)); err != nil {
		t.Fatal(err)
	}
	clock.Advance(6)
	tcp := frame(4, 6, false)
	at := func(ms int, pass func([]*packet.Frame)) {
		now = time.Duration(ms) * time.Millisecond
		pass([]*packet.Frame{packet.NewFrame(tcp)})
	}
	for _, ms := range []int{0, 10, 60, 70} {
		at(ms, r.Out)
	}
	for _, ms := range []int{80, 90} {
		at(ms, r.In)
	}
	clock.Advance(7)
	at(500, r.In)
	at(501, r.In)
	clock.Advance(8)
	for i, want := range [][4]uint64{{4, 2, 50_000, 10_000}, {0, 2, 0, 1000}} {
		e := uint64(6 + i)
		s := r.Seal(e).(*report)
		if f := s.Flows[0]; [4]uint64{f.Sent, f.Received, f.SentGap, f.ReceivedGap} != want {
			t.Errorf("epoch %d: %+v, want %v", e, f, want)
		}
	}
}
