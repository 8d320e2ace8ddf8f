// SPDX-License-Identifier: Apache-2.0

package sketches

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
	"github.com/netsketch/netsketch/sketch/countmin"
	"github.com/netsketch/netsketch/sketch/estimate"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/universal"
)

// univmonLayout scales counters and slots alike until they fill the memory.
func univmonLayout(memory int, key flow.Fields) universal.Layout {
	l := universal.Layout{Key: key, Levels: 12, Rows: 3, Columns: 5120, Ways: 4, Slots: 128}
	share := float64(memory) / float64(l.Bytes())
	l.Columns, l.Slots = max(1, int(5120*share)), max(1, int(128*share))
	for l.Bytes() > memory && l.Columns > 1 { // columns of deep levels are rounded up
		l.Columns--
	}
	return l
}

// mask replaces a seed, which the sketch of the P4 programs does not have: it changes the source
// addresses, so sources share counters with others.
type mask [4]byte

func newMask(seed uint64) (m mask) {
	binary.LittleEndian.PutUint32(m[:], rand.New(rand.NewPCG(seed, 0x6d61736b)).Uint32())
	return m
}

func (m mask) over(k flow.Key) flow.Key {
	for i, v := range m {
		k.Src[i] ^= v
	}
	return k
}

func univmonKind() kind {
	build := func(t *trace.Trace, memory int, _ float64, seed uint64) (*structure, error) {
		u, err := universal.New(univmonLayout(memory, t.Fields()))
		if err != nil {
			return nil, err
		}
		var e *universal.Estimate
		m := newMask(seed)
		return &structure{
			insert: func(k []byte) { key := m.over(t.Parse(k)); u.Update(&key) },
			seal:   func() error { e = u.Reading().Estimate(); return nil },
			heavy: func(limit float64) map[string]float64 {
				out := make(map[string]float64)
				for _, f := range e.Above(limit) {
					out[string(t.AppendKey(nil, m.over(f.Key)))] = f.Packets
				}
				return out
			},
			size:        func(k []byte) float64 { return e.Size(m.over(t.Parse(k))) },
			entropy:     func() float64 { return e.Entropy() },
			cardinality: func() float64 { return e.Distinct() },
			moment2:     func() float64 { return e.Moment2() },
			estimate:    func() *universal.Estimate { return e },
		}, nil
	}
	return kind{"UnivMon", "12 levels, 3 rows", build}
}

// univmonShare is the heavy hitters' part of the packets, and the heavy changes' of the
// total change (UnivMon §7.1).
const univmonShare = 0.0005

// capacityHitters are the flows above univmonShare of what the link carries, the paper's threshold
// (§7.1). The links of its traces have 10 Gb/s, which are 6.25 million packets of 1,000 bytes in
// 5 s, of which 220,000 are in the trace: capacityShare is the same threshold as a share of these.
const (
	capacityHitters = "heavy hitters of the link"
	capacityShare   = univmonShare * 6_250_000 / 220_000
)

// noLess returns the flows of at least limit packets.
func noLess(flows map[string]float64, limit float64) map[string]float64 {
	out := maps.Clone(flows)
	maps.DeleteFunc(out, func(_ string, packets float64) bool { return packets < limit })
	return out
}

// answers holds a structure's errors in the tasks of UnivMon's figures, by task and metric.
type answers map[[2]string]float64

// score sets how well large flows were found: the mean relative error of the flows that are large
// and named (UnivMon §7.1), 1 if there are none, and F1.
func (a answers) score(task string, found, truth map[string]float64) {
	sum, hits := 0.0, 0
	for _, key := range slices.Sorted(maps.Keys(truth)) {
		if x, ok := found[key]; ok {
			sum += suite.Relative(x, truth[key])
			hits++
		}
	}
	a[[2]string{task, "error"}], a[[2]string{task, "F1"}] = 1, 0
	if hits > 0 {
		a[[2]string{task, "error"}], a[[2]string{task, "F1"}] = sum/float64(hits), suite.F1(found, truth)
	}
}

// medianRow appends the median of the runs that have the metric, if there are any.
func medianRow(rows []suite.Row, structure, variant string, memory int, task, metric, trace string,
	runs []answers) []suite.Row {
	var v []float64
	for _, a := range runs {
		if x, ok := a[[2]string{task, metric}]; ok {
			v = append(v, x)
		}
	}
	if len(v) == 0 {
		return rows
	}
	return append(rows, row(structure, variant, memory, task, metric, median(v), "ratio", trace))
}

