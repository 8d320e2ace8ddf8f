// SPDX-License-Identifier: Apache-2.0

// Module texts: bundled ones, and texts that callers pass.

package yang

import (
	"embed"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
)

// Module is the text of a YANG module (RFC 7950; version 1 and 1.1).
type Module struct {
	// Name is the module's name; empty: the name in the module statement.
	Name string
	// Text is the text of the module.
	Text string
	// Source is the origin of the text for errors, such as a file or "plugin univmon". Empty for
	// bundled modules.
	Source string
}

// place names the module's text in errors; goyang appends line and column.
func (m Module) place() string {
	file := m.Name + ".yang"
	if m.Name == "" {
		file = "module"
	}
	if m.Source == "" || m.Source == file {
		return file
	}
	return m.Source + ": " + file
}

//go:embed modules/*.yang third_party/*.yang
var bundledFiles embed.FS

var bundled = sync.OnceValue(func() map[string]Module {
	all := make(map[string]Module)
	for _, dir := range []string{"modules", "third_party"} {
		entries, err := bundledFiles.ReadDir(dir)
		if err != nil {
			panic(err) // the directory is embedded
		}
		for _, e := range entries {
			text, err := bundledFiles.ReadFile(path.Join(dir, e.Name()))
			if err != nil {
				panic(err)
			}
			name := strings.TrimSuffix(e.Name(), ".yang")
			all[name] = Module{Name: name, Text: string(text)}
		}
	}
	return all
})

// BundledNames returns the names of the bundled modules in alphabetical order.
func BundledNames() []string {
	var names []string
	for n := range bundled() {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Bundled returns the bundled modules of these names. The error for an unknown name lists the
// bundled names.
func Bundled(names ...string) ([]Module, error) {
	var out []Module
	for _, n := range names {
		m, ok := bundled()[n]
		if !ok {
			return nil, fmt.Errorf("yang: no bundled module %q; the bundled modules are %s", n,
				strings.Join(BundledNames(), ", "))
		}
		out = append(out, m)
	}
	return out, nil
}

// CollectorModules returns the modules of the collector's own configuration and state, and of the
// network.
func CollectorModules() []Module { return mustBundled("netsketch-collector", "netsketch-topology") }

// SwitchModules returns the modules that the soft switch serves, and that the collector
// republishes from any switch: interfaces, Ethernet, P4Runtime port numbers, LLDP, components and
// system.
func SwitchModules() []Module {
	return mustBundled("openconfig-interfaces", "openconfig-if-ethernet", "iana-if-type", "netsketch-p4rt-ids",
		"netsketch-lldp", "netsketch-platform", "netsketch-system")
}

func mustBundled(names ...string) []Module {
	m, err := Bundled(names...)
	if err != nil {
		panic(err) // the names come from this package
	}
	return m
}
