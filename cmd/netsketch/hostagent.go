// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
)

const agentProgram = "netsketch-agent"

// hostagentCommand replaces this process by the host agent's program.
func hostagentCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:                "hostagent",
		Short:              "Run netsketch-agent, the agent of a host, or begin a role of your own",
		Long:               "Run netsketch-agent, the agent of a host, with the same arguments.",
		Args:               cobra.ArbitraryArgs,
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			path, err := findAgent()
			if err != nil {
				return err
			}
			return fmt.Errorf("%s: %w", path, syscall.Exec(path, append([]string{path}, args...), os.Environ()))
		},
	}
	cmd.AddCommand(hostagentNewCommand())
	return cmd
}

// findAgent returns the path of the host agent's program: in this program's directory, or else on
// the PATH.
func findAgent() (string, error) {
	if own, err := os.Executable(); err == nil {
		next := filepath.Join(filepath.Dir(own), agentProgram)
		if _, err := os.Stat(next); err == nil {
			return next, nil
		}
	}
	path, err := exec.LookPath(agentProgram)
	if err != nil {
		return "", errors.New("the agent is a program of its own, " + agentProgram +
			", which is neither in the directory of this one nor on the PATH: install it on this host")
	}
	return path, nil
}
