// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"cmp"
	"slices"
)

// profileDef is an action profile or selector of the program.
type profileDef struct {
	ProfileInfo
	calc    *calculation // selector's hash; nil for a profile
	actions map[string]*action
}

// profileState is its members and groups.
type profileState struct {
	def     *profileDef
	members map[uint32]*memberState
	groups  map[uint32]*groupState
	places  []bool // taken by copies of members
}

// memberState is a member. A group that wants it with a weight of n has n copies of it, and a group's copies are in the order of their places:
// simple_switch_grpc does it so, and a hash is to choose the same member here.
type memberState struct {
	run    bound
	m      Member
	uses   int
	places []int // of its copies; one at least
}

// copies gives a member so many copies, at the lowest free places; what it has already stays where it is.
func (ps *profileState) copies(m *memberState, n int) {
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

// arrange gives members the copies that their groups want, and all these groups their order. Members are looked at by id.
func (ps *profileState) arrange(members []GroupMember) {
	byID := slices.SortedFunc(slices.Values(members), func(a, b GroupMember) int { return cmp.Compare(a.Member, b.Member) })
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

// order puts a group's slots in the order of places.
func (ps *profileState) order(g *groupState) {
	type slot struct {
		place int
		run   *bound
		watch WatchPort
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

// groupState chooses a member by hash, each as often as its weight. Members whose watched port is down are left out.
type groupState struct {
	g     Group
	set   bool // of an entry of its own
	calc  *calculation
	dice  bool     // by chance
	slots []*bound // one for each unit of weight
	watch []WatchPort
	alive bool // some watch port is set: ask at each packet
	uses  int
}

// choose returns the action for a packet: hash modulo the members, as BMv2 does, or nil when there is none. Members whose port is down
// are left out, and the others keep their order.
func (g *groupState) choose(p *packet, st *state) *bound {
	n := uint64(len(g.slots))
	if n == 0 {
		return nil
	}
	var h uint64
	if g.dice {
		h = p.lane.random()
	} else if g.calc != nil {
		h = g.calc.compute(p)
	}
	if !g.alive {
		return g.slots[h%n]
	}
	var up uint64
	for i := range g.slots {
		if st.sw.portUp(g.watch[i]) {
			up++
		}
	}
	if up == 0 {
		return nil
	}
	k := h % up
	for i := range g.slots {
		if st.sw.portUp(g.watch[i]) {
			if k == 0 {
				return g.slots[i]
			}
			k--
		}
	}
	return nil
}
