// SPDX-License-Identifier: Apache-2.0

package chamelemon

import (
	"encoding/binary"
	"strconv"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/rowhash"
)

// Numbers of the hierarchies in the program.
const (
	codeNone = iota // not encoded
	codeLL
	codeHL
	codeHH
	codes
)

const (
	maxSmall, maxLarge = 0xff, 0xffff // values of overflowed counters
	Arrays             = 3
	prime              = 4294967291
	fingerprintOdd     = 0x7feb352d
	families           = 2 // IPv4 and IPv6
)

var keyBytes = [families]int{13, 37}

// Shape is the sizes of an edge switch's structures.
type Shape struct {
	Small, Large int           // number of counters in the classifier's rows of 8 bits and of 16 bits
	Up, Down     [families]int // buckets per array of the encoders, for IPv4 and IPv6
}

// Paper returns the sizes of the program chamelemon, which are the paper's (§5.2).
func Paper() Shape {
	return Shape{Small: 32768, Large: 16384, Up: [families]int{4096, 1024}, Down: [families]int{3072, 768}}
}

// UpstreamBuckets is the paper's size of the upstream encoder of IPv4, in buckets per array.
const UpstreamBuckets = 4096

// Names of the registers.
const smallRow, largeRow = "ingress.chamelemon.tower8", "ingress.chamelemon.tower16"

var (
	upNames   = [families]string{"ingress.chamelemon.upstream", "ingress.chamelemon.upstream_ipv6"}
	downNames = [families]string{"chamelemon_downstream", "chamelemon_downstream_ipv6"}
)

// words returns the number of cells of a bucket of a family: one for the count, and one sum for
// each four bytes of the key.
func words(family int) int { return 1 + (keyBytes[family]+3)/4 }

// objects are the registers of an edge switch as P4Info describes them.
func (z *Shape) objects() []sdk.Object {
	out := []sdk.Object{
		{Name: smallRow, Cells: z.Small, Width: 8, Banks: 2,
			Annotations: sdk.Annotations{"netsketch_chamelemon": {"part": "classifier", "row": "0", "bits": "8",
				"counters": strconv.Itoa(z.Small)}}},
		{Name: largeRow, Cells: z.Large, Width: 16, Banks: 2,
			Annotations: sdk.Annotations{"netsketch_chamelemon": {"part": "classifier", "row": "1", "bits": "16",
				"counters": strconv.Itoa(z.Large)}}},
	}
	for f := range families {
		for _, s := range []struct {
			name, side string
			buckets    int
		}{{upNames[f], "upstream", z.Up[f]}, {downNames[f], "downstream", z.Down[f]}} {
			out = append(out, sdk.Object{Name: s.name, Cells: Arrays * s.buckets * words(f), Width: 32, Banks: 2,
				Annotations: sdk.Annotations{"netsketch_chamelemon": {
					"part": "encoder", "side": s.side, "family": []string{"4", "6"}[f],
					"buckets": strconv.Itoa(s.buckets), "words": strconv.Itoa(words(f)),
					"arrays": strconv.Itoa(Arrays), "fragment": "32", "fingerprint": "20", "hash": "48", "prime": strconv.Itoa(prime),
					"flow": "5-tuple",
				}}})
		}
	}
	return out
}

// Span is the part of each array that belongs to a hierarchy; empty if Buckets is 0.
type Span struct{ First, Buckets int }

// Setting is the content of an edge switch's tables for one value of the time bit.
type Setting struct {
	Th, Tl, Sample uint32
	Seed           uint32                // odd seed of the hash that samples flows
	Up, Down       [families][codes]Span // spans by hierarchy: 1 is LL, 2 HL, 3 HH
}

// edge is an edge switch: its tables, and one bank of its registers.
type edge struct {
	name  string
	shape *Shape
	ports map[string]bool // entries of the tables of host ports
	set   [2]Setting

	small    []uint8
	large    []uint16
	up, down [families][]uint32
}

