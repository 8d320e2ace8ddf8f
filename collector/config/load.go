// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"time"

	"gopkg.in/yaml.v3"
)

// Load reads and checks a file. The error is Problems, or says that the file could not be read.
func Load(path string) (*Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("configuration %s: %w", path, err)
	}
	return Parse(path, data)
}

// Parse reads and checks YAML text; name stands for the file in errors. Relative file names in it
// are taken from the folder of name. ${VARIABLE} is taken from the process's environment.
func Parse(name string, data []byte) (*Config, error) {
	return ParseEnv(name, data, os.LookupEnv)
}

// ParseEnv is Parse with another source of environment variables.
func ParseEnv(name string, data []byte, env func(string) (string, bool)) (*Config, error) {
	d := newDecoder(name, env)
	c := &Config{}
	c.SetDefaults()
	d.fresh[reflect.TypeFor[Device]()] = func(v reflect.Value) { v.Set(reflect.ValueOf(c.DeviceDefaults)) }
	if doc := d.document(data); doc != nil {
		// Devices start from device-defaults, wherever that stands in the file.
		defaultsFirst(doc)
		d.value(doc, reflect.ValueOf(c).Elem(), "", 0)
	}
	c.complete(filepath.Dir(name), d.at)
	c.check(d)
	d.problems.sortByPosition()
	if err := d.problems.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

// document parses the text; nil when it is empty or not YAML.
func (d *decoder) document(data []byte) *yaml.Node {
	if len(data) > maxFileBytes {
		d.problem(nil, "", "larger than %d MiB", maxFileBytes>>20)
		return nil
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if !errors.Is(err, io.EOF) {
			d.syntax(err)
		}
		return nil
	}
	var second yaml.Node
	if err := dec.Decode(&second); err == nil {
		d.problem(&second, "", "a second YAML document begins here; expected one")
	} else if !errors.Is(err, io.EOF) {
		d.syntax(err)
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) == 0 {
		return nil
	}
	return doc.Content[0]
}

var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?`)

// syntax reports an error of the YAML parser at its line.
func (d *decoder) syntax(err error) {
	text := err.Error()
	m := yamlLine.FindStringSubmatch(text)
	p := Problem{Position: Position{File: d.file}, Message: "not YAML: " + text[len(m[0]):]}
	if m[1] != "" {
		p.Line, _ = strconv.Atoi(m[1])
	}
	d.problems = append(d.problems, p)
}

// defaultsFirst moves device-defaults to the front of the document.
func defaultsFirst(doc *yaml.Node) {
	if doc.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(doc.Content); i += 2 {
		if doc.Content[i].Value == "device-defaults" {
			pair := []*yaml.Node{doc.Content[i], doc.Content[i+1]}
			rest := append(append([]*yaml.Node{}, doc.Content[:i]...), doc.Content[i+2:]...)
			doc.Content = append(pair, rest...)
			return
		}
	}
}

// complete derives what was left out from what was given.
func (c *Config) complete(folder string, given map[string]Position) {
	// What need not be said suits short epochs too.
	if _, ok := given["epoch.guard"]; !ok {
		c.Epoch.Guard = min(c.Epoch.Guard, c.Epoch.Interval/5)
	}
	if _, ok := given["epoch.drain"]; !ok {
		c.Epoch.Drain = min(c.Epoch.Drain, c.Epoch.Interval/5)
	}
	if c.Epoch.Deadline == 0 {
		c.Epoch.Deadline = c.Epoch.Interval * 4 / 5
		if c.Epoch.Interval <= 100*time.Millisecond { // where the read-out takes much of it
			c.Epoch.Deadline = c.Epoch.Interval * 9 / 10
		}
	}
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
		for _, file := range []*string{
			&d.TLS.CAFile, &d.TLS.CertFile, &d.TLS.KeyFile, &d.Pipeline.P4Info, &d.Pipeline.DeviceConfig,
		} {
			*file = relativeTo(folder, *file)
		}
	}
	c.Plugins.Directory = relativeTo(folder, c.Plugins.Directory)
	c.Plugins.StateDirectory = relativeTo(folder, c.Plugins.StateDirectory)
	for i := range c.Plugins.Instances {
		p := &c.Plugins.Instances[i]
		if p.Name == "" {
			p.Name = filepath.Base(p.Plugin)
		}
		if p.Deadline == 0 {
			p.Deadline = c.Epoch.Interval
		}
		if filepath.Base(p.Plugin) != p.Plugin {
			p.Plugin = relativeTo(folder, p.Plugin)
		}
	}
}

func relativeTo(folder, file string) string {
	if file == "" || filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(folder, file)
}
