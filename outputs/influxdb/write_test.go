// SPDX-License-Identifier: Apache-2.0

package influxdb

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/netsketch/netsketch/collector/config"
)

// database is a pretended InfluxDB whose answers a test chooses.
type database struct {
	*httptest.Server
	mu      sync.Mutex
	answer  func(lines []string, r *http.Request) (status int, header map[string]string, body string)
	written []string
	asked   int // requests
}

func newDatabase(t *testing.T) *database {
	d := &database{}
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(r.Body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			body = z
		}
		text, err := io.ReadAll(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
		d.mu.Lock()
		defer d.mu.Unlock()
		d.asked++
		status := http.StatusNoContent
		if d.answer != nil {
			var header map[string]string
			var body string
			status, header, body = d.answer(lines, r)
			for k, v := range header {
				w.Header().Set(k, v)
			}
			defer fmt.Fprint(w, body)
		}
		if status == http.StatusNoContent {
			d.written = append(d.written, lines...)
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(d.Close)
	return d
}

func (d *database) set(answer func([]string, *http.Request) (int, map[string]string, string)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answer = answer
}

func (d *database) lines() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.written)
}

// lines makes points of one measurement, the bad ones marked.
func lines(n int, bad ...int) string {
	var b strings.Builder
	for i := range n {
		mark := ""
		if slices.Contains(bad, i) {
			mark = "BAD"
		}
		fmt.Fprintf(&b, "m,flow=%d%s n=%di %d\n", i, mark, i, i)
	}
	return b.String()
}

func testConfig(url string) Config {
	c := DefaultConfig()
	c.URL, c.Bucket, c.Org, c.Token = url, "netsketch", "org", "token"
	c.FlushInterval = 5 * time.Millisecond
	c.Timeout, c.StopTimeout = time.Minute, time.Minute // a loaded machine is slow, not broken
	c.Spool.MaxBytes = 64 << 20
	return c
}

