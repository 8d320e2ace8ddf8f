// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/netsketch/netsketch/"

// importRule is a row of the table in architecture.md: the packages that it holds for, and what
// they may import.
type importRule struct{ packages, imports []*regexp.Regexp }

var importTable = regexp.MustCompile(`(?m)^\| packages \|.*\| may import \|\n.*\n((?:\|.*\n)+)`)

func importRules(t *testing.T) (rules []importRule) {
	t.Helper()
	table := importTable.FindStringSubmatch(read(t, "architecture.md"))
	if table == nil {
		t.Fatal("architecture.md has no table of packages and what they may import")
	}
	for row := range strings.Lines(table[1]) {
		cells := strings.Split(row, "|")
		rules = append(rules, importRule{patterns(cells[1]), patterns(cells[3])})
	}
	return rules
}

// patterns compiles the patterns in a cell. Patterns of this project's packages have no module
// path.
func patterns(cell string) (list []*regexp.Regexp) {
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
		path := m[1]
		if path == "..." || !strings.Contains(strings.Split(path, "/")[0], ".") {
			path = module + path
		}
		expression := strings.ReplaceAll(regexp.QuoteMeta(path), `\*`, `[^/]+`)
		list = append(list, regexp.MustCompile("^"+strings.Replace(expression, `/\.\.\.`, `(/.*)?`, 1)+"$"))
	}
	return list
}

func anyMatches(list []*regexp.Regexp, path string) bool {
	return slices.ContainsFunc(list, func(p *regexp.Regexp) bool { return p.MatchString(path) })
}

// allowed reports whether the rules allow a package to import a path.
func allowed(rules []importRule, pkg, path string) bool {
	named := func(r importRule) bool { return anyMatches(r.imports, path) }
	if !strings.HasPrefix(path, module) && !slices.ContainsFunc(rules, named) {
		return true
	}
	for _, r := range slices.Backward(rules) {
		if anyMatches(r.packages, pkg) {
			together := func(p *regexp.Regexp) bool { return p.MatchString(pkg) && p.MatchString(path) }
			return named(r) || slices.ContainsFunc(r.packages, together)
		}
	}
	return false
}

// TestImports checks the imports of every package, on all platforms, against the table.
func TestImports(t *testing.T) {
	rules := importRules(t)
	checked := 0
	for _, file := range goFiles(t) {
		directory, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range parsed.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if !allowed(rules, module+filepath.ToSlash(directory), path) {
				t.Errorf("%s imports %s: the table of docs/architecture.md does not allow it", file, path)
			}
			checked++
		}
	}
	if checked < 1000 {
		t.Errorf("checked %d imports, expected those of the whole repository", checked)
	}
}

// compressor is what lets a gRPC server read compressed messages.
const compressor = "google.golang.org/grpc/encoding/gzip"

// uncompressed returns the packages that make gRPC servers without importing the compressor, by
// themselves or through a package that they import.
func uncompressed(imports map[string][]string, servers []string) (without []string) {
	for _, s := range servers {
		has := func(pkg string) bool { return slices.Contains(imports[pkg], compressor) }
		if !has(s) && !slices.ContainsFunc(imports[s], has) {
			without = append(without, s)
		}
	}
	return without
}

// TestServersDecompress: clients may compress what they send to any gRPC server of this project.
func TestServersDecompress(t *testing.T) {
	imports, servers := map[string][]string{}, []string{}
	for _, file := range goFiles(t) {
		directory, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			t.Fatal(err)
		}
		pkg := module + filepath.ToSlash(directory)
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range parsed.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			imports[pkg] = append(imports[pkg], path)
		}
		if strings.Contains(read(t, file), "grpc.NewServer(") && !slices.Contains(servers, pkg) {
			servers = append(servers, pkg)
		}
	}
	if len(servers) < 10 {
		t.Errorf("%d packages make gRPC servers: %q", len(servers), servers)
	}
	for _, pkg := range uncompressed(imports, servers) {
		t.Errorf("%s makes a gRPC server: import %q, because clients may compress", pkg, compressor)
	}
	example := map[string][]string{"a": {"b"}, "b": {compressor}, "c": {"a"}}
	if got := uncompressed(example, []string{"a", "b", "c"}); !slices.Equal(got, []string{"c"}) {
		t.Errorf("without the compressor: %q", got)
	}
}

// TestForbiddenImports holds the table and its reader to imports that must stay forbidden.
func TestForbiddenImports(t *testing.T) {
	rules := importRules(t)
	for _, c := range []struct {
		pkg, path string
		want      bool
	}{
		{"sketch/tower", module + "yang", false},
		{"sketch/tower", module + "sketch/family", true},
		{"hostagent/omnimon", module + "plugins/omnimon/linear", false},
		{"hostagent/omnimon", module + "hostagent/univmon/wire", false},
		{"hostagent/omnimon/wire", module + "hostagent/omnimon", false},
		{"plugins/omnimon/plugin", module + "hostagent/omnimon/query", true},
		{"plugins/omnimon/plugin", module + "hostagent/omnimon", false},
		{"plugins/omnimon/plugin", module + "plugins/univmon/manifest", false},
		{"collector/epoch", module + "collector/device", false},
		{"collector/unlisted", module + "collector/epoch", false},
		{"outputs/web", module + "outputs/influxdb", false},
		{"outputs/web", module + "collector/network", false},
		{"collector/cluster", "github.com/nats-io/nats-server/v2/server", false},
		{"collector/cluster/bus/natsserver", "github.com/nats-io/nats-server/v2/server", true},
		{"collector/cluster", "github.com/nats-io/nats.go", true},
		{"collector/cluster", "os", true},
		{"collector", module + "lab", false},
		{"cmd/netsketch", module + "lab/scenario", true},
	} {
		if got := allowed(rules, module+c.pkg, c.path); got != c.want {
			t.Errorf("%s imports %s: allowed is %t, want %t", c.pkg, c.path, got, c.want)
		}
	}
}
