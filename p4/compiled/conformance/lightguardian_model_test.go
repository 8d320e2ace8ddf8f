// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"testing"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/sumax"
)

// sketchlet is what docs/lightguardian-p4.md inserts behind a TCP or UDP header.
type sketchlet struct {
	device, column uint16
	interval       byte
	cells          []uint32
}

func (s sketchlet) bytes() []byte {
	b := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(make([]byte, 4), s.device), s.column)
	b = append(b, s.interval, byte(len(s.cells)))
	for _, c := range s.cells {
		b = binary.BigEndian.AppendUint32(b, c)
	}
	binary.BigEndian.PutUint32(b, crc32.ChecksumIEEE(b[4:]))
	return b
}

// with returns a frame with a sketchlet and the carry mark.
func (s sketchlet) with(f []byte) []byte { return marked(f, s.bytes()) }

// marked returns a frame with the carry mark and bytes in front of its payload. The length and the
// checksum of TCP or UDP stay wrong if they are.
func marked(f, inserted []byte) []byte {
	at := locate(f)
	before := seal(slices.Clone(f), tosOf(f)>>2)
	out := slices.Concat(f[:at.payload], inserted, f[at.payload:])
	mark := uint16(0x0800)
	if at.udp {
		out[at.ip+6] |= 0x80
		mark = 0
	} else {
		out[at.l4+12] |= 0x08
	}
	after := seal(slices.Clone(out), tosOf(f)>>2)
	if bytes.Equal(before, f) {
		return after
	}
	copy(out[:at.l4], after)
	n := uint16(len(inserted))
	terms := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(slices.Clone(inserted), mark), n)
	if at.udp {
		terms = binary.BigEndian.AppendUint16(terms, n)
		binary.BigEndian.PutUint16(out[at.l4+4:], binary.BigEndian.Uint16(f[at.l4+4:])+n)
	}
	if old := binary.BigEndian.Uint16(f[at.sum:]); !at.udp || old != 0 {
		binary.BigEndian.PutUint16(out[at.sum:], checksum(binary.BigEndian.AppendUint16(terms, ^old)))
	}
	return out
}

// lightguardian models LightGuardian's switch, as docs/lightguardian-p4.md describes it.
type lightguardian struct {
	config                  sumax.Config
	chancesMost, size       int // size is the length of a sketchlet
	device                  uint16
	probability, seed       uint32
	chances, mtu            int
	strip                   map[uint32]bool
	bank                    byte
	began, current, packets uint32
	hashed                  uint32 // seed of the last packet
	start                   uint64
	sketches                map[uint32]*sumax.Sketch[family.P4]
	carried                 []uint32
	events                  [8]int64
}

const (
	lgInserted = iota
	lgMTU
	lgFlipped
	lgStripped
	lgUnknown
	lgOld
)

var (
	chanceOdd = wayOdd
	anyOdd    = levelOdd
)

func newLightGuardian(t testing.TB, cat *p4values.Catalog) *lightguardian {
	t.Helper()
	for _, r := range cat.Registers.All() {
		a, ok := r.Annotations.Find("netsketch_lightguardian")
		if !ok {
			continue
		}
		number := func(key string) int {
			n, err := a.Int(key)
			if err != nil {
				t.Fatal(err)
			}
			return int(n)
		}
		m := &lightguardian{chancesMost: number("chances"), chances: 1, mtu: 1500, seed: 0x94d049bb,
			strip: map[uint32]bool{}, sketches: map[uint32]*sumax.Sketch[family.P4]{},
			config: sumax.Config{Rows: number("rows"), Width: number("columns"), NoSizes: number("sizes") == 0,
				Intervals: number("gaps") == 1}}
		for i := range number("delays") - 1 {
			m.config.Ranges = append(m.config.Ranges, 50<<i)
		}
		m.size = 10 + 4*m.config.Rows*m.cells()
		m.carried = make([]uint32, m.chancesMost*m.config.Width)
		return m
	}
	t.Fatal("the program has no register of LightGuardian")
	return nil
}

// cells is the count of cells of a bucket.
func (m *lightguardian) cells() int {
	n := len(m.config.Ranges) + 1
	if !m.config.NoSizes {
		n++
	}
	if m.config.Intervals {
		n += 2
	}
	return n
}

