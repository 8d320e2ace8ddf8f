// SPDX-License-Identifier: Apache-2.0

package entities

import (
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
	"github.com/netsketch/netsketch/p4/softswitch"
)

func (d *Device) profile(id uint32) (*p4values.ActionProfile, error) {
	if id == 0 {
		return nil, invalid("no action profile id is given")
	}
	p, ok := d.cat.Profiles.ID(id)
	if !ok {
		return nil, notFound("the program has no action profile with id %#x", id)
	}
	return p, nil
}

// noOneShots rejects members and groups in a selector whose tables are programmed with one-shot
// groups.
func (d *Device) noOneShots(p *p4values.ActionProfile) error {
	if d.oneShot[p.ID] > 0 {
		return invalid(
			"action selector %s is programmed with one-shot groups, and does not mix them with members and groups",
			p.Name)
	}
	return nil
}

// writeMember applies an update of an action profile member.
func (d *Device) writeMember(kind p4v1.Update_Type, m *p4v1.ActionProfileMember, role string, wantUndo bool) (undo,
	error) {
	p, err := d.profile(m.GetActionProfileId())
	if err != nil {
		return nil, err
	}
	if err := checkRole(role, p.Object); err != nil {
		return nil, err
	}
	id := m.GetMemberId()
	if id == 0 {
		return nil, invalid("action profile %s: member id 0 is not valid", p.Name)
	}
	var old softswitch.Member
	if wantUndo && kind != p4v1.Update_INSERT {
		if old, err = d.member(p, id); err != nil {
			return nil, err
		}
	}
	if kind == p4v1.Update_DELETE {
		return func() error { return d.sw.InsertMember(p.Name, old) }, d.sw.DeleteMember(p.Name, id)
	}
	if err := d.noOneShots(p); err != nil {
		return nil, err
	}
	if m.GetAction() == nil {
		return nil, invalid("action profile %s: member %d has no action", p.Name, id)
	}
	if len(p.Tables) == 0 {
		return nil, invalid("action profile %s belongs to no table", p.Name)
	}
	name, params, err := d.callOf(p.Tables[0], m.GetAction(), false)
	if err != nil {
		return nil, err
	}
	mem := softswitch.Member{ID: id, Action: name, Params: params}
	if kind == p4v1.Update_INSERT {
		return func() error { return d.sw.DeleteMember(p.Name, id) }, d.sw.InsertMember(p.Name, mem)
	}
	return func() error { return d.sw.ModifyMember(p.Name, old) }, d.sw.ModifyMember(p.Name, mem)
}

func (d *Device) member(p *p4values.ActionProfile, id uint32) (softswitch.Member, error) {
	all, err := d.sw.ReadMembers(p.Name)
	if err != nil {
		return softswitch.Member{}, err
	}
	for _, m := range all {
		if m.ID == id {
			return m, nil
		}
	}
	return softswitch.Member{}, notFound("action profile %s has no member %d", p.Name, id)
}

func (d *Device) group(p *p4values.ActionProfile, id uint32) (softswitch.Group, error) {
	all, err := d.sw.ReadGroups(p.Name)
	if err != nil {
		return softswitch.Group{}, err
	}
	for _, g := range all {
		if g.ID == id {
			return g, nil
		}
	}
	return softswitch.Group{}, notFound("action selector %s has no group %d", p.Name, id)
}

// writeGroup applies an update of an action selector group.
func (d *Device) writeGroup(kind p4v1.Update_Type, g *p4v1.ActionProfileGroup, role string) (undo, error) {
	p, err := d.profile(g.GetActionProfileId())
	if err != nil {
		return nil, err
	}
	if err := checkRole(role, p.Object); err != nil {
		return nil, err
	}
	id := g.GetGroupId()
	switch {
	case !p.Selector:
		return nil, invalid("action profile %s has no selector, hence no groups", p.Name)
	case id == 0:
		return nil, invalid("action selector %s: group id 0 is not valid", p.Name)
	}
	var old softswitch.Group
	if kind != p4v1.Update_INSERT {
		if old, err = d.group(p, id); err != nil {
			return nil, err
		}
	}
	if kind == p4v1.Update_DELETE {
		return func() error { return d.sw.InsertGroup(p.Name, old) }, d.sw.DeleteGroup(p.Name, id)
	}
	if err := d.noOneShots(p); err != nil {
		return nil, err
	}
	sg, err := d.groupOf(p, g)
	if err != nil {
		return nil, err
	}
	if kind == p4v1.Update_INSERT {
		return func() error { return d.sw.DeleteGroup(p.Name, id) }, d.sw.InsertGroup(p.Name, sg)
	}
	if sg.MaxSize != old.MaxSize {
		return nil, invalid("action selector %s: group %d was made with max_size %d, which cannot change to %d", p.Name,
			id, old.MaxSize, sg.MaxSize)
	}
	return func() error { return d.sw.ModifyGroup(p.Name, old) }, d.sw.ModifyGroup(p.Name, sg)
}

