// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"math"
	"net"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/netsketch/netsketch/internal/suggest"
)

// A struct field declares its key by tags:
//
//	yaml:"name"         the key; ",inline" on a Section takes the keys that no other field declares
//	default:"1s"        the value if the key is not given, as it would be written in the file
//	range:"10ms..24h"   the smallest and the largest value; one side may be empty
//	oneof:"text json"   the values allowed
//	form:"name"         what a text must look like: name; address, host:port; listen, an address
//	                    whose host may be empty; file, which is taken from the directory of the
//	                    configuration file if it is relative
//	required:"a path"   the key must be given; the tag says what is expected
//	template:"Field"    elements of this list start from the values of that field of the same struct
//	partial:"true"      keys inside may be missing even if they are required
//	live:"true"         a running collector follows a change of this key
//
// The field's comment documents the key. docs/configuration.md is generated from both.

// decoder writes nodes to Go values by the tags of the values' fields. It continues after a
// problem, so that one run reports all problems.
type decoder struct {
	*report
	at        map[string]Position      // position of each key that the file gives
	templates map[string]reflect.Value // start values of the elements of each list with a template tag
}

func newDecoder(r *report) *decoder {
	return &decoder{report: r, at: map[string]Position{}, templates: map[string]reflect.Value{}}
}

// position returns where path was given, or the position of the nearest value around it.
func (d *decoder) position(path string) Position {
	for {
		if p, ok := d.at[path]; ok {
			return p
		}
		cut := strings.LastIndexAny(path, ".[")
		if cut < 0 {
			return Position{}
		}
		path = path[:cut]
	}
}

var (
	typeDuration = reflect.TypeFor[time.Duration]()
	typeSection  = reflect.TypeFor[Section]()
)

// value reads n into v, which must be settable. tag holds the tags of v's struct field.
func (d *decoder) value(n *node, v reflect.Value, tag reflect.StructTag, path string) {
	d.at[path] = n.Position
	switch {
	case v.Type() == typeSection:
		v.Set(reflect.ValueOf(Section{node: n, source: d.source, path: path}))
	case n.isNull(): // an empty value keeps the default
	case v.Kind() == reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
			d.setDefaults(v.Elem())
		}
		d.value(n, v.Elem(), tag, path)
	case n.kind == scalar && isText(v):
		d.scalar(n, v, tag, path)
	case v.Kind() == reflect.Struct && len(fieldsOf(v.Type())) > 0:
		d.structure(n, v, tag, path)
	case v.Kind() == reflect.Map:
		d.mapping(n, v, tag, path)
	case v.Kind() == reflect.Slice:
		d.list(n, v, tag, path)
	default:
		d.scalar(n, v, tag, path)
	}
}

// isText reports whether a type reads its own text.
func isText(v reflect.Value) bool {
	_, ok := v.Addr().Interface().(encoding.TextUnmarshaler)
	return ok
}

// field is a key that a struct declares.
type field struct {
	reflect.StructField
	key    string
	inline bool
}

func fieldsOf(t reflect.Type) []field {
	var fields []field
	for f := range t.Fields() {
		key, option, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if key != "" || option != "" {
			fields = append(fields, field{f, key, option == "inline"})
		}
	}
	return fields
}

func (d *decoder) structure(n *node, v reflect.Value, tag reflect.StructTag, path string) {
	fields := fieldsOf(v.Type())
	if n.kind != mapping {
		d.add(n.Position, path, "expected a mapping with keys such as %s; found %s",
			strings.Join(names(fields[:min(3, len(fields))]), ", "), n.describe())
		return
	}
	if isText(v) {
		v.SetZero() // a given mapping replaces the default as a whole: its default keys do not remain
	}
	rest := *n
	rest.keys = slices.Clone(n.keys)
	for _, f := range fields {
		at, into := join(path, f.key), v.FieldByIndex(f.Index)
		if f.inline {
			d.value(&rest, into, f.Tag, path)
			return
		}
		rest.keys = slices.DeleteFunc(rest.keys, func(k key) bool { return k.name == f.key })
		if from := f.Tag.Get("template"); from != "" {
			d.templates[at] = v.FieldByName(from)
		}
		given := n.get(f.key)
		if given != nil {
			d.value(given, into, f.Tag, at)
		}
		if want := f.Tag.Get("required"); want != "" && tag.Get("partial") == "" && given.isEmpty() && !d.has(at) {
			d.add(d.position(at), at, "is missing; expected %s", want)
		}
	}
	for _, k := range rest.keys {
		d.add(k.at, path, "unknown key %q: %s", k.name, suggestion(k.name, names(fields)))
	}
}

