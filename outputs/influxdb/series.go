// SPDX-License-Identifier: Apache-2.0

// Bounded cardinality: how many series are written.

package influxdb

import (
	"hash/maphash"
	"time"
)

// seriesLimit admits at most max series of each measurement within a window. It
// belongs to one goroutine. Memory is bounded by max, times the measurements, which
// the schema bounds.
type seriesLimit struct {
	max    int
	window time.Duration
	seed   maphash.Seed
	seen   map[string]*seriesSet // by measurement
}

type seriesSet struct {
	last  map[uint64]int64 // hash of the series to its newest point, in seconds
	swept int64
}

func newSeriesLimit(max int, window time.Duration) *seriesLimit {
	return &seriesLimit{max: max, window: window, seed: maphash.MakeSeed(), seen: map[string]*seriesSet{}}
}

// admit reports whether a point of a series may be written at a time. Series are told
// apart by 64-bit hashes; two in 10^5 meet with a chance of 10^-10.
func (l *seriesLimit) admit(measurement string, series []byte, at time.Time) bool {
	set := l.seen[measurement]
	if set == nil {
		set = &seriesSet{last: map[uint64]int64{}}
		l.seen[measurement] = set
	}
	hash, now := maphash.Bytes(l.seed, series), at.Unix()
	if _, known := set.last[hash]; !known && len(set.last) >= l.max && !l.sweep(set, now) {
		return false
	}
	set.last[hash] = now
	return true
}

// sweep forgets the series that have had no point for a window, at most once in a
// hundredth of it, and reports whether there is room.
func (l *seriesLimit) sweep(set *seriesSet, now int64) bool {
	window := int64(l.window / time.Second)
	if now-set.swept < max(window/100, 1) {
		return false
	}
	set.swept = now
	for hash, last := range set.last {
		if now-last > window {
			delete(set.last, hash)
		}
	}
	return len(set.last) < l.max
}
