// SPDX-License-Identifier: Apache-2.0

package softswitch

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
}

type memberState struct {
	run  bound
	m    Member
	uses int
}

// groupState chooses a member by hash, each as often as its weight. Members whose watched port is down are left out.
type groupState struct {
	g     Group
	set   bool // of an entry of its own
	calc  *calculation
	slots []*bound // one for each unit of weight
	watch []WatchPort
	alive bool // some watch port is set: ask at each packet
	uses  int
}

// choose returns the action for a packet: hash modulo the members, as BMv2 does, or nil when there is none.
func (g *groupState) choose(p *packet, st *state) *bound {
	n := uint64(len(g.slots))
	if n == 0 {
		return nil
	}
	var h uint64
	if g.calc != nil {
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
