// SPDX-License-Identifier: Apache-2.0

package sdk

import "encoding/json"

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
