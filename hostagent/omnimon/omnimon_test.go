// SPDX-License-Identifier: Apache-2.0

package omnimon

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/omnimon/header"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/hostagent/role"
)

// tcpFrame returns an Ethernet frame with an IPv4 or IPv6 packet of TCP.
func tcpFrame(src, dst string, sport, dport uint16, flags byte, payload []byte) []byte {
	s, d := netip.MustParseAddr(src), netip.MustParseAddr(dst)
	f := []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2}
	if s.Is4() {
		f = append(f, 8, 0, 0x45, 0)
		f = binary.BigEndian.AppendUint16(f, uint16(40+len(payload)))
		f = append(f, 0, 0, 0, 0, 64, 6, 0, 0)
	} else {
		f = append(f, 0x86, 0xdd, 0x60, 0, 0, 0)
		f = binary.BigEndian.AppendUint16(f, uint16(20+len(payload)))
		f = append(f, 6, 64)
	}
	f = append(append(f, s.AsSlice()...), d.AsSlice()...)
	f = binary.BigEndian.AppendUint16(f, sport)
	f = binary.BigEndian.AppendUint16(f, dport)
	f = append(f, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0)
	return append(f, payload...)
}

// defaults are the settings of one of three hosts with addresses 10.0.0.1 to 10.0.0.3.
func defaults(host int) *wire.Settings {
	s := &wire.Settings{EtherType: header.DefaultEtherType, Slots: 64, SlotsPerFlow: 2, Shares: 4, Host: host,
		Flows: 1024, IngressSlots: 4096, IdleEpochs: 1000}
	for i := range byte(3) {
		s.Hosts = append(s.Hosts, []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, i + 1}),
			netip.MustParseAddr("2001:db8::").Next()})
		for range i {
			s.Hosts[i][1] = s.Hosts[i][1].Next()
		}
	}
	return s
}

func apply(t testing.TB, r *Role, s *wire.Settings) {
	t.Helper()
	data, err := s.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Apply(data); err != nil {
		t.Fatal(err)
	}
}

// rows is the content of a report: values by flow key of outgoing flows, and by source host and
// index of incoming flows.
type rows struct {
	wire.Summary
	egress  map[string]wire.Values
	index   map[string]uint32
	age     map[string]uint64
	slots   map[string][4]uint16
	ingress map[[2]int]wire.Values

	untagged map[string]wire.Untagged
}