func (d *Device) groupOf(p *p4values.ActionProfile, g *p4v1.ActionProfileGroup) (softswitch.Group, error) {
	out := softswitch.Group{ID: g.GetGroupId(), MaxSize: int(g.GetMaxSize())}
	if g.GetMaxSize() < 0 || p.MaxGroupSize > 0 && g.GetMaxSize() > p.MaxGroupSize {
		return out, invalid("action selector %s: a group's max_size is at most %d, not %d", p.Name, p.MaxGroupSize,
			g.GetMaxSize())
	}
	limit := g.GetMaxSize()
	if limit == 0 {
		limit = p.MaxGroupSize
	}
	seen := map[uint32]bool{}
	var ws []int32
	for _, m := range g.GetMembers() {
		if seen[m.GetMemberId()] {
			return out, invalid("action selector %s: member %d is twice in group %d; give it a weight instead", p.Name,
				m.GetMemberId(), out.ID)
		}
		seen[m.GetMemberId()] = true
		if _, err := d.member(p, m.GetMemberId()); err != nil {
			return out, err
		}
		w, err := weightOf(p, m.GetWeight())
		if err != nil {
			return out, err
		}
		gm := softswitch.GroupMember{Member: m.GetMemberId(), Weight: w}
		port := m.GetWatchPort()
		if n, ok := watchedPort(m); ok {
			port = p4values.Uint(n)
		}
		if gm.Watch, err = d.watch(port); err != nil {
			return out, err
		}
		ws = append(ws, m.GetWeight())
		out.Members = append(out.Members, gm)
	}
	return out, checkGroupSize(p, ws, limit)
}

// weightOf checks a weight and returns the switch's.
func weightOf(p *p4values.ActionProfile, w int32) (int, error) {
	switch {
	case p.WeightsDisallowed && w != 0:
		return 0, invalid("action selector %s has no weights: leave them unset", p.Name)
	case p.WeightsDisallowed:
		return 1, nil
	case w <= 0:
		return 0, invalid("action selector %s: a weight is 1 or more, not %d", p.Name, w)
	case p.SumOfMembers && p.MaxMemberWeight > 0 && w > p.MaxMemberWeight:
		return 0, invalid("action selector %s: a weight is at most %d, not %d", p.Name, p.MaxMemberWeight, w)
	}
	return int(w), nil
}

// checkGroupSize rejects a group above its limit of members or weights.
func checkGroupSize(p *p4values.ActionProfile, weights []int32, limit int32) error {
	size := int64(len(weights))
	if !p.SumOfMembers && !p.WeightsDisallowed {
		size = 0
		for _, w := range weights {
			size += int64(w)
		}
	}
	if limit > 0 && size > int64(limit) {
		return invalid("action selector %s: the group's size of %d is above its limit of %d", p.Name, size, limit)
	}
	return nil
}

// watch checks a watch port: it must be a port of the switch, or absent.
func (d *Device) watch(port []byte) (softswitch.WatchPort, error) {
	if len(port) == 0 {
		return softswitch.WatchPort{}, nil
	}
	n, err := p4values.Uint64(port)
	if err != nil || n > 0xffffffff {
		return softswitch.WatchPort{}, invalid("watch port %#x is no port number", port)
	}
	if !d.shadow {
		if _, err := d.sw.PortStatus(uint32(n)); err != nil {
			return softswitch.WatchPort{}, invalid("watch port %d: %v", n, err)
		}
	}
	return softswitch.WatchPort{Set: true, Port: uint32(n)}, nil
}

// actionSet converts a one-shot group.
func (d *Device) actionSet(t *table, set *p4v1.ActionProfileActionSet) (softswitch.Action, error) {
	p := t.Profile
	mode, size := set.GetActionSelectionMode(), set.GetSizeSemantics()
	out := softswitch.Action{Kind: softswitch.ActionSet, Random: mode == p4v1.ActionProfileActionSet_RANDOM,
		Tag: uint32(mode) | uint32(size)<<8}
	switch {
	case !p.Selector:
		return out, invalid("table %s: action profile %s has no selector, hence no one-shot groups", t.Name, p.Name)
	case p4v1.ActionProfileActionSet_ActionSelectionMode_name[int32(mode)] == "":
		return out, invalid("table %s: selection mode %d is not defined", t.Name, mode)
	case p4v1.ActionProfileActionSet_SizeSemantics_name[int32(size)] == "":
		return out, invalid("table %s: size semantics %d are none that there are", t.Name, size)
	}
	if size != p4v1.ActionProfileActionSet_DEFAULT_SIZE_DETERMINED_BY_ACTION_SELECTOR {
		own := *p
		own.SumOfMembers = size == p4v1.ActionProfileActionSet_SUM_OF_MEMBERS
		p = &own
	}
	if members, err := d.sw.ReadMembers(p.Name); err != nil {
		return out, err
	} else if len(members) > 0 {
		return out, invalid(
			"action selector %s is programmed with members and groups, and does not mix them with one-shot groups",
			p.Name)
	}
	var ws []int32
	for _, a := range set.GetActionProfileActions() {
		name, params, err := d.callOf(t.Table, a.GetAction(), false)
		if err != nil {
			return out, err
		}
		w, err := weightOf(p, a.GetWeight())
		if err != nil {
			return out, err
		}
		wa := softswitch.WeightedAction{Name: name, Params: params, Weight: w}
		port := a.GetWatchPort()
		if n, ok := watchedPortOf(a); ok {
			port = p4values.Uint(n)
		}
		if wa.Watch, err = d.watch(port); err != nil {
			return out, err
		}
		ws = append(ws, a.GetWeight())
		out.Set = append(out.Set, wa)
	}
	return out, checkGroupSize(p, ws, p.MaxGroupSize)
}

// protoGroup encodes a group of the switch.
func protoGroup(p *p4values.ActionProfile, g softswitch.Group) *p4v1.ActionProfileGroup {
	out := &p4v1.ActionProfileGroup{ActionProfileId: p.ID, GroupId: g.ID, MaxSize: int32(g.MaxSize)}
	for _, m := range g.Members {
		gm := &p4v1.ActionProfileGroup_Member{MemberId: m.Member, Weight: protoWeight(p, m.Weight)}
		if m.Watch.Set {
			gm.WatchKind = &p4v1.ActionProfileGroup_Member_WatchPort{WatchPort: p4values.Uint(uint64(m.Watch.Port))}
		}
		out.Members = append(out.Members, gm)
	}
	return out
}
