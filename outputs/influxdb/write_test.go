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
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/netsketch/netsketch/internal/certs"
	"github.com/netsketch/netsketch/outputs"
	"github.com/netsketch/netsketch/settings"
	"github.com/netsketch/netsketch/settings/yaml"
)

// database is a fake InfluxDB whose replies a test sets.
type database struct {
	*httptest.Server
	mu      sync.Mutex
	answer  func(lines []string, r *http.Request) (status int, header map[string]string, body string)
	written []string
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

// lines returns the lines that the server accepted, without the lines of write checks.
func (d *database) lines() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(d.written), func(l string) bool { return strings.HasPrefix(l, writeCheck) })
}

// lines returns n points of one measurement, the bad ones with a mark.
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
	c := settings.Default[Config]()
	c.URL, c.Bucket, c.Org, c.Token = url, "netsketch", "org", "token"
	c.FlushInterval = 5 * time.Millisecond
	c.Timeout, c.StopTimeout = time.Minute, time.Minute // long enough for a loaded machine
	c.Spool.MaxBytes = 64 << 20
	return c
}

func newTestWriter(t *testing.T, d *database, log io.Writer) *writer {
	c := testConfig(d.URL)
	w := newWriter(&c, nil, slog.New(slog.NewTextHandler(log, nil)))
	t.Cleanup(w.close)
	return w
}

func status(code int, message string) func([]string, *http.Request) (int, map[string]string, string) {
	return func([]string, *http.Request) (int, map[string]string, string) {
		return code, map[string]string{"Content-Type": "application/json"},
			fmt.Sprintf(`{"code":"c","message":%q}`, message)
	}
}

