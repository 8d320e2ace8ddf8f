// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// Section is a part of the file whose keys this package does not declare: the settings of an
// output or a plugin. It keeps the positions of its values, so that Decode's errors name file,
// line and column. The zero Section is an empty mapping.
type Section struct {
	node   *node
	source *source
	path   string
}

// validator is implemented by section types with rules that tags cannot express.
type validator interface{ Validate() error }

// SectionOf makes a Section from YAML text, for tests and for configurations made in code. name
// stands for the file in errors. ${NAME} is never replaced: no environment variable counts as set.
func SectionOf(name, text string) (Section, error) {
	r := newReport(name, []byte(text))
	root := r.parse([]byte(text), func(string) (string, bool) { return "", false })
	return Section{node: root, source: r.source}, r.err()
}

// Default returns a T whose fields have the values of their default tags.
func Default[T any]() T {
	var v T
	newDecoder(newReport("", nil)).setDefaults(reflect.ValueOf(&v).Elem())
	return v
}

// IsZero reports whether the file had no such section.
func (s Section) IsZero() bool { return s.node == nil }

// Decode sets *into, a struct, to the defaults of its tags and reads the section over them. Field
// tags declare the keys, as decode.go describes. If *into has a method Validate() error, Decode
// calls it when all keys could be read, and reports each KeyError that the result joins at its
// key. The error is Problems.
func (s Section) Decode(into any) error {
	v := reflect.ValueOf(into)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return fmt.Errorf("config: Decode needs a pointer to a struct, not %T", into)
	}
	if s.source == nil {
		s.source = &source{}
	}
	if s.node == nil {
		s.node = &node{kind: mapping}
	}
	d := newDecoder(&report{source: s.source})
	d.setDefaults(v.Elem())
	d.value(s.node, v.Elem(), "", s.path)
	if x, ok := into.(validator); ok && len(d.problems) == 0 {
		for _, err := range flatten(x.Validate()) {
			path := s.path
			if k, ok := errors.AsType[*KeyError](err); ok && k.key != "" {
				path = join(path, k.key)
			}
			d.add(d.position(path), path, "%s", err)
		}
	}
	return d.err()
}

// flatten returns the errors that errors.Join has joined.
func flatten(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error }) // a wrapped error remains one problem
	if !ok {
		return []error{err}
	}
	var out []error
	for _, e := range joined.Unwrap() {
		out = append(out, flatten(e)...)
	}
	return out
}

// Value returns the section as maps, slices, strings, numbers and booleans; an empty map if the
// file has no such section.
func (s Section) Value() any {
	if s.node == nil || s.node.isNull() {
		return map[string]any{}
	}
	return s.node.plain()
}

// JSON returns the section as JSON with sorted keys, so that equal sections have equal JSON.
func (s Section) JSON() ([]byte, error) { return json.Marshal(s.Value()) }

// Equal reports whether two sections hold the same values.
func (s Section) Equal(other Section) bool { return reflect.DeepEqual(s.Value(), other.Value()) }

// Problem places a message at a value inside the section. field is the value's path: keys and list
// indexes joined by dots ("dimensions.0.key"). If the file does not have the value, the position
// is the nearest enclosing value's.
func (s Section) Problem(field, message string) Problem {
	if s.node == nil {
		return Problem{Path: join(s.path, field), Message: message}
	}
	n, path := s.node, s.path
	for field != "" {
		step, rest, _ := strings.Cut(field, ".")
		next := n.get(step)
		nextPath := join(path, step)
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(n.items) {
			next, nextPath = n.items[i], fmt.Sprintf("%s[%d]", path, i)
		}
		if next == nil {
			path = join(path, field)
			break
		}
		n, path, field = next, nextPath, rest
	}
	return s.source.problem(n.Position, path, message)
}
