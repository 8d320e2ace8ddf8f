// SPDX-License-Identifier: Apache-2.0

// Compiles module texts into a schema, and answers queries on it.

package yang

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	goyang "github.com/openconfig/goyang/pkg/yang"
)

// Schema is a compiled set of modules.
type Schema struct {
	root   *Node
	models []Model
	lists  map[string]*List // lists and containers outside lists, by canonical path
	order  []string         // canonical paths of lists, sorted
	places map[*Node]string // module, line and column of nodes whose module has a Source
}

// Model is a module as gNMI's Capabilities names it.
type Model struct {
	Name         string
	Organization string
	// Revision is the date of the newest revision statement, or empty.
	Revision string
	// Version is the OpenConfig version ("0.1.0"); for a module without one, the date of its newest
	// revision.
	Version string
	// Data is true if the module adds nodes to the data tree, and false if it only provides types,
	// groupings or identities.
	Data bool
}

// Load compiles modules into a schema. Imports are resolved from modules first and from the
// bundled ones (BundledNames) second. A module that is only imported provides its types but adds
// no nodes to the data tree, unless it is augmented. The same text may occur twice; two different
// texts of one module are an error.
//
// Errors begin with "yang:" and name module, line and column if known.
func Load(modules ...Module) (*Schema, error) {
	texts, err := collect(modules)
	if err != nil {
		return nil, err
	}
	if err := checkReferences(texts); err != nil {
		return nil, err
	}
	ms, err := compile(texts)
	if err != nil {
		return nil, err
	}
	s := &Schema{lists: map[string]*List{}}
	b := &builder{schema: s, texts: texts, namespaces: map[string]string{}, regexps: map[string]pattern{}}
	if err := guard(func() error { return b.build(ms) }); err != nil {
		return nil, err
	}
	return s, nil
}

// collect parses the modules and, from the bundled modules, their imports.
func collect(modules []Module) (map[string]*moduleText, error) {
	if len(modules) > maxModules {
		return nil, fmt.Errorf("yang: %d modules; at most %d are allowed", len(modules), maxModules)
	}
	texts := map[string]*moduleText{}
	total := 0
	var todo []*moduleText
	for _, m := range modules {
		if total += len(m.Text); total > maxTotalBytes {
			return nil, fmt.Errorf("yang: the modules have more than %d bytes together", maxTotalBytes)
		}
		t, err := parseGuarded(m)
		if err != nil {
			return nil, err
		}
		if first := texts[t.name]; first != nil {
			if first.Text != t.Text {
				return nil, fmt.Errorf("yang: module %s occurs twice with different texts: %s and %s",
					t.name, first.top.Location(), t.top.Location())
			}
			continue
		}
		t.implemented = true
		texts[t.name] = t
		todo = append(todo, t)
	}
	for len(todo) > 0 {
		t := todo[0]
		todo = todo[1:]
		for _, name := range t.importNames() {
			if texts[name] != nil {
				continue
			}
			m, ok := bundled()[name]
			if !ok {
				return nil, at(t.importStatement(name),
					"module %s imports %s, which is neither given nor bundled", t.name, name)
			}
			dep, err := parseGuarded(m)
			if err != nil {
				return nil, err
			}
			texts[name] = dep
			todo = append(todo, dep)
		}
	}
	implementReferenced(texts)
	return texts, nil
}

// implementReferenced marks modules as implemented if an implemented module augments their nodes,
// or uses a leafref to them, of its own or of a module that it imports (RFC 7950 sections 5.6.3
// and 5.6.5).
func implementReferenced(texts map[string]*moduleText) {
	for again := true; again; {
		again = false
		for _, t := range texts {
			if !t.implemented {
				continue
			}
			for _, name := range t.referenced(texts) {
				if m := texts[name]; m != nil && !m.implemented {
					m.implemented, again = true, true
				}
			}
		}
	}
}

// referenced returns the modules whose nodes an implemented module augments or has leafrefs to.
func (t *moduleText) referenced(texts map[string]*moduleText) (names []string) {
	scopes, seen := references{modules: texts}, map[*statement]bool{}
	var visit func(s *statement)
	visit = func(s *statement) {
		if seen[s] {
			return
		}
		seen[s] = true
		switch s.Keyword {
		case "path", "augment":
			if strings.HasPrefix(s.Argument, "/") {
				names = append(names, s.module.moduleOf(s.Argument[1:]))
			}
		case "type", "uses":
			kind := map[string]string{"type": "typedef", "uses": "grouping"}[s.Keyword]
			if def, err := scopes.resolve(kind, s); err == nil { // checkReferences reports the error
				visit(def)
			}
		}
		for _, k := range s.kids {
			visit(k)
		}
	}
	visit(t.top)
	return names
}

// moduleOf returns the module of a name with a prefix; empty without a prefix.
func (t *moduleText) moduleOf(name string) string {
	prefix, _, qualified := strings.Cut(name, ":")
	switch {
	case !qualified:
		return ""
	case prefix == t.prefix:
		return t.name
	}
	return t.imports[prefix]
}

