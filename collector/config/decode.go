// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// Limits that keep a hostile or broken file from costing more than it should.
const (
	maxFileBytes = 16 << 20
	maxDepth     = 64
	maxNodes     = 1 << 18
)

// defaulter is implemented by structs that do not start from their zero value.
type defaulter interface{ SetDefaults() }

// validator is implemented by section structs with rules that a type cannot express.
type validator interface{ Validate() error }

// shorthand is implemented by structs that may be written as the value of one of their keys, and
// that are replaced as a whole: what defaults said about other keys is forgotten.
type shorthand interface{ Shorthand() string }

// filer is implemented by section structs that name files: they are taken from the folder of the configuration's
// file where they are relative. Empty names stay empty.
type filer interface{ Files() []*string }

// decoder turns YAML nodes into Go values. It differs from yaml.v3's own decoding in that it
// knows where everything stood, goes on after a problem, refuses unknown and repeated keys, and
// expands ${VARIABLE} in text.
type decoder struct {
	file     string
	env      func(string) (string, bool)
	problems Problems
	// at is where each key path was found.
	at map[string]Position
	// nodes counts the nodes visited, aliases included each time they are used.
	nodes int
	// fresh prepares a new value of a type before its keys are read over it.
	fresh map[reflect.Type]func(reflect.Value)
}

func newDecoder(file string, env func(string) (string, bool)) *decoder {
	return &decoder{file: file, env: env, at: map[string]Position{}, fresh: map[reflect.Type]func(reflect.Value){}}
}

func (d *decoder) problem(n *yaml.Node, path, format string, args ...any) {
	p := Position{File: d.file}
	if n != nil {
		p.Line, p.Column = n.Line, n.Column
	}
	d.problems = append(d.problems, Problem{Position: p, Path: path, Message: fmt.Sprintf(format, args...)})
}

// position is where path was found, or the nearest thing around it.
func (d *decoder) position(path string) Position {
	for {
		if p, ok := d.at[path]; ok {
			return p
		}
		cut := strings.LastIndexAny(path, ".[")
		if cut < 0 {
			return Position{File: d.file}
		}
		path = path[:cut]
	}
}

// enter follows aliases and enforces the limits; nil means do not go on.
func (d *decoder) enter(n *yaml.Node, path string, depth int) *yaml.Node {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
		depth++
		if depth > maxDepth {
			break
		}
	}
	if n == nil {
		return nil
	}
	d.nodes++
	switch {
	case depth > maxDepth:
		d.problem(n, path, "nested more than %d deep", maxDepth)
		return nil
	case d.nodes == maxNodes:
		d.problem(n, path, "more than %d values, counting aliases", maxNodes)
		return nil
	case d.nodes > maxNodes:
		return nil
	}
	if _, seen := d.at[path]; !seen {
		d.at[path] = Position{d.file, n.Line, n.Column}
	}
	return n
}

var (
	typeDuration = reflect.TypeFor[time.Duration]()
	typeSection  = reflect.TypeFor[Section]()
)

// value reads n into v, which must be settable.
func (d *decoder) value(n *yaml.Node, v reflect.Value, path string, depth int) {
	if n = d.enter(n, path, depth); n == nil {
		return
	}
	if v.Type() == typeSection {
		v.Set(reflect.ValueOf(Section{node: n, file: d.file, path: path, env: d.env}))
		return
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return // an empty value keeps the default
	}
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
			d.prepare(v.Elem())
		}
		d.value(n, v.Elem(), path, depth+1)
		return
	}
	if d.unmarshaler(n, v, path) {
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.structure(n, v, path, depth)
	case reflect.Map:
		d.mapping(n, v, path, depth)
	case reflect.Slice:
		d.sequence(n, v, path, depth)
	case reflect.Interface:
		if x := d.free(n, path, depth); x != nil {
			v.Set(reflect.ValueOf(x))
		}
	default:
		d.scalar(n, v, path)
	}
}

// prepare gives a new value its defaults.
func (d *decoder) prepare(v reflect.Value) {
	if f := d.fresh[v.Type()]; f != nil {
		f(v)
		return
	}
	if x, ok := v.Addr().Interface().(defaulter); ok {
		x.SetDefaults()
	}
}

// unmarshaler lets a type read itself; false when it does not.
func (d *decoder) unmarshaler(n *yaml.Node, v reflect.Value, path string) bool {
	if !v.CanAddr() {
		return false
	}
	switch x := v.Addr().Interface().(type) {
	case yaml.Unmarshaler:
		if err := x.UnmarshalYAML(n); err != nil {
			d.problem(n, path, "%s", err)
		}
		return true
	case encoding.TextUnmarshaler:
		if n.Kind != yaml.ScalarNode {
			return false
		}
		text, ok := d.text(n, path)
		if !ok {
			return true
		}
		if err := x.UnmarshalText([]byte(text)); err != nil {
			if _, isLevel := x.(*slog.Level); isLevel {
				err = fmt.Errorf("expected debug, info, warn or error; found %q", text)
			}
			d.problem(n, path, "%s", err)
		}
		return true
	}
	return false
}

