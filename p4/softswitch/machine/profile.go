// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"slices"

	"github.com/netsketch/netsketch/p4/softswitch/control"
	"github.com/netsketch/netsketch/p4/softswitch/program"
)

// Profile is the members and groups of an action profile or selector.
type Profile struct {
	def     *program.Profile
	members map[uint32]*memberState
	groups  map[uint32]*groupState
	places  []bool // places in use
}

// memberState is a member. A group that contains it with weight n uses n copies of it, and orders
// all copies by their places, like simple_switch_grpc: a hash selects the same member here.
type memberState struct {
	run    bound
	m      control.Member
	uses   int
	places []int // one for each copy, at least one
}

// copies sets a member's number of copies; new ones take the lowest free places, others keep
// theirs.
func (ps *Profile) copies(m *memberState, n int) {
	for at := len(m.places); at > n; at-- {
		ps.places[m.places[at-1]] = false
		m.places = m.places[:at-1]
	}
	for from := 0; len(m.places) < n; from++ {
		if from == len(ps.places) {
			ps.places = append(ps.places, false)
		}
		if !ps.places[from] {
			ps.places[from] = true
			m.places = append(m.places, from)
		}
	}
}

// arrange gives members the copies that their groups need, in the order of their ids.
func (ps *Profile) arrange(members []control.GroupMember) {
	byID := slices.SortedFunc(slices.Values(members),
		func(a, b control.GroupMember) int { return cmp.Compare(a.Member, b.Member) })
	for _, gm := range byID {
		m, most := ps.members[gm.Member], 1
		for _, g := range ps.groups {
			for _, other := range g.g.Members {
				if other.Member == gm.Member {
					most = max(most, other.Weight)
				}
			}
		}
		if m != nil {
			ps.copies(m, most)
		}
	}
}

// order sorts a group's slots by place.
func (ps *Profile) order(g *groupState) {
	type slot struct {
		place int
		run   *bound
		watch control.WatchPort
	}
	var all []slot
	for _, gm := range g.g.Members {
		m := ps.members[gm.Member]
		for i := range gm.Weight {
			all = append(all, slot{m.places[i], &m.run, gm.Watch})
		}
	}
	slices.SortFunc(all, func(a, b slot) int { return cmp.Compare(a.place, b.place) })
	for i, s := range all {
		g.slots[i], g.watch[i] = s.run, s.watch
	}
}

// groupState selects a member by hash, in proportion to the weights. Members whose watched port is
// down are skipped.
type groupState struct {
	g       control.Group
	set     bool // an action set of one entry
	calc    *program.Hash
	random  bool     // selected at random
	slots   []*bound // one for each unit of weight
	watch   []control.WatchPort
	watched bool // a port is watched
	uses    int
}

// choose returns the action of the member that the packet's hash selects, modulo the number of
// members that are up, as BMv2 does. It returns nil if no member is up.
func (g *groupState) choose(p *Packet, st *State) *bound {
	n := uint64(len(g.slots))
	if n == 0 {
		return nil
	}
	var h uint64
	if g.random {
		h = p.Lane.random()
	} else if g.calc != nil {
		h = p.compute(g.calc)
	}
	if !g.watched {
		return g.slots[h%n]
	}
	var up uint64
	for i := range g.slots {
		if st.up(g.watch[i]) {
			up++
		}
	}
	if up == 0 {
		return nil
	}
	k := h % up
	for i := range g.slots {
		if st.up(g.watch[i]) {
			if k == 0 {
				return g.slots[i]
			}
			k--
		}
	}
	return nil
}

// up reports whether a watched port is up; true if none is watched.
func (st *State) up(w control.WatchPort) bool { return !w.Set || st.env.PortUp(w.Port) }
