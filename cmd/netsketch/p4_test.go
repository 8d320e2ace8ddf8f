// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

const exampleProgram = "../../examples/cocosketch/p4/cocosketch.json"

// p4 new writes the example with another name. The example's tests check program and plugin.
func TestP4New(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tally")
	if _, err := command(t, "", "p4", "new", "tally", dir, "--netsketch", "../.."); err != nil {
		t.Fatal(err)
	}
	const example = "../../examples/cocosketch"
	files := 0
	err := filepath.WalkDir(example, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(d.Name(), "-cocosketch") {
			return err
		}
		files++
		want, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name := strings.ReplaceAll(strings.TrimPrefix(path, example), "cocosketch", "tally")
		got, err := os.ReadFile(filepath.Join(dir, name))
		switch d.Name() {
		case "go.mod", "Makefile", "cocosketch.sha256":
			return err
		}
		if err != nil || !bytes.Equal(got, bytes.ReplaceAll(want, []byte("cocosketch"), []byte("tally"))) {
			t.Errorf("%s differs from the example's (%v): run go generate ./internal/scaffold", d.Name(), err)
		}
		return nil
	})
	for _, name := range []string{"README.md", "p4/own.p4", "slots/slots.go", "scenario.yaml", "hosts.yaml", "main.go",
		"config.schema.json", "acme-tally.yang", "agent/main.go", "figure/main.go"} {
		text, readErr := os.ReadFile(filepath.Join(dir, name))
		if at := strings.Index(string(text), "CocoSketch"); readErr != nil ||
			at >= 0 && !strings.Contains(string(text[max(0, at-120):at]), "example") {
			t.Errorf("%s (%v) has CocoSketch without saying that it is an example", name, readErr)
		}
	}
	if err != nil || files < 14 {
		t.Errorf("%d files, %v", files, err)
	}
	out, err := command(t, "", "p4", "check", filepath.Join(dir, "p4", "tally.json"))
	if want := "register ingress.own.slots: 12288 cells of 32 bits in a bank"; err != nil ||
		!strings.Contains(out, want) || !strings.Contains(out, "read-out: by 48 packets in each epoch") {
		t.Errorf("%v, want %q:\n%s", err, want, out)
	}
	if err := os.WriteFile(filepath.Join(dir, "p4", "own.p4"), []byte("// another"), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err = command(t, "", "p4", "check", filepath.Join(dir, "p4", "tally.json"))
	if want := "warning: own.p4 has changed since "; err != nil || !strings.Contains(out, want) {
		t.Errorf("%v, want %q:\n%s", err, want, out)
	}
	for name, want := range map[string]string{"my-tally": "without dashes", "own": "choose another name",
		"switch":    "p4/switch.p4 would be found in the place of",
		"collector": "the plugin could not publish below /collector"} {
		if _, err := command(t, "", "p4", "new", name, filepath.Join(t.TempDir(), "x"), "--netsketch", "../.."); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("p4 new %s: %v, want %q", name, err, want)
		}
	}
}

// The compiled program of the example fits the includes: make p4 writes their digests to
// includes.txt.
func TestExampleIsCurrent(t *testing.T) {
	digests, err := os.ReadFile(filepath.Dir(exampleProgram) + "/includes.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(digests)) {
		digest, file, _ := strings.Cut(strings.TrimSpace(line), "  ")
		text, err := os.ReadFile("../../p4/programs/include/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprintf("%x", sha256.Sum256(text)) != digest {
			t.Errorf("p4/programs/include/%s has changed: run make p4 in examples/cocosketch", file)
		}
	}
	if !bytes.Contains(digests, []byte("switch.p4")) {
		t.Error("includes.txt does not name switch.p4")
	}
}

