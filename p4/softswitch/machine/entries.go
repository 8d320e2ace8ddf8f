// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/netsketch/netsketch/p4/softswitch/control"
	"github.com/netsketch/netsketch/p4/softswitch/meter"
	"github.com/netsketch/netsketch/p4/softswitch/program"
	"github.com/netsketch/netsketch/p4/softswitch/wide"
)

func TableName(n string) string { return fmt.Sprintf("table %q", n) }

// Table returns a table by name. Errors: ErrNotFound.
func (st *State) Table(name string) (*Table, error) {
	t := st.byName[name]
	if t == nil {
		return nil, control.Errorf(control.ErrNotFound, TableName(name), "the program has no such table")
	}
	return t, nil
}

func (t *Table) writable() error {
	if t.def.ConstEntries {
		return control.Errorf(control.ErrConst, TableName(t.def.Name), "its entries are part of the program")
	}
	return nil
}

// Insert adds an entry. Errors: ErrNotFound (action, member, group), ErrExists, ErrFull,
// ErrInvalid, ErrConst.
func (t *Table) Insert(e control.Entry) error {
	if err := t.writable(); err != nil {
		return err
	}
	e.Const = false
	return t.insert(e)
}

// Modify replaces action, timeout and metadata of the entry with e's key; its direct counter is set
// if e.Counter is not nil, its direct meter is set to e.Meter.
func (t *Table) Modify(e control.Entry) error {
	if err := t.writable(); err != nil {
		return err
	}
	return t.modify(e)
}

// Delete removes the entry with e's key.
func (t *Table) Delete(e control.Entry) error {
	if err := t.writable(); err != nil {
		return err
	}
	old, err := t.existing(e)
	if err == nil {
		t.remove(old)
	}
	return err
}

// Read returns the entry with e's key.
func (t *Table) Read(e control.Entry) (control.Entry, error) {
	old, err := t.existing(e)
	if err != nil {
		return control.Entry{}, err
	}
	return t.export(old), nil
}

// ReadAll returns all entries in insertion order, without the default entry.
func (t *Table) ReadAll() []control.Entry {
	all := t.inOrder()
	out := make([]control.Entry, len(all))
	for i, e := range all {
		out[i] = t.export(e)
	}
	return out
}

func (t *Table) inOrder() []*entryState {
	all := make([]*entryState, 0, len(t.byKey))
	for _, e := range t.byKey {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *entryState) int { return cmp.Compare(a.seq, b.seq) })
	return all
}

// SetDefault sets the default action; nil restores the program's own.
func (t *Table) SetDefault(a *control.Action) error {
	switch {
	case t.def.ConstDefault:
		return control.Errorf(control.ErrConst, TableName(t.def.Name), "its default action is part of the program")
	case a == nil:
		t.release(t.dflt)
		t.resetDefault()
		return nil
	}
	e := &entryState{}
	if err := t.bind(e, *a); err != nil {
		return err
	}
	t.share(e)
	if old := t.dflt; old != nil {
		e.counter, e.meter = old.counter, old.meter
		t.release(old)
	}
	t.dflt, t.dfltSet = e, true
	return nil
}

// Default returns the default action, or nil for a table without one.
func (t *Table) Default() *control.Action {
	if t.dflt == nil {
		return nil
	}
	a := t.exportAction(t.dflt)
	return &a
}

// direct returns the entry with a key, or the default entry for nil.
func (t *Table) direct(key *control.Entry) (*entryState, error) {
	if key != nil {
		return t.existing(*key)
	}
	if t.dflt == nil {
		return nil, control.Errorf(control.ErrNotFound, TableName(t.def.Name), "it has no default action")
	}
	return t.dflt, nil
}

func (t *Table) hasCounter() error {
	if !t.def.Counts {
		return control.Errorf(control.ErrNotFound, TableName(t.def.Name), "it has no direct counter")
	}
	return nil
}

func (t *Table) hasMeter() error {
	if t.def.Meter == nil {
		return control.Errorf(control.ErrNotFound, TableName(t.def.Name), "it has no direct meter")
	}
	return nil
}

// SetDirectCounter sets the direct counter of the entry with a key, or of the default entry for
// nil.
func (t *Table) SetDirectCounter(key *control.Entry, v control.CounterData) error {
	if err := t.hasCounter(); err != nil {
		return err
	}
	e, err := t.direct(key)
	if err == nil {
		e.counter.set(v)
	}
	return err
}

