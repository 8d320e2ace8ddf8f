// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// packet is a frame as docs/p4.md defines it.
type packet struct {
	counted  bool // belongs to a flow
	drop     int  // reason for the drop: index into ingress.drops
	v6       bool
	tos      byte // or traffic class
	src, dst []byte
	protocol byte
	ports    [4]byte
	ip       int    // offset of the outermost IP header
	payload  int    // offset of what follows the flow's IP header and its extension headers
	later    bool   // fragment
	unparsed string // why the packet has no flow
	body     int    // offset of OmniMon's header in its carrier, 0 without one
	closed   bool   // switches insert nothing: a fragment, or in a carrier other than an IPv4 option
	flags    int    // offset of the TCP header, 0 without one
	length   int    // length of the IP packet without the carrier
}

// Indexes into ingress.drops.
const (
	dropMalformed = 1 + iota
	dropChecksum
	dropNotIP
	dropTTL
	dropRoute
	dropRequest
	dropDepth
	dropReasons
)

// without returns the packet as one without a flow, for a reason.
func (p packet) without(reason string) packet {
	drop := map[string]int{"not-ip": dropNotIP, "bad-checksum": dropChecksum, "too-deep": dropDepth}[reason]
	p.counted, p.drop, p.unparsed = false, max(drop, dropMalformed), reason
	return p
}

// layout is the form of OmniMon's header in a network.
type layout struct {
	etherType          uint16
	slots, differences int
}

// ofHosts is the form that all programs but omnimon are compiled for.
var ofHosts = layout{etherType: 0x88b5, slots: 2}

// size is the length of OmniMon's header without a carrier.
func (l layout) size() int { return 6 + 2*l.slots + 4*l.differences }

// Lengths of the carriers: of the options in IPv4, of the extension header, of UDP and Geneve.
func (l layout) option4() int { return (2 + l.size() + 3) / 4 * 4 }
func (l layout) option6() int { return (4 + l.size() + 7) / 8 * 8 }
func (l layout) tunnel() int  { return 20 + (l.size()+3)/4*4 }

// parse parses a frame as all programs do.
func parse(f []byte) packet { return ofHosts.parse(f, false) }

// parseFrame parses a frame, with encapsulations as UnivMon's programs do.
func parseFrame(f []byte, encapsulations bool) packet { return ofHosts.parse(f, encapsulations) }

func (l layout) parse(f []byte, encapsulations bool) (p packet) {
	if len(f) < 14 {
		return p.without("truncated")
	}
	kind, at, most := binary.BigEndian.Uint16(f[12:]), 14, 2
	if encapsulations {
		most = 4
	}
	for tags := 0; kind == 0x8100 || kind == 0x88a8 || kind == 0x9100; tags++ {
		if tags == most {
			break
		}
		if len(f) < at+4 {
			return p.without("truncated")
		}
		kind, at = binary.BigEndian.Uint16(f[at+2:]), at+4
	}
	switch reason := ""; {
	case kind == l.etherType:
		if len(f) < at+l.size()+2 {
			return p.without("truncated")
		}
		p.body, p.closed = at, true
		at += l.size() + 2
		kind = binary.BigEndian.Uint16(f[at-2:])
	case encapsulations:
		if kind, at, reason = parseLink(f, kind, at); reason != "" {
			return p.without(reason)
		}
	}
	p.ip = at
	switch kind {
	case 0x0800:
		return l.parseIPv4(f, at, p, encapsulations, false)
	case 0x86dd:
		return l.parseIPv6(f, at, p, encapsulations, false)
	}
	return p.without("not-ip")
}

// parseIPv4 parses an IPv4 packet and what follows: the outermost one, or the one in a tunnel.
func (l layout) parseIPv4(f []byte, at int, p packet, encapsulations, carried bool) packet {
	h := f[at:]
	switch {
	case len(h) < 20:
		return p.without("truncated")
	case h[0]>>4 != 4:
		return p.without("bad-version")
	case h[0]&15 < 5:
		return p.without("bad-length")
	}
	next := int(h[0]&15) * 4
	if len(h) < next {
		return p.without("truncated")
	}
	// v1model compares the checksum with the one that it computes, so it refuses a checksum of all
	// ones where it computes zero.
	good := checksum(h[:next]) == 0 && binary.BigEndian.Uint16(h[10:]) != 0xffff
	if !carried {
		p.src, p.dst, p.tos = h[12:16], h[16:20], h[1]
	}
	p.protocol, p.length = h[9], int(binary.BigEndian.Uint16(h[2:]))
	if !carried && next >= 20+l.option4() && h[20] == 0x9e && int(h[21]) == 2+l.size() {
		if p.length -= l.option4(); p.body == 0 {
			p.body = at + 22
		}
	}
	fragment := binary.BigEndian.Uint16(h[6:])
	p.closed = p.closed || fragment&0x3fff != 0
	if p.protocol == 17 && fragment&0x3fff == 0 && !carried && next == 20 && p.length >= 40+l.tunnel() {
		if inner, reason := l.tunneled(f, at+20, 0x0800); reason != "" {
			return p.without(reason)
		} else if inner > 0 {
			if p.closed = true; p.body == 0 {
				p.body = at + 40
			}
			if p = l.parseIPv4(f, inner, p, encapsulations, true); p.counted && !good {
				return p.without("bad-checksum")
			}
			return p
		}
	}
	return p.transport(f, at+next, fragment&0x1fff != 0, good)
}

