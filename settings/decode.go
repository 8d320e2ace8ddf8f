// SPDX-License-Identifier: Apache-2.0

// Package settings reads configuration into structs by the tags of their fields: the collector's
// YAML file, the settings of outputs, the file of a host agent, and the configuration of a plugin,
// which arrives as JSON. Package yaml reads YAML into the nodes that this package decodes.
package settings

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
	"unicode"
	"unicode/utf8"

	"github.com/netsketch/netsketch/internal/suggest"
)

// A struct field declares its key by tags:
//
//	yaml:"name"         the key; ",inline" on a Section takes the keys that no other field declares
//	default:"1s"        the value if the key is not given, as it would be written in the file;
//	                    elements of a list are separated by spaces
//	range:"10ms..24h"   the smallest and the largest value, or that of each element; one side may
//	                    be empty, and ">0..1" is above 0
//	oneof:"text json"   the values allowed
//	length:"1..253"     how many elements a list, or bytes a text may have
//	unique:"true"       no two elements of the list around it have the same value of this field; on
//	                    a list of texts or numbers, no two elements are equal
//	form:"name"         what a text must look like: name; address, host:port; listen, an address
//	                    whose host may be empty; file, which is taken from the directory of the
//	                    configuration file if it is relative
//	required:"a path"   the key must be given; the tag says what is expected
//	template:"Field"    elements of this list start from the values of that field of the same struct
//	partial:"true"      keys inside may be missing even if they are required
//	live:"true"         a running collector follows a change of this key
//
// The field's comment documents the key. Package reference generates tables of keys and JSON
// Schemas from both.

// Decoder writes nodes to Go values by the tags of the values' fields. It continues after a
// problem, so that one run reports all problems.
type Decoder struct {
	*Report
	at        map[string]Position      // position of each key that the file gives
	templates map[string]reflect.Value // start values of the elements of each list with a template tag
}

// NewDecoder returns a decoder that adds problems to r.
func NewDecoder(r *Report) *Decoder {
	return &Decoder{Report: r, at: map[string]Position{}, templates: map[string]reflect.Value{}}
}

// Decode reads n into *into, a struct that has its defaults.
func (d *Decoder) Decode(n *Node, into any) {
	d.value(n, reflect.ValueOf(into).Elem(), "", "")
}

// Given reports whether the text has a value at path.
func (d *Decoder) Given(path string) bool {
	_, ok := d.at[path]
	return ok
}

// Position returns where path was given, or the position of the nearest value around it.
func (d *Decoder) Position(path string) Position {
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
func (d *Decoder) value(n *Node, v reflect.Value, tag reflect.StructTag, path string) {
	d.at[path] = n.Position
	switch {
	case v.Type() == typeSection:
		v.Set(reflect.ValueOf(Section{node: n, source: d.Source, path: path}))
	case n.IsNull(): // an empty value keeps the default
	case v.Kind() == reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
			d.setDefaults(v.Elem())
		}
		d.value(n, v.Elem(), tag, path)
	case n.Kind == Scalar && isText(v):
		d.scalar(n, v, tag, path)
	case v.Kind() == reflect.Struct && len(Fields(v.Type())) > 0:
		d.structure(n, v, tag, path)
	case v.Kind() == reflect.Map:
		d.mapping(n, v, tag, path)
	case v.Kind() == reflect.Slice:
		d.list(n, v, tag, path)
	case v.Kind() == reflect.Struct && !isText(v):
		panic(fmt.Sprintf("settings: no field of %s has a yaml tag", v.Type())) // wrong code
	default:
		d.scalar(n, v, tag, path)
	}
}

// isText reports whether a type reads its own text.
func isText(v reflect.Value) bool {
	_, ok := v.Addr().Interface().(encoding.TextUnmarshaler)
	return ok
}

// Field is a key that a struct declares.
type Field struct {
	reflect.StructField
	Key    string
	Inline bool
}

// Fields returns the keys of a struct, in the order of its fields.
func Fields(t reflect.Type) []Field {
	var fields []Field
	for f := range t.Fields() {
		key, option, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if key != "" || option != "" {
			fields = append(fields, Field{f, key, option == "inline"})
		}
	}
	return fields
}

