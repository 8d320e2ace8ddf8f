// SPDX-License-Identifier: Apache-2.0

package p4rt

import (
	"cmp"
	"fmt"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
)

// ElectionID is the 128-bit number by which controllers of a role bid to be its primary: the
// highest wins.
type ElectionID struct{ High, Low uint64 }

// Compare orders election ids.
func (e ElectionID) Compare(o ElectionID) int {
	if c := cmp.Compare(e.High, o.High); c != 0 {
		return c
	}
	return cmp.Compare(e.Low, o.Low)
}

// Next returns the next higher election id, or e if e is the highest possible.
func (e ElectionID) Next() ElectionID {
	switch {
	case e.Low != ^uint64(0):
		return ElectionID{e.High, e.Low + 1}
	case e.High != ^uint64(0):
		return ElectionID{e.High + 1, 0}
	}
	return e
}

// String returns "high:low", or the low part alone if the high part is zero.
func (e ElectionID) String() string {
	if e.High == 0 {
		return fmt.Sprint(e.Low)
	}
	return fmt.Sprintf("%d:%d", e.High, e.Low)
}

func (e ElectionID) proto() *p4v1.Uint128 { return &p4v1.Uint128{High: e.High, Low: e.Low} }

func electionOf(u *p4v1.Uint128) ElectionID { return ElectionID{u.GetHigh(), u.GetLow()} }