// largest returns the flows of at least limit packets.
func largest(t *trace.Trace, limit float64) map[string]float64 {
	out := make(map[string]float64)
	for _, f := range t.Flows() {
		if float64(f.Packets) >= limit {
			out[f.Key] = float64(f.Packets)
		}
	}
	return out
}

// interval holds exact values by source address: of a monitoring interval, and of this interval
// together with the next one.
type interval struct {
	one, two *trace.Trace
	size     map[string]float64 // heavy hitters of the first interval
}

// The paper's 5 s are 155 to 286 thousand packets of some 55 thousand source addresses. For the
// standard trace of 2 million packets these are 220 thousand of 48 thousand sources, out of a
// population of 2 million.
const univmonPackets, univmonRanks = 0.11, 1.0

// univmonInterval returns an interval of a number of seconds, with the paper's packets a second. Of
// a capture the interval is its first half.
func univmonInterval(t *trace.Trace, seconds int, seed uint64) (*interval, error) {
	n, ranks := int(univmonPackets*float64(t.Len()*seconds)/5), int(univmonRanks*float64(t.Len()))
	return newInterval(t, n, ranks, seed)
}

func newInterval(t *trace.Trace, packets, ranks int, seed uint64) (*interval, error) {
	o, err := t.Like(2*packets, ranks, seed)
	if err != nil {
		return nil, err
	}
	two := o.Sources()
	w := &interval{one: two.Window(0, two.Len()/2), two: two}
	w.one.Exact()
	two.Exact()
	w.size = largest(w.one, univmonShare*float64(w.one.Len()))
	return w, nil
}

// univmon answers from a sketch of each interval.
func univmon(w *interval, memory int, seed uint64) (answers, error) {
	t := w.one
	truth, n := t.Exact(), float64(t.Len())
	k := univmonKind()
	s, err := k.fill(t, memory, 0, seed)
	if err != nil {
		return nil, err
	}
	a := answers{
		{"distinct sources", "error"}: suite.Relative(s.cardinality(), float64(len(t.Flows()))),
		{"entropy", "error"}:          suite.Relative(s.entropy(), truth.Entropy),
		{"second moment", "error"}:    suite.Relative(s.moment2(), truth.Moment2),
	}
	a.score("heavy hitters", s.heavy(univmonShare*n), w.size)
	a.score(capacityHitters, s.heavy(capacityShare*n), noLess(w.size, capacityShare*n))
	return a, univmonChange(a, w.two, memory, seed)
}

func univmonChange(a answers, t *trace.Trace, memory int, seed uint64) error {
	truth := t.Exact()
	k := univmonKind()
	before, err := k.fill(truth.Before, memory, 0, seed)
	if err != nil {
		return err
	}
	after, err := k.fill(truth.After, memory, 0, seed)
	if err != nil {
		return err
	}
	c, err := universal.Compare(before.estimate(), after.estimate())
	if err != nil {
		return err
	}
	found, m := make(map[string]float64), newMask(seed)
	for _, f := range c.Above(univmonShare * c.Total()) {
		found[string(t.AppendKey(nil, m.over(f.Key)))] = math.Abs(f.Packets)
	}
	a.score("heavy changes", found, truth.Changed(univmonShare*truth.Change()))
	return nil
}

// openSketch measures a structure for each task, each with all of the memory: Count-Min for heavy
// hitters, a bitmap for distinct sources, and for changes Count-Min or k-ary sketches of the
// halves.
func openSketch(w *interval, memory int, seed uint64) (cm, kary answers, err error) {
	t := w.one
	k, limit := countMin(false, "CM"), univmonShare*float64(t.Len())
	s, err := k.fill(t, memory, limit, seed)
	if err != nil {
		return nil, nil, err
	}
	cm, kary = answers{}, answers{}
	cm.score("heavy hitters", s.heavy(limit), w.size)
	bits := make([]bool, memory*8)
	cols := family.NewRange(uint32(len(bits)))
	for _, f := range t.Flows() { // a bit set again stays set
		bits[family.Column[host](family.Digest[host](seed, []byte(f.Key)), 0, &cols)] = true
	}
	zero := 0
	for _, set := range bits {
		if !set {
			zero++
		}
	}
	flows, _ := estimate.Cardinality(len(bits), zero)
	cm[[2]string{"distinct sources", "error"}] = suite.Relative(flows, float64(len(t.Flows())))
	return cm, kary, openChange(cm, kary, w.two, memory, seed)
}

