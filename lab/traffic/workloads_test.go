// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"
)

// above returns the share of flows with more packets than x.
func above(points []SizePoint, x float64) float64 {
	var before SizePoint
	for _, p := range points {
		if x < p.Packets {
			return 1 - before.Share - (p.Share-before.Share)*(x-before.Packets)/(p.Packets-before.Packets)
		}
		before = p
	}
	return 0
}

// TestWorkloads: random sizes follow the points and match the papers' numbers.
func TestWorkloads(t *testing.T) {
	for _, tc := range []struct {
		name   string
		single float64 // share of flows of one packet
		mean   float64 // packets a flow
	}{{"DCTCP", 0.15 / 7, 1141.3}, {"HADOOP", 0.6, 81.9}, {"VL2", 0.5, 8480}, {"CACHE", 0.965, 1.12}} {
		points, err := Workload(tc.name)
		if err != nil {
			t.Fatal(err)
		}
		const n = 400_000
		r := rand.New(rand.NewPCG(1, 2))
		sizes := make([]uint32, n)
		sum := 0.0
		for i := range sizes {
			sizes[i] = Size(points, (float64(i)+r.Float64())/n) // stratified
			sum += float64(sizes[i])
		}
		for _, p := range points {
			count := 0
			for _, s := range sizes {
				if float64(s) <= math.Ceil(p.Packets) {
					count++
				}
			}
			if got := float64(count) / n; math.Abs(got-1+above(points, math.Ceil(p.Packets))) > 0.001 ||
				got < p.Share-0.001 {
				t.Errorf("%s: %.4f of the flows have at most %v packets, published %.4f", tc.name, got, p.Packets,
					p.Share)
			}
		}
		single := 1 - above(points, 1)
		if math.Abs(single-tc.single) > 0.001 || math.Abs(sum/n/tc.mean-1) > 0.02 {
			t.Errorf("%s: %.4f of the flows have one packet, expected %.4f; mean %.2f, expected %.2f", tc.name, single,
				tc.single, sum/n, tc.mean)
		}
		if Size(points, 0) != 1 || Size(points, 1) != uint32(math.Ceil(points[len(points)-1].Packets)) ||
			Size(points, 2) != Size(points, 1) {
			t.Errorf("%s: sizes %d to %d", tc.name, Size(points, 0), Size(points, 1))
		}
		hosts := []Host{{V4: netip.MustParsePrefix("10.0.0.0/24")}, {V4: netip.MustParsePrefix("10.0.1.0/24")}}
		if _, err := Generate(Generated{Name: tc.name, Rate: 1, Flows: 100, CDF: points}, hosts); err != nil {
			t.Error(err)
		}
	}
	if len(Workloads()) != len(workloads) {
		t.Error("a workload is missing in the list")
	}
	for _, name := range Workloads() {
		if workloads[name] == nil {
			t.Errorf("no points for %s", name)
		}
	}
	if _, err := Workload("websearch"); err == nil {
		t.Error("an unknown workload is accepted")
	}
	if p, err := Workload("dctcp"); err != nil || len(p) != 11 {
		t.Errorf("%v, %v", p, err)
	}
}
