// SPDX-License-Identifier: Apache-2.0

// Package collector builds the collector from its components, and starts, reloads and stops them in
// order. It imports no plugin and no output: the program that embeds it gives outputs the Store.
//
//	config --> network -- devices, model --> banks --> epoch <-- host <-- agents of hosts
//	             ^  ^                                    | sealed epochs
//	 links, ids  |  +-- routes, plans -- intent <------> analysis --> plugin processes
//	          southbound                    plans        | tables
//	             | leaves                                v
//	             +---------------------------------->  store --> outputs, /metrics
//	                                                     ^
//	                        state of all components -- selfstate
//
// In a cluster of collectors, the member component connects the components to the other collectors,
// and moves devices, hosts and plugins between them.
//
// Usage:
//
//	c, err := collector.New(cfg, collector.Dependencies{Logger: log, Programs: compiledPrograms})
//	err = c.Start(ctx)   // plugins run, devices connect; c.Schema() is complete
//	...                  // start outputs on c.Store()
//	err = c.Run(ctx)     // epochs, until ctx ends
//	c.Stop(stopCtx)      // plugins drain, sessions close
//
// An emulation on virtual time calls WaitReady, Open and Step instead of Run.
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
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/netsketch/netsketch/collector/analysis"
	"github.com/netsketch/netsketch/collector/cluster/bus"
	"github.com/netsketch/netsketch/collector/cluster/member"
	"github.com/netsketch/netsketch/collector/devconfig"
	"github.com/netsketch/netsketch/collector/device"
	"github.com/netsketch/netsketch/collector/device/banks"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/collector/host"
	"github.com/netsketch/netsketch/collector/intent"
	"github.com/netsketch/netsketch/collector/network"
	"github.com/netsketch/netsketch/collector/pluginhost"
	"github.com/netsketch/netsketch/collector/schema"
	"github.com/netsketch/netsketch/collector/selfstate"
	"github.com/netsketch/netsketch/collector/southbound"
	"github.com/netsketch/netsketch/internal/certs"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/yang"
)

