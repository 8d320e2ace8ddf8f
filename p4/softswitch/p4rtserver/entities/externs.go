// SPDX-License-Identifier: Apache-2.0

package entities

import (
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
	"github.com/netsketch/netsketch/p4/softswitch"
)

// cells returns the cells of an array that an index selects: one cell, or all cells if the index is
// unset.
func cells(what string, i *p4v1.Index, size int64) (from, to int, err error) {
	switch {
	case i == nil:
		return 0, int(size), nil
	case i.GetIndex() < 0:
		return 0, 0, invalid("%s: index %d is negative", what, i.GetIndex())
	case i.GetIndex() >= size:
		return 0, 0, status.Errorf(codes.OutOfRange, "%s: index %d is beyond its %d cells", what, i.GetIndex(), size)
	}
	return int(i.GetIndex()), int(i.GetIndex()) + 1, nil
}

func onlyModify(what string, kind p4v1.Update_Type) error {
	if kind != p4v1.Update_MODIFY {
		return invalid("%s can only be modified", what)
	}
	return nil
}

// counter finds an indirect counter.
func (d *Device) counter(id uint32) (*p4values.Counter, error) {
	c, ok := d.cat.Counters.ID(id)
	if !ok {
		return nil, notFound("the program has no counter with id %#x", id)
	}
	if c.Table != nil {
		return nil, invalid("counter %s is direct: its values are with the entries of table %s", c.Name, c.Table.Name)
	}
	return c, nil
}

func (d *Device) writeCounter(kind p4v1.Update_Type, e *p4v1.CounterEntry, role string) (undo, error) {
	c, err := d.counter(e.GetCounterId())
	if err != nil {
		return nil, err
	}
	if err := checkRole(role, c.Object); err != nil {
		return nil, err
	}
	if err := onlyModify("counter "+c.Name, kind); err != nil {
		return nil, err
	}
	from, to, err := cells("counter "+c.Name, e.GetIndex(), c.Size)
	if err != nil || e.GetData() == nil {
		return nil, err
	}
	v, err := counterOf(e.GetData())
	if err != nil {
		return nil, err
	}
	old, err := d.sw.ReadCounter(c.Name, from, to)
	if err != nil {
		return nil, err
	}
	put := func(value func(i int) softswitch.CounterData) error {
		for i := from; i < to; i++ {
			if err := d.sw.WriteCounter(c.Name, i, value(i)); err != nil {
				return err
			}
		}
		return nil
	}
	return func() error { return put(func(i int) softswitch.CounterData { return old[i-from] }) },
		put(func(int) softswitch.CounterData { return v })
}

// meter finds an indirect meter.
func (d *Device) meter(id uint32) (*p4values.Meter, error) {
	m, ok := d.cat.Meters.ID(id)
	if !ok {
		return nil, notFound("the program has no meter with id %#x", id)
	}
	if m.Table != nil {
		return nil, invalid("meter %s is direct: its values are with the entries of table %s", m.Name, m.Table.Name)
	}
	return m, nil
}

func (d *Device) writeMeter(kind p4v1.Update_Type, e *p4v1.MeterEntry, role string) (undo, error) {
	m, err := d.meter(e.GetMeterId())
	if err != nil {
		return nil, err
	}
	if err := checkRole(role, m.Object); err != nil {
		return nil, err
	}
	if err := onlyModify("meter "+m.Name, kind); err != nil {
		return nil, err
	}
	if !onlyZeros(e.GetCounterData()) {
		return nil, notZero("meter " + m.Name)
	}
	from, to, err := cells("meter "+m.Name, e.GetIndex(), m.Size)
	if err != nil {
		return nil, err
	}
	v, err := meterOf(m, e.GetConfig())
	if err != nil {
		return nil, err
	}
	old, err := d.sw.ReadMeter(m.Name, from, to)
	if err != nil {
		return nil, err
	}
	colors, err := d.sw.ReadColors(m.Name, from, to)
	if err != nil {
		return nil, err
	}
	put := func(value func(i int) (*softswitch.MeterConfig, softswitch.Colors)) error {
		for i := from; i < to; i++ {
			config, colors := value(i)
			if err := d.sw.WriteMeter(m.Name, i, config); err != nil {
				return err
			}
			if e.GetCounterData() == nil {
				continue
			}
			if err := d.sw.WriteColors(m.Name, i, colors); err != nil {
				return err
			}
		}
		return nil
	}
	return func() error {
			return put(func(i int) (*softswitch.MeterConfig, softswitch.Colors) { return old[i-from], colors[i-from] })
		},
		put(func(int) (*softswitch.MeterConfig, softswitch.Colors) { return v, softswitch.Colors{} })
}

