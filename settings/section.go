// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Section is a part of the file whose keys this package does not declare: the settings of an
// output or a plugin. It keeps the positions of its values, so that Decode's errors name file,
// line and column. The zero Section is an empty mapping.
type Section struct {
	node   *Node
	source *Source
	path   string
}

// validator is implemented by section types with rules that tags cannot express.
type validator interface{ Validate() error }

// NewSection returns a whole text as a section; root is nil for an empty text.
func NewSection(r *Report, root *Node) Section { return Section{node: root, source: r.Source} }

// DecodeJSON sets *into, a struct, to the defaults of its tags, reads a JSON object over them and
// validates it, as Section.Decode does. Errors in values are KeyErrors.
func DecodeJSON(text []byte, into any) error {
	root, err := FromJSON(text)
	if err != nil {
		return KeyErrors{{Message: "the configuration " + err.Error()}}
	}
	problems, ok := errors.AsType[Problems](Section{node: root}.Decode(into))
	if !ok {
		return nil
	}
	var errs KeyErrors
	for _, p := range problems {
		errs.Add(p.Path, "%s", p.Message)
	}
	return errs
}

// Default returns a T whose fields have the values of their default tags.
func Default[T any]() T {
	var v T
	NewDecoder(NewReport("", nil)).SetDefaults(&v)
	return v
}

// IsZero reports whether the file had no such section.
func (s Section) IsZero() bool { return s.node == nil }

// Decode sets *into, a struct, to the defaults in its field tags, and then to the values of the
// section. decode.go describes the tags. When all keys could be read, Decode calls the method
// Validate() error of *into, if there is one, and reports each KeyError in its result with the
// position of the key. The error is Problems.
func (s Section) Decode(into any) error {
	v := reflect.ValueOf(into)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return fmt.Errorf("settings: Decode needs a pointer to a struct, not %T", into)
	}
	if s.source == nil {
		s.source = &Source{}
	}
	if s.node == nil {
		s.node = &Node{Kind: Mapping}
	}
	d := NewDecoder(&Report{Source: s.source})
	d.setDefaults(v.Elem())
	d.value(s.node, v.Elem(), "", s.path)
	if x, ok := into.(validator); ok && len(d.Problems) == 0 {
		err := x.Validate()
		keys, ok := errors.AsType[KeyErrors](err)
		if !ok && err != nil {
			keys = KeyErrors{{Message: err.Error()}}
		}
		for _, k := range keys {
			path := s.path
			if k.Key != "" {
				path = Join(path, k.Key)
			}
			d.Add(d.Position(path), path, "%s", k.Message)
		}
	}
	return d.Err()
}

// Value returns the section as maps, slices, strings, numbers and booleans; an empty map if the
// file has no such section.
func (s Section) Value() any {
	if s.node == nil || s.node.IsNull() {
		return map[string]any{}
	}
	return s.node.Plain()
}

// JSON returns the section as JSON with sorted keys, so that equal sections have equal JSON.
func (s Section) JSON() ([]byte, error) { return json.Marshal(s.Value()) }

// Equal reports whether two sections hold the same values.
func (s Section) Equal(other Section) bool { return reflect.DeepEqual(s.Value(), other.Value()) }

// Problem places a message at a value inside the section. field is the value's path, such as
// "dimensions[0].key". If the file does not have the value, the position is the nearest enclosing
// value's. A value that an environment variable gave is not shown: the message names the variable.
func (s Section) Problem(field, message string) Problem {
	path := s.path
	if field != "" {
		path = Join(s.path, field)
	}
	if s.node == nil {
		return Problem{Path: path, Message: message}
	}
	n := s.node.find(field)
	if n.Written != "" && n.Written != n.Text {
		_, want, ok := strings.Cut(message, "expected ")
		want, _, _ = strings.Cut(want, "; found ")
		message = fmt.Sprintf("the value of %s is not valid here", n.Written)
		if ok && !strings.Contains(want, n.Text) {
			message += "; expected " + want
		}
	}
	return s.source.problem(n.Position, path, message)
}

// With returns the section with another value at a path such as "traffic[0].flows". The path leads
// through values that exist; its last key is added if it does not exist.
func (s Section) With(path string, value *Node) (Section, error) {
	n, err := s.node.with(path, value)
	return Section{node: n, source: s.source}, err
}

// with returns a copy of n with another value at the path. The value has the position of what it
// replaces.
func (n *Node) with(path string, value *Node) (*Node, error) {
	changed := *n
	if path == "" {
		changed = *value
		changed.Position = n.Position
		return &changed, nil
	}
	if text, ok := strings.CutPrefix(path, "["); ok {
		index, rest, _ := strings.Cut(text, "]")
		i, err := strconv.Atoi(index)
		if err != nil || i < 0 || i >= len(n.Items) {
			return nil, fmt.Errorf("[%s]: expected the index of one of %d elements", index, len(n.Items))
		}
		changed.Items = slices.Clone(n.Items)
		changed.Items[i], err = n.Items[i].with(strings.TrimPrefix(rest, "."), value)
		return &changed, err
	}
	end := strings.IndexAny(path, ".[")
	if end < 0 {
		end = len(path)
	}
	name, rest := path[:end], strings.TrimPrefix(path[end:], ".")
	i := slices.IndexFunc(n.Keys, func(k Key) bool { return k.Name == name })
	switch {
	case n.Kind != Mapping:
		return nil, fmt.Errorf("%s: this value has no keys", name)
	case i < 0 && rest != "":
		return nil, fmt.Errorf("%s: there is no such key", name)
	}
	changed.Keys = slices.Clone(n.Keys)
	if i < 0 {
		i = len(changed.Keys)
		changed.Keys = append(changed.Keys, Key{name, n.Position, &Node{Position: n.Position}})
	}
	var err error
	changed.Keys[i].Value, err = changed.Keys[i].Value.with(rest, value)
	return &changed, err
}

// find returns the value at a path such as "dimensions[0].key", or the nearest enclosing one.
func (n *Node) find(path string) *Node {
	var next *Node
	name := "" // a key may contain dots: the longest name that fits is the key
	for _, k := range n.Keys {
		rest, ok := strings.CutPrefix(path, k.Name)
		if ok && (rest == "" || rest[0] == '.' || rest[0] == '[') && len(k.Name) >= len(name) {
			name, next = k.Name, k.Value
		}
	}
	if next != nil {
		return next.find(strings.TrimPrefix(path[len(name):], "."))
	}
	if index, rest, ok := strings.Cut(strings.TrimPrefix(path, "["), "]"); ok {
		if i, err := strconv.Atoi(index); err == nil && i >= 0 && i < len(n.Items) {
			return n.Items[i].find(strings.TrimPrefix(rest, "."))
		}
	}
	return n
}
