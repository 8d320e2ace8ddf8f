// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/netsketch/netsketch/collector/config"
	"github.com/netsketch/netsketch/collector/pluginhost"
	"github.com/netsketch/netsketch/collector/store"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// instance is what the collector needs of a pluginhost.Instance.
type instance interface {
	Describe() sdk.Description
	Analyse(ctx context.Context, e *sdk.Epoch) (*sdk.Results, error)
	SetWatched(rows []sdk.Watch)
	SetNetwork(ctx context.Context, n sdk.Network) (sdk.Settings, error)
	Configure(ctx context.Context, config []byte, n sdk.Network) (sdk.Settings, error)
	Status() pluginhost.Status
	State() *sdk.State
	Stop(ctx context.Context)
}

// plugins are the plugin instances and what they are told.
type plugins struct {
	c      *Collector
	log    *slog.Logger
	launch func(ctx context.Context, spec pluginhost.Spec) (instance, error) // tests replace it
	ctx    context.Context                                                   // of analyses
	cancel context.CancelFunc

	mu      sync.Mutex
	runs    map[string]*pluginRun
	failed  map[string]failure // configured and not running
	watched map[string]store.Watch
	objects map[string]int // registers of switches that keep their own pipeline
	reports reports
}

// failure is a plugin that did not start.
type failure struct {
	plugin config.Plugin
	err    error
}

func newPlugins(c *Collector) *plugins {
	p := &plugins{
		c: c, log: c.log, runs: map[string]*pluginRun{}, failed: map[string]failure{}, watched: map[string]store.Watch{}, objects: map[string]int{},
	}
	p.launch = func(ctx context.Context, spec pluginhost.Spec) (instance, error) { return c.host.Start(ctx, spec) }
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// startAll starts the configured plugins side by side.
func (p *plugins) startAll(ctx context.Context, cfg config.Plugins) {
	var all sync.WaitGroup
	for _, one := range cfg.Instances {
		all.Go(func() { p.start(ctx, cfg.Directory, one) })
	}
	all.Wait()
}

// FailedPlugins returns why configured plugins do not run, by the instance's name: those
// that could not be started, not those that died and are being restarted.
func (c *Collector) FailedPlugins() map[string]error {
	p := c.plugins
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[string]error, len(p.failed))
	for name, f := range p.failed {
		out[name] = f.err
	}
	return out
}

// start brings one plugin up. A plugin that cannot run is logged and shown in the state.
func (p *plugins) start(ctx context.Context, folder string, cfg config.Plugin) {
	r, err := p.bringUp(ctx, folder, cfg)
	p.mu.Lock()
	before, again := p.failed[cfg.Name]
	if err != nil {
		p.failed[cfg.Name] = failure{cfg, err}
	} else {
		delete(p.failed, cfg.Name)
		p.runs[cfg.Name] = r
	}
	p.mu.Unlock()
	switch {
	case err != nil && again && before.err.Error() == err.Error(): // said already
	case err != nil:
		p.log.Error("plugin does not run", "plugin", cfg.Name, "error", err)
	default:
		p.log.Info("plugin runs", "plugin", cfg.Name, "version", r.inst.Describe().Version)
		r.inst.SetWatched(p.watchedBy(r))
	}
	p.c.metrics.changed()
}

// retry tries again to start plugins that did not start, as often as those that die are restarted, until ctx ends.
// What is wrong with a configuration does not mend itself: that waits for the file to change.
func (p *plugins) retry(ctx context.Context) {
	pace := p.c.Config().Plugins.Restart
	wait := pace.Initial
	for {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		p.mu.Lock()
		var due []config.Plugin
		for _, f := range p.failed {
			if !errors.Is(f.err, pluginhost.ErrConfig) {
				due = append(due, f.plugin)
			}
		}
		p.mu.Unlock()
		if len(due) == 0 {
			wait = pace.Initial
			continue
		}
		wait = min(2*wait, pace.Maximum)
		if !p.c.reloading.TryLock() {
			continue // a new configuration is being taken up, or all ends
		}
		for _, cfg := range due {
			if ctx.Err() == nil {
				p.start(ctx, p.c.folder, cfg)
			}
		}
		p.c.bindAll()
		p.c.reloading.Unlock()
	}
}

func (p *plugins) bringUp(ctx context.Context, folder string, cfg config.Plugin) (*pluginRun, error) {
	path, err := findPlugin(folder, cfg.Plugin)
	if err != nil {
		return nil, err
	}
	settings, err := cfg.Config.JSON()
	if err != nil {
		return nil, err
	}
	r := newPluginRun(p, cfg)
	spec := pluginhost.Spec{
		Name: cfg.Name, Path: path, SHA256: cfg.SHA256.String(), Config: settings, Network: r.network(),
		EpochLength: p.c.Config().Epoch.Interval, LogLevel: p.c.Config().Log.Level, OnSettings: r.configured,
		State: p.savedState(cfg.Name, cfg.Plugin),
	}
	for name, value := range cfg.Environment {
		spec.Env = append(spec.Env, name+"="+value.Reveal())
	}
	slices.Sort(spec.Env)
	if r.inst, err = p.launch(ctx, spec); err != nil {
		return nil, located(cfg.Config, err)
	}
	if err := p.c.schema.adopt(r.inst.Describe()); err != nil {
		r.inst.Stop(ctx)
		return nil, err
	}
	r.begin()
	return r, nil
}

