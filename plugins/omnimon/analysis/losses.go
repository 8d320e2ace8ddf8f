// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"slices"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/plugins/omnimon/linear"
)

// inference attributes the losses of one epoch (paper, section 5.2).
//
// An unknown is the count of packets that a lossy flow lost at one switch or link of its path
// (locality). Three kinds of equations hold exactly:
//
// - flow: its unknowns add up to what the source sent minus what the destination received; - slot:
// what lossy flows lost before they reached the slot's switch adds up to what is missing in the
// slot; - switch or link: where packets are counted on both sides, what flows lost there adds up to
// the difference. If the difference is zero, the unknowns there are zero (sparsity).
type inference struct {
	net *Network
	// deficits is what is missing in each slot and statistic; nil if no equation of slots, switches
	// and links holds, because a host is missing.
	deficits []int64
	present  []bool  // by array
	total    []total // by switch, then by link
	// leftOut are slot numbers that flows without a path may have used, at any switch.
	leftOut map[int]bool
	// floating is what such flows lost; above 0, the losses of elements have no equations.
	floating int64
}

// leaveOut leaves out the equations that a flow without a path may be a part of.
func (in *inference) leaveOut(f *LossyFlow) {
	if in.leftOut == nil {
		in.leftOut = map[int]bool{}
	}
	for _, slot := range f.Slots[:in.net.SlotsPerFlow] {
		in.leftOut[int(slot)] = true
	}
	in.floating += f.Lost[wire.Packets]
}

// total is the count of packets that a switch or link lost, if it is known.
type total struct {
	packets int64
	known   bool
}

// merge adds up the workers' expectations and subtracts what the switches recorded.
func (a *Analyzer) merge(e *Epoch, missingHosts bool) *inference {
	in := &inference{net: &a.net, present: make([]bool, a.net.Arrays)}
	in.total = make([]total, a.net.Switches+len(a.net.Links))
	if missingHosts {
		return in
	}
	in.deficits = a.workers[0].expected
	size := a.net.Slots * a.net.Values
	a.parallel(a.net.Arrays, func(_ *worker, array int) {
		if array >= len(e.Recorded) || len(e.Recorded[array]) != size {
			return
		}
		in.present[array] = true
		deficits := in.deficits[array*size : (array+1)*size]
		for i := 1; i < len(a.workers); i++ {
			for j, v := range a.workers[i].expected[array*size : (array+1)*size] {
				deficits[j] += v
			}
		}
		shift := 64 - a.net.Bits
		for j, v := range e.Recorded[array] {
			deficits[j] = (deficits[j] - v) << shift >> shift
		}
	})
	in.totals(a, e)
	return in
}

// totals computes how many packets each switch and link lost, where both sides are counted.
func (in *inference) totals(a *Analyzer, e *Epoch) {
	known := func(counts []int64, link int) int64 {
		if link < len(counts) {
			return counts[link]
		}
		return -1
	}
	at := make([]int64, a.net.Switches) // arrived minus departed
	open := make([]bool, a.net.Switches)
	for i, l := range a.net.Links {
		sent, received := known(e.Departed, i), known(e.Arrived, i)
		if l.From == Host {
			sent = 0
			for w := range a.workers {
				sent += a.workers[w].sent[i]
			}
		} else if at[l.From] -= sent; sent < 0 {
			open[l.From] = true
		}
		if l.To == Host {
			received = 0
			for w := range a.workers {
				received += a.workers[w].received[i]
			}
		} else if at[l.To] += received; received < 0 {
			open[l.To] = true
		}
		if sent >= 0 && received >= 0 {
			in.total[a.net.Switches+i] = total{sent - received, true}
		}
	}
	for s := range at {
		if !open[s] {
			in.total[s] = total{at[s], true}
		}
	}
}

// elements calls f with each switch and link on a path, in the order of LossyFlow.Losses.
func (in *inference) elements(p *Path, f func(n int, element int)) {
	for i, h := range p.Hops {
		f(2*i, in.net.Switches+int(h.Link))
		f(2*i+1, int(h.Switch))
	}
	f(2*len(p.Hops), in.net.Switches+int(p.Last))
}

