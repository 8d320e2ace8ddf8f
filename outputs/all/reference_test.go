// SPDX-License-Identifier: Apache-2.0

package all

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/outputs/gnmi"
	"github.com/netsketch/netsketch/outputs/influxdb"
	"github.com/netsketch/netsketch/outputs/web"
)

var update = flag.Bool("update", false, "rewrite the reference of keys")

// reference.md is generated from the tags and comments of the configuration's fields. `make
// generate` runs this test with -update.
func TestReference(t *testing.T) {
	golden(t, "reference.md", generate(t))
}

func golden(t *testing.T, file, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s differs from the fields (-want +got); run `make generate`:\n%s", file, diff)
	}
}

func generate(t *testing.T) string {
	w := &writer{t: t, paths: map[string]string{}}
	w.WriteString("# Configuration keys\n")
	w.table(reflect.TypeFor[config.Config](), "")
	w.table(reflect.TypeFor[gnmi.Config](), "outputs[] of type gnmi")
	w.table(reflect.TypeFor[influxdb.Config](), "outputs[] of type influxdb")
	w.table(reflect.TypeFor[web.Config](), "outputs[] of type web")
	return w.String()
}

// writer writes the keys of structs as tables.
type writer struct {
	strings.Builder
	t        *testing.T
	comments map[string]map[string]string // by package directory, then Type.Field
	paths    map[string]string            // where a table of keys was written first
}

// table writes the keys of a struct, then those of the structs inside it. A table that was written
// before is named instead.
func (w *writer) table(typ reflect.Type, path string) {
	title := "Top level"
	if path != "" {
		title = "`" + path + "`"
	}
	var rows strings.Builder
	type inner struct {
		typ  reflect.Type
		path string
	}
	var nested []inner
	for f := range typ.Fields() {
		key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if key == "" {
			continue
		}
		inside, suffix := f.Type, ""
		if inside.Kind() == reflect.Slice {
			inside, suffix = inside.Elem(), "[]"
		}
		values := w.values(f)
		if inside.Kind() == reflect.Struct && declaresKeys(inside) && f.Tag.Get("partial") == "" {
			nested = append(nested, inner{inside, strings.TrimPrefix(path+"."+key+suffix, ".")})
			values = ""
		}
		fmt.Fprintf(&rows, "| `%s` | %s | %s | %s |\n", key, values, code(f.Tag.Get("default")), w.comment(typ, f.Name))
	}
	if first, ok := w.paths[rows.String()]; ok {
		fmt.Fprintf(w, "\n## %s\n\nThe keys of `%s`.\n", title, first)
		return
	}
	w.paths[rows.String()] = path
	fmt.Fprintf(w, "\n## %s\n\n| key | values | default | meaning |\n|---|---|---|---|\n%s", title, &rows)
	for _, n := range nested {
		w.table(n.typ, n.path)
	}
}

func declaresKeys(t reflect.Type) bool {
	for f := range t.Fields() {
		if f.Tag.Get("yaml") != "" {
			return true
		}
	}
	return false
}

// values describes what a key accepts.
func (w *writer) values(f reflect.StructField) string {
	low, high, bounded := strings.Cut(f.Tag.Get("range"), "..")
	var s string
	switch {
	case f.Tag.Get("oneof") != "":
		s = "`" + strings.ReplaceAll(f.Tag.Get("oneof"), " ", "`, `") + "`"
	case bounded && high != "":
		s = fmt.Sprintf("`%s` to `%s`", low, high)
	case bounded:
		s = fmt.Sprintf("from `%s`", low)
	case f.Tag.Get("form") != "":
		s = map[string]string{"name": "name", "address": "host:port", "listen": "host:port",
			"file": "file name"}[f.Tag.Get("form")]
	case f.Type == reflect.TypeFor[time.Duration]():
		s = "duration"
	case f.Type.Kind() == reflect.Bool:
		s = "`true`, `false`"
	}
	if f.Tag.Get("required") != "" {
		s = strings.TrimPrefix(s+", required", ", ")
	}
	return s
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

// comment returns the comment of a field as a sentence, without the field's name at its start.
func (w *writer) comment(typ reflect.Type, name string) string {
	dir := filepath.Join("../..", strings.TrimPrefix(typ.PkgPath(), "github.com/netsketch/netsketch"))
	if w.comments == nil {
		w.comments = map[string]map[string]string{}
	}
	if w.comments[dir] == nil {
		w.comments[dir] = fieldComments(w.t, filepath.Join(dir, "config.go"))
	}
	doc := strings.Join(strings.Fields(w.comments[dir][typ.Name()+"."+name]), " ")
	rest, ok := strings.CutPrefix(doc, name+" ")
	if !ok {
		w.t.Errorf("%s.%s has no comment that begins with its name", typ, name)
		return ""
	}
	for _, verb := range []string{"is ", "are "} {
		rest = strings.TrimPrefix(rest, verb)
	}
	return strings.ToUpper(rest[:1]) + rest[1:]
}

// fieldComments returns the comment of every struct field of a file by Type.Field.
func fieldComments(t *testing.T, file string) map[string]string {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	docs := map[string]string{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		if s, ok := spec.Type.(*ast.StructType); ok {
			for _, f := range s.Fields.List {
				for _, name := range f.Names {
					docs[spec.Name.Name+"."+name.Name] = f.Doc.Text()
				}
			}
		}
		return true
	})
	return docs
}
