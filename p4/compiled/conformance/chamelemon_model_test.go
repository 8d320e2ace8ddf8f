// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/binary"
	"hash/crc32"
	"slices"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// Hierarchies of docs/chamelemon-p4.md, and constants of its arithmetic.
const (
	cmNone = iota
	cmLight
	cmHeavy
	cmHitter

	cmPrime          = 1<<32 - 5
	cmFingerprintOdd = 0x7feb352d
)

// cmStep are the arrays' constants for the second hash.
var cmStep = [3]uint32{0xff51afd7, 0xed558ccd, 0x1a85ec53}

// part is the part of each array of an encoder that belongs to a hierarchy.
type part struct{ first, buckets uint32 }

// cmEpoch is the configuration of the epochs with one value of the time bit. Divisions
// are by family (0 IPv4, 1 IPv6) and hierarchy.
type cmEpoch struct {
	th, tl, sample, seed uint32
	upstream, downstream [2][4]part
}

// cmConfig is the configuration of an edge switch.
type cmConfig struct {
	epochs      [2]cmEpoch
	entry, exit []uint32 // ports of hosts by which packets enter and leave
	dscp        map[byte]byte
	unmarked    bool // packets get no mark
}

// chamelemon models the ChameleMon controls of one switch.
type chamelemon struct {
	config               cmConfig
	tower                [2]*cmRegister
	upstream, downstream [2]*cmRegister // by family
	dscpLost             int64
	counted              map[string]*[2]int64 // by counter's name, by bank
	all                  []*cmRegister
}

// cmRegister is a register of the model.
type cmRegister struct {
	register       *p4values.Register
	buckets, words int // size of an encoder
	cells          []uint32
}

// newChameleMon makes the model that belongs to a program, nil when it has no ChameleMon.
func newChameleMon(cat *p4values.Catalog) *chamelemon {
	c := &chamelemon{counted: map[string]*[2]int64{}}
	for _, name := range []string{"ingress.chamelemon.counted", "ingress.chamelemon.encoded_ipv6",
		"egress.chamelemon.encoded_ipv6"} {
		c.counted[name] = &[2]int64{}
	}
	for _, r := range cat.Registers.All() {
		a, ok := r.Annotations.Find("netsketch_chamelemon")
		if !ok {
			continue
		}
		number := func(key string) int {
			n, _ := a.Int(key) // an absent field stays zero
			return int(n)
		}
		m := &cmRegister{register: r, buckets: number("buckets"), words: number("words"), cells: make([]uint32, r.Size)}
		c.all = append(c.all, m)
		family := 0
		if number("family") == 6 {
			family = 1
		}
		switch {
		case a.Values["part"] == "classifier":
			c.tower[number("row")] = m
		case a.Values["side"] == "upstream":
			c.upstream[family] = m
		default:
			c.downstream[family] = m
		}
	}
	if len(c.all) == 0 {
		return nil
	}
	return c
}

// pass takes a packet through the switch: in by one port and, if it was not dropped, out
// by another one as the frame out, whose ToS or traffic class it changes.
func (c *chamelemon) pass(bank int, p packet, in, port uint32, out []byte) {
	enters, exits := slices.Contains(c.config.entry, in), port == cpuPort || slices.Contains(c.config.exit, port)
	if !p.counted || !enters && out == nil {
		return
	}
	tos := p.tos
	if enters {
		tos = c.enter(bank, p)
	}
	if out == nil {
		return
	}
	if exits && (port == cpuPort || !c.config.unmarked) {
		tos = c.leave(p, tos)
	}
	setTos(out[p.ip:], p.v6, tos)
}

