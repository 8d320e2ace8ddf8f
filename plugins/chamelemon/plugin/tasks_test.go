// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"testing"

	lab "github.com/netsketch/netsketch/internal/test/chamelemon"
	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/plugins/chamelemon/sizes"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// totals are the ground truth of the six accumulation tasks for a switch or the network.
type totals struct {
	packets int64
	flows   int
	entropy float64
	hitters map[string]int64    // packets by flow
	changes map[string][2]int64 // packets before and after by flow
	byRange map[string]int64    // flows by the first size of the range
	sizes   map[string]int64    // every flow's packets
}

const heavy = 60 // packets

// truthOf computes the exact results of a switch, or of all switches if edge is -1.
func truthOf(before, after []lab.Flow, edge int) totals {
	x := totals{hitters: make(map[string]int64), changes: make(map[string][2]int64), byRange: make(map[string]int64),
		sizes: make(map[string]int64)}
	packets := make(map[string][2]int64)
	for k, flows := range [][]lab.Flow{before, after} {
		for i := range flows {
			if f := &flows[i]; edge < 0 || f.Entry == edge {
				n := packets[f.Key.String()]
				n[k] += f.Packets
				packets[f.Key.String()] = n
			}
		}
	}
	for key, n := range packets {
		if d := n[1] - n[0]; max(d, -d) > heavy {
			x.changes[key] = n
		}
		if n[1] == 0 {
			continue
		}
		x.flows++
		x.packets += n[1]
		x.sizes[key] = n[1]
		first, _ := sizes.RangeOf(uint64(n[1]))
		x.byRange[strconv.FormatUint(first, 10)]++
		if n[1] >= heavy {
			x.hitters[key] = n[1]
		}
	}
	for _, n := range x.sizes {
		p := float64(n) / float64(x.packets)
		x.entropy -= p * math.Log2(p)
	}
	return x
}

// f1 compares reported values with the ground truth. It returns the F1 score and the average
// relative error of the values in both.
func f1[V any](reported map[string]float64, truth map[string]V, of func(V) float64) (f1, are float64) {
	hits := 0
	for key, v := range reported {
		if want, ok := truth[key]; ok {
			hits++
			are += math.Abs(v-of(want)) / math.Abs(of(want))
		}
	}
	return 2 * float64(hits) / float64(max(len(reported)+len(truth), 1)), are / float64(max(hits, 1))
}

