// SPDX-License-Identifier: Apache-2.0

package p4rt

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// registerEntity addresses one cell of a register, or all cells if the index is negative.
func registerEntity(r *p4values.Register, index int) *p4v1.Entity {
	e := &p4v1.RegisterEntry{RegisterId: r.ID}
	if index >= 0 {
		e.Index = &p4v1.Index{Index: int64(index)}
	}
	return &p4v1.Entity{Entity: &p4v1.Entity_RegisterEntry{RegisterEntry: e}}
}

// registerBatch is how many cells one request reads, so that requests stay far below the limit of
// 4 MB for a message of gRPC.
const registerBatch = 4096

// bankQueries selects the cells of a bank, each by its index: a wildcard would also read the other
// banks, to which packets write. A wildcard selects a bank that is the whole register.
func bankQueries(r *p4values.Register, bank int) []*p4v1.Entity {
	count := bankCells(r)
	if count == r.Size {
		return []*p4v1.Entity{registerEntity(r, -1)}
	}
	queries := make([]*p4v1.Entity, count)
	for i := range queries {
		queries[i] = registerEntity(r, bank*count+i)
	}
	return queries
}

// readBanksByRegister reads the cells of banks with RegisterEntry, and then sets those that are not
// zero to zero. Packets counted in the bank between these two steps are lost.
func (s *session) readBanksByRegister(ctx context.Context, bank int, parts []*readPart) ([]*Cells, error) {
	if err := s.program().registerErr; err != nil {
		return nil, fmt.Errorf("p4rt %s: banks can be read neither by packet (the program needs the read-out control, "+
			"and the client must be primary) nor by register: %w", s.c.cfg.Target, err)
	}
	out := make([]*Cells, len(parts))
	for i, p := range parts {
		if err := s.readRegisterBank(ctx, p.reg, bank, p.cells.Data); err != nil {
			return out, err
		}
		if s.isPrimary() { // only a primary clears cells
			if err := s.clearBank(ctx, p.reg, bank, p.cells.Data); err != nil {
				return out, fmt.Errorf("clear register %s bank %d: %w", p.reg.Name, bank, err)
			}
		}
		out[i] = p.cells
	}
	return out, nil
}

// readRegisterBank reads the cells of a bank and stores them in data.
func (s *session) readRegisterBank(ctx context.Context, r *p4values.Register, bank int, data []byte) error {
	if r.Width == 0 || r.Width > 32 {
		return fmt.Errorf("p4rt %s: %w: register %s has no cells of 1 to 32 bits", s.c.cfg.Target, ErrUnsupported,
			r.Name)
	}
	first, count := bank*bankCells(r), bankCells(r)
	seen := make([]bool, count)
	missing := count
	for batch := range slices.Chunk(bankQueries(r, bank), registerBatch) {
		for e, err := range s.read(ctx, batch) {
			if err != nil {
				return err
			}
			re := e.GetRegisterEntry()
			i := int(re.GetIndex().GetIndex()) - first
			if re.GetRegisterId() != r.ID || i < 0 || i >= count {
				continue
			}
			bits := re.GetData().GetBitstring()
			if r.Signed {
				bits, _ = p4values.PadSigned(bits, r.Width)
			}
			v, ok := uint32Of(bits)
			if !ok {
				return fmt.Errorf("p4rt %s: register %s[%d]: the switch sent %#x for a cell of %d bits",
					s.c.cfg.Target, r.Name, i+first, re.GetData().GetBitstring(), r.Width)
			}
			binary.LittleEndian.PutUint32(data[4*i:], v)
			if !seen[i] {
				seen[i] = true
				missing--
			}
		}
	}
	if missing > 0 {
		return fmt.Errorf("p4rt %s: register %s: the switch left out %d of %d cells", s.c.cfg.Target, r.Name, missing,
			count)
	}
	return nil
}

// clearBank sets the cells of a bank to zero, if one of them was not zero when they were read as
// data. It uses one wildcard write if the bank is the whole register. Otherwise packets write to
// the other banks, and each cell that was not zero takes one update.
func (s *session) clearBank(ctx context.Context, r *p4values.Register, bank int, data []byte) error {
	zero := &p4v1.P4Data{Data: &p4v1.P4Data_Bitstring{Bitstring: []byte{0}}}
	update := func(index int) *p4v1.Update {
		e := registerEntity(r, index)
		e.GetRegisterEntry().Data = zero
		return &p4v1.Update{Type: p4v1.Update_MODIFY, Entity: e}
	}
	var updates []*p4v1.Update
	for i := range bankCells(r) {
		if binary.LittleEndian.Uint32(data[4*i:]) != 0 {
			updates = append(updates, update(bank*bankCells(r)+i))
		}
	}
	switch {
	case len(updates) == 0:
		return nil
	case bankCells(r) == r.Size:
		updates = []*p4v1.Update{update(-1)}
	}
	return s.write(ctx, updates)
}
