// SPDX-License-Identifier: Apache-2.0

// Package collector is the core: it drives switches through epochs, hands what they counted to
// plugin processes, and publishes what those make of it.
//
// The package itself only wires its rooms together: config (what to do), topology (the network),
// device (one switch), epoch (the network's clock), pluginhost (plugin processes) and store (the
// newest results, from which outputs serve). It imports no plugin and no output; whoever assembles
// a program gives outputs the Store.
//
//	c, err := collector.New(cfg, collector.Dependencies{Logger: log, Programs: compiledPrograms})
//	err = c.Start(ctx)   // plugins run, devices connect; c.Schema() is complete
//	...                  // start outputs on c.Store()
//	err = c.Run(ctx)     // epochs, until ctx ends
//	c.Stop(stopCtx)      // plugins drain, sessions close
//
// An emulation on virtual time calls WaitReady, Open and Step in place of Run.
//
// # Concurrency
//
// Methods of Collector may be called from any goroutine. Start precedes the others. Run, Open and
// Step must not overlap. Every goroutine has ended when Stop returns.
package collector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/netsketch/netsketch/collector/config"
	"github.com/netsketch/netsketch/collector/device"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/collector/pluginhost"
	"github.com/netsketch/netsketch/collector/store"
	"github.com/netsketch/netsketch/collector/topology"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/yang"
)

// Dependencies are a collector's surroundings. All may be left out.
type Dependencies struct {
	// Clock is the time of epochs; nil means the wall clock.
	Clock epoch.Clock
	// Logger hears of changes; nil discards.
	Logger *slog.Logger
	// Level is what Reload sets when the log's level changes.
	Level *slog.LevelVar
	// Programs finds a built-in data-plane program by name; nil knows none.
	Programs func(name string) (*p4rt.Program, error)
	// Version is published as the collector's version.
	Version string
	// OnReport, when set, is given what became of each epoch, in order. It must not block.
	OnReport func(Report)
	// StartGrace is how long Run waits for devices before the first epoch begins without the
	// missing ones; default 3 s.
	StartGrace time.Duration
	// StopGrace bounds Stop and the end of Run together; default 10 s.
	StopGrace time.Duration
}

