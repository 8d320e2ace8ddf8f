// SPDX-License-Identifier: Apache-2.0

package sketchbench

import (
	"errors"
	"fmt"

	"github.com/netsketch/netsketch/sketch/baseline"
	"github.com/netsketch/netsketch/sketch/countmin"
	"github.com/netsketch/netsketch/sketch/countsketch"
	"github.com/netsketch/netsketch/sketch/estimate"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/fermat"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/sumax"
	"github.com/netsketch/netsketch/sketch/tower"
	"github.com/netsketch/netsketch/sketch/universal"
)

type host = family.Fast

// structure is one sketch under test. Those of its answers that it does not have are nil.
type structure struct {
	insert       func(key []byte)
	batch        func(keys []byte) // nil: insert
	size         func(key []byte) float64
	kept         func(key []byte) float64 // the size of a flow that is kept, for those without size
	heavy        func(limit float64) map[string]float64
	distribution func() (estimate.Distribution, error)
	entropy      func() float64
	cardinality  func() float64
	moment2      func() float64
	seal         func() error // before the first question
}

// kind builds structures of one name.
type kind struct {
	name, variant string
	build         func(memory int, limit float64, seed uint64) (*structure, error)
}

// tableSize is the hash table of heavy flows beside sketches that keep no keys (SketchINT §VII-B).
const tableSize = 1024

// withTable adds such a table: a flow is put in once its estimate exceeds the limit.
func (s *structure) withTable(limit float64) {
	table := make(map[string]bool)
	insert := s.insert
	s.insert = func(key []byte) {
		insert(key)
		if s.size(key) >= limit && len(table) < tableSize && !table[string(key)] {
			table[string(key)] = true
		}
	}
	s.heavy = func(limit float64) map[string]float64 {
		out := make(map[string]float64)
		for k := range table {
			if x := s.size([]byte(k)); x >= limit {
				out[k] = x
			}
		}
		return out
	}
}

func countMin(conservative bool, variant string) kind {
	return kind{variant, "3 rows", func(memory int, limit float64, seed uint64) (*structure, error) {
		c, err := countmin.New[host](countmin.Config{Memory: memory, Conservative: conservative, Seed: seed})
		if err != nil {
			return nil, err
		}
		s := &structure{
			insert: c.Insert, batch: func(k []byte) { _ = c.InsertBatch(k, KeyBytes) },
			size:         func(k []byte) float64 { return float64(c.Query(k)) },
			distribution: func() (estimate.Distribution, error) { return estimate.MRAC{}.Run(c.Row(0)) },
			cardinality: func() float64 {
				n, _ := estimate.Cardinality(c.Config().Width, estimate.Zeros(c.Row(0)))
				return n
			},
		}
		s.withTable(limit)
		return s, nil
	}}
}

func towerKind(conservative bool, name string) kind {
	return kind{name, "2 to 32 bits", func(memory int, limit float64, seed uint64) (*structure, error) {
		t, err := tower.New[host](tower.Config{Memory: memory, Conservative: conservative, Seed: seed})
		if err != nil {
			return nil, err
		}
		s := &structure{
			insert: t.Insert, batch: func(k []byte) { _ = t.InsertBatch(k, KeyBytes) },
			size:         func(k []byte) float64 { return float64(t.Query(k)) },
			distribution: func() (estimate.Distribution, error) { return towerDistribution(t) },
			cardinality:  func() float64 { return towerFlows(t) },
		}
		s.withTable(limit)
		return s, nil
	}}
}

func towerDistribution(t *tower.Sketch[host]) (estimate.Distribution, error) {
	var rows [][]uint32
	var bits []int
	for i, r := range t.Rows() {
		rows, bits = append(rows, t.Row(i)), append(bits, r.Bits)
	}
	return estimate.Rows(rows, bits, estimate.MRAC{Largest: 512})
}

