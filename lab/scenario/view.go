// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/netsketch/netsketch/internal/program"
	"github.com/netsketch/netsketch/lab/scenario/score"
)

// ViewWriter draws a run for people: a screen that is drawn anew each epoch on a terminal,
// and one block of lines after the other elsewhere. The parts about results are the scorers'.
type ViewWriter struct {
	W        io.Writer
	Terminal bool
	// Size returns the terminal's columns and lines, which an epoch's screen is cut to; nil or 0
	// cuts nothing.
	Size func() (columns, lines int)

	began bool // a screen was written
}

// Epoch draws the newest epoch of the run.
func (v *ViewWriter) Epoch(r *Run) error {
	if len(r.report.Epochs) == 0 {
		return nil
	}
	return v.show(r.draw, r.longestTable())
}

// show writes a screen, with fewer rows than longest in a table if the terminal has too few lines.
func (v *ViewWriter) show(draw func(score.Canvas) string, longest int) error {
	screen := score.Canvas{Terminal: v.Terminal, Later: v.began && !v.Terminal}
	v.began = true
	lines := 0
	if v.Terminal && v.Size != nil {
		screen.Columns, lines = v.Size()
	}
	text := draw(screen)
	if over := strings.Count(text, "\n") - (lines - 1); lines > 0 && over > 0 { // shorter tables
		screen.Rows = max(4, longest-over-1)
		text = draw(screen)
	}
	if v.Terminal {
		text = score.ClearScreen + score.Fit(text, screen.Columns, lines)
	}
	_, err := io.WriteString(v.W, text)
	return err
}

// longestTable returns the number of rows of the longest table of the newest epoch.
func (r *Run) longestTable() (rows int) {
	for _, result := range r.report.Epochs[len(r.report.Epochs)-1].Results {
		rows = max(rows, result.Views)
	}
	return rows
}

// draw returns the screen of the newest epoch.
func (r *Run) draw(b score.Canvas) string {
	rep := &r.report
	e := &rep.Epochs[len(rep.Epochs)-1]
	b.Printf("%s  %s: %d switches, %d hosts, program %s\n", b.Bold("netsketch demo"), rep.Scenario, rep.Switches,
		rep.Hosts, rep.Program)
	if rep.Console != "" && b.Terminal { // without a terminal, the address is printed once
		b.Printf("console: %s\n", b.Bold(rep.Console))
	}
	b.Printf("epoch %d, %s of the run, ended %s", e.Epoch, ordinal(len(rep.Epochs)), e.End.Format("15:04:05"))
	if n, of := e.missing(); n > 0 {
		b.WriteString(b.Red(fmt.Sprintf("; no result for %d of %d views", n, of)))
	}
	if rep.Latency != nil {
		b.Printf("; over gNMI %.1f ms later", float64(rep.Latency.MedianNS)/1e6)
	}
	ms := func(ns int64) float64 { return float64(ns) / 1e6 }
	b.WriteByte('\n')
	if !e.whole() {
		b.WriteString(b.Red(e.Status+": "+e.reasons()) + "\n")
		if len(e.Absent) > 0 {
			b.WriteString(b.Red("results of the network leave these out") + "\n")
		}
		// Without a terminal the hint is at the end.
		if hint := rep.slow(r.s.Epoch); hint != "" && b.Terminal {
			b.WriteString(b.Bold(hint) + "\n")
		}
	}
	b.Printf("flip %.1f ms, wait %.1f ms, read-out %.1f ms, plugin %.1f ms, publish %.1f ms\n\n",
		ms(e.Stages.FlipNS), ms(e.Stages.WaitNS), ms(e.Stages.ReadNS), ms(e.Stages.PluginNS), ms(e.Stages.PublishNS))
	r.drawStory(&b, e.End)
	for _, name := range r.scored {
		r.scorers[name].Draw(&b)
	}
	var commands []string
	for _, name := range r.scored {
		for _, line := range r.scorers[name].Algorithm().Screen.Commands {
			commands = append(commands, strings.ReplaceAll(line, "%s", rep.GNMI))
		}
	}
	b.Commands(commands)
	return b.String() + "\n"
}

// drawStory writes what happens in the epoch that has ended, where to look at it, and what comes
// next.
func (r *Run) drawStory(b *score.Canvas, end time.Time) {
	at, repeat := end.Sub(r.first)-r.s.Epoch, r.s.repeat() // includes traffic that began with the epoch
	if repeat > 0 {
		at %= repeat
	}
	var next *Event
	wait := time.Duration(math.MaxInt64)
	for i, e := range r.s.Story {
		from, until := r.s.times(e.Of)
		if at >= *from && at < *until {
			b.Printf("%s %s, until %s\n", b.Bold("now:"), e.Text, end.Add(*until-at-r.s.Epoch).Format("15:04:05"))
			r.drawLook(b, e.Look)
			continue
		}
		in := *from - at
		if in < 0 && repeat > 0 {
			in += repeat
		}
		if in > 0 && in < wait {
			next, wait = &r.s.Story[i], in
		}
	}
	if next != nil {
		b.Printf("next, at %s: %s\n", end.Add(wait-r.s.Epoch).Format("15:04:05"), next.Text)
	}
	if len(r.s.Story) > 0 {
		b.WriteByte('\n')
	}
}

