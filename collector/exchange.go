// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"errors"
	"fmt"

	"github.com/netsketch/netsketch/collector/analysis"
	"github.com/netsketch/netsketch/collector/cluster"
	"github.com/netsketch/netsketch/collector/cluster/exchange"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/collector/pluginhost"
	"github.com/netsketch/netsketch/collector/selfstate"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// handOverShare divides the deadline of epochs: the last 1/handOverShare of it is left for the
// parts of other collectors to arrive.
const handOverShare = 4

// startExchange begins to exchange parts of epochs, results and states with the other members.
func (c *Collector) startExchange(cfg *config.Config) error {
	x := exchange.New(exchange.Config{Member: cfg.Cluster.Member}, exchange.Dependencies{
		Bus: c.bus, Logger: c.log, Store: c.store, Validate: c.schema.Validate, View: c.cluster.View,
		Wanted: c.analysis.Wanted, Merge: c.analysis.Merge, Answer: c.answer, OnWatched: c.analysis.Rewatch,
		Late: c.epochs.Late,
	})
	if err := x.Start(); err != nil {
		return err
	}
	c.exchange.Store(x)
	return nil
}

// share connects the epoch engine and the plugins to the cluster, if the configuration has one.
func (c *Collector) share(schedule *epoch.Config, engine *epoch.Dependencies) {
	schedule.HandOver = schedule.Deadline / handOverShare
	engine.Reasons = func() []string {
		if c.exchange.Load() == nil {
			return nil
		}
		return c.cluster.ClockWarnings(schedule.Guard)
	}
	engine.HandOver = func(ep *epoch.Epoch) {
		if x := c.exchange.Load(); x != nil {
			x.HandOver(ep)
		}
		c.moveDevices()
	}
}

// elsewhere returns the source of a device that another collector owns; nil if this collector runs
// no plugin.
func (c *Collector) elsewhere(device string) epoch.Source { return c.awaited(device, false) }

// awaited returns the source of a device or host that another collector owns; nil if this
// collector runs no plugin.
func (c *Collector) awaited(name string, host bool) epoch.Source {
	x := c.exchange.Load()
	if x == nil {
		return nil
	}
	for _, p := range c.Config().Plugins.Instances {
		if c.home(p.Name, 0) {
			return x.Source(name, host)
		}
	}
	return nil
}

// home reports whether this collector analyzes an epoch of a plugin; 0 means the open epoch.
// Without a lease, it analyzes its own devices' epochs for all plugins, because the other
// collectors may be unreachable.
func (c *Collector) home(plugin string, number uint64) bool {
	x := c.exchange.Load()
	if x == nil {
		return false
	}
	if number == 0 {
		number = c.openEpoch()
	}
	view := c.cluster.View()
	return !view.Leased && len(view.Members) > 0 || view.In(number).Plugin(plugin) == view.Self
}

// clusterState returns the collector's state in the cluster; nil before the start and without a
// cluster.
func (c *Collector) clusterState() *selfstate.Cluster {
	x := c.exchange.Load()
	if x == nil {
		return nil
	}
	return &selfstate.Cluster{View: c.cluster.View(), Exchange: x.Stats(), Counts: c.clusterCounts()}
}

// clusterCounts returns this collector's counters as a member.
func (c *Collector) clusterCounts() cluster.Counts {
	n := &c.counts
	out := cluster.Counts{HandedOver: n.handedOver.Load(), Forced: n.forced.Load(), EpochsSent: n.epochsSent.Load(),
		EpochsReceived: n.epochsReceived.Load(), EpochsRefused: n.epochsRefused.Load()}
	if p := c.plans.Load(); p != nil {
		out.EntriesFailed = p.EntriesFailed()
	}
	return out
}

// clusterPlugins implements analysis.Cluster.
type clusterPlugins struct{ c *Collector }

var _ analysis.Cluster = clusterPlugins{}

// Home implements analysis.Cluster.
func (s clusterPlugins) Home(plugin string, number uint64) bool { return s.c.home(plugin, number) }

// Keep implements analysis.Cluster.
func (s clusterPlugins) Keep(instance, plugin string, state *sdk.State) {
	if x := s.c.exchange.Load(); x != nil {
		x.Keep(instance, plugin, state)
	}
}

// State implements analysis.Cluster.
func (s clusterPlugins) State(ctx context.Context, instance, plugin string) *sdk.State {
	if x := s.c.exchange.Load(); x != nil {
		return x.State(ctx, instance, plugin)
	}
	return nil
}

// Watch implements analysis.Cluster.
func (s clusterPlugins) Watch(rows []store.Watch) {
	if x := s.c.exchange.Load(); x != nil {
		x.Watch(rows)
	}
}

// Watched implements analysis.Cluster.
func (s clusterPlugins) Watched() []store.Watch {
	if x := s.c.exchange.Load(); x != nil {
		return x.Watched()
	}
	return nil
}

// Query implements analysis.Cluster.
func (s clusterPlugins) Query(ctx context.Context, plugin string, row sdk.RowKey) ([]sdk.TableResult, uint64, error) {
	x := s.c.exchange.Load()
	if x == nil {
		return nil, 0, pluginhost.ErrNotRunning
	}
	tables, number, err := x.Query(ctx, plugin, row)
	var there *exchange.QueryError
	switch {
	case errors.As(err, &there) && queryCodes[there.Code] != nil:
		err = fmt.Errorf("%w: %w", queryCodes[there.Code], err)
	case errors.Is(err, exchange.ErrNoHome):
		err = fmt.Errorf("%w: %w", pluginhost.ErrNotRunning, err)
	}
	return tables, number, err
}

// queryCodes maps status codes to the errors of queries that one collector passes to another.
var queryCodes = map[string]error{
	"no-capability": pluginhost.ErrNoCapability, "refused": pluginhost.ErrRefused, "not-running": pluginhost.ErrNotRunning,
	"stopped": pluginhost.ErrStopped, "invalid": pluginhost.ErrInvalidResults,
}

// answer replies to a query of another collector.
func (c *Collector) answer(ctx context.Context, plugin string, row sdk.RowKey) ([]sdk.TableResult, uint64, string,
	error,
) {
	tables, number, err := c.analysis.Answer(ctx, plugin, row)
	code := "failed"
	for name, known := range queryCodes {
		if errors.Is(err, known) {
			code = name
		}
	}
	return tables, number, code, err
}
