// SPDX-License-Identifier: Apache-2.0

// The data tree: nodes, lists and leaves, without choices and cases.

package yang

import (
	"fmt"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/internal/suggest"
	"github.com/netsketch/netsketch/yang/table"
)

// NodeKind is the kind of a node of the data tree.
type NodeKind uint8

// The kinds of node.
const (
	RootNode NodeKind = iota
	ContainerNode
	ListNode
	LeafNode
	LeafListNode
)

// String returns YANG's keyword for the kind.
func (k NodeKind) String() string {
	return [...]string{"root", "container", "list", "leaf", "leaf-list"}[k]
}

// Node is a node of the data tree.
type Node struct {
	// Name is the node's name without module.
	Name string
	// Module is the name of the module whose namespace the node is in. RFC 7951 JSON writes it before
	// the name if it differs from the parent's module.
	Module string
	// Path is the schema path, with module names where they change:
	// "/netsketch-univmon:univmon/flows".
	Path string
	// Kind determines which of the fields below are set.
	Kind NodeKind
	// Config is true for configuration, false for state.
	Config bool
	// Description is the description statement.
	Description string
	// Parent is nil for the root.
	Parent *Node
	// Leaf is set for leaves and leaf-lists.
	Leaf *Leaf
	// List is set for lists, and for containers that are not in a list.
	List *List

	children []*Node // children: keys first in their order, then by name
	byName   map[string]*Node
	keys     []string // keys of a list
}

// Children returns the node's children. A list's children are its keys in schema order, followed
// by other nodes by name.
func (n *Node) Children() []*Node { return n.children }

// Child returns the child with a name, with or without "module:" before it, or nil.
func (n *Node) Child(name string) *Node {
	if c := n.byName[name]; c != nil {
		return c
	}
	if module, local, ok := strings.Cut(name, ":"); ok {
		if c := n.byName[local]; c != nil && c.Module == module {
			return c
		}
	}
	return nil
}

// KeyNames returns the names of a list's keys in their order.
func (n *Node) KeyNames() []string { return n.keys }

// QualifiedName returns the name as RFC 7951 JSON writes it: with the module's name before it at
// the top, and if the module differs from the parent's.
func (n *Node) QualifiedName() string {
	if n.Parent == nil || n.Parent.Module != n.Module {
		return n.Module + ":" + n.Name
	}
	return n.Name
}

func (n *Node) noChild(name string) error {
	where := n.Path
	if n.Kind == RootNode {
		where = "the top of the tree"
	}
	hint := ""
	if c := n.closest(name); c != "" {
		hint = fmt.Sprintf("; did you mean %q?", c)
	}
	return &UnknownPathError{fmt.Sprintf("yang: there is no %q at %s%s", name, where, hint)}
}

// UnknownPathError is the error for a well-formed path that is in no model.
type UnknownPathError struct{ text string }

// Error names the element and, if there is one, the most similar name.
func (e *UnknownPathError) Error() string { return e.text }

// closest returns the name of the child that is most similar to a wrong name, or "".
func (n *Node) closest(name string) string {
	_, local, ok := strings.Cut(name, ":")
	if !ok {
		local = name
	}
	names := make([]string, len(n.children))
	for i, c := range n.children {
		names[i] = c.Name
	}
	return suggest.Nearest(local, names)
}

// List describes the tables of a list.
type List struct {
	// Path is the canonical schema path, as Table.List has it.
	Path string
	// Node is the list, or the container that is one row.
	Node *Node
	// Keys are the key leaves in the schema's order; none for a container.
	Keys []*Leaf
	// Leaves are all leaves below the list entry that are not in a nested list, by name, without
	// keys.
	Leaves []*Leaf
	// Nested is true for a list within a list. Its tables also have the keys of the enclosing
	// lists: see KeyColumns.
	Nested bool

	leaves  map[string]*Leaf
	columns []KeyColumn
}

// Leaf returns the leaf at this path relative to the list entry ("state/packets"), or nil. The path
// of a key is its name.
func (l *List) Leaf(name string) *Leaf { return l.leaves[name] }

// KeyColumn is one of a table's key columns.
type KeyColumn struct {
	// Name is the key's name; for an enclosing list it is "list/key": "interface/name".
	Name string
	// Leaf is the key leaf.
	Leaf *Leaf
	// Elem is the number of the list's element in the path, from 0 at the top.
	Elem int
}

// KeyColumns returns the key columns of the list's tables: first the keys of enclosing lists,
// outermost first, then the list's own keys.
func (l *List) KeyColumns() []KeyColumn { return l.columns }

// KeyIndex returns the position of the key with a name, or -1.
func (l *List) KeyIndex(name string) int {
	return slices.IndexFunc(l.Keys, func(k *Leaf) bool { return k.Name == name })
}

// Leaf is a leaf of a list entry or container.
type Leaf struct {
	// Name is the path relative to the list entry: "state/packets", or a key's name.
	Name string
	// Node is the leaf's place in the tree.
	Node *Node
	// Type is the type, with leafrefs resolved.
	Type *Type
	// Units is the units statement of the leaf or its type, e.g. "nanoseconds".
	Units string
	// Default is the default statement of the leaf or its type.
	Default string
	// Mandatory is the mandatory statement. Keys are mandatory without it.
	Mandatory bool
	// Many is true for a leaf-list. Columns cannot hold leaf-lists.
	Many bool
	// Target is the path of the leaf that a leafref leads to, through leafrefs on the way; empty for
	// other leaves.
	Target string
	// RefersTo lists the leaves that repeat a key, such as "config/name" and "state/name". It is set
	// for a key that is a leafref into its own entry. Tables may omit these leaves.
	RefersTo []string
}

// Kind returns the kind of the leaf's column.
func (l *Leaf) Kind() table.Kind { return l.Type.Kind }

// Config reports whether the leaf is configuration.
func (l *Leaf) Config() bool { return l.Node.Config }
