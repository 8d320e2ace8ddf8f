// SPDX-License-Identifier: Apache-2.0

// Package member makes a collector a member of its cluster. It passes the decisions of the cluster
// to the components of the collector, and their measurements, plans and results to the other
// members.
//
//	                 ┌─ view ──▶ network: sessions with devices   hosts: agents   analysis: plugins
//	cluster ─────────┤
//	exchange ◀── epochs, results, states ──▶ epoch engine, store, analysis
//	plans    ◀── plans, outcomes, entries, settings ──▶ intent
//
// A collector that is not in a cluster has a nil *Component, whose methods that are marked so do
// nothing.
//
// # Concurrency
//
// Connect precedes Start. Methods may be called from any goroutine, except that Start, Stop and the
// methods that say so must be called one at a time. Stop waits for all goroutines.
package member

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/netsketch/netsketch/collector/analysis"
	"github.com/netsketch/netsketch/collector/cluster"
	"github.com/netsketch/netsketch/collector/cluster/bus"
	"github.com/netsketch/netsketch/collector/cluster/exchange"
	"github.com/netsketch/netsketch/collector/cluster/plans"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/collector/host"
	"github.com/netsketch/netsketch/collector/intent"
	"github.com/netsketch/netsketch/collector/network"
	"github.com/netsketch/netsketch/collector/selfstate"
	"github.com/netsketch/netsketch/internal/certs"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/yang/table"
)

// Dependencies are what New needs from its caller. All but ServeNATS are required.
type Dependencies struct {
	Clock        epoch.Clock
	Logger       *slog.Logger
	Certificates *certs.Store
	// Version is the version of the program.
	Version string
	// ServeNATS starts the embedded NATS server; nil if the program has none.
	ServeNATS func(context.Context, bus.Config) (bus.Server, error)
	// Config returns the current configuration.
	Config func() *config.Config
	// Exclusive runs a function while the configuration is not being changed, unless the collector
	// has stopped, and reports whether it did. It publishes the collector's state afterwards.
	Exclusive func(func()) bool
}

// Components are the components of the collector.
type Components struct {
	Store *store.Store
	// Validate checks a table of results against the schema.
	Validate func(*table.Table) error
	Epochs   *epoch.Engine
	Hosts    *host.Component
	Intent   *intent.Component
	Network  *network.Component
	Analysis *analysis.Component
}

// Component is this collector as a member. Create it with New.
type Component struct {
	parts  Components
	deps   Dependencies
	log    *slog.Logger
	ctx    context.Context // ends with Stop
	cancel context.CancelFunc
	work   sync.WaitGroup

	joined    atomic.Pointer[joined] // nil before Start
	moving    sync.Mutex             // held while devices, plugins and hosts move with an epoch
	placed    atomic.Uint64          // the epoch for which plugins and hosts were placed
	delivered atomic.Uint64          // the newest epoch that was delivered to plugins
	// awaitedHosts are the hosts whose reports other members send; used in Exclusive only.
	awaitedHosts map[string]bool

	handedOver, forced, epochsSent, epochsReceived, epochsRefused atomic.Uint64
}

// joined is the connection to the other members.
type joined struct {
	bus      *bus.Bus
	cluster  *cluster.Component
	exchange *exchange.Component
	plans    *plans.Component
	records  *plans.Records
}

// errNotJoined says that nothing is exchanged before the cluster has started.
var errNotJoined = fmt.Errorf("%w: the collector has not joined its cluster", p4rt.ErrNotReady)

// New returns a member that is not connected to anything. It fails if files of the configuration
// cannot be read.
func New(deps Dependencies) (*Component, error) {
	if _, err := natsConfig(deps.Config().Cluster, deps.Certificates); err != nil { // Start reads the certificates again
		return nil, err
	}
	m := &Component{deps: deps, log: deps.Logger, awaitedHosts: map[string]bool{}}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m, nil
}

// Connect sets the components of the collector.
func (m *Component) Connect(parts Components) { m.parts = parts }