// parsed caches parsed modules by name, because most schemas need the same ones.
var parsed struct {
	sync.Mutex
	modules map[string]*moduleText
}

// parseGuarded returns a copy of the parsed module for one schema, which may mark it as
// implemented.
func parseGuarded(m Module) (t *moduleText, err error) {
	parsed.Lock()
	t = parsed.modules[m.Name]
	parsed.Unlock()
	if t != nil && t.Module == m {
		own := *t
		return &own, nil
	}
	err = guard(func() error {
		t, err = parseText(m)
		return err
	})
	if err != nil {
		return nil, err
	}
	parsed.Lock()
	defer parsed.Unlock()
	if parsed.modules == nil || len(parsed.modules) >= maxModules {
		parsed.modules = map[string]*moduleText{}
	}
	all := *t
	parsed.modules[m.Name] = &all
	return t, nil
}

func (t *moduleText) importNames() []string {
	var names []string
	for _, n := range t.imports {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func sortedModules(m map[string]*moduleText) []*moduleText {
	var out []*moduleText
	for _, t := range m {
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b *moduleText) int { return strings.Compare(a.name, b.name) })
	return out
}

// compile compiles the texts with goyang.
func compile(texts map[string]*moduleText) (*goyang.Modules, error) {
	ms := goyang.NewModules()
	err := guard(func() error {
		for _, t := range sortedModules(texts) {
			if err := ms.Parse(t.Text, t.place()); err != nil {
				return fmt.Errorf("yang: %w", shorten(err))
			}
		}
		// goyang would search the disk for an import with a revision-date.
		for _, m := range ms.Modules {
			for _, i := range m.Import {
				i.RevisionDate = nil
			}
		}
		if errs := ms.Process(); len(errs) > 0 {
			return fmt.Errorf("yang: %w", shorten(errors.Join(errs...)))
		}
		for _, t := range sortedModules(texts) { // detects collisions of augments
			if errs := goyang.ToEntry(ms.Modules[t.name]).GetErrors(); len(errs) > 0 {
				return fmt.Errorf("yang: %w", shorten(errors.Join(errs...)))
			}
		}
		return nil
	})
	return ms, err
}

// guard turns a panic of goyang over a malformed module into an error.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("yang: the modules cannot be compiled: %v", p)
		}
	}()
	return f()
}

// Root returns the top of the data tree. Its children are the top-level nodes of
// all modules.
func (s *Schema) Root() *Node { return s.root }

// Models returns the modules, including imported ones, in alphabetical order.
func (s *Schema) Models() []Model { return slices.Clone(s.models) }

// Lists returns the lists of the schema in the order of their paths.
func (s *Schema) Lists() []*List {
	var out []*List
	for _, p := range s.order {
		out = append(out, s.lists[p])
	}
	return out
}

// List returns the list at a schema path without keys,
// "/netsketch-univmon:univmon/heavy-hitters/heavy-hitter"; module names may be omitted. A
// container that is not in a list counts as a List without keys, whose tables have one row.
func (s *Schema) List(path string) (*List, error) {
	if l := s.lists[path]; l != nil {
		return l, nil
	}
	n, err := s.Node(path)
	if err != nil {
		return nil, err
	}
	switch {
	case n.List != nil:
		return n.List, nil
	case n.Kind == ContainerNode:
		return nil, fmt.Errorf("yang: %s is a container in a list; a table is rows of the list", n.Path)
	case n.Kind == RootNode:
		return nil, fmt.Errorf("yang: %q is the top of the tree; a table is rows of a list", path)
	}
	return nil, fmt.Errorf("yang: %s is a %s; a table is rows of a list", n.Path, n.Kind)
}

// Node returns the node at a schema path without keys; module names may be omitted.
func (s *Schema) Node(path string) (*Node, error) {
	if !strings.HasPrefix(path, "/") {
		return nil, fmt.Errorf("yang: path %q does not begin with /", path)
	}
	n := s.root
	for name := range strings.SplitSeq(path[1:], "/") {
		if name == "" && n == s.root {
			continue
		}
		c := n.Child(name)
		if c == nil {
			return nil, n.noChild(name)
		}
		n = c
	}
	return n, nil
}

// ListKeys returns the canonical path and the keys, in order, of the list that these element names
// lead to from the root; false if it is not a list. Names may be preceded by "module:".
func (s *Schema) ListKeys(elems []string) (path string, keys []string, ok bool) {
	n := s.root
	for _, e := range elems {
		if n = n.Child(e); n == nil {
			return "", nil, false
		}
	}
	if n.Kind != ListNode {
		return "", nil, false
	}
	return n.Path, slices.Clone(n.keys), true
}

// KeyLeaves returns the leaves of the list at this path that repeat a key, as
// {"state/node": "node"}. Tables may omit them.
func (s *Schema) KeyLeaves(list string) map[string]string {
	l := s.lists[list]
	if l == nil {
		return nil
	}
	out := map[string]string{}
	for _, k := range l.Keys {
		for _, name := range k.RefersTo {
			out[name] = k.Name
		}
	}
	return out
}