// TestTasks holds the six accumulation tasks to the exact truth, on each switch and network-wide:
// in a network that is not full, and in one where Th is above 1.
func TestTasks(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		flows, settle int // flows of an epoch, and epochs that are played before the measured ones
		// least F1 of heavy hitters and changes, most ARE of their sizes and of all flows', most
		// relative errors of flows and entropy, most weighted error of the distribution
		f1, are, all, cardinality, entropy, distribution float64
	}{
		{10_000, 1, 1, 0, 0, 0, 1e-6, 0}, // Th is 1: every flow is known
		{40_000, 4, 0.99, 0.01, 0.3, 0.02, 0.003, 0.05},
	} {
		t.Run(fmt.Sprint(tc.flows), func(t *testing.T) {
			f := newFabric(t, 61,
				fmt.Sprintf(`{"heavy-hitters": {"packets": %d, "share": 0, "limit": 10000},
					"heavy-changes": {"packets": %d, "limit": 10000}}`, heavy, heavy))
			for range tc.settle {
				f.play(f.flows(tc.flows, 0.05, 0.05))
			}
			before := f.flows(tc.flows, 0.05, 0.05)
			f.play(before)
			// Two thirds of the flows go on, some of them with other sizes.
			after := f.flows(tc.flows, 0.05, 0.05)
			for i := range after {
				if i%3 > 0 {
					n := after[i].Packets
					after[i] = before[i]
					if i%3 == 2 {
						after[i].Packets, after[i].Lost = n, min(after[i].Lost, n)
					}
				}
			}
			e := f.record(after)
			for i := 0; i < len(after); i += max(len(after)/500, 1) {
				e.Watched = append(e.Watched,
					sdk.RowKey{List: flowList, Keys: map[string]string{"node": Network,
						"flow": after[i].Key.String()}},
					sdk.RowKey{List: flowList, Keys: map[string]string{"node": edgeName(after[i].Entry),
						"flow": after[i].Key.String()}})
			}
			r := f.analyze(e)
			for edge := -1; edge < edges; edge++ {
				device := Network
				if edge >= 0 {
					device = edgeName(edge)
				}
				truth := truthOf(before, after, edge)
				of := func(list, leaf string) map[string]float64 {
					out := make(map[string]float64)
					for _, m := range lab.Rows(r, list) {
						if m["node"] == device {
							out[m["flow"]+m["lower"]] = float(m[leaf])
						}
					}
					return out
				}
				s := row(t, r, summaryList, "node", device)
				hf, hare := f1(of(hitterList, "packets"), truth.hitters, func(n int64) float64 { return float64(n) })
				// The list also has flows that may have changed by more, with a delta below that.
				listed := of(changeList, "delta")
				changes := maps.Clone(listed)
				maps.DeleteFunc(changes, func(_ string, by float64) bool { return math.Abs(by) <= heavy })
				cf, care := f1(changes, truth.changes,
					func(n [2]int64) float64 { return float64(n[1] - n[0]) })
				_, all := f1(of(flowList, "packets"), truth.sizes, func(n int64) float64 { return float64(n) })
				cardinality := math.Abs(float(s["distinct-flows"])/float64(truth.flows) - 1)
				entropy := math.Abs(float(s["entropy"])/truth.entropy - 1)
				diff, sum := 0.0, 0.0
				reported := of(rangeList, "flows")
				for first, n := range truth.byRange {
					diff += math.Abs(reported[first] - float64(n))
					sum += (reported[first] + float64(n)) / 2
					delete(reported, first)
				}
				for _, n := range reported {
					diff, sum = diff+n, sum+n/2
				}
				t.Logf("%s: heavy hitters %d, F1 %.4f ARE %.4f; changes %d, F1 %.4f ARE %.4f; sizes ARE %.4f; flows off by %.4f, "+
					"entropy by %.5f, distribution by %.4f",
					device, len(truth.hitters), hf, hare, len(truth.changes), cf, care, all, cardinality, entropy,
					diff/sum)
				if hf < tc.f1 || cf < tc.f1 || hare > tc.are || care > tc.are || all > tc.all ||
					cardinality > tc.cardinality || entropy > tc.entropy || diff/sum > tc.distribution {
					t.Errorf("%s: worse than it should be: %+v", device, tc)
				}
				if isExact(t, s, "quality") != (tc.distribution == 0) {
					t.Errorf("%s: %v", device, s)
				}
				if s["packets"] != fmt.Sprint(truth.packets) || s["packets-quality"] != "EXACT" {
					t.Errorf("%s: %s packets, there were %d", device, s["packets"], truth.packets)
				}
				if s["heavy-hitters"] != strconv.Itoa(len(of(hitterList, "packets"))) ||
					s["changes"] != strconv.Itoa(len(listed)) {
					t.Errorf("%s: the summary counts others: %v", device, s)
				}
			}
		})
	}
}

// TestHighThreshold: as long as Th is at most the thresholds of the heavy hitters and changes, no
// heavy hitter and no heavy change is missing. Otherwise the results say from how many packets on
// they are complete, and are complete from there on, the status is partial, and there is an alert.
// The bounds of all rows hold.
func TestHighThreshold(t *testing.T) {
	t.Parallel()
	for _, workload := range []string{"DCTCP", "CACHE", "VL2", "HADOOP"} {
		sizes, err := traffic.Workload(workload)
		if err != nil {
			t.Fatal(err)
		}
		// Flows in a network of a quarter of the paper's size. With 12,500 flows, Th is above 1 and below
		// the thresholds.
		for _, n := range []int{2000, 12_500, 20_000} {
			f := newSmall(t, uint64(n)+7, `{"heavy-hitters": {"packets": 100, "share": 0, "limit": 1000000},
				"heavy-changes": {"packets": 100, "limit": 1000000}}`)
			d := lab.Traffic{Sizes: sizes, Flows: n, Victims: 0.05, Loss: 0.05}
			for range 6 {
				f.play(f.bed.Flows(d))
			}
			before := f.bed.Flows(d)
			f.play(before)
			after := f.bed.Flows(d)
			for i := range after { // a third goes on as it was, a third with another size
				packets := after[i].Packets
				if i%3 > 0 {
					after[i] = before[i]
				}
				if i%3 == 2 {
					after[i].Packets, after[i].Lost = packets, min(after[i].Lost, packets)
				}
			}
			checkLimits(t, fmt.Sprint(workload, " ", n), f.play(after), before, after)
		}
	}
}

