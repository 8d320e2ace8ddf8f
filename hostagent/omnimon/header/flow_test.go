// SPDX-License-Identifier: Apache-2.0

package header

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/sketch/flow"
)

// TestFlowOfMarked: other roles of a host find the flow of a packet with the option of IPv6, which
// is that of the packet without it. Packets that end early and other options stay as they are.
func TestFlowOfMarked(t *testing.T) {
	parse := func(b []byte) flow.Key {
		var ip packet.IP
		if err := ip.Parse(packet.EtherTypeIPv6, b); err != nil {
			t.Fatal(err)
		}
		return ip.Key
	}
	skipped := func(b []byte) flow.Key {
		k := parse(b)
		packet.SkipMark(&k, b)
		return k
	}
	for name, tc := range map[string]struct {
		protocol byte
		payload  string
	}{
		"TCP":            {6, "04d20050 00000001 00000000 50122000 00000000"},
		"UDP":            {17, "04d20050 000c0000 61626364"},
		"first fragment": {44, "11000001 00000007 04d20050 000c0000"},
		"later fragment": {44, "11000008 00000007 04d20050 000c0000"},
		"ICMP":           {58, "80000000 00010001"},
	} {
		payload := mustHex(t, tc.payload)
		plain := append(mustHex(t, "60000000 0000 00 40"+"20010db8000000000000000000000001"+
			"20010db8000000000000000000000002"), payload...)
		plain[6] = tc.protocol
		binary.BigEndian.PutUint16(plain[4:], uint16(len(payload)))
		frame := append(mustHex(t, macs+"86dd"), plain...)
		link, err := packet.ParseLink(frame)
		if err != nil {
			t.Fatal(err)
		}
		for slots := 1; slots <= MaxSlots; slots++ {
			for differences := range MaxDifferences + 1 {
				l := Layout{Carrier: wire.CarrierOption, EtherType: DefaultEtherType, Slots: slots, Differences: differences}
				f := packet.NewFrame(frame)
				if !l.Insert(f, link, &Header{Epoch: 7, HostIndex: 8}) {
					t.Fatalf("%s: no room", name)
				}
				b := f.Bytes()[link.TypeAt+2:]
				if got, want := skipped(b), parse(plain); got != want {
					t.Errorf("%s, %+v: %v, want %v", name, l, got, want)
				}
				for at := 1; at <= 3; at++ { // another length, another option, other fields
					other := bytes.Clone(b)
					other[fixed6+at] ^= 8
					if k := skipped(other); k != parse(other) {
						t.Errorf("%s, %+v, byte %d: %v", name, l, at, k)
					}
				}
				if cut := b[:fixed6+l.option6()+4]; skipped(cut) != parse(cut) {
					t.Errorf("%s, %+v, cut: %v", name, l, skipped(cut))
				}
			}
		}
	}
}
