// SPDX-License-Identifier: Apache-2.0

// gNMI updates against the schema: splits a path and a value into leaves.

package yang

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"

	gpb "github.com/openconfig/gnmi/proto/gnmi"

	"github.com/netsketch/netsketch/yang/table"
)

// ErrUnknownPath is wrapped when a path, or a member of a JSON value, is not in the schema.
var ErrUnknownPath = errors.New("is not in the schema")

// LeafUpdate is one leaf of an update.
type LeafUpdate struct {
	// Elems are the path from the root, with keys and without module names. They may share memory
	// with the update and must not be kept or modified.
	Elems []*gpb.PathElem
	// Leaf is the leaf in the schema.
	Leaf *Leaf
	// Value is a uint64, int64, float64, bool or string, according to Leaf.Kind, and valid for the
	// type. Identities include their module's name.
	Value any
}

// UpdateReader splits updates into leaves. It calls Found for each leaf except list keys; an error
// of Found ends the reading.
type UpdateReader struct {
	Schema *Schema
	Found  func(LeafUpdate) error
	// Entry, if set, is called with the path of a list entry whose key leaf is read.
	Entry func([]*gpb.PathElem)
	// Skip, if set, makes the reader lenient toward updates of other devices: module names are
	// ignored, numbers may be text and text may be numbers, booleans may be 0 and 1, a value may be
	// in an array of its own, and a JSON value may be in an object with the name of its node. Errors
	// about leaves that are not in the schema (ErrUnknownPath) or not valid for their type are
	// passed to Skip, and these leaves are omitted. leaf is the path of the omitted leaf, or of the
	// node above omitted leaves, without keys and at most 256 bytes long. Without Skip, Read returns
	// the first of these errors.
	Skip func(leaf string, err error)
}

// Read reads one update. The path starts at the root, including the prefix, and must contain the
// keys of all lists in it, except the keys of the last list before a JSON array.
func (r *UpdateReader) Read(path []*gpb.PathElem, val *gpb.TypedValue) error {
	n, elems, err := r.Resolve(path)
	if err != nil {
		return r.skip(path, err)
	}
	switch v := val.GetValue().(type) {
	case *gpb.TypedValue_JsonVal:
		return r.json(n, elems, v.JsonVal)
	case *gpb.TypedValue_JsonIetfVal:
		return r.json(n, elems, v.JsonIetfVal)
	}
	if n.Leaf == nil {
		return r.skip(elems, fmt.Errorf("yang: %s is a %s; its value is JSON", PathString(elems), n.Kind))
	}
	if one := val.GetLeaflistVal().GetElement(); len(one) == 1 && !n.Leaf.Many && r.Skip != nil {
		val = one[0]
	}
	raw, err := scalar(val)
	if err != nil {
		return r.skip(elems, fmt.Errorf("yang: %s: %w", PathString(elems), err))
	}
	return r.leaf(n, elems, raw, false)
}

// Resolve walks a path without wildcards and returns its node and the path without module names.
// Every list except the last element must have all of its keys.
func (r *UpdateReader) Resolve(path []*gpb.PathElem) (*Node, []*gpb.PathElem, error) {
	if len(path) > maxPathElems {
		return nil, nil, fmt.Errorf("yang: a path of %d elements; at most %d are allowed", len(path), maxPathElems)
	}
	n := r.Schema.root
	elems := make([]*gpb.PathElem, 0, len(path)+4)
	for i, e := range path {
		c := r.child(n, e.GetName())
		if c == nil {
			return nil, nil, fmt.Errorf("yang: %s: %q %w", PathString(path[:i+1]), e.GetName(), ErrUnknownPath)
		}
		if r.Skip != nil && c.Kind == ListNode {
			e = c.localKeys(e)
		}
		if len(e.GetKey()) > 0 || c.Kind == ListNode && i < len(path)-1 {
			if err := c.checkKeys(e.GetKey()); err != nil {
				return nil, nil, fmt.Errorf("%w (element %d of %s)", err, i+1, PathString(path))
			}
			for _, k := range c.keys {
				if v, ok := e.GetKey()[k]; !ok || v == "*" {
					return nil, nil, fmt.Errorf("yang: %s: key %s of %s is not given", PathString(path), k, c.Name)
				}
			}
		}
		if e.GetName() != c.Name {
			e = &gpb.PathElem{Name: c.Name, Key: e.GetKey()}
		}
		elems = append(elems, e)
		n = c
	}
	return n, elems, nil
}

