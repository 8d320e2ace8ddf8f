// SPDX-License-Identifier: Apache-2.0

package table

import (
	"fmt"
	"slices"
	"strings"
)

// Table holds rows of one YANG list as columns. It must not be changed once published.
type Table struct {
	// List is the schema path of the list without keys, with the module's name at the top:
	// "/netsketch-univmon:univmon/heavy-hitters/heavy-hitter". The table of a container has one row
	// and no key.
	List string
	// Keys has one column per key leaf, in the schema's order. No key is null.
	Keys []Column
	// Values has one column per leaf, named by the path relative to the list entry,
	// e.g. "state/packets".
	Values []Column
}

// Rows returns the number of rows: 0 for a table without columns.
func (t *Table) Rows() int {
	switch {
	case len(t.Keys) > 0:
		return t.Keys[0].n
	case len(t.Values) > 0:
		return t.Values[0].n
	}
	return 0
}

// Bytes returns the size of the values without compression: 8 bytes for a number, 1 for a boolean,
// and the length of a text for each row.
func (t *Table) Bytes() int {
	sum := 0
	for _, columns := range [][]Column{t.Keys, t.Values} {
		for i := range columns {
			sum += columns[i].bytes()
		}
	}
	return sum
}

// Column returns the key or value column with a name, or nil.
func (t *Table) Column(name string) *Column {
	for i := range t.Keys {
		if t.Keys[i].Name == name {
			return &t.Keys[i]
		}
	}
	for i := range t.Values {
		if t.Values[i].Name == name {
			return &t.Values[i]
		}
	}
	return nil
}

// Slice returns rows from (inclusive) to to (exclusive), sharing memory.
func (t *Table) Slice(from, to int) *Table {
	return t.each(func(c Column) Column { return c.Slice(from, to) })
}

func (t *Table) each(f func(Column) Column) *Table {
	out := &Table{List: t.List, Keys: make([]Column, len(t.Keys)), Values: make([]Column, len(t.Values))}
	for i, c := range t.Keys {
		out.Keys[i] = f(c)
	}
	for i, c := range t.Values {
		out.Values[i] = f(c)
	}
	return out
}

// AppendKey appends the row's keys as in a path, "[node=s1][flow=10.0.0.1]", with gNMI's escapes
// of "]" and "\". For logs and errors.
func (t *Table) AppendKey(b []byte, row int) []byte {
	for i := range t.Keys {
		k := &t.Keys[i]
		b = append(b, '[')
		b = append(b, k.Name...)
		b = append(b, '=')
		if k.Kind == String {
			s := k.Text(row)
			for j := range len(s) {
				if s[j] == ']' || s[j] == '\\' {
					b = append(b, '\\')
				}
				b = append(b, s[j])
			}
		} else {
			b = k.AppendText(b, row)
		}
		b = append(b, ']')
	}
	return b
}

// Find returns the row with these key values in YANG's text form, by the names of the key leaves,
// or -1.
func (t *Table) Find(keys map[string]string) int {
	var text []byte
	for row := range t.Rows() {
		if !slices.ContainsFunc(t.Keys, func(k Column) bool {
			text = k.AppendText(text[:0], row)
			return string(text) != keys[k.Name]
		}) {
			return row
		}
	}
	return -1
}

// RowPath returns the list's path with the row's keys, for logs and errors.
func (t *Table) RowPath(row int) string { return string(t.AppendKey([]byte(t.List), row)) }

// Check reports whether the table is well-formed: a path, columns of equal length with distinct
// names, no null key, one row if there is no key. yang.Schema.Validate checks it against a schema.
func (t *Table) Check() error {
	if !strings.HasPrefix(t.List, "/") || !strings.Contains(t.List, ":") {
		return fmt.Errorf("table %q: the list is given by its schema path with the module's name, e.g. "+
			"/module:top/list", t.List)
	}
	if len(t.Keys)+len(t.Values) == 0 {
		return fmt.Errorf("table %s: no columns", t.List)
	}
	n := t.Rows()
	seen := make(map[string]bool, len(t.Keys)+len(t.Values))
	check := func(c *Column) error {
		if err := c.Check(); err != nil {
			return fmt.Errorf("table %s: %w", t.List, err)
		}
		if c.n != n {
			return fmt.Errorf("table %s: column %s has %d rows, the first column has %d", t.List, c.Name, c.n, n)
		}
		if seen[c.Name] {
			return fmt.Errorf("table %s: column %s occurs twice", t.List, c.Name)
		}
		seen[c.Name] = true
		return nil
	}
	for i := range t.Keys {
		k := &t.Keys[i]
		if err := check(k); err != nil {
			return err
		}
		if k.NullCount() != 0 {
			return fmt.Errorf("table %s: key %s is absent in %d of %d rows", t.List, k.Name, k.NullCount(), n)
		}
	}
	for i := range t.Values {
		if err := check(&t.Values[i]); err != nil {
			return err
		}
	}
	if len(t.Keys) == 0 && n != 1 {
		return fmt.Errorf("table %s: no key columns and %d rows; a container is one row", t.List, n)
	}
	return nil
}
