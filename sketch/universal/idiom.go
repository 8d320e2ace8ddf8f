// SPDX-License-Identifier: Apache-2.0

package universal

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/netsketch/netsketch/sketch"
	"github.com/netsketch/netsketch/sketch/flow"
)

// The API of package sketch, for programs that count keys themselves. A collector that reads
// switches uses Reading and Estimate, which are more accurate.

// Insert counts one packet of a key given by its canonical bytes. It fails only for a key that does
// not fit the layout.
func (s *Sketch) Insert(key []byte) error {
	k, err := flow.ParseBinary(s.layout.Key, key)
	if err != nil {
		return s.keyError(len(key))
	}
	s.Update(&k)
	return nil
}

func (s *Sketch) keyError(n int) error {
	return fmt.Errorf("%w: universal: a key of %d bytes; %v has %d or %d", sketch.ErrMismatch, n, s.layout.Key,
		s.layout.Key.Size(false), s.layout.Key.Size(true))
}

// InsertBatch counts one packet of each key; keys are concatenated, size bytes each.
func (s *Sketch) InsertBatch(keys []byte, size int) error {
	if size != s.layout.Key.Size(false) && size != s.layout.Key.Size(true) || len(keys)%size != 0 {
		return fmt.Errorf("%w: universal: %d bytes are not a whole number of keys of %d bytes", sketch.ErrMismatch,
			len(keys), size)
	}
	for ; len(keys) > 0; keys = keys[size:] {
		if err := s.Insert(keys[:size]); err != nil {
			return err
		}
	}
	return nil
}

// Query returns the data plane's estimate of a key's packets: the median of its counters in the
// first three rows, 0 for a key that does not fit the layout. Estimate.Size is more accurate.
func (s *Sketch) Query(key []byte) int32 {
	k, err := flow.ParseBinary(s.layout.Key, key)
	if err != nil {
		return 0
	}
	h := hashOf(&k, s.layout.Key)
	return s.estimate(h, levelOf(h, s.layout.Levels))
}

func (s *Sketch) estimate(h uint32, level int) int32 {
	l := &s.layout
	var est [3]int32
	for row := range est {
		column, negative := cellOf(h, row, l.Columns)
		est[row] = int32(s.counters[l.counter(level)+row*l.columns(level)+column>>shift(level)]) * (1 - 2*int32(negative))
	}
	return max(min(est[0], est[1]), min(max(est[0], est[1]), est[2]))
}

// Memory returns the bytes of the cells.
func (s *Sketch) Memory() int { return s.layout.Bytes() }

// Bound returns the error bound of Query for a key of the level with the largest error. By
// Chebyshev's inequality, a row has an error above sqrt(8 F2/columns) with probability at most
// 1/8, and the median of three rows has one only if two of them have.
func (s *Sketch) Bound() sketch.Bound {
	most := 0.0
	for level := range s.layout.Levels {
		var f2 [3]float64
		for row := range f2 {
			columns := s.layout.columns(level)
			at := s.layout.counter(level) + row*columns
			for _, c := range s.counters[at : at+columns] {
				f2[row] += float64(int32(c)) * float64(int32(c)) / float64(columns)
			}
		}
		slices.Sort(f2[:])
		most = max(most, f2[1])
	}
	e := math.Sqrt(8 * most)
	return sketch.Bound{Over: e, Under: e, Failure: 3*(7./8)/64 + 1./512}
}

// Merge adds the counts of o. The counters then equal the counters of a single sketch; of the heavy
// keys of both sketches, the largest remain. Merge fails, and changes nothing, if the layouts
// differ or if a level would count more packets than a counter can hold.
func (s *Sketch) Merge(o *Sketch) error { return s.combine(o, false) }

// Subtract subtracts the counts of o, whose packets must be a part of the packets of s. For flows
// that grew and shrank, use Compare. Subtract fails, and changes nothing, if the layouts differ or
// if o counted more packets.
func (s *Sketch) Subtract(o *Sketch) error { return s.combine(o, true) }

func (s *Sketch) combine(o *Sketch, minus bool) error {
	if o == nil {
		return fmt.Errorf("%w: universal: nothing to add", ErrMismatch)
	}
	if s.layout != o.layout || (s.packets == nil) != (o.packets == nil) {
		return fmt.Errorf("universal: %v and %v, packets counted %v and %v: %w", s.layout, o.layout, s.packets != nil,
			o.packets != nil, ErrMismatch)
	}
	for i, n := range o.packets {
		switch sum := uint64(s.packets[i]) + uint64(n); {
		case !minus && sum > math.MaxInt32:
			return fmt.Errorf("%w: universal: level %d would have %d packets; its counters hold %d", sketch.ErrLimit, i,
				sum, math.MaxInt32)
		case minus && n > s.packets[i]:
			return fmt.Errorf("%w: universal: level %d would have %d-%d packets; only a part of what was "+
				"counted can be subtracted", ErrMismatch, i, s.packets[i], n)
		}
	}
	keys := mergeKeys(s.keys(), o.keys())
	sign := uint32(1)
	if minus {
		sign = math.MaxUint32
	}
	for i, v := range o.counters {
		s.counters[i] += sign * v
	}
	for i, v := range o.packets {
		s.packets[i] += sign * v
	}
	clear(s.heavy)
	s.rank(keys)
	return nil
}

// rank writes keys into the empty heavy-key slots as if each arrived with its estimate from the
// counters. Keys whose slots all hold larger ones are left out.
func (s *Sketch) rank(keys []candidate) {
	type ranked struct {
		*candidate
		est int32
	}
	order := make([]ranked, len(keys))
	for i := range keys {
		order[i] = ranked{&keys[i], s.estimate(keys[i].hash, int(keys[i].level))}
	}
	slices.SortFunc(order, func(a, b ranked) int { return cmp.Or(cmp.Compare(b.est, a.est), a.compare(b.candidate)) })
	for _, k := range order {
		if k.est > 0 {
			s.remember(&k.key, k.hash, int(k.level), uint32(k.est))
		}
	}
}
