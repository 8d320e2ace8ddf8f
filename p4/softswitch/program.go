// SPDX-License-Identifier: Apache-2.0

package softswitch

// Program is a compiled BMv2 JSON: immutable, and usable by any number of switches.
type Program struct {
	info programInfo
}

type programInfo struct {
	tables   []TableInfo
	actions  []ActionInfo
	regs     []RegisterInfo
	counters []CounterInfo
	meters   []MeterInfo
	profiles []ProfileInfo
	digests  []DigestInfo
	vsets    []ValueSetInfo
}

// Compile makes a program of a BMv2 JSON (p4c-bm2-ss, format version 2.x). What it cannot run it refuses: the error wraps
// ErrInvalid or ErrNotImplemented and names the construct and its place in the P4 source.
func Compile(json []byte) (*Program, error) { return nil, ErrNotImplemented }

// The lists below are in the program's order and belong to the program: callers do not change them. Counters and Meters
// include the direct ones.

// Tables lists the tables, those p4c makes for statements outside of tables ("tbl_…", never in P4Info) included.
func (p *Program) Tables() []TableInfo { return p.info.tables }

// Actions lists the actions.
func (p *Program) Actions() []ActionInfo { return p.info.actions }

// Registers lists the register arrays.
func (p *Program) Registers() []RegisterInfo { return p.info.regs }

// Counters lists the counters.
func (p *Program) Counters() []CounterInfo { return p.info.counters }

// Meters lists the meters.
func (p *Program) Meters() []MeterInfo { return p.info.meters }

// Profiles lists the action profiles and selectors.
func (p *Program) Profiles() []ProfileInfo { return p.info.profiles }

// Digests lists the digests.
func (p *Program) Digests() []DigestInfo { return p.info.digests }

// ValueSets lists the parser value sets.
func (p *Program) ValueSets() []ValueSetInfo { return p.info.vsets }

// Table finds a table by name.
func (p *Program) Table(name string) (TableInfo, bool) {
	for _, t := range p.info.tables {
		if t.Name == name {
			return t, true
		}
	}
	return TableInfo{}, false
}

// Action finds an action by name.
func (p *Program) Action(name string) (ActionInfo, bool) {
	for _, a := range p.info.actions {
		if a.Name == name {
			return a, true
		}
	}
	return ActionInfo{}, false
}
