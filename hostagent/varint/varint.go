// SPDX-License-Identifier: Apache-2.0

// Package varint has the parts that the reports of all host roles are made of: unsigned varints,
// counts of rows, counters and flows.
package varint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/netsketch/netsketch/sketch/flow"
)

// Reader reads a report from front to back. After the first error, which Err returns, it reads
// zeros. It refers to the bytes that it reads.
type Reader struct {
	Rest []byte // bytes that have not been read
	err  error
}

// Err returns the first error.
func (r *Reader) Err() error { return r.err }

// Fail ends the reading with an error, unless there was one before.
func (r *Reader) Fail(format string, args ...any) {
	if r.err == nil {
		r.err, r.Rest = fmt.Errorf(format, args...), nil
	}
}

// errShort is the error of a report that is truncated.
var errShort = errors.New("ends too early")

// U64 reads a number.
func (r *Reader) U64() uint64 {
	if b := r.Rest; len(b) > 0 && b[0] < 0x80 {
		r.Rest = b[1:]
		return uint64(b[0])
	}
	return r.long()
}

// long reads a number of several bytes.
func (r *Reader) long() uint64 {
	v, n := binary.Uvarint(r.Rest)
	if n <= 0 {
		r.Fail("%w", errShort)
		return 0
	}
	r.Rest = r.Rest[n:]
	return v
}

// Number reads a number up to a limit.
func (r *Reader) Number(limit uint64) uint64 {
	v := r.U64()
	if v > limit {
		r.Fail("%d; expected at most %d", v, limit)
		return 0
	}
	return v
}

// U32 reads a number of at most 32 bits.
func (r *Reader) U32() uint32 { return uint32(r.Number(math.MaxUint32)) }

// Count reads the number of rows that follow. It fails if the rest is too short for rows of size
// bytes each, so that no memory is allocated for rows that do not follow.
func (r *Reader) Count(size int) int {
	n := r.U64()
	if n > uint64(len(r.Rest)/size) {
		r.Fail("%w", errShort)
		return 0
	}
	return int(n)
}

// Bytes reads n bytes. It returns nil if fewer are left.
func (r *Reader) Bytes(n int) []byte {
	if n > len(r.Rest) {
		r.Fail("%w", errShort)
		return nil
	}
	b := r.Rest[:n:n]
	r.Rest = r.Rest[n:]
	return b
}

// Counters reads counters that AppendCounters has appended. It fails for another number of them.
func (r *Reader) Counters(out []uint64) {
	if n := r.Count(1); n != len(out) {
		r.Fail("%d counters; expected %d", n, len(out))
	}
	for i := range out {
		out[i] = r.U64()
	}
}

// Flow reads a 5-tuple that AppendFlow has appended.
func (r *Reader) Flow() flow.Key {
	k, err := flow.ParseBinary(flow.FiveTuple, r.Bytes(int(r.Number(flow.MaxBinary))))
	if err != nil {
		r.Fail("%w", err)
	}
	return k
}

// End fails if bytes are left.
func (r *Reader) End() {
	if n := len(r.Rest); n > 0 {
		r.Fail("%d bytes behind its end", n)
	}
}

// Append appends numbers.
func Append(b []byte, numbers ...uint64) []byte {
	for _, n := range numbers {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

// AppendCounters appends the count of counters, and the counters.
func AppendCounters(b []byte, counters []uint64) []byte {
	return Append(Append(b, uint64(len(counters))), counters...)
}

// AppendFlow appends the length of a flow's canonical bytes, and the bytes.
func AppendFlow(b []byte, k *flow.Key) []byte {
	return k.AppendBinary(Append(b, uint64(k.Mask.Size(k.V6))))
}
