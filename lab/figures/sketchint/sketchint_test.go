// SPDX-License-Identifier: Apache-2.0

package sketchint

import (
	"math"
	"slices"
	"testing"

	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/suite/suitetest"
	"github.com/netsketch/netsketch/sketch/flow"
)

func TestMain(m *testing.M) { suitetest.Main(m) }

func TestPages(t *testing.T) { suitetest.Pages(t, Paper().Suites, Paper().Command) }

func TestClaims(t *testing.T) { suitetest.Claims(t, Paper().Suites) }

// TestTasks: both figures with a hundredth of the flows and of the memory.
func TestTasks(t *testing.T) {
	rows, err := flowTasks(0.01, 1)
	if err != nil {
		t.Fatal(err)
	}
	more, err := latencyTasks(0.01, 1, []int{600_000, 3_000_000})
	if err != nil {
		t.Fatal(err)
	}
	v := suite.Values(append(rows, more...))
	for _, r := range v {
		t.Logf("%+v", r)
	}
	for _, task := range []string{hitterTask, changeTask} {
		if x := v.Get(ofRole, 50_000, task, "F1"); x < 0.98 {
			t.Errorf("%s: F1 %v", task, x)
		}
		if x, y := v.Get("TowerCU", 10_000, task, "F1"), v.Get("CM", 10_000, task, "F1"); !(x > y) {
			t.Errorf("%s: F1 %v of TowerCU, %v of CM", task, x, y)
		}
	}
	if x := v.Get(ofRole, 3_000_000, latencyTask, "ARE"); x > 0.02 {
		t.Errorf("ARE of latencies %v", x)
	}
	if x, n := v.Get(ofRole, 600_000, inflationTask, "F1"), v.Get(ofRole, 600_000, inflationTask, "instances"); x < 0.9 ||
		n < 50 {
		t.Errorf("F1 of %v inflated latencies %v", n, x)
	}
}

// TestSmallFlows: Figures 7 (a) and (b) for the flows of one host if 3 of 10 have the sizes of
// the distribution and the others one packet, which is the same mean.
func TestSmallFlows(t *testing.T) {
	b, err := newTestbed(1.0/hosts, 1)
	if err != nil {
		t.Fatal(err)
	}
	const share = 0.3
	smaller := func(flows []*flowState) {
		for _, s := range flows {
			if s.planned = 1; b.r.Float64() < share {
				s.planned = uint32(math.Ceil(b.size(b.scale / share)))
			}
		}
	}
	smaller(b.flows)
	// measure inserts all packets of an interval in bursts, and returns the estimates.
	measure := func(c counter) map[flow.Key]uint32 {
		var bursts []burst
		for _, s := range b.flows {
			for left := s.planned; left > 0; {
				n := min(left, 1+b.r.Uint32N(2*train))
				bursts = append(bursts, burst{flow: s, packets: n})
				left -= n
			}
		}
		b.r.Shuffle(len(bursts), func(i, j int) { bursts[i], bursts[j] = bursts[j], bursts[i] })
		for _, x := range bursts {
			key := x.flow.key.AppendBinary(nil)
			for range x.packets {
				c.Insert(key)
			}
		}
		out := map[flow.Key]uint32{}
		for _, s := range b.flows {
			out[s.key] = c.Query(s.key.AppendBinary(nil))
		}
		return out
	}
	sizes := func() map[flow.Key]uint32 {
		out := map[flow.Key]uint32{}
		for _, s := range b.flows {
			out[s.key] = s.planned
		}
		return out
	}
	hitters := func(sizes map[flow.Key]uint32) map[string]bool {
		out := map[string]bool{}
		for key, n := range sizes {
			if n >= heavy {
				out[key.String()] = true
			}
		}
		return out
	}
	score := func(name string, memory int) float64 {
		i := slices.IndexFunc(counters, func(c structure) bool { return c.name == name })
		c, err := counters[i].make(memory)
		if err != nil {
			t.Fatal(err)
		}
		x := f1(hitters(measure(c)), hitters(sizes()))
		t.Logf("%s, %d bytes: F1 of heavy hitters %.3f", name, memory, x)
		return x
	}
	tower, cu, cm := score("TowerCU", 10_000), score("CU", 10_000), score("CM", 10_000)
	if tower < 0.765 || tower < cu+0.1 || cu < cm+0.05 {
		t.Error("the paper's are 0.765 of TowerCU, 0.667 of CU, and 0.446 of CM")
	}
	if x := score("TowerCU", 50_000); x < 0.99 {
		t.Errorf("F1 of heavy hitters %v", x)
	}
	var estimates, exact [2]map[flow.Key]uint32
	for i := range estimates {
		c, err := newTower(50_000, true)
		if err != nil {
			t.Fatal(err)
		}
		estimates[i], exact[i] = measure(c), sizes()
		for j := range b.flows { // half of the flows of the second interval are others
			if b.r.Float64() < 0.5 {
				b.flows[j] = b.newFlow()
				smaller(b.flows[j : j+1])
			}
		}
	}
	changes := func(sizes [2]map[flow.Key]uint32) map[string]bool {
		out := map[string]bool{}
		for _, some := range exact {
			for key := range some {
				if x, y := sizes[0][key], sizes[1][key]; max(x, y)-min(x, y) > change {
					out[key.String()] = true
				}
			}
		}
		return out
	}
	x := f1(changes(estimates), changes(exact))
	t.Logf("TowerCU, 50000 bytes: F1 of heavy changes %.3f", x)
	if x < 0.98 {
		t.Errorf("F1 of heavy changes %v", x)
	}
}

// TestRecordedRows: measuring again gives the recorded rows.
func TestRecordedRows(t *testing.T) { suitetest.Again(t, Paper().Suites) }
