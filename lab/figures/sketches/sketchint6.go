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
	get := func(v suite.Values, structure, task string) float64 {
		return v.Variant(structure, figure6Rows, task, byProcessor)
	}
	threads := func(v suite.Values, structure string, n int) float64 {
		return v.Variant(structure, fmt.Sprintf("threads %d", n), byThreads, byProcessor)
	}
	are := func(v suite.Values, n int) float64 {
		return v.Variant(lockFreeTower, fmt.Sprintf("threads %d", n), "flow size by threads", "ARE")
	}
	three := func(v suite.Values, task string) string {
		return fmt.Sprintf("TowerCM %s, CM %s, CU %s; the authors' programs here: %s, %s, %s",
			suite.Short(get(v, "TowerCM", task)), suite.Short(get(v, "CM", task)), suite.Short(get(v, "CU", task)),
			suite.Short(get(v, "TowerCM of authors", task)), suite.Short(get(v, "CM of authors", task)),
			suite.Short(get(v, "CU of authors", task)))
	}
	return suite.Suite{
		Name: "sketchint-6", Title: "SketchINT, Figure 6: speed on one and several cores",
		Setup: "The paper: 2 MB, 5 hash functions for Tower, CM and CU, up to 40 threads. Here: the same memory and " +
			"rows; 1 and 2 threads. All speeds are in millions a second, medians of `--runs` passes by the processor " +
			"time of the slowest thread. Every pass has an empty structure and follows one to warm up. With " +
			"`--peer authors=COMMAND`, one pass of that program follows each of ours on the same processor (with two " +
			"threads, on the same two), reading the same keys. The ratio is ours to theirs, the median of the pairs.\n\n" +
			"What differs: the authors' test cuts keys to 4 bytes and copies each into a string. Here both sides have " +
			"13-byte keys one after the other in memory. The authors' program calculates one MurmurHash3 a row, ours one " +
			"hash a packet. The authors' ElasticSketch compares keys of 4 bytes with AVX2 instructions. The authors' program " +
			"divides packets among threads by hash, ours in consecutive parts. The authors' lock-free Tower may lose updates " +
			"when threads meet. Ours gives each writer its own counters and adds them up, so it loses none. " +
			"A batch is all packets in one call; the authors have none, so the ratio is to the single insertion. " +
			"Elastic has one heavy and one light part, no rows.",
		Measure: func(ctx context.Context, t *trace.Trace, o suite.Options) ([]suite.Row, error) {
			var errors6 []suite.Row
			rows, err := measureAll(ctx, t, o, figure6Jobs,
				func(t *trace.Trace, _ suite.Options) (jobs []job, err error) {
					jobs, errors6, err = figure6Threads(t)
					return jobs, err
				})
			return append(rows, errors6...), err
		},
		Plots: []suite.Plot{
			{File: "sketchint-6-one-core", Title: "Speed on one core (million/s)", Metric: byProcessor, X: "task",
				Tasks: []string{insertion, batch, query}},
			{File: "sketchint-6-threads", Title: "Insertion speed by threads (million/s)", Task: byThreads,
				Metric: byProcessor, X: "threads"},
			{File: "sketchint-6-are", Title: "ARE by threads", Task: "flow size by threads", Metric: "ARE", X: "threads"},
		},
		Claims: []suite.Claim{
			{
				Figure: "6(a)", Paper: "TowerCM inserts 22.6 Mpps, CM 27.1, CU 21.7",
				Ours: func(v suite.Values) string { return three(v, insertion) },
				Holds: func(v suite.Values) bool {
					return get(v, "TowerCM", insertion) >= 22.6 && get(v, "CM", insertion) >= 27.1 &&
						get(v, "CU", insertion) >= 21.7
				},
			},
			{
				Figure: "6(b)", Paper: "Tower's speed is comparable to CM's and CU's (in (a), 0.83 of CM's)",
				Ours: func(v suite.Values) string {
					return fmt.Sprintf("queries: %s; %s of CM's", three(v, query),
						suite.Short(get(v, "TowerCM", query)/get(v, "CM", query)))
				},
				Holds: func(v suite.Values) bool { // within a factor of 1.5
					return 1.5*get(v, "TowerCM", query) >= max(get(v, "CM", query), get(v, "CU", query))
				},
			},
			{
				Figure: "6(a)", Paper: "ElasticSketch is the fastest of the five",
				Ours: func(v suite.Values) string {
					return fmt.Sprintf("Elastic %s, CM %s; the authors' %s", suite.Short(get(v, "Elastic", insertion)),
						suite.Short(get(v, "CM", insertion)), suite.Short(get(v, "Elastic of authors", insertion)))
				},
				Holds: func(v suite.Values) bool {
					return get(v, "Elastic", insertion) >= get(v, "CM", insertion)
				},
				Why: "Elastic is a baseline here: it compares whole 13-byte keys one after the other, without vector " +
					"instructions",
			},
			{
				Figure: "6(c)", Paper: "the lock-free Tower reaches 1.96 times the lock version, 274 Mpps, at 30 threads",
				Ours: func(v suite.Values) string {
					return fmt.Sprintf("at 2 threads %s Mpps; the authors' lock version %s, their lock-free version %s",
						suite.Short(threads(v, lockFreeTower, 2)), suite.Short(threads(v, lockedTower+" of authors", 2)),
						suite.Short(threads(v, lockFreeTower+" of authors", 2)))
				},
				Holds: func(v suite.Values) bool {
					x := threads(v, lockFreeTower, 2)
					return x >= 274 && x >= 1.96*threads(v, lockedTower+" of authors", 2)
				},
				Why: "this machine has 2 processors and 2 threads, not 30; they seldom wait for each other's locks, and " +
					"waiting is not processor time",
			},
			{
				Figure: "6(d)", Paper: "the loss of accuracy by concurrency is negligible",
				Ours: func(v suite.Values) string {
					return fmt.Sprintf("ARE %s with 1 thread, %s with 2", suite.Short(are(v, 1)), suite.Short(are(v, 2)))
				},
				Holds: func(v suite.Values) bool { return math.Abs(are(v, 2)-are(v, 1)) <= 0.01*are(v, 1) },
			},
		},
	}
}

// figure6Jobs are the five structures on one core. The packets of a batch and the flows of a query
// are in one call each.
func figure6Jobs(t *trace.Trace, _ suite.Options) (jobs []job, err error) {
	var keys []byte // of every flow once
	for _, f := range t.Flows() {
		keys = append(keys, f.Key...)
	}
	add := func(structure, task string, fresh, pass func()) {
		jobs = append(jobs, job{structure: structure, variant: figure6Rows, memory: figure6Memory, task: task, rows: 5,
			threads: 1, fresh: func() error { fresh(); return nil }, pass: alone(pass)})
	}
	var sum uint32    // keeps the queries from being left out
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
