// SPDX-License-Identifier: Apache-2.0

package sketches

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/netsketch/netsketch/lab/figures/baseline"
	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
	"github.com/netsketch/netsketch/sketch/countmin"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/fermat"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/sumax"
	"github.com/netsketch/netsketch/sketch/tower"
	"github.com/netsketch/netsketch/sketch/universal"
)

const lockFree = "5 rows, 2 MB, lock-free, "

func speedSuite() suite.Suite {
	return suite.New(suite.Suite{
		Name:    "speed",
		Measure: speed, Table: speedTable,
	})
}

// speed measures one job after the other.
func speed(ctx context.Context, t *trace.Trace, o suite.Options) (rows []suite.Row, err error) {
	rows, err = measureAll(ctx, t, o, counterJobs, fermatJobs, otherJobs)
	if err != nil {
		return nil, err
	}
	for _, f := range []func(*trace.Trace, suite.Options) ([]suite.Row, error){sharedSpeed, decodingSpeed} {
		more, err := f(t, o)
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

// measureAll measures jobs on a thread of its own. The rows of machine and peers come first.
func measureAll(ctx context.Context, t *trace.Trace, o suite.Options,
	makers ...func(*trace.Trace, suite.Options) ([]job, error)) (rows []suite.Row, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b, stop, err := newBench(t, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	for _, f := range makers {
		jobs, err := f(t, o)
		if err != nil {
			return nil, err
		}
		for _, j := range jobs {
			more, err := b.measure(ctx, j)
			if err != nil {
				return nil, err
			}
			rows = append(rows, more...)
		}
	}
	return append(b.programs(), rows...), nil
}

// insertions is a job of a speed line, on one thread. Peers are asked for structures of this many
// rows, and for none when it is 0.
func insertions(structure, variant string, memory, rows int, reset, f func()) job {
	return job{structure: structure, variant: variant, memory: memory, task: insertion, rows: rows, threads: 1,
		fresh: func() error { reset(); return nil }, pass: alone(f)}
}

func counterJobs(t *trace.Trace, _ suite.Options) (jobs []job, err error) {
	for _, cu := range []bool{false, true} {
		name, towerName := "CM", "TowerCM"
		if cu {
			name, towerName = "CU", "TowerCU"
		}
		for _, memory := range []int{500_000, 64_000_000} {
			c, err1 := countmin.New[host](countmin.Config{Memory: memory, Conservative: cu})
			p, err2 := countmin.New[family.P4](countmin.Config{Memory: memory, Conservative: cu})
			if err := errors.Join(err1, err2); err != nil {
				return nil, err
			}
			label := fmt.Sprintf("3 rows, %g MB, ", float64(memory)/1e6)
			jobs = append(jobs,
				insertions(name, label+"Insert", memory, 3, c.Reset, func() {
					for i := range t.Len() {
						c.Insert(t.Key(i))
					}
				}),
				insertions(name, label+"InsertBatch", memory, 3, c.Reset, func() {
					_ = c.InsertBatch(t.Keys(), t.KeyBytes())
				}))
			if memory == 500_000 {
				jobs = append(jobs, insertions(name, label+"Insert, P4 hashes", memory, 0, p.Reset, func() {
					for i := range t.Len() {
						p.Insert(t.Key(i))
					}
				}))
			}
		}
		for _, memory := range []int{2_000_000, 64_000_000} {
			w, err := tower.New[host](tower.Config{Memory: memory, Conservative: cu})
			if err != nil {
				return nil, err
			}
			label := fmt.Sprintf("5 rows, %g MB, ", float64(memory)/1e6)
			jobs = append(jobs,
				insertions(towerName, label+"Insert", memory, 5, w.Reset, func() {
					for i := range t.Len() {
						w.Insert(t.Key(i))
					}
				}),
				insertions(towerName, label+"InsertBatch", memory, 5, w.Reset, func() {
					_ = w.InsertBatch(t.Keys(), t.KeyBytes())
				}))
		}
	}
	return jobs, nil
}

func fermatJobs(t *trace.Trace, o suite.Options) (jobs []job, err error) {
	f, err1 := fermat.New[host, fermat.Mersenne61](fermat.Config{Width: 833, KeyBytes: t.KeyBytes()})
	f32, err2 := fermat.New[host, fermat.Prime32](fermat.Config{Width: 833, KeyBytes: t.KeyBytes()})
	large, err3 := fermat.New[host, fermat.Mersenne61](fermat.Config{Memory: 64_000_000, KeyBytes: t.KeyBytes()})
	sources := t.Sources()
	s, err4 := fermat.New[host, fermat.Mersenne61](fermat.Config{Width: 833, KeyBytes: sources.KeyBytes()})
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	var tf *structure
	const both = "8 and 16 bits, 2500 buckets, "
	one := insertions("Tower+Fermat", both+"Insert", 500_000, 2, nil, func() {
		for i := range t.Len() {
			tf.insert(t.Key(i))
		}
	})
	one.fresh = func() (err error) {
		tf, err = towerFermat[fermat.Mersenne61]().build(t, 500_000, papers.heavy*float64(t.Len()), o.Seed)
		return err
	}
	batches := insertions("Tower+Fermat", both+"InsertBatch", 500_000, 2, nil, func() { tf.insertBatch(t.Keys()) })
	batches.fresh = one.fresh
	return []job{
		insertions("Fermat", "3 rows of 833, 2^61-1, Insert", f.Memory(), 3, f.Reset, func() {
			for i := range t.Len() {
				_ = f.Insert(t.Key(i))
			}
		}),
		insertions("Fermat", "3 rows of 833, 2^61-1, InsertBatch", f.Memory(), 3, f.Reset, func() {
			_ = f.InsertBatch(t.Keys(), t.KeyBytes())
		}),
		insertions("Fermat", "3 rows of 833, sources, 2^61-1, Insert", s.Memory(), 3, s.Reset, func() {
			for i := range sources.Len() {
				_ = s.Insert(sources.Key(i))
			}
		}),
		insertions("Fermat", "3 rows of 833, sources, 2^61-1, InsertBatch", s.Memory(), 3, s.Reset, func() {
			_ = s.InsertBatch(sources.Keys(), sources.KeyBytes())
		}),
		insertions("Fermat", "3 rows of 833, 31-bit fragments, Insert", f32.Memory(), 3, f32.Reset, func() {
			for i := range t.Len() {
				_ = f32.Insert(t.Key(i))
			}
		}),
		insertions("Fermat", "3 rows of 833, 31-bit fragments, InsertBatch", f32.Memory(), 3, f32.Reset, func() {
			_ = f32.InsertBatch(t.Keys(), t.KeyBytes())
		}),
		insertions("Fermat", "3 rows, 64 MB, 2^61-1, Insert", large.Memory(), 3, large.Reset, func() {
			for i := range t.Len() {
				_ = large.Insert(t.Key(i))
			}
		}),
		insertions("Fermat", "3 rows, 64 MB, 2^61-1, InsertBatch", large.Memory(), 3, large.Reset, func() {
			_ = large.InsertBatch(t.Keys(), t.KeyBytes())
		}),
		one,
		batches,
	}, nil
}

func otherJobs(t *trace.Trace, _ suite.Options) (jobs []job, err error) {
	for _, memory := range []int{500_000, 1_500_000, 6_000_000} {
		s, err := sumax.New[host](sumax.Config{Memory: memory, Ranges: []uint32{1, 2, 3, 4, 5, 6, 7}, Intervals: true})
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, insertions("SuMax", fmt.Sprintf("%g MB, 3 rows, 8 ranges, intervals", float64(memory)/1e6),
			memory, 3, s.Reset, func() {
				for i := range t.Len() {
					s.Record(t.Key(i), sumax.Packet{Delay: uint32(i) & 7, At: t.At(i)})
				}
			}))
	}
	u, err := universal.New(universal.Layout{Key: flow.FiveTuple, Levels: 14, Rows: 5, Columns: 2048, Ways: 2, Slots: 64})
	if err != nil {
		return nil, err
	}
	keys := make([]flow.Key, t.Len())
	for i := range keys {
		keys[i] = t.Parse(t.Key(i))
	}
	var e *baseline.Elastic[host]
	elastic := insertions("Elastic", "heavy and light part", 500_000, 1, nil, func() {
		for i := range t.Len() {
			_ = e.Insert(t.Key(i))
		}
	})
	elastic.fresh = func() (err error) {
		e, err = baseline.NewElastic[host](500_000, t.KeyBytes(), 0)
		return err
	}
	return append(jobs, insertions("UnivMon", "14 levels, 5 rows", u.Layout().Bytes(), 5, u.Reset, func() {
		for i := range keys {
			u.Update(&keys[i])
		}
	}), elastic), nil
}

// sharedPass inserts all packets with several writers, each a part of the trace, and returns the
// seconds on the clock and the processor time of the slowest writer.
func sharedPass(t *trace.Trace, shared *tower.Shared[host], writers int) (wall float64, slowest time.Duration) {
	used := make([]time.Duration, writers)
	all := make([]*tower.Writer[host], writers)
	for i := range all {
		all[i] = shared.Writer()
	}
	start := time.Now()
	work := func(n int) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		w := all[n]
		cpu := suite.ThreadTime()
		for i := n * t.Len() / writers; i < (n+1)*t.Len()/writers; i++ {
			w.Insert(t.Key(i))
		}
		w.Flush()
		used[n] = suite.ThreadTime() - cpu
	}
	var wg sync.WaitGroup
	for n := 1; n < writers; n++ {
		wg.Go(func() { work(n) })
	}
	work(0)
	wg.Wait()
	return time.Since(start).Seconds(), slices.Max(used)
}

// sharedSpeed measures the lock-free tower with one writer and with two, in pairs.
func sharedSpeed(t *trace.Trace, o suite.Options) (rows []suite.Row, err error) {
	shared, err := tower.NewShared[host](tower.Config{Memory: 2_000_000})
	if err != nil {
		return nil, err
	}
	pass := func(writers int) (wall, processor float64) {
		wall, slowest := sharedPass(t, shared, writers)
		shared.Reset()
		if processor = slowest.Seconds(); processor == 0 { // the system has no clock for processor time
			processor = wall
		}
		return wall, processor
	}
	pass(1)
	pass(2)
	var wall, processor [2][]float64
	var ratios, alone []float64
	for range max(o.Runs, 3) {
		one, oneCPU := pass(1)
		two, twoCPU := pass(2)
		wall[0], wall[1], ratios = append(wall[0], one), append(wall[1], two), append(ratios, one/two)
		processor[0], processor[1], alone = append(processor[0], oneCPU), append(processor[1], twoCPU),
			append(alone, oneCPU/twoCPU)
	}
	n := float64(t.Len()) / 1e6
	put := func(variant, metric string, v float64, unit string) {
		rows = append(rows, row("TowerCM", lockFree+variant, 2_000_000, "insertion", metric, v, unit, t.Name))
	}
	for i, cores := range []string{"1 core", "2 cores"} {
		m := median(wall[i])
		put(cores, "speed", n/m, "Mpackets/s")
		put(cores, "speed by processor time", n/median(processor[i]), "Mpackets/s")
		put(cores, "spread", spread(wall[i]), "ratio")
	}
	put("2 cores", "times one core", median(ratios), "times")
	put("2 cores", "times one core by processor time", median(alone), "times")
	return rows, nil
}

func decodingSpeed(_ *trace.Trace, o suite.Options) ([]suite.Row, error) {
	const flows = 10_000
	s, err := fermat.New[host, fermat.Mersenne61](fermat.Config{Width: 13 * flows / 10 / 3, KeyBytes: flow.FiveTupleV4})
	if err != nil {
		return nil, err
	}
	var key [flow.FiveTupleV4]byte
	for i := range flows {
		binary.LittleEndian.PutUint64(key[:], uint64(i)*0x9e3779b97f4a7c15)
		if err := s.Add(key[:], int64(1+i%50)); err != nil {
			return nil, err
		}
	}
	complete := true
	var wall, processor []float64
	for i := range 10*max(o.Runs, 3) + 1 {
		start, used := time.Now(), alone(func() {
			r, err := s.Decode()
			complete = complete && err == nil && r.Complete
		})()
		if i == 0 { // warms up
			continue
		}
		wall, processor = append(wall, time.Since(start).Seconds()), append(processor, used.Seconds())
	}
	if suite.ThreadTime() == 0 { // the system has no clock for processor time
		processor = wall
	}
	if !complete {
		return nil, fmt.Errorf("%d flows do not decode from 1.3 buckets each", flows)
	}
	const variant = "10,000 flows, 1.3 buckets each"
	return []suite.Row{
		row("Fermat", variant, s.Memory(), "decoding", "time", median(wall)*1e3, "ms", "generated keys"),
		row("Fermat", variant, s.Memory(), "decoding", "time by processor time", median(processor)*1e3, "ms",
			"generated keys"),
		row("Fermat", variant, s.Memory(), "decoding", "spread", spread(wall), "ratio", "generated keys"),
	}, nil
}

// machine names the processor, the compiler and the kernel's setting of huge pages.
func machine() string {
	model := runtime.GOARCH
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	pages := ""
	if b, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled"); err == nil {
		_, after, _ := strings.Cut(string(b), "[")
		if setting, _, found := strings.Cut(after, "]"); found {
			pages = ", huge pages: " + setting
		}
	}
	return model + ", " + runtime.Version() + pages
}

