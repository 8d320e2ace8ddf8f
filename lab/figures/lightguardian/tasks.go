// SPDX-License-Identifier: Apache-2.0

package lightguardian

import (
	"context"
	"fmt"
	"math"
	"strconv"

	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
	"github.com/netsketch/netsketch/sketch/countmin"
	"github.com/netsketch/netsketch/sketch/estimate"
	"github.com/netsketch/netsketch/sketch/sumax"
)

const (
	largestSize = 1 << 24 // largest size in a distribution
	mostMemory  = 200e6   // largest memory that is tried
)

// named are sketches of flow sizes with three rows, by name.
var named = []struct {
	name string
	make func(memory int, seed uint64) (insert func([]byte), query func([]byte) float64, err error)
}{
	{"SuMax", func(memory int, seed uint64) (func([]byte), func([]byte) float64, error) {
		s, err := sumax.New[local](sumax.Config{Memory: memory, Seed: seed})
		if err != nil {
			return nil, nil, err
		}
		return s.Insert, func(k []byte) float64 { v, _ := s.Query(k); return float64(v) }, nil
	}},
	{"CM", func(memory int, seed uint64) (func([]byte), func([]byte) float64, error) {
		return countMin(memory, false, seed)
	}},
	{"CU", func(memory int, seed uint64) (func([]byte), func([]byte) float64, error) {
		return countMin(memory, true, seed)
	}},
}

func countMin(memory int, conservative bool, seed uint64) (func([]byte), func([]byte) float64, error) {
	c, err := countmin.New[local](countmin.Config{Memory: memory, Conservative: conservative, Seed: seed})
	if err != nil {
		return nil, nil, err
	}
	return c.Insert, func(k []byte) float64 { return float64(c.Query(k)) }, nil
}

// sizeARE is the average relative error of the largest flows.
func sizeARE(flows []trace.Flow, query func([]byte) float64) (are float64) {
	for _, f := range flows {
		are += math.Abs(query([]byte(f.Key))-float64(f.Packets)) / float64(f.Packets) / float64(len(flows))
	}
	return are
}

const (
	topTask      = "largest flows"
	memoryTask   = "memory for an ARE of 0.01"
	table3Task   = "memory"
	distribution = "flow size distribution"
)

func byTop(t *trace.Trace, scale float64, seed uint64) (rows []suite.Row, err error) {
	for _, s := range named {
		insert, query, err := s.make(int(kilobytes768*scale), seed)
		if err != nil {
			return nil, err
		}
		for i := range t.Len() {
			insert(t.Key(i))
		}
		for _, k := range tops {
			flows := t.Flows()[:min(max(int(float64(k)*scale), 1), len(t.Flows()))]
			rows = append(rows, suite.Row{Structure: s.name, Variant: fmt.Sprintf("flows %d", k), Memory: kilobytes768,
				Task: topTask, Metric: "ARE", Value: sizeARE(flows, query), Unit: "ratio"})
		}
	}
	return rows, nil
}

// steps are the memories that are tried in turn, a quarter larger each, in bytes.
func steps(from, to float64) (out []int) {
	for m := from; m < to; m *= 1.25 {
		out = append(out, int(m))
	}
	return out
}

// least returns the least memory from which an error is at most a limit, by bisection; 0 if no
// memory suffices.
func least(memories []int, limit float64, failure func(memory int) (float64, error)) (float64, error) {
	low, high := 0, len(memories)
	for low < high {
		mid := (low + high) / 2
		e, err := failure(memories[mid])
		if err != nil {
			return 0, err
		}
		if e <= limit {
			high = mid
		} else {
			low = mid + 1
		}
	}
	if low == len(memories) {
		return 0, nil
	}
	return float64(memories[low]), nil
}

// byPackets searches for the least memory with which the ARE of the largest flows is 0.01.
func byPackets(t *trace.Trace, scale float64, seed uint64) (rows []suite.Row, err error) {
	for millions := 1; millions <= 6; millions++ {
		w := t
		if millions < 6 {
			w = t.Window(0, t.Len()*millions/6)
		}
		n := max(int(top*scale), 1)
		memory, err := least(steps(10_000*scale, 50e6*scale), 0.01, func(memory int) (float64, error) {
			insert, query, err := named[0].make(memory, seed)
			if err != nil {
				return 0, err
			}
			for i := range w.Len() {
				insert(w.Key(i))
			}
			return sizeARE(w.Flows()[:n], query), nil
		})
		if err != nil {
			return nil, err
		}
		rows = append(rows, suite.Row{Structure: "SuMax", Variant: fmt.Sprintf("million packets %d", millions),
			Task: memoryTask, Metric: "memory", Value: memory / 1e6 / scale, Unit: "MB"})
	}
	return rows, nil
}

// goal is a task of Table 3 with the error that it must not exceed.
type goal struct {
	name  string
	limit float64 // the error
	of    func(m *measured, memory int) (float64, error)
}

func (m *measured) sizes(memory int) (*sumax.Sketch[local], error) {
	s, err := sumax.New[local](sumax.Config{Memory: memory, Seed: m.seed})
	if err != nil {
		return nil, err
	}
	return s, s.InsertBatch(m.t.Keys(), m.t.KeyBytes())
}