// SetDirectColors sets the color counters of an entry's direct meter.
func (t *Table) SetDirectColors(key *control.Entry, v control.Colors) error {
	e, err := t.direct(key)
	if err == nil && e.meter != nil {
		e.meter.SetCounts(v)
	}
	return err
}

// SetDirectMeter configures the direct meter of an entry; nil removes the configuration. Packets of
// an unconfigured default entry keep their color, as in BMv2.
func (t *Table) SetDirectMeter(key *control.Entry, v *control.MeterConfig) error {
	if err := t.hasMeter(); err != nil {
		return err
	}
	if err := meter.Check(TableName(t.def.Name), v); err != nil {
		return err
	}
	e, err := t.direct(key)
	if err != nil {
		return err
	}
	if e.meter == nil {
		e.meter = &meter.Meter{Unit: t.def.Meter.Unit}
	}
	e.meter.Configure(v, t.st.env.Clock())
	return nil
}

// DirectMeter returns the configuration (nil if there is none) and the color counters of an entry's
// direct meter.
func (t *Table) DirectMeter(key *control.Entry) (v *control.MeterConfig, c control.Colors, err error) {
	if err := t.hasMeter(); err != nil {
		return nil, c, err
	}
	e, err := t.direct(key)
	if err == nil && e.meter != nil {
		v, c = e.meter.Config(), e.meter.Counts()
	}
	return v, c, err
}

// DirectCounter returns the direct counter of an entry.
func (t *Table) DirectCounter(key *control.Entry) (v control.CounterData, err error) {
	if err := t.hasCounter(); err != nil {
		return v, err
	}
	e, err := t.direct(key)
	if err == nil {
		v = e.counter.get()
	}
	return v, err
}

// IdleEntry is an entry that had no hit for its IdleTimeout.
type IdleEntry struct {
	Table string
	Entry control.Entry
}

// SweepIdle returns the entries that had no hit for their IdleTimeout since the last hit or the
// last sweep that returned them.
func (st *State) SweepIdle(now time.Duration) (idle []IdleEntry) {
	for _, t := range st.tables {
		if !t.def.Ages {
			continue
		}
		for _, e := range t.inOrder() {
			since := max(e.lastHit, e.notified)
			if d := e.e.IdleTimeout; d > 0 && now-time.Duration(since) >= d {
				e.notified = int64(now)
				idle = append(idle, IdleEntry{t.def.Name, t.export(e)})
			}
		}
	}
	return idle
}

// existing returns the entry with a key.
func (t *Table) existing(e control.Entry) (*entryState, error) {
	_, _, key, err := t.match(&e)
	if err != nil {
		return nil, err
	}
	old := t.byKey[key]
	if old == nil {
		return nil, control.Errorf(control.ErrNotFound, TableName(t.def.Name), "no entry matches %s",
			describeMatch(t.def, &e))
	}
	return old, nil
}

func describeMatch(d *program.Table, e *control.Entry) string {
	out := ""
	for i, m := range e.Match {
		if i < len(d.Keys) {
			out += fmt.Sprintf("%s=%x ", d.Keys[i].Name, m.Value)
		}
	}
	return out + fmt.Sprintf("priority=%d", e.Priority)
}

// insert adds an entry, also one of the program.
func (t *Table) insert(in control.Entry) error {
	d := t.def
	value, mask, key, err := t.match(&in)
	if err != nil {
		return err
	}
	if len(d.KeyFields) == 0 {
		return control.Errorf(control.ErrInvalid, TableName(d.Name),
			"it has no key: only its default action can be set")
	}
	if t.byKey[key] != nil {
		return control.Errorf(control.ErrExists, TableName(d.Name), "an entry with %s is there", describeMatch(d, &in))
	}
	if len(t.byKey) >= d.Size {
		return control.Errorf(control.ErrFull, TableName(d.Name), "it holds its %d entries", d.Size)
	}
	t.seq++
	e := &entryState{hit: true, value: value, mask: mask, priority: in.Priority, seq: t.seq, key: key, e: in}
	if err := t.fill(e, in); err != nil {
		return err
	}
	if err := t.bind(e, in.Action); err != nil {
		return err
	}
	e.lastHit = int64(t.st.env.Clock())
	t.share(e)
	e.e.Match = t.canonical(in.Match)
	t.byKey[key] = e
	t.index(e, true)
	return nil
}

