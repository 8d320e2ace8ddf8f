// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/netsketch/netsketch/collector"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/lab/scenario"
	"github.com/netsketch/netsketch/outputs/all"
	"github.com/netsketch/netsketch/p4/softswitch/trial"
	"github.com/netsketch/netsketch/settings"
	"github.com/netsketch/netsketch/settings/yaml"
)

func configCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Check configuration files, and print what they mean"}
	var check configCheck
	checkCmd := &cobra.Command{
		Use:   "check FILE...",
		Short: "Report all errors in configuration files, with file, line, column and key",
		Long: "Report all errors in configuration files, with file, line, column and key. Pipelines and certificates\n" +
			"are loaded, programs from files are tried in a soft switch, and plugins are started for a moment to check\n" +
			"their configuration. A scenario file is recognized and checked as one, with its programs, agents,\n" +
			"plugins and the lists that it scores.",
		Example: "  netsketch config check configs/netsketch.yaml\n" +
			"  netsketch config check --dial /etc/netsketch/netsketch.yaml",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			failed := false
			for _, path := range args {
				valid, err := check.run(cmd.Context(), cmd.ErrOrStderr(), path)
				if err != nil {
					failed = true
					printProblems(cmd.ErrOrStderr(), err)
					continue
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s: valid: %s\n", path, valid)
			}
			if failed {
				return errSilent
			}
			return nil
		},
	}
	checkCmd.Flags().BoolVar(&check.fileOnly, "file-only", false,
		"check the file alone: do not start plugins, or load pipelines and certificates")
	checkCmd.Flags().BoolVar(&check.dial, "dial", false,
		"also check that all devices accept connections to P4Runtime, and send values over gNMI")
	checkCmd.Flags().StringVar(&check.plugins, "plugins", "", "for scenarios: "+pluginsUsage)
	cmd.AddCommand(checkCmd, &cobra.Command{
		Use:   "network FILE [PLUGIN]",
		Short: "Print the network that a collector passes to its plugins, or to one of them, as JSON",
		Long: "Print the network that a collector with this configuration passes to its plugins, as JSON: switches with\n" +
			"their registers and annotations, hosts, and links. PLUGIN is the name of a plugin's instance: its key\n" +
			"\"devices\" may select fewer switches.",
		Example: "  netsketch config network /etc/netsketch/netsketch.yaml univmon",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := config.Load(args[0])
			if err != nil {
				return err
			}
			plugin := ""
			if len(args) == 2 {
				plugin = args[1]
			}
			network, err := collector.Network(cmd.Context(), c, plugin,
				collector.Dependencies{Programs: scenario.Programs, Version: version})
			if err != nil {
				return inFile(args[0], err)
			}
			encoder := json.NewEncoder(cmd.OutOrStdout())
			encoder.SetIndent("", "  ")
			return encoder.Encode(network)
		},
	}, &cobra.Command{
		Use:   "reference",
		Short: "Print every key of the configuration with its values, default and meaning, as Markdown",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), strings.TrimSpace(all.Reference))
			return err
		},
	})
	return cmd
}

// configCheck checks a configuration file.
type configCheck struct {
	fileOnly, dial bool
	plugins        string // directory of the plugins that scenarios use
}

// run returns a summary of a valid file, or all of its problems. It prints warnings to warn.
func (o configCheck) run(ctx context.Context, warn io.Writer, path string) (string, error) {
	c, err := config.Load(path)
	if err != nil {
		if isScenario(path) {
			s, err := scenario.Load(path)
			if err != nil {
				return "", err
			}
			if _, err := all.Check(s.Outputs); err != nil {
				return "", err
			}
			if !o.fileOnly {
				if o.plugins == "" {
					if o.plugins, err = pluginDirectory(); err != nil {
						return "", err
					}
				}
				missing, err := s.Check(ctx, o.plugins)
				for _, m := range missing {
					fmt.Fprintf(warn, "%s: warning: %s\n", path, m)
				}
				if err != nil {
					return "", err
				}
			}
			return fmt.Sprintf("scenario %s; play it with netsketch demo --scenario %s", s.Name, path), nil
		}
		return "", err
	}
	warnings, err := all.Check(c.Outputs)
	if err != nil {
		return "", err
	}
	if len(c.Devices) == 0 {
		return "", fmt.Errorf("%s: devices: the list is missing, so the collector would measure nothing; expected at "+
			"least one switch", path)
	}
	if len(c.Outputs) == 0 {
		fmt.Fprintf(warn, "%s: warning: outputs: the list is empty, so no client could read results; add for example "+
			"{type: gnmi, address: 127.0.0.1:9339}\n", path)
	}
	if !o.fileOnly {
		checked, found := collector.Check(ctx, c, collector.Dependencies{Programs: scenario.Programs, Version: version})
		for _, p := range checked.Programs {
			found = errors.Join(found, trial.Check(p))
		}
		err = inFile(path, found)
		for _, m := range append(warnings, checked.Warnings...) {
			fmt.Fprintf(warn, "%s: warning: %s\n", path, m)
		}
	}
	if o.dial {
		err = errors.Join(err, inFile(path, dialDevices(ctx, c)))
	}
	return fmt.Sprintf("%s, %s, %s", counted(len(c.Devices), "device"),
		counted(len(c.Plugins.Instances), "plugin"), counted(len(c.Outputs), "output")), err
}

// isScenario reports whether a file has the keys that only scenarios have.
func isScenario(path string) bool {
	section, err := yaml.Load(path)
	if err != nil {
		return false
	}
	keys, _ := section.Value().(map[string]any)
	return keys["traffic"] != nil && keys["devices"] == nil
}

// inFile adds the name of the file to errors that lack it.
func inFile(path string, err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	switch {
	case err == nil:
		return nil
	case ok:
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, inFile(path, e))
		}
		return errors.Join(all...)
	case strings.HasPrefix(err.Error(), path):
		return err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// dialDevices connects to the P4Runtime addresses of all devices at the same time, and subscribes
// to their gNMI servers.
func dialDevices(ctx context.Context, c *config.Config) error {
	failed := make([]error, len(c.Devices))
	var all sync.WaitGroup
	for i, d := range c.Devices {
		all.Go(func() {
			dialer := net.Dialer{Timeout: 3 * time.Second}
			conn, err := dialer.DialContext(ctx, "tcp", d.Address)
			if err != nil {
				failed[i] = fmt.Errorf("device %s: P4Runtime: %w", d.Name, err)
				return
			}
			_ = conn.Close() // nothing was sent
		})
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	err := collector.CheckSessions(ctx, c)
	all.Wait()
	return errors.Join(append(failed, err)...)
}

// printProblems prints each problem with the line of the file that it concerns.
func printProblems(w io.Writer, err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			printProblems(w, e)
		}
		return
	}
	fmt.Fprintln(w, err)
	var p settings.Problem
	if errors.As(err, &p) && p.Excerpt != "" {
		fmt.Fprintln(w, p.Excerpt)
	}
}

// counted returns a number with its noun, such as "2 devices".
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
