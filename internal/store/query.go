// SPDX-License-Identifier: Apache-2.0

package store

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Query selects a node and everything below it, like a gNMI path.
type Query struct {
	// Target is the target's name; empty means the store's default target, "*" all targets.
	Target string
	// Elems is the path from the root. An empty path selects everything.
	Elems []Elem
	// Depth is the number of levels below the node that are selected; 0 selects all levels.
	Depth int
}

// Elem is one element of a Query's path.
type Elem struct {
	// Name is a node's name without module. "*" stands for any one element, "..." for any number of
	// elements, including zero.
	Name string
	// Keys are the values of list keys. A key that is missing or "*" matches any value.
	Keys map[string]string
}

// ParseQuery reads "/a/b[k=v]/c" with gNMI's escapes ("\]" and "\\" in values), for tests and
// tools. If the path is malformed, it returns the part before the error.
func ParseQuery(target, path string) Query {
	q := Query{Target: target}
	rest := strings.TrimPrefix(path, "/")
	for rest != "" {
		end := strings.IndexAny(rest, "/[")
		if end < 0 {
			end = len(rest)
		}
		e := Elem{Name: rest[:end]}
		rest = rest[end:]
		for strings.HasPrefix(rest, "[") {
			key, after, ok := strings.Cut(rest[1:], "=")
			if !ok {
				return q
			}
			var value strings.Builder
			i := 0
			for ; i < len(after) && after[i] != ']'; i++ {
				if after[i] == '\\' && i+1 < len(after) {
					i++
				}
				value.WriteByte(after[i])
			}
			if e.Keys == nil {
				e.Keys = map[string]string{}
			}
			e.Keys[key] = value.String()
			rest = after[min(i+1, len(after)):]
		}
		rest = strings.TrimPrefix(rest, "/")
		q.Elems = append(q.Elems, e)
	}
	return q
}

// String returns the query's canonical text: equal queries have equal texts.
func (q Query) String() string {
	b := append([]byte(nil), q.Target...)
	b = append(b, ':')
	for _, e := range q.Elems {
		b = append(b, '/')
		b = append(b, e.Name...)
		for _, k := range slices.Sorted(maps.Keys(e.Keys)) {
			if e.Keys[k] != "*" {
				b = append(b, '[')
				b = append(b, k...)
				b = append(b, '=')
				b = strconv.AppendQuote(b, e.Keys[k])
				b = append(b, ']')
			}
		}
	}
	if q.Depth > 0 {
		b = append(b, " depth "...)
		b = strconv.AppendInt(b, int64(q.Depth), 10)
	}
	return string(b)
}

// plan describes which rows and leaves of one list the queries select.
type plan struct {
	list  *List
	terms []term
	// byKey holds the indexes of the terms by key if every term names one row. The cost of a row is
	// then independent of the number of terms.
	byKey map[string][]int
}

// term selects the rows with certain key values, and leaves of these rows.
type term struct {
	want  []Value // wanted value of each key; an absent value matches any
	exact bool    // every key has a value
	key   []byte  // the row's encoded keys; used if exact
	leafs []bool  // whether each leaf of the list is selected
	// depth is the number of elements of the query's path below the list entry: 0 if the query
	// selects the whole entry or a node above it.
	depth int
}

// planFor returns the plan of the queries for a list; nil if they select nothing in the list.
func planFor(queries []Query, target string, isDefault bool, l *List) *plan {
	p := &plan{list: l}
	for _, q := range queries {
		if q.Target != "*" && q.Target != target && (q.Target != "" || !isDefault) {
			continue
		}
		p.add(q, l)
	}
	if len(p.terms) == 0 {
		return nil
	}
	for i := range p.terms {
		if !p.terms[i].exact {
			return p
		}
	}
	p.byKey = make(map[string][]int, len(p.terms))
	for i := range p.terms {
		p.byKey[string(p.terms[i].key)] = append(p.byKey[string(p.terms[i].key)], i)
	}
	return p
}

