// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
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
		if err != nil || d.IsDir() || d.Name() == "netsketch-plugin-cocosketch" {
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
		case "go.mod", "Makefile", "digests.txt":
			return err
		}
		if err != nil || !bytes.Equal(got, bytes.ReplaceAll(want, []byte("cocosketch"), []byte("tally"))) {
			t.Errorf("%s differs from the example's (%v): run go generate ./cmd/netsketch", d.Name(), err)
		}
		return nil
	})
	if err != nil || files < 14 {
		t.Errorf("%d files, %v", files, err)
	}
	out, err := command(t, "", "p4", "check", filepath.Join(dir, "p4", "tally.json"))
	if want := "register ingress.own.slots: 12288 cells of 32 bits in a bank"; err != nil ||
		!strings.Contains(out, want) || !strings.Contains(out, "read-out: by 48 packets in each epoch") {
		t.Errorf("%v, want %q:\n%s", err, want, out)
	}
	if _, err := command(t, "", "p4", "new", "my-tally", "--netsketch", "../.."); err == nil ||
		!strings.Contains(err.Error(), "without dashes") {
		t.Error(err)
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
		}, "", "does not answer a read-out of object 129 from cell 0"},
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
