// SPDX-License-Identifier: Apache-2.0

package yang

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"slices"
	"testing"
)

var update = flag.Bool("update", false, "write host.json")

// TestHostSchema: the compiled schema of host agents is the schema of the modules.
func TestHostSchema(t *testing.T) {
	want, err := Load(mustBundled("netsketch-host")...)
	if err != nil {
		t.Fatal(err)
	}
	data, err := encodeSchema(want)
	if err != nil {
		t.Fatal(err)
	}
	data = append(data, '\n')
	if *update {
		if err := os.WriteFile("host.json", data, 0o644); err != nil { //nolint:gosec // as other files of the source
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(data, hostSchema) {
		t.Error("host.json differs from the modules; run go generate ./yang")
	}
	got, err := HostSchema()
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Error("the compiled schema differs from that of the modules")
	}
}

// TestCompiledSchemas: a schema with all kinds of types is the same when it is encoded and decoded.
func TestCompiledSchemas(t *testing.T) {
	want, err := Load(slices.Concat(CollectorModules(), mustBundled("netsketch-host"), SwitchModules())...)
	if err != nil {
		t.Fatal(err)
	}
	data, err := encodeSchema(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeSchema(data)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Error("the schema has changed")
	}
	for _, bad := range []string{"", "{", `{"Nodes":[{"Leaf":{"Type":{"Patterns":[["(","("]]}}}]}`} {
		if _, err := decodeSchema([]byte(bad)); err == nil {
			t.Errorf("%q is a schema", bad)
		}
	}
}

// encodeSchema returns what decodeSchema decodes.
func encodeSchema(s *Schema) ([]byte, error) {
	return json.MarshalIndent(compiledSchema{Models: s.models, Nodes: s.root.encode()}, "", " ")
}

func (n *Node) encode() (out []compiledNode) {
	for _, c := range n.children {
		e := compiledNode{Name: c.Name, Module: c.Module, Description: c.Description, Kind: c.Kind, Config: c.Config,
			Keys: c.keys, Nodes: c.encode()}
		if l := c.Leaf; l != nil {
			e.Leaf = &compiledLeaf{Type: l.Type.encode(), Units: l.Units, Default: l.Default, Mandatory: l.Mandatory,
				Target: l.Target}
		}
		out = append(out, e)
	}
	return out
}

func (t *Type) encode() *compiledType {
	c := &compiledType{Name: t.Name, Base: t.Base, Kind: t.Kind, FractionDigits: t.FractionDigits,
		Values: slices.Clone(t.Values), Uints: encodeBounds(t.uints), Ints: encodeBounds(t.ints),
		Floats: encodeBounds(t.floats), Lengths: encodeBounds(t.lengths), RangeText: t.rangeText, LengthText: t.lengthText}
	for _, p := range t.patterns {
		c.Patterns = append(c.Patterns, [2]string{p.text, p.re.String()})
	}
	for _, m := range t.Members {
		c.Members = append(c.Members, m.encode())
	}
	return c
}

func encodeBounds[T uint64 | int64 | float64](all []bounds[T]) (out [][2]T) {
	for _, b := range all {
		out = append(out, [2]T{b.min, b.max})
	}
	return out
}
