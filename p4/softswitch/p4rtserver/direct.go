// SPDX-License-Identifier: Apache-2.0

package p4rtserver

import (
	"errors"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/p4/softswitch"
)

// defaultState is all of a default entry that an update can change.
type defaultState struct {
	set     bool
	meta    []byte
	hasMeta bool
	action  *softswitch.Action
	counter softswitch.CounterData
	meter   *softswitch.MeterConfig
	colours softswitch.Colours
}

func (d *device) keepDefault(t *table) (s defaultState, err error) {
	s.set = d.defaultSet[t.ID]
	s.meta, s.hasMeta = d.defaultMeta[t.ID]
	if s.action, err = d.sw.Default(t.Name); err != nil || s.action == nil {
		return s, err
	}
	if t.DirectCounter != nil {
		if s.counter, err = d.sw.DefaultDirectCounter(t.Name); err != nil {
			return s, err
		}
	}
	if t.DirectMeter != nil {
		s.meter, s.colours, err = d.sw.DefaultDirectMeter(t.Name)
	}
	return s, err
}

// restoreDefault takes an update of a default entry back.
func (d *device) restoreDefault(t *table, s defaultState) error {
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
		if err := d.sw.SetDefaultDirectCounter(t.Name, s.counter); err != nil {
			return err
		}
	}
	if t.DirectMeter == nil {
		return nil
	}
	if err := d.sw.SetDefaultDirectMeter(t.Name, s.meter); err != nil {
		return err
	}
	return d.sw.SetDefaultColours(t.Name, s.colours)
}

func (d *device) setDefaultMeta(t *table, set bool, meta []byte, has bool) {
	d.defaultSet[t.ID] = set
	if has {
		d.defaultMeta[t.ID] = meta
	} else {
		delete(d.defaultMeta, t.ID)
	}
}

// writeDefault applies an update of a default entry.
func (d *device) writeDefault(t *table, kind p4v1.Update_Type, e *p4v1.TableEntry) (undo, error) {
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
		return nil, status.Errorf(codes.PermissionDenied, "the default entry of table %s, which has an action profile, is constant", t.Name)
	}
	full, err := d.fullEntry(t, kind, &p4v1.TableEntry{CounterData: e.GetCounterData(), MeterConfig: e.GetMeterConfig(), MeterCounterData: e.GetMeterCounterData()}, softswitch.Entry{})
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
	if err := d.sw.SetDefault(t.Name, a); err != nil { // nil takes the direct resources back as well
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

// setDefaultResources sets the direct resources of a default entry as an update says.
func (d *device) setDefaultResources(t *table, full softswitch.Entry, forget bool) error {
	if full.Counter != nil {
		if err := d.sw.SetDefaultDirectCounter(t.Name, *full.Counter); err != nil {
			return err
		}
	}
	if t.DirectMeter == nil {
		return nil
	}
	if forget {
		if err := d.sw.SetDefaultColours(t.Name, softswitch.Colours{}); err != nil {
			return err
		}
	}
	return d.sw.SetDefaultDirectMeter(t.Name, full.Meter)
}

// defaultEntry reads a table's default entry, with the direct resources that like asks for; nil where it has none.
func (d *device) defaultEntry(t *table, like *p4v1.TableEntry) (*p4v1.TableEntry, error) {
	s, err := d.keepDefault(t)
	if err != nil || s.action == nil {
		return nil, err
	}
	e := &p4v1.TableEntry{TableId: t.ID, IsDefaultAction: true, IsConst: t.ConstDefault, Action: d.protoAction(t, *s.action)}
	cookie, metadata := splitMetadata(s.meta)
	setCookie(e, cookie)
	e.Metadata = metadata
	d.addDirect(e, t, like, softswitch.Entry{Counter: &s.counter, Meter: s.meter, Colours: &s.colours})
	return e, nil
}

// addDirect adds the direct resources that a read asks for.
func (d *device) addDirect(out *p4v1.TableEntry, t *table, like *p4v1.TableEntry, e softswitch.Entry) {
	if like.GetCounterData() != nil && t.DirectCounter != nil && e.Counter != nil {
		out.CounterData = protoCounter(t.DirectCounter.Unit, *e.Counter)
	}
	if t.DirectMeter == nil {
		return
	}
	if like.GetMeterConfig() != nil {
		out.MeterConfig = protoMeter(e.Meter)
	}
	if like.GetMeterCounterData() != nil && e.Colours != nil {
		out.MeterCounterData = protoColours(*e.Colours)
	}
}

// changedDefaults returns updates that make default entries what they are now, from what the program makes them.
func (d *device) changedDefaults() (out []*p4v1.Update, err error) {
	add := func(e *p4v1.Entity) { out = append(out, &p4v1.Update{Type: p4v1.Update_MODIFY, Entity: e}) }
	for _, ct := range d.cat.Tables.All() {
		t := d.tables[ct.ID]
		e, err := d.defaultEntry(t, &p4v1.TableEntry{CounterData: &p4v1.CounterData{}, MeterConfig: &p4v1.MeterConfig{}})
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
			add(&p4v1.Entity{Entity: &p4v1.Entity_DirectCounterEntry{DirectCounterEntry: &p4v1.DirectCounterEntry{TableEntry: key, Data: counter}}})
		}
		if meter != nil {
			add(&p4v1.Entity{Entity: &p4v1.Entity_DirectMeterEntry{DirectMeterEntry: &p4v1.DirectMeterEntry{TableEntry: key, Config: meter}}})
		}
	}
	return out, nil
}

