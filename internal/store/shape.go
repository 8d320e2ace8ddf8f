// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/yang/table"
)

// List describes the rows of one YANG list: its path, keys and leaves. It is immutable: a new leaf
// makes a new List, in which the earlier leaves keep their indexes.
type List struct {
	// Path is the schema path as tables give it, e.g.
	// "/netsketch-univmon:univmon/heavy-hitters/heavy-hitter".
	Path string
	// Elems are the names along Path, without modules. The last is the list itself,
	// or a container when there are no keys.
	Elems []string
	// Keys are the key leaves in schema order.
	Keys []Key
	// Leaves are the leaves of an entry: first the key leaves, then the columns.
	Leaves []Leaf
}

// Key is one key of a list.
type Key struct {
	Name string
	Kind table.Kind
	// Elem is the index in Elems of the list that the key belongs to: the last element, except for the
	// keys of an enclosing list, whose column is named "list/key".
	Elem int
}

// Leaf is one leaf of a list's entries.
type Leaf struct {
	// Path is the leaf's path relative to the entry, e.g. ["state", "packets"].
	Path []string
	// Name is Path joined by "/": the column's name.
	Name string
	// KeyOf is the index in Keys of the key whose value this leaf repeats, or -1.
	KeyOf int
}

// KeysAt returns the indexes of the keys of the path element elem.
func (l *List) KeysAt(elem int) []int {
	var out []int
	for i := range l.Keys {
		if l.Keys[i].Elem == elem {
			out = append(out, i)
		}
	}
	return out
}

// leaf returns the index of the leaf with this name, or -1.
func (l *List) leaf(name string) int {
	return slices.IndexFunc(l.Leaves, func(f Leaf) bool { return f.Name == name })
}

// newList makes the shape of a list from the first table published for it. extra holds the leaves
// below an entry that repeat a key ("state/name" → "name").
func newList(t *table.Table, extra map[string]string) (*List, error) {
	l := &List{Path: t.List, Elems: splitPath(t.List)}
	if slices.Contains(l.Elems, "") {
		return nil, fmt.Errorf("store: table %s: its path has an empty element", t.List)
	}
	last := len(l.Elems) - 1
	for i := range t.Keys {
		k := Key{Name: t.Keys[i].Name, Kind: t.Keys[i].Kind, Elem: last}
		if outer, name, ok := strings.Cut(k.Name, "/"); ok {
			at := slices.Index(l.Elems, outer)
			if at < 0 {
				return nil, fmt.Errorf("store: table %s: key %q is of list %q, which is not part of its path", t.List,
					k.Name, outer)
			}
			k.Name, k.Elem = name, at
		}
		if k.Elem == last {
			l.Leaves = append(l.Leaves, Leaf{Path: []string{k.Name}, Name: k.Name, KeyOf: i})
		}
		l.Keys = append(l.Keys, k)
	}
	for i := range l.Keys {
		for _, name := range slices.Sorted(maps.Keys(extra)) {
			if l.Keys[i].Elem == last && extra[name] == l.Keys[i].Name && t.Column(name) == nil {
				l.Leaves = append(l.Leaves, Leaf{Path: strings.Split(name, "/"), Name: name, KeyOf: i})
			}
		}
	}
	return l, nil
}

// widen returns the shape with the table's columns added, and the index among the leaves for each
// column of the table. It returns the same shape if the table has no new column.
func (l *List) widen(t *table.Table) (*List, []int) {
	at := make([]int, len(t.Values))
	out := l
	for i := range t.Values {
		name := t.Values[i].Name
		j := out.leaf(name)
		if j < 0 {
			if out == l {
				c := *l
				c.Leaves = slices.Clone(l.Leaves)
				out = &c
			}
			j = len(out.Leaves)
			out.Leaves = append(out.Leaves, Leaf{Path: strings.Split(stripModules(name), "/"), Name: name, KeyOf: -1})
		}
		at[i] = j
	}
	return out, at
}

// sameKeys returns an error if the list's keys and a table's differ.
func (l *List) sameKeys(t *table.Table) error {
	if len(t.Keys) != len(l.Keys) {
		return fmt.Errorf("store: table %s has %d keys, the list has %d", t.List, len(t.Keys), len(l.Keys))
	}
	for i := range t.Keys {
		k := &l.Keys[i]
		name := t.Keys[i].Name
		if j := strings.LastIndexByte(name, '/'); j >= 0 {
			name = name[j+1:]
		}
		if name != k.Name || t.Keys[i].Kind != k.Kind {
			return fmt.Errorf("store: table %s: key %d is %s of kind %s, the list has %s of kind %s",
				t.List, i+1, name, t.Keys[i].Kind, k.Name, k.Kind)
		}
	}
	return nil
}

// splitPath returns the names of a schema path without their modules.
func splitPath(p string) []string {
	return strings.Split(stripModules(strings.TrimPrefix(p, "/")), "/")
}

// stripModules removes "module:" in front of every name of a path.
func stripModules(p string) string {
	if !strings.Contains(p, ":") {
		return p
	}
	names := strings.Split(p, "/")
	for i, n := range names {
		names[i] = n[strings.IndexByte(n, ':')+1:]
	}
	return strings.Join(names, "/")
}
