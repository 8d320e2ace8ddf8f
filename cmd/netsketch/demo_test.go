// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// --json prints one object on standard output, even after an error.
func TestDemoJSONOfARunThatCannotBegin(t *testing.T) {
	tests := []struct{ name, args, want string }{
		{"trace", "--trace missing.pcap --plugins " + t.TempDir(), "missing.pcap"},
		{"scenario", "--scenario missing.yaml", "missing.yaml"},
		{"plugins", "--plugins " + t.TempDir() + " --gnmi 127.0.0.1:0", "univmon"},
	}
	for _, tt := range tests {
		cmd := demoCommand()
		var out, log bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetErr(&log)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(append(strings.Fields(tt.args), "--json", "--virtual", "--epochs", "1"))
		err := cmd.ExecuteContext(t.Context())
		if err == nil {
			t.Errorf("%s: no error", tt.name)
		}
		var report struct {
			OK    *bool
			Error string
		}
		if err := json.Unmarshal(out.Bytes(), &report); err != nil {
			t.Errorf("%s: output is not one object: %v: %q", tt.name, err, out.String())
		}
		if report.OK == nil || *report.OK || !strings.Contains(report.Error, tt.want) {
			t.Errorf("%s: object %s does not name %q", tt.name, out.String(), tt.want)
		}
	}
}

// A demo whose database is unreachable leaves no points behind, because a later demo would send
// them to another database.
func TestDemoLeavesNoSpool(t *testing.T) {
	state, tmp := t.TempDir(), t.TempDir()
	t.Setenv("XDG_STATE_HOME", state)
	t.Setenv("TMPDIR", tmp)
	cmd := demoCommand()
	var out, log bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&log)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs([]string{"--virtual", "--epochs", "1", "--json", "--gnmi", "127.0.0.1:0", "--plugins", plugins,
		"--influxdb", "http://127.0.0.1:1"}) // no server listens on port 1
	err := cmd.ExecuteContext(t.Context())
	var report struct{ Epochs []struct{} }
	if json.Unmarshal(out.Bytes(), &report) != nil || len(report.Epochs) != 1 {
		t.Fatalf("expected a report of one epoch: %v\n%s%s", err, out.String(), log.String())
	}
	if !strings.Contains(log.String(), "InfluxDB") {
		t.Errorf("the log does not name the database that is away:\n%s", log.String())
	}
	for _, dir := range []string{state, tmp} {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s: %v, %v", dir, left, err)
		}
	}
}

// A demo that somebody follows stays after a scenario has ended, with its results, and says so.
// With --epochs or --json it ends by itself.
func TestDemoStaysUntilInterrupted(t *testing.T) {
	const scenario = "name: short\nsummary: one epoch\nprogram: univmon\nepochs: 1\n" +
		"topology: {kind: leaf-spine, leaves: 2, spines: 1, hosts-per-leaf: 1}\n" +
		"traffic:\n  - {name: all, rate: 100, flows: 10}\nalgorithms:\n  - plugin: univmon\n"
	file := filepath.Join(t.TempDir(), "short.yaml")
	if err := os.WriteFile(file, []byte(scenario), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args  string
		stays bool
	}{
		{"--http 127.0.0.1:0", true},
		{"--http 127.0.0.1:0 --epochs 1", false},
		{"--http 127.0.0.1:0 --json", false},
		{"", false},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		cmd := demoCommand()
		out := &stopWriter{at: "Ctrl-C ends the demo", then: func(text string) {
			found := regexp.MustCompile(`at gNMI (\S+) and in the console (\S+);`).FindStringSubmatch(text)
			if found == nil {
				t.Errorf("%s: the way to the results is missing:\n%s", tt.args, text)
			} else if rows, err := runQuery("/univmon/node-summaries", "--address", found[1]); err != nil || rows == "" {
				t.Errorf("%s: the results are gone: %v", tt.args, err)
			}
			cancel()
		}}
		cmd.SetOut(out)
		cmd.SetErr(io.Discard)
		cmd.SetArgs(append(strings.Fields(tt.args), "--virtual", "--gnmi", "127.0.0.1:0", "--plugins", plugins,
			"--scenario", file))
		if err := cmd.ExecuteContext(ctx); err != nil {
			t.Errorf("%s: %v\n%s", tt.args, err, out.text.String())
		}
		if stayed := ctx.Err() != nil; stayed != tt.stays {
			t.Errorf("%s: stayed %t, want %t:\n%s", tt.args, stayed, tt.stays, out.text.String())
		}
		cancel()
	}
}

// A demo fails if results are never complete, because no switch counts some of the packets.
func TestDemoUncounted(t *testing.T) {
	const scenario = "name: uncounted\nsummary: some switches do not measure\nepochs: 4\nprograms: {s1: %s, s2: " +
		"forwarding, s3: univmon}\ntopology: {kind: graph, links: [s1-s2, s2-s3], hosts-per-leaf: 1}\n" +
		"traffic:\n  - {name: all, rate: 100, flows: 10}\n" +
		"algorithms:\n  - {plugin: univmon, config: {network: {scheme: manifest}}}\n%s"
	for _, tt := range []struct{ program, expect, want string }{
		{"forwarding", "", "network 5-tuple and 2 more (2 of 6 pairs are not counted by any switch)"},
		{"forwarding", "expect:\n  - {measure: lost, at-most: 1}\n", ""},
		{"univmon", "", ""},
	} {
		file := filepath.Join(t.TempDir(), "uncounted.yaml")
		if err := os.WriteFile(file, fmt.Appendf(nil, scenario, tt.program, tt.expect), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := demoCommand()
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetErr(io.Discard)
		cmd.SetArgs([]string{"--virtual", "--gnmi", "127.0.0.1:0", "--plugins", plugins, "--scenario", file})
		err := cmd.ExecuteContext(t.Context())
		if (err != nil) != (tt.want != "") || !strings.Contains(out.String(), tt.want) {
			t.Errorf("s1 with %s, %q: %v\n%s", tt.program, tt.expect, err, out.String())
		}
	}
}

// stopWriter calls then once when the output has a text.
type stopWriter struct {
	text bytes.Buffer
	at   string
	then func(text string)
}

func (w *stopWriter) Write(p []byte) (int, error) {
	w.text.Write(p)
	if w.then != nil && strings.Contains(w.text.String(), w.at) {
		then := w.then
		w.then = nil
		then(w.text.String())
	}
	return len(p), nil
}