// localKeys returns the element of a list with the names of keys without their modules, and with
// keys that are identities without their prefixes, if the schema does not have them with the
// prefixes.
func (n *Node) localKeys(e *gpb.PathElem) *gpb.PathElem {
	var changed map[string]string
	for given, v := range e.GetKey() {
		name := given
		if !slices.Contains(n.keys, given) {
			name = given[strings.IndexByte(given, ':')+1:]
		}
		if !slices.Contains(n.keys, name) {
			continue
		}
		if local := n.byName[name].Leaf.Type.local(v); local != v || name != given {
			if changed == nil {
				changed = maps.Clone(e.GetKey())
			}
			delete(changed, given)
			changed[name] = local
		}
	}
	if changed == nil {
		return e
	}
	return &gpb.PathElem{Name: e.GetName(), Key: changed}
}

func (r *UpdateReader) child(n *Node, name string) *Node {
	if c := n.Child(name); c != nil {
		return c
	}
	if _, local, ok := strings.Cut(name, ":"); ok && r.Skip != nil {
		return n.byName[local]
	}
	return nil
}

func (r *UpdateReader) skip(elems []*gpb.PathElem, err error) error {
	if r.Skip == nil {
		return err
	}
	r.Skip(NamesOf(elems), err)
	return nil
}

// NamesOf returns the names of a path without modules and keys, "/interfaces/interface/state", cut
// to 256 bytes.
func NamesOf(elems []*gpb.PathElem) string {
	const most = 256
	var b strings.Builder
	for _, e := range elems {
		name := e.GetName()
		name = name[strings.IndexByte(name, ':')+1:]
		if b.Len()+1+len(name) > most {
			b.WriteString("/…")
			break
		}
		b.WriteByte('/')
		b.WriteString(name)
	}
	return strings.ToValidUTF8(b.String(), "\ufffd")
}

// scalar returns the value of a TypedValue that is neither JSON nor a list.
func scalar(val *gpb.TypedValue) (any, error) {
	switch v := val.GetValue().(type) {
	case *gpb.TypedValue_StringVal:
		return v.StringVal, nil
	case *gpb.TypedValue_AsciiVal:
		return v.AsciiVal, nil
	case *gpb.TypedValue_IntVal:
		return v.IntVal, nil
	case *gpb.TypedValue_UintVal:
		return v.UintVal, nil
	case *gpb.TypedValue_BoolVal:
		return v.BoolVal, nil
	case *gpb.TypedValue_DoubleVal:
		return v.DoubleVal, nil
	case *gpb.TypedValue_BytesVal:
		return base64.StdEncoding.EncodeToString(v.BytesVal), nil
	case *gpb.TypedValue_FloatVal:
		return float64(v.FloatVal), nil //nolint:staticcheck // devices still send deprecated values
	case *gpb.TypedValue_DecimalVal:
		d := v.DecimalVal //nolint:staticcheck // devices still send deprecated values
		if d.GetPrecision() > 18 {
			return nil, errors.New("a decimal with more than 18 digits after the point")
		}
		return float64(d.GetDigits()) / math.Pow10(int(d.GetPrecision())), nil
	case nil:
		return nil, errors.New("there is no value")
	}
	return nil, fmt.Errorf("a value of type %s is not supported",
		strings.TrimPrefix(fmt.Sprintf("%T", val.GetValue()), "*gnmi.TypedValue_"))
}

