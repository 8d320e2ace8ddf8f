// SPDX-License-Identifier: Apache-2.0

// Package influxdbtest runs a real InfluxDB 1.8, influxd, for tests: on loopback, in a
// temporary directory. It can be stopped, killed and started again.
//
// The package searches $INFLUXD, .cache/bin and bin of the repository (where "make influxd"
// installs it), the user's cache directory, and the PATH. A test without influxd is skipped, or
// fails if NETSKETCH_REQUIRE_INFLUXD is set, as in CI.
//
// Concurrency: only the test's goroutine may use a Server, except that any goroutine may call
// Query.
package influxdbtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const install = `run "make influxd", or: CGO_ENABLED=0 go install -tags uint64 ` +
	`github.com/influxdata/influxdb/cmd/influxd@v1.8.10, and set INFLUXD to the program`

// find returns the path of influxd, or an error that lists where it was searched.
func find() (string, error) {
	if p := os.Getenv("INFLUXD"); p != "" {
		if _, err := os.Stat(p); err != nil {
			return "", fmt.Errorf("INFLUXD names no program: %w", err)
		}
		return p, nil
	}
	var candidates []string
	if root := repository(); root != "" {
		candidates = append(candidates, filepath.Join(root, ".cache", "bin", "influxd"),
			filepath.Join(root, "bin", "influxd"))
	}
	if cache, err := os.UserCacheDir(); err == nil {
		candidates = append(candidates, filepath.Join(cache, "netsketch", "bin", "influxd"))
	}
	for _, c := range candidates {
		if info, err := os.Stat(c); err == nil && info.Mode()&0o111 != 0 {
			return c, nil
		}
	}
	if p, err := exec.LookPath("influxd"); err == nil {
		return p, nil
	}
	return "", errors.New("there is no influxd here")
}

// repository returns the directory of go.mod, at or above the test's directory.
func repository() string {
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return ""
		}
		dir = parent
	}
}

// Server is a running influxd.
type Server struct {
	// URL is the server's address; Stop and Start keep it.
	URL string
	// Dir is the server's data directory.
	Dir string

	tb      testing.TB
	program string
	config  string
	cmd     *exec.Cmd
	exited  chan struct{}
	log     *bytes.Buffer
	client  *http.Client
	auth    bool
}

// Options configure influxd.
type Options struct {
	// MaxBodySize bounds requests, in bytes; 0 means influxd's default of 25 MB.
	MaxBodySize int
	// Auth requires the user "admin" with the password "secret", which Start creates.
	Auth bool
}

