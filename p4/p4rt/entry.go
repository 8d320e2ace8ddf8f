// SPDX-License-Identifier: Apache-2.0

package p4rt

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// Entry is a table entry by names. [Entry.Build] makes P4Runtime's form of it, for the program of a catalog.
type Entry struct {
	Table    string
	Match    []Match // in any order; fields left out match everything, which exact fields cannot
	Priority int32   // above 0 exactly where a field of the table is ternary, range or optional; the highest wins
	Default  bool    // the table's default action: no match, no priority

	Action string        // with Params; or one of the three below, in tables with an action profile
	Params []Param       // each parameter once, in any order
	Member uint32        // an action profile's member
	Group  uint32        // an action selector's group
	OneOf  []GroupAction // one-shot: a group of this entry's own

	IdleTimeout time.Duration
	Metadata    []byte // kept by the switch unread
}

// Match is what one key field must be. Make one with [Exact], [LPM], [Ternary], [Range] or [Optional].
type Match struct {
	Field     string
	Kind      p4values.MatchKind
	Value     []byte // the value; the low end of a range
	Mask      []byte // ternary: the mask; range: the high end
	PrefixLen int32  // LPM: bits
}

// Exact matches one value.
func Exact(field string, value []byte) Match {
	return Match{Field: field, Kind: p4values.Exact, Value: value}
}

// LPM matches a prefix of so many bits; of no bits, everything.
func LPM(field string, value []byte, bits int32) Match {
	return Match{Field: field, Kind: p4values.LPM, Value: value, PrefixLen: bits}
}

// Prefix is LPM for IP addresses.
func Prefix(field string, p netip.Prefix) Match {
	return LPM(field, p.Addr().AsSlice(), int32(p.Bits()))
}

// Ternary matches the bits that are set in mask; with no bit set, everything.
func Ternary(field string, value, mask []byte) Match {
	return Match{Field: field, Kind: p4values.Ternary, Value: value, Mask: mask}
}

// Range matches low to high, both included.
func Range(field string, low, high []byte) Match {
	return Match{Field: field, Kind: p4values.Range, Value: low, Mask: high}
}

// Optional matches one value. For any value leave the field out.
func Optional(field string, value []byte) Match {
	return Match{Field: field, Kind: p4values.Optional, Value: value}
}

// Param is one parameter of an action.
type Param struct {
	Name  string
	Value []byte
}

// Uint is a parameter that is a number.
func Uint(name string, v uint64) Param { return Param{name, p4values.Uint(v)} }

// Bytes is a parameter that is a big-endian byte string: an address, for instance.
func Bytes(name string, v []byte) Param { return Param{name, v} }

// GroupAction is one of the actions of a one-shot group.
type GroupAction struct {
	Action string
	Params []Param
	Weight int32  // 1 and up
	Watch  []byte // port that must be up, or nil
}

// Build makes P4Runtime's form of the entry: values canonical, bits outside of a mask zero, matches of everything left out. It refuses
// what the program does not have and values that do not fit, naming table, field or parameter.
func (e Entry) Build(cat *p4values.Catalog) (*p4v1.Entity, error) {
	t, err := cat.Tables.Name(e.Table)
	if err != nil {
		return nil, err
	}
	out := &p4v1.TableEntry{TableId: t.ID, Priority: e.Priority, IsDefaultAction: e.Default, IdleTimeoutNs: e.IdleTimeout.Nanoseconds(), Metadata: e.Metadata}
	if err := e.check(t); err != nil {
		return nil, fmt.Errorf("table %s: %w", t.Name, err)
	}
	if out.Match, err = buildMatch(t, e.Match, e.Default); err != nil {
		return nil, fmt.Errorf("table %s: %w", t.Name, err)
	}
	if out.Action, err = e.action(cat, t); err != nil {
		return nil, fmt.Errorf("table %s: %w", t.Name, err)
	}
	return &p4v1.Entity{Entity: &p4v1.Entity_TableEntry{TableEntry: out}}, nil
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
		return errors.New("a priority above 0 is needed, for the table has ternary, range or optional fields")
	case !t.NeedsPriority && e.Priority != 0:
		return fmt.Errorf("priority %d is not possible, for the table has no ternary, range or optional field", e.Priority)
	case e.IdleTimeout != 0 && !t.IdleTimeout:
		return errors.New("the table supports no idle timeout")
	}
	return nil
}

