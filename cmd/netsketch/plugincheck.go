// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/netsketch/netsketch/collector/pluginhost"
	"github.com/netsketch/netsketch/internal/files"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/record"
)

func pluginCheckCommand() *cobra.Command {
	var c pluginCheck
	cmd := &cobra.Command{
		Use:   "check BINARY",
		Short: "Report what a collector would refuse in a plugin: file, description, YANG, configuration, results",
		Long: "Report what a collector would refuse in a plugin. The binary is started as a collector starts it, and\n" +
			"configured with its defaults or with --config. With --recording it analyzes the epochs of a recording,\n" +
			"or of several; without a recording it analyzes an epoch without data. Results are checked against the\n" +
			"plugin's YANG modules, and plans are checked for what no switch could accept.",
		Example: "  netsketch plugin check ./netsketch-plugin-porttop --recording testdata/epochs.rec",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0])
		},
	}
	cmd.Flags().StringVar(&c.config, "config", "", "the plugin's configuration as a JSON `object`")
	cmd.Flags().StringArrayVar(&c.recordings, "recording", nil, "`file` with epochs to analyze; may be repeated")
	cmd.Flags().DurationVar(&c.timeout, "timeout", time.Minute, "time for the analysis of one epoch")
	return cmd
}

// pluginCheck checks a plugin's binary.
type pluginCheck struct {
	config     string
	recordings []string
	timeout    time.Duration
	network    *sdk.Network // the network that the plugin was configured with
}

func (c *pluginCheck) run(ctx context.Context, out, warn io.Writer, path string) error {
	logger := slog.New(slog.NewTextHandler(warn, &slog.HandlerOptions{Level: slog.LevelWarn}))
	host, err := pluginhost.New(pluginhost.Options{Logger: logger})
	if err != nil {
		return err
	}
	defer func() { _ = host.Close(context.WithoutCancel(ctx)) }()
	entry := host.Fingerprint(ctx, path)
	if entry.Err != nil {
		return entry.Err
	}
	d := entry.Description
	registry, err := adopt(d)
	if err != nil {
		return fmt.Errorf("plugin %s (%s): %w", d.Name, path, err)
	}
	fmt.Fprintf(out, "plugin %s %s: %s of %s\n", d.Name, d.Version, counted(len(d.Lists), "list"),
		counted(len(d.Modules), "YANG module"))
	for _, m := range d.Modules {
		for _, w := range registry.Current().Warnings(m.Name) {
			fmt.Fprintf(warn, "warning: %s\n", w)
		}
	}
	if base := filepath.Base(path); base != pluginhost.FilePrefix+d.Name && base != d.Name {
		fmt.Fprintf(warn, "warning: the collector looks for %s%s in its plugin directory; this file is %s\n",
			pluginhost.FilePrefix, d.Name, base)
	}
	p := &player{host: host, path: path, schema: registry}
	defer p.stop(ctx)
	if len(c.recordings) == 0 {
		return c.empty(ctx, out, p)
	}
	for _, file := range c.recordings {
		if err := c.play(ctx, out, p, file); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

// empty lets the plugin analyze an epoch of a network without devices.
func (c *pluginCheck) empty(ctx context.Context, out io.Writer, p *player) error {
	setup := &record.Setup{Config: []byte(c.config), EpochLength: time.Second}
	c.network = &setup.Network
	if err := p.configure(ctx, setup); err != nil {
		return err
	}
	end := time.Now().Truncate(time.Second)
	epoch := &sdk.Epoch{Number: uint64(end.Unix()), Start: end.Add(-time.Second), End: end, Status: sdk.StatusComplete}
	if _, err := c.analyze(ctx, p, epoch); err != nil {
		return fmt.Errorf("an epoch without data: %w", err)
	}
	fmt.Fprintln(out, "configured, and analyzed an epoch without data; --recording FILE analyzes recorded ones")
	return nil
}

// play lets the plugin analyze the epochs of a recording.
func (c *pluginCheck) play(ctx context.Context, out io.Writer, p *player, file string) error {
	in, err := files.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	reader, err := record.NewReader(in)
	if err != nil {
		return err
	}
	epochs, rows := 0, map[string]int{}
	for {
		epoch, setup, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if setup != nil {
			if c.network = &setup.Network; c.config != "" {
				setup.Config = []byte(c.config)
			}
		}
		if err := p.configure(ctx, setup); err != nil {
			return err
		}
		results, err := c.analyze(ctx, p, epoch)
		if err != nil {
			return fmt.Errorf("epoch %d: %w", epoch.Number, err)
		}
		epochs++
		for _, t := range results.Tables {
			rows[t.Table.List] += t.Table.Rows()
		}
	}
	fmt.Fprintf(out, "%s: %s analyzed\n", file, counted(epochs, "epoch"))
	for _, l := range p.plugin.Describe().Lists {
		fmt.Fprintf(out, "  %s: %s\n", l.Path, counted(rows[l.Path], "row"))
	}
	return nil
}

// analyze lets the plugin analyze an epoch, and checks results and plans.
func (c *pluginCheck) analyze(ctx context.Context, p *player, epoch *sdk.Epoch) (*sdk.Results, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	results, err := p.analyze(ctx, epoch)
	if err != nil {
		return nil, err
	}
	for _, plan := range results.Plans {
		if err := plan.Check(c.network); err != nil {
			return nil, err
		}
	}
	return results, nil
}
