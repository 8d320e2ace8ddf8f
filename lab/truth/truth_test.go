// SPDX-License-Identifier: Apache-2.0

package truth_test

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/internal/test/packettest"
	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/lab/truth"
	"github.com/netsketch/netsketch/sketch/flow"
)

func frame(src, dst string, proto uint8) []byte {
	return traffic.BuildFrame(traffic.FrameSpec{
		Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), Proto: proto, SrcPort: 1000, DstPort: 80,
	})
}

func tagged(b []byte, tags ...byte) []byte {
	out := append([]byte{}, b[:12]...)
	for _, t := range tags {
		switch t {
		case 'q':
			out = append(out, 0x88, 0xa8, 0, 7)
		case 'o':
			out = append(out, 0x91, 0x00, 0, 7)
		default:
			out = append(out, 0x81, 0x00, 0, 7)
		}
	}
	return append(out, b[12:]...)
}

func with(b []byte, i int, v byte) []byte {
	b = append([]byte{}, b...)
	b[i] = v
	return b
}

// fragment6 puts a fragment header with the offset behind the IPv6 header.
func fragment6(b []byte, offset byte) []byte {
	out := with(b[:14+40], 14+6, 44)
	out = append(out, b[14+6], 0, 0, offset&^7, 0, 0, 0, 1)
	return append(out, b[14+40:]...)
}

func TestParse(t *testing.T) {
	v4, v6 := frame("10.0.0.1", "10.0.0.2", 6), frame("fd00::1", "fd00::2", 17)
	fragment := append([]byte{}, v4...)
	fragment[14+7] = 1 // offset 8 bytes; the checksum falls by as much
	fragment[14+11]--
	tests := []struct {
		name  string
		frame []byte
		want  string // "" means no flow
	}{
		{"IPv4 TCP", v4, "10.0.0.1,10.0.0.2,tcp,1000,80"},
		{"IPv6 UDP", v6, "fd00::1,fd00::2,udp,1000,80"},
		{"one tag", tagged(v4, 'c'), "10.0.0.1,10.0.0.2,tcp,1000,80"},
		{"two tags", tagged(v6, 'q', 'c'), "fd00::1,fd00::2,udp,1000,80"},
		{"three tags", tagged(v4, 'q', 'c', 'c'), ""},
		{"later fragment", fragment, "10.0.0.1,10.0.0.2,tcp,0,0"},
		{"ports, then cut", v4[:14+20+4], "10.0.0.1,10.0.0.2,tcp,1000,80"},
		{"cut within the ports", v4[:14+20+3], ""},
		{"old QinQ tag", tagged(v4, 'o'), "10.0.0.1,10.0.0.2,tcp,1000,80"},
		{"IPv6 first fragment", fragment6(v6, 0), "fd00::1,fd00::2,udp,1000,80"},
		{"IPv6 later fragment", fragment6(v6, 8), "fd00::1,fd00::2,udp,0,0"},
		{"cut IPv4", v4[:14+19], ""},
		{"cut IPv6", v6[:14+39], ""},
		{"wrong checksum", with(v4, 14+10, v4[24]+1), ""},
		{"wrong version", with(v4, 14, 0x65), ""},
		{"short header length", with(v4, 14, 0x44), ""},
		{"ARP", with(with(v4, 12, 8), 13, 6), ""},
		{"empty", nil, ""},
	}
	for _, tt := range tests {
		k, ok := truth.Parse(tt.frame)
		got := ""
		if ok {
			got = k.String()
		}
		if got != tt.want {
			t.Errorf("%s: flow %q, want %q", tt.name, got, tt.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(frame("10.0.0.1", "10.0.0.2", 6))
	f.Add(tagged(frame("fd00::1", "fd00::2", 17), 'q', 'c'))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, ok := truth.Parse(b)
		if ok && k.Mask != flow.FiveTuple {
			t.Fatalf("a flow with the fields %v", k.Mask)
		}
	})
}

func TestFunctionsOfCounts(t *testing.T) {
	c := truth.Counts{}
	for i, n := range []uint64{4, 2, 1, 1} {
		k, err := flow.New(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), netip.AddrFrom4([4]byte{10, 0, 1, 0}), 6, 1, 2)
		if err != nil {
			t.Fatal(err)
		}
		c[k] = n
	}
	if got := c.Entropy(); math.Abs(got-1.75) > 1e-12 {
		t.Errorf("entropy of 4:2:1:1 is %v bits, want 1.75", got)
	}
	if got := c.SecondMoment(); got != 22 {
		t.Errorf("F2 is %v, want 22", got)
	}
	if got := c.AtLeast(2); len(got) != 2 || got[0].Packets != 4 {
		t.Errorf("at least 2: %v", got)
	}
	if got := len(c.Project(flow.Dst)); got != 1 {
		t.Errorf("%d destinations, want 1", got)
	}
	after := truth.Counts{}
	for k, n := range c {
		after[k] = n * 2
	}
	if got := truth.Changes(c, after); len(got) != 4 || got[0].Packets != 4 || got[1].Packets != 2 {
		t.Errorf("changes: %v", got)
	}
	if got := truth.Changes(c, truth.Counts{}); len(got) != 4 {
		t.Errorf("a flow that ended is a change: %v", got)
	}
}

