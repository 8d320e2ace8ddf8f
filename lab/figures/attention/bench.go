// SPDX-License-Identifier: Apache-2.0

package attention

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/netsketch/netsketch/lab/figures/chart"
	"github.com/netsketch/netsketch/lab/figures/suite"
)

// ResponseFigure is the figure of response times: it has points of all sweeps.
const ResponseFigure = 20

// Figures reads a list of the paper's figures: numbers and ranges as "7,8,14-20", or "all".
func Figures(list string) ([]int, error) {
	known := []int{ResponseFigure}
	for _, s := range Sweeps() {
		known = append(known, s.Figure)
	}
	slices.Sort(known)
	var names []string
	for _, f := range known {
		names = append(names, strconv.Itoa(f))
	}
	there := strings.Join(names, ", ")
	if list == "all" {
		return known, nil
	}
	var out []int
	for part := range strings.SplitSeq(list, ",") {
		from, to, ranged := strings.Cut(strings.TrimSpace(part), "-")
		first, err := strconv.Atoi(from)
		last := first
		if err == nil && ranged {
			last, err = strconv.Atoi(to)
		}
		if err != nil || last < first {
			return nil, fmt.Errorf("figures %q: %q is not a number or a range; there are %s", list, part, there)
		}
		found := false
		for _, f := range known {
			if f >= first && f <= last {
				out, found = append(out, f), true
			}
		}
		if !found {
			return nil, fmt.Errorf("figures %q: no figure matches %q; there are %s", list, part, there)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Drawn holds a figure's points and their comparison with the paper.
type Drawn struct {
	Figure   int
	Workload string
	Victims  bool // the axis is the ratio of victims
	Points   []Point
	Claims   []suite.Verdict
}

// Bench plays the sweeps of the figures. If out is set, Bench writes to this directory the charts,
// points and page of each figure, and a page about the published victims.
func Bench(ctx context.Context, o Options, figures []int, out string) ([]Drawn, error) {
	o.complete()
	var all []Drawn
	var samples []Sample
	for _, s := range Sweeps() {
		if !slices.Contains(figures, s.Figure) {
			continue
		}
		got, err := s.Run(ctx, o)
		if err != nil {
			return nil, err
		}
		samples = append(samples, got...)
		points := Summarize(got)
		all = append(all, Drawn{s.Figure, s.Workload, s.Victims, points, s.Claims(points)})
		if out != "" {
			if err := s.write(out, points, o.method(strconv.Itoa(s.Figure))); err != nil {
				return nil, err
			}
		}
	}
	if len(samples) > 0 {
		claims := LossClaims(samples)
		all = append(all, Drawn{Workload: "all", Claims: claims})
		if out != "" {
			var b bytes.Buffer
			if err := writeSamples(&b, samples); err != nil {
				return nil, err
			}
			if err := write(out, lossName+".csv", b.Bytes()); err != nil {
				return nil, err
			}
			if err := write(out, lossName+".md",
				[]byte(chart.Wrap(lossPage(samples, claims, o.method(name(figures)))))); err != nil {
				return nil, err
			}
		}
	}
	if slices.Contains(figures, ResponseFigure) {
		drawn, err := responses(ctx, o, out)
		if err != nil {
			return nil, err
		}
		all = append(all, drawn...)
	}
	return all, nil
}

// name lists figures in the command's notation.
func name(figures []int) string {
	parts := make([]string, len(figures))
	for i, f := range figures {
		parts[i] = strconv.Itoa(f)
	}
	return strings.Join(parts, ",")
}

// method describes how the points were measured.
func (o *Options) method(figures string) string {
	return fmt.Sprintf("Made by `make figures FIGURES=\"attention --figures %s --seeds %d\"` on "+
		"[the model of ChameleMon's testbed](README.md#chamelemons-testbed): %d epochs to settle, %d measured epochs, "+
		"victims lose %.3g %% of their packets, rounded up.",
		figures, len(o.Seeds), o.Settle, o.Measure, 100*o.Loss)
}

// Draw writes the charts and pages of all sweeps from the points recorded in a directory, which are
// of the default numbers of epochs.
func Draw(directory string) error {
	for _, s := range Sweeps() {
		f, err := os.Open(filepath.Join(directory, s.Name()+".csv"))
		if err != nil {
			return err
		}
		points, err := s.ReadCSV(f)
		if err = errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("%s: %w", f.Name(), err)
		}
		var o Options
		o.complete()
		if len(points) > 0 {
			o.Seeds = make([]uint64, points[0].Epochs/o.Measure)
		}
		if err := s.draw(directory, points, o.method(strconv.Itoa(s.Figure))); err != nil {
			return err
		}
	}
	if err := suite.Draw(directory, []suite.Suite{Literal(Options{})}, LiteralCommand); err != nil {
		return err
	}
	if err := drawLosses(directory); err != nil {
		return err
	}
	return drawResponses(directory)
}

// draw writes the charts and the page of a figure.
func (s Sweep) draw(out string, points []Point, method string) error {
	for _, c := range s.Charts(points) {
		svg := chart.SVG(c.Chart)
		if svg == nil {
			continue
		}
		if err := write(out, fmt.Sprintf("%s-%s.svg", s.Name(), c.File), svg); err != nil {
			return err
		}
	}
	return write(out, s.Name()+".md", []byte(chart.Wrap(s.Page(points, method))))
}

// write writes a figure from its points as they are recorded, so that drawing it again gives the
// same files.
func (s Sweep) write(out string, points []Point, method string) error {
	var b bytes.Buffer
	if err := WriteCSV(&b, points); err != nil {
		return err
	}
	if err := write(out, s.Name()+".csv", b.Bytes()); err != nil {
		return err
	}
	points, err := s.ReadCSV(&b)
	if err != nil {
		return err
	}
	return s.draw(out, points, method)
}

func write(directory, name string, content []byte) error {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(directory, name), content, 0o644)
}
