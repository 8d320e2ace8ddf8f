// SPDX-License-Identifier: Apache-2.0

package control

// KeyInfo describes one key field of a table.
type KeyInfo struct {
	Name  string    // name in P4Info
	Kind  MatchKind // never MatchDontCare
	Width int       // bits
}

// ActionInfo describes an action.
type ActionInfo struct {
	Name   string
	Params []ParamInfo
}

// ParamInfo is one parameter of an action.
type ParamInfo struct {
	Name  string
	Width int // bits
}

// TableInfo describes a table.
type TableInfo struct {
	Name           string
	Keys           []KeyInfo
	Actions        []string // names of the actions an entry may call
	Size           int      // greatest number of entries
	WantsPriority  bool     // a ternary, range or optional field is in the key
	ConstEntries   bool     // entries are part of the program
	ConstDefault   bool     // the default action cannot be changed
	IdleTimeout    bool
	DirectCounter  bool
	DirectMeter    string // name of the direct meter, or ""
	Implementation string // name of the action profile or selector, or ""
	Selector       bool   // Implementation takes groups
}

// RegisterInfo describes a register array.
type RegisterInfo struct {
	Name  string
	Width int // bits of a cell
	Size  int // cells
}

// CounterInfo describes an indirect counter array or, with Table set, a direct one.
type CounterInfo struct {
	Name  string
	Size  int
	Table string // direct counters: the table
}

// MeterUnit is the unit of a meter.
type MeterUnit uint8

// Units of meters.
const (
	MeterPackets MeterUnit = iota
	MeterBytes
)

// MeterInfo describes a meter array or, with Table set, a direct meter.
type MeterInfo struct {
	Name  string
	Size  int
	Unit  MeterUnit
	Table string
}

// ProfileInfo describes an action profile or selector.
type ProfileInfo struct {
	Name     string
	Size     int // greatest number of members
	MaxGroup int // greatest size of a group, 0: no limit
	Selector bool
	Tables   []string
}

// DigestInfo describes a digest.
type DigestInfo struct {
	Name   string
	ID     uint32
	Widths []int // bits of each field
}

// ValueSetInfo describes a parser value set.
type ValueSetInfo struct {
	Name   string
	Size   int
	Widths []int // bits of each element of the key
}
