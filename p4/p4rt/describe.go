// SPDX-License-Identifier: Apache-2.0

package p4rt

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// describeUpdate describes an update for messages: its type, table, match and action.
func describeUpdate(cat *p4values.Catalog, u *p4v1.Update) string {
	return u.GetType().String() + " " + describeEntity(cat, u.GetEntity())
}

// describeEntity describes an entity for messages.
func describeEntity(cat *p4values.Catalog, e *p4v1.Entity) string {
	switch e := e.GetEntity().(type) {
	case *p4v1.Entity_TableEntry:
		return describeEntry(cat, e.TableEntry)
	case *p4v1.Entity_PacketReplicationEngineEntry:
		if s := e.PacketReplicationEngineEntry.GetCloneSessionEntry(); s != nil {
			return describeSession(s)
		}
	case *p4v1.Entity_CounterEntry:
		return name(cat.Counters, e.CounterEntry.GetCounterId(), "counter") + index(e.CounterEntry.GetIndex())
	case *p4v1.Entity_RegisterEntry:
		return name(cat.Registers, e.RegisterEntry.GetRegisterId(), "register") + index(e.RegisterEntry.GetIndex())
	}
	return fmt.Sprintf("%T", e.GetEntity())
}

// namer is an index of objects by id.
type namer interface {
	NameOf(id uint32) (string, bool)
}

func name(x namer, id uint32, kind string) string {
	if n, ok := x.NameOf(id); ok {
		return kind + " " + n
	}
	return fmt.Sprintf("%s with unknown id %#x", kind, id)
}

func index(i *p4v1.Index) string {
	if i == nil {
		return " (all cells)"
	}
	return fmt.Sprintf("[%d]", i.GetIndex())
}

func describeEntry(cat *p4values.Catalog, e *p4v1.TableEntry) string {
	var b strings.Builder
	b.WriteString(name(cat.Tables, e.GetTableId(), "table"))
	b.WriteString(": ")
	t, _ := cat.Tables.ID(e.GetTableId())
	if e.GetIsDefaultAction() {
		b.WriteString("default action")
	} else {
		for i, m := range e.GetMatch() {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(describeMatch(t, m))
		}
		if len(e.GetMatch()) == 0 {
			b.WriteString("any packet")
		}
	}
	if e.GetPriority() != 0 {
		fmt.Fprintf(&b, ", priority %d", e.GetPriority())
	}
	if a := e.GetAction().GetAction(); a != nil {
		b.WriteString(" → " + describeAction(cat, a))
	}
	return b.String()
}

func describeMatch(t *p4values.Table, m *p4v1.FieldMatch) string {
	field := p4values.Field{Name: fmt.Sprintf("field %d", m.GetFieldId())}
	if t != nil {
		if i := t.FieldByID(m.GetFieldId()); i >= 0 {
			field = t.Match[i]
		}
	}
	v := func(b []byte) string { return describeValue(field.Name, field.Width, b) }
	switch m := m.GetFieldMatchType().(type) {
	case *p4v1.FieldMatch_Exact_:
		return field.Name + "=" + v(m.Exact.GetValue())
	case *p4v1.FieldMatch_Lpm:
		return fmt.Sprintf("%s=%s/%d", field.Name, v(m.Lpm.GetValue()), m.Lpm.GetPrefixLen())
	case *p4v1.FieldMatch_Ternary_:
		return fmt.Sprintf("%s=%s&%#x", field.Name, v(m.Ternary.GetValue()), m.Ternary.GetMask())
	case *p4v1.FieldMatch_Range_:
		return fmt.Sprintf("%s=%s..%s", field.Name, v(m.Range.GetLow()), v(m.Range.GetHigh()))
	case *p4v1.FieldMatch_Optional_:
		return field.Name + "=" + v(m.Optional.GetValue())
	}
	return field.Name + "=?"
}

func describeAction(cat *p4values.Catalog, a *p4v1.Action) string {
	act, ok := cat.Actions.ID(a.GetActionId())
	if !ok {
		return fmt.Sprintf("unknown action %#x", a.GetActionId())
	}
	var params []string
	for _, p := range a.GetParams() {
		if i := act.ParamByID(p.GetParamId()); i >= 0 {
			params = append(params, act.Params[i].Name+"="+describeValue(act.Params[i].Name, act.Params[i].Width,
				p.GetValue()))
			continue
		}
		params = append(params, fmt.Sprintf("unknown parameter %d", p.GetParamId()))
	}
	return act.Name + "(" + strings.Join(params, ", ") + ")"
}

// describeValue formats a value: MAC addresses by their width, IP addresses by width and name,
// others as numbers.
func describeValue(name string, width int, b []byte) string {
	full, err := p4values.Pad(b, width)
	if err != nil {
		return fmt.Sprintf("%#x", b)
	}
	addressLike := slices.ContainsFunc([]string{"addr", "src", "dst", "ip"},
		func(part string) bool { return strings.Contains(name, part) })
	switch {
	case width == 48:
		return net.HardwareAddr(full).String()
	case width == 32 && addressLike, width == 128:
		if a, ok := netip.AddrFromSlice(full); ok {
			return a.String()
		}
	}
	if n, err := p4values.Uint64(b); err == nil {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%#x", full)
}
