// SPDX-License-Identifier: Apache-2.0

package entities

import (
	"errors"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
	"github.com/netsketch/netsketch/p4/softswitch"
)

// State returns the updates from the initial state of the pipeline to the current one: the state
// that RECONCILE_AND_COMMIT keeps.
func (d *Device) State() ([]*p4v1.Update, error) {
	kinds := []*p4v1.Entity{
		{Entity: &p4v1.Entity_ActionProfileMember{ActionProfileMember: &p4v1.ActionProfileMember{}}},
		{Entity: &p4v1.Entity_ActionProfileGroup{ActionProfileGroup: &p4v1.ActionProfileGroup{}}},
		{Entity: &p4v1.Entity_TableEntry{TableEntry: &p4v1.TableEntry{MeterConfig: &p4v1.MeterConfig{},
			CounterData: &p4v1.CounterData{}}}},
		{Entity: &p4v1.Entity_PacketReplicationEngineEntry{
			PacketReplicationEngineEntry: &p4v1.PacketReplicationEngineEntry{
				Type: &p4v1.PacketReplicationEngineEntry_MulticastGroupEntry{
					MulticastGroupEntry: &p4v1.MulticastGroupEntry{}}}}},
		{Entity: &p4v1.Entity_PacketReplicationEngineEntry{
			PacketReplicationEngineEntry: &p4v1.PacketReplicationEngineEntry{
				Type: &p4v1.PacketReplicationEngineEntry_CloneSessionEntry{
					CloneSessionEntry: &p4v1.CloneSessionEntry{}}}}},
		{Entity: &p4v1.Entity_DigestEntry{DigestEntry: &p4v1.DigestEntry{}}},
	}
	modified := []*p4v1.Entity{
		{Entity: &p4v1.Entity_ValueSetEntry{ValueSetEntry: &p4v1.ValueSetEntry{}}},
		{Entity: &p4v1.Entity_CounterEntry{CounterEntry: &p4v1.CounterEntry{}}},
		{Entity: &p4v1.Entity_MeterEntry{MeterEntry: &p4v1.MeterEntry{}}},
		{Entity: &p4v1.Entity_RegisterEntry{RegisterEntry: &p4v1.RegisterEntry{}}},
	}
	var out []*p4v1.Update
	take := func(qs []*p4v1.Entity, kind p4v1.Update_Type) error {
		for _, q := range qs {
			seq, err := d.Query(q, "")
			if err != nil {
				return err
			}
			for e := range seq {
				if !e.GetTableEntry().GetIsConst() && !isInitial(e) {
					out = append(out, &p4v1.Update{Type: kind, Entity: e})
				}
			}
		}
		return nil
	}
	if err := take(kinds, p4v1.Update_INSERT); err != nil {
		return nil, err
	}
	defaults, err := d.changedDefaults()
	if err != nil {
		return nil, err
	}
	out = append(out, defaults...)
	return out, take(modified, p4v1.Update_MODIFY)
}

// isInitial reports whether a cell has its initial value, which need not be kept.
func isInitial(e *p4v1.Entity) bool {
	switch e := e.GetEntity().(type) {
	case *p4v1.Entity_RegisterEntry:
		return p4values.IsZero(e.RegisterEntry.GetData().GetBitstring())
	case *p4v1.Entity_CounterEntry:
		return e.CounterEntry.GetData().GetByteCount() == 0 && e.CounterEntry.GetData().GetPacketCount() == 0
	case *p4v1.Entity_MeterEntry:
		return e.MeterEntry.GetConfig() == nil
	}
	return false
}

// Restore applies an update again. An entry of the program is modified in place.
func (d *Device) Restore(u *p4v1.Update) error {
	_, err := d.apply(u, "", false)
	if u.GetType() == p4v1.Update_INSERT && errors.Is(err, softswitch.ErrExists) {
		_, err = d.apply(&p4v1.Update{Type: p4v1.Update_MODIFY, Entity: u.GetEntity()}, "", false)
	}
	return err
}
