// SPDX-License-Identifier: Apache-2.0

package chamelemon

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/lab/plot"
)

// responses is Figure 20: it plays all sweeps again, one point at a time on one core.
func responses(ctx context.Context, o Options, out string) ([]Drawn, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	o.Workers, o.Seeds = 1, o.Seeds[:1]
	var all []Drawn
	for _, s := range Sweeps() {
		samples, err := s.Run(ctx, o)
		if err != nil {
			return nil, err
		}
		p := Summarise(samples)
		all = append(all, Drawn{ResponseFigure, s.Workload, s.Victims, p, []Claim{responseClaim(s, p)}})
	}
	if out == "" {
		return all, nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Response time (ChameleMon, Figure 20)\n\n%s Time is from all sketches in hand to the next configuration decided, as processor time of the whole process on one core, the garbage collector included: "+
		"the median of a point's epochs, and in brackets the longest. The results that are published besides follow it. It depends on the machine: this was %s/%s.\n", o.method("20"), runtime.GOOS, runtime.GOARCH)
	for _, victims := range []bool{false, true} {
		part := slices.DeleteFunc(slices.Clone(all), func(d Drawn) bool { return d.Victims != victims })
		c := responseChart(part)
		svg, _ := c.SVG()
		file := fmt.Sprintf("chamelemon-%d-%s.svg", ResponseFigure, c.File)
		if err := write(out, file, []byte(svg)); err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "\n![%s](%s)\n\n| %s |", c.Title, file, c.X)
		for _, d := range part {
			fmt.Fprintf(&b, " %s, ms |", d.Workload)
		}
		fmt.Fprintf(&b, "\n|%s\n", strings.Repeat("---|", 1+len(part)))
		for i := range part[0].Points {
			fmt.Fprintf(&b, "| %s |", Sweep{Victims: victims}.axis(part[0].Points[i].X))
			for _, d := range part {
				fmt.Fprintf(&b, " %.1f (%.1f) |", milliseconds(d.Points[i].Response.Seconds()), milliseconds(d.Points[i].Longest.Seconds()))
			}
			b.WriteString("\n")
		}
	}
	b.WriteString("\n")
	var list []Claim
	for _, d := range all {
		list = append(list, d.Claims...)
	}
	claims(&b, list)
	return all, write(out, fmt.Sprintf("chamelemon-%d.md", ResponseFigure), []byte(b.String()))
}

func responseClaim(s Sweep, points []Point) Claim {
	worst := slices.MaxFunc(points, func(a, b Point) int { return int(a.Response - b.Response) })
	return Claim{
		fmt.Sprintf("%s over %s: within %v", s.Workload, s.label(), MostResponse),
		fmt.Sprintf("%.1f ms at most, at %s", milliseconds(worst.Response.Seconds()), s.axis(worst.X)), worst.Response <= MostResponse,
	}
}

// responseChart draws the response times of workloads over the same axis.
func responseChart(drawn []Drawn) Chart {
	c := Chart{"flows", plot.Chart{Title: "response time", X: Sweep{Victims: drawn[0].Victims}.label(), Y: "ms of one core", Zero: true}}
	if drawn[0].Victims {
		c.File = "victims"
	}
	for _, d := range drawn {
		s := plot.Series{Name: d.Workload}
		for i := range d.Points {
			s.Points = append(s.Points, plot.Point{X: d.Points[i].X, Y: milliseconds(d.Points[i].Response.Seconds())})
		}
		c.Series = append(c.Series, s)
	}
	c.Series = append(c.Series, reference("within", drawn[0].Points, milliseconds(MostResponse.Seconds()), func(float64) bool { return true }))
	return c
}

func milliseconds(seconds float64) float64 { return math.Round(seconds*1e5) / 100 }
