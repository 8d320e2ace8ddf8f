// SPDX-License-Identifier: Apache-2.0

package sketchint

import (
	"context"
	"fmt"

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

// setup describes the workload.
var setup = fmt.Sprintf("The paper: the testbed of 10 switches and 8 hosts, traffic of DCTCP's distribution, 16 "+
	"million packets of 73 thousand flows in an interval of 5 s. Here: the same network, distribution, packets, flows "+
	"and memory, emulated. Flows send trains of up to %d packets at random times, and "+
	"each port of a switch sends a packet of 1,500 bytes in %d ns, in the order in which trains begin. Sizes of the "+
	"distribution are scaled to the paper's mean. Latencies are those of the queues plus %d ns. In the second interval "+
	"half of the flows are others.\n\n"+
	"Memory is that of a host's tower for the task. `role` is the role of host agents: packets with INT go in, and its "+
	"reports are evaluated. In front of its towers it adds up the packets of up to 16,384 flows in a cache of 4 MiB, "+
	"which the memory excludes; all flows of a host here fit in. Its tower of flows has five rows. The other structures "+
	"are the paper's, with three rows and without this cache: they receive each packet. An inflated latency is more "+
	"than 5 times the exact mean of the flow's packets at the switch so far, as the agent judges; the mean of the whole "+
	"interval is a stricter truth, which is in the rows.", 2*train, service, pipeline)

// flowTasks measures Figure 7 (a) and (b).
func flowTasks(share float64, seed uint64) ([]suite.Row, error) {
	b, err := newTestbed(share, seed)
	if err != nil {
		return nil, err
	}
	tables := make([][][2]*table, len(counters)) // by structure and memory
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
	var reported [2][][hosts]*wire.Report // by memory
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
		soFar, whole, count := a.inflatedF1(b)
		add(ofRole, memory, inflationTask, "F1", soFar)
		add(ofRole, memory, inflationTask, "F1, mean of the interval", whole)
		add(ofRole, memory, inflationTask, "instances", float64(count))
		add(ofRole, memory, costTask, "bytes", float64(a.bytes)/float64(passport))
		add(ofRole, memory, costTask, "packets, MTU 9000", float64(a.jumbo)/float64(packets))
		add(ofRole, memory, costTask, "packets, MTU 1500", float64(a.packets)/float64(packets))
		for _, kind := range []struct {
			name string
			bits []int
		}{{"Tower", nil}, {"CM", []int{24, 24, 24}}} {
			are, err := bareARE(b, scaled(memory, share), kind.bits)
			if err != nil {
				return nil, err
			}
			add(kind.name, memory, latencyTask, "ARE", are)
		}
	}
	return rows, nil
}

// bareARE is the error of latencies in a structure of its own for each host.
func bareARE(b *testbed, memory int, bits []int) (float64, error) {
	var all [hosts]*tower.Latency[family.P4]
	for h := range all {
		var err error
		if all[h], err = tower.NewLatency[family.P4](tower.Config{Memory: memory, Bits: bits}); err != nil {
			return 0, err
		}
	}
	for _, s := range b.flows {
		for h, node := range s.path {
			all[s.host].Add(wire.AppendKey(nil, &s.key, node), s.packets, s.sum[h])
		}
	}
	return latencyARE(b, func(s *flowState, key []byte) (float64, bool) {
		n, sum, ok := all[s.host].Query(key)
		return float64(sum) / float64(n), ok
	}), nil
}

// shortRow is why TowerCU is behind CU.
const shortRow = "the sizes of flows: all are scaled to 219 packets on average, so that most counters of 8 bits " +
	"overflow, and two rows of TowerCU are left of three. If 3 of 10 flows have the distribution's sizes and the others " +
	"one packet, which is the same mean, TowerCU has 0.78, CU 0.59 and CM 0.5 in 7(a) at 10 KB, and TowerCU 0.986 in " +
	"7(b) at 50 KB (TestSmallFlows)"

