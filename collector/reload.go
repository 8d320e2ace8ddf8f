// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/netsketch/netsketch/internal/config"
)

// ErrHeld is wrapped if a configuration removes more than reload.max-removal allows. The same
// configuration applies when it is requested again after reload.confirm-after.
var ErrHeld = errors.New("it removes more than reload.max-removal allows")

// reloads holds the outcome of the latest reload, and the configuration that waits for
// confirmation.
type reloads struct {
	mu     sync.Mutex
	status config.ReloadStatus
	held   *config.Config // the configuration that waits for confirmation; nil if none waits
}

// get returns the outcome of the latest reload.
func (r *reloads) get() config.ReloadStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

// set records the outcome of a reload.
func (r *reloads) set(state config.ReloadState, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = config.ReloadStatus{State: state, Time: time.Now(), Reason: strings.ReplaceAll(reason, "\n", "; ")}
	r.held = nil
}

// hold keeps a configuration that needs confirmation, and returns the time from which on it can be
// confirmed. known is true if the same configuration was already held.
func (r *reloads) hold(next *config.Config, removal string, after time.Duration) (from time.Time, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held != nil && config.Compare(r.held, next).Empty() {
		return r.status.ConfirmFrom, true
	}
	now := time.Now()
	r.held = next
	r.status = config.ReloadStatus{State: config.ReloadHeld, Time: now, Reason: ErrHeld.Error(), Removal: removal,
		ConfirmFrom: now.Add(after)}
	return r.status.ConfirmFrom, false
}

// Follow reloads the configuration when its file changes and for each value received from requests,
// until ctx ends. It logs every outcome.
func (c *Collector) Follow(ctx context.Context, path string, requests <-chan struct{}) {
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { c.watchPlugins(ctx) })
	config.Watch(ctx, path, c.Config(), requests, c.log, func(l config.Loaded) {
		if l.Err != nil {
			_ = c.refuse(l.Err) // refuse logs the error
			return
		}
		_, _ = c.reload(ctx, l.Config, l.Requested) // reload logs the error
	})
}

// pluginWatch is how often the files of plugins are compared, and how long a replaced file must
// remain unchanged before the plugin is restarted.
const pluginWatch = time.Second

// watchPlugins restarts the plugins whose files were replaced, if plugins.watch is set, until ctx
// ends.
func (c *Collector) watchPlugins(ctx context.Context) {
	ticker := time.NewTicker(pluginWatch)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if c.Config().Plugins.Watch && len(c.analysis.Replaced(pluginWatch)) > 0 {
			_, _ = c.reload(ctx, nil, false) // reload logs the error
		}
	}
}

// Reload applies a new configuration to a running collector and returns the changes;
// Changes.NeedRestart names the keys that take effect only after a restart. A configuration with a
// device that cannot be set up, or without any device, is refused as a whole. A configuration that
// removes too much is held (ErrHeld), and applies if Reload is called again with it after
// reload.confirm-after. A plugin that refuses its part keeps its earlier configuration, and a
// switch that refuses routes keeps its entries: the returned error joins these refusals, and the
// rest of the configuration applies.
func (c *Collector) Reload(ctx context.Context, next *config.Config) (config.Changes, error) {
	return c.reload(ctx, next, true)
}

// reload does the work of Reload; a nil next is the current configuration. requested is false if
// the file changed by itself: only a request (SIGHUP or Reload) confirms a held configuration.
func (c *Collector) reload(ctx context.Context, next *config.Config, requested bool) (config.Changes, error) {
	c.changing.Lock()
	defer c.changing.Unlock()
	if c.stopped || !c.started {
		return config.Changes{}, errors.New("collector: Reload without Start, or after Stop")
	}
	current := c.Config()
	if next == nil {
		next = current
	}
	// Keys that need a restart keep the values in force, so that later reloads name them again.
	next, needRestart := next.KeepFixed(current)
	next = c.autoload(next)
	changes := config.Compare(current, next)
	changes.NeedRestart = needRestart
	restart := c.analysis.Replaced(0)
	if requested {
		restart = slices.AppendSeq(restart, maps.Keys(c.analysis.Failed()))
	}
	changes.RestartPlugins(next, restart)
	if err := current.CheckComplete(next); err != nil {
		return changes, c.refuse(err)
	}
	topology, err := c.discovery.Topology(next)
	if err != nil {
		return changes, c.refuse(err)
	}
	plan, err := c.network.Prepare(next, topology, changes)
	err = errors.Join(err, c.discovery.Check(slices.Concat(changes.DevicesChanged, changes.DevicesAdded)))
	if err != nil {
		return changes, c.refuse(err)
	}
	if changes.Empty() && plan.Empty() {
		c.cfg.Store(next) // keeps the text of the new file, which CheckComplete and Removal compare with the next one
		c.reloads.set(config.ReloadApplied, "")
		c.self.Changed()
		c.log.Info("configuration reloaded: nothing changed")
		return changes, nil
	}
	if err := c.hold(current, next, requested); err != nil {
		return changes, err
	}
	c.cfg.Store(next)
	c.certs.Declare("devices", next.Certificates()...)
	if changes.Log && c.deps.Level != nil {
		c.deps.Level.Set(next.Log.Level)
	}
	if c.member == nil {
		c.hosts.SetHosts(next.AgentHosts())
	} else {
		c.member.Reload()
	}
	err = c.discovery.Reload(next, changes)
	c.devconfig.Reload(next)
	err = errors.Join(
		err,
		c.network.Reload(ctx, plan),
		c.analysis.Reload(ctx, analysisConfig(next), changes),
	)
	c.network.Bind(c.analysis.Bindings(), c.analysis.BankEpochs())
	c.network.Await() // a plugin may move to another member, which then needs other readings
	var reasons []string
	if err != nil {
		reasons = append(reasons, err.Error())
		c.log.Error("parts of the configuration could not be applied", "error", err)
	}
	if len(changes.NeedRestart) > 0 {
		reasons = append(reasons, "take effect when the collector is restarted: "+strings.Join(changes.NeedRestart, ", "))
		c.log.Warn("some changes take effect only when the collector is restarted", "keys", changes.NeedRestart)
	}
	c.reloads.set(config.ReloadApplied, strings.Join(reasons, "\n"))
	c.self.Changed()
	c.log.Info("configuration reloaded", "changes", changes.String())
	return changes, err
}

// refuse records and logs that the newest version of the file cannot be used, and returns the
// reason.
func (c *Collector) refuse(err error) error {
	c.reloads.set(config.ReloadRefused, err.Error())
	c.self.Changed()
	c.log.Error("the configuration has changed and cannot be used; the old one stays in force", "error", err)
	return err
}

// hold returns an error that wraps ErrHeld if next removes more than current allows and the
// removal is not confirmed.
func (c *Collector) hold(current, next *config.Config, requested bool) error {
	removal := current.Removal(next)
	if removal == "" {
		return nil
	}
	from, known := c.reloads.hold(next, removal, current.Reload.ConfirmAfter)
	if known && requested && !time.Now().Before(from) {
		c.log.Warn("the held configuration is confirmed", "removes", removal)
		return nil
	}
	c.self.Changed()
	at := from.Format(time.RFC3339)
	if !known || requested {
		c.log.Warn("the configuration has changed and is held: it removes more than reload.max-removal allows; the old "+
			"one stays in force. SIGHUP confirms it", "removes", removal, "confirm-from", at)
	}
	return fmt.Errorf("%w: %s; request it again from %s on", ErrHeld, removal, at)
}
