// SPDX-License-Identifier: Apache-2.0

// Pathdoc generates the reference of published paths between the markers in docs/yang.md from the
// modules. Run it in yang, by go generate.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/netsketch/netsketch/yang"
)

const (
	file  = "../docs/yang.md"
	begin = "<!-- paths: generated from yang/modules; do not edit -->\n"
	end   = "<!-- end of paths -->\n"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "pathdoc:", err)
		os.Exit(1)
	}
}

func run() error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no markers", file)
	}
	modules := yang.CollectorModules()
	files, err := filepath.Glob("../plugins/*/*/*.yang")
	if err != nil {
		return err
	}
	for _, f := range files {
		module, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		modules = append(modules, yang.Module{Text: string(module), Source: f})
	}
	schema, err := yang.Load(modules...)
	if err != nil {
		return err
	}
	var out strings.Builder
	for _, n := range schema.Root().Children() {
		write(&out, n, "")
	}
	return os.WriteFile(file, []byte(before+begin+out.String()+end+after), 0o644)
}

// write lists the leaves directly below a state container, and continues with the other nodes below
// it. Keys and the epoch, which every row of a plugin has, are left out.
func write(out *strings.Builder, n *yang.Node, path string) {
	path += "/" + n.Name
	for _, k := range n.KeyNames() {
		path += "[" + k + "]"
	}
	for _, c := range n.Children() {
		if c.Name != "state" || c.Kind != yang.ContainerNode {
			continue
		}
		fmt.Fprintf(out, "\n### `%s/state`\n\n%s\n\n", path, wrap(sentence(n.Description)))
		for _, l := range c.Children() {
			if l.Name != "epoch" && !slices.Contains(n.KeyNames(), l.Name) {
				out.WriteString(wrap(fmt.Sprintf("- `%s` (%s): %s", l.Name, typeOf(l.Leaf), sentence(l.Description))) + "\n")
			}
		}
	}
	for _, c := range n.Children() {
		if c.Leaf == nil && c.Name != "state" && c.Name != "config" {
			write(out, c, path)
		}
	}
}

func typeOf(l *yang.Leaf) string {
	text := l.Type.Base.String()
	if len(l.Type.Values) > 0 {
		text = strings.Join(l.Type.Values, ", ")
	}
	if l.Units != "" {
		text += ", " + l.Units
	}
	return text
}

// sentence returns the first sentence of a description. The modules have the rest.
func sentence(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if end := strings.Index(s, ". "); end >= 0 {
		return s[:end+1]
	}
	return s
}

// wrap breaks a paragraph or an entry of a list into lines of at most 100 characters.
func wrap(s string) string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(s) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > 100 {
			lines, line = append(lines, line), " " // the entry continues
		}
		if line == "" {
			line = word
		} else {
			line += " " + word
		}
	}
	return strings.Join(append(lines, line), "\n")
}