func (r *UpdateReader) json(n *Node, elems []*gpb.PathElem, data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return r.skip(elems, fmt.Errorf("yang: %s: the value is not JSON: %w", PathString(elems), err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return r.skip(elems, fmt.Errorf("yang: %s: something follows the JSON value", PathString(elems)))
	}
	if r.Skip != nil {
		v = n.unwrap(v)
	}
	return r.tree(n, elems, v)
}

// unwrap returns the value of a node from a JSON object that has the node as its only member, as
// SONiC writes values: {"openconfig-interfaces:mtu": 9100} for the leaf mtu. A list entry is in an
// array there. unwrap returns any other value unchanged.
func (n *Node) unwrap(v any) any {
	members, _ := v.(map[string]any)
	if len(members) != 1 || n.byName[n.Name] != nil {
		return v
	}
	for name, inner := range members {
		if name[strings.IndexByte(name, ':')+1:] != n.Name {
			return v
		}
		v = inner
	}
	return v
}

// tree walks a JSON value, at most as deep as the schema.
func (r *UpdateReader) tree(n *Node, elems []*gpb.PathElem, v any) error {
	if n.Leaf != nil {
		return r.leaf(n, elems, v, true)
	}
	if n.Kind == ListNode && len(elems[len(elems)-1].GetKey()) == 0 {
		return r.list(n, elems, v)
	}
	if entries, ok := v.([]any); ok && r.Skip != nil && n.Kind == ListNode && len(entries) == 1 {
		v = entries[0]
	}
	members, ok := v.(map[string]any)
	if !ok {
		return r.skip(elems, fmt.Errorf("yang: %s is a %s; its value is a JSON object", PathString(elems), n.Kind))
	}
	names := make([]string, 0, len(members))
	for name := range members {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		c := r.child(n, name)
		if c == nil {
			member := append(elems[:len(elems):len(elems)], &gpb.PathElem{Name: name})
			err := fmt.Errorf("yang: %s: %.100q %w", PathString(elems), name, ErrUnknownPath)
			if err := r.skip(member, err); err != nil {
				return err
			}
			continue
		}
		if n.Kind == ListNode && slices.Contains(n.keys, c.Name) {
			if err := r.sameKey(c, elems, members[name]); err != nil {
				return err
			}
			r.entry(elems)
			continue
		}
		below := append(elems[:len(elems):len(elems)], &gpb.PathElem{Name: c.Name})
		if err := r.tree(c, below, members[name]); err != nil {
			return err
		}
	}
	return nil
}

func (r *UpdateReader) entry(elems []*gpb.PathElem) {
	if r.Entry != nil {
		r.Entry(elems)
	}
}

// sameKey checks that a key leaf within an entry equals the entry's key.
func (r *UpdateReader) sameKey(c *Node, elems []*gpb.PathElem, v any) error {
	want := elems[len(elems)-1].GetKey()[c.Name]
	got, err := r.key(c, v)
	if err != nil || got != want && c.Leaf.Type.Qualify(want) != c.Leaf.Type.Qualify(got) {
		return r.skip(elems, fmt.Errorf("yang: %s: the entry has %.100q as %s", PathString(elems), fmt.Sprint(v), c.Name))
	}
	return nil
}

// list walks a JSON array of entries.
func (r *UpdateReader) list(n *Node, elems []*gpb.PathElem, v any) error {
	entries, ok := v.([]any)
	if !ok {
		return r.skip(elems, fmt.Errorf("yang: %s is a list; its value is a JSON array, or the path has its keys",
			PathString(elems)))
	}
	for _, e := range entries {
		keys := map[string]string{}
		members, _ := e.(map[string]any)
		for name, v := range members {
			if c := r.child(n, name); c != nil && slices.Contains(n.keys, c.Name) {
				if k, err := r.key(c, v); err == nil {
					keys[c.Name] = k
				}
			}
		}
		if len(keys) != len(n.keys) {
			if err := r.skip(elems, fmt.Errorf("yang: %s: an entry has not all of the keys %s", PathString(elems),
				strings.Join(n.keys, ", "))); err != nil {
				return err
			}
			continue
		}
		last := len(elems) - 1
		entry := append(elems[:last:last], &gpb.PathElem{Name: n.Name, Key: keys})
		if err := n.checkKeys(keys); err != nil {
			if err := r.skip(entry, err); err != nil {
				return err
			}
			continue
		}
		if err := r.tree(n, entry, e); err != nil {
			return err
		}
	}
	return nil
}

// key returns a JSON value as the text of a list key.
func (r *UpdateReader) key(c *Node, v any) (string, error) {
	if s, ok := v.(string); ok && r.Skip != nil {
		v = c.Leaf.Type.local(s)
	}
	return c.Leaf.Type.key(v)
}

// key returns a JSON value as the text of a list key.
func (t *Type) key(v any) (string, error) {
	switch x := v.(type) {
	case string:
		return x, t.CheckText(x)
	case json.Number:
		return x.String(), t.CheckText(x.String())
	case bool:
		return strconv.FormatBool(x), t.CheckText(strconv.FormatBool(x))
	}
	return "", errors.New("is not a key")
}

func (r *UpdateReader) leaf(n *Node, elems []*gpb.PathElem, raw any, fromJSON bool) error {
	if n.Leaf.Many {
		return r.skip(elems, fmt.Errorf("yang: %s is a leaf-list, which is not supported: it %w", PathString(elems),
			ErrUnknownPath))
	}
	if p := n.Parent; p.Kind == ListNode && slices.Contains(p.keys, n.Name) {
		entry := elems[:len(elems)-1]
		if s, ok := raw.(string); ok && s == entry[len(entry)-1].GetKey()[n.Name] || r.Skip != nil {
			r.entry(entry)
			return nil // the path contains the key
		}
		return fmt.Errorf("yang: %s is the key of its entry, and cannot be changed", PathString(elems))
	}
	v, err := n.Leaf.Type.value(raw, fromJSON, r.Skip != nil)
	if err != nil {
		return r.skip(elems, fmt.Errorf("yang: %s: %.100q %w", PathString(elems), fmt.Sprint(raw), err))
	}
	return r.Found(LeafUpdate{Elems: elems, Leaf: n.Leaf, Value: v})
}

// value converts the value of an update to a leaf's value.
func (t *Type) value(raw any, fromJSON, lenient bool) (any, error) {
	text := ""
	switch x := raw.(type) {
	case string:
		text = x
		if numeric := t.Base <= Decimal64; !lenient && (t.Base == Boolean || numeric && !fromJSON) {
			return nil, fmt.Errorf("is text; the leaf is a %s", t.Base)
		}
	case json.Number, uint64, int64, float64:
		if f, ok := x.(float64); ok {
			text = strconv.FormatFloat(f, 'f', -1, 64)
		} else {
			text = fmt.Sprint(x)
		}
		if !lenient && (t.Base == Boolean || t.textual()) {
			return nil, fmt.Errorf("is a number; the leaf is a %s", t.Base)
		}
	case bool:
		text = strconv.FormatBool(x)
		if !lenient && (t.Base <= Decimal64 || t.textual()) {
			return nil, fmt.Errorf("is a boolean; the leaf is a %s", t.Base)
		}
		if t.Base == Empty && x {
			return true, nil
		}
	case []any:
		if t.Base == Empty && len(x) == 1 && x[0] == nil {
			return true, nil
		}
		return nil, fmt.Errorf("is a JSON array; the leaf is a %s", t.Base)
	default:
		return nil, fmt.Errorf("is not a value; the leaf is a %s", t.Base)
	}
	if t.Base == Empty {
		return nil, errors.New("is not a value of the type empty; write true, or [null] in JSON")
	}
	if lenient {
		text = t.local(t.plain(text))
		if b, err := strconv.ParseBool(text); t.Base == Boolean && err == nil { // not 0 and 1
			text = strconv.FormatBool(b)
		}
	}
	if err := t.CheckText(text); err != nil {
		return nil, err
	}
	if t.Kind == table.String {
		return t.Qualify(strings.ToValidUTF8(text, "\ufffd")), nil
	}
	return table.ParseText(t.Kind, text)
}

// local returns a text without the prefix before its colon if the type has such a name, an identity
// or a value of an enumeration, only without the prefix. Devices write the prefix of their own
// import, or the name of their own module.
func (t *Type) local(text string) string {
	_, name, ok := strings.Cut(text, ":")
	if !ok || !t.hasNames() || t.CheckText(text) == nil || t.CheckText(name) != nil {
		return text
	}
	return name
}

func (t *Type) hasNames() bool {
	return t.Base == Enumeration || t.Base == Identityref || slices.ContainsFunc(t.Members, (*Type).hasNames)
}

// plain returns a number that is written with an exponent or a fraction, as some devices write
// 64-bit integers in JSON, without the exponent and, for an integer, without a fraction of zeros.
// It returns any other text unchanged.
func (t *Type) plain(text string) string {
	const most = 64 // characters of a number; more are no number of YANG
	if t.Base > Decimal64 || len(text) > most || !strings.ContainsAny(text, "eE.") {
		return text
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.Abs(f) > math.MaxUint64 || f != 0 && math.Abs(f) < 1e-18 {
		return text
	}
	exact, ok := new(big.Rat).SetString(text)
	switch {
	case !ok:
		return text
	case exact.IsInt():
		return exact.Num().String()
	case t.Base == Decimal64:
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return text
}

func (t *Type) textual() bool {
	switch t.Base {
	case String, Enumeration, Identityref, Binary, Bits, InstanceIdentifier:
		return true
	}
	return false
}
