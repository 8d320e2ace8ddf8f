// SPDX-License-Identifier: Apache-2.0

// Sends requests; splits, drops or repeats them after errors.

package influxdb

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	influxdb2 "github.com/influxdata/influxdb-client-go/v2"
	"github.com/influxdata/influxdb-client-go/v2/api"

	"github.com/netsketch/netsketch/outputs"
)

// undelivered is the error of a request that must be sent again with all of its points.
type undelivered struct {
	// status is outputs.Refused if a setting of the output or of the database is wrong, and
	// outputs.Down otherwise.
	status outputs.Status
	after  time.Duration // time of the Retry-After header; 0 without the header
	err    error
}

func (e *undelivered) Error() string { return e.err.Error() }
func (e *undelivered) Unwrap() error { return e.err }

// answered reports whether the request reached a server. Besides a reply, it may be a connection
// that the server or a proxy closes, and a timeout of a request that is too large.
func (e *undelivered) answered() bool {
	op, ok := errors.AsType[*net.OpError](e.err)
	return !errors.Is(e.err, context.Canceled) && (!ok || op.Op != "dial")
}

// mayBeOfLines reports whether some lines of the request may be the reason for a repeated failure,
// rather than a server that lacks time or memory.
func (e *undelivered) mayBeOfLines() bool {
	a, ok := errors.AsType[*answer](e.err)
	return e.answered() && (!ok || !a.ofLoad())
}

// ofPoint reports whether InfluxDB refuses the point, such as a measurement that an explicit schema
// does not have, rather than the client.
func (e *undelivered) ofPoint() bool {
	a, ok := errors.AsType[*answer](e.err)
	return ok && a.influx && (a.code == http.StatusBadRequest || a.code == http.StatusUnprocessableEntity)
}

// kind identifies failures of the same kind: the status of a reply, or the text of another error.
func (e *undelivered) kind() string {
	if a, ok := errors.AsType[*answer](e.err); ok {
		return strconv.Itoa(a.code)
	}
	return e.err.Error()
}

// drops counts points that InfluxDB has rejected.
type drops struct {
	points int
	reason string // reason of the last rejection, with the series if InfluxDB rejected a single point
}

// writer sends requests. Only one goroutine uses it, except that any may call close.
type writer struct {
	api       api.WriteAPIBlocking
	client    influxdb2.Client
	transport *http.Transport
	timeout   time.Duration
	logger    *slog.Logger
	now       func() time.Time
	aside     func(lines string)   // keeps lines that InfluxDB rejects; nil drops them
	logged    map[string]time.Time // time when dropped points were last logged, by measurement
	accepted  string               // last line of the last request that was accepted
	refused   map[string]bool      // series of lines that isolate has found; at most maxRefused
}

const maxRefused = 1000

func newWriter(c *Config, tlsConfig *tls.Config, logger *slog.Logger) *writer {
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
			Transport: answers{transport, 2*int64(c.BatchBytes) + 1<<20},
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
		refused:   map[string]bool{},
	}
}

func (w *writer) close() {
	w.client.Close()
	w.transport.CloseIdleConnections()
}

// deliver sends lines until each line is delivered or rejected by InfluxDB. Only InfluxDB's own
// errors about line protocol reject points; every other failure is an undelivered error.
func (w *writer) deliver(ctx context.Context, lines string) (drops, *undelivered) {
	request, cancel := context.WithTimeout(ctx, w.timeout)
	err := w.api.WriteRecord(request, lines)
	cancel()
	if err == nil {
		if i := strings.LastIndexByte(strings.TrimSuffix(lines, "\n"), '\n'); !strings.HasPrefix(lines, writeCheck) {
			w.accepted = strings.Clone(lines[i+1:])
		}
		return drops{}, nil
	}
	a, ok := errors.AsType[*answer](err)
	if !ok {
		return drops{}, &undelivered{status: outputs.Down, err: redact(err)}
	}
	rejects := a.rejectsLines()
	if !rejects && a.code != http.StatusRequestEntityTooLarge {
		return drops{}, a.undelivered(w.now())
	}
	if n, ok := partialWrite(a.message); rejects && ok {
		return w.drop(lines, min(n, strings.Count(lines, "\n")), a), nil
	}
	first, rest := halves(lines)
	switch {
	case rest != "":
	case rejects:
		return w.drop(lines, 1, a), nil
	default:
		return drops{}, &undelivered{status: outputs.Refused, err: fmt.Errorf(
			"a single point of %d bytes is too large; raise the limit of the server or proxy: %w", len(lines), a)}
	}
	d, failed := w.deliver(ctx, first)
	if failed != nil {
		return drops{}, failed
	}
	e, failed := w.deliver(ctx, rest)
	return drops{d.points + e.points, cmp.Or(e.reason, d.reason)}, failed
}

// isolate delivers a batch that has failed several times in the same way. By halving the batch, it
// finds the lines that cause the failure. It does so only while InfluxDB accepts another write,
// because a server that refuses every request must not lose points, and should not get more
// requests. failed is the failure of the batch. If patient is set, a line may be the cause of any
// reply, but must fail more often (patientConfirmations).
func (w *writer) isolate(ctx context.Context, lines string, failed *undelivered, patient bool) (drops, *undelivered) {
	x := isolation{writer: w, confirmations: confirmations, ofLines: (*undelivered).mayBeOfLines}
	if patient {
		x.confirmations, x.ofLines = patientConfirmations, (*undelivered).answered
	}
	if err := x.check(ctx); err != nil && !(x.accepted == "" && err.ofPoint() && x.anyAccepted(ctx, lines)) {
		return drops{}, failed
	}
	others, again := w.partRefused(lines)
	for _, part := range []string{others, again} {
		if part == "" {
			continue
		}
		if err := x.deliver(ctx, part); err != nil {
			return drops{}, err
		}
	}
	all := x.drops
	for i, line := range x.suspects {
		if len(w.refused) >= maxRefused {
			clear(w.refused)
		}
		w.refused[seriesOf(line)] = true
		d := w.drop(line, 1, x.reasons[i])
		all = drops{all.points + d.points, d.reason}
	}
	return all, nil
}

