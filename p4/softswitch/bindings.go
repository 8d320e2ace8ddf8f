// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"fmt"
	"maps"
	"slices"
)

// call checks an action with parameters and makes it ready to run.
func call(object string, byName map[string]*action, name string, params [][]byte) (bound, [][]byte, error) {
	a := byName[name]
	if a == nil {
		return bound{}, nil, fail(ErrNotFound, object, "action %q is not one of its actions", name)
	}
	if len(params) != len(a.info.Params) {
		return bound{}, nil, fail(ErrInvalid, object, "action %q takes %d parameters, has %d", name, len(a.info.Params), len(params))
	}
	run := bound{action: a, pc: a.pc, params: make([]uint64, 0, a.words)}
	var canonical [][]byte
	for i, p := range params {
		info := a.info.Params[i]
		w, ok := wordsFrom(p, info.Width)
		if !ok || len(p) == 0 {
			return bound{}, nil, fail(ErrInvalid, object, "parameter %q of action %q: %x does not fit %d bits, or is empty", info.Name, name, p, info.Width)
		}
		run.params = append(run.params, w...)
		canonical = append(canonical, bytesOf(w, info.Width))
	}
	return run, canonical, nil
}

// bind makes an entry do an action, and holds on to what the action refers to.
func (t *tableState) bind(e *entryState, a Action) error {
	d, object := t.def, tableName(t.def.Name)
	if (d.profile >= 0) == (a.Kind == ActionCall) {
		return fail(ErrInvalid, object, "%s", map[bool]string{
			true: "it has an action profile: an entry names a member, a group or a set", false: "it has no action profile: an entry calls an action",
		}[d.profile >= 0])
	}
	var ps *profileState
	if d.profile >= 0 {
		ps = t.st.profiles[d.profile]
	}
	switch a.Kind {
	case ActionCall:
		run, params, err := call(object, d.byName, a.Name, a.Params)
		if err != nil {
			return err
		}
		e.run, e.next = run, t.after(run.action, e.hit)
		e.e.Action = Action{Name: a.Name, Params: params}
	case ActionMember:
		m := ps.members[a.Member]
		if m == nil {
			return fail(ErrNotFound, object, "member %d of action profile %q is not there", a.Member, ps.def.Name)
		}
		m.uses++
		e.member, e.e.Action = m, Action{Kind: ActionMember, Member: a.Member}
	case ActionGroup:
		if !ps.def.Selector {
			return fail(ErrInvalid, object, "action profile %q has no groups", ps.def.Name)
		}
		g := ps.groups[a.Group]
		if g == nil {
			return fail(ErrNotFound, object, "group %d of action profile %q is not there", a.Group, ps.def.Name)
		}
		g.uses++
		e.group, e.e.Action = g, Action{Kind: ActionGroup, Group: a.Group}
	case ActionSet:
		if !ps.def.Selector || len(a.Set) == 0 {
			return fail(ErrInvalid, object, "an action set needs a selector and one action or more")
		}
		g := &groupState{set: true, calc: ps.def.calc, dice: a.Random}
		set := make([]WeightedAction, 0, len(a.Set))
		for _, w := range a.Set {
			run, params, err := call(object, ps.def.actions, w.Name, w.Params)
			if err != nil {
				return err
			}
			if err := g.add(object, &run, w.Weight, w.Watch); err != nil {
				return err
			}
			w.Params = params
			set = append(set, w)
		}
		e.group, e.e.Action = g, Action{Kind: ActionSet, Set: set, Random: a.Random, Tag: a.Tag}
	default:
		return fail(ErrInvalid, object, "action kind %d", a.Kind)
	}
	return nil
}

// release lets go of what an entry's action refers to.
func (t *tableState) release(e *entryState) {
	if e == nil {
		return
	}
	if e.member != nil {
		e.member.uses--
	}
	if e.group != nil {
		e.group.uses--
	}
}

