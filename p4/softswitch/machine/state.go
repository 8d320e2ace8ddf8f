// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/netsketch/netsketch/p4/softswitch/meter"
	"github.com/netsketch/netsketch/p4/softswitch/program"
)

// Env is the environment of a loaded program.
type Env struct {
	Lanes  int                       // packets that may run at once
	Clock  func() time.Duration      // time since the switch started
	PortUp func(id uint32) (up bool) // state of a port that a group member watches
	Log    *slog.Logger
}

// registerLock is held by an action while it runs, if the action uses registers. Registers that one
// action uses together share a lock.
type registerLock struct {
	sync.Mutex
	_ [CacheLine - 8]byte // no other lock shares the cache line
}

// State is the state of a loaded program. Packets read it and change registers, counters and
// meters; everything else changes only while no packet runs.
type State struct {
	env      Env
	Prog     *program.Program
	calls    []func(*Packet) // operations of the program, linked
	tables   []*Table
	byName   map[string]*Table
	regs     []*Register
	locks    []registerLock
	counters []*Counter
	meters   []Meter
	profiles []*Profile
	vsets    []*valueSet
}

func NewState(env Env, p *program.Program) (*State, error) {
	st := &State{
		env: env, Prog: p, calls: link(p), byName: map[string]*Table{},
		locks: make([]registerLock, p.Locks),
	}
	for i := range p.Info.Registers {
		st.regs = append(st.regs, newRegister(p.Info.Registers[i].Name, p.Info.Registers[i].Width,
			p.Info.Registers[i].Size))
	}
	for i := range p.Info.Counters {
		size := p.Info.Counters[i].Size
		if p.Info.Counters[i].Table != "" { // the entries have the cells of a direct counter
			size = 0
		}
		st.counters = append(st.counters, newCounterArray(p.Info.Counters[i].Name, size, env.Lanes))
	}
	for i := range p.Info.Meters {
		var cells []meter.Meter
		if p.Info.Meters[i].Table == "" {
			cells = make([]meter.Meter, p.Info.Meters[i].Size)
			for j := range cells {
				cells[j].Unit = p.Info.Meters[i].Unit
			}
		}
		st.meters = append(st.meters, Meter{p.Info.Meters[i].Name, cells})
	}
	for _, d := range p.Profiles {
		st.profiles = append(st.profiles, &Profile{def: d, members: map[uint32]*memberState{},
			groups: map[uint32]*groupState{}})
	}
	for range p.Info.ValueSets {
		st.vsets = append(st.vsets, &valueSet{})
	}
	for _, d := range p.Tables {
		t := &Table{def: d, st: st, byKey: map[string]*entryState{}, exact: hashIndex{words: d.Words},
			lpm: lpmIndex{def: d}, tern: ternaryIndex{def: d},
			plain: !d.Counts && !d.Ages && d.Meter == nil && d.Profile < 0}
		st.tables = append(st.tables, t)
		st.byName[d.Name] = t
		t.resetDefault()
		for i := range d.Seeds {
			e := d.Seeds[i].Entry
			if err := t.insert(e); err != nil {
				return nil, fmt.Errorf("const entry %d: %w", i, err)
			}
		}
	}
	return st, nil
}

// resetDefault restores the program's default action.
func (t *Table) resetDefault() {
	t.dflt, t.dfltSet = nil, false
	if d := t.def.Default; d != nil {
		t.dflt = &entryState{run: bound{d.Action, d.Action.PC, d.Params}}
		t.dflt.next = t.after(d.Action, false)
		t.share(t.dflt)
	}
}
