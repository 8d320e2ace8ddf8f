// SPDX-License-Identifier: Apache-2.0

package plans

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/collector/cluster/clusterv1"
	"github.com/netsketch/netsketch/collector/intent"
)

// outcomeKey is a plan at a device, or a setting at a host: of its outcomes, the newest counts.
type outcomeKey struct {
	plugin, maker string
	number        uint64
	device        string
	host, role    string
}

// errLater says that the home of a plugin does not take an outcome yet.
var errLater = errors.New("the setting is not in force there yet")

// Outcome sends the outcome of a plan to the member that made the plan, or the outcome of a setting
// to the home of the plugin. The outcome arrives at least once, unless the member is gone. Outcome
// does not block.
func (c *Component) Outcome(o intent.Outcome) {
	c.mu.Lock()
	c.outcomes[outcomeKey{o.Plugin, o.Maker, o.Number, o.Device, o.Host, o.Role}] = o
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
			c.log.Debug("cluster: an outcome waits", "plugin", o.Plugin, "device", o.Device, "host",
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

func (c *Component) sendOutcome(o intent.Outcome) error {
	view := c.deps.View()
	if c.deps.Epoch != nil {
		view = view.In(c.deps.Epoch())
	}
	home := cmp.Or(o.Maker, view.Plugin(o.Plugin))
	if home == c.deps.Member {
		return c.recordOutcome(o)
	}
	if o.Maker != "" && view.Leased && !view.Present(o.Maker) {
		return nil
	}
	data, err := proto.Marshal(outcomeProto(o))
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

func (c *Component) recordOutcome(o intent.Outcome) error {
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
		err = c.recordOutcome(outcomeFrom(&o))
	}
	reply := &clusterv1.OutcomeReply{}
	if err != nil {
		reply.Error = err.Error()
	}
	c.respond(m, reply)
}
