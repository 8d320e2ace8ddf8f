// SPDX-License-Identifier: Apache-2.0

// Package rawlink converts the packets that a packet socket reads to frames as they are on the
// wire. The kernel merges arriving packets (GRO, LRO), and leaves segmentation and checksums of
// sent packets to the device; a socket with PACKET_VNET_HDR describes this in a header in front of
// each frame.
package rawlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/netsketch/netsketch/internal/checksum"
)

// HeaderBytes is the size of the header in front of a frame, struct virtio_net_hdr.
const HeaderBytes = 10

// MaxFrame is the largest frame: a super-packet of a segmentation offload above 64 KB.
const MaxFrame = 8*0xffff + 64

// ErrUnknown is the error for a super-packet that cannot be split into its segments.
var ErrUnknown = errors.New("merged packets that cannot be split")

// Fields of the header in front of a frame, in the machine's byte order.
const (
	needsChecksum = 1 // bit of the flags

	typeNone   = 0
	typeTCPv4  = 1
	typeTCPv6  = 4
	typeUDP    = 5
	typeECN    = 0x80 // bit that accompanies the type of TCP
	udpZero    = 6    // offset of UDP's checksum, where 0 means no checksum
	followed   = 16   // largest number of headers in a frame
	macs       = 12
	ethernet   = macs + 2
	ipv4, ipv6 = 20, 40
	tcp, udp   = 20, 8
)

// EtherTypes and protocols.
const (
	etherIPv4, etherIPv6             = 0x0800, 0x86dd
	etherVLAN, etherQinQ, etherOldQ  = 0x8100, 0x88a8, 0x9100
	etherBridged, etherMPLS          = 0x6558, 0x8847
	hopByHop, ipInIP, protocolTCP    = 0, 4, 6
	protocolUDP, ip6InIP, routing    = 17, 41, 43
	protocolGRE, authentication      = 47, 51
	destinations, mobility, mplsInIP = 60, 135, 137
	hip, shim6                       = 139, 140
)

// Splitter splits super-packets. It reuses its memory.
type Splitter struct {
	frame  []byte
	layers []layer
}

// layer is a header with a length or a checksum.
type layer struct {
	kind int // a protocol, etherIPv4 or etherIPv6
	at   int
	sum  bool // UDP or GRE has a checksum
	ip   int  // index of the layer of the IP header in front
}

// Split calls f with each frame that the given frame was, or will be, on the wire. header is the
// header in front of the frame. Split changes frame; the slices passed to f are valid until Split
// returns. tagged states that a VLAN tag was put back into the frame, so that offsets in header
// are too small.
func (s *Splitter) Split(header, frame []byte, tagged bool, f func(frame []byte)) error {
	if len(header) < HeaderBytes {
		return fmt.Errorf("a header of %d bytes: %w", len(header), ErrUnknown)
	}
	order := binary.NativeEndian
	size := int(order.Uint16(header[4:]))
	if kind := header[1] &^ typeECN; kind != typeNone {
		switch kind {
		case typeTCPv4, typeTCPv6, typeUDP:
			return s.split(frame, size, f)
		}
		return fmt.Errorf("offload type %d: %w", kind, ErrUnknown)
	}
	if header[0]&needsChecksum != 0 {
		start, offset := int(order.Uint16(header[6:])), int(order.Uint16(header[8:]))
		if tagged {
			start += 4
		}
		if start+offset+2 > len(frame) || start < ethernet {
			return fmt.Errorf("a checksum at %d+%d of %d bytes: %w", start, offset, len(frame), ErrUnknown)
		}
		// The field holds the sum of the pseudo-header. A checksum of 0 would mean that UDP has no
		// checksum.
		put(frame[start+offset:], ^checksum.Sum(0, frame[start:]), offset == udpZero)
	}
	f(frame)
	return nil
}

func put(b []byte, checksum uint16, udp bool) {
	if udp && checksum == 0 {
		checksum = 0xffff
	}
	binary.BigEndian.PutUint16(b, checksum)
}

