// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"fmt"

	"github.com/netsketch/netsketch/p4/softswitch/machine"
)

func (s *Switch) withProfile(name string, f func(ps *machine.Profile) error) error {
	return s.with(fmt.Sprintf("action profile %q", name), func(st *loaded) error {
		ps, err := st.Profile(name)
		if err != nil {
			return err
		}
		return f(ps)
	})
}

// InsertMember adds a member to an action profile or selector.
func (s *Switch) InsertMember(profile string, m Member) error {
	return s.withProfile(profile, func(ps *machine.Profile) error { return ps.InsertMember(m) })
}

// ModifyMember replaces a member's action, also where entries and groups use it.
func (s *Switch) ModifyMember(profile string, m Member) error {
	return s.withProfile(profile, func(ps *machine.Profile) error { return ps.ModifyMember(m) })
}

// DeleteMember removes a member that no entry and no group uses; else ErrInUse.
func (s *Switch) DeleteMember(profile string, id uint32) error {
	return s.withProfile(profile, func(ps *machine.Profile) error { return ps.DeleteMember(id) })
}

// ReadMembers returns all members by id.
func (s *Switch) ReadMembers(profile string) (out []Member, err error) {
	err = s.withProfile(profile, func(ps *machine.Profile) error {
		out = ps.ReadMembers()
		return nil
	})
	return out, err
}

// InsertGroup adds a group to an action selector.
func (s *Switch) InsertGroup(profile string, g Group) error {
	return s.withProfile(profile, func(ps *machine.Profile) error { return ps.InsertGroup(g) })
}

// ModifyGroup replaces a group's members.
func (s *Switch) ModifyGroup(profile string, g Group) error {
	return s.withProfile(profile, func(ps *machine.Profile) error { return ps.ModifyGroup(g) })
}

// DeleteGroup removes a group that no entry uses; else ErrInUse.
func (s *Switch) DeleteGroup(profile string, id uint32) error {
	return s.withProfile(profile, func(ps *machine.Profile) error { return ps.DeleteGroup(id) })
}

// ReadGroups returns all groups by id.
func (s *Switch) ReadGroups(profile string) (out []Group, err error) {
	err = s.withProfile(profile, func(ps *machine.Profile) error {
		out = ps.ReadGroups()
		return nil
	})
	return out, err
}