func towerFlows(t *tower.Sketch[host]) float64 {
	row := t.Row(0)
	n, _ := estimate.Cardinality(len(row), estimate.Zeros(row))
	return n
}

func elasticKind() kind {
	return kind{"Elastic", "heavy and light part", func(memory int, _ float64, seed uint64) (*structure, error) {
		e, err := baseline.NewElastic[host](memory, KeyBytes, seed)
		if err != nil {
			return nil, err
		}
		return &structure{
			insert: func(k []byte) { _ = e.Insert(k) }, size: func(k []byte) float64 { return float64(e.Query(k)) },
			heavy: above(e.Heavy), distribution: e.Distribution,
			cardinality: func() float64 { n, _ := e.Cardinality(); return n },
		}, nil
	}}
}

func above(flows func() []baseline.Flow) func(float64) map[string]float64 {
	return func(limit float64) map[string]float64 {
		out := make(map[string]float64)
		for _, f := range flows() {
			if float64(f.Count) >= limit {
				out[string(f.Key)] = float64(f.Count)
			}
		}
		return out
	}
}

func countHeap() kind {
	return kind{"Count-heap", "3 rows, 4096 flows", func(memory int, _ float64, seed uint64) (*structure, error) {
		c, err := baseline.NewCountHeap[host](memory, KeyBytes, 4096, seed)
		if err != nil {
			return nil, err
		}
		return &structure{insert: func(k []byte) { _ = c.Insert(k) }, size: func(k []byte) float64 { return max(1, float64(c.Query(k))) }, heavy: above(c.Heavy)}, nil
	}}
}

func hashPipe() kind {
	return kind{"HashPipe", "6 stages", func(memory int, _ float64, seed uint64) (*structure, error) {
		p, err := baseline.NewHashPipe[host](memory, KeyBytes, 6, seed)
		if err != nil {
			return nil, err
		}
		return &structure{insert: func(k []byte) { _ = p.Insert(k) }, kept: func(k []byte) float64 { return float64(p.Query(k)) }, heavy: above(p.Heavy)}, nil
	}}
}

func countSketch() kind {
	return kind{"Count", "3 rows", func(memory int, limit float64, seed uint64) (*structure, error) {
		c, err := countsketch.New[host](countsketch.Config{Memory: memory, Seed: seed})
		if err != nil {
			return nil, err
		}
		s := &structure{insert: c.Insert, batch: func(k []byte) { _ = c.InsertBatch(k, KeyBytes) }, size: func(k []byte) float64 { return float64(c.Query(k)) }, moment2: c.Moment2}
		s.withTable(limit)
		return s, nil
	}}
}

func sumaxKind() kind {
	return kind{"SuMax", "3 rows", func(memory int, limit float64, seed uint64) (*structure, error) {
		c, err := sumax.New[host](sumax.Config{Memory: memory, Seed: seed})
		if err != nil {
			return nil, err
		}
		s := &structure{
			insert: c.Insert, size: func(k []byte) float64 { v, _ := c.Query(k); return float64(v) },
			distribution: func() (estimate.Distribution, error) { return estimate.MRAC{}.Run(c.Row(0)) },
			cardinality: func() float64 {
				n, _ := estimate.Cardinality(c.Config().Width, estimate.Zeros(c.Row(0)))
				return n
			},
		}
		s.withTable(limit)
		return s, nil
	}}
}

// fermatBuckets are those of chamelemon App. E: 2,500 decode 99.9 % of the time.
const fermatBuckets = 2500