// split divides a super-packet into segments with size bytes of data each.
func (s *Splitter) split(frame []byte, size int, f func(frame []byte)) error {
	frame, at, err := s.follow(frame)
	switch {
	case err != nil:
		return err
	case size == 0:
		return fmt.Errorf("segments without data: %w", ErrUnknown)
	}
	data := frame[at:]
	for n := 0; n == 0 || len(data) > 0; n++ {
		m := min(size, len(data))
		s.frame = append(append(s.frame[:0], frame[:at]...), data[:m]...)
		data = data[m:]
		s.finish(n, size, len(data) == 0)
		f(s.frame)
	}
	return nil
}

// finish corrects the headers of segment n.
func (s *Splitter) finish(n, size int, last bool) {
	for i := len(s.layers) - 1; i >= 0; i-- { // innermost first, because checksums include the inner layers
		l := s.layers[i]
		b := s.frame[l.at:]
		switch l.kind {
		case etherIPv4:
			header := int(b[0]&15) * 4
			binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
			binary.BigEndian.PutUint16(b[4:], binary.BigEndian.Uint16(b[4:])+uint16(n))
			put(b[10:], 0, false)
			put(b[10:], ^checksum.Sum(0, b[:header]), false)
		case etherIPv6:
			binary.BigEndian.PutUint16(b[4:], uint16(len(b)-ipv6))
		case protocolGRE:
			if l.sum {
				clear(b[4:6])
				put(b[4:], ^checksum.Sum(0, b), false)
			}
		case protocolUDP:
			binary.BigEndian.PutUint16(b[4:], uint16(len(b)))
			if l.sum {
				clear(b[6:8])
				put(b[6:], ^checksum.Sum(s.pseudo(l, len(b)), b), true)
			}
		case protocolTCP:
			const (
				ends   = 0x09 // FIN and PSH belong to the last segment
				begins = 0x80 // CWR belongs to the first segment
			)
			binary.BigEndian.PutUint32(b[4:], binary.BigEndian.Uint32(b[4:])+uint32(n*size))
			if !last {
				b[13] &^= ends
			}
			if n > 0 {
				b[13] &^= begins
			}
			clear(b[16:18])
			put(b[16:], ^checksum.Sum(s.pseudo(l, len(b)), b), false)
		}
	}
}

// pseudo returns the sum of the pseudo-header of a layer.
func (s *Splitter) pseudo(l layer, length int) uint64 {
	ip := s.layers[l.ip]
	b := s.frame[ip.at:]
	addresses := b[12:20]
	if ip.kind == etherIPv6 {
		addresses = b[8:40]
	}
	return uint64(checksum.Sum(0, addresses)) + uint64(l.kind) + uint64(length)
}

