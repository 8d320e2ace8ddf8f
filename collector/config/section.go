// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// Section is a part of the file that this package does not understand: an output's settings, or a
// plugin's. It keeps its positions, so whoever does understand it can Decode it with errors as
// good as the rest. The zero Section is an empty mapping.
type Section struct {
	node *yaml.Node
	file string
	path string
	env  func(string) (string, bool)
}

// IsZero reports whether the file had no such section.
func (s Section) IsZero() bool { return s.node == nil }

// Path is the key the section stands under, such as "outputs.gnmi".
func (s Section) Path() string { return s.path }

// Position is where the section begins.
func (s Section) Position() Position {
	if s.node == nil {
		return Position{File: s.file}
	}
	return Position{s.file, s.node.Line, s.node.Column}
}

// Decode reads the section over into, a pointer to a struct that already holds its defaults.
// Keys come from `yaml` tags. If *into has Files() []*string, names of files in it that are relative are
// taken from the folder of the configuration's file. If *into has Validate() error, it is called when everything could be
// read; each KeyError joined in the result is placed at its key. The error is
// Problems.
func (s Section) Decode(into any) error {
	v := reflect.ValueOf(into)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return fmt.Errorf("config: Decode wants a pointer to a struct, not %T", into)
	}
	d := newDecoder(s.file, s.env)
	if s.node != nil {
		d.value(s.node, v.Elem(), s.path, 0)
	}
	if x, ok := into.(filer); ok {
		for _, file := range x.Files() {
			*file = relativeTo(filepath.Dir(s.file), *file)
		}
	}
	if x, ok := into.(validator); ok && len(d.problems) == 0 {
		for _, err := range flatten(x.Validate()) {
			d.invalid(s.path, err)
		}
	}
	d.problems.sortByPosition()
	return d.problems.Err()
}

// invalid places an error of a Validate method.
func (d *decoder) invalid(path string, err error) {
	var k *KeyError
	if errors.As(err, &k) && k.key != "" {
		path = join(path, k.key)
	}
	d.problems = append(d.problems, Problem{Position: d.position(path), Path: path, Message: err.Error()})
}

// flatten takes errors.Join apart.
func flatten(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error }) // what is wrapped stays one problem
	if !ok {
		return []error{err}
	}
	var out []error
	for _, e := range joined.Unwrap() {
		out = append(out, flatten(e)...)
	}
	return out
}

// Value gives the section as maps, slices, strings, numbers and booleans.
func (s Section) Value() (any, error) {
	if s.node == nil {
		return map[string]any{}, nil
	}
	d := newDecoder(s.file, s.env)
	x := d.free(s.node, s.path, 0)
	if err := d.problems.Err(); err != nil {
		return nil, err
	}
	if x == nil {
		x = map[string]any{}
	}
	return x, nil
}

// JSON gives the section as JSON, object keys sorted, so that equal sections have equal JSON.
func (s Section) JSON() ([]byte, error) {
	x, err := s.Value()
	if err != nil {
		return nil, err
	}
	return json.Marshal(x)
}

// SectionOf makes a Section from YAML text, for tests and for configurations made in code.
func SectionOf(name, text string) (Section, error) {
	d := &decoder{file: name}
	s := Section{file: name, env: func(string) (string, bool) { return "", false }, node: d.document([]byte(text))}
	return s, d.problems.Err()
}

// Locate finds a value inside the section by its path, keys and list indexes joined by dots
// ("dimensions.0.key"), and returns the position and path of the nearest thing around it.
func (s Section) Locate(field string) (Position, string) {
	at, path, n := s.Position(), s.path, s.node
	for _, step := range strings.Split(field, ".") {
		next, nextPath := child(n, path, step)
		if next == nil {
			if step != "" {
				path = join(path, field)
			}
			break
		}
		n, path = next, nextPath
		at = Position{s.file, n.Line, n.Column}
		_, field, _ = strings.Cut(field, ".")
	}
	return at, path
}

// child finds one step of a path.
func child(n *yaml.Node, path, step string) (*yaml.Node, string) {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case n == nil:
		return nil, path
	case n.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == step {
				return n.Content[i+1], join(path, step)
			}
		}
	case n.Kind == yaml.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i], fmt.Sprintf("%s[%d]", path, i)
		}
	}
	return nil, path
}
