// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"slices"

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
	ip       int // offset of the IP header
}

// Indexes into ingress.drops.
const (
	dropMalformed = 1 + iota
	dropChecksum
	dropNotIP
	dropTTL
	dropRoute
	dropRequest
	dropReasons = 8
)

func parse(f []byte) (p packet) {
	p.drop = dropMalformed
	if len(f) < 14 {
		return p
	}
	kind, at := binary.BigEndian.Uint16(f[12:]), 14
	for tags := 0; tags < 2 && (kind == 0x8100 || kind == 0x88a8 || kind == 0x9100); tags++ {
		if len(f) < at+4 {
			return p
		}
		kind, at = binary.BigEndian.Uint16(f[at+2:]), at+4
	}
	p.ip = at
	h, next, first, sum := f[at:], 0, true, uint16(0)
	switch {
	case kind == 0x0800 && len(h) >= 20 && h[0]>>4 == 4 && h[0]&15 >= 5 && len(h) >= int(h[0]&15)*4:
		next = int(h[0]&15) * 4
		sum = checksum(h[:next])
		p.src, p.dst, p.protocol, p.tos = h[12:16], h[16:20], h[9], h[1]
		first = binary.BigEndian.Uint16(h[6:])&0x1fff == 0
	case kind == 0x86dd && len(h) >= 40 && h[0]>>4 == 6:
		next = 40
		p.v6, p.src, p.dst, p.protocol, p.tos = true, h[8:24], h[24:40], h[6], h[0]<<4|h[1]>>4
		if p.protocol == 44 {
			if len(h) < 48 {
				return p
			}
			next, p.protocol = 48, h[40]
			first = binary.BigEndian.Uint16(h[42:])>>3 == 0
		}
	case kind == 0x0800 || kind == 0x86dd:
		return p
	default:
		p.drop = dropNotIP
		return p
	}
	if first && (p.protocol == 6 || p.protocol == 17) {
		if len(h) < next+4 {
			return p
		}
		copy(p.ports[:], h[next:])
	}
	if sum != 0 {
		p.drop = dropChecksum
		return p
	}
	p.drop, p.counted = 0, true
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
		if !ok {
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