// sketch is the sketch of one interval.
func (m *lightguardian) sketch(t testing.TB, interval uint32) *sumax.Sketch[family.P4] {
	if m.sketches[interval] == nil {
		config := m.config
		config.Seed = uint64(m.seed)
		s, err := sumax.New[family.P4](config)
		if err != nil {
			t.Fatal(err)
		}
		m.sketches[interval] = s
	}
	return m.sketches[interval]
}

// passage is a packet between ingress and egress.
type passage struct {
	interval, random uint32
	now              uint32
	carry            bool
}

// arrive models ingress for a packet that belongs to a flow.
func (m *lightguardian) arrive(f []byte, micros uint64) (p passage) {
	if m.current == 0 && m.bank == 0 { // the controller has set no interval yet
		m.packets++
		return passage{}
	}
	if m.current == 0 {
		m.current = 256 + uint32(m.bank)
		m.began, m.start = m.current, micros
	} else if step := m.bank - byte(m.current); step != 0 {
		m.current += uint32(step)
		m.start = micros
	}
	if m.hashed != m.seed {
		m.began, m.hashed = m.current, m.seed
	}
	m.packets++
	p = passage{interval: m.current, random: mix(m.packets, m.seed), now: uint32(micros-m.start) + 1}
	p.carry = p.random&0xffff < m.probability && m.current-m.began >= 2 && carries(f)
	return p
}

// cutSketchlet reports whether a frame has the carry mark, and ends within the sketchlet that its
// lengths have room for. Switches drop it.
func cutSketchlet(f []byte, p packet) bool {
	h := f[min(p.payload, len(f)):]
	end := p.ip + 40 + int(binary.BigEndian.Uint16(f[p.ip+4:])) // end of the IP packet by its length field
	if !p.v6 {
		end = p.ip + int(binary.BigEndian.Uint16(f[p.ip+2:]))
	}
	var header int
	switch {
	case p.closed:
		return false
	case p.protocol == 6 && h[12]&8 != 0:
		header = int(h[12]>>4) * 4
	case p.protocol == 17 && !p.v6 && f[p.ip+6]&0x80 != 0:
		header = 8
	default:
		return false
	}
	room, have := end-p.payload-header, len(h)-header
	if room < 10 || have < 10 {
		return room >= 10
	}
	n := 10 + 4*int(h[header+9])
	return n <= room && n > have
}

// carries reports whether a frame can get a sketchlet.
func carries(f []byte) bool {
	p := parse(f)
	h, l4, length := f[p.ip:], p.payload-p.ip, 0
	if p.closed {
		return false
	}
	if p.v6 {
		length = 40 + int(binary.BigEndian.Uint16(h[4:]))
		if p.protocol != 6 {
			return false
		}
	} else {
		l4, length = int(h[0]&15)*4, int(binary.BigEndian.Uint16(h[2:]))
		if p.protocol != 6 && p.protocol != 17 {
			return false
		}
	}
	h = h[l4:]
	if p.protocol == 17 {
		return length >= l4+8 && f[p.ip+6]&0x80 == 0
	}
	n := int(h[12]>>4) * 4
	return n >= 20 && length >= l4+n && h[12]&8 == 0 && binary.BigEndian.Uint16(h[16:]) != 0xffff
}

// depart models egress: it measures the packet and returns it with the sketchlet, if it gets one.
func (m *lightguardian) depart(t testing.TB, f []byte, p passage, port uint32, delay uint32) (s *sketchlet) {
	if p.interval == 0 {
		m.events[lgOld]++
		return nil
	}
	flow := parse(f)
	m.sketch(t, p.interval).Record(flow.fiveTuple(), sumax.Packet{Delay: delay, At: p.now})
	if !p.carry || m.strip[port] {
		return nil
	}
	if len(f)-flow.ip+m.size > m.mtu {
		m.events[lgMTU]++
		return nil
	}
	m.events[lgInserted]++
	s = &sketchlet{device: m.device, interval: byte(p.interval - 1), column: m.choose(p)}
	var err error
	if s.cells, err = m.sketch(t, p.interval-1).Column(nil, int(s.column)); err != nil {
		t.Fatal(err)
	}
	return s
}

// choose selects a column with k chances.
func (m *lightguardian) choose(p passage) uint16 {
	width := uint32(m.config.Width)
	for i := range min(m.chances, m.chancesMost) {
		column := mix(p.random, chanceOdd[i]) % width
		bit := &m.carried[uint32(i)*width+column]
		if *bit != p.interval {
			*bit = p.interval
			return uint16(column)
		}
	}
	return uint16(mix(p.random, anyOdd) % width)
}
