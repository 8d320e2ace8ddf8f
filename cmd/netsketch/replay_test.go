// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/netsketch/netsketch/lab/scenario"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/settings/yaml"
)

// recordRun records the input of UnivMon in a run of the default scenario. It returns the
// recording and the tables that the collector published, as JSON by epoch and list.
func recordRun(t *testing.T, epochs int) (file string, published map[uint64]map[string]string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "univmon.epochs")
	s, err := scenario.Default()
	if err != nil {
		t.Fatal(err)
	}
	s.Epochs, s.Program = epochs, "univmon-300k" // a third of the registers
	if s.Algorithms[0], err = yaml.Section("record.yaml", "plugin: univmon\nrecord: "+file); err != nil {
		t.Fatal(err)
	}
	run, err := scenario.Open(t.Context(), s, scenario.Options{PluginDir: plugins, Listen: "127.0.0.1:0",
		Virtual: true})
	if err != nil {
		t.Fatal(err)
	}
	tap := run.Collector().Store().Tap(1024)
	if _, err := run.Play(t.Context()); err != nil {
		t.Error(err)
	}
	if err := run.Close(); err != nil { // closes the tap
		t.Error(err)
	}
	published = map[uint64]map[string]string{}
	for b := range tap.C() {
		for _, p := range b.Tables {
			if !p.Delete && strings.HasPrefix(p.Table.List, "/netsketch-univmon:") {
				if published[b.Epoch] == nil {
					published[b.Epoch] = map[string]string{}
				}
				published[b.Epoch][p.Table.List] = rowsJSON(t, resultTableOf(sdk.TableResult{Table: p.Table}, b.Time))
			}
		}
	}
	if n := tap.Dropped(); n > 0 {
		t.Fatalf("%d batches were dropped", n)
	}
	return file, published
}

func rowsJSON(t *testing.T, table *resultTable) string {
	t.Helper()
	text, err := json.MarshalIndent(table.Rows, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// replayed parses the output of replay --json.
func replayed(t *testing.T, out string) map[uint64]map[string]string {
	t.Helper()
	all := map[uint64]map[string]string{}
	for line := range strings.Lines(out) {
		var e epochResults
		d := json.NewDecoder(strings.NewReader(line))
		d.UseNumber()
		if err := d.Decode(&e); err != nil {
			t.Fatal(err)
		}
		all[e.Epoch] = map[string]string{}
		for _, table := range e.Tables {
			all[e.Epoch][table.List] = rowsJSON(t, table)
		}
	}
	return all
}

// TestReplay records a collector with a network of soft switches. The replay must yield the tables
// that the collector published.
func TestReplay(t *testing.T) {
	file, published := recordRun(t, 3)
	out, err := command(t, "", "replay", file, "--plugin", "univmon", "--plugins", plugins, "--json")
	if err != nil {
		t.Fatal(err)
	}
	got := replayed(t, out)
	if len(got) < 3 {
		t.Errorf("%d epochs replayed", len(got))
	}
	if diff := cmp.Diff(published, got); diff != "" {
		t.Errorf("-published +replayed\n%.4000s", diff)
	}

	text, err := command(t, "", "replay", file, "--plugin", filepath.Join(plugins, "netsketch-plugin-univmon"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{", COMPLETE, ended 2026-",
		"/netsketch-univmon:univmon/node-summaries/node-summary\nNODE",
		"  DIMENSION"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%.3000s", want, text)
		}
	}

	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	damaged := func(content []byte) string {
		path := filepath.Join(t.TempDir(), "damaged")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	corrupt := slices.Clone(content)
	copy(corrupt[len(corrupt)*2/3:], bytes.Repeat([]byte{0xff}, 64))
	for name, tt := range map[string]struct {
		file, plugin, want string
		code               int
		results            bool
	}{
		"truncated":       {damaged(content[:len(content)*2/3]), "univmon", "whole epochs: unexpected EOF", 2, true},
		"corrupt":         {damaged(corrupt), "univmon", "checksum", 2, true},
		"not a recording": {damaged([]byte("epochs of something else")), "univmon", "the first line is not", 2, false},
		"empty":           {damaged(nil), "univmon", "the first line is not", 2, false},
		"missing file":    {"missing.epochs", "univmon", "missing.epochs", 1, false},
		"missing plugin":  {file, "acme", `no plugin "acme"`, 1, false},
		"another plugin":  {file, "chamelemon", "", 0, true},
	} {
		out, err := command(t, "", "replay", tt.file, "--plugin", tt.plugin, "--plugins", plugins, "--json")
		code := exitCode(err)
		if code != tt.code || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: exit code %d, error %v; want code %d, %q", name, code, err, tt.code, tt.want)
		}
		if code == 2 && !strings.Contains(err.Error(), tt.file) {
			t.Errorf("%s: error %v does not name the file", name, err)
		}
		if (len(replayed(t, out)) > 0) != tt.results {
			t.Errorf("%s: output %.200s", name, out)
		}
	}
	if _, err := command(t, "", "replay", file); err == nil || !strings.Contains(err.Error(), "plugin") {
		t.Errorf("without --plugin: %v", err)
	}
}

// TestExitCode checks the codes that scripts rely on.
func TestExitCode(t *testing.T) {
	for err, want := range map[error]int{nil: 0, errSilent: 1, errors.New("x"): 1, exitError{2, errors.New("y")}: 2} {
		if got := exitCode(err); got != want {
			t.Errorf("%v: exit code %d, want %d", err, got, want)
		}
	}
}
