// SPDX-License-Identifier: Apache-2.0

// Validates tables against the schema, column by column.

package yang

import (
	"fmt"
	"math"
	"strings"

	"github.com/netsketch/netsketch/yang/table"
)

// ValueError reports a cell that is not valid for the type of its leaf.
type ValueError struct {
	List  string // path of the list
	Row   int    // row of the table
	Keys  string // the row's keys, "[node=s1][flow=10.0.0.1]"
	Leaf  string // name of the column
	Value string // the cell as text, truncated
	Why   string // "is outside of 0..1"
}

func (e *ValueError) Error() string {
	return fmt.Sprintf("yang: %s%s: %s: %s %s", e.List, e.Keys, e.Leaf, e.Value, e.Why)
}

// Validate reports why a table does not fit the schema: an unknown list, keys that are missing or
// in another order, a column that is not a leaf of the list or has another kind, a mandatory leaf
// that is null, two rows with the same keys, or the first cell that is not valid for its type (a
// *ValueError).
func (s *Schema) Validate(t *table.Table) error {
	if err := t.Check(); err != nil {
		return fmt.Errorf("yang: %w", err)
	}
	l, err := s.List(t.List)
	if err != nil {
		return err
	}
	if t.List != l.Path {
		return fmt.Errorf("yang: a table names its list %s; its path is %s", t.List, l.Path)
	}
	if len(t.Keys) != len(l.columns) {
		return fmt.Errorf("yang: %s: %d key columns (%s), the list has the keys %s", l.Path, len(t.Keys),
			columnNames(t.Keys), l.keyNames())
	}
	for i := range t.Keys {
		if t.Keys[i].Name != l.columns[i].Name {
			return fmt.Errorf("yang: %s: key columns %s, the list has the keys %s in this order", l.Path,
				columnNames(t.Keys), l.keyNames())
		}
		if err := l.checkColumn(t, &t.Keys[i], l.columns[i].Leaf); err != nil {
			return err
		}
	}
	for i := range t.Values {
		c := &t.Values[i]
		leaf := l.leaves[c.Name]
		if leaf == nil || l.KeyIndex(c.Name) >= 0 {
			return l.noLeaf(c.Name)
		}
		if leaf.Many {
			return fmt.Errorf("yang: %s: %s is a leaf-list, which no column carries", l.Path, c.Name)
		}
		if err := l.checkColumn(t, c, leaf); err != nil {
			return err
		}
	}
	if row := t.Duplicate(); row >= 0 {
		return fmt.Errorf("yang: %s: the table has two rows with these keys", t.RowPath(row))
	}
	return l.checkPresence(t)
}

// checkPresence checks mandatory leaves and leaves that repeat a key. A table may omit the column
// of a mandatory leaf, because it may update some leaves of existing rows.
func (l *List) checkPresence(t *table.Table) error {
	for _, leaf := range l.Leaves {
		if !leaf.Mandatory {
			continue
		}
		c := t.Column(leaf.Name)
		if c == nil || !c.HasNulls() {
			continue
		}
		for r := range c.Len() {
			if c.Null(r) {
				return fmt.Errorf("yang: %s: the mandatory leaf %s is absent", t.RowPath(r), leaf.Name)
			}
		}
	}
	outer := len(l.columns) - len(l.Keys)
	for i, k := range l.Keys {
		for _, name := range k.RefersTo {
			c := t.Column(name)
			if c == nil {
				continue
			}
			for r := range c.Len() {
				if !c.Null(r) && c.Value(r) != t.Keys[outer+i].Value(r) {
					return cellError(t, c, r, fmt.Sprintf("differs from the key %s", k.Name))
				}
			}
		}
	}
	return nil
}

func (l *List) noLeaf(name string) error {
	n := l.Node
	parts := strings.Split(name, "/")
	for _, p := range parts {
		c := n.Child(p)
		if c == nil {
			return fmt.Errorf("yang: %s: column %s: %w", l.Path, name, n.noChild(p))
		}
		n = c
	}
	return fmt.Errorf("yang: %s: column %s is a %s, a column is a leaf that is no key", l.Path, name, n.Kind)
}

