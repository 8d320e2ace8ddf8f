// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// bytesPerPacket converts the published distributions from bytes to packets: a point at b bytes is
// one at b/1,500 packets, rounded up, and the last of several points at the same number of packets
// counts. The published controller of ChameleMon's authors reads its distributions in the same way
// (threshAdjuster.h, read_dist).
const bytesPerPacket = 1500

// bytePoint is a published point: the share, in percent, of flows with at most this number of
// bytes.
type bytePoint struct{ bytes, percent float64 }

// The four workloads of ChameleMon's evaluation (§5.2), by its names for them.
// The measurement papers only show curves; the points are those that traffic
// generators and simulators publish for these curves and that later papers use.
var workloads = map[string][]bytePoint{
	// Web search: Alizadeh et al., Data Center TCP (SIGCOMM 2010), Figure 4, query traffic and
	// background of a search cluster. Points as in HKUST's TrafficGenerator (conf/DCTCP_CDF.txt)
	// and in HPCC's simulator (traffic_gen/WebSearch_distribution.txt), which agree.
	"DCTCP": {
		{10_000, 15}, {20_000, 20}, {30_000, 30}, {50_000, 40}, {80_000, 53}, {200_000, 60},
		{1_000_000, 70}, {2_000_000, 80}, {5_000_000, 90}, {10_000_000, 97}, {30_000_000, 100},
	},
	// Hadoop: Roy et al., Inside the Social Network's (Datacenter) Network (SIGCOMM 2015), Figure
	// 6, flow sizes of Hadoop nodes. Points as in HPCC's simulator
	// (traffic_gen/FbHdp_distribution.txt).
	"HADOOP": {
		{100, 1}, {200, 2}, {300, 5}, {350, 15}, {400, 20}, {500, 30}, {600, 40}, {700, 50}, {1000, 60},
		{2000, 67}, {7000, 70}, {30_000, 72}, {50_000, 82}, {80_000, 87}, {120_000, 90}, {300_000, 95},
		{1_000_000, 97.5}, {2_000_000, 99}, {10_000_000, 100},
	},
	// Data mining: Greenberg et al., VL2 (SIGCOMM 2009), Figure 2. Points as in HKUST's
	// TrafficGenerator (conf/VL2_CDF.txt).
	"VL2": {
		{180, 10}, {216, 20}, {560, 30}, {900, 40}, {1100, 50}, {1870, 60}, {3160, 70}, {10_000, 80},
		{400_000, 90}, {3_160_000, 95}, {100_000_000, 98}, {1_000_000_000, 100},
	},
	// Key-value store: Atikoglu et al., Workload Analysis of a Large-Scale Key-Value Store
	// (SIGMETRICS 2012), Figure 2, sizes of values in the pool ETC. Points as in HKUST's
	// TrafficGenerator (conf/FB_CDF.txt): 3.5 % of the flows have more than one packet. The paper's
	// own model of the same pool, a generalized Pareto distribution (scale 214.476, shape 0.348238)
	// above 15 bytes, has 1.6 % above 1,500 bytes. It matches ChameleMon's Appendix E.1: with a
	// threshold of 2 packets few flows are left.
	"CACHE": {
		{3, 28}, {10, 32}, {12, 44}, {75, 50}, {250, 75}, {350, 90}, {1000, 96.5}, {2515, 98}, {6326, 99},
		{10_032, 99.5}, {15_910, 99.7}, {23_009, 99.92}, {24_094, 99.96}, {25_000, 99.99}, {100_000, 99.999},
		{1_000_000, 100},
	},
}

// Workloads are the names that Workload accepts, in the order of ChameleMon's evaluation.
func Workloads() []string { return []string{"DCTCP", "CACHE", "VL2", "HADOOP"} }

// Workload returns a published distribution of flow sizes by its name, in any case: DCTCP, HADOOP,
// VL2 or CACHE, in packets of 1,500 bytes. It is linear between its points, the first of which is
// at the least size; Size rounds up.
func Workload(name string) ([]SizePoint, error) {
	points, ok := workloads[strings.ToUpper(name)]
	if !ok {
		return nil, fmt.Errorf("workload %q: there is none of that name; there are %s", name,
			strings.Join(Workloads(), ", "))
	}
	out := make([]SizePoint, 0, len(points))
	for _, p := range points {
		x := SizePoint{Packets: math.Ceil(p.bytes / bytesPerPacket), Share: p.percent / 100}
		if n := len(out); n > 0 && out[n-1].Packets == x.Packets {
			out[n-1] = x
			continue
		}
		out = append(out, x)
	}
	return out, nil
}

// Size returns the size at a share of the flows, 0 to 1, in whole packets, at least 1. A random
// share gives a random size of the distribution.
func Size(points []SizePoint, share float64) uint32 {
	i := slices.IndexFunc(points, func(p SizePoint) bool { return p.Share >= share })
	if i < 0 {
		i = len(points) - 1
	}
	var before SizePoint
	if i > 0 {
		before = points[i-1]
	}
	at := points[i].Packets
	if d := points[i].Share - before.Share; d > 0 {
		at = before.Packets + (at-before.Packets)*(min(share, 1)-before.Share)/d
	}
	return uint32(min(max(math.Ceil(at), 1), math.MaxUint32))
}