// parseIPv6 is parseIPv4 for IPv6.
func (l layout) parseIPv6(f []byte, at int, p packet, encapsulations, carried bool) packet {
	h := f[at:]
	switch {
	case len(h) < 40:
		return p.without("truncated")
	case h[0]>>4 != 6:
		return p.without("bad-version")
	}
	if !carried {
		p.v6, p.src, p.dst, p.tos = true, h[8:24], h[24:40], h[0]<<4|h[1]>>4
	}
	next, later, payload := 40, false, int(binary.BigEndian.Uint16(h[4:]))
	p.protocol, p.length = h[6], 40+payload
	if p.protocol == 60 && !carried && payload >= l.option6() {
		if len(h) < 44 {
			return p.without("truncated")
		}
		if int(h[41]) == l.option6()/8-1 && h[42] == 0x3e && int(h[43]) == l.size() {
			if len(h) < 40+l.option6() {
				return p.without("truncated")
			}
			if next, p.protocol = 40+l.option6(), h[40]; p.body == 0 {
				p.body = at + 44
			}
			p.length -= l.option6()
			carried, p.closed = true, true
		}
	}
	if p.protocol == 17 && !carried && payload >= l.tunnel()+40 {
		if inner, reason := l.tunneled(f, at+40, 0x86dd); reason != "" {
			return p.without(reason)
		} else if inner > 0 {
			if p.closed = true; p.body == 0 {
				p.body = at + 60
			}
			return l.parseIPv6(f, inner, p, encapsulations, true)
		}
	}
	if p.protocol == 44 {
		if len(h) < next+8 {
			return p.without("truncated")
		}
		p.protocol, later = h[next], binary.BigEndian.Uint16(h[next+2:])>>3 != 0
		p.closed = true
		next += 8
	}
	if encapsulations && !later {
		var reason string
		var first bool
		if next, first, reason = parseExtensions(&p, h, next); reason != "" {
			return p.without(reason)
		}
		later = !first
	}
	return p.transport(f, at+next, later, true)
}

// tunneled returns the offset of the IP packet in a tunnel whose UDP header is at an offset, 0 if
// there is no tunnel there.
func (l layout) tunneled(f []byte, at int, kind uint16) (inner int, reason string) {
	h, words := f[at:], byte((l.size()+3)/4)
	switch {
	case len(h) < 4:
		return 0, "truncated"
	case binary.BigEndian.Uint16(h[2:]) != 6081:
		return 0, ""
	case len(h) < 20:
		return 0, "truncated"
	}
	want := []byte{0, 0, 1 + words, 0, byte(kind >> 8), byte(kind), 0, 0, 0, 0, 0xff, 0x5e, 1, words}
	if string(h[6:20]) != string(want) {
		return 0, ""
	}
	if len(h) < l.tunnel() {
		return 0, "truncated"
	}
	return at + l.tunnel(), ""
}

// transport reads the ports. good reports that the checksums of all IP headers are right.
func (p packet) transport(f []byte, at int, later, good bool) packet {
	if !later && (p.protocol == 6 || p.protocol == 17) {
		if len(f) < at+4 {
			return p.without("truncated")
		}
		copy(p.ports[:], f[at:])
	}
	if !later && p.protocol == 6 {
		p.flags = at
	}
	if !good {
		return p.without("bad-checksum")
	}
	p.counted, p.payload, p.later = true, at, later
	return p
}

