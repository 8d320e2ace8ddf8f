// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"time"

	"github.com/netsketch/netsketch/settings"
	"github.com/netsketch/netsketch/settings/yaml"
)

// Load reads and checks a file. The error is settings.Problems, or why the file could not be read.
func Load(path string) (*Config, error) {
	data, err := yaml.Read(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// Parse reads and checks YAML text; name stands for the file in errors. Relative file names in it
// are taken from the directory of name, ${VARIABLE} from the environment of the process.
func Parse(name string, data []byte) (*Config, error) {
	return ParseEnv(name, data, os.LookupEnv)
}

// ParseEnv works as Parse, but takes environment variables from env.
func ParseEnv(name string, data []byte, env func(string) (string, bool)) (*Config, error) {
	d := settings.NewDecoder(settings.NewReport(name, data))
	var c Config
	d.SetDefaults(&c)
	root := yaml.Parse(d.Report, data, env)
	if root != nil {
		d.Decode(root, &c)
	}
	c.complete(filepath.Dir(name), d.Given)
	c.check(checker{d, len(d.Problems)})
	if err := d.Err(); err != nil {
		return nil, err
	}
	c.text, c.contents = outlineOf(data, root), contentsOf(data, nil)
	return &c, nil
}

// complete derives values that the file does not give from other values.
func (c *Config) complete(directory string, given func(path string) bool) {
	// Defaults of guard and drain are shortened for short epochs.
	if !given("epoch.guard") {
		c.Epoch.Guard = min(c.Epoch.Guard, c.Epoch.Interval/5)
	}
	if !given("epoch.drain") {
		c.Epoch.Drain = min(c.Epoch.Drain, c.Epoch.Interval/5)
	}
	if c.Epoch.Deadline == 0 {
		c.Epoch.Deadline = c.Epoch.Interval * 4 / 5
		if c.Epoch.Interval <= 100*time.Millisecond { // the read-out takes much of an epoch this short
			c.Epoch.Deadline = c.Epoch.Interval * 9 / 10
		}
	}
	c.Cluster.complete(c.Agents.Address)
	edge := map[string]bool{}
	for _, h := range c.Hosts {
		edge[h.Port.Switch] = true
	}
	for i := range c.Devices {
		d := &c.Devices[i]
		if d.Role == "" {
			d.Role = RoleTransit
			if edge[d.Name] || len(c.Hosts) == 0 {
				d.Role = RoleEdge
			}
		}
	}
	for i := range c.Plugins.Instances {
		p := &c.Plugins.Instances[i]
		p.complete()
		if filepath.Base(p.Plugin) != p.Plugin {
			p.Plugin = settings.RelativeTo(directory, p.Plugin)
			if filepath.Base(p.Plugin) == p.Plugin { // keeps the name a path
				p.Plugin = "./" + p.Plugin
			}
		}
	}
	for i := range c.Outputs {
		if o := &c.Outputs[i]; o.Name == "" {
			o.Name = o.Type
		}
	}
}
