// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The example of a program and a plugin of one's own is played from its files and scored by its own
// declaration.
func TestOwnProgram(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a binary")
	}
	const example = "../../examples/cocosketch"
	dir := t.TempDir()
	build := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(dir, "netsketch-plugin-cocosketch"))
	build.Dir = example
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.CopyFS(filepath.Join(dir, "p4"), os.DirFS(filepath.Join(example, "p4"))); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(example, "scenario.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "scenario.yaml")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Open(t.Context(), s, Options{Virtual: true, PluginDir: dir, Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	report, err := r.Play(t.Context())
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if err != nil || !report.OK || len(report.Expected) != 7 || !slices.Equal(report.Plugins, []string{"cocosketch"}) ||
		report.Program != "cocosketch.json" {
		out, _ := json.Marshal(report.Expected)
		t.Errorf("%v, plugins %v, program %s: %s", err, report.Plugins, report.Program, out)
	}
}

// Errors in scoring name the key and what is expected there.
func TestScoringErrors(t *testing.T) {
	const head = "traffic: [{name: a, rate: 1, flows: 1}]\nscoring: [{root: r, summary: a/b, plugin: "
	measures := func(text string) string { return "x, measures: [{name: m, list: l, " + text + "}]}]" }
	for text, want := range map[string]string{
		"univmon}]": "plugin: univmon is scored without a declaration",

		measures("stat: f2, truth: flow-sizes"):                       "stat: expected",
		measures("stat: f1, truth: sizes"):                            "truth: expected",
		measures("stat: wmre, truth: flow-sizes"):                     "leaf: wmre compares",
		measures("stat: f1, truth: flow-sizes, dimensions: [source]"): `"source"`,
		"x}]\nexpect: [{measure: m, at-least: 1}]":                    `no measure is called "m"`,
	} {
		if _, err := Parse("s", []byte(head+text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
