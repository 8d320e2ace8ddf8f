// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/netsketch/netsketch/internal/test/chamelemon"
	"github.com/netsketch/netsketch/lab/figures/attention"
	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/plugins/chamelemon/plugin"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// attentionFlags are the flags of the attention command.
type attentionFlags struct {
	figures string
	seeds   int
	out     string
	json    bool
	literal bool
	options attention.Options
}

func attentionCommand() *cobra.Command {
	var f attentionFlags
	cmd := &cobra.Command{
		Use:   "attention",
		Short: "ChameleMon's attention on the paper's testbed, by the paper's figures",
		Long: `Plays the paper's evaluation: four edge switches of its sizes between eight hosts,
its four workloads, over the number of flows (Figures 7, 14, 16, 18) and over the ratio of
victims (8, 15, 17, 19), with the plugin setting memory, thresholds and sample rate; and
the plugin's response time (20). Prints the paper's statements about each figure with the
measurements. Figure 20 needs an idle machine; the others are the same on every machine.`,
		Example: `  figures attention --figures 7,8
  figures attention --seeds 10 --workers 2 --out docs/figures`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runAttention(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), f)
		},
	}
	cmd.Flags().StringVar(&f.figures, "figures", "all", "figures of the paper: 7, 8, 14 to 20, as in 7,8,14-20")
	cmd.Flags().IntVar(&f.seeds, "seeds", 1, "number of runs of each point, each with other flows")
	cmd.Flags().
		StringVar(&f.out, "out", "", "write charts (SVG), points (CSV) and a page for each figure to this directory")
	cmd.Flags().BoolVar(&f.literal, "literal", false, "compare the paper's rules of attention with the product's "+
		"instead, at places of Figures 7 and 8")
	cmd.Flags().BoolVar(&f.json, "json", false, "print all points as JSON instead of the table")
	cmd.Flags().IntVar(&f.options.Workers, "workers", 1, "points at a time, except for figure 20")
	cmd.Flags().IntVar(&f.options.Settle, "settle", 20, "epochs before a point is measured")
	cmd.Flags().IntVar(&f.options.Measure, "measure", 4, "measured epochs of a point")
	cmd.Flags().Float64Var(&f.options.Loss, "loss", 0.01, "share of a victim's packets that is lost")
	return cmd
}

func runAttention(ctx context.Context, out, progress io.Writer, f attentionFlags) error {
	figures, err := attention.Figures(f.figures)
	if err != nil {
		return err
	}
	if f.seeds < 1 || f.options.Settle < 1 || f.options.Measure < 1 || !(f.options.Loss > 0 && f.options.Loss <= 1) {
		return fmt.Errorf(
			"--seeds %d, --settle %d, --measure %d, --loss %v: the first three must be at least 1, and the loss "+
				"above 0 and at most 1",
			f.seeds,
			f.options.Settle,
			f.options.Measure,
			f.options.Loss,
		)
	}
	if f.out != "" {
		if err := writable("--out", f.out); err != nil {
			return err
		}
	}
	o := f.options
	o.Plugin = func() sdk.Plugin { return plugin.NewAt(chamelemon.ProcessorTime) }
	for i := range f.seeds {
		o.Seeds = append(o.Seeds, uint64(i+1))
	}
	o.Progress = func(s attention.Sweep, p attention.Place, seed uint64, took time.Duration) {
		fmt.Fprintf(progress, "figure %d, %s: %d flows, %.1f %% victims, seed %d: %v\n", s.Figure, s.Workload, p.Flows,
			100*p.Victim, seed, took.Round(time.Millisecond))
	}
	begin := time.Now()
	if f.literal {
		if f.out == "" {
			return errors.New("--literal: set --out to the directory for its page, charts and rows")
		}
		l := attention.Literal(o)
		rows, err := l.Run(ctx, nil, suite.Options{})
		if err != nil {
			return err
		}
		return l.Write(f.out, rows, attention.LiteralCommand(l.Name))
	}
	drawn, err := attention.Bench(ctx, o, figures, f.out)
	if err != nil {
		return err
	}
	fmt.Fprintf(progress, "all in %v\n", time.Since(begin).Round(time.Second))
	if f.json {
		e := json.NewEncoder(out)
		e.SetIndent("", " ")
		return e.Encode(drawn)
	}
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "FIGURE\tWORKLOAD\tPAPER OR REQUIREMENT\tHERE\tHOLDS")
	for _, d := range drawn {
		figure := "-"
		if d.Figure > 0 {
			figure = fmt.Sprint(d.Figure)
		}
		for _, c := range d.Claims {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%v\n", figure, d.Workload, c.Paper, c.Here, c.Holds)
		}
	}
	return w.Flush()
}
