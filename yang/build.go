// SPDX-License-Identifier: Apache-2.0

// Building the data tree from goyang's entries.

package yang

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	goyang "github.com/openconfig/goyang/pkg/yang"
)

type builder struct {
	schema     *Schema
	texts      map[string]*moduleText
	namespaces map[string]string // namespace to module name
	regexps    map[string]pattern
	nodes      int
	refs       []leafref
}

// leafref is a leaf whose type is not resolved yet.
type leafref struct {
	node  *Node
	entry *goyang.Entry
}

func (b *builder) build(ms *goyang.Modules) error {
	root := newRoot()
	b.schema.root = root
	for _, t := range sortedModules(b.texts) {
		m := ms.Modules[t.name]
		if other := b.namespaces[m.Namespace.Name]; other != "" {
			return fmt.Errorf("yang: modules %s and %s have the same namespace %s", other, t.name, m.Namespace.Name)
		}
		b.namespaces[m.Namespace.Name] = t.name
	}
	contributors := map[string]bool{}
	for _, t := range sortedModules(b.texts) {
		if !t.implemented {
			continue
		}
		if err := b.children(root, goyang.ToEntry(ms.Modules[t.name]), contributors); err != nil {
			return err
		}
	}
	if err := b.resolveRefs(); err != nil {
		return err
	}
	b.schema.collectLists()
	for _, t := range sortedModules(b.texts) {
		b.schema.models = append(b.schema.models, model(t, contributors[t.name]))
	}
	return nil
}

func model(t *moduleText, data bool) Model {
	m := Model{Name: t.name, Data: data}
	for _, s := range t.top.kids {
		switch {
		case s.Keyword == "organization":
			m.Organization = s.Argument
		case s.Keyword == "revision":
			m.Revision = max(m.Revision, s.Argument)
		case strings.HasSuffix(s.Keyword, ":openconfig-version"):
			m.Version = s.Argument
		}
	}
	m.Version = cmp.Or(m.Version, m.Revision)
	return m
}