func TestRecorderSeparatesEpochs(t *testing.T) {
	r := truth.NewRecorder(2, truth.Parse)
	f := frame("10.0.0.1", "10.0.0.2", 6)
	r.Record(f, true)
	r.Seal(time.Second, 1)
	r.Seal(time.Second+time.Millisecond, 1) // the same bank again: nothing is sealed
	r.Record(f, false)
	r.Record(f, false)
	r.Record([]byte{1}, false)
	r.Seal(2*time.Second, 0)
	s, ok := r.SealedIn(time.Second, 2*time.Second)
	if !ok || s.All.Packets() != 1 || s.Entered.Packets() != 1 {
		t.Errorf("first segment: %+v", s)
	}
	s, ok = r.SealedIn(2*time.Second, 3*time.Second)
	if !ok || s.All.Packets() != 2 || s.Entered.Packets() != 0 || s.Other != 1 || s.Bank != 1 {
		t.Errorf("second segment: %+v", s)
	}
	if _, ok := r.SealedIn(3*time.Second, 4*time.Second); ok {
		t.Error("a segment that was never sealed")
	}
	r.Seal(3*time.Second, 1)
	if _, ok := r.SealedIn(time.Second, 2*time.Second); ok {
		t.Error("the oldest segment was not dropped")
	}
}

// A packet is lost in the epoch in which it entered.
func TestLostPacketsBelongToTheEpochOfTheirEntry(t *testing.T) {
	r := truth.NewRecorder(4, truth.Parse)
	a, b := frame("10.0.0.1", "10.0.0.2", 6), frame("10.0.0.1", "10.0.0.3", 6)
	late := r.Record(a, true)
	lost := r.Record(a, true)
	inTime := r.Record(b, true)
	inTime.Left()
	r.Seal(time.Second, 1)
	next := r.Record(a, true)
	next.Left()
	late.Left() // out only after the flip
	if through, none := r.Record(a, false), r.Record([]byte{1}, true); through.Known() || none.Known() ||
		!lost.Known() {
		t.Error("only packets of a flow that enter can be lost")
	} else {
		none.Left() // counts nothing
	}
	r.Seal(2*time.Second, 0)
	first, _ := r.SealedIn(time.Second, 2*time.Second)
	second, _ := r.SealedIn(2*time.Second, 3*time.Second)
	if got := r.Lost(first); len(got) != 1 || got[lost.Key] != 1 {
		t.Errorf("lost in the first epoch: %v", got)
	}
	if got := r.Lost(second); len(got) != 0 {
		t.Errorf("lost in the second epoch: %v", got)
	}
}

// Departures of a segment are those of packets that arrived in it, whenever they leave.
func TestDepartures(t *testing.T) {
	r := truth.NewRecorder(1, truth.Parse)
	f := frame("10.0.0.1", "10.0.0.2", 6)
	k, _ := truth.Parse(f)
	e := r.Record(f, true)
	s := r.Open()
	r.Depart(s, k, 2, 10, 15)
	r.Seal(20, 1)
	r.Record(f, true)
	r.Depart(s, k, 1, 40, 60)
	r.Depart(r.Open(), k, 1, 50, 51)
	e.Lost("leaf1")
	d := r.Departed(s)[k]
	if d.Packets != 2 || d.Hop != 1 || d.Gap != 30 || !slices.Equal(d.Delays, []time.Duration{5, 20}) {
		t.Errorf("departures %+v", d)
	}
	if n := r.Departed(r.Open())[k].Packets; n != 1 || r.Losses(s)[truth.Loss{Flow: k, Element: "leaf1"}] != 1 {
		t.Errorf("%d departures of the open segment, losses %v", n, r.Losses(s))
	}
}

// TestParseEncapsulated: frames behind any encapsulations have the flow of their outer IP header,
// or of the last one.
func TestParseEncapsulated(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	deep := 0
	for range 1000 {
		f := packettest.Random(r)
		if got, ok := truth.ParseEncapsulated(f.Bytes); !ok || got != f.Outer {
			t.Fatalf("% x: %v, %v; expected %v", f.Bytes, got, ok, f.Outer)
		}
		got, ok := truth.ParseInner(f.Bytes)
		if want := f.Carried <= 8; ok != want || ok && got != f.Inner {
			t.Fatalf("% x: inner flow %v, %v; expected %v, %v", f.Bytes, got, ok, f.Inner, want)
		}
		if !ok {
			deep++
		}
	}
	if deep < 100 || deep > 500 {
		t.Errorf("%d of 1000 frames are too deep; expected some", deep)
	}
}

// TestRefusal: the reason is that of the IP header, also behind labels and sessions.
func TestRefusal(t *testing.T) {
	ip := make([]byte, 28)
	copy(ip, []byte{0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2})
	wrong := slices.Clone(ip)
	wrong[10] = 1
	for link, header := range map[string][]byte{
		"Ethernet": {8, 0}, "VLAN": {0x81, 0, 0, 5, 8, 0}, "two VLANs": {0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 8, 0},
		"MPLS": {0x88, 0x47, 0, 1, 1, 255}, "two labels": {0x88, 0x47, 0, 1, 0, 255, 0, 2, 1, 255},
		"PPPoE": {0x88, 0x64, 0x11, 0, 0, 1, 0, 30, 0, 0x21},
	} {
		frame := append(make([]byte, 12), header...)
		for want, b := range map[string][]byte{"header checksum zero": ip, "wrong IPv4 header checksum": wrong} {
			if got := truth.Refusal(append(slices.Clone(frame), b...)); !strings.Contains(got, want) {
				t.Errorf("%s: %q, want %q", link, got, want)
			}
		}
	}
	for want, frame := range map[string][]byte{
		"no IP behind MPLS": append(make([]byte, 12), 0x88, 0x47, 0, 1, 1, 255, 0, 0, 0, 0),
		"EtherType 0x0806":  append(make([]byte, 12), 8, 6, 0, 0),
		"shorter than":      make([]byte, 10),
	} {
		if got := truth.Refusal(frame); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