// structField is one key a struct accepts.
type structField struct {
	name  string
	index []int
}

// fieldsOf lists the keys of a struct type, inlined structs included.
func fieldsOf(t reflect.Type, prefix []int) []structField {
	var fields []structField
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() {
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		index := append(append([]int(nil), prefix...), i)
		switch {
		case name == "-":
		case strings.Contains(options, "inline") || (f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct):
			fields = append(fields, fieldsOf(f.Type, index)...)
		case name == "":
			fields = append(fields, structField{strings.ToLower(f.Name), index})
		default:
			fields = append(fields, structField{name, index})
		}
	}
	return fields
}

func (d *decoder) structure(n *yaml.Node, v reflect.Value, path string, depth int) {
	fields := fieldsOf(v.Type(), nil)
	names := make([]string, len(fields))
	byName := make(map[string]structField, len(fields))
	for i, f := range fields {
		names[i] = f.name
		byName[f.name] = f
	}
	if x, ok := v.Interface().(shorthand); ok {
		v.SetZero()
		if n.Kind == yaml.ScalarNode {
			d.value(n, v.FieldByIndex(byName[x.Shorthand()].index), path, depth+1)
			return
		}
	}
	if n.Kind != yaml.MappingNode {
		d.problem(n, path, "expected a mapping with keys such as %s; found %s", strings.Join(names[:min(3, len(names))], ", "), describe(n))
		return
	}
	for _, kv := range d.pairs(n, path, depth) {
		f, ok := byName[kv.name]
		if !ok {
			d.problem(kv.key, path, "unknown key %q: %s", kv.name, suggestion(kv.name, names))
			continue
		}
		d.value(kv.value, v.FieldByIndex(f.index), join(path, kv.name), depth+1)
	}
}

// pair is one key of a mapping with its value.
type pair struct {
	name       string
	key, value *yaml.Node
}

// pairs lists a mapping's entries with merge keys (<<) resolved and repeated keys reported.
func (d *decoder) pairs(n *yaml.Node, path string, depth int) []pair {
	var out, merged []pair
	seen := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode {
			d.problem(key, path, "a key must be text, found %s", describe(key))
			continue
		}
		if key.Tag == "!!merge" {
			merged = append(merged, d.mergeKey(value, path, depth+1)...)
			continue
		}
		if first := seen[key.Value]; first != nil {
			d.problem(key, join(path, key.Value), "key given twice, first on line %d", first.Line)
			continue
		}
		seen[key.Value] = key
		out = append(out, pair{key.Value, key, value})
	}
	for _, p := range merged {
		if seen[p.name] == nil {
			seen[p.name] = p.key
			out = append(out, p)
		}
	}
	return out
}

func (d *decoder) mergeKey(n *yaml.Node, path string, depth int) []pair {
	if n = d.enter(n, join(path, "<<"), depth); n == nil {
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		return d.pairs(n, path, depth)
	case yaml.SequenceNode:
		var out []pair
		for _, item := range n.Content {
			out = append(out, d.mergeKey(item, path, depth+1)...)
		}
		return out
	}
	d.problem(n, path, "a merge key (<<) needs a mapping, found %s", describe(n))
	return nil
}

func (d *decoder) mapping(n *yaml.Node, v reflect.Value, path string, depth int) {
	if n.Kind != yaml.MappingNode {
		d.problem(n, path, "expected a mapping; found %s", describe(n))
		return
	}
	if v.Type().Key().Kind() != reflect.String {
		d.problem(n, path, "this mapping cannot be read: its Go type has keys that are not text")
		return
	}
	if v.IsNil() {
		v.Set(reflect.MakeMap(v.Type()))
	}
	for _, kv := range d.pairs(n, path, depth) {
		item := reflect.New(v.Type().Elem()).Elem()
		d.prepare(item)
		d.value(kv.value, item, join(path, kv.name), depth+1)
		v.SetMapIndex(reflect.ValueOf(kv.name).Convert(v.Type().Key()), item)
	}
}

func (d *decoder) sequence(n *yaml.Node, v reflect.Value, path string, depth int) {
	elem := v.Type().Elem()
	items := n.Content
	if n.Kind != yaml.SequenceNode {
		text := reflect.PointerTo(elem).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
		if n.Kind != yaml.ScalarNode || elem.Kind() == reflect.Struct && !text {
			d.problem(n, path, "expected a list; found %s", describe(n))
			return
		}
		items = []*yaml.Node{n} // one value stands for a list of one
	}
	list := reflect.MakeSlice(v.Type(), len(items), len(items))
	for i, item := range items {
		d.prepare(list.Index(i))
		d.value(item, list.Index(i), fmt.Sprintf("%s[%d]", path, i), depth+1)
		if d.nodes > maxNodes {
			return
		}
	}
	v.Set(list)
}