func names(fields []field) []string {
	var out []string
	for _, f := range fields {
		if !f.inline {
			out = append(out, f.key)
		}
	}
	return out
}

func (d *decoder) mapping(n *node, v reflect.Value, tag reflect.StructTag, path string) {
	if n.kind != mapping {
		d.add(n.Position, path, "expected a mapping; found %s", n.describe())
		return
	}
	m := reflect.MakeMap(v.Type())
	for _, k := range n.keys {
		item := reflect.New(v.Type().Elem()).Elem()
		d.setDefaults(item)
		d.value(k.value, item, tag, join(path, k.name))
		m.SetMapIndex(reflect.ValueOf(k.name), item)
	}
	v.Set(m)
}

// list reads a list; a single plain value is read as a list with one element.
func (d *decoder) list(n *node, v reflect.Value, tag reflect.StructTag, path string) {
	items := n.items
	if n.kind != list {
		elem := reflect.New(v.Type().Elem()).Elem()
		if n.kind != scalar || elem.Kind() == reflect.Struct && !isText(elem) {
			d.add(n.Position, path, "expected a list; found %s", n.describe())
			return
		}
		items = []*node{n}
	}
	out := reflect.MakeSlice(v.Type(), len(items), len(items))
	for i, item := range items {
		if from, ok := d.templates[path]; ok {
			out.Index(i).Set(from)
		} else {
			d.setDefaults(out.Index(i))
		}
		d.value(item, out.Index(i), tag, fmt.Sprintf("%s[%d]", path, i))
	}
	v.Set(out)
}

// scalar reads text, a number, a boolean or a duration, and checks it against the tags.
func (d *decoder) scalar(n *node, v reflect.Value, tag reflect.StructTag, path string) {
	if n.kind != scalar {
		d.add(n.Position, path, "expected %s; found %s", expected(v), n.describe())
		return
	}
	err := d.assign(v, tag, n.text)
	if err == nil {
		return
	}
	// the variable may hold a secret: the message shows the variable's name instead
	if n.written != "" && n.written != n.text {
		err = d.assign(reflect.New(v.Type()).Elem(), tag, n.written)
		if err == nil {
			err = errors.New("the value of the environment variable is not valid here")
		}
	}
	d.add(n.Position, path, "%s", err)
}

// setDefaults gives a new value the defaults of its tags.
func (d *decoder) setDefaults(v reflect.Value) {
	if v.Kind() != reflect.Struct {
		return
	}
	for _, f := range fieldsOf(v.Type()) {
		into := v.FieldByIndex(f.Index)
		d.setDefaults(into)
		if text, ok := f.Tag.Lookup("default"); ok {
			if err := d.assign(into, f.Tag, text); err != nil {
				panic(fmt.Sprintf("config: default of %s.%s: %v", v.Type(), f.Name, err)) // a wrong tag in the code
			}
		}
	}
}

// assign parses text and sets v to the result.
func (d *decoder) assign(v reflect.Value, tag reflect.StructTag, text string) error {
	if allowed := strings.Fields(tag.Get("oneof")); len(allowed) > 0 {
		i := slices.IndexFunc(allowed, func(word string) bool { return strings.EqualFold(word, text) })
		if i < 0 {
			return notOneOf(allowed, text)
		}
		text = allowed[i]
	}
	if err := setScalar(v, text); err != nil {
		return err
	}
	if err := inRange(v, tag.Get("range")); err != nil {
		return err
	}
	switch tag.Get("form") {
	case "file":
		v.SetString(relativeTo(filepath.Dir(d.file), text))
	case "name":
		return checkName(text)
	case "address":
		return checkAddress(text)
	case "listen":
		if _, _, err := net.SplitHostPort(text); err != nil {
			return fmt.Errorf("%q is not an address; expected host:port, such as 127.0.0.1:9339, "+
				"or :9339 for every interface", text)
		}
	}
	return nil
}

func notOneOf(allowed []string, text string) error {
	if near := suggest.Nearest(text, allowed); near != "" {
		return fmt.Errorf("expected %s; found %q: did you mean %q?", oneOf(allowed), text, near)
	}
	return fmt.Errorf("expected %s; found %q", oneOf(allowed), text)
}

