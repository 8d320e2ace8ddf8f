// SPDX-License-Identifier: Apache-2.0

package entities

import (
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
	"github.com/netsketch/netsketch/p4/softswitch"
)

// writeEntry applies an update of a table entry.
func (d *Device) writeEntry(kind p4v1.Update_Type, e *p4v1.TableEntry, role string, wantUndo bool) (undo, error) {
	t, err := d.table(e.GetTableId())
	if err != nil {
		return nil, err
	}
	if err := checkRole(role, t.Object); err != nil {
		return nil, err
	}
	if e.GetIsConst() {
		return nil, invalid("table %s: is_const is not for writing", t.Name)
	}
	if e.GetIsDefaultAction() {
		return d.writeDefault(t, kind, e)
	}
	if len(t.Match) == 0 {
		return nil, invalid("table %s has no key, and takes only a default action", t.Name)
	}
	key, err := d.keyOf(t, e)
	if err != nil {
		return nil, err
	}
	if kind == p4v1.Update_DELETE {
		if t.Const {
			return nil, constTable(t)
		}
		return d.deleteEntry(t, key, wantUndo)
	}
	full, err := d.fullEntry(t, kind, e, key)
	if err != nil {
		return nil, err
	}
	if t.Const && (kind == p4v1.Update_INSERT || e.GetAction() != nil) {
		return nil, constTable(t)
	}
	if kind == p4v1.Update_INSERT {
		if err := d.sw.InsertEntry(t.Name, full); err != nil {
			return nil, err
		}
		d.countOneShot(t, full.Action, 1)
		return func() error {
			d.countOneShot(t, full.Action, -1)
			return d.sw.DeleteEntry(t.Name, key)
		}, nil
	}
	return d.modifyEntry(t, e, key, full)
}

func constTable(t *table) error {
	return status.Errorf(codes.PermissionDenied, "the entries of table %s are constant", t.Name)
}

// modifyEntry replaces an entry. An update without an action changes only the direct resources.
func (d *Device) modifyEntry(t *table, e *p4v1.TableEntry, key, full softswitch.Entry) (undo, error) {
	old, err := d.sw.ReadEntry(t.Name, key)
	if err != nil {
		return nil, err
	}
	if old.Const && e.GetAction() != nil {
		return nil, status.Errorf(codes.PermissionDenied, "the entry of table %s is constant", t.Name)
	}
	back := func() error { return d.sw.ModifyEntry(t.Name, old) }
	if e.GetMeterCounterData() != nil {
		back = func() error {
			if err := d.sw.ModifyEntry(t.Name, old); err != nil {
				return err
			}
			return d.sw.SetDirectColors(t.Name, &key, *old.Colors)
		}
	}
	if old.Const {
		return back, d.directResources(t, key, full, e.GetMeterCounterData() != nil)
	}
	if e.GetAction() == nil {
		full.Action = old.Action
		if full.IdleTimeout == 0 {
			full.IdleTimeout = old.IdleTimeout
		}
		if len(full.Metadata) == 0 {
			full.Metadata = old.Metadata
		}
	}
	if err := d.sw.ModifyEntry(t.Name, full); err != nil {
		return nil, err
	}
	if e.GetMeterCounterData() != nil {
		if err := d.sw.SetDirectColors(t.Name, &key, softswitch.Colors{}); err != nil {
			return nil, err
		}
	}
	d.countOneShot(t, old.Action, -1)
	d.countOneShot(t, full.Action, 1)
	return func() error {
		d.countOneShot(t, full.Action, -1)
		d.countOneShot(t, old.Action, 1)
		return back()
	}, nil
}

// directResources sets the direct resources of a constant entry.
func (d *Device) directResources(t *table, key, full softswitch.Entry, forget bool) error {
	if full.Counter != nil {
		if err := d.sw.SetDirectCounter(t.Name, &key, *full.Counter); err != nil {
			return err
		}
	}
	if t.DirectMeter == nil {
		return nil
	}
	if forget {
		if err := d.sw.SetDirectColors(t.Name, &key, softswitch.Colors{}); err != nil {
			return err
		}
	}
	return d.sw.SetDirectMeter(t.Name, &key, full.Meter)
}

