// SPDX-License-Identifier: Apache-2.0

package sketches

import (
	"errors"
	"fmt"
	"math"

	"github.com/netsketch/netsketch/lab/figures/baseline"
	"github.com/netsketch/netsketch/lab/figures/trace"
	"github.com/netsketch/netsketch/sketch/countmin"
	"github.com/netsketch/netsketch/sketch/estimate"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/sumax"
	"github.com/netsketch/netsketch/sketch/tower"
	"github.com/netsketch/netsketch/sketch/universal"
)

type host = family.Fast

// structure is one sketch under test. Functions that it does not have are nil.
type structure struct {
	insert       func(key []byte)
	insertBatch  func(keys []byte) // inserts like insert, key by key; nil for structures without it
	size         func(key []byte) float64
	kept         func(key []byte) float64 // size of a kept flow; only for structures without size
	heavy        func(limit float64) map[string]float64
	distribution func() (estimate.Distribution, error)
	entropy      func() float64
	cardinality  func() float64
	moment2      func() float64
	estimate     func() *universal.Estimate // estimate of UnivMon
	seal         func() error               // called before the first query
}

// kind builds structures of one name.
type kind struct {
	name, variant string
	build         func(t *trace.Trace, memory int, limit float64, seed uint64) (*structure, error)
}

// tableSize is the number of heavy flows in the hash table that sketches without keys get
// (SketchINT §VII-B).
const tableSize = 1024

// withTable adds a hash table of tableSize heavy flows: a flow enters it once its estimate exceeds
// the limit.
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
	return kind{variant, "3 rows", func(_ *trace.Trace, memory int, limit float64, seed uint64) (*structure, error) {
		c, err := countmin.New[host](countmin.Config{Memory: memory, Conservative: conservative, Seed: seed})
		if err != nil {
			return nil, err
		}
		s := &structure{
			insert:       c.Insert,
			size:         func(k []byte) float64 { return float64(c.Query(k)) },
			distribution: func() (estimate.Distribution, error) { return estimate.MRAC{}.Run(c.Row(0)) },
			cardinality:  func() float64 { return flowsOf(c.Row(0), c.Row(1), c.Row(2)) },
		}
		if conservative {
			s.distribution = func() (estimate.Distribution, error) {
				return estimate.Maxima([][]uint32{c.Row(0), c.Row(1), c.Row(2)},
					[]uint32{math.MaxUint32, math.MaxUint32, math.MaxUint32})
			}
		}
		s.withTable(limit)
		return s, nil
	}}
}

