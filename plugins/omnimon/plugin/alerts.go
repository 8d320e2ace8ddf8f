// SPDX-License-Identifier: Apache-2.0

package plugin

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
	switchLossy   kind = "switch-lossy"
	switchDead    kind = "switch-dead"
	linkLossy     kind = "link-lossy"
	linkDead      kind = "link-dead"
	hostMissing   kind = "host-missing"
	switchMissing kind = "switch-missing"
	inexact       kind = "inexact"
	planFailed    kind = "plan-failed"
)

// networkSubject is the subject of alerts about the whole network.
const networkSubject = "network"

// severity returns the severity of an alert of this kind.
func (k kind) severity() string {
	if k == planFailed {
		return "minor"
	}
	return "major"
}

// problem is a problem found in one epoch.
type problem struct {
	subject string
	kind    kind
	text    string
	unsure  bool // an alert of it stays, but none begins
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

func (x alert) compare(y alert) int {
	return cmp.Or(strings.Compare(x.Subject, y.Subject), strings.Compare(string(x.Kind), string(y.Kind)))
}

// alerts are sorted by subject and kind.
type alerts []alert

// maxAlerts bounds the stored alerts. The inactive alerts that ended first are dropped first.
const maxAlerts = 1000

// update applies an epoch's problems and returns the log events of alerts that began or ended.
func (a *alerts) update(epoch *sdk.Epoch, problems []problem) (events []sdk.Event) {
	at, still := epoch.End.UnixNano(), map[alert]bool{}
	event := func(level slog.Level, x *alert, text string) {
		subject := x.Subject
		if x.Kind == switchLossy || x.Kind == switchDead || x.Kind == switchMissing || x.Kind == planFailed {
			subject = "switch " + subject
		}
		events = append(events, sdk.Event{Level: level, Message: clip(subject + ": " + text),
			Attributes: map[string]string{"alert": string(x.Kind)}})
	}
	for _, p := range problems {
		id := alert{Subject: p.subject, Kind: p.kind}
		still[id] = true
		if p.unsure {
			continue
		}
		i, ok := slices.BinarySearchFunc(*a, id, alert.compare)
		if !ok {
			*a = slices.Insert(*a, i, id)
		}
		x := &(*a)[i]
		x.Text = clip(p.text)
		if !x.Active {
			x.Active, x.Since, x.At = true, epoch.Number, at
			x.Count++
			event(slog.LevelWarn, x, x.Text)
		}
	}
	for i := range *a {
		if x := &(*a)[i]; x.Active && !still[alert{Subject: x.Subject, Kind: x.Kind}] {
			x.Active, x.Since, x.At = false, epoch.Number, at
			event(slog.LevelInfo, x, "resolved")
		}
	}
	*a = a.newest(maxAlerts)
	return events
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

func (a alerts) active() (n uint64) {
	for i := range a {
		if a[i].Active {
			n++
		}
	}
	return n
}

func (a alerts) table(epoch uint64) (*table.Table, error) {
	b := table.NewBuilder(alertList)
	subject, kinds, number := b.TextKey("subject"), b.TextKey("kind"), b.Uint("state/epoch")
	active, severity, text := b.Bool("state/active"), b.Text("state/severity"), b.Text("state/text")
	since, at, count := b.Uint("state/since-epoch"), b.Uint("state/last-change"), b.Uint("state/count")
	for i := range a {
		x := &a[i]
		subject.Append(x.Subject)
		kinds.Append(string(x.Kind))
		number.Append(epoch)
		active.Append(x.Active)
		severity.Append(x.Kind.severity())
		text.Append(x.Text)
		since.Append(x.Since)
		at.Append(uint64(max(x.At, 0)))
		count.Append(x.Count)
	}
	return b.Table()
}

// clip limits a text to 1000 bytes, the bound for events.
func clip(s string) string {
	const most = 1000
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + " …"
}
