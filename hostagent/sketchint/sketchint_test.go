// SPDX-License-Identifier: Apache-2.0

package sketchint

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/inband"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/hostagent/role"
	"github.com/netsketch/netsketch/hostagent/sketchint/wire"
	"github.com/netsketch/netsketch/internal/test/inbandtest"
	"github.com/netsketch/netsketch/sketch/flow"
)

const dscp = 0x17

func defaults() *wire.Settings {
	return &wire.Settings{Marks: inband.Marks{DSCP: dscp, DSCPMask: 0x3f}, Interval: 1, Flows: 1 << 16, Latencies: 1 << 19,
		Heavy: 100, HeavyFlows: 16, Inflation: 5, InflatedFlows: 16}
}

// start returns a role with settings, in epoch 10.
func start(t testing.TB, s *wire.Settings) (*Role, *epoch.Clock) {
	t.Helper()
	clock := epoch.NewClock(0, 9)
	r := New(clock)
	data, err := s.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Apply(data); err != nil {
		t.Fatal(err)
	}
	clock.Advance(10)
	return r, clock
}

// sent is packet of a flow by its number.
func sent(number int) inbandtest.Sent {
	return inbandtest.Sent{Src: netip.AddrFrom4([4]byte{10, 0, byte(number >> 8), byte(number)}),
		Dst: netip.MustParseAddr("10.9.9.9"), Proto: 17, SrcPort: 1000, DstPort: 80, Payload: []byte("data")}
}

// with returns a frame of a flow with INT, the latest hop first: node and latency of each.
func with(number int, stack ...uint32) []byte {
	i := inbandtest.INT{Version: 2, HopWords: 2, Remaining: 3, Instructions: 0xa000, Stack: stack}
	m := i.Mark(sent(number), dscp)
	return m.Frame()
}

