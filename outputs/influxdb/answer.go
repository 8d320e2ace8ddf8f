// SPDX-License-Identifier: Apache-2.0

// Interprets the replies of InfluxDB.

package influxdb

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/netsketch/netsketch/outputs"
)

// answers turns every reply except InfluxDB's 204 into an error of type *answer.
type answers struct {
	next  http.RoundTripper
	limit int64 // largest number of bytes read of a reply, because InfluxDB repeats rejected lines in it
}

func (t answers) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err != nil || resp.StatusCode == http.StatusNoContent {
		return resp, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, t.limit))
	if err != nil {
		return nil, fmt.Errorf("%s, cut short: %w", resp.Status, err)
	}
	return nil, newAnswer(resp.StatusCode, resp.Header, body)
}

// answer is a reply other than 204.
type answer struct {
	code    int
	header  http.Header
	influx  bool   // the body has the form of an InfluxDB error
	message string // the error's message, or the text of the body
}

// newAnswer reads a reply. InfluxDB's error is {"error": TEXT} in 1.8, {"code": TEXT, "message":
// TEXT} in 2, and {"error": TEXT, "data": DETAILS} in 3. Of the databases that accept the same
// requests, GreptimeDB has a number as code, and VictoriaMetrics answers with plain text.
func newAnswer(code int, header http.Header, body []byte) *answer {
	var form struct {
		Error, Message string
		Code, Data     json.RawMessage
	}
	a := &answer{code: code, header: header}
	switch err := json.Unmarshal(body, &form); {
	case err == nil && form.Error != "":
		a.influx, a.message = true, form.Error
		if len(form.Data) > 0 && string(form.Data) != "null" {
			a.message += ": " + string(form.Data)
		}
	case err == nil && len(form.Code) > 0 && form.Message != "":
		a.influx, a.message = true, form.Message
	default:
		text := string(body[:min(len(body), 4<<10)])
		a.influx = victoriaMetrics.MatchString(text)
		a.message = tag.ReplaceAllString(text, " ")
	}
	return a
}

// victoriaMetrics matches errors of VictoriaMetrics about line protocol.
var victoriaMetrics = regexp.MustCompile(`(?i)\b(incorrect|cannot \w+) influx line`)

// tag matches a tag of HTML, or an element without text.
var tag = regexp.MustCompile(`(?is)<(style|script)\b.*?</(style|script)>|<[^>]*>`)

// Error returns the answer as one line.
func (a *answer) Error() string {
	text := strings.Join(strings.Fields(a.message), " ")
	if len(text) > 500 {
		text = text[:500] + "…"
	}
	text = strings.ToValidUTF8(text, "?")
	if to, _, _ := strings.Cut(a.header.Get("Location"), "?"); to != "" {
		text = strings.TrimSpace("redirect to " + to + " " + text)
	}
	status := strings.TrimSpace(strconv.Itoa(a.code) + " " + http.StatusText(a.code))
	if !a.influx && a.code < 500 && a.code != http.StatusTooManyRequests {
		status = "not an answer of InfluxDB, check url and the proxies on the way: " + status
	}
	if text == "" {
		return status
	}
	return status + ": " + text
}

// lineErrors matches errors about line protocol: the first line errors of InfluxDB 1.8 and 2, the
// second line errors of InfluxDB 3, QuestDB, Telegraf, GreptimeDB and VictoriaMetrics.
var lineErrors = regexp.MustCompile(`(?i)partial write|unable to parse '|field type conflict|beyond retention policy|` +
	`parse (InfluxDB )?line protocol|parsing failed|metric parse error|` +
	`invalid column type|column type mismatch|influx line`)

// rejectsLines reports whether InfluxDB rejects lines of the request as invalid. It uses the
// message and not the status, because InfluxDB 3 has answered a partial write with 201, and
// InfluxDB 2.0 with 500. With a server error, the message must name the reason, because a failing
// server also says "partial write".
func (a *answer) rejectsLines() bool {
	if !a.influx || !lineErrors.MatchString(a.message) {
		return false
	}
	return a.code < 500 || reasons.MatchString(a.message)
}

// reasons matches errors about line protocol that state the reason, or the number of lines.
var reasons = regexp.MustCompile(`dropped=\d|unable to parse '|field type conflict|beyond retention policy`)

// overload matches errors of a server that lacks time, memory or disk, which InfluxDB 1.8 sends
// with status 500.
var overload = regexp.MustCompile(`(?i)time(d )?out|deadline exceeded|cache-max-memory-size|hinted handoff|` +
	`no space left|too many open files|out of memory|unavailable|engine is closed|shard is disabled`)

// ofLoad reports whether the reply says that the server lacks time, memory or disk, or that the
// client sends too much: such a server refuses some requests and accepts others, whatever their
// lines are.
func (a *answer) ofLoad() bool {
	switch a.code {
	case http.StatusTooManyRequests, http.StatusRequestTimeout, http.StatusInsufficientStorage:
		return true
	}
	return a.code >= 500 && overload.MatchString(a.message)
}

// undelivered returns the error of a request with this reply.
func (a *answer) undelivered(now time.Time) *undelivered {
	u := &undelivered{status: outputs.Down, after: retryAfter(a.header, now), err: a}
	switch a.code {
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusProxyAuthRequired:
		u.status = outputs.Refused
	default:
		if a.influx && a.code < 500 {
			u.status = outputs.Refused
		}
	}
	return u
}

// retryAfter returns the wait that a Retry-After header requests, at most 10 minutes.
func retryAfter(header http.Header, now time.Time) time.Duration {
	value := header.Get("Retry-After")
	var after time.Duration
	if seconds, err := strconv.ParseUint(value, 10, 32); err == nil {
		after = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(value); err == nil {
		after = at.Sub(now)
	}
	return min(max(after, 0), 10*time.Minute)
}
