// SPDX-License-Identifier: Apache-2.0

package p4rt

import (
	"slices"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

func tableEntity(e *p4v1.TableEntry) *p4v1.Entity {
	return &p4v1.Entity{Entity: &p4v1.Entity_TableEntry{TableEntry: e}}
}

// entityKey returns a text that identifies an entry, clone session or cell of a register on a
// switch, whatever form its values have.
func entityKey(cat *p4values.Catalog, e *p4v1.Entity) string {
	if r := e.GetRegisterEntry(); r != nil {
		return marshal(&p4v1.RegisterEntry{RegisterId: r.GetRegisterId(), Index: r.GetIndex()})
	}
	if s := e.GetPacketReplicationEngineEntry().GetCloneSessionEntry(); s != nil {
		return sessionKey(s)
	}
	return entryKey(cat, e.GetTableEntry())
}

// entityForm returns a text that is equal for equal entries and equal clone sessions.
func entityForm(cat *p4values.Catalog, e *p4v1.Entity) string {
	if s := e.GetPacketReplicationEngineEntry().GetCloneSessionEntry(); s != nil {
		return sessionForm(s)
	}
	return comparableForm(cat, e.GetTableEntry())
}

// entryKey returns the entityKey of a table entry.
func entryKey(cat *p4values.Catalog, e *p4v1.TableEntry) string {
	return marshal(&p4v1.TableEntry{
		TableId: e.GetTableId(), Match: canonicalMatch(cat, e), Priority: canonicalPriority(cat, e),
		IsDefaultAction: e.GetIsDefaultAction(),
	})
}

// comparableForm returns a text that is equal for equal entries: values compare as numbers, and
// fields that the data plane changes are left out.
func comparableForm(cat *p4values.Catalog, e *p4v1.TableEntry) string {
	e = proto.Clone(e).(*p4v1.TableEntry)
	e.Match, e.Priority = canonicalMatch(cat, e), canonicalPriority(cat, e)
	e.CounterData, e.MeterConfig, e.MeterCounterData, e.TimeSinceLastHit, e.IsConst = nil, nil, nil, nil, false
	canonicalAction(cat, e.GetAction().GetAction())
	return marshal(e)
}

// canonicalPriority returns the priority of an entry. It leaves out the priority in a table without
// ternary, range and optional fields, in which it has no meaning, because some switches return the
// length of the prefix there.
func canonicalPriority(cat *p4values.Catalog, e *p4v1.TableEntry) int32 {
	if t, ok := cat.Tables.ID(e.GetTableId()); ok && !t.NeedsPriority {
		return 0
	}
	return e.GetPriority()
}

// marshal returns a text that is equal for equal messages.
func marshal(m proto.Message) string {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return "" // only invalid UTF-8 fails, which no key contains
	}
	return string(b)
}

// canonicalMatch returns the match in canonical form: the shortest numbers, zero bits outside
// masks and prefixes, and fields in the order of their ids. It leaves out fields that match
// anything, as P4Runtime does (specification, 9.1.1), because some switches return them.
func canonicalMatch(cat *p4values.Catalog, e *p4v1.TableEntry) []*p4v1.FieldMatch {
	t, _ := cat.Tables.ID(e.GetTableId())
	out := make([]*p4v1.FieldMatch, 0, len(e.GetMatch()))
	sorted := true
	for i, m := range e.GetMatch() {
		if c := canonicalField(t, m); c != nil {
			out = append(out, c)
		}
		sorted = sorted && (i == 0 || m.GetFieldId() > e.GetMatch()[i-1].GetFieldId())
	}
	if !sorted {
		slices.SortStableFunc(out, func(a, b *p4v1.FieldMatch) int { return int(a.GetFieldId()) - int(b.GetFieldId()) })
	}
	return out
}

// canonicalField returns one field in canonical form; nil if the field matches anything.
func canonicalField(t *p4values.Table, m *p4v1.FieldMatch) *p4v1.FieldMatch {
	if m.GetFieldMatchType() == nil { // the switch has left an optional or ternary value out
		return nil
	}
	width := 0 // the width of the field is not known
	if t != nil {
		if i := t.FieldByID(m.GetFieldId()); i >= 0 {
			if t.Match[i].String {
				if o, ok := m.GetFieldMatchType().(*p4v1.FieldMatch_Optional_); ok && len(o.Optional.GetValue()) == 0 {
					return nil
				}
				return m
			}
			width = t.Match[i].Width
		}
	}
	out := &p4v1.FieldMatch{FieldId: m.GetFieldId()}
	switch m := m.GetFieldMatchType().(type) {
	case *p4v1.FieldMatch_Exact_:
		value := p4values.Canonical(m.Exact.GetValue())
		out.FieldMatchType = &p4v1.FieldMatch_Exact_{Exact: &p4v1.FieldMatch_Exact{Value: value}}
	case *p4v1.FieldMatch_Lpm:
		value, prefix := m.Lpm.GetValue(), int(m.Lpm.GetPrefixLen())
		if prefix == 0 {
			return nil
		}
		if prefix > 0 && prefix <= width {
			value = p4values.And(value, p4values.Mask(prefix, width))
		}
		out.FieldMatchType = &p4v1.FieldMatch_Lpm{Lpm: &p4v1.FieldMatch_LPM{
			Value: p4values.Canonical(value), PrefixLen: m.Lpm.GetPrefixLen(),
		}}
	case *p4v1.FieldMatch_Ternary_:
		mask := p4values.Canonical(m.Ternary.GetMask())
		if p4values.BitLen(mask) == 0 {
			return nil
		}
		out.FieldMatchType = &p4v1.FieldMatch_Ternary_{Ternary: &p4v1.FieldMatch_Ternary{
			Value: p4values.Canonical(p4values.And(m.Ternary.GetValue(), mask)), Mask: mask,
		}}
	case *p4v1.FieldMatch_Range_:
		low, high := p4values.Canonical(m.Range.GetLow()), p4values.Canonical(m.Range.GetHigh())
		if width > 0 && p4values.BitLen(low) == 0 && p4values.Equal(high, p4values.Ones(width)) {
			return nil
		}
		out.FieldMatchType = &p4v1.FieldMatch_Range_{Range: &p4v1.FieldMatch_Range{Low: low, High: high}}
	case *p4v1.FieldMatch_Optional_:
		if len(m.Optional.GetValue()) == 0 {
			return nil
		}
		out.FieldMatchType = &p4v1.FieldMatch_Optional_{
			Optional: &p4v1.FieldMatch_Optional{Value: p4values.Canonical(m.Optional.GetValue())},
		}
	default:
		out.FieldMatchType = m
	}
	return out
}

func canonicalAction(cat *p4values.Catalog, a *p4v1.Action) {
	act, _ := cat.Actions.ID(a.GetActionId())
	for _, p := range a.GetParams() {
		if act != nil {
			if i := act.ParamByID(p.GetParamId()); i >= 0 && act.Params[i].String {
				continue
			}
		}
		p.Value = p4values.Canonical(p.GetValue())
	}
	slices.SortStableFunc(a.GetParams(), func(x, y *p4v1.Action_Param) int {
		return int(x.GetParamId()) - int(y.GetParamId())
	})
}
