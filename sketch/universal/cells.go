// SPDX-License-Identifier: Apache-2.0

package universal

import (
	"encoding/binary"
	"errors"
)

// AppendCells appends cells in a compact form: each cell is a varint, and a run of zeros is a zero
// followed by the run's length. Small counters of either sign take few bytes.
func AppendCells(b []byte, cells []uint32) []byte {
	for i := 0; i < len(cells); {
		if v := int32(cells[i]); v != 0 {
			b = binary.AppendVarint(b, int64(v))
			i++
			continue
		}
		start := i
		for i < len(cells) && cells[i] == 0 {
			i++
		}
		b = binary.AppendUvarint(append(b, 0), uint64(i-start))
	}
	return b
}

// ReadCells decodes all cells, which must be zero before, and returns the bytes that follow them.
func ReadCells(cells []uint32, b []byte) ([]byte, error) {
	for i := 0; i < len(cells); {
		v, n := binary.Varint(b)
		if n <= 0 || int64(int32(v)) != v {
			return nil, errors.New("a cell is cut off or too large")
		}
		b = b[n:]
		if v != 0 {
			cells[i] = uint32(v)
			i++
			continue
		}
		zeros, n := binary.Uvarint(b)
		if n <= 0 || zeros == 0 || zeros > uint64(len(cells)-i) {
			return nil, errors.New("a run of zeros is cut off or too long")
		}
		b, i = b[n:], i+int(zeros)
	}
	return b, nil
}