func (t *tableState) exportAction(e *entryState) Action {
	if e.e.Action.Name == "" && e.e.Action.Kind == ActionCall && e.run.action != nil {
		a := Action{Name: e.run.action.name}
		off := 0
		for _, p := range e.run.action.info.Params {
			w := (p.Width + 63) / 64
			a.Params = append(a.Params, bytesOf(e.run.params[off:off+w], p.Width))
			off += w
		}
		return a
	}
	a := e.e.Action
	a.Params = slices.Clone(a.Params)
	a.Set = slices.Clone(a.Set)
	return a
}

const maxWeight = 1 << 12

func (g *groupState) add(object string, run *bound, weight int, w WatchPort) error {
	if weight < 1 || weight > maxWeight || len(g.slots)+weight > 1<<16 {
		return fail(ErrInvalid, object, "weight %d: from 1 to %d", weight, maxWeight)
	}
	for range weight {
		g.slots, g.watch = append(g.slots, run), append(g.watch, w)
	}
	g.alive = g.alive || w.Set
	return nil
}

func (s *Switch) withProfile(name string, f func(ps *profileState) error) error {
	object := fmt.Sprintf("action profile %q", name)
	return s.with(object, func(st *state) error {
		for _, ps := range st.profiles {
			if ps.def.Name == name {
				return f(ps)
			}
		}
		return fail(ErrNotFound, object, "the program has no such action profile")
	})
}

func (ps *profileState) object() string { return fmt.Sprintf("action profile %q", ps.def.Name) }

// InsertMember adds a member to an action profile or selector.
func (s *Switch) InsertMember(profile string, m Member) error {
	return s.withProfile(profile, func(ps *profileState) error {
		if ps.members[m.ID] != nil {
			return fail(ErrExists, ps.object(), "member %d is there", m.ID)
		}
		if ps.def.Size > 0 && len(ps.members) >= ps.def.Size {
			return fail(ErrFull, ps.object(), "it holds its %d members", ps.def.Size)
		}
		run, params, err := call(ps.object(), ps.def.actions, m.Action, m.Params)
		if err == nil {
			fresh := &memberState{run: run, m: Member{ID: m.ID, Action: m.Action, Params: params}}
			ps.copies(fresh, 1)
			ps.members[m.ID] = fresh
		}
		return err
	})
}

// ModifyMember replaces a member's action, also where entries and groups use it.
func (s *Switch) ModifyMember(profile string, m Member) error {
	return s.withProfile(profile, func(ps *profileState) error {
		old := ps.members[m.ID]
		if old == nil {
			return fail(ErrNotFound, ps.object(), "member %d is not there", m.ID)
		}
		run, params, err := call(ps.object(), ps.def.actions, m.Action, m.Params)
		if err == nil {
			old.run, old.m = run, Member{ID: m.ID, Action: m.Action, Params: params}
		}
		return err
	})
}

// DeleteMember removes a member that no entry and no group uses; else ErrInUse.
func (s *Switch) DeleteMember(profile string, id uint32) error {
	return s.withProfile(profile, func(ps *profileState) error {
		m := ps.members[id]
		switch {
		case m == nil:
			return fail(ErrNotFound, ps.object(), "member %d is not there", id)
		case m.uses > 0:
			return fail(ErrInUse, ps.object(), "member %d is used by %d entries or groups", id, m.uses)
		}
		ps.copies(m, 0)
		delete(ps.members, id)
		return nil
	})
}

// ReadMembers returns all members by id.
func (s *Switch) ReadMembers(profile string) (out []Member, err error) {
	err = s.withProfile(profile, func(ps *profileState) error {
		for _, id := range slices.Sorted(maps.Keys(ps.members)) {
			m := ps.members[id].m
			m.Params = slices.Clone(m.Params)
			out = append(out, m)
		}
		return nil
	})
	return out, err
}

