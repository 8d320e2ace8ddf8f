// SPDX-License-Identifier: Apache-2.0

package sketchbench

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/netsketch/netsketch/sketch/baseline"
	"github.com/netsketch/netsketch/sketch/countmin"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/fermat"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/sumax"
	"github.com/netsketch/netsketch/sketch/tower"
	"github.com/netsketch/netsketch/sketch/universal"
)

// best is the shortest of several runs of f.
func best(runs int, f func()) time.Duration {
	least := time.Duration(1 << 62)
	for range max(runs, 3) {
		start := time.Now()
		f()
		least = min(least, time.Since(start))
	}
	return least
}

// speedSuite measures insertions and decoding on one core.
func speedSuite() Suite {
	return Suite{Name: "speed", Title: "Insertions a second on one core, and decoding", Run: speed}
}

func speed(ctx context.Context, t *Trace, o Options) (rows []Row, err error) {
	put := func(name, variant string, memory int, f func()) {
		if ctx.Err() == nil {
			d := best(o.Runs, f)
			rows = append(rows, Row{name, variant, memory, "insertion", "speed", float64(t.Len()) / d.Seconds() / 1e6, "Mpackets/s", t.Name})
		}
	}
	each := func(insert func(key []byte)) func() {
		return func() {
			for i := range t.Len() {
				insert(t.Key(i))
			}
		}
	}
	for _, cu := range []bool{false, true} {
		name, towerName := "CM", "TowerCM"
		if cu {
			name, towerName = "CU", "TowerCU"
		}
		c, err := countmin.New[host](countmin.Config{Memory: 500_000, Conservative: cu})
		if err != nil {
			return nil, err
		}
		p, err := countmin.New[family.P4](countmin.Config{Memory: 500_000, Conservative: cu})
		if err != nil {
			return nil, err
		}
		put(name, "3 rows", c.Memory(), func() {
			for i := range t.Len() {
				c.Insert(t.Key(i))
			}
		})
		put(name, "3 rows, batch", c.Memory(), func() { _ = c.InsertBatch(t.keys, KeyBytes) })
		put(name, "3 rows, P4 hashes", p.Memory(), each(p.Insert))
		w, err := tower.New[host](tower.Config{Memory: 2_000_000, Conservative: cu})
		if err != nil {
			return nil, err
		}
		put(towerName, "5 rows", w.Memory(), func() {
			for i := range t.Len() {
				w.Insert(t.Key(i))
			}
		})
		put(towerName, "5 rows, batch", w.Memory(), func() { _ = w.InsertBatch(t.keys, KeyBytes) })
	}
	shared, err := tower.NewShared[host](tower.Config{Memory: 2_000_000})
	if err != nil {
		return nil, err
	}
	for _, writers := range []int{1, 2} {
		put("TowerCM", fmt.Sprintf("5 rows, lock-free, %d cores", writers), 2_000_000, func() {
			var wg sync.WaitGroup
			for n := range writers {
				wg.Go(func() {
					w := shared.Writer()
					for i := n * t.Len() / writers; i < (n+1)*t.Len()/writers; i++ {
						w.Insert(t.Key(i))
					}
					w.Flush()
				})
			}
			wg.Wait()
		})
	}
	f, err := fermat.New[host, fermat.Mersenne61](fermat.Config{Width: 833, KeyBytes: KeyBytes})
	if err != nil {
		return nil, err
	}
	put("Fermat", "3 rows of 833, 2^61-1", f.Memory(), func() { _ = f.InsertBatch(t.keys, KeyBytes) })
	f32, err := fermat.New[host, fermat.Prime32](fermat.Config{Width: 833, KeyBytes: KeyBytes})
	if err != nil {
		return nil, err
	}
	put("Fermat", "3 rows of 833, 31-bit fragments", f32.Memory(), func() { _ = f32.InsertBatch(t.keys, KeyBytes) })
	tf, err := towerFermat[fermat.Mersenne61]().build(500_000, heavyShare*float64(t.Len()), o.Seed)
	if err != nil {
		return nil, err
	}
	put("Tower+Fermat", "8 and 16 bits, 2500 buckets", 500_000, each(tf.insert))
	for _, memory := range []int{500_000, 1_500_000, 6_000_000} {
		s, err := sumax.New[host](sumax.Config{Memory: memory, Ranges: []uint32{1, 2, 3, 4, 5, 6, 7}, Intervals: true})
		if err != nil {
			return nil, err
		}
		put("SuMax", "3 rows, 8 ranges, intervals", memory, func() {
			for i := range t.Len() {
				s.Record(t.Key(i), sumax.Packet{Delay: uint32(i) & 7, At: t.at[i]})
			}
		})
	}
	u, err := universal.New(universal.Layout{Key: flow.FiveTuple, Levels: 14, Rows: 5, Columns: 2048, Ways: 2, Slots: 64})
	if err != nil {
		return nil, err
	}
	keys := make([]flow.Key, t.Len())
	for i := range keys {
		if keys[i], err = flow.ParseBinary(flow.FiveTuple, t.Key(i)); err != nil {
			return nil, err
		}
	}
	put("UnivMon", "14 levels, 5 rows", u.Layout().Bytes(), func() {
		for i := range keys {
			u.Update(&keys[i])
		}
	})
	e, err := baseline.NewElastic[host](500_000, KeyBytes, 0)
	if err != nil {
		return nil, err
	}
	put("Elastic", "heavy and light part", 500_000, each(func(k []byte) { _ = e.Insert(k) }))
	more, err := decoding(t, o)
	return append(rows, more...), err
}

func decoding(t *Trace, o Options) ([]Row, error) {
	s, err := fermat.New[host, fermat.Mersenne61](fermat.Config{Width: 13_000 / 3, KeyBytes: KeyBytes})
	if err != nil {
		return nil, err
	}
	var key [KeyBytes]byte
	for i := range 10_000 {
		binary.LittleEndian.PutUint64(key[:], uint64(i)*0x9e3779b97f4a7c15)
		if err := s.Add(key[:], int64(1+i%50)); err != nil {
			return nil, err
		}
	}
	complete := true
	d := best(10*o.Runs, func() {
		r, err := s.Decode()
		complete = complete && err == nil && r.Complete
	})
	if !complete {
		return nil, fmt.Errorf("10,000 flows do not decode from 13,000 buckets")
	}
	return []Row{{"Fermat", "10,000 flows, 1.3 buckets each", s.Memory(), "decoding", "time", d.Seconds() * 1e3, "ms", "generated keys"}}, nil
}
