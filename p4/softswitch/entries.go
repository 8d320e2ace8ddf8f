// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"time"
)

func tableName(n string) string { return fmt.Sprintf("table %q", n) }

// table finds a table by name.
func (st *state) table(name string) (*tableState, error) {
	t := st.byName[name]
	if t == nil {
		return nil, fail(ErrNotFound, tableName(name), "the program has no such table")
	}
	return t, nil
}

func (s *Switch) withTable(name string, f func(t *tableState) error) error {
	return s.with(tableName(name), func(st *state) error {
		t, err := st.table(name)
		if err != nil {
			return err
		}
		return f(t)
	})
}

// InsertEntry adds an entry. Errors: ErrNotFound (table, action, member, group), ErrExists, ErrFull, ErrInvalid, ErrConst.
func (s *Switch) InsertEntry(table string, e Entry) error {
	return s.withTable(table, func(t *tableState) error {
		if t.def.ConstEntries {
			return fail(ErrConst, tableName(table), "its entries are the program's")
		}
		e.Const = false
		return t.insert(e)
	})
}

// ModifyEntry replaces action, timeout, metadata of the entry with e's key; its direct counter is set if e.Counter is not nil,
// its direct meter is set to e.Meter.
func (s *Switch) ModifyEntry(table string, e Entry) error {
	return s.withTable(table, func(t *tableState) error {
		if t.def.ConstEntries {
			return fail(ErrConst, tableName(table), "its entries are the program's")
		}
		return t.modify(e)
	})
}

// DeleteEntry removes the entry with e's key.
func (s *Switch) DeleteEntry(table string, e Entry) error {
	return s.withTable(table, func(t *tableState) error {
		if t.def.ConstEntries {
			return fail(ErrConst, tableName(table), "its entries are the program's")
		}
		old, err := t.existing(e)
		if err != nil {
			return err
		}
		t.remove(old)
		return nil
	})
}

// ReadEntry returns the entry with e's key.
func (s *Switch) ReadEntry(table string, e Entry) (out Entry, err error) {
	err = s.withTable(table, func(t *tableState) error {
		old, err := t.existing(e)
		if err == nil {
			out = t.export(old)
		}
		return err
	})
	return out, err
}

// ReadEntries returns all entries of a table, the default entry not among them, in insertion order.
func (s *Switch) ReadEntries(table string) (out []Entry, err error) {
	err = s.withTable(table, func(t *tableState) error {
		all := t.inOrder()
		out = make([]Entry, len(all))
		for i, e := range all {
			out[i] = t.export(e)
		}
		return nil
	})
	return out, err
}

func (t *tableState) inOrder() []*entryState {
	all := make([]*entryState, 0, len(t.byKey))
	for _, e := range t.byKey {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *entryState) int { return cmp.Compare(a.seq, b.seq) })
	return all
}

