// SPDX-License-Identifier: Apache-2.0

package chamelemon

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/netsketch/netsketch/lab/plot"
	"github.com/netsketch/netsketch/lab/scenario/score"
)

// Figures implements score.Illustrator: the sub-figures of the paper's Figure 9, over the epochs of the run, counted
// from 1 as there.
func (s *scorer) Figures() score.Figures {
	line := func(name string, of func(*Score) float64) plot.Series {
		out := plot.Series{Name: name}
		for _, e := range s.epochs {
			out.Points = append(out.Points, plot.Point{X: float64(e.Index + 1), Y: of(e)})
		}
		return out
	}
	decoded := func(p func(*Score) *Part) func(*Score) float64 {
		return func(e *Score) float64 {
			if !p(e).Decoded {
				return math.NaN()
			}
			return p(e).Flows
		}
	}
	hh, hl, ll := func(e *Score) *Part { return &e.Heavy }, func(e *Score) *Part { return &e.HL }, func(e *Score) *Part { return &e.LL }
	victims := func(of func(*score.Figure) float64) func(*Score) float64 {
		return func(e *Score) float64 {
			if e.Victims == nil {
				return math.NaN()
			}
			return of(e.Victims)
		}
	}
	truly := line("victims", func(e *Score) float64 {
		if e.Found == nil {
			return math.NaN()
		}
		return float64(e.Found.TruePositive + e.Found.FalseNegative)
	})
	truly.Reference = true
	truly.Name = "truth"
	return score.Figures{
		Title: "ChameleMon's attention over time",
		Text:  s.told(),
		Charts: []plot.Chart{
			{Title: "Flows that enter", Y: "flows", Zero: true, Steps: true, Series: []plot.Series{line("truth", func(e *Score) float64 { return e.flows })}},
			{Title: "Victims: told or estimated, and true", Y: "flows", Zero: true, Series: []plot.Series{line("published", victims(func(f *score.Figure) float64 { return f.Measured })), truly}},
			{Title: "Division of the upstream encoder", Y: "buckets", Stack: true, Zero: true, Steps: true, Series: []plot.Series{
				line("HH", func(e *Score) float64 { return e.Heavy.Buckets }), line("HL", func(e *Score) float64 { return e.HL.Buckets }), line("LL", func(e *Score) float64 { return e.LL.Buckets }),
			}},
			{Title: "Decoded flows (gaps: not decoded)", Y: "flows", Zero: true, Series: []plot.Series{line("HH, an edge", decoded(hh)), line("HL", decoded(hl)), line("LL, sampled", decoded(ll))}},
			{Title: "Thresholds", Y: "packets", LogY: true, Steps: true, Series: []plot.Series{line("Th, highest", func(e *Score) float64 { return e.High }), line("Tl", func(e *Score) float64 { return e.Low })}},
			{Title: "Sample rate of light losers", X: "epoch", Zero: true, Steps: true, Series: []plot.Series{line("rate", func(e *Score) float64 { return e.Sample })}},
		},
		Columns: []string{
			"epoch", "state", "decoded", "settled", "balanced", "flows", "victims", "victims_published", "victims_exact", "lost_packets", "lost_packets_published",
			"hh_buckets", "hl_buckets", "ll_buckets", "hh_flows", "hl_flows", "ll_flows", "hh_load", "hl_load", "ll_load", "tl", "th_highest", "sample_rate", "false_claims",
		},
		Rows: s.rows(),
	}
}

func (s *scorer) rows() [][]string {
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
	measured := func(f *score.Figure) string {
		if f == nil {
			return ""
		}
		return number(f.Measured)
	}
	var out [][]string
	for _, e := range s.epochs {
		truly, lost := "", ""
		if e.Found != nil {
			truly, lost = strconv.Itoa(e.Found.TruePositive+e.Found.FalseNegative), number(e.LostPackets.True)
		}
		part := func(p *Part) string {
			if !p.Decoded {
				return ""
			}
			return number(p.Flows)
		}
		out = append(out, []string{
			strconv.Itoa(e.Index + 1), e.State, strconv.FormatBool(e.Decoded), strconv.FormatBool(e.Settled), strconv.FormatBool(e.Balanced), number(e.flows),
			truly, measured(e.Victims), strconv.Itoa(e.Exact), lost, measured(e.LostPackets),
			number(e.Heavy.Buckets), number(e.HL.Buckets), number(e.LL.Buckets), part(&e.Heavy), part(&e.HL), part(&e.LL),
			number(e.Heavy.Load), number(e.HL.Load), number(e.LL.Load), number(e.Low), number(e.High), number(e.Sample), strconv.Itoa(len(e.False)),
		})
	}
	return out
}

// told says in words what the charts show.
func (s *scorer) told() string {
	balance := s.Balance()
	var b strings.Builder
	if len(balance) > 0 {
		b.WriteString("Epochs from each change of the network until all is in balance again (everything decoded, the state the same, and parts at loads of " +
			fmt.Sprintf("%.2f to %.2f or left as they are), and stays so until the next change:\n\n| change in epoch | epochs until balance |\n|---|---|\n", lowLoad, highLoad))
		for _, at := range changed(balance) {
			fmt.Fprintf(&b, "| %d | %d |\n", at+1, balance[at])
		}
	}
	return b.String()
}
