// SPDX-License-Identifier: Apache-2.0

package entities

import (
	"iter"
	"slices"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
	"github.com/netsketch/netsketch/p4/softswitch"
)

// Query answers one request of a read: it copies the entities now and encodes them when they are
// sent.
func (d *Device) Query(q *p4v1.Entity, role string) (iter.Seq[*p4v1.Entity], error) {
	switch q := q.GetEntity().(type) {
	case *p4v1.Entity_TableEntry:
		return d.queryTables(q.TableEntry, role)
	case *p4v1.Entity_ActionProfileMember:
		return d.queryMembers(q.ActionProfileMember, role)
	case *p4v1.Entity_ActionProfileGroup:
		return d.queryGroups(q.ActionProfileGroup, role)
	case *p4v1.Entity_MeterEntry:
		return d.queryMeters(q.MeterEntry, role)
	case *p4v1.Entity_DirectMeterEntry:
		return d.queryDirectMeters(q.DirectMeterEntry, role)
	case *p4v1.Entity_CounterEntry:
		return d.queryCounters(q.CounterEntry, role)
	case *p4v1.Entity_DirectCounterEntry:
		return d.queryDirectCounters(q.DirectCounterEntry, role)
	case *p4v1.Entity_PacketReplicationEngineEntry:
		es, err := d.queryPRE(q.PacketReplicationEngineEntry)
		return slices.Values(es), err
	case *p4v1.Entity_ValueSetEntry:
		return d.queryValueSets(q.ValueSetEntry, role)
	case *p4v1.Entity_RegisterEntry:
		return d.queryRegisters(q.RegisterEntry, role)
	case *p4v1.Entity_DigestEntry:
		return d.queryDigests(q.DigestEntry, role)
	case *p4v1.Entity_ExternEntry:
		if q.ExternEntry.GetExternTypeId() == 0 && q.ExternEntry.GetExternId() == 0 {
			return slices.Values([]*p4v1.Entity(nil)), nil // all cells of an empty array
		}
		return nil, unimplemented("v1model has no externs beyond those P4Runtime names")
	}
	return nil, invalid("the request has no entity")
}

func (d *Device) queryTables(q *p4v1.TableEntry, role string) (iter.Seq[*p4v1.Entity], error) {
	var all []*p4v1.TableEntry
	if q.GetTableId() == 0 {
		// All tables: other filters do not apply; direct resources are included if a table has
		// them.
		q = &p4v1.TableEntry{CounterData: q.GetCounterData(), MeterConfig: q.GetMeterConfig(),
			MeterCounterData: q.GetMeterCounterData(), IsDefaultAction: q.GetIsDefaultAction()}
	}
	err := d.eachTable(q.GetTableId(), role, func(t *table) error {
		es, err := d.queryEntries(t, q)
		all = append(all, es...)
		return err
	})
	return seqOf(all, func(e *p4v1.TableEntry) *p4v1.Entity {
		return &p4v1.Entity{Entity: &p4v1.Entity_TableEntry{TableEntry: e}}
	}), err
}

func seqOf[T any](all []T, wrap func(T) *p4v1.Entity) iter.Seq[*p4v1.Entity] {
	return func(yield func(*p4v1.Entity) bool) {
		for _, v := range all {
			if !yield(wrap(v)) {
				return
			}
		}
	}
}

