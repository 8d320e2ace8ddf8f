// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"strings"

	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/hostagent/hostv1"
)

// Epochs that the clocks of hosts begin reach the hosts of all members in two levels, as in
// OmniMon, section 4.2: each collector is a leaf and NATS the root, so that an epoch takes four
// hops.
//
//	agent ──▶ its collector ──▶ NATS ──▶ the other collectors ──▶ their agents
//
// What the clock of a collector begins is not sent: the clocks of all members begin it.

// epochSubject is where the members send epochs: the name of the member follows.
const epochSubject = "epoch"

// relayEpochs begins to take epochs of hosts of other members.
func (c *Collector) relayEpochs() error {
	prefix := c.bus.Subject(epochSubject, "")
	_, err := c.bus.Conn().Subscribe(prefix+">", func(m *nats.Msg) {
		name := strings.TrimPrefix(m.Subject, prefix)
		view := c.cluster.View()
		if _, known := view.Member(name); !known || name == view.Self {
			return // it is not, or not yet, a member
		}
		var began hostv1.EpochBegan
		err := proto.Unmarshal(m.Data, &began)
		if err == nil {
			err = c.hosts.Relay(began.GetEpoch())
		}
		if err == nil {
			c.counts.epochsReceived.Add(1)
		} else {
			c.counts.epochsRefused.Add(1)
			c.log.Warn("an epoch of another collector is not relayed", "member", name, "error", err)
		}
	})
	return err
}

// epochOfHost sends an epoch that the clock of a host began to the other members. While NATS is
// away, their hosts begin it by their own clocks.
func (c *Collector) epochOfHost(number uint64) {
	if c.bus == nil {
		return
	}
	data, err := proto.Marshal(&hostv1.EpochBegan{Epoch: number})
	if err == nil {
		err = c.bus.Conn().Publish(c.bus.Subject(epochSubject, c.Config().Cluster.Member), data)
	}
	if err == nil {
		c.counts.epochsSent.Add(1)
	} else {
		c.log.Debug("an epoch of a host was not sent to the other collectors", "epoch", number, "error", err)
	}
}
