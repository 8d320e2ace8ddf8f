// SPDX-License-Identifier: Apache-2.0

package lightguardian

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/netsketch/netsketch/lab/figures/suite"
)

// Figure 7(d) with a part of the paper's columns, so that a run is short. Each living host sends
// the packets of 5 s at 90 % of 40 Gbit/s, times this part.
const (
	robustColumns     = 1 << 8
	paperColumns      = 1 << 16
	robustBytes       = 1500 // of a packet
	robustPackets     = seconds * fullLoad * capacity / robustBytes * robustColumns / paperColumns
	robustProbability = 1. / 8
	robustRuns        = 200
)

// robustness measures how many sketches are whole although a number of hosts is dead: they receive
// nothing, and send nothing.
func robustness(dead, runs int, seed uint64) []suite.Row {
	r := rand.New(rand.NewPCG(seed, uint64(dead)))
	whole, most, all, reach := 0, 0, 0, 0
	for range runs {
		c := newCollection(mininet, robustProbability, robustColumns, chances)
		for _, h := range r.Perm(c.hosts())[:dead] {
			c.dead[h] = true
		}
		packets := int(robustPackets * float64(c.hosts()-dead))
		for number := 0; c.packets < packets; number++ {
			f := c.newFlow(number, r)
			if c.dead[f.from] {
				continue
			}
			for range 10 {
				c.send(f.path, f.to)
			}
		}
		complete := 0
		for node := range c.switches() {
			if c.reaches(node) {
				reach++
			}
		}
		for _, n := range c.count {
			if uint32(n) == c.selectors[0].columns {
				complete++
			}
			if float64(n) >= 0.99*float64(c.selectors[0].columns) {
				most++
			}
		}
		whole += complete
		if complete == c.switches() {
			all++
		}
	}
	row := func(metric string, value float64) suite.Row {
		return suite.Row{Structure: metric, Variant: fmt.Sprintf("dead hosts %d", dead), Task: robustTask,
			Metric: "share", Value: value / float64(runs), Unit: "ratio"}
	}
	switches := float64(mininet.switches())
	return []suite.Row{row("FRR", float64(all)), row("RSR", float64(whole)/switches),
		row(reachStructure, float64(reach)/switches),
		row("RSR, 99 % of the columns", float64(most)/switches)}
}

// reaches reports whether a switch forwards packets to a host that lives: to its own hosts if it is
// an edge switch, to those of its pod if it is an aggregation switch, otherwise to all.
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

const (
	robustTask     = "dead hosts"
	reachStructure = "switches that reach a living host"
)
