// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// HeaderBytes is the length of a sketchlet without its cells.
const HeaderBytes = 10

const (
	checkBytes = 4
	cellBytes  = 4
	wordsAt    = HeaderBytes - 1
)

// Why bytes behind the carry mark are not a sketchlet.
var (
	ErrShort = errors.New("sketchlet: its length is beyond the packet, or 0")
	ErrCheck = errors.New("sketchlet: the check differs")
)

// Sketchlet is one column of the sketch of a switch, as docs/lightguardian-p4.md defines it. It
// refers to the bytes that it was found in.
type Sketchlet []byte

// Find returns the sketchlet at the begin of a payload.
func Find(payload []byte) (Sketchlet, error) {
	if len(payload) < HeaderBytes {
		return nil, ErrShort
	}
	n := HeaderBytes + cellBytes*int(payload[wordsAt])
	if n == HeaderBytes || n > len(payload) {
		return nil, ErrShort
	}
	if binary.BigEndian.Uint32(payload) != crc32.ChecksumIEEE(payload[checkBytes:n]) {
		return nil, ErrCheck
	}
	return payload[:n:n], nil
}

// Device is the number of the switch.
func (s Sketchlet) Device() uint16 { return binary.BigEndian.Uint16(s[4:]) }

// Column is the number of the column: the sketchlet ID.
func (s Sketchlet) Column() uint16 { return binary.BigEndian.Uint16(s[6:]) }

// Interval is the number of the interval modulo 256; its lowest bit is the active bit.
func (s Sketchlet) Interval() uint8 { return s[8] }

// Words is the count of cells.
func (s Sketchlet) Words() int { return int(s[wordsAt]) }

// Cells appends the cells to dst, row by row.
func (s Sketchlet) Cells(dst []uint32) []uint32 {
	for b := s[HeaderBytes:]; len(b) >= cellBytes; b = b[cellBytes:] {
		dst = append(dst, binary.BigEndian.Uint32(b))
	}
	return dst
}

// Append appends a sketchlet with these cells, 1 to 255.
func Append(b []byte, device, column uint16, interval uint8, cells []uint32) []byte {
	at := len(b)
	b = append(b, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, device), column)
	b = append(b, interval, byte(len(cells)))
	for _, c := range cells {
		b = binary.BigEndian.AppendUint32(b, c)
	}
	binary.BigEndian.PutUint32(b[at:], crc32.ChecksumIEEE(b[at+checkBytes:]))
	return b
}
