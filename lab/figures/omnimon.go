// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/netsketch/netsketch/lab/figures/omnimon"
	"github.com/netsketch/netsketch/lab/figures/suite"
)

func omnimonCommand() *cobra.Command {
	var figures []string
	var out string
	cmd := &cobra.Command{
		Use:   "omnimon",
		Short: "OmniMon by the figures and tables of the paper",
		Long: `Measures what the figures and the tables of the OmniMon paper show and prints the rows.
Figures have the numbers of the paper's captions. Run it in the repository: it reads the example
queries, and figure 14 compiles programs with p4c-bm2-ss.`,
		Example: `  figures omnimon --figures 12,14
  figures omnimon --out docs/figures`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runOmnimon(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), figures, out)
		},
	}
	cmd.Flags().StringSliceVar(&figures, "figures", nil, "figures to measure, such as 12,table-1; all when empty")
	cmd.Flags().StringVar(&out, "out", "", "write a page, charts (SVG) and rows (CSV) for each to this directory")
	return cmd
}

func runOmnimon(ctx context.Context, out, progress io.Writer, figures []string, directory string) error {
	suites, err := omnimon.Select(figures)
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
			if err := s.Write(directory, r, omnimon.Command(s.Name)); err != nil {
				return err
			}
		}
	}
	return suite.WriteCSV(out, rows)
}
