// SPDX-License-Identifier: Apache-2.0

// Command mutate changes one place of a Go package at a time and runs tests on the result, to find
// code that no test needs:
//
//	go run ./internal/test/mutate -tests ./linear,./analysis ./linear
//
// It negates conditions, moves comparisons by one, exchanges operators and removes statements. It
// prints each mutant that the tests let pass, and exits with code 1 if there is one that the file
// of -known does not list. Standard error has a line of progress every half minute. Nothing in the
// tree changes: mutants are overlays of the build.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func main() {
	tests := flag.String("tests", "", "packages to test, separated by commas; the mutated package by default")
	run := flag.String("run", "", "tests to run, as go test -run")
	limit := flag.Duration("timeout", time.Minute, "time after which a mutant counts as found")
	known := flag.String("known", "", "file of mutants that change no result: in each line a mutant, a tab, the reason")
	functions := flag.String("functions", "", "functions to change, separated by commas; all by default")
	share := flag.Float64("share", 1, "share of the mutants to test, drawn at random")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "mutate: expected the directory of one package")
		os.Exit(2)
	}
	packages := []string{flag.Arg(0)}
	if *tests != "" {
		packages = strings.Split(*tests, ",")
	}
	survivors := 0
	equivalent, err := readKnown(*known)
	if err == nil {
		survivors, err = mutateAll(flag.Arg(0), *functions, *share, packages, *run, *limit, equivalent)
	}
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(2)
	case survivors > 0:
		os.Exit(1)
	}
}

// readKnown reads the mutants that change no result: in each line a mutant, a tab and the reason.
func readKnown(name string) (map[string]bool, error) {
	out := map[string]bool{}
	if name == "" {
		return out, nil
	}
	data, err := os.ReadFile(name)
	for line := range strings.Lines(string(data)) {
		if mutant, _, ok := strings.Cut(line, "\t"); ok {
			out[mutant] = true
		}
	}
	return out, err
}

// mutateAll tests a share of the mutants of functions of the package in a directory. It returns
// how many survived.
func mutateAll(directory, functions string, share float64, packages []string, run string, limit time.Duration,
	known map[string]bool) (int, error) {
	files, err := filepath.Glob(filepath.Join(directory, "*.go"))
	if err != nil {
		return 0, err
	}
	temporary, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(temporary)
	began := time.Now()
	if out, err := exec.Command("go", arguments(packages, run, limit)...).CombinedOutput(); err != nil {
		return 0, fmt.Errorf("the tests fail without a mutant: %w\n%s", err, out)
	}
	fmt.Fprintf(os.Stderr, "mutate: the tests pass without a mutant, in %v\n", time.Since(began).Round(time.Second))
	total, survivors, all, next := 0, 0, 0, time.Now().Add(progressEvery)
	type parsedFile struct {
		name    string
		set     *token.FileSet
		file    *ast.File
		mutants []mutant
	}
	var parsed []parsedFile
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, parser.ParseComments)
		if err != nil {
			return survivors, err
		}
		chosen := slices.DeleteFunc(mutants(file), func(m mutant) bool {
			return functions != "" && !slices.Contains(strings.Split(functions, ","), m.function) ||
				known[m.label(name)] || rand.Float64() >= share
		})
		parsed, all = append(parsed, parsedFile{name, set, file, chosen}), all+len(chosen)
	}
	for _, f := range parsed {
		for _, m := range f.mutants {
			if time.Now().After(next) {
				next = time.Now().Add(progressEvery)
				fmt.Fprintf(os.Stderr, "mutate: %d of %d mutants, %d survived\n", total, all, survivors)
			}
			undo := m.change()
			var source bytes.Buffer
			err := format.Node(&source, f.set, f.file)
			undo()
			if err != nil {
				return survivors, err
			}
			total++
			if killed, err := test(temporary, f.name, source.Bytes(), packages, run, limit); err != nil {
				return survivors, err
			} else if !killed {
				survivors++
				fmt.Printf("%s\t(line %d)\n", m.label(f.name), f.set.Position(m.at).Line)
			}
		}
	}
	fmt.Printf("%d mutants, %d survived\n", total, survivors)
	return survivors, nil
}