// buildMatch makes the match in the order of the table's key.
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

// build makes one field's match; nil where it matches everything.
func (m Match) build(f *p4values.Field) (*p4v1.FieldMatch, error) {
	if m.Kind != f.Kind {
		return nil, fmt.Errorf("the match is %v and the field wants %v", m.Kind, f.Kind)
	}
	value, err := encode(m.Value, f.Width, f.String)
	if err != nil {
		return nil, err
	}
	out := &p4v1.FieldMatch{FieldId: f.ID}
	switch m.Kind {
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
		high, err := p4values.Encode(m.Mask, f.Width)
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
		return nil, fmt.Errorf("%w: match kind %v", ErrUnsupported, m.Kind)
	}
	return out, nil
}

// action makes what the entry points at. A default entry without an action sets the table back to the program's own.
func (e Entry) action(cat *p4values.Catalog, t *p4values.Table) (*p4v1.TableAction, error) {
	indirect := e.Member != 0 || e.Group != 0 || len(e.OneOf) > 0
	switch {
	case e.Action != "" && indirect:
		return nil, errors.New("an entry has an action or a member or a group, not two of them")
	case indirect && t.Profile == nil:
		return nil, errors.New("the table has no action profile, so entries call actions")
	case e.Action != "" && t.Profile != nil:
		return nil, fmt.Errorf("entries point at members of action profile %s and call no action themselves", t.Profile.Name)
	case (e.Group != 0 || len(e.OneOf) > 0) && !t.Profile.Selector:
		return nil, fmt.Errorf("action profile %s has no selector, hence no groups", t.Profile.Name)
	case e.Action == "" && !indirect && e.Default:
		return nil, nil
	case e.Action == "" && !indirect:
		return nil, errors.New("no action is given")
	case e.Member != 0:
		return &p4v1.TableAction{Type: &p4v1.TableAction_ActionProfileMemberId{ActionProfileMemberId: e.Member}}, nil
	case e.Group != 0:
		return &p4v1.TableAction{Type: &p4v1.TableAction_ActionProfileGroupId{ActionProfileGroupId: e.Group}}, nil
	case len(e.OneOf) > 0:
		return oneShot(cat, t, e.OneOf)
	}
	a, err := buildAction(cat, t, e.Action, e.Params, e.Default)
	if err != nil {
		return nil, err
	}
	return &p4v1.TableAction{Type: &p4v1.TableAction_Action{Action: a}}, nil
}

func oneShot(cat *p4values.Catalog, t *p4values.Table, of []GroupAction) (*p4v1.TableAction, error) {
	set := &p4v1.ActionProfileActionSet{}
	for _, g := range of {
		a, err := buildAction(cat, t, g.Action, g.Params, false)
		if err != nil {
			return nil, err
		}
		pa := &p4v1.ActionProfileAction{Action: a, Weight: g.Weight}
		if len(g.Watch) > 0 {
			pa.WatchKind = &p4v1.ActionProfileAction_WatchPort{WatchPort: p4values.Canonical(g.Watch)}
		}
		set.ActionProfileActions = append(set.ActionProfileActions, pa)
	}
	return &p4v1.TableAction{Type: &p4v1.TableAction_ActionProfileActionSet{ActionProfileActionSet: set}}, nil
}

// buildAction makes an action with its parameters, for a table that may use it there.
func buildAction(cat *p4values.Catalog, t *p4values.Table, action string, params []Param, asDefault bool) (*p4v1.Action, error) {
	a, err := cat.Actions.Name(action)
	if err != nil {
		return nil, err
	}
	ref, ok := t.Action(a.ID)
	if !ok {
		return nil, fmt.Errorf("action %s is not one of the table's", a.Name)
	}
	if asDefault && ref.Scope == scopeTableOnly || !asDefault && ref.Scope == scopeDefaultOnly {
		return nil, fmt.Errorf("action %s is %v there", a.Name, ref.Scope)
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
