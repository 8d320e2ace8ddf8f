// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"github.com/netsketch/netsketch/p4/softswitch/bmv2json"
	"github.com/netsketch/netsketch/p4/softswitch/program"
)

// markUsed marks the fields that are named by anything but operations on whole headers. Header
// types are known at this point, instances only by their names in the file.
func (b *builder) markUsed() {
	typeOf := map[string]*program.HeaderType{}
	for i := range b.file.Headers {
		typeOf[b.file.Headers[i].Name] = b.types[b.file.Headers[i].Type]
		if t := typeOf[b.file.Headers[i].Name]; t != nil && b.file.Headers[i].Metadata {
			for j := range t.Fields {
				t.Fields[j].Used = true
			}
		}
	}
	for i := range b.file.HeaderStacks {
		typeOf[b.file.HeaderStacks[i].Name] = b.types[b.file.HeaderStacks[i].Type]
	}
	m := marker{typeOf: typeOf, all: b.types}
	f := b.file
	for i := range f.FieldLists {
		m.exprs(f.FieldLists[i].Elements)
	}
	for i := range f.LearnLists {
		m.exprs(f.LearnLists[i].Elements)
	}
	for i := range f.Parsers {
		for j := range f.Parsers[i].States {
			s := &f.Parsers[i].States[j]
			m.exprs(s.Key)
			for k := range s.Ops {
				m.exprs(s.Ops[k].Params)
				if s.Ops[k].Primitive != nil {
					m.exprs(s.Ops[k].Primitive.Params)
				}
			}
		}
	}
	for i := range f.Deparsers {
		m.primitives(f.Deparsers[i].Primitives)
	}
	for i := range f.Actions {
		m.primitives(f.Actions[i].Primitives)
	}
	for i := range f.Meters {
		m.expr(f.Meters[i].Target)
	}
	for i := range f.Calculations {
		m.inputs(f.Calculations[i].Inputs)
	}
	for i := range f.Checksums {
		m.expr(f.Checksums[i].Target)
		m.expr(f.Checksums[i].Cond)
	}
	for i := range f.Aliases {
		m.expr(f.Aliases[i].Target)
	}
	for i := range f.Pipelines {
		p := &f.Pipelines[i]
		for j := range p.Profiles {
			if s := p.Profiles[j].Selector; s != nil {
				m.inputs(s.Inputs)
			}
		}
		for j := range p.Tables {
			for k := range p.Tables[j].Key {
				m.expr(p.Tables[j].Key[k].Target)
			}
		}
		for j := range p.Conditionals {
			m.expr(p.Conditionals[j].Expr)
		}
	}
}

type marker struct {
	typeOf map[string]*program.HeaderType
	all    map[string]*program.HeaderType
}

func (m *marker) exprs(l []*bmv2json.Expr) {
	for _, e := range l {
		m.expr(e)
	}
}

func (m *marker) primitives(l []bmv2json.Primitive) {
	for i := range l {
		m.exprs(l[i].Params)
	}
}

func (m *marker) inputs(l []bmv2json.CalcInput) {
	for i := range l {
		m.expr(l[i].Value)
	}
}

func (m *marker) expr(e *bmv2json.Expr) {
	if e == nil {
		return
	}
	switch e.Type {
	case "field", "stack_field":
		if t := m.typeOf[e.Name]; t != nil {
			if f, ok := t.Field(e.Field); ok {
				f.Used = true
			}
		}
	case "union_stack_field":
		for _, t := range m.all {
			if f, ok := t.Field(e.Field); ok {
				f.Used = true
			}
		}
	case "expression":
		if e.Op == "access_field" { // the header may be of any type
			for _, t := range m.all {
				if e.Index < len(t.Fields) {
					t.Fields[e.Index].Used = true
				}
			}
		}
	}
	m.expr(e.Left)
	m.expr(e.Right)
	m.expr(e.Cond)
	m.exprs(e.List)
}
