// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/alert"
)

// The kinds of alert that are not faults, as in the YANG module.
const (
	hostMissing   alert.Kind = "host-missing"
	switchMissing alert.Kind = "switch-missing"
	inexactKind   alert.Kind = "inexact"
	planFailed    alert.Kind = "plan-failed"
)

// networkElement is the subject of problems of the network.
const networkElement = "network"

// severity returns the severity of an alert of this kind.
func severity(k alert.Kind) string {
	switch k {
	case switchMissing, planFailed, inexactKind:
		return "minor"
	}
	return "major"
}

// namedFlows is how many flows the text of an alert names.
const namedFlows = 3

// alarm adds the faults of flows as problems of their switches. A fault begins no alert if switches
// in front of it were not measured, because one of them may be to blame, nor if later columns may
// change it. Early results end no alert.
func (p *Plugin) alarm(r *run) {
	type subject struct{ name, kind string }
	all := map[subject][]*flowState{}
	sure, seen := map[subject]bool{}, map[place]uint64{}
	for _, f := range r.flows {
		for _, x := range f.faults {
			s := subject{x.name, x.kind}
			all[s] = append(all[s], f)
			sure[s] = sure[s] || !x.unsure && !(x.early && r.early())
			at := place{f.key, x.name, x.kind}
			seen[at] = cmp.Or(p.since[at], r.first)
		}
		r.faults += len(f.faults)
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
	p.since = seen
	for _, s := range slices.SortedFunc(maps.Keys(all), func(a, b subject) int {
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.kind, b.kind))
	}) {
		flows := all[s]
		var names []string
		for _, f := range flows[:min(len(flows), namedFlows)] {
			names = append(names, f.key.String())
		}
		if len(flows) > namedFlows {
			names = append(names, "…")
		}
		r.problems = append(r.problems, alert.Problem{Subject: s.name, Kind: alert.Kind(s.kind), Unsure: !sure[s],
			Text: fmt.Sprintf("%d flows: %s", len(flows), strings.Join(names, "; "))})
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
