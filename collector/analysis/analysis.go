// SPDX-License-Identifier: Apache-2.0

// Package analysis takes sealed epochs to plugins and their results to the store.
//
// Each plugin has one bounded queue and one worker. The worker gives the plugin one epoch after
// another, validates the tables that the process sends, publishes them, passes plans to the intent
// component and keeps the plugin's state on disk. A plugin that fails, hangs or falls behind loses
// epochs of its own and affects no other plugin.
//
//	Deliver → view → queue → Instance.Analyze → validate → store.Publish
//	                                          └→ Plans.Add
//
// # Concurrency
//
// All methods are safe for concurrent use. Deliver is called by one goroutine, in the order of the
// epochs. Every goroutine and plugin process has ended when Stop returns.
package analysis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/collector/pluginhost"
	"github.com/netsketch/netsketch/collector/schema"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// Config is the part of the collector's configuration that concerns plugins.
type Config struct {
	// Plugins are the instances to run and where their files are.
	Plugins config.Plugins
	// EpochLength is the interval between boundaries.
	EpochLength time.Duration
	// LogLevel is the level at which plugins log.
	LogLevel slog.Level
}

// Dependencies are the components that New connects to. All but Cluster and Launch are
// required.
type Dependencies struct {
	Clock   epoch.Clock
	Logger  *slog.Logger
	Store   *store.Store
	Schema  *schema.Registry
	Network Network
	Plans   Plans
	// BankShift returns the shift of banks: a device with n banks counts epoch e in bank (e +
	// BankShift()) modulo n.
	BankShift func() uint64
	// SettingsChanged is called after a running plugin was configured again: its bindings may have
	// changed, and Plans has its new standing plan.
	SettingsChanged func()
	// StatusChanged is called when the status of a plugin changes. It must not block.
	StatusChanged func()
	// Report receives the report of each epoch, in order. It must not block.
	Report func(Report)
	// Cluster connects plugins with the other collectors; nil without a cluster, in which case this
	// collector runs all plugins.
	Cluster Cluster
	// Launch starts a plugin; nil starts a process.
	Launch func(context.Context, pluginhost.Spec) (Instance, error)
}

// Network is the model of the network that plugins receive.
type Network interface {
	// Model returns the devices, hosts and links.
	Model() sdk.Network
	// Version changes with every change of the model.
	Version() uint64
	// IsDevice reports whether a device of this name is configured.
	IsDevice(name string) bool
}

// Plans is the component that carries out plans. It keeps the outcome of each plan until the
// plugin has received the outcome.
type Plans interface {
	// Add accepts a plugin's plan. A plan ahead of its epoch is written when Add returns, unless an
	// earlier epoch still uses the bank.
	Add(ctx context.Context, plugin string, plan sdk.Plan)
	// Collected starts to write the plans that waited for an epoch's bank, which has now been read.
	// wait returns when they are written.
	Collected(ctx context.Context, number uint64) (wait func())
	// States returns which plans were in force on devices during an epoch.
	States(plugin string, number uint64, devices []string) []sdk.DeviceState
	// HostRoles returns the roles at a host that have settings of the plugin.
	HostRoles(plugin, host string) []string
	// Outcomes returns the outcomes that the plugin has not received yet.
	Outcomes(plugin string) []sdk.PlanOutcome
	// Delivered drops the oldest n outcomes, which the plugin has received.
	Delivered(plugin string, n int)
	// Drop removes the outcomes of a plugin that no longer runs.
	Drop(plugin string)
}

// Cluster connects plugins with the other collectors of a cluster.
type Cluster interface {
	// Home reports whether this collector analyzes an epoch of a plugin; 0 means the open epoch. A
	// plugin whose epochs another collector analyzes runs here as well, so that its bindings and
	// settings apply here and its work can move here.
	Home(plugin string, epoch uint64) bool
	// Keep stores the state of an instance of a plugin. It does not block.
	Keep(instance, plugin string, s *sdk.State)
	// State returns the newest state that any collector stored; nil if there is none.
	State(ctx context.Context, instance, plugin string) *sdk.State
	// Query calls Instance.Query at the collector that analyzes the plugin's epochs.
	Query(ctx context.Context, plugin string, row sdk.RowKey) ([]sdk.TableResult, uint64, error)
	// Watch replaces the rows that subscribers of this collector watch. It does not block.
	Watch(rows []store.Watch)
	// Watched returns the rows that subscribers of other collectors watch. After a change, call
	// Rewatch.
	Watched() []store.Watch
}

// Instance is a running plugin: a pluginhost.Instance, or a fake.
type Instance interface {
	Describe() sdk.Description
	Replaced(settled time.Duration) bool
	Analyze(ctx context.Context, e *sdk.Epoch) (*sdk.Results, error)
	SetWatched(rows []sdk.RowKey)
	SetState(s *sdk.State)
	Restart(ctx context.Context, s *sdk.State)
	SetNetwork(ctx context.Context, n sdk.Network) error
	Configure(ctx context.Context, config []byte, n sdk.Network) error
	// Query returns the tables that hold a row, and the epoch of these tables.
	Query(ctx context.Context, row sdk.RowKey) ([]sdk.TableResult, uint64, error)
	// Merge returns a part of an epoch after the plugin has merged it.
	Merge(ctx context.Context, part *sdk.Epoch) (*sdk.Epoch, error)
	Status() pluginhost.Status
	Stop(ctx context.Context)
}

