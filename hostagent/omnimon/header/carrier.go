// SPDX-License-Identifier: Apache-2.0

package header

import (
	"encoding/binary"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
)

const (
	fixed4, fixed6 = 20, 40 // bytes of the IP headers without options
	maxIPv4        = 60     // bytes of an IPv4 header with options
	maxLength      = 65535

	// optionIPv4 is an experimental option that fragments repeat (RFC 4727).
	optionIPv4 = 0x9e
	noOption   = 0x01
	// optionIPv6 is experimental, skipped by nodes that do not know it, and may change on the path
	// (RFC 4727).
	optionIPv6         = 0x3e
	padN               = 0x01
	destinationOptions = 60
	hopByHop           = 0

	genevePort  = 6081
	geneveClass = 0xff5e
	geneveType  = 1
)

func (l Layout) option4() int { return (2 + l.body() + 3) &^ 3 }
func (l Layout) option6() int { return (4 + l.body() + 7) &^ 7 }

// geneve is the length of the headers of UDP and Geneve with the option.
func (l Layout) geneve() int { return 8 + 8 + 4 + l.data() }

// data is the length of the data of the option of Geneve.
func (l Layout) data() int { return (l.body() + 3) &^ 3 }

// put writes the fields of the header to b.
func (l Layout) put(b []byte, h *Header) {
	binary.BigEndian.PutUint16(b, h.Epoch)
	binary.BigEndian.PutUint32(b[2:], h.HostIndex<<8|uint32(h.Hops))
	at := 6
	for i := range l.Slots {
		binary.BigEndian.PutUint16(b[at:], h.Slots[i])
		at += 2
	}
	for i := range l.Differences {
		binary.BigEndian.PutUint32(b[at:], uint32(h.Differences[i]))
		at += 4
	}
}

// parse reads the fields of a header from b.
func (l Layout) parse(b []byte, h *Header) {
	word := binary.BigEndian.Uint32(b[2:])
	*h = Header{Epoch: binary.BigEndian.Uint16(b), HostIndex: word >> 8, Hops: uint8(word)}
	at := 6
	for i := range l.Slots {
		h.Slots[i] = binary.BigEndian.Uint16(b[at:])
		at += 2
	}
	for i := range l.Differences {
		h.Differences[i] = int32(binary.BigEndian.Uint32(b[at:]))
		at += 4
	}
}

// Insert puts the header into a frame whose link layer is link. It sets h.Next. It returns false,
// and leaves the frame as it is, if the packet has no room for it.
func (l Layout) Insert(f *packet.Frame, link packet.Link, h *Header) bool {
	h.Next = link.Type
	ip := link.TypeAt + 2
	switch {
	case l.Carrier == "" || l.Carrier == wire.CarrierShim:
		room := f.Insert(ip, l.Size())
		l.put(room, h)
		binary.BigEndian.PutUint16(room[l.body():], h.Next)
		binary.BigEndian.PutUint16(f.Bytes()[link.TypeAt:], l.EtherType)
		return true
	case link.Type == packet.EtherTypeIPv4 && l.Carrier == wire.CarrierOption:
		return l.insertOption4(f, ip, h)
	case link.Type == packet.EtherTypeIPv4:
		return l.insertTunnel4(f, ip, h)
	case link.Type == packet.EtherTypeIPv6 && l.Carrier == wire.CarrierOption:
		return l.insertOption6(f, ip, h)
	case link.Type == packet.EtherTypeIPv6:
		return l.insertTunnel6(f, ip, h)
	}
	return false
}

// Fits reports whether Insert has room for the header in the IP packet b of an EtherType.
func (l Layout) Fits(etherType uint16, b []byte) bool {
	switch {
	case l.Carrier == "" || l.Carrier == wire.CarrierShim:
		return true
	case etherType == packet.EtherTypeIPv4:
		n := l.Overhead(false)
		return len(b) >= fixed4 && b[0]>>4 == 4 && int(binary.BigEndian.Uint16(b[2:]))+n <= maxLength &&
			(l.Carrier == wire.CarrierTunnel || headerIPv4(b)+n <= maxIPv4)
	case etherType == packet.EtherTypeIPv6:
		length := int(binary.BigEndian.Uint16(b[4:])) // a length of 0 stands for a jumbo payload
		return len(b) >= fixed6 && b[0]>>4 == 6 && b[6] != hopByHop && length > 0 && length+l.Overhead(true) <= maxLength
	}
	return false
}

func headerIPv4(b []byte) int { return int(b[0]&0xf) * 4 }

func (l Layout) insertOption4(f *packet.Frame, ip int, h *Header) bool {
	if !l.Fits(packet.EtherTypeIPv4, f.Bytes()[ip:]) {
		return false
	}
	n := l.option4()
	room := f.Insert(ip+fixed4, n)
	room[0], room[1] = optionIPv4, byte(2+l.body())
	l.put(room[2:], h)
	for i := 2 + l.body(); i < n; i++ {
		room[i] = noOption
	}
	adjustIPv4(f.Bytes()[ip:], n, room)
	return true
}

