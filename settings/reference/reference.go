// SPDX-License-Identifier: Apache-2.0

// Package reference describes the keys that structs declare for package settings: as Markdown
// tables and as JSON Schemas. It reads the comments of the structs' fields from the source files,
// so only tests use it, which keep generated files in step with the structs.
package reference

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/netsketch/netsketch/settings"
)

// Section is a struct whose keys stand at a path of the file, empty for the file as a whole.
type Section struct {
	Type reflect.Type
	Path string
}

// Tables returns the keys of structs, and of the structs inside them, as Markdown tables under
// headings such as "##". A table that would appear twice is named the second time.
func Tables(heading string, sections ...Section) (string, error) {
	w := &writer{heading: heading, paths: map[string]string{}}
	for _, s := range sections {
		w.table(s)
	}
	return w.String(), w.err
}

// writer writes descriptions of structs. err is the first error.
type writer struct {
	strings.Builder
	heading  string
	comments map[string]map[string]string // comments by directory, then by Type.Field
	paths    map[string]string            // where a table of keys was written first
	err      error
}

func (w *writer) table(s Section) {
	title := "Top level"
	if s.Path != "" {
		title = "`" + s.Path + "`"
	}
	var rows strings.Builder
	var nested []Section
	for _, f := range settings.Fields(s.Type) {
		if f.Inline {
			continue
		}
		inside, suffix := f.Type, ""
		if inside.Kind() == reflect.Slice {
			inside, suffix = inside.Elem(), "[]"
		}
		if inside.Kind() == reflect.Pointer {
			inside = inside.Elem()
		}
		values := w.values(f)
		if inside.Kind() == reflect.Struct && len(settings.Fields(inside)) > 0 && f.Tag.Get("partial") == "" {
			nested = append(nested, Section{inside, strings.TrimPrefix(s.Path+"."+f.Key+suffix, ".")})
			values = ""
		}
		fmt.Fprintf(&rows, "| `%s` | %s | %s | %s |\n", f.Key, values, code(f.Tag.Get("default")), w.comment(s.Type, f.Name))
	}
	if first, ok := w.paths[rows.String()]; ok {
		fmt.Fprintf(w, "\n%s %s\n\nThe keys of `%s`.\n", w.heading, title, first)
		return
	}
	w.paths[rows.String()] = s.Path
	fmt.Fprintf(w, "\n%s %s\n\n| key | values | default | meaning |\n|---|---|---|---|\n%s", w.heading, title, &rows)
	for _, n := range nested {
		w.table(n)
	}
}

// values describes the values that a key accepts.
func (w *writer) values(f settings.Field) string {
	low, high, bounded := strings.Cut(f.Tag.Get("range"), "..")
	low, above := strings.CutPrefix(low, ">")
	var s string
	switch {
	case f.Tag.Get("oneof") != "":
		s = "`" + strings.ReplaceAll(f.Tag.Get("oneof"), " ", "`, `") + "`"
	case above:
		s = fmt.Sprintf("above `%s`, to `%s`", low, high)
	case bounded && high != "":
		s = fmt.Sprintf("`%s` to `%s`", low, high)
	case bounded:
		s = fmt.Sprintf("from `%s`", low)
	case f.Tag.Get("form") != "":
		s = map[string]string{"name": "name", "address": "host:port", "listen": "host:port",
			"file": "file name"}[f.Tag.Get("form")]
	case f.Type == typeDuration:
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

var (
	typeDuration = reflect.TypeFor[time.Duration]()
	typeSecret   = reflect.TypeFor[settings.Secret]()
	typeSize     = reflect.TypeFor[settings.Size]()
)

// fail keeps the first error.
func (w *writer) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("reference: "+format, args...)
	}
}

// comment returns the comment of a field as a sentence, without the field's name at its start. The
// name "" stands for the comment of the type.
func (w *writer) comment(typ reflect.Type, name string) string {
	dir, err := directory(typ.PkgPath())
	if err != nil {
		w.fail("%v", err)
		return ""
	}
	if w.comments[dir] == nil {
		read, err := commentsOf(dir)
		if err != nil {
			w.fail("%v", err)
			return ""
		}
		if w.comments == nil {
			w.comments = map[string]map[string]string{}
		}
		w.comments[dir] = read
	}
	key, subject := typ.Name()+"."+name, name
	if name == "" {
		key, subject = typ.Name(), typ.Name()
	}
	doc := strings.Join(strings.Fields(w.comments[dir][key]), " ")
	rest, ok := strings.CutPrefix(doc, subject+" ")
	if !ok {
		w.fail("%s has no comment that begins with %s", key, subject)
		return ""
	}
	for _, verb := range []string{"is ", "are "} {
		rest = strings.TrimPrefix(rest, verb)
	}
	return strings.ToUpper(rest[:1]) + rest[1:]
}

// directory returns the directory of a package of the module of the working directory.
func directory(pkg string) (string, error) {
	dir, err := os.Getwd()
	if err != nil || pkg == "main" {
		return dir, err
	}
	for ; ; dir = filepath.Dir(dir) {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil {
			_, module, _ := strings.Cut(string(text), "module ")
			module, _, _ = strings.Cut(module, "\n")
			inside, ok := strings.CutPrefix(strings.TrimSuffix(pkg, "_test")+"/", strings.TrimSpace(module)+"/")
			if !ok {
				return "", fmt.Errorf("package %s is not of module %s, whose comments can be read", pkg, module)
			}
			return filepath.Join(dir, inside), nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod above the working directory")
		}
	}
}

// commentsOf returns the comment of every type and struct field of a package, by Type and by
// Type.Field.
func commentsOf(dir string) (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	docs := map[string]string{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range parsed.Decls {
			group, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, s := range group.Specs {
				if spec, ok := s.(*ast.TypeSpec); ok {
					docs[spec.Name.Name] = group.Doc.Text() + spec.Doc.Text()
					fieldComments(docs, spec)
				}
			}
		}
	}
	return docs, nil
}

func fieldComments(docs map[string]string, spec *ast.TypeSpec) {
	s, ok := spec.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, f := range s.Fields.List {
		for _, name := range f.Names {
			docs[spec.Name.Name+"."+name.Name] = f.Doc.Text()
		}
	}
}
