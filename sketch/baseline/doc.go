// SPDX-License-Identifier: Apache-2.0

// Package baseline holds what the papers compare themselves with: ElasticSketch, FCM-Sketch, CocoSketch,
// FlowRadar, LossRadar, Count-heap, HashPipe, and the exact map. They are there to be
// measured beside the others, under the same hashes and on the same traffic, and
// not to be deployed; they are neither merged nor serialised.
//
// Structures that keep keys take ones of the configured length only, and say so with an
// error that wraps sketch.ErrMismatch. None is safe for concurrent use while it is written.
package baseline

import (
	"fmt"

	"github.com/netsketch/netsketch/sketch"
)

// Flow is a key and its packets.
type Flow struct {
	Key   []byte
	Count int64
}

var errKey = fmt.Errorf("%w: the key has not the length that the structure is configured for", sketch.ErrMismatch)

func checkKey(size int) error {
	if size < 1 || size > 64 {
		return fmt.Errorf("%w: keys of %d bytes; expected 1 to 64", sketch.ErrConfig, size)
	}
	return nil
}

func tooSmall(what string, memory int) error {
	return fmt.Errorf("%w: %s: %d bytes are too few, or too many", sketch.ErrConfig, what, memory)
}

// Exact counts every flow.
type Exact struct{ counts map[string]int64 }

// NewExact returns an empty map.
func NewExact() *Exact { return &Exact{make(map[string]int64)} }

// Insert counts one packet.
func (e *Exact) Insert(key []byte) { e.counts[string(key)]++ }

// Query returns the packets of a key.
func (e *Exact) Query(key []byte) int64 { return e.counts[string(key)] }
