// SPDX-License-Identifier: Apache-2.0

package lldp

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/gopacket/gopacket/layers"
	"go.uber.org/goleak"

	"github.com/netsketch/netsketch/p4/softswitch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func full() *Frame {
	return &Frame{
		Source: [6]byte{2, 0, 0, 0, 0, 1}, ChassisKind: layers.LLDPChassisIDSubTypeMACAddr,
		ChassisID: []byte{2, 0, 0, 0, 0, 0},
		PortKind:  layers.LLDPPortIDSubtypeIfaceName, PortID: []byte("Ethernet3"), TTL: 120,
		PortDescription: "to spine1", SystemName: "leaf1", SystemDescription: "netsketch soft switch",
		Capabilities: CapabilityBridge | CapabilityRouter, Enabled: CapabilityRouter,
		Management: netip.MustParseAddr("192.0.2.1"),
	}
}

func TestFrameRoundTrip(t *testing.T) {
	least := &Frame{ChassisKind: layers.LLDPChassisIDSubTypeLocal, ChassisID: []byte("x"),
		PortKind: layers.LLDPPortIDSubtypeLocal, PortID: []byte("1")}
	v6 := full()
	v6.Management = netip.MustParseAddr("2001:db8::1")
	for _, f := range []*Frame{full(), least, v6} {
		b, err := f.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if len(b) < 60 {
			t.Errorf("%d bytes; Ethernet's least is 60", len(b))
		}
		got, err := Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(f, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Error(diff)
		}
	}
	if full().ChassisText() != "02:00:00:00:00:00" || full().PortText() != "Ethernet3" {
		t.Errorf("chassis %s, port %s", full().ChassisText(), full().PortText())
	}
}

// The bytes of a frame as the standard lays them out, element by element.
func TestFrameBytes(t *testing.T) {
	f := &Frame{Source: [6]byte{2, 0, 0, 0, 0, 1}, ChassisKind: layers.LLDPChassisIDSubTypeMACAddr,
		ChassisID: []byte{2, 0, 0, 0, 0, 0},
		PortKind:  layers.LLDPPortIDSubtypeIfaceName, PortID: []byte("e1"), TTL: 120, SystemName: "s"}
	got, err := f.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	want := "0180c200000e" + "020000000001" + "88cc" + // Ethernet
		"0207" + "04" + "020000000000" + // chassis: 7 bytes, kind 4
		"0403" + "05" + "6531" + // port: 3 bytes, kind 5
		"0602" + "0078" + // 120 s
		"0a01" + "73" + // system name
		"0000" // end
	if g := hex.EncodeToString(got[:len(want)/2]); g != want {
		t.Errorf("got  %s\nwant %s", g, want)
	}
}

