// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"fmt"
	"slices"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/plugins/omnimon/linear"
)

// inference attributes the losses of one epoch (paper, section 5.2).
//
// An unknown is the number of packets that a flow lost at one switch or link of its path
// (locality). An open flow has another unknown, for the packets that may have arrived. Three kinds
// of equations hold exactly:
//
//   - flow: its unknowns add up to what the source sent minus what the destination received;
//   - slot: what flows lost before they reached the slot's switch adds up to what is missing in the
//     slot, and what they lost behind it, to what is in the slot and did not arrive;
//   - switch or link: where packets are counted on both sides, what flows lost there adds up to the
//     difference. If the difference is zero, the unknowns there are zero (sparsity).
//
// Flows that no report has, such as flows of a missing host, add packets to slots, and lose
// packets. Then the sums at slots, switches and links are bounds instead of equations: flows lost
// at least the deficit of a slot before it, at most the packets that did not arrive behind it, and
// at an element at most the difference.
type inference struct {
	net   *Network
	flows []*LossyFlow // lossy flows of the result, then the open flows
	// deficits are the missing packets of each slot and statistic.
	deficits []int64
	present  []bool  // whether an array has data
	total    []total // totals by switch, then by link
	// unknown is set if flows that are in no report may have passed any slot and element, anywhere
	// if they may also have come by the link of any host.
	unknown, anywhere bool
	// leftOut has the slot numbers, at any switch, that flows without a path may have used.
	leftOut map[int]bool
	// floating bounds the packets that flows without a report lost, at any element.
	floating int64
	distrust []bool // totals of elements, and the slots of switches, that contradict other counts
}

