// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/collector/cluster/bus"
	"github.com/netsketch/netsketch/collector/cluster/member"
	"github.com/netsketch/netsketch/internal/certs"
	"github.com/netsketch/netsketch/internal/test/bustest"
	"github.com/netsketch/netsketch/internal/test/testkit"
)

// natsClient connects to NATS as a configuration with these keys says.
func natsClient(t *testing.T, address, keys string, log *slog.Logger) (*bus.Bus, error) {
	t.Helper()
	cfg := parseConfig(t, fmt.Sprintf("cluster: {name: fabric, member: c1, nats: {addresses: [%q], %s}}\n", address, keys))
	b, err := member.Connect(t.Context(), cfg.Cluster, certs.New(certs.Options{}), log)
	if err == nil {
		t.Cleanup(b.Close)
	}
	return b, err
}

// A collector connects to servers that expect TLS, a certificate and a user. If it cannot, the
// error names the key.
func TestConnectionToNATS(t *testing.T) {
	dir := t.TempDir()
	servers, collectors := testkit.NewAuthority(t, "servers"), testkit.NewAuthority(t, "collectors")
	year := time.Now().AddDate(1, 0, 0)
	pair := func(a *testkit.Authority, name string, until time.Time) tls.Certificate {
		cert, err := tls.LoadX509KeyPair(a.Issue(t, dir, name, until))
		if err != nil {
			t.Fatal(err)
		}
		return cert
	}
	server := func(o bustest.Options, cert tls.Certificate) string {
		o.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: collectors.Pool(),
			ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}
		address, _ := bustest.ServerWith(t, o)
		return address
	}
	user := bustest.Options{Username: "collector", Password: "secret"}
	secured := server(user, pair(servers, "nats", year))
	expired := server(user, pair(servers, "old", time.Now().Add(-time.Hour)))
	operator := bustest.NewOperator(t)
	accounts, _ := bustest.ServerWith(t, bustest.Options{Operator: operator})
	plain := bustest.Server(t)

	ca, other := servers.Write(t, dir, "ca.pem"), collectors.Write(t, dir, "other.pem")
	pair(collectors, "c1", year)
	pair(servers, "stranger", year)
	client := func(ca, cert string) string {
		return fmt.Sprintf("tls: {ca-file: %s, cert-file: %s/%[3]s.pem, key-file: %[2]s/%[3]s.key}", ca, dir, cert)
	}
	const login, plaintext = "username: collector, password: secret, ", "tls: {plaintext: true}"
	credentials := func(file string) string { return "credentials-file: " + file + ", " + plaintext }
	noKey := filepath.Join(dir, "no.creds")
	if err := os.WriteFile(noKey, []byte("-----BEGIN NATS USER JWT-----\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, server, keys string
		want               string // of the error; "": it connects
	}{
		{"TLS and a user", secured, login + client(ca, "c1"), ""},
		{"another authority", secured, login + client(other, "c1"), "not valid by cluster.nats.tls"},
		{"no authority", secured, login + plaintext, "not valid by cluster.nats.tls"},
		{"no certificate", secured, login + "tls: {ca-file: " + ca + "}", "cluster.nats.tls.cert-file"},
		{"a certificate of others", secured, login + client(ca, "stranger"), "cluster.nats.tls.cert-file"},
		{"another name", secured, login + strings.Replace(client(ca, "c1"), "{", "{server-name: nats.example.net, ", 1),
			"nats.example.net"},
		{"an expired server", expired, login + client(ca, "c1"), "expired"},
		{"another password", secured, "username: collector, password: sekret, " + client(ca, "c1"),
			"does not accept cluster.nats.username and password"},
		{"no user", secured, client(ca, "c1"), "does not accept cluster.nats.username"},
		{"a server without TLS", plain, client(ca, "c1"), "cluster.nats.tls: {plaintext: true}"},
		{"credentials", accounts, credentials(operator.Credentials(t, year)), ""},
		{"expired credentials", accounts, credentials(operator.Credentials(t, time.Now().Add(-time.Hour))),
			"cluster.nats.username and password, or credentials-file"},
		{"credentials of others", accounts, credentials(bustest.NewOperator(t).Credentials(t, year)),
			"cluster.nats.username and password, or credentials-file"},
		{"no credentials", accounts, plaintext, "cluster.nats.username and password, or credentials-file"},
		{"no file", accounts, credentials(dir + "/none.creds"), "cluster.nats.credentials-file: open"},
		{"no key in the file", accounts, credentials(noKey), "cluster.nats.credentials-file: " + noKey + " has no key"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, err := natsClient(t, c.server, c.keys, nil)
			if err == nil && c.want == "" {
				err = b.WaitConnected(t.Context())
			} else if err == nil {
				testkit.Until(t, "a reason that contains "+c.want, func() bool {
					err = b.Connected()
					return err != nil && strings.Contains(err.Error(), c.want)
				})
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

// The check of a configuration reads the files for NATS, and connects to nothing.
func TestCheckReadsFilesForNATS(t *testing.T) {
	dir := t.TempDir()
	for keys, want := range map[string]string{
		"tls: {ca-file: " + dir + "/ca.pem}":                            "cluster.nats.tls: ",
		"credentials-file: " + dir + "/a.creds, tls: {plaintext: true}": "cluster.nats.credentials-file: open",
		"username: collector, password: secret, tls: {plaintext: true}": "",
	} {
		cfg := parseConfig(t, "cluster: {name: fabric, member: c1, nats: {addresses: [\"192.0.2.1:4222\"], "+keys+"}}\n")
		_, err := Check(t.Context(), cfg, Dependencies{Programs: fakePrograms})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: error %v, want %q", keys, err, want)
		}
	}
}

// NATS servers refuse a collector's user for some time. The collector connects again when they
// accept the user again, and the log has one line about the refusal.
func TestRefusedByNATSForSomeTime(t *testing.T) {
	user := bustest.Options{Username: "collector", Password: "secret"}
	address, reload := bustest.ServerWith(t, user)
	log := &testkit.Log{}
	b, err := natsClient(t, address, "username: collector, password: secret, tls: {plaintext: true}",
		slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err == nil {
		err = b.WaitConnected(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	reload(bustest.Options{Username: "collector", Password: "another"})
	testkit.Until(t, "the collector is refused some times", func() bool {
		return strings.Count(log.String(), "does not accept cluster.nats.username") >= 4
	})
	reload(user)
	if err := b.WaitConnected(t.Context()); err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "level=WARN msg=\"NATS reports"); n != 1 {
		t.Errorf("%d warnings, want 1:\n%s", n, log)
	}
}
