// SPDX-License-Identifier: Apache-2.0

// Package bmv2json reads the JSON that p4c-bm2-ss writes (behavioral-model's docs/JSON_format.md,
// version 2.x) into typed values. It checks form: types, tuples, numbers, depth. What names mean,
// and what can be run, is for the package that compiles the file.
//
// Parse is a pure function: it may be called from any goroutine and keeps nothing.
package bmv2json

import (
	"fmt"
	"math/big"
)

// Limits on the files that Parse accepts. They are far above p4c's output, and bound the cost of a
// hostile file.
const (
	MaxFileBytes = 256 << 20
	MaxDepth     = 200     // nesting of one expression
	MaxWidth     = 1 << 16 // bits of a field, constant, or register cell
	MaxObjects   = 1 << 20 // elements of any one list
	MajorVersion = 2
)

// Error names the fault in the file, and its place in the P4 source if the file has the place.
type Error struct {
	Construct string // `action "MyIngress.drop", primitive 3 ("assign")`
	Source    string // "prog.p4:33" or ""
	Detail    string
}

// Error returns "CONSTRUCT (SOURCE): DETAIL".
func (e *Error) Error() string {
	if e.Source == "" {
		return e.Construct + ": " + e.Detail
	}
	return e.Construct + " (" + e.Source + "): " + e.Detail
}

// Source is a place in the P4 program.
type Source struct {
	Filename string `json:"filename"`
	Line     int    `json:"line"`
	Column   int    `json:"column"`
	Fragment string `json:"source_fragment"`
}

// String returns "file:line", or "" for an unknown place.
func (s *Source) String() string {
	if s == nil || s.Filename == "" {
		return ""
	}
	return fmt.Sprintf("%s:%d", s.Filename, s.Line)
}

// File is the whole program.
type File struct {
	Version           [2]int
	HeaderTypes       []HeaderType
	Headers           []Header
	HeaderStacks      []HeaderStack
	HeaderUnionTypes  []HeaderUnionType
	HeaderUnions      []HeaderUnion
	HeaderUnionStacks []HeaderUnionStack
	FieldLists        []FieldList
	Errors            []NamedValue
	Parsers           []Parser
	ValueSets         []ValueSet
	Deparsers         []Deparser
	Meters            []Meter
	Counters          []Counter
	Registers         []Register
	Calculations      []Calculation
	LearnLists        []LearnList
	Actions           []Action
	Pipelines         []Pipeline
	Checksums         []Checksum
	Aliases           []Alias
}

// NamedValue is a declared error.
type NamedValue struct {
	Name  string
	Value int
}

// HeaderType is a header or struct type.
type HeaderType struct {
	Name      string
	Fields    []FieldDef
	MaxLength int // bytes; only with a variable-length field
	LengthExp *Expr
}

// FieldDef is one field of a header type.
type FieldDef struct {
	Name       string
	Width      int // bits; of a variable-length field: 0
	Signed     bool
	Saturating bool
	Variable   bool
}

// Header is a header or metadata instance.
type Header struct {
	Name     string
	ID       int
	Type     string
	Metadata bool
}

// HeaderStack is a stack of header instances.
type HeaderStack struct {
	Name      string
	Type      string
	HeaderIDs []int
}

// HeaderUnionType is a header union type: member names and header types.
type HeaderUnionType struct {
	Name    string
	Members [][2]string
}

// HeaderUnion is an instance of a union type.
type HeaderUnion struct {
	Name      string
	ID        int
	Type      string
	HeaderIDs []int
}

// HeaderUnionStack is a stack of unions.
type HeaderUnionStack struct {
	Name     string
	UnionIDs []int
}

// FieldList is the fields that a clone, resubmit or recirculate preserves.
type FieldList struct {
	ID       int
	Name     string
	Elements []*Expr // fields
}

// Parser is a parser.
type Parser struct {
	Name   string
	Init   string
	States []ParseState
}

// ParseState is one state of a parser.
type ParseState struct {
	Name        string
	Ops         []ParserOp
	Key         []*Expr // fields, stack_fields, union_stack_fields, lookaheads
	Transitions []Transition
}

// ParserOp is one statement of a parse state. Op is extract, extract_VL, set, verify, shift,
// advance or primitive.
type ParserOp struct {
	Op        string
	Params    []*Expr    // extract's first parameter has Type regular, stack or union_stack
	Primitive *Primitive // Op primitive
	Source    *Source
}

// Transition is one case of a select. Type is default, hexstr or parse_vset.
type Transition struct {
	Type  string
	Value []byte // hexstr
	Set   string // parse_vset
	Mask  []byte // nil: no mask
	Next  string // "": end of the parser
}

// ValueSet is a parser value set.
type ValueSet struct {
	Name   string
	Width  int
	Size   int
	Source *Source
}