// concat joins sequences.
func concat(seqs []iter.Seq[*p4v1.Entity]) iter.Seq[*p4v1.Entity] {
	return func(yield func(*p4v1.Entity) bool) {
		for _, s := range seqs {
			for e := range s {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// which returns the objects that an id selects: one, or all of the role's for 0.
func which[T interface{ Own() p4values.Object }](id uint32, role string, all []T, find func(uint32) (T, error)) ([]T,
	error) {
	if id != 0 {
		v, err := find(id)
		if err != nil {
			return nil, err
		}
		all = []T{v}
	}
	var out []T
	for _, v := range all {
		if permits(role, v.Own()) {
			out = append(out, v)
		}
	}
	return out, nil
}

func (d *Device) queryMembers(q *p4v1.ActionProfileMember, role string) (iter.Seq[*p4v1.Entity], error) {
	profiles, err := which(q.GetActionProfileId(), role, d.cat.Profiles.All(), d.profile)
	if err != nil {
		return nil, err
	}
	var out []*p4v1.ActionProfileMember
	for _, p := range profiles {
		all, err := d.sw.ReadMembers(p.Name)
		if err != nil {
			return nil, err
		}
		for _, m := range all {
			if q.GetMemberId() == 0 || m.ID == q.GetMemberId() {
				out = append(out, &p4v1.ActionProfileMember{ActionProfileId: p.ID, MemberId: m.ID,
					Action: d.protoCall(m.Action, m.Params)})
			}
		}
	}
	if q.GetMemberId() != 0 && len(out) == 0 {
		return nil, notFound("there is no member %d", q.GetMemberId())
	}
	return seqOf(out, func(m *p4v1.ActionProfileMember) *p4v1.Entity {
		return &p4v1.Entity{Entity: &p4v1.Entity_ActionProfileMember{ActionProfileMember: m}}
	}), nil
}

func (d *Device) queryGroups(q *p4v1.ActionProfileGroup, role string) (iter.Seq[*p4v1.Entity], error) {
	profiles, err := which(q.GetActionProfileId(), role, d.cat.Profiles.All(), d.profile)
	if err != nil {
		return nil, err
	}
	var out []*p4v1.ActionProfileGroup
	for _, p := range profiles {
		if !p.Selector {
			continue
		}
		all, err := d.sw.ReadGroups(p.Name)
		if err != nil {
			return nil, err
		}
		for _, g := range all {
			if q.GetGroupId() == 0 || g.ID == q.GetGroupId() {
				out = append(out, protoGroup(p, g))
			}
		}
	}
	if q.GetGroupId() != 0 && len(out) == 0 {
		return nil, notFound("there is no group %d", q.GetGroupId())
	}
	return seqOf(out, func(g *p4v1.ActionProfileGroup) *p4v1.Entity {
		return &p4v1.Entity{Entity: &p4v1.Entity_ActionProfileGroup{ActionProfileGroup: g}}
	}), nil
}

func (d *Device) queryCounters(q *p4v1.CounterEntry, role string) (iter.Seq[*p4v1.Entity], error) {
	counters, err := which(q.GetCounterId(), role, d.indirectCounters(), d.counter)
	if err != nil {
		return nil, err
	}
	var seqs []iter.Seq[*p4v1.Entity]
	for _, c := range counters {
		from, to, err := cells("counter "+c.Name, q.GetIndex(), c.Size)
		if err != nil {
			return nil, err
		}
		vs, err := d.sw.ReadCounter(c.Name, from, to)
		if err != nil {
			return nil, err
		}
		seqs = append(seqs, func(yield func(*p4v1.Entity) bool) {
			for i, v := range vs {
				e := &p4v1.CounterEntry{CounterId: c.ID, Index: &p4v1.Index{Index: int64(from + i)},
					Data: protoCounter(c.Unit, v)}
				if !yield(&p4v1.Entity{Entity: &p4v1.Entity_CounterEntry{CounterEntry: e}}) {
					return
				}
			}
		})
	}
	return concat(seqs), nil
}

func (d *Device) indirectCounters() []*p4values.Counter {
	return slices.DeleteFunc(slices.Clone(d.cat.Counters.All()),
		func(c *p4values.Counter) bool { return c.Table != nil })
}

func (d *Device) queryMeters(q *p4v1.MeterEntry, role string) (iter.Seq[*p4v1.Entity], error) {
	indirect := slices.DeleteFunc(slices.Clone(d.cat.Meters.All()),
		func(m *p4values.Meter) bool { return m.Table != nil })
	meters, err := which(q.GetMeterId(), role, indirect, d.meter)
	if err != nil {
		return nil, err
	}
	var out []*p4v1.MeterEntry
	for _, m := range meters {
		from, to, err := cells("meter "+m.Name, q.GetIndex(), m.Size)
		if err != nil {
			return nil, err
		}
		vs, err := d.sw.ReadMeter(m.Name, from, to)
		if err != nil {
			return nil, err
		}
		var colors []softswitch.Colors
		if q.GetCounterData() != nil {
			if colors, err = d.sw.ReadColors(m.Name, from, to); err != nil {
				return nil, err
			}
		}
		for i, v := range vs {
			e := &p4v1.MeterEntry{MeterId: m.ID, Index: &p4v1.Index{Index: int64(from + i)}, Config: protoMeter(v)}
			if colors != nil {
				e.CounterData = protoColors(colors[i])
			}
			out = append(out, e)
		}
	}
	return seqOf(out, func(m *p4v1.MeterEntry) *p4v1.Entity {
		return &p4v1.Entity{Entity: &p4v1.Entity_MeterEntry{MeterEntry: m}}
	}), nil
}

// queryDirect returns the entries whose direct counters or meters a read requests: of all tables,
// of one table, or of one entry.
func (d *Device) queryDirect(q *p4v1.TableEntry, role string, has func(*table) bool,
	like *p4v1.TableEntry) ([]*p4v1.TableEntry, error) {
	var out []*p4v1.TableEntry
	err := d.eachTable(q.GetTableId(), role, func(t *table) error {
		if !has(t) {
			if q.GetTableId() != 0 {
				return invalid("table %s has no such direct resource", t.Name)
			}
			return nil
		}
		ask := &p4v1.TableEntry{
			TableId: t.ID, Match: q.GetMatch(), Priority: q.GetPriority(), IsDefaultAction: q.GetIsDefaultAction(),
			CounterData: like.GetCounterData(), MeterConfig: like.GetMeterConfig(),
			MeterCounterData: like.GetMeterCounterData(),
		}
		es, err := d.queryEntries(t, ask)
		out = append(out, es...)
		return err
	})
	return out, err
}

// entryKey returns the part of an entry that identifies it.
func entryKey(e *p4v1.TableEntry) *p4v1.TableEntry {
	return &p4v1.TableEntry{TableId: e.GetTableId(), Match: e.GetMatch(), Priority: e.GetPriority(),
		IsDefaultAction: e.GetIsDefaultAction()}
}

func (d *Device) queryDirectCounters(q *p4v1.DirectCounterEntry, role string) (iter.Seq[*p4v1.Entity], error) {
	if q.GetTableEntry() == nil {
		return nil, invalid("a direct counter is read through its table entry, which is not given")
	}
	es, err := d.queryDirect(q.GetTableEntry(), role, func(t *table) bool { return t.DirectCounter != nil },
		&p4v1.TableEntry{CounterData: &p4v1.CounterData{}})
	return seqOf(es, func(e *p4v1.TableEntry) *p4v1.Entity {
		c := &p4v1.DirectCounterEntry{TableEntry: entryKey(e), Data: e.GetCounterData()}
		return &p4v1.Entity{Entity: &p4v1.Entity_DirectCounterEntry{DirectCounterEntry: c}}
	}), err
}

func (d *Device) queryDirectMeters(q *p4v1.DirectMeterEntry, role string) (iter.Seq[*p4v1.Entity], error) {
	if q.GetTableEntry() == nil {
		return nil, invalid("a direct meter is read through its table entry, which is not given")
	}
	es, err := d.queryDirect(q.GetTableEntry(), role, func(t *table) bool { return t.DirectMeter != nil },
		&p4v1.TableEntry{MeterConfig: &p4v1.MeterConfig{}, MeterCounterData: q.GetCounterData()})
	return seqOf(es, func(e *p4v1.TableEntry) *p4v1.Entity {
		m := &p4v1.DirectMeterEntry{TableEntry: entryKey(e), Config: e.GetMeterConfig(),
			CounterData: e.GetMeterCounterData()}
		return &p4v1.Entity{Entity: &p4v1.Entity_DirectMeterEntry{DirectMeterEntry: m}}
	}), err
}

// queryRegisters copies the cells now and encodes them when they are sent.
func (d *Device) queryRegisters(q *p4v1.RegisterEntry, role string) (iter.Seq[*p4v1.Entity], error) {
	all := slices.DeleteFunc(slices.Clone(d.cat.Registers.All()),
		func(r *p4values.Register) bool { return r.Width == 0 })
	registers, err := which(q.GetRegisterId(), role, all, d.register)
	if err != nil {
		return nil, err
	}
	var seqs []iter.Seq[*p4v1.Entity]
	for _, r := range registers {
		from, to, err := cells("register "+r.Name, q.GetIndex(), int64(r.Size))
		if err != nil {
			return nil, err
		}
		held, err := d.sw.ReadRegisterBytes(r.Name, from, to)
		if err != nil {
			return nil, err
		}
		n := p4values.Bytes(r.Width)
		seqs = append(seqs, func(yield func(*p4v1.Entity) bool) {
			for i := 0; (i+1)*n <= len(held); i++ {
				cell := held[i*n : (i+1)*n]
				if r.Signed {
					cell = p4values.FromSignedBits(cell, r.Width)
				}
				e := &p4v1.RegisterEntry{
					RegisterId: r.ID, Index: &p4v1.Index{Index: int64(from + i)},
					Data: &p4v1.P4Data{Data: &p4v1.P4Data_Bitstring{Bitstring: p4values.Canonical(cell)}},
				}
				if r.Signed {
					e.Data = &p4v1.P4Data{Data: &p4v1.P4Data_Bitstring{Bitstring: cell}}
				}
				if !yield(&p4v1.Entity{Entity: &p4v1.Entity_RegisterEntry{RegisterEntry: e}}) {
					return
				}
			}
		})
	}
	return concat(seqs), nil
}

func (d *Device) queryValueSets(q *p4v1.ValueSetEntry, role string) (iter.Seq[*p4v1.Entity], error) {
	sets, err := which(q.GetValueSetId(), role, d.cat.ValueSets.All(), func(id uint32) (*p4values.ValueSet, error) {
		v, ok := d.cat.ValueSets.ID(id)
		if !ok {
			return nil, notFound("the program has no value set with id %#x", id)
		}
		return v, nil
	})
	if err != nil {
		return nil, err
	}
	var out []*p4v1.Entity
	for _, v := range sets {
		members, err := d.sw.ReadValueSet(v.Name)
		if err != nil {
			return nil, err
		}
		e := &p4v1.ValueSetEntry{ValueSetId: v.ID}
		for _, m := range members {
			e.Members = append(e.Members, &p4v1.ValueSetMember{Match: protoMatch(v.Match, m)})
		}
		out = append(out, &p4v1.Entity{Entity: &p4v1.Entity_ValueSetEntry{ValueSetEntry: e}})
	}
	return slices.Values(out), nil
}
