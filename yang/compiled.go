// SPDX-License-Identifier: Apache-2.0

// The schema of host agents, compiled before the program is built.

package yang

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/netsketch/netsketch/yang/table"
)

// hostSchema is the schema that Load returns for module netsketch-host, as a compiledSchema.
//
//go:embed host.json
var hostSchema []byte

// HostSchema returns the schema of the module that a host agent serves. It is compiled in advance,
// so that netsketch-agent does not contain goyang, which would add 3.4 MB to the binary.
var HostSchema = sync.OnceValues(func() (*Schema, error) { return decodeSchema(hostSchema) })

// compiledSchema is a schema in a file.
type compiledSchema struct {
	Models []Model
	Nodes  []compiledNode // at the top
}

type compiledNode struct {
	Name, Module string
	Description  string `json:",omitempty"`
	Kind         NodeKind
	Config       bool           `json:",omitempty"`
	Keys         []string       `json:",omitempty"`
	Leaf         *compiledLeaf  `json:",omitempty"`
	Nodes        []compiledNode `json:",omitempty"`
}

type compiledLeaf struct {
	Type           *compiledType
	Units, Default string `json:",omitempty"`
	Mandatory      bool   `json:",omitempty"`
	Target         string `json:",omitempty"`
}

// compiledType is a Type. Bounds are pairs of the lowest and the highest value, Patterns pairs of
// the pattern in YANG and in Go.
type compiledType struct {
	Name                  string
	Base                  Base
	Kind                  table.Kind
	FractionDigits        int             `json:",omitempty"`
	Values                []string        `json:",omitempty"`
	Members               []*compiledType `json:",omitempty"`
	Uints                 [][2]uint64     `json:",omitempty"`
	Ints                  [][2]int64      `json:",omitempty"`
	Floats                [][2]float64    `json:",omitempty"`
	Lengths               [][2]uint64     `json:",omitempty"`
	Patterns              [][2]string     `json:",omitempty"`
	RangeText, LengthText string          `json:",omitempty"`
}

// decodeSchema returns the schema in a file, which a test of this package writes.
func decodeSchema(data []byte) (*Schema, error) {
	var c compiledSchema
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("yang: compiled schema: %w", err)
	}
	s := &Schema{root: newRoot(), models: c.Models, lists: map[string]*List{}}
	if err := s.root.decode(c.Nodes); err != nil {
		return nil, fmt.Errorf("yang: compiled schema: %w", err)
	}
	s.collectLists()
	return s, nil
}

// decode adds nodes below n.
func (n *Node) decode(nodes []compiledNode) error {
	for _, c := range nodes {
		child := &Node{Name: c.Name, Module: c.Module, Kind: c.Kind, Config: c.Config, Description: c.Description,
			Parent: n, keys: c.Keys}
		child.Path = strings.TrimSuffix(n.Path, "/") + "/" + child.QualifiedName()
		n.children = append(n.children, child)
		n.byName[c.Name] = child
		if l := c.Leaf; l != nil {
			t, err := l.Type.decode()
			if err != nil {
				return err
			}
			child.Leaf = &Leaf{Node: child, Type: t, Units: l.Units, Default: l.Default, Mandatory: l.Mandatory,
				Target: l.Target, Many: c.Kind == LeafListNode}
			continue
		}
		child.byName = map[string]*Node{}
		if err := child.decode(c.Nodes); err != nil {
			return err
		}
	}
	return nil
}

func (c *compiledType) decode() (*Type, error) {
	t := &Type{Name: c.Name, Base: c.Base, Kind: c.Kind, uints: decodeBounds(c.Uints), ints: decodeBounds(c.Ints),
		floats: decodeBounds(c.Floats), lengths: decodeBounds(c.Lengths), rangeText: c.RangeText, lengthText: c.LengthText}
	switch t.Base {
	case Decimal64:
		t.setDigits(c.FractionDigits)
	case Enumeration, Bits:
		t.setValues(c.Values)
	case Identityref:
		t.setIdentities(c.Values)
	}
	for _, p := range c.Patterns {
		re, err := regexp.Compile(p[1])
		if err != nil {
			return nil, err
		}
		t.patterns = append(t.patterns, pattern{p[0], re})
	}
	for _, m := range c.Members {
		member, err := m.decode()
		if err != nil {
			return nil, err
		}
		t.Members = append(t.Members, member)
	}
	return t, nil
}

func decodeBounds[T uint64 | int64 | float64](all [][2]T) (out []bounds[T]) {
	for _, b := range all {
		out = append(out, bounds[T]{b[0], b[1]})
	}
	return out
}
