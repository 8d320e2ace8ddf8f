// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/netsketch/netsketch/collector/cluster/bus"
)

// Commands to a member.
const (
	// Drain moves what the member owns to the others; it goes on to serve results.
	Drain = "drain"
	// Resume makes a draining member active again.
	Resume = "resume"
	// held and counted request the member's Holdings and Counts.
	held    = "held"
	counted = "counted"
)

// Holdings are the devices, hosts and plugins that a member has not handed over, sorted. A view may
// give them to others already.
type Holdings struct {
	Devices []string `json:"devices,omitempty"`
	Hosts   []string `json:"hosts,omitempty"`
	Plugins []string `json:"plugins,omitempty"`
}

// Empty reports whether there are none.
func (h Holdings) Empty() bool { return len(h.Devices)+len(h.Hosts)+len(h.Plugins) == 0 }

// Counts are what a member counts of moves and of what it relays, since its start, by the names of
// leaves of /collector/cluster/state.
type Counts struct {
	// HandedOver counts devices that another collector handed over to this one, Forced those that
	// moved to or from it without a handover although both were there.
	HandedOver uint64 `json:"devices-handed-over"`
	Forced     uint64 `json:"devices-forced"`
	// EpochsSent counts epochs of hosts here that were sent to the other collectors, EpochsReceived
	// those of other collectors that were relayed, and EpochsRefused those that were not.
	EpochsSent     uint64 `json:"host-epochs-sent"`
	EpochsReceived uint64 `json:"host-epochs-received"`
	EpochsRefused  uint64 `json:"host-epochs-refused"`
	// EntriesFailed counts failures to share entries of plans.
	EntriesFailed uint64 `json:"entries-failed"`
}

// serve takes commands to this member.
func (c *Component) serve() error {
	_, err := c.deps.Bus.Conn().Subscribe(c.deps.Bus.Subject("control", c.cfg.Member), func(m *nats.Msg) {
		reply := []byte(done)
		switch name := string(m.Data); name {
		case held:
			reply = answer(c, c.deps.Holds)
		case counted:
			reply = answer(c, c.deps.Counts)
		default:
			if err := c.command(name); err != nil {
				reply = []byte(err.Error())
			}
		}
		if err := m.Respond(reply); err != nil {
			c.log.Debug("cluster: a command was not answered", "error", err)
		}
	})
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	return nil
}

// answer returns the reply to a request for what a function returns; nil: nothing.
func answer[T any](c *Component, of func() T) []byte {
	var value T
	if of != nil {
		value = of()
	}
	data, err := json.Marshal(value)
	if err != nil { // it has texts and numbers only
		c.log.Error("cluster: the state of this member", "error", err)
	}
	return data
}

// done is the reply to a command that was accepted. Any other one is the reason why not.
const done = "done"

func (c *Component) command(name string) (err error) {
	c.mu.Lock()
	defer c.offer()
	defer c.mu.Unlock()
	switch {
	case name != Drain && name != Resume:
		return fmt.Errorf("command %q is not known; expected %s or %s", name, Drain, Resume)
	case c.self.State == Refused:
		return fmt.Errorf("member %s is refused by the cluster: %s", c.self.Name, c.self.Reason)
	case name == Drain && c.self.State == Active:
		open := c.epoch()
		since := open + leadEpochs
		if open == 0 || c.self.Since > open { // it is at home to nothing
			since = 0
		}
		c.self.State, c.self.Since, c.self.Drained = Draining, since, false
	case name == Resume && c.self.State == Draining:
		c.self.State, c.self.Since, c.self.Drained = Active, notYet, false
		if open := c.epoch(); open != 0 {
			c.self.Since = open + leadEpochs
		}
	}
	return nil
}

// leadEpochs is how many epochs ahead plugins and hosts move, so that all members know of it.
const leadEpochs = 2

// notYet is Member.Since of a member that has not measured an epoch.
const notYet = ^uint64(0)

// epoch returns the number of the open epoch; 0: none.
func (c *Component) epoch() uint64 {
	if c.deps.Epoch == nil {
		return 0
	}
	return c.deps.Epoch()
}

// join makes a member that finds others wait with plugins and hosts until it measures epochs.
func (c *Component) join(found []Member) {
	first := !c.joins
	c.joins = true
	if first && c.deps.Epoch != nil && slices.ContainsFunc(found, Member.Active) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.self.Since = notYet
	}
}

// Measured notes that this collector has measured an epoch. drained reports whether it has handed
// everything over.
func (c *Component) Measured(drained bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.self.State == Active && c.self.Since == notYet:
		c.self.Since = c.epoch() + leadEpochs
	case c.self.State == Draining && drained != c.self.Drained:
		c.self.Drained = drained
	default:
		return
	}
	c.offer()
}

// Drain makes this member draining, and reports whether there is another one that can take over.
func (c *Component) Drain() bool {
	v := c.View()
	return v.Leased && slices.ContainsFunc(v.Members, func(m Member) bool { return m.Active() && m.Name != v.Self }) &&
		c.command(Drain) == nil
}

// Command sends a command to a member and waits for the reply.
func Command(ctx context.Context, b *bus.Bus, member, command string) error {
	reply, err := request(ctx, b, member, command)
	if err == nil && string(reply) != done {
		err = errors.New(string(reply))
	}
	return err
}

// Held returns what a member has not handed over.
func Held(ctx context.Context, b *bus.Bus, member string) (Holdings, error) {
	return state[Holdings](ctx, b, member, held)
}

// Counted returns what a member counts.
func Counted(ctx context.Context, b *bus.Bus, member string) (Counts, error) {
	return state[Counts](ctx, b, member, counted)
}

// state returns the reply to a request for the state of a member.
func state[T any](ctx context.Context, b *bus.Bus, member, command string) (value T, err error) {
	reply, err := request(ctx, b, member, command)
	if err != nil {
		return value, err
	}
	if err := json.Unmarshal(reply, &value); err != nil { // of a release that does not know the command
		return value, fmt.Errorf("cluster %s, member %s: %s", b.Name(), member, reply)
	}
	return value, nil
}

func request(ctx context.Context, b *bus.Bus, member, command string) ([]byte, error) {
	reply, err := b.Conn().RequestWithContext(ctx, b.Subject("control", member), []byte(command))
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, fmt.Errorf("cluster %s has no member %s that answers", b.Name(), member)
	case err != nil:
		return nil, fmt.Errorf("cluster %s, member %s: %w", b.Name(), member, err)
	}
	return reply.Data, nil
}