// fill sets the parts of an entry other than its action.
func (t *Table) fill(e *entryState, in control.Entry) error {
	d := t.def
	switch {
	case in.IdleTimeout < 0, in.IdleTimeout > 0 && !d.Ages:
		return control.Errorf(control.ErrInvalid, TableName(d.Name),
			"idle timeout %v: the table does not support timeouts, or it is negative", in.IdleTimeout)
	case in.Counter != nil && !d.Counts:
		return control.Errorf(control.ErrInvalid, TableName(d.Name), "it has no direct counter")
	case in.Meter != nil && d.Meter == nil:
		return control.Errorf(control.ErrInvalid, TableName(d.Name), "it has no direct meter")
	}
	if d.Meter != nil {
		if err := meter.Check(TableName(d.Name), in.Meter); err != nil {
			return err
		}
		if e.meter == nil {
			e.meter = &meter.Meter{Unit: d.Meter.Unit}
		}
		e.meter.Configure(in.Meter, t.st.env.Clock())
	}
	if in.Counter != nil {
		e.counter.set(*in.Counter)
	}
	e.e.IdleTimeout, e.e.Metadata = in.IdleTimeout, slices.Clone(in.Metadata)
	return nil
}

func (t *Table) modify(in control.Entry) error {
	old, err := t.existing(in)
	if err != nil {
		return err
	}
	fresh := &entryState{hit: true}
	if err := t.bind(fresh, in.Action); err != nil {
		return err
	}
	if err := t.fill(old, in); err != nil {
		t.release(fresh)
		return err
	}
	t.release(old)
	old.run, old.next, old.group, old.member, old.e.Action = fresh.run, fresh.next, fresh.group, fresh.member,
		fresh.e.Action
	return nil
}

func (t *Table) remove(e *entryState) {
	t.release(e)
	delete(t.byKey, e.key)
	t.index(e, false)
}

// index adds an entry to the index of lookups, or removes it.
func (t *Table) index(e *entryState, add bool) {
	switch t.def.Lookup {
	case control.MatchExact:
		if add {
			t.exact.put(e.value, e)
		} else {
			t.exact.remove(e.value)
		}
	case control.MatchLPM:
		bits := wide.OnesCount(e.mask)
		if add {
			t.lpm.put(e, bits)
		} else {
			t.lpm.remove(e, bits)
		}
		t.lpm.rebuild(t.byKey)
	default:
		if add {
			t.tern.put(e)
		} else {
			t.tern.remove(e)
		}
	}
}

// match converts an entry's match to the words that lookups compare, and to a unique key.
func (t *Table) match(e *control.Entry) (value, mask []uint64, key string, err error) {
	d := t.def
	if len(e.Match) != len(d.KeyFields) {
		return nil, nil, "", control.Errorf(control.ErrInvalid, TableName(d.Name), "%d match fields; the key has %d",
			len(e.Match), len(d.KeyFields))
	}
	if d.WantsPriority != (e.Priority > 0) || e.Priority < 0 {
		return nil, nil, "", control.Errorf(control.ErrInvalid, TableName(d.Name), "priority %d: %s", e.Priority,
			map[bool]string{true: "it has to be above 0 in a table with ternary, range or optional fields",
				false: "it has to be 0"}[d.WantsPriority])
	}
	value, mask = make([]uint64, d.Words), make([]uint64, d.Words)
	for i := range e.Match {
		k := &d.KeyFields[i]
		v, m, err := matchWords(k, &e.Match[i])
		if err != nil {
			return nil, nil, "", control.Errorf(control.ErrInvalid, TableName(d.Name), "match field %q: %v", k.Name,
				err)
		}
		for j := range v {
			if k.Kind != control.MatchRange {
				m[j] &= k.Mask[j] // the mask in the program
				v[j] &= m[j]
			}
			value[k.Word+j] |= v[j] << k.Shift
			mask[k.Word+j] |= m[j] << k.Shift
		}
	}
	b := make([]byte, 0, 16*len(value)+4)
	for i := range value {
		b = binary.BigEndian.AppendUint64(b, value[i])
		b = binary.BigEndian.AppendUint64(b, mask[i])
	}
	b = binary.BigEndian.AppendUint32(b, uint32(e.Priority))
	return value, mask, string(b), nil
}

