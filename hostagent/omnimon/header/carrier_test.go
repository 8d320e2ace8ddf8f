// SPDX-License-Identifier: Apache-2.0

package header

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
)

const (
	ipv4 = "4500 0020 1234 4000 4006 0000 0a000001 0a000002" // checksum set by withChecksum
	ipv6 = "60000000 000c 0640 20010db8000000000000000000000001 20010db8000000000000000000000002"
	data = "0050 0051 0000 0000 0000 0000"
)

// withChecksum sets the checksum of the IPv4 header at offset 14.
func withChecksum(frame []byte) []byte {
	b := frame[14:]
	n := int(b[0]&0xf) * 4
	binary.BigEndian.PutUint16(b[10:], 0)
	binary.BigEndian.PutUint16(b[10:], ^sum(b[:n]))
	return frame
}

// sum is the sum of RFC 1071.
func sum(b []byte) uint16 {
	s := uint32(0)
	for i := range b {
		s += uint32(b[i]) << (8 * (1 - i%2))
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// TestCarriers: the bytes of each carrier, as P4 programs and the kernel's programs have them.
func TestCarriers(t *testing.T) {
	h := Header{Epoch: 0xfffe, HostIndex: 0x123456, Hops: 7, Slots: [4]uint16{1, 0x0203}, Flow: 0x1234}
	body := "fffe 123456 07 0001 0203"
	for _, tc := range []struct {
		name, before, after string
		carrier             wire.Carrier
	}{
		{"option, IPv4", macs + "0800" + ipv4 + data,
			macs + "0800 4800 002c 1234 4000 4006 0000 0a000001 0a000002 9e0c" + body + data, wire.CarrierOption},
		{"option, IPv4 with an option", macs + "0800 4600 0024 1234 4000 4006 0000 0a000001 0a000002 94040000" + data,
			macs + "0800 4900 0030 1234 4000 4006 0000 0a000001 0a000002 9e0c" + body + "94040000" + data, wire.CarrierOption},
		{"option, IPv6", macs + "86dd" + ipv6 + data,
			macs + "86dd 60000000 001c 3c40 20010db8000000000000000000000001 20010db8000000000000000000000002" +
				"0601 3e0a" + body + "0100" + data, wire.CarrierOption},
		{"tunnel, IPv4", macs + "0800" + ipv4 + data,
			macs + "0800 4500 0054 1234 4000 4011 0000 0a000001 0a000002 d234 17c1 0040 0000 04 00 0800 000000 00" +
				"ff5e 01 03" + body + "0000" + ipv4 + data, wire.CarrierTunnel},
		{"tunnel, IPv6", macs + "86dd" + ipv6 + data,
			macs + "86dd 60000000 0054 1140 20010db8000000000000000000000001 20010db8000000000000000000000002" +
				"d234 17c1 0054 0000 04 00 86dd 000000 00 ff5e 01 03" + body + "0000" + ipv6 + data, wire.CarrierTunnel},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before, after := mustHex(t, tc.before), mustHex(t, tc.after)
			if strings.Contains(tc.name, "IPv4") {
				before, after = withChecksum(before), withChecksum(after)
				if tc.carrier == wire.CarrierTunnel {
					copy(after[len(after)-len(before)+14:], before[14:])
				}
			}
			l := two
			l.Carrier = tc.carrier
			f := packet.NewFrame(before)
			link, _ := packet.ParseLink(before)
			got := h
			if !l.Insert(f, link, &got) || !bytes.Equal(f.Bytes(), after) {
				t.Fatalf("with header\n%x, want\n%x", f.Bytes(), after)
			}
			v6 := link.Type == packet.EtherTypeIPv6
			if n := len(after) - len(before); n != l.Overhead(v6) {
				t.Errorf("%d bytes longer, Overhead says %d", n, l.Overhead(v6))
			}
			var read Header
			if err := two.Peek(f.Bytes(), link, &read); err != nil || read.Carrier() != tc.carrier || read.Epoch != h.Epoch ||
				read.HostIndex != h.HostIndex || read.Hops != h.Hops || read.Slots != h.Slots {
				t.Fatalf("read %+v, %v", read, err)
			}
			if two.Strip(f, link, &read) != link.Type || !bytes.Equal(f.Bytes(), before) {
				t.Errorf("without header\n%x, want\n%x", f.Bytes(), before)
			}
		})
	}
}

