// SPDX-License-Identifier: Apache-2.0

package bmv2json

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const minimal = `{"__meta__":{"version":[2,23]},"header_types":[],"headers":[],"parsers":[],"deparsers":[],` +
	`"actions":[],"pipelines":[]}`

func TestParseErrors(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"type":"expression","value":{"op":"~","right":`, 300) + "null" + strings.Repeat("}}", 300)
	tests := []struct {
		name, json, want string
	}{
		{"empty", ``, "truncated"},
		{"truncated", minimal[:40], "truncated"},
		{"no JSON", `hello`, "malformed"},
		{"two values", minimal + "{}", "other data"},
		{"version", strings.Replace(minimal, "[2,23]", "[3,0]", 1), "format version 3.0"},
		{"not a program", `{"a":1}`, "not the output of p4c-bm2-ss"},
		{"list", strings.Replace(minimal, `"headers":[]`, `"headers":{}`, 1),
			"BMv2 JSON.headers: expected a list, have an object"},
		{
			"source", strings.Replace(minimal, `"actions":[]`,
				`"actions":[{"name":"MyIngress.a","id":-1,"source_info":{"filename":"a.p4","line":7}}]`, 1),
			`BMv2 JSON.actions[0] "MyIngress.a".id (a.p4:7): expected an integer`,
		},
		{"width", strings.Replace(minimal, `"header_types":[]`,
			`"header_types":[{"name":"h","id":0,"fields":[["f",1000000]]}]`, 1), "expected an integer from 1"},
		{
			"hex", strings.Replace(minimal, `"checksums":[]`, ``,
				1)[:len(minimal)-1] +
				`,"calculations":[{"name":"c","id":0,"algo":"crc32",` +
				`"input":[{"type":"hexstr","value":"0xzz","bitwidth":8}]}]}`,
			"expected hexadecimal digits",
		},
		{
			"deep", minimal[:len(minimal)-1] +
				`,"checksums":[{"name":"c","id":0,"type":"generic","target":["a","b"],"if_cond":` + deep + `}]}`,
			"nested deeper than 200 levels",
		},
		{
			"value type", minimal[:len(minimal)-1] +
				`,"checksums":[{"name":"c","id":0,"type":"generic","target":["a","b"],` +
				`"if_cond":{"type":"wish","value":1}}]}`,
			`value type "wish" is not known`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse([]byte(tt.json))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
	if _, err := Parse([]byte(minimal)); err != nil {
		t.Error(err)
	}
	var e *Error
	_, err := Parse([]byte(`[]`))
	if !errors.As(err, &e) {
		t.Errorf("%v is no *Error", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(minimal))
	for _, n := range seeds(f) {
		f.Add(n)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if file, err := Parse(data); err == nil && file == nil {
			t.Error("neither a file nor an error")
		}
	})
}

// seeds are the test programs of the engine.
func seeds(tb testing.TB) (out [][]byte) {
	tb.Helper()
	names, _ := filepath.Glob("../testdata/*.json")
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, b)
	}
	return out
}
