// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/internal/test/testkit"
)

// command runs netsketch with arguments and returns its standard output.
func command(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	cmd := root()
	var out, log bytes.Buffer
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&out)
	cmd.SetErr(&log)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestYangListShowTree(t *testing.T) {
	out, err := command(t, "", "yang", "list", "--plugins", plugins)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]string{
		{"netsketch-univmon", "2026-", "0.1.0", "plugin univmon"}, {"netsketch-chamelemon", "plugin chamelemon"},
		{"netsketch-collector", "netsketch"}, {"openconfig-interfaces", "2016-12-22", "1.1.0", "netsketch"},
		{"netsketch-types", "netsketch"},
	} {
		found := false
		for line := range strings.Lines(out) {
			hit := strings.HasPrefix(line, want[0]+" ")
			for _, w := range want {
				hit = hit && strings.Contains(line, w)
			}
			found = found || hit
		}
		if !found {
			t.Errorf("no line with %v in\n%s", want, out)
		}
	}
	none := t.TempDir()
	for name, dir := range map[string]string{"netsketch-univmon": plugins, "netsketch-types": none} {
		if out, err = command(t, "", "yang", "show", name, "--plugins", dir); err != nil ||
			!strings.HasPrefix(out, "module "+name+" {") {
			t.Errorf("show %s: %.40q, %v", name, out, err)
		}
	}
	if out, err = command(t, "", "yang", "tree", "netsketch-univmon", "netsketch-p4rt-ids", "netsketch-lldp",
		"--plugins", plugins); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`
module: netsketch-univmon
  +--ro univmon
     +--ro alerts
     |  +--ro alert* [location kind subject]
     |     +--ro location    string
     |     +--ro kind        identityref
     |     +--ro subject     string
     |     +--ro state
`, `
module: netsketch-p4rt-ids

  augment /openconfig-interfaces:interfaces/interface/config:
    +--rw id?   uint32
`, `
     +--rw config
     |  +--rw enabled?       boolean
`} {
		if !strings.Contains("\n"+out, want) {
			t.Errorf("the tree lacks%sin\n%s", want, out)
		}
	}
	for _, args := range [][]string{{"show", "acme"}, {"tree", "acme"}} {
		if _, err := command(t, "", append([]string{"yang", "--plugins", none}, args...)...); err == nil ||
			!strings.Contains(err.Error(), `no module "acme"`) {
			t.Errorf("%v: %v", args, err)
		}
	}
	if _, err := command(t, "", "yang", "list", "--plugins", filepath.Join(plugins, "missing")); err == nil ||
		!strings.Contains(err.Error(), "missing") {
		t.Errorf("a plugin directory that does not exist: %v", err)
	}
}

func TestYangValidate(t *testing.T) {
	dir, none := t.TempDir(), t.TempDir()
	if err := testkit.BuildPlugins(dir, "hello"); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, doc, want string }{
		{"state", `{"netsketch-lldp:lldp": {"state": {"enabled": true, "counters": {"frame-in": "3"}}}}`, ""},
		{"configuration", `{"openconfig-interfaces:interfaces": {"interface": [{"name": "eth1", "config": ` +
			`{"name": "eth1", "type": "iana-if-type:ethernetCsmacd", "enabled": true}}]}}`, ""},
		{"empty", `{}`, ""},
		{"third party", `{"acme-hello:hello": {"arrays": {"array": [{"node": "s1", "object": "r", "state": ` +
			`{"node": "s1", "object": "r", "cells": "8"}}]}}}`, ""},
		{"third party, out of range", `{"acme-hello:hello": {"arrays": {"array": [{"node": "s1", "object": ` +
			`"r", "state": {"cells": "-8"}}]}}}`, "-8"},
		{"state out of range", `{"netsketch-lldp:lldp": {"interfaces": {"interface": [{"name": "eth1", ` +
			`"neighbors": {"neighbor": [{"id": "n", "state": {"ttl": 65536}}]}}]}}}`, "ttl"},
		{"configuration of a wrong type", `{"openconfig-interfaces:interfaces": {"interface": [{"name": "eth1", ` +
			`"config": {"name": "eth1", "enabled": "yes"}}]}}`, "bool"},
		{"unknown leaf", `{"netsketch-lldp:lldp": {"config": {"speed": 1}}}`, "speed"},
		{"unknown identity", `{"openconfig-interfaces:interfaces": {"interface": [{"name": "e", "config": ` +
			`{"name": "e", "type": "iana-if-type:pigeon"}}]}}`, "pigeon"},
		{"unknown node", `{"acme:thing": {}}`, `"acme:thing": no module`},
		{"without its module", `{"lldp": {}}`, "RFC 7951"},
		{"not an object", `[1]`, "not a JSON object"},
		{"not JSON", `{"`, "not a JSON object"},
	}
	for _, tt := range tests {
		file := filepath.Join(t.TempDir(), "doc.json")
		if err := os.WriteFile(file, []byte(tt.doc), 0o600); err != nil {
			t.Fatal(err)
		}
		plugins := none
		if strings.HasPrefix(tt.name, "third party") {
			plugins = dir
		}
		out, err := command(t, "", "yang", "validate", file, "--plugins", plugins)
		switch {
		case tt.want == "" && (err != nil || !strings.HasSuffix(out, "doc.json: valid\n")):
			t.Errorf("%s: %q, %v", tt.name, out, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) ||
			!strings.Contains(err.Error(), file)):
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
	}
	if out, err := command(t, tests[0].doc, "yang", "validate", "-", "--plugins", dir); err != nil ||
		out != "standard input: valid\n" {
		t.Errorf("standard input: %q, %v", out, err)
	}
	if _, err := command(t, "", "yang", "validate", "missing.json", "--plugins", dir); err == nil ||
		!strings.Contains(err.Error(), "missing.json") {
		t.Errorf("a file that does not exist: %v", err)
	}
}
