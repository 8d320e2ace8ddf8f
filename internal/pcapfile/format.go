// SPDX-License-Identifier: Apache-2.0

package pcapfile

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"time"
)

// linkType is a number of the registry of link types (draft-ietf-opsawg-pcaplinktype).
type linkType uint32

const (
	linkNull     linkType = 0
	linkEthernet linkType = 1
	linkRaw12    linkType = 12 // raw IP in files of some systems
	linkRaw14    linkType = 14 // raw IP of OpenBSD
	linkRaw      linkType = 101
	linkLoop     linkType = 108
	linkCooked   linkType = 113
	linkIPv4     linkType = 228
	linkIPv6     linkType = 229
	linkCooked2  linkType = 276
)

// check returns why packets of a link type cannot pass through switches.
func (l linkType) check() error {
	switch l {
	case linkEthernet, linkRaw, linkRaw12, linkRaw14, linkIPv4, linkIPv6, linkNull, linkLoop, linkCooked, linkCooked2:
		return nil
	}
	name := linkNames[l]
	if name == "" {
		name = "not known"
	}
	return fmt.Errorf("link type is %d (%s); expected Ethernet, raw IP, BSD loopback or Linux cooked", l, name)
}

// linkNames names link types whose packets cannot pass through switches.
var linkNames = map[linkType]string{6: "Token Ring", 8: "SLIP", 9: "PPP", 10: "FDDI", 11: "ATM", 50: "PPP",
	51: "PPPoE", 104: "Cisco HDLC", 105: "802.11", 107: "Frame Relay", 117: "OpenBSD pflog",
	119: "802.11 with Prism header", 122: "IP over Fibre Channel", 123: "ATM", 127: "802.11 with radiotap header",
	129: "ARCNET", 143: "DOCSIS", 163: "802.11 with AVS header", 166: "PPP of pppd", 187: "Bluetooth", 189: "USB",
	192: "PPI", 195: "802.15.4", 201: "Bluetooth", 204: "PPP with direction", 219: "MPLS", 220: "USB", 227: "SocketCAN",
	235: "DVB-CI", 239: "netfilter log", 242: "IP over InfiniBand", 247: "InfiniBand", 249: "USB", 253: "netlink",
	258: "Apple PKTAP", 271: "vsock", 274: "Ethernet with preamble"}

// Fields of the headers of a pcap file, and the bytes of a file's and a packet's header.
const (
	magicMicroseconds = 0xa1b2c3d4
	magicNanoseconds  = 0xa1b23c4d
	major, minor      = 2, 4
	fileHeader        = 24
	packetHeader      = 16
)

// step bounds the memory allocated for bytes that a length field announces, because a truncated
// file may lack them.
const step = 1 << 20

// input reads a file. Its buffer is used again by each call of read.
type input struct {
	r     *bufio.Reader
	buf   []byte
	begun bool // whether bytes of the current packet or block were read
}

// read returns the next n bytes. It fails with io.EOF if the file ends before a packet or block,
// and with io.ErrUnexpectedEOF if it ends within one.
func (in *input) read(n int) ([]byte, error) {
	in.buf = in.buf[:0]
	for len(in.buf) < n {
		have := len(in.buf)
		more := min(n-have, step)
		if cap(in.buf)-have < more {
			in.buf = append(make([]byte, 0, have+max(have, more)), in.buf...)
		}
		got, err := io.ReadFull(in.r, in.buf[have:have+more])
		in.begun = in.begun || got > 0
		in.buf = in.buf[:have+got]
		if errors.Is(err, io.EOF) && in.begun {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, err
		}
	}
	return in.buf, nil
}

