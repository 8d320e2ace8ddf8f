// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/collector/cluster/bus"
	"github.com/netsketch/netsketch/collector/cluster/clusterv1"
)

// Commands to a member.
const (
	// Drain moves the devices, hosts and plugins of the member to the others; the member goes on to
	// serve results.
	Drain = "drain"
	// Resume makes a draining member active again.
	Resume = "resume"
	// held and counted request the member's Holdings and Counts.
	held    = "held"
	counted = "counted"
)

// Holdings are the devices, hosts and plugins that a member has not handed over, sorted. A view may
// give them to others already.
type Holdings struct{ Devices, Hosts, Plugins []string }

// Empty reports whether the member holds no device, host or plugin.
func (h Holdings) Empty() bool { return len(h.Devices)+len(h.Hosts)+len(h.Plugins) == 0 }

// Counts are the counters of a member since its start, by the names of leaves of
// /collector/cluster/state.
type Counts struct {
	// HandedOver counts devices that another collector handed over to this one. Forced counts devices
	// that moved to or from this collector without a handover although both collectors were there.
	HandedOver uint64 `json:"devices-handed-over"`
	Forced     uint64 `json:"devices-forced"`
	// EpochsSent counts epochs of this collector's hosts that were sent to the other collectors.
	// EpochsReceived counts epochs from other collectors that were relayed to hosts, and EpochsRefused
	// those that were refused.
	EpochsSent     uint64 `json:"host-epochs-sent"`
	EpochsReceived uint64 `json:"host-epochs-received"`
	EpochsRefused  uint64 `json:"host-epochs-refused"`
	// EntriesFailed counts failures to share entries of plans.
	EntriesFailed uint64 `json:"entries-failed"`
}

// respond subscribes to a subject of this member, and replies to each message with what f returns.
func (c *Component) respond(subject string, f func(data []byte) proto.Message) error {
	_, err := c.deps.Bus.Conn().Subscribe(c.deps.Bus.Subject(subject, c.cfg.Member), func(m *nats.Msg) {
		data, err := proto.Marshal(f(m.Data))
		if err == nil {
			err = m.Respond(data)
		}
		if err != nil {
			c.log.Debug("cluster: a request was not answered", "subject", m.Subject, "error", err)
		}
	})
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	return nil
}

// control carries out a command for this member.
func (c *Component) control(data []byte) proto.Message {
	var request clusterv1.Control
	if err := clusterv1.Unmarshal(data, &request); err != nil {
		return &clusterv1.ControlReply{Error: "the command cannot be read: " + err.Error()}
	}
	reply := &clusterv1.ControlReply{}
	switch name := request.GetCommand(); {
	case name == held && c.deps.Holds != nil:
		h := c.deps.Holds()
		reply.Holdings = &clusterv1.Holdings{Devices: h.Devices, Hosts: h.Hosts, Plugins: h.Plugins}
	case name == counted && c.deps.Counts != nil:
		n := c.deps.Counts()
		reply.Counts = &clusterv1.Counts{DevicesHandedOver: n.HandedOver, DevicesForced: n.Forced,
			HostEpochsSent: n.EpochsSent, HostEpochsReceived: n.EpochsReceived, HostEpochsRefused: n.EpochsRefused,
			EntriesFailed: n.EntriesFailed}
	case name != held && name != counted:
		if err := c.command(name); err != nil {
			reply.Error = err.Error()
		}
	}
	return reply
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
	case name == Drain && c.self.State == Active:
		open := c.epoch()
		since := open + leadEpochs
		if open == 0 || c.self.Since > open { // this member is the home of no plugin
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

// leadEpochs is the number of epochs between the announcement of a move of plugins and hosts and
// the move, so that all members know of it in time.
const leadEpochs = 2

// notYet is the value of Member.Since for a member that has not measured an epoch.
const notYet = ^uint64(0)

// epoch returns the number of the open epoch, or 0 if none is open.
func (c *Component) epoch() uint64 {
	if c.deps.Epoch == nil {
		return 0
	}
	return c.deps.Epoch()
}

// join makes this member take over plugins and hosts only after it has measured an epoch, if other
// members were found.
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

// Drain makes this member draining. It returns false if no other member can take over.
func (c *Component) Drain() bool {
	v := c.View()
	return v.Leased && slices.ContainsFunc(v.Members, func(m Member) bool { return m.Active() && m.Name != v.Self }) &&
		c.command(Drain) == nil
}

// Command sends a command to a member and waits for the reply.
func Command(ctx context.Context, b *bus.Bus, member, command string) error {
	_, err := request(ctx, b, member, command)
	return err
}

// Held returns the devices, hosts and plugins that a member has not handed over.
func Held(ctx context.Context, b *bus.Bus, member string) (Holdings, error) {
	reply, err := request(ctx, b, member, held)
	h := reply.GetHoldings()
	return Holdings{Devices: h.GetDevices(), Hosts: h.GetHosts(), Plugins: h.GetPlugins()}, err
}

// Counted returns the counters of a member.
func Counted(ctx context.Context, b *bus.Bus, member string) (Counts, error) {
	reply, err := request(ctx, b, member, counted)
	n := reply.GetCounts()
	return Counts{HandedOver: n.GetDevicesHandedOver(), Forced: n.GetDevicesForced(), EpochsSent: n.GetHostEpochsSent(),
		EpochsReceived: n.GetHostEpochsReceived(), EpochsRefused: n.GetHostEpochsRefused(),
		EntriesFailed: n.GetEntriesFailed()}, err
}

// request sends a command to a member, and returns the reply unless it is an error.
func request(ctx context.Context, b *bus.Bus, member, command string) (*clusterv1.ControlReply, error) {
	reply := &clusterv1.ControlReply{}
	err := call(ctx, b, "control", member, &clusterv1.Control{Command: command}, reply)
	if err == nil && reply.GetError() != "" {
		err = errors.New(reply.GetError())
	}
	return reply, err
}

// call sends a message to a member and waits for the reply.
func call(ctx context.Context, b *bus.Bus, subject, member string, message, reply proto.Message) error {
	data, err := proto.Marshal(message)
	if err != nil {
		return err
	}
	m, err := b.Conn().RequestWithContext(ctx, b.Subject(subject, member), data)
	if err == nil {
		err = clusterv1.Unmarshal(m.Data, reply)
	}
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("cluster %s has no member %s that answers", b.Name(), member)
	case err != nil:
		return fmt.Errorf("cluster %s, member %s: %w", b.Name(), member, err)
	}
	return nil
}

// Offer offers devices to another member, and returns the reply of that member's
// Dependencies.OnOffer.
func (c *Component) Offer(ctx context.Context, member string, offer *clusterv1.Offer) (*clusterv1.OfferReply, error) {
	reply := &clusterv1.OfferReply{}
	err := call(ctx, c.deps.Bus, "moves", member, offer, reply)
	if err == nil && reply.GetError() != "" {
		err = fmt.Errorf("member %s: %s", member, reply.GetError())
	}
	return reply, err
}

// offered passes devices that another member offers to Dependencies.OnOffer.
func (c *Component) offered(data []byte) proto.Message {
	var offer clusterv1.Offer
	if err := clusterv1.Unmarshal(data, &offer); err != nil {
		return &clusterv1.OfferReply{Error: "the offer cannot be read: " + err.Error()}
	}
	return c.deps.OnOffer(&offer)
}