func openChange(cm, kary answers, t *trace.Trace, memory int, seed uint64) error {
	truth := t.Exact()
	limit := univmonShare * truth.Change()
	var halves [2]*countmin.Sketch[host]
	tables := [2]map[string]bool{{}, {}}
	for h, half := range []*trace.Trace{truth.Before, truth.After} {
		c, err := countmin.New[host](countmin.Config{Memory: memory, Seed: seed})
		if err != nil {
			return err
		}
		for i := range half.Len() {
			key := half.Key(i)
			c.Insert(key)
			if float64(c.Query(key)) >= limit && !tables[h][string(key)] {
				tables[h][string(key)] = true
			}
		}
		halves[h] = c
	}
	found := [2]map[string]float64{{}, {}}
	for _, table := range tables {
		for key := range table {
			before, after := halves[0].Query([]byte(key)), halves[1].Query([]byte(key))
			if d := math.Abs(float64(after) - float64(before)); d >= limit {
				found[0][key] = d
			}
			d := math.Abs(karyEstimate(halves[1], truth.After.Len(), seed, key) -
				karyEstimate(halves[0], truth.Before.Len(), seed, key))
			if d >= limit {
				found[1][key] = d
			}
		}
	}
	changes := truth.Changed(limit)
	cm.score("heavy changes", found[0], changes)
	kary.score("heavy changes", found[1], changes)
	return nil
}

// karyEstimate returns the estimates of a k-ary sketch with Count-Min's counters: each counter less
// its share of all packets, and the median over the rows (Krishnamurthy et al. 2003).
func karyEstimate(c *countmin.Sketch[host], packets int, seed uint64, key string) float64 {
	d, share := family.Digest[host](seed, []byte(key)), 1/float64(c.Config().Width)
	var v []float64
	for row := range c.Config().Rows {
		cells := c.Row(row)
		cols := family.NewRange(uint32(len(cells)))
		n := float64(cells[family.Column[host](d, row, &cols)])
		v = append(v, (n-float64(packets)*share)/(1-share))
	}
	slices.Sort(v)
	return v[len(v)/2]
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return (v[len(v)/2] + v[(len(v)-1)/2]) / 2
}

// univmonRows measures UnivMon and, when open is set, OpenSketch, by memory: the medians over
// the runs, each with other hashes.
func univmonRows(ctx context.Context, t *trace.Trace, o suite.Options, memories []int, open bool,
	tasks []string) ([]suite.Row, error) {
	w, err := univmonInterval(t, 5, o.Seed)
	if err != nil {
		return nil, err
	}
	// UnivMon, OpenSketch and its k-ary sketch, each with its runs by memory.
	var results [3][]answers
	for i := range results {
		results[i] = make([]answers, len(memories)*o.Runs)
	}
	err = suite.Each(ctx, len(memories)*o.Runs, func(i int) (err error) {
		memory, seed := memories[i/o.Runs], o.Seed+uint64(i%o.Runs)
		if results[0][i], err = univmon(w, memory, seed); err != nil || !open {
			return err
		}
		results[1][i], results[2][i], err = openSketch(w, memory, seed)
		return err
	})
	if err != nil {
		return nil, err
	}
	var rows []suite.Row
	structures := map[string]string{"heavy hitters": "CM", "distinct sources": "bitmap", "heavy changes": "CM"}
	for _, task := range tasks {
		names := [3][2]string{{"UnivMon", "12 levels, 3 rows"}, {"OpenSketch", structures[task]},
			{"OpenSketch (k-ary)", "3 rows"}}
		for m, memory := range memories {
			for _, metric := range []string{"error", "F1"} {
				for i, name := range names {
					rows = medianRow(rows, name[0], name[1], memory, task, metric, w.two.Name,
						results[i][m*o.Runs:(m+1)*o.Runs])
				}
			}
		}
	}
	return rows, nil
}

