// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/internal/test/testkit"
)

// A collector and a switch use mutual TLS. Both follow a rotation of all certificates, and a
// collector without a certificate is refused.
func TestMutualTLS(t *testing.T) {
	switches, dir := t.TempDir(), t.TempDir()
	rotate := func(generation string) {
		t.Helper()
		a, b := testkit.NewAuthority(t, "switches "+generation), testkit.NewAuthority(t, "collectors "+generation)
		a.Issue(t, switches, "leaf1", time.Now().AddDate(1, 0, 0))
		b.Write(t, switches, "clients-ca.pem")
		b.Issue(t, dir, "collector", time.Now().AddDate(1, 0, 0))
		a.Write(t, dir, "switches-ca.pem")
	}
	rotate("1")
	at := func(name string) string { return filepath.Join(switches, name) }
	secured := []string{"--name", "leaf1", "--cert-file", at("leaf1.pem"), "--key-file", at("leaf1.key"),
		"--client-ca-file", at("clients-ca.pem")}
	sw := startSwitch(t, secured...)

	c := startCollector(t, dir, fmt.Sprintf(`
epoch: {interval: 200ms}
device-defaults: {pipeline: univmon, timeout: 30s}
devices:
  - name: leaf1
    address: %[1]s
    device-id: 1
    tls: {ca-file: switches-ca.pem, cert-file: collector.pem, key-file: collector.key}
    gnmi: {address: %[1]q, tls: {ca-file: switches-ca.pem, cert-file: collector.pem, key-file: collector.key}}
  - name: stranger
    address: %[1]s
    device-id: 2
    tls: {ca-file: switches-ca.pem}
outputs:
  - {type: gnmi, address: "127.0.0.1:0", tls: {plaintext: true}}
`, sw.addr))
	gnmi := c.wait(`msg="serving gNMI" output=gnmi address=(\S+)`)
	device := func(name string) map[string]any {
		var f queryFlags
		f.address, f.timeout = gnmi, time.Minute
		tables, err := f.get(t.Context(), "/collector/devices/device[node="+name+"]")
		if err != nil || len(tables) == 0 || len(tables[0].Rows) != 1 {
			return nil
		}
		return tables[0].Rows[0].Values
	}
	ready := func() bool {
		d := device("leaf1")
		return d["connection"] == "READY" && d["gnmi/state/connection"] == "SYNCED"
	}
	testkit.Until(t, "both sessions are up", ready)
	testkit.Until(t, "a collector without a certificate is refused", func() bool {
		reason, _ := device("stranger")["last-error"].(string)
		return strings.Contains(reason, "certificate")
	})

	rotate("2")
	const rotated = `msg="new certificates are used for new connections" use="`
	sw.wait(rotated + `server of switch leaf1`)
	c.wait(rotated + `.*P4Runtime client of device leaf1`)
	if err := sw.stop(); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "the sessions end", func() bool { return !ready() })
	startSwitch(t, append(secured, "--listen", sw.addr)...)
	testkit.Until(t, "both sessions are up with the new certificates", ready)
}

// A switch refuses a client CA if it has no certificate itself, and names missing files.
func TestSwitchTLSFlags(t *testing.T) {
	for want, args := range map[string][]string{
		"--client-ca-file needs --cert-file": {"--client-ca-file", "ca.pem"},
		"[key-file]":                         {"--cert-file", "none.pem"},
		"cert-file: open none.pem":           {"--cert-file", "none.pem", "--key-file", "none.key"},
	} {
		cmd := root()
		cmd.SetArgs(append([]string{"switch", "--listen", "127.0.0.1:0"}, args...))
		cmd.SetErr(&bytes.Buffer{})
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v; expected %q", args, err, want)
		}
	}
}

// startCollector runs "netsketch collector" with a configuration in a directory.
func startCollector(t *testing.T, dir, yaml string) *running {
	t.Helper()
	path := filepath.Join(dir, "netsketch.yaml")
	if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{t: t, log: &logBuffer{wake: make(chan struct{}, 1)}, done: make(chan error, 1)}
	go func() { r.done <- runCollector(ctx, r.log, path) }()
	t.Cleanup(func() {
		cancel()
		if err := <-r.done; err != nil {
			t.Errorf("the collector: %v", err)
		}
	})
	return r
}
