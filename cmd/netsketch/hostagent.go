// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/netsketch/netsketch/hostagent/agent"
	hostcommand "github.com/netsketch/netsketch/hostagent/command"
	"github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/lightguardian"
	lightguardiankernel "github.com/netsketch/netsketch/hostagent/lightguardian/kernel"
	lightguardianwire "github.com/netsketch/netsketch/hostagent/lightguardian/wire"
	"github.com/netsketch/netsketch/hostagent/local"
	"github.com/netsketch/netsketch/hostagent/omnimon"
	"github.com/netsketch/netsketch/hostagent/omnimon/kernel"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/role"
	"github.com/netsketch/netsketch/hostagent/sketchint"
	sketchintkernel "github.com/netsketch/netsketch/hostagent/sketchint/kernel"
	sketchintwire "github.com/netsketch/netsketch/hostagent/sketchint/wire"
	"github.com/netsketch/netsketch/hostagent/univmon"
	univmonkernel "github.com/netsketch/netsketch/hostagent/univmon/kernel"
	univmonwire "github.com/netsketch/netsketch/hostagent/univmon/wire"
)

// roles are the roles of the agent that ships with netsketch. Packets that arrive pass the last one
// first: OmniMon's header precedes that of IP.
var roles = []hostcommand.Role{
	{
		Name:   univmonwire.Role,
		New:    func(c *epoch.Clock) role.Role { return univmon.New(c) },
		Kernel: openUnivMon,
		CheckKernel: func(k hostcommand.Kernel) ([]string, error) {
			return univmonkernel.Check(univmonConfig(k))
		},
	},
	{
		Name:   lightguardianwire.Role,
		New:    func(c *epoch.Clock) role.Role { return lightguardian.New(c) },
		Kernel: openLightGuardian,
		Local:  answerLocally,
		CheckKernel: func(k hostcommand.Kernel) ([]string, error) {
			return lightguardiankernel.Check(lightguardianConfig(k))
		},
	},
	{
		Name:   sketchintwire.Role,
		New:    func(c *epoch.Clock) role.Role { return sketchint.New(c) },
		Kernel: openSketchINT,
		CheckKernel: func(k hostcommand.Kernel) ([]string, error) {
			return sketchintkernel.Check(sketchintConfig(k))
		},
	},
	{
		Name:        wire.Role,
		New:         func(c *epoch.Clock) role.Role { return omnimon.New(c, monotonic) },
		Kernel:      openKernel,
		CheckKernel: func(k hostcommand.Kernel) ([]string, error) { return kernel.Check(kernelConfig(k)) },
	},
}

func openUnivMon(k hostcommand.Kernel) (agent.DataPath, error) {
	p, err := univmonkernel.Open(univmonConfig(k))
	if err != nil {
		return nil, err
	}
	return p, nil
}

func univmonConfig(k hostcommand.Kernel) univmonkernel.Config {
	return univmonkernel.Config{Interface: k.Interface, Logger: k.Logger}
}

func openLightGuardian(k hostcommand.Kernel) (agent.DataPath, error) {
	p, err := lightguardiankernel.Open(lightguardianConfig(k))
	if err != nil {
		return nil, err
	}
	return p, nil
}

// answerLocally is LightGuardian's local analysis mode.
func answerLocally(ctx context.Context, l hostcommand.Local) error {
	path, ok := l.Path.(local.Path)
	if !ok {
		return fmt.Errorf("local: data path %T has no role in Go", l.Path)
	}
	s, err := local.Listen(local.Config{Address: l.Address, Host: l.Host, Logger: l.Logger}, path)
	if err != nil {
		return err
	}
	l.Logger.Info("answering queries of this host", "address", l.Address)
	return s.Run(ctx)
}

func lightguardianConfig(k hostcommand.Kernel) lightguardiankernel.Config {
	return lightguardiankernel.Config{Interface: k.Interface, Pin: k.Pin, AtOnce: k.Named, Logger: k.Logger}
}

func openSketchINT(k hostcommand.Kernel) (agent.DataPath, error) {
	p, err := sketchintkernel.Open(sketchintConfig(k))
	if err != nil {
		return nil, err
	}
	return p, nil
}

func sketchintConfig(k hostcommand.Kernel) sketchintkernel.Config {
	return sketchintkernel.Config{Interface: k.Interface, Pin: k.Pin, Logger: k.Logger}
}

func openKernel(k hostcommand.Kernel) (agent.DataPath, error) {
	p, err := kernel.Open(kernelConfig(k))
	if err != nil {
		return nil, err
	}
	return p, nil
}

func kernelConfig(k hostcommand.Kernel) kernel.Config {
	return kernel.Config{Interface: k.Interface, Pin: k.Pin, DisableOffloads: k.DisableOffloads, Logger: k.Logger}
}

func hostagentCommand() *cobra.Command { return hostcommand.New(version, roles...) }

var started = time.Now()

// monotonic is the time since the start of the program.
func monotonic() time.Duration { return time.Since(started) }
