// SPDX-License-Identifier: Apache-2.0

package query

import (
	"fmt"
	"strconv"
	"strings"
)

// String returns the value as a query contains it; text has no quotes.
func (v Value) String() string {
	switch v.Type {
	case Address:
		return v.Address.String()
	case Prefix:
		return v.Prefix.String()
	case Text:
		return v.Text
	}
	return strconv.FormatInt(v.Int, 10)
}

// String returns the expression with parentheses around each operation inside it.
func (e *Expression) String() string {
	switch {
	case e.Constant != nil && e.Constant.Type == Text:
		return strconv.Quote(e.Constant.Text)
	case e.Constant != nil:
		return e.Constant.String()
	case e.Operation == "":
		return e.Field
	case e.Operation == "!":
		return "!" + e.Left.nested()
	}
	return e.Left.nested() + " " + e.Operation + " " + e.Right.nested()
}

func (e *Expression) nested() string {
	if e.Operation == "" || e.Operation == "!" {
		return e.String()
	}
	return "(" + e.String() + ")"
}

// String returns the operator as a query contains it.
func (o *Operator) String() string {
	var parts []string
	if o.Condition != nil {
		parts = append(parts, o.Condition.String())
	}
	if o.Other.Text != "" {
		parts = append(parts, o.Other.Text)
	}
	if o.Kind == Reduce || o.Kind == Join {
		names := make([]string, len(o.Keys))
		for i, k := range o.Keys {
			names[i] = k.Text
		}
		parts = append(parts, "keys=("+strings.Join(names, ", ")+")")
	}
	for _, c := range o.Columns {
		switch {
		case c.Function != "" && c.Expression == nil:
			parts = append(parts, c.Name.Text+"="+c.Function+"()")
		case c.Function != "":
			parts = append(parts, fmt.Sprintf("%s=%s(%v)", c.Name.Text, c.Function, c.Expression))
		case c.Expression.Field == c.Name.Text:
			parts = append(parts, c.Name.Text)
		default:
			parts = append(parts, fmt.Sprintf("%s=%v", c.Name.Text, c.Expression))
		}
	}
	return fmt.Sprintf("%s(%s)", o.Kind, strings.Join(parts, ", "))
}