// scalar reads text, numbers, booleans and durations.
func (d *decoder) scalar(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.ScalarNode {
		d.problem(n, path, "expected %s; found %s", expected(v), describe(n))
		return
	}
	text, ok := d.text(n, path)
	if !ok {
		return
	}
	if err := setScalar(v, text); err != nil {
		d.problem(n, path, "expected %s; found %q%s", expected(v), text, reason(err))
	}
}

func setScalar(v reflect.Value, text string) error {
	if v.Type() == typeDuration {
		x, err := time.ParseDuration(text)
		if err != nil {
			return errPlain
		}
		v.SetInt(int64(x))
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		switch strings.ToLower(text) {
		case "true":
			v.SetBool(true)
		case "false":
			v.SetBool(false)
		default:
			return errPlain
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		x, err := strconv.ParseInt(text, 0, v.Type().Bits())
		if err != nil {
			return err
		}
		v.SetInt(x)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		x, err := strconv.ParseUint(text, 0, v.Type().Bits())
		if err != nil {
			return err
		}
		v.SetUint(x)
	case reflect.Float32, reflect.Float64:
		x, err := strconv.ParseFloat(text, v.Type().Bits())
		if err != nil || x != x {
			return errPlain
		}
		v.SetFloat(x)
	default:
		return fmt.Errorf("a %s cannot be configured", v.Type())
	}
	return nil
}

// errPlain adds nothing to "expected ...; found ...".
var errPlain = errors.New("")

func reason(err error) string {
	switch {
	case err == nil || errors.Is(err, errPlain), errors.Is(err, strconv.ErrSyntax):
		return ""
	case errors.Is(err, strconv.ErrRange):
		return ", which is out of range"
	}
	return ": " + err.Error()
}

// expected describes what a value of v's type looks like.
func expected(v reflect.Value) string {
	if v.Type() == typeDuration {
		return "a duration with its unit, such as 100ms or 1s"
	}
	switch v.Kind() {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number from 0"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "another kind of value"
}

// describe names what stands in the file.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		if n.Tag == "!!null" {
			return "nothing"
		}
		text := n.Value
		if len(text) > 40 {
			text = text[:37] + "..."
		}
		return strconv.Quote(text)
	}
	return "something else"
}

// free reads YAML that has no type here, as what encoding/json would make of it.
func (d *decoder) free(n *yaml.Node, path string, depth int) any {
	if n = d.enter(n, path, depth); n == nil {
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		m := map[string]any{}
		for _, kv := range d.pairs(n, path, depth) {
			m[kv.name] = d.free(kv.value, join(path, kv.name), depth+1)
		}
		return m
	case yaml.SequenceNode:
		list := make([]any, 0, len(n.Content))
		for i, item := range n.Content {
			list = append(list, d.free(item, fmt.Sprintf("%s[%d]", path, i), depth+1))
			if d.nodes > maxNodes {
				return list
			}
		}
		return list
	case yaml.ScalarNode:
		return d.freeScalar(n, path)
	}
	d.problem(n, path, "not a value")
	return nil
}

func (d *decoder) freeScalar(n *yaml.Node, path string) any {
	switch n.Tag {
	case "!!null":
		return nil
	case "!!bool":
		return strings.EqualFold(n.Value, "true")
	case "!!int":
		if x, err := strconv.ParseInt(n.Value, 0, 64); err == nil {
			return x
		}
		if x, err := strconv.ParseUint(n.Value, 0, 64); err == nil {
			return x
		}
		d.problem(n, path, "%q does not fit 64 bits", n.Value)
		return nil
	case "!!float":
		x, err := strconv.ParseFloat(n.Value, 64)
		if err != nil || x != x || x > 1e308 || x < -1e308 {
			d.problem(n, path, "%q is not a finite number", n.Value)
			return nil
		}
		return x
	}
	text, _ := d.text(n, path)
	return text
}

// text is a scalar's text with environment variables expanded.
func (d *decoder) text(n *yaml.Node, path string) (string, bool) {
	text, err := expand(n.Value, d.env)
	if err != nil {
		d.problem(n, path, "%s", err)
		return "", false
	}
	return text, true
}

// expand replaces ${NAME} and ${NAME:-default}; $$ is a dollar sign, and a $ before anything else
// stands for itself.
func expand(s string, env func(string) (string, bool)) (string, error) {
	if !strings.Contains(s, "$") {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '$' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		switch s[i+1] {
		case '$':
			b.WriteByte('$')
			i++
		case '{':
			end := strings.IndexByte(s[i:], '}')
			if end < 0 {
				return "", errors.New("${ without a closing }: write $$ for a dollar sign")
			}
			name, fallback, hasFallback := strings.Cut(s[i+2:i+end], ":-")
			value, ok := env(name)
			switch {
			case name == "":
				return "", errors.New("${} names no environment variable")
			case ok:
				b.WriteString(value)
			case hasFallback:
				b.WriteString(fallback)
			default:
				return "", fmt.Errorf("environment variable %s is not set: set it, or give a default as ${%s:-value}", name, name)
			}
			i += end
		default:
			b.WriteByte('$')
		}
	}
	return b.String(), nil
}

// join appends a key to a path.
func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