func (d *Device) register(id uint32) (*p4values.Register, error) {
	r, ok := d.cat.Registers.ID(id)
	if !ok {
		return nil, notFound("the program has no register with id %#x", id)
	}
	if r.Width == 0 {
		return nil, unimplemented("register %s: only registers of plain numbers can be read and written", r.Name)
	}
	return r, nil
}

func (d *Device) writeRegister(kind p4v1.Update_Type, e *p4v1.RegisterEntry, role string, wantUndo bool) (undo, error) {
	r, err := d.register(e.GetRegisterId())
	if err != nil {
		return nil, err
	}
	if err := checkRole(role, r.Object); err != nil {
		return nil, err
	}
	if err := onlyModify("register "+r.Name, kind); err != nil {
		return nil, err
	}
	from, to, err := cells("register "+r.Name, e.GetIndex(), int64(r.Size))
	if err != nil {
		return nil, err
	}
	b, ok := e.GetData().GetData().(*p4v1.P4Data_Bitstring)
	if !ok {
		return nil, invalid("register %s holds numbers of %d bits, and the data is none", r.Name, r.Width)
	}
	pad := p4values.Pad
	if r.Signed {
		pad = p4values.PadSigned
	}
	v, err := pad(b.Bitstring, r.Width)
	if err != nil {
		return nil, invalid("register %s: %v", r.Name, err)
	}
	var old []byte
	if wantUndo {
		if old, err = d.sw.ReadRegisterBytes(r.Name, from, to); err != nil {
			return nil, err
		}
	}
	take := func() error {
		n := len(v)
		for i := from; i < to; i++ {
			if err := d.sw.WriteRegisterBytes(r.Name, i, old[(i-from)*n:(i-from+1)*n]); err != nil {
				return err
			}
		}
		return nil
	}
	if e.GetIndex() == nil && p4values.IsZero(v) {
		return take, d.sw.ResetRegister(r.Name)
	}
	for i := from; i < to; i++ {
		if err := d.sw.WriteRegisterBytes(r.Name, i, v); err != nil {
			return nil, err
		}
	}
	return take, nil
}

func (d *Device) writeValueSet(kind p4v1.Update_Type, e *p4v1.ValueSetEntry, role string) (undo, error) {
	v, ok := d.cat.ValueSets.ID(e.GetValueSetId())
	if !ok {
		return nil, notFound("the program has no value set with id %#x", e.GetValueSetId())
	}
	if err := checkRole(role, v.Object); err != nil {
		return nil, err
	}
	if err := onlyModify("value set "+v.Name, kind); err != nil {
		return nil, err
	}
	if len(e.GetMembers()) > int(v.Size) {
		return nil, status.Errorf(codes.ResourceExhausted, "value set %s has room for %d members, not for %d", v.Name,
			v.Size, len(e.GetMembers()))
	}
	seen := map[string]bool{}
	members := make([][]softswitch.Match, 0, len(e.GetMembers()))
	for _, m := range e.GetMembers() {
		match, err := matchOf("value set "+v.Name, v.Match, m.GetMatch())
		if err != nil {
			return nil, err
		}
		key := ""
		for _, f := range match {
			key += string(rune(f.Kind)) + string(f.Value) + "/" + string(f.Mask) + string(rune(f.PrefixLen))
		}
		if seen[key] {
			return nil, status.Errorf(codes.AlreadyExists, "value set %s: a member is there twice", v.Name)
		}
		seen[key] = true
		members = append(members, match)
	}
	old, err := d.sw.ReadValueSet(v.Name)
	if err != nil {
		return nil, err
	}
	return func() error { return d.sw.SetValueSet(v.Name, old) }, d.sw.SetValueSet(v.Name, members)
}
