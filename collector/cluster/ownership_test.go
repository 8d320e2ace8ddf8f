// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

func active(names ...string) (all []Member) {
	for _, n := range names {
		all = append(all, Member{Name: n, Weight: 1, State: Active})
	}
	return all
}

// Only clocks that are certainly further apart than the bound are named.
func TestClockWarnings(t *testing.T) {
	c := &Component{view: View{Self: "a", Members: active("a", "b", "c", "d")}}
	c.view.Members[0].Offset, c.view.Members[0].Uncertainty = 3*time.Millisecond, time.Millisecond
	c.view.Members[1].Offset = -20 * time.Millisecond
	c.view.Members[2].Offset, c.view.Members[2].Uncertainty = 25*time.Millisecond, 15*time.Millisecond
	c.view.Members[3].Offset = 2 * time.Millisecond
	got := c.ClockWarnings(10 * time.Millisecond)
	if len(got) != 1 || !strings.Contains(got[0], "collector b is -23ms ahead of that of a") {
		t.Errorf("warnings %q", got)
	}
}

// When a member leaves, only its keys move, and they spread over the others. Shares follow weights.
func TestOwner(t *testing.T) {
	const keys = 6000
	three, two := active("a", "b", "c"), active("c", "a")
	weighted := active("a", "b", "c")
	weighted[1].Weight = 2
	shares, moved, heavy := map[string]int{}, map[string]int{}, map[string]int{}
	for i := range keys {
		key := deviceKey(fmt.Sprintf("leaf%d", i))
		was, is := Owner(key, three), Owner(key, two)
		shares[was]++
		heavy[Owner(key, weighted)]++
		if was != is {
			if was != "b" {
				t.Fatalf("%s moved from %s to %s when b left", key, was, is)
			}
			moved[is]++
		}
	}
	// Three standard deviations of a binomial distribution around each expected count are at most 115.
	for what, c := range map[string]struct{ got, want int }{
		"a of three": {shares["a"], keys / 3}, "b of three": {shares["b"], keys / 3},
		"b with weight 2": {heavy["b"], keys / 2}, "moved from b to a": {moved["a"], keys / 6},
	} {
		if c.got < c.want-115 || c.got > c.want+115 {
			t.Errorf("%s: %d keys, want about %d", what, c.got, c.want)
		}
	}
	three[0].State = Draining
	three[1].Weight = 0
	if got := Owner("device/x", three); got != "c" {
		t.Errorf("owner %q; a drains and b has no weight", got)
	}
	if got := Owner("device/x", three[:2]); got != "" {
		t.Errorf("owner %q of members that own nothing", got)
	}
}

// FuzzBeat: a beat is refused, or the view with its member has one owner of each key and epoch.
func FuzzBeat(f *testing.F) {
	for _, m := range []Member{
		{Name: "b", Incarnation: "1", Protocol: 1, Version: "1.4.0", Weight: 2, State: Draining, Since: 7},
		{Name: "a", Incarnation: "1", State: Active, Started: time.Now()},
		{Name: "c", Incarnation: "1", Weight: maxWeight, State: "?", Offset: math.MinInt64},
	} {
		data, err := m.encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := decodeMember(data)
		if err != nil {
			return
		}
		v := View{Self: "a", Members: active("a", "z")}
		if m.Name < "z" && m.Name > "a" {
			v.Members = append(v.Members[:1], m, v.Members[1])
		}
		_ = v.Members[0].conflict(m)
		_ = (&Component{view: v}).ClockWarnings(time.Second)
		for _, in := range []View{v, v.In(m.Since), v.In(m.Since - 1)} {
			owner, ok := in.Member(in.Device("leaf1"))
			if !ok || !owner.Active() {
				t.Errorf("%+v owns leaf1 in %+v", owner, in)
			}
		}
	})
}
