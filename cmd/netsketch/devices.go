// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/netsketch/netsketch/collector/cluster/bus"
	"github.com/netsketch/netsketch/collector/cluster/plans"
	"github.com/netsketch/netsketch/collector/devconfig"
	"github.com/netsketch/netsketch/collector/southbound"
	"github.com/netsketch/netsketch/internal/certs"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/internal/program"
	"github.com/netsketch/netsketch/yang"
)

// changesPending is the exit code of a plan that has changes.
const changesPending = 2

func devicesCommand() *cobra.Command {
	var path string
	var asJSON bool
	var digest string
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "Show what switches need over gNMI before they can be measured, and set it",
		Args:  cobra.NoArgs,
	}
	cmd.PersistentFlags().StringVarP(&path, "config", "c", "netsketch.yaml", "configuration `file` of the collector")
	plan := &cobra.Command{
		Use:   "plan [DEVICE...]",
		Short: "Compare devices with the file; nothing is changed",
		Long: `Compare devices with the file, all if none is named, and print what would be set. Nothing is changed.

The exit code is 0 if everything is in effect, 2 if something is to be set, and 1 if a device cannot be
read or a leaf is refused.`,
		Example: "  netsketch devices plan --config netsketch.yaml\n  netsketch devices plan leaf1 --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			reply, err := doDevices(cmd.Context(), path, devconfig.Request{Command: "plan", Devices: args})
			if err != nil {
				return err
			}
			digest := devconfig.Digest(reply.Plans)
			if asJSON {
				err = json.NewEncoder(cmd.OutOrStdout()).Encode(struct {
					Digest string            `json:"digest,omitempty"`
					Plans  []*devconfig.Plan `json:"plans"`
				}{digest, reply.Plans})
			} else {
				printPlans(cmd.OutOrStdout(), reply.Plans, digest, path, args)
			}
			if err == nil {
				err = planResult(reply.Plans)
			}
			return err
		},
	}
	plan.Flags().BoolVar(&asJSON, "json", false, "print one JSON object instead of text")
	apply := &cobra.Command{
		Use:   "apply --plan DIGEST [DEVICE...]",
		Short: "Carry out a plan: set, read back, wait for P4Runtime, and keep it; otherwise take it back",
		Long: `Carry out the plan with a digest, which devices plan prints. The collector reads the devices again and
refuses if anything has changed since. It sets a device, reads its configuration and state back, and waits
for the P4Runtime session. Only then the change is kept; otherwise the device gets back what it had.`,
		Example: "  netsketch devices apply --plan 3f2a8c01d4e5b697",
		RunE: func(cmd *cobra.Command, args []string) error {
			reply, err := doDevices(cmd.Context(), path, devconfig.Request{Command: "apply", Devices: args, Digest: digest})
			for _, name := range reply.Applied {
				fmt.Fprintf(cmd.OutOrStdout(), "%s: everything is in effect\n", name)
			}
			return err
		},
	}
	apply.Flags().StringVar(&digest, "plan", "", "`digest` of the plan to carry out")
	_ = apply.MarkFlagRequired("plan") // the flag exists
	revert := &cobra.Command{
		Use:   "revert DEVICE",
		Short: "Restore what a device had before the collector set it",
		Long: `Restore what a device had before the collector set it, except leaves that somebody else has changed since.
In mode enforce, the collector leaves the device alone afterwards, until devices apply.`,
		Example: "  netsketch devices revert leaf1",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			reply, err := doDevices(cmd.Context(), path, devconfig.Request{Command: "revert", Devices: args})
			result := "has what it had before"
			if len(reply.Applied) == 0 {
				result = "is left as it is: it has no value that the collector has a record of"
			}
			if err == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", args[0], result)
			}
			return err
		},
	}
	cmd.AddCommand(plan, apply, revert)
	return cmd
}

