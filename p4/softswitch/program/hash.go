// SPDX-License-Identifier: Apache-2.0

package program

// Hash is a hash over fields, constants, headers, and perhaps the payload. Fields of headers that
// are not valid are left out; what is left is packed bit by bit, the last byte filled with zeros.
type Hash struct {
	Name    string
	Algo    string
	Func    HashFunc // nil: random
	Items   []HashInput
	Payload bool

	// When all headers are valid, but for those of variable length:
	Valid  []int // validity slots of headers that have to be valid
	Absent []int // of headers with variable-length inputs, which have to be invalid, or empty if metadata
	Emits  []Emit
	Bytes  int

	Word int // slot of the only input, 32 bits, always valid; or -1
}

type HashInput struct {
	Header *Header // nil: a constant
	Whole  bool    // the whole header
	Slot   int     // field or constant
	Words  int
	Width  int
}
