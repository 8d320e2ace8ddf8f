// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/collector/config"
)

// docs/configuration.md holds, between two marks, a table of every key made from the comments in
// this package's sources and the defaults in its code. go test -run Reference -update rewrites it.
func TestReferenceIsInStep(t *testing.T) {
	const file = "../../docs/configuration.md"
	const begin, end = "<!-- keys: generated from collector/config; do not edit -->\n", "<!-- end of keys -->\n"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := bytes.Cut(page, []byte(begin))
	_, after, ok2 := bytes.Cut(rest, []byte(end))
	if !ok || !ok2 {
		t.Fatalf("%s lacks the marks around the table of keys", file)
	}
	golden(t, file, string(before)+begin+reference(t)+end+string(after))
}

func reference(t *testing.T) string {
	docs := fieldComments(t)
	c := &config.Config{}
	c.SetDefaults()
	var b strings.Builder
	section(t, &b, docs, reflect.ValueOf(c).Elem(), "")
	return b.String()
}

// section writes the keys of a struct as a table, then those of the structs inside it.
func section(t *testing.T, b *strings.Builder, docs map[string]string, v reflect.Value, path string) {
	type nested struct {
		path  string
		value reflect.Value
	}
	var inside []nested
	title := "Top level"
	if path != "" {
		title = "`" + path + "`"
	}
	fmt.Fprintf(b, "\n### %s\n\n| key | default | meaning |\n|---|---|---|\n", title)
	for i := range v.NumField() {
		f := v.Type().Field(i)
		key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		full := strings.TrimPrefix(path+"."+key, ".")
		doc := docs[v.Type().Name()+"."+f.Name]
		if doc == "" {
			t.Errorf("%s.%s has no comment", v.Type().Name(), f.Name)
		}
		fv, deflt := v.Field(i), ""
		switch x := fv.Interface().(type) {
		case config.Section, config.Prefix, config.PortRef, config.MAC, config.SHA256:
		case time.Duration:
			deflt = x.String()
		case config.Pipeline:
			deflt = x.Name
			inside = append(inside, nested{full, fv})
		case fmt.Stringer:
			deflt = x.String()
		default:
			switch fv.Kind() {
			case reflect.Struct:
				if full != "device-defaults" {
					inside = append(inside, nested{full, fv})
				}
			case reflect.Slice:
				if elem := fv.Type().Elem(); elem.Kind() == reflect.Struct && elem != reflect.TypeFor[config.Prefix]() {
					item := reflect.New(elem)
					if x, ok := item.Interface().(interface{ SetDefaults() }); ok {
						x.SetDefaults()
					}
					inside = append(inside, nested{full + "[]", item.Elem()})
				}
			case reflect.Map:
			default:
				deflt = fmt.Sprint(fv.Interface())
			}
		}
		if deflt != "" {
			deflt = "`" + deflt + "`"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", key, deflt, doc)
	}
	for _, n := range inside {
		section(t, b, docs, n.value, n.path)
	}
}

// fieldComments gives the comment of every struct field as "Type.Field", with the field's name,
// which begins the sentence by Go's custom, taken off.
func fieldComments(t *testing.T) map[string]string {
	docs := map[string]string{}
	for _, file := range []string{"config.go", "pipeline.go"} {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if s, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range s.Fields.List {
					for _, name := range f.Names {
						docs[spec.Name.Name+"."+name.Name] = sentence(name.Name, f.Doc.Text())
					}
				}
			}
			return true
		})
	}
	return docs
}

func sentence(name, doc string) string {
	doc = strings.Join(strings.Fields(doc), " ")
	for _, verb := range []string{" is ", " are ", " says "} {
		if rest, ok := strings.CutPrefix(doc, name+verb); ok {
			if verb == " says " {
				rest = "says " + rest
			}
			return strings.ToUpper(rest[:1]) + rest[1:]
		}
	}
	if rest, ok := strings.CutPrefix(doc, name+" "); ok {
		return strings.ToUpper(rest[:1]) + rest[1:]
	}
	return doc
}