// speedTable has a line for each structure, with the ratios to peers.
func speedTable(rows []suite.Row) string {
	var b strings.Builder
	v := suite.Values(rows)
	var peers []string
	for _, r := range rows {
		switch r.Task {
		case "machine":
			fmt.Fprintf(&b, "Machine: %s, %g processors.\n\n", r.Variant, r.Value)
		case "peer":
			peers = append(peers, r.Structure)
			fmt.Fprintf(&b, "Peer %s: %s.\n\n", r.Structure, r.Variant)
		}
	}
	b.WriteString("| structure | variant | million packets/s of processor time |")
	for _, p := range peers {
		fmt.Fprintf(&b, " ratio to %s |", p)
	}
	b.WriteString("\n" + strings.Repeat("|---", 3+len(peers)) + "|\n")
	for _, r := range rows {
		if r.Metric != "speed" {
			continue
		}
		get := func(metric string) float64 { return v.Variant(r.Structure, r.Variant, insertion, metric) }
		fmt.Fprintf(&b, "| %s | %s | %s |", r.Structure, r.Variant, suite.Short(get("speed by processor time")))
		for _, p := range peers {
			if ratio := get("ratio to " + p); ratio > 0 {
				fmt.Fprintf(&b, " %.2f |", ratio)
			} else {
				b.WriteString(" |")
			}
		}
		b.WriteString("\n")
	}
	b.WriteString("\n| structure | variant | ms of processor time | spread |\n|---|---|---|---|\n")
	for _, r := range rows {
		if r.Metric == "time" {
			fmt.Fprintf(&b, "| %s | %s | %s | %.0f %% |\n", r.Structure, r.Variant,
				suite.Short(v.Variant(r.Structure, r.Variant, "decoding", "time by processor time")),
				100*v.Variant(r.Structure, r.Variant, "decoding", "spread"))
		}
	}
	fmt.Fprintf(&b, "\nLock-free, two cores are %.2f times one (the goal is 1.9), by the processor time of the "+
		"slower writer %.2f times.\n",
		v.Variant("TowerCM", lockFree+"2 cores", "insertion", "times one core"),
		v.Variant("TowerCM", lockFree+"2 cores", "insertion", "times one core by processor time"))
	return b.String()
}
