// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"github.com/netsketch/netsketch/p4/softswitch/machine"
)

func (s *Switch) withTable(name string, f func(t *machine.Table) error) error {
	return s.with(machine.TableName(name), func(st *loaded) error {
		t, err := st.Table(name)
		if err != nil {
			return err
		}
		return f(t)
	})
}

// InsertEntry adds an entry. Errors: ErrNotFound (table, action, member, group), ErrExists,
// ErrFull, ErrInvalid, ErrConst.
func (s *Switch) InsertEntry(table string, e Entry) error {
	return s.withTable(table, func(t *machine.Table) error { return t.Insert(e) })
}

// ModifyEntry replaces action, timeout, metadata of the entry with e's key; its direct counter is
// set if e.Counter is not nil, its direct meter is set to e.Meter.
func (s *Switch) ModifyEntry(table string, e Entry) error {
	return s.withTable(table, func(t *machine.Table) error { return t.Modify(e) })
}

// DeleteEntry removes the entry with e's key.
func (s *Switch) DeleteEntry(table string, e Entry) error {
	return s.withTable(table, func(t *machine.Table) error { return t.Delete(e) })
}

// ReadEntry returns the entry with e's key.
func (s *Switch) ReadEntry(table string, e Entry) (out Entry, err error) {
	err = s.withTable(table, func(t *machine.Table) (err error) {
		out, err = t.Read(e)
		return err
	})
	return out, err
}

// ReadEntries returns all entries of a table in insertion order, without the default entry.
func (s *Switch) ReadEntries(table string) (out []Entry, err error) {
	err = s.withTable(table, func(t *machine.Table) error {
		out = t.ReadAll()
		return nil
	})
	return out, err
}

// SetDefault sets a table's default action; nil restores the program's own.
func (s *Switch) SetDefault(table string, a *Action) error {
	return s.withTable(table, func(t *machine.Table) error { return t.SetDefault(a) })
}

// Default returns a table's default action. It returns nil for a table without one, which is a
// table with an implementation.
func (s *Switch) Default(table string) (a *Action, err error) {
	err = s.withTable(table, func(t *machine.Table) error {
		a = t.Default()
		return nil
	})
	return a, err
}

// SetDirectCounter sets the direct counter of the entry with a key, or of the default entry if key
// is nil.
func (s *Switch) SetDirectCounter(table string, key *Entry, v CounterData) error {
	return s.withTable(table, func(t *machine.Table) error { return t.SetDirectCounter(key, v) })
}

// SetDirectColors sets the color counters of an entry's direct meter (nil: the default entry).
func (s *Switch) SetDirectColors(table string, key *Entry, v Colors) error {
	return s.withTable(table, func(t *machine.Table) error { return t.SetDirectColors(key, v) })
}

// SetDirectMeter configures the direct meter of an entry (nil: the default entry, for packets that
// miss). A nil configuration removes the old one.
func (s *Switch) SetDirectMeter(table string, key *Entry, v *MeterConfig) error {
	return s.withTable(table, func(t *machine.Table) error { return t.SetDirectMeter(key, v) })
}

// DirectMeter returns the configuration (nil if there is none) and the color counters of an entry's
// direct meter (nil: the default entry).
func (s *Switch) DirectMeter(table string, key *Entry) (v *MeterConfig, c Colors, err error) {
	err = s.withTable(table, func(t *machine.Table) (err error) {
		v, c, err = t.DirectMeter(key)
		return err
	})
	return v, c, err
}

// DirectCounter returns the direct counter of an entry. The counter of the default entry (nil)
// counts packets that missed.
func (s *Switch) DirectCounter(table string, key *Entry) (v CounterData, err error) {
	err = s.withTable(table, func(t *machine.Table) (err error) {
		v, err = t.DirectCounter(key)
		return err
	})
	return v, err
}

// SweepIdle calls f for each entry that had no hit for its IdleTimeout since its last hit or last
// notification. The owner of the clock calls it: a ticker, or a simulation's event queue. The entry
// stays in the table.
func (s *Switch) SweepIdle(f func(table string, e Entry)) {
	var idle []machine.IdleEntry
	_ = s.with("switch", func(st *loaded) error {
		idle = st.SweepIdle(s.clock())
		return nil
	})
	for _, i := range idle {
		f(i.Table, i.Entry)
	}
}
