// SPDX-License-Identifier: Apache-2.0

package p4rt

import (
	"errors"
	"fmt"
	"net/netip"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// Entry is a table entry or a table's default action. All names are P4Info's full names or unique
// aliases.
type Entry struct {
	Table    string  // or CloneSessions
	Match    []Match // in any order; fields left out match everything, except exact fields, which are required
	Priority int32   // above 0 if and only if the table has a ternary, range or optional field; the highest wins
	Default  bool    // the table's default action: no match, no priority

	Action string  // empty in a default entry: the default action that the program defines
	Params []Param // each parameter once, in any order
}

// Match is the condition on one key field. Make one with [Exact], [LPM], [Ternary], [Range] or
// [Optional].
type Match struct {
	Field     string
	Kind      p4values.MatchKind // 0 takes the field's kind
	Value     []byte             // the value; the low end of a range
	Mask      []byte             // ternary: the mask
	High      []byte             // range: the high end
	PrefixLen int32              // LPM: bits
}

// kindOfField is the Kind of a match that takes the kind of its field.
const kindOfField p4values.MatchKind = 0

// Exact matches one value.
func Exact(field string, value []byte) Match {
	return Match{Field: field, Kind: p4values.Exact, Value: value}
}

// LPM matches a prefix of a number of bits; 0 bits match everything.
func LPM(field string, value []byte, bits int32) Match {
	return Match{Field: field, Kind: p4values.LPM, Value: value, PrefixLen: bits}
}

// Prefix is LPM for IP addresses.
func Prefix(field string, p netip.Prefix) Match {
	return LPM(field, p.Addr().AsSlice(), int32(p.Bits()))
}

// Ternary matches the bits that are set in mask; a zero mask matches everything.
func Ternary(field string, value, mask []byte) Match {
	return Match{Field: field, Kind: p4values.Ternary, Value: value, Mask: mask}
}

// Range matches from low to high, both included.
func Range(field string, low, high []byte) Match {
	return Match{Field: field, Kind: p4values.Range, Value: low, High: high}
}

// Optional matches one value. A field that is left out matches any value.
func Optional(field string, value []byte) Match {
	return Match{Field: field, Kind: p4values.Optional, Value: value}
}

// Param is one parameter of an action.
type Param struct {
	Name  string
	Value []byte
}

// Uint is a numeric parameter.
func Uint(name string, v uint64) Param { return Param{name, p4values.Uint(v)} }

// Bytes is a parameter of big-endian bytes, such as an address.
func Bytes(name string, v []byte) Param { return Param{name, v} }

// Build returns the entry as a P4Runtime message for a program: values are canonical, bits outside
// of a mask are zero, and fields that match everything are left out. The error names the table,
// field or parameter that the program lacks, or whose value does not fit.
func (e Entry) Build(cat *p4values.Catalog) (*p4v1.Entity, error) {
	if e.Table == CloneSessions {
		return e.cloneSession(false)
	}
	t, out, err := e.buildKey(cat)
	if err != nil {
		return nil, err
	}
	if out.Action, err = e.action(cat, t); err != nil {
		return nil, fmt.Errorf("table %s: %w", t.Name, err)
	}
	return tableEntity(out), nil
}

// BuildKey returns the entry without its action, which a deletion does not need.
func (e Entry) BuildKey(cat *p4values.Catalog) (*p4v1.Entity, error) {
	if e.Table == CloneSessions {
		return e.cloneSession(true)
	}
	_, out, err := e.buildKey(cat)
	if err != nil {
		return nil, err
	}
	return tableEntity(out), nil
}

// Key returns a text that identifies the entry on a switch with this program, whatever form its
// values and names have.
func (e Entry) Key(cat *p4values.Catalog) (string, error) {
	key, err := e.BuildKey(cat)
	if err != nil {
		return "", err
	}
	return entityKey(cat, key), nil
}

func (e Entry) buildKey(cat *p4values.Catalog) (*p4values.Table, *p4v1.TableEntry, error) {
	t, err := cat.Tables.Name(e.Table)
	if err != nil {
		return nil, nil, err
	}
	out := &p4v1.TableEntry{TableId: t.ID, Priority: e.Priority, IsDefaultAction: e.Default}
	if err := e.check(t); err != nil {
		return nil, nil, fmt.Errorf("table %s: %w", t.Name, err)
	}
	if out.Match, err = buildMatch(t, e.Match, e.Default); err != nil {
		return nil, nil, fmt.Errorf("table %s: %w", t.Name, err)
	}
	return t, out, nil
}

func (e Entry) check(t *p4values.Table) error {
	switch {
	case e.Default && (len(e.Match) > 0 || e.Priority != 0):
		return errors.New("the default action takes no match and no priority")
	case e.Default && t.ConstDefault:
		return errors.New("the program makes the default action constant")
	case e.Default:
		return nil
	case t.Const:
		return errors.New("the program makes the entries constant")
	case len(t.Match) == 0:
		return errors.New("the table has no key and takes only a default action")
	case t.NeedsPriority && e.Priority <= 0:
		return errors.New("a priority above 0 is needed: the table has ternary, range or optional fields")
	case !t.NeedsPriority && e.Priority != 0:
		return fmt.Errorf("priority %d is not possible: the table has no ternary, range or optional field", e.Priority)
	}
	return nil
}

// buildMatch returns the match with its fields in the order of the table's key.
func buildMatch(t *p4values.Table, given []Match, isDefault bool) ([]*p4v1.FieldMatch, error) {
	byField := map[string]Match{}
	for _, m := range given {
		if _, ok := t.Field(m.Field); !ok {
			return nil, fmt.Errorf("there is no key field %q", m.Field)
		}
		if _, twice := byField[m.Field]; twice {
			return nil, fmt.Errorf("key field %q is given twice", m.Field)
		}
		byField[m.Field] = m
	}
	var out []*p4v1.FieldMatch
	for i := range t.Match {
		f := &t.Match[i]
		m, ok := byField[f.Name]
		if !ok {
			if f.Kind == p4values.Exact && !isDefault {
				return nil, fmt.Errorf("exact key field %q is missing", f.Name)
			}
			continue
		}
		fm, err := m.build(f)
		if err != nil {
			return nil, fmt.Errorf("key field %q: %w", f.Name, err)
		}
		if fm != nil {
			out = append(out, fm)
		}
	}
	return out, nil
}

// build returns the match of one field; nil if it matches everything.
func (m Match) build(f *p4values.Field) (*p4v1.FieldMatch, error) {
	if m.Kind != kindOfField && m.Kind != f.Kind {
		return nil, fmt.Errorf("the match is %v and the field is %v", m.Kind, f.Kind)
	}
	value, err := encode(m.Value, f.Width, f.String)
	if err != nil {
		return nil, err
	}
	out := &p4v1.FieldMatch{FieldId: f.ID}
	switch f.Kind {
	case p4values.Exact:
		out.FieldMatchType = &p4v1.FieldMatch_Exact_{Exact: &p4v1.FieldMatch_Exact{Value: value}}
	case p4values.Optional:
		out.FieldMatchType = &p4v1.FieldMatch_Optional_{Optional: &p4v1.FieldMatch_Optional{Value: value}}
	case p4values.LPM:
		if m.PrefixLen < 0 || int(m.PrefixLen) > f.Width {
			return nil, fmt.Errorf("a prefix of %d bits does not fit %d bits", m.PrefixLen, f.Width)
		}
		if m.PrefixLen == 0 {
			return nil, nil
		}
		value = p4values.Canonical(p4values.And(value, p4values.Mask(int(m.PrefixLen), f.Width)))
		out.FieldMatchType = &p4v1.FieldMatch_Lpm{Lpm: &p4v1.FieldMatch_LPM{Value: value, PrefixLen: m.PrefixLen}}
	case p4values.Ternary:
		mask, err := p4values.Encode(m.Mask, f.Width)
		if err != nil {
			return nil, fmt.Errorf("mask: %w", err)
		}
		if p4values.IsZero(mask) {
			return nil, nil
		}
		value = p4values.Canonical(p4values.And(value, mask))
		out.FieldMatchType = &p4v1.FieldMatch_Ternary_{Ternary: &p4v1.FieldMatch_Ternary{Value: value, Mask: mask}}
	case p4values.Range:
		high, err := p4values.Encode(m.High, f.Width)
		if err != nil {
			return nil, fmt.Errorf("high end: %w", err)
		}
		if p4values.Compare(value, high) > 0 {
			return nil, fmt.Errorf("the range from %#x to %#x is empty", value, high)
		}
		if p4values.IsZero(value) && p4values.Equal(high, p4values.Ones(f.Width)) {
			return nil, nil
		}
		out.FieldMatchType = &p4v1.FieldMatch_Range_{Range: &p4v1.FieldMatch_Range{Low: value, High: high}}
	default:
		return nil, fmt.Errorf("%w: match kind %v", ErrUnsupported, f.Kind)
	}
	return out, nil
}

// action returns the entry's action; nil for a default entry without an action.
func (e Entry) action(cat *p4values.Catalog, t *p4values.Table) (*p4v1.TableAction, error) {
	switch {
	case e.Action == "" && e.Default:
		return nil, nil
	case e.Action == "":
		return nil, errors.New("no action is given")
	case t.Profile != nil:
		return nil, fmt.Errorf("%w: entries refer to action profile %s", ErrUnsupported, t.Profile.Name)
	}
	a, err := buildAction(cat, t, e.Action, e.Params, e.Default)
	if err != nil {
		return nil, err
	}
	return &p4v1.TableAction{Type: &p4v1.TableAction_Action{Action: a}}, nil
}

// buildAction returns an action with its parameters, if the table allows the action there.
func buildAction(
	cat *p4values.Catalog, t *p4values.Table, action string, params []Param, asDefault bool,
) (*p4v1.Action, error) {
	a, err := cat.Actions.Name(action)
	if err != nil {
		return nil, err
	}
	ref, ok := t.Action(a.ID)
	if !ok {
		return nil, fmt.Errorf("action %s is not one of the table's", a.Name)
	}
	if asDefault && ref.Scope == scopeTableOnly || !asDefault && ref.Scope == scopeDefaultOnly {
		return nil, fmt.Errorf("action %s is %v in this table", a.Name, ref.Scope)
	}
	given := map[string][]byte{}
	for _, p := range params {
		if _, ok := a.Param(p.Name); !ok {
			return nil, fmt.Errorf("action %s has no parameter %q", a.Name, p.Name)
		}
		if _, twice := given[p.Name]; twice {
			return nil, fmt.Errorf("action %s: parameter %q is given twice", a.Name, p.Name)
		}
		given[p.Name] = p.Value
	}
	out := &p4v1.Action{ActionId: a.ID}
	for _, p := range a.Params {
		v, ok := given[p.Name]
		if !ok {
			return nil, fmt.Errorf("action %s: parameter %q is missing", a.Name, p.Name)
		}
		if v, err = encode(v, p.Width, p.String); err != nil {
			return nil, fmt.Errorf("action %s: parameter %q: %w", a.Name, p.Name, err)
		}
		out.Params = append(out.Params, &p4v1.Action_Param{ParamId: p.ID, Value: v})
	}
	return out, nil
}

// encode returns the form in which a value is sent: strings unchanged, numbers in canonical form.
func encode(v []byte, width int, str bool) ([]byte, error) {
	if str {
		return v, nil
	}
	return p4values.Encode(v, width)
}