// infer fills in the losses of all lossy flows and their sums.
func (in *inference) infer(r *Result) {
	in.check(r)
	unknowns, flowOf := in.unknowns(r)
	in.explain(r, unknowns)
	r.Variables = 0
	for i := range r.Lossy {
		r.Variables += len(r.Lossy[i].Losses)
	}
	packets := in.solve(r, wire.Packets, unknowns, flowOf, nil)
	if !slices.Equal(packets.Low, packets.High) && len(r.Warnings) == 0 {
		in.combine(r, unknowns, packets)
	}
	r.Switches, r.Links = make([]Bounds, in.net.Switches), make([]Bounds, len(in.net.Links))
	for i := range r.Lossy {
		f := &r.Lossy[i]
		in.elements(f.Path, func(n, element int) {
			l := &f.Losses[n]
			if u := unknowns[f.first+n]; u >= 0 {
				l.Packets = Bounds{packets.Low[u], packets.High[u]}
			}
			if l.Packets.Exact() {
				r.Determined++
			}
			sum := &r.Links
			if element < in.net.Switches {
				sum = &r.Switches
			} else {
				element -= in.net.Switches
			}
			(*sum)[element].Low += l.Packets.Low
			(*sum)[element].High += l.Packets.High
		})
	}
	for element, total := range in.total {
		sum := &r.Links
		if element < in.net.Switches {
			sum = &r.Switches
		} else {
			element -= in.net.Switches
		}
		(*sum)[element].High += in.floating
		if total.known && len(r.Warnings) == 0 {
			(*sum)[element] = Bounds{total.packets, total.packets}
		}
	}
	in.values(r, unknowns, flowOf, packets)
}

// check warns of slots and counters that contradict the hosts.
func (in *inference) check(r *Result) {
	if in.deficits == nil {
		return
	}
	negative := 0
	size := in.net.Slots * in.net.Values
	for array, present := range in.present {
		for i := 0; present && i < size; i += in.net.Values {
			if in.deficits[array*size+i] < 0 && !in.leftOut[i/in.net.Values] {
				negative++
			}
		}
	}
	if negative > 0 {
		r.warn("%d slots counted packets that no host sent", negative)
	}
	for element, total := range in.total {
		if total.packets < 0 {
			r.warn("%s sent %d packets that it did not receive", name("switch or link", in.net.ElementNames, element),
				-total.packets)
		}
	}
}

// explain warns of slots, switches and links that lack packets although no flow lost any there: the
// packets arrived at their hosts, but a switch did not count them in the epoch.
func (in *inference) explain(r *Result, unknowns []int32) {
	if in.deficits == nil {
		return
	}
	passed, elements := map[int]bool{}, make([]bool, len(in.total))
	for i := range r.Lossy {
		f := &r.Lossy[i]
		in.passages(f, unknowns, func(at int, _ []int32) { passed[at] = true })
		in.elements(f.Path, func(_, element int) { elements[element] = true })
	}
	slots, size := 0, in.net.Slots*in.net.Values
	for array, present := range in.present {
		for i := 0; present && i < size; i += in.net.Values {
			if at := array*size + i; in.deficits[at] > 0 && !passed[at] && !in.leftOut[i/in.net.Values] {
				slots++
			}
		}
	}
	if slots > 0 {
		r.warn("%d slots did not count packets that arrived", slots)
	}
	for element, total := range in.total {
		if total.packets > 0 && !elements[element] && in.floating == 0 {
			r.warn("%s did not count %d packets that arrived", name("switch or link", in.net.ElementNames, element),
				total.packets)
		}
	}
}

// unknowns numbers the unknowns that are not known to be zero. The result has one element per loss,
// in the order of the flows; flowOf is the flow of each unknown.
func (in *inference) unknowns(r *Result) (unknowns, flowOf []int32) {
	for i := range r.Lossy {
		f := &r.Lossy[i]
		f.Losses = make([]Loss, 2*len(f.Path.Hops)+1)
		f.first = len(unknowns)
		in.elements(f.Path, func(_, element int) {
			if in.total[element] == (total{known: true}) {
				unknowns = append(unknowns, -1)
				return
			}
			unknowns = append(unknowns, int32(len(flowOf)))
			flowOf = append(flowOf, int32(i))
		})
	}
	return unknowns, flowOf
}

