// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/netsketch/netsketch/collector"
	"github.com/netsketch/netsketch/collector/cluster"
	"github.com/netsketch/netsketch/collector/cluster/bus"
	"github.com/netsketch/netsketch/collector/config"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/internal/certs"
)

// clusterTimeout bounds the wait for NATS and for members.
const clusterTimeout = 5 * time.Second

func clusterCommand() *cobra.Command {
	var path string
	var wait bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Show the members of a cluster of collectors and what they own, and drain one",
		Args:  cobra.NoArgs,
	}
	cmd.PersistentFlags().StringVarP(&path, "config", "c", "netsketch.yaml", "configuration `file` of a member")
	member := func(command, use, short string) *cobra.Command {
		return &cobra.Command{
			Use: use + " MEMBER", Short: short, Args: cobra.ExactArgs(1),
			Example: "  netsketch cluster " + use + " collector2 --config netsketch.yaml",
			RunE: func(cmd *cobra.Command, args []string) error {
				return withCluster(cmd.Context(), path, func(_ *config.Config, b *bus.Bus) error {
					ctx, cancel := context.WithTimeout(cmd.Context(), clusterTimeout)
					defer cancel()
					if err := cluster.Command(ctx, b, args[0], command); err != nil || command != cluster.Drain || !wait {
						return err
					}
					return waitDrained(cmd.Context(), cmd.OutOrStdout(), b, args[0], timeout)
				})
			},
		}
	}
	drain := member(cluster.Drain, "drain", "Move what a member owns to the others; it goes on to serve results")
	drain.Example += "\n  netsketch cluster drain collector2 --wait"
	drain.Flags().BoolVar(&wait, "wait", false, "wait until the member owns nothing")
	drain.Flags().DurationVar(&timeout, "timeout", time.Minute, "fail after this `time` with --wait")
	cmd.AddCommand(&cobra.Command{
		Use:     "status",
		Short:   "Print the members with their devices and hosts",
		Args:    cobra.NoArgs,
		Example: "  netsketch cluster status --config netsketch.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withCluster(cmd.Context(), path, func(cfg *config.Config, b *bus.Bus) error {
				return clusterStatus(cmd.Context(), cmd.OutOrStdout(), cfg, b)
			})
		},
	}, drain, member(cluster.Resume, "resume", "Make a drained member own devices again"))
	return cmd
}

// drainPoll is how often waitDrained asks for what a member owns.
const drainPoll = 250 * time.Millisecond

// waitDrained waits until a member owns nothing, and prints what it owns when that changes.
func waitDrained(ctx context.Context, w io.Writer, b *bus.Bus, member string, timeout time.Duration) error {
	over := time.NewTimer(timeout)
	defer over.Stop()
	poll := time.NewTicker(drainPoll)
	defer poll.Stop()
	for last := ""; ; {
		limited, cancel := context.WithTimeout(ctx, clusterTimeout)
		h, err := cluster.Held(limited, b, member)
		cancel()
		switch {
		case err != nil:
			return err
		case h.Empty():
			fmt.Fprintf(w, "%s owns nothing\n", member)
			return nil
		}
		if text := heldText(h); text != last {
			last = text
			fmt.Fprintf(w, "%s owns %s\n", member, text)
		}
		select {
		case <-poll.C:
		case <-over.C:
			return fmt.Errorf("after %v, %s still owns %s; it goes on to hand over, and \"netsketch cluster resume %s\" gives "+
				"everything back", timeout, member, last, member)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// heldText lists what a member owns.
func heldText(h cluster.Holdings) string {
	var text []string
	add := func(kind string, names []string) {
		if len(names) > 0 {
			text = append(text, fmt.Sprintf("%s %s", kind, epoch.Names(names)))
		}
	}
	add("devices", h.Devices)
	add("hosts", h.Hosts)
	add("plugins", h.Plugins)
	return strings.Join(text, "; ")
}

// withCluster calls f with a connection to the NATS servers of a configuration.
func withCluster(ctx context.Context, path string, f func(*config.Config, *bus.Bus) error) error {
	cfg, err := config.Load(path)
	if err != nil {
		return err
	}
	if cfg.Cluster.Name == "" {
		return fmt.Errorf("%s configures no cluster: cluster.name is missing", path)
	}
	b, err := collector.ConnectCluster(ctx, cfg.Cluster, certs.New(certs.Options{}), false,
		collector.Dependencies{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer b.Close()
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	if err := b.WaitConnected(ctx); err != nil {
		return err
	}
	return f(cfg, b)
}

// clusterStatus prints the members.
func clusterStatus(ctx context.Context, w io.Writer, cfg *config.Config, b *bus.Bus) error {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	members, err := cluster.Members(ctx, b)
	if errors.Is(err, jetstream.ErrBucketNotFound) || err == nil && len(members) == 0 {
		return fmt.Errorf("cluster %s has no members", b.Name())
	}
	if err != nil {
		return fmt.Errorf("cluster %s: %w", b.Name(), err)
	}
	slices.SortFunc(members, func(x, y cluster.Member) int { return strings.Compare(x.Name, y.Name) })
	view := cluster.View{Members: members}
	devices, hosts := map[string][]string{}, map[string][]string{}
	for _, d := range cfg.Devices {
		devices[view.Device(d.Name)] = append(devices[view.Device(d.Name)], d.Name)
	}
	for _, h := range cfg.AgentHosts() {
		hosts[view.Host(h)] = append(hosts[view.Host(h)], h)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "MEMBER\tSTATE\tVERSION\tSINCE\tCLOCK\tDEVICES\tHOSTS")
	for _, m := range members {
		state := string(m.State)
		if m.State == cluster.Draining && m.Drained {
			state = "drained"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%v ±%v\t%s\t%s\n", m.Name, state, m.Version, m.Started.Format(time.DateTime),
			m.Offset.Round(100*time.Microsecond), m.Uncertainty.Round(100*time.Microsecond),
			strings.Join(devices[m.Name], ","), strings.Join(hosts[m.Name], ","))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, m := range members {
		if m.Reason != "" {
			fmt.Fprintf(w, "%s is refused: %s\n", m.Name, m.Reason)
		}
	}
	if none := devices[""]; len(none) > 0 {
		fmt.Fprintf(w, "no member owns %s\n", strings.Join(none, ", "))
	}
	return nil
}
