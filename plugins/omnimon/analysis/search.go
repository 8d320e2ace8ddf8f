// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"slices"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/sketch/flow"
)

// Search finds the paths of flows where another controller owns the routes: a flow took the path
// whose slots show it (paper, section 5.2). The functions are called concurrently.
type Search struct {
	// Arrays is by link the slot array that counts the packets that it brings to a switch, or None.
	Arrays []int32
	// Hosts is by link the host at its end; -1: a switch.
	Hosts []int32
	// Ends returns the destination of a flow, the link from its source and that to the destination;
	// -1: it has none.
	Ends func(source int, k *flow.Key) (destination int, first, last int32)
	// Next appends the links by which a switch may send packets of a flow.
	Next func(at int32, k *flow.Key, links []int32) []int32
	// SinglePath states that all packets of a flow take one path in an epoch. Otherwise flowlets may
	// take other paths, so a flow has a path only if no packet of it can have taken another one.
	SinglePath bool
}

// Bounds of a search.
const (
	// maxDetour is how many switches a path may have more than the shortest one.
	maxDetour = 2
	// maxPasses bounds the passes over the flows without a path. Each finds at least one.
	maxPasses = 100
)

// sought is a flow whose path is sought.
type sought struct {
	key                flow.Key
	slots              [4]uint16
	destination        int
	first, last, limit int32
	// low is the least that passed every switch of the path: the packets that arrived.
	low  wire.Values
	path *Path // path that the slots show; nil until it is found
}

// seeker is a search in one epoch.
type seeker struct {
	net       *Network
	distances []int32 // distances of the analyzer
	// left is the count of each slot less the packets of flows with a path; nil: not counted.
	left   [][]int64
	usable []wire.Statistic // statistics whose counters do not wrap
}

// search finds the paths of all flows of an epoch. A path is excluded if one of its slots counted
// fewer packets than arrived of the flow. A flow with only one possible path took it, and its
// packets leave less in these slots for other flows; so this is repeated. No path is guessed. The
// result is by host and row of its report.
func (a *Analyzer) search(reports [][]byte, recorded [][]int64) (paths [][]*Path) {
	paths = make([][]*Path, len(reports))
	flows := make([][]sought, len(reports))
	a.parallel(len(reports), func(_ *worker, host int) { flows[host] = a.seek(reports, host) })
	s := &seeker{net: &a.net, distances: a.distances, left: make([][]int64, a.net.Arrays)}
	for array := range s.left {
		if array < len(recorded) && len(recorded[array]) == a.net.Slots*a.net.words() {
			s.left[array] = slices.Clone(recorded[array])
		}
	}
	var sum wire.Values
	var open []*sought
	for host := range flows {
		paths[host] = make([]*Path, len(flows[host]))
		for i := range flows[host] {
			f := &flows[host][i]
			sum.Add(&f.low)
			open = append(open, f)
		}
	}
	for j := range wire.Statistic(a.net.Values) {
		if a.net.Bits == 64 || sum[j]>>a.net.Bits == 0 {
			s.usable = append(s.usable, j)
		}
	}
	const batch = 1024
	for pass, before := 0, -1; pass < maxPasses && len(open) != before; pass++ {
		before = len(open)
		a.parallel((len(open)+batch-1)/batch, func(_ *worker, i int) {
			for _, f := range open[i*batch : min((i+1)*batch, len(open))] {
				f.path = s.only(f)
			}
		})
		open = slices.DeleteFunc(open, func(f *sought) bool {
			if f.path != nil {
				s.take(f)
			}
			return f.path != nil
		})
	}
	for host := range flows {
		for i := range flows[host] {
			f := &flows[host][i]
			if f.path == nil && f.destination >= 0 {
				f.path = &Path{From: f.first, Last: f.last}
			}
			paths[host][i] = f.path
		}
	}
	return paths
}

// seek returns the flows of a host in the order of its report.
func (a *Analyzer) seek(reports [][]byte, host int) (out []sought) {
	rep, _ := wire.Open(reports[host]) // a missing report has no rows
	var row wire.EgressRow
	for rep.NextEgress(&row) {
		f := sought{key: row.Key, slots: row.Slots}
		f.destination, f.first, f.last = a.net.Search.Ends(host, &row.Key)
		if int(slices.Max(row.Slots[:a.net.SlotsPerFlow])) >= a.net.Slots {
			f.destination = -1 // join refuses the report
		}
		if f.destination >= 0 {
			f.limit = a.distances[f.destination*a.net.Switches+int(a.net.Links[f.first].To)] + maxDetour
			if values, own := a.arrived(reports, host, &row, f.destination); values != nil && own {
				_ = f.low.Decode(values) // join refuses the report if they do not decode
			}
		}
		out = append(out, f)
	}
	return out
}

