// SPDX-License-Identifier: Apache-2.0

// Package wire implements the common frame of serialized sketches: the magic "nsk", a version, the
// kind of sketch, its hash family and seed, then numbers and cells in little-endian order, and a
// CRC-32. Its values must not be shared between goroutines.
package wire

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/netsketch/netsketch/sketch"
)

// Kinds of sketches.
const (
	CountMin uint8 = iota + 1
	CountSketch
	Tower
	Fermat
	SuMax
	_ // reserved: buckets with two arrays, an earlier form
	Universal
	_ // reserved: an earlier form of buckets that fill words
	TowerBuckets
)

const (
	version = 1
	header  = 3 + 1 + 1 + 1 + 8
	trailer = 4
)

// Writer builds the bytes of one sketch.
type Writer struct{ b []byte }

// NewWriter begins a sketch whose cells take about size bytes.
func NewWriter(kind, family uint8, seed uint64, size int) *Writer {
	b := make([]byte, 0, header+size+64)
	b = append(b, 'n', 's', 'k', version, kind, family)
	return &Writer{binary.LittleEndian.AppendUint64(b, seed)}
}

// U32 appends numbers.
func (w *Writer) U32(v ...uint32) { w.b = appendWords(w.b, v) }

// U64 appends numbers.
func (w *Writer) U64(v ...uint64) { w.b = appendWords(w.b, v) }

func appendWords[W uint32 | uint64](b []byte, v []W) []byte {
	for _, x := range v {
		if is64[W]() {
			b = binary.LittleEndian.AppendUint64(b, uint64(x))
		} else {
			b = binary.LittleEndian.AppendUint32(b, uint32(x))
		}
	}
	return b
}

func is64[W uint32 | uint64]() bool { return uint64(^W(0)) > 1<<32 }

// Bytes ends the sketch and returns it.
func (w *Writer) Bytes() []byte {
	return binary.LittleEndian.AppendUint32(w.b, crc32.ChecksumIEEE(w.b))
}

// Reader decodes serialized bytes. It keeps the first error, which Expect returns; reads after an
// error return zeros.
type Reader struct {
	Seed uint64
	b    []byte
	err  error
}

// NewReader checks the frame, the kind and the family.
func NewReader(b []byte, kind, family uint8) (*Reader, error) {
	fail := func(format string, args ...any) (*Reader, error) {
		return nil, fmt.Errorf("%w: %s", sketch.ErrFormat, fmt.Sprintf(format, args...))
	}
	switch {
	case len(b) < header+trailer || string(b[:3]) != "nsk":
		return fail("%d bytes that do not begin as a sketch does", len(b))
	case b[3] != version:
		return fail("version %d; this program reads version %d", b[3], version)
	case crc32.ChecksumIEEE(b[:len(b)-trailer]) != binary.LittleEndian.Uint32(b[len(b)-trailer:]):
		return fail("the checksum does not match, so the bytes are damaged or cut short")
	case b[4] != kind:
		return fail("kind %d; expected %d", b[4], kind)
	case b[5] != family:
		return nil, fmt.Errorf("%w: hash family %d; expected %d", sketch.ErrMismatch, b[5], family)
	}
	return &Reader{Seed: binary.LittleEndian.Uint64(b[6:]), b: b[header : len(b)-trailer]}, nil
}

// U32 reads a number.
func (r *Reader) U32() uint32 {
	if len(r.b) < 4 {
		r.short(4)
		return 0
	}
	v := binary.LittleEndian.Uint32(r.b)
	r.b = r.b[4:]
	return v
}

// U64 reads a number.
func (r *Reader) U64() uint64 {
	if len(r.b) < 8 {
		r.short(8)
		return 0
	}
	v := binary.LittleEndian.Uint64(r.b)
	r.b = r.b[8:]
	return v
}

func (r *Reader) short(want int) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %d bytes left; expected %d", sketch.ErrFormat, len(r.b), want)
	}
	r.b = nil
}

// Expect returns an error unless all reads succeeded and exactly n bytes are left. Call it before
// allocating memory.
func (r *Reader) Expect(n int) error {
	if r.err == nil && len(r.b) != n {
		r.err = fmt.Errorf("%w: %d bytes of cells; the shape has %d", sketch.ErrFormat, len(r.b), n)
	}
	return r.err
}

// Cells decodes words until dst is full.
func Cells[W uint32 | uint64](r *Reader, dst []W) {
	for i := range dst {
		if is64[W]() {
			dst[i] = W(r.U64())
		} else {
			dst[i] = W(r.U32())
		}
	}
}
