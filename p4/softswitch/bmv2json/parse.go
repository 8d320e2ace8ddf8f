// SPDX-License-Identifier: Apache-2.0

package bmv2json

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
)

const maxSize = 1 << 28 // cells of an array, entries of a table

// Parse parses a file. The error is an *Error, or the error of the JSON decoder.
func Parse(data []byte) (f *File, err error) {
	if len(data) > MaxFileBytes {
		return nil, fmt.Errorf("BMv2 JSON of %d bytes: at most %d are accepted", len(data), MaxFileBytes)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var tree any
	if err := dec.Decode(&tree); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("BMv2 JSON is truncated after %d bytes: %w", len(data), io.ErrUnexpectedEOF)
		}
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return nil, fmt.Errorf("BMv2 JSON is malformed at byte %d: %w", syntax.Offset, err)
		}
		return nil, fmt.Errorf("BMv2 JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("BMv2 JSON is followed by other data at byte %d", dec.InputOffset())
	}
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(*Error)
			if !ok {
				panic(r)
			}
			f, err = nil, e
		}
	}()
	return file(&node{v: tree}), nil
}

func file(n *node) *File {
	f := &File{}
	// Files of old compilers have no version; BMv2 accepts them, too.
	if n.has("__meta__") && n.at("__meta__").has("version") {
		v := n.at("__meta__").at("version")
		v.tuple(2)
		f.Version = [2]int{v.index(0).integer(0, 1<<20), v.index(1).integer(0, 1<<20)}
		if f.Version[0] != MajorVersion {
			v.fail("format version %d.%d; only %d.x can be read: compile with p4c-bm2-ss of 2017 or later",
				f.Version[0], f.Version[1], MajorVersion)
		}
	}
	for _, must := range []string{"header_types", "headers", "parsers", "deparsers", "actions", "pipelines"} {
		if !n.has(must) {
			n.fail("no %q: this is not the output of p4c-bm2-ss", must)
		}
	}
	f.HeaderTypes = each(n.at("header_types"), headerType)
	f.Headers = each(n.at("headers"), header)
	f.HeaderStacks = each(n.at("header_stacks"), func(n *node) HeaderStack {
		return HeaderStack{Name: n.at("name").str(), Type: n.at("header_type").str(),
			HeaderIDs: ids(n.at("header_ids"))}
	})
	f.HeaderUnionTypes = each(n.at("header_union_types"), unionType)
	f.HeaderUnions = each(n.at("header_unions"), func(n *node) HeaderUnion {
		return HeaderUnion{Name: n.at("name").str(), ID: n.at("id").id(), Type: n.at("union_type").str(),
			HeaderIDs: ids(n.at("header_ids"))}
	})
	f.HeaderUnionStacks = each(n.at("header_union_stacks"), func(n *node) HeaderUnionStack {
		return HeaderUnionStack{Name: n.at("name").str(),
			UnionIDs: ids(n.at("header_union_ids"))}
	})
	f.FieldLists = each(n.at("field_lists"), func(n *node) FieldList {
		return FieldList{ID: n.at("id").id(), Name: n.at("name").optStr(), Elements: each(n.at("elements"), fieldRef)}
	})
	f.Errors = each(n.at("errors"), func(n *node) NamedValue {
		n.tuple(2)
		return NamedValue{Name: n.index(0).str(), Value: n.index(1).integer(0, math.MaxInt32)}
	})
	f.Parsers = each(n.at("parsers"), parser)
	f.ValueSets = each(n.at("parse_vsets"), func(n *node) ValueSet {
		return ValueSet{
			Name: n.at("name").str(), Width: n.at("compressed_bitwidth").integer(1, MaxWidth),
			Size: n.at("max_size").optInt(0, maxSize, 0), Source: source(n),
		}
	})
	f.Deparsers = each(n.at("deparsers"), func(n *node) Deparser {
		return Deparser{
			Name: n.at("name").str(), Order: each(n.at("order"), (*node).str),
			Primitives: each(n.at("primitives"), primitive),
		}
	})
	f.Meters = each(n.at("meter_arrays"), meter)
	f.Counters = each(n.at("counter_arrays"), func(n *node) Counter {
		return Counter{
			Name: n.at("name").str(), Size: n.at("size").optInt(0, maxSize, 0),
			Direct: n.at("is_direct").boolean(false), Binding: n.at("binding").optStr(), Source: source(n),
		}
	})
	f.Registers = each(n.at("register_arrays"), func(n *node) Register {
		return Register{
			Name: n.at("name").str(), Size: n.at("size").integer(0, maxSize),
			Width: n.at("bitwidth").integer(1, MaxWidth), Source: source(n),
		}
	})
	f.Calculations = each(n.at("calculations"), func(n *node) Calculation {
		return Calculation{Name: n.at("name").str(), Algo: n.at("algo").str(),
			Inputs: each(n.at("input"), calcInput), Source: source(n)}
	})
	f.LearnLists = each(n.at("learn_lists"), func(n *node) LearnList {
		return LearnList{Name: n.at("name").str(), ID: n.at("id").id(), Elements: each(n.at("elements"), fieldRef),
			Source: source(n)}
	})
	f.Actions = each(n.at("actions"), action)
	f.Pipelines = each(n.at("pipelines"), pipeline)
	f.Checksums = each(n.at("checksums"), checksum)
	f.Aliases = each(n.at("field_aliases"), func(n *node) Alias {
		n.tuple(2)
		t := n.index(1)
		t.tuple(2)
		return Alias{From: n.index(0).str(), Target: &Expr{Type: "field", Name: t.index(0).str(),
			Field: t.index(1).str()}}
	})
	return f
}

