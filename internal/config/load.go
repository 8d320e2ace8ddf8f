// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"
)

// Load reads and checks a file. The error is Problems, or why the file could not be read.
func Load(path string) (*Config, error) {
	data, err := read(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("configuration %s: %w", path, err)
	}
	return data, nil
}

// LoadSection reads a file whose keys this package does not declare, such as a host agent's
// configuration; decode it with Section.Decode. File names and ${VARIABLE} are resolved as by
// Parse.
func LoadSection(path string) (Section, error) {
	data, err := read(path)
	if err != nil {
		return Section{}, err
	}
	r := newReport(path, data)
	root := r.parse(data, os.LookupEnv)
	return Section{node: root, source: r.source}, r.err()
}

// Parse reads and checks YAML text; name stands for the file in errors. Relative file names in it
// are taken from the directory of name, ${VARIABLE} from the environment of the process.
func Parse(name string, data []byte) (*Config, error) {
	return ParseEnv(name, data, os.LookupEnv)
}

// ParseEnv works as Parse, but takes environment variables from env.
func ParseEnv(name string, data []byte, env func(string) (string, bool)) (*Config, error) {
	d := newDecoder(newReport(name, data))
	var c Config
	d.setDefaults(reflect.ValueOf(&c).Elem())
	root := d.parse(data, env)
	if root != nil {
		d.value(d.withoutOldOutputs(root), reflect.ValueOf(&c).Elem(), "", "")
	}
	c.complete(filepath.Dir(name), d.at)
	c.check(checker{d, len(d.problems)})
	if err := d.err(); err != nil {
		return nil, err
	}
	c.text, c.contents = outlineOf(data, root), contentsOf(data, nil)
	return &c, nil
}

// withoutOldOutputs refuses outputs written as a mapping by type, the form before outputs had
// names.
func (d *decoder) withoutOldOutputs(root *node) *node {
	old := root.get("outputs")
	if old == nil || old.kind != mapping {
		return root
	}
	var form strings.Builder
	for _, k := range old.keys {
		fmt.Fprintf(&form, "\n  - type: %s\n    # the keys of %s, as they are", k.name, k.name)
	}
	d.add(old.Position, "outputs", "expected a list of outputs, each with its type; found a mapping. Write:\noutputs:%s",
		&form)
	rest := *root
	rest.keys = nil
	for _, k := range root.keys {
		if k.name != "outputs" {
			rest.keys = append(rest.keys, k)
		}
	}
	return &rest
}

// complete derives values that the file does not give from other values.
func (c *Config) complete(directory string, given map[string]Position) {
	// Defaults of guard and drain are shortened for short epochs.
	if _, ok := given["epoch.guard"]; !ok {
		c.Epoch.Guard = min(c.Epoch.Guard, c.Epoch.Interval/5)
	}
	if _, ok := given["epoch.drain"]; !ok {
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
		p.complete(c)
		if filepath.Base(p.Plugin) != p.Plugin {
			p.Plugin = relativeTo(directory, p.Plugin)
		}
	}
	for i := range c.Outputs {
		if o := &c.Outputs[i]; o.Name == "" {
			o.Name = o.Type
		}
	}
}