// p4 check names what the collector would not read, and why.
func TestP4Check(t *testing.T) {
	program, err := os.ReadFile(exampleProgram)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(strings.TrimSuffix(exampleProgram, ".json") + ".p4info.txtpb")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		change    func(info, json string) (string, string)
		out, want string
	}{
		"no read-out annotation": {func(i, j string) (string, string) {
			return strings.ReplaceAll(i, "netsketch_readout", "other"), j
		}, "not read: register ingress.own.slots has no @netsketch_readout", "nothing is read"},
		"no bank table": {func(i, j string) (string, string) {
			return strings.ReplaceAll(i, "netsketch_bank", "other"), j
		}, "", "no table chooses its bank"},
		"another object in the read-out control": {func(i, j string) (string, string) {
			return strings.Replace(i, "int64_value: 128", "int64_value: 129", 1), j
		}, "", "does not answer a read-out of object 129, bank 1, from cell 0"},
		"a counter that never increases": {func(i, j string) (string, string) {
			return i, strings.Replace(j, `"value" : "ingress.own.counted"`, `"value" : "ingress.drops"`, 1)
		}, "", "ingress.own.slots: no action increases its counter ingress.own.counted"},
		"a hash that no switch has": {func(i, j string) (string, string) {
			return i, strings.Replace(j, `"algo" : "crc32"`, `"algo" : "crc33"`, 1)
		}, "", "crc33"},
		"neither JSON nor P4Info": {func(string, string) (string, string) { return "x{", "{bad" }, "",
			"BMv2 JSON is malformed at byte 2"},
		"not a program": {func(i, _ string) (string, string) { return i, "{}" }, "", "program"},
	} {
		info, json := test.change(string(text), string(program))
		file := filepath.Join(t.TempDir(), "x.json")
		if err := os.WriteFile(file, []byte(json), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(strings.TrimSuffix(file, ".json")+".p4info.txtpb", []byte(info), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := command(t, "", "p4", "check", file)
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(out, test.out) {
			t.Errorf("%s: %v, want %q:\n%s", name, err, test.want, out)
		}
	}
}

// p4 check states the time of a read-out by RegisterEntry.
func TestP4CheckByRegister(t *testing.T) {
	text, err := os.ReadFile(strings.TrimSuffix(exampleProgram, ".json") + ".p4info.txtpb")
	if err != nil {
		t.Fatal(err)
	}
	info := filepath.Join(t.TempDir(), "info.txtpb")
	text = regexp.MustCompile(`(?s)controller_packet_metadata \{.*?\n\}\n`).ReplaceAll(text, nil)
	if err := os.WriteFile(info, text, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := command(t, "", "p4", "check", exampleProgram, "--p4info", info)
	if !regexp.MustCompile(`read-out: by RegisterEntry, 12288 cells one by one, which took [0-9.]+ms from this machine's `+
		`soft switch, and [0-9.]+m?s if each of them had to be cleared: [0-9.]+µs a cell`).MatchString(out) || err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}

// Commands name what is wrong with a file that they cannot read, at once: nothing is read from a
// pipe, which would block until somebody writes to it.
func TestFilesThatAreNotRead(t *testing.T) {
	dir := t.TempDir()
	pipe, empty, alone := filepath.Join(dir, "pipe.json"), filepath.Join(dir, "empty"), filepath.Join(dir, "alone.json")
	if err := syscall.Mkfifo(pipe, 0o700); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{empty: "", alone: "{bad"} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const isPipe = "pipe.json is a pipe; expected a regular file"
	info := strings.TrimSuffix(exampleProgram, ".json") + ".p4info.txtpb"
	for args, want := range map[string]string{
		"p4 check " + pipe: isPipe,
		"p4 check " + exampleProgram + " --p4info " + pipe:                        isPipe,
		"p4 check " + dir + " --p4info " + info:                                   "is a directory; expected a regular file",
		"p4 check /dev/zero --p4info " + info:                                     "/dev/zero is a device",
		"p4 check ../../examples/cocosketch/p4/own.p4":                            "expected the file NAME.json",
		"p4 check " + alone:                                                       "BMv2 JSON is malformed at byte 2",
		"p4 check " + alone + " --p4info none":                                    "open none: no such file",
		"config check " + pipe:                                                    "failed",
		"collector --config " + pipe:                                              isPipe,
		"switch --json " + pipe:                                                   isPipe,
		"switch --program forwarding --cert-file " + pipe + " --key-file " + pipe: isPipe,
		"demo --plugins " + plugins + " --scenario " + pipe:                       isPipe,
		"demo --plugins " + plugins + " --virtual --trace " + pipe:                isPipe,
		"replay " + pipe + " --plugin x":                                          isPipe,
		"query --text " + pipe:                                                    isPipe,
		"yang validate " + pipe:                                                   isPipe,
		"plugin check " + pipe:                                                    "it is a pipe, not a program",
		"plugin check " + dir:                                                     "it is a directory, not a program",
		"plugin check " + empty:                                                   "the file is empty",
		"plugin check " + filepath.Join(plugins, "netsketch-plugin-univmon") + " --recording " + pipe: isPipe,
	} {
		out, err := command(t, "", strings.Fields(args)...) // config check prints its reason to standard error
		if err == nil || !strings.Contains(out+err.Error(), want) {
			t.Errorf("%s: %v, want %q:\n%s", args, err, want, out)
		}
	}
}
