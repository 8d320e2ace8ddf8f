// SPDX-License-Identifier: Apache-2.0

package influxdb

import (
	"crypto/tls"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/netsketch/netsketch/internal/certs"
	"github.com/netsketch/netsketch/internal/test/testkit"
)

// New connections use the current CA file.
func TestCAFileRotates(t *testing.T) {
	dir := t.TempDir()
	serve := func(a *testkit.Authority) *httptest.Server {
		cert, key := a.Issue(t, t.TempDir(), "influxdb", time.Now().AddDate(1, 0, 0))
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNoContent)
		}))
		s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
		s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
		s.StartTLS()
		t.Cleanup(s.Close)
		return s
	}
	first, second := testkit.NewAuthority(t, "first"), testkit.NewAuthority(t, "second")
	c := testConfig("")
	c.CAFile = first.Write(t, dir, "ca.pem")
	store := certs.New(certs.Options{})
	post := func(s *httptest.Server) error {
		c.URL = s.URL
		config, err := c.tlsConfig("influx", store)
		if err != nil {
			t.Fatal(err)
		}
		w := newWriter(&c, config, slog.New(slog.DiscardHandler))
		defer w.close()
		return w.api.WriteRecord(t.Context(), "m v=1i 1")
	}
	old, rotated := serve(first), serve(second)
	if err := post(old); err != nil {
		t.Errorf("the database of the first authority: %v", err)
	}
	if err := post(rotated); err == nil {
		t.Error("a database of an unknown authority is accepted")
	}
	second.Write(t, dir, "ca.pem")
	store.Reload()
	if err := post(rotated); err != nil {
		t.Errorf("after the rotation: %v", err)
	}
	if err := post(old); err == nil {
		t.Error("the previous authority is accepted after the rotation")
	}
}
