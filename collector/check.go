// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/netsketch/netsketch/collector/pluginhost"
	"github.com/netsketch/netsketch/collector/schema"
	"github.com/netsketch/netsketch/collector/southbound"
	"github.com/netsketch/netsketch/internal/certs"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/settings"
	"github.com/netsketch/netsketch/yang"
)

// Check reports problems that config.Load cannot find: devices that cannot be set up, for example
// because their pipeline is unknown, and plugins that do not start or refuse their configuration.
// It starts the plugins briefly, and opens no connection. It is an error if no switch and no host
// could measure for the plugins.
func Check(ctx context.Context, cfg *config.Config, deps Dependencies) (Checked, error) {
	next := *cfg
	next.Plugins.StateDirectory = ""
	next.Plugins.Instances = slices.Clone(cfg.Plugins.Instances)
	for i := range next.Plugins.Instances {
		next.Plugins.Instances[i].Record = ""
	}
	deps.Logger = slog.New(slog.DiscardHandler)
	c, err := New(&next, deps)
	if err != nil {
		return Checked{}, err
	}
	checked := Checked{}
	if err = errors.Join(c.network.Faults()...); err == nil {
		checked.Programs = c.network.Programs()
	}
	if startErr := c.analysis.Start(ctx); startErr != nil {
		err = errors.Join(err, startErr)
	}
	failed := c.analysis.Failed()
	for _, name := range slices.Sorted(maps.Keys(failed)) {
		var inFile settings.Problems
		if errors.As(failed[name], &inFile) {
			err = errors.Join(err, inFile)
			continue
		}
		err = errors.Join(err, failed[name])
	}
	unmeasured := c.network.Unmeasured()
	if len(unmeasured) == len(cfg.Devices) && len(cfg.Plugins.Instances) > 0 && cfg.Agents.Address == "" &&
		cfg.Cluster.Name == "" {
		err = errors.Join(err, fmt.Errorf("no epoch can be complete: there are no host agents (agents.address), and "+
			"nothing is measured at switches: %w", errors.Join(unmeasured...)))
	}
	checked.Warnings, checked.HostRoles = append(c.analysis.Missing(), c.certs.Warnings()...), c.HostRoles()
	return checked, errors.Join(err, c.Stop(context.WithoutCancel(ctx)))
}

// Checked is the result of Check.
type Checked struct {
	Warnings  []string        // what plugins need and the network lacks, and certificates that are not used or not valid
	HostRoles []string        // roles of host agents for which plugins have settings
	Programs  []*p4rt.Program // programs of devices from files, each once; nil if a device has a fault
}

// Network returns the network that a collector passes to the instance of a plugin with this name,
// or to plugins that all devices are selected for if the name is empty. Links that are not
// configured, but found by LLDP, are missing. It opens no connection.
func Network(ctx context.Context, cfg *config.Config, plugin string, deps Dependencies) (sdk.Network, error) {
	i := slices.IndexFunc(cfg.Plugins.Instances, func(p config.Plugin) bool { return p.Name == plugin })
	if i < 0 && plugin != "" {
		return sdk.Network{}, fmt.Errorf("plugins.instances: no plugin has the name %q", plugin)
	}
	deps.Logger = slog.New(slog.DiscardHandler)
	c, err := New(cfg, deps)
	if err != nil {
		return sdk.Network{}, err
	}
	network := c.network.Model()
	if i >= 0 {
		network.Devices = slices.DeleteFunc(network.Devices,
			func(d sdk.Device) bool { return !cfg.Plugins.Instances[i].Selects(d.Name) })
	}
	return network, errors.Join(errors.Join(c.network.Faults()...), c.Stop(context.WithoutCancel(ctx)))
}

// CheckSessions subscribes over gNMI to every device that has a gNMI section, and waits until each
// has sent values. The error names the devices that have sent none when ctx ends, with the reasons.
func CheckSessions(ctx context.Context, cfg *config.Config) error {
	registry, err := schema.New(slices.Concat(yang.CollectorModules(), yang.SwitchModules()))
	if err != nil {
		return err
	}
	d, err := southbound.New(cfg, southbound.Dependencies{
		Schema: registry.Current, Certificates: certs.New(certs.Options{}),
		Publish: func(store.Batch) error { return nil },
	})
	if err != nil {
		return err
	}
	return d.CheckSessions(ctx)
}

// autoload returns the configuration, extended by an instance of every plugin in the plugin
// directory if plugins.autoload is set. Otherwise, it logs the plugins that no instance names.
func (c *Collector) autoload(cfg *config.Config) *config.Config {
	var others []string
	found, refused, err := pluginhost.Discover(cfg.Plugins.Directory)
	if err != nil { // a configured plugin reports this error when it starts
		if cfg.Plugins.Autoload {
			c.log.Error("no plugins are loaded from the directory", "error", err)
		}
		return cfg
	}
	for _, candidate := range found {
		if !slices.ContainsFunc(cfg.Plugins.Instances, func(p config.Plugin) bool {
			return p.Binary() == candidate.Name
		}) {
			others = append(others, candidate.Name)
		}
	}
	if cfg.Plugins.Autoload {
		for _, r := range refused {
			c.log.Error("a plugin of the directory is not loaded", "file", r.Path, "error", r.Err)
		}
	}
	switch {
	case len(others) == 0:
		return cfg
	case cfg.Plugins.Autoload:
		next, err := cfg.WithPlugins(others)
		if err != nil {
			c.log.Error("some plugins of the directory are not loaded", "error", err)
		}
		return next
	}
	c.log.Info(fmt.Sprintf("plugins in %s are not in the configuration, so they do not run; plugins.autoload runs them",
		cfg.Plugins.Directory), "plugins", others)
	return cfg
}