// makeGroup builds a group's choice of members.
func (ps *profileState) makeGroup(g Group) (*groupState, error) {
	if !ps.def.Selector {
		return nil, fail(ErrInvalid, ps.object(), "it has no groups")
	}
	limit := ps.def.MaxGroup
	if g.MaxSize < 0 || g.MaxSize > 0 && limit > 0 && g.MaxSize > limit {
		return nil, fail(ErrInvalid, ps.object(), "group %d: max size %d is above the limit of %d", g.ID, g.MaxSize, limit)
	}
	if g.MaxSize > 0 {
		limit = g.MaxSize
	}
	gs := &groupState{calc: ps.def.calc, g: Group{ID: g.ID, MaxSize: g.MaxSize, Members: slices.Clone(g.Members)}}
	seen := map[uint32]bool{}
	total := 0
	for _, m := range g.Members {
		ms := ps.members[m.Member]
		if ms == nil {
			return nil, fail(ErrNotFound, ps.object(), "group %d: member %d is not there", g.ID, m.Member)
		}
		if seen[m.Member] {
			return nil, fail(ErrInvalid, ps.object(), "group %d: member %d is given twice", g.ID, m.Member)
		}
		seen[m.Member] = true
		if total += m.Weight; limit > 0 && total > limit {
			return nil, fail(ErrFull, ps.object(), "group %d: weights of more than %d", g.ID, limit)
		}
		if err := gs.add(ps.object(), &ms.run, m.Weight, m.Watch); err != nil {
			return nil, err
		}
	}
	return gs, nil
}

func (ps *profileState) hold(g *groupState, by int) {
	for _, m := range g.g.Members {
		if ms := ps.members[m.Member]; ms != nil {
			ms.uses += by
		}
	}
}

// InsertGroup adds a group to an action selector.
func (s *Switch) InsertGroup(profile string, g Group) error {
	return s.withProfile(profile, func(ps *profileState) error {
		if ps.groups[g.ID] != nil {
			return fail(ErrExists, ps.object(), "group %d is there", g.ID)
		}
		gs, err := ps.makeGroup(g)
		if err == nil {
			ps.hold(gs, 1)
			ps.groups[g.ID] = gs
			ps.arrange(gs.g.Members)
			ps.order(gs)
		}
		return err
	})
}

// ModifyGroup replaces a group's members.
func (s *Switch) ModifyGroup(profile string, g Group) error {
	return s.withProfile(profile, func(ps *profileState) error {
		old := ps.groups[g.ID]
		if old == nil {
			return fail(ErrNotFound, ps.object(), "group %d is not there", g.ID)
		}
		gs, err := ps.makeGroup(g)
		if err != nil {
			return err
		}
		ps.hold(gs, 1)
		ps.hold(old, -1)
		gs.uses = old.uses
		before := old.g.Members
		*old = *gs
		ps.arrange(append(slices.Clone(before), gs.g.Members...))
		ps.order(old)
		return nil
	})
}

// DeleteGroup removes a group that no entry uses; else ErrInUse.
func (s *Switch) DeleteGroup(profile string, id uint32) error {
	return s.withProfile(profile, func(ps *profileState) error {
		g := ps.groups[id]
		switch {
		case g == nil:
			return fail(ErrNotFound, ps.object(), "group %d is not there", id)
		case g.uses > 0:
			return fail(ErrInUse, ps.object(), "group %d is used by %d entries", id, g.uses)
		}
		ps.hold(g, -1)
		delete(ps.groups, id)
		ps.arrange(g.g.Members)
		return nil
	})
}

// ReadGroups returns all groups by id.
func (s *Switch) ReadGroups(profile string) (out []Group, err error) {
	err = s.withProfile(profile, func(ps *profileState) error {
		for _, id := range slices.Sorted(maps.Keys(ps.groups)) {
			g := ps.groups[id].g
			g.Members = slices.Clone(g.Members)
			out = append(out, g)
		}
		return nil
	})
	return out, err
}
