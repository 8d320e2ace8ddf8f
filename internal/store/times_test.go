// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/netsketch/netsketch/yang/table"
)

const ports = "/oc-if:interfaces/interface"

// leafOf publishes one leaf of one row.
func leafOf(t testing.TB, s *Store, at int64, name, leaf string, v uint64) {
	t.Helper()
	err := s.Publish(Batch{Target: "s1", Time: time.Unix(0, at), Tables: []Publication{{Table: &table.Table{
		List: ports, Keys: []table.Column{table.Strings("name", []string{name})},
		Values: []table.Column{table.Uint64s(leaf, []uint64{v})}}}}})
	if err != nil {
		t.Fatal(err)
	}
}

// A leaf keeps its time when later batches change other leaves of its row, in views and in
// subscriptions.
func TestLeavesHaveTheirOwnTimes(t *testing.T) {
	s := New(Options{})
	defer s.Close()
	leafOf(t, s, 100, "e1", "state/oper-status", 1)
	for row, meta := range s.View().Rows(ParseQuery("s1", "/interfaces")) {
		if !meta.Uniform() || meta.LeafTime(len(row.List.Leaves)-1) != 100 {
			t.Errorf("one leaf, published at 100: %+v", meta)
		}
	}
	sub, err := s.Subscribe(SubscribeOptions{Queries: []Query{ParseQuery("s1", "/interfaces")}})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	leafOf(t, s, 200, "e1", "state/in-octets", 7)
	leafOf(t, s, 150, "e1", "state/mtu", 1500) // order of arrival is not order of time
	sub.Sync()
	want := map[string]int64{"state/oper-status": 100, "state/in-octets": 200, "state/mtu": 150}
	check := func(where string, row *Row, meta *Meta) {
		t.Helper()
		for i, l := range row.List.Leaves {
			if w := want[l.Name]; w != 0 && meta.LeafTime(i) != w {
				t.Errorf("%s: %s has the time %d; expected %d", where, l.Name, meta.LeafTime(i), w)
			}
		}
	}
	deltas, _ := sub.Pull(10)
	if len(deltas) != 1 {
		t.Fatalf("%d deltas", len(deltas))
	}
	check("subscription", deltas[0].Row, &deltas[0].Meta)
	for row, meta := range s.View().Rows(ParseQuery("s1", "/interfaces")) {
		check("view", row, &meta)
	}
}

// While the leaves of a row agree, and after a table replaces rows, there is one stamp for the row.
func TestTimesCostNothingWhileTheyAgree(t *testing.T) {
	s := New(Options{})
	defer s.Close()
	columns := func() int {
		n := 0
		for _, l := range s.lists {
			for _, g := range l.segs {
				n += len(g.times)
			}
		}
		return n
	}
	for at := range int64(3) {
		for i := range 50 {
			leafOf(t, s, at+1, fmt.Sprint("e", i), "state/a", 1)
			leafOf(t, s, at+1, fmt.Sprint("e", i), "state/b", 1)
			if at == 0 && columns() != 0 {
				t.Fatal("all leaves have the same time, and there is a column of times")
			}
		}
	}
	if err := s.Publish(Batch{Target: "s1", Time: time.Unix(0, 9), Tables: []Publication{{Replace: true,
		Table: &table.Table{List: ports, Keys: []table.Column{table.Strings("name", []string{"e"})},
			Values: []table.Column{table.Uint64s("state/a", []uint64{1})}}}}}); err != nil {
		t.Fatal(err)
	}
	if columns() != 0 {
		t.Error("a replaced list has columns of times")
	}
}

// In any order of publications, each leaf has the time of the batch that named it last.
func TestTimesRandomly(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	s := New(Options{})
	defer s.Close()
	want := map[string]int64{}
	for range 3000 {
		name, leaf := fmt.Sprint("e", r.IntN(40)), fmt.Sprint("state/l", r.IntN(6))
		at := r.Int64N(50) + 1
		leafOf(t, s, at, name, leaf, r.Uint64())
		want[name+"/"+leaf] = at
	}
	found := 0
	for row, meta := range s.View().Rows(ParseQuery("s1", "/interfaces")) {
		for i, v := range row.Values {
			if row.List.Leaves[i].KeyOf >= 0 || v.Absent() {
				continue
			}
			found++
			leaf := row.Entry.Keys[0].String() + "/" + row.List.Leaves[i].Name
			if meta.LeafTime(i) != want[leaf] {
				t.Errorf("%s has the time %d; expected %d", leaf, meta.LeafTime(i), want[leaf])
			}
		}
	}
	if found != len(want) {
		t.Errorf("%d leaves; expected %d", found, len(want))
	}
}
