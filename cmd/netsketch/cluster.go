// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/netsketch/netsketch/collector/cluster"
	"github.com/netsketch/netsketch/collector/cluster/bus"
	"github.com/netsketch/netsketch/collector/cluster/member"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/internal/certs"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/internal/program"
)

// clusterTimeout bounds the wait for NATS and for members.
const clusterTimeout = 5 * time.Second

func clusterCommand() *cobra.Command {
	var path string
	var wait, asJSON bool
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
	status := &cobra.Command{
		Use:   "status",
		Short: "Print the members with their devices and hosts, and what they count",
		Args:  cobra.NoArgs,
		Example: "  netsketch cluster status --config netsketch.yaml\n" +
			"  netsketch cluster status --json | jq '.members[] | .name, .counts'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withCluster(cmd.Context(), path, func(cfg *config.Config, b *bus.Bus) error {
				s, err := statusOf(cmd.Context(), cfg, b)
				switch {
				case err != nil:
					return err
				case asJSON:
					return json.NewEncoder(cmd.OutOrStdout()).Encode(s)
				}
				return s.print(cmd.OutOrStdout())
			})
		},
	}
	status.Flags().BoolVar(&asJSON, "json", false, "print one JSON object instead of tables")
	cmd.AddCommand(status, drain, member(cluster.Resume, "resume", "Make a drained member own devices again"))
	return cmd
}

// drainPoll is the time between waitDrained's requests for a member's holdings.
const drainPoll = 250 * time.Millisecond

// waitDrained waits until a member owns nothing, and prints the member's remaining devices, hosts
// and plugins when they change.
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
			return fmt.Errorf("after %v, %s still owns %s; the hand-over continues, and \"%s cluster resume %s\" gives "+
				"everything back", timeout, member, last, program.Name(), member)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// heldText lists the devices, hosts and plugins of a member.
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
	b, err := member.Connect(ctx, cfg.Cluster, certs.New(certs.Options{}), slog.New(slog.DiscardHandler))
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

// clusterStatus is the state of a cluster.
type clusterStatus struct {
	Name    string         `json:"name"`
	Members []memberStatus `json:"members"`
	// Unowned are the devices that no member owns.
	Unowned []string `json:"unowned_devices,omitempty"`
}

// memberStatus is a member with its devices, hosts and plugins.
type memberStatus struct {
	cluster.Member
	Devices []string `json:"devices"`
	Hosts   []string `json:"hosts"`
	// Counts are the member's counters; nil if the member did not reply, for the reason in
	// Unanswered.
	Counts     *cluster.Counts `json:"counts,omitempty"`
	Unanswered string          `json:"unanswered,omitempty"`
}

// statusOf requests the state of a cluster.
func statusOf(ctx context.Context, cfg *config.Config, b *bus.Bus) (*clusterStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	members, err := cluster.Members(ctx, b)
	if errors.Is(err, jetstream.ErrBucketNotFound) || err == nil && len(members) == 0 {
		return nil, fmt.Errorf("cluster %s has no members", b.Name())
	}
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", b.Name(), err)
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
	s := &clusterStatus{Name: b.Name(), Unowned: devices[""], Members: make([]memberStatus, len(members))}
	var requests sync.WaitGroup
	for i, m := range members {
		s.Members[i] = memberStatus{Member: m, Devices: devices[m.Name], Hosts: hosts[m.Name]}
		requests.Go(func() {
			if counts, err := cluster.Counted(ctx, b, m.Name); err != nil {
				s.Members[i].Unanswered = err.Error()
			} else {
				s.Members[i].Counts = &counts
			}
		})
	}
	requests.Wait()
	return s, nil
}

// print writes the state as tables.
func (s *clusterStatus) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "MEMBER\tSTATE\tVERSION\tSINCE\tCLOCK\tDEVICES\tHOSTS")
	for _, m := range s.Members {
		state := string(m.State)
		if m.State == cluster.Draining && m.Drained {
			state = "drained"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%v ±%v\t%s\t%s\n", m.Name, state, m.Version, m.Started.Format(time.DateTime),
			m.Offset.Round(100*time.Microsecond), m.Uncertainty.Round(100*time.Microsecond),
			strings.Join(m.Devices, ","), strings.Join(m.Hosts, ","))
	}
	fmt.Fprintln(t, "\nMEMBER\tHANDED OVER\tFORCED\tEPOCHS SENT\tRECEIVED\tREFUSED\tENTRIES FAILED")
	for _, m := range s.Members {
		if c := m.Counts; c != nil {
			fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%d\n", m.Name, c.HandedOver, c.Forced, c.EpochsSent, c.EpochsReceived,
				c.EpochsRefused, c.EntriesFailed)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, m := range s.Members {
		if m.Unanswered != "" {
			fmt.Fprintf(w, "%s has not sent its counters: %s\n", m.Name, m.Unanswered)
		}
		if m.Reason != "" {
			fmt.Fprintf(w, "%s is refused: %s\n", m.Name, m.Reason)
		}
	}
	if len(s.Unowned) > 0 {
		fmt.Fprintf(w, "no member owns %s\n", strings.Join(s.Unowned, ", "))
	}
	return nil
}