// children adds the data nodes of e below parent; choices and cases are omitted.
func (b *builder) children(parent *Node, e *goyang.Entry, contributors map[string]bool) error {
	names := make([]string, 0, len(e.Dir))
	for n := range e.Dir {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, name := range names {
		c := e.Dir[name]
		if c.IsChoice() || c.IsCase() {
			if err := b.children(parent, c, contributors); err != nil {
				return err
			}
			continue
		}
		if c.RPC != nil || c.Kind != goyang.DirectoryEntry && c.Kind != goyang.LeafEntry {
			continue
		}
		if err := b.node(parent, c, contributors); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) node(parent *Node, e *goyang.Entry, contributors map[string]bool) error {
	if b.nodes++; b.nodes > maxNodes {
		return fmt.Errorf("yang: the data tree has more than %d nodes", maxNodes)
	}
	module := b.namespaces[e.Namespace().Name]
	if module == "" {
		return fmt.Errorf("yang: %s: no module has the namespace %q", goyang.Source(e.Node), e.Namespace().Name)
	}
	contributors[module] = true
	n := &Node{
		Name: e.Name, Module: module, Parent: parent,
		Config: parent.Config && !e.ReadOnly(), Description: e.Description,
	}
	n.Path = strings.TrimSuffix(parent.Path, "/") + "/" + n.QualifiedName()
	if b.texts[module].Source != "" {
		if b.schema.places == nil {
			b.schema.places = map[*Node]string{}
		}
		b.schema.places[n] = goyang.Source(e.Node)
	}
	if first := parent.byName[n.Name]; first != nil {
		return fmt.Errorf("yang: %s: module %s adds %q to %s, where module %s has a node of that name; paths "+
			"omit module names, so the names must differ",
			goyang.Source(e.Node), module, n.Name, parent.Path, first.Module)
	}
	parent.byName[n.Name] = n
	parent.children = append(parent.children, n)
	switch {
	case e.IsLeaf() || e.IsLeafList():
		n.Kind = LeafNode
		if e.IsLeafList() {
			n.Kind = LeafListNode
		}
		return b.leaf(n, e)
	case e.IsList():
		n.Kind = ListNode
	default:
		n.Kind = ContainerNode
	}
	n.byName = map[string]*Node{}
	if err := b.children(n, e, contributors); err != nil {
		return err
	}
	if n.Kind == ListNode {
		return b.keys(n, e)
	}
	return nil
}

func (b *builder) leaf(n *Node, e *goyang.Entry) error {
	if e.Type == nil {
		return fmt.Errorf("yang: %s: leaf %s has no type", goyang.Source(e.Node), n.Path)
	}
	n.Leaf = &Leaf{Node: n, Units: cmp.Or(unitsOf(e.Node), e.Type.Units), Mandatory: e.Mandatory.Value(),
		Many: n.Kind == LeafListNode}
	if len(e.Default) > 0 {
		n.Leaf.Default = e.Default[0]
	} else if e.Type.HasDefault {
		n.Leaf.Default = e.Type.Default
	}
	if e.Type.Kind == goyang.Yleafref {
		b.refs = append(b.refs, leafref{n, e})
		return nil
	}
	t, err := b.compileType(e.Type, n, 0)
	if err != nil {
		return fmt.Errorf("yang: %s: leaf %s: %w", goyang.Source(e.Node), n.Path, err)
	}
	n.Leaf.Type = t
	return nil
}

// unitsOf returns the units statement of a leaf, which goyang's entries lack.
func unitsOf(n goyang.Node) string {
	var v *goyang.Value
	switch l := n.(type) {
	case *goyang.Leaf:
		v = l.Units
	case *goyang.LeafList:
		v = l.Units
	}
	if v == nil {
		return ""
	}
	return v.Name
}

func (b *builder) keys(n *Node, e *goyang.Entry) error {
	n.keys = strings.Fields(e.Key)
	if len(n.keys) == 0 && n.Config {
		return fmt.Errorf("yang: %s: list %s is configuration and has no key", goyang.Source(e.Node), n.Path)
	}
	seen := map[string]bool{}
	for i, k := range n.keys {
		if _, local, ok := strings.Cut(k, ":"); ok {
			k = local
			n.keys[i] = local
		}
		c := n.byName[k]
		if c == nil || c.Kind != LeafNode {
			return fmt.Errorf("yang: %s: list %s has no leaf %q to be its key", goyang.Source(e.Node), n.Path, k)
		}
		if seen[k] {
			return fmt.Errorf("yang: %s: list %s has %q twice in its key", goyang.Source(e.Node), n.Path, k)
		}
		seen[k] = true
	}
	slices.SortStableFunc(n.children, func(x, y *Node) int {
		return cmp.Compare(n.keyRank(x.Name), n.keyRank(y.Name))
	})
	return nil
}

func (n *Node) keyRank(name string) int {
	if i := slices.Index(n.keys, name); i >= 0 {
		return i
	}
	return len(n.keys)
}

// resolveRefs sets the type of each leafref to the type of its target.
func (b *builder) resolveRefs() error {
	targets := map[*Node]*Node{}
	for _, r := range b.refs {
		target, err := follow(r.node, r.entry.Type.Path)
		if err != nil {
			return fmt.Errorf("yang: %s: leaf %s: leafref path %q: %w", goyang.Source(r.entry.Node), r.node.Path,
				r.entry.Type.Path, err)
		}
		targets[r.node] = target
	}
	for _, r := range b.refs {
		target, steps := targets[r.node], 0
		for target.Leaf.Type == nil {
			if target = targets[target]; target == nil || steps > 32 {
				return fmt.Errorf("yang: %s: leaf %s: leafrefs form a cycle", goyang.Source(r.entry.Node), r.node.Path)
			}
			steps++
		}
		r.node.Leaf.Type, r.node.Leaf.Target = target.Leaf.Type, cmp.Or(target.Leaf.Target, target.Path)
		if r.node.Leaf.Units == "" {
			r.node.Leaf.Units = target.Leaf.Units
		}
	}
	return nil
}

// follow walks a leafref's path. It ignores predicates, because they select entries and not the
// type, and prefixes, because names are unique among siblings.
func follow(from *Node, path string) (*Node, error) {
	path, err := dropPredicates(path)
	if err != nil {
		return nil, err
	}
	n := from
	if strings.HasPrefix(path, "/") {
		for n.Parent != nil {
			n = n.Parent
		}
		path = path[1:]
	}
	for step := range strings.SplitSeq(path, "/") {
		step = strings.TrimSpace(step)
		if _, local, ok := strings.Cut(step, ":"); ok {
			step = local
		}
		switch step {
		case ".", "current()":
			continue
		case "..":
			if n = n.Parent; n == nil {
				return nil, errors.New("leads above the root of the tree")
			}
			continue
		}
		c := n.byName[step]
		if c == nil {
			return nil, fmt.Errorf("there is no %q at %s", step, n.Path)
		}
		n = c
	}
	if n.Leaf == nil {
		return nil, fmt.Errorf("leads to the %s %s, not to a leaf", n.Kind, n.Path)
	}
	return n, nil
}

func dropPredicates(path string) (string, error) {
	var out strings.Builder
	depth := 0
	for _, r := range path {
		switch {
		case r == '[':
			depth++
		case r == ']':
			depth--
		case depth == 0:
			out.WriteRune(r)
		}
		if depth < 0 {
			break
		}
	}
	if depth != 0 {
		return "", errors.New("brackets do not match")
	}
	return out.String(), nil
}

// newRoot returns the top of a data tree.
func newRoot() *Node {
	return &Node{Kind: RootNode, Path: "/", Config: true, byName: map[string]*Node{}}
}

// collectLists makes a List of each list, and of each container outside lists.
func (s *Schema) collectLists() {
	s.listsBelow(s.root, false)
	slices.Sort(s.order)
}

// listsBelow makes a List of n and of the nodes below.
func (s *Schema) listsBelow(n *Node, inList bool) {
	if n.Kind == ListNode || n.Kind == ContainerNode && !inList {
		l := &List{Path: n.Path, Node: n, Nested: n.Kind == ListNode && inList, leaves: map[string]*Leaf{}}
		n.List = l
		s.lists[l.Path] = l
		if n.Kind == ListNode {
			s.order = append(s.order, l.Path)
			for _, k := range n.keys {
				key := n.byName[k].Leaf
				key.Name = k
				l.Keys = append(l.Keys, key)
				l.leaves[k] = key
			}
		}
		l.columns = keyColumns(n)
		l.addLeaves(n, "")
		slices.SortFunc(l.Leaves, func(x, y *Leaf) int { return strings.Compare(x.Name, y.Name) })
		for _, k := range l.Keys {
			for _, c := range []string{"config/", "state/"} {
				if l.leaves[c+k.Name] != nil {
					k.RefersTo = append(k.RefersTo, c+k.Name)
				}
			}
		}
	}
	for _, c := range n.children {
		if c.Leaf == nil {
			s.listsBelow(c, inList || n.Kind == ListNode)
		}
	}
}

// keyColumns lists the keys of n and of the lists around it.
func keyColumns(n *Node) []KeyColumn {
	var chain []*Node
	for p := n; p.Parent != nil; p = p.Parent {
		chain = append(chain, p)
	}
	slices.Reverse(chain)
	var out []KeyColumn
	for i, p := range chain {
		for _, k := range p.keys {
			c := KeyColumn{Name: k, Leaf: p.byName[k].Leaf, Elem: i}
			if p != n {
				c.Name = p.Name + "/" + k
			}
			out = append(out, c)
		}
	}
	return out
}

// addLeaves adds the leaves below n. Leaves of a container outside lists belong to the List of each
// container above them; each List has its own Leaf with the relative name.
func (l *List) addLeaves(n *Node, prefix string) {
	for _, c := range n.children {
		switch {
		case c.Leaf != nil:
			if prefix == "" && slices.Contains(n.keys, c.Name) && n.Kind == ListNode {
				continue
			}
			leaf := c.Leaf
			if leaf.Name != "" {
				same := *leaf
				leaf = &same
			}
			leaf.Name = prefix + c.Name
			l.Leaves = append(l.Leaves, leaf)
			l.leaves[leaf.Name] = leaf
		case c.Kind == ContainerNode:
			l.addLeaves(c, prefix+c.Name+"/")
		}
	}
}