func towerKind(conservative bool, name string) kind {
	return kind{name, "2 to 32 bits", func(_ *trace.Trace, memory int, limit float64, seed uint64) (*structure, error) {
		t, err := tower.New[host](tower.Config{Memory: memory, Conservative: conservative, Seed: seed})
		if err != nil {
			return nil, err
		}
		s := &structure{
			insert:       t.Insert,
			size:         func(k []byte) float64 { return float64(t.Query(k)) },
			distribution: func() (estimate.Distribution, error) { return towerDistribution(t) },
			cardinality:  func() float64 { return towerFlows(t) },
		}
		if conservative {
			s.distribution = func() (estimate.Distribution, error) { return towerMaxima(t) }
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

func towerMaxima(t *tower.Sketch[host]) (estimate.Distribution, error) {
	var rows [][]uint32
	var limits []uint32
	for i, r := range t.Rows() {
		rows, limits = append(rows, t.Row(i)), append(limits, uint32(1<<r.Bits-1))
	}
	return estimate.Maxima(rows, limits)
}

func flowsOf(rows ...[]uint32) float64 {
	n, _ := estimate.Flows(rows...)
	return n
}

func towerFlows(t *tower.Sketch[host]) float64 {
	var rows [][]uint32
	for i := range t.Rows() {
		rows = append(rows, t.Row(i))
	}
	return flowsOf(rows...)
}

func elasticKind() kind {
	return kind{"Elastic", "heavy and light part",
		func(t *trace.Trace, memory int, _ float64, seed uint64) (*structure, error) {
			e, err := baseline.NewElastic[host](memory, t.KeyBytes(), seed)
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

// elasticSwitch is ElasticSketch as chamelemon App. C has it: four tables of 3,072 flows, and 8-bit
// counters.
func elasticSwitch() kind {
	return kind{"Elastic", "4 tables, 8-bit counters",
		func(t *trace.Trace, memory int, _ float64, seed uint64) (*structure, error) {
			return fcmStructure(baseline.NewElasticSwitch[host](memory, t.KeyBytes(), seed))
		}}
}

// fcmKind is FCM-Sketch with the tables of elasticSwitch.
func fcmKind() kind {
	return kind{"FCM", "4 tables, 2 16-ary trees",
		func(t *trace.Trace, memory int, _ float64, seed uint64) (*structure, error) {
			return fcmStructure(baseline.NewFCM[host](memory, t.KeyBytes(), seed))
		}}
}

func fcmStructure(e *baseline.FCM[host], err error) (*structure, error) {
	if err != nil {
		return nil, err
	}
	return &structure{
		insert: func(k []byte) { _ = e.Insert(k) }, size: func(k []byte) float64 { return float64(e.Query(k)) },
		heavy:        above(e.Heavy),
		distribution: e.Distribution, cardinality: func() float64 { n, _ := e.Cardinality(); return n },
	}, nil
}

func coco() kind {
	return kind{"Coco", "1 row", func(t *trace.Trace, memory int, _ float64, seed uint64) (*structure, error) {
		c, err := baseline.NewCoco[host](memory, t.KeyBytes(), seed)
		if err != nil {
			return nil, err
		}
		return &structure{insert: func(k []byte) { _ = c.Insert(k) },
			kept: func(k []byte) float64 { return float64(c.Query(k)) }, heavy: above(c.Heavy)}, nil
	}}
}

// mrac is one row of counters, for the distribution alone.
func mrac() kind {
	return kind{"MRAC", "1 row", func(_ *trace.Trace, memory int, _ float64, seed uint64) (*structure, error) {
		c, err := countmin.New[host](countmin.Config{Rows: 1, Memory: memory, Seed: seed})
		if err != nil {
			return nil, err
		}
		return &structure{insert: c.Insert, distribution: func() (estimate.Distribution,
			error) {
			return estimate.MRAC{}.Run(c.Row(0))
		}}, nil
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
	return kind{"Count-heap", "3 rows, 4096 flows",
		func(t *trace.Trace, memory int, _ float64, seed uint64) (*structure, error) {
			c, err := baseline.NewCountHeap[host](memory, t.KeyBytes(), 4096, seed)
			if err != nil {
				return nil, err
			}
			return &structure{insert: func(k []byte) { _ = c.Insert(k) },
				size: func(k []byte) float64 { return max(1, float64(c.Query(k))) }, heavy: above(c.Heavy)}, nil
		}}
}

func hashPipe() kind {
	return kind{"HashPipe", "6 stages", func(t *trace.Trace, memory int, _ float64, seed uint64) (*structure, error) {
		p, err := baseline.NewHashPipe[host](memory, t.KeyBytes(), 6, seed)
		if err != nil {
			return nil, err
		}
		return &structure{insert: func(k []byte) { _ = p.Insert(k) },
			kept: func(k []byte) float64 { return float64(p.Query(k)) }, heavy: above(p.Heavy)}, nil
	}}
}

func sumaxKind() kind {
	return kind{"SuMax", "3 rows", func(_ *trace.Trace, memory int, limit float64, seed uint64) (*structure, error) {
		c, err := sumax.New[host](sumax.Config{Memory: memory, Seed: seed})
		if err != nil {
			return nil, err
		}
		s := &structure{
			insert: c.Insert, size: func(k []byte) float64 { v, _ := c.Query(k); return float64(v) },
			distribution: func() (estimate.Distribution, error) { return estimate.MRAC{}.Run(c.Row(0)) },
			cardinality:  func() float64 { return flowsOf(c.Row(0), c.Row(1), c.Row(2)) },
		}
		s.withTable(limit)
		return s, nil
	}}
}

// fill inserts all packets, and seals.
func (k kind) fill(t *trace.Trace, memory int, limit float64, seed uint64) (*structure, error) {
	s, err := k.build(t, memory, limit, seed)
	if err != nil {
		return nil, fmt.Errorf("%s at %d bytes: %w", k.name, memory, err)
	}
	if s.insert == nil {
		return nil, errors.New("nothing to insert with")
	}
	if s.insertBatch != nil {
		s.insertBatch(t.Keys())
	} else {
		for i := range t.Len() {
			s.insert(t.Key(i))
		}
	}
	if s.seal != nil {
		if err := s.seal(); err != nil {
			return nil, fmt.Errorf("%s at %d bytes: %w", k.name, memory, err)
		}
	}
	return s, nil
}
