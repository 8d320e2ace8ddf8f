// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/yang"
)

// plugin new writes the example plugin with another name. The example's tests check the code
// itself.
func TestPluginNew(t *testing.T) {
	const example = "../../examples/plugin-hello"
	checkout, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	same := filepath.Join(t.TempDir(), "same")
	if _, err := command(t, "", "plugin", "new", "hello", same, "--netsketch", "../.."); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "other")
	if _, err := command(t, "", "plugin", "new", "port-top", other, "--netsketch", checkout); err != nil {
		t.Fatal(err)
	}
	files := 0
	err = filepath.WalkDir(example, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		name := strings.TrimPrefix(path, example)
		want, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if name == "/go.mod" {
			want = bytes.ReplaceAll(want, []byte("=> ../.."), []byte("=> "+checkout))
		}
		got, err := os.ReadFile(filepath.Join(same, name))
		if err != nil || string(got) != string(want) {
			t.Errorf("%s differs from the example's (%v): run go generate ./internal/scaffold", name, err)
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
	if err != nil || !strings.HasPrefix(string(mod), "module example.com/netsketch-plugin-port-top\n") ||
		!strings.HasSuffix(string(mod), "replace github.com/netsketch/netsketch => "+checkout+"\n") {
		t.Errorf("go.mod, %v:\n%s", err, mod)
	}
	for args, want := range map[string]string{
		"Port":                                 `"Port" is not a plugin's name: expected`,
		"univmon":                              "the plugin univmon comes with netsketch",
		"netsketch --netsketch ../..":          "the files and annotations of netsketch have the name netsketch",
		"collector --netsketch ../..":          "the plugin could not publish below /collector; choose another name",
		"interfaces --netsketch ../..":         "the plugin could not publish below /interfaces; choose another name",
		"x --netsketch /nonexistent":           "--netsketch /nonexistent: no go.mod",
		"x":                                    "no Go module of netsketch in",
		"hello " + same + " --netsketch ../..": "exists; name another",
	} {
		if _, err := command(t, "", append([]string{"plugin", "new"}, strings.Fields(args)...)...); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("plugin new %s: %v, want %q", args, err, want)
		}
	}
}

// plugin check plays a recording with a plugin that a collector would load, and refuses others.
func TestPluginCheck(t *testing.T) {
	dir := t.TempDir()
	if err := testkit.BuildPlugins(dir, "hello"); err != nil {
		t.Fatal(err)
	}
	hello := filepath.Join(dir, "netsketch-plugin-hello")
	out, err := command(t, "", "plugin", "check", hello, "--recording", "../../examples/plugin-hello/testdata/epochs.rec")
	if want := "epochs.rec: 2 epochs analyzed\n  /acme-hello:hello/summary: 2 rows\n" +
		"  /acme-hello:hello/arrays/array: 4 rows\n"; err != nil ||
		!strings.Contains(out, want) {
		t.Errorf("%v, want %q:\n%s", err, want, out)
	}
	if out, err = command(t, "", "plugin", "check", hello); err != nil || !strings.Contains(out, "an epoch without data") {
		t.Errorf("%v:\n%s", err, out)
	}
	out, err = command(t, "", "plugin", "describe", hello)
	if err != nil || !strings.Contains(out, `"name": "hello"`) {
		t.Errorf("plugin describe %s: %v:\n%s", hello, err, out)
	}
	script := filepath.Join(dir, "netsketch-plugin-script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		hello + ` --config {"object":"x"}`: `object`,
		script:                             "before the handshake it exited with status 3",
		filepath.Join(dir, "none"):         "no such file",
	} {
		if _, err := command(t, "", append([]string{"plugin", "check"}, strings.Fields(args)...)...); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("plugin check %s: %v, want %q", args, err, want)
		}
	}
	if _, err := command(t, "", "plugin", "describe", script); err == nil ||
		!strings.Contains(err.Error(), "before the handshake it exited with status 3") {
		t.Errorf("plugin describe %s: %v", script, err)
	}
}

// A collector does not load a plugin whose YANG module does not define its lists.
func TestAdopt(t *testing.T) {
	_, err := adopt(sdk.Description{Name: "x", Lists: []sdk.List{{Path: "/acme-x:x/ys/y"}},
		Modules: []sdk.Module{{Name: "acme-x", Text: "module acme-x { namespace urn:x; prefix x; }"}}})
	if err == nil || !strings.Contains(err.Error(), "/acme-x:x/ys/y") {
		t.Error(err)
	}
}

// Errors about misspelled names of the command line have the name that was meant.
func TestMisspelledNames(t *testing.T) {
	for args, want := range map[string]string{
		"plugin describe unvmon --plugins " + plugins:     `did you mean "univmon"?`,
		"yang show netsketch-univmn --plugins " + plugins: `did you mean "netsketch-univmon"?`,
		"demo --scenaro x":           "unknown flag: --scenaro; did you mean --scenario?",
		"demo --interface=":          "--interface is empty: name an interface",
		"demo my.yaml":               `give a scenario with --scenario FILE`,
		"demo --qqqqqqqqqqqqq":       "unknown flag: --qqqqqqqqqqqqq; see netsketch demo --help",
		"plugin list --plugin x":     "did you mean --plugins?",
		"switch --program forwardin": `did you mean "forwarding"?`,
		"versio":                     `netsketch has no subcommand "versio"; did you mean "version"?`,
	} {
		if _, err := command(t, "", strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

// plugin list does not list files that are no plugins, and says that there are some.
func TestPluginListOthers(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"go.mod": 0o644, "run.sh": 0o755, "netsketch-plugin-odd": 0o755} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	var out, notes bytes.Buffer
	cmd := root()
	cmd.SetOut(&out)
	cmd.SetErr(&notes)
	cmd.SetArgs([]string{"plugin", "list", "--plugins", dir})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); strings.Contains(text, "go.mod") || strings.Contains(text, "run.sh") ||
		!strings.Contains(text, "odd") || !strings.Contains(text, "unusable: ") {
		t.Errorf("the list is\n%s", text)
	}
	if want := "not listed: 2 files that cannot be run as a plugin"; !strings.Contains(notes.String(), want) {
		t.Errorf("notes %q, want %q", &notes, want)
	}
}
