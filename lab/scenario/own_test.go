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

// The example of a program, a plugin and an agent of one's own is played from its files and scored
// by its own declaration.
func TestOwnProgram(t *testing.T) {
	if testing.Short() {
		t.Skip("builds binaries, which takes long: run it without -short, as make test does")
	}
	const example = "../../examples/cocosketch"
	dir := t.TempDir()
	for name, pkg := range map[string]string{"netsketch-plugin-cocosketch": ".", "hostagent-cocosketch": "./agent"} {
		build := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(dir, name), pkg)
		build.Dir = example
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	if err := os.CopyFS(filepath.Join(dir, "p4"), os.DirFS(filepath.Join(example, "p4"))); err != nil {
		t.Fatal(err)
	}
	for name, program := range map[string]string{"scenario.yaml": "cocosketch.json", "hosts.yaml": "forwarding"} {
		text, err := os.ReadFile(filepath.Join(example, name))
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, name)
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
		if err != nil || !report.OK || len(report.Expected) != 7 ||
			!slices.Equal(report.Plugins, []string{"cocosketch"}) || report.Program != program {
			out, _ := json.Marshal(report.Expected)
			t.Errorf("%s: %v, plugins %v, program %s: %s", name, err, report.Plugins, report.Program, out)
		}
	}
}

// An agent's program that serves no role ends the run, with its name.
func TestOwnAgentFails(t *testing.T) {
	s, err := Parse("s", []byte("epochs: 1\nprogram: forwarding\nagents: [/bin/true]\n"+
		"traffic: [{name: a, rate: 100, flows: 1}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Open(t.Context(), s, Options{Virtual: true, PluginDir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err == nil || !strings.Contains(err.Error(), "agent /bin/true: ") {
		t.Errorf("%v, want the name of the agent", err)
	}
	if r != nil {
		_ = r.Close()
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
