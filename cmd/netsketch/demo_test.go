// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
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
