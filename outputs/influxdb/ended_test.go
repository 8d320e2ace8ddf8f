// SPDX-License-Identifier: Apache-2.0

package influxdb

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/internal/test/influxdbtest"
	"github.com/netsketch/netsketch/outputs"
	"github.com/netsketch/netsketch/yang/table"
)

// rowsOf returns a table with a row for each name.
func rowsOf(names ...string) *table.Table {
	return &table.Table{List: "/m:a/rows/row", Keys: []table.Column{table.Strings("k", names)},
		Values: []table.Column{table.Uint64s("state/n", make([]uint64, len(names)))}}
}

// TestEnds: if a batch removes a row from the store, one point with ended=true follows the row's
// last point. Rows that stay get none. A collector ends the rows that it wrote itself, even if
// another collector removes them.
func TestEnds(t *testing.T) {
	type batch struct {
		second          int
		member          string
		table           *table.Table
		replace, delete bool
		want            string
	}
	for _, tt := range []struct {
		name    string
		batches []batch
	}{
		{"rows that a table replaces", []batch{
			{1, "", rowsOf("a", "b", "c"), true, false, "a 1, b 1, c 1"},
			{2, "", rowsOf("b"), true, false, "b 2, a ends 2, c ends 2"},
			{3, "", rowsOf("a"), true, false, "a 3, b ends 3"},
			{4, "", rowsOf(), true, false, "a ends 4"},
			{5, "", rowsOf(), true, false, ""},
		}},
		{"rows that are added stay", []batch{
			{1, "", rowsOf("a"), false, false, "a 1"},
			{2, "", rowsOf("b"), false, false, "b 2"},
			{3, "", rowsOf("b", "x"), false, true, "b ends 3"},
			{4, "", rowsOf("c"), true, false, "c 4, a ends 4"},
		}},
		{"an epoch that is published again", []batch{
			{2, "", rowsOf("a", "b"), true, false, "a 2, b 2"},
			{1, "", rowsOf("b"), true, false, "b 1, a ends 2"},
			{2, "", rowsOf(), true, false, "b ends 2"},
		}},
		{"another collector takes over", []batch{
			{1, "", rowsOf("a", "b", "c"), true, false, "a 1, b 1, c 1"},
			{2, "other", rowsOf("a", "x"), true, false, "b ends 2, c ends 2"},
			{3, "other", rowsOf("x"), true, false, ""},
			{4, "", rowsOf("x"), true, false, "x 4"},
			{5, "other", rowsOf("x"), false, false, ""},
			{6, "", rowsOf(), true, false, ""},
		}},
		{"a row without values", []batch{
			{1, "", rowsOf("a"), true, false, "a 1"},
			{2, "", &table.Table{List: "/m:a/rows/row", Keys: []table.Column{table.Strings("k", []string{"a"})}}, true,
				false, "a ends 2"},
		}},
	} {
		e, chunks := newEncoder(100, 100)
		for i, b := range tt.batches {
			at := epoch.Add(time.Duration(b.second) * time.Second)
			e.publish(&store.Batch{Target: "t", Time: at, Member: b.member},
				&store.Publication{Table: b.table, Replace: b.replace, Delete: b.delete})
			e.flush()
			if got := brief(chunks); got != b.want {
				t.Errorf("%s: batch %d: %q, want %q", tt.name, i, got, b.want)
			}
		}
	}
}

// brief returns the points of rowsOf, and forgets the chunks.
func brief(chunks *[]chunk) string {
	var out []string
	for _, c := range *chunks {
		for line := range strings.Lines(c.lines) {
			var name string
			var at int64
			value := "n=0i,ended=false"
			if strings.Contains(line, "ended=true") {
				value = "ended=true"
			}
			if _, err := fmt.Sscanf(strings.ReplaceAll(line, ",target=t", " "), "a/row,k=%s "+value+" %d", &name,
				&at); err != nil {
				return fmt.Sprintf("%s: %v", line, err)
			}
			out = append(out, fmt.Sprintf("%s%s %d", name, map[bool]string{true: " ends"}[value == "ended=true"],
				(at-epoch.UnixNano())/int64(time.Second)))
		}
	}
	*chunks = nil
	return strings.Join(out, ", ")
}

// TestEndsAtStop: when the output stops, all rows of its collector end, a moment after their last
// point, whatever the time of the stop is. Rows of other targets and lists are independent.
func TestEndsAtStop(t *testing.T) {
	d := newDatabase(t)
	s := newStore(t)
	o := run(t, s, spoolConfig(t, d.URL), nil)
	for i, target := range []string{"t", "t", "u"} {
		if err := s.Publish(store.Batch{Target: target, Time: epoch.Add(time.Duration(i) * time.Second),
			Tables: []store.Publication{{Table: rowsOf("a"), Replace: true}}}); err != nil {
			t.Fatal(err)
		}
	}
	o.stop()
	got := d.lines()
	slices.Sort(got)
	want := []string{
		"a/row,k=a,target=t ended=true 1795176001001000000",
		"a/row,k=a,target=t n=0i,ended=false 1795176000000000000",
		"a/row,k=a,target=t n=0i,ended=false 1795176001000000000",
		"a/row,k=a,target=u ended=true 1795176002001000000",
		"a/row,k=a,target=u n=0i,ended=false 1795176002000000000",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestLiveRowsAreBounded: rows that nothing removes are remembered up to max-series; rows above the
// bound are dropped and counted, so that each row that is written can be ended.
func TestLiveRowsAreBounded(t *testing.T) {
	e, chunks := newEncoder(1000, 3)
	e.encode("t", epoch, rowsOf("a", "b"))
	later := epoch.Add(2 * time.Hour) // the series of the first rows no longer count
	e.encode("t", later, rowsOf("c", "d", "a"))
	e.publish(&store.Batch{Target: "t", Time: later}, &store.Publication{Table: rowsOf(), Replace: true})
	e.flush()
	if got, want := brief(chunks), "a 0, b 0, c 7200, a 7200, a ends 7200, b ends 7200, c ends 7200"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if n := e.overSeries.Load(); n != 1 {
		t.Errorf("%d rows dropped, want 1", n)
	}
}

// TestRealEnds: the documentation's query for the current rows returns exactly the rows that exist,
// from a real InfluxDB.
func TestRealEnds(t *testing.T) {
	db := influxdbtest.Start(t, influxdbtest.Options{})
	s := newStore(t)
	o := run(t, s, realConfig(t, db), nil)
	current := func() (names []string) {
		for _, series := range db.Query(`SELECT * FROM (SELECT last(ended) AS ended, n FROM "a/row" GROUP BY *) ` +
			`WHERE ended = false`) {
			for _, k := range series.Column("k") {
				names = append(names, fmt.Sprint(k))
			}
		}
		slices.Sort(names)
		return names
	}
	publish(t, s, epoch, rowsOf("a", "b", "c"))
	publish(t, s, epoch.Add(time.Second), rowsOf("b"))
	publish(t, s, epoch.Add(2*time.Second), rowsOf("b", "c"))
	o.until("all points are sent", func(s outputs.State) bool { return s.Sent == 3+3+2 })
	if got := current(); !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("current rows %q, want b and c", got)
	}
	if n := db.Count("a/row", "n"); n != 6 {
		t.Errorf("%d values, want 6", n)
	}
	o.stop()
	if got := current(); len(got) > 0 {
		t.Errorf("current rows %q after the stop", got)
	}
}
