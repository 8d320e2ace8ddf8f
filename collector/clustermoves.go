// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"maps"
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

// moveDevices hands devices over to other collectors, when the banks of an epoch have been read and
// the entries of their plans are shared, and lets plugins and hosts move that do so with the open
// epoch. Devices need a quarter of the epoch; otherwise they wait for the next one.
func (c *Collector) moveDevices() {
	if c.exchange.Load() == nil || !c.moving.TryLock() {
		return
	}
	c.moves.Go(func() {
		defer c.moving.Unlock()
		c.syncEntries()
		open, end := c.epochs.Current()
		c.cluster.Measured(c.holdings().Empty())
		if c.cluster.View().Changes(c.placed.Swap(open), open) {
			c.exclusively(func() {
				c.network.Await()
				c.assignHosts()
				c.analysis.Rewatch()
			})
		}
		left := end.Sub(c.deps.Clock.Now())
		if left < c.Config().Epoch.Interval/4 {
			return
		}
		var accepted []network.Move
		moves := c.endEpoch()
		ctx, cancel := c.deps.Clock.WithTimeout(c.ctx, left/2)
		defer cancel()
		var mu sync.Mutex
		var offers sync.WaitGroup
		byMember := map[string][]network.Move{}
		for _, m := range moves {
			byMember[m.To] = append(byMember[m.To], m)
		}
		for _, to := range slices.Sorted(maps.Keys(byMember)) {
			for some := range slices.Chunk(byMember[to], maxMoves) {
				offers.Go(func() {
					offer := &clusterv1.Offer{From: c.Config().Cluster.Member}
					for _, m := range some {
						offer.Moves = append(offer.Moves, &clusterv1.Move{Device: m.Device, Banks: m.Banks, Objects: m.Objects})
					}
					reply, err := c.cluster.Offer(ctx, to, offer)
					if err != nil {
						c.log.Warn("cluster: devices are not handed over in this epoch", "to", to, "count", len(some), "error", err)
						return
					}
					mu.Lock()
					defer mu.Unlock()
					for _, m := range some {
						if reason := reply.GetRefused()[m.Device]; reason != "" {
							c.log.Debug("cluster: a device is not handed over in this epoch", "device", m.Device, "to", to, "reason", reason)
							continue
						}
						accepted = append(accepted, m)
					}
				})
			}
		}
		offers.Wait()
		c.left(accepted)
	})
}

// syncEntries shares the entries of plans, for a quarter of an epoch at most: JetStream may not
// answer, and devices are handed over nevertheless.
func (c *Collector) syncEntries() {
	ctx, cancel := context.WithTimeout(c.ctx, c.Config().Epoch.Interval/4)
	defer cancel()
	c.intent.Sync(ctx)
}

// endEpoch returns the devices that can be handed over.
func (c *Collector) endEpoch() (moves []network.Move) {
	c.exclusively(func() {
		var forced []string
		var err error
		if moves, forced, err = c.network.EndEpoch(); err != nil {
			c.log.Error("devices of the cluster could not be taken over", "error", err)
		}
		if len(forced) > 0 {
			c.counts.forced.Add(uint64(len(forced)))
			c.log.Warn("cluster: devices move without a handover, which was put off too often", "devices", forced)
		}
	})
	return moves
}

// left ends the sessions of devices that others have accepted.
func (c *Collector) left(moves []network.Move) {
	if len(moves) == 0 {
		return
	}
	c.changing.Lock()
	defer c.changing.Unlock()
	if c.stopped {
		return
	}
	if err := c.network.Left(moves); err != nil {
		c.log.Error("devices of the cluster could not be handed over", "error", err)
	}
	c.network.Await()
	c.self.Changed()
}

// acceptDevices takes devices over that another collector offers, and returns the reply.
func (c *Collector) acceptDevices(offer *clusterv1.Offer) *clusterv1.OfferReply {
	reply := &clusterv1.OfferReply{Refused: map[string]string{}}
	if !c.exclusively(func() {
		for _, m := range offer.GetMoves() {
			move := network.Move{Device: m.GetDevice(), To: c.Config().Cluster.Member, Banks: m.GetBanks(),
				Objects: m.GetObjects()}
			if err := c.network.Accept(offer.GetFrom(), move); err != nil {
				reply.Refused[m.GetDevice()] = err.Error()
			} else {
				c.counts.handedOver.Add(1)
			}
		}
	}) {
		reply.Error = "the collector has stopped"
	}
	return reply
}

// takeDevices carries out what follows from sessions that have begun or ended.
func (c *Collector) takeDevices() {
	c.moves.Go(func() {
		c.exclusively(func() {
			if err := c.network.Observe(); err != nil {
				c.log.Error("devices of the cluster could not be taken over", "error", err)
			}
		})
	})
}

// exclusively runs f when the configuration is not being changed, unless the collector has stopped,
// and reports whether it did.
func (c *Collector) exclusively(f func()) bool {
	c.changing.Lock()
	defer c.changing.Unlock()
	if c.stopped {
		return false
	}
	f()
	c.self.Changed()
	return true
}

// openEpoch returns the number of the open epoch; 0: none.
func (c *Collector) openEpoch() uint64 {
	number, _ := c.epochs.Current()
	return number
}

// drainPoll is how often drain checks whether everything has been handed over.
const drainPoll = 20 * time.Millisecond

// drain hands everything over to the other members, before this collector leaves. It returns at
// once if there is none, and after cluster.drain-timeout at the latest.
func (c *Collector) drain() {
	if c.exchange.Load() == nil {
		return
	}
	limit := c.Config().Cluster.DrainTimeout
	if limit <= 0 || !c.cluster.Drain() {
		return
	}
	c.log.Info("cluster: the collector hands over what it measures, and leaves then", "timeout", limit)
	over := time.NewTimer(limit)
	defer over.Stop()
	poll := time.NewTicker(drainPoll)
	defer poll.Stop()
	for h := c.holdings(); !h.Empty(); h = c.holdings() {
		select {
		case <-poll.C:
		case <-over.C:
			c.log.Warn("cluster: the collector leaves before it has handed over everything", "devices",
				epoch.Names(h.Devices), "hosts", epoch.Names(h.Hosts), "plugins", epoch.Names(h.Plugins))
			return
		}
	}
}

// holdings returns what this collector measures and analyzes. A plugin is in it until its last
// epoch here was delivered.
func (c *Collector) holdings() (h cluster.Holdings) {
	h.Devices = c.network.Own()
	for _, s := range c.hosts.Hosts() {
		h.Hosts = append(h.Hosts, s.Name)
	}
	view := c.cluster.View().In(c.delivered.Load())
	for _, p := range c.Config().Plugins.Instances {
		if view.Plugin(p.Name) == view.Self {
			h.Plugins = append(h.Plugins, p.Name)
		}
	}
	return h
}
