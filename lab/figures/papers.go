// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/netsketch/netsketch/lab/figures/attention"
	"github.com/netsketch/netsketch/lab/figures/lightguardian"
	"github.com/netsketch/netsketch/lab/figures/omnimon"
	"github.com/netsketch/netsketch/lab/figures/overtime"
	"github.com/netsketch/netsketch/lab/figures/sketchint"
	"github.com/netsketch/netsketch/lab/figures/suite"
)

func attentionCommand() *cobra.Command {
	return paperCommand(attention.Paper(), &cobra.Command{
		Use:   "attention",
		Short: "ChameleMon's attention on the paper's testbed, by the paper's figures",
		Long: `Plays the paper's evaluation: four edge switches of its sizes between eight hosts,
its four workloads, over the number of flows (Figures 7, 14, 16, 18) and over the ratio of
victims (8, 15, 17, 19), with the plugin setting memory, thresholds and sample rate; the plugin's
response time (20); published losses (losses); and the paper's rules of attention next to the
product's (literal). Figure 20 needs an idle machine; the others are the same on every machine.`,
		Example: `  figures attention --figures 7,8
  figures attention --out docs/figures`,
	}, "figures to measure: 7, 8, 14 to 20, losses, literal; all when empty")
}

func omnimonCommand() *cobra.Command {
	return paperCommand(omnimon.Paper(), &cobra.Command{
		Use:   "omnimon",
		Short: "OmniMon by the figures and tables of the paper",
		Long: `Measures what the figures and the tables of the OmniMon paper show and prints the rows.
Figures have the numbers of the paper's captions. Run it in the repository: it reads the example
queries, and figures 13 and 14 compile programs with p4c-bm2-ss.`,
		Example: `  figures omnimon --figures 12,14
  figures omnimon --out docs/figures`,
	}, "figures to measure, such as 12,table-1; all when empty")
}

func sketchintCommand() *cobra.Command {
	return paperCommand(sketchint.Paper(), &cobra.Command{
		Use:   "sketchint",
		Short: "SketchINT by the figures of the paper",
		Long: `Measures what Figures 7 and 8 of the SketchINT paper show, with the role of host agents on an emulated
testbed, and prints the rows.`,
		Example: `  figures sketchint --figures 7
  figures sketchint --out docs/figures`,
	}, "figures to measure, such as 7,8; all when empty")
}

func lightguardianCommand() *cobra.Command {
	return paperCommand(lightguardian.Paper(), &cobra.Command{
		Use:   "lightguardian",
		Short: "LightGuardian by the figures of the paper",
		Long: `Measures what the figures of the LightGuardian paper show beyond Figure 5, with the sketches of switches,
the selection of sketchlets and the rules of the plugin in memory, and prints the rows. Figure 7 has
Figures 8 to 10 too, 11 has Table 3, and 13 has 6 and 14.`,
		Example: `  figures lightguardian --figures 13
  figures lightguardian --out docs/figures`,
	}, "figures to measure, such as 7,12; all when empty")
}

func overheadCommand() *cobra.Command {
	return paperCommand(overtime.Overhead(), &cobra.Command{
		Use:   "overhead",
		Short: "ChameleMon's bandwidth and time of a reconfiguration: Figures 21 and 22",
		Long: `Reads the banks of a soft switch and writes random configurations to it over P4Runtime, and prints the
rows.`,
		Example: `  figures overhead --figures 21
  figures overhead --out docs/figures`,
	}, "figures to measure, 21 or 22; both when empty")
}

// paperCommand completes the command of a paper, whose figures usage describes.
func paperCommand(p suite.Paper, cmd *cobra.Command, usage string) *cobra.Command {
	var figures []string
	var out string
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return run(cmd.Context(), p, cmd.OutOrStdout(), cmd.ErrOrStderr(), figures, out)
	}
	cmd.Flags().StringSliceVar(&figures, "figures", nil, usage)
	cmd.Flags().StringVar(&out, "out", "", "write a page, charts (SVG) and rows (CSV) for each to this directory")
	return cmd
}

// run measures figures of a paper and prints their rows.
func run(ctx context.Context, p suite.Paper, out, progress io.Writer, figures []string, directory string) error {
	suites, err := p.Select(figures)
	if err != nil {
		return err
	}
	if directory != "" {
		if err := writable("--out", directory); err != nil {
			return err
		}
	}
	var rows []suite.Row
	for _, s := range suites {
		begin := time.Now()
		r, err := s.Run(ctx, nil, suite.Options{Seed: 1})
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		fmt.Fprintf(progress, "%s: %v\n", s.Title, time.Since(begin).Round(time.Second))
		rows = append(rows, r...)
		if directory != "" {
			if err := s.Write(directory, r, p.Command(s.Name)); err != nil {
				return err
			}
		}
	}
	return suite.WriteCSV(out, rows)
}