// only returns the only path of a flow that the slots do not exclude, nil if there are several or
// none, or if the flow has packets on several.
func (s *seeker) only(f *sought) (path *Path) {
	if f.destination < 0 {
		return nil
	}
	var hops [maxDetour + 62]Hop
	found := 0
	var walk func(link int32, n, counted int)
	walk = func(link int32, n, counted int) {
		at := s.net.Links[link].To
		if at == Host {
			if int(s.net.Search.Hosts[link]) == f.destination {
				if found++; found == 1 {
					path = &Path{Hops: slices.Clone(hops[:n]), Last: link}
				}
			}
			return
		}
		hop := Hop{Link: link, Switch: at, Array: s.net.Search.Arrays[link]}
		if n == len(hops) || slices.ContainsFunc(hops[:n], func(h Hop) bool { return h.Switch == at }) ||
			int32(n)+s.distances[f.destination*s.net.Switches+int(at)] > f.limit || !s.shows(f, counted, hop.Array) {
			return
		}
		hops[n] = hop
		if hop.Array != None {
			counted++
		}
		var buffer [64]int32
		for _, next := range s.net.Search.Next(at, &f.key, buffer[:0]) {
			if walk(next, n+1, counted); found > 1 {
				return
			}
		}
	}
	if walk(f.first, 0, 0); found != 1 || !s.net.Search.SinglePath && !s.whole(f, path) {
		return nil
	}
	return path
}

// whole reports whether all packets of a flow that arrived may have taken a path.
func (s *seeker) whole(f *sought, path *Path) bool {
	counted := 0
	for _, h := range path.Hops {
		if !s.covers(f, counted, h.Array) {
			return false
		}
		if h.Array != None {
			counted++
		}
	}
	return true
}

// cell returns the position of a flow's slot in an array of a switch, given the number of switches
// that counted the packet before.
func (s *seeker) cell(f *sought, counted int) int {
	return int(f.slots[counted%s.net.SlotsPerFlow]) * s.net.words()
}

// shows reports whether a slot may have counted a part of the flow that takes another path.
func (s *seeker) shows(f *sought, counted int, array int32) bool {
	if s.net.Search.SinglePath {
		return s.covers(f, counted, array)
	}
	return array == None || s.left[array] == nil || !slices.Contains(s.usable, wire.Packets) ||
		s.left[array][s.cell(f, counted)+int(wire.Packets)] > 0
}

// covers reports whether a slot counted as much as arrived of the flow.
func (s *seeker) covers(f *sought, counted int, array int32) bool {
	if array == None || s.left[array] == nil {
		return true
	}
	left, at := s.left[array], s.cell(f, counted)
	for _, j := range s.usable {
		if left[at+int(j)] < f.low[j] {
			return false
		}
	}
	return true
}

// take subtracts the packets of a flow from the slots of its path.
func (s *seeker) take(f *sought) {
	counted := 0
	for _, h := range f.path.Hops {
		if h.Array == None {
			continue
		}
		if left := s.left[h.Array]; left != nil {
			at := s.cell(f, counted)
			for _, j := range s.usable {
				left[at+int(j)] -= f.low[j]
			}
		}
		counted++
	}
}

// distancesOf returns by host and switch the count of switches on the shortest path, the switch
// included.
func distancesOf(net *Network) []int32 {
	const far = 1 << 20
	out := make([]int32, net.Hosts*net.Switches)
	for i := range out {
		out[i] = far
	}
	into := make([][]int32, net.Switches) // links that lead to each switch
	for _, l := range net.Links {
		if l.From != Host && l.To != Host {
			into[l.To] = append(into[l.To], l.From)
		}
	}
	for i, l := range net.Links {
		host := int(net.Search.Hosts[i])
		if host < 0 || l.From == Host {
			continue
		}
		d := out[host*net.Switches : (host+1)*net.Switches]
		d[l.From] = 1
		for queue := []int32{l.From}; len(queue) > 0; queue = queue[1:] {
			for _, from := range into[queue[0]] {
				if d[from] > d[queue[0]]+1 {
					d[from] = d[queue[0]] + 1
					queue = append(queue, from)
				}
			}
		}
	}
	return out
}
