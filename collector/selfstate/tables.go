// SPDX-License-Identifier: Apache-2.0

package selfstate

import (
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/openconfig/ygot/util"
	"github.com/openconfig/ygot/ygot"

	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/yang/table"
)

// flattener turns trees of ygot structs into tables. It derives paths, columns and kinds from the
// structs' tags and types, which ygot generates from the YANG modules.
type flattener struct {
	shapes map[reflect.Type]*shape
}

// shape is the table layout of a struct type.
type shape struct {
	columns []column
	lists   []sublist
}

// column is a leaf, in the struct or in a container below it.
type column struct {
	name   string // path relative to the struct: "state/rows", "gnmi/state/updates"
	index  []int  // indexes of the fields that lead to the leaf
	kind   table.Kind
	config bool // a leaf of a config container
	key    bool
}

// sublist is a YANG list in the struct.
type sublist struct {
	name  string // path relative to the struct: "devices/device"
	index int
}

// publications returns the tables for two trees of the same type at a path. Leaves of config
// containers take their values from config, all other leaves from state. A list's table replaces
// all of its rows. A container or list that is nil in both trees has no table.
func (f *flattener) publications(at string, state, config ygot.GoStruct) ([]store.Publication, error) {
	s, c := reflect.ValueOf(state).Elem(), reflect.ValueOf(config).Elem()
	sh, err := f.shape(s.Type())
	if err != nil {
		return nil, err
	}
	containers := map[string][]column{}
	for _, col := range sh.columns {
		dir := path.Dir(col.name)
		if _, ok := descend(col.pick(s, c), col.index[:len(col.index)-1]); ok {
			containers[dir] = append(containers[dir], col)
		}
	}
	var out []store.Publication
	for _, dir := range slices.Sorted(maps.Keys(containers)) {
		columns := containers[dir]
		for i := range columns {
			columns[i].name = path.Base(columns[i].name)
		}
		out = append(out, store.Publication{Table: build(at+"/"+dir, columns, []entry{{s, c}})})
	}
	for _, l := range sh.lists {
		rows, ok := entries(s.Field(l.index), c.Field(l.index))
		if !ok {
			continue
		}
		sh, err := f.shape(s.Field(l.index).Type().Elem().Elem())
		if err != nil {
			return nil, err
		}
		if len(sh.lists) > 0 {
			return nil, fmt.Errorf("selfstate: %s/%s: lists within lists are not supported", at, l.name)
		}
		out = append(out, store.Publication{Table: build(at+"/"+l.name, sh.columns, rows), Replace: true})
	}
	return out, nil
}

// shape returns the layout of a struct type.
func (f *flattener) shape(t reflect.Type) (*shape, error) {
	if sh := f.shapes[t]; sh != nil {
		return sh, nil
	}
	sh := &shape{}
	if err := sh.add(t, "", nil); err != nil {
		return nil, err
	}
	slices.SortFunc(sh.columns, func(a, b column) int { return strings.Compare(a.name, b.name) })
	if f.shapes == nil {
		f.shapes = map[reflect.Type]*shape{}
	}
	f.shapes[t] = sh
	return sh, nil
}

// add adds the fields of a struct to the layout. index leads to the struct, and prefix is the
// struct's path.
func (sh *shape) add(t reflect.Type, prefix string, index []int) error {
	for i := range t.NumField() {
		field := t.Field(i)
		paths, err := util.SchemaPaths(field)
		if err != nil {
			return fmt.Errorf("selfstate: %s.%s: %w", t, field.Name, err)
		}
		at := append(slices.Clone(index), i)
		switch {
		case field.Type.Kind() == reflect.Map && len(index) > 0:
			// A list within a list gets a table of its own. The only such list is made by
			// Component.leaves.
		case field.Type.Kind() == reflect.Map:
			if field.Type.Key().Kind() != reflect.String {
				return fmt.Errorf("selfstate: %s.%s: only top-level lists with one key of type string are supported", t,
					field.Name)
			}
			sh.lists = append(sh.lists, sublist{path.Join(paths[0]...), i})
		case util.IsTypeStructPtr(field.Type):
			if err := sh.add(field.Type.Elem(), prefix+path.Join(paths[0]...)+"/", at); err != nil {
				return err
			}
		default:
			kind, ok := kindOf(field.Type)
			if !ok {
				return fmt.Errorf("selfstate: %s.%s: no column has the type %s", t, field.Name, field.Type)
			}
			sh.addLeaf(prefix, slices.Concat(paths, util.ShadowSchemaPaths(field)), column{index: at, kind: kind})
		}
	}
	return nil
}

