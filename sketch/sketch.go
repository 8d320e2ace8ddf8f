// SPDX-License-Identifier: Apache-2.0

// Package sketch defines the common parts of the data structures in its sub-packages.
//
//	family       the hash families, a type parameter of every structure
//	countmin     Count-Min and CU
//	countsketch  Count sketch
//	tower        TowerSketch: rows of equal memory and growing counters
//	fermat       FermatSketch: exact flows and counts, added and subtracted
//	sumax        SuMax: sums, ranges and maxima, also from a part of its columns
//	universal    UnivMon's universal sketch
//	estimate     linear counting, MRAC, entropy
//	baseline/…   the papers' baselines
//
// All have the same API. New validates a Config; its type parameter is the hash family, and errors
// wrap ErrConfig and name the field. Insert records a packet and does not allocate; InsertBatch
// takes many concatenated keys of one length, and hashes ahead so that memory accesses overlap.
// Keys are the canonical bytes of flow.Key; structures that do not return keys accept any length.
// Merge adds another sketch of the same shape, family and seed, and otherwise returns ErrMismatch;
// some structures have Subtract. A sketch may be merged with itself, which doubles it.
// MarshalBinary writes a version, the shape and a checksum; UnmarshalBinary refuses anything else
// (ErrFormat) and leaves the receiver unchanged on an error. Bound returns a bound on the error and
// the probability of a larger one.
//
// Unless a type says otherwise, it is not safe for concurrent use while it is written.
package sketch

import "errors"

var (
	// ErrConfig is wrapped by errors about an invalid configuration.
	ErrConfig = errors.New("sketch configuration")
	// ErrMismatch is wrapped by errors about two sketches that differ in shape, seed or hash family,
	// and about keys whose length differs from the configured one.
	ErrMismatch = errors.New("sketches do not match")
	// ErrFormat is wrapped by errors about serialized bytes that are not a valid sketch.
	ErrFormat = errors.New("serialized sketch")
	// ErrLimit is wrapped by errors about counters that have reached their limit, so that the
	// result would be wrong.
	ErrLimit = errors.New("counter at its limit")
)

// MaxMemory is the largest size of one structure: 4 GiB, or 512 MiB if an int has 32 bits.
const MaxMemory = 4 << 30 >> (3 * (1 - ^uint(0)>>63))

// Bound bounds the error of an estimate. The true value x and the estimate e satisfy
// e-Over <= x <= e+Under, except with probability Failure for any one flow.
type Bound struct {
	Over, Under float64 // bounds in the unit of the counts
	Failure     float64 // 0 to 1
}
