// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/netsketch/netsketch/internal/test/packettest"
	"github.com/netsketch/netsketch/lab/truth"
	"github.com/netsketch/netsketch/sketch/flow"
)

var addresses = []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// tcp4 is an IPv4 packet with four bytes of options and a TCP segment that carries data.
func tcp4(data string) []byte {
	ip := []byte{0x46, 0, 0, byte(24 + 20 + len(data)), 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 1, 1, 1, 1}
	segment := []byte{4, 0xd2, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, SYN | ACK, 0x20, 0, 0, 0, 0, 0}
	return join(ip, segment, []byte(data))
}

// udp6 is an IPv6 packet with a fragment header at the given offset, in units of 8 bytes.
func udp6(offset byte) []byte {
	ip := join([]byte{0x60, 0, 0, 0, 0, 20, 44, 9}, netip.MustParseAddr("2001:db8::1").AsSlice(),
		netip.MustParseAddr("2001:db8::2").AsSlice())
	return join(ip, []byte{17, 0, 0, offset << 3, 0, 0, 0, 7}, []byte{0, 53, 0, 99, 0, 12, 0, 0}, []byte("data"))
}

func key(t *testing.T, text string) flow.Key {
	t.Helper()
	k, err := flow.Parse(flow.FiveTuple, text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestParse(t *testing.T) {
	icmp := tcp4("")
	icmp[9] = 1
	tests := []struct {
		name      string
		etherType uint16
		packet    []byte
		want      IP
	}{
		{"tcp with options", EtherTypeIPv4, tcp4("zorro"), IP{Key: key(t, "10.0.0.1,10.0.0.2,tcp,1234,80"), Length: 49,
			HeaderLength: 24, TTL: 64, TCP: true, Flags: SYN | ACK, Window: 0x2000, Payload: []byte("zorro")}},
		{"no ports", EtherTypeIPv4, icmp, IP{Key: key(t, "10.0.0.1,10.0.0.2,icmp,0,0"), Length: 44,
			HeaderLength: 24, TTL: 64, Payload: icmp[24:]}},
		{"first fragment", EtherTypeIPv6, udp6(0), IP{Key: key(t, "2001:db8::1,2001:db8::2,udp,53,99"), Length: 60,
			HeaderLength: 40, TTL: 9, Payload: []byte("data")}},
		{"later fragment", EtherTypeIPv6, udp6(3), IP{Key: key(t, "2001:db8::1,2001:db8::2,udp,0,0"), Length: 60,
			HeaderLength: 40, TTL: 9, Payload: udp6(3)[48:]}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			var got IP
			if err := got.Parse(tc.etherType, tc.packet); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Payload, tc.want.Payload) {
				t.Errorf("payload %q, want %q", got.Payload, tc.want.Payload)
			}
			got.Payload, tc.want.Payload = nil, nil
			if got.Key != tc.want.Key || got.Length != tc.want.Length || got.HeaderLength != tc.want.HeaderLength ||
				got.TTL != tc.want.TTL || got.TCP != tc.want.TCP || got.Flags != tc.want.Flags || got.Window != tc.want.Window {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestParseErrors(t *testing.T) {
	changed := func(at int, v byte) []byte {
		b := tcp4("")
		b[at] = v
		return b
	}
	tests := []struct {
		name      string
		etherType uint16
		packet    []byte
		want      error
	}{
		{"ARP", 0x0806, make([]byte, 28), ErrNotIP},
		{"version", EtherTypeIPv4, changed(0, 0x66), ErrVersion},
		{"short IHL", EtherTypeIPv4, changed(0, 0x44), ErrLength},
		{"total length below the header", EtherTypeIPv4, changed(3, 20), ErrLength},
		{"cut in the options", EtherTypeIPv4, tcp4("")[:22], ErrTruncated},
		{"cut in TCP", EtherTypeIPv4, tcp4("")[:43], ErrTruncated},
		{"cut in UDP", EtherTypeIPv6, udp6(0)[:55], ErrTruncated},
		{"cut in the fragment header", EtherTypeIPv6, udp6(0)[:47], ErrTruncated},
		{"IPv6 version", EtherTypeIPv6, append([]byte{0x40}, make([]byte, 60)...), ErrVersion},
	}
	for _, tc := range tests {
		var p IP
		if err := p.Parse(tc.etherType, tc.packet); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
}

func TestParseLink(t *testing.T) {
	vlan := []byte{0x81, 0, 0, 5}
	tests := []struct {
		name  string
		frame []byte
		want  Link
		err   error
	}{
		{"untagged", join(addresses, []byte{8, 0}), Link{12, EtherTypeIPv4}, nil},
		{"one tag", join(addresses, vlan, []byte{0x86, 0xdd}), Link{16, EtherTypeIPv6}, nil},
		{"two tags", join(addresses, []byte{0x88, 0xa8, 0, 1}, vlan, []byte{8, 0}), Link{20, EtherTypeIPv4}, nil},
		{"three tags", join(addresses, vlan, vlan, vlan, []byte{8, 0}), Link{20, EtherTypeVLAN}, nil},
		{"cut", join(addresses, vlan, []byte{8}), Link{}, ErrTruncated},
		{"empty", nil, Link{}, ErrTruncated},
	}
	for _, tc := range tests {
		if got, err := ParseLink(tc.frame); got != tc.want || !errors.Is(err, tc.err) {
			t.Errorf("%s: %+v, %v, want %+v, %v", tc.name, got, err, tc.want, tc.err)
		}
	}
}

func TestFrameInsertsAndRemoves(t *testing.T) {
	f := NewFrame([]byte("abcdef"))
	for i := range 10 { // more than the headroom
		copy(f.Insert(2, 40), bytes.Repeat([]byte{byte('0' + i)}, 40))
	}
	if got := f.Bytes(); len(got) != 406 || string(got[:3]) != "ab9" || string(got[400:]) != "00cdef" {
		t.Errorf("after ten insertions: %q", got)
	}
	f.Remove(2, 400)
	if got := string(f.Bytes()); got != "abcdef" {
		t.Errorf("after removal: %q", got)
	}
	copy(f.Insert(6, 100), bytes.Repeat([]byte("x"), 100))
	if got := f.Bytes(); len(got) != 106 || string(got[:7]) != "abcdefx" {
		t.Errorf("insertion at the end: %q", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(join(addresses, []byte{8, 0}, tcp4("x")))
	f.Add(join(addresses, []byte{0x81, 0, 0, 1, 0x86, 0xdd}, udp6(0)))
	f.Fuzz(func(t *testing.T, frame []byte) {
		link, err := ParseLink(frame)
		if err != nil {
			return
		}
		var p IP
		if p.Parse(link.Type, frame[link.TypeAt+2:]) != nil {
			return
		}
		if back, err := flow.ParseBinary(flow.FiveTuple, p.Key.AppendBinary(nil)); err != nil || back != p.Key {
			t.Errorf("key %v is not canonical: %v", p.Key, err)
		}
		if p.Length < p.HeaderLength || len(p.Payload) > len(frame) {
			t.Errorf("length %d, header %d, payload %d of %d", p.Length, p.HeaderLength, len(p.Payload), len(frame))
		}
	})
}

// FuzzFlow: a frame has the flow that the switches' ground truth has, if it has one there. The flow
// is also that of OuterFlow, unless the frame has more headers than switches parse.
func FuzzFlow(f *testing.F) {
	whole, r := tcp4("data"), rand.New(rand.NewPCG(7, 8))
	whole[10], whole[11] = 0x23, 0xc3 // the checksum
	for _, frame := range [][]byte{join(addresses, []byte{8, 0}, tcp4("")), join(addresses, []byte{8, 0}, whole),
		join(addresses, []byte{0x81, 0, 0, 5, 0x88, 0xa8, 0, 5, 8, 0}, whole[:28]),
		join(addresses, []byte{0x86, 0xdd}, udp6(0)), join(addresses, []byte{0x86, 0xdd}, udp6(8)),
		join(addresses, []byte{0x86, 0xdd}, udp6(0)[:50])} {
		f.Add(frame)
	}
	for range 50 {
		f.Add(packettest.Random(r).Bytes)
		f.Add(packettest.Deep(r))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		want, ok := truth.Parse(frame)
		var got, outer flow.Key
		err, outerErr := Flow(&got, frame), OuterFlow(&outer, frame)
		if ok && !want.V6 && (err != nil || got != want) ||
			ok && err == nil && (got.Src != want.Src || got.Dst != want.Dst) {
			t.Errorf("% x: %v, %v; expected %v", frame, got, err, want)
		}
		switch {
		case errors.Is(err, ErrDepth), errors.Is(outerErr, ErrDepth) && errors.Is(err, ErrTruncated):
		case !errors.Is(err, outerErr) || err == nil && got != outer:
			t.Errorf("% x: %v, %v; the outer flow is %v, %v", frame, got, err, outer, outerErr)
		}
	})
}

// TestFlowBounds: a frame with the most headers that switches parse has a flow; with one header
// more it has none.
func TestFlowBounds(t *testing.T) {
	repeat := func(b []byte, n int) []byte { return bytes.Repeat(b, n) }
	label, bottom, tag := []byte{0, 17, 0, 64}, []byte{0, 16, 1, 64}, []byte{0x81, 0, 0, 5}
	whole := tcp4("data")
	whole[10], whole[11] = 0x23, 0xc3
	options := func(lengths ...byte) []byte {
		ip := udp6(0)
		ip[6], ip = 60, ip[:40:40]
		for i, n := range lengths {
			header := make([]byte, 8*(int(n)+1))
			if header[0], header[1] = 60, n; i == len(lengths)-1 {
				header[0] = 17
			}
			ip = append(ip, header...)
		}
		return join(addresses, []byte{0x86, 0xdd}, ip, make([]byte, 8))
	}
	for name, c := range map[string]struct {
		frame []byte
		want  error
	}{
		"4 tags":             {join(addresses, repeat(tag, 4), []byte{8, 0}, whole), nil},
		"5 tags":             {join(addresses, repeat(tag, 5), []byte{8, 0}, whole), ErrDepth},
		"6 labels":           {join(addresses, []byte{0x88, 0x47}, repeat(label, 5), bottom, whole), nil},
		"7 labels":           {join(addresses, []byte{0x88, 0x47}, repeat(label, 6), bottom, whole), ErrDepth},
		"3 options":          {options(5, 5, 5), nil},
		"4 options":          {options(0, 0, 0, 0), ErrDepth},
		"options of 56":      {options(6), ErrDepth},
		"options of 56, cut": {options(6)[:90], ErrTruncated},
	} {
		var k flow.Key
		if err := Flow(&k, c.frame); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, expected %v", name, err, c.want)
		}
	}
}
