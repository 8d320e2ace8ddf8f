// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"encoding/binary"

	"github.com/netsketch/netsketch/p4/softswitch/machine"
)

// ReadCounter returns cells from..to-1 of an indirect counter; to -1 means up to the end.
func (s *Switch) ReadCounter(name string, from, to int) (out []CounterData, err error) {
	err = s.with(machine.CounterName(name), func(st *loaded) error {
		c, err := st.Counter(name)
		if err == nil {
			out, err = c.Read(from, to)
		}
		return err
	})
	return out, err
}

// WriteCounter sets a cell of an indirect counter.
func (s *Switch) WriteCounter(name string, index int, v CounterData) error {
	return s.with(machine.CounterName(name), func(st *loaded) error {
		c, err := st.Counter(name)
		if err == nil {
			err = c.Write(index, v)
		}
		return err
	})
}

func (s *Switch) withMeter(name string, f func(m *machine.Meter) error) error {
	return s.with(machine.MeterName(name), func(st *loaded) error {
		m, err := st.Meter(name)
		if err == nil {
			err = f(m)
		}
		return err
	})
}

// ReadMeter returns the configurations of cells from..to-1 of an indirect meter, nil for
// unconfigured cells; to -1 means up to the end.
func (s *Switch) ReadMeter(name string, from, to int) (out []*MeterConfig, err error) {
	err = s.withMeter(name, func(m *machine.Meter) (err error) {
		out, err = m.Read(from, to)
		return err
	})
	return out, err
}

// WriteMeter configures a cell of an indirect meter and fills its buckets; nil removes the
// configuration.
func (s *Switch) WriteMeter(name string, index int, v *MeterConfig) error {
	return s.withMeter(name, func(m *machine.Meter) error { return m.Write(index, v, s.clock()) })
}

// ReadColors returns the color counters of cells from..to-1 of an indirect meter; to -1 means up to
// the end.
func (s *Switch) ReadColors(name string, from, to int) (out []Colors, err error) {
	err = s.withMeter(name, func(m *machine.Meter) (err error) {
		out, err = m.ReadColors(from, to)
		return err
	})
	return out, err
}

// WriteColors sets the color counters of a cell of an indirect meter.
func (s *Switch) WriteColors(name string, index int, v Colors) error {
	return s.withMeter(name, func(m *machine.Meter) error { return m.WriteColors(index, v) })
}

func (s *Switch) withRegister(name string, f func(r *machine.Register) error) error {
	return s.with(machine.RegisterName(name), func(st *loaded) error {
		r, err := st.Register(name)
		if err == nil {
			err = f(r)
		}
		return err
	})
}

// ReadRegister returns cells from..to-1 of a register array of at most 64 bits per cell; to -1
// means up to the end. The cells are a consistent snapshot between packets.
func (s *Switch) ReadRegister(name string, from, to int) (out []uint64, err error) {
	err = s.withRegister(name, func(r *machine.Register) (err error) {
		out, err = r.Read(from, to)
		return err
	})
	return out, err
}

// ReadRegisterBytes is ReadRegister for any width: ceil(width/8) big-endian bytes per cell.
func (s *Switch) ReadRegisterBytes(name string, from, to int) (out []byte, err error) {
	err = s.withRegister(name, func(r *machine.Register) (err error) {
		out, err = r.ReadBytes(from, to)
		return err
	})
	return out, err
}

// WriteRegisterBytes sets one cell from a big-endian number.
func (s *Switch) WriteRegisterBytes(name string, index int, v []byte) error {
	return s.withRegister(name, func(r *machine.Register) error { return r.WriteBytes(index, v) })
}

// WriteRegister sets one cell of at most 64 bits.
func (s *Switch) WriteRegister(name string, index int, v uint64) error {
	return s.WriteRegisterBytes(name, index, binary.BigEndian.AppendUint64(nil, v))
}

// ResetRegister sets all cells of a register array to zero.
func (s *Switch) ResetRegister(name string) error {
	return s.withRegister(name, func(r *machine.Register) error {
		r.Reset()
		return nil
	})
}

// SetValueSet replaces the members of a parser value set. A member has one Match for each element
// of the key.
func (s *Switch) SetValueSet(name string, members [][]Match) error {
	return s.with(machine.ValueSetName(name), func(st *loaded) error { return st.SetValueSet(name, members) })
}

// ReadValueSet returns the members of a parser value set.
func (s *Switch) ReadValueSet(name string) (out [][]Match, err error) {
	err = s.with(machine.ValueSetName(name), func(st *loaded) (err error) {
		out, err = st.ReadValueSet(name)
		return err
	})
	return out, err
}
