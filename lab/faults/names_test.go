// SPDX-License-Identifier: Apache-2.0

// The names of what cases read. A check that reads a name which nobody publishes finds nothing, and
// would pass or fail for a reason that is not the product's.

package faults

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	gpb "github.com/openconfig/gnmi/proto/gnmi"

	"github.com/netsketch/netsketch/internal/test/yangtest"
	"github.com/netsketch/netsketch/outputs/influxdb"
	"github.com/netsketch/netsketch/yang"
)

// published is the schema of what a trial's collector publishes.
var published = sync.OnceValues(func() (*yang.Schema, error) {
	return yang.Load(append(yangtest.Modules(), yang.Module{Name: "acme-faulty", Text: faultyModule})...)
})

// publishedPath returns a path of which the schema has a node.
func publishedPath(text string) (*gpb.Path, error) {
	schema, err := published()
	if err != nil {
		return nil, err
	}
	p, err := yang.ParsePath(text)
	if err == nil {
		err = schema.CheckPath(nil, p)
	}
	return p, err
}

// known is publishedPath; another path ends the trial.
func (t *trial) known(text string) *gpb.Path {
	t.Helper()
	p, err := publishedPath(text)
	if err != nil {
		t.Fatalf("the case reads what is not published: %v", err)
	}
	return p
}

// linePrefix returns the beginning of the lines in which InfluxDB receives the rows of a list.
func linePrefix(list string) string {
	schema, err := published()
	if err == nil {
		_, err = schema.List(list)
	}
	if err != nil {
		panic(err) // a constant
	}
	return influxdb.Measurement(list, true) + ","
}

// reads are the functions of a trial that read a leaf by its name, with the path of the leaf.
var reads = map[string]string{
	"get": "", "number": "", "record": "", "path": "",
	"plugin": "/collector/plugins/plugin/state/", "output": "/collector/outputs/output/state/",
	"device": "/collector/devices/device/state/", "reload": "/collector/reload/state/",
	"outputNumber": "/collector/outputs/output/state/",
}

// recorded are the containers whose leaves a recorder takes.
var recorded = []string{"/collector/epoch/state/", "/univmon/node-summaries/node-summary/state/",
	"/univmon/summary/state/", "/faulty/row/state/"}

// unpublished returns the names that a source file reads and nobody publishes, and the number of
// names that it reads.
func unpublished(file *ast.File) (wrong []string, n int) {
	text := func(e ast.Expr) string {
		if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			s, _ := strconv.Unquote(lit.Value)
			return s
		}
		return ""
	}
	check := func(paths ...string) {
		n++
		var first error
		for _, p := range paths {
			_, err := publishedPath(p)
			if err == nil {
				return
			}
			if first == nil {
				first = err
			}
		}
		wrong = append(wrong, fmt.Sprint(first))
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch x := node.(type) {
		case *ast.CallExpr:
			name := ""
			switch f := x.Fun.(type) {
			case *ast.SelectorExpr:
				name = f.Sel.Name
			case *ast.Ident:
				name = f.Name
			}
			prefix, ok := reads[name]
			if !ok || len(x.Args) == 0 {
				return true
			}
			args := x.Args[len(x.Args)-1:] // the leaf
			if name == "record" {
				args = x.Args
			}
			for _, a := range args {
				if leaf := text(a); leaf != "" {
					check(prefix + leaf)
				}
			}
		case *ast.IndexExpr:
			if of, ok := x.X.(*ast.Ident); ok && of.Name == "row" && text(x.Index) != "" {
				var paths []string
				for _, r := range recorded {
					paths = append(paths, r+text(x.Index))
				}
				check(paths...)
			}
		}
		return true
	})
	return wrong, n
}

// TestNames: every name that a case reads is published.
func TestNames(t *testing.T) {
	packages, err := parser.ParseDir(token.NewFileSet(), ".", nil, 0) //nolint:staticcheck // build tags do not matter
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, p := range packages {
		for _, name := range slices.Sorted(maps.Keys(p.Files)) {
			wrong, n := unpublished(p.Files[name])
			total += n
			for _, w := range wrong {
				t.Errorf("%s: %s", name, w)
			}
		}
	}
	if total < 60 {
		t.Errorf("%d names were found", total)
	}
}

// A wrong name is found, wherever it is read.
func TestNamesFindsFaults(t *testing.T) {
	for _, body := range []string{`t.plugin("univmon", "restart")`, `t.output("influxdb", "spool")`,
		`t.device("leaf1", "connected")`, `t.reload("state")`, `t.outputNumber("drops")`, `t.get("/collector/state/named")`,
		`t.number("/collector/plugins/plugin[node=a]/state/restarts")`, `t.record("/faulty/rows")`, `path("/univ")`,
		`_ = row["accuracy-warning"]`} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\nfunc f() { "+body+" }", 0)
		if err != nil {
			t.Fatal(err)
		}
		if wrong, n := unpublished(file); len(wrong) != 1 || n != 1 {
			t.Errorf("%s: %q of %d", body, wrong, n)
		}
	}
	defer func() {
		if p := recover(); p == nil || !strings.Contains(fmt.Sprint(p), "node-summarys") {
			t.Errorf("a list that does not exist: %v", p)
		}
	}()
	linePrefix("/netsketch-univmon:univmon/node-summaries/node-summarys")
}
