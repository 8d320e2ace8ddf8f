// SPDX-License-Identifier: Apache-2.0

package rawlink

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/netsketch/netsketch/internal/checksum"
)

// build builds a packet from the innermost header to the outermost one.
type build []byte

func data(n int) build {
	b := make(build, n)
	for i := range b {
		b[i] = byte(i * 7)
	}
	return b
}

func (b build) tcp(flags byte) build {
	h := []byte{0x04, 0xd2, 0x14, 0x51, 0xff, 0xff, 0xff, 0, 0, 0, 0, 9, 6 << 4, flags, 1, 0, 0, 0, 0, 0, 1, 1, 1, 1}
	return append(h, b...)
}

func (b build) udp(port uint16, sum bool) build {
	h := []byte{0xc0, 0, 0, 0, 0, 0, 0, 0}
	binary.BigEndian.PutUint16(h[2:], port)
	binary.BigEndian.PutUint16(h[4:], uint16(8+len(b)))
	if sum {
		h[7] = 1
	}
	return append(h, b...)
}

func (b build) ipv4(protocol byte) build {
	h := []byte{0x45, 0, 0, 0, 0xff, 0xfe, 0x40, 0, 64, protocol, 0, 0, 10, 0, 1, 1, 10, 0, 2, 9}
	if n := 20 + len(b); n <= 0xffff {
		binary.BigEndian.PutUint16(h[2:], uint16(n))
	}
	binary.BigEndian.PutUint16(h[10:], ^checksum.Sum(0, h))
	return append(h, b...)
}

func (b build) ipv6(next byte) build {
	h := make([]byte, 40)
	h[0], h[6], h[7], h[8], h[23], h[24], h[39] = 0x60, next, 64, 0xfd, 1, 0xfd, 2
	if len(b) <= 0xffff {
		binary.BigEndian.PutUint16(h[4:], uint16(len(b)))
	}
	return append(h, b...)
}

func (b build) behind(header ...byte) build { return append(header, b...) }

func (b build) ethernet(kind uint16) build {
	return append(binary.BigEndian.AppendUint16([]byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2}, kind), b...)
}

// header returns the header in front of a super-packet.
func header(kind byte, size int) []byte {
	h := make([]byte, HeaderBytes)
	h[1] = kind
	binary.NativeEndian.PutUint16(h[4:], uint16(size))
	return h
}

// super is a super-packet whose segments have size bytes of data.
type super struct {
	name  string
	kind  byte
	frame build
}

const (
	size  = 1000
	total = 20*size + 7
	psh   = 0x18
)

func supers() []super {
	tcp4 := func() build { return data(total).tcp(psh | 0x81).ipv4(6) }
	inner := func() build { return tcp4().ethernet(etherIPv4) }
	vxlan := []byte{8, 0, 0, 0, 0, 0, 9, 0}
	return []super{
		{"tcp", typeTCPv4, inner()},
		{"tcp with ECN", typeTCPv4 | typeECN, inner()},
		{"tcp over IPv6", typeTCPv6, data(total).tcp(psh).ipv6(6).ethernet(etherIPv6)},
		{"tcp behind options", typeTCPv6, data(total).tcp(psh).behind(6, 0, 1, 4, 0, 0, 0, 0).ipv6(60).ethernet(etherIPv6)},
		{"udp", typeUDP, data(total).udp(5000, true).ipv4(17).ethernet(etherIPv4)},
		{"udp over IPv6", typeUDP, data(total).udp(5000, true).ipv6(17).ethernet(etherIPv6)},
		{"udp without a checksum", typeUDP, data(total).udp(5000, false).ipv4(17).ethernet(etherIPv4)},
		{"tags", typeTCPv4, tcp4().behind(0, 5, 0x81, 0, 0, 6, 8, 0).ethernet(etherQinQ)},
		{"IPv4 in IPv4", typeTCPv4, tcp4().ipv4(4).ethernet(etherIPv4)},
		{"IPv6 in IPv4", typeTCPv6, data(total).tcp(psh).ipv6(6).ipv4(41).ethernet(etherIPv4)},
		{"IPv4 in IPv6", typeTCPv4, tcp4().ipv6(4).ethernet(etherIPv6)},
		{"GRE", typeTCPv4, tcp4().behind(0xb0, 0, 8, 0, 0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 9).ipv4(47).ethernet(etherIPv4)},
		{"Ethernet in GRE", typeTCPv4, inner().behind(0, 0, 0x65, 0x58).ipv4(47).ethernet(etherIPv4)},
		{"VXLAN", typeTCPv4, inner().behind(vxlan...).udp(8472, false).ipv4(17).ethernet(etherIPv4)},
		{"VXLAN with a checksum", typeTCPv4, inner().behind(vxlan...).udp(4789, true).ipv6(17).ethernet(etherIPv6)},
		{"Geneve", typeTCPv4, inner().behind(1, 0, 0x65, 0x58, 0, 0, 9, 0, 1, 2, 3, 0).udp(6081, true).ipv4(17).
			ethernet(etherIPv4)},
		{"MPLS", typeTCPv4, tcp4().behind(0, 1, 0x01, 64).ethernet(etherMPLS)},
	}
}