func globalFigure() suite.Suite {
	plot := func(name, title, task, metric string, log bool) suite.Plot {
		return suite.Plot{File: prefix + "7-" + name, Title: title, Task: task, Metric: metric, X: "memory", Log: log}
	}
	const kb = 1000
	return suite.Suite{
		Name: prefix + "7", Title: "SketchINT, Figure 7: global tasks", Setup: setup,
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
		Plots: []suite.Plot{
			plot("heavy-hitters", "heavy hitters of switches (F1)", hitterTask, "F1", false),
			plot("heavy-changes", "heavy changes of switches (F1)", changeTask, "F1", false),
			plot("latency", "latencies of flows at switches (ARE)", latencyTask, "ARE", true),
			plot("inflated", "inflated latencies (F1)", inflationTask, "F1", false),
		},
		Claims: []suite.Claim{
			suite.Within("7(a)", "10 KB: F1 is TowerCU 0.765, CM 0.446, CU 0.667", 10*kb, hitterTask, "F1",
				[]string{"TowerCU", "CM", "CU"}, []float64{0.765}, true, shortRow),
			suite.Within("7(a)", "50 KB: TowerCU's F1 reaches 0.99", 50*kb, hitterTask, "F1", []string{"TowerCU", ofRole},
				[]float64{0.99, 0.99}, true, ""),
			suite.Best("7(a)", "TowerCU is more accurate than CM and CU", hitterTask, "F1", flowMemories, true, "TowerCU",
				[]string{"CM", "CU"}, shortRow),
			suite.Within("7(b)", "10 KB: F1 is TowerCU 0.688, CM 0.462, CU 0.536", 10*kb, changeTask, "F1",
				[]string{"TowerCU", "CM", "CU"}, []float64{0.688}, true, shortRow),
			suite.Within("7(b)", "50 KB: TowerCU's F1 reaches 0.98", 50*kb, changeTask, "F1", []string{"TowerCU", ofRole},
				[]float64{0.98, 0.98}, true, shortRow),
			suite.Within("7(c)", "3 MB: ARE is Tower 0.11, CM 0.18", 3000*kb, latencyTask, "ARE",
				[]string{"Tower", ofRole, "CM"}, []float64{0.11, 0.11}, false, ""),
			suite.Best("7(c)", "Tower's ARE is below CM's", latencyTask, "ARE", latencyMemories, false, "Tower",
				[]string{"CM"}, ""),
			suite.Within("7(d)", "600 KB: F1 is Tower 0.976, CM 0.961", 600*kb, inflationTask, "F1", []string{ofRole},
				[]float64{0.976}, true, ""),
		},
	}
}

// costMemories are the towers of latencies in Figure 8.
var costMemories = []int{600_000, 1_000_000, 1_500_000, 2_000_000, 3_000_000}

func costFigure() suite.Suite {
	claim := func(memory int, paper, metric string, limit float64, why string) suite.Claim {
		return suite.Claim{Figure: "8", Paper: paper, Why: why,
			Ours: func(v suite.Values) string {
				return fmt.Sprintf("%d KB: %.3g %%, ARE %.3g", memory/1000, 100*v.Get(ofRole, memory, costTask, metric),
					v.Get(ofRole, memory, latencyTask, "ARE"))
			},
			Holds: func(v suite.Values) bool {
				return v.Get(ofRole, memory, costTask, metric) <= limit && v.Get(ofRole, memory, latencyTask, "ARE") < 0.05
			}}
	}
	plot := func(name, title, task, metric string) suite.Plot {
		return suite.Plot{File: prefix + "8-" + name, Title: title, Task: task, Metric: metric, X: "memory", Log: true}
	}
	return suite.Suite{
		Name: prefix + "8", Title: "SketchINT, Figure 8: bandwidth and packets of the collection",
		Setup: setup + "\n\nThe bytes and packets that the collection of an interval takes, divided by those of INT's " +
			"passport mode, which sends headers and INT of each packet in a packet of its own. Reports are those of the role, " +
			"with all their tables and a tower of flows of 200 KB, over TCP. The paper's network has an MTU of 9,000 bytes.",
		Measure: func(_ context.Context, _ *trace.Trace, o suite.Options) (rows []suite.Row, err error) {
			all, err := latencyTasks(part, o.Seed, costMemories)
			for _, r := range all {
				if r.Structure == ofRole && r.Task != inflationTask {
					rows = append(rows, r)
				}
			}
			return rows, err
		},
		Plots: []suite.Plot{
			plot("bytes", "bytes, as a share of INT's", costTask, "bytes"),
			plot("packets", "packets, as a share of INT's (MTU 9,000)", costTask, "packets, MTU 9000"),
			plot("latency", "latencies of flows at switches (ARE)", latencyTask, "ARE"),
		},
		Claims: []suite.Claim{
			claim(2_000_000, "3 % of the bytes achieve an ARE below 5 %", "bytes", 0.03, ""),
			claim(2_000_000, "0.03 % of the packets achieve an ARE below 5 %", "packets, MTU 9000", 0.0003, ""),
		},
	}
}
