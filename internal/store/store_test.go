// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/netsketch/netsketch/yang/table"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const hhList = "/netsketch-univmon:univmon/heavy-hitters/heavy-hitter"

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// hh makes a table of heavy hitters from "device flow packets [share]" lines; "-"
// is an absent leaf.
func hh(tb testing.TB, lines ...string) *table.Table {
	tb.Helper()
	b := table.NewBuilder(hhList)
	device, flow := b.TextKey("node"), b.TextKey("flow")
	packets := b.Uint("state/packets")
	share := b.Float("state/share")
	for _, line := range lines {
		f := strings.Fields(line)
		device.Append(f[0])
		flow.Append(f[1])
		if f[2] != "-" {
			p, err := strconv.ParseUint(f[2], 10, 64)
			if err != nil {
				tb.Fatal(err)
			}
			packets.Append(p)
		}
		if len(f) > 3 && f[3] != "-" {
			s, err := strconv.ParseFloat(f[3], 64)
			if err != nil {
				tb.Fatal(err)
			}
			share.Append(s)
		}
	}
	t, err := b.Table()
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

func publish(tb testing.TB, s *Store, epoch int, pubs ...Publication) {
	tb.Helper()
	err := s.Publish(Batch{Time: t0.Add(time.Duration(epoch) * time.Second), Epoch: uint64(epoch), Tables: pubs})
	if err != nil {
		tb.Fatal(err)
	}
}

func replace(t *table.Table) Publication { return Publication{Table: t, Replace: true} }

// dump lists the leaves in a view, as "path = value".
func dump(v *View, queries ...Query) []string {
	var out []string
	for r := range v.Rows(queries...) {
		for i, val := range r.Values {
			if !val.Absent() {
				out = append(out, leafText(r, i)+" = "+val.String())
			}
		}
	}
	return out
}

func leafText(r *Row, leaf int) string {
	var keys []string
	for _, k := range r.Entry.Keys {
		keys = append(keys, k.String())
	}
	return strings.Join(keys, ",") + "/" + r.List.Leaves[leaf].Name
}

// pullAll pulls all deltas after the feed has processed everything published.
func pullAll(sub *Subscription) []string {
	sub.feed.evaluate()
	var out []string
	for {
		deltas, more := sub.Pull(3)
		for _, d := range deltas {
			if d.Removed {
				out = append(out, "- "+strings.TrimSuffix(leafText(d.Row, 0), "/node"))
				continue
			}
			for _, l := range d.Leaves {
				text := leafText(d.Row, l.Leaf) + " = " + d.Row.Values[l.Leaf].String()
				if d.Row.Values[l.Leaf].Absent() {
					text = "- " + leafText(d.Row, l.Leaf)
				}
				if l.Duplicates > 0 {
					text += fmt.Sprintf(" (%d)", l.Duplicates)
				}
				out = append(out, text)
			}
		}
		if !more {
			return out
		}
	}
}

func TestView(t *testing.T) {
	s := New(Options{})
	defer s.Close()
	publish(t, s, 1, replace(hh(t, "s1 10.0.0.1 100 0.5", "s1 10.0.0.2 50 -", "s2 10.0.0.1 7 0.1")))
	for _, tc := range []struct {
		path string
		want []string
	}{
		{"/univmon/heavy-hitters/heavy-hitter/state/packets", []string{
			"s1,10.0.0.1/state/packets = 100", "s1,10.0.0.2/state/packets = 50", "s2,10.0.0.1/state/packets = 7"}},
		{"/univmon/heavy-hitters/heavy-hitter[node=s1]/state/packets", []string{
			"s1,10.0.0.1/state/packets = 100", "s1,10.0.0.2/state/packets = 50"}},
		{"/univmon/heavy-hitters/heavy-hitter[node=*][flow=10.0.0.1]/state/packets", []string{
			"s1,10.0.0.1/state/packets = 100", "s2,10.0.0.1/state/packets = 7"}},
		{"/univmon/heavy-hitters/heavy-hitter[node=s1][flow=10.0.0.2]", []string{
			"s1,10.0.0.2/node = s1", "s1,10.0.0.2/flow = 10.0.0.2", "s1,10.0.0.2/state/packets = 50"}},
		{"/.../share", []string{
			"s1,10.0.0.1/state/share = 0.5", "s2,10.0.0.1/state/share = 0.1"}},
		{"/*/heavy-hitters/*/state/packets", []string{
			"s1,10.0.0.1/state/packets = 100", "s1,10.0.0.2/state/packets = 50", "s2,10.0.0.1/state/packets = 7"}},
		{"/univmon/.../heavy-hitter[flow=10.0.0.2]/.../packets", []string{"s1,10.0.0.2/state/packets = 50"}},
		{"/univmon/heavy-hitters/heavy-hitter[nokey=1]", nil},
		{"/univmon/heavy-hitters/heavy-hitter/state/packets/more", nil},
		{"/univmon/node-summaries", nil},
	} {
		t.Run(tc.path, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, dump(s.View(), ParseQuery("", tc.path))); diff != "" {
				t.Error(diff)
			}
		})
	}
	if got := dump(s.View(), ParseQuery("other", "/")); got != nil {
		t.Errorf("another target has %v", got)
	}
	if got := dump(s.View(), ParseQuery("*", "/")); len(got) != 11 {
		t.Errorf("every target has %d leaves, want 11: %v", len(got), got)
	}
}

