// SPDX-License-Identifier: Apache-2.0

package plans

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/nats-io/nats.go"
)

// Outcome is the outcome of a setting at a host, as intent.HostOutcome.
type Outcome struct {
	Plugin  string `json:"plugin"`
	Plan    uint64 `json:"plan"`
	Host    string `json:"host"`
	Role    string `json:"role"`
	From    uint64 `json:"from"`
	Refusal string `json:"refusal,omitempty"`
}

// outcomeKey is a setting: of its outcomes, the newest counts.
type outcomeKey struct{ plugin, host, role string }

// The replies to an outcome.
const (
	taken = "taken"
	later = "later" // the setting is not in force at the home yet
)

// Outcome sends the outcome of a setting at a host here to the home of its plugin, which receives
// it at least once. It does not block.
func (c *Component) Outcome(o Outcome) {
	c.mu.Lock()
	c.outcomes[outcomeKey{o.Plugin, o.Host, o.Role}] = o
	c.mu.Unlock()
	select {
	case c.reported <- struct{}{}:
	default:
	}
}

// sendOutcomes sends outcomes until Stop.
func (c *Component) sendOutcomes() {
	for {
		select {
		case <-c.reported:
		case <-c.ctx.Done():
			return
		}
		for !c.sendAll() {
			if !c.pause() {
				return
			}
		}
	}
}

// sendAll sends what waits, and reports whether all of it was taken.
func (c *Component) sendAll() bool {
	c.mu.Lock()
	todo := maps.Clone(c.outcomes)
	c.mu.Unlock()
	all := true
	for key, o := range todo {
		if err := c.sendOutcome(o); err != nil {
			c.log.Debug("cluster: the outcome of a setting waits for the home of the plugin", "plugin", o.Plugin, "host",
				o.Host, "error", err)
			all = false
			continue
		}
		c.mu.Lock()
		if c.outcomes[key] == o {
			delete(c.outcomes, key)
		}
		c.mu.Unlock()
	}
	return all
}

func (c *Component) sendOutcome(o Outcome) error {
	view := c.deps.View()
	if c.deps.Epoch != nil {
		view = view.In(c.deps.Epoch())
	}
	home := view.Plugin(o.Plugin)
	if home == c.deps.Member {
		if !c.deps.Outcome(o) {
			return errors.New(later)
		}
		return nil
	}
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
	defer cancel()
	reply, err := c.deps.Bus.Conn().RequestWithContext(ctx, c.deps.Bus.Subject("outcome", home), data)
	if err == nil && string(reply.Data) != taken {
		err = fmt.Errorf("collector %s: %s", home, reply.Data)
	}
	return err
}

// takeOutcome takes an outcome of another member.
func (c *Component) takeOutcome(m *nats.Msg) {
	var o Outcome
	reply := taken
	if err := json.Unmarshal(m.Data, &o); err != nil {
		reply = "the outcome cannot be read: " + err.Error()
	} else if !c.deps.Outcome(o) {
		reply = later
	}
	if err := m.Respond([]byte(reply)); err != nil && c.ctx.Err() == nil {
		c.log.Debug("cluster: an outcome was not answered", "error", err)
	}
}
