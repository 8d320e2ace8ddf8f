// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/internal/test/testkit"
)

// checker looks at commands of Makefiles, scripts, units and go:generate lines.
type checker struct {
	repository string
	top        []string          // directories of the repository
	built      map[string]string // program that go build -o writes: its package's directory
	variables  map[string]bool   // NETSKETCH_ variables that some program or test reads
	commands   int
}

func newChecker(t *testing.T) *checker {
	t.Helper()
	repository, err := testkit.Root()
	if err != nil {
		t.Fatal(err)
	}
	c := &checker{repository: repository, variables: map[string]bool{},
		built: map[string]string{"netsketch-agent": filepath.Join(repository, "hostagent/command")}}
	quoted := regexp.MustCompile(`"(NETSKETCH_[A-Z0-9_]+)"`)
	seen := map[string]bool{}
	for _, file := range tracked(t, repository) {
		if first, _, below := strings.Cut(file, "/"); below && !seen[first] {
			seen[first] = true
			c.top = append(c.top, first)
		}
		if filepath.Ext(file) == ".go" {
			for _, m := range quoted.FindAllStringSubmatch(text(t, filepath.Join(repository, file)), -1) {
				c.variables[m[1]] = true
			}
		}
	}
	return c
}

// tracked lists the files of the repository.
func tracked(t *testing.T, repository string) []string {
	t.Helper()
	out, err := exec.Command("git", "-C", repository, "ls-files", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Skipf("git ls-files: %v", err) // an archive without its history
	}
	return slices.DeleteFunc(strings.Split(strings.TrimSpace(string(out)), "\n"), func(file string) bool {
		_, err := os.Stat(filepath.Join(repository, file))
		return err != nil
	})
}

func text(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

var (
	reserved = []string{"if", "then", "else", "do", "!", "{", "exec", "nice", "until", "while", "-", ":"}
	pathWord = regexp.MustCompile(`^(?:\./)?([A-Za-z.][\w.-]*)/[\w./*@-]+$`)
	fuzzWord = regexp.MustCompile(`^([\w/]+):(Fuzz\w+)$`)
	variable = regexp.MustCompile(`\b(NETSKETCH_[A-Z0-9_]+)=`)
	option   = regexp.MustCompile(`^--?([a-z][a-z0-9-]*)(?:=|$)`)
)

// separators replaces what ends a command by a semicolon, and removes redirections.
var separators = strings.NewReplacer("2>&1", "", ">&2", "", "2>", ">", "$(", " ; ", "(", " ; ", ")", " ; ", "`", " ; ")

// check returns what is wrong with the commands of a line of shell that runs in a directory.
func (c *checker) check(dir, line string) error {
	var errs []error
	for _, m := range variable.FindAllStringSubmatch(line, -1) {
		if !c.variables[m[1]] && !c.isOfPackage(m[1]) {
			errs = append(errs, fmt.Errorf("no Go program or test reads %s", m[1]))
		}
	}
	line = separators.Replace(strings.TrimLeft(line, "@-+ \t"))
	for _, words := range shellWords(line) {
		for len(words) > 0 && (slices.Contains(reserved, words[0]) || assignment.MatchString(words[0])) {
			words = words[1:]
		}
		if len(words) == 0 {
			continue
		}
		if words[0] == "cd" && len(words) > 1 {
			if !strings.Contains(words[1], "$") {
				dir = c.resolve(dir, words[1])
			}
			continue
		}
		if err := c.command(dir, words); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", strings.Join(words, " "), err))
		}
	}
	return errors.Join(errs...)
}

// isOfPackage reports whether a variable is read by something else than a Go program: the package's
// configuration.
func (c *checker) isOfPackage(name string) bool {
	data, err := os.ReadFile(filepath.Join(c.repository, "packaging/nfpm.yaml"))
	return err == nil && bytes.Contains(data, []byte("${"+name+"}"))
}

func (c *checker) resolve(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

func (c *checker) command(dir string, words []string) error {
	if strings.Contains(dir, ".cache") {
		return nil // sources of another program
	}
	var errs []error
	for _, w := range words { // words that name files
		w = w[strings.LastIndexAny(w, "=,")+1:]
		if f := fuzzWord.FindStringSubmatch(w); f != nil {
			if found, err := declares(filepath.Join(c.repository, f[1]), "^"+f[2]+"$", false); err != nil || !found {
				errs = append(errs, fmt.Errorf("%s has no %s", f[1], f[2]))
			}
			continue
		}
		m := pathWord.FindStringSubmatch(strings.TrimSuffix(w, "/..."))
		if m == nil || !slices.Contains(c.top, m[1]) {
			continue
		}
		w = strings.TrimSuffix(w, "/...")
		here, _ := filepath.Glob(filepath.Join(dir, w))
		there, _ := filepath.Glob(filepath.Join(c.repository, w))
		if len(here) == 0 && (len(there) == 0 || strings.HasPrefix(w, "./")) {
			errs = append(errs, fmt.Errorf("%s is not there", w))
		}
	}
	switch program := filepath.Base(words[0]); program {
	case "go":
		c.commands++
		errs = append(errs, c.goCommand(dir, words))
	case "make":
		c.commands++
		if i := slices.IndexFunc(words, func(w string) bool { return strings.Contains(w, "=") }); i > 0 {
			words = words[:i+1] // echo prints the value without its quotes
		}
		errs = append(errs, checkMake(c.repository, &documented{dir: dir, words: words}))
	case "netsketch":
		c.commands++
		if !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(w, "$") }) {
			errs = append(errs, checkNetsketch(c.repository, &documented{dir: dir, words: words}))
		}
	default:
		if p, ok := c.built[program]; ok {
			c.commands++
			errs = append(errs, declaresFlags(p, words[1:], false))
		}
	}
	return errors.Join(errs...)
}

