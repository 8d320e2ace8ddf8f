// SPDX-License-Identifier: Apache-2.0

// Package yangtest validates published tables twice: against the schema that the collector uses at
// run time, and by setting every cell in the structs that ygot generates from the same modules.
// Tests of packages that publish tables use it.
//
// Concurrency: every function may be called from any goroutine; a Device belongs to one goroutine
// at a time.
package yangtest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	goyang "github.com/openconfig/goyang/pkg/yang"
	"github.com/openconfig/ygot/ygot"
	"github.com/openconfig/ygot/ytypes"

	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/yang"
	"github.com/netsketch/netsketch/yang/bindings"
	"github.com/netsketch/netsketch/yang/table"
)

// Modules returns every module that ships with netsketch: the modules of the collector, of switches
// and of host agents, and the plugins' modules, which are read from the source tree. It panics when
// they cannot be read.
func Modules() []yang.Module {
	host, err := yang.Bundled("netsketch-host")
	if err != nil {
		panic(err)
	}
	modules := slices.Concat(yang.CollectorModules(), yang.SwitchModules(), host)
	root, err := testkit.Root()
	if err != nil {
		panic(err)
	}
	files, err := filepath.Glob(filepath.Join(root, "plugins/*/*/*.yang"))
	if err != nil || len(files) == 0 {
		panic(fmt.Sprintf("no YANG modules of plugins in the source tree: %v", err))
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			panic(err)
		}
		modules = append(modules, yang.Module{Name: strings.TrimSuffix(filepath.Base(file), ".yang"),
			Text: string(text)})
	}
	return modules
}

var published = sync.OnceValues(func() (*yang.Schema, error) { return yang.Load(Modules()...) })

