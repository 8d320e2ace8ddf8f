// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"maps"
	"math"
	"slices"
	"testing"
)

var rules = Rules{SlowShare: 0.8, SlowRange: 1, Drops: 0.02, DropPackets: 5, Blackhole: 0.1, Loop: 2, Jitter: 10,
	JitterLeast: 100}

// sizes is a path whose hops have these packets; a negative one is not valid.
func sizes(packets ...int) (path []Hop) {
	for _, n := range packets {
		path = append(path, Hop{Valid: n >= 0, Packets: uint32(max(n, 0))})
	}
	return path
}

// TestSizes has the examples of the paper's section 6.2, whose switches are s1 to s5, and others.
func TestSizes(t *testing.T) {
	for _, tc := range []struct {
		name string
		path []Hop
		want []Finding
	}{
		{"s4 is a blackhole", sizes(100, 100, 100, 0, 0), []Finding{{Blackhole, 3, 0}}},
		{"s3 and s4 are in a loop", sizes(100, 100, 5000, 5000, 0), []Finding{{Loop, 2, 50}, {Loop, 3, 50}}},
		{"s3 drops packets", sizes(100, 100, 95, 95, 95), []Finding{{RandomDrops, 2, 0.05}}},
		{"nothing", sizes(100, 100, 100), nil},
		{"a size that is too high", sizes(100, 130, 100), nil},
		{"a blackhole behind a size that is too high", sizes(100, 190, 10, 8), []Finding{{Blackhole, 2, 0.1}}},
		{"drops twice", sizes(1000, 900, 900, 450),
			[]Finding{{RandomDrops, 1, 0.1}, {RandomDrops, 3, 0.5}}},
		{"too few packets", sizes(100, 96), nil},
		{"too small a share", sizes(1000, 990), nil},
		{"a hop without a row", sizes(100, -1, 0), []Finding{{Blackhole, 2, 0}}},
		{"no hop before", sizes(-1, -1, 0, 5), nil},
		{"behind a blackhole nothing is judged", sizes(100, 5, 0, 900), []Finding{{Blackhole, 1, 0.05}}},
		{"behind a loop nothing is judged", sizes(100, 200, 90, 400), []Finding{{Loop, 1, 2}}},
		{"no packets", sizes(0, 0, 7), nil},
		{"no hops", nil, nil},
	} {
		got := rules.Locate(nil, tc.path)
		if !slices.EqualFunc(got, tc.want, func(a, b Finding) bool {
			return a.Fault == b.Fault && a.Hop == b.Hop && a.Value > b.Value-1e-9 && a.Value < b.Value+1e-9
		}) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
		if got := new(Rules).Locate(nil, tc.path); got != nil {
			t.Errorf("%s: %v without a threshold", tc.name, got)
		}
	}
}

func TestLatencyAndJitter(t *testing.T) {
	path := []Hop{
		{Valid: true, Packets: 10, Delays: []uint32{10, 0, 0}, Interval: 40},
		{Valid: true, Packets: 10, Delays: []uint32{2, 7, 1}, Interval: 60},
		{Valid: false, Packets: 10, Delays: []uint32{0, 10, 0}, Interval: 9000},
		{Valid: true, Packets: 10, Delays: []uint32{3, 7, 0}, Interval: 600},
		{Valid: true, Packets: 10, Interval: 0},
		{Valid: true, Packets: 10, Delays: []uint32{0, 0, 0}, Interval: 5999},
		{Valid: true, Packets: 10, Delays: []uint32{0}, Interval: 60_000},
	}
	want := []Finding{{InflatedLatency, 1, 0.8}, {AbnormalJitter, 3, 10}, {AbnormalJitter, 6, 60_000. / 5999}}
	if got := rules.Locate(nil, path); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	path[0].Interval, path[1].Interval, path[3].Interval, path[6].Interval = 2, 99, 99, 99
	path[5].Interval = 99
	if got := rules.Locate(nil, path); !slices.Equal(got, want[:1]) {
		t.Errorf("%v with times below the least one", got)
	}
	if got := AbnormalJitter.String(); got != "ABNORMAL_JITTER" {
		t.Error(got)
	}
}

