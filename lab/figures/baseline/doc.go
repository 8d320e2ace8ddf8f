// SPDX-License-Identifier: Apache-2.0

// Package baseline contains the structures with which the papers compare theirs: ElasticSketch,
// FCM-Sketch, CocoSketch, FlowRadar, LossRadar, Count-heap, HashPipe, and the exact map. They
// serve measurements under the same hashes and on the same traffic as the other sketches, not
// deployment: they have no merge and no serialization. Structures that keep keys accept keys of
// the configured length only; the error for other keys wraps sketch.ErrMismatch. No structure is
// safe for concurrent use during writes.
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

var errKey = fmt.Errorf("%w: the key's length differs from the configured length", sketch.ErrMismatch)

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
