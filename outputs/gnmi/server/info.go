// SPDX-License-Identifier: Apache-2.0

// The schema of a list's leaves, looked up once for each list.

package server

import (
	"strings"

	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/yang"
	"github.com/netsketch/netsketch/yang/table"
)

// listInfo is the schema of one store.List.
type listInfo struct {
	schema *yang.Schema
	list   *store.List
	// modules of the path's elements, by store.List.Elems.
	modules []string
	leaves  []leafInfo
	// atomic is the number of path elements of the outermost container that is sent whole, if that
	// container is the list or above it; otherwise 0.
	atomic int
}

// leafInfo is the schema of one leaf.
type leafInfo struct {
	leaf    *yang.Leaf // nil if the leaf is not in the schema
	config  bool
	modules []string // modules of all elements from the root, each module once
	own     []string // module of each element of the leaf's own path
	// atomic is the number of elements of the leaf's path between the entry and a container that is
	// sent whole; 0 is the entry itself, -1 means no such container.
	atomic int
	// tail holds the encoded PathElems of the leaf's path below the entry.
	tail []byte
}

// info returns the schema of a list.
func (s *Server) info(l *store.List) *listInfo {
	schema := s.opts.Schema()
	if v, ok := s.infos.Load(l); ok && v.(*listInfo).schema == schema {
		return v.(*listInfo)
	}
	info := s.newInfo(schema, l)
	s.infos.Store(l, info)
	return info
}

func (s *Server) newInfo(schema *yang.Schema, l *store.List) *listInfo {
	info := &listInfo{schema: schema, list: l, leaves: make([]leafInfo, len(l.Leaves))}
	at := schema.Root()
	var on []string
	path := ""
	for i, e := range strings.Split(strings.TrimPrefix(l.Path, "/"), "/") {
		if at != nil {
			at = at.Child(e)
		}
		path += "/" + e
		info.modules = append(info.modules, moduleOf(at, e))
		on = addOnce(on, info.modules[i])
		if info.atomic == 0 && s.isAtomic(at, path) && i < len(l.Elems) {
			info.atomic = i + 1
		}
	}
	entryAtomic := info.atomic == len(l.Elems) && len(l.Keys) == 0
	if entryAtomic { // a container is its only row
		info.atomic = 0
	}
	for i := range l.Leaves {
		f := &info.leaves[i]
		f.modules, f.atomic = append([]string(nil), on...), -1
		if entryAtomic {
			f.atomic = 0
		}
		n, p := at, path
		for j, name := range l.Leaves[i].Path {
			if n != nil {
				n = n.Child(name)
			}
			p += "/" + name
			m := moduleOf(n, name)
			f.own = append(f.own, m)
			f.modules = addOnce(f.modules, m)
			if f.atomic < 0 && j < len(l.Leaves[i].Path)-1 && s.isAtomic(n, p) {
				f.atomic = j + 1
			}
			f.tail = appendElem(f.tail, name)
		}
		if n != nil && n.Leaf != nil {
			f.leaf, f.config = n.Leaf, n.Config
		} else {
			f.config = len(l.Leaves[i].Path) > 1 && l.Leaves[i].Path[0] == "config"
		}
	}
	return info
}

func (s *Server) isAtomic(n *yang.Node, path string) bool {
	if len(s.atomics) == 0 {
		return false
	}
	if n != nil {
		path = n.Path
	}
	return s.atomics[path]
}

func moduleOf(n *yang.Node, name string) string {
	if n != nil {
		return n.Module
	}
	if m, _, ok := strings.Cut(name, ":"); ok {
		return m
	}
	return ""
}

func addOnce(s []string, v string) []string {
	for _, x := range s {
		if x == v {
			return s
		}
	}
	return append(s, v)
}

// wide reports whether the leaf's numbers are strings by RFC 7951.
func (f *leafInfo) wide(k table.Kind) bool {
	if f.leaf == nil {
		return true // not in the schema: a string represents every number exactly
	}
	return f.leaf.Type.Wide() || f.leaf.Type.Base == yang.Union && k != table.Bool
}