func (d Dependencies) withDefaults() Dependencies {
	if d.Clock == nil {
		d.Clock = epoch.Wall{}
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if d.Programs == nil {
		d.Programs = func(name string) (*p4rt.Program, error) {
			return nil, fmt.Errorf("no data-plane program %q is built in", name)
		}
	}
	if d.StartGrace == 0 {
		d.StartGrace = 3 * time.Second
	}
	if d.StopGrace == 0 {
		d.StopGrace = 10 * time.Second
	}
	return d
}

// Collector is the core. See the package comment.
type Collector struct {
	deps      Dependencies
	clock     epoch.Clock
	log       *slog.Logger
	store     *store.Store
	schema    *schemas
	engine    *epoch.Engine[*device.Reading]
	plans     *plans
	plugins   *plugins
	metrics   *selfMetrics
	discovery *discovery
	folder    string // of plugins
	host      *pluginhost.Host

	// newDevice makes a device; tests replace it.
	newDevice func(device.Config) (managed, error)

	// reloading is held by Start, Reload and Stop.
	reloading sync.Mutex

	mu      sync.Mutex
	cfg     *config.Config
	topo    *topology.Topology
	devices map[string]managed
	version uint64 // of the network model

	programs map[config.Pipeline]*p4rt.Program // read only once there

	ctx          context.Context // of devices and background work; ends with Stop
	cancel       context.CancelFunc
	work         sync.WaitGroup
	interest     func()             // stops the store's callbacks
	stopRetrying context.CancelFunc // nil before Start
	started      bool
	stopped      bool
}

// New checks what can be checked without a connection: the network, the programs. It starts nothing
// that must be stopped, should Start not be called.
func New(cfg *config.Config, deps Dependencies) (*Collector, error) {
	deps = deps.withDefaults()
	c := &Collector{
		deps: deps, clock: deps.Clock, log: deps.Logger, cfg: cfg, folder: cfg.Plugins.Directory, devices: map[string]managed{}, programs: map[config.Pipeline]*p4rt.Program{},
		newDevice: func(dc device.Config) (managed, error) { return device.New(dc) },
	}
	var err error
	if c.topo, err = cfg.Topology(); err != nil {
		return nil, err
	}
	if err := c.checkDevices(); err != nil {
		return nil, err
	}
	if c.schema, err = newSchemas(slices.Concat(yang.CollectorModules(), yang.SwitchModules())); err != nil {
		return nil, fmt.Errorf("collector: %w", err)
	}
	c.store = store.New(store.Options{DefaultTarget: cfg.Name, Schema: c.schema})
	c.discovery = newDiscovery(c)
	c.plugins = newPlugins(c)
	c.plans = newPlans(c)
	c.metrics = newMetrics(c)
	ec := epoch.Config{
		Interval: cfg.Epoch.Interval, Guard: cfg.Epoch.Guard, Drain: cfg.Epoch.Drain, Deadline: cfg.Epoch.Deadline, Parallel: cfg.Epoch.ParallelReads,
	}
	if cfg.Epoch.Align {
		ec.Origin = time.Unix(0, 0).UTC()
	}
	c.engine = epoch.New[*device.Reading](ec, epoch.Options{Clock: c.clock, Logger: c.log, AfterFlip: c.afterFlip})
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

// Store holds the newest results; outputs serve from it.
func (c *Collector) Store() *store.Store { return c.store }

// Schema is the schema of everything that can be published. Plugins that start later may widen it:
// ask again rather than keep it.
func (c *Collector) Schema() *yang.Schema { return c.schema.current() }

// Config is the configuration in force. It must not be changed.
func (c *Collector) Config() *config.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cfg
}

// Start starts plugins and sessions. A plugin or a device that cannot be started is logged and
// visible in the collector's state, and the rest runs; the error is about the collector itself.
func (c *Collector) Start(ctx context.Context) error {
	c.reloading.Lock()
	defer c.reloading.Unlock()
	if c.started {
		return errors.New("collector: started twice")
	}
	cfg := c.Config()
	host, err := pluginhost.New(pluginhost.Options{
		Logger: c.log, Validate: c.schema.validate, OnChange: func(pluginhost.Status) { c.metrics.changed() },
		Backoff: pluginhost.Backoff{Base: cfg.Plugins.Restart.Initial, Max: cfg.Plugins.Restart.Maximum},
	})
	if err != nil {
		return fmt.Errorf("collector: %w", err)
	}
	c.host, c.started = host, true
	for _, d := range cfg.Devices {
		if err := errors.Join(c.addDevice(d), c.discovery.add(d)); err != nil {
			c.log.Error("device cannot be used", "device", d.Name, "error", err)
		}
	}
	c.plugins.startAll(ctx, cfg.Plugins)
	c.bindAll()
	for _, m := range c.managedDevices() {
		c.startDevice(m)
	}
	c.interest = c.store.OnInterest(c.plugins.watch)
	c.work.Go(c.metrics.follow)
	c.work.Go(c.discovery.follow)
	retrying, stopRetrying := context.WithCancel(c.ctx)
	c.mu.Lock()
	c.stopRetrying = stopRetrying
	c.mu.Unlock()
	c.work.Go(func() { c.plugins.retry(retrying) })
	c.metrics.changed()
	return nil
}

// WaitReady waits until every measured device takes part in the epochs and is configured as plugins planned, or
// ctx ends, and then returns the names of those that do not take part.
func (c *Collector) WaitReady(ctx context.Context) []string {
	missing := c.engine.WaitJoined(ctx)
	for _, m := range c.managedDevices() {
		if _, err := m.Ready(); err == nil {
			c.plans.apply(ctx, m, c.opened(), false)
		}
	}
	return missing
}

// Run drives the epochs until ctx ends, and waits for the analysis that is under way then. Start
// must have been called; Stop comes after.
func (c *Collector) Run(ctx context.Context) error {
	if !c.started {
		return errors.New("collector: Run before Start")
	}
	grace, cancel := context.WithTimeout(ctx, c.deps.StartGrace)
	missing := c.WaitReady(grace)
	cancel()
	if ctx.Err() != nil {
		return nil
	}
	if len(missing) > 0 {
		c.log.Warn("epochs begin without some devices", "missing", missing)
	}
	c.log.Info("epochs begin", "interval", c.Config().Epoch.Interval, "devices", len(c.managedDevices()), "plugins", len(c.plugins.running()))
	err := c.engine.Run(ctx, func(ep *epoch.Epoch[*device.Reading]) { c.analyse(ep, false) })
	c.plugins.settle(c.deps.StopGrace / 2)
	return err
}

// Open begins the first epoch at the given time, in place of Run: see epoch.Engine.Open.
func (c *Collector) Open(ctx context.Context, at time.Time, wait epoch.WaitFunc) error {
	return c.engine.Open(ctx, at, wait)
}

// Step closes the open epoch at the given time and returns when its results are published. wait does
// the straggler wait: an emulation moves its packets meanwhile.
func (c *Collector) Step(ctx context.Context, at time.Time, wait epoch.WaitFunc) (Report, error) {
	ep, err := c.engine.Close(ctx, at, wait)
	if err != nil {
		return Report{}, err
	}
	return c.analyse(ep, true), nil
}

// Stop drains the plugins, closes all sessions and the store. Outputs see the store's taps close.
// It returns at the latest when ctx ends or StopGrace is over, and then has left no process behind.
func (c *Collector) Stop(ctx context.Context) error {
	c.mu.Lock()
	if c.stopRetrying != nil {
		c.stopRetrying() // it may hold what is waited for next
	}
	c.mu.Unlock()
	c.reloading.Lock()
	defer c.reloading.Unlock()
	if c.stopped {
		return nil
	}
	c.stopped = true
	ctx, cancel := context.WithTimeout(ctx, c.deps.StopGrace)
	defer cancel()
	if c.interest != nil {
		c.interest()
	}
	c.engine.Shutdown()
	c.plugins.stopWorkers()
	var errs []error
	if c.host != nil {
		if err := c.host.Close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("collector: stop plugins: %w", err))
		}
	}
	c.cancel()
	var sessions sync.WaitGroup
	for _, m := range c.managedDevices() {
		sessions.Go(func() {
			if err := m.Close(); err != nil {
				c.log.Warn("closing a session", "device", m.Name(), "error", err)
			}
		})
	}
	sessions.Wait()
	c.discovery.close()
	c.work.Wait()
	c.store.Close()
	c.log.Info("collector stopped")
	return errors.Join(errs...)
}