// towerFermat is ChameleMon's combination: packets beyond the limit's half, which is the
// heavy-change threshold, go into Fermat. Its buckets take 20 bytes in Prime32, as the paper's.
func towerFermat[E fermat.Field]() kind {
	return kind{"Tower+Fermat", "8 and 16 bits, 2500 buckets", func(memory int, limit float64, seed uint64) (*structure, error) {
		f, err := fermat.New[host, E](fermat.Config{Width: fermatBuckets / 3, KeyBytes: KeyBytes, Seed: seed})
		if err != nil {
			return nil, err
		}
		t, err := tower.New[host](tower.Config{Memory: memory - f.Memory(), Bits: []int{8, 16}, Seed: seed + 1})
		if err != nil {
			return nil, err
		}
		threshold := uint32(max(1, limit/2))
		var large map[string]float64
		s := &structure{
			insert: func(k []byte) {
				if t.InsertQuery(k) > threshold {
					_ = f.Insert(k)
				}
			},
			seal: func() error {
				r, err := f.Decode()
				if err != nil {
					return err
				}
				large = make(map[string]float64)
				for _, x := range r.Flows {
					if x.Sure {
						large[string(x.Key)] = float64(x.Count) + float64(threshold)
					}
				}
				return nil
			},
			size: func(k []byte) float64 {
				if x, ok := large[string(k)]; ok {
					return x
				}
				return float64(t.Query(k))
			},
			heavy: func(limit float64) map[string]float64 {
				out := make(map[string]float64)
				for k, x := range large {
					if x >= limit {
						out[k] = x
					}
				}
				return out
			},
			distribution: func() (estimate.Distribution, error) {
				d, err := towerDistribution(t)
				if err != nil {
					return nil, err
				}
				d = d[:min(len(d), int(threshold)+1)]
				for _, x := range large {
					for int(x) >= len(d) {
						d = append(d, make(estimate.Distribution, int(x)+1-len(d))...)
					}
					d[int(x)]++
				}
				return d, nil
			},
			cardinality: func() float64 { return towerFlows(t) },
		}
		return s, nil
	}}
}

// univmonLayout scales the layout of 1 MB.
func univmonLayout(memory int, key flow.Fields) universal.Layout {
	l := universal.Layout{Key: key, Levels: 12, Rows: 3, Ways: 4}
	share := float64(memory) / (12 * 4 * (3*5120 + 4*128*12))
	l.Columns, l.Slots = max(1, int(5120*share)), max(1, int(128*share))
	return l
}

func univmonKind() kind {
	return kind{"UnivMon", "12 levels, 3 rows", func(memory int, _ float64, _ uint64) (*structure, error) {
		u, err := universal.New(univmonLayout(memory, flow.FiveTuple))
		if err != nil {
			return nil, err
		}
		var e *universal.Estimate
		parse := func(k []byte) flow.Key { key, _ := flow.ParseBinary(flow.FiveTuple, k); return key }
		return &structure{
			insert: func(k []byte) { key := parse(k); u.Update(&key) },
			seal:   func() error { e = u.Reading().Estimate(); return nil },
			heavy: func(limit float64) map[string]float64 {
				out := make(map[string]float64)
				for _, f := range e.Above(limit) {
					out[string(f.Key.AppendBinary(nil))] = f.Packets
				}
				return out
			},
			size:    func(k []byte) float64 { return e.Size(parse(k)) },
			entropy: func() float64 { return e.Entropy() }, cardinality: func() float64 { return e.Distinct() }, moment2: func() float64 { return e.Moment2() },
		}, nil
	}}
}

// fill inserts packets from to to, and seals.
func (k kind) fill(t *Trace, memory, from, to int, limit float64, seed uint64, renamed bool) (*structure, error) {
	s, err := k.build(memory, limit, seed)
	if err != nil {
		return nil, fmt.Errorf("%s at %d bytes: %w", k.name, memory, err)
	}
	if s.insert == nil {
		return nil, errors.New("nothing to insert with")
	}
	var buf [KeyBytes]byte
	for i := from; i < to; i++ {
		key := t.Key(i)
		if renamed {
			key = otherName(&buf, key)
		}
		s.insert(key)
	}
	if s.seal != nil {
		if err := s.seal(); err != nil {
			return nil, fmt.Errorf("%s at %d bytes: %w", k.name, memory, err)
		}
	}
	return s, nil
}