// verify checks the lengths and checksums of a frame and returns the data of TCP or UDP.
func verify(frame []byte) (payload []byte, err error) {
	kind, b := etherBridged, frame
	var addresses []byte
	check := func(what string, protocol int, b []byte) {
		pseudo := uint64(checksum.Sum(0, addresses)) + uint64(protocol) + uint64(len(b))
		if s := checksum.Sum(pseudo, b); s != 0xffff && err == nil {
			err = fmt.Errorf("wrong checksum of %s", what)
		}
	}
	for {
		switch kind {
		case etherBridged:
			kind, b = int(binary.BigEndian.Uint16(b[12:])), b[14:]
		case etherVLAN, etherQinQ:
			kind, b = int(binary.BigEndian.Uint16(b[2:])), b[4:]
		case etherMPLS:
			kind, b = etherIPv4, b[4:]
		case etherIPv4:
			if n := int(binary.BigEndian.Uint16(b[2:])); n != len(b) || checksum.Sum(0, b[:20]) != 0xffff {
				return nil, fmt.Errorf("an IPv4 header with a length of %d for %d bytes, or a wrong checksum", n, len(b))
			}
			addresses, kind, b = b[12:20], protocol|int(b[9]), b[20:]
		case etherIPv6:
			if n := int(binary.BigEndian.Uint16(b[4:])); n != len(b)-40 {
				return nil, fmt.Errorf("an IPv6 header with a length of %d for %d bytes", n, len(b)-40)
			}
			addresses, kind, b = b[8:40], protocol|int(b[6]), b[40:]
		case protocol | destinations:
			kind, b = protocol|int(b[0]), b[8:]
		case protocol | ipInIP:
			kind = etherIPv4
		case protocol | ip6InIP:
			kind = etherIPv6
		case protocol | protocolGRE:
			n := 4
			if b[0] == 0xb0 {
				if n = 16; checksum.Sum(0, b) != 0xffff {
					return nil, errors.New("wrong checksum of GRE")
				}
			}
			kind, b = int(binary.BigEndian.Uint16(b[2:])), b[n:]
		case protocol | protocolTCP:
			check("TCP", protocolTCP, b)
			return b[b[12]>>4*4:], err
		case protocol | protocolUDP:
			if int(binary.BigEndian.Uint16(b[4:])) != len(b) {
				return nil, errors.New("a wrong length of UDP")
			}
			if b[6]|b[7] != 0 {
				check("UDP", protocolUDP, b)
			}
			switch binary.BigEndian.Uint16(b[2:]) {
			case 8472, 4789:
				kind, b = etherBridged, b[16:]
			case 6081:
				kind, b = etherBridged, b[20:]
			default:
				return b[8:], err
			}
		default:
			return nil, fmt.Errorf("type %#x", kind)
		}
	}
}

// TestSplit: the segments of a super-packet have correct lengths and checksums, and together the
// super-packet's data.
func TestSplit(t *testing.T) {
	var s Splitter
	for _, p := range supers() {
		var got []byte
		n, headers := 0, len(p.frame)-total
		var flags []byte
		err := s.Split(header(p.kind, size), bytes.Clone(p.frame), false, func(frame []byte) {
			n++
			payload, err := verify(frame)
			if err != nil {
				t.Errorf("%s, segment %d: %v", p.name, n, err)
			}
			if len(frame) > headers+size {
				t.Errorf("%s: a segment of %d bytes, want %d at most", p.name, len(frame), headers+size)
			}
			got = append(got, payload...)
			flags = append(flags, frame[headers-24+13])
		})
		if err != nil || n != 21 || !bytes.Equal(got, data(total)) {
			t.Errorf("%s: %v, %d segments with %d bytes, want 21 with %d", p.name, err, n, len(got), total)
		}
		if p.name == "tcp" && (flags[0] != 0x90 || flags[1] != 0x10 || flags[20] != 0x19) {
			t.Errorf("flags %x, want CWR in the first segment, and PSH and FIN in the last one", flags)
		}
	}
}

