// SPDX-License-Identifier: Apache-2.0

package lightguardian

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"

	"github.com/netsketch/netsketch/lab/figures/suite"
)

// Figure 7(d) with a part of the paper's columns, so that a run is short, and with all of them.
// Each living host sends the packets of 5 s at 90 % of 40 Gbit/s, times this part.
const (
	robustColumns = 1 << 8
	paperColumns  = 1 << 16
	robustBytes   = 1500                                                       // bytes of a packet
	robustPackets = seconds * fullLoad * capacity / robustBytes / paperColumns // packets for each column
	robustRuns    = 20                                                         // runs of each kind of choice
)

// choice stands for all choices of dead hosts that leave trees of the same shape.
type choice struct {
	hosts int     // dead hosts of one such choice, as bits
	share float64 // share of all choices
}

// choices returns a choice for each shape that the tree can have with a number of dead hosts.
func choices(t tree, dead int) (all []choice) {
	at, total := map[string]int{}, 0
	for hosts := range 1 << t.hosts() {
		if bits.OnesCount(uint(hosts)) != dead {
			continue
		}
		var pods []string
		for pod := range t.pods {
			a, b := bits.OnesCount(uint(hosts>>(4*pod)&3)), bits.OnesCount(uint(hosts>>(4*pod+2)&3))
			pods = append(pods, fmt.Sprint(min(a, b), max(a, b)))
		}
		slices.Sort(pods)
		kind := fmt.Sprint(pods)
		if _, known := at[kind]; !known {
			at[kind] = len(all)
			all = append(all, choice{hosts: hosts})
		}
		all[at[kind]].share++
		total++
	}
	for i := range all {
		all[i].share /= float64(total)
	}
	return all
}

// robustness measures how many sketches are complete although some hosts are dead, which neither
// receive nor send packets. Results are means over all choices of these hosts.
func robustness(dead, columns, runs int, seed uint64) []suite.Row {
	r := rand.New(rand.NewPCG(seed, uint64(dead)))
	var whole, all, reach float64
	kinds := choices(mininet, dead)
	for _, x := range kinds {
		weight := x.share / float64(runs)
		for range runs {
			c := newCollection(mininet, carrying, columns, chances)
			for h := range c.dead {
				c.dead[h] = x.hosts>>h&1 == 1
			}
			c.living(int(robustPackets*float64(columns*(c.hosts()-dead))), r)
			complete := 0
			for node, n := range c.count {
				if n == columns {
					complete++
				}
				if c.reaches(node) {
					reach += weight / float64(c.switches())
				}
			}
			whole += weight * float64(complete) / float64(c.switches())
			if complete == c.switches() {
				all += weight
			}
		}
	}
	row := func(metric string, value float64) suite.Row {
		return suite.Row{Structure: metric, Variant: fmt.Sprintf("dead hosts %d", dead),
			Task: robustTask(columns), Metric: "share", Value: value, Unit: "ratio"}
	}
	return []suite.Row{row("FRR", all), row("RSR", whole), row(reachStructure, reach)}
}

// living sends packets from the hosts that are not dead.
func (c *collection) living(packets int, r *rand.Rand) {
	for number := 0; c.packets < packets; number++ {
		f := c.newFlow(number, r)
		if c.dead[f.from] {
			continue
		}
		for range 10 {
			c.send(f.path, f.to)
		}
	}
}

// reaches reports whether a switch forwards packets to a living host: an edge switch to its own
// hosts, an aggregation switch to the hosts of its pod, other switches to all.
func (c *collection) reaches(node int) bool {
	hosts := c.dead
	switch c.layer(node) {
	case 0:
		hosts = hosts[2*node : 2*node+2]
	case 1:
		pod := (node - c.edges()) / 2
		hosts = hosts[4*pod : 4*pod+4]
	}
	return slices.Contains(hosts, false)
}

func robustTask(columns int) string { return fmt.Sprintf("dead hosts, %d columns", columns) }

const reachStructure = "switches that reach a living host"
