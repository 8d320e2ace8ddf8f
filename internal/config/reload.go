// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/settings"
)

// Changes are the actions by which a running collector follows a new configuration.
type Changes struct {
	// DevicesAdded are the switches to connect to.
	DevicesAdded []Device
	// DevicesRemoved are the names of switches to disconnect from.
	DevicesRemoved []string
	// DevicesChanged are the switches to disconnect from and connect to again.
	DevicesChanged []Device
	// LinksAdded and LinksRemoved are links, written as leaf1/1-spine1/1. Routes are computed again.
	LinksAdded, LinksRemoved []string
	// HostsAdded, HostsRemoved and HostsChanged are names of hosts. Routes are computed again.
	HostsAdded, HostsRemoved, HostsChanged []string
	// PluginsAdded are the instances to start.
	PluginsAdded []Plugin
	// PluginsRemoved are the names of instances to drain and stop.
	PluginsRemoved []string
	// PluginsReconfigured are the running instances that get a new configuration.
	PluginsReconfigured []Plugin
	// PluginsRestarted are the instances to drain and restart: their binary, its file, their
	// environment or their memory limit changed.
	PluginsRestarted []Plugin
	// Log is set if the log level changed, Reload if the section "reload" changed.
	Log, Reload bool
	// NeedRestart are the changed keys that take effect only after a restart of the collector.
	NeedRestart []string
}

// Empty reports whether nothing changed.
func (c Changes) Empty() bool { return reflect.DeepEqual(c, Changes{}) }

// Network reports whether links or hosts changed.
func (c Changes) Network() bool {
	return len(c.LinksAdded)+len(c.LinksRemoved)+len(c.HostsAdded)+len(c.HostsRemoved)+len(c.HostsChanged) > 0
}

// String lists the changes in one line for the log.
func (c Changes) String() string {
	if c.Empty() {
		return "nothing changed"
	}
	var parts []string
	for _, p := range []struct {
		what  string
		names []string
	}{
		{"devices added", namesOf(c.DevicesAdded, Device.key)},
		{"devices removed", c.DevicesRemoved},
		{"devices changed", namesOf(c.DevicesChanged, Device.key)},
		{"links added", c.LinksAdded},
		{"links removed", c.LinksRemoved},
		{"hosts added", c.HostsAdded},
		{"hosts removed", c.HostsRemoved},
		{"hosts changed", c.HostsChanged},
		{"plugins added", namesOf(c.PluginsAdded, Plugin.key)},
		{"plugins removed", c.PluginsRemoved},
		{"plugins changed", namesOf(slices.Concat(c.PluginsReconfigured, c.PluginsRestarted), Plugin.key)},
		{"keys that need a restart", c.NeedRestart},
	} {
		if len(p.names) > 0 {
			parts = append(parts, p.what+": "+someOf(p.names))
		}
	}
	if c.Log {
		parts = append(parts, "log level")
	}
	if c.Reload {
		parts = append(parts, "reload")
	}
	return strings.Join(parts, "; ")
}

// maxNames bounds how many names of each kind a log line or a leaf lists.
const maxNames = 8

// someOf joins at most maxNames names, and appends the count of the remaining names.
func someOf(names []string) string {
	if len(names) > maxNames {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), len(names)-maxNames)
	}
	return strings.Join(names, ", ")
}

// Compare returns the changes from old to new.
func Compare(old, new *Config) Changes {
	var c Changes
	c.DevicesAdded, c.DevicesChanged, c.DevicesRemoved = compareLists(old.Devices, new.Devices, Device.key)
	links, _, removed := compareLists(old.Links, new.Links, Link.key)
	c.LinksAdded, c.LinksRemoved = namesOf(links, Link.key), removed
	hosts, changed, removed := compareLists(old.Hosts, new.Hosts, Host.key)
	c.HostsAdded, c.HostsChanged, c.HostsRemoved = namesOf(hosts, Host.key), namesOf(changed, Host.key), removed
	comparePlugins(&c, old, new)
	c.Log, c.Reload = old.Log.Level != new.Log.Level, old.Reload != new.Reload
	c.NeedRestart = fixedKeys(reflect.ValueOf(*old), reflect.ValueOf(*new), "")
	return c
}

func (d Device) key() string { return d.Name }
func (l Link) key() string   { return l.From.String() + "-" + l.To.String() }
func (h Host) key() string   { return h.Name }
func (p Plugin) key() string { return p.Name }

func namesOf[T any](list []T, key func(T) string) []string {
	var names []string
	for _, x := range list {
		names = append(names, key(x))
	}
	return names
}

