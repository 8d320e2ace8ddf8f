// SPDX-License-Identifier: Apache-2.0

package plans

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/collector/cluster/clusterv1"
	"github.com/netsketch/netsketch/collector/intent"
)

// outcomeKey identifies a setting; only the newest outcome of a setting counts.
type outcomeKey struct{ plugin, host, role string }

// errLater says that the home of a plugin does not take an outcome yet.
var errLater = errors.New("the setting is not in force there yet")

// Outcome sends the outcome of a setting at a host here to the home of its plugin, which receives
// it at least once. It does not block.
func (c *Component) Outcome(o intent.HostOutcome) {
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

// sendAll sends the waiting outcomes, and reports whether all of them were accepted.
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

func (c *Component) sendOutcome(o intent.HostOutcome) error {
	view := c.deps.View()
	if c.deps.Epoch != nil {
		view = view.In(c.deps.Epoch())
	}
	home := view.Plugin(o.Plugin)
	if home == c.deps.Member {
		return c.recordOutcome(o)
	}
	data, err := proto.Marshal(&clusterv1.Outcome{Plugin: o.Plugin, Plan: o.Plan, Host: o.Host, Role: o.Role,
		From: o.From, Refusal: o.Refusal})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
	defer cancel()
	m, err := c.deps.Bus.Conn().RequestWithContext(ctx, c.deps.Bus.Subject("outcome", home), data)
	var reply clusterv1.OutcomeReply
	if err == nil {
		err = clusterv1.Unmarshal(m.Data, &reply)
	}
	if err == nil && reply.GetError() != "" {
		err = fmt.Errorf("collector %s: %s", home, reply.GetError())
	}
	return err
}

func (c *Component) recordOutcome(o intent.HostOutcome) error {
	if !c.deps.Outcome(o) {
		return errLater
	}
	return nil
}

// takeOutcome takes an outcome of another member.
func (c *Component) takeOutcome(m *nats.Msg) {
	var o clusterv1.Outcome
	err := clusterv1.Unmarshal(m.Data, &o)
	if err == nil {
		err = c.recordOutcome(intent.HostOutcome{Plugin: o.GetPlugin(), Plan: o.GetPlan(), Host: o.GetHost(),
			Role: o.GetRole(), From: o.GetFrom(), Refusal: o.GetRefusal()})
	}
	reply := &clusterv1.OutcomeReply{}
	if err != nil {
		reply.Error = err.Error()
	}
	c.respond(m, reply)
}