func read(t testing.TB, g role.Report) rows {
	t.Helper()
	if g == nil {
		t.Fatal("no report")
	}
	r, err := wire.Open(g.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	out := rows{Summary: r.Summary, egress: map[string]wire.Values{}, index: map[string]uint32{},
		age: map[string]uint64{}, slots: map[string][4]uint16{}, ingress: map[[2]int]wire.Values{},
		untagged: map[string]wire.Untagged{}}
	var e wire.EgressRow
	var v wire.Values
	for r.NextEgress(&e) {
		if err := v.Decode(e.Values); err != nil {
			t.Fatal(err)
		}
		k := e.Key.String()
		out.egress[k], out.index[k], out.age[k], out.slots[k] = v, e.Index, e.Age, e.Slots
		if e.Untagged.Packets > 0 {
			out.untagged[k] = e.Untagged
		}
	}
	var in wire.IngressRow
	for {
		host, ok := r.NextHost()
		if !ok {
			break
		}
		for r.NextIngress(&in) {
			if err := v.Decode(in.Values); err != nil {
				t.Fatal(err)
			}
			out.ingress[[2]int{host, int(in.Index)}] = v
		}
	}
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	g.Release()
	return out
}

// network is a set of hosts with one clock each.
type network struct {
	t      *testing.T
	clocks []*epoch.Clock
	hosts  []*Role
	now    time.Time
}

func newNetwork(t *testing.T, change func(*wire.Settings)) *network {
	n := &network{t: t}
	for i := range 3 {
		s := defaults(i)
		if change != nil {
			change(s)
		}
		c := epoch.NewClock(time.Second, 100)
		n.clocks = append(n.clocks, c)
		n.hosts = append(n.hosts, New(c, func() time.Duration { return n.now.Sub(time.Time{}) }))
		apply(t, n.hosts[i], s)
	}
	return n
}

func (n *network) out(host int, frame []byte) *packet.Frame {
	f := packet.NewFrame(frame)
	n.hosts[host].Out([]*packet.Frame{f})
	return f
}

func (n *network) in(host int, f *packet.Frame) {
	n.hosts[host].In([]*packet.Frame{f})
}

// seal returns the report of an epoch of a host, which advances first.
func (n *network) seal(host int, e uint64) rows {
	n.t.Helper()
	n.clocks[host].Advance(e + 1)
	return read(n.t, n.hosts[host].Seal(e))
}

func TestFramesArriveUnchanged(t *testing.T) {
	n := newNetwork(t, nil)
	v4 := tcpFrame("10.0.0.1", "10.0.0.2", 1, 2, packet.SYN, []byte("data"))
	v6 := tcpFrame("2001:db8::1", "2001:db8::2", 1, 2, packet.ACK, nil)
	tagged := append(bytes.Clone(v4[:12]), append([]byte{0x81, 0, 0, 9}, v4[12:]...)...)
	for _, frame := range [][]byte{v4, v6, tagged} {
		f := n.out(0, frame)
		if len(f.Bytes()) != len(frame)+12 {
			t.Errorf("%d bytes with header, from %d", len(f.Bytes()), len(frame))
		}
		n.in(1, f)
		if !bytes.Equal(f.Bytes(), frame) {
			t.Errorf("%x arrived as %x", frame, f.Bytes())
		}
	}
	source, destination := n.seal(0, 100), n.seal(1, 100)
	want := map[string]wire.Values{
		"10.0.0.1,10.0.0.2,tcp,1,2":       {2, 88, 2}, // one of the packets has a tag
		"2001:db8::1,2001:db8::2,tcp,1,2": {1, 60, 0, 0, 0, 1, 1},
	}
	for k, v := range want {
		if source.egress[k] != v {
			t.Errorf("%s: sent %v, want %v", k, source.egress[k], v)
		}
		if got := destination.ingress[[2]int{0, int(source.index[k])}]; got != v {
			t.Errorf("%s: received %v, want %v", k, got, v)
		}
	}
	if len(source.egress) != 2 || len(destination.ingress) != 2 {
		t.Errorf("sent %v, received %v", source.egress, destination.ingress)
	}
}

func TestStatistics(t *testing.T) {
	n := newNetwork(t, func(s *wire.Settings) {
		s.Match = "zorro"
		s.Extremes = []wire.Extreme{{Field: wire.FieldLength}, {Field: wire.FieldLength, Min: true}, {Field: wire.FieldTTL}}
	})
	for _, p := range []struct {
		flags byte
		data  string
	}{
		{packet.SYN, ""}, {packet.SYN | packet.ACK, "1"}, {packet.ACK, "a zorro"}, {packet.ACK | packet.PSH, "12"},
		{packet.FIN | packet.ACK, ""}, {packet.RST, ""}, {0, "zor"},
	} {
		n.in(1, n.out(0, tcpFrame("10.0.0.1", "10.0.0.2", 1, 2, p.flags, []byte(p.data))))
	}
	want := wire.Values{7, 293, 1, 2, 1, 2, 3, 1, 47, 40, 64}
	if got := n.seal(0, 100).egress["10.0.0.1,10.0.0.2,tcp,1,2"]; got != want {
		t.Errorf("sent %v, want %v", got, want)
	}
	if got := n.seal(1, 100).ingress[[2]int{0, 0}]; got != want {
		t.Errorf("received %v, want %v", got, want)
	}
}

// TestMinimumDecreasesByDifferences: the sum of the differences that arrive is the minimum,
// although the first packet is not the smallest.
func TestMinimumDecreasesByDifferences(t *testing.T) {
	n := newNetwork(t, func(s *wire.Settings) { s.Extremes = []wire.Extreme{{Field: wire.FieldLength, Min: true}} })
	for _, size := range []int{50, 70, 20, 30, 5} {
		n.in(1, n.out(0, tcpFrame("10.0.0.1", "10.0.0.2", 1, 2, 0, make([]byte, size))))
	}
	if got := n.seal(1, 100).ingress[[2]int{0, 0}][wire.FirstExtreme]; got != 45 {
		t.Errorf("minimum of %d bytes, want 45", got)
	}
}

func TestBadInput(t *testing.T) {
	good := tcpFrame("10.0.0.1", "10.0.0.2", 1, 2, 0, nil)
	change := func(at int, v ...byte) func(*packet.Frame) {
		return func(f *packet.Frame) { copy(f.Bytes()[at:], v) }
	}
	tests := []struct {
		name  string
		frame []byte
		harm  func(*packet.Frame) // between the hosts
		out   bool                // counted at the source
		want  wire.Counter
	}{
		{"ARP", append(bytes.Clone(good[:12]), 8, 6, 0, 1), nil, true, wire.NotIP},
		{"cut frame", good[:13], nil, true, wire.Malformed},
		{"cut TCP header", good[:40], nil, true, wire.Malformed},
		{"to a host without agent", tcpFrame("10.0.0.1", "10.9.0.2", 1, 2, 0, nil), nil, true, wire.Foreign},
		{"from an address of another host", tcpFrame("10.0.0.3", "10.0.0.2", 1, 2, 0, nil), nil, true, wire.Foreign},
		{"from a host without agent", tcpFrame("10.9.0.1", "10.0.0.2", 1, 2, 0, nil), nil, false, wire.NoHeader},
		{"cut header", good, func(f *packet.Frame) { *f = *packet.NewFrame(f.Bytes()[:20]) }, false, wire.Malformed},
		{"five epochs ahead", good, change(14, 0, 105), false, wire.UnknownEpoch},
		{"five epochs behind", good, change(14, 0, 95), false, wire.Late},
		{"a reported epoch", good, change(14, 0, 96), false, wire.Late},
		{"index beyond the table", good, change(16, 0, 4, 0), false, wire.BadIndex},
		{"header from an unknown address", good, change(14+12+12, 9), false, wire.UnknownHost},
		{"EtherType behind the header", good, change(14+10, 8, 6), false, wire.Malformed},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			n := newNetwork(t, nil)
			f := n.out(0, tc.frame)
			host := 0
			if !tc.out {
				host = 1
				if tc.harm != nil {
					tc.harm(f)
				}
				n.in(1, f)
			} else if !bytes.Equal(f.Bytes(), tc.frame) {
				t.Errorf("%x left as %x", tc.frame, f.Bytes())
			}
			got := n.seal(host, 100)
			var want [wire.Counters]uint64
			want[tc.want] = 1
			if got.Counters != want {
				t.Errorf("counters %v, want one of %v", got.Counters, tc.want)
			}
			if len(got.ingress)+len(got.egress) != 0 {
				t.Errorf("rows %v %v", got.ingress, got.egress)
			}
		})
	}
}

