// SPDX-License-Identifier: Apache-2.0

package member

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
// An epoch that this collector's clock begins is not sent, because the clocks of all members begin
// it.

// epochSubject is where the members send epochs: the name of the member follows.
const epochSubject = "epoch"

// receiveEpochs begins to take epochs of hosts of other members.
func (m *Component) receiveEpochs() error {
	b := m.joined.Load().bus
	prefix := b.Subject(epochSubject, "")
	_, err := b.Conn().Subscribe(prefix+">", func(msg *nats.Msg) {
		name, view := strings.TrimPrefix(msg.Subject, prefix), m.view()
		if _, known := view.Member(name); !known || name == view.Self {
			return // the collector is not a member, or not yet
		}
		var began hostv1.EpochBegan
		err := proto.Unmarshal(msg.Data, &began)
		if err == nil {
			err = m.parts.Hosts.Relay(began.GetEpoch())
		}
		if err == nil {
			m.epochsReceived.Add(1)
		} else {
			m.epochsRefused.Add(1)
			m.log.Warn("an epoch of another collector is not relayed", "member", name, "error", err)
		}
	})
	return err
}

// RelayEpoch sends an epoch that the clock of a host began to the other members. While NATS is
// away, their hosts begin it by their own clocks. A nil member does nothing.
func (m *Component) RelayEpoch(number uint64) {
	if m == nil || m.joined.Load() == nil {
		return
	}
	data, err := proto.Marshal(&hostv1.EpochBegan{Epoch: number})
	if err == nil {
		b := m.joined.Load().bus
		err = b.Conn().Publish(b.Subject(epochSubject, m.deps.Config().Cluster.Member), data)
	}
	if err == nil {
		m.epochsSent.Add(1)
	} else {
		m.log.Debug("an epoch of a host was not sent to the other collectors", "epoch", number, "error", err)
	}
}
