// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"

	"github.com/netsketch/netsketch/collector/analysis"
	"github.com/netsketch/netsketch/collector/cluster/exchange"
	"github.com/netsketch/netsketch/collector/config"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/collector/selfstate"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// handOverShare is the part of the deadline of epochs that is left for the parts of collectors to
// arrive.
const handOverShare = 4

// startExchange begins to exchange parts, results and states with the other members.
func (c *Collector) startExchange(cfg *config.Config) error {
	x := exchange.New(exchange.Config{Member: cfg.Cluster.Member}, exchange.Dependencies{
		Bus: c.bus, Logger: c.log, Store: c.store, Validate: c.schema.Validate, View: c.cluster.View,
		Wanted: c.analysis.Wanted,
	})
	if err := x.Start(); err != nil {
		return err
	}
	c.exchange.Store(x)
	return nil
}

// share connects the epoch engine and the plugins to the cluster of the configuration.
func (c *Collector) share(schedule *epoch.Config, engine *epoch.Dependencies) {
	schedule.HandOver = schedule.Deadline / handOverShare
	engine.HandOver = func(ep *epoch.Epoch) {
		if x := c.exchange.Load(); x != nil {
			x.HandOver(ep)
		}
	}
}

// elsewhere returns the source of a device that another collector owns; nil if no plugin is at home
// here.
func (c *Collector) elsewhere(device string) epoch.Source { return c.awaited(device, false) }

// awaited is elsewhere for a device or a host.
func (c *Collector) awaited(name string, host bool) epoch.Source {
	x := c.exchange.Load()
	if x == nil {
		return nil
	}
	for _, p := range c.Config().Plugins.Instances {
		if c.home(p.Name) {
			return x.Source(name, host)
		}
	}
	return nil
}

// home reports whether this collector analyzes the epochs of a plugin. Without a lease it analyzes
// those of its own devices for all plugins: the others may be out of reach.
func (c *Collector) home(plugin string) bool {
	x := c.exchange.Load()
	if x == nil {
		return false
	}
	view := c.cluster.View()
	return !view.Leased && len(view.Members) > 0 || view.Plugin(plugin) == view.Self
}

// clusterState returns the state in the cluster; nil before the start and without one.
func (c *Collector) clusterState() *selfstate.Cluster {
	x := c.exchange.Load()
	if x == nil {
		return nil
	}
	return &selfstate.Cluster{View: c.cluster.View(), Exchange: x.Stats()}
}

// clusterStates keeps the states of plugins in the cluster.
type clusterStates struct{ c *Collector }

var _ analysis.States = clusterStates{}

// Keep implements analysis.States.
func (s clusterStates) Keep(instance, plugin string, state *sdk.State) {
	if x := s.c.exchange.Load(); x != nil {
		x.Keep(instance, plugin, state)
	}
}

// State implements analysis.States.
func (s clusterStates) State(ctx context.Context, instance, plugin string) *sdk.State {
	if x := s.c.exchange.Load(); x != nil {
		return x.State(ctx, instance, plugin)
	}
	return nil
}