func TestForgedIndexIsNotCounted(t *testing.T) {
	n := newNetwork(t, nil)
	n.in(1, n.out(0, tcpFrame("10.0.0.1", "10.0.0.2", 1, 2, 0, nil)))
	f := n.out(0, tcpFrame("10.0.0.1", "10.0.0.2", 3, 4, 0, nil))
	copy(f.Bytes()[16:], []byte{0, 0, 0}) // index 0 is the first flow
	n.in(1, f)
	got := n.seal(1, 100)
	if got.Counters[wire.Forged] != 1 || got.ingress[[2]int{0, 0}][wire.Packets] != 1 {
		t.Errorf("counters %v, rows %v", got.Counters, got.ingress)
	}
}

func TestFullTableIsCountedAndPasses(t *testing.T) {
	n := newNetwork(t, func(s *wire.Settings) { s.Flows, s.IngressSlots = 128, 64 })
	for i := range uint16(130) {
		frame := tcpFrame("10.0.0.1", "10.0.0.2", i, 2, 0, nil)
		f := n.out(0, frame)
		if full := i >= 128; full != bytes.Equal(f.Bytes(), frame) {
			t.Errorf("flow %d: %x left as %x", i, frame, f.Bytes())
		}
		n.in(1, f)
	}
	source, destination := n.seal(0, 100), n.seal(1, 100)
	if source.Counters[wire.Untracked] != 2 || len(source.egress) != 128 {
		t.Errorf("counters %v, %d flows", source.Counters, len(source.egress))
	}
	if destination.Counters[wire.IngressFull] != 64 || len(destination.ingress) != 64 ||
		destination.Counters[wire.NoHeader] != 2 {
		t.Errorf("counters %v, %d rows", destination.Counters, len(destination.ingress))
	}
}

