// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/netsketch/netsketch/collector/config"
	"github.com/netsketch/netsketch/outputs/all"
)

func configCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Work with configuration files"}
	cmd.AddCommand(&cobra.Command{
		Use:     "check FILE...",
		Short:   "Report everything that is wrong in configuration files, with file, line and key",
		Example: "  netsketch config check configs/netsketch.yaml",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			failed := false
			for _, path := range args {
				c, err := config.Load(path)
				if err == nil {
					err = all.Check(c.Outputs)
				}
				if err == nil && len(c.Devices) == 0 {
					err = fmt.Errorf("%s: devices: none is given, so nothing would be measured; expected at least one switch", path)
				}
				if err != nil {
					failed = true
					fmt.Fprintln(cmd.ErrOrStderr(), err)
					continue
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s: good: %s, %s, %s\n", path, counted(len(c.Devices), "device"), counted(len(c.Plugins.Instances), "plugin"), counted(len(c.Outputs), "output"))
			}
			if failed {
				return errSilent
			}
			return nil
		},
	})
	return cmd
}

// counted is so many of something.
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