// partRefused separates the lines of series that InfluxDB has refused before from the others, so
// that a series that is always refused takes few requests.
func (w *writer) partRefused(lines string) (others, again string) {
	if len(w.refused) == 0 {
		return lines, ""
	}
	var parts [2]strings.Builder
	for line := range strings.SplitAfterSeq(lines, "\n") {
		i := 0
		if w.refused[seriesOf(line)] {
			i = 1
		}
		parts[i].WriteString(line)
	}
	return parts[0].String(), parts[1].String()
}

// isolation is the state of one call of isolate.
type isolation struct {
	*writer
	drops    drops    // lines that InfluxDB names in an error
	suspects []string // lines that cannot be delivered although the server accepts other lines
	reasons  []error

	confirmations int
	ofLines       func(*undelivered) bool // a line may be the reason of a failure
}

// writeCheck is the measurement of a point that no server has a reason to refuse.
const writeCheck = "netsketch-write-check"

// check writes a point that no server has a reason to refuse. If it is refused, as in a bucket with
// an explicit schema, check writes the last accepted line again, which changes nothing.
func (x *isolation) check(ctx context.Context) *undelivered {
	_, err := x.writer.deliver(ctx, fmt.Sprintf("%s value=1i %d\n", writeCheck, x.now().UnixNano()))
	if err != nil && x.ofLines(err) && x.accepted != "" {
		_, err = x.writer.deliver(ctx, x.accepted)
	}
	return err
}

// anyAccepted reports whether InfluxDB accepts one of a few lines of the batch. After a start, no
// line has been accepted yet that check could write again.
func (x *isolation) anyAccepted(ctx context.Context, lines string) bool {
	all := strings.SplitAfter(strings.TrimSuffix(lines, "\n"), "\n")
	const most = 16
	for i := range min(len(all), most) {
		_, err := x.writer.deliver(ctx, all[i*len(all)/min(len(all), most)])
		if err == nil && x.accepted != "" {
			return true
		}
	}
	return false
}

// confirmations and patientConfirmations are how often a single line must fail, and the server
// accept another line after each failure, until the line is set aside, so that no points are lost
// when the server fails now and then. If a line of the same series was set aside before, one
// failure suffices, but not if the server may be overloaded.
const confirmations, patientConfirmations = 3, 10

func (x *isolation) deliver(ctx context.Context, lines string) *undelivered {
	first, rest := halves(lines)
	for try := 1; ; try++ {
		d, failed := x.writer.deliver(ctx, lines)
		switch {
		case failed == nil:
			x.drops = drops{x.drops.points + d.points, cmp.Or(d.reason, x.drops.reason)}
			return nil
		case !x.ofLines(failed):
			return failed
		case rest != "":
			if failed := x.deliver(ctx, first); failed != nil {
				return failed
			}
			return x.deliver(ctx, rest)
		}
		if err := x.check(ctx); err != nil {
			return err
		}
		if try == x.confirmations || x.confirmations == confirmations && x.refused[seriesOf(lines)] {
			x.suspects, x.reasons = append(x.suspects, lines), append(x.reasons, failed.err)
			return nil
		}
	}
}

// halves splits lines in two at a line's end; rest is empty for a single line.
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

// partialWrite reads the reply of an InfluxDB that has written only the valid points of a request,
// and returns how many it dropped. It returns false if the reply contains no number; the invalid
// points are then found by halving.
func partialWrite(message string) (dropped int, ok bool) {
	if !strings.Contains(message, "partial write") {
		return 0, false
	}
	for _, m := range droppedCount.FindAllStringSubmatch(message, -1) {
		if n, err := strconv.Atoi(m[1]); err == nil && n > dropped {
			dropped = n
		}
	}
	// The number does not include lines that could not be parsed, which the message lists.
	dropped += strings.Count(message, "unable to parse")
	return dropped, dropped > 0
}

// drop returns the drops of a request, and logs them at most once a minute for each measurement.
func (w *writer) drop(lines string, points int, reason error) drops {
	d := drops{points, reason.Error()}
	series := seriesOf(lines)
	if strings.Count(lines, "\n") == 1 {
		d.reason = series + ": " + d.reason
		if w.aside != nil {
			w.aside(lines)
		}
	}
	name, _, _ := strings.Cut(series, ",")
	if last, ok := w.logged[name]; ok && w.now().Sub(last) < time.Minute {
		return d
	}
	if len(w.logged) > 1000 {
		clear(w.logged)
	}
	w.logged[name] = w.now()
	w.logger.Warn("InfluxDB rejects points; they are dropped", "points", points, "reason", d.reason)
	return d
}

// seriesOf returns a line's measurement and tags as they are escaped in the line, at most 300
// bytes.
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

// redact removes the URL from network errors, and the local port, which would make the same error
// look new at each attempt.
func redact(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op != "dial" {
		return fmt.Errorf("%s: %w", op.Op, op.Err)
	}
	return err
}
