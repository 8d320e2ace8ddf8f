// SPDX-License-Identifier: Apache-2.0

// Bounds on module texts. goyang recurses over groupings, types and identities without bounds,
// searches for unknown imports on disk, and overflows the stack on a cycle. All checks in this file
// run on plain statements before goyang converts them.

package yang

import (
	"fmt"
	"regexp"
	"strings"

	goyang "github.com/openconfig/goyang/pkg/yang"
)

// Bounds of Load. OpenConfig's largest published modules are far below each of them.
const (
	maxModules     = 256
	maxModuleBytes = 512 << 10
	maxTotalBytes  = 8 << 20
	maxBlocks      = 20_000 // "{" per module
	maxPluses      = 2_000  // "+" per module: goyang joins strings in quadratic time
	maxDepth       = 48     // nested statements
	maxArgument    = 8 << 10
	maxProse       = 64 << 10 // description, contact, organization, reference
	maxIdentities  = 4096
	maxAugments    = 512 // per module
	maxTypeWeight  = 4096
	maxTypesWeight = 400_000
	maxNodes       = 100_000 // data nodes and their substatements, groupings expanded
	maxDerivations = 50_000  // paths through identities
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

	implemented bool // adds its nodes to the data tree; otherwise it is only imported
}

// definition names something defined below a statement.
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
	if n := strings.Count(m.Text, "{"); n > maxBlocks {
		return nil, fmt.Errorf("yang: %s: %d opening braces; at most %d are allowed", m.place(), n, maxBlocks)
	}
	if n := strings.Count(m.Text, "+"); n > maxPluses {
		return nil, fmt.Errorf("yang: %s: %d plus signs; at most %d are allowed", m.place(), n, maxPluses)
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
	limit := maxArgument
	switch s.Keyword {
	case "description", "contact", "organization", "reference":
		limit = maxProse
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
	if len(s.Argument) > limit {
		return nil, at(w, "the argument of %s has %d bytes; at most %d are allowed", s.Keyword, len(s.Argument), limit)
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
	augments := 0
	for _, s := range t.top.kids {
		switch s.Keyword {
		case "prefix":
			t.prefix = s.Argument
		case "augment":
			if augments++; augments > maxAugments {
				return at(s, "more than %d augments", maxAugments)
			}
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

// expander measures the expansion of definitions.
type expander struct {
	modules    map[string]*moduleText
	weight     map[*statement]int
	active     map[*statement]bool
	bases      map[*statement][]*statement
	typesTotal int
}

// checkExpansion refuses modules whose groupings, types or identities refer to themselves or expand
// beyond bounds, and references to undefined names.
func checkExpansion(modules map[string]*moduleText) error {
	x := &expander{
		modules: modules,
		weight:  map[*statement]int{},
		active:  map[*statement]bool{},
		bases:   map[*statement][]*statement{},
	}
	nodes, identities := 0, 0
	for _, m := range sortedModules(modules) {
		n, err := x.nodes(m.top)
		if err != nil {
			return err
		}
		if nodes += n; nodes > maxNodes {
			return at(m.top, "with module %s the schema expands to more than %d statements", m.name, maxNodes)
		}
		for _, s := range m.top.kids {
			if s.Keyword == "identity" {
				if identities++; identities > maxIdentities {
					return at(s, "more than %d identities", maxIdentities)
				}
			}
		}
	}
	paths := 0
	for _, m := range sortedModules(modules) {
		for _, s := range m.top.kids {
			if s.Keyword != "identity" {
				continue
			}
			n, err := x.identity(s, 1)
			if err != nil {
				return err
			}
			if paths += n; paths > maxDerivations {
				return at(s, "identities derive from each other in more than %d ways", maxDerivations)
			}
		}
	}
	return nil
}

// nodes returns the number of statements below s, with groupings expanded, and checks the
// statements' types.
func (x *expander) nodes(s *statement) (int, error) {
	sum := 1
	switch s.Keyword {
	case "type":
		n, err := x.typeWeight(s)
		if err != nil {
			return 0, err
		}
		if n > maxTypeWeight {
			return 0, at(s, "type %s expands to more than %d parts", s.Argument, maxTypeWeight)
		}
		if x.typesTotal += n; x.typesTotal > maxTypesWeight {
			return 0, at(s, "the types of all leaves expand to more than %d parts", maxTypesWeight)
		}
		return 1, nil
	case "uses":
		g, err := x.resolve("grouping", s)
		if err != nil {
			return 0, err
		}
		n, done := x.weight[g]
		if !done {
			if x.active[g] {
				return 0, at(s, "grouping %s uses itself", g.Argument)
			}
			x.active[g] = true
			if n, err = x.below(g); err != nil {
				return 0, err
			}
			delete(x.active, g)
			x.weight[g] = n
		}
		sum += n
	}
	n, err := x.below(s)
	if err != nil {
		return 0, err
	}
	if sum += n; sum > maxNodes {
		return 0, at(s, "%s %s expands to more than %d statements", s.Keyword, s.Argument, maxNodes)
	}
	return sum, nil
}

func (x *expander) below(s *statement) (int, error) {
	sum := 0
	for _, k := range s.kids {
		n, err := x.nodes(k)
		if err != nil {
			return 0, err
		}
		if sum += n; sum > maxNodes {
			return 0, at(k, "%s %s expands to more than %d statements", s.Keyword, s.Argument, maxNodes)
		}
	}
	return sum, nil
}

// typeWeight counts the parts of a type statement: member types, enums and patterns.
func (x *expander) typeWeight(s *statement) (int, error) {
	sum := 1
	if _, builtin := goyang.TypeKindFromName[s.Argument]; !builtin {
		def, err := x.resolve("typedef", s)
		if err != nil {
			return 0, err
		}
		n, done := x.weight[def]
		if !done {
			if x.active[def] {
				return 0, at(s, "type %s is defined by itself", def.Argument)
			}
			x.active[def] = true
			for _, k := range def.kids {
				if k.Keyword != "type" {
					continue
				}
				m, err := x.typeWeight(k)
				if err != nil {
					return 0, err
				}
				n += m
			}
			delete(x.active, def)
			x.weight[def] = n
		}
		sum += n
	}
	for _, k := range s.kids {
		if k.Keyword == "type" {
			n, err := x.typeWeight(k)
			if err != nil {
				return 0, err
			}
			sum += n
		} else {
			sum++
		}
		if sum > maxTypeWeight {
			return 0, at(s, "type %s expands to more than %d parts", s.Argument, maxTypeWeight)
		}
	}
	return sum, nil
}

// identity returns the number of derivation chains that end in s, because goyang walks all chains.
// It refuses cycles.
func (x *expander) identity(s *statement, depth int) (int, error) {
	if n, done := x.weight[s]; done {
		return n, nil
	}
	if x.active[s] {
		return 0, at(s, "identity %s derives from itself", s.Argument)
	}
	x.active[s] = true
	defer delete(x.active, s)
	ancestors := map[*statement]bool{}
	for _, k := range s.kids {
		if k.Keyword != "base" {
			continue
		}
		b, err := x.resolve("identity", k)
		if err != nil {
			return 0, err
		}
		if _, err := x.identity(b, depth+1); err != nil {
			return 0, err
		}
		ancestors[b] = true
		for _, a := range x.bases[b] {
			ancestors[a] = true
		}
	}
	sum := 1
	for a := range ancestors {
		x.bases[s] = append(x.bases[s], a)
		if sum += x.weight[a]; sum > maxDerivations {
			break
		}
	}
	if len(ancestors) > 256 || sum > maxDerivations {
		return 0, at(s, "identity %s derives from others in too many ways", s.Argument)
	}
	x.weight[s] = sum
	return sum, nil
}

// resolve finds the definition that a uses, type or base statement refers to, by YANG's scoping
// rules.
func (x *expander) resolve(kind string, s *statement) (*statement, error) {
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
	m := x.modules[module]
	if def := m.defs[definition{m.top, kind, name}]; def != nil {
		return def, nil
	}
	return nil, at(s, "module %s has no %s %s", module, kind, name)
}