// TestFlowsEnd: a flow that ended, or is idle, gives index and mapping back, after the reports of
// all its epochs.
func TestFlowsEnd(t *testing.T) {
	n := newNetwork(t, func(s *wire.Settings) { s.Flows, s.IdleEpochs = 4, 6 })
	send := func(port uint16, flags byte) {
		n.out(0, tcpFrame("10.0.0.1", "10.0.0.2", port, 2, flags, nil))
	}
	send(1, packet.SYN)
	send(1, packet.FIN)
	send(2, packet.SYN)
	send(3, packet.FIN)
	send(3, packet.SYN) // the port is used again
	n.seal(0, 100)
	role := n.hosts[0]
	if got := role.table.used(); got != 3 {
		t.Errorf("%d flows before the report was released, want 3", got)
	}
	send(3, 0)
	n.seal(0, 101)
	n.clocks[0].Advance(103)
	send(3, 0)
	if got := role.table.used(); got != 2 || role.pool.Used() != 2 {
		t.Errorf("%d flows and %d mappings after the end of one of three", got, role.pool.Used())
	}
	for e := uint64(102); e < 112; e++ {
		if g := role.Seal(e); g != nil {
			g.Release()
		}
		n.clocks[0].Advance(e + 2)
		send(3, 0)
	}
	if got := role.table.used(); got != 1 || role.pool.Used() != 1 {
		t.Errorf("%d flows and %d mappings after one was idle", got, role.pool.Used())
	}
	send(7, 0)
	rows := n.seal(0, 113)
	if rows.age["10.0.0.1,10.0.0.2,tcp,3,2"] != 13 || rows.index["10.0.0.1,10.0.0.2,tcp,7,2"] > 1 {
		t.Errorf("ages %v, indexes %v", rows.age, rows.index)
	}
}

// TestFirstEpochIsLarge: settings arrive before the agent has the collector's epoch, which has more
// than 32 bits if epochs are short and counted from 1970.
func TestFirstEpochIsLarge(t *testing.T) {
	c := epoch.NewClock(time.Second, 0)
	r := New(c, since)
	apply(t, r, defaults(0))
	const number = 5 << 32
	c.Advance(number)
	if g := r.Seal(0); g != nil {
		g.Release()
	}
	send := func(port uint16) {
		r.Out([]*packet.Frame{packet.NewFrame(tcpFrame("10.0.0.1", "10.0.0.2", port, 2, packet.FIN, nil))})
	}
	send(1)
	c.Advance(number + 2)
	send(2)
	report := read(t, r.Seal(number))
	if len(report.egress) != 1 || report.index["10.0.0.1,10.0.0.2,tcp,1,2"] != 0 || r.table.used() != 2 {
		t.Errorf("flows %v, %d in the table", report.index, r.table.used())
	}
}

// TestEpochMovesByFour: a packet that is on its way while another host's clock moves the epoch by
// four is in the report of its epoch, which has not been requested.
func TestEpochMovesByFour(t *testing.T) {
	n := newNetwork(t, nil)
	f := n.out(0, tcpFrame("10.0.0.1", "10.0.0.2", 1, 2, 0, nil))
	n.clocks[1].Advance(104)
	n.in(1, f)
	if got := n.seal(1, 100); len(got.ingress) != 1 || got.Counters[wire.Late] != 0 {
		t.Errorf("report of the packet's epoch: %+v", got)
	}
	if got := n.seal(1, 104); got.Counters[wire.Late] != 0 {
		t.Errorf("report of the newest epoch: %+v", got)
	}
}

func TestEpochsNotRequestedAreBounded(t *testing.T) {
	n := newNetwork(t, nil)
	for e := uint64(100); e < 140; e++ {
		n.clocks[0].Advance(e)
		n.out(0, tcpFrame("10.0.0.1", "10.0.0.2", 1, 2, 0, nil))
	}
	for e := uint64(100); e < 120; e++ {
		if g := n.hosts[0].Seal(e); g != nil {
			t.Errorf("epoch %d is still there", e)
		}
	}
	dropped := uint64(0)
	for e := uint64(120); e < 139; e++ {
		got := read(t, n.hosts[0].Seal(e))
		dropped += got.Counters[wire.Missed]
		if got.Epoch != e || len(got.egress) != 1 {
			t.Errorf("epoch %d: %+v", e, got)
		}
	}
	if g := n.hosts[0].Seal(139); g != nil {
		t.Error("the current epoch was sealed")
	}
	if dropped += n.seal(0, 139).Counters[wire.Missed]; dropped != 20 {
		t.Errorf("%d epochs counted as dropped, want 20", dropped)
	}
}

