// SPDX-License-Identifier: Apache-2.0

// gNMI paths against the schema.

package yang

import (
	"fmt"
	"slices"
	"strings"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
)

// maxPathElems bounds the elements of a path, because no tree is deeper.
const maxPathElems = 64

// CheckPath reports why a gNMI path, made of prefix and path, cannot match any node: its origin is
// neither empty nor "openconfig", an element is unknown below its parent, the list lacks a key, or
// the key's type does not allow a value. Elements may include their module's name; "*" matches one
// element and "..." any number; keys may be omitted or be "*".
func (s *Schema) CheckPath(prefix, path *gpb.Path) error {
	_, err := s.Resolve(prefix, path)
	return err
}

// Resolve returns the schema nodes that a gNMI path matches, in the order of their paths: one, or
// several with wildcards. It returns the same errors as CheckPath.
func (s *Schema) Resolve(prefix, path *gpb.Path) ([]*Node, error) {
	origin := path.GetOrigin()
	if origin == "" {
		origin = prefix.GetOrigin()
	}
	if origin != "" && origin != "openconfig" {
		return nil, fmt.Errorf("yang: origin %q is not known; leave it out, or say openconfig", origin)
	}
	elems := slices.Concat(prefix.GetElem(), path.GetElem())
	if len(elems) > maxPathElems {
		return nil, fmt.Errorf("yang: a path of %d elements; at most %d are allowed", len(elems), maxPathElems)
	}
	at := []*Node{s.root}
	for i, e := range elems {
		next, err := step(at, e)
		if err != nil {
			return nil, fmt.Errorf("%w (element %d of %s)", err, i+1, PathString(elems))
		}
		at = next
	}
	slices.SortFunc(at, func(a, b *Node) int { return strings.Compare(a.Path, b.Path) })
	return at, nil
}

// step returns the nodes that one element matches below a set of nodes. If it matches no node, the
// error is about the first node of the set.
func step(at []*Node, e *gpb.PathElem) ([]*Node, error) {
	var next []*Node
	seen := map[*Node]bool{}
	add := func(n *Node) {
		if !seen[n] {
			seen[n] = true
			next = append(next, n)
		}
	}
	var first error
	switch e.GetName() {
	case "...":
		if len(e.GetKey()) > 0 {
			return nil, fmt.Errorf(`yang: "..." has keys`)
		}
		var all func(n *Node)
		all = func(n *Node) {
			if seen[n] {
				return
			}
			add(n)
			for _, c := range n.children {
				all(c)
			}
		}
		for _, n := range at {
			all(n)
		}
	case "":
		return nil, fmt.Errorf("yang: an element without a name")
	default:
		for _, n := range at {
			var candidates []*Node
			if e.GetName() == "*" {
				candidates = n.children
			} else if c := n.Child(e.GetName()); c != nil {
				candidates = []*Node{c}
			} else if first == nil {
				first = n.noChild(e.GetName())
			}
			for _, c := range candidates {
				if err := c.checkKeys(e.GetKey()); err != nil {
					if first == nil {
						first = err
					}
					continue
				}
				add(c)
			}
		}
	}
	if len(next) == 0 {
		if first == nil {
			first = &UnknownPathError{"yang: there is nothing below " + at[0].Path}
		}
		return nil, first
	}
	return next, nil
}

func (n *Node) checkKeys(keys map[string]string) error {
	for k, v := range keys {
		if n.Kind != ListNode {
			return &UnknownPathError{fmt.Sprintf("yang: %s is a %s and has no key %q", n.Path, n.Kind, k)}
		}
		if !slices.Contains(n.keys, k) {
			return &UnknownPathError{fmt.Sprintf("yang: list %s has no key %q, its keys are %s", n.Path, k,
				strings.Join(n.keys, ", "))}
		}
		if v == "*" {
			continue
		}
		if err := n.byName[k].Leaf.Type.CheckText(v); err != nil {
			return fmt.Errorf("yang: list %s: key %s: %.100q %w", n.Path, k, v, err)
		}
	}
	return nil
}

// Elems returns the elements of a path, also of one in the form of gNMI before 0.4, which some
// devices still send.
func Elems(p *gpb.Path) []*gpb.PathElem {
	old := p.GetElement() //nolint:staticcheck // devices still send the deprecated form
	if len(p.GetElem()) > 0 || len(old) == 0 {
		return p.GetElem()
	}
	parsed, err := ParsePath("/" + strings.Join(old, "/"))
	if err != nil { // no schema has such a name
		return []*gpb.PathElem{{Name: strings.Join(old, "/")}}
	}
	return parsed.GetElem()
}

// PathString returns the elements of a gNMI path as text, keys in alphabetical
// order, for logs and errors.
func PathString(elems []*gpb.PathElem) string {
	var b strings.Builder
	for _, e := range elems {
		b.WriteByte('/')
		b.WriteString(e.GetName())
		keys := make([]string, 0, len(e.GetKey()))
		for k := range e.GetKey() {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			b.WriteString("[" + k + "=" + keyEscaper.Replace(e.GetKey()[k]) + "]")
		}
	}
	if b.Len() == 0 {
		return "/"
	}
	if b.Len() > 500 {
		return strings.ToValidUTF8(b.String()[:500], "") + "…"
	}
	return b.String()
}

var keyEscaper = strings.NewReplacer(`\`, `\\`, `]`, `\]`)