func setScalar(v reflect.Value, text string) error {
	if x, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return x.UnmarshalText([]byte(text))
	}
	var err error
	switch kind := v.Kind(); {
	case v.Type() == typeDuration:
		var x time.Duration
		x, err = time.ParseDuration(text)
		v.SetInt(int64(x))
	case kind == reflect.String:
		v.SetString(text)
	case kind == reflect.Bool:
		v.SetBool(strings.EqualFold(text, "true"))
		if !v.Bool() && !strings.EqualFold(text, "false") {
			err = strconv.ErrSyntax
		}
	case v.CanInt():
		var x int64
		if err = decimal(text); err == nil {
			x, err = strconv.ParseInt(text, 0, v.Type().Bits())
		}
		v.SetInt(x)
	case v.CanUint():
		var x uint64
		if err = decimal(text); err == nil {
			x, err = strconv.ParseUint(text, 0, v.Type().Bits())
		}
		v.SetUint(x)
	case v.CanFloat():
		var x float64
		x, err = strconv.ParseFloat(text, v.Type().Bits())
		if err == nil && (math.IsNaN(x) || math.IsInf(x, 0)) {
			err = strconv.ErrRange
		}
		v.SetFloat(x)
	default:
		err = strconv.ErrSyntax
	}
	switch {
	case errors.Is(err, errLeadingZero):
		return fmt.Errorf("expected %s; found %q: %w", expected(v), text, err)
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("expected %s; found %q, which is out of range", expected(v), text)
	case err != nil:
		return fmt.Errorf("expected %s; found %q", expected(v), text)
	}
	return nil
}

var errLeadingZero = errors.New("a number that begins with 0 would be octal for some programs and decimal for " +
	"others; leave the zeros out, or write an octal number as 0o10")

// decimal refuses a whole number with leading zeros, because readers disagree on its base.
func decimal(text string) error {
	digits := strings.TrimLeft(text, "+-")
	if len(digits) > 1 && digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9' {
		return errLeadingZero
	}
	return nil
}

// expected describes the text of a type for a message.
func expected(v reflect.Value) string {
	switch {
	case v.Type() == typeDuration:
		return "a duration with its unit, such as 100ms or 1s"
	case v.Kind() == reflect.Bool:
		return "true or false"
	case v.CanInt():
		return "a whole number"
	case v.CanUint():
		return "a whole number from 0"
	case v.CanFloat():
		return "a number"
	}
	return "text"
}

// inRange checks a value against a range tag, LOW..HIGH, both included.
func inRange(v reflect.Value, bounds string) error {
	low, high, ok := strings.Cut(bounds, "..")
	if !ok {
		return nil
	}
	for side, text := range map[int]string{-1: low, 1: high} {
		if text == "" {
			continue
		}
		bound := reflect.New(v.Type()).Elem()
		if err := setScalar(bound, text); err != nil {
			panic(fmt.Sprintf("config: range %q: %v", bounds, err)) // a wrong tag in the code
		}
		if compare(v, bound) != side {
			continue
		}
		switch {
		case high == "":
			return fmt.Errorf("%v is out of range; expected at least %s", v, low)
		case low == "":
			return fmt.Errorf("%v is out of range; expected at most %s", v, high)
		}
		return fmt.Errorf("%v is out of range; expected %s to %s", v, low, high)
	}
	return nil
}

func compare(a, b reflect.Value) int {
	switch {
	case a.CanInt():
		return cmp.Compare(a.Int(), b.Int())
	case a.CanUint():
		return cmp.Compare(a.Uint(), b.Uint())
	}
	return cmp.Compare(a.Float(), b.Float())
}

// nameForm allows plain characters only, because names appear in YANG keys, gNMI paths and
// metrics.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

func checkName(name string) error {
	if nameForm.MatchString(name) {
		return nil
	}
	return fmt.Errorf("%q is not a name; expected letters, digits, dots, dashes and underscores, "+
		"beginning with a letter or digit, at most 63", name)
}

func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q is not an address; expected host:port, such as 192.0.2.1:9559 or [2001:db8::1]:9559",
			address)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%q has no valid port; expected host:port with a port from 1 to 65535", address)
	}
	if host == "" {
		return fmt.Errorf("%q has no host; expected host:port", address)
	}
	return nil
}

// relativeTo resolves a file name relative to a directory. An empty or absolute name is returned
// as it is.
func relativeTo(directory, file string) string {
	if file == "" || filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(directory, file)
}
