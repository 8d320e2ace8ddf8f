// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Changes is what a new configuration means for a collector that runs an old one.
type Changes struct {
	// DevicesAdded are to be connected to.
	DevicesAdded []Device
	// DevicesRemoved are the names of switches to leave.
	DevicesRemoved []string
	// DevicesChanged are to be left and connected to anew.
	DevicesChanged []Device
	// Network is set when links or hosts changed, so that routes are to be computed again.
	Network bool
	// PluginsAdded are to be started.
	PluginsAdded []Plugin
	// PluginsRemoved are the names of instances to drain and stop.
	PluginsRemoved []string
	// PluginsReconfigured run on with a new configuration.
	PluginsReconfigured []Plugin
	// PluginsRestarted are to be drained and started anew: their binary or environment changed.
	PluginsRestarted []Plugin
	// Log is set when the log's level changed.
	Log bool
	// NeedRestart names the keys whose change takes effect only when the collector is restarted.
	NeedRestart []string
}

// Empty reports whether nothing changed.
func (c Changes) Empty() bool { return reflect.DeepEqual(c, Changes{}) }

// String sums the changes up in one line for the log.
func (c Changes) String() string {
	if c.Empty() {
		return "nothing changed"
	}
	return fmt.Sprintf("devices +%d -%d ~%d, plugins +%d -%d ~%d, network %t, log %t, needs restart %v",
		len(c.DevicesAdded), len(c.DevicesRemoved), len(c.DevicesChanged), len(c.PluginsAdded), len(c.PluginsRemoved),
		len(c.PluginsReconfigured)+len(c.PluginsRestarted), c.Network, c.Log, c.NeedRestart)
}

// Compare says what changed from old to new.
func Compare(old, new *Config) Changes {
	var c Changes
	compareDevices(&c, old, new)
	comparePlugins(&c, old, new)
	c.Network = !reflect.DeepEqual(old.Links, new.Links) || !reflect.DeepEqual(old.Hosts, new.Hosts)
	c.Log = old.Log.Level != new.Log.Level
	for _, fixed := range []struct {
		key  string
		same bool
	}{
		{"name", old.Name == new.Name},
		{"epoch", old.Epoch == new.Epoch},
		{"plugins.directory", old.Plugins.Directory == new.Plugins.Directory},
		{"plugins.restart", old.Plugins.Restart == new.Plugins.Restart},
		{"outputs", sameOutputs(old.Outputs, new.Outputs)},
		{"log.format", old.Log.Format == new.Log.Format},
		{"metrics", old.Metrics == new.Metrics},
	} {
		if !fixed.same {
			c.NeedRestart = append(c.NeedRestart, fixed.key)
		}
	}
	return c
}

func compareDevices(c *Changes, old, new *Config) {
	before := map[string]Device{}
	for _, d := range old.Devices {
		before[d.Name] = d
	}
	for _, d := range new.Devices {
		was, known := before[d.Name]
		switch {
		case !known:
			c.DevicesAdded = append(c.DevicesAdded, d)
		case !reflect.DeepEqual(was, d):
			c.DevicesChanged = append(c.DevicesChanged, d)
		}
		delete(before, d.Name)
	}
	for _, d := range old.Devices {
		if _, gone := before[d.Name]; gone {
			c.DevicesRemoved = append(c.DevicesRemoved, d.Name)
		}
	}
}

func comparePlugins(c *Changes, old, new *Config) {
	before := map[string]Plugin{}
	for _, p := range old.Plugins.Instances {
		before[p.Name] = p
	}
	for _, p := range new.Plugins.Instances {
		was, known := before[p.Name]
		delete(before, p.Name)
		switch {
		case !known:
			c.PluginsAdded = append(c.PluginsAdded, p)
		case was.Plugin != p.Plugin || was.SHA256 != p.SHA256 ||
			!reflect.DeepEqual(was.Environment, p.Environment):
			c.PluginsRestarted = append(c.PluginsRestarted, p)
		case !sameSection(was.Config, p.Config) || was.Deadline != p.Deadline || !reflect.DeepEqual(was.Devices, p.Devices):
			c.PluginsReconfigured = append(c.PluginsReconfigured, p)
		}
	}
	for _, p := range old.Plugins.Instances {
		if _, gone := before[p.Name]; gone {
			c.PluginsRemoved = append(c.PluginsRemoved, p.Name)
		}
	}
}

func sameSection(a, b Section) bool {
	x, errX := a.Value()
	y, errY := b.Value()
	return errX == nil && errY == nil && reflect.DeepEqual(x, y)
}

func sameOutputs(a, b map[string]Section) bool {
	if len(a) != len(b) {
		return false
	}
	for name, s := range a {
		other, ok := b[name]
		if !ok || !sameSection(s, other) {
			return false
		}
	}
	return true
}

// settle is how long a file must rest before it is read: editors write in several steps.
const settle = 100 * time.Millisecond

// Watch calls changed with the newly loaded configuration, or with what is wrong with it, each time
// the file is written or replaced (also by renaming, and by Kubernetes's symbolic links), and for
// each value received from reload, which may be nil; wire SIGHUP to it. It returns when ctx ends,
// with nil, or at once when the folder cannot be watched and reload is nil.
func Watch(ctx context.Context, path string, reload <-chan struct{}, changed func(*Config, error)) error {
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		defer watcher.Close()
		err = watcher.Add(filepath.Dir(path))
	}
	var events chan fsnotify.Event
	switch {
	case err == nil:
		events = watcher.Events
	case reload == nil:
		return fmt.Errorf("watching %s: %w", path, err)
	}
	resolved := resolve(path)
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			now := resolve(path)
			if filepath.Clean(e.Name) == filepath.Clean(path) && !e.Has(fsnotify.Chmod) || now != resolved {
				resolved = now
				timer.Reset(settle)
			}
		case <-timer.C:
			changed(Load(path))
		case <-reload:
			changed(Load(path))
		}
	}
}

func resolve(path string) string {
	if r, err := filepath.EvalSymlinks(path); err == nil {
		return r
	}
	return path
}
