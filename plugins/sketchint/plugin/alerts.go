// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/alert"
)

// The kinds of alert, as in the YANG module.
const (
	latencyInflated alert.Kind = "LATENCY_INFLATED"
	pathChanged     alert.Kind = "PATH_CHANGED"
	packetsLost     alert.Kind = "PACKETS_LOST"
	hostMissing     alert.Kind = "HOST_MISSING"
	switchMissing   alert.Kind = "SWITCH_MISSING"
	unread          alert.Kind = "UNREAD"
	inexact         alert.Kind = "INEXACT"
	planFailed      alert.Kind = "PLAN_FAILED"
)

// severity returns the severity of an alert of this kind.
func severity(k alert.Kind) string {
	switch k {
	case pathChanged, unread, planFailed:
		return "MINOR"
	}
	return "MAJOR"
}

// alertEvents returns the log events of alerts that began or ended.
func alertEvents(changes []alert.Alert) (events []sdk.Event) {
	for i := range changes {
		x := &changes[i]
		name := x.Location
		switch x.Kind {
		case latencyInflated, pathChanged, packetsLost, switchMissing:
			name = "switch " + name
		case hostMissing, unread:
			name = "host " + name
		}
		events = append(events, x.Event(name))
	}
	return events
}

// namedFlows is how many flows the text of an alert names.
const namedFlows = 3

// examples names the first flows of a list.
func examples[T any](flows []T, text func(T) string) string {
	var names []string
	for _, f := range flows[:min(len(flows), namedFlows)] {
		names = append(names, text(f))
	}
	if len(flows) > namedFlows {
		names = append(names, "…")
	}
	return strings.Join(names, "; ")
}

// alarm adds the problems that concern switches: inflated latencies with the flows and how long,
// drops, and changed paths.
func (r *interval) alarm(changed []*pathChange) {
	for _, name := range slices.Sorted(maps.Keys(r.switches)) {
		s := r.switches[name]
		if s.drops > 0 {
			r.problem(name, packetsLost, "it reported %d dropped packets", s.drops)
		}
		if s.inflatedPackets < r.config.InflatedPackets && s.lastingPackets < r.config.InflatedPackets {
			continue
		}
		epochs := r.epoch.Number + 1 - s.since
		var text string
		if s.inflatedPackets > 0 {
			text = fmt.Sprintf("%d packets had more than %g times the mean latency of their flow, up to %v; ",
				s.inflatedPackets, r.config.Inflation, time.Duration(s.inflatedWorst))
		}
		if s.lasting > 0 {
			text += fmt.Sprintf("%d flows have a mean latency of more than %g times the normal one; ", s.lasting,
				r.config.Inflation)
		}
		r.problem(name, latencyInflated, "%s%d flows are affected, for %v (%d epochs): %s", text, s.inflatedFlows,
			time.Duration(epochs)*r.length, epochs, examples(s.inflated, func(f *inflation) string { return f.Key.String() }))
	}
	at := map[string][]*pathChange{}
	for _, c := range changed {
		at[c.at] = append(at[c.at], c)
	}
	for _, name := range slices.Sorted(maps.Keys(at)) {
		r.problem(name, pathChanged, "%d flows have another path behind it: %s", len(at[name]),
			examples(at[name], func(c *pathChange) string {
				return fmt.Sprintf("%v from %s to %s", c.flow.key, cmp.Or(c.before, "several paths"), r.path(c.flow.path))
			}))
	}
	if len(r.inexact) > 0 {
		r.problem(networkElement, inexact, "%s", strings.Join(r.inexact, "; "))
	}
}

// pathChange is a heavy flow whose path changed.
type pathChange struct {
	flow   *heavyFlow
	at     string // last switch that the paths have in common
	before string // earlier path; empty: not known
}

// pathChanges returns flows with another path than in the interval before, or several in this one.
func (r *interval) pathChanges(flows []*heavyFlow) (out []*pathChange) {
	for _, f := range flows {
		switch {
		case f.previous != nil:
			out = append(out, &pathChange{f, r.name(fork(f.previous, f.path)), r.path(f.previous)})
		case f.changes > 0 && f.path != nil:
			out = append(out, &pathChange{f, r.name(f.path[0]), ""})
		}
	}
	return out
}
