// SPDX-License-Identifier: Apache-2.0

package bmv2json

import "math"

// expr reads a type value object.
func expr(n *node, depth int) *Expr {
	if depth > MaxDepth {
		n.fail("nested deeper than %d levels", MaxDepth)
	}
	e := &Expr{Type: n.at("type").str()}
	v := n.at("value")
	switch e.Type {
	case "field":
		v.tuple(2)
		e.Name, e.Field = v.index(0).str(), v.index(1).str()
	case "stack_field":
		v.tuple(2)
		e.Name, e.Field = v.index(0).str(), v.index(1).str()
	case "union_stack_field":
		v.tuple(3)
		e.Name, e.Member, e.Field = v.index(0).str(), v.index(1).str(), v.index(2).str()
	case "hexstr":
		e.Int, e.Width = v.hex(), n.at("bitwidth").optInt(1, MaxWidth, 0)
	case "bool":
		e.Bool = v.boolean(false)
	case "header", "header_stack", "header_union", "header_union_stack", "calculation", "register_array", "meter_array",
		"counter_array", "extern", "string":
		e.Name = v.str()
	case "local", "runtime_data":
		e.Index = v.integer(0, 1<<16)
	case "lookahead":
		v.tuple(2)
		e.Index, e.Width = v.index(0).integer(0, 8*MaxWidth), v.index(1).integer(1, MaxWidth)
	case "register":
		v.tuple(2)
		e.Name, e.Right = v.index(0).str(), expr(v.index(1), depth+1)
	case "parameters_vector", "field_list":
		if m, ok := v.v.(map[string]any); ok && len(m) == 0 { // an empty list by p4c: log_msg without arguments
			break
		}
		e.List = each(v, func(n *node) *Expr { return expr(n, depth+1) })
	case "expression":
		if v.has("type") { // a wrapper
			return expr(v, depth+1)
		}
		operation(v, e, depth)
	default:
		n.fail("value type %q is not known", clip(e.Type))
	}
	return e
}

func operation(v *node, e *Expr, depth int) {
	e.Op = v.at("op").str()
	if v.has("left") {
		e.Left = expr(v.at("left"), depth+1)
	}
	if v.has("cond") {
		e.Cond = expr(v.at("cond"), depth+1)
	}
	switch e.Op {
	case "access_field", "access_union_header":
		e.Index = v.at("right").integer(0, math.MaxInt32)
	default:
		if v.has("right") {
			e.Right = expr(v.at("right"), depth+1)
		}
	}
}