func (l *List) keyNames() string {
	var names []string
	for _, k := range l.columns {
		names = append(names, k.Name)
	}
	if len(names) == 0 {
		return "(none: it is a container)"
	}
	return strings.Join(names, ", ")
}

func columnNames(cols []table.Column) string {
	var names []string
	for i := range cols {
		names = append(names, cols[i].Name)
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

func (l *List) checkColumn(t *table.Table, c *table.Column, leaf *Leaf) error {
	typ := leaf.Type
	if c.Kind != typ.Kind {
		return fmt.Errorf("yang: %s: column %s is %s; the leaf is a %s, carried as %s", l.Path, c.Name, c.Kind,
			typ.Base, typ.Kind)
	}
	switch c.Kind {
	case table.Uint64:
		v := c.Uint64s()
		if len(v) > 0 && typ.Base != Union && len(typ.uints) > 0 {
			lo, hi := extent(v)
			if len(typ.uints) == 1 && lo >= typ.uints[0].min && hi <= typ.uints[0].max {
				return nil
			}
		}
		return eachRow(t, c, func(r int) error { return typ.checkUint(v[r]) })
	case table.Int64:
		v := c.Int64s()
		if len(v) > 0 && typ.Base != Union && len(typ.ints) > 0 {
			lo, hi := extent(v)
			if len(typ.ints) == 1 && lo >= typ.ints[0].min && hi <= typ.ints[0].max {
				return nil
			}
		}
		return eachRow(t, c, func(r int) error { return typ.checkInt(v[r]) })
	case table.Float64:
		v := c.Float64s()
		if len(v) > 0 && typ.Base != Union && len(typ.floats) == 1 {
			lo, hi := extent(v)
			// A float range within the type's range cannot overflow.
			if lo >= typ.floats[0].min && hi <= typ.floats[0].max && math.Max(-lo, hi)*typ.scale < math.MaxInt64 {
				return nil
			}
		}
		return eachRow(t, c, func(r int) error { return typ.checkFloat(v[r]) })
	case table.String:
		return typ.checkTextColumn(t, c)
	}
	return nil
}

func extent[T uint64 | int64 | float64](v []T) (lo, hi T) {
	lo, hi = v[0], v[0]
	for _, x := range v {
		lo, hi = min(lo, x), max(hi, x)
	}
	return lo, hi
}

func eachRow(t *table.Table, c *table.Column, check func(row int) error) error {
	for r := range c.Len() {
		if c.Null(r) {
			continue
		}
		if err := check(r); err != nil {
			return cellError(t, c, r, err.Error())
		}
	}
	return nil
}

// checkTextColumn checks each entry of a dictionary once.
func (t *Type) checkTextColumn(tab *table.Table, c *table.Column) error {
	data, offsets, codes := c.Packed()
	if codes == nil || len(offsets) > len(codes) {
		return eachRow(tab, c, func(r int) error { return t.CheckText(c.Text(r)) })
	}
	var bad map[uint32]error
	for e := range len(offsets) - 1 {
		if err := t.CheckText(data[offsets[e]:offsets[e+1]]); err != nil {
			if bad == nil {
				bad = map[uint32]error{}
			}
			bad[uint32(e)] = err
		}
	}
	if bad == nil {
		return nil
	}
	return eachRow(tab, c, func(r int) error { return bad[codes[r]] })
}

func cellError(t *table.Table, c *table.Column, row int, why string) error {
	value := string(c.AppendText(nil, row))
	if c.Kind == table.String {
		if len(value) > 100 {
			value = value[:100] + "…"
		}
		value = fmt.Sprintf("%q", value)
	}
	keys := string(t.AppendKey(nil, row))
	if len(keys) > 400 {
		keys = keys[:400] + "…"
	}
	return &ValueError{List: t.List, Row: row, Keys: strings.ToValidUTF8(keys, "?"), Leaf: c.Name, Value: value,
		Why: why}
}
