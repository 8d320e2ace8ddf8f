// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/netsketch/netsketch/lab/figures/sketchint"
	"github.com/netsketch/netsketch/lab/figures/suite"
)

func sketchintCommand() *cobra.Command {
	var figures []string
	var out string
	cmd := &cobra.Command{
		Use:   "sketchint",
		Short: "SketchINT by the figures of the paper",
		Long: `Measures what Figures 7 and 8 of the SketchINT paper show, with the role of host agents on an emulated
testbed, and prints the rows.`,
		Example: `  figures sketchint --figures 7
  figures sketchint --out docs/figures`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runSketchint(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), figures, out)
		},
	}
	cmd.Flags().StringSliceVar(&figures, "figures", nil, "figures to measure, such as 7,8; all when empty")
	cmd.Flags().StringVar(&out, "out", "", "write a page, charts (SVG) and rows (CSV) for each to this directory")
	return cmd
}

func runSketchint(ctx context.Context, out, progress io.Writer, figures []string, directory string) error {
	suites, err := sketchint.Select(figures)
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
			if err := s.Write(directory, r, sketchint.Command(s.Name)); err != nil {
				return err
			}
		}
	}
	return suite.WriteCSV(out, rows)
}