// doDevices sends a command to the collector of a configuration. If no collector runs, it makes
// plans itself, because plans only read.
func doDevices(ctx context.Context, path string, r devconfig.Request) (reply devconfig.Reply, err error) {
	cfg, err := config.Load(path)
	if err != nil {
		return reply, err
	}
	dir := cfg.DeviceConfiguration.Directory
	err = devconfig.ErrNoCollector
	if dir != "" {
		reply, err = devconfig.Call(ctx, dir, r)
	}
	switch {
	case errors.Is(err, devconfig.ErrNoCollector) && r.Command == "plan" && cfg.Cluster.Name != "":
		err = withCluster(ctx, path, func(cfg *config.Config, b *bus.Bus) error {
			return planOffline(ctx, cfg, plans.NewRecords(b), r, &reply)
		})
		if err != nil {
			return reply, err
		}
	case errors.Is(err, devconfig.ErrNoCollector) && r.Command == "plan":
		if err := planOffline(ctx, cfg, nil, r, &reply); err != nil {
			return reply, err
		}
	case errors.Is(err, devconfig.ErrNoCollector) && dir == "":
		return reply, fmt.Errorf("%s has no device-configuration.directory, by which the command reaches the collector", path)
	case errors.Is(err, devconfig.ErrNoCollector):
		return reply, fmt.Errorf("%w: start \"%s collector --config %s\" on this machine", err, program.Name(), path)
	case err != nil:
		return reply, err
	}
	if reply.Error != "" {
		err = errors.New(reply.Error)
	} else {
		err = nil
	}
	return reply, err
}

// planOffline makes plans without a collector. records are the records that a cluster keeps of its
// devices; nil without a cluster.
func planOffline(ctx context.Context, cfg *config.Config, records devconfig.Records, r devconfig.Request,
	reply *devconfig.Reply,
) error {
	store := certs.New(certs.Options{})
	schema, err := yang.Load(yang.SwitchModules()...)
	if err != nil {
		return err
	}
	*reply = devconfig.New(cfg, devconfig.Dependencies{
		Dial: func(dev config.Device) (func(...grpc.DialOption) (*grpc.ClientConn, error), error) {
			e, err := southbound.EndpointOf(dev, store)
			return e.Dial, err
		},
		Schema: func() *yang.Schema { return schema }, Records: records,
	}).Do(ctx, r)
	return nil
}

// planResult returns an error with the exit code of a plan: 1 if a device cannot be read or refuses
// a leaf, otherwise 2 if there are changes.
func planResult(plans []*devconfig.Plan) error {
	var err error
	for _, p := range plans {
		switch {
		case p.Error != "" || p.Refused():
			return errSilent
		case len(p.Changes) > 0:
			err = exitError{changesPending, errSilent}
		}
	}
	return err
}

// printPlans prints plans as text.
func printPlans(w io.Writer, plans []*devconfig.Plan, digest, path string, names []string) {
	for _, p := range plans {
		switch {
		case p.Error != "":
			fmt.Fprintf(w, "%s: cannot be read\n  %s\n", p.Device, p.Error)
			continue
		case p.Refused():
			fmt.Fprintf(w, "%s: not changed, because a leaf is refused\n", p.Device)
		case len(p.Changes) == 0 && !inEffect(p):
			fmt.Fprintf(w, "%s: configured, and not in effect\n", p.Device)
		case len(p.Changes) == 0:
			fmt.Fprintf(w, "%s: everything is in effect\n", p.Device)
		default:
			fmt.Fprintf(w, "%s: %d changes, plan %s\n", p.Device, len(p.Changes), p.Digest)
		}
		for _, l := range p.Leaves {
			switch l.Status {
			case devconfig.Refused:
				fmt.Fprintf(w, "  ! %s\n    %s\n", l.Path, l.Reason)
			case devconfig.Configured:
				fmt.Fprintf(w, "  ? %s: %q is configured, and the device's state does not have it\n", l.Path, l.Desired)
			case devconfig.Drifted:
				fmt.Fprintf(w, "  # somebody else has changed %s\n", l.Path)
			}
		}
		for _, c := range p.Changes {
			switch {
			case c.Before == nil:
				fmt.Fprintf(w, "  + %s: %q\n", c.Path, *c.After)
			case c.After == nil:
				fmt.Fprintf(w, "  - %s: %q\n", c.Path, *c.Before)
			default:
				fmt.Fprintf(w, "  ~ %s: %q -> %q\n", c.Path, *c.Before, *c.After)
			}
		}
	}
	if digest != "" {
		fmt.Fprintf(w, "\nTo carry it out: %s devices apply --config %s --plan %s\n", program.Name(), path,
			strings.Join(append([]string{digest}, names...), " "))
	}
}

// inEffect reports whether all leaves of a plan are in effect.
func inEffect(p *devconfig.Plan) bool {
	for _, l := range p.Leaves {
		if l.Status != devconfig.InEffect {
			return false
		}
	}
	return true
}