// distributed returns errors of an estimated distribution. If no distribution can be estimated, the
// error is 1.
func (m *measured) distributed(memory int, failure func(truth *trace.Exact, d estimate.Distribution) float64,
) (float64, error) {
	s, err := m.sizes(memory)
	if err != nil {
		return 0, err
	}
	d, _, err := s.Distribution(largestSize)
	if err != nil {
		return 1, nil // no bucket is empty
	}
	return failure(m.t.Exact(), d), nil
}

func wmre(truth *trace.Exact, d estimate.Distribution) float64 {
	return estimate.WMRE(truth.Distribution, d)
}

var goals = []goal{
	{"flow size", 0.01, func(m *measured, memory int) (float64, error) {
		s, err := m.sizes(memory)
		if err != nil {
			return 0, err
		}
		return sizeARE(m.t.Flows()[:max(int(top*m.scale), 1)], func(k []byte) float64 {
			v, _ := s.Query(k)
			return float64(v)
		}), nil
	}},
	{distribution, 0.05, func(m *measured, memory int) (float64, error) {
		return m.distributed(memory, wmre)
	}},
	{"cardinality", 0.005, func(m *measured, memory int) (float64, error) {
		s, err := m.sizes(memory)
		if err != nil {
			return 0, err
		}
		flows, ok := s.Cardinality()
		if !ok {
			return 1, nil
		}
		return math.Abs(flows/float64(len(m.t.Flows())) - 1), nil
	}},
	{"entropy", 0.001, func(m *measured, memory int) (float64, error) {
		return m.distributed(memory, func(truth *trace.Exact, d estimate.Distribution) float64 {
			return math.Abs(d.Entropy()/truth.Entropy - 1)
		})
	}},
	{"delay distribution", 0.05, func(m *measured, memory int) (float64, error) {
		e, err := m.delays(delayLaws[0], memory, []int{top})
		return e[0][0], err
	}},
	{"maximum inter-arrival time", 0.01, (*measured).gaps},
	{"last arrival", 0.01, func(m *measured, memory int) (float64, error) {
		e, err := m.lastArrivals(memory)
		return e.relative, err
	}},
}

// gaps is the ARE of the maximum inter-arrival times of flows with two packets or more.
func (m *measured) gaps(memory int) (float64, error) {
	rows, err := m.gapsBySize(memory)
	sum, n := 0.0, 0.0
	for _, r := range rows {
		sum, n = sum+r.sum, n+r.n
	}
	return sum / max(n, 1), err
}

// table3 searches for the memory of a line of Table 3.
func (m *measured) table3(g goal) ([]suite.Row, error) {
	memory, err := least(steps(10_000*m.scale, mostMemory*m.scale), g.limit, func(memory int) (float64, error) {
		return g.of(m, memory)
	})
	return []suite.Row{{Structure: g.name, Variant: "error " + strconv.FormatFloat(g.limit, 'g', -1, 64),
		Task: table3Task, Metric: "memory", Value: memory / 1e6 / m.scale, Unit: "MB"}}, err
}

// distributionMemories are the memories in Figure 11(c).
var distributionMemories = []int{kilobytes768, 2 * kilobytes768, 4 * kilobytes768, 8 * kilobytes768, 16 * kilobytes768}

func byMemory(m *measured) (rows []suite.Row, err error) {
	for _, memory := range distributionMemories {
		sized := int(float64(memory) * m.scale)
		e, err := m.distributed(sized, wmre)
		if err != nil {
			return nil, err
		}
		c, err := countmin.New[local](countmin.Config{Memory: sized, Seed: m.seed})
		if err != nil {
			return nil, err
		}
		if err := c.InsertBatch(m.t.Keys(), m.t.KeyBytes()); err != nil {
			return nil, err
		}
		other := 1.
		if d, err := (estimate.MRAC{}).Run(c.Row(0)); err == nil {
			other = wmre(m.t.Exact(), d)
		}
		for i, name := range []string{"SuMax", "CM"} {
			rows = append(rows, suite.Row{Structure: name, Memory: memory, Task: distribution, Metric: "WMRE",
				Value: []float64{e, other}[i], Unit: "ratio"})
		}
	}
	return rows, nil
}

func measureTasks(ctx context.Context, scale float64, seed uint64) (rows []suite.Row, err error) {
	t, err := workloadOf(scale, seed)
	if err != nil {
		return nil, err
	}
	m := &measured{t, seed, scale}
	work := []func() ([]suite.Row, error){
		func() ([]suite.Row, error) { return byTop(t, scale, seed) },
		func() ([]suite.Row, error) { return byPackets(t, scale, seed) },
		func() ([]suite.Row, error) { return byMemory(m) },
	}
	for _, g := range goals {
		work = append(work, func() ([]suite.Row, error) { return m.table3(g) })
	}
	rows, err = inTurn(ctx, work)
	return append(rows, suite.Row{Structure: "trace", Task: "workload", Metric: "flows",
		Value: float64(len(t.Flows())) / scale, Unit: "flows"}), err
}

func taskFigure() suite.Suite {
	return suite.New(suite.Suite{
		Name: "lightguardian-11",
		Measure: func(ctx context.Context, _ *trace.Trace, o suite.Options) ([]suite.Row, error) {
			return measureTasks(ctx, 1, o.Seed)
		},
	})
}
