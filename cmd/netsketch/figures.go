// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/netsketch/netsketch/lab/scenario/sweep"
)

func figuresCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "figures", Short: "Draw the rows of a sweep"}
	cmd.AddCommand(figuresDrawCommand())
	return cmd
}

func figuresDrawCommand() *cobra.Command {
	var charts string
	cmd := &cobra.Command{
		Use:   "draw FILE...",
		Short: "Draw a chart of each measure from the rows of a sweep",
		Long: `Read the files that netsketch demo --rows wrote, print the mean of each measure with its 95 %
confidence interval over the seeds, and draw each measure as SVG. Several files are one sweep: those of
the same keys with other values or seeds. Values are drawn in the order of the files.`,
		Example: `  netsketch figures draw rows.csv
  netsketch figures draw rows.csv more-seeds.csv --charts paper`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			axes, rows, err := sweep.ReadRows(files...)
			if err != nil {
				return err
			}
			summaries := sweep.Summarize(rows)
			names, err := sweep.Charts(charts, axes, summaries)
			if err != nil {
				return err
			}
			writeSummary(cmd.OutOrStdout(), axes, summaries)
			for _, r := range rows {
				if !r.OK {
					fmt.Fprintln(cmd.ErrOrStderr(), "some of the runs failed: the column ok of their rows is false")
					break
				}
			}
			for _, name := range names {
				fmt.Fprintln(cmd.OutOrStdout(), name)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&charts, "charts", "charts", "`directory` for the charts")
	return cmd
}
