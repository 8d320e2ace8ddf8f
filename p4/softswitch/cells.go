// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"fmt"
	"maps"
	"slices"
)

// span checks a range of cells; to -1 is the end.
func span(object string, from, to, size int) (int, error) {
	if to < 0 {
		to = size
	}
	if from < 0 || from > to || to > size {
		return 0, fail(ErrNotFound, object, "cells %d to %d; it has %d", from, to, size)
	}
	return to, nil
}

func (s *Switch) withCounter(name string, f func(c *counterArray, object string) error) error {
	object := fmt.Sprintf("counter %q", name)
	return s.with(object, func(st *state) error {
		for i := range st.prog.info.counters {
			if info := &st.prog.info.counters[i]; info.Name == name {
				if info.Table != "" {
					return fail(ErrInvalid, object, "it is the direct counter of table %q: read that table's entries", info.Table)
				}
				return f(st.counters[i], object)
			}
		}
		return fail(ErrNotFound, object, "the program has no such counter")
	})
}

// ReadCounter returns cells from..to-1 of an indirect counter; to -1 means up to the end.
func (s *Switch) ReadCounter(name string, from, to int) (out []CounterData, err error) {
	err = s.withCounter(name, func(c *counterArray, object string) error {
		end, err := span(object, from, to, c.size)
		if err != nil {
			return err
		}
		out = make([]CounterData, end-from)
		for i := range out {
			out[i] = c.get(from + i)
		}
		return nil
	})
	return out, err
}

// WriteCounter sets a cell of an indirect counter.
func (s *Switch) WriteCounter(name string, index int, v CounterData) error {
	return s.withCounter(name, func(c *counterArray, object string) error {
		if _, err := span(object, index, index+1, c.size); err != nil {
			return err
		}
		c.set(index, v)
		return nil
	})
}

func (s *Switch) withMeter(name string, f func(cells []meterState, object string) error) error {
	object := fmt.Sprintf("meter %q", name)
	return s.with(object, func(st *state) error {
		for i := range st.prog.info.meters {
			if info := &st.prog.info.meters[i]; info.Name == name {
				if info.Table != "" {
					return fail(ErrInvalid, object, "it is the direct meter of table %q: use that table's entries", info.Table)
				}
				return f(st.meters[i], object)
			}
		}
		return fail(ErrNotFound, object, "the program has no such meter")
	})
}

// ReadMeter returns the configurations of cells from..to-1 of an indirect meter, nil where unconfigured; to -1: up to the end.
func (s *Switch) ReadMeter(name string, from, to int) (out []*MeterConfig, err error) {
	err = s.withMeter(name, func(cells []meterState, object string) error {
		end, err := span(object, from, to, len(cells))
		if err != nil {
			return err
		}
		out = make([]*MeterConfig, end-from)
		for i := range out {
			out[i] = cells[from+i].config()
		}
		return nil
	})
	return out, err
}

// ReadColours returns what cells from..to-1 of an indirect meter have coloured; to -1: up to the end.
func (s *Switch) ReadColours(name string, from, to int) (out []Colours, err error) {
	err = s.withMeter(name, func(cells []meterState, object string) error {
		end, err := span(object, from, to, len(cells))
		if err != nil {
			return err
		}
		for i := from; i < end; i++ {
			out = append(out, cells[i].coloured())
		}
		return nil
	})
	return out, err
}

// WriteColours sets what a cell of an indirect meter has coloured.
func (s *Switch) WriteColours(name string, index int, v Colours) error {
	return s.withMeter(name, func(cells []meterState, object string) error {
		_, err := span(object, index, index+1, len(cells))
		if err == nil {
			cells[index].setColours(v)
		}
		return err
	})
}

// WriteMeter configures a cell of an indirect meter and fills its buckets; nil makes it unconfigured.
func (s *Switch) WriteMeter(name string, index int, v *MeterConfig) error {
	return s.withMeter(name, func(cells []meterState, object string) error {
		if _, err := span(object, index, index+1, len(cells)); err != nil {
			return err
		}
		if err := checkMeter(object, v); err != nil {
			return err
		}
		cells[index].configure(v, s.clock())
		return nil
	})
}

