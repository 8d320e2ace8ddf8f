// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// goPackage is a package with the types of its expressions.
type goPackage struct {
	directory, name string
	set             *token.FileSet
	files           []*goFile
	info            *types.Info
}

// goFile is a file of a package.
type goFile struct {
	name    string
	text    []byte
	tree    *ast.File
	mutants []*mutant
}

// load reads and checks the package in a directory.
func load(directory string) (*goPackage, error) {
	out, err := exec.Command("go", "list", "-f", "{{.ImportPath}} {{range .GoFiles}}{{.}} {{end}}", directory).Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", directory, err)
	}
	names := strings.Fields(string(out))
	list, err := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", directory).Output()
	if err != nil {
		return nil, fmt.Errorf("go list -export %s: %w", directory, err)
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(list)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[path] = file
	}
	p := &goPackage{directory: directory, set: token.NewFileSet(), info: &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}}}
	var trees []*ast.File
	for _, name := range names[1:] {
		f := &goFile{name: filepath.Join(directory, name)}
		if f.text, err = os.ReadFile(f.name); err != nil {
			return nil, err
		}
		if f.tree, err = parser.ParseFile(p.set, f.name, f.text, parser.ParseComments); err != nil {
			return nil, err
		}
		p.files, p.name, trees = append(p.files, f), f.tree.Name.Name, append(trees, f.tree)
	}
	check := types.Config{Importer: importer.ForCompiler(p.set, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})}
	_, err = check.Check(names[0], p.set, trees, p.info)
	return p, err
}

// edit is the replacement of some bytes of a file, from the position at on, by a text.
type edit struct {
	at     token.Pos
	length int
	text   string
	behind bool // the text belongs to the node that ends at the position
}

// around returns the edits that put one text before a node and one after it. N in the first text is
// replaced by the number of the mutant.
func around(n ast.Node, before, behind string) func(int) []edit {
	return func(number int) []edit {
		before := strings.ReplaceAll(before, "N", strconv.Itoa(number))
		return []edit{{at: n.Pos(), text: before}, {at: n.End(), text: behind, behind: true}}
	}
}

// binaryEdits returns the edits for one of the operators that replace a binary operator; nil if the
// expression is a constant, or if the file cannot name the expression's type.
func binaryEdits(file *ast.File, n *ast.BinaryExpr, replacement int, info *types.Info) func(int) []edit {
	if info.Types[n].Value != nil {
		return nil
	}
	switch n.Op {
	case token.EQL, token.NEQ:
		return func(number int) []edit {
			return around(n, "((", fmt.Sprintf(") != (mutant == %d))", number))(number)
		}
	case token.LAND, token.LOR: // by De Morgan's laws
		return func(number int) []edit {
			is := fmt.Sprintf("(mutant == %d)", number)
			return []edit{{at: n.X.Pos(), text: "(((("}, {at: n.X.End(), text: ") != " + is + ")", behind: true},
				{at: n.Y.Pos(), text: "(("}, {at: n.Y.End(), text: ") != " + is + ")) != " + is + ")", behind: true}}
		}
	}
	t := info.TypeOf(n.X)
	if basic, ok := t.Underlying().(*types.Basic); !ok || basic.Info()&types.IsNumeric == 0 {
		return nil
	}
	named := true
	name := types.TypeString(t, func(p *types.Package) string {
		for _, i := range file.Imports {
			if i.Name == nil && i.Path.Value == strconv.Quote(p.Path()) {
				return p.Name()
			}
		}
		named = p.Name() == file.Name.Name
		return ""
	})
	if !named {
		return nil
	}
	if replacement > 0 { // the function written for the first replacement handles the second, too
		return func(int) []edit { return []edit{} }
	}
	function := "mutate" + map[token.Token]string{token.LSS: "Less", token.LEQ: "LessEqual", token.GTR: "Greater",
		token.GEQ: "GreaterEqual", token.ADD: "Add", token.SUB: "Subtract", token.MUL: "Multiply", token.REM: "Rest"}[n.Op]
	return func(number int) []edit {
		return []edit{{at: n.X.Pos(), text: fmt.Sprintf("%s[%s](%d, ", function, name, number)},
			{at: n.OpPos, length: len(n.Op.String()), text: ","}, {at: n.Y.End(), text: ")", behind: true}}
	}
}

// operators is the file that has the woven operators. A second replacement of the same operator has
// the number after the first.
const operators = `

import (
	"os"
	"strconv"
)

var mutant, _ = strconv.Atoi(os.Getenv("NETSKETCH_MUTANT"))

type mutateInteger interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr
}

type mutateNumber interface{ mutateInteger | ~float32 | ~float64 }

func mutateLess[T mutateNumber](n int, a, b T) bool {
	return mutant == n && a <= b || mutant == n+1 && a >= b || mutant != n && mutant != n+1 && a < b
}

func mutateLessEqual[T mutateNumber](n int, a, b T) bool {
	return mutant == n && a < b || mutant == n+1 && a > b || mutant != n && mutant != n+1 && a <= b
}

func mutateGreater[T mutateNumber](n int, a, b T) bool {
	return mutant == n && a >= b || mutant == n+1 && a <= b || mutant != n && mutant != n+1 && a > b
}

func mutateGreaterEqual[T mutateNumber](n int, a, b T) bool {
	return mutant == n && a > b || mutant == n+1 && a < b || mutant != n && mutant != n+1 && a >= b
}

func mutateAdd[T mutateNumber](n int, a, b T) T {
	if mutant == n {
		return a - b
	}
	return a + b
}

func mutateSubtract[T mutateNumber](n int, a, b T) T {
	if mutant == n {
		return a + b
	}
	return a - b
}

func mutateMultiply[T mutateNumber](n int, a, b T) T {
	if mutant == n {
		return a + b
	}
	return a * b
}

func mutateRest[T mutateInteger](n int, a, b T) T {
	if mutant == n {
		return a * b
	}
	return a % b
}
`

