// SPDX-License-Identifier: Apache-2.0

// Command netsketch runs the collector, the demo, a soft switch, and tools around them. Each
// subcommand is a small file that calls the package with the implementation.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/netsketch/netsketch/internal/manpages"
	"github.com/netsketch/netsketch/internal/usage"
)

// version is set by the linker.
var version = "unknown"

// errSilent ends the program with code 1, without printing a message.
var errSilent = errors.New("failed")

// exitError is an error with an exit code of its own.
type exitError struct {
	code int
	error
}

func (e exitError) Unwrap() error { return e.error }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := root().ExecuteContext(ctx)
	stop()
	if err != nil && !errors.Is(err, errSilent) {
		fmt.Fprintln(os.Stderr, "netsketch:", err)
	}
	os.Exit(exitCode(err))
}

// exitCode returns the exit code of the program after a command's error.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	e := exitError{code: 1}
	errors.As(err, &e)
	return e.code
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
	cmd.AddCommand(&cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprintln(cmd.OutOrStdout(), "netsketch version", version, runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH)
		},
	})
	cmd.AddCommand(clusterCommand(), configCommand(), collectorCommand(), demoCommand(), devicesCommand(),
		figuresCommand(), hostagentCommand(), p4Command(), pluginCommand(), queryCommand(), replayCommand(),
		switchCommand(), yangCommand())
	manpages.Add(cmd, version)
	suggestValues(cmd)
	usage.Explain(cmd)
	return cmd
}
