// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/netsketch/netsketch/hostagent/packet"
)

// plainSum is the Internet checksum of RFC 1071, computed plainly.
func plainSum(parts ...[]byte) uint16 {
	sum := uint32(0)
	for _, b := range parts {
		for i := range b {
			sum += uint32(b[i]) << (8 * (1 - i%2))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

func TestPacket(t *testing.T) {
	for _, tc := range []struct {
		source, destination string
		length, headers     int
	}{
		{"10.0.0.1", "10.0.0.2", 1488, 20}, {"10.0.0.1", "10.0.0.2", 601, 20}, {"10.0.0.1", "10.0.0.2", 0, 20},
		{"2001:db8::1", "2001:db8::2", 1484, 40}, {"2001:db8::1", "2001:db8::2", 1281, 40},
	} {
		want := Probe{Message: Message{Kind: KindProbe, Flags: FlagCarrier, Hops: 3, Nonce: Nonce{1, 2, 15: 9}},
			Source: netip.MustParseAddr(tc.source), Destination: netip.MustParseAddr(tc.destination), SourcePort: 9355,
			Length: tc.length}
		b := want.AppendPacket([]byte{7})[1:]
		length := max(tc.length, tc.headers+8+MessageSize)
		etherType := uint16(packet.EtherTypeIPv4)
		pseudo := binary.BigEndian.AppendUint16([]byte{0, packet.ProtocolUDP}, uint16(length-tc.headers))
		addresses := b[8:40]
		if tc.headers == 40 {
			etherType = packet.EtherTypeIPv6
		} else {
			addresses = b[12:20]
			if plainSum(b[:20]) != 0 {
				t.Errorf("%+v: wrong checksum of the IP header", tc)
			}
			if b[6] != 0x40 {
				t.Errorf("%+v: routers may fragment it", tc)
			}
		}
		if plainSum(addresses, pseudo, b[tc.headers:]) != 0 {
			t.Errorf("%+v: wrong UDP checksum", tc)
		}
		var ip packet.IP
		if err := ip.Parse(etherType, b); err != nil {
			t.Fatalf("%+v: %v", tc, err)
		}
		got, ok := Parse(&ip)
		if !ok || got.Message != want.Message || got.Source != want.Source || got.Destination != want.Destination ||
			got.SourcePort != want.SourcePort || got.Length != length || len(b) != length {
			t.Errorf("%+v: read %+v, %v, of %d bytes", tc, got, ok, len(b))
		}
	}
}

// TestOtherPackets: what is not a probe belongs to the host.
func TestOtherPackets(t *testing.T) {
	p := Probe{Message: Message{Kind: KindReply}, Source: netip.MustParseAddr("10.0.0.1"),
		Destination: netip.MustParseAddr("10.0.0.2"), SourcePort: FirstPort}
	good := p.AppendPacket(nil)
	for name, change := range map[string]func(b []byte) []byte{
		"other port": func(b []byte) []byte { b[23]++; return b },
		"TCP":        func(b []byte) []byte { b[9] = packet.ProtocolTCP; return b },
		"magic":      func(b []byte) []byte { b[28]++; return b },
		"kind 0":     func(b []byte) []byte { b[36] = 0; return b },
		"kind 3":     func(b []byte) []byte { b[36] = 3; return b },
		"cut":        func(b []byte) []byte { return b[:len(b)-1] },
		"fragment":   func(b []byte) []byte { b[7] = 1; return b },
	} {
		var ip packet.IP
		if err := ip.Parse(packet.EtherTypeIPv4, change(bytes.Clone(good))); err != nil {
			continue
		}
		if r, ok := Parse(&ip); ok {
			t.Errorf("%s: taken for %+v", name, r)
		}
	}
}

func FuzzMessage(f *testing.F) {
	m := Message{Kind: KindProbe, Flags: 1, Nonce: Nonce{1}}
	f.Add(m.Append(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, ok := ParseMessage(data)
		if !ok {
			return
		}
		again, ok := ParseMessage(m.Append(nil))
		if !ok || again != m {
			t.Errorf("%x decodes to %+v, then to %+v", data, m, again)
		}
		r := Received{Message: m, Source: netip.MustParseAddr("10.0.0.1"), Destination: netip.MustParseAddr("10.0.0.2")}
		var x Responder
		if reply, ok := x.Answer(0, r); ok && len(reply.AppendPayload(nil)) > len(data) {
			t.Errorf("a reply of %d bytes to a probe of %d", len(reply.AppendPayload(nil)), len(data))
		}
	})
}
