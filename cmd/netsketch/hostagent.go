// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	hostcommand "github.com/netsketch/netsketch/hostagent/command"
	"github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/omnimon"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/role"
)

// roles are the roles of the agent that ships with netsketch.
var roles = []hostcommand.Role{
	{Name: wire.Role, New: func(c *epoch.Clock) role.Role { return omnimon.New(c) }},
}

func hostagentCommand() *cobra.Command { return hostcommand.New(version, roles...) }
