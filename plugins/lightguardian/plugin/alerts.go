// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/plugins/lightguardian/analysis"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/alert"
	"github.com/netsketch/netsketch/sketch/flow"
)

// The kinds of alert that are not faults, as in the YANG module.
const (
	hostMissing   alert.Kind = "HOST_MISSING"
	switchMissing alert.Kind = "SWITCH_MISSING"
	inexactKind   alert.Kind = "INEXACT"
	planFailed    alert.Kind = "PLAN_FAILED"
	fewSketchlets alert.Kind = "FEW_SKETCHLETS"
)

// networkElement is the subject of problems of the network.
const networkElement = "network"

// severity returns the severity of an alert of this kind.
func severity(k alert.Kind) string {
	switch k {
	case switchMissing, planFailed, inexactKind, fewSketchlets:
		return "MINOR"
	}
	return "MAJOR"
}

// namedFlows is how many flows the text of an alert names.
const namedFlows = 3

// sub is a switch or host with a kind of fault.
type sub struct{ name, kind string }

// evidence is what the flows of an interval show about a fault of a switch.
type evidence struct {
	keys    []flow.Key
	doubts  map[flow.Key]float64 // of the flows that may begin an alert
	choices float64              // number of events that could have shown as much by chance
}

func newEvidence() *evidence { return &evidence{doubts: map[flow.Key]float64{}, choices: 1} }

// count adds the doubt that a flow shows.
func (e *evidence) count(k flow.Key, doubt float64) {
	if d, ok := e.doubts[k]; ok {
		doubt = min(d, doubt)
	}
	e.doubts[k] = max(doubt, leastDoubt)
}

// doubt returns the doubt that the flows show together that are not among others; 1 without flows.
func (e *evidence) doubt(others map[flow.Key]float64) float64 {
	d, none := e.choices, true
	for k, x := range e.doubts {
		if _, known := others[k]; !known {
			d, none = d*x, false
		}
	}
	if none {
		return 1
	}
	return min(d, 1)
}

// misplaced is the largest doubt of an abnormal jitter for which an alert begins: the receiver has
// seen it for certain, and only its place is in doubt.
const misplaced = 0.05

// leastDoubt is the smallest doubt about a fault that only one flow shows.
const leastDoubt = 1e-6

// alarm turns the faults of flows into problems of their switches. An alert begins with faults that
// are located, whose flows both hosts counted, and that later columns do not change, if all of them
// together leave hardly a doubt, in this interval and the one before. A flow counts once, because
// it shares its buckets with the same flows in both. Packets that may have waited in a queue at the
// end of an interval count if flows of the switch show that packets are lost, or when the queue has
// ended and they have not arrived. Early results end no alert.
func (p *Plugin) alarm(r *run) {
	all, seen, waiting := map[sub]*evidence{}, map[place]uint64{}, map[place]awaited{}
	if p.doubtsOf != r.number {
		p.waitingBefore = nil
		if p.doubtsOf+1 == r.number {
			p.waitingBefore = p.waiting
		}
	}
	queues := p.settle(r)
	later := map[flow.Key]*flowState{} // flows whose packets waited; nil: they sent nothing more, and nothing came
	for at := range p.waitingBefore {
		later[at.key] = nil
	}
	for _, f := range r.flows {
		if _, ok := later[f.key]; ok {
			later[f.key] = f
		}
	}
	for at, x := range p.waitingBefore {
		s, f := sub{at.name, at.kind}, later[at.key]
		if !r.early() && !queues[at.name].waits(&r.config.rules) && (f == nil || x.lost(r, f, at.name)) {
			if all[s] == nil {
				all[s] = newEvidence()
			}
			all[s].count(at.key, x.doubt)
			all[s].keys = append(all[s].keys, at.key)
		}
	}
	for _, f := range r.flows {
		for _, x := range f.faults {
			s := sub{x.name, x.kind}
			if all[s] == nil {
				all[s] = newEvidence()
			}
			at := place{f.key, x.name, x.kind}
			all[s].keys = append(all[s].keys, f.key)
			switch {
			case x.unsure || x.early && r.early():
			case x.queued && !queues[x.name].loses(&r.config.rules, f.size(), x.value):
				waiting[at] = f.await(r, x)
			default:
				all[s].count(f.key, x.doubt)
			}
			seen[at] = cmp.Or(p.since[at], r.first)
		}
		r.faults += len(f.faults)
	}
	tested := r.tested()
	places := map[string]int{} // switches that are compared, by kind of fault
	for s := range tested {
		places[s.kind]++
	}
	for s, n := range tested {
		if e := all[s]; e != nil {
			e.choices = choices(n, len(e.doubts)) * float64(places[s.kind])
		}
	}
	if p.doubtsOf != r.number {
		p.doubtsBefore = nil
		if p.doubtsOf+1 == r.number {
			p.doubtsBefore = p.doubts
		}
		p.doubtsOf = r.number
	}
	p.doubts = all
	sure := map[sub]bool{}
	for s, e := range all {
		before := 1.0
		if old := p.doubtsBefore[s]; old != nil {
			before = old.doubt(e.doubts)
		}
		most := unlikely
		if s.kind == analysis.AbnormalJitter.String() {
			most = misplaced
		}
		doubt := e.doubt(nil)
		sure[s] = doubt < 1 && doubt*before <= most
	}
	if r.early() {
		p.keep(r, seen)
	}
	p.since, p.waiting = seen, waiting
	for _, s := range slices.SortedFunc(maps.Keys(all), func(a, b sub) int {
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.kind, b.kind))
	}) {
		r.problems = append(r.problems, alert.Problem{Location: s.name, Kind: alert.Kind(s.kind), Unsure: !sure[s],
			Text: all[s].text(100 * r.share(s.name))})
	}
	p.judgeCoverage(r)
	if len(r.inexact) > 0 {
		r.problem(networkElement, inexactKind, "%s", strings.Join(r.inexact, "; "))
	}
}

