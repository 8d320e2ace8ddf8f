// SPDX-License-Identifier: Apache-2.0

// Pathdoc generates the reference of published paths between the markers in docs/paths.md from the
// modules. Run it in yang, by go generate.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/netsketch/netsketch/yang"
)

const (
	file  = "../docs/paths.md"
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
		out.WriteString("\n")
		write(&out, n, "")
	}
	out.WriteString("\n")
	return os.WriteFile(file, []byte(before+begin+out.String()+end+after), 0o644)
}

// write lists n if it has a state container, with its description, and the nodes below it.
func write(out *strings.Builder, n *yang.Node, path string) {
	path += "/" + n.Name
	for _, k := range n.KeyNames() {
		path += "[" + k + "]"
	}
	for _, c := range n.Children() {
		if c.Name == "state" && c.Kind == yang.ContainerNode {
			fmt.Fprintln(out, wrap("- `"+path+"`: "+firstSentence(n.Description)))
		}
	}
	for _, c := range n.Children() {
		if c.Leaf == nil && c.Name != "state" && c.Name != "config" {
			write(out, c, path)
		}
	}
}

// firstSentence returns the first sentence of a description, on one line.
func firstSentence(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	first, _, more := strings.Cut(s, ". ")
	if more {
		return first + "."
	}
	return s
}

// wrap breaks an entry of a list into lines of at most 100 characters, indented below its text.
func wrap(s string) string {
	var out strings.Builder
	columns := 0
	for word := range strings.FieldsSeq(s) {
		n := utf8.RuneCountInString(word)
		switch {
		case columns == 0:
		case columns+1+n > 100:
			out.WriteString("\n  ")
			columns = 2
		default:
			out.WriteByte(' ')
			columns++
		}
		out.WriteString(word)
		columns += n
	}
	return out.String()
}