// adjustIPv4 lengthens the header of an IPv4 packet by the n bytes of options, or shortens it if n
// is negative.
func adjustIPv4(b []byte, n int, options []byte) {
	first, length := binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	b[0] += byte(n / 4)
	binary.BigEndian.PutUint16(b[2:], length+uint16(n))
	change := uint64(first) + uint64(length) + 2*0xffff - uint64(binary.BigEndian.Uint16(b)) -
		uint64(binary.BigEndian.Uint16(b[2:]))
	if sum := packet.Sum(options) % 0xffff; n > 0 {
		change += 0xffff - sum
	} else {
		change += sum
	}
	packet.AddChecksum(b[10:12], change, 0xffff)
}

func (l Layout) insertOption6(f *packet.Frame, ip int, h *Header) bool {
	if !l.Fits(packet.EtherTypeIPv6, f.Bytes()[ip:]) {
		return false
	}
	n := l.option6()
	room := f.Insert(ip+fixed6, n)
	b := f.Bytes()[ip:]
	room[0], room[1], room[2], room[3] = b[6], byte(n/8-1), optionIPv6, byte(l.body())
	l.put(room[4:], h)
	pad := room[4+l.body():]
	clear(pad)
	if len(pad) > 1 { // a single zero is Pad1
		pad[0], pad[1] = padN, byte(len(pad)-2)
	}
	b[6] = destinationOptions
	binary.BigEndian.PutUint16(b[4:], binary.BigEndian.Uint16(b[4:])+uint16(n))
	return true
}

func (l Layout) insertTunnel4(f *packet.Frame, ip int, h *Header) bool {
	if !l.Fits(packet.EtherTypeIPv4, f.Bytes()[ip:]) {
		return false
	}
	room := f.Insert(ip, fixed4+l.geneve())
	inner := f.Bytes()[ip+len(room):]
	length := int(binary.BigEndian.Uint16(inner[2:])) + len(room)
	copy(room[:fixed4], inner[:fixed4])
	room[0] = 0x45
	binary.BigEndian.PutUint16(room[2:], uint16(length))
	room[6], room[7] = room[6]&0x40, 0 // do not fragment, as in the packet inside
	room[9], room[10], room[11] = packet.ProtocolUDP, 0, 0
	binary.BigEndian.PutUint16(room[10:], ^uint16(foldSum(packet.Sum(room[:fixed4]))))
	l.putGeneve(room[fixed4:], packet.EtherTypeIPv4, length-fixed4, h)
	return true
}

// foldSum brings a sum of words that are not all 0 to the form that is not 0.
func foldSum(s uint64) uint64 { return (s-1)%0xffff + 1 }

func (l Layout) insertTunnel6(f *packet.Frame, ip int, h *Header) bool {
	if !l.Fits(packet.EtherTypeIPv6, f.Bytes()[ip:]) {
		return false
	}
	room := f.Insert(ip, fixed6+l.geneve())
	inner := f.Bytes()[ip+len(room):]
	length := int(binary.BigEndian.Uint16(inner[4:])) + len(room)
	copy(room[:fixed6], inner[:fixed6])
	binary.BigEndian.PutUint16(room[4:], uint16(length))
	room[6] = packet.ProtocolUDP
	l.putGeneve(room[fixed6:], packet.EtherTypeIPv6, length, h)
	return true
}

// putGeneve writes the headers of UDP and Geneve.
func (l Layout) putGeneve(b []byte, etherType uint16, length int, h *Header) {
	clear(b)
	binary.BigEndian.PutUint16(b, 0xc000|h.Flow&0x3fff)
	binary.BigEndian.PutUint16(b[2:], genevePort)
	binary.BigEndian.PutUint16(b[4:], uint16(length)) // no checksum: RFC 6935
	b = b[8:]
	b[0] = byte((4 + l.data()) / 4)
	binary.BigEndian.PutUint16(b[2:], etherType)
	b = b[8:]
	binary.BigEndian.PutUint16(b, geneveClass)
	b[2], b[3] = geneveType, byte(l.data()/4)
	l.put(b[4:], h)
}

// Peek reads the header of a frame, whatever its carrier is, and leaves the frame as it is. The
// frame has the given link layer.
func (l Layout) Peek(frame []byte, link packet.Link, h *Header) error {
	b := frame[link.TypeAt+2:]
	switch link.Type {
	case l.EtherType:
		return l.peekShim(b, h)
	case packet.EtherTypeIPv4:
		return l.peekIPv4(b, h)
	case packet.EtherTypeIPv6:
		return l.peekIPv6(b, h)
	}
	return ErrNoHeader
}