func TestParseRefuses(t *testing.T) {
	good, err := full().Marshal()
	if err != nil {
		t.Fatal(err)
	}
	head := good[:header]
	element := func(kind int, v ...byte) []byte {
		return append(binary.BigEndian.AppendUint16(nil, uint16(kind)<<9|uint16(len(v))), v...)
	}
	chassis, port, ttl := element(1, 4, 2, 0, 0, 0, 0, 0), element(2, 5, 'e'), element(3, 0, 120)
	build := func(parts ...[]byte) []byte { return slices.Concat(append([][]byte{head}, parts...)...) }
	for name, tt := range map[string]struct {
		frame []byte
		want  string
	}{
		"nothing":           {nil, "not an LLDP frame"},
		"another EtherType": {append(bytes.Clone(head[:12]), 8, 0), "not an LLDP frame"},
		"unicast":           {append([]byte{2}, good[1:]...), "not a group address"},
		"no elements":       {build(), "Missing mandatory"},
		"out of order":      {build(port, chassis, ttl), "not 1"},
		"no time to live":   {build(chassis, port, element(0)), "not 3"},
		"chassis twice":     {build(chassis, port, ttl, chassis), "repeated"},
		"time twice":        {build(chassis, port, ttl, ttl), "repeated"},
		"empty chassis":     {build(element(1, 4), port, ttl), "ChassisID"},
		"empty element":     {build(element(1), port, ttl), "ChassisID"},
		"long chassis": {build(element(1, append([]byte{4}, make([]byte, 299)...)...), port, ttl),
			"longer than 255"},
		"short time to live": {build(chassis, port, element(3, 1)), "TTL"},
		"beyond the frame":   {build(chassis, port, ttl, []byte{0x0a, 200, 's'}), "< 202 bytes"},
		"half an element":    {build(chassis, port, ttl, []byte{0x0a}), "< 2 bytes"},
		"end with contents":  {build(chassis, port, ttl, element(0, 1)), "not empty"},
	} {
		t.Run(name, func(t *testing.T) {
			if f, err := Parse(tt.frame); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %+v, %v; expected an error with %q", f, err, tt.want)
			}
		})
	}
	// Without the end element; optional elements that are wrong are left out.
	f, err := Parse(build(chassis, port, ttl, element(5, make([]byte, 300)...), element(7, 1), element(8, 5, 1, 10),
		element(9, 1), element(127, 0, 0x80, 0xc2, 1)))
	if err != nil || f.Discarded != 3 || f.Unknown != 1 || f.SystemName != "" {
		t.Errorf("%+v, %v", f, err)
	}
	f, err = Parse(build(chassis, port, ttl, element(5, 'a', 0, 0xff, 'b', 0)))
	if err != nil || f.SystemName != "a \ufffdb" {
		t.Errorf("system name %q, %v", f.SystemName, err)
	}
	for _, f := range []*Frame{{}, {ChassisID: []byte("x")}, {ChassisID: []byte("x"), PortID: make([]byte, 256)},
		{ChassisID: []byte("x"), PortID: []byte("y"), SystemName: strings.Repeat("s", 256)}} {
		if b, err := f.Marshal(); err == nil || len(b) != 0 {
			t.Errorf("written: %x", b)
		}
	}
}

func FuzzParse(f *testing.F) {
	good, err := full().Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:40])
	f.Add(append(bytes.Clone(good[:header]), 2, 2, 4, 1, 4, 2, 5, 1, 6, 2, 0, 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := Parse(b)
		if err != nil {
			if !errors.Is(err, ErrNotLLDP) && !errors.Is(err, ErrMalformed) {
				t.Fatalf("an error of another kind: %v", err)
			}
			return
		}
		if len(x.SystemName) > 255 || len(x.ChassisText()) > 1024 || len(x.PortText()) > 1024 {
			t.Fatal("text longer than a frame holds")
		}
		again, err := x.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		y, err := Parse(again)
		if err != nil {
			t.Fatal(err)
		}
		x.Unknown, x.Discarded = 0, 0
		if x.Capabilities == 0 {
			x.Enabled = 0
		}
		if diff := cmp.Diff(x, y, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Fatal(diff)
		}
	})
}

// clock is a clock that tests advance.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// pair is two switches joined by port 1 of a and port 2 of b.
func pair(t *testing.T, c *clock) (a, b *softswitch.Switch, x, y *Agent) {
	t.Helper()
	a, b = softswitch.New(softswitch.Config{Name: "a"}), softswitch.New(softswitch.Config{Name: "b"})
	join := func(from *softswitch.Switch, port uint32, to *softswitch.Switch, at uint32) {
		if err := from.AddPort(port, softswitch.Port{Name: "Ethernet" + string(rune('0'+port)),
			Tx: func(pkt []byte, when time.Duration) { to.Inject(at, pkt, when) }}); err != nil {
			t.Fatal(err)
		}
	}
	join(a, 1, b, 2)
	join(b, 2, a, 1)
	x = New(a, Config{SystemName: "a", SystemDescription: "first", Now: c.Now})
	y = New(b, Config{SystemName: "b", Now: c.Now})
	t.Cleanup(func() {
		x.Close()
		y.Close()
		a.Close()
		b.Close()
	})
	return a, b, x, y
}

func names(a *Agent) string {
	var out []string
	for _, n := range a.Neighbors() {
		out = append(out, n.SystemName+"/"+n.PortText())
	}
	return strings.Join(out, " ")
}

