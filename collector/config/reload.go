// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"reflect"
	"slices"
)

// Changes are what a running collector does to follow a new configuration.
type Changes struct {
	// DevicesAdded are to be connected to.
	DevicesAdded []Device
	// DevicesRemoved are the names of switches to disconnect from.
	DevicesRemoved []string
	// DevicesChanged are to be reconnected.
	DevicesChanged []Device
	// Network reports changed links or hosts: routes are to be computed again.
	Network bool
	// PluginsAdded are to be started.
	PluginsAdded []Plugin
	// PluginsRemoved are the names of instances to drain and stop.
	PluginsRemoved []string
	// PluginsReconfigured keep running, with a new configuration.
	PluginsReconfigured []Plugin
	// PluginsRestarted are to be drained and restarted: their binary or environment changed.
	PluginsRestarted []Plugin
	// Log reports a changed log level.
	Log bool
	// NeedRestart are the changed keys that take effect only after a restart of the collector.
	NeedRestart []string
}

// Empty reports whether nothing changed.
func (c Changes) Empty() bool { return reflect.DeepEqual(c, Changes{}) }

// String summarizes the changes in one line for the log.
func (c Changes) String() string {
	if c.Empty() {
		return "nothing changed"
	}
	return fmt.Sprintf("devices +%d -%d ~%d, plugins +%d -%d ~%d, network %t, log %t, needs restart %v",
		len(c.DevicesAdded), len(c.DevicesRemoved), len(c.DevicesChanged), len(c.PluginsAdded), len(c.PluginsRemoved),
		len(c.PluginsReconfigured)+len(c.PluginsRestarted), c.Network, c.Log, c.NeedRestart)
}

// Compare returns the changes from old to new.
func Compare(old, new *Config) Changes {
	var c Changes
	compareDevices(&c, old, new)
	comparePlugins(&c, old, new)
	c.Network = !reflect.DeepEqual(old.Links, new.Links) || !reflect.DeepEqual(old.Hosts, new.Hosts)
	c.Log = old.Log.Level != new.Log.Level
	c.NeedRestart = fixedKeys(reflect.ValueOf(*old), reflect.ValueOf(*new), "")
	return c
}

// fixedKeys returns the keys that differ and that a running collector does not follow. A struct
// without live keys counts as one key.
func fixedKeys(old, new reflect.Value, path string) []string {
	var keys []string
	for _, f := range fieldsOf(old.Type()) {
		a, b, at := old.FieldByIndex(f.Index), new.FieldByIndex(f.Index), join(path, f.key)
		switch {
		case f.Tag.Get("live") != "":
		case a.Kind() == reflect.Struct && slices.ContainsFunc(fieldsOf(a.Type()),
			func(f field) bool { return f.Tag.Get("live") != "" }):
			keys = append(keys, fixedKeys(a, b, at)...)
		case !same(a.Interface(), b.Interface()):
			keys = append(keys, at)
		}
	}
	return keys
}

// same compares values; positions of sections do not count.
func same(a, b any) bool {
	if x, ok := a.([]Output); ok {
		return slices.EqualFunc(x, b.([]Output), func(x, y Output) bool {
			return x.Type == y.Type && x.Name == y.Name && x.Settings.Equal(y.Settings)
		})
	}
	return reflect.DeepEqual(a, b)
}

func compareDevices(c *Changes, old, new *Config) {
	before := map[string]Device{}
	for _, d := range old.Devices {
		before[d.Name] = d
	}
	for _, d := range new.Devices {
		was, exists := before[d.Name]
		switch {
		case !exists:
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
		was, exists := before[p.Name]
		delete(before, p.Name)
		switch {
		case !exists:
			c.PluginsAdded = append(c.PluginsAdded, p)
		case !reflect.DeepEqual(was.process(), p.process()):
			c.PluginsRestarted = append(c.PluginsRestarted, p)
		case !was.Config.Equal(p.Config) || was.Deadline != p.Deadline || !reflect.DeepEqual(was.Devices, p.Devices):
			c.PluginsReconfigured = append(c.PluginsReconfigured, p)
		}
	}
	for _, p := range old.Plugins.Instances {
		if _, gone := before[p.Name]; gone {
			c.PluginsRemoved = append(c.PluginsRemoved, p.Name)
		}
	}
}

// process returns the plugin without the keys that a running process follows.
func (p Plugin) process() Plugin {
	p.Config, p.Deadline, p.Devices = Section{}, 0, nil
	return p
}
