// SPDX-License-Identifier: Apache-2.0

// Package docs_test holds the documentation to the code and all prose to the rules of
// CONTRIBUTING.md: the functions that architecture.md names, words, line lengths, package sizes.
package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// functionName matches `package.Func` and `package.(*Type).Method`.
var functionName = regexp.MustCompile("`([a-z0-9]+)\\.(?:\\(\\*?(\\w+)\\)\\.)?(\\w+)`")

// declarations returns the file of each function, as "package.Name", and of each method, as
// "package.(Type).Method".
func declarations(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, path := range goFiles(t) {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			name := f.Name.Name
			if f.Recv != nil {
				name = "(" + receiver(f.Recv.List[0].Type) + ")." + name
			}
			found[file.Name.Name+"."+name] = path
		}
	}
	return found
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// walks are the sections of architecture.md that follow data through the components, one function
// after another, in a numbered list.
var walks = []string{
	"From a register cell to a subscriber",
	"From a packet at a host to a result",
	"From a YAML key to a table entry",
	"From a plan to a switch",
}

// Each function that a walk names exists, and all that it names in one package are in one file: a
// reader opens one file per component.
func TestWalks(t *testing.T) {
	text, err := os.ReadFile("architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	found := declarations(t)
	for _, heading := range walks {
		visited := map[string]string{} // package to file
		steps := stepsUnder(string(text), heading)
		if len(steps) < 5 {
			t.Errorf("%q has %d steps, want a whole walk", heading, len(steps))
		}
		for _, step := range steps {
			names := functionName.FindAllStringSubmatch(step, -1)
			if len(names) == 0 {
				t.Errorf("%q: step %q names no function", heading, step)
			}
			for _, m := range names {
				name := m[1] + "." + m[3]
				if m[2] != "" {
					name = m[1] + ".(" + m[2] + ")." + m[3]
				}
				file, ok := found[name]
				if !ok {
					t.Errorf("%q: there is no function %s", heading, m[0])
					continue
				}
				if before, ok := visited[m[1]]; ok && before != file {
					t.Errorf("%q visits %s and %s: at most one file per package", heading, before, file)
				}
				visited[m[1]] = file
			}
		}
	}
}

// stepsUnder returns the entries of the numbered list under a heading.
func stepsUnder(page, heading string) (steps []string) {
	_, section, found := strings.Cut(page, "# "+heading+"\n")
	if !found {
		return nil
	}
	section, _, _ = strings.Cut(section, "\n#")
	for l := range strings.SplitSeq(section, "\n") {
		switch {
		case l != "" && l[0] >= '0' && l[0] <= '9':
			steps = append(steps, l)
		case len(steps) > 0 && strings.HasPrefix(l, "   "):
			steps[len(steps)-1] += l
		}
	}
	return steps
}

// maxPackage is the most lines that one package may have, tests and generated files not counted.
const maxPackage = 4000

// Packages stay small enough to read.
func TestPackageSizes(t *testing.T) {
	sizes := map[string]int{}
	for _, path := range goFiles(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !generated.Match(text) {
			sizes[filepath.Dir(path)] += strings.Count(string(text), "\n")
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(sizes)) {
		if sizes[dir] > maxPackage {
			t.Errorf("%s has %d lines, at most %d: split it", dir, sizes[dir], maxPackage)
		}
	}
}