// TestSizes: the overheads of the default form and of the largest one.
func TestSizes(t *testing.T) {
	largest := Layout{EtherType: DefaultEtherType, Slots: 4, Differences: 4}
	for _, tc := range []struct {
		layout  Layout
		carrier wire.Carrier
		v4, v6  int
	}{
		{two, wire.CarrierShim, 12, 12}, {two, wire.CarrierOption, 12, 16}, {two, wire.CarrierTunnel, 52, 72},
		{largest, wire.CarrierShim, 32, 32}, {largest, wire.CarrierOption, 32, 40}, {largest, wire.CarrierTunnel, 72, 92},
	} {
		l := tc.layout
		l.Carrier = tc.carrier
		if l.Overhead(false) != tc.v4 || l.Overhead(true) != tc.v6 || l.Check() != nil {
			t.Errorf("%+v: %d and %d bytes, want %d and %d; %v", l, l.Overhead(false), l.Overhead(true), tc.v4, tc.v6, l.Check())
		}
	}
	if (Layout{Carrier: "pigeon", EtherType: DefaultEtherType, Slots: 2}).Check() == nil {
		t.Error("an unknown carrier is accepted")
	}
}

// TestNoRoom: packets that cannot carry the header stay as they are.
func TestNoRoom(t *testing.T) {
	options := macs + "0800 4d00 0040 1234 4000 4006 0000 0a000001 0a000002" + strings.Repeat("01", 32)
	for name, text := range map[string]string{
		"options of 32 bytes": options, "ARP": macs + "0806 0001",
		"hop-by-hop options": macs + "86dd 60000000 000c 0040" + strings.Repeat("00", 32) + "0600 0104 0000 0000" + data,
		"jumbo payload":      macs + "86dd 60000000 0000 0640" + strings.Repeat("00", 32) + data,
		"cut":                macs + "0800 4500", "wrong version": macs + "0800 60" + strings.Repeat("00", 40),
		"64 KiB": macs + "0800 4500 fff8" + strings.Repeat("00", 40),
	} {
		for _, c := range []wire.Carrier{wire.CarrierOption, wire.CarrierTunnel} {
			if name == "options of 32 bytes" && c == wire.CarrierTunnel {
				continue
			}
			l := two
			l.Carrier = c
			frame := mustHex(t, text)
			f := packet.NewFrame(frame)
			link, _ := packet.ParseLink(frame)
			if l.Fits(link.Type, frame[link.TypeAt+2:]) || l.Insert(f, link, &Header{}) || !bytes.Equal(f.Bytes(), frame) {
				t.Errorf("%s, %s: changed to %x", name, c, f.Bytes())
			}
		}
	}
}

// TestSwitchedTunnel: the packet inside arrives with the TTL that switches have reduced outside.
func TestSwitchedTunnel(t *testing.T) {
	for _, text := range []string{macs + "0800" + ipv4 + data, macs + "86dd" + ipv6 + data} {
		frame := mustHex(t, text)
		at := 14 + 8
		if frame[12] == 0x86 {
			at = 14 + 7
		} else {
			withChecksum(frame)
		}
		l := two
		l.Carrier = wire.CarrierTunnel
		for ttl := range 65 {
			f := packet.NewFrame(frame)
			link, _ := packet.ParseLink(frame)
			var h Header
			l.Insert(f, link, &h)
			f.Bytes()[at] = byte(ttl)
			if err := l.Peek(f.Bytes(), link, &h); err != nil {
				t.Fatal(err)
			}
			l.Strip(f, link, &h)
			want := bytes.Clone(frame)
			want[at] = byte(ttl)
			if at == 14+8 {
				withChecksum(want)
			}
			if !bytes.Equal(f.Bytes(), want) {
				t.Fatalf("TTL %d: %x, want %x", ttl, f.Bytes(), want)
			}
		}
	}
}

