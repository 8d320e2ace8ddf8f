// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/bits"

	"github.com/netsketch/netsketch/p4/softswitch/bmv2json"
)

// The hashes are BMv2's, bit for bit; a test holds each to published check values.

type hashFunc func(b []byte) uint64

var hashes = map[string]hashFunc{
	"crc32":        func(b []byte) uint64 { return uint64(crc32.ChecksumIEEE(b)) },
	"crc32_custom": func(b []byte) uint64 { return uint64(crc32.ChecksumIEEE(b)) }, // its default polynomial
	"crc16":        crc16,
	"crc16_custom": crc16,
	"crcCCITT":     crcCCITT,
	"csum16":       csum16,
	"cksum16":      csum16,
	"xor16":        xor16,
	"identity":     identity,
}

var (
	crc16Table    = makeCRC16()
	crcCCITTTable = makeCCITT()
	crc32Slices   = makeCRC32Slices()
)

func makeCRC16() (t [256]uint16) {
	for i := range t {
		c := uint16(i)
		for range 8 {
			if c&1 == 1 {
				c = c>>1 ^ 0xa001
			} else {
				c >>= 1
			}
		}
		t[i] = c
	}
	return t
}

func crc16(b []byte) uint64 {
	var c uint16
	for _, x := range b {
		c = crc16Table[byte(c)^x] ^ c>>8
	}
	return uint64(c)
}

func makeCCITT() (t [256]uint16) {
	for i := range t {
		c := uint16(i) << 8
		for range 8 {
			if c&0x8000 != 0 {
				c = c<<1 ^ 0x1021
			} else {
				c <<= 1
			}
		}
		t[i] = c
	}
	return t
}

func crcCCITT(b []byte) uint64 {
	c := uint16(0xffff)
	for _, x := range b {
		c = crcCCITTTable[byte(c>>8)^x] ^ c<<8
	}
	return uint64(c)
}

// csum16 is the Internet checksum (RFC 1071).
func csum16(b []byte) uint64 {
	var sum, carry uint64
	for len(b) >= 8 {
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(b), carry)
		b = b[8:]
	}
	if len(b) > 0 {
		var tail [8]byte
		copy(tail[:], b)
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(tail[:]), carry)
	}
	sum, carry = bits.Add64(sum, carry, 0)
	sum += carry
	sum = sum>>32 + sum&0xffffffff
	sum = sum>>32 + sum&0xffffffff
	sum = sum>>16 + sum&0xffff
	sum = sum>>16 + sum&0xffff
	return ^sum & 0xffff
}

func xor16(b []byte) uint64 {
	var v uint16
	for len(b) >= 2 {
		v ^= binary.BigEndian.Uint16(b)
		b = b[2:]
	}
	if len(b) == 1 {
		v ^= uint16(b[0]) << 8
	}
	return uint64(v)
}

func identity(b []byte) uint64 {
	var v uint64
	for _, x := range b[:min(len(b), 8)] {
		v = v<<8 | uint64(x)
	}
	return v
}

func makeCRC32Slices() (t [4][256]uint32) {
	ieee := crc32.MakeTable(crc32.IEEE)
	for i := range 256 {
		c := ieee[i]
		t[0][i] = c
		for k := 1; k < 4; k++ {
			c = ieee[byte(c)] ^ c>>8
			t[k][i] = c
		}
	}
	return t
}

// crc32Word is crc32 of the four big-endian bytes of v.
func crc32Word(v uint32) uint32 {
	c := ^bits.ReverseBytes32(v)
	return ^(crc32Slices[3][byte(c)] ^ crc32Slices[2][byte(c>>8)] ^ crc32Slices[1][byte(c>>16)] ^ crc32Slices[0][c>>24])
}

// calculation is a hash over fields, constants, headers, and perhaps the payload. Fields of headers that are not valid are left
// out; what is left is packed bit by bit, the last byte filled with zeros.
type calculation struct {
	name    string
	algo    string
	fn      hashFunc // nil: random
	items   []calcItem
	payload bool

	// When all headers are valid, but for those of variable length:
	valid  []int // validity slots of headers that have to be valid
	absent []int // of headers with variable-length inputs, which have to be invalid
	emits  []emit
	bytes  int

	word int // slot of the only input, 32 bits, always valid; or -1
}

type calcItem struct {
	h     *header // nil: a constant
	whole bool    // the whole header
	slot  int     // field or constant
	words int
	width int
}

