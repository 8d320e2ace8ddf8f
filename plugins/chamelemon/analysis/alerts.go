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

// kind is what an alert is about, as the YANG module has it.
type kind string

// The kinds of alert.
const (
	networkIll    kind = "network-ill"    // of the network, by what was decided last
	switchMissing kind = "switch-missing" // an edge switch delivered nothing, or not all
	badCells      kind = "bad-cells"      // what it delivered is none of its program's
	notDecoded    kind = "not-decoded"    // a part holds more than can be decoded
	outOfStep     kind = "out-of-step"    // switches' epochs were not the same
	notMeasured   kind = "not-measured"   // packets enter or leave where nothing measures
	planFailed    kind = "plan-failed"    // a switch is not configured as was planned
	badWatch      kind = "watched-flow"   // told in the log only
)

// problem is something that is wrong in an epoch.
type problem struct {
	subject string // a switch, or Network
	kind    kind
	text    string
}

// alert is a problem over time.
type alert struct {
	Subject string
	Kind    kind
	Text    string // newest
	Active  bool
	Since   uint64 // epoch in which it became active, or ceased
	At      int64  // the end of that epoch, in nanoseconds since 1970
	Count   uint64 // how often it became active
}

// maxAlerts bounds the alerts that are remembered; those that ended first are forgotten first.
const maxAlerts = 1000

// alerts are sorted by subject and kind.
type alerts []alert

func (a alerts) find(subject string, k kind) (int, bool) {
	return slices.BinarySearchFunc(a, alert{Subject: subject, Kind: k}, alert.compare)
}

func (x alert) compare(y alert) int {
	return cmp.Or(strings.Compare(x.Subject, y.Subject), strings.Compare(string(x.Kind), string(y.Kind)))
}

// update takes up an epoch's problems. It returns what is new and what is over; an alert whose
// text alone is another is neither.
func (a *alerts) update(epoch *sdk.Epoch, problems []problem) (begun, over []alert) {
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
			begun = append(begun, *x)
		}
	}
	for i := range *a {
		if x := &(*a)[i]; x.Active && !still[[2]string{x.Subject, string(x.Kind)}] {
			x.Active, x.Since, x.At = false, epoch.Number, at
			over = append(over, *x)
		}
	}
	*a = a.newest(maxAlerts)
	return begun, over
}

// newest returns so many of the alerts, the active ones and those that ended last.
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

// tell makes events of alerts that begin and end. The state of the network has words of its own.
func tell(begun, over []alert) (events []sdk.Event) {
	for _, x := range begun {
		if x.Kind != networkIll {
			events = append(events, sdk.Event{Level: slog.LevelWarn, Message: clip(x.name() + ": " + x.Text), Attributes: map[string]string{"alert": string(x.Kind)}})
		}
	}
	for _, x := range over {
		if x.Kind != networkIll && x.Kind != badWatch {
			events = append(events, sdk.Event{Level: slog.LevelInfo, Message: clip(x.name() + ": all is well again"), Attributes: map[string]string{"alert": string(x.Kind)}})
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

// severity says how bad an alert of this kind is.
func (k kind) severity() string {
	switch k {
	case networkIll, switchMissing, badCells, notMeasured:
		return "major"
	}
	return "minor"
}

// alertTable has a row for every alert that has ever been active.
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
		if x.Count == 0 { // listed from the beginning, to alarm on
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