func univmonFigure8() suite.Suite {
	memories := kilobytes(100, 200, 400, 600, 800, 1000, 2000, 3000)
	return suite.New(suite.Suite{
		Name: "univmon-8",
		Measure: func(ctx context.Context, t *trace.Trace, o suite.Options) ([]suite.Row, error) {
			return univmonRows(ctx, t, o, memories, true, []string{"heavy hitters", "distinct sources",
				"heavy changes"})
		},
	})
}

func univmonFigure11() suite.Suite {
	memories := kilobytes(100, 200, 400, 500, 800, 1000, 1500)
	return suite.New(suite.Suite{
		Name: "univmon-11",
		Measure: func(ctx context.Context, t *trace.Trace, o suite.Options) ([]suite.Row, error) {
			return univmonRows(ctx, t, o, memories, false, []string{"entropy", "second moment"})
		},
	})
}

const intervalAxis = "interval (s)"

// intervalsOf are the paper's 5 s, 30 s, 1 min and 5 min.
var intervalsOf = []int{5, 30, 60, 300}

func univmonFigure10() suite.Suite {
	const x, target = intervalAxis, 0.01
	return suite.New(suite.Suite{
		Name: "univmon-10",
		Measure: func(ctx context.Context, t *trace.Trace, o suite.Options) ([]suite.Row, error) {
			tasks := []string{"heavy hitters", "heavy changes", capacityHitters}
			windows := make([]*interval, len(intervalsOf))
			for i, seconds := range intervalsOf {
				var err error
				if windows[i], err = univmonInterval(t, seconds, o.Seed); err != nil {
					return nil, err
				}
			}
			rows := make([]suite.Row, len(intervalsOf)*2*len(tasks))
			err := suite.Each(ctx, len(rows), func(i int) error {
				i = len(rows) - 1 - i // the longest first
				n, task, open, runs := i/(2*len(tasks)), tasks[i/2%len(tasks)], i%2 == 1, o.Runs
				seconds, w := intervalsOf[n], windows[n]
				if seconds == 300 {
					runs = 1
				}
				memory, err := leastError(target, 20_000, 64_000_000, func(memory int) (float64, error) {
					if err := ctx.Err(); err != nil {
						return 0, err
					}
					var v []float64
					for run := range uint64(runs) {
						x, err := oneError(w, task, open, memory, o.Seed+run)
						if err != nil {
							return 0, err
						}
						v = append(v, x)
					}
					return median(v), nil
				})
				name, variant := "UnivMon", fmt.Sprintf("%s %d", x, seconds)
				if open {
					name = "OpenSketch"
				}
				rows[i] = row(name, variant, memory, task, "memory", float64(memory), "bytes", windows[0].two.Name)
				return err
			})
			return slices.DeleteFunc(rows, func(r suite.Row) bool { return r.Memory == 0 }), err
		},
	})
}

// oneError is the error of one task.
func oneError(w *interval, task string, open bool, memory int, seed uint64) (float64, error) {
	a := answers{}
	switch {
	case task == "heavy changes" && open:
		if err := openChange(a, answers{}, w.two, memory, seed); err != nil {
			return 0, err
		}
	case task == "heavy changes":
		if err := univmonChange(a, w.two, memory, seed); err != nil {
			return 0, err
		}
	default:
		share := univmonShare
		if task == capacityHitters {
			share = capacityShare
		}
		k, limit := univmonKind(), share*float64(w.one.Len())
		if open {
			k = countMin(false, "CM")
		}
		s, err := k.fill(w.one, memory, limit, seed)
		if err != nil {
			return 0, err
		}
		a.score(task, s.heavy(limit), noLess(w.size, limit))
	}
	return a[[2]string{task, "error"}], nil
}

// leastError finds the least memory, in steps of a tenth, with at most this error; 0 if no memory
// up to most suffices.
func leastError(target float64, from, most int, f func(memory int) (float64, error)) (int, error) {
	steps := int(math.Log(float64(most)/float64(from)) / math.Log(1.1))
	at := func(i int) int { return int(float64(from) * math.Pow(1.1, float64(i))) }
	lo, hi := -1, steps+1
	for hi-lo > 1 {
		mid := (lo + hi) / 2
		v, err := f(at(mid))
		if err != nil {
			return 0, err
		}
		if v <= target {
			hi = mid
		} else {
			lo = mid
		}
	}
	if hi > steps {
		return 0, nil
	}
	return at(hi), nil
}
