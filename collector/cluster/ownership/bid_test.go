// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"math"
	"testing"
)

// A collector outbids collectors with a lower fence, even if another controller left a high
// election id, but never a collector with a higher fence and never another controller.
func TestBid(t *testing.T) {
	const (
		created = uint64(1_790_000_000) << 32
		older   = created | 7
		own     = created | 8
		newer   = created | 9
		forged  = uint64(1) << 63
		last    = uint64(math.MaxUint64)
	)
	id := func(high, low uint64) ElectionID { return ElectionID{High: high, Low: low} }
	var none ElectionID
	for _, c := range []struct {
		name           string
		highest        ElectionID
		outbids, above ElectionID // the bids when the switch has a primary, and when it has none; zero means no bid
	}{
		{"no controller before", none, none, id(own, 1)},
		{"an older collector", id(older, 1), id(own, 1), id(own, 1)},
		{"itself", id(own, 1), none, id(own, 1)},
		{"a newer collector", id(newer, 1), none, none},
		{"another controller", id(forged, 9), none, id(forged, own)},
		{"another controller with a high low part", id(forged, last), none, id(forged+1, own)},
		{"another controller with the highest id", id(last, last), none, id(last, last)},
		{"an older collector above another controller", id(forged, older), id(forged, own), id(forged, own)},
		{"itself above another controller", id(forged, own), none, id(forged, own)},
		{"a newer collector above another controller", id(forged, newer), none, none},
		{"a collector of an older bucket", id(older-1<<32, 1), none, id(own, 1)},
		{"a collector of an older bucket above another controller", id(forged, older-1<<32), none, id(forged, own)},
	} {
		for vacant, want := range map[bool]ElectionID{false: c.outbids, true: c.above} {
			got, ok := Bid(own, 1, c.highest, vacant)
			if ok != (want != none) || ok && got != want {
				t.Errorf("%s, without a primary %v: bid %v %v, want %v", c.name, vacant, got, ok, want)
			}
			if ok && got.Compare(c.highest) < 0 {
				t.Errorf("%s: bid %v is below", c.name, got)
			}
		}
	}
}
