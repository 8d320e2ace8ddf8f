// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/netsketch/netsketch/collector/pluginhost"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// ErrBusy is the reason why a plugin loses an epoch while its queue is full.
var ErrBusy = errors.New("the plugin is still busy with the previous epoch")

// queued is the number of epochs that wait for a plugin while it analyzes another one.
const queued = 1

// plugin is one plugin instance with its queue and the worker that empties it.
type plugin struct {
	c     *Component
	name  string
	queue chan job
	ended chan struct{} // closed when the worker has ended
	saved savedState    // used by the worker, and after its end by other goroutines

	records  bool // the process's input is recorded
	attached bool // someone debugs the plugin; see pluginhost.IsSocket

	// inst and turn, the plugin's place in the order of admission, are set once, before the plugin is
	// part of the component.
	inst Instance
	turn int

	mu       sync.Mutex
	begun    bool // the plugin is part of the component
	home     bool // whether this collector analyzed the newest epoch
	closed   bool // the queue accepts no more jobs
	cfg      config.Plugin
	refusal  error     // why the plugin refused the newest configuration, so that cfg stays in force
	conflict error     // the newest result of contested
	held     *sdk.Plan // the standing plan that waits until contested returns nil
	settings sdk.Settings
	planned  map[string]bool            // devices whose registers the settings were made for
	bound    map[string]map[string]bool // the result of bindings for version
	version  uint64
	failing  bool       // the last epoch was lost; limits the log to one line per change
	state    *sdk.State // newest state that the plugin saved
	status   Status     // without the process's status
}

// job is an epoch for a plugin. done receives exactly one report.
type job struct {
	epoch *sdk.Epoch
	done  chan<- PluginReport
	moved bool // the first job since this collector began to analyze the plugin's epochs
}

func newPlugin(c *Component, cfg config.Plugin) *plugin {
	return &plugin{c: c, name: cfg.Name, cfg: cfg, records: cfg.Record != "", status: Status{Name: cfg.Name},
		queue: make(chan job, queued), ended: make(chan struct{})}
}

// begin starts the worker.
func (p *plugin) begin() {
	p.mu.Lock()
	p.begun = true
	p.mu.Unlock()
	go p.work()
}

// end lets the worker finish its queue and waits for it.
func (p *plugin) end() {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.queue)
	}
	p.mu.Unlock()
	<-p.ended
}

func (p *plugin) config() config.Plugin {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cfg
}

// setConfig records the plugin's configuration in force, and why the plugin refused the newest
// one.
func (p *plugin) setConfig(cfg config.Plugin, refusal error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cfg, p.bound, p.refusal = cfg, nil, refusal
}

// reconfigure gives the plugin another configuration. If the plugin refuses it, the earlier one
// stays in force. A plugin that is down is started with the new configuration.
func (p *plugin) reconfigure(ctx context.Context, cfg config.Plugin) error {
	settings, err := cfg.Config.JSON()
	if err != nil {
		return err
	}
	before := p.config()
	p.setConfig(cfg, nil)
	err = p.inst.Configure(ctx, settings, p.network())
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pluginhost.ErrConfig) && !errors.Is(err, pluginhost.ErrNotRunning):
		err = located(cfg.Config, err)
		p.setConfig(before, fmt.Errorf("keeps its configuration: %w", err))
		return fmt.Errorf("plugin %s keeps its configuration: %w", p.name, err)
	}
	return fmt.Errorf("plugin %s does not run with its new configuration: %w", p.name, located(cfg.Config, err))
}

// Missing lists the objects that running plugins need and the network lacks, a text for each.
func (c *Component) Missing() (out []string) {
	for _, p := range c.running() {
		p.mu.Lock()
		for _, m := range p.settings.Missing {
			where := ""
			if m.Device != "" {
				where = m.Device + ": "
			}
			out = append(out, strings.TrimSuffix(fmt.Sprintf("plugin %s misses %s%s: %s", p.name, where, m.Object,
				m.Consequence), ": "))
		}
		p.mu.Unlock()
	}
	return out
}

// configured receives the plugin's settings each time the plugin was configured.
func (p *plugin) configured(s sdk.Settings) {
	planned := map[string]bool{}
	for _, d := range p.network().Devices {
		planned[d.Name] = len(d.Objects) > 0 // false while the device's registers are not known
	}
	p.mu.Lock()
	first := !p.begun
	p.settings, p.planned, p.bound = s, planned, nil
	p.mu.Unlock()
	for _, m := range s.Missing {
		p.c.log.Warn("plugin misses an object in the network", "plugin", p.name, "device", m.Device, "object", m.Object,
			"consequence", m.Consequence)
	}
	if first { // the plugin is admitted when all plugins have started
		return
	}
	p.mu.Lock()
	p.held = s.Plan
	p.mu.Unlock()
	_ = p.contested() // contested logs its error and shows it in Status
	p.c.deps.SettingsChanged()
}

// addPlan passes on the plugin's standing plan, if it has one.
func (p *plugin) addPlan(standing *sdk.Plan) {
	if standing == nil {
		return
	}
	plan := *standing
	plan.FromEpoch, plan.PreEpoch = 0, false
	p.c.deps.Plans.Add(p.c.ctx, p.name, plan)
}

// keep records the state that a plugin saved with an epoch; nil if it saved none.
func (p *plugin) keep(state *sdk.State) {
	if state == nil {
		return
	}
	p.inst.SetState(state)
	if p.c.deps.Cluster != nil {
		p.c.deps.Cluster.Keep(p.name, p.config().Plugin, state)
	}
	p.setState(state)
}

func (p *plugin) setState(state *sdk.State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state, p.status.SavedEpoch = state, state.Epoch
}

// atHome reports whether this collector analyzes the plugin's epoch number, and moved whether this
// is the first such epoch.
func (p *plugin) atHome(number uint64) (home, moved bool) {
	home = p.c.deps.Cluster == nil || p.c.deps.Cluster.Home(p.name, number)
	p.mu.Lock()
	defer p.mu.Unlock()
	moved = home && !p.home
	p.home = home
	return home, moved
}

// adopt makes the plugin continue from the state that another collector kept, if that state is
// newer. The worker calls it.
func (p *plugin) adopt() {
	if p.c.deps.Cluster == nil {
		return
	}
	next := p.c.deps.Cluster.State(p.c.ctx, p.name, p.config().Plugin)
	p.mu.Lock()
	old := p.state
	p.mu.Unlock()
	if next == nil || old != nil && next.Epoch <= old.Epoch {
		return
	}
	p.c.log.Info("plugin continues from the state of another collector", "plugin", p.name, "epoch", next.Epoch)
	p.setState(next)
	p.inst.Restart(p.c.ctx, next)
}

// failed records why an epoch has no results, or not all, and logs the first of several failures.
// The caller holds p.mu.
func (p *plugin) failed(err error) {
	p.status.LastError, p.status.LastErrorTime = err.Error(), time.Now()
	if !p.failing && !errors.Is(err, context.Canceled) {
		p.failing = true
		p.c.log.Warn("plugin loses epochs", "plugin", p.name, "error", err)
	}
}

// oneLine joins the lines of an error for a leaf or a log.
func oneLine(s string) string { return strings.ReplaceAll(s, "\n", "; ") }
