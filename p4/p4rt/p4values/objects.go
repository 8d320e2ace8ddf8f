// SPDX-License-Identifier: Apache-2.0

package p4values

import p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"

// Object is the part that every object of a program has.
type Object struct {
	ID          uint32
	Name        string // full name
	Alias       string // shortest unique suffix of the name
	Annotations Annotations
}

// Own returns the object itself, which satisfies the constraint of Index.
func (o *Object) Own() Object { return *o }

// MatchKind is how a key field is compared.
type MatchKind = p4configv1.MatchField_MatchType

// The kinds of match P4Runtime has.
const (
	Exact    = p4configv1.MatchField_EXACT
	LPM      = p4configv1.MatchField_LPM
	Ternary  = p4configv1.MatchField_TERNARY
	Range    = p4configv1.MatchField_RANGE
	Optional = p4configv1.MatchField_OPTIONAL
)

// Field is one key field of a table or value set.
type Field struct {
	ID     uint32
	Name   string
	Width  int // bits; 0 for a string
	Kind   MatchKind
	String bool // translated to a string: any bytes, no canonical form
}

// Param is one parameter of an action.
type Param struct {
	ID     uint32
	Name   string
	Width  int // bits; 0 for a string
	String bool
}

// Action is an action of the program.
type Action struct {
	Object
	Params []Param // in P4Info's order, which is the program's
}

// Param finds a parameter by name.
func (a *Action) Param(name string) (*Param, bool) {
	for i := range a.Params {
		if a.Params[i].Name == name {
			return &a.Params[i], true
		}
	}
	return nil, false
}

// ParamByID returns the position of a parameter, or -1.
func (a *Action) ParamByID(id uint32) int {
	for i := range a.Params {
		if a.Params[i].ID == id {
			return i
		}
	}
	return -1
}

// Scope says where a table may use an action.
type Scope = p4configv1.ActionRef_Scope

// ActionRef is an action that a table may use.
type ActionRef struct {
	*Action
	Scope Scope
}

// Table is a table of the program.
type Table struct {
	Object
	Match         []Field
	Actions       []ActionRef
	Size          int64
	ConstDefault  bool // the default action cannot be changed
	Const         bool // the program defines the entries, which are constant
	IdleTimeout   bool
	NeedsPriority bool           // the table has a ternary, range or optional field
	Profile       *ActionProfile // nil for a direct table
	DirectCounter *Counter       // nil if the table has none
	DirectMeter   *Meter         // nil if the table has none
	info          *p4configv1.Table
}

// Field finds a key field by name.
func (t *Table) Field(name string) (*Field, bool) {
	for i := range t.Match {
		if t.Match[i].Name == name {
			return &t.Match[i], true
		}
	}
	return nil, false
}

// FieldByID returns the position of a key field, or -1.
func (t *Table) FieldByID(id uint32) int {
	for i := range t.Match {
		if t.Match[i].ID == id {
			return i
		}
	}
	return -1
}

// Action finds an action the table may use, by id.
func (t *Table) Action(id uint32) (ActionRef, bool) {
	for _, a := range t.Actions {
		if a.ID == id {
			return a, true
		}
	}
	return ActionRef{}, false
}

// ActionProfile is an action profile or, with Selector, an action selector.
type ActionProfile struct {
	Object
	Tables            []*Table
	Selector          bool
	Size              int64
	MaxGroupSize      int32 // 0 means no limit
	SumOfMembers      bool  // a group's size is its number of members, not the sum of their weights
	MaxMemberWeight   int32 // used if SumOfMembers is set; 0 means no limit
	WeightsDisallowed bool
}

// Unit is the unit of a counter or meter.
type Unit = p4configv1.CounterSpec_Unit

// Counter is an indirect counter array or, with Table set, a direct counter.
type Counter struct {
	Object
	Unit  Unit
	Size  int64
	Table *Table
}

// Meter is an indirect meter array or, with Table set, a direct meter.
type Meter struct {
	Object
	Spec  *p4configv1.MeterSpec
	Size  int64
	Table *Table
}

// Register is a register array.
type Register struct {
	Object
	Width   int  // bits of a cell, 0 if the cells are not plain numbers
	Signed  bool // int<Width>
	Size    int  // cells, all banks together
	Type    *p4configv1.P4DataTypeSpec
	Readout *Readout // nil if the register cannot be read by packet
}

// Readout describes how a register is read by packet.
type Readout struct {
	Object uint8 // number that identifies the register in a packet-out
	Banks  int   // equal parts of the register
	Cells  int   // cells of one bank; bank b is cells b·Cells to (b+1)·Cells

	// Counter counts in cell b the packets that have changed bank b, each after the change; nil if
	// the program has no such counter. If the count has not changed since the bank was cleared, the
	// bank is empty.
	Counter *Counter

	// Pieces describes cells that mark which pieces of a bank are empty; nil if the program has no
	// marks.
	Pieces *Pieces
}

// Pieces are parts of a bank, from the bank's first cell on: the first Wide ones have Cells cells
// each, further ones Deep cells. Each packet that Counter counts changes one piece i and increases
// the piece's mark: cell First+i in the same bank of Marker. If Marker is the register itself, the
// cells from First on belong to no piece.
type Pieces struct {
	Cells  int
	Wide   int
	Deep   int
	Marker *Register
	First  int
	Count  int
}

// Start returns the first cell of a piece.
func (p *Pieces) Start(piece int) int {
	return min(piece, p.Wide)*p.Cells + max(piece-p.Wide, 0)*p.Deep
}

// Digest is a digest of the program.
type Digest struct {
	Object
	Type *p4configv1.P4DataTypeSpec
}

// ValueSet is a parser value set.
type ValueSet struct {
	Object
	Match []Field
	Size  int32
}