// Component runs the configured plugins.
type Component struct {
	deps      Dependencies
	log       *slog.Logger
	directory string // directory of plugin binaries; a change needs a restart
	restart   config.Restart

	ctx    context.Context // context of analyses; ends with Stop
	cancel context.CancelFunc
	work   sync.WaitGroup // reports and retries

	// changing is held while plugins are started, reconfigured or stopped.
	changing sync.Mutex
	started  bool             // guarded by changing
	host     *pluginhost.Host // nil with Dependencies.Launch
	interest func()           // ends the store's callbacks
	derived  model

	mu       sync.Mutex
	cfg      Config
	plugins  map[string]*plugin
	admitted int                    // plugins that were admitted so far
	tables   map[deviceTable]string // tables that have entries of plans, and the plugins
	failed   map[string]failure     // configured plugins that do not run
	watched  map[string]store.Watch
	last     *Delivery
}

// New returns a component without plugins. It starts nothing.
func New(cfg Config, deps Dependencies) *Component {
	c := &Component{
		deps: deps, log: deps.Logger, directory: cfg.Plugins.Directory, restart: cfg.Plugins.Restart, cfg: cfg,
		plugins: map[string]*plugin{}, tables: map[deviceTable]string{}, failed: map[string]failure{},
		watched: map[string]store.Watch{},
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Start starts the configured plugins in parallel, and returns when each of them runs or has
// failed. A plugin that fails is logged, shown in Status, and retried.
func (c *Component) Start(ctx context.Context) error {
	c.changing.Lock()
	defer c.changing.Unlock()
	if c.deps.Launch == nil {
		host, err := pluginhost.New(pluginhost.Options{
			Logger: c.log, OnChange: func(pluginhost.Status) { c.deps.StatusChanged() },
			Backoff: c.backoff(), IOLimit: c.deps.Clock.IOLimit,
		})
		if err != nil {
			return err
		}
		c.host = host
		c.deps.Launch = func(ctx context.Context, spec pluginhost.Spec) (Instance,
			error) {
			return host.Start(ctx, spec)
		}
	}
	c.started = true
	c.startPlugins(ctx, c.config().Plugins.Instances...)
	c.interest = c.deps.Store.OnInterest(c.watch)
	c.work.Go(c.retry)
	return nil
}

// Stop ends the analysis of epochs in progress, drains the plugins and ends their processes. It
// returns when no goroutine and no process is left, or when ctx ends.
func (c *Component) Stop(ctx context.Context) error {
	c.cancel() // also ends a start in retry, which holds c.changing
	c.changing.Lock()
	defer c.changing.Unlock()
	if c.interest != nil {
		c.interest()
	}
	for _, p := range c.running() {
		p.end()
	}
	c.work.Wait()
	if c.host == nil {
		return nil
	}
	if err := c.host.Close(ctx); err != nil {
		return fmt.Errorf("stop plugins: %w", err)
	}
	return nil
}

// Settle waits until the last delivered epoch is reported, for at most limit.
func (c *Component) Settle(limit time.Duration) {
	c.mu.Lock()
	last := c.last
	c.mu.Unlock()
	if last == nil {
		return
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-last.reported:
	case <-timer.C:
		c.log.Warn("an epoch is abandoned: its analysis did not end in time", "waited", limit)
	}
}

func (c *Component) config() Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cfg
}

// Reload applies a new configuration. Errors of single plugins are joined; all other plugins are
// changed.
func (c *Component) Reload(ctx context.Context, cfg Config, changes config.Changes) error {
	c.changing.Lock()
	defer c.changing.Unlock()
	c.mu.Lock()
	c.cfg = cfg
	c.mu.Unlock()
	for _, name := range changes.PluginsRemoved {
		c.stopPlugin(ctx, name)
	}
	for _, p := range changes.PluginsRestarted {
		c.stopPlugin(ctx, p.Name)
	}
	c.startPlugins(ctx, slices.Concat(changes.PluginsRestarted, changes.PluginsAdded)...)
	var errs []error
	for _, p := range changes.PluginsReconfigured {
		running := c.plugin(p.Name)
		if running == nil { // the plugin never started, and may start with the new configuration
			c.startPlugins(ctx, p)
			continue
		}
		if err := running.reconfigure(ctx, p); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Replaced returns the names of plugins whose files have been replaced since they were started,
// and have not changed within the last period settled. Plugins that did not start are included.
func (c *Component) Replaced(settled time.Duration) (names []string) {
	for _, p := range c.running() {
		if p.inst.Replaced(settled) {
			names = append(names, p.name)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, f := range c.failed {
		path, err := pluginhost.Find(c.directory, f.plugin.Plugin)
		if err == nil && pluginhost.Replaced(path, f.file, settled) {
			names = append(names, name)
		}
	}
	return names
}

// SetNetwork passes the current network model to all plugins.
func (c *Component) SetNetwork(ctx context.Context) {
	for _, p := range c.running() {
		if err := p.inst.SetNetwork(ctx, p.network()); err != nil {
			c.log.Error("plugin refuses the changed network", "plugin", p.name, "error", err)
		}
	}
}

// Bindings returns the registers that plugins read, by device.
func (c *Component) Bindings() map[string][]string {
	all := map[string][]string{}
	for _, p := range c.running() {
		for dev, objects := range p.bindings() {
			for o := range objects {
				all[dev] = append(all[dev], o)
			}
		}
	}
	return all
}

// BankEpochs returns, by device, how many epochs a device without registers to read counts in one
// bank: the largest number that a plugin requests. A device without an entry counts one.
func (c *Component) BankEpochs() map[string]int {
	all := map[string]int{}
	for _, p := range c.running() {
		p.mu.Lock()
		n := p.settings.BankEpochs
		p.mu.Unlock()
		if n < 2 {
			continue
		}
		network := p.network()
		for i := range network.Devices {
			name := network.Devices[i].Name
			all[name] = max(all[name], n)
		}
	}
	return all
}
