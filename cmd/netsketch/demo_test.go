// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// --json prints one object on standard output, also after an error.
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

// A demo whose database is away leaves no points behind: a later demo would send them to another
// one.
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
		"--influxdb", "http://127.0.0.1:1"}) // nothing listens on port 1
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
