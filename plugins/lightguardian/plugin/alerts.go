// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"fmt"
	"maps"
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
)

// networkElement is the subject of problems of the network.
const networkElement = "network"

// severity returns the severity of an alert of this kind.
func severity(k alert.Kind) string {
	switch k {
	case switchMissing, planFailed, inexactKind:
		return "MINOR"
	}
	return "MAJOR"
}

// namedFlows is how many flows the text of an alert names.
const namedFlows = 3

// sub is a switch or host with a kind of fault.
type sub struct{ name, kind string }

// evidence is what the flows of an interval show about a fault of a switch: their doubts and texts.
type evidence struct {
	keys  []flow.Key
	doubt float64 // the product of the flows that may begin an alert; 1: none
}

// misplaced is the largest doubt of an abnormal jitter for which an alert begins: the receiver has
// seen it for certain, and only its place is in doubt.
const misplaced = 0.05

// leastDoubt is the least doubt that one flow can leave.
const leastDoubt = 1e-6

// alarm turns the faults of flows into problems of their switches. An alert begins with faults that
// are located, whose flows both hosts counted, and that later columns do not change, if all of them
// together leave hardly a doubt, in this interval and the one before. Packets that may have waited
// in a queue at the end of an interval count when the queue has ended and they have not arrived, or
// when the flow lacks packets again in the next interval and the one behind it brings none of them.
// Early results end no alert.
func (p *Plugin) alarm(r *run) {
	all, seen, waiting := map[sub]*evidence{}, map[place]uint64{}, map[place]float64{}
	if p.doubtsOf != r.number {
		p.waitingBefore = nil
		if p.doubtsOf+1 == r.number {
			p.waitingBefore = p.waiting
		}
	}
	lost := map[flow.Key]bool{} // flows whose queue has ended
	for at := range p.waitingBefore {
		lost[at.key] = !r.early()
	}
	for _, f := range r.flows {
		if lost[f.key] {
			lost[f.key] = f.counted() && f.late == 0 && f.sent < f.got+uint64(max(r.config.Rules.DropPackets, 1))
		}
	}
	for at, doubt := range p.waitingBefore {
		if s := (sub{at.name, at.kind}); lost[at.key] {
			if all[s] == nil {
				all[s] = &evidence{doubt: 1}
			}
			all[s].doubt *= doubt
			all[s].keys = append(all[s].keys, at.key)
		}
	}
	for _, f := range r.flows {
		for _, x := range f.faults {
			s := sub{x.name, x.kind}
			if all[s] == nil {
				all[s] = &evidence{doubt: 1}
			}
			at := place{f.key, x.name, x.kind}
			since, again := p.since[at]
			again = again && since < r.first
			all[s].keys = append(all[s].keys, f.key)
			switch waits := x.queued && !(again && f.late == 0 && !r.early()); {
			case x.unsure || x.early && r.early():
			case waits:
				waiting[at] = max(x.doubt, leastDoubt)
			default:
				all[s].doubt *= max(x.doubt, leastDoubt)
			}
			seen[at] = cmp.Or(since, r.first)
		}
		r.faults += len(f.faults)
	}
	if p.doubtsOf != r.number {
		p.doubtsBefore = nil
		if p.doubtsOf+1 == r.number {
			p.doubtsBefore = p.doubts
		}
		p.doubtsOf = r.number
	}
	p.doubts = map[sub]float64{}
	sure := map[sub]bool{}
	for s, e := range all {
		p.doubts[s] = e.doubt
		before, known := p.doubtsBefore[s]
		if !known {
			before = 1
		}
		most := unlikely
		if s.kind == analysis.AbnormalJitter.String() {
			most = misplaced
		}
		sure[s] = e.doubt < 1 && e.doubt*before <= most
	}
	if r.early() {
		for at, since := range p.since {
			seen[at] = cmp.Or(seen[at], since)
		}
		for _, x := range p.alerts {
			if x.Active && x.Kind != hostMissing && x.Kind != inexactKind && x.Kind != planFailed {
				r.problems = append(r.problems, alert.Problem{Subject: x.Subject, Kind: x.Kind, Unsure: true})
			}
		}
	}
	p.since, p.waiting = seen, waiting
	for _, s := range slices.SortedFunc(maps.Keys(all), func(a, b sub) int {
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.kind, b.kind))
	}) {
		flows := all[s].keys
		var names []string
		for _, key := range flows[:min(len(flows), namedFlows)] {
			names = append(names, key.String())
		}
		if len(flows) > namedFlows {
			names = append(names, "…")
		}
		r.problems = append(r.problems, alert.Problem{Subject: s.name, Kind: alert.Kind(s.kind), Unsure: !sure[s],
			Text: fmt.Sprintf("%d flows, with %.0f %% of its sketchlets: %s", len(flows), 100*r.share(s.name),
				strings.Join(names, "; "))})
	}
	if len(r.inexact) > 0 {
		r.problem(networkElement, inexactKind, "%s", strings.Join(r.inexact, "; "))
	}
}

// events returns the log events of alerts that began or ended.
func events(changes []alert.Alert) (out []sdk.Event) {
	for i := range changes {
		x := &changes[i]
		name := "switch " + x.Subject
		switch x.Kind {
		case hostMissing:
			name = "host " + x.Subject
		case inexactKind:
			name = x.Subject
		}
		out = append(out, x.Event(name))
	}
	return out
}
