// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"maps"
	"slices"

	"github.com/netsketch/netsketch/p4/softswitch/control"
	"github.com/netsketch/netsketch/p4/softswitch/program"
	"github.com/netsketch/netsketch/p4/softswitch/wide"
)

// call checks an action call and prepares it for execution.
func call(object string, byName map[string]*program.Action, name string, params [][]byte) (bound, [][]byte, error) {
	a := byName[name]
	if a == nil {
		return bound{}, nil, control.Errorf(control.ErrNotFound, object, "action %q is not one of its actions", name)
	}
	if len(params) != len(a.Info.Params) {
		return bound{}, nil, control.Errorf(control.ErrInvalid, object, "action %q takes %d parameters, has %d", name,
			len(a.Info.Params), len(params))
	}
	run := bound{action: a, pc: a.PC, params: make([]uint64, 0, a.Words)}
	var canonical [][]byte
	for i, p := range params {
		info := a.Info.Params[i]
		w, ok := wide.Parse(p, info.Width)
		if !ok || len(p) == 0 {
			return bound{}, nil, control.Errorf(control.ErrInvalid, object,
				"parameter %q of action %q: %x does not fit %d bits, or is empty", info.Name, name, p, info.Width)
		}
		run.params = append(run.params, w...)
		canonical = append(canonical, wide.Bytes(w, info.Width))
	}
	return run, canonical, nil
}

// bind sets an entry's action, and counts its use of members and groups.
func (t *Table) bind(e *entryState, a control.Action) error {
	d, object := t.def, TableName(t.def.Name)
	if (d.Profile >= 0) == (a.Kind == control.ActionCall) {
		return control.Errorf(control.ErrInvalid, object, "%s", map[bool]string{
			true:  "it has an action profile: an entry names a member, a group or a set",
			false: "it has no action profile: an entry calls an action",
		}[d.Profile >= 0])
	}
	var ps *Profile
	if d.Profile >= 0 {
		ps = t.st.profiles[d.Profile]
	}
	switch a.Kind {
	case control.ActionCall:
		run, params, err := call(object, d.ByName, a.Name, a.Params)
		if err != nil {
			return err
		}
		e.run, e.next = run, t.after(run.action, e.hit)
		e.e.Action = control.Action{Name: a.Name, Params: params}
	case control.ActionMember:
		m := ps.members[a.Member]
		if m == nil {
			return control.Errorf(control.ErrNotFound, object, "action profile %q has no member %d", ps.def.Name,
				a.Member)
		}
		m.uses++
		e.member, e.e.Action = m, control.Action{Kind: control.ActionMember, Member: a.Member}
	case control.ActionGroup:
		if !ps.def.Selector {
			return control.Errorf(control.ErrInvalid, object, "action profile %q has no groups", ps.def.Name)
		}
		g := ps.groups[a.Group]
		if g == nil {
			return control.Errorf(control.ErrNotFound, object, "action profile %q has no group %d", ps.def.Name,
				a.Group)
		}
		g.uses++
		e.group, e.e.Action = g, control.Action{Kind: control.ActionGroup, Group: a.Group}
	case control.ActionSet:
		if !ps.def.Selector || len(a.Set) == 0 {
			return control.Errorf(control.ErrInvalid, object, "an action set needs a selector and one action or more")
		}
		g := &groupState{set: true, calc: ps.def.Hash, random: a.Random}
		set := make([]control.WeightedAction, 0, len(a.Set))
		for _, w := range a.Set {
			run, params, err := call(object, ps.def.Actions, w.Name, w.Params)
			if err != nil {
				return err
			}
			if err := g.add(object, &run, w.Weight, w.Watch); err != nil {
				return err
			}
			w.Params = params
			set = append(set, w)
		}
		e.group, e.e.Action = g, control.Action{Kind: control.ActionSet, Set: set, Random: a.Random, Tag: a.Tag}
	default:
		return control.Errorf(control.ErrInvalid, object, "action kind %d", a.Kind)
	}
	return nil
}

