// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"hash/fnv"
	"math"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// supply computes λc of each switch from the paths of flows: a packet carries at most one
// sketchlet, so what a switch inserts is missing for the switches behind it.
type supply struct {
	paths   [][]int   // switches of a path, in order
	packets []float64 // packets of an interval that arrived over the path
	passed  []float64 // packets of an interval that passed each switch
}

// newSupply returns the paths of an interval. switches are the names of all switches, sorted.
// Packets to hosts that did not report do not count: their sketchlets are lost.
func newSupply(switches []string, flows []*flowState) *supply {
	c, known := &supply{passed: make([]float64, len(switches))}, map[string]int{}
	var names []string
	for _, f := range flows {
		names = names[:0]
		for j := range f.hops {
			names = append(names, f.hops[j].name)
		}
		if len(names) == 0 || f.got == 0 {
			continue
		}
		text := strings.Join(names, "\x00")
		at, ok := known[text]
		if !ok {
			at = len(c.paths)
			known[text] = at
			var path []int
			for _, name := range names {
				if s, ok := slices.BinarySearch(switches, name); ok {
					path = append(path, s)
				}
			}
			c.paths, c.packets = append(c.paths, path), append(c.packets, 0)
		}
		c.packets[at] += float64(f.got)
	}
	for i, path := range c.paths {
		for _, s := range path {
			c.passed[s] += c.packets[i]
		}
	}
	return c
}

// inserted computes the sketchlets that each switch inserts in an interval.
func (c *supply) inserted(dst, lambda []float64) {
	clear(dst)
	for i, path := range c.paths {
		free := c.packets[i]
		for _, s := range path {
			n := free * lambda[s]
			dst[s], free = dst[s]+n, free-n
		}
	}
}

const (
	lessWanted = 1.25 // the factor between the numbers of sketchlets that choose tries
	leastTried = 1. / 16
	rounds     = 20 // approximations of λc for one number of sketchlets
	nearEnough = 0.95
)

// choose returns λc of each switch, at least least, with which each switch inserts the wanted
// number of sketchlets in an interval. If there are too few packets, it is the λc with which most
// columns of all switches arrive, of those with which switches insert equally many, as far as
// possible.
func (c *supply) choose(wanted, columns, least float64) (best []float64) {
	most := -1.
	lambda, in := make([]float64, len(c.passed)), make([]float64, len(c.passed))
	for want := wanted; want >= wanted*leastTried; want /= lessWanted {
		for s, n := range c.passed {
			lambda[s] = min(1, max(least, want/max(n, 1)))
		}
		for range rounds {
			c.inserted(in, lambda)
			for s, n := range in {
				lambda[s] = min(1, max(least, lambda[s]*want/max(n, 1)))
			}
		}
		c.inserted(in, lambda)
		arrive, all := 0., true
		for s, n := range in {
			arrive += 1 - math.Exp(-n/columns) // without chances: a lower bound
			all = all && (n >= nearEnough*want || c.passed[s] == 0)
		}
		if arrive > most {
			most, best = arrive, slices.Clone(lambda)
		}
		if all {
			break
		}
	}
	return best
}

// otherwise is the least ratio of a new λc to the one in force, or the other way round, for which
// the switch gets it.
const otherwise = 1.25

// carry returns a plan with λc of the switches for which it must change, from the flows of the
// interval that was just analyzed; nil if there are none. p.mu is held.
func (p *Plugin) carry(r *run) *sdk.Plan {
	for _, o := range r.epoch.Plans {
		if o.Status != sdk.PlanApplied {
			delete(p.lambda, o.Device) // λ of the device is planned again
		}
	}
	config := &p.setup.config
	c := newSupply(p.setup.own, r.flows)
	if config.Copies == 0 || len(c.paths) == 0 {
		return nil
	}
	columns := float64(config.Sketch.Columns)
	plan := &sdk.Plan{FromEpoch: r.epoch.Number + 1}
	for s, to := range c.choose(config.Copies*columns, columns, config.Probability) {
		name := p.setup.own[s]
		if ratio := to / p.setup.probability(name); ratio >= otherwise || ratio <= 1/otherwise {
			p.lambda[name] = to
			plan.Writes = append(plan.Writes, sdk.DeviceWrite{Device: name, Op: sdk.SetDefault, Entry: p.setup.carryEntry(name)})
		}
	}
	if len(plan.Writes) == 0 {
		return nil
	}
	p.plans++
	plan.ID = p.plans
	return plan
}

// probability returns λc that a switch has, or gets with the next plan.
func (s *setup) probability(name string) float64 {
	return max(s.lambda[name], s.config.Probability)
}

// carryEntry is the entry with λc of a switch.
func (s *setup) carryEntry(name string) sdk.TableEntry {
	return sdk.TableEntry{Table: "ingress.lightguardian.carry", Action: "ingress.lightguardian.set_carry",
		Params: []sdk.ActionParam{number("device", s.ids[name], 2),
			number("probability", uint32(math.Round(s.probability(name)*65_536)), 3),
			number("chances", s.config.Chances, 1), number("seed", seedOf(name), 4)}}
}

// seedOf returns the seed of a switch: switches of different names select different packets, and
// their flows share different buckets.
func seedOf(name string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(name))
	return h.Sum32() | 1
}