// drawLook writes where a list is: in the console and at the gNMI server.
func (r *Run) drawLook(b *score.Canvas, list string) {
	if r.report.Console != "" {
		plugin, _, _ := strings.Cut(strings.TrimPrefix(list, "/"), "/")
		b.Printf("  %s#/plugin/%s?list=%s\n", r.report.Console, plugin, list)
	}
	at := r.report.GNMI
	for _, line := range []string{fmt.Sprintf("gnmic -a %s --insecure -e proto --format flat get --path %s", at, list),
		fmt.Sprintf("%s query --address %s %s", program.Name(), at, list)} {
		for _, part := range score.Continued(line, b.Columns-2) {
			b.Printf("  %s\n", part)
		}
	}
}

func ordinal(n int) string {
	switch {
	case n%100 >= 11 && n%100 <= 13:
	case n%10 == 1:
		return fmt.Sprintf("%dst", n)
	case n%10 == 2:
		return fmt.Sprintf("%dnd", n)
	case n%10 == 3:
		return fmt.Sprintf("%drd", n)
	}
	return fmt.Sprintf("%dth", n)
}

// End draws the results of the whole run.
func (v *ViewWriter) End(r *Report) error {
	b := score.Canvas{Terminal: v.Terminal}
	b.Printf("%s: %d epochs\n", r.Scenario, len(r.Epochs))
	b.Printf("  packets: %s\n", r.Network.text())
	for _, t := range r.Traces {
		if t.Played != nil {
			b.Printf("  %s: %d packets read, %d played", t.File, t.Packets, *t.Played)
			if *t.Played < int64(t.Packets) {
				b.Printf("; the run ended before the file: give more --epochs")
			}
			b.Printf("\n")
		}
		if t.TimeSteps > 0 {
			b.Printf("  %s: its clock jumps %d times, or it pauses for more than a minute; the packets follow each other "+
				"as if it did not\n", t.File, t.TimeSteps)
		}
		if t.Pauses > 0 {
			b.Printf("  %s: pauses %d times for more than a minute; what is no pause of the other files is kept\n", t.File,
				t.Pauses)
		}
		if len(t.Refused) > 0 {
			b.Printf("  %s: packets of no flow: %s\n", t.File, reasons(t.Refused))
		}
		if t.LongerRecords > 0 {
			b.Printf("  %s: %d of %d records hold more bytes than their packets had\n", t.File, t.LongerRecords,
				t.Packets)
		}
	}
	b.WriteString(b.Dim(fmt.Sprintf("  %-24s %-9s %10s   %s\n", "measure", "by", "run", "worst switch and epoch")))
	for _, t := range r.Totals {
		b.Printf("  %-24s %-9s %10.5f   %22.5f\n", t.Measure, t.Dimension, t.Value, t.Worst)
	}
	broken := 0
	for _, x := range r.Expected {
		if !x.OK {
			broken++
		}
	}
	for _, x := range r.Expected {
		mark := b.Green("met   ")
		switch {
		case !x.OK:
			mark = b.Red("BROKEN")
		case broken > 0: // the run as a whole did not meet its bounds
			mark = "      "
		}
		bound := x.Bound
		if x.Dimension != "" {
			bound += ", " + x.Dimension
		}
		b.Printf("  %s %s: %.5f\n", mark, bound, x.Value)
	}
	if broken > 0 {
		b.Printf("  %s\n", b.Red(fmt.Sprintf("%d of %d bounds are broken", broken, len(r.Expected))))
	}
	if r.Error != "" {
		b.Printf("  %s\n", b.Red(r.Error))
	}
	if r.Hint != "" {
		b.Printf("  %s\n", b.Bold(r.Hint))
	}
	_, err := io.WriteString(v.W, b.String())
	return err
}

// text accounts for the packets in one line.
func (s *NetworkStats) text() string {
	out := fmt.Sprintf("%d sent = %d received + %d lost on links", s.Sent, s.Received, s.Lost)
	for _, reason := range slices.Sorted(maps.Keys(s.Dropped)) {
		out += fmt.Sprintf(" + %d dropped by switches (%s)", s.Dropped[reason], reason)
	}
	out += fmt.Sprintf(" + %d in flight", s.InFlight)
	if more := s.Copied + s.FromControllers; more > 0 {
		out += fmt.Sprintf(" - %d copies and packets of controllers", more)
	}
	if s.Altered > 0 {
		out += fmt.Sprintf("; %d received other than they were sent", s.Altered)
	}
	return out
}