// keep keeps the active alerts of faults and the times since which faults are there: early results
// end none of them.
func (p *Plugin) keep(r *run, seen map[place]uint64) {
	for at, since := range p.since {
		seen[at] = cmp.Or(seen[at], since)
	}
	for _, x := range p.alerts {
		if x.Active && x.Kind != hostMissing && x.Kind != inexactKind && x.Kind != planFailed &&
			x.Kind != fewSketchlets {
			r.problems = append(r.problems, alert.Problem{Location: x.Location, Kind: x.Kind, Unsure: true})
		}
	}
}

// text names the flows of an alert. share is the percentage of the switch's sketchlets.
func (e *evidence) text(share float64) string {
	var names []string
	for _, key := range e.keys[:min(len(e.keys), namedFlows)] {
		names = append(names, key.String())
	}
	if len(e.keys) > namedFlows {
		names = append(names, "…")
	}
	return fmt.Sprintf("%d flows, with %.0f %% of its sketchlets: %s", len(e.keys), share, strings.Join(names, "; "))
}

// awaited is a fault of a flow whose packets may have waited in a queue when the interval ended.
type awaited struct {
	doubt float64
	lacks uint64 // packets that the flow lacks at the place
	least uint64 // lost packets that make the fault
}

// await returns a fault of a flow that the next interval decides.
func (f *flowState) await(r *run, x fault) awaited {
	out, of := awaited{doubt: max(x.doubt, leastDoubt), lacks: f.sent - min(f.sent, f.got)}, f.sent
	for _, l := range f.lacks() {
		if l.name == x.name {
			out.lacks, of = l.packets, l.of
		}
	}
	share := r.config.rules.Drops
	if x.kind == analysis.Blackhole.String() {
		share = 1 - r.config.rules.Blackhole
	}
	out.least = max(uint64(math.Ceil(share*float64(of))), uint64(max(r.config.rules.DropPackets, 1)))
	return out
}

// lost reports whether the queue of a flow has ended in the next interval r, and too few packets
// came that had waited.
func (x awaited) lost(r *run, f *flowState, at string) bool {
	return f.counted() && f.late == 0 && f.sent < f.got+uint64(max(r.config.Rules.DropPackets, 1)) &&
		x.lacks-min(x.lacks, f.came(at)) >= x.least
}

// queue holds what the flows of an interval, and the next interval, show about the packets that
// they lack at a place: whether they are lost, or waited in a queue.
type queue struct {
	lost             uint64 // packets that did not arrive
	endLack, endLost uint64 // packets that flows lacked which sent nothing more, and how many did not arrive
}

// loses reports whether the packets that a flow lacks at a place make a fault if as many of them
// are lost as of the packets of flows that ended, or all if no flow ended. share is the share of
// the flow's packets that it lacks.
func (q queue) loses(rules *analysis.Rules, sent uint64, share float64) bool {
	if q.endLack > 0 {
		share *= float64(q.endLost) / float64(q.endLack)
	}
	return q.lost >= uint64(max(rules.DropPackets, 1)) && share >= rules.Drops &&
		share*float64(sent) >= float64(rules.DropPackets)
}

// waits reports whether there was a queue at the place when the interval ended.
func (q queue) waits(rules *analysis.Rules) bool {
	return q.endLack-q.endLost >= uint64(max(rules.DropPackets, 1))
}

