// SPDX-License-Identifier: Apache-2.0

// What a collector refuses in the description of a plugin.

package sdk

import (
	"errors"
	"fmt"
	"regexp"
)

var (
	pluginName = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)
	moduleName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,127}$`)
	listPath   = regexp.MustCompile(`^/[A-Za-z_][A-Za-z0-9_.-]*:[^/\[\]*]+(/[^/\[\]*]+)*$`)
)

// maxModule is the largest text of a plugin's YANG module, in bytes.
const maxModule = 4 << 20

// CheckName returns an error if a plugin cannot have this name.
func CheckName(name string) error {
	if !pluginName.MatchString(name) || len(name) > 63 {
		return fmt.Errorf("%q is not a plugin's name: expected at most 63 lower-case letters, digits and single dashes, a "+
			"letter first", name)
	}
	return nil
}

// Check returns an error if the name, the lists or the modules cannot be used. It does not read the
// texts of modules.
func (d *Description) Check() error {
	if err := CheckName(d.Name); err != nil {
		return fmt.Errorf("its name: %w", err)
	}
	if len(d.Lists) == 0 {
		return errors.New("it declares no list, so it cannot publish anything")
	}
	seen := make(map[string]bool)
	for _, l := range d.Lists {
		if !listPath.MatchString(l.Path) {
			return fmt.Errorf("its list %q is not a schema path such as /module:container/list", l.Path)
		}
		if seen[l.Path] {
			return fmt.Errorf("it declares the list %s twice", l.Path)
		}
		seen[l.Path] = true
	}
	for _, m := range d.Modules {
		if !moduleName.MatchString(m.Name) || len(m.Text) > maxModule || m.Text == "" {
			return fmt.Errorf("its YANG module %q has no proper name or no text, or more than %d bytes", m.Name,
				maxModule)
		}
	}
	return nil
}