// Only InfluxDB's own errors about line protocol drop points, in the forms of versions 1.8, 2 and
// 3.
func TestDeliver(t *testing.T) {
	// rejecting replies with an error to each request that contains invalid points.
	rejecting := func(code int, body string) func([]string, *http.Request) (int, map[string]string, string) {
		return func(lines []string, _ *http.Request) (int, map[string]string, string) {
			for _, l := range lines {
				if strings.Contains(l, "BAD") {
					return code, nil, body
				}
			}
			return http.StatusNoContent, nil, ""
		}
	}
	version1 := rejecting(400, `{"error":"unable to parse 'm,flow=0BAD n=0i 0': bad"}`)
	version2 := rejecting(400, `{"code":"invalid","message":"unable to parse 'm,flow=0BAD n=0i 0': bad"}`)
	version3 := rejecting(400, `{"error":"partial write of line protocol occurred",`+
		`"data":[{"error_message":"invalid column type for column 'n'","line_number":1}]}`)
	greptime := rejecting(400, `{"code":1004,"error":"Failed to parse InfluxDB line protocol, source: bad",`+
		`"execution_time_ms":0}`)
	victoria := rejecting(400, `remoteAddr: "10.0.0.7:41234"; requestURI: /api/v2/write; cannot process influx line `+
		`protocol data: incorrect influx line "m,flow=0BAD": cannot parse timestamp`)
	telegraf := rejecting(400, `{"code":"internal error","err":"x","line":"0","message":"metric parse error: `+
		`expected field at 2:22: \"m,flow=0BAD\"","op":""}`)
	created := rejecting(201, `{"code":"invalid","message":"failed to parse line protocol: on line 1","line":1}`)
	conflict := status(422, "failure writing points to database: partial write: field type conflict: "+
		`input field \"n\" on measurement \"m\" is type float, already exists as type integer dropped=7`)
	smallest := func(limit int) func([]string, *http.Request) (int, map[string]string, string) {
		return func(lines []string, _ *http.Request) (int, map[string]string, string) {
			if len(lines) > limit {
				return http.StatusRequestEntityTooLarge, nil, "<html>too large</html>"
			}
			return http.StatusNoContent, nil, ""
		}
	}
	tests := []struct {
		name    string
		answer  func([]string, *http.Request) (int, map[string]string, string)
		lines   string
		dropped int
		written int
		reason  string
	}{
		{"valid", nil, lines(10), 0, 10, ""},
		{"some invalid, 1.8", version1, lines(100, 0, 41, 99), 3, 97, "m,flow=99BAD: 400 Bad Request: unable to parse"},
		{"some invalid, 2", version2, lines(100, 0, 41, 98), 3, 97, "m,flow=98BAD: 400 Bad Request: unable to parse"},
		{"some invalid, 3", version3, lines(100, 0, 41, 99), 3, 97, "invalid column type for column 'n'"},
		{"some invalid, GreptimeDB", greptime, lines(100, 5, 6), 2, 98, "m,flow=6BAD: 400 Bad Request: Failed to parse"},
		{"some invalid, VictoriaMetrics", victoria, lines(100, 5, 6), 2, 98, "m,flow=6BAD: 400 Bad Request: remoteAddr"},
		{"some invalid, Telegraf", telegraf, lines(100, 5, 6), 2, 98, "m,flow=6BAD: 400 Bad Request: metric parse error"},
		{"partial write as 201", created, lines(100, 5), 1, 99, "m,flow=5BAD: 201 Created: failed to parse line"},
		{"all invalid", version1, lines(4, 0, 1, 2, 3), 4, 0, "m,flow=3BAD"},
		{"one invalid", version2, lines(1, 0), 1, 0, "m,flow=0BAD"},
		{"counted partial write", conflict, lines(10), 7, 0, "422 Unprocessable Entity: failure writing"},
		{"counted, as a server error", status(500, "unexpected error writing points to database: partial write: "+
			"points beyond retention policy dropped=7"), lines(10), 7, 0, "500 Internal Server Error: unexpected"},
		{"counted too high", conflict, lines(2), 2, 0, "already exists as type integer"},
		{"too large", smallest(3), lines(100), 0, 100, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := newDatabase(t)
			d.set(tt.answer)
			var log bytes.Buffer
			w := newTestWriter(t, d, &log)
			got, failed := w.deliver(t.Context(), tt.lines)
			if failed != nil {
				t.Fatal(failed)
			}
			if got.points != tt.dropped || len(d.lines()) != tt.written {
				t.Errorf("%d dropped and %d written, want %d and "+
					"%d", got.points, len(d.lines()), tt.dropped, tt.written)
			}
			if !strings.Contains(got.reason, tt.reason) || (got.reason == "") != (tt.reason == "") {
				t.Errorf("reason %q, want %q", got.reason, tt.reason)
			}
			if logged := strings.Count(log.String(), "InfluxDB rejects points"); logged != min(tt.dropped, 1) {
				t.Errorf("%d lines in the log:\n%s", logged, &log)
			}
			if strings.Contains(log.String(), "token") {
				t.Error("the token is in the log")
			}
		})
	}
}