// writeDirectCounter sets the direct counter of an entry.
func (d *device) writeDirectCounter(kind p4v1.Update_Type, c *p4v1.DirectCounterEntry, role string) (undo, error) {
	t, key, isDefault, err := d.directEntry(kind, c.GetTableEntry(), role)
	if err != nil {
		return nil, err
	}
	if t.DirectCounter == nil {
		return nil, invalid("table %s has no direct counter", t.Name)
	}
	read := func() (softswitch.CounterData, error) { return d.sw.DefaultDirectCounter(t.Name) }
	write := func(v softswitch.CounterData) error { return d.sw.SetDefaultDirectCounter(t.Name, v) }
	if !isDefault {
		read = func() (softswitch.CounterData, error) {
			e, err := d.sw.ReadEntry(t.Name, key)
			if err != nil {
				return softswitch.CounterData{}, err
			}
			return *e.Counter, nil
		}
		write = func(v softswitch.CounterData) error { return d.sw.SetDirectCounter(t.Name, key, v) }
	}
	old, err := read()
	if err != nil || c.GetData() == nil {
		return nil, err
	}
	v, err := counterOf(c.GetData())
	if err != nil {
		return nil, err
	}
	return func() error { return write(old) }, write(v)
}

// directMeter is the direct meter of one entry, or of a default one.
type directMeter struct {
	read       func() (*softswitch.MeterConfig, softswitch.Colours, error)
	configure  func(*softswitch.MeterConfig) error
	setColours func(softswitch.Colours) error
}

func (d *device) directMeter(t *table, key softswitch.Entry, isDefault bool) directMeter {
	if isDefault {
		return directMeter{
			func() (*softswitch.MeterConfig, softswitch.Colours, error) { return d.sw.DefaultDirectMeter(t.Name) },
			func(m *softswitch.MeterConfig) error { return d.sw.SetDefaultDirectMeter(t.Name, m) },
			func(c softswitch.Colours) error { return d.sw.SetDefaultColours(t.Name, c) },
		}
	}
	return directMeter{
		func() (*softswitch.MeterConfig, softswitch.Colours, error) {
			e, err := d.sw.ReadEntry(t.Name, key)
			if err != nil {
				return nil, softswitch.Colours{}, err
			}
			return e.Meter, *e.Colours, nil
		},
		func(m *softswitch.MeterConfig) error { return d.sw.SetDirectMeter(t.Name, key, m) },
		func(c softswitch.Colours) error { return d.sw.SetDirectColours(t.Name, key, c) },
	}
}

// writeDirectMeter configures the direct meter of an entry.
func (d *device) writeDirectMeter(kind p4v1.Update_Type, m *p4v1.DirectMeterEntry, role string) (undo, error) {
	t, key, isDefault, err := d.directEntry(kind, m.GetTableEntry(), role)
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
	meter := d.directMeter(t, key, isDefault)
	config, colours, err := meter.read()
	if err != nil {
		return nil, err
	}
	if err := meter.configure(v); err != nil {
		return nil, err
	}
	if m.GetCounterData() == nil {
		return func() error { return meter.configure(config) }, nil
	}
	return func() error {
		if err := meter.configure(config); err != nil {
			return err
		}
		return meter.setColours(colours)
	}, meter.setColours(softswitch.Colours{})
}

// directEntry finds the entry that a direct counter or meter belongs to.
func (d *device) directEntry(kind p4v1.Update_Type, e *p4v1.TableEntry, role string) (t *table, key softswitch.Entry, isDefault bool, err error) {
	if kind != p4v1.Update_MODIFY {
		return nil, key, false, invalid("direct counters and meters come and go with their entries: they can only be modified")
	}
	if e == nil {
		return nil, key, false, invalid("no table entry is given")
	}
	if t, err = d.table(e.GetTableId()); err != nil {
		return nil, key, false, err
	}
	if err := checkRole(role, t.Object); err != nil {
		return nil, key, false, err
	}
	if e.GetIsDefaultAction() {
		if len(e.GetMatch()) > 0 || e.GetPriority() != 0 {
			return nil, key, false, invalid("table %s: the default entry has no match and no priority", t.Name)
		}
		return t, key, true, nil
	}
	key, err = d.keyOf(t, e)
	return t, key, false, err
}

// onlyZeros tells whether counters of colours are as they have to be in a write: unset, or zero, which resets them.
func onlyZeros(c *p4v1.MeterCounterData) bool {
	for _, v := range []*p4v1.CounterData{c.GetGreen(), c.GetYellow(), c.GetRed()} {
		if v.GetByteCount() != 0 || v.GetPacketCount() != 0 {
			return false
		}
	}
	return true
}

func notZero(what string) error {
	return invalid("%s: the counters of a meter's colours can only be set to 0", what)
}

// protoColours is what a meter has coloured, in packets and bytes whatever it meters.
func protoColours(c softswitch.Colours) *p4v1.MeterCounterData {
	one := func(c softswitch.CounterData) *p4v1.CounterData {
		return &p4v1.CounterData{PacketCount: int64(c.Packets), ByteCount: int64(c.Bytes)}
	}
	return &p4v1.MeterCounterData{Green: one(c[0]), Yellow: one(c[1]), Red: one(c[2])}
}
