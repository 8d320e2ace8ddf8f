// SPDX-License-Identifier: Apache-2.0

package chamelemon

import (
	"fmt"
	"math"
	"strings"

	"github.com/netsketch/netsketch/lab/scenario/score"
)

// barWidth is how many characters the bar of the memory's division takes.
const barWidth = 60

// history is how many epochs the line of states shows.
const history = 60

// Draw implements score.Scorer.
func (s *scorer) Draw(c *score.Canvas) {
	e := s.epochs[len(s.epochs)-1]
	if e.absent == e.of && e.Views == nil {
		c.WriteString(c.Red("ChameleMon has no results for this epoch") + "\n\n")
		return
	}
	state := c.Green(e.State)
	if e.State == "ill" {
		state = c.Red(e.State)
	}
	c.Printf("%s  %s", c.Bold("network"), state)
	if e.Next != e.State {
		c.Printf(", %s from the epoch after the next", c.Bold(e.Next))
	}
	switch {
	case !e.Decoded:
		c.WriteString("; " + c.Red("not everything was decoded"))
		if e.Problem != "" {
			c.Printf(" (%s)", e.Problem)
		}
	case !e.Settled:
		c.WriteString("; not settled")
	case e.Balanced:
		c.WriteString("; in balance")
	}
	c.Printf("\nattention  Tl %.0f, Th up to %.0f, sample rate %.4f; collected in %.1f ms, answered in %.1f ms\n",
		e.Low, e.High, e.Sample, float64(e.CollectionNS)/1e6, float64(e.ResponseNS)/1e6)
	c.Printf("memory     %s\n", e.bar())
	c.Printf("decoded    %s\n", strings.Join([]string{"HH " + e.Heavy.text() + " at the fullest edge", "HL " + e.HL.text(), "LL " + e.LL.text()}, ", "))
	if e.Found != nil {
		truly := e.Found.TruePositive + e.Found.FalseNegative
		text := fmt.Sprintf("%d of %d flows, %d with the exact number; %.0f of %.0f lost packets",
			e.Found.TruePositive, truly, e.Exact, e.LostPackets.Measured, e.LostPackets.True)
		if e.State == "ill" && e.Victims != nil {
			text += fmt.Sprintf("; estimated %.0f victims", e.Victims.Measured)
		}
		c.Printf("victims    %s\n", text)
	}
	if len(e.False) > 0 {
		c.Printf("%s\n", c.Red(fmt.Sprintf("%d claims of exactness are wrong: %s", len(e.False), e.False[0])))
	}
	c.Printf("epochs     %s  %s\n\n", s.past(c), c.Dim("h healthy, i ill, x not decoded"))
	c.WriteString(c.Dim(fmt.Sprintf("%-10s %9s %16s %20s %6s %8s %17s %8s %8s\n",
		"switch", "packets", "flows (true)", "entropy/bit (true)", "Th", "HH load", "heavy hitters", "F1", "chg. F1")))
	for _, name := range append(append([]string{}, s.edges...), score.Network) {
		if v := e.Views[name]; v != nil {
			e.row(c, name, v)
		}
	}
	c.WriteByte('\n')
	c.Flows("flows that lost most, packets lost", e.Top, topVictims)
}

func (e *Score) row(c *score.Canvas, name string, v *View) {
	figure := func(f *score.Figure, digits int) string {
		if f == nil {
			return "-"
		}
		return fmt.Sprintf("%.*f (%.*f)", digits, f.Measured, digits, f.True)
	}
	hitters, f1, changes, th, load := "-", "-", "-", "-", "-"
	if h := v.Hitters; h != nil {
		hitters, f1 = fmt.Sprintf("%d of %d", h.TruePositive, h.TruePositive+h.FalseNegative), fmt.Sprintf("%.3f", h.F1())
	}
	if v.Changes != nil {
		changes = fmt.Sprintf("%.3f", v.Changes.F1())
	}
	if edge, ok := e.Edges[name]; ok {
		th, load = fmt.Sprintf("%.0f", edge.High), fmt.Sprintf("%.3f", edge.Heavy.Load)
	}
	c.Printf("%-10s %9.0f %16s %20s %6s %8s %17s %8s %8s\n", name, v.Packets.Measured, figure(v.Distinct, 0), figure(v.Entropy, 3), th, load, hitters, f1, changes)
}

// text is a part's decoded flows and load.
func (p *Part) text() string {
	switch {
	case p.Buckets == 0:
		return "-"
	case !p.Decoded:
		return fmt.Sprintf("about %.0f flows, not decoded", p.Flows)
	}
	return fmt.Sprintf("%.0f flows (load %.2f)", p.Flows, p.Load)
}

// bar shows how the upstream encoder is divided: LL, HL and HH from the left, as in the switch.
func (e *Score) bar() string {
	all := e.LL.Buckets + e.HL.Buckets + e.Heavy.Buckets
	if all == 0 {
		return "-"
	}
	wide := func(x float64) int { return int(math.Round(barWidth * x / all)) }
	ll, hl := wide(e.LL.Buckets), wide(e.HL.Buckets)
	return fmt.Sprintf("[%s%s%s] HH %.0f, HL %.0f, LL %.0f buckets", strings.Repeat("l", ll), strings.Repeat("L", hl),
		strings.Repeat("H", max(barWidth-ll-hl, 0)), e.Heavy.Buckets, e.HL.Buckets, e.LL.Buckets)
}

// past is a character for each epoch.
func (s *scorer) past(c *score.Canvas) string {
	var b strings.Builder
	for _, e := range s.epochs[max(0, len(s.epochs)-history):] {
		switch {
		case !e.Decoded:
			b.WriteString(c.Red("x"))
		case e.State == "ill":
			b.WriteString("i")
		default:
			b.WriteString(c.Green("h"))
		}
	}
	return b.String()
}
