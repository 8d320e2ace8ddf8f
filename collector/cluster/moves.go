// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
)

// serveMoves takes what other members hand over.
func (c *Component) serveMoves() error {
	if c.deps.OnMoves == nil {
		return nil
	}
	_, err := c.deps.Bus.Conn().Subscribe(c.deps.Bus.Subject("moves", c.cfg.Member), func(m *nats.Msg) {
		if err := m.Respond(c.deps.OnMoves(m.Data)); err != nil {
			c.log.Debug("cluster: a handover was not answered", "error", err)
		}
	})
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	return nil
}

// Moves sends what this member hands over to another one, and returns the reply of its
// Dependencies.OnMoves.
func (c *Component) Moves(ctx context.Context, member string, data []byte) ([]byte, error) {
	reply, err := c.deps.Bus.Conn().RequestWithContext(ctx, c.deps.Bus.Subject("moves", member), data)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, fmt.Errorf("member %s does not answer", member)
	case err != nil:
		return nil, fmt.Errorf("member %s: %w", member, err)
	}
	return reply.Data, nil
}