func TestViewStaysWhatItWas(t *testing.T) {
	s := New(Options{})
	defer s.Close()
	publish(t, s, 1, replace(hh(t, "s1 a 1", "s1 b 2")))
	before := s.View()
	publish(t, s, 2, Publication{Table: hh(t, "s1 a 10", "s1 c 3")})
	publish(t, s, 3, Publication{Table: hh(t, "s1 b 0"), Delete: true})
	q := ParseQuery("", "/univmon/heavy-hitters/heavy-hitter/state/packets")
	if diff := cmp.Diff([]string{"s1,a/state/packets = 1", "s1,b/state/packets = 2"}, dump(before, q)); diff != "" {
		t.Error(diff)
	}
	got := dump(s.View(), q)
	slices.Sort(got)
	if diff := cmp.Diff([]string{"s1,a/state/packets = 10", "s1,c/state/packets = 3"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestSubscribeFollows(t *testing.T) {
	s := New(Options{})
	defer s.Close()
	publish(t, s, 1, replace(hh(t, "s1 a 1", "s1 b 2")))
	sub, err := s.Subscribe(SubscribeOptions{Queries: []Query{ParseQuery("",
		"/univmon/heavy-hitters/heavy-hitter/state/packets")}})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	step := func(name string, want ...string) {
		t.Helper()
		got := pullAll(sub)
		slices.Sort(got) // the order of rows that change together is not defined
		slices.Sort(want)
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	step("initial", "s1,a/state/packets = 1", "s1,b/state/packets = 2")
	if sub.Initial() {
		t.Error("still initial after everything was pulled")
	}
	publish(t, s, 2, replace(hh(t, "s1 a 1", "s1 b 2")))
	step("same values")
	publish(t, s, 3, replace(hh(t, "s1 b 3", "s1 c 4")))
	step("replaced", "s1,b/state/packets = 3", "s1,c/state/packets = 4", "- s1,a")
	publish(t, s, 4, Publication{Table: hh(t, "s1 b 5")})
	publish(t, s, 5, Publication{Table: hh(t, "s1 b -")})
	step("leaf gone", "- s1,b/state/packets")
	publish(t, s, 6, replace(hh(t)))
	step("all gone", "- s1,b", "- s1,c")
	publish(t, s, 7, replace(hh(t, "s1 a 9")))
	step("back", "s1,a/state/packets = 9")
}

func TestSlowSubscriberCoalesces(t *testing.T) {
	s := New(Options{})
	defer s.Close()
	sub, err := s.Subscribe(SubscribeOptions{Queries: []Query{ParseQuery("", "/univmon")}})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	for i := 1; i <= 100; i++ {
		// One flow stays, and each epoch has another flow that the next epoch lacks.
		publish(t, s, i, replace(hh(t, fmt.Sprintf("s1 a %d", i), fmt.Sprintf("s1 e%d 1", i))))
		sub.feed.evaluate()
	}
	if n := len(sub.feed.slots); n > 3 {
		t.Errorf("a subscriber that does not read has %d slots kept for 2 rows", n)
	}
	if n := len(sub.queue) + len(sub.feed.log); n > 3*chunk {
		t.Errorf("queue and log have %d entries", n)
	}
	want := []string{
		"s1,a/node = s1", "s1,a/flow = a", "s1,a/state/packets = 100 (99)",
		"s1,e100/node = s1", "s1,e100/flow = e100", "s1,e100/state/packets = 1",
	}
	if diff := cmp.Diff(want, pullAll(sub)); diff != "" {
		t.Error(diff)
	}
}

func TestQueueAllIsFairAndBounded(t *testing.T) {
	s := New(Options{})
	defer s.Close()
	publish(t, s, 1, replace(hh(t, "s1 a 1", "s1 b 1", "s1 c 1", "s1 d 1")))
	sub, err := s.Subscribe(SubscribeOptions{Queries: []Query{ParseQuery("",
		"/univmon/heavy-hitters/heavy-hitter/state/packets")}})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	pullAll(sub)
	// A client that pulls one row a round, while all rows change each round, still receives every
	// row.
	seen := map[string]int{}
	for i := range 8 {
		publish(t, s, 2+i, replace(hh(t, fmt.Sprintf("s1 a %d", 2+i), fmt.Sprintf("s1 b %d", 2+i),
			fmt.Sprintf("s1 c %d", 2+i), fmt.Sprintf("s1 d %d", 2+i))))
		sub.feed.evaluate()
		sub.QueueAll()
		deltas, _ := sub.Pull(1)
		for _, d := range deltas {
			seen[d.Row.Entry.Keys[1].Text()]++
		}
	}
	if diff := cmp.Diff(map[string]int{"a": 2, "b": 2, "c": 2, "d": 2}, seen); diff != "" {
		t.Error(diff)
	}
	pullAll(sub)
	sub.QueueAll()
	if got := pullAll(sub); len(got) != 4 {
		t.Errorf("a sample of 4 rows gave %v", got)
	}
}

func TestUpdatesOnly(t *testing.T) {
	s := New(Options{})
	defer s.Close()
	publish(t, s, 1, replace(hh(t, "s1 a 1", "s1 b 1")))
	sub, err := s.Subscribe(SubscribeOptions{
		Queries: []Query{ParseQuery("", "/univmon/heavy-hitters/heavy-hitter/state/packets")}, UpdatesOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	if sub.Initial() {
		t.Error("updates only, and yet something is initial")
	}
	publish(t, s, 2, replace(hh(t, "s1 b 2")))
	if diff := cmp.Diff([]string{"s1,b/state/packets = 2", "- s1,a"}, pullAll(sub)); diff != "" {
		t.Error(diff)
	}
}

func TestPartialUpsertKeepsOtherColumns(t *testing.T) {
	s := New(Options{})
	defer s.Close()
	publish(t, s, 1, replace(hh(t, "s1 a 1 0.5", "s1 b 2 0.25")))
	b := table.NewBuilder(hhList)
	device, flow, packets, rank := b.TextKey("node"), b.TextKey("flow"), b.Uint("state/packets"), b.Uint("state/rank")
	device.Append("s1")
	flow.Append("a")
	packets.Append(7)
	rank.Append(1)
	tab, err := b.Table()
	if err != nil {
		t.Fatal(err)
	}
	publish(t, s, 2, Publication{Table: tab})
	got := dump(s.View(), ParseQuery("", "/univmon/heavy-hitters/heavy-hitter/state"))
	slices.Sort(got)
	want := []string{
		"s1,a/state/packets = 7", "s1,a/state/rank = 1", "s1,a/state/share = 0.5",
		"s1,b/state/packets = 2", "s1,b/state/share = 0.25",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestRowByRow compares the stack of segments with a map, under random upserts, deletes and
// replaces.
func TestRowByRow(t *testing.T) {
	s := New(Options{})
	defer s.Close()
	sub, err := s.Subscribe(SubscribeOptions{Queries: []Query{ParseQuery("",
		"/univmon/heavy-hitters/heavy-hitter/state/packets")}})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	truth, seen := map[string]uint64{}, map[string]uint64{}
	rng := newRand(1)
	for i := range 2000 {
		flow := fmt.Sprintf("f%d", rng.IntN(60))
		switch rng.IntN(40) {
		case 0, 1, 2, 3:
			publish(t, s, i, Publication{Table: hh(t, "s1 "+flow+" -"), Delete: true})
			delete(truth, flow)
		case 4:
			publish(t, s, i, replace(hh(t, "s1 x 1", fmt.Sprintf("s1 %s %d", flow, i))))
			truth = map[string]uint64{"x": 1, flow: uint64(i)}
		default:
			publish(t, s, i, Publication{Table: hh(t, fmt.Sprintf("s1 %s %d", flow, i))})
			truth[flow] = uint64(i)
		}
		if n := s.lists[listKey{"netsketch", hhList}]; len(n.segs) > 12 {
			t.Fatalf("%d segments for %d rows", len(n.segs), len(truth))
		}
		if i%7 != 0 {
			continue
		}
		sub.feed.evaluate()
		for more := true; more; {
			var deltas []Delta
			deltas, more = sub.Pull(5)
			for _, d := range deltas {
				flow := d.Row.Entry.Keys[1].Text()
				if d.Removed {
					delete(seen, flow)
					continue
				}
				for _, l := range d.Leaves {
					seen[flow] = d.Row.Values[l.Leaf].Uint()
				}
			}
		}
		if diff := cmp.Diff(truth, seen); diff != "" {
			t.Fatalf("after %d: %s", i, diff)
		}
		now := map[string]uint64{}
		for r := range s.View().Rows(ParseQuery("", "/univmon/heavy-hitters/heavy-hitter/state/packets")) {
			now[r.Entry.Keys[1].Text()] = r.Values[2].Uint()
		}
		if diff := cmp.Diff(truth, now); diff != "" {
			t.Fatalf("view after %d: %s", i, diff)
		}
	}
}

func TestPublishRefusesAsAWhole(t *testing.T) {
	s := New(Options{})
	defer s.Close()
	publish(t, s, 1, replace(hh(t, "s1 a 1")))
	other := table.NewBuilder(hhList)
	d, f := other.TextKey("node"), other.TextKey("flow")
	p := other.Int("state/packets")
	d.Append("s1")
	f.Append("a")
	p.Append(1)
	wrong, err := other.Table()
	if err != nil {
		t.Fatal(err)
	}
	one := table.NewBuilder(hhList)
	one.TextKey("node").Append("s1")
	fewer, err := one.Table()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		b    Batch
		want string
	}{
		{"no time", Batch{}, "no time"},
		{"no table", Batch{Time: t0, Tables: []Publication{{}}}, "has no table"},
		{"kind", Batch{Time: t0, Tables: []Publication{{Table: hh(t, "s1 a 2")}, {Table: wrong}}},
			"column state/packets is of kind int64"},
		{"keys", Batch{Time: t0, Tables: []Publication{replace(fewer)}}, "has 1 keys, the list has 2"},
		{"both", Batch{Time: t0, Tables: []Publication{{Table: fewer, Replace: true, Delete: true}}}, "can do one"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := s.Publish(tc.b)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want one that says %q", err, tc.want)
			}
		})
	}
	if diff := cmp.Diff([]string{"s1,a/state/packets = 1"},
		dump(s.View(), ParseQuery("", "/.../packets"))); diff != "" {
		t.Error(diff)
	}
	s.Close()
	if err := s.Publish(Batch{Time: t0}); !errors.Is(err, ErrClosed) {
		t.Errorf("publishing into a closed store: %v", err)
	}
}

type fakeSchema struct{}

func (fakeSchema) ListKeys(elems []string) (string, []string, bool) {
	if slices.Equal(elems, []string{"univmon", "flows", "flow"}) {
		return "/netsketch-univmon:univmon/flows/flow", []string{"node", "flow"}, true
	}
	return "", nil, false
}

func (fakeSchema) KeyLeaves(string) map[string]string {
	return map[string]string{"state/flow": "flow"}
}

// A list whose publisher never removes rows is refused at the bound; a table that replaces all
// rows is still accepted.
func TestListsAreBounded(t *testing.T) {
	s := New(Options{MaxListBytes: 10_000})
	defer s.Close()
	upsert := func(epoch, flows int) error {
		var lines []string
		for i := range flows {
			lines = append(lines, fmt.Sprintf("leaf1 flow-%d-%d 5", epoch, i))
		}
		return s.Publish(Batch{Time: t0, Tables: []Publication{{Table: hh(t, lines...)}}})
	}
	epoch := 1
	for ; upsert(epoch, 20) == nil && epoch < 100; epoch++ {
	}
	if rows := s.Size("", hhList); epoch == 100 || rows < 200 || rows > 400 {
		t.Errorf("%d rows after %d epochs", rows, epoch)
	}
	if err := upsert(epoch, 1); !errors.Is(err, ErrListFull) || !strings.Contains(err.Error(), hhList) {
		t.Errorf("one more row: %v", err)
	}
	publish(t, s, epoch, replace(hh(t, "leaf1 f 1")))
	// Rows that are published again replace their earlier values.
	for range 1000 {
		if err := upsert(1, 100); err != nil {
			t.Fatal(err)
		}
	}
	if rows := s.Size("", hhList); rows != 101 {
		t.Errorf("%d rows", rows)
	}
}

func TestInterest(t *testing.T) {
	s := New(Options{Schema: fakeSchema{}})
	defer s.Close()
	var log []string
	stop := s.OnInterest(func(added, removed []Watch) {
		for _, w := range added {
			log = append(log, "+"+w.Target+w.List+strings.Join(w.Keys, ","))
		}
		for _, w := range removed {
			log = append(log, "-"+w.Target+w.List+strings.Join(w.Keys, ","))
		}
	})
	defer stop()
	subscribe := func(paths ...string) *Subscription {
		var qs []Query
		for _, p := range paths {
			qs = append(qs, ParseQuery("", p))
		}
		sub, err := s.Subscribe(SubscribeOptions{Queries: qs})
		if err != nil {
			t.Fatal(err)
		}
		return sub
	}
	a := subscribe("/univmon/flows/flow[node=s1][flow=10.0.0.1]/state/packets",
		"/univmon/flows/flow[flow=10.0.0.1][node=s1]")
	b := subscribe("/univmon/flows/flow[node=s1][flow=10.0.0.1]", "/univmon/flows/flow[node=s1]",
		"/univmon/flows/flow[node=*][flow=1]", "/univmon")
	want := []Watch{{Target: "netsketch", List: "/netsketch-univmon:univmon/flows/flow",
		Keys: []string{"s1", "10.0.0.1"}}}
	if diff := cmp.Diff(want, s.interest.list()); diff != "" {
		t.Error(diff)
	}
	a.Close()
	a.Close()
	b.Close()
	if diff := cmp.Diff([]string{
		"+netsketch/netsketch-univmon:univmon/flows/flows1,10.0.0.1",
		"-netsketch/netsketch-univmon:univmon/flows/flows1,10.0.0.1",
	}, log); diff != "" {
		t.Error(diff)
	}
	if len(s.interest.list()) != 0 || len(s.feeds) != 0 {
		t.Errorf("left over: %v, %d feeds", s.interest.list(), len(s.feeds))
	}
}

func TestKeyLeavesFromSchema(t *testing.T) {
	s := New(Options{Schema: fakeSchema{}})
	defer s.Close()
	publish(t, s, 1, replace(hh(t, "s1 a 1")))
	if diff := cmp.Diff([]string{"s1,a/state/flow = a"},
		dump(s.View(), ParseQuery("", "/univmon/heavy-hitters/heavy-hitter/state/flow"))); diff != "" {
		t.Error(diff)
	}
}

func TestTapDropsTheOldest(t *testing.T) {
	s := New(Options{})
	defer s.Close()
	tap := s.Tap(2)
	for i := 1; i <= 5; i++ {
		publish(t, s, i, replace(hh(t, "s1 a 1", "s1 b 1")))
	}
	if got, rows := tap.Dropped(), tap.DroppedRows(); got != 3 || rows != 6 {
		t.Errorf("dropped %d with %d rows, want 3 with 6", got, rows)
	}
	if b := <-tap.C(); b.Epoch != 4 || b.Target != "netsketch" {
		t.Errorf("first batch is of epoch %d of %q", b.Epoch, b.Target)
	}
	tap.Close()
	tap.Close()
	<-tap.C()
	if _, ok := <-tap.C(); ok {
		t.Error("a closed tap still has a batch")
	}
}

// TestLookup compares the two ways of finding rows by key.
func TestLookup(t *testing.T) {
	s := New(Options{})
	defer s.Close()
	publish(t, s, 1, replace(flows(5000, 1)))
	publish(t, s, 2, Publication{Table: flows(5000, 2).Slice(100, 900)})
	publish(t, s, 3, Publication{Table: flows(5000, 2).Slice(850, 870), Delete: true})
	var qs []Query
	for i := range 20 {
		qs = append(qs, ParseQuery("", fmt.Sprintf("/univmon/heavy-hitters/heavy-hitter[node=s1][flow=%s]",
			flows(5000, 1).Keys[1].Text(i*53))))
	}
	qs = append(qs, qs[3], ParseQuery("", "/univmon/heavy-hitters/heavy-hitter[node=s1][flow=none]"))
	snap := s.lists[listKey{"netsketch", hhList}]
	terms := planFor(qs, "netsketch", true, snap.list).terms
	for round := range maxScans + 2 {
		for i, at := range snap.lookup(terms) {
			g, row, ok := (&snapshot{version: snap.version, segs: snap.segs}).find(terms[i].key)
			if ok != (at.g != nil) || ok && (at.g != g || at.row != row) {
				t.Errorf("round %d, term %d: found at %v %d, want %v %d", round, i, at.g, at.row, g, row)
			}
		}
	}
}
