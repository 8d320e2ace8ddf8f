// SPDX-License-Identifier: Apache-2.0

// Checks of module texts before goyang converts them. goyang searches for unknown imports on disk,
// and overflows the stack if a grouping, a type or an identity refers to itself.

package yang

import (
	"fmt"
	"regexp"
	"strings"

	goyang "github.com/openconfig/goyang/pkg/yang"
)

// Bounds of Load. OpenConfig's largest published modules are far below each bound.
const (
	maxModules     = 256
	maxModuleBytes = 512 << 10
	maxTotalBytes  = 8 << 20
	maxDepth       = 48      // nested statements
	maxNodes       = 100_000 // data nodes, groupings expanded
)

// statement is a YANG statement with its parent and its module.
type statement struct {
	*goyang.Statement
	parent *statement
	kids   []*statement
	module *moduleText
}

// moduleText is a parsed module before it is compiled.
type moduleText struct {
	Module
	name    string
	prefix  string
	top     *statement
	imports map[string]string // prefix to module name
	defs    map[definition]*statement

	implemented bool // whether the module adds its nodes to the data tree, and is not only imported
}

// definition names a definition below a statement.
type definition struct {
	scope      *statement
	kind, name string
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,127}$`)

func at(s *statement, format string, args ...any) error {
	return fmt.Errorf("yang: %s: "+format, append([]any{s.Location()}, args...)...)
}

// parseText reads one module's text as statements, within bounds.
func parseText(m Module) (*moduleText, error) {
	if len(m.Text) > maxModuleBytes {
		return nil, fmt.Errorf("yang: %s: %d bytes; at most %d are allowed", m.place(), len(m.Text), maxModuleBytes)
	}
	stmts, err := goyang.Parse(m.Text, m.place())
	if err != nil {
		return nil, fmt.Errorf("yang: %w", shorten(err))
	}
	if len(stmts) != 1 || stmts[0].Keyword != "module" {
		if len(stmts) == 1 && stmts[0].Keyword == "submodule" {
			return nil, fmt.Errorf("yang: %s: a submodule; put its statements into the module it belongs to",
				stmts[0].Location())
		}
		return nil, fmt.Errorf("yang: %s: the text is not one module statement", m.place())
	}
	t := &moduleText{Module: m, name: stmts[0].Argument, imports: map[string]string{},
		defs: map[definition]*statement{}}
	if !identifier.MatchString(t.name) {
		return nil, fmt.Errorf("yang: %s: %q is not a module name", stmts[0].Location(), t.name)
	}
	if m.Name != "" && m.Name != t.name {
		return nil, fmt.Errorf("yang: %s: the module statement has the name %s, expected %s", stmts[0].Location(),
			t.name, m.Name)
	}
	if t.top, err = t.wrap(stmts[0], nil, 1); err != nil {
		return nil, err
	}
	if err := t.header(); err != nil {
		return nil, err
	}
	return t, nil
}

// shorten keeps the first lines of an error, because a broken text can cause one error per line.
func shorten(err error) error {
	lines := strings.SplitN(err.Error(), "\n", 6)
	if len(lines) == 6 {
		lines[5] = "… and more"
	}
	text := strings.Join(lines, "\n")
	if len(text) > 2000 {
		text = text[:2000] + "…"
	}
	return fmt.Errorf("%s", strings.ToValidUTF8(text, "?"))
}

func (t *moduleText) wrap(s *goyang.Statement, parent *statement, depth int) (*statement, error) {
	w := &statement{Statement: s, parent: parent, module: t}
	if depth > maxDepth {
		return nil, at(w, "statements nested more than %d deep", maxDepth)
	}
	switch s.Keyword {
	case "deviation":
		return nil, at(w, "deviations are not supported")
	case "include":
		return nil, at(w, "submodules are not supported; put the statements of %q into the module", s.Argument)
	case "grouping", "typedef", "identity":
		if !identifier.MatchString(s.Argument) {
			return nil, at(w, "%q is not a name for a %s", s.Argument, s.Keyword)
		}
		key := definition{parent, s.Keyword, s.Argument}
		if first := t.defs[key]; first != nil {
			return nil, at(w, "%s %s is defined already at %s", s.Keyword, s.Argument, first.Location())
		}
		t.defs[key] = w
	case "container", "list", "leaf", "leaf-list", "choice", "case", "anydata", "anyxml", "rpc", "action",
		"notification", "extension", "feature":
		if !identifier.MatchString(s.Argument) {
			return nil, at(w, "%q is not a name for a %s", s.Argument, s.Keyword)
		}
	}
	for _, k := range s.SubStatements() {
		kid, err := t.wrap(k, w, depth+1)
		if err != nil {
			return nil, err
		}
		w.kids = append(w.kids, kid)
	}
	return w, nil
}

// header reads prefix and imports.
func (t *moduleText) header() error {
	for _, s := range t.top.kids {
		if s.Keyword == "prefix" {
			t.prefix = s.Argument
		}
	}
	if !identifier.MatchString(t.prefix) {
		return at(t.top, "module %s has no prefix, or one that is not a name", t.name)
	}
	for _, s := range t.top.kids {
		if s.Keyword != "import" {
			continue
		}
		prefix := ""
		for _, k := range s.kids {
			if k.Keyword == "prefix" {
				prefix = k.Argument
			}
		}
		if !identifier.MatchString(prefix) || !identifier.MatchString(s.Argument) {
			return at(s, "an import needs a module name and a prefix")
		}
		if _, twice := t.imports[prefix]; twice || prefix == t.prefix {
			return at(s, "prefix %s is used twice", prefix)
		}
		t.imports[prefix] = s.Argument
	}
	return nil
}

// importStatement finds the import of a module, for errors.
func (t *moduleText) importStatement(name string) *statement {
	for _, s := range t.top.kids {
		if s.Keyword == "import" && s.Argument == name {
			return s
		}
	}
	return t.top
}

// references follows the references of statements to groupings, types and identities.
type references struct {
	modules map[string]*moduleText
	open    map[*statement]bool // definitions that are being followed
	done    map[*statement]bool
}

// checkReferences refuses definitions that refer to themselves, and references to undefined names.
func checkReferences(modules map[string]*moduleText) error {
	r := &references{modules: modules, open: map[*statement]bool{}, done: map[*statement]bool{}}
	for _, m := range sortedModules(modules) {
		if err := r.below(m.top); err != nil {
			return err
		}
	}
	return nil
}

// below follows all references below a statement.
func (r *references) below(s *statement) error {
	for _, k := range s.kids {
		if err := r.follow(k); err != nil {
			return err
		}
		if err := r.below(k); err != nil {
			return err
		}
	}
	return nil
}

// follow follows the reference of a statement, if it has one.
func (r *references) follow(s *statement) error {
	kind, ok := map[string]string{"uses": "grouping", "type": "typedef", "base": "identity"}[s.Keyword]
	if _, builtin := goyang.TypeKindFromName[s.Argument]; !ok || kind == "typedef" && builtin {
		return nil
	}
	def, err := r.resolve(kind, s)
	if err != nil || r.done[def] {
		return err
	}
	if r.open[def] {
		return at(s, "%s %s refers to itself", kind, def.Argument)
	}
	r.open[def] = true
	err = r.below(def)
	delete(r.open, def)
	r.done[def] = true
	return err
}

// resolve finds the definition that a uses, type or base statement refers to, by YANG's scoping
// rules.
func (r *references) resolve(kind string, s *statement) (*statement, error) {
	prefix, name, qualified := strings.Cut(s.Argument, ":")
	if !qualified {
		prefix, name = "", s.Argument
	}
	if prefix == "" || prefix == s.module.prefix {
		for scope := s.parent; scope != nil; scope = scope.parent {
			if def := s.module.defs[definition{scope, kind, name}]; def != nil {
				return def, nil
			}
		}
		return nil, at(s, "unknown %s %s", kind, s.Argument)
	}
	module, ok := s.module.imports[prefix]
	if !ok {
		return nil, at(s, "%s %s: the module imports nothing under the prefix %s", kind, s.Argument, prefix)
	}
	m := r.modules[module]
	if def := m.defs[definition{m.top, kind, name}]; def != nil {
		return def, nil
	}
	return nil, at(s, "module %s has no %s %s", module, kind, name)
}