// clear gives the edge new registers, because the old ones belong to a returned epoch.
func (e *edge) clear() {
	e.small, e.large = make([]uint8, e.shape.Small), make([]uint16, e.shape.Large)
	for f := range families {
		e.up[f] = make([]uint32, Arrays*e.shape.Up[f]*words(f))
		e.down[f] = make([]uint32, Arrays*e.shape.Down[f]*words(f))
	}
}

// hashed holds the program's hashes of a flow's key.
type hashed struct {
	family       int
	small, large uint32         // hashes of the classifier's rows
	rows         [Arrays]uint32 // hash of each array; its remainder selects a bucket of a part
	crc          uint32         // CRC of the key, the input of the sample
	fragments    [10]uint32     // fragments of the flow's key, below the prime
}

// columns reduces hashes to columns of the classifier's rows.
type columns struct{ small, large family.Range }

func (z *Shape) columns() columns {
	return columns{family.NewRange(uint32(z.Small)), family.NewRange(uint32(z.Large))}
}

func (c *columns) hashes(key []byte) (h hashed) {
	if len(key) > keyBytes[0] {
		h.family = 1
	}
	d := family.Digest[family.P4Wide](0, key)
	for i := range h.rows {
		h.rows[i] = family.Value[family.P4Wide](d, i)
	}
	h.small = family.Column[family.P4](d, 0, &c.small)
	h.large = family.Column[family.P4](d, 1, &c.large)
	h.crc = uint32(d)
	for i := range words(h.family) - 1 {
		var v uint32
		if b := key[4*i:]; len(b) >= 4 {
			v = binary.BigEndian.Uint32(b)
		} else {
			for _, x := range b {
				v = v<<8 | uint32(x)
			}
			v |= rowhash.Mix(uint32(d), fingerprintOdd) & 0xfffff << 8
		}
		if v >= prime {
			v -= prime
		}
		h.fragments[i] = v
	}
	return h
}

// classify counts a burst of n packets of a flow, and returns how many of them belong to each
// hierarchy: the first packets of the burst to the lowest one.
func (e *edge) classify(h *hashed, s *Setting, n int64) (by [codes]int64) {
	small, large := int64(e.small[h.small]), int64(e.large[h.large])
	e.small[h.small], e.large[h.large] = uint8(min(small+n, maxSmall)), uint16(min(large+n, maxLarge))
	// first is the first packet of the burst at which the classifier's estimate is at least t.
	first := func(t uint32) int64 {
		x := int64(t)
		switch {
		case x > maxLarge:
			return n + 1
		case x >= maxSmall: // the small counter must have overflowed
			return max(maxSmall-small, x-large, 1)
		}
		return max(x-small, x-large, 1)
	}
	hitters := min(first(s.Th), n+1)
	heavy := min(first(s.Tl), hitters)
	low := codeNone
	if rowhash.Mix(h.crc, s.Seed)&0xffff < s.Sample {
		low = codeLL
	}
	by[low], by[codeHL], by[codeHH] = heavy-1, hitters-heavy, n+1-hitters
	for code := codeLL; code < codes; code++ {
		if s.Up[h.family][code].Buckets == 0 {
			by[codeNone] += by[code]
			by[code] = 0
		}
	}
	return by
}

// encode adds n packets of a flow to a part of an encoder.
func encode(cells []uint32, h *hashed, width int, part Span, n int64) {
	if n == 0 || part.Buckets == 0 {
		return
	}
	w := words(h.family)
	for i, v := range h.rows {
		bucket := i*width + part.First + int(v%uint32(part.Buckets))
		b := cells[bucket*w:][:w]
		b[0] += uint32(n)
		for j := range b[1:] {
			b[1+j] = uint32((uint64(b[1+j]) + uint64(n)*uint64(h.fragments[j])) % prime)
		}
	}
}

// put moves the registers into an epoch.
func (e *edge) put(to *sdk.Epoch) {
	to.Put(e.name, sdk.CellsOf(smallRow, e.small))
	to.Put(e.name, sdk.CellsOf(largeRow, e.large))
	for f := range families {
		to.Put(e.name, sdk.CellsOf(upNames[f], e.up[f]))
		to.Put(e.name, sdk.CellsOf(downNames[f], e.down[f]))
	}
}