// leaveOut leaves out the equations that a flow without a path may be a part of.
func (in *inference) leaveOut(f *Flow) {
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

// merge adds up the workers' expectations and subtracts the switches' counts.
func (a *Analyzer) merge(r *Result, e *Epoch) *inference {
	in := &inference{net: &a.net, present: make([]bool, a.net.Arrays), deficits: a.workers[0].expected}
	in.total = make([]total, a.net.Switches+len(a.net.Links))
	in.distrust = make([]bool, len(in.total))
	r.Elements = make([]string, len(in.total))
	for _, flows := range [][]LossyFlow{r.Lossy, r.Open} {
		for i := range flows {
			in.flows = append(in.flows, &flows[i])
		}
	}
	for i := range r.Odd {
		in.leaveOut(&r.Odd[i])
	}
	in.anywhere = len(r.Odd) > 0 || slices.Contains(r.strangers, true)
	in.unknown = in.anywhere || slices.Contains(r.incomplete, true)
	for host := range r.reports {
		// Without packets behind its link, a missing host has no part in any slot.
		if up := a.net.Uplinks[host]; r.reports[host] == nil && (up < 0 || counted(e.Arrived, int(up)) != 0) {
			in.unknown = true
		}
	}
	size := a.net.Slots * a.net.words()
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
	return in
}

// counted returns the count of packets on a link, -1 if it is not known.
func counted(counts []int64, link int) int64 {
	if link < len(counts) {
		return counts[link]
	}
	return -1
}

// totals computes how many packets each switch and link lost, where both sides are counted.
func (in *inference) totals(r *Result, e *Epoch) {
	a := r.analyzer
	sent, received := make([]int64, len(a.net.Links)), make([]int64, len(a.net.Links))
	for i, l := range a.net.Links {
		sent[i], received[i] = counted(e.Departed, i), counted(e.Arrived, i)
		if l.From == Host {
			sent[i] = 0
		} else if in.distrust[l.From] {
			sent[i] = -1
		}
		if l.To == Host {
			received[i] = 0
		} else if in.distrust[l.To] {
			received[i] = -1
		}
		for w := range a.workers {
			if l.From == Host {
				sent[i] += a.workers[w].sent[i]
			}
			if l.To == Host {
				received[i] += a.workers[w].received[i]
			}
		}
	}
	for host := range r.reports {
		if up := a.net.Uplinks[host]; up >= 0 && (in.anywhere || r.reports[host] == nil || r.incomplete[host]) {
			sent[up] = -1
		}
		if down := a.net.Downlinks[host]; down >= 0 && (r.reports[host] == nil || r.uncounted[host] > 0 ||
			r.strangers[host]) {
			received[down] = -1
		}
	}
	at := make([]int64, a.net.Switches) // arrived minus departed
	open := make([]bool, a.net.Switches)
	for i, l := range a.net.Links {
		// A switch counts at its own side of links to hosts, too.
		in.total[a.net.Switches+i] = total{sent[i] - received[i], sent[i] >= 0 && received[i] >= 0}
		if l.From != Host {
			at[l.From] -= sent[i]
			open[l.From] = open[l.From] || sent[i] < 0
		}
		if l.To != Host {
			at[l.To] += received[i]
			open[l.To] = open[l.To] || received[i] < 0
		}
	}
	for s := range at {
		in.total[s] = total{at[s], !open[s]}
	}
	for element := range in.total {
		in.total[element].known = in.total[element].known && !in.distrust[element]
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

// infer fills in the losses of all flows and their sums.
func (in *inference) infer(r *Result, e *Epoch) {
	for _, f := range in.flows {
		f.Losses = make([]Loss, 2*len(f.Path.Hops)+1)
	}
	for again := true; again; again = in.check(r) {
		in.totals(r, e)
	}
	r.Unknown = in.unknown
	unknowns, flowOf := in.unknowns()
	packets := in.solve(r, int(wire.Packets), unknowns, flowOf, nil)
	if !slices.Equal(packets.Low, packets.High) && len(r.Contradictions) == 0 && !in.unknown {
		in.combine(r, unknowns, packets)
	}
	r.Switches, r.Links = make([]Bounds, in.net.Switches), make([]Bounds, len(in.net.Links))
	sum := func(element int) *Bounds {
		if element < in.net.Switches {
			return &r.Switches[element]
		}
		return &r.Links[element-in.net.Switches]
	}
	for _, f := range in.flows {
		in.elements(f.Path, func(n, element int) {
			l, u := &f.Losses[n], unknowns[f.first+n]
			if u >= 0 {
				l.Packets = Bounds{packets.Low[u], packets.High[u]}
			}
			if !f.Open || u >= 0 {
				r.Variables++
				if l.Packets.Exact() {
					r.Determined++
				}
			}
			sum(element).Low += l.Packets.Low
			sum(element).High += l.Packets.High
		})
	}
	for element, total := range in.total {
		b := sum(element)
		switch b.High += in.floating; {
		case total.known:
			*b = Bounds{total.packets, total.packets}
		case in.unknown || in.fromUnknown(r, element):
			b.High = Unlimited
		}
	}
	in.values(r, unknowns, flowOf, packets)
}

// fromUnknown reports whether an element is the link from a host that may have sent more packets
// than its report has.
func (in *inference) fromUnknown(r *Result, element int) bool {
	for host, up := range in.net.Uplinks {
		if int(up) == element-in.net.Switches && element >= in.net.Switches {
			return r.reports[host] == nil || r.incomplete[host]
		}
	}
	return false
}

// check finds counts that contradict the arrived packets, and records the reason. A switch whose
// slots lack packets that arrived, and a switch or link that lost less than nothing, have no
// equations from then on: check returns true if there are new ones. Where a slot counted more
// packets than hosts sent, flows that no report has may have passed any slot.
func (in *inference) check(r *Result) (again bool) {
	size, words := in.net.Slots*in.net.words(), in.net.words()
	lost, most := map[int]int64{}, make([]int64, len(in.total)) // at most, by slot and element
	for _, f := range in.flows {
		in.slots(f, func(_, at, _ int) { lost[at] += f.Lost[wire.Packets] })
		in.elements(f.Path, func(_, element int) { most[element] += f.Lost[wire.Packets] })
	}
	note := func(element int, distrust bool, format string, args ...any) {
		if r.Elements[element] == "" {
			r.Elements[element] = fmt.Sprintf(format, args...)
		}
		if distrust && !in.distrust[element] {
			in.distrust[element], again = true, true
		}
	}
	unknown := in.unknown
	for array, present := range in.present {
		more, less := 0, 0
		for i := 0; present && i < size; i += words {
			d := in.deficits[array*size+i]
			switch {
			case d == 0 || in.leftOut[i/words]:
			case d < 0 && !unknown:
				more++
			case d > 0 && d > lost[array*size+i]:
				less++
			}
		}
		if s := int(in.net.SwitchOf[array]); more > 0 {
			note(s, false, "%d slots counted packets that no host sent", more)
			again, in.unknown, in.anywhere = true, true, true
		} else if less > 0 {
			note(s, true, "%d slots did not count packets that arrived", less)
		}
	}
	for element, total := range in.total {
		switch {
		case !total.known:
		case total.packets < 0:
			note(element, true, "it sent %d packets that it did not receive", -total.packets)
		case total.packets > most[element]+in.floating && !in.unknown:
			note(element, true, "it did not count %d packets that arrived", total.packets-most[element]-in.floating)
		}
	}
	for array := range in.present {
		in.present[array] = in.present[array] && !in.distrust[in.net.SwitchOf[array]]
	}
	return again
}

// unknowns numbers the unknowns that are not known to be zero. The result has one element per loss,
// in the order of the flows, and one for the arrived packets of an open flow; flowOf is the flow of
// each unknown.
func (in *inference) unknowns() (unknowns, flowOf []int32) {
	for i, f := range in.flows {
		f.first = len(unknowns)
		add := func(zero bool) {
			if zero {
				unknowns = append(unknowns, -1)
				return
			}
			unknowns = append(unknowns, int32(len(flowOf)))
			flowOf = append(flowOf, int32(i))
		}
		in.elements(f.Path, func(_, element int) { add(in.total[element] == (total{known: true})) })
		if f.Open {
			add(false)
		}
	}
	return unknowns, flowOf
}

// of returns the unknowns of a flow.
func (in *inference) of(f *LossyFlow, unknowns []int32) []int32 {
	n := len(f.Losses)
	if f.Open {
		n++
	}
	return unknowns[f.first : f.first+n]
}

// passages calls f for each slot that a flow passed and that has equations: with the position of
// its first value, and the unknown losses of the flow before it and behind it. f must not change
// them.
func (in *inference) passages(flow *LossyFlow, unknowns []int32, f func(at int, before, behind []int32)) {
	var all []int32
	for _, u := range in.of(flow, unknowns) {
		if u >= 0 {
			all = append(all, u)
		}
	}
	in.slots(flow, func(hop, at, slot int) {
		n := 0
		for _, u := range unknowns[flow.first : flow.first+2*hop+1] {
			if u >= 0 {
				n++
			}
		}
		if in.present[flow.Path.Hops[hop].Array] && !in.leftOut[slot] {
			f(at, all[:n:n], all[n:])
		}
	})
}

// slots calls f for each switch on the path of a flow that measures: with its number on the path,
// the position of the slot's first value, and the number of the slot.
func (in *inference) slots(flow *LossyFlow, f func(hop, at, slot int)) {
	counted := 0
	for hop, h := range flow.Path.Hops {
		if h.Array == None {
			continue
		}
		slot := int(flow.Slots[counted%in.net.SlotsPerFlow])
		counted++
		f(hop, (int(h.Array)*in.net.Slots+slot)*in.net.words(), slot)
	}
}

// slot is the unknowns of the flows of a slot, and what these flows lost.
type slot struct {
	before, behind []int32
	lost           int64
}

// reach bounds the difference of a maximum or minimum in one packet, in both directions.
const reach = 1 << 17

// solve solves the equations that one statistic has in slots; word is its number. bounds returns
// the bounds of an unknown at the start; without bounds an unknown is 0 to what its flow lost.
func (in *inference) solve(r *Result, word int, unknowns, flowOf []int32,
	bounds func(unknown int32, lost int64) (low, high int64)) *linear.System {
	s := in.net.statistic(word)
	sys := &linear.System{Low: make([]int64, len(flowOf)), High: make([]int64, len(flowOf))}
	low, high := make([]int64, len(flowOf)), make([]int64, len(flowOf)) // at the start
	for u, i := range flowOf {
		lost := in.flows[i].Lost[s]
		if high[u] = lost; bounds != nil {
			low[u], high[u] = bounds(int32(u), lost)
		}
		sys.High[u] = high[u] - low[u] // a system has no negative unknowns, so they count from low
	}
	from := func(unknowns []int32) (sum int64) {
		for _, u := range unknowns {
			sum += low[u]
		}
		return sum
	}
	slots, elements := map[int]*slot{}, make([][]int32, len(in.total))
	var order []int
	for _, f := range in.flows {
		in.elements(f.Path, func(n, element int) {
			if u := unknowns[f.first+n]; u >= 0 && s == wire.Packets && in.total[element].known {
				elements[element] = append(elements[element], u)
			}
		})
		in.passages(f, unknowns, func(at int, before, behind []int32) {
			x := slots[at]
			if x == nil {
				x = &slot{}
				slots[at], order = x, append(order, at)
			}
			x.before, x.behind, x.lost = append(x.before, before...), append(x.behind, behind...), x.lost+f.Lost[s]
		})
		var all []int32
		for _, u := range in.of(f, unknowns) {
			if u >= 0 {
				all = append(all, u)
			}
		}
		if n := len(in.of(f, unknowns)); f.Open && s == wire.Packets && r.reports[f.Destination] != nil {
			arrived := &sys.High[unknowns[f.first+n-1]]
			*arrived = min(*arrived, int64(min(r.uncounted[f.Destination], 1<<40)))
		}
		sys.Add(all, f.Lost[s]-from(all))
	}
	for _, at := range order {
		x, deficit := slots[at], in.deficits[at+word]
		if !in.unknown {
			sys.Add(x.before, deficit-from(x.before))
			rest := x.lost - deficit - from(x.behind)
			sys.Bound(x.behind, rest, rest)
		} else if s < wire.FirstExtreme { // differences of unknown flows have any sign
			sys.Bound(x.before, max(deficit, 0)-from(x.before), linear.Unlimited)
			sys.Bound(x.behind, -from(x.behind), x.lost-deficit-from(x.behind))
		}
	}
	for element, all := range elements {
		switch total := in.total[element].packets; {
		case len(all) == 0:
		case in.unknown || in.floating > 0:
			sys.Bound(all, max(total-in.most(), 0), total)
		default:
			sys.Add(all, total)
		}
	}
	if bad := sys.Solve(); len(bad) > 0 {
		r.contradict("%d equations of lost %v contradict each other", len(bad), s)
		sys.Low, sys.High = low, high
		return sys
	}
	for u := range flowOf {
		sys.Low[u] += low[u]
		sys.High[u] += low[u]
	}
	return sys
}

// most returns the largest number of packets that flows without equations may have lost.
func (in *inference) most() int64 {
	if in.unknown {
		return linear.Unlimited
	}
	return in.floating
}

func (r *Result) contradict(format string, args ...any) {
	r.Contradictions = append(r.Contradictions, fmt.Sprintf(format, args...))
}

// values fills in all statistics of losses. A loss of no packets has no values, and a loss of all
// lost packets of a flow has all values; for the others each statistic is solved like packets.
func (in *inference) values(r *Result, unknowns, flowOf []int32, packets *linear.System) {
	open := false
	for u, i := range flowOf {
		if lost := in.flows[i].Lost[wire.Packets]; packets.Low[u] < lost && packets.High[u] > 0 {
			open = true
		}
	}
	systems := make([]*linear.System, wire.Statistics)
	if open {
		systems[wire.Packets] = packets
		for word := 1; word < in.net.words(); word++ {
			s := in.net.statistic(word)
			systems[s] = in.solve(r, word, unknowns, flowOf, func(u int32, lost int64) (low, high int64) {
				switch {
				case packets.High[u] == 0:
					return 0, 0
				case packets.Low[u] == in.flows[flowOf[u]].Lost[wire.Packets]:
					return lost, lost
				case s >= wire.FirstExtreme:
					most := min(packets.High[u], 1<<32) * reach
					return -most, most
				}
				return 0, lost
			})
		}
	}
	for _, f := range in.flows {
		for n := range f.Losses {
			l, u := &f.Losses[n], unknowns[f.first+n]
			switch {
			case l.Packets.High == 0:
				l.Exact = true
			case l.Packets.Low == f.Lost[wire.Packets]:
				l.Values, l.Exact = f.Lost, true
			case l.Packets.Exact():
				l.Exact = true
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
