// SPDX-License-Identifier: Apache-2.0

package universal

import (
	"fmt"

	"github.com/netsketch/netsketch/sketch"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/internal/wire"
)

// MarshalBinary serializes the sketch.
func (s *Sketch) MarshalBinary() ([]byte, error) {
	w := wire.NewWriter(wire.Universal, family.ID[family.P4](), 0, s.Memory())
	var flags uint32
	if s.packets != nil {
		flags = 1
	}
	l := s.layout
	w.U32(flags, uint32(l.Key), uint32(l.Levels), uint32(l.Rows), uint32(l.Columns), uint32(l.Ways), uint32(l.Slots))
	w.U32(s.counters...)
	w.U32(s.heavy...)
	w.U32(s.packets...)
	return w.Bytes(), nil
}

// UnmarshalBinary replaces the sketch by a serialized one.
func (s *Sketch) UnmarshalBinary(b []byte) error {
	r, err := wire.NewReader(b, wire.Universal, family.ID[family.P4]())
	if err != nil {
		return fmt.Errorf("universal: %w", err)
	}
	flags, key := r.U32(), r.U32()
	l := Layout{Key: flow.Fields(key), Levels: int(r.U32()), Rows: int(r.U32()), Columns: int(r.U32()),
		Ways: int(r.U32()), Slots: int(r.U32())}
	if flags > 1 || uint32(l.Key) != key || r.Seed != 0 {
		return fmt.Errorf("universal: %w: flags %#x, key %#x, seed %d", sketch.ErrFormat, flags, key, r.Seed)
	}
	if err := l.Validate(); err != nil {
		return fmt.Errorf("%w: %w", sketch.ErrFormat, err)
	}
	packets := int(flags) * l.Levels
	if err := r.Expect(l.Bytes() + 4*packets); err != nil {
		return fmt.Errorf("universal: %w", err)
	}
	n, err := New(l)
	if err != nil {
		return err
	}
	wire.Cells(r, n.counters)
	wire.Cells(r, n.heavy)
	n.packets = n.packets[:packets]
	wire.Cells(r, n.packets)
	if flags == 0 {
		n.packets = nil
	}
	*s = *n
	return nil
}
