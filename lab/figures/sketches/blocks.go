// SPDX-License-Identifier: Apache-2.0

package sketches

import (
	"container/heap"
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
	"github.com/netsketch/netsketch/sketch/countmin"
	"github.com/netsketch/netsketch/sketch/countsketch"
	"github.com/netsketch/netsketch/sketch/family"
)

// block is a structure that finds the heavy hitters of a level of the universal sketch (UnivMon
// §4.2).
type block interface {
	insert(key []byte)
	// heavy returns the flows that the structure names, with their sizes; called once, at the end.
	heavy() map[string]float64
	// size returns the packets of any flow, named or not; called after heavy.
	size(key string) float64
}

// blockFlows is how many flows a level keeps next to its counters, blockRows is the number of rows
// of counters.
const blockFlows, blockRows = 500, 5

// topBlock is a sketch of counters with a heap of the largest flows.
type topBlock struct {
	add   func(key []byte)
	query func(key []byte) float64
	flows topFlows
}

type topFlow struct {
	key  string
	size float64
}

// topFlows is a min-heap.
type topFlows struct {
	flows []topFlow
	at    map[string]int
}

func (h *topFlows) Len() int           { return len(h.flows) }
func (h *topFlows) Less(i, j int) bool { return h.flows[i].size < h.flows[j].size }
func (h *topFlows) Swap(i, j int) {
	h.flows[i], h.flows[j] = h.flows[j], h.flows[i]
	h.at[h.flows[i].key], h.at[h.flows[j].key] = i, j
}

func (h *topFlows) Push(x any) {
	f := x.(topFlow)
	h.at[f.key] = len(h.flows)
	h.flows = append(h.flows, f)
}

// Pop is part of heap.Interface; flows are replaced in place.
func (h *topFlows) Pop() any {
	f := h.flows[len(h.flows)-1]
	h.flows = h.flows[:len(h.flows)-1]
	delete(h.at, f.key)
	return f
}

func (b *topBlock) insert(key []byte) {
	b.add(key)
	n, h := b.query(key), &b.flows
	switch i, kept := h.at[string(key)]; {
	case kept:
		h.flows[i].size = n
		heap.Fix(h, i)
	case len(h.flows) < blockFlows:
		heap.Push(h, topFlow{string(key), n})
	case n > h.flows[0].size:
		delete(h.at, h.flows[0].key)
		h.flows[0] = topFlow{string(key), n}
		h.at[string(key)] = 0
		heap.Fix(h, 0)
	}
}

func (b *topBlock) heavy() map[string]float64 {
	out := make(map[string]float64, len(b.flows.flows))
	for _, f := range b.flows.flows {
		out[f.key] = max(b.query([]byte(f.key)), 1)
	}
	return out
}

func (b *topBlock) size(key string) float64 { return b.query([]byte(key)) }

func countBlock(memory, keyBytes int, seed uint64) (block, error) {
	c, err := countsketch.New[host](countsketch.Config{Rows: blockRows, Memory: memory - blockFlows*(keyBytes+4),
		Seed: seed})
	if err != nil {
		return nil, err
	}
	return &topBlock{c.Insert, func(k []byte) float64 {
		return float64(c.Query(k))
	}, topFlows{at: make(map[string]int)}}, nil
}

func countMinBlock(memory, keyBytes int, seed uint64) (block, error) {
	c, err := countmin.New[host](countmin.Config{Rows: blockRows, Memory: memory - blockFlows*(keyBytes+4), Seed: seed})
	if err != nil {
		return nil, err
	}
	return &topBlock{c.Insert, func(k []byte) float64 {
		return float64(c.Query(k))
	}, topFlows{at: make(map[string]int)}}, nil
}

// pickAndDrop is pick-and-drop sampling (Braverman and Ostrovsky 2013). The packets are divided
// into rows of equal length. In every row, each sample picks a packet at a random place and counts
// the packets of its flow from there to the end of the row. The new flow replaces the sample's old
// flow if its count is larger, or if the old flow has had fewer than dropRate packets per row on
// average since it was picked. Otherwise the sample goes on counting the old flow.
type pickAndDrop struct {
	random  *rand.Rand
	row     [][]byte
	samples []sample
	found   map[string]float64
}