// SetDefault sets a table's default action; nil sets it back to the program's own.
func (s *Switch) SetDefault(table string, a *Action) error {
	return s.withTable(table, func(t *tableState) error {
		switch {
		case t.def.ConstDefault:
			return fail(ErrConst, tableName(table), "its default action is the program's")
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
	})
}

// Default returns a table's default action. It is nil when a table (one with an implementation) has none.
func (s *Switch) Default(table string) (a *Action, err error) {
	err = s.withTable(table, func(t *tableState) error {
		if t.dflt == nil {
			return nil
		}
		v := t.exportAction(t.dflt)
		a = &v
		return nil
	})
	return a, err
}

// SetDirectCounter sets the direct counter of the entry with e's key.
func (s *Switch) SetDirectCounter(table string, e Entry, v CounterData) error {
	return s.withTable(table, func(t *tableState) error {
		if !t.def.count {
			return fail(ErrNotFound, tableName(table), "it has no direct counter")
		}
		old, err := t.existing(e)
		if err == nil {
			old.counter.set(v)
		}
		return err
	})
}

// SetDirectColours sets what the direct meter of the entry with e's key has coloured.
func (s *Switch) SetDirectColours(table string, e Entry, v Colours) error {
	return s.withTable(table, func(t *tableState) error {
		old, err := t.existing(e)
		if err == nil && old.meter != nil {
			old.meter.setColours(v)
		}
		return err
	})
}

// SetDirectMeter sets the direct meter of the entry with e's key; nil makes it unconfigured.
func (s *Switch) SetDirectMeter(table string, e Entry, v *MeterConfig) error {
	return s.withTable(table, func(t *tableState) error {
		if t.def.meter == nil {
			return fail(ErrNotFound, tableName(table), "it has no direct meter")
		}
		if err := checkMeter(tableName(table), v); err != nil {
			return err
		}
		old, err := t.existing(e)
		if err == nil {
			old.meter.configure(v, s.clock())
		}
		return err
	})
}

// SetDefaultDirectCounter sets the direct counter of the default entry.
func (s *Switch) SetDefaultDirectCounter(table string, v CounterData) error {
	return s.withDefault(table, func(t *tableState) error {
		if !t.def.count {
			return fail(ErrNotFound, tableName(table), "it has no direct counter")
		}
		t.dflt.counter.set(v)
		return nil
	})
}

// SetDefaultDirectMeter configures the direct meter of the default entry: packets that miss are coloured. nil makes it unconfigured,
// and the colour stays what it was, as in BMv2.
func (s *Switch) SetDefaultDirectMeter(table string, v *MeterConfig) error {
	return s.withDefault(table, func(t *tableState) error {
		if t.def.meter == nil {
			return fail(ErrNotFound, tableName(table), "it has no direct meter")
		}
		if err := checkMeter(tableName(table), v); err != nil {
			return err
		}
		if t.dflt.meter == nil {
			t.dflt.meter = &meterState{unit: t.def.meter.unit}
		}
		t.dflt.meter.configure(v, s.clock())
		return nil
	})
}

// DefaultDirectMeter returns the direct meter of the default entry, nil where unconfigured, and what it has coloured.
func (s *Switch) DefaultDirectMeter(table string) (v *MeterConfig, c Colours, err error) {
	err = s.withDefault(table, func(t *tableState) error {
		if t.def.meter == nil {
			return fail(ErrNotFound, tableName(table), "it has no direct meter")
		}
		if t.dflt.meter != nil {
			v, c = t.dflt.meter.config(), t.dflt.meter.coloured()
		}
		return nil
	})
	return v, c, err
}

// SetDefaultColours sets what the direct meter of the default entry has coloured.
func (s *Switch) SetDefaultColours(table string, v Colours) error {
	return s.withDefault(table, func(t *tableState) error {
		if t.dflt.meter != nil {
			t.dflt.meter.setColours(v)
		}
		return nil
	})
}

func (s *Switch) withDefault(table string, f func(t *tableState) error) error {
	return s.withTable(table, func(t *tableState) error {
		if t.dflt == nil {
			return fail(ErrNotFound, tableName(table), "it has no default action")
		}
		return f(t)
	})
}

// DefaultDirectCounter returns the direct counter of the default entry: packets that missed.
func (s *Switch) DefaultDirectCounter(table string) (v CounterData, err error) {
	err = s.withTable(table, func(t *tableState) error {
		if !t.def.count {
			return fail(ErrNotFound, tableName(table), "it has no direct counter")
		}
		if t.dflt != nil {
			v = t.dflt.counter.get()
		}
		return nil
	})
	return v, err
}

// SweepIdle calls f for each entry that had no hit for its IdleTimeout since its last hit or last notification. Who drives the
// clock calls it: a ticker, or a simulation's event queue. The entry stays in the table.
func (s *Switch) SweepIdle(f func(table string, e Entry)) {
	type idle struct {
		table string
		e     Entry
	}
	var found []idle
	now := s.clock()
	_ = s.with("switch", func(st *state) error {
		for _, t := range st.tables {
			if !t.def.age {
				continue
			}
			for _, e := range t.inOrder() {
				since := max(e.lastHit, e.notified)
				if d := e.e.IdleTimeout; d > 0 && now-time.Duration(since) >= d {
					e.notified = int64(now)
					found = append(found, idle{t.def.Name, t.export(e)})
				}
			}
		}
		return nil
	})
	for _, i := range found {
		f(i.table, i.e)
	}
}

// existing finds the entry with a key.
func (t *tableState) existing(e Entry) (*entryState, error) {
	_, _, key, err := t.match(&e)
	if err != nil {
		return nil, err
	}
	old := t.byKey[key]
	if old == nil {
		return nil, fail(ErrNotFound, tableName(t.def.Name), "no entry matches %s", describeMatch(t.def, &e))
	}
	return old, nil
}

func describeMatch(d *tableDef, e *Entry) string {
	out := ""
	for i, m := range e.Match {
		if i < len(d.Keys) {
			out += fmt.Sprintf("%s=%x ", d.Keys[i].Name, m.Value)
		}
	}
	return out + fmt.Sprintf("priority=%d", e.Priority)
}

// insert adds an entry, the program's own too.
func (t *tableState) insert(in Entry) error {
	d := t.def
	value, mask, key, err := t.match(&in)
	if err != nil {
		return err
	}
	if len(d.keys) == 0 {
		return fail(ErrInvalid, tableName(d.Name), "it has no key: only its default action can be set")
	}
	if t.byKey[key] != nil {
		return fail(ErrExists, tableName(d.Name), "an entry with %s is there", describeMatch(d, &in))
	}
	if len(t.byKey) >= d.Size {
		return fail(ErrFull, tableName(d.Name), "it holds its %d entries", d.Size)
	}
	t.seq++
	e := &entryState{hit: true, value: value, mask: mask, priority: in.Priority, seq: t.seq, key: key, e: in}
	if err := t.fill(e, in); err != nil {
		return err
	}
	if err := t.bind(e, in.Action); err != nil {
		return err
	}
	e.lastHit = int64(t.st.sw.clock())
	t.share(e)
	e.e.Match = t.canonical(in.Match)
	t.byKey[key] = e
	t.index(e, true)
	return nil
}

// fill sets what belongs to an entry besides its action.
func (t *tableState) fill(e *entryState, in Entry) error {
	d := t.def
	switch {
	case in.IdleTimeout < 0, in.IdleTimeout > 0 && !d.age:
		return fail(ErrInvalid, tableName(d.Name), "idle timeout %v: the table does not support timeouts, or it is negative", in.IdleTimeout)
	case in.Counter != nil && !d.count:
		return fail(ErrInvalid, tableName(d.Name), "it has no direct counter")
	case in.Meter != nil && d.meter == nil:
		return fail(ErrInvalid, tableName(d.Name), "it has no direct meter")
	}
	if d.meter != nil {
		if err := checkMeter(tableName(d.Name), in.Meter); err != nil {
			return err
		}
		if e.meter == nil {
			e.meter = &meterState{unit: d.meter.unit}
		}
		e.meter.configure(in.Meter, t.st.sw.clock())
	}
	if in.Counter != nil {
		e.counter.set(*in.Counter)
	}
	e.e.IdleTimeout, e.e.Metadata = in.IdleTimeout, slices.Clone(in.Metadata)
	return nil
}

func (t *tableState) modify(in Entry) error {
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
	old.run, old.next, old.group, old.member, old.e.Action = fresh.run, fresh.next, fresh.group, fresh.member, fresh.e.Action
	return nil
}

func (t *tableState) remove(e *entryState) {
	t.release(e)
	delete(t.byKey, e.key)
	t.index(e, false)
}

// index adds an entry to the structure that lookups use, or takes it out.
func (t *tableState) index(e *entryState, add bool) {
	switch t.def.lookup {
	case MatchExact:
		if add {
			t.exact.put(e.value, e)
		} else {
			t.exact.remove(e.value)
		}
	case MatchLPM:
		bits := popcount(e.mask)
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

// match turns an entry's match into the words that lookups compare, and into a key that tells entries apart.
func (t *tableState) match(e *Entry) (value, mask []uint64, key string, err error) {
	d := t.def
	if len(e.Match) != len(d.keys) {
		return nil, nil, "", fail(ErrInvalid, tableName(d.Name), "%d match fields; the key has %d", len(e.Match), len(d.keys))
	}
	if d.WantsPriority != (e.Priority > 0) || e.Priority < 0 {
		return nil, nil, "", fail(ErrInvalid, tableName(d.Name), "priority %d: %s", e.Priority,
			map[bool]string{true: "it has to be above 0 in a table with ternary, range or optional fields", false: "it has to be 0"}[d.WantsPriority])
	}
	value, mask = make([]uint64, d.words), make([]uint64, d.words)
	for i := range e.Match {
		k := &d.keys[i]
		v, m, err := k.words2(&e.Match[i])
		if err != nil {
			return nil, nil, "", fail(ErrInvalid, tableName(d.Name), "match field %q: %v", k.Name, err)
		}
		for j := range v {
			if k.Kind != MatchRange {
				m[j] &= k.mask[j] // the program's own mask
				v[j] &= m[j]
			}
			value[k.word+j] |= v[j] << k.shift
			mask[k.word+j] |= m[j] << k.shift
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

// words2 reads one field's match: value and mask, or the ends of a range.
func (k *keyDef) words2(m *Match) (value, mask []uint64, err error) {
	number := func(what string, b []byte) ([]uint64, error) {
		w, ok := wordsFrom(b, k.Width)
		if !ok || len(b) == 0 {
			return nil, fmt.Errorf("%s %x does not fit %d bits, or is empty", what, b, k.Width)
		}
		return w, nil
	}
	full := wordsOf(ones(k.Width), k.words)
	if m.Kind == MatchDontCare {
		if k.Kind == MatchExact {
			return nil, nil, fmt.Errorf("an exact field cannot be left out")
		}
		zero := make([]uint64, k.words)
		if k.Kind == MatchRange {
			return zero, full, nil
		}
		return zero, make([]uint64, k.words), nil
	}
	if m.Kind != k.Kind && !(k.Kind == MatchTernary && (m.Kind == MatchOptional || m.Kind == MatchExact || m.Kind == MatchLPM)) {
		return nil, nil, fmt.Errorf("%v match for a field that is %v", m.Kind, k.Kind)
	}
	if value, err = number("value", m.Value); err != nil {
		return nil, nil, err
	}
	switch m.Kind {
	case MatchExact, MatchOptional:
		return value, full, nil
	case MatchLPM:
		if m.PrefixLen < 0 || m.PrefixLen > k.Width {
			return nil, nil, fmt.Errorf("prefix length %d of a field of %d bits", m.PrefixLen, k.Width)
		}
		hole := ones(k.Width - m.PrefixLen)
		return value, wordsOf(hole.Xor(hole, ones(k.Width)), k.words), nil
	}
	if mask, err = number("mask or high end", m.Mask); err != nil {
		return nil, nil, err
	}
	if m.Kind == MatchRange && lessWords(mask, value) {
		return nil, nil, fmt.Errorf("range from %x to %x is empty", m.Value, m.Mask)
	}
	return value, mask, nil
}

// canonical is a match as it is read back.
func (t *tableState) canonical(in []Match) []Match {
	out := make([]Match, len(in))
	for i := range in {
		k := &t.def.keys[i]
		v, m, err := k.words2(&in[i])
		if err != nil {
			continue
		}
		kind := in[i].Kind
		if k.Kind != MatchRange {
			for j := range v {
				v[j] &= m[j]
			}
			if popcount(m) == 0 && k.Kind != MatchExact {
				kind = MatchDontCare
			}
		} else if popcount(v) == 0 && popcount(m) == k.Width {
			kind = MatchDontCare
		}
		out[i] = Match{Kind: kind}
		if kind == MatchDontCare {
			continue
		}
		out[i].Value = bytesOf(v, k.Width)
		switch kind {
		case MatchTernary, MatchRange:
			out[i].Mask = bytesOf(m, k.Width)
		case MatchLPM:
			out[i].PrefixLen = in[i].PrefixLen
		}
	}
	return out
}

// export is an entry as it is read.
func (t *tableState) export(e *entryState) Entry {
	out := e.e
	out.Match = slices.Clone(e.e.Match)
	for i := range out.Match {
		out.Match[i].Value, out.Match[i].Mask = slices.Clone(out.Match[i].Value), slices.Clone(out.Match[i].Mask)
	}
	out.Action = t.exportAction(e)
	out.Counter, out.Meter, out.Colours = nil, nil, nil
	if t.def.count {
		v := e.counter.get()
		out.Counter = &v
	}
	if e.meter != nil {
		c := e.meter.coloured()
		out.Meter, out.Colours = e.meter.config(), &c
	}
	if t.def.age {
		out.SinceLastHit = e.idle(t.st.sw.clock())
	}
	return out
}

func checkMeter(object string, c *MeterConfig) error {
	if c != nil && (c.PIR < c.CIR || c.PBurst == 0 && c.PIR > 0) {
		return fail(ErrInvalid, object, "meter rates: peak rate %d has to be at least the committed rate %d, and its burst above 0", c.PIR, c.CIR)
	}
	return nil
}
