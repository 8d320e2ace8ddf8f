// SPDX-License-Identifier: Apache-2.0

package attention

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/netsketch/netsketch/lab/evidence"
	"github.com/netsketch/netsketch/lab/figures/chart"
	"github.com/netsketch/netsketch/lab/figures/suite"
)

// responses measures Figure 20: it plays all sweeps again, one point at a time on one core.
func responses(ctx context.Context, o Options, out string) ([]Drawn, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	o.Workers, o.Seeds = 1, o.Seeds[:1]
	var all []Drawn
	for _, s := range Sweeps() {
		samples, err := s.Run(ctx, o)
		if err != nil {
			return nil, err
		}
		p := Summarize(samples)
		all = append(all, Drawn{ResponseFigure, s.Workload, s.Victims, p, []suite.Verdict{responseClaim(s, p)}})
	}
	if out == "" {
		return all, nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Response time (ChameleMon, Figure 20)\n\n%s The response time begins when all sketches are "+
		"read and ends when the next configuration is decided. It is processor time of the whole process on one "+
		"core, including the garbage collector: "+
		"the median of a point's epochs. The time depends on the machine, here %s/%s. The rows as CSV: "+
		"[chamelemon-20.csv](chamelemon-20.csv).\n", o.method("20"), runtime.GOOS, runtime.GOARCH)
	for _, victims := range []bool{false, true} {
		part := slices.DeleteFunc(slices.Clone(all), func(d Drawn) bool { return d.Victims != victims })
		c := responseChart(part)
		file := responseName + "-" + c.File + ".svg"
		fmt.Fprintf(&b, "\n![%s](%s)\n", c.Title, file)
	}
	b.WriteString("\n")
	var list []suite.Verdict
	for _, d := range all {
		list = append(list, d.Claims...)
	}
	claims(&b, "the paper", list)
	rows, err := responseCSV(all)
	if err != nil {
		return nil, err
	}
	if err := write(out, responseName+".csv", rows); err != nil {
		return nil, err
	}
	if err := drawResponses(out); err != nil {
		return nil, err
	}
	return all, write(out, responseName+".md", []byte(chart.Wrap(b.String())))
}

// responseName is the prefix of the figure's files.
var responseName = fmt.Sprintf("chamelemon-%d", ResponseFigure)

// responseColumns are the columns of the response times in CSV: the x axis is the number of flows
// or, for "victims", the ratio of victims in percent.
var responseColumns = []string{"workload", "axis", "x", "median_ms", "longest_ms"}

func responseCSV(all []Drawn) ([]byte, error) {
	lines := [][]string{responseColumns}
	for _, d := range all {
		axis := map[bool]string{false: "flows", true: "victims"}[d.Victims]
		for _, p := range d.Points {
			lines = append(lines, []string{d.Workload, axis, fmt.Sprint(p.X),
				fmt.Sprintf("%.1f", milliseconds(p.Response.Seconds())),
				fmt.Sprintf("%.1f", milliseconds(p.Longest.Seconds()))})
		}
	}
	var b bytes.Buffer
	err := evidence.WriteCSV(&b, lines)
	return b.Bytes(), err
}

// drawResponses writes the charts from the response times recorded in a directory.
func drawResponses(directory string) error {
	f, err := os.Open(filepath.Join(directory, responseName+".csv"))
	if err != nil {
		return err
	}
	lines, err := evidence.ReadCSV(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("%s: %w", f.Name(), err)
	}
	if len(lines) == 0 || !slices.Equal(lines[0], responseColumns) {
		return fmt.Errorf("%s: expected a first line with %v", f.Name(), responseColumns)
	}
	for _, victims := range []bool{false, true} {
		var drawn []Drawn
		for i, line := range lines[1:] {
			if (line[1] == "victims") != victims {
				continue
			}
			x, err1 := strconv.ParseFloat(line[2], 64)
			median, err2 := time.ParseDuration(line[3] + "ms")
			if err := errors.Join(err1, err2); err != nil {
				return fmt.Errorf("%s: line %d: %w", f.Name(), i+2, err)
			}
			if n := len(drawn); n == 0 || drawn[n-1].Workload != line[0] {
				drawn = append(drawn, Drawn{Workload: line[0], Victims: victims})
			}
			last := &drawn[len(drawn)-1]
			last.Points = append(last.Points, Point{X: x, Response: median})
		}
		if len(drawn) == 0 {
			return fmt.Errorf("%s: no response times over one of the axes", f.Name())
		}
		c := responseChart(drawn)
		if err := write(directory, responseName+"-"+c.File+".svg", chart.SVG(c.Chart)); err != nil {
			return err
		}
	}
	return nil
}

func responseClaim(s Sweep, points []Point) suite.Verdict {
	worst := slices.MaxFunc(points, func(a, b Point) int { return int(a.Response - b.Response) })
	return claim(
		fmt.Sprintf("%s over %s: within %v", s.Workload, s.label(), MostResponse),
		fmt.Sprintf("%.1f ms at most, at %s", milliseconds(worst.Response.Seconds()), s.axis(worst.X)),
		worst.Response <= MostResponse, "")
}

// responseChart draws the response times of workloads over the same axis.
func responseChart(drawn []Drawn) Chart {
	c := Chart{"flows", chart.Chart{Title: "response time", X: Sweep{Victims: drawn[0].Victims}.label(),
		Y: "ms of one core", Zero: true}}
	if drawn[0].Victims {
		c.File = "victims"
	}
	for _, d := range drawn {
		s := chart.Series{Name: d.Workload}
		for i := range d.Points {
			s.Points = append(s.Points, chart.Point{X: d.Points[i].X, Y: milliseconds(d.Points[i].Response.Seconds())})
		}
		c.Series = append(c.Series, s)
	}
	c.Series = append(c.Series, reference("within", drawn[0].Points, milliseconds(MostResponse.Seconds()),
		func(float64) bool { return true }))
	return c
}

func milliseconds(seconds float64) float64 { return math.Round(seconds*1e5) / 100 }
