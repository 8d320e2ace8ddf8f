// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"slices"
	"time"

	"github.com/netsketch/netsketch/p4/softswitch/control"
	"github.com/netsketch/netsketch/p4/softswitch/meter"
	"github.com/netsketch/netsketch/p4/softswitch/program"
	"github.com/netsketch/netsketch/p4/softswitch/wide"
)

// span checks a range of cells; to -1 is the end.
func span(object string, from, to, size int) (int, error) {
	if to < 0 {
		to = size
	}
	if from < 0 || from > to || to > size {
		return 0, control.Errorf(control.ErrNotFound, object, "cells %d to %d; it has %d", from, to, size)
	}
	return to, nil
}

// Counter returns an indirect counter by name. Errors: ErrNotFound, ErrInvalid for a direct one.
func (st *State) Counter(name string) (*Counter, error) {
	for i := range st.Prog.Info.Counters {
		if info := &st.Prog.Info.Counters[i]; info.Name == name {
			if info.Table != "" {
				return nil, control.Errorf(control.ErrInvalid, CounterName(name),
					"it is the direct counter of table %q: read that table's entries", info.Table)
			}
			return st.counters[i], nil
		}
	}
	return nil, control.Errorf(control.ErrNotFound, CounterName(name), "the program has no such counter")
}

func CounterName(name string) string { return fmt.Sprintf("counter %q", name) }

// Read returns cells from..to-1; to -1 means up to the end.
func (c *Counter) Read(from, to int) ([]control.CounterData, error) {
	end, err := span(CounterName(c.name), from, to, c.size)
	if err != nil {
		return nil, err
	}
	out := make([]control.CounterData, end-from)
	for i := range out {
		out[i] = c.get(from + i)
	}
	return out, nil
}

// Write sets a cell.
func (c *Counter) Write(index int, v control.CounterData) error {
	_, err := span(CounterName(c.name), index, index+1, c.size)
	if err == nil {
		c.set(index, v)
	}
	return err
}

// Meter returns an indirect meter by name. Errors: ErrNotFound, ErrInvalid for a direct one.
func (st *State) Meter(name string) (*Meter, error) {
	for i := range st.Prog.Info.Meters {
		if info := &st.Prog.Info.Meters[i]; info.Name == name {
			if info.Table != "" {
				return nil, control.Errorf(control.ErrInvalid, MeterName(name),
					"it is the direct meter of table %q: use that table's entries", info.Table)
			}
			return &st.meters[i], nil
		}
	}
	return nil, control.Errorf(control.ErrNotFound, MeterName(name), "the program has no such meter")
}

func MeterName(name string) string { return fmt.Sprintf("meter %q", name) }

func (m *Meter) span(from, to int) ([]meter.Meter, error) {
	end, err := span(MeterName(m.name), from, to, len(m.cells))
	if err != nil {
		return nil, err
	}
	return m.cells[from:end], nil
}

// Read returns the configurations of cells from..to-1, nil if unconfigured; to -1 means up to the
// end.
func (m *Meter) Read(from, to int) ([]*control.MeterConfig, error) {
	cells, err := m.span(from, to)
	if err != nil {
		return nil, err
	}
	out := make([]*control.MeterConfig, len(cells))
	for i := range cells {
		out[i] = cells[i].Config()
	}
	return out, nil
}

// ReadColors returns the color counters of cells from..to-1; to -1 means up to the end.
func (m *Meter) ReadColors(from, to int) ([]control.Colors, error) {
	cells, err := m.span(from, to)
	if err != nil {
		return nil, err
	}
	out := make([]control.Colors, len(cells))
	for i := range cells {
		out[i] = cells[i].Counts()
	}
	return out, nil
}

// WriteColors sets the color counters of a cell.
func (m *Meter) WriteColors(index int, v control.Colors) error {
	cells, err := m.span(index, index+1)
	if err == nil {
		cells[0].SetCounts(v)
	}
	return err
}

// Write configures a cell and fills its buckets at a time on the switch's clock; nil makes it
// unconfigured.
func (m *Meter) Write(index int, v *control.MeterConfig, now time.Duration) error {
	cells, err := m.span(index, index+1)
	if err == nil {
		err = meter.Check(MeterName(m.name), v)
	}
	if err == nil {
		cells[0].Configure(v, now)
	}
	return err
}

