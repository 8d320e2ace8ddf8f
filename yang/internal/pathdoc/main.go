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
	seen := map[string]string{}
	for _, n := range schema.Root().Children() {
		write(&out, n, "", seen)
	}
	return os.WriteFile(file, []byte(before+begin+out.String()+end+after), 0o644)
}

// write lists the leaves directly below a state container, and continues with the other nodes below
// it. seen has the path of each list of leaves that has been written. Keys, the epoch, which every
// row of a plugin has, and the fields of flows are left out.
func write(out *strings.Builder, n *yang.Node, path string, seen map[string]string) {
	path += "/" + n.Name
	for _, k := range n.KeyNames() {
		path += "[" + k + "]"
	}
	for _, c := range n.Children() {
		if c.Name != "state" || c.Kind != yang.ContainerNode {
			continue
		}
		leaves := strings.Join(leavesOf(n, c, ""), ", ")
		if leaves == "" {
			leaves = "none"
		}
		if before := seen[leaves]; before != "" && strings.Contains(leaves, ",") {
			leaves = "those of `" + before + "`"
		} else {
			seen[leaves] = path
		}
		fmt.Fprintf(out, "\n### `%s/state`\n\n%s\n", path, wrap(oneLine(n.Description)+" Leaves: "+leaves+"."))
	}
	for _, c := range n.Children() {
		if c.Leaf == nil && c.Name != "state" && c.Name != "config" {
			write(out, c, path, seen)
		}
	}
}

// implied are leaves that the text of the page names for all lists: the epoch, and the fields of
// flows.
var implied = []string{"epoch", "source-address", "destination-address", "protocol", "source-port", "destination-port"}

// leavesOf returns the leaves below a container of state of n.
func leavesOf(n, state *yang.Node, prefix string) (leaves []string) {
	for _, l := range state.Children() {
		switch {
		case l.Leaf == nil:
			leaves = append(leaves, leavesOf(n, l, prefix+l.Name+"/")...)
		case prefix != "" || !slices.Contains(implied, l.Name) && !slices.Contains(n.KeyNames(), l.Name):
			leaves = append(leaves, "`"+prefix+l.Name+"`"+values(l.Leaf))
		}
	}
	return leaves
}

// values returns the values of an enumeration in brackets.
func values(l *yang.Leaf) string {
	if len(l.Type.Values) == 0 {
		return ""
	}
	return " (" + strings.Join(l.Type.Values, ", ") + ")"
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// wrap breaks a paragraph into lines of at most 100 characters.
func wrap(s string) string {
	var out strings.Builder
	columns := 0
	for word := range strings.FieldsSeq(s) {
		n := utf8.RuneCountInString(word)
		switch {
		case columns == 0:
		case columns+1+n > 100:
			out.WriteByte('\n')
			columns = 0
		default:
			out.WriteByte(' ')
			columns++
		}
		out.WriteString(word)
		columns += n
	}
	return out.String()
}
