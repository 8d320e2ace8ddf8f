// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/collector/device/banks"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/p4/p4rt"
)

// A collector bids above those with a lower fence, also above a high id that another controller
// had, never above one with a higher fence, and never against another controller.
func TestBid(t *testing.T) {
	const (
		created = uint64(1_790_000_000) << 32
		older   = created | 7
		own     = created | 8
		newer   = created | 9
		forged  = uint64(1) << 63
		last    = uint64(math.MaxUint64)
	)
	id := func(high, low uint64) p4rt.ElectionID { return p4rt.ElectionID{High: high, Low: low} }
	var none p4rt.ElectionID
	for _, c := range []struct {
		name           string
		highest        p4rt.ElectionID
		outbids, above p4rt.ElectionID // the bids against a primary and without one; zero: none
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
	} {
		for vacant, want := range map[bool]p4rt.ElectionID{false: c.outbids, true: c.above} {
			got, ok := bid(own, 1, c.highest, vacant)
			if ok != (want != none) || ok && got != want {
				t.Errorf("%s, without a primary %v: bid %v %v, want %v", c.name, vacant, got, ok, want)
			}
			if ok && got.Compare(c.highest) < 0 {
				t.Errorf("%s: bid %v is below", c.name, got)
			}
		}
	}
}

// A device is not taken over in an epoch that has not begun at the next owner: its session would
// be in the epoch before, too. The owner offers it again.
func TestAcceptBeforeTheEpoch(t *testing.T) {
	r := newRig(t, twoSwitches)
	r.deps.Elsewhere = func(string) epoch.Source { return nil }
	wait := func(context.Context, time.Duration) error { return nil }
	if err := r.deps.Engine.Open(t.Context(), time.Now(), wait); err != nil {
		t.Fatal(err)
	}
	c1 := func(string) string { return "c1" }
	if err := r.Assign(t.Context(), Ownership{Self: "c2", Owner: func(string) string { return "c2" }, Before: c1,
		Present: func(string) bool { return true }, Fence: func() uint64 { return 7 }, Writes: true}); err != nil {
		t.Fatal(err)
	}
	open, _ := r.deps.Engine.Current()
	offer := func(epoch uint64) error {
		return r.Accept("c1", Move{Device: "s1", To: "c2", Banks: &banks.Handover{Epoch: epoch}})
	}
	if err := offer(open + 1); err == nil || !strings.Contains(err.Error(), "has not begun at collector c2") ||
		!r.Foreign("s1") {
		t.Errorf("s1 in the next epoch: error %v, of another collector %v", err, r.Foreign("s1"))
	}
	if err := offer(open); err != nil || r.Foreign("s1") || !r.Foreign("s2") {
		t.Errorf("s1 in the open epoch: error %v, of another collector %v", err, r.Foreign("s1"))
	}
}