// release ends an entry's use of members and groups.
func (t *Table) release(e *entryState) {
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

func (t *Table) exportAction(e *entryState) control.Action {
	if e.e.Action.Name == "" && e.e.Action.Kind == control.ActionCall && e.run.action != nil {
		a := control.Action{Name: e.run.action.Name}
		off := 0
		for _, p := range e.run.action.Info.Params {
			w := (p.Width + 63) / 64
			a.Params = append(a.Params, wide.Bytes(e.run.params[off:off+w], p.Width))
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

func (g *groupState) add(object string, run *bound, weight int, w control.WatchPort) error {
	if weight < 1 || weight > maxWeight || len(g.slots)+weight > 1<<16 {
		return control.Errorf(control.ErrInvalid, object, "weight %d: from 1 to %d", weight, maxWeight)
	}
	for range weight {
		g.slots, g.watch = append(g.slots, run), append(g.watch, w)
	}
	g.watched = g.watched || w.Set
	return nil
}

func (ps *Profile) object() string { return fmt.Sprintf("action profile %q", ps.def.Name) }

// makeGroup checks a group and builds its slots.
func (ps *Profile) makeGroup(g control.Group) (*groupState, error) {
	if !ps.def.Selector {
		return nil, control.Errorf(control.ErrInvalid, ps.object(), "it has no groups")
	}
	limit := ps.def.MaxGroup
	if g.MaxSize < 0 || g.MaxSize > 0 && limit > 0 && g.MaxSize > limit {
		return nil, control.Errorf(control.ErrInvalid, ps.object(), "group %d: max size %d is above the limit of %d",
			g.ID, g.MaxSize, limit)
	}
	if g.MaxSize > 0 {
		limit = g.MaxSize
	}
	gs := &groupState{calc: ps.def.Hash, g: control.Group{ID: g.ID, MaxSize: g.MaxSize,
		Members: slices.Clone(g.Members)}}
	seen := map[uint32]bool{}
	total := 0
	for _, m := range g.Members {
		ms := ps.members[m.Member]
		if ms == nil {
			return nil, control.Errorf(control.ErrNotFound, ps.object(), "group %d: there is no member %d", g.ID,
				m.Member)
		}
		if seen[m.Member] {
			return nil, control.Errorf(control.ErrInvalid, ps.object(), "group %d: member %d is given twice", g.ID,
				m.Member)
		}
		seen[m.Member] = true
		if total += m.Weight; limit > 0 && total > limit {
			return nil, control.Errorf(control.ErrFull, ps.object(), "group %d: weights of more than %d", g.ID, limit)
		}
		if err := gs.add(ps.object(), &ms.run, m.Weight, m.Watch); err != nil {
			return nil, err
		}
	}
	return gs, nil
}

func (ps *Profile) hold(g *groupState, by int) {
	for _, m := range g.g.Members {
		if ms := ps.members[m.Member]; ms != nil {
			ms.uses += by
		}
	}
}

// InsertMember adds a member to an action profile or selector.
func (ps *Profile) InsertMember(m control.Member) error {
	if ps.members[m.ID] != nil {
		return control.Errorf(control.ErrExists, ps.object(), "member %d is there", m.ID)
	}
	if ps.def.Size > 0 && len(ps.members) >= ps.def.Size {
		return control.Errorf(control.ErrFull, ps.object(), "it holds its %d members", ps.def.Size)
	}
	run, params, err := call(ps.object(), ps.def.Actions, m.Action, m.Params)
	if err == nil {
		fresh := &memberState{run: run, m: control.Member{ID: m.ID, Action: m.Action, Params: params}}
		ps.copies(fresh, 1)
		ps.members[m.ID] = fresh
	}
	return err
}

// ModifyMember replaces a member's action, also where entries and groups use it.
func (ps *Profile) ModifyMember(m control.Member) error {
	old := ps.members[m.ID]
	if old == nil {
		return control.Errorf(control.ErrNotFound, ps.object(), "there is no member %d", m.ID)
	}
	run, params, err := call(ps.object(), ps.def.Actions, m.Action, m.Params)
	if err == nil {
		old.run, old.m = run, control.Member{ID: m.ID, Action: m.Action, Params: params}
	}
	return err
}

// DeleteMember removes a member that no entry and no group uses; else ErrInUse.
func (ps *Profile) DeleteMember(id uint32) error {
	m := ps.members[id]
	switch {
	case m == nil:
		return control.Errorf(control.ErrNotFound, ps.object(), "there is no member %d", id)
	case m.uses > 0:
		return control.Errorf(control.ErrInUse, ps.object(), "member %d is used by %d entries or groups", id, m.uses)
	}
	ps.copies(m, 0)
	delete(ps.members, id)
	return nil
}

// ReadMembers returns all members by id.
func (ps *Profile) ReadMembers() (out []control.Member) {
	for _, id := range slices.Sorted(maps.Keys(ps.members)) {
		m := ps.members[id].m
		m.Params = slices.Clone(m.Params)
		out = append(out, m)
	}
	return out
}

// InsertGroup adds a group to an action selector.
func (ps *Profile) InsertGroup(g control.Group) error {
	if ps.groups[g.ID] != nil {
		return control.Errorf(control.ErrExists, ps.object(), "group %d is there", g.ID)
	}
	gs, err := ps.makeGroup(g)
	if err == nil {
		ps.hold(gs, 1)
		ps.groups[g.ID] = gs
		ps.arrange(gs.g.Members)
		ps.order(gs)
	}
	return err
}

// ModifyGroup replaces a group's members.
func (ps *Profile) ModifyGroup(g control.Group) error {
	old := ps.groups[g.ID]
	if old == nil {
		return control.Errorf(control.ErrNotFound, ps.object(), "there is no group %d", g.ID)
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
}

// DeleteGroup removes a group that no entry uses; else ErrInUse.
func (ps *Profile) DeleteGroup(id uint32) error {
	g := ps.groups[id]
	switch {
	case g == nil:
		return control.Errorf(control.ErrNotFound, ps.object(), "there is no group %d", id)
	case g.uses > 0:
		return control.Errorf(control.ErrInUse, ps.object(), "group %d is used by %d entries", id, g.uses)
	}
	ps.hold(g, -1)
	delete(ps.groups, id)
	ps.arrange(g.g.Members)
	return nil
}

// ReadGroups returns all groups by id.
func (ps *Profile) ReadGroups() (out []control.Group) {
	for _, id := range slices.Sorted(maps.Keys(ps.groups)) {
		g := ps.groups[id].g
		g.Members = slices.Clone(g.Members)
		out = append(out, g)
	}
	return out
}

// Profile returns an action profile or selector by name. Errors: ErrNotFound.
func (st *State) Profile(name string) (*Profile, error) {
	for _, ps := range st.profiles {
		if ps.def.Name == name {
			return ps, nil
		}
	}
	return nil, control.Errorf(control.ErrNotFound, fmt.Sprintf("action profile %q", name),
		"the program has no such action profile")
}
