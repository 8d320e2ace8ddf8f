// SPDX-License-Identifier: Apache-2.0

package sketchint

import (
	"context"

	"github.com/netsketch/netsketch/hostagent/sketchint/wire"
	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/tower"
)

// The tasks of Figure 7, and the bytes of a host's tower for each.
const (
	hitterTask    = "heavy hitters of switches"
	changeTask    = "heavy changes of switches"
	latencyTask   = "latencies of flows at switches"
	inflationTask = "inflated latencies of flows at switches"
	costTask      = "collection"
	ofRole        = "role"
)

var (
	flowMemories      = []int{10_000, 20_000, 30_000, 40_000, 50_000}
	inflationMemories = []int{200_000, 300_000, 400_000, 500_000, 600_000}
	latencyMemories   = []int{1_000_000, 1_500_000, 2_000_000, 2_500_000, 3_000_000}
)

// part is the share of the paper's flows that is measured.
const part = 1

// flowTasks measures Figure 7 (a) and (b).
func flowTasks(share float64, seed uint64) ([]suite.Row, error) {
	b, err := newTestbed(share, seed)
	if err != nil {
		return nil, err
	}
	tables := make([][][2]*table, len(counters)) // tables by structure and memory
	var roles []*agents
	for i, c := range counters {
		for _, memory := range flowMemories {
			var pair [2]*table
			for k := range pair {
				if pair[k], err = newTable(c.make, scaled(memory, share)); err != nil {
					return nil, err
				}
			}
			tables[i] = append(tables[i], pair)
		}
	}
	for _, memory := range flowMemories {
		a, err := newAgents(scaled(memory, share), scaled(latencyMemories[0], share))
		if err != nil {
			return nil, err
		}
		roles = append(roles, a)
	}
	sizes := [2]map[flow.Key]*flowState{{}, {}}
	var hitters map[string]bool
	var rows []suite.Row
	add := func(structure string, memory int, task string, value float64) {
		rows = append(rows, suite.Row{Structure: structure, Memory: memory, Task: task, Metric: "F1", Value: value})
	}
	var reported [2][][hosts]*wire.Report // reports by memory
	for number := range sizes {
		if number > 0 {
			b.follow(0.5)
		}
		var key [flow.MaxBinary]byte
		b.play(func(s *flowState, latencies []uint32) {
			s.record(latencies)
			k := s.key.AppendBinary(key[:0])
			for i := range tables {
				for j := range tables[i] {
					tables[i][j][number].insert(s, k)
				}
			}
			for _, a := range roles {
				a.receive(s)
			}
		})
		for _, s := range b.flows {
			same := *s
			sizes[number][s.key] = &same
		}
		for _, a := range roles {
			if err := a.seal(uint64(number)); err != nil {
				return nil, err
			}
			reported[number] = append(reported[number], a.reports)
		}
		if number > 0 {
			continue
		}
		hitters = places(b, func(s *flowState) bool { return s.packets >= heavy })
		for j, memory := range flowMemories {
			for i, c := range counters {
				add(c.name, memory, hitterTask, f1(tables[i][j][0].hitters(b), hitters))
			}
			add(ofRole, memory, hitterTask, f1(roles[j].heavyHitters(), hitters))
		}
	}
	everything := func(*flowState) bool { return true }
	actual := changed(func(s *flowState, number int) uint32 {
		if s = sizes[number][s.key]; s != nil {
			return s.packets
		}
		return 0
	}, everything, sizes)
	for j, memory := range flowMemories {
		for i, c := range counters {
			t := tables[i][j]
			add(c.name, memory, changeTask, f1(changed(func(s *flowState, number int) uint32 { return t[number].query(s) },
				func(s *flowState) bool { return t[0].flows[s.key] || t[1].flows[s.key] }, sizes), actual))
		}
		r := [2][hosts]*wire.Report{reported[0][j], reported[1][j]}
		tabled := map[flow.Key]bool{}
		for _, all := range r {
			for _, report := range all {
				for _, x := range report.Heavy {
					tabled[x.Key] = true
				}
			}
		}
		add(ofRole, memory, changeTask, f1(changed(func(s *flowState, number int) uint32 {
			return r[number][s.host].Flows.Query(s.key.AppendBinary(nil))
		}, func(s *flowState) bool { return tabled[s.key] }, sizes), actual))
	}
	return rows, nil
}

// changed are the heavy changes at switches, among the flows that are known, by their sizes in two
// intervals.
func changed(size func(s *flowState, number int) uint32, known func(s *flowState) bool,
	flows [2]map[flow.Key]*flowState,
) map[string]bool {
	out := map[string]bool{}
	for _, some := range flows {
		for _, s := range some {
			if !known(s) {
				continue
			}
			if x, y := size(s, 0), size(s, 1); max(x, y)-min(x, y) > change {
				for _, node := range s.path {
					out[s.name(node)] = true
				}
			}
		}
	}
	return out
}

