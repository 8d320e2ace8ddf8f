// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/netsketch/netsketch/yang/table"
)

// flows makes a table of n flows on one device.
func flows(n int, packets uint64) *table.Table {
	device, flow, p := make([]string, n), make([]string, n), make([]uint64, n)
	for i := range flow {
		device[i], flow[i], p[i] = "s1", fmt.Sprintf("10.%d.%d.%d,10.0.0.1,tcp,%d,80", i>>16&255, i>>8&255, i&255, i),
			packets
	}
	return &table.Table{List: hhList,
		Keys:   []table.Column{table.Strings("node", device), table.Strings("flow", flow)},
		Values: []table.Column{table.Uint64s("state/packets", p)}}
}

// BenchmarkMillionRows publishes an epoch of a million flows in three cases: without a subscriber,
// with subscriptions to a hundred flows by key, and with a subscription to a switch's summary
// container, which contains no flow. The second case costs an index of a million rows and the
// leaves of a hundred rows.
func BenchmarkMillionRows(b *testing.B) {
	const n = 1_000_000
	tables := []*table.Table{flows(n, 1), flows(n, 2)}
	for _, tc := range []struct {
		name    string
		queries func() []Query
	}{
		{"no subscriber", func() []Query { return nil }},
		{"keyed=100", func() []Query {
			var qs []Query
			for i := range 100 {
				qs = append(qs, ParseQuery("", fmt.Sprintf("/univmon/heavy-hitters/"+
					"heavy-hitter[node=s1][flow=10.%d.%d.%d,10.0.0.1,tcp,%d,80]/state/packets",
					i*9999>>16&255, i*9999>>8&255, i*9999&255, i*9999)))
			}
			return qs
		}},
		{"elsewhere", func() []Query { return []Query{ParseQuery("", "/univmon/node-summaries")} }},
	} {
		b.Run(tc.name, func(b *testing.B) {
			s := New(Options{})
			defer s.Close()
			var sub *Subscription
			if qs := tc.queries(); qs != nil {
				var err error
				if sub, err = s.Subscribe(SubscribeOptions{Queries: qs}); err != nil {
					b.Fatal(err)
				}
				defer sub.Close()
			}
			i, leaves := 0, 0
			var publish time.Duration
			b.ReportAllocs()
			for b.Loop() {
				i++
				// A published table has its index. A new table shares the columns, but has no index yet.
				t := *tables[i%2]
				start := time.Now()
				if err := s.Publish(Batch{Time: t0.Add(time.Duration(i) * time.Second),
					Tables: []Publication{{Table: &t, Replace: true}}}); err != nil {
					b.Fatal(err)
				}
				publish += time.Since(start)
				if sub == nil {
					continue
				}
				sub.Sync()
				deltas, _ := sub.Pull(1000)
				for _, d := range deltas {
					leaves += len(d.Leaves)
				}
			}
			b.ReportMetric(float64(publish.Microseconds())/float64(i), "publish-µs")
			b.ReportMetric(float64(leaves)/float64(i), "leaves/epoch")
		})
	}
}

// BenchmarkChurn replaces 1,000 heavy hitters, of which a tenth is new each time. The n
// subscribers have the same queries.
func BenchmarkChurn(b *testing.B) {
	for _, subscribers := range []int{1, 50} {
		b.Run(fmt.Sprintf("subscribers=%d", subscribers), func(b *testing.B) {
			s := New(Options{})
			defer s.Close()
			var subs []*Subscription
			for range subscribers {
				sub, err := s.Subscribe(SubscribeOptions{Queries: []Query{ParseQuery("", "/univmon")}})
				if err != nil {
					b.Fatal(err)
				}
				defer sub.Close()
				subs = append(subs, sub)
			}
			var tables []*table.Table
			for i := range 10 {
				t := flows(1100, uint64(i))
				tables = append(tables, t.Slice(i*10, i*10+1000))
			}
			i, leaves := 0, 0
			for b.Loop() {
				i++
				if err := s.Publish(Batch{Time: t0.Add(time.Duration(i) * time.Second),
					Tables: []Publication{{Table: tables[i%10], Replace: true}}}); err != nil {
					b.Fatal(err)
				}
				for _, sub := range subs {
					sub.Sync()
					for more := true; more; {
						var deltas []Delta
						deltas, more = sub.Pull(512)
						for _, d := range deltas {
							leaves += len(d.Leaves)
						}
					}
				}
			}
			b.ReportMetric(float64(leaves)/b.Elapsed().Seconds(), "leaves/s")
		})
	}
}

// BenchmarkUpsertOneRow updates a list of 1,000 rows row by row, as the counters of a switch's
// ports arrive.
func BenchmarkUpsertOneRow(b *testing.B) {
	s := New(Options{})
	defer s.Close()
	all := flows(1000, 1)
	if err := s.Publish(Batch{Time: t0, Tables: []Publication{{Table: all, Replace: true}}}); err != nil {
		b.Fatal(err)
	}
	var rows []*table.Table
	for i := range 1000 {
		rows = append(rows, all.Slice(i, i+1))
	}
	i := 0
	for b.Loop() {
		i++
		if err := s.Publish(Batch{Time: t0.Add(time.Duration(i)),
			Tables: []Publication{{Table: rows[i*7%1000]}}}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(i)/b.Elapsed().Seconds(), "rows/s")
}

// TestMemoryStaysWhileRowsChange publishes many epochs whose rows change. One subscriber reads,
// one does not, and a tap has no consumer: memory must not grow.
func TestMemoryStaysWhileRowsChange(t *testing.T) {
	s := New(Options{})
	defer s.Close()
	reads, err := s.Subscribe(SubscribeOptions{Queries: []Query{ParseQuery("", "/univmon")}})
	if err != nil {
		t.Fatal(err)
	}
	defer reads.Close()
	never, err := s.Subscribe(SubscribeOptions{Queries: []Query{ParseQuery("",
		"/univmon/heavy-hitters/heavy-hitter/state")}})
	if err != nil {
		t.Fatal(err)
	}
	defer never.Close()
	tap := s.Tap(4)
	defer tap.Close()
	epoch := 0
	run := func(n int) uint64 {
		for range n {
			epoch++
			tab := flows(500+epoch*3, uint64(epoch))
			publish(t, s, epoch, replace(tab.Slice(epoch*3, epoch*3+500)))
			reads.Sync()
			never.Sync()
			for _, more := reads.Pull(512); more; _, more = reads.Pull(512) {
			}
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := run(20)
	if after := run(200); after > before+before/2+4<<20 {
		t.Errorf("220 epochs use %d KiB, 20 epochs %d KiB", after>>10, before>>10)
	}
	if n := len(never.feed.slots); n > 1100 {
		t.Errorf("%d slots for 500 rows and a subscriber that never read", n)
	}
}