func ids(n *node) []int { return each(n, (*node).id) }

func source(n *node) *Source {
	if !n.has("source_info") {
		return nil
	}
	s := n.at("source_info")
	return &Source{
		Filename: s.at("filename").optStr(), Line: s.at("line").optInt(0, math.MaxInt32, 0),
		Column: s.at("column").optInt(0, math.MaxInt32, 0), Fragment: s.at("source_fragment").optStr(),
	}
}

func headerType(n *node) HeaderType {
	t := HeaderType{Name: n.at("name").str(), MaxLength: n.at("max_length").optInt(0, MaxWidth, 0)}
	if n.has("length_exp") {
		t.LengthExp = expr(n.at("length_exp"), 0)
	}
	t.Fields = each(n.at("fields"), func(n *node) FieldDef {
		size := n.tuple(2, 3, 4)
		d := FieldDef{Name: n.index(0).str()}
		if s, ok := n.index(1).v.(string); ok {
			if s != "*" {
				n.index(1).fail("expected a width or \"*\", have %q", clip(s))
			}
			d.Variable = true
		} else {
			d.Width = n.index(1).integer(1, MaxWidth)
		}
		if size > 2 {
			d.Signed = n.index(2).boolean(false)
		}
		if size > 3 {
			d.Saturating = n.index(3).boolean(false)
		}
		return d
	})
	return t
}

func header(n *node) Header {
	return Header{Name: n.at("name").str(), ID: n.at("id").id(), Type: n.at("header_type").str(),
		Metadata: n.at("metadata").boolean(false)}
}

func unionType(n *node) HeaderUnionType {
	return HeaderUnionType{Name: n.at("name").str(),
		Members: each(n.at("headers"), func(n *node) [2]string {
			n.tuple(2)
			return [2]string{n.index(0).str(), n.index(1).str()}
		})}
}

func parser(n *node) Parser {
	return Parser{Name: n.at("name").str(), Init: n.at("init_state").optStr(),
		States: each(n.at("parse_states"), parseState)}
}

func parseState(n *node) ParseState {
	return ParseState{
		Name:        n.at("name").str(),
		Ops:         each(n.at("parser_ops"), parserOp),
		Key:         each(n.at("transition_key"), func(n *node) *Expr { return expr(n, 0) }),
		Transitions: each(n.at("transitions"), transition),
	}
}

func parserOp(n *node) ParserOp {
	o := ParserOp{Op: n.at("op").str(), Source: source(n)}
	p := n.at("parameters")
	switch o.Op {
	case "extract", "extract_VL":
		want := 1
		if o.Op == "extract_VL" {
			want = 2
		}
		p.tuple(want)
		what := p.index(0)
		e := &Expr{Type: what.at("type").str()}
		switch e.Type {
		case "regular", "stack":
			e.Name = what.at("value").str()
		case "union_stack":
			v := what.at("value")
			v.tuple(2)
			e.Name, e.Member = v.index(0).str(), v.index(1).str()
		default:
			what.fail("extract type %q is not known", clip(e.Type))
		}
		o.Params = []*Expr{e}
		if want == 2 {
			o.Params = append(o.Params, expr(p.index(1), 0))
		}
	case "primitive":
		p.tuple(1)
		prim := primitive(p.index(0))
		o.Primitive = &prim
	case "shift":
		p.tuple(1)
		o.Params = []*Expr{{Type: "hexstr", Int: big.NewInt(int64(p.index(0).integer(0, MaxWidth)))}}
	case "set", "verify", "advance":
		o.Params = each(p, func(n *node) *Expr {
			if _, ok := n.v.(json.Number); ok { // an error code, in old files
				return &Expr{Type: "hexstr", Int: big.NewInt(int64(n.integer(0, math.MaxInt32)))}
			}
			return expr(n, 0)
		})
	default:
		n.fail("parser operation %q is not known", clip(o.Op))
	}
	return o
}

