// SPDX-License-Identifier: Apache-2.0

package sketches

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/netsketch/netsketch/lab/figures/baseline"
	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
	"github.com/netsketch/netsketch/sketch/countmin"
	"github.com/netsketch/netsketch/sketch/tower"
)

const (
	figure6Memory = 2 << 20
	figure6Rows   = "5 rows, 2 MB"
	byThreads     = "insertion by threads"
	byProcessor   = "speed by processor time"
	lockFreeTower = "TowerCM lock-free"
	lockedTower   = "TowerCM locked"
)

func sketchintFigure6() suite.Suite {
	return suite.New(suite.Suite{
		Name: "sketchint-6",
		Measure: func(ctx context.Context, t *trace.Trace, o suite.Options) ([]suite.Row, error) {
			var errors6 []suite.Row
			rows, err := measureAll(ctx, t, o, figure6Jobs,
				func(t *trace.Trace, _ suite.Options) (jobs []job, err error) {
					jobs, errors6, err = figure6Threads(t)
					return jobs, err
				})
			return append(rows, errors6...), err
		},
	})
}

// figure6Jobs are the five structures on one core. The packets of a batch and the flows of a query
// are in one call each.
func figure6Jobs(t *trace.Trace, _ suite.Options) (jobs []job, err error) {
	var keys []byte // keys of every flow, once
	for _, f := range t.Flows() {
		keys = append(keys, f.Key...)
	}
	add := func(structure, task string, fresh, pass func()) {
		jobs = append(jobs, job{structure: structure, variant: figure6Rows, memory: figure6Memory, task: task, rows: 5,
			threads: 1, fresh: func() error { fresh(); return nil }, pass: alone(pass)})
	}
	var sum uint32    // keeps the compiler from removing the queries
	full := func() {} // a query finds the packets of the passes before
	for _, cu := range []bool{false, true} {
		name, towerName := "CM", "TowerCM"
		if cu {
			name, towerName = "CU", "TowerCU"
		}
		c, err1 := countmin.New[host](countmin.Config{Memory: figure6Memory, Rows: 5, Conservative: cu})
		w, err2 := tower.New[host](tower.Config{Memory: figure6Memory, Conservative: cu})
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		add(name, insertion, c.Reset, func() {
			for i := range t.Len() {
				c.Insert(t.Key(i))
			}
		})
		add(name, batch, c.Reset, func() { _ = c.InsertBatch(t.Keys(), t.KeyBytes()) })
		add(name, query, full, func() {
			for k := range slices.Chunk(keys, t.KeyBytes()) {
				sum += c.Query(k)
			}
		})
		add(towerName, insertion, w.Reset, func() {
			for i := range t.Len() {
				w.Insert(t.Key(i))
			}
		})
		add(towerName, batch, w.Reset, func() { _ = w.InsertBatch(t.Keys(), t.KeyBytes()) })
		add(towerName, query, full, func() {
			for k := range slices.Chunk(keys, t.KeyBytes()) {
				sum += w.Query(k)
			}
		})
	}
	var e *baseline.Elastic[host]
	add("Elastic", insertion, full, func() {
		for i := range t.Len() {
			_ = e.Insert(t.Key(i))
		}
	})
	jobs[len(jobs)-1].fresh = func() (err error) {
		e, err = baseline.NewElastic[host](figure6Memory, t.KeyBytes(), 0)
		return err
	}
	add("Elastic", query, full, func() {
		for k := range slices.Chunk(keys, t.KeyBytes()) {
			sum += e.Query(k)
		}
	})
	return jobs, nil
}

// figure6Threads are the lock-free Tower by threads and its errors, and the Tower with locks, which
// only peers have.
func figure6Threads(t *trace.Trace) (jobs []job, rows []suite.Row, err error) {
	shared, err := tower.NewShared[host](tower.Config{Memory: figure6Memory})
	if err != nil {
		return nil, nil, err
	}
	for _, n := range []int{1, 2} {
		variant := fmt.Sprintf("threads %d", n)
		sharedPass(t, shared, n)
		s, sum := shared.Seal(), 0.0
		for _, f := range t.Flows() {
			sum += math.Abs(float64(s.Query([]byte(f.Key)))-float64(f.Packets)) / float64(f.Packets)
		}
		rows = append(rows, row(lockFreeTower, variant, figure6Memory, "flow size by threads", "ARE",
			sum/float64(len(t.Flows())), "ratio", t.Name))
		j := job{structure: lockFreeTower, variant: variant, memory: figure6Memory, task: byThreads, rows: 5, threads: n,
			fresh: func() error { shared.Reset(); return nil },
			pass: func() time.Duration {
				_, slowest := sharedPass(t, shared, n)
				return slowest
			}}
		locked := j
		locked.structure, locked.pass = lockedTower, nil
		jobs = append(jobs, j, locked)
	}
	return jobs, rows, nil
}