// scaled is the memory for a share of the flows.
func scaled(memory int, share float64) int { return int(float64(memory) * share) }

// latencyTasks measures Figures 7 (c) and (d), and 8.
func latencyTasks(share float64, seed uint64, memories []int) (rows []suite.Row, err error) {
	b, err := newTestbed(share, seed)
	if err != nil {
		return nil, err
	}
	var roles []*agents
	for _, memory := range memories {
		a, err := newAgents(scaled(200_000, share), scaled(memory, share))
		if err != nil {
			return nil, err
		}
		roles = append(roles, a)
	}
	packets, passport := 0, 0
	b.play(func(s *flowState, latencies []uint32) {
		s.record(latencies)
		packets++
		passport += len(s.frame) - 4 // without payload
		for _, a := range roles {
			a.receive(s)
		}
	})
	add := func(structure string, memory int, task, metric string, value float64) {
		rows = append(rows, suite.Row{Structure: structure, Memory: memory, Task: task, Metric: metric, Value: value})
	}
	for i, memory := range memories {
		a := roles[i]
		if err := a.seal(0); err != nil {
			return nil, err
		}
		add(ofRole, memory, latencyTask, "ARE", a.latencyARE(b))
		others, all, count := a.inflatedF1(b)
		add(ofRole, memory, inflationTask, "F1", others)
		add(ofRole, memory, inflationTask, "F1, mean of all packets", all)
		add(ofRole, memory, inflationTask, "instances", float64(count))
		add(ofRole, memory, costTask, "bytes", float64(a.bytes)/float64(passport))
		add(ofRole, memory, costTask, "packets, MTU 9000", float64(a.jumbo)/float64(packets))
		add(ofRole, memory, costTask, "packets, MTU 1500", float64(a.packets)/float64(packets))
		for _, kind := range []struct {
			name string
			bits []int
		}{{"Tower", nil}, {"CM", []int{24, 24, 24}}} {
			x, err := newBare(b, scaled(memory, share), kind.bits)
			if err != nil {
				return nil, err
			}
			add(kind.name, memory, latencyTask, "ARE", latencyARE(b, func(s *flowState, key []byte) (float64, bool) {
				n, sum, ok := x[s.host].Query(key)
				return float64(sum) / float64(n), ok
			}))
			add(kind.name, memory, inflationTask, "F1", f1(x.inflated(b), inflations(b)))
		}
	}
	return rows, nil
}

// bare has the tower of latencies of each host, without the cache that the role puts before it.
type bare [hosts]*tower.Latency[family.P4]

// newBare returns towers that have counted the latencies of an interval.
func newBare(b *testbed, memory int, bits []int) (x bare, err error) {
	for h := range x {
		if x[h], err = tower.NewLatency[family.P4](tower.Config{Memory: memory, Bits: bits}); err != nil {
			return x, err
		}
	}
	for _, s := range b.flows {
		for h, node := range s.path {
			x[s.host].Add(wire.AppendKey(nil, &s.key, node), s.packets, s.sum[h])
		}
	}
	return x, nil
}

// inflated are the flows at switches whose worst latency is inflated by the mean of their other
// packets, as the structure has it at the end of the interval.
func (x bare) inflated(b *testbed) map[string]bool {
	out := map[string]bool{}
	for _, s := range b.flows {
		for h, node := range s.path {
			n, sum, ok := x[s.host].Query(wire.AppendKey(nil, &s.key, node))
			if worst := uint64(s.worst[h]); ok && inflates(worst, uint64(n), sum) {
				out[s.name(node)] = true
			}
		}
	}
	return out
}

func globalFigure() suite.Suite {
	return suite.New(suite.Suite{
		Name: prefix + "7",
		Measure: func(_ context.Context, _ *trace.Trace, o suite.Options) ([]suite.Row, error) {
			rows, err := flowTasks(part, o.Seed)
			if err != nil {
				return nil, err
			}
			more, err := latencyTasks(part, o.Seed, append(append([]int{}, inflationMemories...), latencyMemories...))
			for _, r := range more {
				if r.Task != costTask {
					rows = append(rows, r)
				}
			}
			return rows, err
		},
	})
}

// costMemories are the towers of latencies in Figure 8.
var costMemories = []int{600_000, 1_000_000, 1_500_000, 2_000_000, 3_000_000}

func costFigure() suite.Suite {
	return suite.New(suite.Suite{
		Name: prefix + "8",
		Measure: func(_ context.Context, _ *trace.Trace, o suite.Options) (rows []suite.Row, err error) {
			all, err := latencyTasks(part, o.Seed, costMemories)
			for _, r := range all {
				if r.Structure == ofRole && r.Task != inflationTask {
					rows = append(rows, r)
				}
			}
			return rows, err
		},
	})
}
