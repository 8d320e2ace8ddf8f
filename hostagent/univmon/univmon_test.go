// SPDX-License-Identifier: Apache-2.0

package univmon

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/hostagent/univmon/wire"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/universal"
)

var layouts = []universal.Layout{
	{Key: flow.Dst, Levels: 4, Rows: 3, Columns: 60, Ways: 4, Slots: 4},
	{Key: flow.FiveTuple, Levels: 6, Rows: 5, Columns: 100, Ways: 2, Slots: 3},
}

func start(t testing.TB, s wire.Settings) (*Role, *epoch.Clock) {
	t.Helper()
	clock := epoch.NewClock(0, 10)
	r := New(clock)
	data, err := s.Append(nil)
	if err == nil {
		err = r.Apply(data)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r, clock
}

// udp returns a frame from port to port 53.
func udp(port uint16) *packet.Frame {
	b := append(make([]byte, 12), 8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0x66, 0xcf, 10, 0, 0, 1, 10, 0, 0, 2,
		0, 0, 0, 53, 0, 8, 0, 0)
	binary.BigEndian.PutUint16(b[34:], port)
	return packet.NewFrame(b)
}

func seal(t testing.TB, r *Role, e uint64) *wire.Report {
	t.Helper()
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

// TestEpochs: each packet is in the sketches of the epoch in which it passes, from the first whole
// one on; reports without a request are dropped and counted.
func TestEpochs(t *testing.T) {
	for _, direction := range []wire.Counter{wire.Sent, wire.Received} {
		r, clock := start(t, wire.Settings{Packets: wire.Packets{Sent: direction == wire.Sent,
			Received: direction == wire.Received}, Sketches: layouts})
		pass := func(n int) {
			for i := range n {
				r.Out([]*packet.Frame{udp(uint16(i))})
				r.In([]*packet.Frame{udp(uint16(i))})
			}
		}
		pass(3)
		if clock.Advance(11); r.Seal(10) != nil {
			t.Error("the epoch in which settings arrived has a report")
		}
		for e := uint64(11); e < 18; e++ {
			clock.Advance(e)
			pass(int(e))
		}
		for _, c := range []struct{ epoch, packets, dropped uint64 }{{14, 14, 3}, {15, 15, 0}, {17, 17, 1}, {18, 0, 0}} {
			clock.Advance(c.epoch + 1)
			got := seal(t, r, c.epoch)
			want, err := universal.New(layouts[1])
			if err != nil {
				t.Fatal(err)
			}
			for i := range c.packets {
				k := flow.Key{Proto: 17, SrcPort: uint16(i), DstPort: 53, Mask: flow.FiveTuple}
				copy(k.Src[:], []byte{10, 0, 0, 1})
				copy(k.Dst[:], []byte{10, 0, 0, 2})
				want.Update(&k)
			}
			s := got.Sketches[1]
			if got.Epoch != c.epoch || got.Counters[direction] != c.packets || got.Counters[wire.Missed] != c.dropped ||
				!slices.Equal(s.Counters(), want.Counters()) || !slices.Equal(s.Heavy(), want.Heavy()) ||
				!slices.Equal(s.Packets(), want.Packets()) {
				t.Errorf("%v, epoch %d: counters %v; expected %d packets, %d dropped", direction, c.epoch, got.Counters,
					c.packets, c.dropped)
			}
		}
		if r.Seal(17) != nil || r.Seal(19) != nil {
			t.Error("an epoch was reported twice, or before it was over")
		}
	}
}

// TestReasons: packets that are in no sketch are counted by reason.
func TestReasons(t *testing.T) {
	r, clock := start(t, wire.Settings{Packets: wire.Packets{Sent: true}, Sketches: layouts})
	clock.Advance(11)
	good := udp(1).Bytes()
	change := func(at int, to byte) []byte {
		b := slices.Clone(good)
		b[at] = to
		return b
	}
	for _, c := range []struct {
		counter wire.Counter
		frame   []byte
	}{
		{wire.NotIP, change(13, 6)}, {wire.Truncated, good[:37]}, {wire.Truncated, good[:13]},
		{wire.BadVersion, change(14, 0x65)}, {wire.BadLength, change(14, 0x44)}, {wire.BadChecksum, change(22, 63)},
	} {
		before := r.current.Counters[c.counter]
		if r.Out([]*packet.Frame{packet.NewFrame(c.frame)}); r.current.Counters[c.counter] != before+1 {
			t.Errorf("% x is not counted as %v: %v", c.frame, c.counter, r.current.Counters)
		}
	}
	clock.Advance(12)
	if got := seal(t, r, 11); got.Counters[wire.Sent] != 6 || slices.Max(got.Sketches[0].Packets()) > 0 {
		t.Errorf("counters %v, packets %v", got.Counters, got.Sketches[0].Packets())
	}
}

// TestSettings: invalid settings are refused, and those in force stay.
func TestSettings(t *testing.T) {
	r, _ := start(t, wire.Settings{Packets: wire.Packets{Sent: true}, Sketches: layouts})
	before, sent := r.settings, wire.Packets{Sent: true}
	for _, s := range []wire.Settings{
		{Sketches: layouts}, {Packets: sent}, {Packets: sent, Sketches: append(layouts, layouts[0])},
		{Packets: sent, Sketches: []universal.Layout{{Key: flow.Src, Levels: 99}}},
		{Packets: sent, Sketches: []universal.Layout{{Key: flow.Src, Levels: 16, Rows: 5, Columns: 1 << 20, Ways: 4,
			Slots: 1}}},
		{Packets: wire.Packets{Sent: true, Encapsulation: "iner"}, Sketches: layouts},
	} {
		data, err := s.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Apply(data); err == nil || r.settings != before {
			t.Errorf("%s are accepted", data)
		}
	}
}

// FuzzReport: what is accepted as a report is encoded as the same report again.
func FuzzReport(f *testing.F) {
	r, clock := start(f, wire.Settings{Packets: wire.Packets{Sent: true}, Sketches: layouts})
	clock.Advance(11)
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		r.Out([]*packet.Frame{udp(uint16(random.IntN(9)))})
	}
	clock.Advance(12)
	f.Add(r.Seal(11).Append(nil))
	f.Add(r.empty(3).Append(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		first, err := wire.ParseReport(data)
		if err != nil {
			return
		}
		second, err := wire.ParseReport(first.Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range first.Sketches {
			o := second.Sketches[i]
			if s.Layout() != o.Layout() || !slices.Equal(s.Counters(), o.Counters()) || !slices.Equal(s.Heavy(), o.Heavy()) {
				t.Errorf("sketch %d differs", i)
			}
		}
		if first.Epoch != second.Epoch || first.Packets != second.Packets || first.Counters != second.Counters {
			t.Errorf("%v and %v", first, second)
		}
	})
}