func checkLimits(t *testing.T, name string, r *sdk.Results, before, after []lab.Flow) {
	limited := 0
	for edge := -1; edge < edges; edge++ {
		device := Network
		if edge >= 0 {
			device = edgeName(edge)
		}
		s := row(t, r, summaryList, "node", device)
		hittersFrom, changesFrom := int64(float(s["heavy-hitters-from"])), int64(float(s["changes-from"]))
		if hittersFrom < 100 || changesFrom < 101 {
			t.Fatalf("%s, %s: %v", name, device, s)
		}
		was, is := make(map[string]int64), make(map[string]int64)
		for i := range before {
			if edge < 0 || before[i].Entry == edge {
				was[before[i].Key.String()] = before[i].Packets
			}
		}
		for i := range after {
			if edge < 0 || after[i].Entry == edge {
				is[after[i].Key.String()] = after[i].Packets
			}
		}
		hitters, changes := make(map[string]bool), make(map[string]bool)
		doubtful := 0
		for _, m := range lab.Rows(r, hitterList) {
			if m["node"] != device {
				continue
			}
			hitters[m["flow"]] = true
			if n := float64(is[m["flow"]]); m["quality"] == "ESTIMATE" || n < float(m["packets-low"]) ||
				n > float(m["packets-high"]) || isExact(t, m, "quality") && n != float(m["packets"]) {
				t.Errorf("%s, %s: %v has %v packets", name, device, m, n)
			}
		}
		for _, m := range lab.Rows(r, changeList) {
			if m["node"] != device {
				continue
			}
			changes[m["flow"]] = true
			by := is[m["flow"]] - was[m["flow"]]
			low, high := float(m["delta-low"]), float(m["delta-high"])
			if low <= 100 && high >= -100 {
				doubtful++
			}
			if n := float64(by); m["quality"] == "ESTIMATE" || n < low || n > high ||
				isExact(t, m, "quality") && n != float(m["delta"]) {
				t.Errorf("%s, %s: %v changed by %d packets", name, device, m, by)
			}
		}
		missing := 0
		for _, sizes := range []map[string]int64{was, is} {
			for key := range sizes {
				by := is[key] - was[key]
				if max(by, -by) >= changesFrom && !changes[key] || is[key] >= hittersFrom && !hitters[key] {
					missing++
				}
			}
		}
		if missing > 0 {
			t.Errorf("%s, %s: %d flows above %d packets or changes above %d are missing", name, device, missing,
				hittersFrom, changesFrom)
		}
		high := hittersFrom > 100 || changesFrom > 101
		if high {
			limited++
		}
		alerted := false
		for _, x := range lab.Rows(r, alertList) {
			alerted = alerted || x["location"] == device && x["kind"] == "HIGH_THRESHOLD" && x["active"] == "true"
		}
		if (s["status"] == "PARTIAL") != high || alerted != high || (s["problem"] != "") != high {
			t.Errorf("%s, %s: %v, alert %v", name, device, s, alerted)
		}
		t.Logf("%s, %s: hitters from %d, changes from %d (%d rows, %d of them not certain)", name, device, hittersFrom,
			changesFrom, len(changes), doubtful)
	}
	if strings.HasSuffix(name, "DCTCP 20000") && limited == 0 {
		t.Errorf("%s: Th is below all thresholds", name)
	}
}