// Deparser is a deparser.
type Deparser struct {
	Name       string
	Order      []string
	Primitives []Primitive
}

// Meter is a meter array.
type Meter struct {
	Name    string
	Type    string // packets or bytes
	Size    int
	Direct  bool
	Binding string
	Target  *Expr // field that takes the color of a direct meter
	Source  *Source
}

// Counter is a counter array.
type Counter struct {
	Name    string
	Size    int
	Direct  bool
	Binding string
	Source  *Source
}

// Register is a register array.
type Register struct {
	Name   string
	Size   int
	Width  int
	Source *Source
}

// Calculation is a hash or checksum over inputs.
type Calculation struct {
	Name   string
	Algo   string
	Inputs []CalcInput
	Source *Source
}

// CalcInput is one input of a calculation. Type is field, hexstr, header or payload.
type CalcInput struct {
	Type  string
	Value *Expr
	Width int // hexstr
}

// LearnList is a digest.
type LearnList struct {
	Name     string
	ID       int
	Elements []*Expr // fields
	Source   *Source
}

// Action is an action.
type Action struct {
	Name       string
	ID         int
	Params     []Param
	Primitives []Primitive
	Source     *Source
}

// Param is a parameter of an action.
type Param struct {
	Name  string
	Width int
}

// Primitive is one statement of an action.
type Primitive struct {
	Op     string
	Params []*Expr
	Source *Source
}

// Pipeline is the control flow of ingress or egress.
type Pipeline struct {
	Name         string
	Init         string
	Profiles     []Profile
	Tables       []Table
	Conditionals []Conditional
	ActionCalls  []ActionCall
}

// Profile is an action profile or, with a Selector, an action selector.
type Profile struct {
	Name     string
	Size     int
	Selector *Selector
	Source   *Source
}

// Selector is how a member of a group is chosen.
type Selector struct {
	Algo   string
	Inputs []CalcInput
}

// Table is a match-action table.
type Table struct {
	Name           string
	MatchType      string
	Type           string // simple, indirect, indirect_ws
	Profile        string
	MaxSize        int
	WithCounters   bool
	SupportTimeout bool
	DirectMeter    string
	Key            []KeyField
	ActionIDs      []int
	Next           map[string]string // action name to next node; "" is the end
	HitMiss        bool              // the keys of Next are __HIT__ and __MISS__ instead of action names
	BaseDefault    string
	Default        *DefaultEntry
	HasEntries     bool
	Entries        []Entry
	Source         *Source
}

// KeyField is one field of a table's key.
type KeyField struct {
	Name      string
	MatchType string // exact, lpm, ternary, range, valid
	Target    *Expr  // a field; a header when MatchType is valid
	Mask      []byte // static mask, or nil
}

// DefaultEntry is a table's default entry.
type DefaultEntry struct {
	ActionID    int
	ActionConst bool
	Data        []*big.Int
	EntryConst  bool
}

// Entry is an entry the program defines.
type Entry struct {
	Match    []EntryMatch
	ActionID int
	Data     []*big.Int
	Priority int
	Source   *Source
}

// EntryMatch is the match of one key field of an Entry.
type EntryMatch struct {
	MatchType string
	Key       *big.Int // value, or start of a range
	Mask      *big.Int // mask, or end of a range
	Prefix    int
}

// Conditional is an if.
type Conditional struct {
	Name      string
	Expr      *Expr
	TrueNext  string
	FalseNext string
	Source    *Source
}

// ActionCall is an action called from the control flow.
type ActionCall struct {
	Name     string
	ActionID int
	Next     string
	Source   *Source
}

// Checksum ties a field to a calculation.
type Checksum struct {
	Name        string
	Target      *Expr
	Type        string
	Calculation string
	Update      bool
	Verify      bool
	Cond        *Expr
	Source      *Source
}

// Alias maps a name of the target ("standard_metadata.egress_port") to a field.
type Alias struct {
	From   string
	Target *Expr
}

// Expr is a "type value object": a reference, a constant, or an operation.
type Expr struct {
	Type string
	// Name is the object of named types, the header of "field", the stack of "stack_field" and
	// "union_stack_field", and the text of "string".
	Name   string
	Member string // union member of "union_stack_field"; member of extract's "union_stack"
	Field  string // field name of "field", "stack_field", "union_stack_field"

	Int   *big.Int // "hexstr"
	Width int      // "hexstr" with a bitwidth; bits of "lookahead"
	Index int      // "local", "runtime_data"; offset of "lookahead"; right side of access_field, access_union_header
	Bool  bool     // "bool"
	Op    string   // "expression"
	Left  *Expr    // may be nil
	Right *Expr    // may be nil; index of "register"
	Cond  *Expr    // condition of op "?"
	List  []*Expr  // "parameters_vector", "field_list"
}