func TestNeighborLifetime(t *testing.T) {
	c := &clock{now: time.Unix(1000, 0)}
	a, b, x, y := pair(t, c)
	var changes int
	defer x.Watch(func() { changes++ })()
	expect := func(what, atX, atY string) {
		t.Helper()
		if gx, gy := names(x), names(y); gx != atX || gy != atY {
			t.Fatalf("%s: a has %q, b has %q; expected %q and %q", what, gx, gy, atX, atY)
		}
	}
	expect("before", "", "")
	if next := x.Tick(); next.Sub(c.Now()) != time.Second {
		t.Errorf("the second frame of a port that came up after %v; expected 1s", next.Sub(c.Now()))
	}
	expect("a sent", "", "a/Ethernet1")
	y.Tick()
	expect("both sent", "b/Ethernet2", "a/Ethernet1")
	if changes != 1 {
		t.Errorf("%d changes reported; expected 1", changes)
	}
	for range 4 { // the rest of the fast transmissions
		x.Tick()
		y.Tick()
		c.advance(time.Second)
	}
	if next := x.Tick(); next.Sub(c.Now()) < 20*time.Second {
		t.Errorf("still quick: %v", next.Sub(c.Now()))
	}
	if _, n, _ := x.PortState(1); n.Out < 4 || n.Out > 7 || n.In == 0 {
		t.Errorf("counters %+v", n)
	}

	x.SetSystemName("a2")
	x.Tick()
	expect("renamed", "b/Ethernet2", "a2/Ethernet1")

	c.advance(121 * time.Second)
	expect("nothing changed for longer than the time to live", "", "")
	x.Tick()
	if _, n, _ := x.PortState(1); n.AgedOut != 1 {
		t.Errorf("aged out %d", n.AgedOut)
	}
	y.Tick()
	x.Tick()
	expect("again", "b/Ethernet2", "a2/Ethernet1")

	if err := a.SetPortUp(1, false); err != nil {
		t.Fatal(err)
	}
	expect("link of a down", "", "a2/Ethernet1")
	_ = b.SetPortUp(2, false)
	expect("link down at both ends", "", "")
	_ = a.SetPortUp(1, true)
	_ = b.SetPortUp(2, true)
	x.Tick()
	y.Tick()
	expect("link up", "b/Ethernet2", "a2/Ethernet1")

	x.SetEnabled(false)
	x.Tick()
	expect("a off sends a shutdown frame", "", "")
	y.Tick()
	expect("a off has no neighbor", "", "")
	x.SetEnabled(true)
	x.Tick()
	c.advance(time.Second)
	y.Tick()
	expect("a on", "b/Ethernet2", "a2/Ethernet1")

	y.SetPortEnabled(2, false)
	y.Tick()
	expect("port of b off", "", "")
	x.Tick()
	expect("port of b off has no neighbor", "", "")
}

// Unknown systems take bounded memory, and malformed frames are counted.
func TestReceiveIsBounded(t *testing.T) {
	c := &clock{now: time.Unix(1000, 0)}
	a, _, x, _ := pair(t, c)
	f := full()
	for i := range 100 {
		f.ChassisID = []byte{2, 0, 0, 0, 0, byte(i)}
		b, err := f.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		a.Inject(1, b, 0)
	}
	if got := len(x.Neighbors()); got != 8 {
		t.Errorf("%d neighbors; expected 8", got)
	}
	bad := append(bytes.Clone(NearestBridge[:]), 2, 0, 0, 0, 0, 1, 0x88, 0xcc, 0, 0)
	a.Inject(1, bad, 0)
	if _, n, _ := x.PortState(1); n.In != 101 || n.Errors != 1 || n.Discarded != 93 {
		t.Errorf("counters %+v", n)
	}
}

func TestRunEnds(t *testing.T) {
	c := &clock{now: time.Unix(1000, 0)}
	_, _, x, y := pair(t, c)
	changed := make(chan struct{}, 16)
	defer y.Watch(func() { changed <- struct{}{} })()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		x.Run(ctx)
		close(done)
	}()
	<-changed
	if names(y) != "a/Ethernet1" {
		t.Errorf("b has %q", names(y))
	}
	cancel()
	<-done
	if names(y) != "" {
		t.Errorf("a has ended and b still has %q", names(y))
	}
}

func BenchmarkParse(b *testing.B) {
	f, err := full().Marshal()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(f); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s")
}
