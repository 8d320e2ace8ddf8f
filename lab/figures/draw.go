// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/netsketch/netsketch/lab/figures/attention"
	"github.com/netsketch/netsketch/lab/figures/lightguardian"
	"github.com/netsketch/netsketch/lab/figures/omnimon"
	"github.com/netsketch/netsketch/lab/figures/overtime"
	"github.com/netsketch/netsketch/lab/figures/sketches"
	"github.com/netsketch/netsketch/lab/figures/sketchint"
	"github.com/netsketch/netsketch/lab/figures/suite"
)

func drawCommand() *cobra.Command {
	var directory string
	cmd := &cobra.Command{
		Use:   "draw",
		Short: "Draw the charts again, from the recorded rows",
		Long: `Reads the rows (CSV) of all figures and writes their charts again, and the pages of the sketches.
It measures nothing and takes seconds.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := sketches.Draw(directory); err != nil {
				return err
			}
			for _, p := range []suite.Paper{attention.Paper(), omnimon.Paper(), sketchint.Paper(), lightguardian.Paper(),
				overtime.Overhead()} {
				if err := p.Draw(directory); err != nil {
					return err
				}
			}
			return overtime.Draw(filepath.Join(directory, "chamelemon-9"))
		},
	}
	cmd.Flags().StringVar(&directory, "directory", "docs/figures", "`directory` of the rows, charts and pages")
	return cmd
}