func key(t testing.TB, number int) flow.Key {
	s := sent(number)
	k, err := flow.New(s.Src, s.Dst, s.Proto, s.SrcPort, s.DstPort)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func frames(data ...[]byte) (out []*packet.Frame) {
	for _, b := range data {
		out = append(out, packet.NewFrame(b))
	}
	return out
}

// seal seals an epoch and returns its report as the plugin reads it.
func seal(t testing.TB, r *Role, e uint64) *wire.Report {
	t.Helper()
	sealed := r.Seal(e)
	if sealed == nil {
		t.Fatalf("no report of epoch %d", e)
	}
	report, err := wire.ParseReport(sealed.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	sealed.Release()
	return report
}

// TestReport measures a few flows: sizes, latencies, switches, paths, and packets without INT.
func TestReport(t *testing.T) {
	s := defaults()
	s.Heavy = 3
	r, clock := start(t, s)
	plain := sent(3)
	in := frames(with(1, 72, 200, 71, 100), with(1, 72, 300, 71, 100), with(2, 73, 50), plain.Frame(),
		with(1, 72, 250, 71, 100), with(2, 73, math.MaxUint32))
	r.In(in)
	for i, number := range []int{1, 1, 2, 3, 1, 2} {
		p := sent(number)
		if !bytes.Equal(in[i].Bytes(), p.Frame()) {
			t.Errorf("packet %d: got %x\nwant %x", i, in[i].Bytes(), p.Frame())
		}
	}
	clock.Advance(11)
	got := seal(t, r, 10)
	for number, want := range []uint32{0, 3, 2, 1} {
		k := key(t, number)
		if n := got.Flows.Query(k.AppendBinary(nil)); n != want {
			t.Errorf("flow %d has %d packets; want %d", number, n, want)
		}
	}
	for _, want := range []struct {
		flow    int
		node    uint32
		packets uint32
		sum     uint64
	}{{1, 71, 3, 300}, {1, 72, 3, 750}, {2, 73, 1, 50}, {2, 71, 0, 0}} {
		k := key(t, want.flow)
		if n, sum, _ := got.Latencies.Query(wire.AppendKey(nil, &k, want.node)); n != want.packets || sum != want.sum {
			t.Errorf("flow %d at %d: %d packets, sum %d; want %+v", want.flow, want.node, n, sum, want)
		}
	}
	if want := []wire.Heavy{{Key: key(t, 1), Path: []uint32{71, 72}}}; !reflect.DeepEqual(got.Heavy, want) {
		t.Errorf("heavy flows %+v", got.Heavy)
	}
	if want := []wire.Node{{ID: 71, Packets: 3, Sum: 300, Worst: 100}, {ID: 72, Packets: 3, Sum: 750, Worst: 300},
		{ID: 73, Packets: 1, Sum: 50, Worst: 50}}; !slices.Equal(got.Nodes, want) {
		t.Errorf("nodes %+v", got.Nodes)
	}
	want := [wire.Counters]uint64{wire.Packets: 6, wire.WithINT: 5, wire.INTBytes: 3*32 + 2*24, wire.Hops: 8,
		wire.NoLatency: 1}
	if got.Counters != want || got.Problems[inband.None] != 5 || got.Problems[inband.Absent] != 1 {
		t.Errorf("counters %v, problems %v", got.Counters, got.Problems)
	}
	if got.First != 10 || got.Last != 10 {
		t.Errorf("epochs %d to %d", got.First, got.Last)
	}
}

// TestCacheIsExact: towers fed through the cache equal towers fed packet by packet, cell by cell,
// with more flows than the cache has, in IPv4 and IPv6, and with paths longer than it holds.
func TestCacheIsExact(t *testing.T) {
	s := defaults()
	s.Heavy, s.HeavyFlows = 1<<31, 0
	r, clock := start(t, s)
	flows, latencies, err := s.NewTowers()
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	var in []*packet.Frame
	for range 20_000 {
		number := int(rnd.ExpFloat64() * 1500)
		hops := 1 + number%11
		var stack []uint32
		from := sent(number)
		if number%5 == 0 {
			from.Src, from.Dst = netip.AddrFrom16(from.Src.As16()), netip.AddrFrom16(from.Dst.As16())
		}
		k, err := flow.New(from.Src, from.Dst, from.Proto, from.SrcPort, from.DstPort)
		if err != nil {
			t.Fatal(err)
		}
		flows.Insert(k.AppendBinary(nil))
		for h := range hops {
			node, latency := uint32(h), rnd.Uint32N(1000)
			stack = append(stack, node, latency)
			latencies.Insert(wire.AppendKey(nil, &k, node), latency)
		}
		i := inbandtest.INT{Version: 2, HopWords: 2, Remaining: 3, Instructions: 0xa000, Stack: stack}
		m := i.Mark(from, dscp)
		if in = append(in, packet.NewFrame(m.Frame())); len(in) == 50 {
			r.In(in)
			in = in[:0]
		}
	}
	clock.Advance(11)
	got := seal(t, r, 10)
	equal(t, "flows", got.Flows, flows)
	equal(t, "latencies", got.Latencies, latencies)
	packets := uint64(0)
	for _, n := range got.Nodes {
		packets += n.Packets
	}
	if packets != got.Counters[wire.Hops] {
		t.Errorf("%d packets at switches; %d hops", packets, got.Counters[wire.Hops])
	}
}

func equal(t *testing.T, name string, got, want interface{ MarshalBinary() ([]byte, error) }) {
	t.Helper()
	a, errA := got.MarshalBinary()
	b, errB := want.MarshalBinary()
	if errA != nil || errB != nil || !bytes.Equal(a, b) {
		t.Errorf("%s differ (%v, %v)", name, errA, errB)
	}
}

// TestInflated: a latency beyond five times the mean of its flow at its switch is inflated, and the
// others are not.
func TestInflated(t *testing.T) {
	s := defaults()
	s.InflatedFlows = 2
	r, clock := start(t, s)
	for range 100 {
		r.In(frames(with(1, 72, 1000, 71, 10), with(2, 72, 1000), with(3, 72, 1000)))
	}
	r.In(frames(with(1, 72, 4000, 71, 90), with(1, 72, 6000, 71, 60), with(2, 72, 4000), with(3, 72, 9000)))
	clock.Advance(11)
	got := seal(t, r, 10)
	want := []wire.Inflated{{Key: key(t, 1), Node: 71, Packets: 2, Worst: 90},
		{Key: key(t, 1), Node: 72, Packets: 1, Worst: 6000}}
	if !slices.Equal(got.Inflated, want) || got.Counters[wire.InflatedFull] != 1 {
		t.Errorf("%+v, %d without room", got.Inflated, got.Counters[wire.InflatedFull])
	}
}

// TestInflatedEarlyAndFew: the first packets of a flow can be inflated, and those of a flow of
// fewer than six packets. A latency is no longer inflated if the mean of the interval shows that
// the packets before it were the exception.
func TestInflatedEarlyAndFew(t *testing.T) {
	r, clock := start(t, defaults())
	r.In(frames(with(1, 72, 100), with(1, 72, 100), with(1, 72, 600))) // few
	r.In(frames(with(2, 72, 6000), with(2, 72, 1000), with(2, 72, 1000)))
	r.In(frames(with(3, 72, 100), with(3, 72, 600))) // the first packet of the flow is the exception
	for range 50 {
		r.In(frames(with(3, 72, 600)))
	}
	r.In(frames(with(4, 72, 100), with(4, 72, 500))) // exactly the multiple
	r.In(frames(with(5, 72, 100)))
	clock.Advance(11)
	got := seal(t, r, 10)
	want := []wire.Inflated{{Key: key(t, 1), Node: 72, Packets: 1, Worst: 600},
		{Key: key(t, 2), Node: 72, Packets: 1, Worst: 6000}}
	if !slices.Equal(got.Inflated, want) {
		t.Errorf("%+v", got.Inflated)
	}
}

// TestInflatedPackets: each latency is compared with the mean before it.
func TestInflatedPackets(t *testing.T) {
	r, clock := start(t, defaults())
	r.In(frames(with(1, 72, 100), with(1, 72, 100), with(1, 72, 600)))
	for range 50 {
		r.In(frames(with(1, 72, 100)))
	}
	r.In(frames(with(1, 72, 600)))
	clock.Advance(11)
	got := seal(t, r, 10)
	if want := []wire.Inflated{{Key: key(t, 1), Node: 72, Packets: 2, Worst: 600}}; !slices.Equal(got.Inflated, want) {
		t.Errorf("%+v", got.Inflated)
	}
}

// TestInflatedNoMore: a flow outside of the cache whose mean rises is judged by its final mean.
func TestInflatedNoMore(t *testing.T) {
	r, clock := start(t, defaults())
	long := func(latency uint32) []byte { return with(1, inbandtest.Hops(cachedHops+1, 71, latency)...) }
	r.In(frames(long(100)))
	for range 50 {
		r.In(frames(long(600)))
	}
	clock.Advance(11)
	if got := seal(t, r, 10); len(got.Inflated) > 0 {
		t.Errorf("%+v", got.Inflated)
	}
}

// TestInflatedBesideOthers: a cached flow is judged by its own packets, although it shares all
// buckets of the tower with another one.
func TestInflatedBesideOthers(t *testing.T) {
	s := defaults()
	s.Latencies = 24
	r, clock := start(t, s)
	for range 20 {
		r.In(frames(with(1, 72, 100)))
	}
	r.In(frames(with(1, 72, 600)))
	for range 1000 {
		r.In(frames(with(2, 72, 5000)))
	}
	clock.Advance(11)
	got := seal(t, r, 10)
	if want := []wire.Inflated{{Key: key(t, 1), Node: 72, Packets: 1, Worst: 600}}; !slices.Equal(got.Inflated, want) {
		t.Errorf("%+v", got.Inflated)
	}
	if want := []wire.Node{{ID: 72, Packets: 1021, Sum: 5_002_600, Worst: 5000}}; !slices.Equal(got.Nodes, want) {
		t.Errorf("%+v", got.Nodes)
	}
}

// TestEarlierOfOtherSettings: other settings do not compare with an interval of the settings
// before.
func TestEarlierOfOtherSettings(t *testing.T) {
	s := defaults()
	r, clock := start(t, s)
	r.In(frames(with(1, 72, 100), with(1, 72, 100)))
	clock.Advance(11)
	seal(t, r, 10)
	s.Heavy++
	data, err := s.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Apply(data); err != nil {
		t.Fatal(err)
	}
	clock.Advance(12)
	r.In(frames(with(1, 72, 600)))
	clock.Advance(13)
	if got := seal(t, r, 12); len(got.Inflated) > 0 {
		t.Errorf("%+v", got.Inflated)
	}
}

// TestAtLeast: the fewest packets beyond a limit follow from the sum and the worst one.
func TestAtLeast(t *testing.T) {
	for _, tc := range []struct {
		packets     uint32
		sum         uint64
		worst       uint32
		limit       float64
		wantAtLeast uint32
	}{{4, 40, 20, 10, 1}, {4, 45, 20, 10, 1}, {4, 55, 20, 10, 2}, {4, 80, 20, 10, 4}, {4, 21, 20, 10, 1}} {
		if n := atLeast(tc.packets, tc.sum, tc.worst, tc.limit); n != tc.wantAtLeast {
			t.Errorf("%+v: %d", tc, n)
		}
	}
}

// TestWorstOfNode: a node has the worst latency of all flows, in whatever order they leave the
// cache, and an interval leaves no trace of its flows in the cache.
func TestWorstOfNode(t *testing.T) {
	r, clock := start(t, defaults())
	for number := range 50 {
		latency := uint32(10)
		if number == 25 {
			latency = 30
		}
		r.In(frames(with(number, 72, latency)))
	}
	clock.Advance(11)
	if got := seal(t, r, 10); len(got.Nodes) != 1 || got.Nodes[0].Worst != 30 {
		t.Errorf("%+v", got.Nodes)
	}
	for _, g := range r.free {
		for at := range g.sets {
			if g.sets[at].seen != [ways]uint32{} {
				t.Fatalf("set %d: %v", at, g.sets[at].seen)
			}
		}
	}
}

// TestInflatedOutsideOfTheCache: paths that are not cached, and flows that left the cache, are
// judged by the tower.
func TestInflatedOutsideOfTheCache(t *testing.T) {
	r, clock := start(t, defaults())
	long := func(latency uint32) []byte { return with(1, inbandtest.Hops(cachedHops+1, 71, latency)...) }
	for range 3 {
		r.In(frames(long(100), with(2, 72, 100)))
	}
	r.In(frames(long(600), with(2, 72, 600)))
	for number := 10; number < 10+4*sets*ways; number++ {
		r.In(frames(with(number, 90, 100), with(number, 90, 100)))
	}
	r.In(frames(with(2, 72, 100)))
	clock.Advance(11)
	got := seal(t, r, 10)
	var want []wire.Inflated
	for node := range uint32(cachedHops + 1) {
		want = append(want, wire.Inflated{Key: key(t, 1), Node: 71 + node, Packets: 1, Worst: 600 + node})
	}
	want = append(want, wire.Inflated{Key: key(t, 2), Node: 72, Packets: 1, Worst: 600})
	if !slices.Equal(got.Inflated, want) {
		t.Errorf("%+v", got.Inflated)
	}
}

// TestInflatedSinceEarlier: the mean of an earlier interval judges a flow whose queue is full in
// all of the next one, and a flow of one packet. How many packets are inflated at least follows
// from their sum.
func TestInflatedSinceEarlier(t *testing.T) {
	r, clock := start(t, defaults())
	for range 10 {
		r.In(frames(with(1, 72, 100, 71, 100), with(2, 72, 100), with(3, 72, 100)))
	}
	clock.Advance(11)
	if got := seal(t, r, 10); len(got.Inflated) > 0 {
		t.Errorf("%+v", got.Inflated)
	}
	for range 10 {
		r.In(frames(with(1, 72, 600, 71, 100), with(3, 72, 500)))
	}
	for range 10 { // another path through the same switch
		r.In(frames(with(1, 72, 600, 70, 100)))
	}
	r.In(frames(with(2, 72, 600), with(4, 72, 600)))
	clock.Advance(12)
	got := seal(t, r, 11)
	want := []wire.Inflated{{Key: key(t, 1), Node: 72, Packets: 10, Worst: 600},
		{Key: key(t, 2), Node: 72, Packets: 1, Worst: 600}}
	if !slices.Equal(got.Inflated, want) {
		t.Errorf("%+v", got.Inflated)
	}
}

// TestPaths: the packets of a flow count together on all of its paths, and each change of the path
// of a heavy flow is counted. Packets without INT, or of which hops are missing, change no path.
func TestPaths(t *testing.T) {
	r, clock := start(t, defaults()) // heavy from 100 packets on
	for range 90 {
		r.In(frames(with(1, 72, 1, 71, 1)))
	}
	for range 90 {
		r.In(frames(with(1, 73, 1, 71, 1)))
	}
	for range 90 {
		r.In(frames(with(1, 74, 1, 71, 1)))
	}
	for range 10_000 {
		r.In(frames(with(2, 72, 1, 71, 1)))
	}
	plain := sent(2)
	cut := inbandtest.INT{Version: 2, Flags: 0x02, HopWords: 2, Remaining: 3, Instructions: 0xa000, Stack: []uint32{71, 1}}
	marked := cut.Mark(sent(2), dscp)
	cut.Flags = 0x04
	limited := cut.Mark(sent(2), dscp)
	for range 200 {
		r.In(frames(with(2, 73, 1, 71, 1), plain.Frame(), marked.Frame(), limited.Frame()))
	}
	for range 150 {
		r.In(frames(with(3, 72, 1), with(3, 73, 1)))
	}
	for range 99 {
		r.In(frames(with(4, 72, 1), plain.Frame()))
	}
	clock.Advance(11)
	got := seal(t, r, 10)
	want := []wire.Heavy{{Key: key(t, 1), Path: []uint32{71, 74}, Changes: 2},
		{Key: key(t, 2), Path: []uint32{71, 73}, Changes: 1}, {Key: key(t, 3), Path: []uint32{73}, Changes: 299}}
	if !reflect.DeepEqual(got.Heavy, want) {
		t.Errorf("%+v", got.Heavy)
	}
	for number, size := range []uint32{1: 270, 2: 10_000 + 4*200 + 99, 3: 300} {
		k := key(t, number)
		if n := got.Flows.Query(k.AppendBinary(nil)); n != size {
			t.Errorf("flow %d has %d packets; want %d", number, n, size)
		}
	}
	for _, want := range []struct {
		flow    int
		node    uint32
		packets uint32
	}{{1, 71, 270}, {1, 73, 90}, {2, 71, 10_600}, {2, 73, 200}, {3, 72, 150}} {
		k := key(t, want.flow)
		if n, _, _ := got.Latencies.Query(wire.AppendKey(nil, &k, want.node)); n != want.packets {
			t.Errorf("flow %d at %d: %d packets; want %d", want.flow, want.node, n, want.packets)
		}
	}
}

// TestPathIsKnownLater: a flow that is heavy before its first packet with a path gets the path.
func TestPathIsKnownLater(t *testing.T) {
	r, clock := start(t, defaults())
	plain := sent(1)
	for range 150 {
		r.In(frames(plain.Frame()))
	}
	r.In(frames(with(1, 72, 1), plain.Frame()))
	long := inbandtest.Hops(cachedHops+1, 71, 5)
	plain = sent(2)
	r.In(frames(with(2, long...)))
	for range 150 {
		r.In(frames(plain.Frame()))
	}
	r.In(frames(with(2, long...), with(2, long...)))
	clock.Advance(11)
	got := seal(t, r, 10)
	want := []wire.Heavy{{Key: key(t, 1), Path: []uint32{72}},
		{Key: key(t, 2), Path: []uint32{71, 72, 73, 74, 75, 76, 77}}}
	if !reflect.DeepEqual(got.Heavy, want) {
		t.Errorf("%+v", got.Heavy)
	}
}

// TestHeavyTable: a full table counts what it has no room for, and a flow whose path changes has
// its latest path.
func TestHeavyTable(t *testing.T) {
	s := defaults()
	s.Heavy, s.HeavyFlows = 2, 2
	r, clock := start(t, s)
	for range 2 {
		r.In(frames(with(1, 72, 1, 71, 1), with(2, 72, 1), with(3, 72, 1)))
	}
	r.In(frames(with(1, 73, 1, 71, 1)))
	clock.Advance(11)
	got := seal(t, r, 10)
	want := []wire.Heavy{{Key: key(t, 1), Path: []uint32{71, 72}}, {Key: key(t, 2), Path: []uint32{72}}}
	if len(got.Heavy) != 2 || got.Counters[wire.HeavyFull] == 0 {
		t.Fatalf("%+v, %d without room", got.Heavy, got.Counters[wire.HeavyFull])
	}
	if !reflect.DeepEqual(got.Heavy, want) {
		want[0].Path, want[0].Changes = []uint32{71, 73}, 1
		if !reflect.DeepEqual(got.Heavy, want) {
			t.Errorf("%+v", got.Heavy)
		}
	}
}

// TestIntervals: with intervals of five epochs, reports within an interval are empty, an epoch that
// has not ended or was sealed before has no report, and an interval that was not requested is
// counted.
func TestIntervals(t *testing.T) {
	s := defaults()
	s.Interval = 5
	r, clock := start(t, s)
	r.In(frames(with(1, 72, 1)))
	clock.Advance(13)
	r.In(frames(with(1, 72, 1)))
	if got := seal(t, r, 12); got.Last != 0 || got.First != 12 {
		t.Errorf("within an interval: %+v", got)
	}
	if r.Seal(13) != nil {
		t.Error("a report of the current epoch")
	}
	clock.Advance(15)
	r.In(frames(with(1, 72, 1)))
	got := seal(t, r, 14)
	k := key(t, 1)
	if n := got.Flows.Query(k.AppendBinary(nil)); n != 2 || got.First != 10 || got.Last != 14 {
		t.Errorf("%d packets in epochs %d to %d; want 2 in 10 to 14", n, got.First, got.Last)
	}
	if r.Seal(14) != nil {
		t.Error("a second report of an epoch")
	}
	clock.Advance(20)
	r.In(frames(with(1, 72, 1)))
	clock.Advance(25)
	got = seal(t, r, 24)
	if n := got.Flows.Query(k.AppendBinary(nil)); n != 1 || got.Counters[wire.Missed] != 1 {
		t.Errorf("%d packets, %d intervals dropped; want 1 and 1", n, got.Counters[wire.Missed])
	}
	clock.Advance(30)
	got = seal(t, r, 29)
	if n := got.Flows.Query(k.AppendBinary(nil)); n != 0 || got.Last != 29 || got.Counters[wire.Packets] != 0 {
		t.Errorf("an interval without packets: %+v", got)
	}
}

// TestSettings: bad settings leave the previous ones in force, and without settings packets pass
// unchanged.
func TestSettings(t *testing.T) {
	r := New(epoch.NewClock(0, 1))
	in := frames(with(1, 72, 1))
	if r.In(in); !bytes.Equal(in[0].Bytes(), with(1, 72, 1)) || r.Seal(0) != nil {
		t.Error("the role measures without settings")
	}
	r, _ = start(t, defaults())
	for _, bad := range []string{"", "{", `{"interval":0,"heavy":1,"inflation":5,"flows":1000,"latencies":1000}`,
		`{"interval":1,"heavy":0,"inflation":5,"flows":1000,"latencies":1000}`,
		`{"interval":1,"heavy":1,"inflation":0,"flows":1000,"latencies":1000}`,
		`{"interval":1,"heavy":1,"inflation":4097,"flows":1000,"latencies":1000}`,
		`{"interval":1,"heavy":1,"inflation":5,"flows":1,"latencies":1000}`,
		`{"interval":1,"heavy":1,"inflation":5,"flows":1000,"latencies":1}`,
		`{"interval":1,"heavy":1,"inflation":5,"flows":1000,"latencies":1000,"heavyFlows":-1}`,
		`{"interval":1,"heavy":1,"inflation":5,"flows":1000,"latencies":1000,"inflatedFlows":99999999}`,
		`{"interval":1,"heavy":1,"inflation":5,"flows":1000,"latencies":1000,"marks":{"sourceOnly":[{"words":-1}]}}`} {
		if r.Apply([]byte(bad)) == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
	if r.In(in); bytes.Equal(in[0].Bytes(), with(1, 72, 1)) {
		t.Error("the previous settings are not in force")
	}
}

// TestBadPackets: every fault is counted, and no packet is lost.
func TestBadPackets(t *testing.T) {
	r, clock := start(t, defaults())
	version, fragment, hops := with(1, 72, 1), with(1, 72, 1), with(1, inbandtest.Hops(65, 1, 1)...)
	version[14+20+8+4] = 0x50
	fragment[14+6] = 0x20
	limit := inbandtest.INT{Version: 2, Flags: 0x0e, HopWords: 3, Instructions: 0xa002, Stack: []uint32{72, 1, 9}}
	flags := limit.Mark(sent(1), dscp)
	none := inbandtest.INT{Version: 2, HopWords: 2, Instructions: 0xa000, Stack: []uint32{72, 1}}
	remaining := none.Mark(sent(1), dscp)
	r.In(frames(version, fragment, hops, flags.Frame(), remaining.Frame(), []byte{1, 2, 3}, make([]byte, 60)))
	clock.Advance(11)
	got := seal(t, r, 10)
	wantProblems := [inband.Problems]uint64{inband.None: 2, inband.UnknownVersion: 1, inband.Fragment: 1,
		inband.TooManyHops: 1, inband.Malformed: 1, inband.NotIP: 1}
	want := [wire.Counters]uint64{wire.Packets: 5, wire.WithINT: 4, wire.INTBytes: 24 + 16 + 65*8 + 28 + 24, wire.Hops: 2,
		wire.Copies: 1, wire.MTUExceeded: 1, wire.HopLimit: 2, wire.UnknownInstruct: 1}
	from := sent(1).Src
	faults := []wire.Fault{{Address: from, Problem: inband.Fragment, Packets: 1},
		{Address: from, Problem: inband.UnknownVersion, Packets: 1}, {Address: from, Problem: inband.TooManyHops, Packets: 1}}
	if !slices.Equal(got.Faults, faults) {
		t.Errorf("faults %v", got.Faults)
	}
	if got.Problems != wantProblems || got.Counters != want || got.Versions[5] != 1 {
		t.Errorf("problems %v\nwant     %v\ncounters %v\nwant     %v\nversions %v", got.Problems, wantProblems, got.Counters,
			want, got.Versions)
	}
}

// TestFaults: the table of faults is bounded, and what it has no room for is counted.
func TestFaults(t *testing.T) {
	r, clock := start(t, defaults())
	for i := range wire.MaxFaults + 3 {
		f := with(i, 72, 1)
		f[14+6] = 0x20 // a fragment
		r.In(frames(f, f))
	}
	clock.Advance(11)
	got := seal(t, r, 10)
	if len(got.Faults) != wire.MaxFaults || got.Counters[wire.FaultsFull] != 2*3 || got.Faults[7].Packets != 2 {
		t.Errorf("%d faults, %d without room", len(got.Faults), got.Counters[wire.FaultsFull])
	}
}

// TestFloodOfFlows: of more flows than the cache and the tables hold, every packet counts at its
// switch, and so does what the tables have no room for.
func TestFloodOfFlows(t *testing.T) {
	const flows = sets*ways + 5000
	s := defaults()
	s.Heavy = 1
	r, clock := start(t, s)
	for number := range flows {
		r.In(frames(with(number, 72, 5)))
	}
	r.In(frames(with(0, 72, 5)))
	clock.Advance(11)
	got := seal(t, r, 10)
	if len(got.Nodes) != 1 || got.Nodes[0].Packets != flows+1 || got.Nodes[0].Sum != 5*(flows+1) {
		t.Errorf("%+v; want %d packets", got.Nodes, flows+1)
	}
	if got.Counters[wire.Packets] != flows+1 || len(got.Heavy) != s.HeavyFlows ||
		got.Counters[wire.HeavyFull] != uint64(flows-s.HeavyFlows) {
		t.Errorf("%d heavy flows, %v", len(got.Heavy), got.Counters)
	}
	if k := key(t, 0); got.Flows.Query(k.AppendBinary(nil)) < 2 {
		t.Error("a packet of the first flow is lost")
	}
}

// TestFloods: packets that name any number of switches, and reports of any number of senders, fill
// tables of a fixed size, and what these have no room for is counted.
func TestFloods(t *testing.T) {
	r, clock := start(t, defaults())
	for first := uint32(1); first <= maxNodes+1; first += inband.MaxHops {
		r.In(frames(with(1, inbandtest.Hops(inband.MaxHops, first, 1)...)))
	}
	p := sent(1)
	ip := p.IP()
	for node := range uint32(maxSources + 3) {
		r.Receive([]role.Datagram{{From: p.Src, Payload: datagram(1, node, 0xa0, 5, ip[:len(ip)/4*4])}})
	}
	clock.Advance(11)
	got := seal(t, r, 10)
	if len(got.Nodes) != maxNodes || got.Counters[wire.NodesFull] == 0 || len(got.Sources) != maxSources ||
		got.Counters[wire.SourcesFull] != 3 {
		t.Errorf("%d nodes, %d senders; %v", len(got.Nodes), len(got.Sources), got.Counters)
	}
}

// datagram is a telemetry report of version 2.0 about a packet.
func datagram(sequence, node uint32, flags byte, latency uint32, ip []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, 2<<28|sequence)
	b = binary.BigEndian.AppendUint32(b, node)
	b = append(b, 0x14, byte(3+len(ip)/4), 1, flags, 0x20, 0, 0, 0, 0, 0, 0, 0)
	return append(binary.BigEndian.AppendUint32(b, latency), ip...)
}

// TestReceive: reports of a sink with the metadata of earlier hops, reports of single switches, and
// a dropped packet; sequence numbers with a gap, a late datagram, a wrap and a restart.
func TestReceive(t *testing.T) {
	s := defaults()
	s.Heavy = 1
	r, clock := start(t, s)
	i := inbandtest.INT{Version: 2, HopWords: 2, Remaining: 3, Instructions: 0xa000, Stack: []uint32{72, 20, 71, 10}}
	m, p1, p2 := i.Mark(sent(1), dscp), sent(1), sent(2)
	cut := func(b []byte) []byte { return b[:len(b)/4*4] }
	from, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	const top = 1<<22 - 1
	r.Receive([]role.Datagram{
		{From: from, Payload: datagram(top-1, 73, 0x20, 30, cut(m.IP()))}, // sink
		{From: from, Payload: datagram(0, 73, 0x20, 30, cut(m.IP()))},     // after a gap of one
		{From: from, Payload: datagram(3, 73, 0x20, 30, cut(m.IP()))},     // after a gap of two
		{From: from, Payload: datagram(2, 73, 0x20, 30, cut(m.IP()))},     // late
		{From: other, Payload: datagram(9, 74, 0x20, 5, cut(p2.IP()))},    // a switch for itself
		{From: other, Payload: datagram(1<<20, 74, 0xa0, 5, cut(p1.IP()))},
		{From: other, Payload: datagram(10, 74, 0x20, 5, cut(p2.IP()))}, // restarted
		{From: other, Payload: []byte{0x70, 1, 2, 3}},
	})
	clock.Advance(11)
	got := seal(t, r, 10)
	k1, k2 := key(t, 1), key(t, 2)
	if n, m := got.Flows.Query(k1.AppendBinary(nil)), got.Flows.Query(k2.AppendBinary(nil)); n != 4 || m != 0 {
		t.Errorf("%d and %d packets; want 4 of the sink and none of a switch", n, m)
	}
	for _, want := range []struct {
		k       flow.Key
		node    uint32
		packets uint32
		sum     uint64
	}{{k1, 71, 4, 40}, {k1, 72, 4, 80}, {k1, 73, 4, 120}, {k2, 74, 2, 10}, {k1, 74, 1, 5}} {
		if n, sum, _ := got.Latencies.Query(wire.AppendKey(nil, &want.k, want.node)); n != want.packets || sum != want.sum {
			t.Errorf("%v at %d: %d packets, sum %d", want, want.node, n, sum)
		}
	}
	if want := []wire.Heavy{{Key: k1, Path: []uint32{71, 72, 73}}}; !reflect.DeepEqual(got.Heavy, want) {
		t.Errorf("%+v", got.Heavy)
	}
	wantSources := []wire.Source{{Address: from, Node: 73, Received: 4, Lost: 2, Late: 1},
		{Address: other, Node: 74, Received: 3, Lost: 1<<20 - 10, Restarts: 1}}
	if !slices.Equal(got.Sources, wantSources) {
		t.Errorf("%+v", got.Sources)
	}
	if got.Counters[wire.Reports] != 7 || got.Counters[wire.Drops] != 1 || got.Nodes[3].Drops != 1 ||
		got.Problems[inband.UnknownVersion] != 1 || got.Versions[7] != 1 {
		t.Errorf("%v, %v, %v", got.Counters, got.Problems, got.Nodes)
	}
	faults := []wire.Fault{{Address: other, Problem: inband.UnknownVersion, Packets: 1}}
	if !slices.Equal(got.Faults, faults) {
		t.Errorf("faults %v", got.Faults)
	}
}

// TestLanes: several goroutines measure while epochs are sealed. No packet is lost or counted
// twice.
func TestLanes(t *testing.T) {
	const lanes, batches, size = 4, 200, 16
	s := defaults()
	r, clock := start(t, s)
	var work sync.WaitGroup
	running := make(chan struct{})
	for lane := range lanes {
		l := r.Lane()
		work.Go(func() {
			in := make([]*packet.Frame, size)
			for range batches {
				for i := range in {
					in[i] = packet.NewFrame(with(lane*100+i, 72, 5, 71, 7))
				}
				l.In(in)
			}
		})
	}
	go func() { work.Wait(); close(running) }()
	flows, latencies, err := s.NewTowers()
	if err != nil {
		t.Fatal(err)
	}
	total, ended := uint64(0), false
	for e := uint64(10); !ended; e++ {
		select {
		case <-running:
			ended = true
		default:
		}
		clock.Advance(e + 1)
		got := seal(t, r, e)
		total += got.Counters[wire.Packets]
		if err := errors.Join(flows.Merge(got.Flows), latencies.Merge(got.Latencies)); err != nil {
			t.Error(err)
		}
	}
	if total != lanes*batches*size {
		t.Errorf("%d packets; want %d", total, lanes*batches*size)
	}
	for lane := range lanes {
		for i := range size {
			k := key(t, lane*100+i)
			n, sum, _ := latencies.Query(wire.AppendKey(nil, &k, 71))
			if m := flows.Query(k.AppendBinary(nil)); m != batches || n != batches || sum != 7*batches {
				t.Fatalf("flow %v has %d packets, at a switch %d with sum %d", k, m, n, sum)
			}
		}
	}
}

func TestNoAllocations(t *testing.T) {
	r, _ := start(t, defaults())
	data := make([][]byte, 64)
	for i := range data {
		data[i] = with(i, 72, 5, 71, 7)
	}
	in := frames(data...)
	if n := testing.AllocsPerRun(20, func() {
		for i, f := range in {
			f.Set(data[i])
		}
		r.In(in)
	}); n != 0 {
		t.Errorf("%v allocations in a batch", n)
	}
}

// FuzzReceive measures any frame and any datagram.
func FuzzReceive(f *testing.F) {
	f.Add(with(1, 72, 5, 71, 7))
	p := sent(1)
	f.Add(datagram(1, 2, 0x20, 3, p.IP()[:28]))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, clock := start(t, &wire.Settings{Marks: defaults().Marks, Interval: 1, Flows: 1000, Latencies: 1000, Heavy: 1,
			HeavyFlows: 2, Inflation: 1, InflatedFlows: 2})
		r.In(frames(b, b))
		r.Receive([]role.Datagram{{From: netip.IPv4Unspecified(), Payload: b}, {From: netip.IPv6Unspecified(), Payload: b}})
		clock.Advance(11)
		sealed := r.Seal(10)
		if _, err := wire.ParseReport(sealed.Append(nil)); err != nil {
			t.Fatal(err)
		}
	})
}