func newTestWriter(t *testing.T, d *database, log io.Writer) *writer {
	c := testConfig(d.URL)
	w, err := newWriter(&c, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	return w
}

func status(code int, message string) func([]string, *http.Request) (int, map[string]string, string) {
	return func([]string, *http.Request) (int, map[string]string, string) {
		return code, map[string]string{"Content-Type": "application/json"},
			fmt.Sprintf(`{"code":"c","message":%q}`, message)
	}
}

func TestDeliver(t *testing.T) {
	badPoints := func(lines []string, _ *http.Request) (int, map[string]string, string) {
		for _, l := range lines {
			if strings.Contains(l, "BAD") {
				return http.StatusBadRequest, map[string]string{"Content-Type": "application/json"},
					`{"code":"invalid","message":"unable to parse something"}`
			}
		}
		return http.StatusNoContent, nil, ""
	}
	var unreachable *unreachableError
	var refused *refusedError
	tests := []struct {
		name    string
		answer  func([]string, *http.Request) (int, map[string]string, string)
		lines   string
		dropped int
		written int
		as      any
		after   time.Duration
		message string
		log     string
	}{
		{"delivered", nil, lines(10), 0, 10, nil, 0, "", ""},
		{"bad points", badPoints, lines(100, 0, 41, 99), 3, 97, nil, 0, "", `series="m,flow=0BAD"`},
		{"all bad", badPoints, lines(4, 0, 1, 2, 3), 4, 0, nil, 0, "", "a point that InfluxDB refuses"},
		{"one point", badPoints, lines(1, 0), 1, 0, nil, 0, "", "unable to parse something"},
		{"partial write", status(422, "partial write: field type conflict: input field \\\"n\\\" on measurement \\\"m\\\" is type float dropped=7"), lines(10), 7, 0, nil, 0, "", "field type conflict"},
		{"too large", func(l []string, _ *http.Request) (int, map[string]string, string) {
			if len(l) > 3 {
				return http.StatusRequestEntityTooLarge, nil, ""
			}
			return http.StatusNoContent, nil, ""
		}, lines(100), 0, 100, nil, 0, "", ""},
		{"one point too large", status(413, "x"), lines(1), 1, 0, nil, 0, "", "413 Request Entity Too Large"},
		{"busy", func([]string, *http.Request) (int, map[string]string, string) {
			return http.StatusTooManyRequests, map[string]string{"Retry-After": "17"}, ""
		}, lines(3), 0, 0, &unreachable, 17 * time.Second, "429 Too Many Requests", ""},
		{"away until", func([]string, *http.Request) (int, map[string]string, string) {
			return http.StatusServiceUnavailable, map[string]string{"Retry-After": epoch.Add(90 * time.Second).Format(http.TimeFormat)}, ""
		}, lines(3), 0, 0, &unreachable, 90 * time.Second, "503", ""},
		{"away for ever", func([]string, *http.Request) (int, map[string]string, string) {
			return http.StatusServiceUnavailable, map[string]string{"Retry-After": "999999999"}, ""
		}, lines(3), 0, 0, &unreachable, 10 * time.Minute, "503", ""},
		{"broken", status(500, "engine on fire"), lines(3), 0, 0, &unreachable, 0,
			"500 Internal Server Error: engine on fire", ""},
		{"gateway", status(502, ""), lines(3), 0, 0, &unreachable, 0, "502", ""},
		{"no token", status(401, "unauthorized access"), lines(3), 0, 0, &refused, 0,
			"401 Unauthorized: unauthorized access", ""},
		{"not allowed", status(403, "no"), lines(3), 0, 0, &refused, 0, "403", ""},
		{"no bucket", status(404, `bucket "netsketch" not found`), lines(3), 0, 0, &refused, 0,
			`bucket "netsketch" not found`, ""},
		{"elsewhere", func([]string, *http.Request) (int, map[string]string, string) {
			return http.StatusFound, map[string]string{"Location": "/login"}, ""
		}, lines(3), 0, 0, &refused, 0, "302", ""},
		{"a web page", func([]string, *http.Request) (int, map[string]string, string) {
			return 200, map[string]string{"Content-Type": "text/html; charset=utf-8"}, "<html>log in</html>"
		}, lines(3), 0, 0, &unreachable, 0, "the server answered with a web page", ""},
		{"endless answer", func([]string, *http.Request) (int, map[string]string, string) {
			return 500, nil, strings.Repeat("x", 1<<20)
		}, lines(3), 0, 0, &unreachable, 0, "xxx…", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := newDatabase(t)
			d.set(tt.answer)
			var log bytes.Buffer
			w := newTestWriter(t, d, &log)
			w.now = func() time.Time { return epoch }
			dropped, err := w.deliver(t.Context(), tt.lines)
			switch as := tt.as.(type) {
			case nil:
				if err != nil {
					t.Fatal(err)
				}
			case **unreachableError:
				if !errors.As(err, as) || (*as).after != tt.after || !strings.Contains(err.Error(), tt.message) {
					t.Fatalf("got %#v: %v", err, err)
				}
			case **refusedError:
				if !errors.As(err, as) || !strings.Contains(err.Error(), tt.message) {
					t.Fatalf("got %#v: %v", err, err)
				}
			}
			if dropped != tt.dropped || len(d.lines()) != tt.written {
				t.Errorf("%d dropped and %d written, want %d and %d", dropped, len(d.lines()), tt.dropped, tt.written)
			}
			if got := log.String(); tt.log == "" && got != "" ||
				!strings.Contains(strings.ReplaceAll(got, `\`, ""), tt.log) {
				t.Errorf("log %q, want %q", got, tt.log)
			}
			if strings.Contains(log.String(), "token") {
				t.Error("the token is in the log")
			}
		})
	}
}

func TestDeliverUnreachable(t *testing.T) {
	d := newDatabase(t)
	d.Close()
	w := newTestWriter(t, d, io.Discard)
	var unreachable *unreachableError
	if _, err := w.deliver(t.Context(), lines(1)); !errors.As(err, &unreachable) ||
		!strings.Contains(err.Error(), "refused") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.deliver(ctx, lines(1)); !errors.As(err, &unreachable) {
		t.Error(err)
	}
}

func TestHalves(t *testing.T) {
	for n := 1; n < 20; n++ {
		text := lines(n)
		var visit func(string) int
		visit = func(s string) int {
			a, b := halves(s)
			if b == "" {
				return strings.Count(a, "\n")
			}
			if a+b != s || a == "" {
				t.Fatalf("%q became %q and %q", s, a, b)
			}
			return visit(a) + visit(b)
		}
		if got := visit(text); got != n {
			t.Errorf("%d lines became %d", n, got)
		}
	}
}

func TestPartialWrite(t *testing.T) {
	tests := []struct {
		message string
		want    int
		ok      bool
	}{
		{"partial write: field type conflict: x dropped=3", 3, true},
		{"partial write: unable to parse 'a': b\nunable to parse 'c': d dropped=0", 2, true},
		{"partial write: points beyond retention policy dropped=12", 12, true},
		{"partial write: something", 0, false},
		{"unable to parse 'a': b", 0, false},
		{"", 0, false},
	}
	for _, tt := range tests {
		if n, ok := partialWrite(tt.message); n != tt.want || ok != tt.ok {
			t.Errorf("%q: %d %v", tt.message, n, ok)
		}
	}
}

func TestConfigErrorsNameTheKey(t *testing.T) {
	const good = "url: http://127.0.0.1:8086\nbucket: b\n"
	for _, tt := range []struct{ key, text string }{
		{"url", "bucket: b"},
		{"url", "bucket: b\nurl: 127.0.0.1:8086"},
		{"url", "bucket: b\nurl: ftp://x"},
		{"url", "bucket: b\nurl: http://user:secret@x"},
		{"bucket", "url: http://127.0.0.1:8086"},
		{"batch-points", good + "batch-points: 0"},
		{"batch-bytes", good + "batch-bytes: 5"},
		{"flush-interval", good + "flush-interval: 0s"},
		{"timeout", good + "timeout: -1ns"},
		{"stop-timeout", good + "stop-timeout: -1ns"},
		{"max-series", good + "max-series: 0"},
		{"series-window", good + "series-window: 0s"},
		{"spool.max-bytes", good + "spool: {max-bytes: 1}"},
		{"spool.max-age", good + "spool: {max-age: -1ns}"},
	} {
		section, err := config.SectionOf("influxdb.yaml", tt.text)
		if err != nil {
			t.Fatal(err)
		}
		err = section.Decode(new(Config))
		var problems config.Problems
		if !errors.As(err, &problems) || len(problems) != 1 || problems[0].Path != tt.key ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v", tt.key, err)
		}
	}
	valid := testConfig("http://127.0.0.1:8086")
	bad := valid
	bad.URL = "ftp://x"
	if _, err := New("x", bad, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("New accepted a URL that is not http")
	}
	c := valid
	c.CAFile = "/does/not/exist"
	if _, err := New("x", c, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "ca-file") {
		t.Error(err)
	}
}