// enter counts a packet on the upstream side and returns its ToS with the mark.
func (c *chamelemon) enter(time int, p packet) (tos byte) {
	h := crc32.ChecksumIEEE(p.fiveTuple())
	size := uint32(0xffff)
	for row, limit := range []uint32{0xff, 0xffff} {
		n := c.tower[row].register.Readout.Cells
		counter := &c.tower[row].cells[time*n+int(mix(h, rowOdd[row])%uint32(n))]
		if *counter < limit {
			*counter++
		}
		if *counter < limit {
			size = min(size, *counter)
		}
	}
	e := &c.config.epochs[time]
	hierarchy := cmNone
	switch {
	case size >= e.th:
		hierarchy = cmHitter
	case size >= e.tl:
		hierarchy = cmHeavy
	case mix(h, e.seed)&0xffff < e.sample:
		hierarchy = cmLight
	}
	c.counted["ingress.chamelemon.counted"][time]++
	switch {
	case !c.upstream[p.family()].count(time, e.upstream[p.family()][hierarchy], p):
		hierarchy = cmNone
	case p.v6:
		c.counted["ingress.chamelemon.encoded_ipv6"][time]++
	}
	if c.config.unmarked {
		return p.tos
	}
	code, known := c.config.dscp[p.tos>>2]
	if !known {
		code = p.tos >> 5
		if p.tos>>2&7 != 0 {
			c.dscpLost++
		}
	}
	return code<<5 | byte(hierarchy)<<3 | byte(time)<<2 | p.tos&3
}

// leave counts a marked packet on the downstream side and returns its ToS without the mark.
func (c *chamelemon) leave(p packet, tos byte) byte {
	hierarchy, time := min(tos>>3&3, cmHeavy), int(tos>>2&1)
	division := &c.config.epochs[time].downstream[p.family()]
	if c.downstream[p.family()].count(time, division[hierarchy], p) && p.v6 {
		c.counted["egress.chamelemon.encoded_ipv6"][time]++
	}
	for dscp, code := range c.config.dscp {
		if code == tos>>5 {
			return dscp<<2 | tos&3
		}
	}
	return tos & 0xe3
}

// count adds a packet to a part of the encoder. It does nothing if the part has no buckets.
func (m *cmRegister) count(time int, in part, p packet) bool {
	if in.buckets == 0 {
		return false
	}
	for array := range 3 {
		bucket := int(in.first + arrayHash(p.fiveTuple(), array)%in.buckets)
		cells := m.cells[((time*3+array)*m.buckets+bucket)*m.words:][:m.words]
		cells[0]++
		for i, f := range fragments(p.fiveTuple()) {
			cells[1+i] = uint32((uint64(cells[1+i]) + uint64(f)) % cmPrime)
		}
	}
	return true
}

// arrayHash is the hash of a key in an encoder's array.
func arrayHash(key []byte, array int) uint32 {
	return mix(crc32.ChecksumIEEE(key)*rowOdd[array]+uint32(crc16(key))*cmStep[array], 1)
}

// crc16 divides bit by bit: polynomial 0x8005, least significant bits first.
func crc16(b []byte) (crc uint16) {
	for _, v := range b {
		for bit := range 8 {
			out := (crc ^ uint16(v)>>bit) & 1
			if crc >>= 1; out == 1 {
				crc ^= 0xa001
			}
		}
	}
	return crc
}

// fragments cuts a key into numbers of four bytes. The last number has the key's last byte and,
// above it, the key's fingerprint of 20 bits.
func fragments(key []byte) (out []uint32) {
	for chunk := range slices.Chunk(key, 4) {
		out = append(out, binary.BigEndian.Uint32(append(make([]byte, 4-len(chunk)), chunk...)))
	}
	out[len(out)-1] |= mix(crc32.ChecksumIEEE(key), cmFingerprintOdd) & 0xfffff << 8
	return out
}

func (p packet) family() int {
	if p.v6 {
		return 1
	}
	return 0
}

// setTos writes ToS or traffic class into an IP header, and IPv4's checksum.
func setTos(h []byte, v6 bool, tos byte) {
	if v6 {
		h[0], h[1] = 0x60|tos>>4, tos<<4|h[1]&15
		return
	}
	h[1] = tos
	header := h[:int(h[0]&15)*4]
	header[10], header[11] = 0, 0
	binary.BigEndian.PutUint16(header[10:], checksum(header))
}
