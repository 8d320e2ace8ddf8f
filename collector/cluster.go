// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/netsketch/netsketch/collector/cluster"
	"github.com/netsketch/netsketch/collector/cluster/bus"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/collector/network"
	"github.com/netsketch/netsketch/internal/certs"
	"github.com/netsketch/netsketch/internal/config"
)

// natsConfig returns the connection of a configuration's cluster, without an embedded server. It
// reads the files of certificates and credentials.
func natsConfig(cfg config.Cluster, store *certs.Store) (out bus.Config, err error) {
	n := cfg.NATS
	out = bus.Config{Name: cfg.Name, Member: cfg.Member, Servers: n.Addresses, CredentialsFile: n.CredentialsFile,
		Username: n.Username, Password: n.Password.Reveal(), Replicas: n.Replicas}
	if len(n.Addresses) > 0 {
		if out.TLS, err = n.TLS.Client(store, n.Addresses[0]); err != nil {
			return out, fmt.Errorf("cluster.nats.tls: %w", err)
		}
	}
	if n.CredentialsFile != "" {
		if err := bus.CheckCredentials(n.CredentialsFile); err != nil {
			return out, fmt.Errorf("cluster.nats.credentials-file: %w", err)
		}
	}
	return out, nil
}

// ConnectCluster connects to the NATS servers of a configuration's cluster. With embedded, it also
// runs the server that the configuration has.
func ConnectCluster(ctx context.Context, cfg config.Cluster, store *certs.Store, embedded bool, deps Dependencies) (
	*bus.Bus, error,
) {
	out, err := natsConfig(cfg, store)
	if err != nil {
		return nil, err
	}
	out.Logger = deps.Logger
	if e := cfg.NATS.Embedded; e.Listen != "" {
		if embedded {
			if err := os.MkdirAll(e.Directory, 0o700); err != nil {
				return nil, fmt.Errorf("cluster.nats.embedded.directory: %w", err)
			}
			out.Embedded = &bus.Embedded{Listen: e.Listen, Directory: e.Directory, RouteListen: e.RouteListen,
				Routes: e.Routes}
			out.Serve = deps.ServeNATS
		} else {
			out.Servers = append([]string{e.Listen}, cfg.NATS.Addresses...)
		}
	}
	return bus.Connect(ctx, out)
}

// startCluster joins the cluster of the configuration, if there is one. Devices and hosts become
// this collector's with the first view.
func (c *Collector) startCluster(ctx context.Context) (err error) {
	cfg := c.Config()
	if cfg.Cluster.Name == "" {
		return nil
	}
	if c.bus, err = ConnectCluster(ctx, cfg.Cluster, c.certs, true, c.deps); err != nil {
		return err
	}
	now := c.deps.Clock.Now
	if _, virtual := c.deps.Clock.(*epoch.Virtual); virtual { // it stands still between epochs
		now = nil
	}
	c.cluster = cluster.New(cluster.Config{Member: cfg.Cluster.Member, Weight: cfg.Cluster.Weight,
		Version: c.deps.Version, Agents: cfg.Cluster.AgentsAddress, Digests: cfg.Digests(), Now: now},
		cluster.Dependencies{Bus: c.bus, Logger: c.log, OnView: c.assign, OnOffer: c.acceptDevices, Epoch: c.openEpoch,
			Holds: c.holdings, Counts: c.clusterCounts})
	if err := c.startExchange(cfg); err != nil {
		return err
	}
	if err := c.startPlans(); err != nil {
		return err
	}
	if err := c.relayEpochs(); err != nil {
		return err
	}
	return c.cluster.Start()
}

// stopCluster leaves the cluster.
func (c *Collector) stopCluster() {
	if c.cluster != nil {
		c.cluster.Stop()
	}
	if x := c.exchange.Load(); x != nil {
		x.Stop()
	}
	if x := c.plans.Load(); x != nil {
		x.Stop()
	}
	if c.bus != nil {
		c.bus.Close()
	}
}

// waitCluster waits until the collector has joined its cluster, or ctx ends.
func (c *Collector) waitCluster(ctx context.Context) {
	if c.cluster != nil && c.cluster.WaitView(ctx) {
		c.assign()
	}
}

// assign begins and ends sessions with the devices and hosts that the newest view gives to this
// collector or to others.
func (c *Collector) assign() {
	c.changing.Lock()
	defer c.changing.Unlock()
	if c.stopped {
		return
	}
	v := c.cluster.View() // under the lock, so that no call applies an older view after a newer one
	err := c.network.Assign(c.ctx, network.Ownership{View: v.Ownership, Writes: v.Leased,
		Fence: func() uint64 { return c.cluster.View().Fence }})
	if err != nil {
		c.log.Error("devices of the cluster could not be taken over", "error", err)
	}
	c.network.Await()
	c.assignHosts()
	c.analysis.Rewatch()
	c.self.Changed()
}

// assignHosts serves the agents of the hosts that this collector has in the open epoch, and
// redirects the others. Their reports come from their collectors. c.changing is held.
func (c *Collector) assignHosts() {
	v := c.cluster.View().In(c.openEpoch())
	var own []string
	elsewhere := map[string]string{}
	for _, name := range c.Config().AgentHosts() {
		owner, _ := v.Member(v.Host(name))
		if owner.Name == v.Self {
			own = append(own, name)
		} else {
			elsewhere[name] = owner.Agents
		}
	}
	c.hosts.Assign(own, elsewhere)
	for name := range c.awaitedHosts {
		if _, ok := elsewhere[name]; !ok || c.awaited(name, true) == nil {
			delete(c.awaitedHosts, name)
			if !slices.Contains(own, name) {
				c.epochs.Remove(name)
			}
		}
	}
	for name := range elsewhere {
		if s := c.awaited(name, true); s != nil && !c.awaitedHosts[name] {
			c.awaitedHosts[name] = true
			c.epochs.Add(s)
		}
	}
}
