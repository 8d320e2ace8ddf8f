// SPDX-License-Identifier: Apache-2.0

package entities

import (
	"errors"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/p4/softswitch"
)

// defaultState is the part of a default entry that an update can change.
type defaultState struct {
	set     bool
	meta    []byte
	hasMeta bool
	action  *softswitch.Action
	counter softswitch.CounterData
	meter   *softswitch.MeterConfig
	colors  softswitch.Colors
}

func (d *Device) keepDefault(t *table) (s defaultState, err error) {
	s.set = d.defaultSet[t.ID]
	s.meta, s.hasMeta = d.defaultMeta[t.ID]
	if s.action, err = d.sw.Default(t.Name); err != nil || s.action == nil {
		return s, err
	}
	if t.DirectCounter != nil {
		if s.counter, err = d.sw.DirectCounter(t.Name, nil); err != nil {
			return s, err
		}
	}
	if t.DirectMeter != nil {
		s.meter, s.colors, err = d.sw.DirectMeter(t.Name, nil)
	}
	return s, err
}

// restoreDefault reverts an update of a default entry.
func (d *Device) restoreDefault(t *table, s defaultState) error {
	d.setDefaultMeta(t, s.set, s.meta, s.hasMeta)
	if !t.ConstDefault {
		if err := d.sw.SetDefault(t.Name, s.action); err != nil {
			return err
		}
	}
	if s.action == nil {
		return nil
	}
	if t.DirectCounter != nil {
		if err := d.sw.SetDirectCounter(t.Name, nil, s.counter); err != nil {
			return err
		}
	}
	if t.DirectMeter == nil {
		return nil
	}
	if err := d.sw.SetDirectMeter(t.Name, nil, s.meter); err != nil {
		return err
	}
	return d.sw.SetDirectColors(t.Name, nil, s.colors)
}

func (d *Device) setDefaultMeta(t *table, set bool, meta []byte, has bool) {
	d.defaultSet[t.ID] = set
	if has {
		d.defaultMeta[t.ID] = meta
	} else {
		delete(d.defaultMeta, t.ID)
	}
}

// writeDefault applies an update of a default entry.
func (d *Device) writeDefault(t *table, kind p4v1.Update_Type, e *p4v1.TableEntry) (undo, error) {
	switch {
	case kind != p4v1.Update_MODIFY:
		return nil, invalid("table %s: the default entry is always there: it can only be modified", t.Name)
	case len(e.GetMatch()) > 0 || e.GetPriority() != 0:
		return nil, invalid("table %s: the default entry has no match and no priority", t.Name)
	case e.GetIdleTimeoutNs() != 0 || e.GetTimeSinceLastHit() != nil:
		return nil, invalid("table %s: the default entry has no idle timeout", t.Name)
	case t.ConstDefault:
		return nil, status.Errorf(codes.PermissionDenied, "the default action of table %s is constant", t.Name)
	case t.Profile != nil:
		return nil, status.Errorf(codes.PermissionDenied,
			"the default entry of table %s, which has an action profile, is constant", t.Name)
	}
	full, err := d.fullEntry(t, kind, &p4v1.TableEntry{CounterData: e.GetCounterData(), MeterConfig: e.GetMeterConfig(),
		MeterCounterData: e.GetMeterCounterData()}, softswitch.Entry{})
	if err != nil {
		return nil, err
	}
	var a *softswitch.Action
	if e.GetAction() != nil {
		if e.GetAction().GetAction() == nil {
			return nil, invalid("table %s: the default entry calls an action", t.Name)
		}
		name, params, err := d.callOf(t.Table, e.GetAction().GetAction(), true)
		if err != nil {
			return nil, err
		}
		a = &softswitch.Action{Kind: softswitch.ActionCall, Name: name, Params: params}
	}
	old, err := d.keepDefault(t)
	if err != nil {
		return nil, err
	}
	if err := d.sw.SetDefault(t.Name, a); err != nil { // nil resets the direct resources as well
		return nil, err
	}
	meta := joinMetadata(cookieOf(e), e.GetMetadata())
	d.setDefaultMeta(t, a != nil, meta, a != nil && len(meta) > 0)
	back := func() error { return d.restoreDefault(t, old) }
	if err := d.setDefaultResources(t, full, e.GetMeterCounterData() != nil); err != nil {
		return nil, errors.Join(err, back())
	}
	return back, nil
}

