// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/netsketch/netsketch/lab/scenario"
	"github.com/netsketch/netsketch/lab/scenario/groundtruth"
	"github.com/netsketch/netsketch/lab/scenario/sweep"
)

// runSweep plays a scenario for each combination of values and seeds.
func runSweep(cmd *cobra.Command, f *demoFlags) (began bool, err error) {
	logger, _, err := f.prepare(cmd)
	if err != nil {
		return false, err
	}
	if f.seeds < 1 {
		return false, fmt.Errorf("--seeds %d: expected 1 or more", f.seeds)
	}
	w := sweep.Sweep{Seeds: f.seeds, Load: f.load, Options: scenario.Options{PluginDir: f.plugins,
		Listen: "127.0.0.1:0", Virtual: !f.wall, BMv2: f.bmv2, Logger: logger, Version: version}}
	for _, text := range f.sweep {
		axis, err := sweep.ParseAxis(text)
		if err != nil {
			return false, fmt.Errorf("--sweep %w", err)
		}
		w.Axes = append(w.Axes, axis)
	}
	if err := sweep.CheckKeys(w.Axes); err != nil {
		return false, fmt.Errorf("--sweep: %w", err)
	}
	if f.charts != "" && len(w.Axes) == 0 {
		return false, errors.New("--charts: a chart needs an axis: set --sweep")
	}
	if s, err := f.load(); err != nil {
		return false, err
	} else if s.Epochs == 0 {
		return false, fmt.Errorf("the scenario %s has no end: set --epochs for a sweep", s.Name)
	}
	out := io.Discard
	if f.rows != "" {
		file, err := os.Create(f.rows)
		if err != nil {
			return false, err
		}
		defer file.Close()
		out = file
	}
	writer, err := sweep.NewRowWriter(out, w.Axes)
	if err != nil {
		return false, err
	}
	if f.truth != "" {
		if w.Options.GroundTruth, err = groundtruth.Create(f.truth, sweep.Names(w.Axes)...); err != nil {
			return false, err
		}
		defer func() { err = errors.Join(err, w.Options.GroundTruth.Close()) }()
	}
	var rows []sweep.Row
	runs, failed := 0, 0
	err = w.Play(cmd.Context(), func(p sweep.Played) error {
		runs++
		if !p.Report.OK {
			failed++
		}
		fmt.Fprintln(cmd.ErrOrStderr(), p.Line(w.Axes))
		played := p.Rows()
		rows = append(rows, played...)
		return writer.Write(played)
	})
	if err != nil {
		return true, err
	}
	summaries := sweep.Summarize(rows)
	writeSummary(cmd.OutOrStdout(), w.Axes, summaries)
	if f.charts != "" {
		if _, err := sweep.Charts(f.charts, w.Axes, summaries); err != nil {
			return true, err
		}
	}
	if failed > 0 {
		return true, fmt.Errorf("%d of %d runs failed", failed, runs)
	}
	return true, nil
}

// writeSummary prints the mean of each measure at each point, with half the width of its 95 %
// confidence interval.
func writeSummary(out io.Writer, axes []sweep.Axis, summaries []sweep.Summary) {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	defer w.Flush()
	names := append(sweep.Names(axes), "ALGORITHM", "MEASURE", "DIMENSION", "MEAN", "± (95 %)", "RUNS")
	fmt.Fprintln(w, strings.Join(names, "\t"))
	for _, s := range summaries {
		half := "-"
		if !math.IsNaN(s.Half) {
			half = fmt.Sprintf("%.3g", s.Half)
		}
		fmt.Fprintln(w, strings.Join(append(s.Values[:len(s.Values):len(s.Values)], s.Algorithm, s.Measure, s.Dimension,
			fmt.Sprintf("%.5g", s.Mean), half, strconv.Itoa(s.Runs)), "\t"))
	}
}
