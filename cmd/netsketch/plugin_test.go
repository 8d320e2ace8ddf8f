// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/yang"
)

// plugin new writes the example plugin with another name. The example's tests check the code
// itself.
func TestPluginNew(t *testing.T) {
	const example = "../../examples/plugin-hello"
	same := filepath.Join(t.TempDir(), "same")
	if _, err := command(t, "", "plugin", "new", "hello", same, "--netsketch", "../.."); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "other")
	if _, err := command(t, "", "plugin", "new", "port-top", other, "--netsketch", "/src/netsketch"); err != nil {
		t.Fatal(err)
	}
	files := 0
	err := filepath.WalkDir(example, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		name := strings.TrimPrefix(path, example)
		want, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		got, err := os.ReadFile(filepath.Join(same, name))
		if err != nil || string(got) != string(want) {
			t.Errorf("%s differs from the example's (%v): run go generate ./cmd/netsketch", name, err)
		}
		renamed, err := os.ReadFile(filepath.Join(other, strings.ReplaceAll(name, "hello", "port-top")))
		if err != nil || strings.Contains(string(renamed), "hello") {
			t.Errorf("%s of another name (%v):\n%s", name, err, renamed)
		}
		return nil
	})
	if err != nil || files < 7 {
		t.Errorf("%d files, %v", files, err)
	}
	module, err := os.ReadFile(filepath.Join(other, "acme-port-top.yang"))
	if err != nil {
		t.Fatal(err)
	}
	schema, err := yang.Load(yang.Module{Text: string(module)})
	if err == nil {
		_, err = schema.List("/acme-port-top:port-top/arrays/array")
	}
	if err != nil {
		t.Error(err)
	}
	mod, err := os.ReadFile(filepath.Join(other, "go.mod"))
	if err != nil || !strings.HasSuffix(string(mod), "replace github.com/netsketch/netsketch => /src/netsketch\n") {
		t.Errorf("go.mod, %v:\n%s", err, mod)
	}
	if strings.Contains(withNetsketch(string(mod), ""), "replace") {
		t.Errorf("go.mod for a published netsketch has a replacement:\n%s", withNetsketch(string(mod), ""))
	}
	for args, want := range map[string]string{
		"Port": `plugin name "Port": expected`, "hello " + same: "exists; name another"} {
		if _, err := command(t, "", append([]string{"plugin", "new"}, strings.Fields(args)...)...); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("plugin new %s: %v, want %q", args, err, want)
		}
	}
}

// Errors about misspelled names of the command line have the name that was meant.
func TestMisspelledNames(t *testing.T) {
	for args, want := range map[string]string{
		"plugin describe unvmon --plugins " + plugins:     `did you mean "univmon"?`,
		"yang show netsketch-univmn --plugins " + plugins: `did you mean "netsketch-univmon"?`,
		"demo --scenaro x":           "unknown flag: --scenaro; did you mean --scenario?",
		"demo --qqqqqqqqqqqqq":       "unknown flag: --qqqqqqqqqqqqq; see netsketch demo --help",
		"plugin list --plugin x":     "did you mean --plugins?",
		"switch --program forwardin": `did you mean "forwarding"?`,
		"versio":                     "Did you mean this?\n\tversion",
	} {
		if _, err := command(t, "", strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
