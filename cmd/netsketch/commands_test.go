// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"go/build"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/lab/scenario"
	"github.com/netsketch/netsketch/settings/yaml"
	"github.com/netsketch/netsketch/yang"
)

// documented is a command that a documentation page shows.
type documented struct {
	place string // file:line
	dir   string // directory of the page
	words []string
	span  bool   // the command is part of a sentence, so arguments may be missing
	page  string // text of the page
	// warned is set if the page mentions the text that gnmi_cli prints around JSON values.
	warned bool
}

// program returns the name of the program without its directory.
func (d *documented) program() string { return filepath.Base(d.words[0]) }

// programs are the programs whose commands are checked.
var programs = []string{"netsketch", "gnmic", "gnmi_cli", "make", "go"}

// documentedCommands returns the commands of all pages below root, in code blocks and in
// sentences.
func documentedCommands(t *testing.T, root string) (all []documented) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != root || d.Name() == "node_modules" ||
			d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		warned := strings.Contains(string(text), "Deprecated TypedValue_JsonVal") ||
			strings.Contains(string(text), "gnmi.md#gnmi_cli")
		for _, c := range commandsOf(string(text)) {
			c.place, c.dir, c.warned, c.page = name+c.place, filepath.Dir(path), warned, string(text)
			all = append(all, c)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var span = regexp.MustCompile("`((?:bin/)?(?:netsketch|gnmic|gnmi_cli|make|go) [^`]+)`")

// commandsOf returns the commands of a page; place is the line.
func commandsOf(page string) (out []documented) {
	lines := strings.Split(page, "\n")
	var block, language string // block is the fence of the current code block
	prompt := false
	for i := 0; i < len(lines); i++ {
		line, text := lines[i], ""
		if fence := strings.TrimLeft(line, " "); strings.HasPrefix(fence, "```") {
			if block != "" {
				block = ""
				continue
			}
			block, language = "```", strings.TrimPrefix(fence, "```")
			rest := strings.Join(lines[i+1:], "\n")
			body, _, _ := strings.Cut(rest, "```")
			prompt = strings.HasPrefix(body, "$ ") || strings.Contains(body, "\n$ ")
			continue
		}
		switch {
		case block != "" && slices.Contains([]string{"", "console", "sh", "bash"}, language):
			text = line
			if prompt && !strings.HasPrefix(text, "$ ") {
				continue // output
			}
		case block == "" && strings.HasPrefix(line, "    "):
			text = line[4:]
		case block == "":
			paragraph := strings.Join(lines[i:min(i+2, len(lines))], " ") // a span may continue on the next line
			for _, m := range span.FindAllStringSubmatchIndex(paragraph, -1) {
				if m[0] < len(line) {
					for _, words := range shellWords(paragraph[m[2]:m[3]]) {
						out = append(out, documented{place: fmt.Sprintf(":%d", i+1), words: words, span: true})
					}
				}
			}
			continue
		}
		first := i
		for (strings.HasSuffix(text, `\`) || strings.Count(text, "'")%2 == 1) && i+1 < len(lines) &&
			slices.ContainsFunc(programs, func(p string) bool { return strings.Contains(text, p+" ") }) {
			i++
			text = strings.TrimSuffix(text, `\`) + " " + lines[i]
		}
		for _, words := range shellWords(strings.TrimPrefix(strings.TrimSpace(text), "$ ")) {
			out = append(out, documented{place: fmt.Sprintf(":%d", first+1), words: words})
		}
	}
	return slices.DeleteFunc(out, func(d documented) bool {
		return !slices.Contains(programs, d.program()) || strings.HasPrefix(d.words[0], "/")
	})
}

var assignment = regexp.MustCompile(`^[A-Z_]+=`)

// shellWords splits a line into the words of its commands, without variables and sudo in front.
func shellWords(line string) (commands [][]string) {
	var words []string
	var word strings.Builder
	quote, quoted := rune(0), false
	end := func(command bool) {
		if word.Len() > 0 || quoted {
			words = append(words, word.String())
		}
		word.Reset()
		quoted = false
		if !command {
			return
		}
		for len(words) > 0 && (assignment.MatchString(words[0]) || words[0] == "sudo" || words[0] == "env") {
			words = words[1:]
		}
		if len(words) > 0 {
			commands = append(commands, words)
		}
		words = nil
	}
	for i, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, quoted = r, true
		case r == ' ' || r == '\t':
			end(false)
		case r == '|' || r == '&' || r == ';' || r == '>':
			end(true)
		case r == '#' && (i == 0 || line[i-1] == ' '):
			end(true)
			return commands
		default:
			word.WriteRune(r)
		}
	}
	end(true)
	return commands
}

// A page's commands are found in blocks and sentences, without output, comments and other programs.
func TestCommandsOfPage(t *testing.T) {
	const page = "Run `make build`, then `go test\n./x`.\n\n```console\n$ bin/netsketch query '/a b' | grep x # why\n" +
		"netsketch.yaml:1: wrong\n```\n\n    sudo env \"P=$P\" gnmic -a x \\\n      get --path /a\n    gnmi_cli -proto '\n" +
		"    subscribe: {}'\n\n```yaml\nmake: x\n```\n"
	var got []string
	for _, c := range commandsOf(page) {
		got = append(got, fmt.Sprintf("%s %q %v", c.place, c.words, c.span))
	}
	want := []string{`:1 ["make" "build"] true`, `:1 ["go" "test" "./x"] true`,
		`:5 ["bin/netsketch" "query" "/a b"] false`, `:9 ["gnmic" "-a" "x" "get" "--path" "/a"] false`,
		`:11 ["gnmi_cli" "-proto" "     subscribe: {}"] false`}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// pathsIn are the arguments of flags with gNMI paths.
func pathsIn(words []string, flag string) (paths []string) {
	for i, w := range words[:max(len(words)-1, 0)] {
		if w == flag {
			paths = append(paths, words[i+1])
		}
	}
	return paths
}

// Every command in README and docs is accepted by its program: those that read results are run
// against a system that is at work, others are checked without effects.
func TestDocumentedCommands(t *testing.T) {
	repository, err := testkit.Root()
	if err != nil {
		t.Fatal(err)
	}
	all := documentedCommands(t, repository)
	models, err := loadModels(t.Context(), plugins)
	if err != nil {
		t.Fatal(err)
	}
	var reads []documented
	for _, c := range all {
		var err error
		switch c.program() {
		case "netsketch":
			err = checkNetsketch(repository, &c)
			others := []string{"--address", "--text", "--watch"} // other servers, other results, no end
			if !c.span && len(c.words) > 1 && c.words[1] == "query" &&
				!slices.ContainsFunc(c.words, func(w string) bool { return slices.Contains(others, w) }) {
				reads = append(reads, c)
			}
		case "gnmic":
			err = checkGnmic(models, &c)
		case "gnmi_cli":
			reads = append(reads, c)
		case "make":
			err = checkMake(repository, &c)
		case "go":
			err = checkGo(repository, &c)
		}
		if err != nil {
			t.Errorf("%s: %s: %v", c.place, strings.Join(c.words, " "), err)
		}
	}
	if len(all) < 100 || len(reads) < 10 {
		t.Errorf("%d commands found, %d of them read results", len(all), len(reads))
	}
	t.Run("gnmic.yaml", func(t *testing.T) { checkGnmicFile(t, models) })
	t.Run("read", func(t *testing.T) { readResults(t, models, reads) })
}

// readResults runs clients against a collector that has measured an epoch of the demo.
func readResults(t *testing.T, models *models, commands []documented) {
	s, err := scenario.Default()
	if err != nil {
		t.Fatal(err)
	}
	s.Epochs = 1
	for i := range s.Traffic { // the values do not matter
		s.Traffic[i].Rate /= 4
	}
	run, err := scenario.Open(t.Context(), s, scenario.Options{PluginDir: plugins, Listen: "127.0.0.1:0", Virtual: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := run.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := run.Play(t.Context()); err != nil {
		t.Fatal(err)
	}
	client := gnmiCLI()
	if client == "" {
		t.Log("gnmi_cli's lines are checked for their paths only: install it with " +
			"go install github.com/openconfig/gnmi/cmd/gnmi_cli@v0.14.1")
	}
	for _, c := range commands {
		line := strings.Join(c.words, " ")
		words := slices.Clone(c.words)
		for i := range words {
			words[i] = strings.ReplaceAll(words[i], "127.0.0.1:9339", run.Address())
		}
		paths := pathsIn(words, "-q")
		if c.program() == "netsketch" {
			paths = slices.DeleteFunc(slices.Clone(words[2:]), func(w string) bool { return !strings.HasPrefix(w, "/") })
		}
		served := !strings.Contains(line, `"sketchint"`) // the system serves the role
		for _, p := range paths {
			if err := models.find(p); err != nil {
				if !strings.HasPrefix(p, "/acme-") && !strings.HasPrefix(p, "/chamelemon") {
					t.Errorf("%s: %s: %v", c.place, line, err)
				}
				served = false
			}
			served = served && !strings.HasPrefix(p, "/chamelemon")
		}
		switch {
		case !served:
		case c.program() == "netsketch":
			if out, err := runQuery(append(words[2:], "--address", run.Address())...); err != nil || out == "" {
				t.Errorf("%s: %s: %v\n%s", c.place, line, err, out)
			}
		case client != "":
			if err := runGnmiCLI(t.Context(), client, words[1:], c.warned); err != nil {
				t.Errorf("%s: %s: %v", c.place, line, err)
			}
		}
	}
}

// find returns an error if a path is not in the modules.
func (m *models) find(text string) error {
	path, err := yang.ParsePath(text)
	if err != nil {
		return err
	}
	at := m.schema.Root()
	for _, e := range path.GetElem() {
		below := at.Child(e.GetName())
		if below == nil {
			return fmt.Errorf("there is no %q below %q", e.GetName(), at.Path)
		}
		for key := range e.GetKey() {
			if !slices.Contains(below.KeyNames(), key) {
				return fmt.Errorf("%s has no key %q", below.Path, key)
			}
		}
		at = below
	}
	return nil
}

// gnmiCLI returns the path of OpenConfig's client, empty if it is not installed.
func gnmiCLI() string {
	if path, err := exec.LookPath("gnmi_cli"); err == nil {
		return path
	}
	path, err := exec.LookPath(filepath.Join(build.Default.GOPATH, "bin", "gnmi_cli"))
	if err != nil {
		return ""
	}
	return path
}

// runGnmiCLI runs the client until it ends, or until it has printed a line if it streams. Only on a
// page that says so may it call values deprecated.
func runGnmiCLI(ctx context.Context, client string, args []string, warned bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	streams := slices.Contains(args, "streaming")
	cmd := exec.CommandContext(ctx, client, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines, deprecated := 0, false
	for scan := bufio.NewScanner(out); scan.Scan() && !(streams && lines > 0); lines++ {
		deprecated = deprecated || strings.Contains(scan.Text(), "Deprecated")
	}
	if streams {
		_ = cmd.Process.Kill()
	}
	err = cmd.Wait()
	switch {
	case err != nil && !(streams && lines > 0):
		return fmt.Errorf("%w: %s", err, stderr.String())
	case lines == 0:
		return fmt.Errorf("no output; %s", stderr.String())
	case deprecated && !warned:
		return errors.New("it calls values deprecated: the page lacks the reason, or encoding: PROTO")
	}
	return nil
}

// checkNetsketch parses flags and arguments, and looks for the files of the repository.
func checkNetsketch(repository string, c *documented) error {
	cmd, rest, err := root().Find(c.words[1:])
	if err != nil {
		return err
	}
	placeholders := slices.ContainsFunc(rest, func(w string) bool { return strings.ContainsAny(w, "…") })
	if placeholders && c.span {
		return nil
	}
	if cmd.HasParent() && cmd.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return fmt.Errorf("there is no such subcommand of %q", cmd.CommandPath())
	}
	if cmd.Name() == "replay" && len(rest) > 0 && !strings.Contains(c.page, "record: "+rest[0]) {
		return fmt.Errorf("the page does not say how %s is made: by the key record of a plugin", rest[0])
	}
	if c.span { // values of flags may be missing
		for _, w := range rest {
			name, _, _ := strings.Cut(strings.TrimPrefix(w, "--"), "=")
			if strings.HasPrefix(w, "--") && cmd.Flag(name) == nil && cmd.InheritedFlags().Lookup(name) == nil &&
				name != "help" {
				return fmt.Errorf("%q has no flag --%s", cmd.CommandPath(), name)
			}
		}
		return nil
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if err := errors.Join(cmd.ValidateArgs(cmd.Flags().Args()), cmd.ValidateFlagGroups()); err != nil {
		return err
	}
	for _, w := range rest {
		if strings.HasPrefix(w, "examples/") || strings.HasPrefix(w, "configs/") {
			if _, err := os.Stat(filepath.Join(repository, w)); err != nil {
				return err
			}
		}
	}
	return nil
}

// gnmicFlags are the flags of gnmic 0.45 by command, "" for the global ones, from its documentation
// (docs/global_flags.md and docs/cmd in its repository). The value states what a flag takes: "" for
// nothing, "any", "path", or the words of which it takes one.
var gnmicFlags = map[string]map[string]string{
	"": {"-a": "any", "--address": "any", "--insecure": "", "--skip-verify": "", "-u": "any", "--username": "any",
		"-p": "any", "--password": "any", "--tls-ca": "any", "--tls-cert": "any", "--tls-key": "any",
		"--tls-server-name": "any", "-e": "json bytes proto ascii json_ietf",
		"--encoding": "json bytes proto ascii json_ietf",
		"--format":   "json protojson prototext event flat", "--file": "any", "--dir": "any", "--exclude": "any",
		"--config": "any", "--timeout": "any", "--no-prefix": "", "--log": ""},
	"capabilities": {},
	"get": {"--path": "path", "--prefix": "path", "--target": "any", "--type": "all config state operational",
		"--values-only": "", "--model": "any", "--depth": "any"},
	"subscribe": {"--path": "path", "--prefix": "path", "--target": "any", "--set-target": "", "--name": "any",
		"--mode": "once stream poll", "--stream-mode": "on-change on_change sample target-defined target_defined",
		"--sample-interval": "any", "--heartbeat-interval": "any", "--suppress-redundant": "", "--updates-only": "",
		"--quiet": "", "--output": "any"},
	"path": {"--types": "", "--path-type": "xpath gnmi", "--search": "", "--descr": "", "--config-only": "",
		"--state-only": "", "--with-non-leaves": ""},
}

// checkGnmic checks a command of gnmic against its documentation, and its paths against the
// modules.
func checkGnmic(m *models, c *documented) error {
	command := ""
	for i := 1; i < len(c.words); i++ {
		word := c.words[i]
		if !strings.HasPrefix(word, "-") {
			if _, ok := gnmicFlags[word]; !ok || command != "" {
				return fmt.Errorf("unknown command %q", word)
			}
			command = word
			continue
		}
		takes, ok := gnmicFlags[""][word]
		if !ok {
			takes, ok = gnmicFlags[command][word]
		}
		switch {
		case !ok:
			return fmt.Errorf("gnmic %s has no flag %s", command, word)
		case takes == "":
			continue
		case i+1 == len(c.words):
			if c.span {
				return nil
			}
			return fmt.Errorf("%s needs a value", word)
		}
		i++
		value := c.words[i]
		switch {
		case takes == "path" && !strings.HasPrefix(value, "/acme-"): // a plugin that is not shipped
			if err := m.find(value); err != nil && !strings.Contains(strings.Join(c.words, " "), "target '*'") {
				return err
			}
		case takes != "any" && takes != "path" && !slices.Contains(strings.Fields(takes), strings.ToLower(value)):
			return fmt.Errorf("%s %s: expected one of %s", word, value, takes)
		}
	}
	if command == "" && !c.span {
		return errors.New("no command")
	}
	return nil
}

var makeTarget = regexp.MustCompile(`(?m)^([a-z0-9-]+):`)

// checkMake looks for the targets in the Makefile of the page's directory, or in the repository's
// if the directory has none.
func checkMake(repository string, c *documented) error {
	text, err := os.ReadFile(filepath.Join(c.dir, "Makefile"))
	if err != nil {
		if text, err = os.ReadFile(filepath.Join(repository, "Makefile")); err != nil {
			return err
		}
	}
	targets := makeTarget.FindAllStringSubmatch(string(text), -1)
	for _, w := range c.words[1:] {
		known := slices.ContainsFunc(targets, func(t []string) bool { return t[1] == w })
		if !known && !strings.Contains(w, "=") && w != "TARGET" && w != "-k" {
			return fmt.Errorf("there is no target %q", w)
		}
	}
	return nil
}

// goTestFlags are flags of go test, with a value or without.
var goTestFlags = map[string]bool{"-run": true, "-bench": true, "-benchtime": true, "-fuzz": true, "-fuzztime": true,
	"-count": true, "-cpu": true, "-timeout": true, "-tags": true, "-overlay": true, "-v": false, "-race": false,
	"-short": false}

// checkGo looks for the packages of go test and go run, and for the tests that -run selects. A flag
// of the test's own must follow the packages.
func checkGo(repository string, c *documented) error {
	if len(c.words) < 2 || c.words[1] != "test" && c.words[1] != "run" {
		return nil
	}
	var packages []string
	selected := ""
	for i := 2; i < len(c.words); i++ {
		w := c.words[i]
		value, isFlag := goTestFlags[w]
		switch {
		case w == "-C" && i+1 < len(c.words): // packages are in another module of the repository
			i++
			repository = filepath.Join(repository, c.words[i])
		case strings.HasPrefix(w, "-") && c.words[1] == "test" && !isFlag:
			if packages == nil {
				return fmt.Errorf("the package must precede %s, a flag of the test", w)
			}
		case isFlag && value && i+1 < len(c.words):
			if i++; w == "-run" || w == "-fuzz" || w == "-bench" {
				selected = c.words[i]
			}
		case strings.HasPrefix(w, "."):
			packages = append(packages, w)
		}
		if c.words[1] == "run" && packages != nil {
			break
		}
	}
	for _, p := range packages {
		dir := filepath.Join(repository, strings.TrimSuffix(p, "/..."))
		if strings.HasPrefix(c.dir, filepath.Join(repository, "examples")) && !strings.HasPrefix(p, "./examples") {
			if own := filepath.Join(c.dir, p); filepath.Clean(p) == "." || isDir(own) {
				dir = own
			}
		}
		if strings.Contains(p, "NAME") {
			continue
		}
		found, err := declares(dir, selected, strings.HasSuffix(p, "..."))
		if err != nil {
			return err
		}
		if !found {
			return fmt.Errorf("no test, benchmark or fuzz target of %s matches %q", p, selected)
		}
	}
	return nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

var testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)[A-Za-z0-9_]*)\(`)

// declares reports whether a directory has a function that the expression selects.
func declares(dir, expression string, below bool) (bool, error) {
	first, _, _ := strings.Cut(expression, "/")
	selects, err := regexp.Compile(first)
	if err != nil {
		return false, err
	}
	found := expression == "" || expression == "^$" || expression == "."
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != dir && !below:
			return filepath.SkipDir
		case found || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range testFunction.FindAllStringSubmatch(string(text), -1) {
			found = found || selects.MatchString(m[1])
		}
		return err
	})
	return found, err
}

// checkGnmicFile checks that the configuration for gnmic has keys that gnmic documents
// (docs/user_guide/subscriptions.md and docs/user_guide/outputs/prometheus_output.md in its
// repository), and paths that are served.
func checkGnmicFile(t *testing.T, models *models) {
	section, err := yaml.Load("../../configs/gnmic.yaml")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]string{
		"":              "address insecure encoding subscriptions outputs",
		"subscriptions": "paths mode stream-mode sample-interval heartbeat-interval target encoding",
		"outputs":       "type listen path expiration metric-prefix export-timestamps strings-as-labels",
	}
	check := func(where string, keys map[string]any) {
		for key := range keys {
			if !slices.Contains(strings.Fields(known[where]), key) {
				t.Errorf("%s: gnmic has no key %q", where, key)
			}
		}
	}
	top, ok := section.Value().(map[string]any)
	if !ok {
		t.Fatalf("not an object: %v", section.Value())
	}
	check("", top)
	paths := 0
	for _, part := range []string{"subscriptions", "outputs"} {
		for name, value := range top[part].(map[string]any) {
			keys := value.(map[string]any)
			check(part, keys)
			list, _ := keys["paths"].([]any)
			for _, p := range list {
				paths++
				if err := models.find(p.(string)); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
	if paths == 0 {
		t.Error("no paths")
	}
}