// After any other reply, all points are kept, and the state shows the reason and a status other
// than up. When InfluxDB replies normally again, all points are delivered.
func TestAnswersThatKeepPoints(t *testing.T) {
	answer := func(code int, contentType, body string, header ...string) func() (int, map[string]string, string) {
		h := map[string]string{"Content-Type": contentType}
		for i := 0; i < len(header); i += 2 {
			h[header[i]] = header[i+1]
		}
		return func() (int, map[string]string, string) { return code, h, body }
	}
	const html, js, text = "text/html; charset=utf-8", "application/json", "text/plain; charset=utf-8"
	page := "<html><head><style>p {color: red}</style><title>Sign in</title></head><body><p>Portal</p></body></html>"
	tests := []struct {
		name   string
		answer func() (int, map[string]string, string)
		status outputs.Status
		reason string
	}{
		{"login page", answer(200, html, page), outputs.Down, "not an answer of InfluxDB"},
		{"other JSON", answer(200, js, `{"status":"OK"}`), outputs.Down, `200 OK: {"status":"OK"}`},
		{"200 in InfluxDB's form", answer(200, js, `{"error":"timeout"}`), outputs.Refused, "200 OK: timeout"},
		{"empty 200", answer(200, text, ""), outputs.Down, "check url and the proxies on the way: 200 OK"},
		{"201", answer(201, js, `{"id":7}`), outputs.Down, "201 Created"},
		{"202", answer(202, text, "queued"), outputs.Down, "202 Accepted: queued"},
		{"redirect", answer(302, html, page, "Location", "/login?ticket=1"), outputs.Down, "redirect to /login Sign"},
		{"a proxy's 400", answer(400, html, page), outputs.Down, "400 Bad Request: Sign in Portal"},
		{"TLS port", answer(400, text, "Client sent an HTTP request to an HTTPS "+
			"server."), outputs.Down, "an HTTPS server"},
		{"400 of another API", answer(400, js, `{"error":{"code":7,"message":"unable to parse 'x'"}}`), outputs.Down,
			"not an answer of InfluxDB"},
		{"text that quotes a line error", answer(400, text, "partial write: dropped=3"), outputs.Down, "partial write"},
		{"other 400 of 1.8", answer(400, js, `{"error":"bucket is required"}`), outputs.Refused, "bucket is required"},
		{"other 400 of 2", answer(400, js, `{"code":"invalid","message":"gzip: invalid header"}`), outputs.Refused,
			"400 Bad Request: gzip: invalid header"},
		{"other 422", answer(422, js, `{"code":"unprocessable entity","message":"schema"}`), outputs.Refused, "schema"},
		{"no token", answer(401, js, `{"code":"unauthorized","message":"unauthorized access"}`), outputs.Refused,
			"401 Unauthorized: unauthorized access"},
		{"not permitted", answer(403, html, page), outputs.Refused, "403 Forbidden: Sign in"},
		{"no bucket", answer(404, js, `{"error":"database not found: `+
			`\"x\""}`), outputs.Refused, `database not found: "x"`},
		{"another path", answer(404, text, "404 page not found"), outputs.Refused, "not an answer of InfluxDB"},
		{"method", answer(405, text, "Method Not Allowed"), outputs.Down, "405 Method Not Allowed"},
		{"proxy login", answer(407, html, page), outputs.Refused, "407 Proxy Authentication Required"},
		{"timeout of a proxy", answer(408, html, page), outputs.Down, "408 Request Timeout"},
		{"too large for one point", answer(413, html, page), outputs.Refused, "a single point of "},
		{"too large for one point, InfluxDB", answer(413, js, `{"error":"Request Entity Too Large"}`), outputs.Refused,
			"raise the limit of the server or proxy: 413"},
		{"teapot", answer(418, text, "short and stout"), outputs.Down, "short and stout"},
		{"busy", answer(429, js, `{"code":"too many requests","message":"slow down"}`), outputs.Down, "429 Too Many"},
		{"server error", answer(500, js, `{"error":"engine: partial `+
			`write"}`), outputs.Down, "500 Internal Server Error"},
		{"gateway", answer(502, html, page), outputs.Down, "502 Bad Gateway: Sign in Portal"},
		{"not available", answer(503, text, ""), outputs.Down, "503 Service Unavailable"},
		{"gateway timeout", answer(504, html, page), outputs.Down, "504 Gateway Timeout"},
		{"long garbage", answer(499, text, strings.Repeat("\xff<", 5<<20)), outputs.Down, "499"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := newDatabase(t)
			d.set(func([]string, *http.Request) (int, map[string]string, string) { return tt.answer() })
			s := newStore(t)
			o := run(t, s, spoolConfig(t, d.URL), nil)
			publish(t, s, epoch, flows(20, 0))
			<-o.pauses
			<-o.pauses
			st := o.State()
			if st.Status != tt.status || !strings.Contains(st.LastError, tt.reason) ||
				strings.Contains(st.LastError, "color") {
				t.Errorf("status %s with error %q, want %s with %q", st.Status, st.LastError, tt.status, tt.reason)
			}
			if st.Sent != 0 || st.Dropped != 0 || st.Queued != 20 {
				t.Errorf("%+v", st)
			}
			d.set(nil)
			if st := o.drained(20); st.Sent != 20 || st.LastError != "" || len(d.lines()) != 20 {
				t.Errorf("afterwards: %+v, %d lines", st, len(d.lines()))
			}
		})
	}
}

