// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package main

import (
	"github.com/netsketch/netsketch/hostagent/agent"
	"github.com/netsketch/netsketch/hostagent/command"
	"github.com/netsketch/netsketch/hostagent/kernel"
	lightguardian "github.com/netsketch/netsketch/hostagent/lightguardian/kernel"
	lightguardianwire "github.com/netsketch/netsketch/hostagent/lightguardian/wire"
	omnimon "github.com/netsketch/netsketch/hostagent/omnimon/kernel"
	omnimonwire "github.com/netsketch/netsketch/hostagent/omnimon/wire"
	sketchint "github.com/netsketch/netsketch/hostagent/sketchint/kernel"
	sketchintwire "github.com/netsketch/netsketch/hostagent/sketchint/wire"
	univmon "github.com/netsketch/netsketch/hostagent/univmon/kernel"
	univmonwire "github.com/netsketch/netsketch/hostagent/univmon/wire"
)

// kernels maps each role to its data path in the kernel.
var kernels = map[string]*command.Kernel{
	univmonwire.Role:       {Open: open(univmon.Open), Check: univmon.Check},
	lightguardianwire.Role: {Open: open(lightguardian.Open), Check: lightguardian.Check, Strip: lightguardian.Strip},
	sketchintwire.Role:     {Open: open(sketchint.Open), Check: sketchint.Check, Strip: sketchint.Strip},
	omnimonwire.Role: {
		Open:  open(func(c kernel.Config) (*omnimon.Path, error) { return omnimon.Open(omnimon.ConfigOf(c)) }),
		Check: func(c kernel.Config) ([]string, error) { return omnimon.Check(omnimon.ConfigOf(c)) },
		Strip: omnimon.Strip,
	},
}

// open converts the function that opens a role's data path to the type that all roles share.
func open[P agent.DataPath](f func(kernel.Config) (P, error)) func(kernel.Config) (agent.DataPath, error) {
	return func(c kernel.Config) (agent.DataPath, error) {
		p, err := f(c)
		if err != nil {
			return nil, err
		}
		return p, nil
	}
}