// setDefaultResources sets the direct resources of a default entry to the values of an update.
func (d *Device) setDefaultResources(t *table, full softswitch.Entry, forget bool) error {
	if full.Counter != nil {
		if err := d.sw.SetDirectCounter(t.Name, nil, *full.Counter); err != nil {
			return err
		}
	}
	if t.DirectMeter == nil {
		return nil
	}
	if forget {
		if err := d.sw.SetDirectColors(t.Name, nil, softswitch.Colors{}); err != nil {
			return err
		}
	}
	return d.sw.SetDirectMeter(t.Name, nil, full.Meter)
}

// defaultEntry reads a table's default entry, with the direct resources that like requests. It
// returns nil for a table without a default action.
func (d *Device) defaultEntry(t *table, like *p4v1.TableEntry) (*p4v1.TableEntry, error) {
	s, err := d.keepDefault(t)
	if err != nil || s.action == nil {
		return nil, err
	}
	e := &p4v1.TableEntry{TableId: t.ID, IsDefaultAction: true, IsConst: t.ConstDefault,
		Action: d.protoAction(t, *s.action)}
	cookie, metadata := splitMetadata(s.meta)
	setCookie(e, cookie)
	e.Metadata = metadata
	d.addDirect(e, t, like, softswitch.Entry{Counter: &s.counter, Meter: s.meter, Colors: &s.colors})
	return e, nil
}

// addDirect adds the direct resources that a read requests.
func (d *Device) addDirect(out *p4v1.TableEntry, t *table, like *p4v1.TableEntry, e softswitch.Entry) {
	if like.GetCounterData() != nil && t.DirectCounter != nil && e.Counter != nil {
		out.CounterData = protoCounter(t.DirectCounter.Unit, *e.Counter)
	}
	if t.DirectMeter == nil {
		return
	}
	if like.GetMeterConfig() != nil {
		out.MeterConfig = protoMeter(e.Meter)
	}
	if like.GetMeterCounterData() != nil && e.Colors != nil {
		out.MeterCounterData = protoColors(*e.Colors)
	}
}

// changedDefaults returns updates from the program's default entries to the current ones.
func (d *Device) changedDefaults() (out []*p4v1.Update, err error) {
	add := func(e *p4v1.Entity) { out = append(out, &p4v1.Update{Type: p4v1.Update_MODIFY, Entity: e}) }
	for _, ct := range d.cat.Tables.All() {
		t := d.tables[ct.ID]
		e, err := d.defaultEntry(t, &p4v1.TableEntry{CounterData: &p4v1.CounterData{},
			MeterConfig: &p4v1.MeterConfig{}})
		if err != nil {
			return nil, err
		}
		counter, meter := e.GetCounterData(), e.GetMeterConfig()
		if d.defaultSet[t.ID] {
			add(&p4v1.Entity{Entity: &p4v1.Entity_TableEntry{TableEntry: e}})
			continue
		}
		key := &p4v1.TableEntry{TableId: t.ID, IsDefaultAction: true}
		if counter.GetPacketCount() != 0 || counter.GetByteCount() != 0 {
			add(&p4v1.Entity{Entity: &p4v1.Entity_DirectCounterEntry{
				DirectCounterEntry: &p4v1.DirectCounterEntry{TableEntry: key, Data: counter}}})
		}
		if meter != nil {
			add(&p4v1.Entity{Entity: &p4v1.Entity_DirectMeterEntry{
				DirectMeterEntry: &p4v1.DirectMeterEntry{TableEntry: key, Config: meter}}})
		}
	}
	return out, nil
}

