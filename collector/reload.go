// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"errors"
	"fmt"

	"github.com/netsketch/netsketch/collector/config"
	"github.com/netsketch/netsketch/collector/topology"
)

// Reload makes a running collector follow a new configuration as far as it can without a restart,
// and returns what changed; Changes.NeedRestart names what it could not. Whatever fails is joined in
// the error, and the rest is done.
func (c *Collector) Reload(ctx context.Context, next *config.Config) (config.Changes, error) {
	c.reloading.Lock()
	defer c.reloading.Unlock()
	if c.stopped || !c.started {
		return config.Changes{}, errors.New("collector: reload while it does not run")
	}
	changes := config.Compare(c.Config(), next)
	if changes.Empty() {
		return changes, nil
	}
	topo, err := c.discovery.topology(next)
	if err != nil {
		return changes, err
	}
	c.mu.Lock()
	c.cfg, c.topo = next, topo
	c.version++
	c.mu.Unlock()
	if changes.Log && c.deps.Level != nil {
		c.deps.Level.Set(next.Log.Level)
	}
	var errs []error
	errs = append(errs, c.reloadDevices(ctx, topo, changes))
	errs = append(errs, c.reloadPlugins(ctx, changes))
	c.bindAll()
	c.discovery.changed()
	c.metrics.changed()
	if len(changes.NeedRestart) > 0 {
		c.log.Warn("some changes take effect only when the collector is restarted", "keys", changes.NeedRestart)
	}
	c.log.Info("configuration reloaded", "changes", changes.String())
	return changes, errors.Join(errs...)
}

func (c *Collector) reloadDevices(ctx context.Context, topo *topology.Topology, changes config.Changes) error {
	var errs []error
	for _, name := range changes.DevicesRemoved {
		c.removeDevice(name)
	}
	for _, d := range changes.DevicesChanged {
		c.removeDevice(d.Name)
	}
	var fresh []managed
	for _, list := range [][]config.Device{changes.DevicesChanged, changes.DevicesAdded} {
		for _, d := range list {
			if err := errors.Join(c.addDevice(d), c.discovery.add(d)); err != nil {
				errs = append(errs, err)
				continue
			}
			if m := c.device(d.Name); m != nil {
				fresh = append(fresh, m)
			}
		}
	}
	if changes.Network {
		for _, m := range c.managedDevices() {
			if err := m.SetRoutes(ctx, topo.Routes(m.Name())); err != nil {
				errs = append(errs, fmt.Errorf("device %s: routes: %w", m.Name(), err))
			}
		}
	}
	if changes.Network || len(fresh) > 0 || len(changes.DevicesRemoved) > 0 {
		c.plugins.setNetwork(ctx)
	}
	c.bindAll()
	for _, m := range fresh {
		c.startDevice(m)
	}
	return errors.Join(errs...)
}

func (c *Collector) reloadPlugins(ctx context.Context, changes config.Changes) error {
	var errs []error
	for _, name := range changes.PluginsRemoved {
		c.plugins.stop(ctx, name)
	}
	for _, p := range changes.PluginsRestarted {
		c.plugins.stop(ctx, p.Name)
	}
	for _, list := range [][]config.Plugin{changes.PluginsRestarted, changes.PluginsAdded} {
		for _, p := range list {
			c.plugins.start(ctx, c.folder, p)
		}
	}
	for _, p := range changes.PluginsReconfigured {
		if !c.plugins.isRunning(p.Name) { // it never started: perhaps it does with this configuration
			c.plugins.start(ctx, c.folder, p)
			continue
		}
		if err := c.plugins.reconfigure(ctx, p); err != nil {
			errs = append(errs, fmt.Errorf("plugin %s keeps its configuration: %w", p.Name, err))
		}
	}
	return errors.Join(errs...)
}
