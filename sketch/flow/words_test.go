// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"slices"
	"testing"
)

// Keys of all fields and families come back from cells; cells that no program writes do not.
func TestWords(t *testing.T) {
	for _, whole := range []Key{
		mustNew(t, "10.0.0.1", "192.0.2.255", 6, 1234, 80), mustNew(t, "2001:db8::1", "fe80::2", 17, 65535, 1),
	} {
		for f := range FiveTuple + 1 {
			want := whole.Project(f)
			cells := make([]uint32, f.Words())
			want.PutWords(f, cells)
			if got, ok := FromWords(f, cells); !ok || got != want {
				t.Errorf("%v: %v, %t; want %v", f, got, ok, want)
			}
			if _, ok := FromWords(f, cells[1:]); ok {
				t.Errorf("%v: read from too few cells", f)
			}
		}
	}
	if _, ok := FromWords(Proto, []uint32{5<<8 | 6}); ok {
		t.Error("a key of IP version 5")
	}
	k := mustNew(t, "10.0.0.1", "10.0.0.2", 6, 1234, 80)
	cells := make([]uint32, FiveTuple.Words())
	k.PutWords(FiveTuple, cells)
	if want := []uint32{4<<8 | 6, 1234<<16 | 80, 0x0a000001, 0, 0, 0, 0x0a000002, 0, 0, 0}; !slices.Equal(cells, want) {
		t.Errorf("cells %#x, want %#x", cells, want)
	}
}