// goCommand checks packages, tests and flags, and remembers what go build writes.
func (c *checker) goCommand(dir string, words []string) error {
	if len(words) < 2 || !slices.Contains([]string{"test", "run", "build", "vet", "generate"}, words[1]) ||
		!strings.HasPrefix(dir, c.repository) {
		return nil
	}
	var packages []string
	output, selected := "", ""
	i := 2
	for ; i < len(words); i++ {
		w := words[i]
		next := ""
		if i+1 < len(words) {
			next = words[i+1]
		}
		switch w {
		case "-C":
			if strings.Contains(next, "$") {
				return nil // the loop over fuzz targets, which are checked themselves
			}
			dir = c.resolve(dir, next)
			i++
		case "-o":
			output = filepath.Base(next)
			i++
		case "-run", "-bench", "-fuzz":
			if next != "^$" && next != "xxx" {
				selected = next
			}
			i++
		case "-ldflags", "-tags", "-count", "-timeout", "-benchtime", "-fuzztime", "-fuzzminimizetime", "-cpu":
			i++
		default:
			if !strings.HasPrefix(w, "-") {
				packages = append(packages, w)
			}
		}
		if len(packages) > 0 && (words[1] == "run" || i+1 < len(words) && strings.HasPrefix(words[i+1], "-") &&
			!slices.Contains([]string{"-run", "-bench", "-update"}, words[i+1])) {
			i++
			break // flags of the program, or of the tests
		}
	}
	var errs []error
	for _, p := range packages {
		below := strings.HasSuffix(p, "/...")
		if p == "./..." || !strings.HasPrefix(p, ".") { // every package, another module, a variable
			continue
		}
		at := c.resolve(dir, strings.TrimSuffix(p, "/..."))
		if sources, _ := filepath.Glob(filepath.Join(at, "*.go")); len(sources) == 0 && !below {
			errs = append(errs, fmt.Errorf("there is no package %s", p))
			continue
		}
		if output != "" {
			c.built[output] = at
		}
		for alternative := range strings.SplitSeq(selected, "|") {
			switch found, err := declares(at, alternative, below); {
			case err != nil:
				errs = append(errs, fmt.Errorf("%s: %w", p, err))
			case !found:
				errs = append(errs, fmt.Errorf("no test, benchmark or fuzz target of %s matches %q", p, alternative))
			}
		}
		if words[1] == "test" || words[1] == "run" {
			errs = append(errs, declaresFlags(at, words[min(i, len(words)):], words[1] == "test"))
		}
	}
	if output == "" && words[1] == "build" && len(packages) == 0 {
		c.built[filepath.Base(dir)] = dir
	}
	return errors.Join(errs...)
}

// declaresFlags looks for the flags among the words in the sources of a program, or of tests.
func declaresFlags(dir string, words []string, tests bool) error {
	sources, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return err
	}
	var all strings.Builder
	for _, path := range sources {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if strings.HasSuffix(path, "_test.go") == tests {
			all.Write(data)
		}
	}
	for _, w := range words {
		m := option.FindStringSubmatch(w)
		if m == nil || tests && slices.Contains([]string{"args", "v", "count", "run"}, m[1]) {
			continue
		}
		golden := tests && m[1] == "update" && strings.Contains(all.String(), "internal/test/golden")
		if !strings.Contains(all.String(), `"`+m[1]+`"`) && !golden {
			return fmt.Errorf("%s has no flag -%s", filepath.Base(dir), m[1])
		}
	}
	return nil
}

// joined returns the lines of a script with their continuation lines, without comments.
func joined(script string) []string {
	lines := strings.Split(strings.ReplaceAll(script, "\\\n", " "), "\n")
	return slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(strings.TrimSpace(l), "#") })
}

