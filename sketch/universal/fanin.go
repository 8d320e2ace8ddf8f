// SPDX-License-Identifier: Apache-2.0

package universal

import (
	"cmp"
	"math"
	"slices"

	"github.com/netsketch/netsketch/sketch/flow"
)

// FanIn is a destination and the number of its sources.
type FanIn struct {
	Destination flow.Key // a key with Mask flow.Dst
	Sources     float64  // number of source addresses
	Deviation   float64  // standard deviation of Sources
	Flows       float64  // number of 5-tuples
	Seen        int      // number of source addresses that were identified
}

// FanIns estimates, for destinations of at least the given number of sources, how many different
// source addresses sent to them (DDoS victims, paper section 4.3), the most first. The sketch must
// be one of 5-tuples; others have no fan-ins.
//
// A universal sketch of sources gives the number of sources of all destinations together. The
// sample that all estimates use (see Sum) separates destinations: each of its flows represents
// several flows to the flow's destination. Sources with several flows are sampled several times,
// depending on the density of the sample and on how the flows are spread over the sources; this
// gives the number of flows per source (see flowsEach).
//
// Limits: sources with one flow each are counted well. If sources have few flows each and the
// sample is sparse, n sources with one flow cannot be distinguished from n/2 sources with two, and
// Sources tends towards the number of flows. Destinations whose estimate minus twice the deviation
// of their number of flows is below half of atLeast are omitted: they may be large by chance.
func (e *Estimate) FanIns(atLeast float64) []FanIn {
	if e.layout.Key != flow.FiveTuple || e.reading.difference {
		return nil
	}
	type sum struct {
		weight, square float64
		flows          int
	}
	destinations := make(map[flow.Key]*sum)
	for i := range e.sample {
		f := &e.sample[i]
		d := f.Key.Project(flow.Dst)
		s := destinations[d]
		if s == nil {
			s = new(sum)
			destinations[d] = s
		}
		w := max(f.even, 1)
		s.weight += w
		s.square += w * (w - 1)
		s.flows++
	}
	sources := make(map[flow.Key]map[flow.Key]int) // flows in the sample by destination and source
	for d, s := range destinations {
		if s.weight >= atLeast {
			sources[d] = make(map[flow.Key]int, s.flows)
		}
	}
	for i := range e.sample {
		if seen := sources[e.sample[i].Key.Project(flow.Dst)]; seen != nil {
			seen[e.sample[i].Key.Project(flow.Src)]++
		}
	}
	var found []FanIn
	for d, seen := range sources {
		s := destinations[d]
		pairs := 0.0
		for _, n := range seen {
			pairs += float64(n*(n-1)) / 2
		}
		flows, known, by := float64(s.flows), float64(len(seen)), math.Sqrt(pairs+1)
		each := flowsEach(flows, known, pairs, s.weight)
		more := flowsEach(flows, max(known-by, 1), pairs+by, s.weight) // by as many pairs as chance adds
		chance := math.Sqrt(s.square) / each                           // of which flows are in the sample
		f := FanIn{Destination: d, Sources: max(s.weight/each, known),
			Deviation: math.Hypot(chance, s.weight/each*(more/each-1)), Flows: s.weight, Seen: len(seen)}
		if f.Sources >= atLeast && f.Sources-2*chance >= atLeast/2 {
			found = append(found, f)
		}
	}
	slices.SortFunc(found, func(a, b FanIn) int {
		return cmp.Or(cmp.Compare(b.Sources, a.Sources), a.Destination.Compare(b.Destination))
	})
	return found
}

// flowsEach estimates the number of flows per source among total flows. The other arguments
// describe a sample of these flows: how many flows it has, how many sources, and how many pairs of
// flows with the same source.
//
// A sampled share p of the flows contains mp of a source's m flows on average, and misses the
// source with probability (1-p)^m, which depends on how m varies. Let each source have one flow and
// μ others on average: exactly μ if all sources have equally many, or a Poisson number if each flow
// has a random source. The source is missed with probability (1-p)·(1-p)^μ or (1-p)·exp(-μp). The
// mean of m(m-1), which the pairs give, tells which case is nearer: it is μ(1+μ) or μ(1+μ) + μ.
func flowsEach(flows, sources, pairs, total float64) float64 {
	p, ratio := flows/total, flows/sources
	if p >= 1 {
		return ratio
	}
	random, others := 0.5, 0.0
	for range 10 {
		low, high := 0.0, max(total/sources-1, 0)
		for range 40 {
			others = (low + high) / 2
			missed := (1 - p) * ((1-random)*math.Pow(1-p, others) + random*math.Exp(-others*p))
			if (1+others)*p/(1-missed) < ratio {
				low = others
			} else {
				high = others
			}
		}
		perFlow := 2 * pairs / (p * p * total) // mean of m(m-1) divided by the mean of m
		random = min(max((1+others)*(perFlow/max(others, 0.01)-1), 0), 1)
	}
	return 1 + others
}