// The reply's text in the state is at most one line, and contains only the path of an address.
func TestAnswerText(t *testing.T) {
	long := newAnswer(500, http.Header{}, []byte(strings.Repeat("x\n", 2000)))
	if got := long.Error(); len(got) > 600 || strings.Contains(got, "\n") || !strings.HasSuffix(got, "…") {
		t.Errorf("got %q", got)
	}
	away := newAnswer(307, http.Header{"Location": {"https://login.example/x?token=secret"}}, nil)
	if got := away.Error(); !strings.HasSuffix(got, "307 Temporary Redirect: redirect to https://login.example/x") {
		t.Errorf("got %q", got)
	}
}

// The output does not divide a batch while the server lacks memory, disk or time, because such a
// server refuses some requests and accepts others, whatever their lines are.
func TestOverloadIsNotOfLines(t *testing.T) {
	for message, want := range map[string]bool{
		"an internal error has occurred: panic":                           true,
		"engine: cache-max-memory-size exceeded: (1074767264/1073741824)": false,
		"timeout": false, "request timed out": false, "context deadline exceeded": false,
		"[shard 3] write /db/wal/_00001.wal: no space left on device": false,
		"open /db/data/1.tsm: too many open files":                    false,
		"write failed: hinted handoff queue not empty":                false,
	} {
		a := newAnswer(500, http.Header{}, fmt.Appendf(nil, `{"error":%q}`, message))
		if got := !a.ofLoad(); got != want {
			t.Errorf("%s: %v", message, got)
		}
	}
}

func TestRetryAfterHeader(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"17": 17 * time.Second, "999999999": 10 * time.Minute, "-5": 0, "": 0, "soon": 0,
		epoch.Add(90 * time.Second).Format(http.TimeFormat): 90 * time.Second,
		epoch.Add(-time.Hour).Format(http.TimeFormat):       0,
	} {
		if got := retryAfter(http.Header{"Retry-After": {value}}, epoch); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
}

// If a server resets connections, the error is the same at each attempt, so that it is logged
// once.
func TestDeliverResetConnections(t *testing.T) {
	d := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_ = c.(*net.TCPConn).SetLinger(0) // reset
		c.Close()
	}))
	defer d.Close()
	w := newTestWriter(t, &database{Server: d}, io.Discard)
	for range 5 {
		_, failed := w.deliver(t.Context(), lines(1))
		if failed == nil || failed.status != outputs.Down || strings.Contains(failed.Error(), "127.0.0.1") {
			t.Errorf("got %v", failed)
		}
	}
}

func TestDeliverUnreachable(t *testing.T) {
	d := newDatabase(t)
	d.Close()
	w := newTestWriter(t, d, io.Discard)
	if _, failed := w.deliver(t.Context(), lines(1)); failed == nil || failed.status != outputs.Down ||
		!strings.Contains(failed.Error(), "connection refused") {
		t.Error(failed)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, failed := w.deliver(ctx, lines(1)); failed == nil || failed.status != outputs.Down {
		t.Error(failed)
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
		{"url", "bucket: b\nurl: http://x:8086/api/v2/write"},
		{"url", "bucket: b\nurl: http://x/influx/api/v2/"},
		{"url", "bucket: b\nurl: http://x:8086/write"},
		{"url", "bucket: b\nurl: admin:secret@x:8086"},
		{"url", "bucket: b\nurl: htp://x/?token=secret"},
		{"url", "bucket: b\nurl: http://x/?token=secret"},
		{"url", "bucket: b\nurl: 'http://user:secret@x:80 80'"},
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
		section, err := yaml.Section("influxdb.yaml", tt.text)
		if err != nil {
			t.Fatal(err)
		}
		err = section.Decode(new(Config))
		var problems settings.Problems
		if !errors.As(err, &problems) || len(problems) != 1 || problems[0].Path != tt.key ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v", tt.key, err)
		}
	}
	valid := testConfig("http://127.0.0.1:8086")
	bad := valid
	bad.URL = "ftp://x"
	if _, err := New("x", bad, certs.New(certs.Options{}), slog.New(slog.DiscardHandler)); err == nil {
		t.Error("New accepted a URL that is not http")
	}
	c := valid
	c.CAFile = "/does/not/exist"
	if _, err := New("x", c, certs.New(certs.Options{}), slog.New(slog.DiscardHandler)); err == nil ||
		!strings.Contains(err.Error(), "ca-file") {
		t.Error(err)
	}
}