// parseLink parses the MPLS labels or the PPPoE session behind at most four VLAN tags, and returns
// the EtherType of the IP header and its offset, or why there is none.
func parseLink(f []byte, kind uint16, at int) (uint16, int, string) {
	switch kind {
	case 0x8100, 0x88a8, 0x9100:
		return 0, 0, "too-deep"
	case 0x8864:
		if len(f) < at+8 {
			return 0, 0, "truncated"
		}
		of := map[string]uint16{"\x11\x00\x00\x21": 0x0800, "\x11\x00\x00\x57": 0x86dd}
		return of[string(f[at:at+2])+string(f[at+6:at+8])], at + 8, ""
	case 0x8847, 0x8848:
		for label := range 7 {
			if label == 6 {
				return 0, 0, "too-deep"
			}
			if len(f) < at+4 {
				return 0, 0, "truncated"
			}
			if at += 4; f[at-2]&1 == 1 {
				break
			}
		}
		if len(f) == at {
			return 0, 0, "truncated"
		}
		return map[byte]uint16{4: 0x0800, 6: 0x86dd}[f[at]>>4], at, ""
	}
	return kind, at, ""
}

// parseExtensions parses IPv6 extension headers from an offset, and returns the offset behind them
// and whether the packet is not a later fragment, or why there is no flow.
func parseExtensions(p *packet, h []byte, at int) (next int, first bool, reason string) {
	for n := 0; ; n++ {
		b, known, length := h[at:], 2, 0
		switch p.protocol {
		case 0, 43, 60, 135, 139, 140, 51:
			if len(b) >= 2 {
				length = 8 * (int(b[1]) + 1)
			}
			if len(b) >= 2 && p.protocol == 51 {
				length = 4 * (int(b[1]) + 2)
			}
		case 44:
			known, length = 4, 8
		default:
			return at, true, ""
		}
		switch {
		case len(b) < known:
			return 0, false, "truncated"
		case n == 3:
			return 0, false, "too-deep"
		case len(b) < length:
			return 0, false, "truncated"
		case length > 48:
			return 0, false, "too-deep"
		}
		later := p.protocol == 44 && binary.BigEndian.Uint16(b[2:])>>3 != 0
		if p.protocol, at = b[0], at+length; later {
			return at, false, ""
		}
	}
}

// insertable returns a packet of a program that inserts something behind TCP and UDP headers: in a
// packet that can get it, these headers must be whole. ipv6 states whether the insertion is
// possible behind UDP over IPv6.
func (p packet) insertable(f []byte, ipv6 bool) packet {
	h := f[min(p.payload, len(f)):]
	switch {
	case !p.counted || p.closed:
	case p.protocol == 6 && (len(h) < 20 || len(h) < int(h[12]>>4)*4),
		p.protocol == 17 && (ipv6 || !p.v6) && len(h) < 8:
		return p.without("truncated")
	}
	return p
}

// checksum returns the ones' complement of the ones' complement sum; 0 when b has the
// right checksum in it.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(b[i])<<8 | uint32(b[i+1])
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

func (p packet) fiveTuple() []byte {
	return slices.Concat(p.src, p.dst, []byte{p.protocol}, p.ports[:])
}

// mix is the hash crc32(be32(h × odd)).
func mix(h, odd uint32) uint32 {
	return crc32.ChecksumIEEE(binary.BigEndian.AppendUint32(nil, h*odd))
}

// univmon models one instance of the UnivMon control.
type univmon struct {
	key                                                string
	levels, rows, columns, packets, ways, slots, words int
	counters, heavy                                    []uint32
	counterRegister, heavyRegister                     *p4values.Register
}

// unparsed models the packets of a program with UnivMon that have no flow.
type unparsed struct {
	reasons   []string
	forwarded int      // added to the index of a reason's cell if the packets are forwarded
	cells     []uint32 // counts by reason; reason i is at index i + 1
	register  *p4values.Register
}

// count counts a packet without a flow.
func (u *unparsed) count(bank int, reason string, forwarded bool) {
	at := 256*bank + 1 + slices.Index(u.reasons, reason)
	if forwarded {
		at += u.forwarded
	}
	u.cells[at]++
}

func newUnparsed(cat *p4values.Catalog) *unparsed {
	for _, r := range cat.Registers.All() {
		if a, _ := r.Annotations.Find("netsketch_univmon"); a.Values["part"] == "unparsed" {
			forwarded, _ := a.Int("forwarded")
			return &unparsed{strings.Split(a.Values["reasons"], ","), int(forwarded), make([]uint32, r.Size), r}
		}
	}
	return nil
}

var (
	rowOdd   = []uint32{0x9e3779b1, 0x85ebca6b, 0xc2b2ae35, 0x27d4eb2f, 0x165667b1}
	wayOdd   = []uint32{0x7feb352d, 0x846ca68b, 0xd6e8feb9, 0xb5297a4d}
	levelOdd = uint32(0x2545f491)
)

