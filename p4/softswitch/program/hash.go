// SPDX-License-Identifier: Apache-2.0

package program

// Hash is a hash over fields, constants, headers, and perhaps the payload. Fields of headers that
// are not valid are left out; the other fields are packed bit by bit, the last byte filled with
// zeros.
type Hash struct {
	Name    string
	Algo    string
	Func    HashFunc // nil draws random numbers
	Items   []HashInput
	Payload bool

	// The input has a fixed form, Emits of Bytes, if each header of fixed length is valid and each
	// header of variable length is invalid:
	Valid  []int // validity slots of the headers that must be valid
	Absent []int // slots that must be 0: a header's validity, or the length of a field of metadata
	Emits  []Emit
	Bytes  int

	Word int // slot of the only input, 32 bits, always valid; or -1
}

type HashInput struct {
	Header *Header // nil if the field is a constant
	Whole  bool    // the whole header
	Slot   int     // field or constant
	Words  int
	Width  int
}
