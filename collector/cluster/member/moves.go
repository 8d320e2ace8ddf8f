// SPDX-License-Identifier: Apache-2.0

package member

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/netsketch/netsketch/collector/cluster"
	"github.com/netsketch/netsketch/collector/cluster/clusterv1"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/collector/network"
)

// maxMoves bounds the devices of an offer.
const maxMoves = 1000

// Assign begins and ends sessions with the devices and hosts that the newest view gives to this
// collector or to others.
func (m *Component) Assign() {
	m.deps.Exclusive(func() {
		v := m.view() // in Exclusive, so that no call applies an older view after a newer one
		err := m.parts.Network.Assign(m.ctx, network.Ownership{View: v.Ownership, Writes: v.Leased,
			Fence: func() uint64 { return m.view().Fence }})
		if err != nil {
			m.log.Error("devices of the cluster could not be taken over", "error", err)
		}
		m.place()
	})
}

// place moves plugins and hosts. It is called in Exclusive.
func (m *Component) place() {
	m.parts.Network.Await()
	m.placeHosts()
	m.parts.Analysis.Rewatch()
}

// placeHosts serves the agents of the hosts that this member has in the open epoch, and redirects
// the agents of other hosts to their members. It is called in Exclusive.
func (m *Component) placeHosts() {
	v := m.view().In(m.openEpoch())
	var own []string
	elsewhere := map[string]string{}
	for _, name := range m.deps.Config().AgentHosts() {
		owner, _ := v.Member(v.Host(name))
		if owner.Name == v.Self {
			own = append(own, name)
		} else {
			elsewhere[name] = owner.Agents
		}
	}
	m.parts.Hosts.Assign(own, elsewhere)
	for name := range m.awaitedHosts {
		if _, ok := elsewhere[name]; !ok || m.awaited(name, true) == nil {
			delete(m.awaitedHosts, name)
			if !slices.Contains(own, name) {
				m.parts.Epochs.Remove(name)
			}
		}
	}
	for name := range elsewhere {
		if s := m.awaited(name, true); s != nil && !m.awaitedHosts[name] {
			m.awaitedHosts[name] = true
			m.parts.Epochs.Add(s)
		}
	}
}

// move hands devices over to other members when the banks of an epoch have been read and the
// entries of their plans are shared. It also moves the plugins and hosts that move with the open
// epoch. Devices need a quarter of the epoch; otherwise they wait for the next one.
func (m *Component) move() {
	if m.joined.Load() == nil || !m.moving.TryLock() {
		return
	}
	m.work.Go(func() {
		defer m.moving.Unlock()
		m.syncEntries()
		open, end := m.parts.Epochs.Current()
		m.joined.Load().cluster.Measured(m.holdings().Empty())
		if m.view().Changes(m.placed.Swap(open), open) {
			m.deps.Exclusive(m.place)
		}
		left := end.Sub(m.deps.Clock.Now())
		if left < m.deps.Config().Epoch.Interval/4 {
			return
		}
		ctx, cancel := m.deps.Clock.WithTimeout(m.ctx, left/2)
		defer cancel()
		m.left(m.offer(ctx, m.endEpoch()))
	})
}

// offer offers devices to their next owners, and returns the devices that they accepted.
func (m *Component) offer(ctx context.Context, moves []network.Move) (accepted []network.Move) {
	var mu sync.Mutex
	var offers sync.WaitGroup
	byMember := map[string][]network.Move{}
	for _, move := range moves {
		byMember[move.To] = append(byMember[move.To], move)
	}
	for to, all := range byMember {
		for some := range slices.Chunk(all, maxMoves) {
			offers.Go(func() {
				taken := m.offerTo(ctx, to, some)
				mu.Lock()
				defer mu.Unlock()
				accepted = append(accepted, taken...)
			})
		}
	}
	offers.Wait()
	return accepted
}

// offerTo offers devices to one member.
func (m *Component) offerTo(ctx context.Context, to string, moves []network.Move) (accepted []network.Move) {
	offer := &clusterv1.Offer{From: m.deps.Config().Cluster.Member}
	for _, move := range moves {
		offer.Moves = append(offer.Moves, &clusterv1.Move{Device: move.Device, Banks: move.Banks, Objects: move.Objects})
	}
	reply, err := m.joined.Load().cluster.Offer(ctx, to, offer)
	if err != nil {
		m.log.Warn("cluster: devices are not handed over in this epoch", "to", to, "count", len(moves), "error", err)
		return nil
	}
	for _, move := range moves {
		if reason := reply.GetRefused()[move.Device]; reason != "" {
			m.log.Debug("cluster: a device is not handed over in this epoch", "device", move.Device, "to", to, "reason", reason)
			continue
		}
		accepted = append(accepted, move)
	}
	return accepted
}

