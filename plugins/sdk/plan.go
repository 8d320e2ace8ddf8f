// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Check returns the first part of the plan that no device or host of the network could accept: an
// unknown device or host, a write without table or action, a setting without a role.
func (p *Plan) Check(network *Network) error {
	fail := func(what string, i int, format string, args ...any) error {
		return fmt.Errorf("plan from epoch %d: %s %d: %s", p.FromEpoch, what, i, fmt.Sprintf(format, args...))
	}
	for i, w := range p.Writes {
		switch {
		case network.Device(w.Device) == nil:
			return fail("write", i, "the network has no device %q", w.Device)
		case w.Entry.Table == "":
			return fail("write", i, "device %s: it names no table", w.Device)
		case w.Entry.Action == "" && w.Op != Delete && w.Entry.Table != CloneSessions:
			return fail("write", i, "device %s: table %s: it names no action", w.Device, w.Entry.Table)
		}
	}
	for i, h := range p.Hosts {
		switch {
		case !slices.ContainsFunc(network.Hosts, func(n Host) bool { return n.Name == h.Host }):
			return fail("host setting", i, "the network has no host %q", h.Host)
		case h.Role == "":
			return fail("host setting", i, "host %s: it names no role", h.Host)
		}
	}
	return nil
}

// Replace returns the writes that replace a plugin's earlier entries by new ones. It first deletes
// earlier entries that are not among the new ones, to make room, and then writes the new ones. It
// does not delete entries of devices for which owns returns false, because these have left the
// network or have another program.
func Replace(earlier, now []DeviceWrite, owns func(device string) bool) (out []DeviceWrite) {
	stay := map[string]bool{}
	for i := range now {
		stay[now[i].place()] = true
	}
	for _, w := range earlier {
		if w.Op == Insert && !stay[w.place()] && owns(w.Device) {
			w.Op = Delete
			out = append(out, w)
		}
	}
	return append(out, now...)
}

// place returns a text that identifies an entry on a device, without its action.
func (w *DeviceWrite) place() string {
	key, _ := json.Marshal(struct { // cannot fail
		Device, Table string
		Matches       []FieldMatch
		Priority      int32
	}{w.Device, w.Entry.Table, w.Entry.Matches, w.Entry.Priority})
	return string(key)
}
