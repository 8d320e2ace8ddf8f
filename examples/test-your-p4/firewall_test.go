// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/netsketch/netsketch/p4/softswitch"
)

//go:embed firewall.json
var compiled []byte

// program is compiled once. It is immutable; any number of switches can run it.
var program = sync.OnceValues(func() (*softswitch.Program, error) { return softswitch.Compile(compiled) })

const (
	inside  = 1
	outside = 2
	tcp     = 6
	udp     = 17
)

// firewall is a switch that runs the program, with the packets that left it last.
type firewall struct {
	*softswitch.Switch
	t    *testing.T
	now  time.Duration
	left map[uint32][]byte // by port
}

func start(t *testing.T) *firewall {
	t.Helper()
	p, err := program()
	if err != nil {
		t.Fatal(err)
	}
	f := &firewall{Switch: softswitch.New(softswitch.Config{}), t: t, left: map[uint32][]byte{}}
	t.Cleanup(f.Close)
	if err := f.Load(p); err != nil {
		t.Fatal(err)
	}
	for _, port := range []uint32{inside, outside} {
		tx := func(pkt []byte, _ time.Duration) { f.left[port] = bytes.Clone(pkt) }
		if err := f.AddPort(port, softswitch.Port{Tx: tx}); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// passes reports whether a packet that arrives on one port leaves by the other, unchanged.
func (f *firewall) passes(in uint32, pkt []byte) bool {
	f.t.Helper()
	clear(f.left)
	f.now += time.Microsecond
	f.Inject(in, pkt, f.now) // returns after all resulting packets have left
	out := uint32(inside + outside - in)
	if _, back := f.left[in]; back {
		f.t.Errorf("a packet left by port %d, its ingress port", in)
	}
	got, ok := f.left[out]
	if ok && !bytes.Equal(got, pkt) {
		f.t.Errorf("the packet changed:\n% x, want\n% x", got, pkt)
	}
	return ok
}

func (f *firewall) refused() uint64 {
	f.t.Helper()
	c, err := f.ReadCounter("Firewall.refused", 0, 1)
	if err != nil {
		f.t.Fatal(err)
	}
	return c[0].Packets
}

type address [4]byte

var (
	alice  = address{10, 0, 0, 1}
	server = address{10, 0, 0, 80}
	bob    = address{203, 0, 113, 7}
)

// packet returns an IPv4 packet with 20 bytes after its header.
func packet(protocol byte, src address, srcPort uint16, dst address, dstPort uint16) []byte {
	p := []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, protocol, 0, 0}
	p = append(append(p, src[:]...), dst[:]...)
	p = binary.BigEndian.AppendUint16(p, srcPort)
	p = binary.BigEndian.AppendUint16(p, dstPort)
	return append(p, make([]byte, 16)...)
}

func TestOnlyRepliesComeIn(t *testing.T) {
	f := start(t)
	reply := packet(tcp, bob, 443, alice, 50_000)
	if f.passes(outside, reply) {
		t.Error("a reply came in before a request went out")
	}
	if !f.passes(inside, packet(tcp, alice, 50_000, bob, 443)) {
		t.Error("a request did not go out")
	}
	if !f.passes(outside, reply) {
		t.Error("the reply did not come in")
	}
	for name, p := range map[string][]byte{
		"another port":     packet(tcp, bob, 443, alice, 50_001),
		"another host":     packet(tcp, bob, 443, server, 50_000),
		"another protocol": packet(udp, bob, 443, alice, 50_000),
		"another sender":   packet(tcp, address{203, 0, 113, 8}, 443, alice, 50_000),
	} {
		if f.passes(outside, p) {
			t.Errorf("%s came in", name)
		}
	}
	if n := f.refused(); n != 5 {
		t.Errorf("%d packets were refused, want 5", n)
	}
}

func TestServers(t *testing.T) {
	f := start(t)
	entry := softswitch.Entry{
		Match: []softswitch.Match{
			{Kind: softswitch.MatchLPM, Value: server[:], PrefixLen: 32},
			{Kind: softswitch.MatchExact, Value: []byte{tcp}},
			{Kind: softswitch.MatchRange, Value: []byte{0, 80}, Mask: []byte{0, 89}},
		},
		Priority: 1, // the key has a range
		Action:   softswitch.Action{Name: "Firewall.allow"},
	}
	if err := f.InsertEntry("Firewall.servers", entry); err != nil {
		t.Fatal(err)
	}
	if err := f.InsertEntry("Firewall.servers", entry); !errors.Is(err, softswitch.ErrExists) {
		t.Errorf("the same entry again: %v", err)
	}
	for _, tc := range []struct {
		protocol byte
		dst      address
		port     uint16
		want     bool
	}{
		{tcp, server, 79, false}, {tcp, server, 80, true}, {tcp, server, 89, true}, {tcp, server, 90, false},
		{udp, server, 80, false}, {tcp, alice, 80, false},
	} {
		if got := f.passes(outside, packet(tc.protocol, bob, 999, tc.dst, tc.port)); got != tc.want {
			t.Errorf("protocol %d to %v port %d: came in %v, want %v", tc.protocol, tc.dst, tc.port, got, tc.want)
		}
	}
}

// A request sets exactly one bit of the register.
func TestState(t *testing.T) {
	f := start(t)
	for range 3 {
		f.passes(inside, packet(udp, alice, 53, bob, 53))
	}
	cells, err := f.ReadRegister("Firewall.open", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	open := 0
	for _, c := range cells {
		open += int(c)
	}
	if open != 1 {
		t.Errorf("%d of %d paths are open, want 1", open, len(cells))
	}
	if err := f.ResetRegister("Firewall.open"); err != nil {
		t.Fatal(err)
	}
	if f.passes(outside, packet(udp, bob, 53, alice, 53)) {
		t.Error("a reply came in after the paths were closed")
	}
}

func TestMalformedPackets(t *testing.T) {
	f := start(t)
	whole := packet(tcp, alice, 1, bob, 2)
	options := bytes.Clone(whole)
	options[14] = 0x46
	for name, p := range map[string][]byte{
		"empty": {}, "half a header": whole[:20], "no ports": whole[:35], "options": options,
		"ICMP": packet(1, alice, 0, bob, 0), "ARP": append(bytes.Repeat([]byte{0xff}, 12), 8, 6, 0, 1),
	} {
		if f.passes(inside, p) {
			t.Errorf("%s went out", name)
		}
	}
}

// Arbitrary bytes do not make the program or the switch fail, and an unsolicited packet from
// outside never comes in.
func FuzzUnasked(f *testing.F) {
	f.Add(packet(tcp, bob, 443, alice, 50_000))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, pkt []byte) {
		if start(t).passes(outside, pkt) {
			t.Errorf("came in: % x", pkt)
		}
	})
}

// BenchmarkFirewall measures packets per second through one switch.
func BenchmarkFirewall(b *testing.B) {
	p, err := program()
	if err != nil {
		b.Fatal(err)
	}
	sw := softswitch.New(softswitch.Config{})
	defer sw.Close()
	if err := sw.Load(p); err != nil {
		b.Fatal(err)
	}
	for _, port := range []uint32{inside, outside} {
		if err := sw.AddPort(port, softswitch.Port{}); err != nil {
			b.Fatal(err)
		}
	}
	pkt := packet(tcp, alice, 50_000, bob, 443)
	for n := time.Duration(0); b.Loop(); n++ {
		sw.Inject(inside, pkt, n)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "packets/s")
}