// Dependencies are what New needs from its caller. Zero values are usable.
type Dependencies struct {
	// Clock measures the time of epochs; nil is the wall clock.
	Clock epoch.Clock
	// Logger receives state changes; nil disables logging.
	Logger *slog.Logger
	// Level is set when a reload changes the log level; nil keeps the level.
	Level *slog.LevelVar
	// Programs returns a built-in pipeline by name; with nil, no pipeline is built in.
	Programs func(name string) (*p4rt.Program, error)
	// Version is published as the collector's version.
	Version string
	// ServeNATS starts the embedded NATS server of a cluster; the command passes natsserver.Start.
	// With nil, a configuration with an embedded server is refused.
	ServeNATS func(context.Context, bus.Config) (bus.Server, error)
	// OnReport, when set, receives the report of each epoch, in order. It must not block.
	OnReport func(Report)
	// StartGrace is how long Run waits for devices before the first epoch begins without the
	// missing ones; 3 s when 0.
	StartGrace time.Duration
	// StopGrace bounds Stop and the end of Run together; 10 s when 0.
	StopGrace time.Duration

	// launch starts a plugin; nil starts a process. newDevice creates a device; nil creates a
	// device.Device. Both are for tests.
	launch    func(context.Context, pluginhost.Spec) (analysis.Instance, error)
	newDevice func(device.Config) (network.Device, error)
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
			return nil, fmt.Errorf("no pipeline %q is built in", name)
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

// Collector is a set of connected components, as the package comment describes.
type Collector struct {
	deps   Dependencies
	log    *slog.Logger
	cfg    atomic.Pointer[config.Config]
	ctx    context.Context // context of callbacks between components; ends with Stop
	cancel context.CancelFunc

	store     *store.Store
	schema    *schema.Registry
	epochs    *epoch.Engine
	banks     *banks.Group
	intent    *intent.Component
	hosts     *host.Component
	network   *network.Component
	discovery *southbound.Discovery
	devconfig *devconfig.Component
	analysis  *analysis.Component
	self      *selfstate.Component
	health    selfstate.Health
	http      *selfstate.Server // nil without http.address
	reloads   reloads
	certs     *certs.Store
	member    *member.Component // nil without a cluster

	changing         sync.Mutex // held by Start, Reload, Stop and Exclusive
	started, stopped bool       // guarded by changing
}

// New builds the components. It opens no connection and starts nothing. A device that cannot be set
// up is no error: it is missing from epochs, with the reason.
func New(cfg *config.Config, deps Dependencies) (_ *Collector, err error) {
	deps = deps.withDefaults()
	c := &Collector{deps: deps, log: deps.Logger}
	cfg = c.autoload(cfg)
	c.cfg.Store(cfg)
	c.reloads.set(config.ReloadApplied, "")
	c.ctx, c.cancel = context.WithCancel(context.Background())
	if c.schema, err = schema.New(slices.Concat(yang.CollectorModules(), yang.SwitchModules())); err != nil {
		return nil, fmt.Errorf("collector: %w", err)
	}
	c.certs = certs.New(certs.Options{Logger: c.log, OnChange: c.StateChanged})
	c.store = store.New(store.Options{DefaultTarget: cfg.Name, Schema: c.schema})
	clustered := cfg.Cluster.Name != ""
	if clustered {
		c.member, err = member.New(member.Dependencies{Clock: deps.Clock, Logger: c.log, Certificates: c.certs,
			Version: deps.Version, ServeNATS: deps.ServeNATS, Config: c.cfg.Load, Exclusive: c.exclusively})
		if err != nil {
			return nil, fmt.Errorf("collector: %w", err)
		}
	}

	c.epochs = epoch.New(epochConfig(cfg), c.engineDependencies())
	c.banks = banks.New(banks.Config{Interval: cfg.Epoch.Interval, Guard: cfg.Epoch.Guard, Drain: cfg.Epoch.Drain,
		Common: clustered, Isolated: func(name string) bool { return c.discovery.Isolated(name) }}, deps.Clock)
	c.intent = intent.New(intent.Config{Guard: cfg.Epoch.Guard}, c.intentDependencies())
	c.epochs.AfterFlip(c.intent.Flipped)
	if c.hosts, err = c.newHosts(cfg); err != nil {
		return nil, err
	}
	if cfg.Agents.Address != "" {
		c.intent.SetHosts(c.hosts)
	}
	var gnmiErr error
	c.discovery, gnmiErr = southbound.New(cfg, southbound.Dependencies{
		Logger: c.log, Schema: c.schema.Current, Publish: c.store.Publish, Certificates: c.certs,
		Exclusive: c.exclusive, OnChange: c.StateChanged,
		OnSync: func(device string) { c.devconfig.Wake(device) },
	})
	c.network, err = network.New(cfg, network.Dependencies{
		Clock: deps.Clock, Logger: c.log, Programs: deps.Programs, Engine: c.epochs, Banks: c.banks, Intent: c.intent,
		PortName: c.discovery.PortName, OnModel: c.modelChanged, OnDevice: c.StateChanged, Certificates: c.certs,
		NewDevice: deps.newDevice, Shared: clustered, Elsewhere: c.member.Elsewhere, OnTaken: c.member.SessionChanged,
	})
	if err = errors.Join(err, gnmiErr); err != nil {
		return nil, err
	}
	c.discovery.SetNetwork(c.network)
	c.devconfig = devconfig.New(cfg, devconfig.Dependencies{Dial: c.dialGNMI, Form: c.discovery.Form,
		Known: c.discovery.Known, Schema: c.schema.Current, Sessions: c.network, Owner: c.network.Owner,
		Records: c.member.Records(), OnChange: c.StateChanged, Logger: c.log})
	c.analysis = analysis.New(analysisConfig(cfg), c.analysisDependencies())
	if clustered {
		c.member.Connect(member.Components{Store: c.store, Validate: c.schema.Validate, Epochs: c.epochs, Hosts: c.hosts,
			Intent: c.intent, Network: c.network, Analysis: c.analysis})
	}
	c.self = selfstate.New(selfstate.Config{Enabled: cfg.Metrics.Enabled, Version: deps.Version},
		selfstate.Dependencies{
			Clock: deps.Clock, Logger: c.log, Store: c.store, Schema: c.schema, Config: c.cfg.Load, Reloads: c.reloads.get,
			Network: c.network, Hosts: c.hosts, Discovery: c.discovery, Devconfig: c.devconfig, Intent: c.intent,
			Analysis: c.analysis, Certificates: c.certs, Cluster: c.member.Status,
		})
	if cfg.HTTP.Address != "" {
		c.http = selfstate.NewServer(selfstate.ServerConfig{Address: cfg.HTTP.Address, Version: deps.Version,
			Results: cfg.HTTP.Results, ResultRows: cfg.HTTP.ResultRows},
			selfstate.ServerDependencies{
				Store: c.store, Schema: c.schema, Health: &c.health, Logger: c.log,
			})
	}
	return c, nil
}

// dialGNMI returns how to connect with a device's gNMI server.
func (c *Collector) dialGNMI(dev config.Device) (func(...grpc.DialOption) (*grpc.ClientConn, error), error) {
	endpoint, err := southbound.EndpointOf(dev, c.certs)
	return endpoint.Dial, err
}

// engineDependencies returns the dependencies of the epoch engine.
func (c *Collector) engineDependencies() epoch.Dependencies {
	out := epoch.Dependencies{Clock: c.deps.Clock, Logger: c.log}
	if c.member != nil {
		out.Reasons, out.HandOver = c.member.Warnings, c.member.HandOver
	}
	return out
}

// intentDependencies returns the dependencies of the component that owns the desired state of
// devices.
func (c *Collector) intentDependencies() intent.Dependencies {
	out := intent.Dependencies{Clock: c.deps.Clock, Logger: c.log, Epochs: c.epochs, BankShift: c.banks.Shift}
	if c.member != nil {
		out.Cluster = c.member
	}
	return out
}

// analysisDependencies returns the dependencies of the component that runs plugins.
func (c *Collector) analysisDependencies() analysis.Dependencies {
	out := analysis.Dependencies{Clock: c.deps.Clock, Logger: c.log, Store: c.store, Schema: c.schema,
		Network: c.network, Plans: c.intent, BankShift: c.banks.Shift, SettingsChanged: c.settingsChanged,
		StatusChanged: c.StateChanged, Report: c.reported, Launch: c.deps.launch}
	if c.member != nil {
		out.Cluster = c.member
	}
	return out
}

// newHosts builds the component of host agents.
func (c *Collector) newHosts(cfg *config.Config) (*host.Component, error) {
	agents := cfg.Agents
	out := host.Config{Address: agents.Address, Timeout: agents.Timeout, MaxReport: uint64(agents.MaxReport),
		MaxEpoch: uint64(agents.MaxEpoch), UDP: agents.UDP, Hosts: cfg.AgentHosts(), Shared: c.member != nil}
	if agents.Address != "" {
		var err error
		if out.TLS, err = agents.TLS.Server(c.certs); err != nil {
			return nil, fmt.Errorf("collector: agents.tls: %w", err)
		}
	}
	return host.New(out, host.Dependencies{
		Logger: c.log, Epochs: c.epochs, Now: c.deps.Clock.Now, Settings: c.intent.HostSettings,
		Applied: c.intent.HostApplied, OnChange: c.StateChanged, OnEpoch: c.member.RelayEpoch, HostOf: c.hostOf,
	}), nil
}

// hostOf returns the name of the configured host whose address is a, or whose longest prefix
// contains a.
func (c *Collector) hostOf(a netip.Addr) (name string) {
	bits := -1
	for _, h := range c.Config().Hosts {
		for _, p := range h.Addresses {
			if p.Contains(a) && p.Bits() > bits {
				name, bits = h.Name, p.Bits()
			}
		}
	}
	return name
}

func epochConfig(cfg *config.Config) epoch.Config {
	e := cfg.Epoch
	out := epoch.Config{Interval: e.Interval, Guard: e.Guard, Drain: e.Drain, Deadline: e.Deadline,
		Parallel: e.ParallelReads}
	if e.Align {
		out.Origin = time.Unix(0, 0).UTC()
	}
	if cfg.Cluster.Name != "" {
		out.HandOver = member.HandOverAt(e.Deadline)
	}
	return out
}

func analysisConfig(cfg *config.Config) analysis.Config {
	return analysis.Config{Plugins: cfg.Plugins, EpochLength: cfg.Epoch.Interval, LogLevel: cfg.Log.Level}
}

// Start starts plugins and sessions. A plugin or a device that cannot be started is logged and
// published in the collector's state, and the others run. After an error call Stop.
func (c *Collector) Start(ctx context.Context) error {
	c.changing.Lock()
	defer c.changing.Unlock()
	if c.started {
		return errors.New("collector: started twice")
	}
	c.started = true
	if c.http != nil {
		if err := c.http.Start(); err != nil {
			return fmt.Errorf("collector: %w", err)
		}
	}
	if err := c.hosts.Start(); err != nil { // before plugins send the settings of hosts
		return fmt.Errorf("collector: %w", err)
	}
	if err := c.analysis.Start(ctx); err != nil {
		return fmt.Errorf("collector: %w", err)
	}
	c.health.Schema.Store(true)
	c.network.Bind(c.analysis.Bindings(), c.analysis.BankEpochs())
	c.certs.Declare("devices", c.Config().Certificates()...)
	c.certs.Start()
	if err := c.devconfig.Start(); err != nil {
		return fmt.Errorf("collector: %w", err)
	}
	c.network.Start()
	c.discovery.Start()
	c.self.Start()
	if err := c.member.Start(ctx); err != nil {
		return fmt.Errorf("collector: %w", err)
	}
	c.health.Components.Store(true)
	return nil
}

// Stop drains the plugins and closes all sessions, the store and its taps. It returns at the latest
// when ctx ends or StopGrace is over, and leaves no process behind.
func (c *Collector) Stop(ctx context.Context) error {
	c.member.Stop() // first, so that other members take the devices over during the rest of Stop
	defer c.member.Wait()
	c.changing.Lock()
	defer c.changing.Unlock()
	if c.stopped {
		return nil
	}
	c.stopped = true
	c.health.Components.Store(false)
	c.health.Epochs.Store(false)
	ctx, cancel := context.WithTimeout(ctx, c.deps.StopGrace)
	defer cancel()
	c.banks.Stop()
	c.hosts.Stop()
	c.epochs.Shutdown()
	err := c.analysis.Stop(ctx)
	c.cancel()
	c.intent.Stop()
	c.devconfig.Stop()
	c.network.Stop()
	c.discovery.Stop()
	c.self.Stop()
	c.certs.Stop()
	c.store.Close()
	if c.http != nil {
		c.http.Stop(ctx)
	}
	c.log.Info("collector stopped")
	if err != nil {
		return fmt.Errorf("collector: %w", err)
	}
	return nil
}

// exclusive runs f unless the configuration is being changed or the collector has stopped, and
// reports whether f ran.
func (c *Collector) exclusive(f func()) bool {
	if !c.changing.TryLock() {
		return false
	}
	defer c.changing.Unlock()
	if !c.stopped {
		f()
	}
	return true
}

// exclusively waits until the configuration is not being changed and runs f, unless the collector
// has stopped. It reports whether f ran, and publishes the state afterwards.
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

// modelChanged passes the network model to plugins, and the plugins' bindings to devices.
func (c *Collector) modelChanged(ctx context.Context) {
	c.analysis.SetNetwork(ctx)
	c.network.Bind(c.analysis.Bindings(), c.analysis.BankEpochs())
}

// settingsChanged passes the bindings of plugins to devices and applies standing plans.
func (c *Collector) settingsChanged() {
	c.network.Bind(c.analysis.Bindings(), c.analysis.BankEpochs())
	c.network.ApplyPending(c.ctx)
}

// StateChanged publishes the changed parts of the collector's own state. It does not block.
func (c *Collector) StateChanged() { c.self.Changed() }

// reported publishes the collector's own state with an epoch and passes the report on.
func (c *Collector) reported(r Report) {
	c.self.Report(&r)
	if c.deps.OnReport != nil {
		c.deps.OnReport(r)
	}
}

// Store holds the newest results; outputs read it.
func (c *Collector) Store() *store.Store { return c.store }

// Schema returns the schema of everything that can be published. A plugin that starts later may
// extend it: call Schema again instead of keeping the result.
func (c *Collector) Schema() *yang.Schema { return c.schema.Current() }

// Certificates holds the TLS certificates of all sessions and outputs.
func (c *Collector) Certificates() *certs.Store { return c.certs }

// Config returns the current configuration. It must not be changed.
func (c *Collector) Config() *config.Config { return c.cfg.Load() }

// Network returns the network model that plugins receive.
func (c *Collector) Network() sdk.Network { return c.network.Model() }

// AgentsAddress returns the address on which host agents connect; "" if they are not served.
func (c *Collector) AgentsAddress() string { return c.hosts.Address() }

// Health returns the health that /healthz and /readyz report. The caller sets Outputs.
func (c *Collector) Health() *selfstate.Health { return &c.health }

// HTTPAddress returns the address of /metrics, /healthz and /readyz; "" if they are not served.
func (c *Collector) HTTPAddress() string {
	if c.http == nil {
		return ""
	}
	return c.http.Address()
}

// ObserveOutputs sets the source of the state of the outputs, which the caller owns. f must not
// block.
func (c *Collector) ObserveOutputs(f func() selfstate.Outputs) { c.self.ObserveOutputs(f) }

// FailedPlugins returns, by instance name, why configured plugins could not be started. Plugins
// that started, exited and are being restarted are not included.
func (c *Collector) FailedPlugins() map[string]error { return c.analysis.Failed() }

// Faults returns why devices can never be measured, for example because of their programs.
func (c *Collector) Faults() []error { return c.network.Faults() }

// HostRoles returns, sorted, the roles of host agents for which plugins have settings.
func (c *Collector) HostRoles() []string { return c.intent.SettingRoles() }

// Watchable returns the schema paths of the lists whose rows Query can compute.
func (c *Collector) Watchable() []string { return c.analysis.Watchable() }

// Query computes one row of a list that a plugin declares watchable; see analysis.Component.Query.
func (c *Collector) Query(ctx context.Context, target, list string, keys map[string]string) (*store.View, error) {
	return c.analysis.Query(ctx, target, list, keys)
}