func (d *Device) deleteEntry(t *table, key softswitch.Entry, wantUndo bool) (undo, error) {
	var old softswitch.Entry
	if wantUndo || t.Profile != nil {
		var err error
		if old, err = d.sw.ReadEntry(t.Name, key); err != nil {
			return nil, err
		}
	}
	if err := d.sw.DeleteEntry(t.Name, key); err != nil {
		return nil, err
	}
	d.countOneShot(t, old.Action, -1)
	return func() error {
		d.countOneShot(t, old.Action, 1)
		return d.sw.InsertEntry(t.Name, old)
	}, nil
}

// countOneShot counts entries with one-shot groups. The entries of a table with a selector use
// either one-shot groups, or members and groups.
func (d *Device) countOneShot(t *table, a softswitch.Action, by int) {
	if t.Profile != nil && a.Kind == softswitch.ActionSet {
		d.oneShot[t.Profile.ID] += by
	}
}

// fullEntry converts all of an entry but its key.
func (d *Device) fullEntry(t *table, kind p4v1.Update_Type, e *p4v1.TableEntry,
	key softswitch.Entry,
) (softswitch.Entry, error) {
	out := key
	var err error
	switch {
	case e.GetTimeSinceLastHit() != nil:
		return out, invalid("table %s: time_since_last_hit is not for writing", t.Name)
	case e.GetIdleTimeoutNs() < 0:
		return out, invalid("table %s: an idle timeout of %d ns", t.Name, e.GetIdleTimeoutNs())
	case e.GetIdleTimeoutNs() != 0 && !t.IdleTimeout:
		return out, invalid("table %s supports no idle timeout", t.Name)
	case e.GetCounterData() != nil && t.DirectCounter == nil:
		return out, invalid("table %s has no direct counter", t.Name)
	case (e.GetMeterConfig() != nil || e.GetMeterCounterData() != nil) && t.DirectMeter == nil:
		return out, invalid("table %s has no direct meter", t.Name)
	case !onlyZeros(e.GetMeterCounterData()):
		return out, notZero("table " + t.Name)
	case e.GetAction() == nil && kind == p4v1.Update_INSERT:
		return out, invalid("table %s: an entry needs an action", t.Name)
	}
	out.IdleTimeout = idleTimeout(e.GetIdleTimeoutNs())
	out.Metadata = joinMetadata(cookieOf(e), e.GetMetadata())
	if e.GetCounterData() != nil {
		c, err := counterOf(e.GetCounterData())
		if err != nil {
			return out, err
		}
		out.Counter = &c
	}
	if t.DirectMeter != nil {
		if out.Meter, err = meterOf(t.DirectMeter, e.GetMeterConfig()); err != nil {
			return out, err
		}
	}
	if e.GetAction() != nil {
		if out.Action, err = d.tableAction(t, e.GetAction()); err != nil {
			return out, err
		}
	}
	return out, nil
}

// tableAction converts an entry's action, and rejects actions that the table does not accept.
func (d *Device) tableAction(t *table, a *p4v1.TableAction) (softswitch.Action, error) {
	if _, direct := a.GetType().(*p4v1.TableAction_Action); direct != (t.Profile == nil) && a.GetType() != nil {
		if t.Profile == nil {
			return softswitch.Action{}, invalid("table %s has no action profile: its entries call actions", t.Name)
		}
		return softswitch.Action{}, invalid(
			"entries of table %s point into action profile %s and call no action themselves", t.Name, t.Profile.Name)
	}
	switch a := a.GetType().(type) {
	case *p4v1.TableAction_Action:
		name, params, err := d.callOf(t.Table, a.Action, false)
		return softswitch.Action{Kind: softswitch.ActionCall, Name: name, Params: params}, err
	case *p4v1.TableAction_ActionProfileMemberId:
		return softswitch.Action{Kind: softswitch.ActionMember, Member: a.ActionProfileMemberId},
			d.noOneShots(t.Profile)
	case *p4v1.TableAction_ActionProfileGroupId:
		if !t.Profile.Selector {
			return softswitch.Action{}, invalid("table %s: action profile %s has no selector, hence no groups", t.Name,
				t.Profile.Name)
		}
		return softswitch.Action{Kind: softswitch.ActionGroup, Group: a.ActionProfileGroupId}, d.noOneShots(t.Profile)
	case *p4v1.TableAction_ActionProfileActionSet:
		return d.actionSet(t, a.ActionProfileActionSet)
	}
	return softswitch.Action{}, invalid("table %s: the action is empty", t.Name)
}