// passages calls f for each slot that a flow passed and that has equations: with the position of
// its first value, and the unknowns of what the flow lost before it. f must not change them.
func (in *inference) passages(flow *LossyFlow, unknowns []int32, f func(at int, before []int32)) {
	if in.deficits == nil {
		return
	}
	var before []int32
	in.elements(flow.Path, func(n, _ int) {
		if u := unknowns[flow.first+n]; u >= 0 {
			before = append(before, u)
		}
		hop := n / 2
		if n%2 == 1 || hop == len(flow.Path.Hops) || !in.present[flow.Path.Hops[hop].Array] {
			return
		}
		if slot := int(flow.Slots[hop%in.net.SlotsPerFlow]); !in.leftOut[slot] {
			f((int(flow.Path.Hops[hop].Array)*in.net.Slots+slot)*in.net.Values, before)
		}
	})
}

// solve solves the equations of one statistic. fixed narrows the bounds of unknowns at the start.
func (in *inference) solve(r *Result, s wire.Statistic, unknowns, flowOf []int32,
	fixed func(unknown int32, lost int64) (low, high int64)) *linear.System {
	sys := &linear.System{Low: make([]int64, len(flowOf)), High: make([]int64, len(flowOf))}
	for u, i := range flowOf {
		lost := r.Lossy[i].Lost[s]
		sys.High[u] = lost
		if fixed != nil {
			sys.Low[u], sys.High[u] = fixed(int32(u), lost)
		}
	}
	slots, elements := map[int][]int32{}, map[int][]int32{}
	var order, elementOrder []int
	row := func(rows map[int][]int32, order *[]int, at int) {
		if _, ok := rows[at]; !ok {
			rows[at] = nil
			*order = append(*order, at)
		}
	}
	for i := range r.Lossy {
		f := &r.Lossy[i]
		var all []int32
		in.elements(f.Path, func(n, element int) {
			u := unknowns[f.first+n]
			if u < 0 {
				return
			}
			all = append(all, u)
			if s == wire.Packets && in.total[element].known && in.floating == 0 {
				row(elements, &elementOrder, element)
				elements[element] = append(elements[element], u)
			}
		})
		in.passages(f, unknowns, func(at int, before []int32) {
			row(slots, &order, at+int(s))
			slots[at+int(s)] = append(slots[at+int(s)], before...)
		})
		sys.Add(all, f.Lost[s])
	}
	for _, at := range order {
		sys.Add(slots[at], in.deficits[at])
	}
	for _, element := range elementOrder {
		sys.Add(elements[element], in.total[element].packets)
	}
	if bad := sys.Solve(); len(bad) > 0 {
		r.warn("%d equations of lost %v contradict each other", len(bad), s)
		for u, i := range flowOf {
			sys.Low[u], sys.High[u] = 0, r.Lossy[i].Lost[s]
		}
	}
	return sys
}

// values fills in all statistics of losses. A loss of no packets has no values, and a loss of all
// lost packets of a flow has all values; for the others each statistic is solved like packets.
func (in *inference) values(r *Result, unknowns, flowOf []int32, packets *linear.System) {
	open := false
	for u, i := range flowOf {
		if lost := r.Lossy[i].Lost[wire.Packets]; packets.Low[u] < lost && packets.High[u] > 0 {
			open = true
		}
	}
	systems := make([]*linear.System, wire.FirstExtreme)
	if open {
		systems[wire.Packets] = packets
		for s := wire.Bytes; s < wire.FirstExtreme && int(s) < in.net.Values; s++ {
			systems[s] = in.solve(r, s, unknowns, flowOf, func(u int32, lost int64) (low, high int64) {
				switch {
				case packets.High[u] == 0:
					return 0, 0
				case packets.Low[u] == r.Lossy[flowOf[u]].Lost[wire.Packets]:
					return lost, lost
				}
				return 0, lost
			})
		}
	}
	for i := range r.Lossy {
		f := &r.Lossy[i]
		for n := range f.Losses {
			l, u := &f.Losses[n], unknowns[f.first+n]
			switch {
			case l.Packets.High == 0:
				l.Exact = true
			case l.Packets.Low == f.Lost[wire.Packets]:
				l.Values, l.Exact = f.Lost, true
			case l.Packets.Exact():
				// The differences of extremes have a sign, so no bounds hold for them.
				l.Exact = !slices.ContainsFunc(f.Lost[wire.FirstExtreme:], func(v int64) bool { return v != 0 })
				for s, sys := range systems {
					if sys == nil {
						l.Exact = l.Exact && f.Lost[s] == 0
						continue
					}
					l.Exact = l.Exact && sys.Low[u] == sys.High[u]
					l.Values[s] = sys.Low[u]
				}
			}
		}
	}
}