// instances makes a model of every UnivMon instance in a program.
func instances(cat *p4values.Catalog) map[string]*univmon {
	out := map[string]*univmon{}
	for _, r := range cat.Registers.All() {
		if r.Readout == nil {
			continue
		}
		a, ok := r.Annotations.Find("netsketch_univmon")
		if !ok || a.Values["key"] == "" {
			continue
		}
		number := func(key string) int {
			n, _ := a.Int(key) // an absent field stays zero
			return int(n)
		}
		u := out[a.Values["key"]]
		if u == nil {
			u = &univmon{key: a.Values["key"]}
			out[u.key] = u
		}
		u.levels = number("levels")
		if a.Values["part"] == "counters" {
			u.rows, u.columns, u.packets, u.counterRegister = number("rows"), number("columns"), number("packets"), r
			u.counters = make([]uint32, r.Size)
		} else {
			u.ways, u.slots, u.words, u.heavyRegister = number("ways"), number("slots"), number("words"), r
			u.heavy = make([]uint32, r.Size)
		}
	}
	return out
}

func (u *univmon) count(bank int, p packet) {
	key := p.fiveTuple()
	switch u.key {
	case "src":
		key = p.src
	case "dst":
		key = p.dst
	case "src+dst":
		key = slices.Concat(p.src, p.dst)
	case "dst+dst-port":
		key = slices.Concat(p.dst, p.ports[2:])
	case "proto":
		key = []byte{p.protocol}
	}
	h := crc32.ChecksumIEEE(key)
	level := min(bits.LeadingZeros32(^mix(h, levelOdd)), u.levels-1)
	counters := u.counters[bank*u.counterRegister.Readout.Cells:]
	counters[u.packets+level]++
	// Levels from the ninth on have a quarter of the columns and slots.
	wide, deep, shift := min(level, 8), max(level-8, 0), 0
	if level >= 8 {
		shift = 2
	}
	columns := (u.columns + 1<<shift - 1) >> shift
	first := u.rows * (wide*u.columns + deep*columns)

	var estimates []int32
	for row := range u.rows {
		v := mix(h, rowOdd[row]) % uint32(2*u.columns)
		cell := &counters[first+row*columns+int(v>>1)>>shift]
		if v&1 == 0 {
			*cell++
			estimates = append(estimates, int32(*cell))
		} else {
			*cell--
			estimates = append(estimates, -int32(*cell))
		}
	}
	estimates = estimates[:3]
	slices.Sort(estimates)
	slots := (u.slots + 1<<shift - 1) >> shift
	heavy := u.heavy[bank*u.heavyRegister.Readout.Cells:][u.ways*(wide*u.slots+deep*slots)*u.words:]
	u.keep(heavy, slots, shift, h, estimates[1], p)
}

// keep offers a flow to the heavy keys of a level.
func (u *univmon) keep(heavy []uint32, slots, shift int, h uint32, estimate int32, p packet) {
	var slot []uint32
	held := false
	for way := range u.ways {
		number := way*slots + int(mix(h, wayOdd[way])%uint32(u.slots))>>shift
		s := heavy[number*u.words:][:u.words]
		held = s[1] == h && s[0] != 0
		if held || slot == nil || s[0] < slot[0] || s[0] == slot[0] && s[1] > slot[1] {
			slot = s
		}
		if held {
			break
		}
	}
	if more := int64(estimate) - int64(slot[0]); more < 0 || more == 0 && h >= slot[1] {
		return
	}
	slot[0] = uint32(estimate)
	if !held {
		copy(slot[1:], u.identity(h, p))
	}
}

// identity returns the words of a slot after the first.
func (u *univmon) identity(h uint32, p packet) []uint32 {
	address := func(a []byte) []uint32 {
		out := make([]uint32, 4)
		for i := range len(a) / 4 {
			out[i] = binary.BigEndian.Uint32(a[4*i:])
		}
		return out
	}
	family := uint32(4)
	if p.v6 {
		family = 6
	}
	switch u.key {
	case "src":
		return slices.Concat([]uint32{h, family << 8}, address(p.src))
	case "dst":
		return slices.Concat([]uint32{h, family << 8}, address(p.dst))
	case "src+dst":
		return slices.Concat([]uint32{h, family << 8}, address(p.src), address(p.dst))
	case "dst+dst-port":
		port := uint32(binary.BigEndian.Uint16(p.ports[2:]))
		return slices.Concat([]uint32{h, family << 8, port}, address(p.dst))
	case "proto":
		return []uint32{h, family<<8 | uint32(p.protocol)}
	}
	return slices.Concat([]uint32{h, family<<8 | uint32(p.protocol), binary.BigEndian.Uint32(p.ports[:])},
		address(p.src), address(p.dst))
}