// TestReportWhileCounting: a report is encoded while the role counts, and flows come and go. The
// race detector sees a conflict.
func TestReportWhileCounting(t *testing.T) {
	n := newNetwork(t, func(s *wire.Settings) { s.Flows, s.IdleEpochs = 64, 1 })
	reports := make(chan rows)
	for e := uint64(100); e < 140; e++ {
		for port := range uint16(20) {
			n.in(1, n.out(0, tcpFrame("10.0.0.1", "10.0.0.2", uint16(e)*20+port, 2, packet.FIN, nil)))
		}
		n.clocks[0].Advance(e + 1)
		g := n.hosts[0].Seal(e)
		go func() { reports <- read(t, g) }()
		for port := range uint16(20) {
			n.out(0, tcpFrame("10.0.0.1", "10.0.0.2", uint16(e)*20+port, 2, packet.ACK, nil))
		}
		if got := <-reports; len(got.egress) < 20 || got.Counters[wire.Untracked] > 0 && e < 102 {
			t.Fatalf("epoch %d: %d flows, %v", e, len(got.egress), got.Counters)
		}
	}
}

func TestApply(t *testing.T) {
	n := newNetwork(t, nil)
	send := func() { n.out(0, tcpFrame("10.0.0.1", "10.0.0.2", 1, 2, 0, nil)) }
	send()
	s := defaults(0)
	s.Match, s.IdleEpochs = "x", 5
	s.Hosts = append(s.Hosts, []netip.Addr{netip.MustParseAddr("10.0.0.9")})
	apply(t, n.hosts[0], s)
	send()
	if got := n.seal(0, 100); got.egress["10.0.0.1,10.0.0.2,tcp,1,2"][wire.Packets] != 2 ||
		got.Counters[wire.Restarted] != 0 {
		t.Errorf("a new host: %+v", got)
	}
	send()
	s.Slots = 128
	apply(t, n.hosts[0], s)
	send()
	if got := n.seal(0, 101); got.egress["10.0.0.1,10.0.0.2,tcp,1,2"][wire.Packets] != 1 ||
		got.Counters[wire.Restarted] != 1 {
		t.Errorf("other mappings: %+v", got)
	}
	for want, change := range map[string]func(*wire.Settings){
		"EtherType":      func(s *wire.Settings) { s.EtherType = 0x800 },
		"slots per flow": func(s *wire.Settings) { s.SlotsPerFlow = 9 },
		"flows":          func(s *wire.Settings) { s.Flows = 1 << 25 },
		"ingressSlots":   func(s *wire.Settings) { s.IngressSlots = 0 },
		"flowletGap":     func(s *wire.Settings) { s.FlowletGap = -1 },
		"idleEpochs":     func(s *wire.Settings) { s.IdleEpochs = 0 },
		"number 7":       func(s *wire.Settings) { s.Host = 7 },
		`field "size"`:   func(s *wire.Settings) { s.Extremes = []wire.Extreme{{Field: "size"}} },
		"10.0.0.2 belongs to hosts 1 and 2": func(s *wire.Settings) {
			s.Hosts[2] = append(s.Hosts[2], netip.MustParseAddr("10.0.0.2"))
		},
		"host 2 of 2": func(s *wire.Settings) { s.Host, s.Shares = 2, 2 },
	} {
		s := defaults(0)
		change(s)
		data, err := s.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.hosts[0].Apply(data); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	send()
	if got := n.seal(0, 102); got.Counters != [wire.Counters]uint64{} || len(got.egress) != 1 {
		t.Errorf("after refused settings: %+v", got)
	}
}

// TestExactWithSkewedClocks: hosts whose clocks differ by up to one second, at 100 ms an epoch,
// exchange packets that are delayed up to three epochs, reordered and lost. Epochs advance by local
// clocks, by packets and by messages that take time. Every packet is counted in the epoch in which
// it was sent, at both hosts.
func TestExactWithSkewedClocks(t *testing.T) {
	for seed := range uint64(20) {
		exactWithSkewedClocks(t, seed)
	}
}

func exactWithSkewedClocks(t *testing.T, seed uint64) {
	const length = 100 // ms, as all times below
	r := rand.New(rand.NewPCG(seed, 7))
	n := &network{t: t}
	skew := make([]int64, 3)
	for i := range skew {
		skew[i] = r.Int64N(1000)
		c := epoch.NewClock(length*time.Millisecond, 10)
		n.clocks = append(n.clocks, c)
		n.hosts = append(n.hosts, New(c, since))
		apply(t, n.hosts[i], defaults(i))
	}
	type event struct {
		at   int64
		do   func()
		sent int
	}
	var events []event
	at := func(ms int64, do func()) { events = append(events, event{ms, do, len(events)}) }
	now := int64(0)

	type cell struct {
		epoch uint64
		key   string
	}
	sent, arrived := map[cell]int64{}, map[cell]int64{}
	relayed, messages := uint64(10), map[[2]uint64]int{}
	var tick func(host int)
	tick = func(host int) {
		if e, notify := n.clocks[host].Tick(time.UnixMilli(now + skew[host])); notify {
			messages[[2]uint64{uint64(host), e}]++
			at(now+1+r.Int64N(20), func() { // at the collector
				if e <= relayed {
					return
				}
				relayed = e
				for _, c := range n.clocks {
					at(now+1+r.Int64N(20), func() { c.Advance(e) })
				}
			})
		}
		if now < 3000 {
			at(now+5, func() { tick(host) })
		}
	}
	var send func(host int)
	send = func(host int) {
		to := (host + 1 + r.IntN(2)) % 3
		src, dst := fmt.Sprintf("10.0.0.%d", host+1), fmt.Sprintf("10.0.0.%d", to+1)
		port := uint16(r.IntN(30))
		flags := []byte{packet.SYN, packet.ACK, packet.ACK, packet.FIN}[r.IntN(4)]
		f := n.out(host, tcpFrame(src, dst, port, 80, flags, nil))
		c := cell{n.clocks[host].Current(), fmt.Sprintf("%s,%s,tcp,%d,80", src, dst, port)}
		sent[c]++
		if r.IntN(20) > 0 {
			delay := r.Int64N(5)
			if r.IntN(5) == 0 {
				delay = r.Int64N(2 * length) // up to three boundaries, with the relay
			}
			at(now+delay, func() { n.in(to, f); arrived[c]++ })
		}
		if now < 3000 {
			at(now+r.Int64N(3), func() { send(host) })
		}
	}
	reports := map[uint64][]rows{}
	for host := range 3 {
		at(0, func() { tick(host) })
		at(1, func() { send(host) })
	}
	var collect func(e uint64)
	collect = func(e uint64) { // as soon as all hosts are three epochs further
		for _, c := range n.clocks {
			if c.Current() < e+3 {
				if now < 4000 {
					at(now+10, func() { collect(e) })
				}
				return
			}
		}
		for _, h := range n.hosts {
			if g := h.Seal(e); g != nil {
				reports[e] = append(reports[e], read(t, g))
			}
		}
		at(now, func() { collect(e + 1) })
	}
	at(2, func() { collect(10) })
	for len(events) > 0 {
		next := 0
		for i, e := range events {
			if e.at < events[next].at || e.at == events[next].at && e.sent < events[next].sent {
				next = i
			}
		}
		e := events[next]
		events = slices.Delete(events, next, next+1)
		now = e.at
		e.do()
	}

	for m, count := range messages {
		if count > 1 {
			t.Errorf("seed %d: host %d sent %d messages about epoch %d", seed, m[0], count, m[1])
		}
	}
	compared := 0
	for e, hosts := range reports {
		if len(hosts) != 3 {
			continue // the first epochs: some hosts began later
		}
		for host, rs := range hosts {
			for _, c := range []wire.Counter{wire.Late, wire.UnknownEpoch, wire.Forged, wire.Untracked} {
				if rs.Counters[c] > 0 {
					t.Errorf("seed %d, epoch %d, host %d: %d packets %v", seed, e, host, rs.Counters[c], c)
				}
			}
			for key, v := range rs.egress {
				c := cell{e, key}
				compared++
				to := int(key[len("10.0.0.1,10.0.0.")]-'0') - 1
				if got := hosts[to].ingress[[2]int{host, int(rs.index[key])}][wire.Packets]; v[wire.Packets] != sent[c] ||
					got != arrived[c] {
					t.Errorf("seed %d: %s in epoch %d: sent %d, want %d; received %d, want %d", seed, key, e, v[wire.Packets],
						sent[c], got, arrived[c])
				}
				delete(sent, c)
			}
		}
		for c := range sent {
			if c.epoch == e {
				t.Errorf("seed %d: %s of epoch %d is in no report", seed, c.key, e)
			}
		}
	}
	if compared < 1000 {
		t.Errorf("seed %d: compared %d flows, expected thousands", seed, compared)
	}
}

// used is the count of flows.
func (t *table) used() int { return int(t.fresh) - len(t.free) }