func (d *Decoder) structure(n *Node, v reflect.Value, tag reflect.StructTag, path string) {
	fields := Fields(v.Type())
	if n.Kind != Mapping {
		d.Add(n.Position, path, "expected a mapping with keys such as %s; found %s",
			strings.Join(names(fields[:min(3, len(fields))]), ", "), n.Describe())
		return
	}
	if isText(v) {
		v.SetZero() // a given mapping replaces the default as a whole: its default keys do not remain
	}
	rest := *n
	rest.Keys = slices.Clone(n.Keys)
	for _, f := range fields {
		at, into := Join(path, f.Key), v.FieldByIndex(f.Index)
		if f.Inline {
			d.value(&rest, into, f.Tag, path)
			return
		}
		rest.Keys = slices.DeleteFunc(rest.Keys, func(k Key) bool { return k.Name == f.Key })
		if from := f.Tag.Get("template"); from != "" {
			d.templates[at] = v.FieldByName(from)
		}
		given := n.Get(f.Key)
		if given != nil {
			d.value(given, into, f.Tag, at)
		}
		if want := f.Tag.Get("required"); want != "" && tag.Get("partial") == "" && given.IsEmpty() && !d.Has(at) {
			d.Add(d.Position(at), at, "is missing; expected %s", want)
		}
	}
	secrets := secretParts(n.Keys)
	for _, k := range rest.Keys {
		if of := secrets[k.Name]; of != "" {
			d.Add(k.At, Join(path, of), "what follows is no key, and is not shown, because it may be a part of the secret; "+
				"a text with a comma, a colon or an equals sign needs quotes")
			continue
		}
		d.Add(k.At, path, "unknown key %q: %s", k.Name, Suggestion(k.Name, names(fields)))
	}
}

// secretParts returns the keys of a mapping that may be parts of a secret which YAML reads as a
// key, each with the key of the secret: the text after a comma in {token: a,b}, a secret with a
// colon on a line of its own, and token=secret.
func secretParts(keys []Key) map[string]string {
	parts := map[string]string{}
	for i, k := range keys {
		if end := strings.IndexFunc(k.Name, notOfName); end > 0 && SecretKey(k.Name[:end]) {
			parts[k.Name] = k.Name[:end]
		}
		if i == 0 {
			continue
		}
		before := keys[i-1]
		of := parts[before.Name]
		if of == "" && SecretKey(before.Name) {
			of = before.Name
		}
		// No space follows a comma within a secret.
		adjoins := before.Value != nil && k.At.Line == before.Value.Line &&
			k.At.Column == before.Value.Column+utf8.RuneCountInString(before.Value.Text)+1
		if of != "" && (k.Value.IsEmpty() || before.Value.IsEmpty() || adjoins) {
			parts[k.Name] = of
		}
	}
	return parts
}

// notOfName reports whether no key contains a character.
func notOfName(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_.", r)
}

func names(fields []Field) []string {
	var out []string
	for _, f := range fields {
		if !f.Inline {
			out = append(out, f.Key)
		}
	}
	return out
}

func (d *Decoder) mapping(n *Node, v reflect.Value, tag reflect.StructTag, path string) {
	if n.Kind != Mapping {
		d.Add(n.Position, path, "expected a mapping; found %s", n.Describe())
		return
	}
	m := reflect.MakeMap(v.Type())
	for _, k := range n.Keys {
		item := reflect.New(v.Type().Elem()).Elem()
		d.setDefaults(item)
		d.value(k.Value, item, tag, Join(path, k.Name))
		m.SetMapIndex(reflect.ValueOf(k.Name), item)
	}
	v.Set(m)
}