// TestVotes: three flows have a blackhole at s3; a fourth one shows it behind s3, and belongs to
// them unless its size at s3 says that it has passed.
func TestVotes(t *testing.T) {
	nodes := []string{"sender", "s2", "s3", "s4", "s5"}
	votes := Votes[string]{}
	for range 3 {
		for _, path := range [][]Hop{sizes(100, 100, 0, 0, 0), sizes(100, -1, -1, 0, 0), sizes(100, 100, 130, 0, 0)} {
			votes.Count(&rules, nodes, path, rules.Locate(nil, path)) // on the last two paths, s3 may have the fault
		}
	}
	want := Votes[string]{{Blackhole, true, "s2", "s3"}: 3, {Fault: Blackhole, To: "s3"}: 3}
	if !maps.Equal(votes, want) {
		t.Errorf("votes %v, want %v", votes, want)
	}
	shared := sizes(100, 100, 100, 0, 0)
	shared[2].Shared = true
	late := sizes(100, 100, 130, 100, 100)
	for i, gap := range []uint32{20, 20, 300, 4000, 4000} {
		late[i].Interval = gap
	}
	late[2].Mixed = true
	seen := slices.Clone(late)
	seen[2].Seen = 0.8
	slow := sizes(100, 100, 100, 0, 0)
	slow[2].Delays = []uint32{0, 100}
	for _, tc := range []struct {
		name  string
		path  []Hop
		votes Votes[string]
		want  []Finding
	}{
		{"only other flows at s3", sizes(100, 100, 130, 0, 0), votes, []Finding{{Blackhole, 2, 0}}},
		{"the same, with a limit", shared, votes, []Finding{{Blackhole, 2, 0}}},
		{"fewer of them", sizes(100, 100, 91, 0, 0), votes, []Finding{{Blackhole, 2, 0}}},
		{"fewer of them, twice", sizes(100, 100, 91, 80, 0), votes, []Finding{{Blackhole, 2, 0}}},
		{"no bucket at s3", sizes(100, 100, -1, 0, 0), votes, []Finding{{Blackhole, 2, 0}}},
		{"it has passed s3", sizes(100, 100, 100, 0, 0), votes, []Finding{{Blackhole, 3, 0}}},
		{"it has passed s3 but for drops", sizes(100, 90, 90, 0, 0), votes,
			[]Finding{{RandomDrops, 1, 0.1}, {Blackhole, 3, 0}}},
		{"drops at s3", sizes(100, 100, 91, 91, 91), votes, []Finding{{RandomDrops, 2, 0.09}}},
		{"another fault at s3", slow, votes, []Finding{{InflatedLatency, 2, 1}, {Blackhole, 3, 0}}},
		{"as many votes for s4", sizes(100, 100, 130, 0, 0),
			Votes[string]{{Fault: Blackhole, To: "s3"}: 3, {Fault: Blackhole, To: "s4"}: 3}, []Finding{{Blackhole, 3, 0}}},
		{"drops at s3 and s4", sizes(1000, 1000, 900, 450, 450), Votes[string]{{Fault: RandomDrops, To: "s3"}: 3},
			[]Finding{{RandomDrops, 2, 0.1}, {RandomDrops, 3, 0.5}}},
		{"jitter behind a mixed gap", late, Votes[string]{{Fault: AbnormalJitter, To: "s3"}: 3},
			[]Finding{{AbnormalJitter, 2, 200}}},
		{"jitter behind a gap that hardly hides it", seen, Votes[string]{{Fault: AbnormalJitter, To: "s3"}: 3},
			[]Finding{{AbnormalJitter, 3, 200}}},
		{"votes for another fault", sizes(100, 100, 130, 0, 0), Votes[string]{{Fault: RandomDrops, To: "s3"}: 3},
			[]Finding{{Blackhole, 3, 0}}},
		{"votes for another link to s3", sizes(100, 100, 130, 0, 0), Votes[string]{{Fault: Blackhole, To: "s3"}: 3},
			[]Finding{{Blackhole, 2, 0}}},
		{"votes for the link behind s3", sizes(100, 100, 130, 0, 0), Votes[string]{{Fault: Blackhole, To: "s3"}: 3,
			{Blackhole, true, "s3", "s4"}: 1}, []Finding{{Blackhole, 3, 0}}},
	} {
		got := tc.votes.Settle(&rules, nodes, tc.path, rules.Locate(nil, tc.path))
		if !slices.EqualFunc(got, tc.want, func(a, b Finding) bool {
			return a.Fault == b.Fault && a.Hop == b.Hop && a.Value > b.Value-1e-9 && a.Value < b.Value+1e-9
		}) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// TestBounds: of flows that hosts counted, a latency is inflated if the lower ranges cannot have
// all packets, whatever other flows add to the higher ones.
func TestBounds(t *testing.T) {
	for _, tc := range []struct {
		delays []uint32
		least  uint32
		want   []Finding
	}{
		{[]uint32{20, 80, 0}, 100, []Finding{{InflatedLatency, 0, 0.8}}},
		{[]uint32{21, 500, 70}, 100, nil}, // at least 79 are slow
		{[]uint32{40, 80, 0}, 100, nil},
		{[]uint32{0, 80, 0}, 0, nil},
		{[]uint32{0, 0, 0}, 100, nil}, // the flow took another path
		{[]uint32{0, 10, 10}, 100, nil},
	} {
		path := []Hop{{Valid: true, Packets: 100, Delays: tc.delays, Counted: true, Least: tc.least}}
		if got := rules.Locate(nil, path); !slices.Equal(got, tc.want) {
			t.Errorf("%v of %d: %v, want %v", tc.delays, tc.least, got, tc.want)
		}
	}
}

// TestDoubt: the probability that other flows cause a finding.
func TestDoubt(t *testing.T) {
	few := func(n uint32) float64 { return 1 / float64(1+n) }
	path := func(packets ...int) []Hop {
		p := sizes(packets...)
		for i := range p[1:] {
			p[i+1].Excess = few
		}
		return p
	}
	shared := path(100, 100, 20)
	shared[1].Shared = true
	mixed := path(100, 100, 100)
	mixed[1].Mixed = true
	seen := path(100, 100, 100)
	seen[1].Mixed, seen[1].Seen, seen[2].Chance = true, 0.75, 0.125
	for _, tc := range []struct {
		name string
		path []Hop
		f    Finding
		want float64
	}{
		{"drops at the first switch", path(100, 80), Finding{Fault: RandomDrops, Hop: 1}, 0},
		{"drops behind a switch that may hide them", path(100, 100, 80), Finding{Fault: RandomDrops, Hop: 2},
			1./16 - 1./27},
		{"behind a size that is shared", shared, Finding{Fault: Blackhole, Hop: 2}, 0.5},
		{"behind a switch that lacks a part", path(100, 90, 70), Finding{Fault: RandomDrops, Hop: 2}, 0.5},
		{"behind a switch without a bucket", path(100, -1, 20), Finding{Fault: Blackhole, Hop: 2}, 1},
		{"a loop", path(100, 100, 399), Finding{Fault: Loop, Hop: 2}, 1. / 300},
		{"a loop behind a size that is too high", path(100, 150, 399), Finding{Fault: Loop, Hop: 2}, 1. / 300},
		{"jitter", path(100, 100, 100), Finding{Fault: AbnormalJitter, Hop: 2}, 0},
		{"jitter behind a mixed gap", mixed, Finding{Fault: AbnormalJitter, Hop: 2}, 1},
		{"jitter behind a gap that others may hide", seen, Finding{Fault: AbnormalJitter, Hop: 2}, 0.375},
		{"a bound", path(100, 100), Finding{Fault: InflatedLatency, Hop: 1}, 0},
	} {
		if got := rules.Doubt(tc.path, tc.f); math.Abs(got-tc.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// TestEdges: a gap is compared with the longest gap at any earlier hop. A value that equals a
// threshold reaches it. Nothing is judged behind a hop without packets.
func TestEdges(t *testing.T) {
	gaps := func(all ...uint32) (path []Hop) {
		for _, gap := range all {
			path = append(path, Hop{Valid: true, Packets: 100, Interval: gap})
		}
		return path
	}
	drops := rules
	drops.Blackhole = 0
	for _, tc := range []struct {
		name  string
		rules *Rules
		path  []Hop
		want  []Finding
	}{
		{"a shorter gap between", &rules, gaps(40, 60, 10, 500), nil},
		{"equal to both thresholds", &rules, gaps(10, 100), []Finding{{AbnormalJitter, 1, 10}}},
		{"below the least gap", &rules, gaps(9, 99), nil},
		{"behind no packets", &drops, sizes(100, 0, 50), []Finding{{RandomDrops, 1, 1}}},
	} {
		if got := tc.rules.Locate(nil, tc.path); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}
