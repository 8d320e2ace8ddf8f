// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"slices"
)

// Scheme names how duties are assigned.
type Scheme string

// The schemes of the paper's sections 5.2 and 5.3 that count each packet once.
const (
	// Optimized is UnivMon's: see Optimize.
	Optimized Scheme = "manifest"
	// Ingress: the origin of a pair counts all of its dimensions.
	Ingress Scheme = "ingress"
	// Greedy is greedy divide and conquer: the switches on a path take equal parts of the dimensions
	// in the order of the path.
	Greedy Scheme = "greedy"
	// Query is query and sketch: the controller assigns the dimensions of a pair when its first
	// packet arrives, to the switches that keep a sketch already or have the least.
	Query Scheme = "query"
)

// Schemes are all schemes.
var Schemes = []Scheme{Optimized, Ingress, Greedy, Query}

// Solve returns the manifest of a scheme. Pairs are those whose packets arrive, in the order of
// arrival, which matters for Query only.
func Solve(p *Problem, scheme Scheme) (*Manifest, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	switch scheme {
	case Optimized:
		return optimize(p), nil
	case Ingress:
		return spread(p, func(_, _ int) int { return 0 }), nil
	case Greedy:
		return spread(p, func(k, hops int) int { return k * min(hops, len(p.Dimensions)) / len(p.Dimensions) }), nil
	case Query:
		return query(p), nil
	}
	return nil, fmt.Errorf("manifest: no scheme is called %q; there are %v", scheme, Schemes)
}

// spread assigns dimension k of a pair to the switches at a position of its paths. If these
// switches do not divide its paths, it assigns the dimension to the origin. Switches that are
// excluded or full are skipped.
func spread(p *Problem, position func(k, hops int) int) *Manifest {
	b := p.builder()
	kept, load := make([]Set, len(p.Switches)), make([]int, len(p.Switches))
	for i := range p.Pairs {
		for k := range p.Dimensions {
			usable := func(j int) bool { return kept[j].Has(k) || p.fits(j, load[j], k) }
			chosen, ok := level(p.Pairs[i].Paths, position, k, usable)
			for _, last := range []bool{false, true} {
				if !ok {
					chosen, ok = cut(p.Pairs[i].Paths, last, usable)
				}
			}
			if !ok {
				b.left = add(b.left, i, k)
				continue
			}
			for _, j := range chosen {
				if !kept[j].Has(k) {
					kept[j] |= 1 << k
					load[j] += p.Dimensions[k].Bytes
				}
				b.assign(j, i, k)
			}
		}
	}
	return b.manifest()
}

// level returns the switches at the position of dimension k on all paths, if they are usable and
// each path has one of them.
func level(paths [][]int, position func(k, hops int) int, k int, usable func(j int) bool) ([]int, bool) {
	at := make(map[int]bool)
	for _, path := range paths {
		at[path[position(k, len(path))]] = true
	}
	return cut(paths, false, func(j int) bool { return at[j] && usable(j) })
}

// query assigns each dimension of a pair to the switch on all of its paths that keeps a sketch of
// it, else to the switch with the fewest sketches. Each pair costs a request.
func query(p *Problem) *Manifest {
	b := p.builder()
	kept, load := make([]Set, len(p.Switches)), make([]int, len(p.Switches))
	for i := range p.Pairs {
		paths := p.Pairs[i].Paths
		for k := range p.Dimensions {
			best := -1
			for _, j := range paths[0] {
				if !onAll(j, paths) || !kept[j].Has(k) && !p.fits(j, load[j], k) {
					continue
				}
				if best < 0 || kept[j].Has(k) && !kept[best].Has(k) ||
					kept[j].Has(k) == kept[best].Has(k) && load[j] < load[best] {
					best = j
				}
			}
			if best < 0 {
				b.left = add(b.left, i, k)
				continue
			}
			if !kept[best].Has(k) {
				kept[best] |= 1 << k
				load[best] += p.Dimensions[k].Bytes
			}
			b.assign(best, i, k)
		}
	}
	m := b.manifest()
	m.Requests = len(p.Pairs)
	return m
}

// minimal returns the sets of switches of all paths, without the sets that contain another set: a
// sketch on a switch of the smaller set is also on the larger one. Excluded switches are left out;
// a path without other switches is omitted.
func minimal(p *Problem) [][]int {
	var sets [][]int
	seen := make(map[string]bool)
	var name []byte
	for i := range p.Pairs {
		for _, path := range p.Pairs[i].Paths {
			set := slices.DeleteFunc(slices.Clone(path), func(j int) bool { return p.Switches[j].Excluded })
			slices.Sort(set)
			set = slices.Compact(set)
			name = name[:0]
			for _, j := range set {
				name = append(name, byte(j>>8), byte(j))
			}
			if len(set) > 0 && !seen[string(name)] {
				seen[string(name)] = true
				sets = append(sets, set)
			}
		}
	}
	slices.SortFunc(sets, func(a, b []int) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return slices.Compare(a, b)
	})
	containing := make([][]int, len(p.Switches)) // by switch: the kept sets of which it is the lowest
	var out [][]int
	for _, set := range sets {
		if slices.ContainsFunc(set, func(lowest int) bool {
			return slices.ContainsFunc(containing[lowest], func(i int) bool { return contains(set, out[i]) })
		}) {
			continue
		}
		containing[set[0]] = append(containing[set[0]], len(out))
		out = append(out, set)
	}
	return out
}

// contains reports whether the sorted set a contains the sorted set b.
func contains(a, b []int) bool {
	i := 0
	for _, x := range b {
		for i < len(a) && a[i] < x {
			i++
		}
		if i == len(a) || a[i] != x {
			return false
		}
	}
	return true
}
