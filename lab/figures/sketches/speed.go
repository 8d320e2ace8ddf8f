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

	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
	"github.com/netsketch/netsketch/sketch/baseline"
	"github.com/netsketch/netsketch/sketch/countmin"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/fermat"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/sumax"
	"github.com/netsketch/netsketch/sketch/tower"
	"github.com/netsketch/netsketch/sketch/universal"
)

// job is one line of the speed table.
type job struct {
	structure, variant string
	memory             int
	insert             func() // inserts the whole trace
}

// authors are the authors' own programs on T1, in million packets a second: one thread, g++ 12
// -O2, on a 2-core machine; the higher of two readings. Of decoding, the lower in milliseconds.
var authors = map[[2]string]float64{
	{"CM", small500 + "Insert"}: 48, {"CM", small500 + "InsertBatch"}: 48, {"CU", small500 + "Insert"}: 37,
	{"CU", small500 + "InsertBatch"}:  37,
	{"TowerCM", small2000 + "Insert"}: 31.5, {"TowerCM", small2000 + "InsertBatch"}: 31.5,
	{"TowerCU", small2000 + "Insert"}: 23.8, {"TowerCU", small2000 + "InsertBatch"}: 23.8,
	{"Fermat", "3 rows of 833, 2^61-1, Insert"}: 30, {"Fermat", "3 rows of 833, 2^61-1, InsertBatch"}: 30,
	{"Fermat", "3 rows of 833, 31-bit fragments, InsertBatch"}: 30,
	{"Tower+Fermat", "8 and 16 bits, 2500 buckets"}:            18,
	{"SuMax", "0.5 MB, 3 rows, 8 ranges, intervals"}:           5, {"SuMax", "1.5 MB, 3 rows, 8 ranges, intervals"}: 4.6,
	{"SuMax", "6 MB, 3 rows, 8 ranges, intervals"}: 2.2,
	{"UnivMon", "14 levels, 5 rows"}:               2.2,
	{"Elastic", "heavy and light part"}:            108,
	{"Fermat", "10,000 flows, 1.3 buckets each"}:   7,
}

const (
	small500  = "3 rows, 0.5 MB, "
	small2000 = "5 rows, 2 MB, "
	lockFree  = "5 rows, 2 MB, lock-free, "
)

func speedSuite() suite.Suite {
	return suite.Suite{
		Name: "speed", Title: "Insertions a second on one core, and decoding",
		Setup: "Medians of `--runs` passes over the trace after a warm-up pass, on one thread that is locked to its " +
			"goroutine. The spread is the slowest pass minus the fastest, divided by the median: " +
			"it shows the effect of other work on the machine. The speed by processor time is the median for this " +
			"thread alone. It is the same on an idle machine, decides on a busy one, and the ratios use it. " +
			"The authors' figures are of their own C++ programs on the same kind of trace and machine; " +
			"ElasticSketch's uses AVX2. Memory larger than the caches shows the gain of InsertBatch. The " +
			"two-core line is the median of the ratios of runs in pairs.",
		Measure: speed, Table: speedTable,
	}
}

// speed measures one job after the other.
func speed(ctx context.Context, t *trace.Trace, o suite.Options) (rows []suite.Row, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	rows = append(rows, row("machine", machine(), 0, "machine", "processors", float64(runtime.NumCPU()), "processors",
		t.Name))
	var all []job
	for _, f := range []func(*trace.Trace, suite.Options) ([]job, error){counterJobs, fermatJobs, otherJobs} {
		jobs, err := f(t, o)
		if err != nil {
			return nil, err
		}
		all = append(all, jobs...)
	}
	for _, j := range all {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s := measure(o.Runs, j.insert)
		n := float64(t.Len()) / 1e6
		rows = append(rows,
			row(j.structure, j.variant, j.memory, "insertion", "speed", n/s.median, "Mpackets/s", t.Name),
			row(j.structure, j.variant, j.memory, "insertion", "speed by processor time", n/s.processor, "Mpackets/s",
				t.Name),
			row(j.structure, j.variant, j.memory, "insertion", "spread", s.spread, "ratio", t.Name))
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

// timing is what several passes took, in seconds.
type timing struct{ median, spread, processor float64 }

// measure times runs passes, at least 3, after one to warm up.
func measure(runs int, f func()) (s timing) {
	f()
	runtime.GC()
	var wall, processor []float64
	for range max(runs, 3) {
		cpu, start := threadTime(), time.Now()
		f()
		wall, processor = append(wall, time.Since(start).Seconds()), append(processor, (threadTime()-cpu).Seconds())
	}
	s.median, s.processor = median(wall), median(processor)
	s.spread = (slices.Max(wall) - slices.Min(wall)) / s.median
	if s.processor == 0 { // no clock for processor time on this system
		s.processor = s.median
	}
	return s
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
				job{name, label + "Insert", memory, func() {
					for i := range t.Len() {
						c.Insert(t.Key(i))
					}
				}},
				job{name, label + "InsertBatch", memory, func() { _ = c.InsertBatch(t.Keys(), t.KeyBytes()) }})
			if memory == 500_000 {
				jobs = append(jobs, job{name, label + "Insert, P4 hashes", memory, func() {
					for i := range t.Len() {
						p.Insert(t.Key(i))
					}
				}})
			}
		}
		for _, memory := range []int{2_000_000, 64_000_000} {
			w, err := tower.New[host](tower.Config{Memory: memory, Conservative: cu})
			if err != nil {
				return nil, err
			}
			label := fmt.Sprintf("5 rows, %g MB, ", float64(memory)/1e6)
			jobs = append(jobs,
				job{towerName, label + "Insert", memory, func() {
					for i := range t.Len() {
						w.Insert(t.Key(i))
					}
				}},
				job{towerName, label + "InsertBatch", memory, func() { _ = w.InsertBatch(t.Keys(), t.KeyBytes()) }})
		}
	}
	return jobs, nil
}

