// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"cmp"
	"log/slog"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/yang/table"
)

// kind is the kind of an alert, as in the YANG module.
type kind string

// The kinds of alert.
const (
	networkIll    kind = "network-ill"    // the latest network state is ill
	switchMissing kind = "switch-missing" // the data of an edge switch is missing or incomplete
	badCells      kind = "bad-cells"      // the delivered cells do not match the pipeline
	notDecoded    kind = "not-decoded"    // a part of an encoder cannot be decoded
	outOfStep     kind = "out-of-step"    // the switches' epochs differ
	notMeasured   kind = "not-measured"   // packets enter or leave at switches that do not measure
	planFailed    kind = "plan-failed"    // a plan was not applied to a switch, or this is uncertain
	badWatch      kind = "watched-flow"   // only in the log
)

// problem is a problem found in one epoch.
type problem struct {
	subject string // a switch, or Network
	kind    kind
	text    string
}

// alert is a problem over time.
type alert struct {
	Subject string
	Kind    kind
	Text    string // the latest
	Active  bool
	Since   uint64 // epoch in which it became active or inactive
	At      int64  // the end of that epoch, in nanoseconds since 1970
	Count   uint64 // number of activations
}

// maxAlerts bounds the stored alerts. The inactive alerts that ended first are dropped first.
const maxAlerts = 1000

// alerts are sorted by subject and kind.
type alerts []alert

func (a alerts) find(subject string, k kind) (int, bool) {
	return slices.BinarySearchFunc(a, alert{Subject: subject, Kind: k}, alert.compare)
}

func (x alert) compare(y alert) int {
	return cmp.Or(strings.Compare(x.Subject, y.Subject), strings.Compare(string(x.Kind), string(y.Kind)))
}

// update applies an epoch's problems. It returns the alerts that became active and those that
// became inactive; an alert whose text changed is in neither.
func (a *alerts) update(epoch *sdk.Epoch, problems []problem) (raised, cleared []alert) {
	at, still := epoch.End.UnixNano(), make(map[[2]string]bool)
	for _, p := range problems {
		still[[2]string{p.subject, string(p.kind)}] = true
		i, ok := a.find(p.subject, p.kind)
		if !ok {
			*a = slices.Insert(*a, i, alert{Subject: p.subject, Kind: p.kind})
		}
		x := &(*a)[i]
		x.Text = clip(p.text)
		if !x.Active {
			x.Active, x.Since, x.At = true, epoch.Number, at
			x.Count++
			raised = append(raised, *x)
		}
	}
	for i := range *a {
		if x := &(*a)[i]; x.Active && !still[[2]string{x.Subject, string(x.Kind)}] {
			x.Active, x.Since, x.At = false, epoch.Number, at
			cleared = append(cleared, *x)
		}
	}
	*a = a.newest(maxAlerts)
	return raised, cleared
}

// newest returns at most n alerts: the active ones, then those that ended last.
func (a alerts) newest(n int) alerts {
	if len(a) <= n {
		return a
	}
	order := slices.Clone(a)
	slices.SortStableFunc(order, func(x, y alert) int {
		if x.Active != y.Active {
			if x.Active {
				return -1
			}
			return 1
		}
		return cmp.Compare(y.At, x.At)
	})
	order = order[:n]
	slices.SortFunc(order, alert.compare)
	return order
}

// alertEvents returns the log events of raised and cleared alerts. Changes of the network state
// have their own events.
func alertEvents(raised, cleared []alert) (events []sdk.Event) {
	for _, x := range raised {
		if x.Kind != networkIll {
			events = append(events, sdk.Event{Level: slog.LevelWarn, Message: clip(x.name() + ": " + x.Text),
				Attributes: map[string]string{"alert": string(x.Kind)}})
		}
	}
	for _, x := range cleared {
		if x.Kind != networkIll && x.Kind != badWatch {
			events = append(events, sdk.Event{Level: slog.LevelInfo, Message: clip(x.name() + ": resolved"),
				Attributes: map[string]string{"alert": string(x.Kind)}})
		}
	}
	return events
}

func (x *alert) name() string {
	switch {
	case x.Kind == badWatch:
		return "watched flow " + x.Subject
	case x.Subject == Network:
		return "network"
	}
	return "switch " + x.Subject
}

// severity returns the severity of an alert of this kind.
func (k kind) severity() string {
	switch k {
	case networkIll, switchMissing, badCells, notMeasured:
		return "major"
	}
	return "minor"
}

// alertTable builds the list of alerts: all that have been active, and network-ill.
func (a *analysis) alertTable([]*view) (*table.Table, error) {
	b := table.NewBuilder(alertList)
	subject, kinds, epoch := b.TextKey("subject"), b.TextKey("kind"), b.Uint("state/epoch")
	active, severity, text := b.Bool("state/active"), b.Text("state/severity"), b.Text("state/text")
	since, at, count := b.Uint("state/since-epoch"), b.Uint("state/last-change"), b.Uint("state/count")
	for _, x := range a.alerts {
		if x.Kind == badWatch {
			continue
		}
		subject.Append(x.Subject)
		kinds.Append(string(x.Kind))
		epoch.Append(a.epoch.Number)
		active.Append(x.Active)
		severity.Append(x.Kind.severity())
		count.Append(x.Count)
		if x.Count == 0 { // network-ill before its first activation
			text.AppendNull()
			since.AppendNull()
			at.AppendNull()
			continue
		}
		text.Append(x.Text)
		since.Append(x.Since)
		at.Append(uint64(max(x.At, 0)))
	}
	return b.Table()
}
