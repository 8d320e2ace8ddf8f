// SPDX-License-Identifier: Apache-2.0

// Command netsketch runs the collector, the demo, a soft switch, and tools around
// them. Each subcommand is a thin file over a package that does the work.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// version is set by the linker.
var version = "unknown"

// errSilent ends the program with code 1 when everything has been said already.
var errSilent = errors.New("failed")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := root().ExecuteContext(ctx)
	stop()
	if err != nil {
		if !errors.Is(err, errSilent) {
			fmt.Fprintln(os.Stderr, "netsketch:", err)
		}
		os.Exit(1)
	}
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "netsketch",
		Short: "Telemetry from sketches in programmable switches, over gNMI and into InfluxDB",
		Example: `  netsketch demo                                    an emulated network, live in the terminal
  netsketch collector --config netsketch.yaml       collect from real switches
  netsketch switch --program univmon --device-id 1  a P4Runtime switch on this machine`,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	cmd.AddCommand(configCommand(), collectorCommand(), demoCommand(), benchSketchCommand(), benchChameleMonCommand(), pluginCommand(), switchCommand())
	return cmd
}
