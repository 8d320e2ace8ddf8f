// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/hostagent/agent"
	hostepoch "github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/role"
	"github.com/netsketch/netsketch/lab"
)

// A role that no plugin sends settings to ends a scenario, with its name.
func TestRolesWithoutSettings(t *testing.T) {
	never, settled := make(chan struct{}), make(chan struct{})
	close(settled)
	a := agents{patience: time.Millisecond, all: []*hostAgent{
		{roles: map[string]chan struct{}{"omnimon": settled, "sketchint": settled}},
		{roles: map[string]chan struct{}{"omnimon": settled, "sketchint": never}},
	}}
	fabric, err := lab.LeafSpine(2, 1, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range a.all {
		if x.Agent, err = agent.New(agent.Config{Address: "127.0.0.1:1", Host: "h",
			DataPaths: []agent.DataPath{agent.NewRolePath(func(c *hostepoch.Clock) role.Role {
				return hostRoles["univmon"](c, nil)
			})}}, agent.Dependencies{}); err != nil {
			t.Fatal(err)
		}
		defer x.Close()
	}
	const want = "the role sketchint of h2 has no settings"
	if err := a.wait(t.Context(), fabric); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v; expected %q", err, want)
	}
	a.all = a.all[:1]
	if err := a.wait(t.Context(), fabric); err != nil {
		t.Error(err)
	}
}