func fermatJobs(t *trace.Trace, o suite.Options) (jobs []job, err error) {
	f, err1 := fermat.New[host, fermat.Mersenne61](fermat.Config{Width: 833, KeyBytes: t.KeyBytes()})
	f32, err2 := fermat.New[host, fermat.Prime32](fermat.Config{Width: 833, KeyBytes: t.KeyBytes()})
	large, err3 := fermat.New[host, fermat.Mersenne61](fermat.Config{Memory: 64_000_000, KeyBytes: t.KeyBytes()})
	tf, err4 := towerFermat[fermat.Mersenne61]().build(t, 500_000, papers.heavy*float64(t.Len()), o.Seed)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	return []job{
		{"Fermat", "3 rows of 833, 2^61-1, Insert", f.Memory(), func() {
			for i := range t.Len() {
				_ = f.Insert(t.Key(i))
			}
		}},
		{"Fermat", "3 rows of 833, 2^61-1, InsertBatch", f.Memory(), func() {
			_ = f.InsertBatch(t.Keys(), t.KeyBytes())
		}},
		{"Fermat", "3 rows of 833, 31-bit fragments, InsertBatch", f32.Memory(), func() {
			_ = f32.InsertBatch(t.Keys(), t.KeyBytes())
		}},
		{"Fermat", "3 rows, 64 MB, 2^61-1, Insert", large.Memory(), func() {
			for i := range t.Len() {
				_ = large.Insert(t.Key(i))
			}
		}},
		{"Fermat", "3 rows, 64 MB, 2^61-1, InsertBatch", large.Memory(), func() {
			_ = large.InsertBatch(t.Keys(), t.KeyBytes())
		}},
		{"Tower+Fermat", "8 and 16 bits, 2500 buckets", 500_000, func() {
			for i := range t.Len() {
				tf.insert(t.Key(i))
			}
		}},
	}, nil
}

func otherJobs(t *trace.Trace, _ suite.Options) (jobs []job, err error) {
	for _, memory := range []int{500_000, 1_500_000, 6_000_000} {
		s, err := sumax.New[host](sumax.Config{Memory: memory, Ranges: []uint32{1, 2, 3, 4, 5, 6, 7}, Intervals: true})
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, job{"SuMax", fmt.Sprintf("%g MB, 3 rows, 8 ranges, intervals", float64(memory)/1e6), memory,
			func() {
				for i := range t.Len() {
					s.Record(t.Key(i), sumax.Packet{Delay: uint32(i) & 7, At: t.At(i)})
				}
			}})
	}
	u, err1 := universal.New(universal.Layout{Key: flow.FiveTuple, Levels: 14, Rows: 5, Columns: 2048, Ways: 2,
		Slots: 64})
	e, err2 := baseline.NewElastic[host](500_000, t.KeyBytes(), 0)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	keys := make([]flow.Key, t.Len())
	for i := range keys {
		keys[i] = t.Parse(t.Key(i))
	}
	return append(jobs,
		job{"UnivMon", "14 levels, 5 rows", u.Layout().Bytes(), func() {
			for i := range keys {
				u.Update(&keys[i])
			}
		}},
		job{"Elastic", "heavy and light part", 500_000, func() {
			for i := range t.Len() {
				_ = e.Insert(t.Key(i))
			}
		}}), nil
}