// Start joins the cluster. Devices and hosts become this member's with the first view. A nil member
// does nothing.
func (m *Component) Start(ctx context.Context) (err error) {
	if m == nil {
		return nil
	}
	cfg, j := m.deps.Config(), &joined{}
	if j.bus, err = dial(ctx, cfg.Cluster, m.deps.Certificates, m.log, m.deps.ServeNATS); err != nil {
		return err
	}
	now := m.deps.Clock.Now
	if _, virtual := m.deps.Clock.(*epoch.Virtual); virtual { // a virtual clock stands still between epochs
		now = nil
	}
	j.cluster = cluster.New(cluster.Config{Member: cfg.Cluster.Member, Weight: cfg.Cluster.Weight,
		Version: m.deps.Version, Agents: cfg.Cluster.AgentsAddress, Digests: cfg.Digests(), Now: now},
		cluster.Dependencies{Bus: j.bus, Logger: m.log, OnView: m.Assign, OnOffer: m.accept, Epoch: m.openEpoch,
			Holds: m.holdings, Counts: m.counts})
	j.exchange = exchange.New(exchange.Config{Member: cfg.Cluster.Member}, exchange.Dependencies{
		Bus: j.bus, Logger: m.log, Store: m.parts.Store, Validate: m.parts.Validate, View: j.cluster.View,
		Wanted: m.parts.Analysis.Wanted, Merge: m.parts.Analysis.Merge, Answer: m.answer,
		Late: m.parts.Epochs.Late, OnWatched: m.parts.Analysis.Rewatch,
	})
	j.plans = plans.New(plans.Dependencies{Bus: j.bus, Logger: m.log, Member: cfg.Cluster.Member,
		View: j.cluster.View, Incarnation: j.cluster.Incarnation(), Epoch: m.openEpoch, Follow: m.parts.Intent.Follow,
		FollowHosts: m.parts.Intent.FollowHosts, Outcome: m.parts.Intent.TakeOutcome})
	j.records = plans.NewRecords(j.bus)
	m.joined.Store(j)
	for _, start := range []func() error{j.exchange.Start, j.plans.Start, m.receiveEpochs, j.cluster.Start} {
		if err := start(); err != nil {
			return err
		}
	}
	return nil
}

// Stop leaves the cluster, and ends handovers in progress. A nil member does nothing.
func (m *Component) Stop() {
	if m == nil {
		return
	}
	defer m.cancel()
	if j := m.joined.Load(); j != nil {
		j.cluster.Stop()
		j.exchange.Stop()
		j.plans.Stop()
		j.bus.Close()
	}
}

// Wait waits, after Stop, until nothing is being moved. A nil member does nothing.
func (m *Component) Wait() {
	if m != nil {
		m.work.Wait()
	}
}

// view returns the newest view; an empty one before Start.
func (m *Component) view() cluster.View {
	if j := m.joined.Load(); j != nil {
		return j.cluster.View()
	}
	return cluster.View{}
}

// Status returns the collector's state in its cluster; nil before Start and for a nil member.
func (m *Component) Status() *selfstate.Cluster {
	if m == nil || m.joined.Load() == nil {
		return nil
	}
	j := m.joined.Load()
	return &selfstate.Cluster{View: j.cluster.View(), Exchange: j.exchange.Stats(), Counts: m.counts()}
}

// counts returns this collector's counters as a member.
func (m *Component) counts() cluster.Counts {
	out := cluster.Counts{HandedOver: m.handedOver.Load(), Forced: m.forced.Load(), EpochsSent: m.epochsSent.Load(),
		EpochsReceived: m.epochsReceived.Load(), EpochsRefused: m.epochsRefused.Load()}
	if j := m.joined.Load(); j != nil {
		out.EntriesFailed = j.plans.EntriesFailed()
	}
	return out
}

// WaitView waits until the collector has joined its cluster, or ctx ends. A nil member does not
// wait.
func (m *Component) WaitView(ctx context.Context) {
	if m == nil {
		return
	}
	if j := m.joined.Load(); j != nil && j.cluster.WaitView(ctx) {
		m.Assign()
	}
}

// Reload takes over the hosts and plugins of a changed configuration. The caller runs it while it
// changes the configuration.
func (m *Component) Reload() {
	if j := m.joined.Load(); j != nil {
		j.cluster.SetDigests(m.deps.Config().Digests())
	}
	m.placeHosts()
}

// Delivered signals that an epoch was delivered to plugins. A nil member does nothing.
func (m *Component) Delivered(number uint64) {
	if m != nil {
		m.delivered.Store(number)
	}
}

// Settle waits until the devices, plugins and hosts that change their owner with the open epoch
// have done so. A nil member does nothing.
func (m *Component) Settle() {
	if m != nil {
		m.moving.Lock()
		defer m.moving.Unlock()
	}
}

// openEpoch returns the number of the open epoch, or 0 if none is open.
func (m *Component) openEpoch() uint64 {
	number, _ := m.parts.Epochs.Current()
	return number
}