// Register returns a register array by name. Errors: ErrNotFound.
func (st *State) Register(name string) (*Register, error) {
	for i := range st.Prog.Info.Registers {
		if st.Prog.Info.Registers[i].Name == name {
			return st.regs[i], nil
		}
	}
	return nil, control.Errorf(control.ErrNotFound, RegisterName(name), "the program has no such register")
}

func RegisterName(name string) string { return fmt.Sprintf("register %q", name) }

// ReadBytes returns cells from..to-1, ceil(width/8) big-endian bytes each; to -1 means up to the
// end.
func (r *Register) ReadBytes(from, to int) ([]byte, error) {
	end, err := span(RegisterName(r.name), from, to, int(r.size))
	if err != nil {
		return nil, err
	}
	n := (r.width + 7) / 8
	out := make([]byte, 0, (end-from)*n)
	for i := uint64(from); i < uint64(end); i++ {
		if r.wide != nil {
			out = append(out, wide.Bytes(r.cell(i), r.width)...)
			continue
		}
		v := r.get(i)
		for k := n; k > 0; k-- {
			out = append(out, byte(v>>(8*(k-1))))
		}
	}
	return out, nil
}

// Read returns cells of at most 64 bits from..to-1; to -1 means up to the end.
func (r *Register) Read(from, to int) ([]uint64, error) {
	end, err := span(RegisterName(r.name), from, to, int(r.size))
	if err != nil {
		return nil, err
	}
	if r.width > 64 {
		return nil, control.Errorf(control.ErrInvalid, RegisterName(r.name),
			"its cells have %d bits: use ReadRegisterBytes", r.width)
	}
	out := make([]uint64, end-from)
	for i := range out {
		out[i] = r.get(uint64(from + i))
	}
	return out, nil
}

// WriteBytes sets one cell from a big-endian number.
func (r *Register) WriteBytes(index int, v []byte) error {
	if _, err := span(RegisterName(r.name), index, index+1, int(r.size)); err != nil {
		return err
	}
	w, ok := wide.Parse(v, r.width)
	if !ok {
		return control.Errorf(control.ErrInvalid, RegisterName(r.name), "%x does not fit cells of %d bits", v, r.width)
	}
	if r.wide != nil {
		copy(r.cell(uint64(index)), w)
	} else {
		r.set(uint64(index), w[0])
	}
	return nil
}

func (st *State) valueSet(name string) (*valueSet, *control.ValueSetInfo, error) {
	for i := range st.Prog.Info.ValueSets {
		if st.Prog.Info.ValueSets[i].Name == name {
			return st.vsets[i], &st.Prog.Info.ValueSets[i], nil
		}
	}
	return nil, nil, control.Errorf(control.ErrNotFound, ValueSetName(name), "the program has no such value set")
}

func ValueSetName(name string) string { return fmt.Sprintf("value set %q", name) }

// SetValueSet replaces the members of a parser value set. A member has one Match for each element
// of the key.
func (st *State) SetValueSet(name string, members [][]control.Match) error {
	object := ValueSetName(name)
	v, info, err := st.valueSet(name)
	if err != nil {
		return err
	}
	if info.Size > 0 && len(members) > info.Size {
		return control.Errorf(control.ErrFull, object, "%d members; it holds %d", len(members), info.Size)
	}
	fresh := make([]valueSetMember, 0, len(members))
	kept := make([][]control.Match, 0, len(members))
	for i, m := range members {
		if len(m) != len(info.Widths) {
			return control.Errorf(control.ErrInvalid, object, "member %d has %d elements, not %d", i, len(m),
				len(info.Widths))
		}
		var x valueSetMember
		for j := range m {
			k := program.Key{KeyInfo: control.KeyInfo{Kind: control.MatchTernary, Width: info.Widths[j]},
				Words: (info.Widths[j] + 63) / 64}
			value, mask, err := matchWords(&k, &m[j])
			if err != nil {
				return control.Errorf(control.ErrInvalid, object, "member %d, element %d: %v", i, j, err)
			}
			x.value, x.mask = append(x.value, value...), append(x.mask, mask...)
		}
		fresh, kept = append(fresh, x), append(kept, slices.Clone(m))
	}
	v.members, v.matches = fresh, kept
	return nil
}

// ReadValueSet returns the members of a parser value set.
func (st *State) ReadValueSet(name string) (out [][]control.Match, err error) {
	v, _, err := st.valueSet(name)
	if err != nil {
		return nil, err
	}
	for _, m := range v.matches {
		out = append(out, slices.Clone(m))
	}
	return out, nil
}
