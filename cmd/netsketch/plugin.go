// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/netsketch/netsketch/collector/pluginhost"
)

func pluginCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{Use: "plugin", Short: "Look at plugin binaries"}
	cmd.PersistentFlags().StringVar(&dir, "plugins", "", "`folder` of plugin binaries; when empty, plugins beside this binary or ../lib/netsketch/plugins")
	catalogue := func(ctx context.Context) (_ []pluginhost.Entry, err error) {
		if dir == "" {
			if dir, err = pluginFolder(); err != nil {
				return nil, err
			}
		}
		h, err := pluginhost.New(pluginhost.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return nil, err
		}
		defer func() { _ = h.Close(context.WithoutCancel(ctx)) }()
		return h.Catalogue(ctx, dir)
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "list",
		Short: "Start each plugin in the folder for a moment and say what it is, with the checksum to pin",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			entries, err := catalogue(cmd.Context())
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
			fmt.Fprintln(w, "NAME\tVERSION\tSHA256\tWHAT")
			for _, e := range entries {
				what := e.Description.Summary
				if e.Err != nil {
					what = "unusable: " + e.Err.Error()
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", e.Name, e.Description.Version, e.SHA256, what)
			}
			return w.Flush()
		},
	}, &cobra.Command{
		Use:   "describe NAME",
		Short: "Print all that a plugin says of itself, as JSON",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			entries, err := catalogue(cmd.Context())
			if err != nil {
				return err
			}
			for _, e := range entries {
				if e.Name != args[0] {
					continue
				}
				if e.Err != nil {
					return e.Err
				}
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				return enc.Encode(e.Description)
			}
			return fmt.Errorf("no plugin %q in %s: see `netsketch plugin list`", args[0], dir)
		},
	})
	return cmd
}