func (s *Switch) withRegister(name string, f func(r *register, object string) error) error {
	object := fmt.Sprintf("register %q", name)
	return s.with(object, func(st *state) error {
		for i := range st.prog.info.regs {
			if st.prog.info.regs[i].Name == name {
				return f(st.regs[i], object)
			}
		}
		return fail(ErrNotFound, object, "the program has no such register")
	})
}

// RegisterCells returns a register array's cell width in bits and its number of cells.
func (s *Switch) RegisterCells(name string) (width, size int, err error) {
	err = s.withRegister(name, func(r *register, _ string) error {
		width, size = r.width, int(r.size)
		return nil
	})
	return width, size, err
}

// ReadRegister returns cells from..to-1 of a register array of at most 64 bits a cell; to -1 means up to the end. All cells of one
// call are of one moment between packets.
func (s *Switch) ReadRegister(name string, from, to int) (out []uint64, err error) {
	err = s.withRegister(name, func(r *register, object string) error {
		if r.width > 64 {
			return fail(ErrInvalid, object, "its cells have %d bits: use ReadRegisterBytes", r.width)
		}
		end, err := span(object, from, to, int(r.size))
		if err != nil {
			return err
		}
		out = make([]uint64, end-from)
		for i := range out {
			out[i] = r.get(uint64(from + i))
		}
		return nil
	})
	return out, err
}

// ReadRegisterBytes is ReadRegister for any width: ceil(width/8) big-endian bytes a cell, one after another.
func (s *Switch) ReadRegisterBytes(name string, from, to int) (out []byte, err error) {
	err = s.withRegister(name, func(r *register, object string) error {
		end, err := span(object, from, to, int(r.size))
		if err != nil {
			return err
		}
		out = make([]byte, 0, (end-from)*((r.width+7)/8))
		for i := from; i < end; i++ {
			if r.wide != nil {
				out = append(out, bytesOf(r.cell(uint64(i)), r.width)...)
				continue
			}
			v := r.get(uint64(i))
			for n := (r.width + 7) / 8; n > 0; n-- {
				out = append(out, byte(v>>(8*(n-1))))
			}
		}
		return nil
	})
	return out, err
}

// WriteRegister sets one cell of at most 64 bits.
func (s *Switch) WriteRegister(name string, index int, v uint64) error {
	return s.withRegister(name, func(r *register, object string) error {
		if _, err := span(object, index, index+1, int(r.size)); err != nil {
			return err
		}
		if r.width > 64 || v > r.mask {
			return fail(ErrInvalid, object, "%#x for cells of %d bits", v, r.width)
		}
		r.set(uint64(index), v)
		return nil
	})
}

// WriteRegisterBytes sets one cell of any width from a big-endian number.
func (s *Switch) WriteRegisterBytes(name string, index int, v []byte) error {
	return s.withRegister(name, func(r *register, object string) error {
		if _, err := span(object, index, index+1, int(r.size)); err != nil {
			return err
		}
		w, ok := wordsFrom(v, r.width)
		if !ok {
			return fail(ErrInvalid, object, "%x does not fit cells of %d bits", v, r.width)
		}
		if r.wide != nil {
			copy(r.cell(uint64(index)), w)
		} else {
			r.set(uint64(index), w[0])
		}
		return nil
	})
}

// ResetRegister sets all cells of a register array to zero.
func (s *Switch) ResetRegister(name string) error {
	return s.withRegister(name, func(r *register, _ string) error {
		r.reset()
		return nil
	})
}

const (
	maxMulticastID = 1<<16 - 1
	maxSessionID   = 1<<15 - 1
	maxReplicas    = 1 << 12
)