func transition(n *node) Transition {
	t := Transition{Type: "hexstr"}
	if n.has("type") {
		t.Type = n.at("type").str()
	}
	if s, ok := n.at("value").v.(string); ok && s == "default" {
		t.Type = "default"
	}
	t.Next = n.at("next_state").optStr()
	switch t.Type {
	case "default":
	case "hexstr":
		t.Value = n.at("value").hexBytes()
	case "parse_vset":
		t.Set = n.at("value").str()
	default:
		n.fail("transition type %q is not known", clip(t.Type))
	}
	if t.Type != "default" && n.has("mask") {
		t.Mask = n.at("mask").hexBytes()
	}
	return t
}

func meter(n *node) Meter {
	m := Meter{
		Name: n.at("name").str(), Type: n.at("type").str(),
		Size: n.at("size").optInt(0, maxSize, 0), Direct: n.at("is_direct").boolean(false),
		Binding: n.at("binding").optStr(), Source: source(n),
	}
	if m.Type != "packets" && m.Type != "bytes" {
		n.at("type").fail("expected packets or bytes, have %q", clip(m.Type))
	}
	if m.Direct && n.has("result_target") {
		t := n.at("result_target")
		t.tuple(2)
		m.Target = &Expr{Type: "field", Name: t.index(0).str(), Field: t.index(1).str()}
	}
	return m
}

func calcInput(n *node) CalcInput {
	c := CalcInput{Type: n.at("type").str()}
	switch c.Type {
	case "field", "header":
		c.Value = expr(n, 0)
	case "hexstr":
		c.Value, c.Width = expr(n, 0), n.at("bitwidth").integer(1, MaxWidth)
	case "payload":
	default:
		n.fail("input type %q is not known", clip(c.Type))
	}
	return c
}

func fieldRef(n *node) *Expr {
	e := expr(n, 0)
	if e.Type != "field" {
		n.fail("expected a field, have %q", clip(e.Type))
	}
	return e
}

func action(n *node) Action {
	return Action{
		Name: n.at("name").str(), ID: n.at("id").id(), Source: source(n),
		Params: each(n.at("runtime_data"), func(n *node) Param {
			return Param{Name: n.at("name").str(), Width: n.at("bitwidth").integer(1, MaxWidth)}
		}),
		Primitives: each(n.at("primitives"), primitive),
	}
}

func primitive(n *node) Primitive {
	return Primitive{
		Op: n.at("op").str(), Source: source(n),
		Params: each(n.at("parameters"), func(n *node) *Expr { return expr(n, 0) }),
	}
}

func pipeline(n *node) Pipeline {
	return Pipeline{
		Name: n.at("name").str(), Init: n.at("init_table").optStr(),
		Profiles:     each(n.at("action_profiles"), profile),
		Tables:       each(n.at("tables"), table),
		Conditionals: each(n.at("conditionals"), conditional),
		ActionCalls: each(n.at("action_calls"), func(n *node) ActionCall {
			return ActionCall{
				Name: n.at("name").str(), ActionID: n.at("action_id").id(),
				Next: n.at("next_node").optStr(), Source: source(n),
			}
		}),
	}
}

func conditional(n *node) Conditional {
	return Conditional{
		Name: n.at("name").str(), Expr: expr(n.at("expression"), 0),
		TrueNext: n.at("true_next").optStr(), FalseNext: n.at("false_next").optStr(), Source: source(n),
	}
}

func profile(n *node) Profile {
	p := Profile{Name: n.at("name").str(), Size: n.at("max_size").optInt(0, maxSize, 0),
		Source: source(n)}
	if n.has("selector") {
		s := n.at("selector")
		p.Selector = &Selector{Algo: s.at("algo").str(), Inputs: each(s.at("input"), calcInput)}
	}
	return p
}

func checksum(n *node) Checksum {
	c := Checksum{
		Name: n.at("name").str(), Type: n.at("type").str(),
		Calculation: n.at("calculation").optStr(),
		Update:      n.at("update").boolean(true), Verify: n.at("verify").boolean(true), Source: source(n),
	}
	t := n.at("target")
	t.tuple(2)
	c.Target = &Expr{Type: "field", Name: t.index(0).str(), Field: t.index(1).str()}
	if n.has("if_cond") {
		c.Cond = expr(n.at("if_cond"), 0)
	}
	return c
}
