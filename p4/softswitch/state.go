// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"fmt"
)

// state is what a loaded program remembers. Packets read it and change registers, counters and meters; everything else changes only
// while no packet runs.
type state struct {
	sw       *Switch
	prog     *Program
	tables   []*tableState
	byName   map[string]*tableState
	regs     []*register
	groups   []registerGroup // of registers
	fetches  [][]fetchCell   // of what is deferred
	counters []*counterArray
	meters   [][]meterState
	profiles []*profileState
	vsets    []*valueSet
	mcast    map[uint32]*MulticastGroup
	clones   map[uint32]*CloneSession
}

func newState(s *Switch, p *Program) (*state, error) {
	st := &state{
		sw: s, prog: p, byName: map[string]*tableState{}, mcast: map[uint32]*MulticastGroup{}, clones: map[uint32]*CloneSession{},
		groups: newGroups(p, len(s.lanes)),
	}
	for i := range p.info.regs {
		st.regs = append(st.regs, newRegister(p.info.regs[i].Width, p.info.regs[i].Size))
	}
	st.fetches = newFetches(p, st.regs)
	for i := range p.info.counters {
		size := p.info.counters[i].Size
		if p.info.counters[i].Table != "" { // the entries have it
			size = 0
		}
		st.counters = append(st.counters, newCounterArray(size, len(s.lanes)))
	}
	for i := range p.info.meters {
		var cells []meterState
		if p.info.meters[i].Table == "" {
			cells = make([]meterState, p.info.meters[i].Size)
			for j := range cells {
				cells[j].unit = p.info.meters[i].Unit
			}
		}
		st.meters = append(st.meters, cells)
	}
	for _, d := range p.profiles {
		st.profiles = append(st.profiles, &profileState{def: d, members: map[uint32]*memberState{}, groups: map[uint32]*groupState{}})
	}
	for range p.info.vsets {
		st.vsets = append(st.vsets, &valueSet{})
	}
	for _, d := range p.tables {
		t := &tableState{def: d, st: st, byKey: map[string]*entryState{}, exact: hashIndex{words: d.words}, lpm: lpmIndex{def: d}, tern: ternaryIndex{def: d}}
		st.tables = append(st.tables, t)
		st.byName[d.Name] = t
		t.resetDefault()
		for i := range d.entries {
			e := d.entries[i].entry
			if err := t.insert(e); err != nil {
				return nil, fmt.Errorf("const entry %d: %w", i, err)
			}
		}
	}
	return st, nil
}

// resetDefault makes the program's default action the default.
func (t *tableState) resetDefault() {
	t.dflt, t.dfltSet = nil, false
	if d := t.def.def; d != nil {
		t.dflt = &entryState{run: bound{d.action, d.action.pc, d.params}}
		t.dflt.next = t.after(d.action, false)
		t.share(t.dflt)
	}
}