func checkReplicas(object string, r []Replica) error {
	if len(r) > maxReplicas {
		return fail(ErrInvalid, object, "%d replicas; at most %d", len(r), maxReplicas)
	}
	type place struct {
		port     uint32
		instance uint16
	}
	seen := map[place]bool{}
	check := func(x Replica) error {
		if x.Port >= maxPorts {
			return fail(ErrInvalid, object, "port %d; ports are below %d", x.Port, maxPorts)
		}
		if seen[place{x.Port, x.Instance}] {
			return fail(ErrInvalid, object, "port %d with instance %d is given twice", x.Port, x.Instance)
		}
		seen[place{x.Port, x.Instance}] = true
		return nil
	}
	for _, x := range r {
		if err := check(x); err != nil {
			return err
		}
		if len(x.Backups) > maxReplicas {
			return fail(ErrInvalid, object, "%d backups of one replica; at most %d", len(x.Backups), maxReplicas)
		}
		for _, b := range x.Backups {
			if err := check(b); err != nil {
				return err
			}
			if b.Port == x.Port || len(b.Backups) > 0 {
				return fail(ErrInvalid, object, "a backup of port %d has the same port, or backups itself", x.Port)
			}
		}
	}
	return nil
}

// cloneReplicas copies replicas with their backups.
func cloneReplicas(r []Replica) []Replica {
	out := slices.Clone(r)
	for i := range out {
		out[i].Backups = slices.Clone(out[i].Backups)
	}
	return out
}

// setMulticast inserts or, when replace is set, replaces a group.
func (s *Switch) setMulticast(g MulticastGroup, replace bool) error {
	object := fmt.Sprintf("multicast group %d", g.ID)
	return s.with(object, func(st *state) error {
		if g.ID == 0 || g.ID > maxMulticastID {
			return fail(ErrInvalid, object, "ids are 1 to %d", maxMulticastID)
		}
		if err := checkReplicas(object, g.Replicas); err != nil {
			return err
		}
		if old := st.mcast[g.ID]; (old != nil) != replace {
			if replace {
				return fail(ErrNotFound, object, "it is not there")
			}
			return fail(ErrExists, object, "it is there")
		}
		st.mcast[g.ID] = &MulticastGroup{ID: g.ID, Replicas: cloneReplicas(g.Replicas), Metadata: slices.Clone(g.Metadata)}
		return nil
	})
}

// InsertMulticastGroup adds a multicast group.
func (s *Switch) InsertMulticastGroup(g MulticastGroup) error { return s.setMulticast(g, false) }

// ModifyMulticastGroup replaces a multicast group's replicas.
func (s *Switch) ModifyMulticastGroup(g MulticastGroup) error { return s.setMulticast(g, true) }

// DeleteMulticastGroup removes a multicast group.
func (s *Switch) DeleteMulticastGroup(id uint32) error {
	object := fmt.Sprintf("multicast group %d", id)
	return s.with(object, func(st *state) error {
		if st.mcast[id] == nil {
			return fail(ErrNotFound, object, "it is not there")
		}
		delete(st.mcast, id)
		return nil
	})
}

// ReadMulticastGroups returns all multicast groups by id.
func (s *Switch) ReadMulticastGroups() (out []MulticastGroup) {
	_ = s.with("multicast groups", func(st *state) error {
		for _, id := range slices.Sorted(maps.Keys(st.mcast)) {
			g := *st.mcast[id]
			g.Replicas, g.Metadata = cloneReplicas(g.Replicas), slices.Clone(g.Metadata)
			out = append(out, g)
		}
		return nil
	})
	return out
}

func (s *Switch) setClone(c CloneSession, replace bool) error {
	object := fmt.Sprintf("clone session %d", c.ID)
	return s.with(object, func(st *state) error {
		if c.ID > maxSessionID || c.PacketLength < 0 {
			return fail(ErrInvalid, object, "ids are 0 to %d, and the packet length is not negative", maxSessionID)
		}
		if err := checkReplicas(object, c.Replicas); err != nil {
			return err
		}
		if old := st.clones[c.ID]; (old != nil) != replace {
			if replace {
				return fail(ErrNotFound, object, "it is not there")
			}
			return fail(ErrExists, object, "it is there")
		}
		c.Replicas = cloneReplicas(c.Replicas)
		st.clones[c.ID] = &c
		return nil
	})
}

