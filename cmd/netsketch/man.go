// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// manCommand writes the manual pages of all commands. Packages contain them, so it is not listed.
func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages of all commands into a directory",
		Long: "Write the manual pages of all commands into a directory, which is created. They have the month of\n" +
			"SOURCE_DATE_EPOCH, if it is set.",
		Example: "  netsketch man man1 && man man1/netsketch-collector.1",
		Args:    cobra.ExactArgs(1),
		Hidden:  true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			top := cmd.Root()
			top.DisableAutoGenTag = true // it would have the day of the build
			header := &doc.GenManHeader{Section: "1", Source: "netsketch " + version, Manual: "netsketch"}
			if err := doc.GenManTree(top, header, args[0]); err != nil {
				return fmt.Errorf("manual pages in %s: %w", args[0], err)
			}
			return nil
		},
	}
}