// addLeaf adds the columns of a leaf's paths. A key has one column only, to which its other paths
// refer.
func (sh *shape) addLeaf(prefix string, paths [][]string, leaf column) {
	for _, p := range paths {
		if len(p) == 1 {
			leaf.name, leaf.key = p[0], true
			sh.columns = append(sh.columns, leaf)
			return
		}
	}
	for _, p := range paths {
		leaf.name, leaf.config = prefix+path.Join(p...), p[len(p)-2] == "config"
		sh.columns = append(sh.columns, leaf)
	}
}

// kindOf returns the kind of column that holds a leaf of a Go type.
func kindOf(t reflect.Type) (table.Kind, bool) {
	if t.Implements(reflect.TypeFor[ygot.GoEnum]()) {
		return table.String, true
	}
	if t.Kind() != reflect.Pointer {
		return 0, false
	}
	switch t.Elem().Kind() {
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return table.Uint64, true
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return table.Int64, true
	case reflect.Float64:
		return table.Float64, true
	case reflect.Bool:
		return table.Bool, true
	case reflect.String:
		return table.String, true
	}
	return 0, false
}

// entry is a list entry, or a container, in both trees. state or config is invalid if that tree
// lacks the entry.
type entry struct{ state, config reflect.Value }

// entries returns the entries of a list sorted by key, and whether the list is present.
func entries(state, config reflect.Value) ([]entry, bool) {
	if state.IsNil() && config.IsNil() {
		return nil, false
	}
	type keyed struct {
		key string
		entry
	}
	all := make([]keyed, 0, max(state.Len(), config.Len()))
	for k, v := range state.Seq2() {
		e := keyed{key: k.String(), entry: entry{state: v.Elem()}}
		if c := config.MapIndex(k); c.IsValid() {
			e.config = c.Elem()
		}
		all = append(all, e)
	}
	for k, v := range config.Seq2() {
		if !state.MapIndex(k).IsValid() {
			all = append(all, keyed{key: k.String(), entry: entry{config: v.Elem()}})
		}
	}
	slices.SortFunc(all, func(a, b keyed) int { return strings.Compare(a.key, b.key) })
	out := make([]entry, len(all))
	for i := range all {
		out[i] = all[i].entry
	}
	return out, true
}

// pick returns the tree from which the column takes its values.
func (c *column) pick(state, config reflect.Value) reflect.Value {
	if c.config || c.key && !state.IsValid() {
		return config
	}
	return state
}

// descend follows fields to a struct. It returns false if a pointer on the way is nil.
func descend(v reflect.Value, index []int) (reflect.Value, bool) {
	for _, i := range index {
		if !v.IsValid() {
			return v, false
		}
		v = v.Field(i)
		if v.IsNil() {
			return v, false
		}
		v = v.Elem()
	}
	return v, v.IsValid()
}

// value returns the value of the column in an entry as table.ColumnOf takes it; nil if the entry
// does not have the leaf.
func (c *column) value(e entry) any {
	v, ok := descend(c.pick(e.state, e.config), c.index[:len(c.index)-1])
	if !ok {
		return nil
	}
	v = v.Field(c.index[len(c.index)-1])
	if enum, ok := v.Interface().(ygot.GoEnum); ok {
		name, err := ygot.EnumName(enum)
		if err != nil || v.Int() == 0 { // 0 is ygot's UNSET
			return nil
		}
		return name
	}
	if v = v.Elem(); !v.IsValid() {
		return nil
	}
	switch c.kind {
	case table.Uint64:
		return v.Uint()
	case table.Int64:
		return v.Int()
	case table.Float64:
		return v.Float()
	case table.Bool:
		return v.Bool()
	}
	return text(v.String())
}

// text converts a string to a valid YANG string: one line of valid UTF-8, at most maxText bytes.
func text(s string) string {
	s = strings.ReplaceAll(s, "\n", "; ")
	if len(s) > maxText {
		s = s[:maxText-len("…")] + "…"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

// build returns a table with one row for each entry.
func build(list string, columns []column, rows []entry) *table.Table {
	t := &table.Table{List: list}
	for i := range columns {
		c, to := &columns[i], &t.Values
		if c.key {
			to = &t.Keys
		}
		*to = append(*to, table.ColumnOf(c.name, c.kind, len(rows), func(row int) any { return c.value(rows[row]) }))
	}
	return t
}
