// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/netsketch/netsketch/lab/figures/overtime"
	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/scenario"
)

// overtimeFlags are the flags of the command overtime.
type overtimeFlags struct{ scenario, plugins, out string }

func overtimeCommand() *cobra.Command {
	var f overtimeFlags
	cmd := &cobra.Command{
		Use:   "overtime",
		Short: "ChameleMon's attention over the epochs of a scenario: Figure 9",
		Long: `Plays a scenario on a virtual clock, through soft switches, the collector and the plugin, and writes
the attention of each epoch as a page, charts (SVG) and rows (CSV). Figure 9 takes minutes.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runOvertime(cmd.Context(), cmd.ErrOrStderr(), &f)
		},
	}
	cmd.Flags().StringVar(&f.scenario, "scenario", "examples/chamelemon/figure9.yaml", "scenario `file`")
	cmd.Flags().StringVar(&f.plugins, "plugins", "bin/plugins", "`directory` of plugin binaries")
	cmd.Flags().StringVar(&f.out, "out", "docs/figures/chamelemon-9",
		"write to `files` of this name with .md, .svg and .csv after it")
	return cmd
}

func runOvertime(ctx context.Context, progress io.Writer, f *overtimeFlags) error {
	if err := writable("--out", filepath.Dir(f.out)); err != nil {
		return err
	}
	s, err := scenario.Load(f.scenario)
	if err != nil {
		return err
	}
	run, err := scenario.Open(ctx, s, scenario.Options{
		PluginDir: f.plugins, Listen: "127.0.0.1:0", Virtual: true,
		OnEpoch: func(r *scenario.Run) error {
			fmt.Fprintf(progress, "epoch %d of %d\n", len(r.Report().Epochs), s.Epochs)
			return nil
		},
	})
	if err != nil {
		return err
	}
	report, err := run.Play(ctx)
	h, ok := run.History("chamelemon")
	if err = errors.Join(err, run.Close()); err != nil {
		return err
	}
	if !ok || len(h.Results) == 0 {
		return fmt.Errorf("%s: the scenario has no epoch of ChameleMon", f.scenario)
	}
	command := "overtime"
	if f.scenario != "examples/chamelemon/figure9.yaml" {
		command += " --scenario " + f.scenario
	}
	return overtime.Write(s, report, h, f.out, suite.Make(command))
}