// located turns a plugin's complaints about fields of its configuration into problems of the file.
func located(s config.Section, err error) error {
	var fields sdk.FieldErrors
	if !errors.As(err, &fields) {
		return err
	}
	problems := make(config.Problems, len(fields))
	for i, f := range fields {
		at, path := s.Locate(f.Field)
		problems[i] = config.Problem{Position: at, Path: path, Message: f.Message}
	}
	return fmt.Errorf("%w: %w", pluginhost.ErrConfig, problems)
}

// findPlugin finds a binary by the plugin's name in the folder, or takes a path as it is.
func findPlugin(folder, name string) (string, error) {
	if strings.ContainsRune(name, filepath.Separator) {
		return name, nil
	}
	for _, file := range []string{pluginhost.FilePrefix + name, name} {
		path := filepath.Join(folder, file)
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			return path, nil
		}
	}
	found, err := filepath.Glob(filepath.Join(folder, pluginhost.FilePrefix+"*"))
	if err != nil || len(found) == 0 {
		return "", fmt.Errorf("no file %s%s in %s", pluginhost.FilePrefix, name, folder)
	}
	for i, f := range found {
		found[i] = strings.TrimPrefix(filepath.Base(f), pluginhost.FilePrefix)
	}
	return "", fmt.Errorf("no plugin %q in %s; there are %s", name, folder, strings.Join(found, ", "))
}

// stop drains one plugin and forgets it.
func (p *plugins) stop(ctx context.Context, name string) {
	p.mu.Lock()
	r := p.runs[name]
	delete(p.runs, name)
	delete(p.failed, name)
	p.mu.Unlock()
	if r != nil {
		r.end()
		r.inst.Stop(ctx)
		p.c.withdraw(r)
		p.c.plans.drop(name)
	}
}

// stopWorkers abandons what is being analysed and ends the goroutines. The processes are the host's
// to stop.
func (p *plugins) stopWorkers() {
	p.cancel()
	for _, r := range p.running() {
		r.end()
	}
	p.reports.wait()
}

// running lists the instances by name.
func (p *plugins) running() []*pluginRun {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]*pluginRun, 0, len(p.runs))
	for _, r := range p.runs {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b *pluginRun) int { return strings.Compare(a.cfg.Name, b.cfg.Name) })
	return out
}

// bindings are the registers that some plugin reads, by device.
func (p *plugins) bindings() map[string][]string {
	all := map[string][]string{}
	for _, r := range p.running() {
		for dev, objects := range r.bindings() {
			for o := range objects {
				all[dev] = append(all[dev], o)
			}
		}
	}
	return all
}

// setNetwork tells all plugins the network anew.
func (p *plugins) setNetwork(ctx context.Context) {
	for _, r := range p.running() {
		if _, err := r.inst.SetNetwork(ctx, r.network()); err != nil {
			p.log.Error("plugin does not take the network", "plugin", r.cfg.Name, "error", err)
		}
	}
}

// knows notes how many registers a switch has, and reports whether it was known.
func (p *plugins) knows(name string, objects int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n, ok := p.objects[name]; ok && n == objects {
		return true
	}
	p.objects[name] = objects
	return false
}

// watch hears of rows that subscribers name one by one. It is the store's callback.
func (p *plugins) watch(added, removed []store.Watch) {
	p.mu.Lock()
	for _, w := range removed {
		delete(p.watched, watchID(w))
	}
	for _, w := range added {
		p.watched[watchID(w)] = w
	}
	p.mu.Unlock()
	for _, r := range p.running() {
		r.inst.SetWatched(p.watchedBy(r))
	}
}

func watchID(w store.Watch) string {
	return w.Target + "\x00" + w.List + "\x00" + strings.Join(w.Keys, "\x00")
}

// watchedBy lists what a plugin can answer of what is watched, in a stable order.
func (p *plugins) watchedBy(r *pluginRun) []sdk.Watch {
	watchable := map[string]bool{}
	for _, l := range r.inst.Describe().Lists {
		if l.Watchable {
			watchable[l.Path] = true
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var ids []string
	for id, w := range p.watched {
		if watchable[w.List] {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	rows := make([]sdk.Watch, 0, len(ids))
	for _, id := range ids {
		w := p.watched[id]
		list, err := p.c.schema.current().List(w.List)
		if err != nil || len(list.Keys) != len(w.Keys) {
			continue // the schema has no such list any more
		}
		row := sdk.Watch{List: w.List, Target: w.Target, Keys: map[string]string{}}
		if row.Target == p.c.store.DefaultTarget() {
			row.Target = ""
		}
		for i, k := range list.Keys {
			row.Keys[k.Name] = w.Keys[i]
		}
		rows = append(rows, row)
	}
	return rows
}

// watchedRows is how many rows are watched.
func (p *plugins) watchedRows() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.watched)
}

// reconfigure gives a running plugin another configuration.
func (p *plugins) reconfigure(ctx context.Context, cfg config.Plugin) error {
	p.mu.Lock()
	r := p.runs[cfg.Name]
	p.mu.Unlock()
	if r == nil {
		return errors.New("the plugin does not run")
	}
	settings, err := cfg.Config.JSON()
	if err != nil {
		return err
	}
	before := r.config()
	r.setConfig(cfg, nil)
	if _, err := r.inst.Configure(ctx, settings, r.network()); err != nil {
		err = located(cfg.Config, err)
		r.setConfig(before, fmt.Errorf("keeps its configuration: %w", err))
		return err
	}
	return nil
}

func (p *plugins) isRunning(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.runs[name] != nil
}