func (p *plan) add(q Query, l *List) {
	// Consecutive "..." mean the same as a single "...", but would match the same leaf in many ways.
	q.Elems = slices.CompactFunc(slices.Clone(q.Elems),
		func(a, b Elem) bool { return a.Name == "..." && b.Name == "..." })
	first := len(p.terms)
	for leaf := range l.Leaves {
		full := len(l.Elems) + len(l.Leaves[leaf].Path)
		name := func(i int) string {
			if i < len(l.Elems) {
				return l.Elems[i]
			}
			return l.Leaves[leaf].Path[i-len(l.Elems)]
		}
		p.match(q.Elems, l, leaf, first, name, 0, full, q.Depth, make([]Value, len(l.Keys)))
	}
}

// match compares the query's path with a leaf's path, element by element, and records each match.
// want holds the key values found so far.
func (p *plan) match(q []Elem, l *List, leaf, first int, name func(int) string, at, full, levels int, want []Value) {
	if len(q) == 0 {
		if levels > 0 && full-at > levels {
			return
		}
		p.record(l, leaf, first, want, max(at-len(l.Elems), 0))
		return
	}
	if q[0].Name == "..." {
		for next := at; next <= full; next++ {
			p.match(q[1:], l, leaf, first, name, next, full, levels, slices.Clone(want))
		}
		return
	}
	if at == full || q[0].Name != "*" && q[0].Name != name(at) {
		return
	}
	for k, v := range q[0].Keys {
		i := slices.IndexFunc(l.Keys, func(key Key) bool { return key.Elem == at && key.Name == k })
		if i < 0 {
			return
		}
		if v == "*" {
			continue
		}
		value, ok := parseKey(l.Keys[i].Kind, v)
		if !ok || !want[i].Absent() && want[i] != value {
			return
		}
		want[i] = value
	}
	p.match(q[1:], l, leaf, first, name, at+1, full, levels, want)
}

// record adds a leaf to the term with these key values.
func (p *plan) record(l *List, leaf, first int, want []Value, depth int) {
	for i := first; i < len(p.terms); i++ {
		if t := &p.terms[i]; slices.Equal(t.want, want) {
			t.leafs[leaf] = true
			t.depth = min(t.depth, depth)
			return
		}
	}
	t := term{want: slices.Clone(want), leafs: make([]bool, len(l.Leaves)), depth: depth, exact: true}
	t.leafs[leaf] = true
	for _, v := range want {
		t.exact = t.exact && !v.Absent()
		t.key = appendKeyValue(t.key, v)
	}
	p.terms = append(p.terms, t)
}

// exact reports whether every term names exactly one row.
func (p *plan) exact() bool { return p.byKey != nil }

// matches reports whether a row has the key values of the term.
func (t *term) matches(g *segment, row int) bool {
	for i := range t.want {
		if !t.want[i].Absent() && cell(&g.t.Keys[i], row) != t.want[i] {
			return false
		}
	}
	return true
}

// selects sets leafs to the leaves that the terms select in a row. It reports whether a term
// selects the row, and the least depth of these terms.
func (p *plan) selects(g *segment, row int, leafs []bool) (bool, int) {
	any, depth := false, 1<<30
	add := func(t *term) {
		if !any {
			copy(leafs, t.leafs)
		} else {
			for j, on := range t.leafs {
				leafs[j] = leafs[j] || on
			}
		}
		any, depth = true, min(depth, t.depth)
	}
	if p.byKey != nil {
		var buf [128]byte
		for _, i := range p.byKey[string(appendKey(buf[:0], g.t.Keys, row))] {
			add(&p.terms[i])
		}
		return any, depth
	}
	for i := range p.terms {
		if t := &p.terms[i]; t.matches(g, row) {
			add(t)
		}
	}
	return any, depth
}