// skip skips n bytes of a block.
func (in *input) skip(n int64) error {
	_, err := io.CopyN(io.Discard, in.r, n)
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// classic reads the pcap format.
type classic struct {
	in      *input
	order   binary.ByteOrder
	unit    time.Duration // unit of fractions of seconds
	link    linkType
	fcs     int    // bytes of the frame check sequence at the end of each packet
	longest uint32 // length of the longest valid packet, in bytes
}

func newClassic(in *input) (*classic, error) {
	h, err := in.read(fileHeader)
	if err != nil {
		return nil, err
	}
	c := &classic{in: in, order: binary.LittleEndian, unit: time.Microsecond}
	if h[0] == 0xa1 {
		c.order = binary.BigEndian
	}
	switch magic := c.order.Uint32(h); magic {
	case magicMicroseconds:
	case magicNanoseconds:
		c.unit = time.Nanosecond
	default:
		return nil, fmt.Errorf("the file begins with %x", h[:4])
	}
	if a, b := c.order.Uint16(h[4:]), c.order.Uint16(h[6:]); a != major || b != minor {
		return nil, fmt.Errorf("version %d.%d; expected %d.%d", a, b, major, minor)
	}
	// Some writers exceed the snapshot length that they declare. tcpdump reads their packets, too.
	c.longest = max(c.order.Uint32(h[16:]), snapLen)
	// The upper 4 bits are half the length of the frame check sequence, if bit 26 says so.
	link := c.order.Uint32(h[20:])
	c.link = linkType(link & 0xffff)
	if link&(1<<26) != 0 {
		c.fcs = 2 * int(link>>28)
	}
	return c, c.link.check()
}

func (c *classic) next() (record, error) {
	c.in.begun = false
	h, err := c.in.read(packetHeader)
	if err != nil {
		return record{}, err
	}
	r := record{link: c.link, length: int(c.order.Uint32(h[12:]))}
	r.date = time.Unix(int64(c.order.Uint32(h)), int64(c.order.Uint32(h[4:]))*int64(c.unit)).UTC()
	size := c.order.Uint32(h[8:])
	if magic := c.order.Uint32(h); (magic == magicMicroseconds || magic == magicNanoseconds) &&
		c.order.Uint16(h[4:]) == major && c.order.Uint16(h[6:]) == minor {
		return record{}, errors.New("another file begins; mergecap joins files")
	}
	if size > c.longest {
		return record{}, fmt.Errorf("a packet of %d bytes; expected at most %d", size, c.longest)
	}
	r.data, err = c.in.read(int(size))
	r.cut(c.fcs)
	return r, err
}

// cut removes the frame check sequence from a packet whose end was captured.
func (r *record) cut(fcs int) {
	if fcs > 0 && len(r.data) == r.length {
		r.length = max(r.length-fcs, 0)
		r.data = r.data[:r.length]
	}
}

// Blocks of pcapng (draft-ietf-opsawg-pcapng), and options of an interface.
const (
	byteOrder        = 0x1a2b3c4d
	blockInterface   = 1
	blockPacket      = 2 // obsolete
	blockSimple      = 3
	blockEnhanced    = 6
	blockEnds        = 12      // bytes of type and lengths
	longestBlock     = 1 << 26 // length of the longest block that is read
	optionResolution = 9
	optionFCS        = 13
	optionOffset     = 14
)

// sectionHeader is the type of a block that begins a section, and so a pcapng file.
var sectionHeader = []byte{0x0a, 0x0d, 0x0d, 0x0a}

// ng reads the pcapng format.
type ng struct {
	in         *input
	order      binary.ByteOrder
	interfaces []ngInterface // interfaces of the section
	packets    int           // packets returned so far
	skipped    int           // packets of link types that cannot pass through switches
	unusable   error         // reason for which the first skipped packet cannot pass
}

// ngInterface is an interface that packets name.
type ngInterface struct {
	link   linkType
	snap   uint32 // snapshot length, the most bytes stored of a packet; 0 is no limit
	fcs    int    // bytes of the frame check sequence at the end of each packet
	units  uint64 // units of date per second
	offset int64  // offset of dates in seconds
}

func newNg(in *input) (*ng, error) {
	n := &ng{in: in}
	_, _, err := n.block() // block of the section header
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// block reads a block and returns its type and its body, nil for blocks that are skipped.
func (n *ng) block() (kind uint32, body []byte, err error) {
	n.in.begun = false
	h, err := n.in.read(8)
	if err != nil {
		return 0, nil, err
	}
	head := [8]byte(h)
	left := int64(0) // bytes of the body that were read
	section := bytes.Equal(head[:4], sectionHeader)
	if section {
		if err := n.section(); err != nil {
			return 0, nil, err
		}
		left = 8
	}
	kind = n.order.Uint32(head[:])
	length := int64(n.order.Uint32(head[4:])) - blockEnds - left
	if length < 0 || length%4 != 0 {
		return 0, nil, fmt.Errorf("a block of %d bytes", n.order.Uint32(head[4:]))
	}
	known := kind == blockInterface || kind == blockPacket || kind == blockSimple || kind == blockEnhanced
	if section || !known {
		return kind, nil, n.in.skip(length + 4)
	}
	if length > longestBlock {
		return 0, nil, fmt.Errorf("a block of %d bytes; expected at most %d", length, longestBlock)
	}
	if body, err = n.in.read(int(length) + 4); err != nil {
		return 0, nil, err
	}
	return kind, body[:length], nil
}

// section reads the byte order and the version of a section.
func (n *ng) section() error {
	b, err := n.in.read(8)
	if err != nil {
		return err
	}
	n.order = binary.LittleEndian
	if b[0] == byteOrder>>24 {
		n.order = binary.BigEndian
	}
	if n.order.Uint32(b) != byteOrder {
		return fmt.Errorf("byte order %x", b[:4])
	}
	if v := n.order.Uint16(b[4:]); v != 1 {
		return fmt.Errorf("version %d of pcapng; expected 1", v)
	}
	n.interfaces = nil
	return nil
}

func (n *ng) next() (record, error) {
	for {
		kind, b, err := n.block()
		if errors.Is(err, io.EOF) && n.packets == 0 && n.unusable != nil {
			err = n.unusable
		}
		if err != nil {
			return record{}, err
		}
		var r record
		least := map[uint32]int{blockInterface: 8, blockPacket: 20, blockSimple: 4, blockEnhanced: 20}[kind]
		switch {
		case b == nil:
		case len(b) < least:
			return record{}, fmt.Errorf("block %d has %d bytes; expected at least %d", kind, len(b), least)
		case kind == blockInterface:
			err = n.addInterface(b)
		case kind == blockSimple:
			r, err = n.packet(0, n.order.Uint32(b), n.order.Uint32(b), b[4:], nil)
		case kind == blockEnhanced:
			r, err = n.packet(n.order.Uint32(b), n.order.Uint32(b[12:]), n.order.Uint32(b[16:]), b[20:], b[4:])
		default:
			r, err = n.packet(uint32(n.order.Uint16(b)), n.order.Uint32(b[12:]), n.order.Uint32(b[16:]), b[20:], b[4:])
		}
		if err != nil {
			return record{}, err
		}
		if b == nil || kind == blockInterface {
			continue
		}
		// The packet is skipped, because only some interfaces of a file may lack network packets, such as
		// USB.
		if err := r.link.check(); err != nil {
			n.skipped, n.unusable = n.skipped+1, cmp.Or(n.unusable, err)
			continue
		}
		n.packets++
		return r, nil
	}
}

// packet returns a packet of the interface with index at. size is the number of the packet's bytes
// in the file, data the rest of the block, and date begins with the packet's date. A nil date is a
// packet without a date, which is cut to the interface's snap length.
func (n *ng) packet(at, size, length uint32, data, date []byte) (record, error) {
	if uint64(at) >= uint64(len(n.interfaces)) {
		return record{}, fmt.Errorf("a packet of interface %d, but only %d interfaces are described", at, len(n.interfaces))
	}
	i := n.interfaces[at]
	if date == nil && i.snap != 0 {
		size = min(size, i.snap)
	}
	if uint64(size) > uint64(len(data)) {
		return record{}, fmt.Errorf("a packet of %d bytes in a block with %d", size, len(data))
	}
	r := record{link: i.link, length: int(length), data: data[:size]}
	r.cut(i.fcs)
	if date != nil {
		r.date = i.date(uint64(n.order.Uint32(date))<<32 | uint64(n.order.Uint32(date[4:])))
	}
	return r, nil
}

// date converts a date in the interface's units.
func (i *ngInterface) date(at uint64) time.Time {
	high, low := bits.Mul64(at%i.units, uint64(time.Second))
	nanoseconds, _ := bits.Div64(high, low, i.units)
	return time.Unix(int64(at/i.units)+i.offset, int64(nanoseconds)).UTC()
}

// addInterface reads the description of an interface.
func (n *ng) addInterface(b []byte) error {
	i := ngInterface{link: linkType(n.order.Uint16(b)), snap: n.order.Uint32(b[4:]), units: 1e6}
	for b = b[8:]; len(b) >= 4; {
		option, size := n.order.Uint16(b), int(n.order.Uint16(b[2:]))
		if option == 0 { // the last option
			break
		}
		padded := (size + 3) &^ 3
		if b = b[4:]; padded > len(b) {
			return fmt.Errorf("an option of %d bytes at the end of a block", size)
		}
		switch {
		case option == optionResolution && size == 1:
			if i.units = unitsOf(b[0]); i.units == 0 {
				return fmt.Errorf("resolution %#x of dates", b[0])
			}
		case option == optionFCS && size == 1:
			i.fcs = int(b[0])
		case option == optionOffset && size == 8:
			i.offset = int64(n.order.Uint64(b))
		}
		b = b[padded:]
	}
	n.interfaces = append(n.interfaces, i)
	return nil
}

// unitsOf returns the units per second that a resolution byte states as a negative power of 10 or
// of 2; 0 if the number exceeds 64 bits.
func unitsOf(resolution byte) uint64 {
	base, exponent := uint64(10), resolution
	if resolution&0x80 != 0 {
		base, exponent = 2, resolution&0x7f
	}
	units := uint64(1)
	for range exponent {
		if units > math.MaxUint64/base {
			return 0
		}
		units *= base
	}
	return units
}
