// SPDX-License-Identifier: Apache-2.0

package attention

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/netsketch/netsketch/internal/test/chamelemon"
	"github.com/netsketch/netsketch/lab/figures/suite"
)

// stated holds the numbers that the paper's text gives for a sweep (§5.2 and Appendix E). Its
// figures are pictures without numbers. Zero means that the text gives no number.
type stated struct {
	turn   float64 // first place of the axis at which the network is ill
	ones   float64 // Th = Tl = 1 up to this value
	sum    float64 // decoded flows exceed it, unless all flows can be recorded
	load   float64 // the load factor exceeds this value, under the same condition
	illTh  float64 // Th and Tl while ill
	illTl  float64
	flatTh bool   // Th does not change while ill
	why    string // why the network is ill from another place on here
}

// restWhy is the reason where fewer flows are decoded than the paper states.
const restWhy = "a part keeps its size while its load is between 60 and 70 % (§4.3.1), and here both parts come to " +
	"rest in the lower half"

// lateWhy is the reason for the turn of VL2 and HADOOP.
const lateWhy = "the 7,000 victims of 70K fill the 9,216 buckets of the downstream encoders to 76 %, which " +
	"decodes, on every workload; the paper turns at 80K on DCTCP and CACHE, and does not say why it turns " +
	"here with as many victims"

// claim makes a claim, with the reason if it does not hold.
func claim(paper, here string, holds bool, why string) suite.Verdict {
	if holds {
		why = ""
	}
	return suite.Verdict{Paper: paper, Here: here, Holds: holds, Why: why}
}

var paper = map[int]stated{
	7:  {turn: 80_000, ones: 20_000, sum: 8000, load: 0.65},
	8:  {turn: 15, sum: 8000, load: 0.65, flatTh: true},
	14: {turn: 80_000, ones: 20_000, illTh: 3, illTl: 2},
	15: {turn: 15, illTh: 2, illTl: 2, flatTh: true},
	16: {turn: 70_000, ones: 20_000, load: 0.51, why: lateWhy},
	17: {turn: 15, load: 0.53, flatTh: true},
	18: {turn: 70_000, ones: 20_000, load: 0.47, why: lateWhy},
	19: {turn: 15, load: 0.48},
}

// MostResponse is the paper's limit for the response time (Appendix F).
const MostResponse = 30 * time.Millisecond

// axis names a place.
func (s Sweep) axis(x float64) string {
	if s.Victims {
		return fmt.Sprintf("%.4g %%", x)
	}
	return fmt.Sprintf("%.0fK", x/1000)
}

// isOne reports whether a mean of ones is 1 up to rounding.
func isOne(mean float64) bool { return math.Abs(mean-1) < 1e-9 }

// Turn returns the first place that was ill in most epochs, or 0.
func Turn(points []Point) float64 {
	for i := range points {
		if points[i].State() == "ill" {
			return points[i].X
		}
	}
	return 0
}

// Claims compares a sweep's points with the paper's statements. The points may omit places.
func (s Sweep) Claims(points []Point) []suite.Verdict {
	t := paper[s.Figure]
	turn, ours := Turn(points), "never ill"
	if turn > 0 {
		ours = "ill from " + s.axis(turn)
	}
	out := []suite.Verdict{claim("ill from "+s.axis(t.turn), ours, turn > 0 && math.Abs(turn-t.turn) < 1e-6*t.turn, t.why)}
	if t.ones > 0 {
		last := 0.0
		for i := range points {
			if m := &points[i].Mean; isOne(m.Th) && isOne(m.Tl) {
				last = points[i].X
			}
		}
		out = append(out, claim("Th and Tl are 1 up to "+s.axis(t.ones), "up to "+s.axis(last), last == t.ones, ""))
	}
	least := func(of func(*chamelemon.Measured) float64) (v float64, at string) {
		v = math.Inf(1)
		for i := range points {
			if p := &points[i]; !isOne(p.Mean.Th) && of(&p.Mean) < v {
				v, at = of(&p.Mean), s.axis(p.X)
			}
		}
		return v, at
	}
	if t.sum > 0 {
		v, at := least((*chamelemon.Measured).Sum)
		out = append(out, claim(fmt.Sprintf("more than %.0f flows decoded wherever not all can be recorded", t.sum),
			fmt.Sprintf("at least %.0f, at %s", v, at), v > t.sum, restWhy))
	}
	if t.load > 0 {
		v, at := least((*chamelemon.Measured).Load)
		out = append(out, claim(fmt.Sprintf("load factor above %.0f %% there", 100*t.load),
			fmt.Sprintf("at least %.1f %%, at %s", 100*v, at), v > t.load, restWhy))
	}
	return append(out, s.whileIll(&t, points)...)
}

// whileIll returns the claims about thresholds while the network is ill.
func (s Sweep) whileIll(t *stated, points []Point) (out []suite.Verdict) {
	var th, tl []string
	same, lo, hi := true, math.Inf(1), 0.0
	for i := range points {
		p := &points[i]
		if p.State() != "ill" {
			continue
		}
		th, tl = append(th, fmt.Sprintf("%.4g", p.Mean.Th)), append(tl, fmt.Sprintf("%.4g", p.Mean.Tl))
		same = same && math.Abs(p.Mean.Th-t.illTh) < 0.5 && math.Abs(p.Mean.Tl-t.illTl) < 0.5
		lo, hi = min(lo, p.Mean.Th), max(hi, p.Mean.Th)
	}
	if len(th) == 0 {
		return nil
	}
	if t.illTh > 0 {
		out = append(out, claim(fmt.Sprintf("while ill Th is %.0f and Tl %.0f", t.illTh, t.illTl),
			fmt.Sprintf("Th %s; Tl %s", strings.Join(th, ", "), strings.Join(tl, ", ")), same, ""))
	}
	if t.flatTh {
		out = append(out, claim("Th does not change while ill", fmt.Sprintf("%.4g to %.4g", lo, hi), hi <= 1.05*lo+0.5,
			""))
	}
	return out
}
