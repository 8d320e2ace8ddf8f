// SPDX-License-Identifier: Apache-2.0

// Package sketch states what the data structures in its sub-packages have in common.
//
//	family       the hash families, a type parameter of every structure
//	countmin     Count-Min and CU
//	countsketch  Count sketch
//	tower        TowerSketch: rows of equal memory and growing counters
//	fermat       FermatSketch: exact flows and counts, added and subtracted
//	sumax        SuMax: sums, ranges and maxima, from whatever columns arrived
//	universal    UnivMon's universal sketch
//	estimate     linear counting, MRAC, entropy
//	baseline/…   what the papers compare themselves with
//
// One idiom serves all. A Config is validated by New, whose type parameter is the hash
// family; errors wrap ErrConfig and name the field. Insert records a packet and
// allocates nothing; InsertBatch takes many keys of one length, laid end to end, and hashes
// ahead so that memory accesses overlap. Keys are the canonical bytes of flow.Key, of
// any length where the structure does not give keys back. Merge adds another sketch of
// the same shape, family and seed, and says ErrMismatch otherwise; Subtract is there
// where the mathematics allows it. A sketch may be merged with itself, which doubles it.
// MarshalBinary carries a version, the shape and a checksum; UnmarshalBinary takes nothing
// else (ErrFormat) and leaves the receiver as it was on an error. Bound tells how far an answer can
// be off, and with what probability it is further off.
//
// Unless a type says otherwise, it is not safe for concurrent use while it is written.
package sketch

import "errors"

var (
	// ErrConfig is wrapped by errors about a configuration that cannot be built.
	ErrConfig = errors.New("sketch configuration")
	// ErrMismatch is wrapped by errors about two sketches that do not go together: of
	// other shape, seed or hash family, or a key of another length.
	ErrMismatch = errors.New("sketches do not match")
	// ErrFormat is wrapped by errors about serialised bytes that are not a sketch.
	ErrFormat = errors.New("serialised sketch")
	// ErrLimit is wrapped by errors about counters that have reached their limit, so that
	// what was asked for would be a wrong number.
	ErrLimit = errors.New("counter at its limit")
)

// MaxMemory is the most that one structure may be configured to take: 4 GiB, or 512 MiB where
// an int has 32 bits.
const MaxMemory = 4 << 30 >> (3 * (1 - ^uint(0)>>63))

// Bound is how far an estimate may be off. The true value x and the estimate e satisfy
// e-Over <= x <= e+Under, except with probability Failure for any one flow.
type Bound struct {
	Over, Under float64 // in the unit of what was counted
	Failure     float64 // 0 to 1
}
