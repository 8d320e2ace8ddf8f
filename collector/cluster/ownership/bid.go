// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"cmp"
	"math"
)

// ElectionID is the election id of a P4Runtime session.
type ElectionID struct{ High, Low uint64 }

// Compare returns -1, 0 or 1 if id is below, equal to or above another id.
func (id ElectionID) Compare(other ElectionID) int {
	return cmp.Or(cmp.Compare(id.High, other.High), cmp.Compare(id.Low, other.Low))
}

// Bid returns the election id that a member with a fence bids after a switch has reported the
// highest one. low is the low half of the member's ids; vacant reports that the switch has no
// primary. ok is false if the member must not bid:
//
//	highest is of             primary there      no primary
//	a member, lower fence     outbid             bid above
//	a member, higher fence    no                 no: this member is deposed
//	another controller        no                 bid above
//
// A bid above the high id of another controller has the fence in its low half, so that the next
// owner recognizes it. A session outbids with the fence that it began with: each is outbid only by
// sessions that began later, and two members cannot outbid each other again and again.
func Bid(fence, low uint64, highest ElectionID, vacant bool) (id ElectionID, ok bool) {
	of, member := FenceOf(highest, fence)
	switch own := (ElectionID{High: fence, Low: low}); {
	case member && of > fence, !member && !vacant:
		return own, false
	case member && of == fence:
		return highest, vacant
	case own.Compare(highest) > 0:
		return own, true
	case highest.Low < fence:
		return ElectionID{High: highest.High, Low: fence}, true
	case highest.High < math.MaxUint64:
		return ElectionID{High: highest.High + 1, Low: fence}, true
	}
	return highest, vacant
}

// FenceOf returns the fence that a member of the cluster put into an election id. All fences of a
// cluster have the same upper 32 bits, the time at which the bucket of leases was created; fence is
// any fence of this cluster. member is false for the id of another controller.
func FenceOf(id ElectionID, fence uint64) (of uint64, member bool) {
	for _, part := range []uint64{id.Low, id.High} {
		if part>>32 == fence>>32 {
			return part, true
		}
	}
	return 0, false
}

// Deposes reports whether the highest election id of a switch belongs to a member with a newer
// lease than the session that bid an id. fence is the fence of this member's lease.
func Deposes(highest, bid ElectionID, fence uint64) bool {
	of, member := FenceOf(highest, fence)
	own, _ := FenceOf(bid, fence) // 0 if the session bid without a lease, so that every member's lease is newer
	return member && of > own
}