// list reads a list; a single plain value is read as a list with one element.
func (d *Decoder) list(n *Node, v reflect.Value, tag reflect.StructTag, path string) {
	items := n.Items
	if n.Kind != List {
		elem := reflect.New(v.Type().Elem()).Elem()
		if n.Kind != Scalar || elem.Kind() == reflect.Struct && !isText(elem) {
			d.Add(n.Position, path, "expected a list; found %s", n.Describe())
			return
		}
		items = []*Node{n}
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
	if err := inRange(reflect.ValueOf(len(items)), tag.Get("length")); err != nil {
		d.Add(n.Position, path, "the count of elements, %s", err)
	}
	if elem := v.Type().Elem(); tag.Get("unique") != "" {
		d.unique(path, "", out, func(i int) reflect.Value { return out.Index(i) })
	} else if elem.Kind() == reflect.Struct {
		for _, f := range Fields(elem) {
			if f.Tag.Get("unique") != "" {
				d.unique(path, "."+f.Key, out, func(i int) reflect.Value { return out.Index(i).FieldByIndex(f.Index) })
			}
		}
	}
}

// unique rejects values that another element of the list has; value returns the value of element i,
// and key its path inside the element.
func (d *Decoder) unique(path, key string, list reflect.Value, value func(i int) reflect.Value) {
	first := map[any]int{}
	for i := range list.Len() {
		at := fmt.Sprintf("%s[%d]%s", path, i, key)
		if j, twice := first[value(i).Interface()]; twice && !d.Has(at) {
			d.Add(d.Position(at), at, "%v is given twice, first in %s[%d]", value(i), path, j)
		} else if !value(i).IsZero() {
			first[value(i).Interface()] = i
		}
	}
}

// scalar reads text, a number, a boolean or a duration, and checks it against the tags.
func (d *Decoder) scalar(n *Node, v reflect.Value, tag reflect.StructTag, path string) {
	if n.Kind != Scalar {
		d.Add(n.Position, path, "expected %s; found %s", expected(v), n.Describe())
		return
	}
	err := d.assign(v, tag, n.Text)
	if err == nil {
		return
	}
	// the variable may hold a secret: the message shows the variable's name instead
	if n.Written != "" && n.Written != n.Text && !errors.Is(err, errControl) {
		zero := errors.Is(err, errLeadingZero)
		err = d.assign(reflect.New(v.Type()).Elem(), tag, n.Written)
		switch {
		case err == nil:
			err = errors.New("the value of the environment variable or anchor is not valid here")
		case zero:
			err = fmt.Errorf("%w: %w", err, errLeadingZero)
		}
	}
	d.Add(n.Position, path, "%s", err)
}

// SetDefaults sets the fields of *into, a struct, to the defaults of their tags.
func (d *Decoder) SetDefaults(into any) { d.setDefaults(reflect.ValueOf(into).Elem()) }

func (d *Decoder) setDefaults(v reflect.Value) {
	if v.Kind() != reflect.Struct {
		return
	}
	for _, f := range Fields(v.Type()) {
		into := v.FieldByIndex(f.Index)
		d.setDefaults(into)
		if text, ok := f.Tag.Lookup("default"); ok {
			if err := d.assignDefault(into, f.Tag, text); err != nil {
				panic(fmt.Sprintf("settings: default of %s.%s: %v", v.Type(), f.Name, err)) // a wrong tag in the code
			}
		}
	}
}

// assignDefault sets v to the value of a default tag.
func (d *Decoder) assignDefault(v reflect.Value, tag reflect.StructTag, text string) error {
	if v.Kind() != reflect.Slice || isText(v) {
		return d.assign(v, tag, text)
	}
	words := strings.Fields(text)
	v.Set(reflect.MakeSlice(v.Type(), len(words), len(words)))
	for i, word := range words {
		if err := d.assign(v.Index(i), tag, word); err != nil {
			return err
		}
	}
	return nil
}

// assign parses text and sets v to the result.
func (d *Decoder) assign(v reflect.Value, tag reflect.StructTag, text string) error {
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
	if v.Kind() == reflect.String {
		if err := inRange(reflect.ValueOf(len(text)), tag.Get("length")); err != nil {
			return fmt.Errorf("the count of bytes, %w", err)
		}
	}
	switch tag.Get("form") {
	case "file":
		v.SetString(RelativeTo(filepath.Dir(d.file), text))
	case "line":
		if strings.ContainsFunc(text, unicode.IsControl) {
			return errControl
		}
	case "name":
		return CheckName(text)
	case "address":
		return CheckAddress(text)
	case "listen":
		if strings.Contains(text, "@") {
			return CheckAddress(text)
		}
		if _, _, err := net.SplitHostPort(text); err != nil {
			return fmt.Errorf("%q is not an address; expected host:port, such as 127.0.0.1:9339, "+
				"or :9339 for every interface", text)
		}
	}
	return nil
}

// errControl does not show the text, which may be a secret.
var errControl = errors.New("a line end or another control character is in it; expected one line: a text behind | " +
	"ends with a line end, one behind |- does not")

func notOneOf(allowed []string, text string) error {
	if near := suggest.Nearest(text, allowed); near != "" {
		return fmt.Errorf("expected %s; found %q: did you mean %q?", OneOf(allowed), text, near)
	}
	return fmt.Errorf("expected %s; found %q", OneOf(allowed), text)
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
		if err = Decimal(text); err == nil {
			x, err = strconv.ParseInt(text, 0, v.Type().Bits())
		}
		v.SetInt(x)
	case v.CanUint():
		var x uint64
		if err = Decimal(text); err == nil {
			x, err = strconv.ParseUint(text, 0, v.Type().Bits())
		}
		v.SetUint(x)
	case v.CanFloat():
		var x float64
		if err = Decimal(text); err == nil {
			x, err = strconv.ParseFloat(text, v.Type().Bits())
		}
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

// Decimal refuses a number with leading zeros, because readers disagree on its base.
func Decimal(text string) error {
	digits := strings.TrimLeft(text, "+-")
	if len(digits) > 1 && digits[0] == '0' && (digits[1] >= '0' && digits[1] <= '9' || digits[1] == '_') {
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

// inRange checks a value against a range tag: LOW..HIGH, both included, or >LOW..HIGH, above LOW.
func inRange(v reflect.Value, bounds string) error {
	low, high, ok := strings.Cut(bounds, "..")
	if !ok {
		return nil
	}
	low, above := strings.CutPrefix(low, ">")
	bound := func(text string) reflect.Value {
		b := reflect.New(v.Type()).Elem()
		if err := setScalar(b, text); err != nil {
			panic(fmt.Sprintf("settings: range %q: %v", bounds, err)) // a wrong tag in the code
		}
		return b
	}
	if low != "" {
		if c := compare(v, bound(low)); c < 0 || c == 0 && above {
			ok = false
		}
	}
	if high != "" && compare(v, bound(high)) > 0 {
		ok = false
	}
	if ok {
		return nil
	}
	return fmt.Errorf("%v is out of range; expected %s", v, Range(bounds))
}

// Range describes a range tag for a reader: "1 to 64", "at least 1", "above 0, at most 1".
func Range(bounds string) string {
	low, high, _ := strings.Cut(bounds, "..")
	low, above := strings.CutPrefix(low, ">")
	switch {
	case above && high == "":
		return "above " + low
	case above:
		return "above " + low + ", at most " + high
	case high == "":
		return "at least " + low
	case low == "":
		return "at most " + high
	}
	return low + " to " + high
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

// NamePattern matches names: form "name". It allows plain characters only, because names appear in
// YANG keys, gNMI paths and metrics.
const NamePattern = `^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`

var nameForm = regexp.MustCompile(NamePattern)

// CheckName fails if a text is not a name: form "name".
func CheckName(name string) error {
	if nameForm.MatchString(name) {
		return nil
	}
	return fmt.Errorf("%q is not a name; expected letters, digits, dots, dashes and underscores, "+
		"beginning with a letter or digit, at most 63", name)
}

// CheckAddress fails if a text is not host:port: form "address".
func CheckAddress(address string) error {
	if strings.Contains(address, "@") { // the text before the @ may be a password
		return errors.New("an address has no user and no @; expected host:port")
	}
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

// RelativeTo resolves a file name relative to a directory. An empty or absolute name is returned
// as it is.
func RelativeTo(directory, file string) string {
	if file == "" || filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(directory, file)
}

// Join appends a key to a path.
func Join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
