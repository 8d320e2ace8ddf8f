// SPDX-License-Identifier: Apache-2.0

// The bound on the number of series.

package influxdb

import (
	"hash/maphash"
	"time"
)

// seriesLimit admits at most max series of each measurement within a window. Only one goroutine
// uses it. Its memory is bounded by max times the number of measurements, which the schema bounds.
type seriesLimit struct {
	max    int
	window time.Duration
	seed   maphash.Seed
	seen   map[string]*seriesSet // series by measurement
}

type seriesSet struct {
	last  map[uint64]int64 // time of the newest point in seconds, by hash of the series
	swept int64
}

func newSeriesLimit(max int, window time.Duration) *seriesLimit {
	return &seriesLimit{max: max, window: window, seed: maphash.MakeSeed(), seen: map[string]*seriesSet{}}
}

// admit reports whether a point of a series may be written. Series are identified by 64-bit hashes;
// among 10^5 series, two have the same hash with a probability of 10^-10.
func (l *seriesLimit) admit(measurement string, series []byte, at time.Time) bool {
	set := l.seen[measurement]
	if set == nil {
		set = &seriesSet{last: map[uint64]int64{}}
		l.seen[measurement] = set
	}
	hash, now := maphash.Bytes(l.seed, series), at.Unix()
	if _, seen := set.last[hash]; !seen && len(set.last) >= l.max && !l.sweep(set, now) {
		return false
	}
	set.last[hash] = now
	return true
}

// sweep removes series without a point in the last window, at most once per hundredth of a window.
// It reports whether another series fits.
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