// Schema returns the schema of Modules.
func Schema(tb testing.TB) *yang.Schema {
	tb.Helper()
	s, err := published()
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// Check fails the test unless every table fits the schema and every cell is a valid leaf of the
// generated structs. It takes well under 100 µs per cell; pass samples of large tables.
func Check(tb testing.TB, tables ...*table.Table) {
	tb.Helper()
	device, err := bindings.Schema()
	if err != nil {
		tb.Fatal(err)
	}
	for _, t := range tables {
		if err := Put(device, Schema(tb), t); err != nil {
			tb.Error(err)
		}
	}
	if err := device.Validate(&ytypes.LeafrefOptions{IgnoreMissingData: true}); err != nil {
		tb.Errorf("ygot refuses the published leaves: %v", err)
	}
}

// Put validates a table and sets all of its cells in the structs below the root of a schema of
// bindings.Schema.
func Put(device *ytypes.Schema, s *yang.Schema, t *table.Table) error {
	if err := s.Validate(t); err != nil {
		return err
	}
	list, err := s.List(t.List)
	if err != nil {
		return err
	}
	root := device.RootSchema()
	for row := range t.Rows() {
		entry := entryPath(list, t, row)
		// Setting a key creates the entry; leaves that repeat it follow.
		outer := len(list.KeyColumns()) - len(list.Keys)
		for i, k := range list.Keys {
			if err := set(root, device.Root, entry, &t.Keys[outer+i], row, k.Type, k.Name); err != nil {
				return fmt.Errorf("%s: %w", t.RowPath(row), err)
			}
			for _, name := range k.RefersTo {
				if err := set(root, device.Root, entry, &t.Keys[outer+i], row, k.Type, name); err != nil {
					return fmt.Errorf("%s: %w", t.RowPath(row), err)
				}
			}
		}
		for i := range t.Values {
			c := &t.Values[i]
			if c.Null(row) {
				continue
			}
			if err := set(root, device.Root, entry, c, row, list.Leaf(c.Name).Type, c.Name); err != nil {
				return fmt.Errorf("%s: %w", t.RowPath(row), err)
			}
		}
	}
	return nil
}

func entryPath(list *yang.List, t *table.Table, row int) *gpb.Path {
	var elems []*gpb.PathElem
	for n := list.Node; n.Parent != nil; n = n.Parent {
		elems = append(elems, &gpb.PathElem{Name: n.Name})
	}
	slices.Reverse(elems)
	for i, k := range list.KeyColumns() {
		e := elems[k.Elem]
		if e.Key == nil {
			e.Key = map[string]string{}
		}
		e.Key[k.Leaf.Node.Name] = string(t.Keys[i].AppendText(nil, row))
	}
	return &gpb.Path{Elem: elems}
}

func set(schema *goyang.Entry, root ygot.GoStruct, entry *gpb.Path, c *table.Column, row int, typ *yang.Type,
	name string,
) error {
	relative, err := ygot.StringToStructuredPath("/" + name)
	if err != nil {
		return err
	}
	path := &gpb.Path{Elem: slices.Concat(entry.Elem, relative.Elem)}
	v, err := typedValue(c, row, typ)
	if err != nil {
		return err
	}
	if err := ytypes.SetNode(schema, root, path, v, &ytypes.InitMissingElements{}); err != nil {
		return fmt.Errorf("%s = %v: %w", name, c.Value(row), err)
	}
	return nil
}

func typedValue(c *table.Column, row int, typ *yang.Type) (*gpb.TypedValue, error) {
	switch c.Kind {
	case table.Uint64:
		return &gpb.TypedValue{Value: &gpb.TypedValue_UintVal{UintVal: c.Uint64(row)}}, nil
	case table.Int64:
		return &gpb.TypedValue{Value: &gpb.TypedValue_IntVal{IntVal: c.Int64(row)}}, nil
	case table.Float64:
		text := yang.AppendDecimal(nil, c.Float64(row), typ.FractionDigits)
		return &gpb.TypedValue{Value: &gpb.TypedValue_JsonIetfVal{JsonIetfVal: fmt.Appendf(nil, "%q", text)}}, nil
	case table.Bool:
		return &gpb.TypedValue{Value: &gpb.TypedValue_BoolVal{BoolVal: c.Bool(row)}}, nil
	case table.String:
		return &gpb.TypedValue{Value: &gpb.TypedValue_StringVal{StringVal: typ.Qualify(c.Text(row))}}, nil
	}
	return nil, fmt.Errorf("column %s has no kind", c.Name)
}

// Example returns a table of one row with a valid value in each key and each leaf of the list,
// apart from leaf-lists and, in modules of OpenConfig, leaves that repeat configuration.
func Example(l *yang.List) *table.Table {
	t := &table.Table{List: l.Path}
	for _, k := range l.Keys {
		c := value(k)
		c.Name = k.Name
		t.Keys = append(t.Keys, c)
	}
	for _, leaf := range l.Leaves {
		repeats := leaf.Many || strings.HasSuffix(leaf.Name, "config/"+leaf.Node.Name) &&
			strings.HasPrefix(l.Path, "/openconfig")
		for _, k := range l.Keys {
			repeats = repeats || slices.Contains(k.RefersTo, leaf.Name)
		}
		if !repeats {
			t.Values = append(t.Values, value(leaf))
		}
	}
	return t
}

// value returns a column of one row with a valid value of the leaf.
func value(leaf *yang.Leaf) table.Column {
	switch leaf.Kind() {
	case table.Uint64:
		for _, v := range []uint64{1<<64 - 1, 1<<32 - 1, 1<<16 - 1, 255, 1, 0} {
			if c := table.Uint64s(leaf.Name, []uint64{v}); leaf.Type.CheckText(string(c.AppendText(nil, 0))) == nil {
				return c
			}
		}
	case table.Int64:
		return table.Int64s(leaf.Name, []int64{-1})
	case table.Float64:
		return table.Float64s(leaf.Name, []float64{0.123456})
	case table.Bool:
		return table.Bools(leaf.Name, []bool{true})
	}
	for _, v := range append(leaf.Type.Values, "leaf-1", "leaf-1/1", "leaf-1/1~leaf-2/1", "00:00:5E:00:53:01",
		"2026-11-20T00:00:00Z") {
		if leaf.Type.CheckText(v) == nil {
			return table.Strings(leaf.Name, []string{v})
		}
	}
	return table.Strings(leaf.Name, []string{"leaf-1"})
}