// suite holds the compiled tests of all mutants.
type suite struct {
	groups []group
	took   time.Duration
}

// group is the tests of one package that run in one process.
type group struct {
	binary, directory string
	tests             []string
	limit, took       time.Duration
}

// build compiles the tests with all mutants in one build, and runs them with no mutant active.
func (p *goPackage) build(temporary string, o options) (*suite, error) {
	replace, number := map[string]string{}, 1
	put := func(name string, text []byte) error {
		path, err := filepath.Abs(name)
		if err != nil {
			return err
		}
		replace[path] = filepath.Join(temporary, fmt.Sprintf("woven%d.go", len(replace)))
		return os.WriteFile(replace[path], text, 0o600)
	}
	for _, f := range p.files {
		var edits []edit
		for _, m := range f.mutants {
			m.number = number
			number++
			if m.edits != nil {
				edits, m.woven = append(edits, m.edits(m.number)...), true
			}
		}
		if err := put(f.name, weave(p.set, f.text, edits)); err != nil {
			return nil, err
		}
	}
	text := []byte("package " + p.name + operators)
	if err := put(filepath.Join(p.directory, "mutate_operators.go"), text); err != nil {
		return nil, err
	}
	overlay := filepath.Join(temporary, "woven.json")
	data, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(overlay, data, 0o600); err != nil {
		return nil, err
	}
	s := &suite{}
	for i, directory := range o.packages {
		binary := filepath.Join(temporary, fmt.Sprintf("tests%d", i))
		build := exec.Command("go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", binary, directory)
		if out, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("compile the tests of %s with mutants: %w\n%s", directory, err, out)
		}
		groups, err := measure(binary, directory, o)
		if err != nil {
			return nil, err
		}
		s.groups = append(s.groups, groups...)
	}
	for _, g := range s.groups {
		s.took += g.took
	}
	slices.SortStableFunc(s.groups, func(a, b group) int { return int(a.took - b.took) })
	return s, nil
}

// weave applies edits to a text. Edits at one place are nested: texts that begin there keep the
// order of the edits, and texts that end there have the opposite order.
func weave(set *token.FileSet, text []byte, edits []edit) []byte {
	for i, j := 0, len(edits)-1; i < j; i, j = i+1, j-1 { // ends in the opposite order
		edits[i], edits[j] = edits[j], edits[i]
	}
	var begins, ends []edit
	for _, e := range edits {
		if e.behind {
			ends = append(ends, e)
		} else {
			begins = append(begins, e)
		}
	}
	slices.Reverse(begins)
	all := append(ends, begins...)
	slices.SortStableFunc(all, func(a, b edit) int { return int(a.at - b.at) })
	var out bytes.Buffer
	from := 0
	for _, e := range all {
		at := set.Position(e.at).Offset
		out.Write(text[from:at])
		out.WriteString(e.text)
		from = at + e.length
	}
	out.Write(text[from:])
	return out.Bytes()
}

var passed = regexp.MustCompile(`(?m)^--- PASS: (\w+) \(([0-9.]+)s\)`)

// measure runs the tests of a binary with no mutant active. Tests that take less than a tenth of a
// second form one group; each other test is a group of its own.
func measure(binary, directory string, o options) ([]group, error) {
	c := exec.Command(binary, "-test.v", "-test.run", o.run, "-test.timeout", "20m")
	c.Dir = directory
	out, err := c.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("the tests fail without a mutant: %w\n%s", err, out)
	}
	groups := []group{{binary: binary, directory: directory}}
	for _, m := range passed.FindAllStringSubmatch(string(out), -1) {
		seconds, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return nil, err
		}
		took := time.Duration(seconds * float64(time.Second))
		if took < time.Second/10 {
			groups[0].tests, groups[0].took = append(groups[0].tests, m[1]), groups[0].took+took
		} else {
			groups = append(groups, group{binary: binary, directory: directory, tests: []string{m[1]}, took: took})
		}
	}
	for i := range groups {
		groups[i].limit = min(o.limit, 10*time.Second+20*groups[i].took)
	}
	return groups, nil
}

// kills reports whether a test fails with a woven mutant.
func (s *suite) kills(number int) (bool, error) {
	for _, g := range s.groups {
		ctx, cancel := context.WithTimeout(context.Background(), g.limit)
		c := exec.CommandContext(ctx, g.binary, "-test.failfast", "-test.run", "^("+strings.Join(g.tests, "|")+")$")
		c.Dir, c.Env = g.directory, append(os.Environ(), fmt.Sprintf("NETSKETCH_MUTANT=%d", number))
		err := c.Run()
		cancel()
		var exit *exec.ExitError
		switch {
		case errors.As(err, &exit):
			return true, nil
		case err != nil:
			return false, err
		}
	}
	return false, nil
}
