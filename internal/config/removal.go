// SPDX-License-Identifier: Apache-2.0

// Checks that detect a configuration file that was cut or is still being written.

package config

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/netsketch/netsketch/settings"
)

// ReloadState states whether the newest version of the file is in force.
type ReloadState uint8

// The states of a reload.
const (
	// ReloadApplied: the file is in force.
	ReloadApplied ReloadState = iota + 1
	// ReloadRefused: the file has errors or is incomplete. The earlier configuration is in force.
	ReloadRefused
	// ReloadHeld: the file removes more than Reload allows without confirmation. The earlier
	// configuration is in force.
	ReloadHeld
)

// ReloadStatus is the outcome of the latest reload.
type ReloadStatus struct {
	State ReloadState
	// Time is when the file was read.
	Time time.Time
	// Reason says why the file is not in force, or which parts of it could not be applied; empty
	// otherwise.
	Reason string
	// Removal lists the devices, links, hosts and plugins that a held change would remove.
	Removal string
	// ConfirmFrom is the time from which on a held change can be confirmed.
	ConfirmFrom time.Time
}

// endMarker is YAML's document end marker.
const endMarker = "..."

// outline is compared with the outline of the next version of the file, to detect a cut file.
type outline struct {
	marked   bool     // the file ends with the document end marker
	newline  bool     // the last line has a line end
	sections []string // top-level keys, in the order of the file
	digests  map[string]string
}

func outlineOf(text []byte, root *settings.Node) outline {
	o := outline{
		marked:  bytes.HasSuffix(bytes.TrimRight(text, " \t\r\n"), []byte("\n"+endMarker)),
		newline: bytes.HasSuffix(text, []byte("\n")),
	}
	if root != nil {
		o.digests = digestsOf(root)
		for _, k := range root.Keys {
			o.sections = append(o.sections, k.Name)
		}
	}
	return o
}

// CheckComplete fails if the next version of a file was probably cut: it has no devices, or lacks
// the document end marker or the last line end that the current file has.
func (c *Config) CheckComplete(next *Config) error {
	switch {
	case len(next.Devices) == 0 && len(c.Devices) > 0:
		return fmt.Errorf("the file is incomplete: it has no devices, and %d are in use; stop the collector instead, "+
			"which leaves the switches as they are", len(c.Devices))
	case c.text.marked && !next.text.marked:
		return errors.New("the file is incomplete: it does not end with the document end marker \"...\", as the file " +
			"in force does")
	case c.text.newline && !next.text.newline:
		return errors.New("the file is incomplete: its last line has no line end, but the file in " +
			"force has one; add a line end if the file is whole")
	}
	return nil
}

// Removal lists for the log what the next version of a file removes beyond Reload.MaxRemoval;
// empty if the removal is allowed. The current file's limit applies, because a cut file may lack
// it. Removing the last section of the file, which a cut file always lacks, is allowed only with a
// limit of 1.
func (c *Config) Removal(next *Config) string {
	changes := Compare(c, next)
	hosts := changes.HostsRemoved
	_, changed, _ := compareLists(c.Hosts, next.Hosts, Host.key)
	for _, h := range changed {
		i := slices.IndexFunc(c.Hosts, func(was Host) bool { return was.Name == h.Name })
		if slices.ContainsFunc(c.Hosts[i].Addresses,
			func(p settings.Prefix) bool { return !slices.Contains(h.Addresses, p) }) {
			hosts = append(hosts, h.Name)
		}
	}
	var parts []string
	for _, r := range []struct {
		kind    string
		removed []string
		of      int
		left    int
	}{
		{"devices", changes.DevicesRemoved, len(c.Devices), len(next.Devices)},
		{"links", changes.LinksRemoved, len(c.Links), len(next.Links)},
		{"hosts", hosts, len(c.Hosts), len(next.Hosts)},
		{"plugins", changes.PluginsRemoved, len(c.Plugins.Instances), len(next.Plugins.Instances)},
	} {
		if n := len(r.removed); n > 0 && (r.left == 0 && c.Reload.MaxRemoval < 1 || n > c.Reload.allows(r.of)) {
			parts = append(parts, fmt.Sprintf("%d of %d %s (%s)", n, r.of, r.kind, someOf(r.removed)))
		}
	}
	if n := len(c.text.sections); n > 0 && c.Reload.MaxRemoval < 1 &&
		!slices.Contains(next.text.sections, c.text.sections[n-1]) {
		parts = append(parts, "the last section of the file ("+c.text.sections[n-1]+")")
	}
	return strings.Join(parts, ", ")
}

// allows returns how many items of the given number a change may remove.
func (r Reload) allows(of int) int {
	if r.MaxRemoval == 0 {
		return 0
	}
	return max(1, int(r.MaxRemoval*float64(of)))
}
