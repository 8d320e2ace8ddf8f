// SPDX-License-Identifier: Apache-2.0

package chamelemon

import (
	"fmt"
	"math"
	"strings"

	"github.com/netsketch/netsketch/internal/program"
	"github.com/netsketch/netsketch/lab/scenario/score"
)

const (
	barWidth     = 60 // characters of the bar that shows the division of the memory
	shownHistory = 60 // epochs in the line of states
)

func screen() score.Screen {
	ofEdge := func(format string, of func(Edge) float64) func(*score.Result, score.View) string {
		return func(r *score.Result, v score.View) string {
			e, ok := AttentionOf(r, []string{v.Device}).Edges[v.Device]
			if !ok {
				return "-"
			}
			return fmt.Sprintf(format, of(e))
		}
	}
	return score.Screen{
		Head: head,
		Columns: []score.Column{
			{Head: "switch", Width: -10, Cell: func(_ *score.Result, v score.View) string { return v.Device }},
			{Head: "packets", Width: 9, Cell: score.Measured("node-summary", "packets")},
			{Head: "flows (true)", Width: 16, Cell: score.WithTrue("node-summary", "distinct-flows", 0)},
			{Head: "entropy/bit (true)", Width: 20, Cell: score.WithTrue("node-summary", "entropy", 3)},
			{Head: "Th", Width: 6, Cell: ofEdge("%.0f", func(e Edge) float64 { return e.High })},
			{Head: "HH load", Width: 8, Cell: ofEdge("%.3f", func(e Edge) float64 { return e.Heavy.Load })},
			{Head: "heavy hitters", Width: 17, Cell: score.Found(HeavyHitterF1)},
			{Head: "F1", Width: 8, Cell: score.ScoreOf(HeavyHitterF1)},
			{Head: "chg. F1", Width: 8, Cell: score.ScoreOf(HeavyChangeF1)},
		},
		Commands: []string{
			"gnmic -a %s --insecure -e proto --format flat subscribe --path /chamelemon/attention --stream-mode on-change",
			program.Name() + " query /chamelemon/victims --address %s",
		},
	}
}

// head draws the state of the network, the attention and the victims.
func head(c *score.Canvas, h *score.History) {
	r := h.Newest()
	a := AttentionOf(r, h.Edges)
	state := c.Green(a.State)
	if a.State == "ILL" {
		state = c.Red(a.State)
	}
	c.Printf("%s  %s", c.Bold("network"), state)
	if a.Next != a.State {
		c.Printf(", %s from the epoch after the next", c.Bold(a.Next))
	}
	switch {
	case !a.Decoded:
		c.WriteString("; " + c.Red("not everything was decoded"))
		if a.Problem != "" {
			c.Printf(" (%s)", a.Problem)
		}
	case !a.Settled:
		c.WriteString("; not settled")
	case a.Balanced:
		c.WriteString("; in balance")
	}
	c.Printf("\nattention  Tl %.0f, Th up to %.0f, sample rate %.4f\n", a.Low, a.High, a.Sample)
	c.Printf("memory     %s\n", a.bar())
	c.Printf("decoded    HH %s at the fullest edge, HL %s, LL %s\n", a.Heavy.text(), a.HL.text(), a.LL.text())
	if exact := r.Score(VictimsExact, network); exact != nil {
		found := r.Score(VictimF1, network).Counts
		lost := r.Score(LostPacketsError, network).Figure
		c.Printf("victims    %d of %d flows, %d with the exact number; %.0f of %.0f lost packets", found.TruePositive,
			found.TruePositive+found.FalseNegative, exact.Counts.TruePositive, lost.Measured, lost.True)
		if f, ok := r.Figure("attention", network, "victims"); ok && a.State == "ILL" {
			c.Printf("; estimated %.0f victims", f.Measured)
		}
		c.WriteByte('\n')
	}
	if n := len(r.FalseClaims); n > 0 {
		c.Printf("%s\n", c.Red(fmt.Sprintf("%d claims of exactness are wrong: %s", n, r.FalseClaims[0])))
	}
	c.Printf("epochs     %s  %s\n\n", past(c, h), c.Dim("h healthy, i ill, x not decoded"))
}

// text is a part's number of flows and load.
func (p *Part) text() string {
	switch {
	case p.Buckets == 0:
		return "-"
	case !p.Decoded:
		return fmt.Sprintf("about %.0f flows, not decoded", p.Flows)
	}
	return fmt.Sprintf("%.0f flows (load %.2f)", p.Flows, p.Load)
}

// bar shows the division of the upstream encoder: LL, HL and HH from the left, as in the switch.
func (a *Attention) bar() string {
	all := a.LL.Buckets + a.HL.Buckets + a.Heavy.Buckets
	if all == 0 {
		return "-"
	}
	width := func(x float64) int { return int(math.Round(barWidth * x / all)) }
	ll, hl := width(a.LL.Buckets), width(a.HL.Buckets)
	return fmt.Sprintf("[%s%s%s] HH %.0f, HL %.0f, LL %.0f buckets", strings.Repeat("l", ll), strings.Repeat("L", hl),
		strings.Repeat("H", max(barWidth-ll-hl, 0)), a.Heavy.Buckets, a.HL.Buckets, a.LL.Buckets)
}

// past is a character for each epoch.
func past(c *score.Canvas, h *score.History) string {
	var b strings.Builder
	for _, r := range h.Results[max(0, len(h.Results)-shownHistory):] {
		switch a := AttentionOf(r, nil); {
		case !a.Decoded:
			b.WriteString(c.Red("x"))
		case a.State == "ILL":
			b.WriteString("i")
		default:
			b.WriteString(c.Green("h"))
		}
	}
	return b.String()
}
