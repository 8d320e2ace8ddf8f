// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"math/rand/v2"
	"testing"

	"github.com/netsketch/netsketch/p4/softswitch/control"
	"github.com/netsketch/netsketch/p4/softswitch/program"
)

// ternaryTable is the index of a table with two fields of 32 bits; the second is a range field if
// ranges is set.
func ternaryTable(ranges bool) *ternaryIndex {
	d := &program.Table{Words: 2, Lookup: control.MatchTernary, KeyFields: []program.Key{
		{KeyInfo: control.KeyInfo{Kind: control.MatchTernary, Width: 32}, Word: 0, Words: 1},
		{KeyInfo: control.KeyInfo{Kind: control.MatchTernary, Width: 32}, Word: 1, Words: 1},
	}}
	if ranges {
		d.Lookup, d.KeyFields[1].Kind = control.MatchRange, control.MatchRange
	}
	return &ternaryIndex{def: d}
}

// TestTernaryIndex compares the search in groups with the search one by one, while entries are
// added and removed.
func TestTernaryIndex(t *testing.T) {
	t.Parallel()
	masks := []uint64{0, 0xff, 0xf0, 0xffffffff, 0xffff0000, 0x0f}
	for _, ranges := range []bool{false, true} {
		r := rand.New(rand.NewPCG(3, 4))
		x := ternaryTable(ranges)
		var all []*entryState
		grouped := 0
		for n := range 6000 {
			if len(all) > 0 && r.IntN(5) < 2+n/4000 {
				i := r.IntN(len(all))
				x.remove(all[i])
				all[i] = all[len(all)-1]
				all = all[:len(all)-1]
			} else {
				e := &entryState{priority: r.Int32N(20) + 1, seq: uint64(n),
					mask: []uint64{masks[r.IntN(6)], masks[r.IntN(3)]}}
				e.value = []uint64{r.Uint64N(300) & e.mask[0], r.Uint64N(300) & e.mask[1]}
				if ranges {
					e.mask[1] = e.value[1] + r.Uint64N(80)
				}
				x.put(e)
				all = append(all, e)
			}
			key := []uint64{r.Uint64N(300), r.Uint64N(300)}
			var want *entryState
			for _, e := range all {
				if e.matches(x.def, key) && (want == nil || e.before(want) < 0) {
					want = e
				}
			}
			if got := x.find(key, make([]uint64, 2)); got != want {
				t.Fatalf("step %d, %d entries: got %+v, want %+v", n, len(all), got, want)
			}
			if len(x.sorted) != len(all) {
				t.Fatalf("step %d: %d entries are %d", n, len(all), len(x.sorted))
			}
			if perGroupAtMin*len(x.groups) <= len(x.sorted) {
				grouped++
			}
		}
		if grouped < 1000 {
			t.Errorf("only %d searches in groups", grouped)
		}
		for _, e := range all {
			x.remove(e)
		}
		if len(x.groups) != 0 || len(x.byMask) != 0 || len(x.sorted) != 0 {
			t.Error("something is left of an empty table")
		}
	}
}

// BenchmarkTernary looks up in 10,000 entries of 12 masks.
func BenchmarkTernary(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	x := ternaryTable(false)
	for n := range 10000 {
		m := uint64(0xffffffff) << (n % 12)
		x.put(&entryState{priority: int32(100 - n%12), seq: uint64(n), mask: []uint64{m & 0xffffffff, 0},
			value: []uint64{r.Uint64() & m & 0xffffffff, 0}})
	}
	scratch := make([]uint64, 2)
	for i := 0; b.Loop(); i++ {
		x.find([]uint64{uint64(uint32(i * 2654435761)), 0}, scratch)
	}
}
