// SPDX-License-Identifier: Apache-2.0

package alert

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/plugins/sdk"
)

func epoch(number uint64) *sdk.Epoch {
	return &sdk.Epoch{Number: number, End: time.Unix(int64(number), 0)}
}

// An alert begins with its problem, stays active while the problem is unsure, and ends without the
// problem. An unsure problem does not begin an alert.
func TestUpdate(t *testing.T) {
	sure := Problem{Location: "s1", Kind: "lossy", Text: "it lost 3 packets"}
	unsure := Problem{Location: "s1", Kind: "lossy", Unsure: true}
	var l List
	for i, tt := range []struct {
		problems []Problem
		changes  string
		active   uint64
	}{
		{[]Problem{unsure}, "", 0},
		{[]Problem{sure, {Location: "a", Kind: "dead", Text: "x"}}, "s1 began in 2, a began in 2", 2},
		{[]Problem{unsure}, "a ended in 3", 1},
		{[]Problem{{Location: "s1", Kind: "lossy", Text: "it lost 4 packets"}}, "", 1},
		{nil, "s1 ended in 5", 0},
		{[]Problem{sure}, "s1 began in 6", 1},
	} {
		var changes []string
		for _, x := range l.Update(epoch(uint64(i+1)), tt.problems) {
			what := map[bool]string{true: "began", false: "ended"}[x.Active]
			changes = append(changes, fmt.Sprintf("%s %s in %d", x.Location, what, x.Since))
		}
		if got := strings.Join(changes, ", "); got != tt.changes || l.Active() != tt.active {
			t.Errorf("epoch %d: %q, %d active; want %q, %d", i+1, got, l.Active(), tt.changes, tt.active)
		}
		if err := l.Check(); err != nil {
			t.Error(err)
		}
	}
	tab, err := l.Table("/m:a/alert", func(Kind) string { return "MAJOR" })
	if err != nil || tab.Rows() != 2 {
		t.Fatalf("%d rows, %v", tab.Rows(), err)
	}
	want := map[string]any{"state/active": true, "state/severity": "MAJOR",
		"state/text": sure.Text, "state/since-epoch": uint64(6), "state/last-change": uint64(6e9), "state/count": uint64(2)}
	for _, c := range tab.Values {
		if got := c.Value(1); got != want[c.Name] {
			t.Errorf("%s is %v; want %v", c.Name, got, want[c.Name])
		}
	}
	if e := l[1].Event("switch s1"); e.Level != slog.LevelWarn || e.Message != "switch s1: it lost 3 packets" ||
		e.Attributes["alert"] != "lossy" {
		t.Errorf("event %v", e)
	}
	if e := l[0].Event("a"); e.Level != slog.LevelInfo || e.Message != "a: resolved" {
		t.Errorf("event %v", e)
	}
}

// If there are too many alerts, the inactive ones that ended first are dropped.
func TestBound(t *testing.T) {
	var l List
	problems := make([]Problem, most+10)
	for i := range problems {
		problems[i] = Problem{Location: fmt.Sprintf("s%04d", i), Kind: "k", Text: strings.Repeat("ü", 600)}
	}
	l.Update(epoch(1), problems[:20])
	l.Update(epoch(2), problems[10:20]) // ends the first ten
	l.Update(epoch(3), problems[20:])
	if len(l) != most || l[0].Location != "s0010" || l.Active() != most-10 {
		t.Errorf("%d alerts from %s on, %d active", len(l), l[0].Location, l.Active())
	}
	if text := l[0].Text; len(text) > 910 || !strings.HasSuffix(text, "ü …") {
		t.Errorf("a text of %d bytes", len(text))
	}
	l[1], l[2] = l[2], l[1]
	if l.Check() == nil {
		t.Error("alerts out of order are valid")
	}
}
