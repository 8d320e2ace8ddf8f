// SPDX-License-Identifier: Apache-2.0

// Requests and the meaning of their answers.

package influxdb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	influxdb2 "github.com/influxdata/influxdb-client-go/v2"
	"github.com/influxdata/influxdb-client-go/v2/api"
	influxhttp "github.com/influxdata/influxdb-client-go/v2/api/http"
)

// unreachableError means that the database is unreachable: send the same request again later.
type unreachableError struct {
	after time.Duration // from Retry-After; 0 without it
	err   error
}

func (e *unreachableError) Error() string { return e.err.Error() }
func (e *unreachableError) Unwrap() error { return e.err }

// refusedError means that the settings of the output or of the database are wrong.
type refusedError struct{ err error }

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// writer sends requests. One goroutine uses it; any may call close.
type writer struct {
	api       api.WriteAPIBlocking
	client    influxdb2.Client
	transport *http.Transport
	timeout   time.Duration
	logger    *slog.Logger
	now       func() time.Time
	logged    map[string]time.Time // when dropped points were logged last, by measurement
}

func newWriter(c *Config, logger *slog.Logger) (*writer, error) {
	tlsConfig, err := c.tlsConfig()
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		TLSClientConfig:     tlsConfig,
		ForceAttemptHTTP2:   true,
		MaxIdleConns:        2,
		IdleConnTimeout:     90 * time.Second,
		TLSHandshakeTimeout: c.Timeout,
	}
	client := influxdb2.NewClientWithOptions(c.URL, c.Token.Reveal(), influxdb2.DefaultOptions().
		SetHTTPClient(&http.Client{
			Transport: answers{transport},
			// A redirected POST arrives without its body.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}).
		SetPrecision(time.Nanosecond).SetUseGZip(c.Gzip).SetApplicationName("netsketch"))
	return &writer{
		api:       client.WriteAPIBlocking(c.Org, c.Bucket),
		client:    client,
		transport: transport,
		timeout:   c.Timeout,
		logger:    logger,
		now:       time.Now,
		logged:    map[string]time.Time{},
	}, nil
}

func (w *writer) close() {
	w.client.Close()
	w.transport.CloseIdleConnections()
}

// errPage is the error for an answer with a web page, as of a login or of another server. InfluxDB
// answers a successful write without content.
var errPage = errors.New("the server answered with a web page instead of InfluxDB's empty answer; expected the address of InfluxDB in url, without a proxy that requires a login")

// answers bounds the size of answers, and makes web pages errors.
type answers struct{ next http.RoundTripper }

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := a.next.RoundTrip(r)
	if err == nil && resp.StatusCode < 300 && strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") {
		resp.Body.Close()
		return nil, errPage
	}
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, 64<<10), resp.Body}
	}
	return resp, err
}

// deliver sends lines until each is delivered or dropped, and returns the number dropped. After an
// unreachableError or a refusedError, all of the lines are to be sent again.
func (w *writer) deliver(ctx context.Context, lines string) (dropped int, err error) {
	request, cancel := context.WithTimeout(ctx, w.timeout)
	err = w.api.WriteRecord(request, lines)
	cancel()
	if err == nil {
		return 0, nil
	}
	answer := &influxhttp.Error{}
	if !errors.As(err, &answer) || answer.StatusCode == 0 {
		return 0, &unreachableError{err: redact(err)}
	}
	reason := fmt.Errorf("%d %s: %s", answer.StatusCode, http.StatusText(answer.StatusCode),
		oneLine(answer.Message, err))
	switch code := answer.StatusCode; {
	case code == http.StatusTooManyRequests || code >= 500:
		return 0, &unreachableError{retryAfter(answer, w.now()), reason}
	case code == http.StatusUnauthorized || code == http.StatusForbidden || code == http.StatusNotFound || code < 400:
		return 0, &refusedError{reason}
	case code != http.StatusRequestEntityTooLarge:
		if n, ok := partialWrite(answer.Message); ok {
			w.logDropped(lines, n, reason)
			return n, nil
		}
	}
	first, rest := halves(lines)
	if rest == "" {
		w.logDropped(lines, 1, reason)
		return 1, nil
	}
	a, err := w.deliver(ctx, first)
	if err != nil {
		return 0, err
	}
	b, err := w.deliver(ctx, rest)
	return a + b, err
}

// halves splits lines in two at the end of a line; rest is empty for a single line.
func halves(lines string) (first, rest string) {
	trimmed := strings.TrimSuffix(lines, "\n")
	if i := strings.LastIndexByte(trimmed[:len(trimmed)/2], '\n'); i >= 0 {
		return lines[:i+1], lines[i+1:]
	}
	if i := strings.IndexByte(trimmed, '\n'); i >= 0 {
		return lines[:i+1], lines[i+1:]
	}
	return lines, ""
}

var droppedCount = regexp.MustCompile(`dropped=(\d+)`)

// partialWrite reads the answer of an InfluxDB that has written only the valid points of a request,
// and returns the number of the others. It returns false if the answer has no number; then halving
// finds the invalid points.
func partialWrite(message string) (dropped int, ok bool) {
	if !strings.Contains(message, "partial write") {
		return 0, false
	}
	for _, m := range droppedCount.FindAllStringSubmatch(message, -1) {
		if n, err := strconv.Atoi(m[1]); err == nil && n > dropped {
			dropped = n
		}
	}
	// Lines that could not be parsed are listed and not part of the number.
	dropped += strings.Count(message, "unable to parse")
	return dropped, dropped > 0
}

// retryAfter returns the time of a Retry-After header, at most 10 minutes.
func retryAfter(e *influxhttp.Error, now time.Time) time.Duration {
	after := time.Duration(e.RetryAfter) * time.Second
	if at, err := http.ParseTime(e.Header.Get("Retry-After")); err == nil {
		after = at.Sub(now)
	}
	return min(max(after, 0), 10*time.Minute)
}

// logDropped logs dropped points, for a single line with its series, at most once a minute per
// measurement.
func (w *writer) logDropped(lines string, dropped int, reason error) {
	series := seriesOf(lines)
	name, _, _ := strings.Cut(series, ",")
	if last, ok := w.logged[name]; ok && w.now().Sub(last) < time.Minute {
		return
	}
	if len(w.logged) > 1000 {
		clear(w.logged)
	}
	w.logged[name] = w.now()
	if strings.Count(strings.TrimSuffix(lines, "\n"), "\n") > 0 {
		w.logger.Warn("InfluxDB dropped points", "points", dropped, "error", reason)
		return
	}
	w.logger.Warn("a point that InfluxDB refuses is dropped", "series", series, "error", reason)
}

// seriesOf returns a line's measurement and tags in their escaped form, at most 300 bytes.
func seriesOf(line string) string {
	for i := range len(line) {
		if line[i] == '\n' || line[i] == ' ' && (i == 0 || line[i-1] != '\\') {
			line = line[:i]
			break
		}
	}
	if len(line) > 300 {
		line = line[:300] + "…"
	}
	return line
}

// oneLine returns the text of an answer as one log line. InfluxDB 1.8 answers v2 requests in a form
// of which the client returns only the status.
func oneLine(message string, err error) string {
	if message == "" {
		message = err.Error()
	}
	if len(message) > 500 {
		message = message[:500] + "…"
	}
	return strings.ToValidUTF8(strings.Join(strings.Fields(message), " "), "?")
}

// redact removes the address from network errors; it is known from the settings.
func redact(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