type sample struct {
	key   string
	count float64
	rows  float64
}

const (
	// pickRow is the number of packets in a row, dropRate how many packets a flow must have to stay.
	pickRow, dropRate = 2048, 1.
	// sampleBytes is the memory of a sample without its two keys: three counters and the place.
	sampleBytes = 16
)

func pickAndDropBlock(memory, keyBytes int, seed uint64) (block, error) {
	n := memory / (2*keyBytes + sampleBytes)
	if n < 1 {
		return nil, fmt.Errorf("pick-and-drop: %d bytes are too few", memory)
	}
	return &pickAndDrop{random: rand.New(rand.NewPCG(seed, 0x7069636b)), samples: make([]sample, n)}, nil
}

func (p *pickAndDrop) insert(key []byte) {
	p.row = append(p.row, slices.Clone(key))
	if len(p.row) == pickRow {
		p.end()
	}
}

func (p *pickAndDrop) end() {
	counts := make(map[string]float64)
	from := make([]float64, len(p.row)) // packets of the flow from each place on
	for i := len(p.row) - 1; i >= 0; i-- {
		counts[string(p.row[i])]++
		from[i] = counts[string(p.row[i])]
	}
	for i := range p.samples {
		s := &p.samples[i]
		place := p.random.IntN(len(p.row))
		if s.count < max(from[place], dropRate*s.rows) {
			*s = sample{string(p.row[place]), from[place], 1}
		} else {
			s.count, s.rows = s.count+counts[s.key], s.rows+1
		}
	}
	p.row = p.row[:0]
}

func (p *pickAndDrop) heavy() map[string]float64 {
	if len(p.row) > 0 {
		p.end()
	}
	p.found = make(map[string]float64)
	for _, s := range p.samples {
		if s.count > 0 {
			p.found[s.key] = max(p.found[s.key], s.count)
		}
	}
	return p.found
}

// size returns 0 for a flow that no sample has, because sampling does not know other flows.
func (p *pickAndDrop) size(key string) float64 { return p.found[key] }

// paperSketch is the universal sketch as the paper writes it: a packet updates every level that its
// flow reaches, and Algorithm 2 computes sums from the flows that the levels' blocks name.
type paperSketch struct {
	seed   uint64
	levels []block
	found  []map[string]float64
}

const paperLevels = 12

func newPaperSketch(build blockKind, memory, keyBytes int, seed uint64) (*paperSketch, error) {
	u := &paperSketch{seed: seed}
	for i := range uint64(paperLevels) {
		b, err := build(memory/paperLevels, keyBytes, seed*paperLevels+i)
		if err != nil {
			return nil, err
		}
		u.levels = append(u.levels, b)
	}
	return u, nil
}

// deepest returns the last level that a key reaches. Each further bit of a hash passes half of a
// level's flows on to the next level.
func (u *paperSketch) deepest(key []byte) int {
	cols := family.NewRange(1 << 20)
	h := family.Column[host](family.Digest[host](u.seed^0x6c6576656c, key), 7, &cols)
	level := 0
	for ; level < paperLevels-1 && h>>level&1 == 1; level++ {
	}
	return level
}

func (u *paperSketch) insert(key []byte) {
	for i := range u.deepest(key) + 1 {
		u.levels[i].insert(key)
	}
}

func (u *paperSketch) seal() {
	for _, b := range u.levels {
		u.found = append(u.found, b.heavy())
	}
}

// sum is Algorithm 2.
func (u *paperSketch) sum(g func(x float64) float64) float64 {
	return u.recurse(u.found, func(level int, key string) float64 { return g(u.found[level][key]) })
}

// recurse adds up a function of each level's flows, beginning with the deepest level.
func (u *paperSketch) recurse(found []map[string]float64, g func(level int, key string) float64) float64 {
	y := 0.0
	for i := paperLevels - 1; i >= 0; i-- {
		level := 0.0
		for _, key := range slices.Sorted(maps.Keys(found[i])) {
			x := g(i, key)
			if i < paperLevels-1 && u.deepest([]byte(key)) > i {
				x = -x
			}
			level += x
		}
		y = 2*y + level
	}
	return y
}

