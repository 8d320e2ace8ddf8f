// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/netsketch/netsketch/collector/cluster/bus"
)

// Commands to a member.
const (
	// Drain moves what the member owns to the others; it goes on to serve results.
	Drain = "drain"
	// Resume makes a draining member active again.
	Resume = "resume"
)

// serve takes commands to this member.
func (c *Component) serve() error {
	_, err := c.deps.Bus.Conn().Subscribe(c.deps.Bus.Subject("control", c.cfg.Member), func(m *nats.Msg) {
		reply := "done"
		if err := c.command(string(m.Data)); err != nil {
			reply = err.Error()
		}
		if err := m.Respond([]byte(reply)); err != nil {
			c.log.Debug("cluster: a command was not answered", "error", err)
		}
	})
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	return nil
}

func (c *Component) command(name string) (err error) {
	c.mu.Lock()
	defer c.offer()
	defer c.mu.Unlock()
	switch {
	case name != Drain && name != Resume:
		return fmt.Errorf("command %q is not known; expected %s or %s", name, Drain, Resume)
	case c.self.State == Refused:
		return fmt.Errorf("member %s is refused by the cluster: %s", c.self.Name, c.self.Reason)
	case name == Drain:
		c.self.State = Draining
	default:
		c.self.State = Active
	}
	return nil
}

// Command sends a command to a member and waits for the reply.
func Command(ctx context.Context, b *bus.Bus, member, command string) error {
	reply, err := b.Conn().RequestWithContext(ctx, b.Subject("control", member), []byte(command))
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("cluster %s has no member %s that answers", b.Name(), member)
	case err != nil:
		return fmt.Errorf("cluster %s, member %s: %w", b.Name(), member, err)
	case string(reply.Data) != "done":
		return errors.New(string(reply.Data))
	}
	return nil
}
