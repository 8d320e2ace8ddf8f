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
	drop     int  // why not: index into ingress.drops
	v6       bool
	tos      byte // or traffic class
	src, dst []byte
	protocol byte
	ports    [4]byte
	ip       int    // offset of the IP header
	payload  int    // offset of what follows it and its extension headers
	later    bool   // fragment
	unparsed string // why the packet has no flow
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

// without sets why a frame has no flow.
func (p packet) without(reason string) packet {
	drop := map[string]int{"not-ip": dropNotIP, "bad-checksum": dropChecksum, "too-deep": dropDepth}[reason]
	p.drop, p.unparsed = max(drop, dropMalformed), reason
	return p
}

// parse parses a frame as all programs do.
func parse(f []byte) packet { return parseFrame(f, false) }

// parseFrame parses a frame, with encapsulations as UnivMon's programs do.
func parseFrame(f []byte, encapsulations bool) (p packet) {
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
	if encapsulations {
		reason := ""
		if kind, at, reason = parseLink(f, kind, at); reason != "" {
			return p.without(reason)
		}
	}
	p.ip = at
	h, next, first, sum := f[at:], 0, true, uint16(0)
	switch {
	case kind != 0x0800 && kind != 0x86dd:
		return p.without("not-ip")
	case kind == 0x0800 && len(h) < 20, kind == 0x86dd && len(h) < 40:
		return p.without("truncated")
	case kind == 0x0800 && h[0]>>4 != 4, kind == 0x86dd && h[0]>>4 != 6:
		return p.without("bad-version")
	case kind == 0x86dd:
		next = 40
		p.v6, p.src, p.dst, p.protocol, p.tos = true, h[8:24], h[24:40], h[6], h[0]<<4|h[1]>>4
		if p.protocol == 44 {
			if len(h) < 48 {
				return p.without("truncated")
			}
			next, p.protocol = 48, h[40]
			first = binary.BigEndian.Uint16(h[42:])>>3 == 0
		}
		if encapsulations && first {
			reason := ""
			if next, first, reason = parseExtensions(&p, h, next); reason != "" {
				return p.without(reason)
			}
		}
	case h[0]&15 < 5:
		return p.without("bad-length")
	default:
		if next = int(h[0]&15) * 4; len(h) < next {
			return p.without("truncated")
		}
		sum = checksum(h[:next])
		p.src, p.dst, p.protocol, p.tos = h[12:16], h[16:20], h[9], h[1]
		first = binary.BigEndian.Uint16(h[6:])&0x1fff == 0
	}
	if first && (p.protocol == 6 || p.protocol == 17) {
		if len(h) < next+4 {
			return p.without("truncated")
		}
		copy(p.ports[:], h[next:])
	}
	if sum != 0 {
		return p.without("bad-checksum")
	}
	p.counted, p.payload, p.later = true, at+next, !first
	return p
}

// parseLink parses what is behind four VLAN tags at most, and returns the EtherType of the IP
// header and its offset, or why there is none.
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
	forwarded int      // cells between those of a reason
	cells     []uint32 // of reason i at i + 1
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

	var estimates []int32
	for row := range u.rows {
		v := mix(h, rowOdd[row]) % uint32(2*u.columns)
		cell := &counters[(level*u.rows+row)*u.columns+int(v>>1)]
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
	u.keep(bank*u.levels+level, h, estimates[1], p)
}

// keep offers a flow to the heavy keys of a level, counted over the banks.
func (u *univmon) keep(level int, h uint32, estimate int32, p packet) {
	var slot []uint32
	held := false
	for way := range u.ways {
		number := (level*u.ways+way)*u.slots + int(mix(h, wayOdd[way])%uint32(u.slots))
		s := u.heavy[number*u.words:][:u.words]
		if held = s[1] == h && s[0] != 0; held || slot == nil || s[0] < slot[0] {
			slot = s
		}
		if held {
			break
		}
	}
	if int64(estimate) <= int64(slot[0]) {
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
