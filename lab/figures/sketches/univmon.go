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

	"github.com/netsketch/netsketch/sketch/countmin"
	"github.com/netsketch/netsketch/sketch/estimate"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/universal"
)

// univmonLayout scales the layout of 1 MB.
func univmonLayout(memory int, key flow.Fields) universal.Layout {
	l := universal.Layout{Key: key, Levels: 12, Rows: 3, Ways: 4}
	share := float64(memory) / float64(12*4*(3*5120+4*128*l.Words()))
	l.Columns, l.Slots = max(1, int(5120*share)), max(1, int(128*share))
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
	return kind{"UnivMon", "12 levels, 3 rows", func(t *Trace, memory int, _ float64, seed uint64) (*structure, error) {
		u, err := universal.New(univmonLayout(memory, t.fields))
		if err != nil {
			return nil, err
		}
		var e *universal.Estimate
		m := newMask(seed)
		return &structure{
			insert: func(k []byte) { key := m.over(t.parse(k)); u.Update(&key) },
			seal:   func() error { e = u.Reading().Estimate(); return nil },
			heavy: func(limit float64) map[string]float64 {
				out := make(map[string]float64)
				for _, f := range e.Above(limit) {
					out[string(t.appendKey(nil, m.over(f.Key)))] = f.Packets
				}
				return out
			},
			size:    func(k []byte) float64 { return e.Size(m.over(t.parse(k))) },
			entropy: func() float64 { return e.Entropy() }, cardinality: func() float64 { return e.Distinct() }, moment2: func() float64 { return e.Moment2() },
			estimate: func() *universal.Estimate { return e },
		}, nil
	}}
}

// univmonShare is the heavy hitters' part of the packets, and the heavy changes' of the
// total change (UnivMon §7.1).
const univmonShare = 0.0005

// answers are the relative errors of a structure in the tasks of UnivMon's figures.
type answers struct {
	heavy, change              scored
	distinct, entropy, moment2 float64
}

// scored is how well large flows were found: the mean relative error of those that are
// large and named (UnivMon §7.1), 1 if there are none, and F1.
type scored struct{ error, f1 float64 }

func score(found, truth map[string]float64) (s scored) {
	hits := 0
	for _, key := range slices.Sorted(maps.Keys(truth)) {
		if x, ok := found[key]; ok {
			s.error += relative(x, truth[key])
			hits++
		}
	}
	if hits == 0 {
		return scored{error: 1}
	}
	return scored{s.error / float64(hits), f1(found, truth)}
}

// largest are the flows of at least limit packets.
func (t *Trace) largest(limit float64) map[string]float64 {
	out := make(map[string]float64)
	for _, f := range t.flows {
		if float64(f.Packets) >= limit {
			out[f.Key] = float64(f.Packets)
		}
	}
	return out
}

// univmon answers from one sketch of the whole trace, and one of each half.
func univmon(t *Trace, memory int, seed uint64, size map[string]float64) (a answers, err error) {
	truth, n := t.exact(), float64(t.Len())
	k := univmonKind()
	s, err := k.fill(t, memory, 0, t.Len(), 0, seed, false)
	if err != nil {
		return a, err
	}
	a.heavy = score(s.heavy(univmonShare*n), size)
	a.distinct = relative(s.cardinality(), float64(len(t.flows)))
	a.entropy, a.moment2 = relative(s.entropy(), truth.entropy), relative(s.moment2(), truth.moment2)
	a.change, err = univmonChange(t, memory, seed)
	return a, err
}

func univmonChange(t *Trace, memory int, seed uint64) (scored, error) {
	truth := t.exact()
	k := univmonKind()
	before, err := k.fill(t, memory, 0, t.Len()/2, 0, seed, false)
	if err != nil {
		return scored{}, err
	}
	after, err := k.fill(t, memory, t.Len()/2, t.Len(), 0, seed, t.rename)
	if err != nil {
		return scored{}, err
	}
	c, err := universal.Compare(before.estimate(), after.estimate())
	if err != nil {
		return scored{}, err
	}
	found, m := make(map[string]float64), newMask(seed)
	for _, f := range c.Above(univmonShare * truth.change()) {
		found[string(t.appendKey(nil, m.over(f.Key)))] = math.Abs(f.Packets)
	}
	return score(found, truth.changed(univmonShare*truth.change())), nil
}

