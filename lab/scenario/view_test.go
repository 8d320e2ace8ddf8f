// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/lab/scenario/score"
)

// Commands to try stand once in a text, and on each screen of a terminal.
func TestCommandsAreNotRepeated(t *testing.T) {
	for terminal, want := range map[bool]int{false: 1, true: 3} {
		var out strings.Builder
		v := ViewWriter{W: &out, Terminal: terminal}
		for range 3 {
			if err := v.show(func(c score.Canvas) string {
				c.Commands([]string{"gnmic get", "gnmic get", "netsketch top"})
				return c.String()
			}, 0); err != nil {
				t.Fatal(err)
			}
		}
		for _, text := range []string{"try it", "gnmic get", "netsketch top"} {
			if n := strings.Count(out.String(), text); n != want {
				t.Errorf("terminal %v: %q stands %d times, want %d", terminal, text, n, want)
			}
		}
	}
}

// A table is narrowed by cutting the middle of flows, and by less room between columns; numbers are
// whole.
func TestTablesAreNarrowed(t *testing.T) {
	const long = "fd00::3670:643b:88e9:8cf8,fd00::6:51e7:8a2f:1fc7:a8dc,udp,22340,8080"
	c := score.Canvas{Columns: 60}
	c.Flows("top flows", []score.FlowFigure{{Flow: long, Figure: score.Figure{Measured: 12345678, True: 12345679}}})
	lines := strings.Split(c.String(), "\n")
	if len(lines) != 4 || len([]rune(lines[0])) != 60 || len([]rune(lines[1])) != 60 {
		t.Fatalf("not 60 columns:\n%s", &c)
	}
	for _, part := range []string{"fd00::3670:643", "…", "udp,22340,8080", " 12345678 ", " 12345679 ", "0.00 %"} {
		if !strings.Contains(lines[1], part) {
			t.Errorf("%q is not in %q", part, lines[1])
		}
	}
}

// A screen never says both that a bound is broken and that the bounds are met.
func TestVerdict(t *testing.T) {
	end := func(values ...bool) string {
		r := Report{}
		for _, ok := range values {
			r.Expected = append(r.Expected, Verdict{Bound: "flows-exact", OK: ok})
		}
		var out strings.Builder
		if err := (&ViewWriter{W: &out}).End(&r); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	if text := end(true, true); strings.Count(text, "met ") != 2 || strings.Contains(strings.ToLower(text), "broken") {
		t.Errorf("all bounds are met:\n%s", text)
	}
	if text := end(true, false, true); strings.Contains(text, "met ") || strings.Count(text, "BROKEN") != 1 ||
		!strings.Contains(text, "1 of 3 bounds are broken") {
		t.Errorf("a bound is broken:\n%s", text)
	}
}

// Only a run on a too slow machine reports it.
func TestSlowMachineIsReported(t *testing.T) {
	for _, tc := range []struct {
		clock  string
		lag    time.Duration
		status string
		want   []string // parts of the hint; nil: there is no hint
	}{
		{"wall", 870 * time.Millisecond, "PARTIAL", []string{"870ms late", "--virtual"}},
		{"wall", 870 * time.Millisecond, "COMPLETE", nil},
		{"wall", 20 * time.Millisecond, "PARTIAL", nil},
		{pacedClock, 870 * time.Millisecond, "PARTIAL", nil},
		{pacedClock, 1870 * time.Millisecond, "COMPLETE", []string{"1.87s behind", "not change"}},
	} {
		r := Report{Clock: tc.clock, Network: NetworkStats{LagNS: int64(tc.lag)}, Epochs: []EpochScore{{Status: tc.status}}}
		got := r.slow(time.Second)
		if (got != "") != (tc.want != nil) {
			t.Errorf("%s, %v late, %v: %q", tc.clock, tc.lag, tc.status, got)
		}
		for _, part := range tc.want {
			if !strings.Contains(got, part) {
				t.Errorf("%s, %v late, %v: %q lacks %q", tc.clock, tc.lag, tc.status, got, part)
			}
		}
	}
}

// The screen of an interface shows what is published, states what is missing, and fits 80 columns.
func TestLiveScreen(t *testing.T) {
	view := score.View{Device: "eth0", Dimension: "5-tuple"}
	tables := score.Tables{}
	tables.Rows("node-summary", view).Add("", score.Leaves{"packets": score.Number(1200), "entropy": score.Number(3.25)})
	tables.Rows("node-summary", score.View{Device: score.Network, Dimension: "5-tuple"}).Add("", score.Leaves{})
	const flow = "fd00::3670:643b:88e9:8cf8,fd00::6:51e7:8a2f:1fc7:a8dc,udp,22340,8080"
	tables.Rows("heavy-hitter", view).Add(flow, score.Leaves{"packets": score.Number(300), "share": score.Number(0.25)})
	tables.Rows("heavy-change", view).Add("up", score.Leaves{"delta": score.Number(20)})
	tables.Rows("heavy-change", view).Add("down", score.Leaves{"delta": score.Number(-70)})
	report := LiveReport{Interface: "eth0", GNMI: "127.0.0.1:9339", Epochs: []LiveEpoch{{
		EpochScore: EpochScore{Epoch: 7, Status: "PARTIAL", Absent: map[string]string{"eth0": "read-out took too long"}},
		Frames:     1300, Lost: 4, Results: tables}}}
	text := report.draw(score.Canvas{Columns: 80})
	for _, want := range []string{
		"eth0, live: packets are read, none is sent or changed", "1300 frames", "PARTIAL: eth0: read-out took too long",
		"dropped 4 frames", "5-tuple          1200          -     3.250", "25.00 %", "udp,22340,8080",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if down, up := strings.Index(text, "\ndown"), strings.Index(text, "\nup"); down < 0 || up < down {
		t.Errorf("the larger change is not first:\n%s", text)
	}
	for line := range strings.Lines(text) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 80 && !strings.Contains(line, "PARTIAL") &&
			!strings.Contains(line, "dropped") { // prose is cut on a terminal
			t.Errorf("%d columns: %q", n, line)
		}
	}
}
