// SPDX-License-Identifier: Apache-2.0

// Module texts: those bundled with the program, and those handed in.

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
	// Name is the module's name, as its module statement has it; when it is empty
	// it is taken from there.
	Name string
	// Text is the module.
	Text string
	// Source says where the text is from, for errors: a file, or "plugin univmon".
	// Empty for bundled modules.
	Source string
}

// place is what errors call the module's text: goyang appends line and column.
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
			panic(err) // the folder is in the program
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

// BundledNames returns the names of the modules that come with the program, in
// alphabetical order.
func BundledNames() []string {
	var names []string
	for n := range bundled() {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Bundled returns the modules of these names that come with the program. An
// unknown name is an error that lists the known ones.
func Bundled(names ...string) ([]Module, error) {
	var out []Module
	for _, n := range names {
		m, ok := bundled()[n]
		if !ok {
			return nil, fmt.Errorf("yang: no module %q comes with the program; there are %s", n, strings.Join(BundledNames(), ", "))
		}
		out = append(out, m)
	}
	return out, nil
}

// CollectorModules returns what the collector publishes about itself.
func CollectorModules() []Module { return mustBundled("netsketch-collector") }

// SwitchModules returns what the soft switch serves, and what the collector
// republishes of any switch: interfaces, Ethernet, P4Runtime port numbers, LLDP,
// components, and the system.
func SwitchModules() []Module {
	return mustBundled("openconfig-interfaces", "openconfig-if-ethernet", "iana-if-type", "netsketch-p4rt-ids",
		"netsketch-lldp", "netsketch-platform", "netsketch-system")
}

// UnivMonModules returns the module of UnivMon's results.
func UnivMonModules() []Module { return mustBundled("netsketch-univmon") }

func mustBundled(names ...string) []Module {
	m, err := Bundled(names...)
	if err != nil {
		panic(err) // names of this package
	}
	return m
}