// TestNotOurs: options and tunnels of others are ordinary packets.
func TestNotOurs(t *testing.T) {
	option := mustHex(t, macs+"0800 4800 002c 1234 4000 4006 0000 0a000001 0a000002 9e0c fffe 123456 07 0001 0203"+data)
	tunnel := mustHex(t, macs+"0800 4500 0054 1234 4000 4011 0000 0a000001 0a000002 d234 17c1 0040 0000 "+
		"04 00 0800 000000 00 ff5e 01 03 fffe 123456 07 0001 0203 0000"+ipv4+data)
	six := mustHex(t, macs+"86dd 60000000 001c 3c40"+strings.Repeat("11", 32)+
		"0601 3e0a fffe 123456 07 0001 0203 0100"+data)
	for _, tc := range []struct {
		name  string
		frame []byte
		at    int
		value byte
	}{
		{"another option", option, 34, 0x94}, {"another length", option, 35, 10}, {"no options", option, 14, 0x45},
		{"another port", tunnel, 37, 0xc2}, {"another class", tunnel, 50, 0xfe}, {"another type", tunnel, 52, 2},
		{"a longer option", tunnel, 53, 4}, {"more options", tunnel, 42, 6}, {"Ethernet inside", tunnel, 44, 0x65},
		{"a fragment", tunnel, 20, 0x20}, {"a later fragment", tunnel, 21, 1}, {"TCP", tunnel, 23, 6},
		{"another IPv6 option", six, 56, 0x1e}, {"another IPv6 length", six, 57, 8}, {"longer options", six, 55, 2},
	} {
		frame := bytes.Clone(tc.frame)
		link, _ := packet.ParseLink(frame)
		var h Header
		if err := two.Peek(frame, link, &h); err != nil {
			t.Fatalf("%s: the unchanged frame: %v", tc.name, err)
		}
		frame[tc.at] = tc.value
		if err := two.Peek(frame, link, &h); !errors.Is(err, ErrNoHeader) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// TestRandomPackets: any packet comes back as it was from each carrier, with valid checksums on the
// way.
func TestRandomPackets(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		l := Layout{EtherType: DefaultEtherType, Slots: 1 + rng.IntN(4), Differences: rng.IntN(5),
			Carrier: []wire.Carrier{wire.CarrierShim, wire.CarrierOption, wire.CarrierTunnel}[rng.IntN(3)]}
		frame := make([]byte, 14+60+rng.IntN(100))
		for i := range frame {
			frame[i] = byte(rng.Uint32())
		}
		v6 := rng.IntN(2) == 0
		if v6 {
			binary.BigEndian.PutUint16(frame[12:], packet.EtherTypeIPv6)
			frame[14] = 0x60 | frame[14]&0xf
			binary.BigEndian.PutUint16(frame[18:], uint16(len(frame)-14-40))
		} else {
			binary.BigEndian.PutUint16(frame[12:], packet.EtherTypeIPv4)
			frame[14] = 0x40 | byte(5+rng.IntN(11))
			binary.BigEndian.PutUint16(frame[16:], uint16(len(frame)-14))
			if frame[34] == optionIPv4 {
				frame[34] = noOption
			}
			withChecksum(frame)
		}
		link, _ := packet.ParseLink(frame)
		var before Header
		if l.Peek(frame, link, &before) == nil {
			continue
		}
		f := packet.NewFrame(frame)
		h := Header{Epoch: uint16(rng.Uint32()), HostIndex: rng.Uint32() & MaxHostIndex, Hops: uint8(rng.Uint32())}
		if !l.Insert(f, link, &h) {
			continue
		}
		b := f.Bytes()[14:]
		if !v6 && l.Carrier != wire.CarrierShim && sum(b[:headerIPv4(b)]) != 0xffff {
			t.Fatalf("%s: wrong checksum: %x", l.Carrier, f.Bytes())
		}
		link, _ = packet.ParseLink(f.Bytes())
		var got Header
		if err := l.Peek(f.Bytes(), link, &got); err != nil || got.Epoch != h.Epoch || got.HostIndex != h.HostIndex ||
			got.Hops != h.Hops {
			t.Fatalf("%s: %+v, %v, want %+v", l.Carrier, got, err, h)
		}
		l.Strip(f, link, &got)
		if !bytes.Equal(f.Bytes(), frame) {
			t.Fatalf("%s: %x came back as %x", l.Carrier, frame, f.Bytes())
		}
	}
}

// FuzzStrip: any bytes are read and stripped without reading beyond them, and what is stripped is
// as long as the header.
func FuzzStrip(f *testing.F) {
	f.Add(mustHex(f, macs+"0800 4800 002c 1234 4000 4006 0000 0a000001 0a000002 9e0c fffe 123456 07 0001 0203"+data),
		uint8(2), uint8(0))
	f.Add(mustHex(f, macs+"86dd 60000000 001c 3c40"+strings.Repeat("11", 32)+
		"0601 3e0a fffe 123456 07 0001 0203 0100"+data), uint8(2), uint8(0))
	f.Add(mustHex(f, macs+"0800 4500 0054 1234 4000 4011 0000 0a000001 0a000002 d234 17c1 0040 0000 "+
		"04 00 0800 000000 00 ff5e 01 03 fffe 123456 07 0001 0203 0000"+ipv4+data), uint8(2), uint8(0))
	f.Fuzz(func(t *testing.T, frame []byte, slots, differences uint8) {
		l := Layout{EtherType: DefaultEtherType, Slots: int(slots), Differences: int(differences)}
		link, err := packet.ParseLink(frame)
		if err != nil || l.Check() != nil {
			return
		}
		var h Header
		if l.Peek(frame, link, &h) != nil {
			return
		}
		fr := packet.NewFrame(frame)
		l.Strip(fr, link, &h)
		if len(fr.Bytes()) != len(frame)-h.size {
			t.Fatalf("%d bytes without a header of %d, from %d", len(fr.Bytes()), h.size, len(frame))
		}
	})
}