func (l Layout) peekShim(b []byte, h *Header) error {
	if len(b) < l.Size()+fixed4 {
		return ErrTruncated
	}
	next := binary.BigEndian.Uint16(b[l.body():])
	if next != packet.EtherTypeIPv4 && (next != packet.EtherTypeIPv6 || len(b) < l.Size()+fixed6) {
		return ErrTruncated
	}
	l.parse(b, h)
	h.carrier, h.size, h.Next = wire.CarrierShim, l.Size(), next
	return nil
}

func (l Layout) peekIPv4(b []byte, h *Header) error {
	switch {
	case len(b) < fixed4 || b[0]>>4 != 4:
		return ErrNoHeader
	case b[0]&0xf > 5 && len(b) >= fixed4+4 && b[fixed4] == optionIPv4 && int(b[fixed4+1]) == 2+l.body():
		if n := l.option4(); headerIPv4(b) < fixed4+n || len(b) < headerIPv4(b) ||
			int(binary.BigEndian.Uint16(b[2:])) < headerIPv4(b) {
			return ErrTruncated
		}
		l.parse(b[fixed4+2:], h)
		h.carrier, h.size, h.Next = wire.CarrierOption, l.option4(), packet.EtherTypeIPv4
		return nil
	case b[9] == packet.ProtocolUDP && b[0]&0xf == 5 && binary.BigEndian.Uint16(b[6:])&0x3fff == 0:
		return l.peekGeneve(b, fixed4, packet.EtherTypeIPv4, h)
	}
	return ErrNoHeader
}

func (l Layout) peekIPv6(b []byte, h *Header) error {
	n := l.option6()
	switch {
	case len(b) < fixed6+4 || b[0]>>4 != 6:
		return ErrNoHeader
	case b[6] == packet.ProtocolUDP:
		return l.peekGeneve(b, fixed6, packet.EtherTypeIPv6, h)
	case b[6] != destinationOptions || int(b[fixed6+1]) != n/8-1 || b[fixed6+2] != optionIPv6 ||
		int(b[fixed6+3]) != l.body():
		return ErrNoHeader
	case len(b) < fixed6+n || int(binary.BigEndian.Uint16(b[4:])) < n:
		return ErrTruncated
	}
	l.parse(b[fixed6+4:], h)
	h.carrier, h.size, h.Next = wire.CarrierOption, n, packet.EtherTypeIPv6
	return nil
}

// peekGeneve reads the header from a tunnel whose UDP header is at an offset of the IP packet b.
func (l Layout) peekGeneve(b []byte, at int, etherType uint16, h *Header) error {
	u := b[at:]
	if len(u) < 20 || binary.BigEndian.Uint16(u[2:]) != genevePort || binary.BigEndian.Uint16(u[10:]) != etherType ||
		u[8] != byte((4+l.data())/4) || binary.BigEndian.Uint16(u[16:]) != geneveClass || u[18] != geneveType ||
		int(u[19]) != l.data()/4 {
		return ErrNoHeader
	}
	inner := fixed4
	if etherType == packet.EtherTypeIPv6 {
		inner = fixed6
	}
	if len(u) < l.geneve()+inner || int(u[l.geneve()]>>4) != int(b[0]>>4) {
		return ErrTruncated
	}
	l.parse(u[20:], h)
	h.Flow = binary.BigEndian.Uint16(u) & 0x3fff
	h.carrier, h.size, h.Next = wire.CarrierTunnel, at+l.geneve(), etherType
	return nil
}

// Strip removes the header h, which Peek read, from a frame. It returns the EtherType of the
// packet.
func (l Layout) Strip(f *packet.Frame, link packet.Link, h *Header) uint16 {
	ip := link.TypeAt + 2
	v6 := h.Next == packet.EtherTypeIPv6
	switch h.carrier {
	case wire.CarrierOption:
		b := f.Bytes()[ip:]
		if v6 {
			b[6] = b[fixed6]
			binary.BigEndian.PutUint16(b[4:], binary.BigEndian.Uint16(b[4:])-uint16(h.size))
			f.Remove(ip+fixed6, h.size)
		} else {
			adjustIPv4(b, -h.size, b[fixed4:fixed4+h.size])
			f.Remove(ip+fixed4, h.size)
		}
	case wire.CarrierTunnel:
		ttl := f.Bytes()[ip+ttlAt(v6)]
		f.Remove(ip, h.size)
		setTTL(f.Bytes()[ip:], v6, ttl)
	default:
		f.Remove(ip, h.size)
		binary.BigEndian.PutUint16(f.Bytes()[link.TypeAt:], h.Next)
	}
	return h.Next
}

func ttlAt(v6 bool) int {
	if v6 {
		return 7
	}
	return 8
}

// setTTL gives the packet of a tunnel the TTL with which the tunnel arrived, so that it arrives as
// without the tunnel.
func setTTL(b []byte, v6 bool, ttl uint8) {
	at := ttlAt(v6)
	if v6 {
		b[at] = ttl
		return
	}
	change := uint64(b[at])<<8 + 0xffff - uint64(ttl)<<8
	b[at] = ttl
	packet.AddChecksum(b[10:12], change, 0xffff)
}
