// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"io"
	"strings"
)

// Terminal control sequences (ECMA-48).
const (
	clearScreen = "\x1b[H\x1b[2J"
	bold        = "\x1b[1m"
	dim         = "\x1b[2m"
	green       = "\x1b[32m"
	red         = "\x1b[31m"
	plain       = "\x1b[0m"
)

// ViewWriter draws a run for people: a screen that is drawn anew each epoch on a terminal,
// and one block of lines after the other elsewhere.
type ViewWriter struct {
	W        io.Writer
	Terminal bool
	Width    int // columns; 0 means 100
}

func (v *ViewWriter) style(code, text string) string {
	if !v.Terminal {
		return text
	}
	return code + text + plain
}

// Epoch draws the newest epoch of the report.
func (v *ViewWriter) Epoch(r *Report) error {
	if len(r.Epochs) == 0 {
		return nil
	}
	var b strings.Builder
	if v.Terminal {
		b.WriteString(clearScreen)
	}
	e := &r.Epochs[len(r.Epochs)-1]
	fmt.Fprintf(&b, "%s  %s: %d switches, %d hosts, program %s\n", v.style(bold, "netsketch demo"), r.Scenario, r.Switches, r.Hosts, r.Program)
	fmt.Fprintf(&b, "epoch %d, the %s of this run, ended %s", e.Epoch, ordinal(len(r.Epochs)), e.End.Format("15:04:05.000"))
	if n := len(e.Missing); n > 0 {
		b.WriteString(v.style(red, fmt.Sprintf("; no result for %d of %d views", n, n+len(e.Views))))
	}
	if r.Latency != nil {
		fmt.Fprintf(&b, "; results over gNMI %.1f ms later (median)", float64(r.Latency.MedianNS)/1e6)
	}
	ms := func(ns int64) float64 { return float64(ns) / 1e6 }
	fmt.Fprintf(&b, "\nflip %.1f ms, wait %.1f ms, read-out %.1f ms, plugin %.1f ms, publish %.1f ms\n\n",
		ms(e.Stages.FlipNS), ms(e.Stages.WaitNS), ms(e.Stages.ReadNS), ms(e.Stages.PluginNS), ms(e.Stages.PublishNS))
	v.summaries(&b, e)
	if f := focus(e); f != nil {
		v.flows(&b, fmt.Sprintf("top flows at %s by %s, packets", f.Device, f.Dimension), f.Top, 5)
		v.flows(&b, "largest changes since the epoch before, packets", f.TopChanges, 3)
	}
	v.flows(&b, "destinations under attack, sources", e.Victims, 3)
	v.commands(&b, r)
	_, err := io.WriteString(v.W, b.String())
	return err
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

// maxRows is how many views the summary table shows.
const maxRows = 12

func (v *ViewWriter) summaries(b *strings.Builder, e *EpochScore) {
	b.WriteString(v.style(dim, fmt.Sprintf("%-10s %-8s %9s %16s %20s %17s %8s %8s\n",
		"switch", "flows by", "packets", "flows (true)", "entropy/bit (true)", "heavy hitters", "F1", "chg. F1")))
	for i, s := range e.Views {
		if i == maxRows {
			fmt.Fprintf(b, "… and %d more\n", len(e.Views)-i)
			break
		}
		c := s.HeavyHitters
		change := "-"
		if s.Changes != nil {
			change = fmt.Sprintf("%.3f", s.Changes.f1())
		}
		fmt.Fprintf(b, "%-10s %-8s %9.0f %16s %20s %17s %8.3f %8s\n", s.Device, s.Dimension, s.Packets.Measured,
			fmt.Sprintf("%.0f (%.0f)", s.Distinct.Measured, s.Distinct.True),
			fmt.Sprintf("%.3f (%.3f)", s.Entropy.Measured, s.Entropy.True),
			fmt.Sprintf("%d of %d", c.TruePositive, c.TruePositive+c.FalseNegative), c.f1(), change)
	}
	b.WriteByte('\n')
}

// focus is the view whose flows are shown: the busiest switch, by 5-tuple if it has that.
func focus(e *EpochScore) *ViewScore {
	var best *ViewScore
	for i := range e.Views {
		s := &e.Views[i]
		if best == nil || s.Packets.Measured > best.Packets.Measured ||
			s.Packets.Measured == best.Packets.Measured && len(s.Dimension) > len(best.Dimension) {
			best = s
		}
	}
	return best
}

func (v *ViewWriter) flows(b *strings.Builder, title string, flows []FlowFigure, n int) {
	if len(flows) == 0 {
		return
	}
	b.WriteString(v.style(dim, fmt.Sprintf("%-72s %10s %10s %8s\n", title, "measured", "true", "error")))
	for _, f := range flows[:min(n, len(flows))] {
		measured, wrong := fmt.Sprintf("%.0f", f.Measured), percent(f.Error())
		if f.Measured == 0 {
			measured, wrong = "-", "-" // below the threshold, not published
		}
		fmt.Fprintf(b, "%-72s %10s %10.0f %8s\n", f.Flow, measured, f.True, wrong)
	}
	b.WriteByte('\n')
}

func (v *ViewWriter) commands(b *strings.Builder, r *Report) {
	b.WriteString("try it from another terminal:\n")
	for _, line := range Commands(r.GNMI) {
		fmt.Fprintf(b, "  %s\n", v.style(bold, line))
	}
	b.WriteByte('\n')
}

// Commands are lines that read the results of a collector that serves gNMI at addr.
func Commands(addr string) []string {
	return []string{
		"gnmic -a " + addr + " --insecure subscribe --path /univmon/heavy-hitters --stream-mode on-change",
		"gnmi_cli -a " + addr + " -insecure -query_type once -q /univmon/summaries",
	}
}

// End draws what the whole run came to.
func (v *ViewWriter) End(r *Report) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d epochs, %d packets sent, %d received\n", r.Scenario, len(r.Epochs), r.Network.Sent, r.Network.Received)
	for _, t := range r.Totals {
		fmt.Fprintf(&b, "  %-22s %-8s %10.5f   worst of one switch and epoch %10.5f\n", t.Measure, t.Dimension, t.Value, t.Worst)
	}
	for _, x := range r.Expected {
		mark := v.style(green, "met   ")
		if !x.OK {
			mark = v.style(red, "BROKEN")
		}
		bound := x.Bound
		if x.Dimension != "" {
			bound += ", " + x.Dimension
		}
		fmt.Fprintf(&b, "  %s %s: %.5f\n", mark, bound, x.Value)
	}
	if r.Error != "" {
		fmt.Fprintf(&b, "  %s\n", v.style(red, r.Error))
	}
	_, err := io.WriteString(v.W, b.String())
	return err
}