// compareLists compares the entries of two lists by key. added are entries whose key only new has,
// changed are new's entries that differ from old's, and removed are keys that only old has.
func compareLists[T any](old, new []T, key func(T) string) (added, changed []T, removed []string) {
	before := map[string]T{}
	for _, x := range old {
		before[key(x)] = x
	}
	for _, x := range new {
		was, exists := before[key(x)]
		delete(before, key(x))
		switch {
		case !exists:
			added = append(added, x)
		case !reflect.DeepEqual(was, x):
			changed = append(changed, x)
		}
	}
	for _, x := range old {
		if _, gone := before[key(x)]; gone {
			removed = append(removed, key(x))
		}
	}
	return added, changed, removed
}

// fixedKeys returns the keys that differ and that take effect only after a restart. A struct
// without live keys counts as one key.
func fixedKeys(old, new reflect.Value, path string) []string {
	var keys []string
	for _, f := range settings.Fields(old.Type()) {
		a, b, at := old.FieldByIndex(f.Index), new.FieldByIndex(f.Index), settings.Join(path, f.Key)
		switch {
		case f.Tag.Get("live") != "":
		case hasLive(a.Type()):
			keys = append(keys, fixedKeys(a, b, at)...)
		case !same(a.Interface(), b.Interface()):
			keys = append(keys, at)
		}
	}
	return keys
}

// KeepFixed returns c with the running configuration's values of the keys that take effect only
// after a restart, and the keys whose values differ.
func (c *Config) KeepFixed(running *Config) (kept *Config, needRestart []string) {
	k := *c
	keepFixed(reflect.ValueOf(*running), reflect.ValueOf(&k).Elem())
	return &k, fixedKeys(reflect.ValueOf(*running), reflect.ValueOf(*c), "")
}

func keepFixed(running, kept reflect.Value) {
	for _, f := range settings.Fields(kept.Type()) {
		if f.Tag.Get("live") != "" {
			continue
		}
		from, to := running.FieldByIndex(f.Index), kept.FieldByIndex(f.Index)
		if hasLive(to.Type()) {
			keepFixed(from, to)
			continue
		}
		to.Set(from)
	}
}

// hasLive reports whether t is a struct with keys that take effect without a restart.
func hasLive(t reflect.Type) bool {
	return t.Kind() == reflect.Struct &&
		slices.ContainsFunc(settings.Fields(t), func(f settings.Field) bool { return f.Tag.Get("live") != "" })
}

// same reports whether two values are equal; positions of sections in the file do not count.
func same(a, b any) bool {
	if x, ok := a.([]Output); ok {
		return slices.EqualFunc(x, b.([]Output), func(x, y Output) bool {
			return x.Type == y.Type && x.Name == y.Name && x.Settings.Equal(y.Settings)
		})
	}
	return reflect.DeepEqual(a, b)
}

func comparePlugins(c *Changes, old, new *Config) {
	before := map[string]Plugin{}
	for _, p := range old.Plugins.Instances {
		before[p.Name] = p
	}
	var changed []Plugin
	c.PluginsAdded, changed, c.PluginsRemoved = compareLists(old.Plugins.Instances, new.Plugins.Instances, Plugin.key)
	for _, p := range changed {
		was := before[p.Name]
		switch {
		case !reflect.DeepEqual(was.process(), p.process()):
			c.PluginsRestarted = append(c.PluginsRestarted, p)
		case !was.Config.Equal(p.Config) || was.Deadline != p.Deadline || !reflect.DeepEqual(was.Devices, p.Devices):
			c.PluginsReconfigured = append(c.PluginsReconfigured, p)
		}
	}
}

// RestartPlugins adds instances of the new configuration to those that restart, because their files
// have been replaced.
func (c *Changes) RestartPlugins(next *Config, replaced []string) {
	named := func(name string) func(Plugin) bool { return func(p Plugin) bool { return p.Name == name } }
	for _, name := range replaced {
		c.PluginsReconfigured = slices.DeleteFunc(c.PluginsReconfigured, named(name))
		i := slices.IndexFunc(next.Plugins.Instances, named(name))
		if i >= 0 && !slices.ContainsFunc(c.PluginsRestarted, named(name)) {
			c.PluginsRestarted = append(c.PluginsRestarted, next.Plugins.Instances[i])
		}
	}
	if len(c.PluginsReconfigured) == 0 {
		c.PluginsReconfigured = nil
	}
}

// process returns the plugin without the keys that a running process can take over, so that the
// rest can be compared.
func (p Plugin) process() Plugin {
	p.Config, p.Deadline, p.Devices = settings.Section{}, 0, nil
	return p
}
