// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"io"

	"github.com/netsketch/netsketch/lab/scenario/score"
)

// ViewWriter draws a run for people: a screen that is drawn anew each epoch on a terminal,
// and one block of lines after the other elsewhere. The parts about results are the scorers'.
type ViewWriter struct {
	W        io.Writer
	Terminal bool
}

// Epoch draws the newest epoch of the run.
func (v *ViewWriter) Epoch(r *Run) error {
	rep := &r.report
	if len(rep.Epochs) == 0 {
		return nil
	}
	b := score.Canvas{Terminal: v.Terminal}
	if v.Terminal {
		b.WriteString(score.ClearScreen)
	}
	e := &rep.Epochs[len(rep.Epochs)-1]
	b.Printf("%s  %s: %d switches, %d hosts, program %s\n", b.Bold("netsketch demo"), rep.Scenario, rep.Switches, rep.Hosts, rep.Program)
	b.Printf("epoch %d, the %s of this run, ended %s", e.Epoch, ordinal(len(rep.Epochs)), e.End.Format("15:04:05.000"))
	if n, of := e.missing(); n > 0 {
		b.WriteString(b.Red(fmt.Sprintf("; no result for %d of %d views", n, of)))
	}
	if rep.Latency != nil {
		b.Printf("; results over gNMI %.1f ms later (median)", float64(rep.Latency.MedianNS)/1e6)
	}
	ms := func(ns int64) float64 { return float64(ns) / 1e6 }
	b.Printf("\nflip %.1f ms, wait %.1f ms, read-out %.1f ms, plugin %.1f ms, publish %.1f ms\n\n",
		ms(e.Stages.FlipNS), ms(e.Stages.WaitNS), ms(e.Stages.ReadNS), ms(e.Stages.PluginNS), ms(e.Stages.PublishNS))
	for _, name := range r.scored {
		r.scorers[name].Draw(&b)
	}
	b.WriteString("try it from another terminal:\n")
	for _, name := range r.scored {
		for _, line := range r.scorers[name].Commands(rep.GNMI) {
			b.Printf("  %s\n", b.Bold(line))
		}
	}
	b.WriteByte('\n')
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

// End draws what the whole run came to.
func (v *ViewWriter) End(r *Report) error {
	b := score.Canvas{Terminal: v.Terminal}
	b.Printf("%s: %d epochs, %d packets sent, %d received\n", r.Scenario, len(r.Epochs), r.Network.Sent, r.Network.Received)
	for _, t := range r.Totals {
		b.Printf("  %-22s %-8s %10.5f   worst of one switch and epoch %10.5f\n", t.Measure, t.Dimension, t.Value, t.Worst)
	}
	for _, x := range r.Expected {
		mark := b.Green("met   ")
		if !x.OK {
			mark = b.Red("BROKEN")
		}
		bound := x.Bound
		if x.Dimension != "" {
			bound += ", " + x.Dimension
		}
		b.Printf("  %s %s: %.5f\n", mark, bound, x.Value)
	}
	if r.Error != "" {
		b.Printf("  %s\n", b.Red(r.Error))
	}
	_, err := io.WriteString(v.W, b.String())
	return err
}