func (b *builder) calculation(name, algo string, inputs []bmv2json.CalcInput, src *bmv2json.Source) (*calculation, error) {
	b.what, b.src = fmt.Sprintf("calculation %q", name), src
	c := &calculation{name: name, algo: algo, word: -1}
	if c.fn = hashes[algo]; c.fn == nil && algo != "random" {
		return nil, unsupported(b.what, src, "hash algorithm %q", algo)
	}
	bit := 0
	seen := map[int]bool{}
	t := headerLayout{vl: -1}
	for i := range inputs {
		in := &inputs[i]
		switch in.Type {
		case "payload":
			c.payload = true
		case "hexstr":
			v := in.Value.Int
			if v.Sign() < 0 || v.BitLen() > in.Width {
				return nil, refuse(b.what, src, "constant input %v does not fit its %d bits", v, in.Width)
			}
			words := (in.Width + 63) / 64
			item := calcItem{slot: int(b.constant(v, words)), words: words, width: in.Width}
			c.items = append(c.items, item)
			t.wire(item.slot, bit, item.width)
			bit += in.Width
		case "header":
			h := b.headerNamed[in.Value.Name]
			if h == nil || h.metadata || bit%8 != 0 {
				return nil, refuse(b.what, src, "header %q is not declared, or does not begin at a byte", in.Value.Name)
			}
			c.items = append(c.items, calcItem{h: h, whole: true})
			if h.t.vl >= 0 {
				c.absent = append(c.absent, h.base)
				break
			}
			for _, p := range h.t.parts {
				t.wire(h.base+p.slot, bit+p.bit, p.width)
			}
			bit += h.t.bits
			if !h.metadata && !seen[h.base] {
				seen[h.base] = true
				c.valid = append(c.valid, h.base)
			}
		case "field":
			if in.Value.Field == validField {
				return nil, unsupported(b.what, src, "a header's validity as input")
			}
			h, f, ok := b.fieldAt(in.Value)
			if !ok {
				return nil, b.err
			}
			item := calcItem{h: h, slot: h.base + f.slot, words: f.words, width: f.width}
			c.items = append(c.items, item)
			if f.width == h.t.maxVL && h.t.vl >= 0 && &h.t.fields[h.t.vl] == f {
				c.absent = append(c.absent, h.base)
				break
			}
			t.wire(item.slot, bit, f.width)
			bit += f.width
			if !h.metadata && !seen[h.base] {
				seen[h.base] = true
				c.valid = append(c.valid, h.base)
			}
		}
	}
	if bit > maxHeaderBits {
		return nil, refuse(b.what, src, "input of %d bits; at most %d are supported", bit, maxHeaderBits)
	}
	t.finishEmits()
	c.emits, c.bytes = t.emits, (bit+7)/8
	if len(c.items) == 1 && c.items[0].width == 32 && len(c.valid)+len(c.absent) == 0 && !c.payload && c.algo == "crc32" {
		c.word = c.items[0].slot
	}
	return c, nil
}

// reads lists the slots that the calculation depends on.
func (c *calculation) reads() (slots []uint32) {
	for i := range c.items {
		it := &c.items[i]
		from, n := it.slot, it.words
		switch {
		case it.h == nil:
			continue
		case it.whole || it.h.t.vl >= 0: // with the length of its variable field
			from, n = it.h.base, it.h.t.slots
		case !it.h.metadata:
			slots = append(slots, uint32(it.h.base))
		}
		for s := range n {
			slots = append(slots, uint32(from+s))
		}
	}
	return slots
}

// compute runs the calculation.
func (c *calculation) compute(p *packet) uint64 {
	if c.fn == nil {
		return p.lane.random()
	}
	fast := true
	for _, s := range c.valid {
		fast = fast && p.f[s] != 0
	}
	for _, s := range c.absent {
		fast = fast && p.f[s] == 0
	}
	var buf []byte
	if fast {
		buf = p.lane.scratchOf(c.bytes + 8)
		var acc uint64
		for i := range c.emits {
			e := &c.emits[i]
			if e.right {
				acc |= p.f[e.slot] >> e.shift
			} else {
				acc |= p.f[e.slot] << e.shift
			}
			if e.flush {
				binary.BigEndian.PutUint64(buf[e.off:], acc)
				acc = 0
			}
		}
		buf = buf[:c.bytes]
	} else {
		buf = c.slow(p)
	}
	if c.payload {
		n := len(buf)
		payload := p.payload()
		buf = p.lane.growScratch(buf, n+len(payload))
		copy(buf[n:], payload)
	}
	return c.fn(buf)
}

func (c *calculation) slow(p *packet) []byte {
	bit := 0
	for i := range c.items {
		if it := &c.items[i]; it.h == nil || it.h.metadata || p.f[it.h.base] != 0 {
			bit += it.bits(p)
		}
	}
	buf := p.lane.scratchOf((bit + 7) / 8)
	clear(buf)
	bit = 0
	for i := range c.items {
		it := &c.items[i]
		if it.h != nil && !it.h.metadata && p.f[it.h.base] == 0 {
			continue
		}
		if it.whole {
			p.writeHeader(buf[bit/8:], it.h)
		} else {
			writeWide(buf, bit, it.bits(p), p.f[it.slot:it.slot+it.words])
		}
		bit += it.bits(p)
	}
	return buf
}

func (it *calcItem) bits(p *packet) int {
	switch {
	case it.whole:
		return p.headerBytes(it.h) * 8
	case it.h != nil && it.h.t.vl >= 0 && it.slot == it.h.base+it.h.t.fields[it.h.t.vl].slot:
		return int(p.f[it.h.base+it.h.t.vlLen])
	}
	return it.width
}
