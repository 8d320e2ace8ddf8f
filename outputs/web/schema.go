// SPDX-License-Identifier: Apache-2.0

// The schema in the form that pages read.

package web

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"github.com/netsketch/netsketch/yang"
)

// node is a node of the schema's tree.
type node struct {
	Name        string   `json:"name"`
	Module      string   `json:"module,omitempty"` // module, where it differs from the parent's
	Kind        string   `json:"kind"`
	Description string   `json:"description,omitempty"`
	Config      bool     `json:"config,omitempty"`
	Plugin      bool     `json:"plugin,omitempty"` // a top-level node of a plugin's module
	Type        string   `json:"type,omitempty"`
	Base        string   `json:"base,omitempty"` // the built-in type of Type
	Units       string   `json:"units,omitempty"`
	Values      []string `json:"values,omitempty"` // values of an enumeration
	Keys        []string `json:"keys,omitempty"`
	Share       bool     `json:"share,omitempty"` // a leaf from 0 to 1
	// Measurement and Tags name the points of a list, or of a container outside lists, in InfluxDB.
	// Tags are the names of the tags for key columns, enclosing lists first.
	Measurement string   `json:"measurement,omitempty"`
	Tags        []string `json:"tags,omitempty"`
	Children    []*node  `json:"children,omitempty"`
}

// schemaCache keeps the newest schema as a file.
type schemaCache struct {
	mu     sync.Mutex
	schema *yang.Schema
	file   *file
}

func (c *schemaCache) of(s *yang.Schema, deps *Dependencies) (*file, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.schema == s {
		return c.file, nil
	}
	text, err := json.Marshal(treeOf(s, deps))
	if err != nil {
		return nil, err
	}
	f, err := newFile("application/json", text)
	if err != nil {
		return nil, err
	}
	c.schema, c.file = s, f
	return f, nil
}

// treeOf returns the schema's root.
func treeOf(s *yang.Schema, deps *Dependencies) *node {
	t := tree{deps: deps, bundled: yang.BundledNames()}
	return t.node(s.Root())
}

type tree struct {
	deps    *Dependencies
	bundled []string // modules that belong to no plugin
}

func (t *tree) node(n *yang.Node) *node {
	out := &node{Name: n.Name, Kind: n.Kind.String(), Config: n.Config, Keys: n.KeyNames(),
		Description: strings.Join(strings.Fields(n.Description), " ")}
	if p := n.Parent; p != nil {
		if p.Module != n.Module {
			out.Module = n.Module
		}
		out.Plugin = p.Parent == nil && !slices.Contains(t.bundled, n.Module)
	}
	if l := n.Leaf; l != nil {
		out.Type, out.Base, out.Units = l.Type.Name, l.Type.Base.String(), l.Units
		out.Share = l.Type.IsShare()
		if l.Type.Base == yang.Enumeration {
			out.Values = l.Type.Values
		}
	}
	if l := n.List; l != nil {
		out.Measurement = t.deps.Measurement(l.Path, len(l.Keys) > 0)
		for _, k := range l.KeyColumns() {
			out.Tags = append(out.Tags, t.deps.Tag(k.Name))
		}
	}
	for _, c := range n.Children() {
		out.Children = append(out.Children, t.node(c))
	}
	return out
}
