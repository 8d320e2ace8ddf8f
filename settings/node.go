// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
)

// Node is a value of a configuration and its position. Nodes are immutable once parsed, and may be
// reachable by several paths.
type Node struct {
	Position
	Kind Kind
	// Text is the text of a scalar.
	Text string
	// Written is the text of a string before environment variables are replaced, for messages.
	Written string
	// Value is the value of a scalar: nil (also if it cannot be read), bool, int64, uint64, float64
	// or string.
	Value any
	// Keys are the entries of a mapping, in the order of the file.
	Keys []Key
	// Items are the elements of a list.
	Items []*Node
	// Size counts the values in this tree, shared ones at each use.
	Size int
}

// Kind is the kind of a node.
type Kind uint8

// The kinds of nodes.
const (
	Scalar Kind = iota
	Mapping
	List
)

// Key is one entry of a mapping.
type Key struct {
	Name  string
	At    Position
	Value *Node
}

// MaxDepth bounds how deep values are nested.
const MaxDepth = 64

// FromJSON reads a JSON object; empty text is an empty object. The nodes have no positions.
func FromJSON(text []byte) (*Node, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return &Node{Kind: Mapping}, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("is not JSON: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("has text after its JSON object")
	}
	if _, ok := value.(map[string]any); !ok {
		return nil, errors.New("is not a JSON object")
	}
	return fromJSON(value, 0)
}

func fromJSON(value any, depth int) (*Node, error) {
	if depth > MaxDepth {
		return nil, fmt.Errorf("is nested more than %d deep", MaxDepth)
	}
	n := &Node{Value: value}
	switch value := value.(type) {
	case map[string]any:
		n.Kind = Mapping
		for _, name := range slices.Sorted(maps.Keys(value)) {
			item, err := fromJSON(value[name], depth+1)
			if err != nil {
				return nil, err
			}
			n.Keys = append(n.Keys, Key{Name: name, Value: item})
		}
	case []any:
		n.Kind = List
		for _, v := range value {
			item, err := fromJSON(v, depth+1)
			if err != nil {
				return nil, err
			}
			n.Items = append(n.Items, item)
		}
	case nil:
	default:
		n.Text = fmt.Sprint(value)
	}
	return n, nil
}

// Get returns the value of a key, nil if the mapping does not have it.
func (n *Node) Get(name string) *Node {
	for _, k := range n.Keys {
		if k.Name == name {
			return k.Value
		}
	}
	return nil
}

// IsNull reports whether the value is null.
func (n *Node) IsNull() bool { return n.Kind == Scalar && n.Value == nil }

// IsEmpty reports whether a key is missing or has no value.
func (n *Node) IsEmpty() bool { return n == nil || n.Kind == Scalar && n.Text == "" || n.IsNull() }

// Describe names the kind of a value for a message. It leaves the value's text out, which may be a
// secret written at the wrong key.
func (n *Node) Describe() string {
	switch {
	case n.Kind == Mapping:
		return "a mapping"
	case n.Kind == List:
		return "a list"
	case n.IsNull():
		return "nothing"
	}
	return "a single value"
}

// Plain returns the value as encoding/json would decode it.
func (n *Node) Plain() any {
	switch n.Kind {
	case Mapping:
		m := make(map[string]any, len(n.Keys))
		for _, k := range n.Keys {
			m[k.Name] = k.Value.Plain()
		}
		return m
	case List:
		items := make([]any, len(n.Items))
		for i, item := range n.Items {
			items[i] = item.Plain()
		}
		return items
	}
	if x, ok := n.Value.(float64); ok && (math.IsNaN(x) || math.IsInf(x, 0)) {
		return n.Text // JSON has no infinity and no NaN
	}
	return n.Value
}