// InsertCloneSession adds a clone session.
func (s *Switch) InsertCloneSession(c CloneSession) error { return s.setClone(c, false) }

// ModifyCloneSession replaces a clone session.
func (s *Switch) ModifyCloneSession(c CloneSession) error { return s.setClone(c, true) }

// DeleteCloneSession removes a clone session.
func (s *Switch) DeleteCloneSession(id uint32) error {
	object := fmt.Sprintf("clone session %d", id)
	return s.with(object, func(st *state) error {
		if st.clones[id] == nil {
			return fail(ErrNotFound, object, "it is not there")
		}
		delete(st.clones, id)
		return nil
	})
}

// ReadCloneSessions returns all clone sessions by id.
func (s *Switch) ReadCloneSessions() (out []CloneSession) {
	_ = s.with("clone sessions", func(st *state) error {
		for _, id := range slices.Sorted(maps.Keys(st.clones)) {
			c := *st.clones[id]
			c.Replicas = cloneReplicas(c.Replicas)
			out = append(out, c)
		}
		return nil
	})
	return out
}

func (s *Switch) withValueSet(name string, f func(v *valueSet, info *ValueSetInfo, object string) error) error {
	object := fmt.Sprintf("value set %q", name)
	return s.with(object, func(st *state) error {
		for i := range st.prog.info.vsets {
			if st.prog.info.vsets[i].Name == name {
				return f(st.vsets[i], &st.prog.info.vsets[i], object)
			}
		}
		return fail(ErrNotFound, object, "the program has no such value set")
	})
}

// SetValueSet replaces the members of a parser value set. A member has one Match for each element of the key.
func (s *Switch) SetValueSet(name string, members [][]Match) error {
	return s.withValueSet(name, func(v *valueSet, info *ValueSetInfo, object string) error {
		if info.Size > 0 && len(members) > info.Size {
			return fail(ErrFull, object, "%d members; it holds %d", len(members), info.Size)
		}
		fresh := make([]valueSetMember, 0, len(members))
		kept := make([][]Match, 0, len(members))
		for i, m := range members {
			if len(m) != len(info.Widths) {
				return fail(ErrInvalid, object, "member %d has %d elements, not %d", i, len(m), len(info.Widths))
			}
			var x valueSetMember
			for j := range m {
				k := keyDef{KeyInfo: KeyInfo{Kind: MatchTernary, Width: info.Widths[j]}, words: (info.Widths[j] + 63) / 64}
				value, mask, err := k.words2(&m[j])
				if err != nil {
					return fail(ErrInvalid, object, "member %d, element %d: %v", i, j, err)
				}
				x.value, x.mask = append(x.value, value...), append(x.mask, mask...)
			}
			fresh, kept = append(fresh, x), append(kept, slices.Clone(m))
		}
		v.members, v.matches = fresh, kept
		return nil
	})
}

// ReadValueSet returns the members of a parser value set.
func (s *Switch) ReadValueSet(name string) (out [][]Match, err error) {
	err = s.withValueSet(name, func(v *valueSet, _ *ValueSetInfo, _ string) error {
		for _, m := range v.matches {
			out = append(out, slices.Clone(m))
		}
		return nil
	})
	return out, err
}

// SubscribeDigests returns a channel of at most buffer waiting digests, and a function that ends the subscription and closes
// the channel. A digest that finds the channel full is dropped and counted in Stats.DigestDrops.
func (s *Switch) SubscribeDigests(buffer int) (<-chan Digest, func()) {
	c := make(chan Digest, max(1, buffer))
	s.subsMu.Lock()
	defer s.subsMu.Unlock()
	if s.closed.Load() {
		close(c)
		return c, func() {}
	}
	s.subID++
	id := s.subID
	s.subs[id] = c
	s.listeners.Add(1)
	return c, func() {
		s.subsMu.Lock()
		defer s.subsMu.Unlock()
		if _, open := s.subs[id]; open {
			delete(s.subs, id)
			s.listeners.Add(-1)
			close(c)
		}
	}
}