// syncEntries shares the entries of plans, for a quarter of an epoch at most: JetStream may not
// answer, and devices are handed over nevertheless.
func (m *Component) syncEntries() {
	ctx, cancel := context.WithTimeout(m.ctx, m.deps.Config().Epoch.Interval/4)
	defer cancel()
	m.parts.Intent.Sync(ctx)
}

// endEpoch returns the devices that can be handed over.
func (m *Component) endEpoch() (moves []network.Move) {
	m.deps.Exclusive(func() {
		var forced []string
		var err error
		if moves, forced, err = m.parts.Network.EndEpoch(); err != nil {
			m.log.Error("devices of the cluster could not be taken over", "error", err)
		}
		if len(forced) > 0 {
			m.forced.Add(uint64(len(forced)))
			m.log.Warn("cluster: devices move without a handover, which was put off too often", "devices", forced)
		}
	})
	return moves
}

// left ends the sessions of devices that others have accepted.
func (m *Component) left(moves []network.Move) {
	if len(moves) == 0 {
		return
	}
	m.deps.Exclusive(func() {
		if err := m.parts.Network.Left(moves); err != nil {
			m.log.Error("devices of the cluster could not be handed over", "error", err)
		}
		m.parts.Network.Await()
	})
}

// accept takes devices over that another member offers, and returns the reply.
func (m *Component) accept(offer *clusterv1.Offer) *clusterv1.OfferReply {
	reply := &clusterv1.OfferReply{Refused: map[string]string{}}
	if !m.deps.Exclusive(func() {
		for _, o := range offer.GetMoves() {
			move := network.Move{Device: o.GetDevice(), To: m.deps.Config().Cluster.Member, Banks: o.GetBanks(),
				Objects: o.GetObjects()}
			if err := m.parts.Network.Accept(offer.GetFrom(), move); err != nil {
				reply.Refused[o.GetDevice()] = err.Error()
			} else {
				m.handedOver.Add(1)
			}
		}
	}) {
		reply.Error = "the collector has stopped"
	}
	return reply
}

// SessionChanged acts on sessions that have become primaries or were outbid. It does not block.
func (m *Component) SessionChanged() {
	m.work.Go(func() {
		m.deps.Exclusive(func() {
			if err := m.parts.Network.Observe(); err != nil {
				m.log.Error("devices of the cluster could not be taken over", "error", err)
			}
		})
	})
}

// drainPoll is how often Drain checks whether everything has been handed over.
const drainPoll = 20 * time.Millisecond

// Drain hands everything over to the other members before this collector leaves. It returns at
// once if there is no other member, and after cluster.drain-timeout at the latest. A nil member
// does nothing.
func (m *Component) Drain() {
	if m == nil || m.joined.Load() == nil {
		return
	}
	limit := m.deps.Config().Cluster.DrainTimeout
	if limit <= 0 || !m.joined.Load().cluster.Drain() {
		return
	}
	m.log.Info("cluster: the collector hands over what it measures, and leaves then", "timeout", limit)
	over := time.NewTimer(limit)
	defer over.Stop()
	poll := time.NewTicker(drainPoll)
	defer poll.Stop()
	for h := m.holdings(); !h.Empty(); h = m.holdings() {
		select {
		case <-poll.C:
		case <-over.C:
			m.log.Warn("cluster: the collector leaves before it has handed over everything", "devices",
				epoch.Names(h.Devices), "hosts", epoch.Names(h.Hosts), "plugins", epoch.Names(h.Plugins))
			return
		}
	}
}

// holdings returns the devices that this collector measures and the plugins that it analyzes. A
// plugin is listed until its last epoch here was delivered.
func (m *Component) holdings() (h cluster.Holdings) {
	h.Devices = m.parts.Network.Own()
	for _, s := range m.parts.Hosts.Hosts() {
		h.Hosts = append(h.Hosts, s.Name)
	}
	view := m.view().In(m.delivered.Load())
	for _, p := range m.deps.Config().Plugins.Instances {
		if view.Plugin(p.Name) == view.Self {
			h.Plugins = append(h.Plugins, p.Name)
		}
	}
	return h
}
