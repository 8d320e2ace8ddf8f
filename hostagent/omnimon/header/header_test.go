// SPDX-License-Identifier: Apache-2.0

package header

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
)

var two = Layout{EtherType: DefaultEtherType, Slots: 2}

func mustHex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const (
	macs = "020000000001 020000000002"
	vlan = "8100 0005"
)

func TestInsertAndStrip(t *testing.T) {
	full := Layout{EtherType: 0x1234, Slots: 4, Differences: 2}
	h := Header{Epoch: 0xfffe, HostIndex: 0x123456, Hops: 7, Slots: [4]uint16{1, 0x0203, 4, 5},
		Differences: [4]int32{-2, 1500}}
	short := h
	short.Slots[2], short.Slots[3], short.Differences = 0, 0, [4]int32{}
	tests := []struct {
		name          string
		layout        Layout
		header        Header
		before, after string
	}{
		{"IPv4", two, short, macs + "0800 4500", macs + "88b5 fffe 123456 07 0001 0203 0800 4500"},
		{"IPv6 and VLAN", two, short, macs + vlan + "86dd 60", macs + vlan + "88b5 fffe 123456 07 0001 0203 86dd 60"},
		{"QinQ, everything", full, h, macs + "88a8 0001" + vlan + "0800",
			macs + "88a8 0001" + vlan + "1234 fffe 123456 07 0001 0203 0004 0005 fffffffe 000005dc 0800"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			const rest = "00000000000000000000000000000000000000000000000000000000000000000000000000000000" // of IP
			before, after := mustHex(t, tc.before+rest), mustHex(t, tc.after+rest)
			f := packet.NewFrame(before)
			link, err := packet.ParseLink(f.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			h := tc.header
			tc.layout.Insert(f, link, &h)
			if !bytes.Equal(f.Bytes(), after) {
				t.Fatalf("with header %x, want %x", f.Bytes(), after)
			}
			if link, err = packet.ParseLink(f.Bytes()); err != nil {
				t.Fatal(err)
			}
			var got Header
			h.carrier, h.size = wire.CarrierShim, tc.layout.Size()
			if err := tc.layout.Peek(f.Bytes(), link, &got); err != nil || got != h {
				t.Errorf("read %+v, %v, want %+v", got, err, h)
			}
			tc.layout.Strip(f, link, &got)
			if !bytes.Equal(f.Bytes(), before) {
				t.Errorf("without header %x, want %x", f.Bytes(), before)
			}
		})
	}
}

func TestPeekErrors(t *testing.T) {
	var h Header
	for text, want := range map[string]error{
		macs + "0800 4500":                        ErrNoHeader,
		macs + "88b5 fffe 123456 07 0001 0203 08": ErrTruncated,
	} {
		frame := mustHex(t, text)
		link, err := packet.ParseLink(frame)
		if err != nil {
			t.Fatal(err)
		}
		if err := two.Peek(frame, link, &h); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
}

func TestCheck(t *testing.T) {
	for want, l := range map[string]Layout{
		"0x0005": {EtherType: 5, Slots: 2}, "0x0800": {EtherType: 0x800, Slots: 2}, "0 slots": {EtherType: DefaultEtherType},
		"5 slots": {EtherType: DefaultEtherType, Slots: 5}, "5 maxima": {EtherType: DefaultEtherType, Slots: 1,
			Differences: 5},
	} {
		if err := l.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want an error with %q", l, err, want)
		}
	}
	if err := two.Check(); err != nil || two.Size() != 12 {
		t.Errorf("%+v: %v, %d bytes", two, err, two.Size())
	}
}

func TestNoAllocations(t *testing.T) {
	frame := mustHex(t, macs+"0800"+strings.Repeat("00", 60))
	f := packet.NewFrame(frame)
	h := Header{Epoch: 3, HostIndex: 9, Slots: [4]uint16{1, 2}}
	if n := testing.AllocsPerRun(100, func() {
		link, _ := packet.ParseLink(f.Bytes())
		two.Insert(f, link, &h)
		link, _ = packet.ParseLink(f.Bytes())
		if two.Peek(f.Bytes(), link, &h) != nil {
			t.Fatal("no header")
		}
		two.Strip(f, link, &h)
	}); n != 0 {
		t.Errorf("%v allocations per packet", n)
	}
	if !bytes.Equal(f.Bytes(), frame) {
		t.Errorf("the frame changed to %x", f.Bytes())
	}
}

func FuzzHeader(f *testing.F) {
	f.Add(mustHex(f, macs+"88b5 fffe 123456 07 0001 0203 0800 4500"), uint8(2), uint8(0))
	f.Add(mustHex(f, macs+vlan+"88b5 fffe 123456 07 0001 0203 86dd 60"), uint8(4), uint8(4))
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
		if len(fr.Bytes()) != len(frame)-l.Size() {
			t.Fatalf("%d bytes without a header of %d, from %d", len(fr.Bytes()), l.Size(), len(frame))
		}
		l.Insert(fr, packet.Link{TypeAt: link.TypeAt, Type: h.Next}, &h)
		if !bytes.Equal(fr.Bytes(), frame) {
			t.Errorf("%x came back as %x", frame, fr.Bytes())
		}
	})
}
