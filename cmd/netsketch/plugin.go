// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/netsketch/netsketch/collector/pluginhost"
	"github.com/netsketch/netsketch/collector/schema"
	"github.com/netsketch/netsketch/internal/program"
	"github.com/netsketch/netsketch/internal/suggest"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/yang"
)

// pluginsUsage documents the flag --plugins of commands that read a plugin directory.
const pluginsUsage = "`directory` of plugin binaries; default: plugins next to this binary, then " +
	"../lib/netsketch/plugins"

func pluginCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{Use: "plugin", Short: "Inspect plugin binaries, and begin a plugin of your own"}
	cmd.PersistentFlags().StringVar(&dir, "plugins", "", pluginsUsage)
	cmd.AddCommand(&cobra.Command{
		Use:   "list",
		Short: "List the plugins of the directory with version, checksum to pin, and summary",
		Long: "List the plugins of the directory with version, checksum to pin, and summary. Each binary is " +
			"started for a moment.",
		Example: "  netsketch plugin list --plugins /usr/local/lib/netsketch/plugins",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, entries, err := catalog(cmd.Context(), dir)
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
			fmt.Fprintln(w, "NAME\tVERSION\tSHA256\tSUMMARY")
			others := 0
			for _, e := range entries {
				summary := e.Description.Summary
				if e.Err != nil {
					if !strings.HasPrefix(filepath.Base(e.Path), pluginhost.FilePrefix) {
						others++
						continue
					}
					summary = "unusable: " + e.Err.Error()
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", e.Name, e.Description.Version, e.SHA256, summary)
			}
			if others > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "not listed: %s that cannot be run as a plugin, and whose name does not begin "+
					"with %s\n", counted(others, "file"), pluginhost.FilePrefix)
			}
			return w.Flush()
		},
	}, &cobra.Command{
		Use:     "describe NAME",
		Short:   "Print the description of a plugin, by its name or the path of its binary, as JSON",
		Example: "  netsketch plugin describe univmon\n  netsketch plugin describe ./netsketch-plugin-porttop",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if at, file := filepath.Split(args[0]); at != "" {
				dir, args[0] = at, strings.TrimPrefix(file, pluginhost.FilePrefix)
			}
			from, entries, err := catalog(cmd.Context(), dir)
			if err != nil {
				return err
			}
			var names []string
			for _, e := range entries {
				if names = append(names, e.Name); e.Name != args[0] {
					continue
				}
				if e.Err != nil {
					return e.Err
				}
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				return enc.Encode(e.Description)
			}
			if near := suggest.Nearest(args[0], names); near != "" {
				return fmt.Errorf("no plugin %q in %s; did you mean %q?", args[0], from, near)
			}
			return fmt.Errorf("no plugin %q in %s: see `%s plugin list`", args[0], from, program.Name())
		},
	})
	cmd.AddCommand(pluginCheckCommand(), pluginNewCommand())
	return cmd
}

// catalog describes the plugins in dir or, if dir is empty, in the default directory. It returns
// the directory that it has read.
func catalog(ctx context.Context, dir string) (from string, _ []pluginhost.Entry, err error) {
	if dir == "" {
		if dir, err = pluginDirectory(); err != nil {
			return "", nil, err
		}
	}
	h, err := pluginhost.New(pluginhost.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return dir, nil, err
	}
	defer func() { _ = h.Close(context.WithoutCancel(ctx)) }()
	entries, err := h.Catalog(ctx, dir)
	for i := range entries {
		if e := &entries[i]; e.Err == nil {
			_, e.Err = adopt(e.Description)
		}
	}
	return dir, entries, err
}

// adopt returns the collector's schema with the modules of one plugin added, or an error if a
// collector would not load the plugin.
func adopt(d sdk.Description) (*schema.Registry, error) {
	registry, err := schema.New(slices.Concat(yang.CollectorModules(), yang.SwitchModules()))
	if err != nil {
		return nil, err
	}
	return registry, registry.Adopt(d)
}
