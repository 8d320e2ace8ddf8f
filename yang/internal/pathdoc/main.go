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

// write describes the leaves directly below a state container, and continues with the other nodes
// below it.
func write(out *strings.Builder, n *yang.Node, path string) {
	path += "/" + n.Name
	for _, k := range n.KeyNames() {
		path += "[" + k + "]"
	}
	for _, c := range n.Children() {
		if c.Name != "state" || c.Kind != yang.ContainerNode {
			continue
		}
		fmt.Fprintf(out, "\n### `%s/state`\n\n%s\n\n| leaf | type | meaning |\n|---|---|---|\n", path,
			oneLine(n.Description))
		for _, l := range c.Children() {
			if !slices.Contains(n.KeyNames(), l.Name) {
				fmt.Fprintf(out, "| `%s` | %s | %s |\n", l.Name, typeOf(l.Leaf), oneLine(l.Description))
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

func oneLine(s string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", `\|`)
}
