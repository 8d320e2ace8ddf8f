// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/netsketch/netsketch/collector"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/lab/scenario"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/univmon/plugin"
	"github.com/netsketch/netsketch/plugins/univmon/manifest"
	"github.com/netsketch/netsketch/settings"
)

func univmonCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "univmon", Short: "Compute which switches count what for UnivMon's network-wide results"}
	var path, scheme string
	var pairs bool
	print := &cobra.Command{
		Use:   "manifest",
		Short: "Print the sketches that each switch keeps, and how far that is from the least memory",
		Long: `Print the sketches that each switch keeps, so that all packets between two edge switches are counted once in each
dimension, on any topology. The network, its routes and the pipelines are those of the collector's configuration;
nothing is connected. The last line has the bytes of the switch with the most sketches, those of all, and the share by
which switches times most plus all may exceed the optimum.`,
		Example: "  netsketch univmon manifest --config netsketch.yaml\n" +
			"  netsketch univmon manifest --config netsketch.yaml --scheme ingress --pairs",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(path)
			if err != nil {
				return err
			}
			c, err := univmonConfiguration(cfg)
			if err != nil {
				return err
			}
			network, err := networkModel(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			a, err := c.Assign(network, manifest.Scheme(scheme), nil)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if pairs {
				return printPairs(cmd.OutOrStdout(), a)
			}
			return printManifest(cmd.OutOrStdout(), a)
		},
	}
	print.Flags().StringVarP(&path, "config", "c", "netsketch.yaml", "configuration `file` of the collector")
	print.Flags().StringVar(&scheme, "scheme", string(manifest.Optimized), fmt.Sprint("one of ", manifest.Schemes))
	print.Flags().BoolVar(&pairs, "pairs", false, "print the switches that count each pair of edge switches instead")
	cmd.AddCommand(print)
	return cmd
}

// univmonConfiguration returns the configuration of the first instance of the plugin, or the
// default.
func univmonConfiguration(cfg *config.Config) (plugin.Configuration, error) {
	var c plugin.Configuration
	for _, p := range cfg.Plugins.Instances {
		if p.Binary() == "univmon" {
			return c, p.Config.Decode(&c)
		}
	}
	return settings.Default[plugin.Configuration](), nil
}

// networkModel returns the network of a configuration as plugins receive it, before a device is
// connected.
func networkModel(ctx context.Context, cfg *config.Config) (*sdk.Network, error) {
	next := *cfg
	next.Plugins = config.Plugins{}
	c, err := collector.New(&next, collector.Dependencies{Logger: slog.New(slog.DiscardHandler),
		Programs: scenario.Programs, Version: version})
	if err != nil {
		return nil, err
	}
	n := c.Network()
	return &n, c.Stop(context.WithoutCancel(ctx))
}

func printManifest(out io.Writer, a *plugin.Assignment) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "SWITCH\tSKETCHES\tBYTES\tPAIRS")
	for j, s := range a.Problem.Switches {
		var names []string
		bytes := 0
		for k, d := range a.Problem.Dimensions {
			if a.Kept[j].Has(k) {
				names = append(names, d.Name)
				bytes += d.Bytes
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\n", s.Name, strings.Join(names, ", "), bytes, len(a.Duties[j]))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(a.Unfit)) {
		fmt.Fprintf(out, "%s counts nothing: %s\n", name, a.Unfit[name])
	}
	if n := len(a.Uncovered); n > 0 {
		fmt.Fprintf(out, "%d of %d pairs are not counted by any switch\n", n, len(a.Problem.Pairs))
	}
	fmt.Fprintf(out, "%d pairs, %d sketches, most %d bytes, all %d bytes", len(a.Problem.Pairs), a.Sketches(), a.Max,
		a.Sum)
	if a.Bound > 0 {
		fmt.Fprintf(out, ", at most %.1f %% above the optimum", 100*a.Gap())
	}
	if a.Requests > 0 {
		fmt.Fprintf(out, ", %d requests to the controller", a.Requests)
	}
	_, err := fmt.Fprintln(out)
	return err
}

func printPairs(out io.Writer, a *plugin.Assignment) error {
	counters := make([][]string, len(a.Problem.Pairs)*len(a.Problem.Dimensions))
	for j, duties := range a.Duties {
		for _, d := range duties {
			for k := range a.Problem.Dimensions {
				if at := d.Pair*len(a.Problem.Dimensions) + k; d.Set.Has(k) {
					counters[at] = append(counters[at], a.Problem.Switches[j].Name)
				}
			}
		}
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprint(w, "FROM\tTO\tPATHS")
	for _, d := range a.Problem.Dimensions {
		fmt.Fprint(w, "\t", strings.ToUpper(d.Name))
	}
	fmt.Fprintln(w)
	for i, p := range a.Problem.Pairs {
		fmt.Fprintf(w, "%s\t%s\t%d", a.Problem.Switches[p.Origin].Name, a.Problem.Switches[p.Destination].Name, len(p.Paths))
		for k := range a.Problem.Dimensions {
			fmt.Fprint(w, "\t", strings.Join(counters[i*len(a.Problem.Dimensions)+k], ", "))
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}