// queryEntries returns the entries of one table that a read requests. Nonzero fields of the request
// filter.
func (d *Device) queryEntries(t *table, q *p4v1.TableEntry) ([]*p4v1.TableEntry, error) {
	if q.GetTimeSinceLastHit() != nil && !t.IdleTimeout {
		return nil, invalid("table %s supports no idle timeout", t.Name)
	}
	if q.GetIsDefaultAction() {
		e, err := d.defaultEntry(t, q)
		if err != nil || e == nil || !passes(q, e) {
			return nil, err
		}
		return []*p4v1.TableEntry{e}, nil
	}
	if len(q.GetMatch()) > 0 {
		key, err := d.keyOf(t, q)
		if err != nil {
			return nil, err
		}
		found, err := d.sw.ReadEntry(t.Name, key)
		if err != nil {
			return nil, err
		}
		e := d.protoEntry(t, found, q)
		if !passes(q, e) {
			return nil, nil
		}
		return []*p4v1.TableEntry{e}, nil
	}
	all, err := d.sw.ReadEntries(t.Name)
	if err != nil {
		return nil, err
	}
	out := make([]*p4v1.TableEntry, 0, len(all))
	for _, a := range all {
		if e := d.protoEntry(t, a, q); passes(q, e) {
			out = append(out, e)
		}
	}
	return out, nil
}

// passes applies the filters of a wildcard read.
func passes(q, e *p4v1.TableEntry) bool {
	if id := q.GetAction().GetAction().GetActionId(); id != 0 && e.GetAction().GetAction().GetActionId() != id {
		return false
	}
	if q.GetPriority() != 0 && q.GetPriority() != e.GetPriority() {
		return false
	}
	if c := cookieOf(q); c != 0 && c != cookieOf(e) {
		return false
	}
	return len(q.GetMetadata()) == 0 || string(q.GetMetadata()) == string(e.GetMetadata())
}

// eachTable calls f for the table with an id, or for all of the role's tables for id 0.
func (d *Device) eachTable(id uint32, role string, f func(*table) error) error {
	if id != 0 {
		t, err := d.table(id)
		if err != nil || !permits(role, t.Object) {
			return err
		}
		return f(t)
	}
	for _, ct := range d.cat.Tables.All() {
		if t := d.tables[ct.ID]; permits(role, t.Object) {
			if err := f(t); err != nil {
				return err
			}
		}
	}
	return nil
}

// protoWeight encodes a weight: 0 in profiles without weights.
func protoWeight(p *p4values.ActionProfile, w int) int32 {
	if p.WeightsDisallowed {
		return 0
	}
	return int32(w)
}

// HasIdleTimeouts reports whether a table's entries can have idle timeouts.
func (d *Device) HasIdleTimeouts() bool {
	for _, t := range d.tables {
		if t.IdleTimeout {
			return true
		}
	}
	return false
}

// SweepIdle returns the entries that became idle since the last call, by table.
func (d *Device) SweepIdle() map[uint32][]*p4v1.TableEntry {
	names := map[string]*table{}
	for _, t := range d.tables {
		names[t.Name] = t
	}
	idle := map[uint32][]*p4v1.TableEntry{}
	d.sw.SweepIdle(func(name string, e softswitch.Entry) {
		if t, ok := names[name]; ok {
			idle[t.ID] = append(idle[t.ID], d.protoEntry(t, e, nil))
		}
	})
	return idle
}
