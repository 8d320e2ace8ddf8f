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
	"go/token"
	"go/types"
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
	again := flag.String("again", "", "file that a former run printed: tests only the mutants that survived it")
	part := flag.String("part", "1/1", "part of the mutants to test: 2/5 is the second of five")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "mutate: expected the directory of one package")
		os.Exit(2)
	}
	o := options{share: *share, packages: []string{flag.Arg(0)}, run: *run, limit: *limit}
	if *tests != "" {
		o.packages = strings.Split(*tests, ",")
	}
	if *functions != "" {
		o.functions = strings.Split(*functions, ",")
	}
	if _, err := fmt.Sscanf(*part, "%d/%d", &o.part, &o.parts); err != nil || o.part < 1 || o.part > o.parts {
		fmt.Fprintf(os.Stderr, "mutate: -part %q; expected a form such as 2/5\n", *part)
		os.Exit(2)
	}
	survivors := 0
	var err error
	if o.known, err = readKnown(*known); err == nil {
		o.again, err = readKnown(*again)
	}
	if err == nil {
		survivors, err = mutateAll(flag.Arg(0), o)
	}
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(2)
	case survivors > 0:
		os.Exit(1)
	}
}

// readKnown reads a list of mutants: in each line a mutant, a tab and a remark.
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

// options are the flags' values for one run.
type options struct {
	functions   []string        // functions to change; all if empty
	share       float64         // share of the mutants to test
	part, parts int             // tests every mutant whose number, divided by parts, has the same remainder as part
	packages    []string        // packages to test
	run         string          // tests to run, as go test -run
	limit       time.Duration   // time limit of the tests; a mutant that exceeds it counts as found
	known       map[string]bool // mutants that are allowed to survive
	again       map[string]bool // mutants to test; all if empty
}

// mutateAll tests mutants of the package in a directory. It returns how many mutants survived.
// Nearly all mutants are compiled together, each behind a condition; the others are compiled one by
// one.
func mutateAll(directory string, o options) (survivors int, err error) {
	temporary, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(temporary)
	p, err := load(directory)
	if err != nil {
		return 0, err
	}
	for _, f := range p.files {
		f.mutants = mutants(f.tree, p.info)
	}
	suite, err := p.build(temporary, o)
	if err != nil {
		return 0, err
	}
	fmt.Fprintf(os.Stderr, "mutate: the tests pass without a mutant, in %v\n", suite.took.Round(time.Second))
	total, all, next := 0, 0, time.Now().Add(progressEvery)
	chosen := func(f *goFile, m *mutant) bool {
		return (len(o.functions) == 0 || slices.Contains(o.functions, m.function)) && !o.known[m.label(f.name)] &&
			(len(o.again) == 0 || o.again[m.label(f.name)])
	}
	for _, f := range p.files {
		f.mutants = slices.DeleteFunc(f.mutants, func(m *mutant) bool {
			if !chosen(f, m) || rand.Float64() >= o.share {
				return true
			}
			all++
			return all%o.parts != o.part%o.parts
		})
		total += len(f.mutants)
	}
	done := 0
	for _, f := range p.files {
		for _, m := range f.mutants {
			if time.Now().After(next) {
				next = time.Now().Add(progressEvery)
				fmt.Fprintf(os.Stderr, "mutate: %d of %d mutants, %d survived\n", done, total, survivors)
			}
			killed := false
			if m.woven {
				killed, err = suite.kills(m.number)
			} else {
				killed, err = p.alone(f, m, temporary, o)
			}
			if err != nil {
				return survivors, err
			}
			done++
			if !killed {
				survivors++
				fmt.Printf("%s\t(line %d)\n", m.label(f.name), p.set.Position(m.at).Line)
			}
		}
	}
	fmt.Printf("%d mutants, %d survived\n", total, survivors)
	return survivors, nil
}

// alone tests a mutant that is compiled alone.
func (p *goPackage) alone(f *goFile, m *mutant, temporary string, o options) (killed bool, err error) {
	undo := m.change()
	var source bytes.Buffer
	err = format.Node(&source, p.set, f.tree)
	undo()
	if err != nil {
		return false, err
	}
	return test(temporary, f.name, source.Bytes(), o.packages, o.run, o.limit)
}

// test replaces the source of a file and reports whether the tests then fail or do not compile.
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

// arguments returns the arguments with which the go command runs the tests.
func arguments(packages []string, run string, limit time.Duration, further ...string) []string {
	args := append([]string{"test", "-vet=off", "-failfast", "-timeout", limit.String()}, further...)
	args = append(args, packages...)
	if run != "" {
		args = append(args, "-run", run)
	}
	return args
}

// mutant is one change of a file. change applies it to the syntax tree and returns a function that
// reverts it. edits returns the text edits that apply it behind a condition; if edits is nil, the
// mutant is compiled alone.
type mutant struct {
	at       token.Pos
	function string
	text     string
	change   func() (undo func())
	edits    func(number int) []edit
	number   int  // number that the condition compares, from 1
	woven    bool // compiled together with others
}

// label returns a text that identifies the mutant of a file.
func (m *mutant) label(file string) string {
	return fmt.Sprintf("%s: %s: %s", filepath.Base(file), m.function, m.text)
}

// exchanged maps each operator to the operators that replace it.
var exchanged = map[token.Token][]token.Token{
	token.LSS: {token.LEQ, token.GEQ}, token.LEQ: {token.LSS, token.GTR},
	token.GTR: {token.GEQ, token.LEQ}, token.GEQ: {token.GTR, token.LSS},
	token.EQL: {token.NEQ}, token.NEQ: {token.EQL}, token.LAND: {token.LOR}, token.LOR: {token.LAND},
	token.ADD: {token.SUB}, token.SUB: {token.ADD}, token.MUL: {token.ADD}, token.REM: {token.MUL},
}

// mutants returns all mutants of a file.
func mutants(file *ast.File, info *types.Info) (out []*mutant) {
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		add := func(at token.Pos, text string, edits func(int) []edit, change func() func()) {
			out = append(out, &mutant{at: at, function: f.Name.Name, text: text, change: change, edits: edits})
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BinaryExpr:
				was, text := n.Op, source(n)
				for i, op := range exchanged[was] {
					name, edits := fmt.Sprintf("%s instead of %s in %s", op, was, text), binaryEdits(file, n, i, info)
					add(n.OpPos, name, edits, func() func() {
						n.Op = op
						return func() { n.Op = was }
					})
				}
			case *ast.IfStmt:
				was := n.Cond
				add(n.Pos(), "never if "+source(was), around(was, "((mutant != N) && (", "))"), func() func() {
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

// removals adds mutants, each of which lacks one statement of a list.
func removals(list []ast.Stmt, add func(token.Pos, string, func(int) []edit, func() func())) {
	for i, was := range list {
		edits := around(was, "if mutant != N { ", " }")
		switch s := was.(type) {
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE {
				continue
			}
		case *ast.ExprStmt:
			if strings.HasPrefix(source(s), "panic(") {
				edits = nil // a function that ends with this statement would lack a return
			}
		case *ast.BranchStmt:
			if s.Tok == token.FALLTHROUGH {
				edits = nil
			}
		case *ast.IncDecStmt:
		default:
			continue
		}
		add(was.Pos(), "without "+source(was), edits, func() func() {
			list[i] = &ast.EmptyStmt{}
			return func() { list[i] = was }
		})
	}
}

// source returns a node's source text in one line.
func source(n ast.Node) string {
	var b bytes.Buffer
	if err := format.Node(&b, token.NewFileSet(), n); err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(b.String()), " ")
}
