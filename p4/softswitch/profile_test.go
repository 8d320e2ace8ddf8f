// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/netsketch/netsketch/p4/softswitch/program"
)

// TestSharedProfile: two tables share a profile, and each continues after a member's action as
// after an action of its own.
func TestSharedProfile(t *testing.T) {
	t.Parallel()
	sw := New(Config{})
	t.Cleanup(sw.Close)
	if err := sw.Load(load(t, "shared")); err != nil {
		t.Fatal(err)
	}
	var left [][]byte
	steps := []error{
		sw.AddPort(0, Port{}), sw.AddPort(1, Port{Tx: func(pkt []byte, _ time.Duration) {
			left = append(left,
				bytes.Clone(pkt))
		}}),
		sw.InsertMember("I.members", Member{ID: 1, Action: "I.point", Params: [][]byte{{7}}}),
		sw.InsertMember("I.members", Member{ID: 2, Action: "NoAction"}),
	}
	key := func(k byte) []Match { return []Match{{Kind: MatchExact, Value: []byte{k}}} }
	for _, e := range []struct {
		table  string
		key    byte
		member uint32
	}{{"I.one", 1, 1}, {"I.two", 1, 1}, {"I.one", 2, 1}, {"I.one", 3, 2}, {"I.two", 3, 1}} {
		steps = append(steps, sw.InsertEntry(e.table,
			Entry{Match: key(e.key), Action: Action{Kind: ActionMember, Member: e.member}}))
	}
	for i, err := range steps {
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
	}
	want := [][]byte{{1, 7, 7}, {2, 7, 0}, {3, 0, 7}, {4, 0, 0}}
	for _, w := range want {
		sw.Inject(0, []byte{w[0], 99, 99}, 0)
	}
	if !slices.EqualFunc(left, want, bytes.Equal) {
		t.Errorf("% x, want % x", left, want)
	}
}

// TestGroupOrder: which member a hash selects depends on the order of the group's slots. Members
// and their copies take slots in the order in which simple_switch_grpc assigns them.
func TestGroupOrder(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	const sel = "I.groups"
	for id := range uint32(4) {
		a := toPort(1, uint64(id))
		b.check(b.InsertMember(sel, Member{ID: id, Action: a.Name, Params: a.Params}))
	}
	member := func(id uint32, weight int) GroupMember { return GroupMember{Member: id, Weight: weight} }
	// Copies of members by their weights: member 0 is 0 and 4, member 1 is 1, 5 and 6, member 3 is 3.
	b.check(b.InsertGroup(sel, Group{ID: 1, Members: []GroupMember{member(3, 1), member(1, 3), member(0, 2)}}))
	b.check(b.InsertEntry("I.selected", Entry{Match: []Match{exact(9, 2)},
		Action: Action{Kind: ActionGroup, Group: 1}}))
	// A flow for each hash modulo the group's size finds the member of each slot.
	order := func(size int) (out []byte) {
		for flow := uint32(0); len(out) < size; flow++ {
			if hash := program.Algorithms["crc16"](append(u(uint64(flow), 4),
				u(0, 4)...)); hash%uint64(size) == uint64(len(out)) {
				_, a := b.one(request{key: 9, flow: flow})
				out = append(out, a.ran)
			}
		}
		return out
	}
	if got, want := order(6), []byte{0, 1, 3, 0, 1, 1}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	b.check(b.InsertGroup(sel, Group{ID: 2, Members: []GroupMember{member(2, 2)}})) // member 2 has places 2 and 7
	b.check(b.ModifyGroup(sel, Group{ID: 1, Members: []GroupMember{member(3, 3), member(2, 2)}}))
	if got, want := order(5), []byte{2, 3, 3, 3, 2}; !slices.Equal(got, want) { // member 3 has places 3, 4 and 5
		t.Errorf("modified: %v, want %v", got, want)
	}
	b.check(b.DeleteGroup(sel, 2))
	b.check(b.DeleteMember(sel, 0))
	b.check(b.ModifyGroup(sel, Group{ID: 1, Members: []GroupMember{member(1, 2), member(3, 1)}}))
	// member 1 has places 1 and 0
	b.check(b.ModifyGroup(sel, Group{ID: 1, Members: []GroupMember{member(1, 2), member(2, 1), member(3, 1)}}))
	if got, want := order(4), []byte{1, 1, 2, 3}; !slices.Equal(got, want) {
		t.Errorf("where a member was deleted: %v, want %v", got, want)
	}
}
