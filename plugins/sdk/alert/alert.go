// SPDX-License-Identifier: Apache-2.0

// Package alert keeps the alerts of a plugin, which are problems over time. In each epoch, the
// plugin passes the problems that it found. The package returns the alerts that began or ended,
// and the table of all alerts.
package alert

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/yang/table"
)

// Kind is the kind of an alert, as in the plugin's YANG module.
type Kind string

// Problem is a problem found in one epoch.
type Problem struct {
	Location string // the name of a node or link
	Subject  string // what the problem is about, if a location can have several of a kind; usually ""
	Kind     Kind
	Text     string
	// Unsure is set if the problem keeps an active alert active, but must not begin one.
	Unsure bool
}

// OfMissing returns the problem that the data of a host or device is missing. If the host or
// device joined during the epoch, the problem is unsure, because it could not measure the whole
// epoch.
func OfMissing(node string, k Kind, text string, m sdk.Missing) Problem {
	return Problem{Location: node, Kind: k, Text: text, Unsure: m.Joined}
}

// Alert is a problem over time.
type Alert struct {
	Location string
	Subject  string
	Kind     Kind
	Text     string // the latest text
	Active   bool
	Since    uint64 // epoch in which the alert became active or inactive
	At       int64  // end of the epoch Since, in nanoseconds since 1970
	Count    uint64 // number of activations
}

func (x Alert) compare(y Alert) int {
	return cmp.Or(strings.Compare(x.Location, y.Location), strings.Compare(x.Subject, y.Subject),
		strings.Compare(string(x.Kind), string(y.Kind)))
}

// List holds alerts, sorted by location, subject and kind.
type List []Alert

// most bounds the alerts of a list. The inactive alerts that ended first are dropped first.
const most = 1000

// Update applies the problems of an epoch. It returns copies of the alerts that became active,
// followed by copies of those that became inactive. Alerts whose text alone changed are not
// returned.
func (l *List) Update(epoch *sdk.Epoch, problems []Problem) (changes []Alert) {
	at, still := epoch.End.UnixNano(), map[Alert]bool{}
	for _, p := range problems {
		id := Alert{Location: p.Location, Subject: p.Subject, Kind: p.Kind}
		still[id] = true
		if p.Unsure {
			continue
		}
		i, ok := slices.BinarySearchFunc(*l, id, Alert.compare)
		if !ok {
			*l = slices.Insert(*l, i, id)
		}
		x := &(*l)[i]
		x.Text = Clip(p.Text)
		if !x.Active {
			x.Active, x.Since, x.At = true, epoch.Number, at
			x.Count++
			changes = append(changes, *x)
		}
	}
	for i := range *l {
		if x := &(*l)[i]; x.Active && !still[Alert{Location: x.Location, Subject: x.Subject, Kind: x.Kind}] {
			x.Active, x.Since, x.At = false, epoch.Number, at
			changes = append(changes, *x)
		}
	}
	*l = l.Newest(most)
	return changes
}

// Newest returns at most n alerts: first the active alerts, then the alerts that ended last.
func (l List) Newest(n int) List {
	if len(l) <= n {
		return l
	}
	order := slices.Clone(l)
	slices.SortStableFunc(order, func(x, y Alert) int {
		if x.Active != y.Active {
			if x.Active {
				return -1
			}
			return 1
		}
		return cmp.Compare(y.At, x.At)
	})
	order = order[:n]
	slices.SortFunc(order, Alert.compare)
	return order
}

// Active returns the count of active alerts.
func (l List) Active() (n uint64) {
	for i := range l {
		if l[i].Active {
			n++
		}
	}
	return n
}

// Check returns an error if a list read from a saved state is not valid.
func (l List) Check() error {
	for i := 1; i < len(l); i++ {
		if l[i-1].compare(l[i]) >= 0 {
			return fmt.Errorf("alerts out of order: %s %s after %s %s", l[i].Location, l[i].Kind, l[i-1].Location,
				l[i-1].Kind)
		}
	}
	return nil
}

// Table returns the list at path, with the leaves that all lists of alerts have. An alert that was
// never active has no text and no times. Rows have no number of the epoch in which a problem was
// found again, so that a row without a change is no update for subscribers on change.
func (l List) Table(path string, severity func(Kind) string) (*table.Table, error) {
	return l.table(path, severity, false)
}

// TableOfSubjects is Table for a list whose alerts also have the key "subject".
func (l List) TableOfSubjects(path string, severity func(Kind) string) (*table.Table, error) {
	return l.table(path, severity, true)
}

func (l List) table(path string, severity func(Kind) string, subjects bool) (*table.Table, error) {
	b := table.NewBuilder(path)
	location, kinds := b.TextKey("location"), b.TextKey("kind")
	var subject *table.TextAppender
	if subjects {
		subject = b.TextKey("subject")
	}
	active, severities, text := b.Bool("state/active"), b.Text("state/severity"), b.Text("state/text")
	since, at, count := b.Uint("state/since-epoch"), b.Uint("state/last-change"), b.Uint("state/count")
	for i := range l {
		x := &l[i]
		location.Append(x.Location)
		if subjects {
			subject.Append(x.Subject)
		}
		kinds.Append(string(x.Kind))
		active.Append(x.Active)
		severities.Append(severity(x.Kind))
		count.Append(x.Count)
		if x.Count > 0 {
			text.Append(x.Text)
			since.Append(x.Since)
			at.Append(uint64(max(x.At, 0)))
		}
	}
	return b.Table()
}

// Event returns the log event of an alert that began or ended. name is the name of its
// location for the operator.
func (x *Alert) Event(name string) sdk.Event {
	e := sdk.Event{Level: slog.LevelInfo, Message: Clip(name + ": resolved"),
		Attributes: map[string]string{"alert": string(x.Kind)}}
	if x.Active {
		e.Level, e.Message = slog.LevelWarn, Clip(name+": "+x.Text)
	}
	return e
}

// Clip limits a text to 900 bytes, below the bound for events.
func Clip(s string) string {
	const most = 900
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + " …"
}