// What Makefiles, scripts, units and go:generate lines run exists: targets, packages, flags, files,
// and tests, since go test passes if no test has the name that -run selects.
func TestBuildCommands(t *testing.T) {
	c := newChecker(t)
	for _, file := range tracked(t, c.repository) {
		path := filepath.Join(c.repository, file)
		dir, before := filepath.Dir(path), c.commands
		var lines []string
		switch {
		case filepath.Base(file) == "Makefile":
			lines = recipes(t, dir)
		case filepath.Ext(file) == ".sh" || strings.HasPrefix(file, ".ci/") && filepath.Ext(file) == "":
			lines = joined(text(t, path))
			if !strings.HasPrefix(file, "examples/bmv2") {
				dir = c.repository
			}
		case filepath.Ext(file) == ".service":
			for _, l := range joined(text(t, path)) {
				if key, command, _ := strings.Cut(l, "="); strings.HasPrefix(key, "Exec") {
					lines = append(lines, command)
				}
			}
		case filepath.Ext(file) == ".go":
			for _, l := range strings.Split(text(t, path), "\n") {
				if command, ok := strings.CutPrefix(l, "//go:generate "); ok {
					lines = append(lines, command)
				}
			}
		}
		for _, l := range lines {
			if err := c.check(dir, l); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
		if c.commands == before && (filepath.Ext(file) == ".service" || file == "Makefile" || file == ".ci/run") {
			t.Errorf("%s: no command was found", file)
		}
	}
	if c.commands < 80 {
		t.Errorf("only %d commands were found", c.commands)
	}
}

// recipes returns what make runs for all targets of the Makefile in a directory.
func recipes(t *testing.T, dir string) []string {
	t.Helper()
	makefile := filepath.Join(dir, "Makefile")
	var targets []string
	for _, m := range makeTarget.FindAllStringSubmatch(text(t, makefile), -1) {
		targets = append(targets, m[1])
	}
	// With -n, make still runs lines with $(MAKE), which then print the commands of their targets.
	cmd := exec.Command("make", append([]string{"-C", dir, "-n", "-B", "--no-print-directory", "MAKE=echo make", "GO=go",
		"LOAD=0"}, targets...)...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "MAKE") })
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("make -n in %s: %v\n%s", dir, err, out)
	}
	return joined(string(out))
}

func TestBuildCommandsFindsFaults(t *testing.T) {
	c := newChecker(t)
	c.built["netsketch-harm"] = filepath.Join(c.repository, "lab/harm")
	for line, right := range map[string]bool{
		"go run ./internal/test/mutate -known sketch/estimate/testdata/mutants.txt ./sketch/estimate":   true,
		"go run ./internal/mutate ./sketch/estimate":                                                    false,
		"go run ./internal/test/mutate -all ./sketch/estimate":                                          false,
		"go run ./internal/test/mutate -known sketch/estimate/mutants.txt ./sketch/estimate":            false,
		"@out=$(mktemp); NETSKETCH_DISKS=1 go test -run 'TestFullDisk' -count 1 ./collector | tee $out": true,
		"NETSKETCH_FULL=1 go test -run TestFullDisk ./collector":                                        false,
		"go test -run 'TestFullDisk|TestFullTape' ./collector":                                          false,
		"go test -run Model -count 1 ./collector/cluster/ownership -args -full":                         true,
		"go test -run Model -count 1 ./collector/cluster/ownership -args -whole":                        false,
		"if true; then make console-check":                                                              true,
		"if true; then make consoles-check":                                                             false,
		"cd lab/figures && go build -o bin/figures ./sketches":                                          true,
		"cd lab/figure && go test ./sketches":                                                           false,
		"FUZZ=p4/softswitch:FuzzPacket make fuzz":                                                       true,
		"make fuzz FUZZ=p4/softswitch:FuzzPackets":                                                      false,
		"/work/bin/netsketch-harm -bin /work/bin -parallel 2 -quick":                                    true,
		"/work/bin/netsketch-harm -bin /work/bin -fast":                                                 false,
		"bin/netsketch demo --scenario examples/univmon/isp.yaml --virtual":                             true,
		"bin/netsketch demo --scenario examples/univmon/wan.yaml --virtual":                             false,
		"/usr/local/bin/netsketch-agent strip --wait 5s --config /etc/netsketch/agent.yaml":             true,
		"/usr/local/bin/netsketch-agent strip --waits 5s":                                               false,
		"netsketch collector --file /etc/netsketch/netsketch.yaml":                                      false,
	} {
		if err := c.check(c.repository, line); (err == nil) != right {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// TestUnitsStartAgain: a service that is to be started again always is. By default systemd gives up
// after five starts within 10 s.
func TestUnitsStartAgain(t *testing.T) {
	units, err := filepath.Glob("../../configs/systemd/*.service")
	if err != nil || len(units) < 4 {
		t.Fatal(units, err)
	}
	pause := regexp.MustCompile(`(?m)^RestartSec=(\d+)$`)
	for _, name := range units {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "\nRestart=always\n") ||
			strings.Contains(string(text), "\nStartLimitIntervalSec=0\n") {
			continue
		}
		seconds := 0
		if m := pause.FindSubmatch(text); m != nil {
			seconds, _ = strconv.Atoi(string(m[1])) // digits
		}
		if 4*seconds <= 10 {
			t.Errorf("%s: five starts take %d s", name, 4*seconds)
		}
	}
}