// changes returns the flows of either sketch with their change, which is the difference of both
// sketches' counters, and the total change by Algorithm 2 (UnivMon §4.3).
func (u *paperSketch) changes(before *paperSketch) (found map[string]float64, total float64) {
	levels := make([]map[string]float64, paperLevels)
	for i := range levels {
		levels[i] = make(map[string]float64)
		for _, flows := range []map[string]float64{before.found[i], u.found[i]} {
			for key := range flows {
				levels[i][key] = math.Abs(u.levels[i].size(key) - before.levels[i].size(key))
			}
		}
	}
	return levels[0], u.recurse(levels, func(level int, key string) float64 { return levels[level][key] })
}

func (u *paperSketch) above(limit float64) map[string]float64 {
	out := make(map[string]float64)
	for k, x := range u.found[0] {
		if x >= limit {
			out[k] = x
		}
	}
	return out
}

// blockKind makes blocks.
type blockKind func(memory, keyBytes int, seed uint64) (block, error)

// fillPaper inserts all packets.
func fillPaper(t *trace.Trace, build blockKind, memory int, seed uint64) (*paperSketch, error) {
	u, err := newPaperSketch(build, memory, t.KeyBytes(), seed)
	if err != nil {
		return nil, err
	}
	for i := range t.Len() {
		u.insert(t.Key(i))
	}
	u.seal()
	return u, nil
}

func paperAnswers(w *interval, build blockKind, memory int, seed uint64) (answers, error) {
	t := w.one
	truth, n := t.Exact(), float64(t.Len())
	u, err := fillPaper(t, build, memory, seed)
	if err != nil {
		return nil, err
	}
	entropy := math.Log2(n) - u.sum(func(x float64) float64 { return x * math.Log2(x) })/n
	distinct := u.sum(func(float64) float64 { return 1 })
	a := answers{
		{"distinct sources", "error"}: suite.Relative(distinct, float64(len(t.Flows()))),
		{"entropy", "error"}:          suite.Relative(entropy, truth.Entropy),
	}
	a.score("heavy hitters", u.above(univmonShare*n), w.size)
	a.score(capacityHitters, u.above(capacityShare*n), noLess(w.size, capacityShare*n))
	truth = w.two.Exact()
	before, err := fillPaper(truth.Before, build, memory, seed)
	if err != nil {
		return nil, err
	}
	after, err := fillPaper(truth.After, build, memory, seed)
	if err != nil {
		return nil, err
	}
	found, total := after.changes(before)
	maps.DeleteFunc(found, func(_ string, d float64) bool { return d < univmonShare*total })
	a.score("heavy changes", found, truth.Changed(univmonShare*truth.Change()))
	return a, nil
}

func univmonFigure13() suite.Suite {
	const memory = 600_000
	blocks := []struct {
		name  string
		build blockKind
	}{{"Count sketch", countBlock}, {"Pick-and-drop", pickAndDropBlock}, {"CM", countMinBlock}}
	tasks := []string{"entropy", "heavy hitters", "distinct sources", "heavy changes", capacityHitters}
	return suite.New(suite.Suite{
		Name: "univmon-13",
		Measure: func(ctx context.Context, t *trace.Trace, o suite.Options) ([]suite.Row, error) {
			w, err := univmonInterval(t, 5, o.Seed)
			if err != nil {
				return nil, err
			}
			results := make([]answers, (len(blocks)+1)*o.Runs)
			err = suite.Each(ctx, len(results), func(i int) (err error) {
				b, seed := i/o.Runs, o.Seed+uint64(i%o.Runs)
				if b == len(blocks) {
					results[i], err = univmon(w, memory, seed)
				} else {
					results[i], err = paperAnswers(w, blocks[b].build, memory, seed)
				}
				return err
			})
			if err != nil {
				return nil, err
			}
			var rows []suite.Row
			for b := range len(blocks) + 1 {
				name, variant := "UnivMon here", "12 levels, 3 rows"
				if b < len(blocks) {
					name, variant = blocks[b].name, "12 levels"
				}
				for _, task := range tasks {
					for _, metric := range []string{"error", "F1"} {
						rows = medianRow(rows, name, variant, memory, task, metric, w.two.Name,
							results[b*o.Runs:(b+1)*o.Runs])
					}
				}
			}
			return rows, nil
		},
	})
}