// settle returns the queues at switches, or on the links in front of them, in the final results of
// an interval. A packet that waits in a queue at the end of an interval arrives in the next one. So
// if a flow receives fewer packets in the next interval than it lacks at a place until now, the
// others are lost there, unless the flow sends more packets, which may all be lost behind the
// place. Flows of few packets often show it. Packets that a flow lacks at another place do not
// count: a full queue loses packets at its switch, and lets others wait on their way to the next
// one. p.owed has the packets that may still wait.
func (p *Plugin) settle(r *run) map[string]queue {
	if r.early() {
		return nil
	}
	before := p.owed
	if p.owedOf+1 != r.number {
		before = nil
	}
	p.owed, p.owedOf = map[place]uint64{}, r.number
	out := map[string]queue{}
	for _, f := range r.flows {
		if !f.counted() || f.rerouted || !r.next.measures(f.from) || !r.next.measures(f.to) {
			continue
		}
		sends, arrives := uint64(0), uint64(0)
		if e := r.next.flows[f.key]; e != nil {
			sends, arrives = e.sent, e.received
		}
		lost := uint64(0) // behind a place: these packets do not arrive, wherever they waited
		for _, l := range slices.Backward(f.lacks()) {
			at, q := place{key: f.key, name: l.name}, out[l.name]
			owed := before[at] + l.packets
			n := owed - min(owed, arrives+lost)
			if n > 0 && l.excess(uint32(min(n, math.MaxUint32))) > unlikely {
				n = 0
			}
			if n > 0 {
				lost += l.packets
			}
			if owed >= sends {
				q.lost += n
			}
			if sends == 0 {
				q.endLack, q.endLost = q.endLack+owed, q.endLost+n
			}
			out[l.name] = q
			if owed = min(owed, arrives); owed > 0 && slices.ContainsFunc(f.faults, func(x fault) bool {
				return x.queued && x.name == l.name
			}) {
				p.owed[at] = owed
			}
		}
	}
	return out
}

// tested returns how many flows could have shown a detour or a loop at a switch: other flows can
// cause it in any of them.
func (r *run) tested() map[sub]int {
	out, detours := map[sub]int{}, map[string]int{} // detours behind a switch
	shown := map[[2]string]bool{}                   // switches of detours, with the switch before
	for _, f := range r.flows {
		if f.counted() && f.lost() >= uint64(max(r.config.Rules.DropPackets, 1)) {
			for j := range f.hops {
				out[sub{f.hops[j].name, analysis.Loop.String()}]++
			}
		}
		for _, x := range f.faults {
			if x.kind == abnormalPath {
				detours[x.after]++
				shown[[2]string{x.after, x.name}] = true
			}
		}
	}
	for at := range shown {
		out[sub{at[1], abnormalPath}] += detours[at[0]]
	}
	return out
}

// choices returns the number of ways to choose some items of all.
func choices(all, some int) float64 {
	n := 1.0
	for i := range min(some, all) {
		n *= float64(all-i) / float64(i+1)
	}
	return n
}

const (
	// leastKnown is the least share of the switches of paths at which the packets of judged flows are
	// known in results without the reason FEW_SKETCHLETS. To locate a fault, a flow must be known at
	// the switch and at the one before: it is with a probability of 0.8 * 0.8. Of three flows that
	// show the fault, one locates it with 1 - (1-0.64)^3 = 0.95.
	leastKnown = 0.8
	// fewFor is for how many intervals the share must be lower before an alert begins: λc of switches
	// follows the packets two intervals later.
	fewFor = 4
	// namedSwitches is how many switches the text of the alert names.
	namedSwitches = 3
)

// judgeCoverage sets r.few if too few sketchlets of an interval arrived, and adds a problem if that
// was so for several intervals in a row.
func (p *Plugin) judgeCoverage(r *run) {
	type seen struct {
		name        string
		hops, known int
	}
	switches, all := map[string]*seen{}, seen{}
	for _, f := range r.flows {
		if f.size() < uint64(r.config.Rules.Packets) {
			continue // the rules do not judge small flows
		}
		for j := range f.hops {
			h := &f.hops[j]
			if switches[h.name] == nil {
				switches[h.name] = &seen{name: h.name}
			}
			for _, s := range []*seen{switches[h.name], &all} {
				s.hops++
				if h.Valid {
					s.known++
				}
			}
		}
	}
	share := func(s *seen) float64 { return float64(s.known) / float64(max(s.hops, 1)) }
	few := all.hops > 0 && share(&all) < leastKnown
	switch {
	case r.early(): // columns of the interval are still on their way
	case few:
		p.few++
	default:
		p.few = 0
	}
	if !few {
		return
	}
	var texts []string
	for _, s := range slices.SortedFunc(maps.Values(switches), func(a, b *seen) int {
		return cmp.Or(cmp.Compare(share(a), share(b)), strings.Compare(a.name, b.name))
	})[:min(len(switches), namedSwitches)] {
		texts = append(texts, fmt.Sprintf("%s %.0f %%", s.name, 100*share(s)))
	}
	text := fmt.Sprintf("packets of judged flows are known at %.0f %% of the switches of their paths, least at %s: "+
		"faults that few flows show can be missed; longer epochs or interval-epochs bring more sketchlets",
		100*share(&all), strings.Join(texts, ", "))
	r.problems = append(r.problems, alert.Problem{Location: networkElement, Kind: fewSketchlets, Unsure: p.few < fewFor,
		Text: text})
	if !r.early() {
		r.few = text
	}
}

// events returns the log events of alerts that began or ended.
func events(changes []alert.Alert) (out []sdk.Event) {
	for i := range changes {
		x := &changes[i]
		name := "switch " + x.Location
		switch x.Kind {
		case hostMissing:
			name = "host " + x.Location
		case inexactKind, fewSketchlets:
			name = x.Location
		}
		out = append(out, x.Event(name))
	}
	return out
}