// writeDirectCounter sets the direct counter of an entry.
func (d *Device) writeDirectCounter(kind p4v1.Update_Type, c *p4v1.DirectCounterEntry, role string) (undo, error) {
	t, key, err := d.directEntry(kind, c.GetTableEntry(), role)
	if err != nil {
		return nil, err
	}
	if t.DirectCounter == nil {
		return nil, invalid("table %s has no direct counter", t.Name)
	}
	old, err := d.sw.DirectCounter(t.Name, key)
	if err != nil || c.GetData() == nil {
		return nil, err
	}
	v, err := counterOf(c.GetData())
	if err != nil {
		return nil, err
	}
	return func() error { return d.sw.SetDirectCounter(t.Name, key, old) }, d.sw.SetDirectCounter(t.Name, key, v)
}

// writeDirectMeter configures the direct meter of an entry.
func (d *Device) writeDirectMeter(kind p4v1.Update_Type, m *p4v1.DirectMeterEntry, role string) (undo, error) {
	t, key, err := d.directEntry(kind, m.GetTableEntry(), role)
	if err != nil {
		return nil, err
	}
	switch {
	case t.DirectMeter == nil:
		return nil, invalid("table %s has no direct meter", t.Name)
	case !onlyZeros(m.GetCounterData()):
		return nil, notZero("table " + t.Name)
	}
	v, err := meterOf(t.DirectMeter, m.GetConfig())
	if err != nil {
		return nil, err
	}
	config, colors, err := d.sw.DirectMeter(t.Name, key)
	if err != nil {
		return nil, err
	}
	if err := d.sw.SetDirectMeter(t.Name, key, v); err != nil {
		return nil, err
	}
	if m.GetCounterData() == nil {
		return func() error { return d.sw.SetDirectMeter(t.Name, key, config) }, nil
	}
	return func() error {
		if err := d.sw.SetDirectMeter(t.Name, key, config); err != nil {
			return err
		}
		return d.sw.SetDirectColors(t.Name, key, colors)
	}, d.sw.SetDirectColors(t.Name, key, softswitch.Colors{})
}

// directEntry returns the entry that a direct counter or meter belongs to; nil is the default
// entry.
func (d *Device) directEntry(kind p4v1.Update_Type, e *p4v1.TableEntry, role string) (*table, *softswitch.Entry,
	error) {
	if kind != p4v1.Update_MODIFY {
		return nil, nil, invalid(
			"direct counters and meters are created and deleted with their entries: they can only be modified")
	}
	if e == nil {
		return nil, nil, invalid("no table entry is given")
	}
	t, err := d.table(e.GetTableId())
	if err == nil {
		err = checkRole(role, t.Object)
	}
	if err != nil {
		return nil, nil, err
	}
	if e.GetIsDefaultAction() {
		if len(e.GetMatch()) > 0 || e.GetPriority() != 0 {
			return nil, nil, invalid("table %s: the default entry has no match and no priority", t.Name)
		}
		return t, nil, nil
	}
	key, err := d.keyOf(t, e)
	return t, &key, err
}

// onlyZeros reports whether color counters are valid in a write: unset, or zero, which resets them.
func onlyZeros(c *p4v1.MeterCounterData) bool {
	for _, v := range []*p4v1.CounterData{c.GetGreen(), c.GetYellow(), c.GetRed()} {
		if v.GetByteCount() != 0 || v.GetPacketCount() != 0 {
			return false
		}
	}
	return true
}

func notZero(what string) error {
	return invalid("%s: the counters of a meter's colors can only be set to 0", what)
}

// protoColors encodes color counters, in packets and bytes for every meter.
func protoColors(c softswitch.Colors) *p4v1.MeterCounterData {
	one := func(c softswitch.CounterData) *p4v1.CounterData {
		return &p4v1.CounterData{PacketCount: int64(c.Packets), ByteCount: int64(c.Bytes)}
	}
	return &p4v1.MeterCounterData{Green: one(c[0]), Yellow: one(c[1]), Red: one(c[2])}
}
