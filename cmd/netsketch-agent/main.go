// SPDX-License-Identifier: Apache-2.0

// Command netsketch-agent measures the packets of the host on which it runs, and reports to the
// collector. It has the roles of a host and nothing of the collector, the switch or the lab.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/netsketch/netsketch/hostagent/command"
	"github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/lightguardian"
	"github.com/netsketch/netsketch/hostagent/lightguardian/local"
	lightguardianwire "github.com/netsketch/netsketch/hostagent/lightguardian/wire"
	"github.com/netsketch/netsketch/hostagent/omnimon"
	omnimonwire "github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/role"
	"github.com/netsketch/netsketch/hostagent/sketchint"
	sketchintwire "github.com/netsketch/netsketch/hostagent/sketchint/wire"
	"github.com/netsketch/netsketch/hostagent/univmon"
	univmonwire "github.com/netsketch/netsketch/hostagent/univmon/wire"
)

// version is set by the linker.
var version = "unknown"

func main() { command.Main(version, roles()...) }

// roles are the roles of this program. Arriving packets pass the last role first, because OmniMon's
// header precedes the headers of the other roles.
func roles() []command.Role {
	all := []command.Role{
		{Name: univmonwire.Role, New: func(c *epoch.Clock) role.Role { return univmon.New(c) }},
		{Name: lightguardianwire.Role, New: func(c *epoch.Clock) role.Role { return lightguardian.New(c, monotonic) },
			Local: answerLocally},
		{Name: sketchintwire.Role, New: func(c *epoch.Clock) role.Role { return sketchint.New(c) }},
		{Name: omnimonwire.Role, New: func(c *epoch.Clock) role.Role { return omnimon.New(c, monotonic) }},
	}
	for i := range all {
		all[i].Kernel = kernels[all[i].Name]
	}
	return all
}

var started = time.Now()

// monotonic is the time since the start of the program.
func monotonic() time.Duration { return time.Since(started) }

// answerLocally runs LightGuardian's local analysis mode.
func answerLocally(ctx context.Context, l command.Local) error {
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