// Start starts an influxd with an empty database named netsketch until the end of the test.
func Start(tb testing.TB, o Options) *Server {
	tb.Helper()
	program, err := find()
	if err != nil {
		if os.Getenv("NETSKETCH_REQUIRE_INFLUXD") != "" {
			tb.Fatalf("%v: %s", err, install)
		}
		tb.Skipf("%v: %s", err, install)
	}
	s := &Server{tb: tb, program: program, Dir: tb.TempDir(), log: &bytes.Buffer{}}
	s.client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 30 * time.Second}
	address := freeAddress(tb)
	s.URL = "http://" + address
	s.config = filepath.Join(s.Dir, "influxdb.conf")
	text := fmt.Sprintf(`reporting-disabled = true
bind-address = %q
[meta]
  dir = %q
[data]
  dir = %q
  wal-dir = %q
[coordinator]
[retention]
[monitor]
  store-enabled = false
[http]
  enabled = true
  bind-address = %q
  log-enabled = false
  flux-enabled = false
  max-body-size = %d
  auth-enabled = %v
[continuous_queries]
  enabled = false
[[udp]]
  enabled = false
`, freeAddress(tb), filepath.Join(s.Dir, "meta"), filepath.Join(s.Dir, "data"), filepath.Join(s.Dir, "wal"),
		address, max(o.MaxBodySize, 0)+25_000_000*boolInt(o.MaxBodySize == 0), o.Auth)
	if err := os.WriteFile(s.config, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Kill)
	s.Start()
	if o.Auth {
		// While there is no user, influxd accepts this statement from any client.
		s.Query(`CREATE USER admin WITH PASSWORD 'secret' WITH ALL PRIVILEGES`)
		s.auth = true
	}
	s.Query(`CREATE DATABASE netsketch`)
	return s
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func freeAddress(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Start starts influxd again after Stop or Kill, and waits until it answers.
func (s *Server) Start() {
	s.tb.Helper()
	if s.cmd != nil {
		return
	}
	s.log.Reset()
	cmd := exec.Command(s.program, "-config", s.config)
	cmd.Env = append(os.Environ(), "INFLUXDB_CONFIG_PATH="+s.config)
	cmd.Stdout, cmd.Stderr = s.log, s.log
	if err := cmd.Start(); err != nil {
		s.tb.Fatalf("influxd does not start: %v", err)
	}
	s.cmd, s.exited = cmd, make(chan struct{})
	exited := s.exited
	go func() {
		_ = cmd.Wait() // influxd logs why it exits
		close(exited)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/ping", nil)
		if err != nil {
			s.tb.Fatal(err)
		}
		if resp, err := s.client.Do(req); err == nil {
			resp.Body.Close()
			return
		}
		select {
		case <-exited:
			s.cmd = nil
			s.tb.Fatalf("influxd has ended:\n%s", s.log)
		case <-ctx.Done():
			s.Kill()
			s.tb.Fatalf("influxd does not answer:\n%s", s.log)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Stop ends influxd gracefully.
func (s *Server) Stop() { s.end(syscall.SIGTERM) }

// Kill kills influxd.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

func (s *Server) end(sig syscall.Signal) {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(sig) // the process may have ended
	select {
	case <-s.exited:
	case <-time.After(20 * time.Second):
		_ = s.cmd.Process.Kill()
		<-s.exited
	}
	s.cmd = nil
}

// Series is one series of a query's result.
type Series struct {
	Name    string            `json:"name"`
	Tags    map[string]string `json:"tags"`
	Columns []string          `json:"columns"`
	// Values are rows of strings, json.Numbers, booleans and nil.
	Values [][]any `json:"values"`
}

// Column returns the values of a column, or nil.
func (s Series) Column(name string) []any {
	for i, c := range s.Columns {
		if c == name {
			out := make([]any, len(s.Values))
			for r := range s.Values {
				out[r] = s.Values[r][i]
			}
			return out
		}
	}
	return nil
}

// Query runs InfluxQL, one statement, on the database netsketch, with times in
// nanoseconds. It fails the test if influxd refuses the query.
func (s *Server) Query(q string) []Series {
	s.tb.Helper()
	out, err := s.TryQuery(q)
	if err != nil {
		s.tb.Fatalf("%s: %v", q, err)
	}
	return out
}

// TryQuery runs a query as Query does, but returns the error.
func (s *Server) TryQuery(q string) ([]Series, error) {
	form := url.Values{"db": {"netsketch"}, "q": {q}, "epoch": {"ns"}}
	req, err := http.NewRequest(http.MethodPost, s.URL+"/query", strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if s.auth {
		req.SetBasicAuth("admin", "secret")
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Error   string `json:"error"`
		Results []struct {
			Error  string   `json:"error"`
			Series []Series `json:"series"`
		} `json:"results"`
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	if err := dec.Decode(&answer); err != nil {
		return nil, fmt.Errorf("%s: %w", strings.TrimSpace(string(body)), err)
	}
	if answer.Error != "" {
		return nil, errors.New(answer.Error)
	}
	var all []Series
	for _, r := range answer.Results {
		if r.Error != "" {
			return nil, errors.New(r.Error)
		}
		all = append(all, r.Series...)
	}
	return all, nil
}

// Count returns the number of points of a measurement that have the field.
func (s *Server) Count(measurement, field string) int {
	s.tb.Helper()
	out := s.Query(fmt.Sprintf(`SELECT COUNT("%s") FROM "%s"`, field, measurement))
	if len(out) == 0 {
		return 0
	}
	n, err := out[0].Column("count")[0].(json.Number).Int64()
	if err != nil {
		s.tb.Fatal(err)
	}
	return int(n)
}