// TestJumbo: super-packets above 64 KB have no length, and in IPv6 an extension header that is not
// on the wire.
func TestJumbo(t *testing.T) {
	const long = 100_000
	jumbo := data(long).tcp(psh).behind(6, 0, 0xc2, 4, 0, 1, 0x86, 0xb8).ipv6(0)
	binary.BigEndian.PutUint16(jumbo[4:], 0)
	for name, frame := range map[string]build{
		"IPv6 with a jumbo header": jumbo.ethernet(etherIPv6),
		"IPv6":                     data(long).tcp(psh).ipv6(6).ethernet(etherIPv6),
		"IPv4":                     data(long).tcp(psh).ipv4(6).ethernet(etherIPv4),
	} {
		var s Splitter
		var got []byte
		err := s.Split(header(typeTCPv6, 1448), frame, false, func(frame []byte) {
			payload, err := verify(frame)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			got = append(got, payload...)
		})
		if err != nil || !bytes.Equal(got, data(long)) {
			t.Errorf("%s: %v, %d bytes", name, err, len(got))
		}
	}
}

// TestDatagrams: UDP datagrams that only look like a tunnel are not treated as one, because the
// inner packet would end with the first datagram.
func TestDatagrams(t *testing.T) {
	one := data(size-62).tcp(0).ipv4(6).ethernet(etherIPv4).behind(8, 0, 0, 0, 0, 0, 9, 0)
	frame := slices.Concat(one, one, one).udp(4789, true).ipv4(17).ethernet(etherIPv4)
	var s Splitter
	n := 0
	err := s.Split(header(typeUDP, len(one)), frame, false, func(frame []byte) {
		n++
		if !bytes.Equal(frame[42:], one) {
			t.Errorf("datagram %d differs", n)
		}
	})
	if err != nil || n != 3 {
		t.Errorf("%v, %d datagrams", err, n)
	}
}

// TestChecksum: Split completes a checksum that the kernel left to the device.
func TestChecksum(t *testing.T) {
	for _, tagged := range []bool{false, true} {
		segment := data(30).tcp(psh)
		packet := segment.ipv4(6)
		pseudo := checksum.Sum(uint64(checksum.Sum(0, packet[12:20]))+protocolTCP+uint64(len(segment)), nil)
		binary.BigEndian.PutUint16(packet[20+16:], pseudo)
		frame := packet.ethernet(etherIPv4)
		if tagged {
			frame = packet.behind(0, 5, 8, 0).ethernet(etherVLAN)
		}
		h := header(typeNone, 0)
		h[0] = needsChecksum
		binary.NativeEndian.PutUint16(h[6:], ethernet+ipv4) // offset in the frame without the tag
		binary.NativeEndian.PutUint16(h[8:], 16)
		n := 0
		err := new(Splitter).Split(h, frame, tagged, func(frame []byte) {
			n++
			if _, err := verify(frame); err != nil {
				t.Errorf("tagged %v: %v", tagged, err)
			}
		})
		if err != nil || n != 1 {
			t.Errorf("tagged %v: %v, %d frames", tagged, err, n)
		}
	}
}

// FuzzSplit: any frame is split into frames with all of its data, or refused.
func FuzzSplit(f *testing.F) {
	for _, p := range supers() {
		f.Add(header(p.kind, size), []byte(p.frame[:400]), false)
	}
	f.Fuzz(func(t *testing.T, header, frame []byte, tagged bool) {
		var s Splitter
		n, bytes := 0, 0
		err := s.Split(header, frame, tagged, func(frame []byte) {
			n++
			bytes += len(frame)
		})
		if err == nil && (n == 0 || bytes < len(frame)-8) {
			t.Errorf("%d frames with %d bytes of %d", n, bytes, len(frame))
		}
		if err != nil && !errors.Is(err, ErrUnknown) {
			t.Error(err)
		}
	})
}
