// SPDX-License-Identifier: Apache-2.0

//go:build !nomanpages

// Package manpages is the command that writes the manual pages of a program.
package manpages

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// Add adds a command that writes manual pages to a program. The program's help does not list the
// command, because packages contain the pages.
func Add(program *cobra.Command, version string) {
	program.AddCommand(&cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages of all commands into a directory",
		Long: "Write the manual pages of all commands into a directory, which is created. They have the month of\n" +
			"SOURCE_DATE_EPOCH, if it is set.",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			top := cmd.Root()
			top.DisableAutoGenTag = true // the tag would contain the day of the build
			header := &doc.GenManHeader{Section: "1", Source: "netsketch " + version, Manual: "netsketch"}
			if err := doc.GenManTree(top, header, args[0]); err != nil {
				return fmt.Errorf("manual pages in %s: %w", args[0], err)
			}
			return nil
		},
	})
}
