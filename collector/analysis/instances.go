// SPDX-License-Identifier: Apache-2.0

// Starting, retrying and stopping plugins.

package analysis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/netsketch/netsketch/collector/pluginhost"
	"github.com/netsketch/netsketch/collector/pluginhost/recorder"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/settings"
)

// failure records why a plugin did not start.
type failure struct {
	plugin config.Plugin
	file   os.FileInfo // the plugin's file when it was started; nil if there was none
	err    error
}

// Failed returns, by instance name, why configured plugins could not be started. Plugins that
// started, exited and are being restarted are not included.
func (c *Component) Failed() map[string]error {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]error, len(c.failed))
	for name, f := range c.failed {
		out[name] = f.err
	}
	return out
}

// started is the result of launch.
type started struct {
	cfg  config.Plugin
	file os.FileInfo // the plugin's file; nil if there was none
	p    *plugin
	err  error
}

// startPlugins starts plugins in parallel, and admits them one after the other. A plugin that
// cannot run is logged and shown in Status. c.changing is held.
func (c *Component) startPlugins(ctx context.Context, plugins ...config.Plugin) {
	results := make([]started, len(plugins))
	var all sync.WaitGroup
	for i, cfg := range plugins {
		all.Go(func() {
			s := started{cfg: cfg}
			if path, err := pluginhost.Find(c.directory, cfg.Plugin); err == nil {
				s.file, _ = os.Stat(path)
			}
			s.p, s.err = c.launch(ctx, cfg)
			results[i] = s
		})
	}
	all.Wait()
	for _, s := range results {
		if s.err == nil {
			if s.err = c.admit(s.p); s.err != nil {
				s.p.inst.Stop(ctx)
			}
		}
		c.record(s)
	}
}

// record logs and keeps the result of a start.
func (c *Component) record(s started) {
	name := s.cfg.Name
	c.mu.Lock()
	before, again := c.failed[name]
	if s.err != nil {
		c.failed[name] = failure{s.cfg, s.file, s.err}
	} else {
		delete(c.failed, name)
	}
	c.mu.Unlock()
	switch {
	case s.err != nil && again && before.err.Error() == s.err.Error(): // logged before
	case s.err != nil:
		c.log.Error("plugin does not run", "plugin", name, "error", s.err)
	default:
		c.log.Info("plugin runs", "plugin", name, "version", s.p.inst.Describe().Version)
		s.p.inst.SetWatched(c.watchedBy(s.p))
	}
	c.deps.StatusChanged()
}

// retry starts plugins that failed to start again, at the pace of restarts, until Stop. A plugin
// that refused its configuration is not retried: it starts when the file changes.
func (c *Component) retry() {
	delays := c.backoff().Delays()
	for {
		select {
		case <-time.After(delays.NextBackOff()):
		case <-c.ctx.Done():
			return
		}
		c.mu.Lock()
		var due []config.Plugin
		for _, f := range c.failed {
			if !errors.Is(f.err, pluginhost.ErrConfig) {
				due = append(due, f.plugin)
			}
		}
		c.mu.Unlock()
		if len(due) == 0 {
			delays.Reset()
			continue
		}
		if !c.changing.TryLock() {
			continue // Reload or Stop is running
		}
		if c.ctx.Err() == nil {
			c.startPlugins(c.ctx, due...)
		}
		c.changing.Unlock()
		c.deps.SettingsChanged()
	}
}

// backoff returns the pace of restarts, for plugins that died and for plugins that failed to
// start.
func (c *Component) backoff() pluginhost.Backoff {
	return pluginhost.Backoff{Base: c.restart.Initial, Max: c.restart.Maximum}
}

// launch starts a plugin and adds its modules to the schema.
func (c *Component) launch(ctx context.Context, cfg config.Plugin) (*plugin, error) {
	path, err := pluginhost.Find(c.directory, cfg.Plugin)
	if err != nil {
		return nil, err
	}
	settings, err := cfg.Config.JSON()
	if err != nil {
		return nil, err
	}
	p := newPlugin(c, cfg)
	p.attached = pluginhost.IsSocket(path)
	if p.state = c.newestState(ctx, cfg); p.state != nil {
		p.saved.epoch, p.status.SavedEpoch = p.state.Epoch, p.state.Epoch
	}
	all := c.config()
	spec := pluginhost.Spec{
		Name: cfg.Name, Path: path, SHA256: cfg.SHA256.String(), Config: settings, Network: p.network(),
		EpochLength: all.EpochLength, LogLevel: all.LogLevel, OnSettings: p.configured,
		State: p.state, MemoryLimit: int64(cfg.MemoryLimit),
		Record: recorder.Recording{Path: cfg.Record, Limit: int64(cfg.RecordLimit)},
	}
	for name, value := range cfg.Environment {
		spec.Env = append(spec.Env, name+"="+value.Reveal())
	}
	slices.Sort(spec.Env)
	inst, err := c.deps.Launch(ctx, spec)
	if err != nil {
		return nil, located(cfg.Config, err)
	}
	if err := c.deps.Schema.Adopt(inst.Describe()); err != nil {
		inst.Stop(ctx)
		return nil, err
	}
	for _, m := range inst.Describe().Modules {
		if w := c.deps.Schema.Current().Warnings(m.Name); len(w) > 0 {
			c.log.Warn("a YANG module of the plugin does not follow the rules for modules of results", "plugin", cfg.Name,
				"module", m.Name, "warnings", len(w), "first", w[0])
		}
	}
	p.inst = inst
	return p, nil
}

// located turns a plugin's errors about configuration fields into problems with their place in the
// file.
func located(s settings.Section, err error) error {
	var fields settings.KeyErrors
	if !errors.As(err, &fields) {
		return err
	}
	problems := make(settings.Problems, len(fields))
	for i, f := range fields {
		problems[i] = s.Problem(f.Key, f.Message)
	}
	return fmt.Errorf("%w: %w", pluginhost.ErrConfig, problems)
}

// stopPlugin drains a plugin and removes its results from the store. The caller holds c.changing.
func (c *Component) stopPlugin(ctx context.Context, name string) {
	c.mu.Lock()
	p := c.plugins[name]
	delete(c.plugins, name)
	delete(c.failed, name)
	c.mu.Unlock()
	if p != nil {
		p.end()
		p.inst.Stop(ctx)
		c.release(name)
		c.withdraw(p)
		c.deps.Plans.Drop(name)
	}
}

// running returns the plugins by name.
func (c *Component) running() []*plugin {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]*plugin, 0, len(c.plugins))
	for _, p := range c.plugins {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *plugin) int { return strings.Compare(a.name, b.name) })
	return out
}

// plugin returns the plugin of that name, or nil if it does not run.
func (c *Component) plugin(name string) *plugin {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.plugins[name]
}

// Running returns the number of plugins that were started.
func (c *Component) Running() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.plugins)
}
