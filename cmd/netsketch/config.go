// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/netsketch/netsketch/collector/config"
	"github.com/netsketch/netsketch/outputs/all"
)

func configCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Check configuration files and print the reference of keys"}
	cmd.AddCommand(&cobra.Command{
		Use:     "check FILE...",
		Short:   "Report all errors in configuration files, with file, line, column and key",
		Example: "  netsketch config check configs/netsketch.yaml",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			failed := false
			for _, path := range args {
				c, err := checkConfig(path)
				if err != nil {
					failed = true
					printProblems(cmd.ErrOrStderr(), err)
					continue
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s: valid: %s, %s, %s\n", path, counted(len(c.Devices), "device"),
					counted(len(c.Plugins.Instances), "plugin"), counted(len(c.Outputs), "output"))
			}
			if failed {
				return errSilent
			}
			return nil
		},
	}, &cobra.Command{
		Use:   "reference",
		Short: "Print every key of the configuration with its values, default and meaning, as Markdown",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), strings.TrimSpace(all.Reference))
			return err
		},
	})
	return cmd
}

func checkConfig(path string) (*config.Config, error) {
	c, err := config.Load(path)
	if err != nil {
		return nil, err
	}
	if err := all.Check(c.Outputs); err != nil {
		return nil, err
	}
	if len(c.Devices) == 0 {
		return nil, fmt.Errorf("%s: devices: is missing, so the collector would measure nothing; expected at "+
			"least one switch", path)
	}
	return c, nil
}

// printProblems prints each problem with the line of the file that it is about.
func printProblems(w io.Writer, err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			printProblems(w, e)
		}
		return
	}
	fmt.Fprintln(w, err)
	var p config.Problem
	if errors.As(err, &p) && p.Excerpt != "" {
		fmt.Fprintln(w, p.Excerpt)
	}
}

// counted returns a number of things, such as "2 devices".
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