// openSketch is a structure for each task, with all of the memory each: Count-Min for heavy
// hitters, a bitmap for distinct sources, and for changes Count-Min or k-ary sketches of the
// halves.
func openSketch(t *Trace, memory int, seed uint64, size map[string]float64) (a answers, kary scored, err error) {
	cm := countMin(false, "CM")
	s, err := cm.fill(t, memory, 0, t.Len(), univmonShare*float64(t.Len()), seed, false)
	if err != nil {
		return a, kary, err
	}
	a.heavy = score(s.heavy(univmonShare*float64(t.Len())), size)
	bits := make([]bool, memory*8)
	cols := family.NewRange(uint32(len(bits)))
	for _, f := range t.flows { // a bit set again stays set
		bits[family.Column[host](family.Digest[host](seed, []byte(f.Key)), 0, &cols)] = true
	}
	zero := 0
	for _, set := range bits {
		if !set {
			zero++
		}
	}
	flows, _ := estimate.Cardinality(len(bits), zero)
	a.distinct = relative(flows, float64(len(t.flows)))
	a.change, kary, err = openChange(t, memory, seed)
	return a, kary, err
}

func openChange(t *Trace, memory int, seed uint64) (cm, kary scored, err error) {
	truth := t.exact()
	limit := univmonShare * truth.change()
	var halves [2]*countmin.Sketch[host]
	tables := [2]map[string]bool{{}, {}}
	var buf keyBuffer
	for h := range halves {
		c, err := countmin.New[host](countmin.Config{Memory: memory, Seed: seed})
		if err != nil {
			return cm, kary, err
		}
		for i := h * (t.Len() / 2); i < t.Len()/2+h*(t.Len()-t.Len()/2); i++ {
			key := t.Key(i)
			if h == 1 && t.rename {
				key = otherName(&buf, key)
			}
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
			if d := math.Abs(float64(halves[1].Query([]byte(key))) - float64(halves[0].Query([]byte(key)))); d >= limit {
				found[0][key] = d
			}
			if d := math.Abs(karyEstimate(halves[1], seed, key) - karyEstimate(halves[0], seed, key)); d >= limit {
				found[1][key] = d
			}
		}
	}
	changes := truth.changed(limit)
	return score(found[0], changes), score(found[1], changes), nil
}

