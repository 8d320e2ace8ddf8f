// SPDX-License-Identifier: Apache-2.0

package lightguardian

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/netsketch/netsketch/lab/scenario/score"
	"github.com/netsketch/netsketch/lab/truth"
	"github.com/netsketch/netsketch/plugins/lightguardian/plugin"
	"github.com/netsketch/netsketch/sketch/flow"
)

// TestSlowByTheClock: 80 % of the packets have a delay near the threshold. Less than a unit of the
// switch's clock below or above it, the switch may count them on either side.
func TestSlowByTheClock(t *testing.T) {
	k, err := flow.New(netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), 6, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		delay     time.Duration
		row, near bool
	}{
		{199 * time.Microsecond, false, false},
		{199_240 * time.Nanosecond, true, true},
		{200_500 * time.Nanosecond, true, true},
		{201 * time.Microsecond, true, false},
	} {
		c := plugin.Configuration{TimeUnit: time.Microsecond}
		c.Rules.Slow, c.Rules.SlowShare, c.Rules.Packets = 200*time.Microsecond, 0.5, 20
		delays := slices.Concat(slices.Repeat([]time.Duration{tc.delay}, 80), slices.Repeat([]time.Duration{0}, 20))
		x := &exact{c: &c, t: score.Tables{}}
		x.latency(&journey{key: k, sent: 100, hops: []passed{{"s1", truth.Departures{Packets: 100, Delays: delays}}}})
		row := x.rows(alerts + " " + slow)[slow+"/s1"]
		if (row != nil) != tc.row || row != nil && (row.Near != tc.near || row.Optional != tc.near) {
			t.Errorf("%v: %+v", tc.delay, row)
		}
	}
}

// TestPlannedRoutes: a switch that a flow passes because of wrong routes is a fault. If routes
// change as planned it is none, and the interval does not show the path that flows have without.
func TestPlannedRoutes(t *testing.T) {
	k, err := flow.New(netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), 6, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	over := func(rerouted bool, names ...string) *score.Truth {
		out := &score.Truth{Rerouted: rerouted, Devices: map[string]*score.Device{}}
		for i, name := range names {
			out.Devices[name] = &score.Device{Departed: map[flow.Key]truth.Departures{k: {Packets: 100, Hop: uint8(i)}}}
		}
		out.Devices[names[0]].Entered = truth.Counts{k: 100}
		return out
	}
	for _, rerouted := range []bool{false, true} {
		normal := paths{}
		normal.learn(over(true, "s1", "s4", "s2"))
		if normal[k] != nil {
			t.Errorf("learned %v", normal[k])
		}
		normal.learn(over(false, "s1", "s2"))
		c := plugin.Configuration{}
		c.Rules.Path, c.Rules.Loop, c.Rules.Packets = 0.5, 2, 20
		x := &exact{c: &c, t: score.Tables{}, now: over(rerouted, "s1", "s3", "s2"), normal: normal}
		for _, j := range journeys(x.now) {
			x.path(j)
		}
		if row := x.rows(alerts + " " + path)[path+"/s3"]; rerouted != (row == nil) || row != nil && row.Optional {
			t.Errorf("rerouted %v: %+v", rerouted, row)
		}
	}
}

// TestWaitingLoop: packets that circle in a loop and wait in its queues have not expired at the end
// of an interval. An alert of the loop is right then. Packets of the interval before, which arrive
// late, are no loop.
func TestWaitingLoop(t *testing.T) {
	k, err := flow.New(netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), 6, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		sent, earlier, passed, lost uint64
		row, optional               bool
	}{
		{22, 20, 233, 0, true, true},
		{22, 200, 233, 0, false, false},
		{22, 20, 233, 12, true, false},
		{22, 20, 30, 0, false, false},
	} {
		c := plugin.Configuration{}
		c.Rules.Loop, c.Rules.Packets = 2, 10
		x := &exact{c: &c, t: score.Tables{}, dropped: map[string]loss{},
			before: &score.Truth{Devices: map[string]*score.Device{"s3": {Entered: truth.Counts{k: tc.earlier}}}}}
		x.drops(&journey{key: k, sent: tc.sent, lost: tc.lost, hops: []passed{{"s3", truth.Departures{Packets: tc.passed}}}})
		row := x.rows(alerts + " " + loop)[loop+"/s3"]
		if (row != nil) != tc.row || row != nil && row.Optional != tc.optional {
			t.Errorf("%+v: row %+v", tc, row)
		}
	}
}
