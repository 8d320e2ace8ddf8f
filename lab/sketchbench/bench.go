// SPDX-License-Identifier: Apache-2.0

// Package sketchbench measures accuracy and speed of the structures under sketch, on any
// traffic, by the tasks of the papers' figures. It has no state; a Trace is only read.
package sketchbench

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
)

// Row is one measured value.
type Row struct {
	Structure string  `json:"structure"`
	Variant   string  `json:"variant"`
	Memory    int     `json:"memory"` // bytes
	Task      string  `json:"task"`
	Metric    string  `json:"metric"`
	Value     float64 `json:"value"`
	Unit      string  `json:"unit"`
	Trace     string  `json:"trace"`
}

// Suite is the tasks of one figure.
type Suite struct {
	Name  string // as on the command line and in file names
	Title string
	Run   func(ctx context.Context, t *Trace, o Options) ([]Row, error)
	Plots []Plot
}

// Options bound the work.
type Options struct {
	Seed uint64
	Runs int // of randomised decodings, and of speed measurements; the best of these counts
}

// Plot is one chart of a suite: a task's metric against memory, or against the number in the variant.
type Plot struct {
	File, Title string
	Task        string
	Metric      string
	X           string // label; "memory" or what the variant's number is
	Log         bool
	Paper       string // what the paper shows, in a sentence
}

// Suites are all figures, in order.
func Suites() []Suite {
	return []Suite{sketchintFigure5(), chamelemonFigure11(), lossFigure(4), lossFigure(5), lossFigure(6), lightguardianFigure5(), univmonFigures(), speedSuite()}
}

// Select returns the suites of the given names, all for none.
func Select(names []string) ([]Suite, error) {
	all := Suites()
	if len(names) == 0 {
		return all, nil
	}
	var out []Suite
	for _, n := range names {
		i := slices.IndexFunc(all, func(s Suite) bool { return s.Name == n })
		if i < 0 {
			var known []string
			for _, s := range all {
				known = append(known, s.Name)
			}
			return nil, fmt.Errorf("figure %q: there is none of that name; there are %v", n, known)
		}
		out = append(out, all[i])
	}
	return out, nil
}

// WriteCSV writes rows with a heading.
func WriteCSV(w io.Writer, rows []Row) error {
	c := csv.NewWriter(w)
	if err := c.Write([]string{"structure", "variant", "memory", "task", "metric", "value", "unit", "trace"}); err != nil {
		return err
	}
	for _, r := range rows {
		if err := c.Write([]string{r.Structure, r.Variant, strconv.Itoa(r.Memory), r.Task, r.Metric, strconv.FormatFloat(r.Value, 'g', 6, 64), r.Unit, r.Trace}); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}