// matchWords converts the match of one field to value and mask, or to the ends of a range.
func matchWords(k *program.Key, m *control.Match) (value, mask []uint64, err error) {
	number := func(what string, b []byte) ([]uint64, error) {
		w, ok := wide.Parse(b, k.Width)
		if !ok || len(b) == 0 {
			return nil, fmt.Errorf("%s %x does not fit %d bits, or is empty", what, b, k.Width)
		}
		return w, nil
	}
	full := wide.Of(wide.Ones(k.Width), k.Words)
	if m.Kind == control.MatchDontCare {
		if k.Kind == control.MatchExact {
			return nil, nil, fmt.Errorf("an exact field cannot be left out")
		}
		zero := make([]uint64, k.Words)
		if k.Kind == control.MatchRange {
			return zero, full, nil
		}
		return zero, make([]uint64, k.Words), nil
	}
	if m.Kind != k.Kind && !(k.Kind == control.MatchTernary &&
		(m.Kind == control.MatchOptional || m.Kind == control.MatchExact || m.Kind == control.MatchLPM)) {
		return nil, nil, fmt.Errorf("%v match for a field that is %v", m.Kind, k.Kind)
	}
	if value, err = number("value", m.Value); err != nil {
		return nil, nil, err
	}
	switch m.Kind {
	case control.MatchExact, control.MatchOptional:
		return value, full, nil
	case control.MatchLPM:
		if m.PrefixLen < 0 || m.PrefixLen > k.Width {
			return nil, nil, fmt.Errorf("prefix length %d of a field of %d bits", m.PrefixLen, k.Width)
		}
		hole := wide.Ones(k.Width - m.PrefixLen)
		return value, wide.Of(hole.Xor(hole, wide.Ones(k.Width)), k.Words), nil
	}
	if mask, err = number("mask or high end", m.Mask); err != nil {
		return nil, nil, err
	}
	if m.Kind == control.MatchRange && wide.LessUnsigned(mask, value) {
		return nil, nil, fmt.Errorf("range from %x to %x is empty", m.Value, m.Mask)
	}
	return value, mask, nil
}

// canonical returns a match as a read by the control plane returns it.
func (t *Table) canonical(in []control.Match) []control.Match {
	out := make([]control.Match, len(in))
	for i := range in {
		k := &t.def.KeyFields[i]
		v, m, err := matchWords(k, &in[i])
		if err != nil {
			continue
		}
		kind := in[i].Kind
		if k.Kind != control.MatchRange {
			for j := range v {
				v[j] &= m[j]
			}
			if wide.OnesCount(m) == 0 && k.Kind != control.MatchExact {
				kind = control.MatchDontCare
			}
		} else if wide.OnesCount(v) == 0 && wide.OnesCount(m) == k.Width {
			kind = control.MatchDontCare
		}
		out[i] = control.Match{Kind: kind}
		if kind == control.MatchDontCare {
			continue
		}
		out[i].Value = wide.Bytes(v, k.Width)
		switch kind {
		case control.MatchTernary, control.MatchRange:
			out[i].Mask = wide.Bytes(m, k.Width)
		case control.MatchLPM:
			out[i].PrefixLen = in[i].PrefixLen
		}
	}
	return out
}

// export returns an entry as a read by the control plane returns it.
func (t *Table) export(e *entryState) control.Entry {
	out := e.e
	out.Match = slices.Clone(e.e.Match)
	for i := range out.Match {
		out.Match[i].Value, out.Match[i].Mask = slices.Clone(out.Match[i].Value), slices.Clone(out.Match[i].Mask)
	}
	out.Action = t.exportAction(e)
	out.Counter, out.Meter, out.Colors = nil, nil, nil
	if t.def.Counts {
		v := e.counter.get()
		out.Counter = &v
	}
	if e.meter != nil {
		c := e.meter.Counts()
		out.Meter, out.Colors = e.meter.Config(), &c
	}
	if t.def.Ages {
		out.SinceLastHit = e.idle(t.st.env.Clock())
	}
	return out
}
