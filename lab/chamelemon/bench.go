// SPDX-License-Identifier: Apache-2.0

package chamelemon

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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
			return nil, fmt.Errorf("figures %q: %q is no number and no range; there are %s", list, part, there)
		}
		found := false
		for _, f := range known {
			if f >= first && f <= last {
				out, found = append(out, f), true
			}
		}
		if !found {
			return nil, fmt.Errorf("figures %q: there is none of %q; there are %s", list, part, there)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Drawn is a figure's points, and how they compare with the paper's.
type Drawn struct {
	Figure   int
	Workload string
	Victims  bool // the axis is the ratio of victims
	Points   []Point
	Claims   []Claim
}

// Bench plays the sweeps of the figures. With out it writes to that folder, of each figure,
// its charts, points and page; and a page on the victims that were told.
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
		points := Summarise(got)
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
			if err := write(out, "chamelemon-losses.md", []byte(lossPage(samples, claims, o.method(name(figures))))); err != nil {
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

// name lists figures as the command takes them.
func name(figures []int) string {
	parts := make([]string, len(figures))
	for i, f := range figures {
		parts[i] = strconv.Itoa(f)
	}
	return strings.Join(parts, ",")
}

// method says how points came about.
func (o *Options) method(figures string) string {
	return fmt.Sprintf("Made by `netsketch bench-chamelemon --figures %s --seeds %d`: the testbed of package lab/chamelemon, a model of the program on four edge switches of the paper's sizes, "+
		"under the plugin's plans. Each point and seed begins anew, with %d epochs to come to rest and %d that are measured; every epoch has new flows, and a victim loses %.3g %% of its packets, rounded up.",
		figures, len(o.Seeds), o.Settle, o.Measure, 100*o.Loss)
}

func (s Sweep) write(out string, points []Point, method string) error {
	for _, c := range s.Charts(points) {
		svg, ok := c.SVG()
		if !ok {
			continue
		}
		if err := write(out, fmt.Sprintf("%s-%s.svg", s.Name(), c.File), []byte(svg)); err != nil {
			return err
		}
	}
	var b bytes.Buffer
	if err := WriteCSV(&b, points); err != nil {
		return err
	}
	if err := write(out, s.Name()+".csv", b.Bytes()); err != nil {
		return err
	}
	return write(out, s.Name()+".md", []byte(s.Page(points, method)))
}

func write(folder, name string, content []byte) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, name), content, 0o644)
}