// follow finds the layers of a super-packet, and the offset of the segments' data, which is behind
// the innermost TCP or UDP header. It returns the frame without headers that are not on the wire.
func (s *Splitter) follow(frame []byte) (out []byte, data int, err error) {
	s.layers = s.layers[:0]
	kind, at, ip, found := etherBridged, 0, 0, -1
	short := fmt.Errorf("headers end early: %w", ErrUnknown)
	tail := -1 // layers and data to use if the packet in a tunnel is not valid
	end := func() ([]byte, int, error) {
		if found < 0 {
			return nil, 0, fmt.Errorf("neither TCP nor UDP: %w", ErrUnknown)
		}
		s.layers = s.layers[:tail]
		return frame, found, nil
	}
	for range followed {
		b := frame[min(at, len(frame)):]
		have := func(n int) bool { return len(b) >= n }
		switch kind {
		case etherBridged:
			if !have(ethernet) {
				return end()
			}
			kind, at = int(binary.BigEndian.Uint16(b[macs:])), at+ethernet
		case etherVLAN, etherQinQ, etherOldQ:
			if !have(4) {
				return end()
			}
			kind, at = int(binary.BigEndian.Uint16(b[2:])), at+4
		case etherMPLS, etherMPLS + 1:
			if !have(5) {
				return end()
			}
			if at += 4; b[2]&1 != 0 {
				kind = version(b[4])
			}
		case etherIPv4:
			if !have(ipv4) || b[0]>>4 != 4 || b[0]&15 < 5 || !have(int(b[0]&15)*4) ||
				!reaches(int(binary.BigEndian.Uint16(b[2:])), 0, len(b)) {
				return end()
			}
			ip = len(s.layers)
			s.layers = append(s.layers, layer{kind: etherIPv4, at: at})
			kind, at = protocol|int(b[9]), at+int(b[0]&15)*4
		case etherIPv6:
			if !have(ipv6) || b[0]>>4 != 6 || !reaches(int(binary.BigEndian.Uint16(b[4:])), ipv6, len(b)) {
				return end()
			}
			if jumbo := b[6] == hopByHop && have(ipv6+8) && b[41] == 0 && b[42] == 0xc2 && b[43] == 4; jumbo {
				b[6] = b[40] // the header is not on the wire
				frame = append(frame[:at+ipv6], frame[at+ipv6+8:]...)
				b = frame[at:]
			}
			ip = len(s.layers)
			s.layers = append(s.layers, layer{kind: etherIPv6, at: at})
			kind, at = protocol|int(b[6]), at+ipv6
		case protocol | hopByHop, protocol | destinations, protocol | mobility, protocol | hip, protocol | shim6:
			if !have(8) {
				return nil, 0, short
			}
			kind, at = protocol|int(b[0]), at+8*(int(b[1])+1)
		case protocol | routing:
			const left = 3 // offset of "segments left"; unless it is 0, checksums use an address of the header
			if !have(8) || b[left] != 0 {
				return nil, 0, fmt.Errorf("a routing header: %w", ErrUnknown)
			}
			kind, at = protocol|int(b[0]), at+8*(int(b[1])+1)
		case protocol | ipInIP:
			kind = etherIPv4
		case protocol | ip6InIP:
			kind = etherIPv6
		case protocol | mplsInIP:
			kind = etherMPLS
		case protocol | protocolGRE:
			if !have(4) || b[0]&0x40 != 0 || b[1]&7 != 0 {
				return end()
			}
			n := 4 + 4*bits.OnesCount8(b[0]&0xb0) // optional words: checksum, key, sequence number
			if !have(n) {
				return nil, 0, short
			}
			s.layers = append(s.layers, layer{kind: protocolGRE, at: at, sum: b[0]&0x80 != 0})
			kind, at = int(binary.BigEndian.Uint16(b[2:])), at+n
		case protocol | protocolTCP:
			if !have(tcp) || b[12]>>4 < 5 || !have(int(b[12]>>4)*4) {
				return nil, 0, short
			}
			s.layers = append(s.layers, layer{kind: protocolTCP, at: at, ip: ip})
			return frame, at + int(b[12]>>4)*4, nil
		case protocol | protocolUDP:
			if !have(udp) {
				return nil, 0, short
			}
			s.layers = append(s.layers, layer{kind: protocolUDP, at: at, ip: ip, sum: b[6]|b[7] != 0})
			at += udp
			found, tail = at, len(s.layers)
			kind, at = inUDP(frame[at:], at)
		default:
			return end()
		}
	}
	return end()
}

// protocol, added to an IP protocol number, marks the header that follows an IP header.
const protocol = 0x10000

// version returns the EtherType of an IP packet by its first byte, or 0 if it is not an IP packet.
func version(first byte) int {
	switch first >> 4 {
	case 4:
		return etherIPv4
	case 6:
		return etherIPv6
	}
	return 0
}

// reaches reports whether an IP packet extends to the end of a super-packet. field is the packet's
// length field, header the number of bytes that the field does not count, and rest what remains of
// the super-packet. Above 64 KB, the field is 0. A packet that ends earlier is data of a segment.
func reaches(field, header, rest int) bool {
	if field == 0 {
		return rest > 0xffff
	}
	return field+header == rest
}

// inUDP returns the kind of packet that a UDP tunnel carries, and where it begins; 0 if b, UDP's
// data, is not a known tunnel. It recognizes tunnels by their headers, because ports can be
// configured.
func inUDP(b []byte, at int) (kind, next int) {
	if len(b) < 8 {
		return 0, at
	}
	switch kind := int(binary.BigEndian.Uint16(b[2:])); {
	case b[0]&0x7f == 0x08 && b[1]&^0x48 == 0: // VXLAN, also with group policies
		return etherBridged, at + 8
	case b[0] == 0x0c && b[2] == 0: // VXLAN GPE
		return map[byte]int{1: etherIPv4, 2: etherIPv6, 3: etherBridged}[b[3]], at + 8
	case b[0]>>6 == 0 && (kind == etherBridged || kind == etherIPv4 || kind == etherIPv6): // Geneve
		return kind, at + 8 + int(b[0]&0x3f)*4
	}
	return version(b[0]), at // FOU
}