// test reports whether the tests fail, or do not compile, with another source of a file.
func test(temporary, name string, source []byte, packages []string, run string, limit time.Duration) (bool, error) {
	path, err := filepath.Abs(name)
	if err != nil {
		return false, err
	}
	mutant, overlay := filepath.Join(temporary, "mutant.go"), filepath.Join(temporary, "overlay.json")
	data, err := json.Marshal(map[string]map[string]string{"Replace": {path: mutant}})
	if err != nil {
		return false, err
	}
	if err := os.WriteFile(mutant, source, 0o600); err != nil {
		return false, err
	}
	if err := os.WriteFile(overlay, data, 0o600); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit+time.Minute)
	defer cancel()
	return exec.CommandContext(ctx, "go", arguments(packages, run, limit, "-overlay", overlay)...).Run() != nil, nil
}

// progressEvery is the time between two lines of progress.
const progressEvery = 30 * time.Second

// arguments are those of the go command that runs the tests.
func arguments(packages []string, run string, limit time.Duration, further ...string) []string {
	args := append([]string{"test", "-vet=off", "-failfast", "-timeout", limit.String()}, further...)
	args = append(args, packages...)
	if run != "" {
		args = append(args, "-run", run)
	}
	return args
}

// mutant is one change of a file. change makes it and returns what takes it back.
type mutant struct {
	at       token.Pos
	function string
	text     string
	change   func() (undo func())
}

// label names the mutant of a file.
func (m mutant) label(file string) string {
	return fmt.Sprintf("%s: %s: %s", filepath.Base(file), m.function, m.text)
}

// exchanged are operators and what replaces them.
var exchanged = map[token.Token][]token.Token{
	token.LSS: {token.LEQ, token.GEQ}, token.LEQ: {token.LSS, token.GTR},
	token.GTR: {token.GEQ, token.LEQ}, token.GEQ: {token.GTR, token.LSS},
	token.EQL: {token.NEQ}, token.NEQ: {token.EQL}, token.LAND: {token.LOR}, token.LOR: {token.LAND},
	token.ADD: {token.SUB}, token.SUB: {token.ADD}, token.MUL: {token.ADD}, token.REM: {token.MUL},
}

// mutants returns all mutants of a file.
func mutants(file *ast.File) (out []mutant) {
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		add := func(at token.Pos, text string, change func() func()) {
			out = append(out, mutant{at, f.Name.Name, text, change})
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BinaryExpr:
				was, text := n.Op, source(n)
				for _, op := range exchanged[was] {
					add(n.OpPos, fmt.Sprintf("%s instead of %s in %s", op, was, text), func() func() {
						n.Op = op
						return func() { n.Op = was }
					})
				}
			case *ast.IfStmt:
				was := n.Cond
				add(n.Pos(), "never if "+source(was), func() func() {
					n.Cond = &ast.BinaryExpr{X: ast.NewIdent("false"), Op: token.LAND, Y: &ast.ParenExpr{X: was}}
					return func() { n.Cond = was }
				})
			case *ast.BlockStmt:
				removals(n.List, add)
			case *ast.CaseClause:
				removals(n.Body, add)
			}
			return true
		})
	}
	return out
}

// removals adds the mutants that lack one statement of a list.
func removals(list []ast.Stmt, add func(token.Pos, string, func() func())) {
	for i, was := range list {
		switch s := was.(type) {
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE {
				continue
			}
		case *ast.ExprStmt, *ast.IncDecStmt, *ast.BranchStmt:
		default:
			continue
		}
		add(was.Pos(), "without "+source(was), func() func() {
			list[i] = &ast.EmptyStmt{}
			return func() { list[i] = was }
		})
	}
}

// source is a node as text in one line.
func source(n ast.Node) string {
	var b bytes.Buffer
	if err := format.Node(&b, token.NewFileSet(), n); err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(b.String()), " ")
}
