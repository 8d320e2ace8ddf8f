// SPDX-License-Identifier: Apache-2.0

package yang_test

import (
	"strings"
	"testing"

	"github.com/netsketch/netsketch/internal/test/yangtest"
	"github.com/netsketch/netsketch/yang"
	"github.com/netsketch/netsketch/yang/bindings"
	"github.com/netsketch/netsketch/yang/table"
)

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
	for _, v := range append(leaf.Type.Values, "leaf-1", "00:00:5E:00:53:01", "2026-11-20T00:00:00Z") {
		if leaf.Type.CheckText(v) == nil {
			return table.Strings(leaf.Name, []string{v})
		}
	}
	return table.Strings(leaf.Name, []string{"leaf-1"})
}

// Every published list and container, with every leaf set, fits both the run-time schema and the
// generated structs.
func TestEveryLeaf(t *testing.T) {
	s := yangtest.Schema(t)
	lists := s.Lists()
	for _, path := range []string{"/collector", "/collector/epoch"} {
		l, err := s.List(path)
		if err != nil {
			t.Fatal(err)
		}
		lists = append(lists, l)
	}
	leaves := 0
	for _, l := range lists {
		if l.Nested || strings.Contains(l.Path, "ietf-") {
			continue
		}
		tab := &table.Table{List: l.Path}
		for _, k := range l.Keys {
			c := value(k)
			c.Name = k.Name
			tab.Keys = append(tab.Keys, c)
		}
		for _, leaf := range l.Leaves {
			if leaf.Many || strings.HasSuffix(leaf.Name, "config/"+leaf.Node.Name) &&
				strings.HasPrefix(l.Path, "/openconfig") {
				continue
			}
			repeats := false
			for _, k := range l.Keys {
				for _, r := range k.RefersTo {
					repeats = repeats || r == leaf.Name
				}
			}
			if !repeats {
				tab.Values = append(tab.Values, value(leaf))
				leaves++
			}
		}
		t.Run(strings.Trim(l.Path, "/"), func(t *testing.T) { yangtest.Check(t, tab) })
	}
	if leaves < 100 {
		t.Errorf("only %d leaves were tried", leaves)
	}
}

func TestPutRefuses(t *testing.T) {
	device, err := bindings.Schema()
	if err != nil {
		t.Fatal(err)
	}
	tab := &table.Table{
		List:   "/netsketch-collector:collector/devices/device",
		Keys:   []table.Column{table.Strings("name", []string{"leaf-1"})},
		Values: []table.Column{table.Strings("state/connection", []string{"asleep"})},
	}
	if err := yangtest.Put(device, yangtest.Schema(t), tab); err == nil || !strings.Contains(err.Error(), "asleep") {
		t.Errorf("got %v", err)
	}
}