// karyEstimate is the k-ary sketch's: the same counters, each less its share of all packets,
// and the median over the rows (Krishnamurthy et al. 2003).
func karyEstimate(c *countmin.Sketch[host], seed uint64, key string) float64 {
	d := family.Digest[host](seed, []byte(key))
	var v []float64
	for row := range c.Config().Rows {
		cells := c.Row(row)
		cols := family.NewRange(uint32(len(cells)))
		v = append(v, float64(cells[family.Column[host](d, row, &cols)]))
	}
	total := 0.0
	for _, n := range c.Row(0) {
		total += float64(n)
	}
	for i := range v {
		w := float64(c.Config().Width)
		v[i] = (v[i] - total/w) / (1 - 1/w)
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
func univmonRows(ctx context.Context, t *Trace, o Options, memories []int, open bool, tasks []string) ([]Row, error) {
	s := t.Sources()
	s.exact()
	size := s.largest(univmonShare * float64(s.Len()))
	type result struct {
		ours, theirs answers
		kary         scored
	}
	results := make([]result, len(memories)*o.Runs)
	err := each(ctx, len(results), func(i int) (err error) {
		r, memory, seed := &results[i], memories[i/o.Runs], o.Seed+uint64(i%o.Runs)
		if r.ours, err = univmon(s, memory, seed, size); err != nil || !open {
			return err
		}
		r.theirs, r.kary, err = openSketch(s, memory, seed, size)
		return err
	})
	if err != nil {
		return nil, err
	}
	var rows []Row
	get := map[string]func(a *answers) float64{
		"heavy hitters": func(a *answers) float64 { return a.heavy.error }, "distinct sources": func(a *answers) float64 { return a.distinct },
		"heavy changes": func(a *answers) float64 { return a.change.error }, "entropy": func(a *answers) float64 { return a.entropy }, "second moment": func(a *answers) float64 { return a.moment2 },
	}
	names := map[string]func(a *answers) scored{
		"heavy hitters": func(a *answers) scored { return a.heavy }, "heavy changes": func(a *answers) scored { return a.change },
	}
	structures := map[string]string{"heavy hitters": "CM", "distinct sources": "bitmap", "heavy changes": "CM"}
	for _, task := range tasks {
		for m, memory := range memories {
			part, metric := results[m*o.Runs:(m+1)*o.Runs], ""
			put := func(structure, variant string, f func(r *result) float64) {
				var v []float64
				for i := range part {
					v = append(v, f(&part[i]))
				}
				rows = append(rows, Row{structure, variant, memory, task, metric, median(v), "ratio", t.Name})
			}
			metric = "error"
			put("UnivMon", "12 levels, 3 rows", func(r *result) float64 { return get[task](&r.ours) })
			if !open {
				continue
			}
			put("OpenSketch", structures[task], func(r *result) float64 { return get[task](&r.theirs) })
			if task == "heavy changes" {
				put("OpenSketch (k-ary)", "3 rows", func(r *result) float64 { return r.kary.error })
			}
			score, found := names[task]
			if !found {
				continue
			}
			metric = "F1"
			put("UnivMon", "12 levels, 3 rows", func(r *result) float64 { return score(&r.ours).f1 })
			put("OpenSketch", structures[task], func(r *result) float64 { return score(&r.theirs).f1 })
			if task == "heavy changes" {
				put("OpenSketch (k-ary)", "3 rows", func(r *result) float64 { return r.kary.f1 })
			}
		}
	}
	return rows, nil
}

const univmonSetup = "The paper: 5 s of CAIDA, 155 to 286 thousand packets of 55 thousand source addresses; medians of 10 runs with other hashes. The error of a task is the mean relative error of the large flows that a structure reports. " +
	"Here: the same by source address, medians over the hash seeds of `--runs`. Heavy hitters have 0.05 % of the packets, heavy changes 0.05 % of the change from one half of the trace to the next, " +
	"in which every tenth generated source has another address. OpenSketch's structures each have all of the memory: Count-Min with 3 rows, a bitmap for distinct sources (the basis of DDoS detection), Count-Min and k-ary sketches of the halves for changes; their keys take no memory. " +
	"The paper's memory is UnivMon's counters; here it includes the heavy keys, 28 bytes each because they can be IPv6, and a packet updates one level only."

func univmonFigure8() Suite {
	memories := kilobytes(100, 200, 400, 600, 800, 1000, 2000, 3000)
	gap := func(memory int, task string) func(v Values) float64 {
		return func(v Values) float64 {
			return v.Get("UnivMon", memory, task, "error") - v.Get("OpenSketch", memory, task, "error")
		}
	}
	small := func(figure, paper, task string, memory int, limit float64, why string) Claim {
		return values(figure, paper, memory, task, "error", []string{"UnivMon", "OpenSketch"}, []float64{limit}, false, why)
	}
	var claims []Claim
	claims = append(claims,
		small("8(a)", "heavy hitters: the error is already quite small", "heavy hitters", 600_000, 0.01, ""),
		small("8(b)", "DDoS (distinct sources): the error is already quite small", "distinct sources", 600_000, 0.05, ""),
		small("8(c)", "changes: comparable with OpenSketch's; 1 % at 2 MB", "heavy changes", 2_000_000, 0.01, ""))
	for _, x := range []struct {
		task, figure string
		memory       int
	}{{"heavy hitters", "8(a)", 1_000_000}, {"distinct sources", "8(b)", 1_000_000}, {"heavy changes", "8(c)", 3_000_000}} {
		g := gap(x.memory, x.task)
		claims = append(claims, Claim{
			Figure: x.figure, Paper: fmt.Sprintf("%s: the gap to OpenSketch is almost negligible from %d MB (and at most 3.6 %% at 600 KB)", x.task, x.memory/1_000_000),
			Ours: func(v Values) string {
				return fmt.Sprintf("%s %% at %d MB, %s %% at 600 KB", short(100*g(v)), x.memory/1_000_000, short(100*gap(600_000, x.task)(v)))
			},
			Holds: func(v Values) bool { return g(v) <= 0.02 && gap(600_000, x.task)(v) <= 0.036 },
		})
	}
	kary := func(v Values) float64 {
		return v.Get("UnivMon", 3_000_000, "heavy changes", "error") - v.Get("OpenSketch (k-ary)", 3_000_000, "heavy changes", "error")
	}
	claims = append(claims, Claim{
		Figure: "8(c)", Paper: "3 MB, changes: comparable with the k-ary sketch",
		Ours:  func(v Values) string { return fmt.Sprintf("the error is %s %% above its", short(100*kary(v))) },
		Holds: func(v Values) bool { return kary(v) <= 0.01 },
	})
	return Suite{
		Name: "univmon-8", Title: "UnivMon, Figure 8: heavy hitters, DDoS and changes by memory", Setup: univmonSetup, Claims: claims,
		run: func(ctx context.Context, t *Trace, o Options) ([]Row, error) {
			return univmonRows(ctx, t, o, memories, true, []string{"heavy hitters", "distinct sources", "heavy changes"})
		},
		Plots: memoryPlots("univmon-8", [2]string{"heavy hitters", "error"}, [2]string{"distinct sources", "error"}, [2]string{"heavy changes", "error"}, [2]string{"heavy hitters", "F1"}, [2]string{"heavy changes", "F1"}),
	}
}

func univmonFigure11() Suite {
	memories := kilobytes(100, 200, 400, 500, 800, 1000, 1500)
	return Suite{
		Name: "univmon-11", Title: "UnivMon, Figure 11: entropy and F2 by memory", Setup: univmonSetup,
		run: func(ctx context.Context, t *Trace, o Options) ([]Row, error) {
			return univmonRows(ctx, t, o, memories, false, []string{"entropy", "second moment"})
		},
		Plots: memoryPlots("univmon-11", [2]string{"entropy", "error"}, [2]string{"second moment", "error"}),
		Claims: []Claim{
			values("11", "from 500 KB the error of entropy is very low (the axis begins at 0.1 %)", 500_000, "entropy", "error", []string{"UnivMon"}, []float64{0.01}, false, ""),
			values("11", "and so is that of F2", 500_000, "second moment", "error", []string{"UnivMon"}, []float64{0.01}, false, ""),
		},
	}
}

// intervalsOf are the paper's 5 s, 30 s, 1 min and 5 min.
var intervalsOf = []int{5, 30, 60, 300}

func univmonFigure10() Suite {
	const x, target = "interval (s)", 0.01
	at := func(v Values, structure, task string, seconds int) float64 {
		return v.Variant(structure, fmt.Sprintf("%s %d", x, seconds), task, "memory")
	}
	var claims []Claim
	for _, task := range [][2]string{{"heavy hitters", "9"}, {"heavy changes", "10"}} {
		growth := func(v Values, structure string) float64 {
			return at(v, structure, task[0], 300) / at(v, structure, task[0], 5)
		}
		claims = append(claims, Claim{
			Figure: task[1], Paper: task[0] + ": only a small increase of memory from 5 s to 5 min, for UnivMon and OpenSketch",
			Ours: func(v Values) string {
				return fmt.Sprintf("UnivMon %s times, OpenSketch %s times for 60 times the packets", short(growth(v, "UnivMon")), short(growth(v, "OpenSketch")))
			},
			Holds: func(v Values) bool { return growth(v, "UnivMon") < 4 && growth(v, "OpenSketch") < 4 },
		})
	}
	within := func(figure, paper, task string, limit float64, why string) Claim {
		return Claim{
			Figure: figure, Paper: paper, Why: why,
			Ours: func(v Values) string {
				return fmt.Sprintf("5 s: UnivMon %.0f KB, OpenSketch %.0f KB; 5 min: %.0f and %.0f KB",
					at(v, "UnivMon", task, 5)/1000, at(v, "OpenSketch", task, 5)/1000, at(v, "UnivMon", task, 300)/1000, at(v, "OpenSketch", task, 300)/1000)
			},
			Holds: func(v Values) bool {
				return slices.Max(alongIntervals(v, x, "UnivMon", task)) <= limit
			},
		}
	}
	claims = append(claims,
		within("9", "heavy hitters: an error of 1 % from 300 KB", "heavy hitters", 300_000,
			"a fifth of the memory here is keys, which the paper does not count, and in Zipf 1.1 traffic most of the 160 sources above 0.05 % are just above it, at a few times the noise of the counters"),
		within("10", "changes: an error of 1 % from 2 MB", "heavy changes", 2_000_000, ""))
	return Suite{
		Name: "univmon-10", Title: "UnivMon, Figures 9 and 10: memory for an error of 1 % by interval",
		Setup: univmonSetup + " The interval of 5 min is half the trace, so there are two to compare, and 5 s is a sixtieth of that. Memory grows in steps of a tenth. The paper shows the mean of five traces; the figure here is the median over the hash seeds.",
		run: func(ctx context.Context, t *Trace, o Options) ([]Row, error) {
			s := t.Sources()
			tasks := []string{"heavy hitters", "heavy changes"}
			rows := make([]Row, len(intervalsOf)*4)
			err := each(ctx, len(rows), func(i int) error {
				i = len(rows) - 1 - i // the longest first
				interval, task, open := intervalsOf[i/4], tasks[i/2%2], i%2 == 1
				n := s.Len() / 2 * interval / 300
				from := 0
				if task == "heavy hitters" {
					from = n // the first of the two alone
				}
				w := s.Window(0, 2*n-from)
				size := w.largest(univmonShare * float64(w.Len()))
				memory, err := leastError(target, 20_000, 64_000_000, func(memory int) (float64, error) {
					if err := ctx.Err(); err != nil {
						return 0, err
					}
					var v []float64
					for run := range uint64(o.Runs) {
						x, err := oneError(w, task, open, memory, o.Seed+run, size)
						if err != nil {
							return 0, err
						}
						v = append(v, x.error)
					}
					return median(v), nil
				})
				name, variant := "UnivMon", fmt.Sprintf("%s %d", x, interval)
				if open {
					name = "OpenSketch"
				}
				rows[i] = Row{name, variant, memory, task, "memory", float64(memory), "bytes", t.Name}
				return err
			})
			return slices.DeleteFunc(rows, func(r Row) bool { return r.Memory == 0 }), err
		},
		Plots: []Plot{
			{File: "univmon-9-heavy-hitters", Title: "Heavy hitters: memory for an error of 1 % (bytes)", Task: "heavy hitters", Metric: "memory", X: x, Log: true},
			{File: "univmon-10-heavy-changes", Title: "Heavy changes: memory for an error of 1 % (bytes)", Task: "heavy changes", Metric: "memory", X: x, Log: true},
		},
		Claims: claims,
	}
}

// alongIntervals is the memory of a structure at every interval.
func alongIntervals(v Values, x, structure, task string) (out []float64) {
	for _, seconds := range intervalsOf {
		out = append(out, v.Variant(structure, fmt.Sprintf("%s %d", x, seconds), task, "memory"))
	}
	return out
}

// oneError is the error of one task.
func oneError(t *Trace, task string, open bool, memory int, seed uint64, size map[string]float64) (scored, error) {
	if task == "heavy changes" {
		if open {
			cm, _, err := openChange(t, memory, seed)
			return cm, err
		}
		return univmonChange(t, memory, seed)
	}
	k := univmonKind()
	if open {
		k = countMin(false, "CM")
	}
	limit := univmonShare * float64(t.Len())
	s, err := k.fill(t, memory, 0, t.Len(), limit, seed, false)
	if err != nil {
		return scored{}, err
	}
	return score(s.heavy(limit), size), nil
}

// leastError finds the least memory, in steps of a tenth, with at most this error; 0 if
// there is none up to most.
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