// sharedSpeed measures the lock-free tower with one writer and with two, in pairs.
func sharedSpeed(t *trace.Trace, o suite.Options) (rows []suite.Row, err error) {
	shared, err := tower.NewShared[host](tower.Config{Memory: 2_000_000})
	if err != nil {
		return nil, err
	}
	// pass returns the seconds on the clock and, of the slower writer, on its processor.
	pass := func(writers int) (wall, processor float64) {
		used := make([]time.Duration, writers)
		all := make([]*tower.Writer[host], writers)
		for i := range all {
			all[i] = shared.Writer()
		}
		start := time.Now()
		var wg sync.WaitGroup
		for n, w := range all {
			wg.Go(func() {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				cpu := threadTime()
				for i := n * t.Len() / writers; i < (n+1)*t.Len()/writers; i++ {
					w.Insert(t.Key(i))
				}
				w.Flush()
				used[n] = threadTime() - cpu
			})
		}
		wg.Wait()
		wall = time.Since(start).Seconds()
		shared.Reset()
		if processor = slices.Max(used).Seconds(); processor == 0 {
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
		put(cores, "spread", (slices.Max(wall[i])-slices.Min(wall[i]))/m, "ratio")
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
	d := measure(10*o.Runs, func() {
		r, err := s.Decode()
		complete = complete && err == nil && r.Complete
	})
	if !complete {
		return nil, fmt.Errorf("%d flows do not decode from 1.3 buckets each", flows)
	}
	const variant = "10,000 flows, 1.3 buckets each"
	return []suite.Row{
		row("Fermat", variant, s.Memory(), "decoding", "time", d.median*1e3, "ms", "generated keys"),
		row("Fermat", variant, s.Memory(), "decoding", "time by processor time", d.processor*1e3, "ms",
			"generated keys"),
		row("Fermat", variant, s.Memory(), "decoding", "spread", d.spread, "ratio", "generated keys"),
	}, nil
}

// machine names the processor.
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
	return model + ", " + runtime.Version()
}

// speedTable has a line for each structure, with the authors' figure.
func speedTable(rows []suite.Row) string {
	var b strings.Builder
	v := suite.Values(rows)
	for _, r := range rows {
		if r.Task == "machine" {
			fmt.Fprintf(&b, "Machine: %s, %g processors.\n\n", r.Variant, r.Value)
		}
	}
	b.WriteString("| structure | variant | bytes | speed, million packets/s | spread | by processor time | authors' " +
		"| ratio to it |\n|---|---|---|---|---|---|---|---|\n")
	line := func(r suite.Row, spread, processor float64, better func(ours, theirs float64) float64) {
		theirs, ratio := "", ""
		if x, ok := authors[[2]string{r.Structure, r.Variant}]; ok {
			theirs, ratio = fmt.Sprintf("%g", x), fmt.Sprintf("%.2f", better(processor, x))
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %.3g | %.0f %% | %s | %s | %s |\n", r.Structure, r.Variant, r.Memory, r.Value,
			100*spread, suite.Short(processor), theirs, ratio)
	}
	for _, r := range rows {
		if r.Metric == "speed" {
			line(r, v.Variant(r.Structure, r.Variant, "insertion", "spread"),
				v.Variant(r.Structure, r.Variant, "insertion", "speed by processor time"),
				func(ours, theirs float64) float64 {
					return ours / theirs
				})
		}
	}
	b.WriteString("\n| structure | variant | bytes | time, ms | spread | by processor time | authors' | ratio to it " +
		"|\n|---|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		if r.Metric == "time" {
			line(r, v.Variant(r.Structure, r.Variant, "decoding", "spread"),
				v.Variant(r.Structure, r.Variant, "decoding", "time by processor time"),
				func(ours, theirs float64) float64 {
					return theirs / ours
				})
		}
	}
	fmt.Fprintf(&b, "\nLock-free, two cores are %.2f times one (the goal is 1.9), by the processor time of the "+
		"slower writer %.2f times.\n",
		v.Variant("TowerCM", lockFree+"2 cores", "insertion", "times one core"),
		v.Variant("TowerCM", lockFree+"2 cores", "insertion", "times one core by processor time"))
	b.WriteString("\nInsertBatch over Insert, by processor time:\n\n| structure | memory | times |\n|---|---|---|\n")
	for _, r := range rows {
		if variant, found := strings.CutSuffix(r.Variant, ", InsertBatch"); found &&
			r.Metric == "speed by processor time" {
			if x := v.Variant(r.Structure, variant+", Insert", "insertion", "speed by processor time"); x > 0 {
				fmt.Fprintf(&b, "| %s, %s | %d | %.2f |\n", r.Structure, variant, r.Memory, r.Value/x)
			}
		}
	}
	return b.String()
}
