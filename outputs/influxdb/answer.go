// SPDX-License-Identifier: Apache-2.0

// The meaning of answers.

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

// answers turns every answer but InfluxDB's 204 into an error of type *answer.
type answers struct {
	next  http.RoundTripper
	limit int64 // bytes read of an answer; InfluxDB repeats rejected lines in it
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

// answer is an answer other than 204.
type answer struct {
	code    int
	header  http.Header
	influx  bool   // the body has InfluxDB's error form
	message string // of the form, or the text of the body
}

// newAnswer reads an answer. InfluxDB's error form is {"error": TEXT} for 1.8,
// {"code": TEXT, "message": TEXT} for 2, and {"error": TEXT, "data": DETAILS} for 3.
func newAnswer(code int, header http.Header, body []byte) *answer {
	var form struct {
		Error, Code, Message string
		Data                 json.RawMessage
	}
	a := &answer{code: code, header: header}
	switch err := json.Unmarshal(body, &form); {
	case err == nil && form.Error != "":
		a.influx, a.message = true, form.Error
		if len(form.Data) > 0 {
			a.message += ": " + string(form.Data)
		}
	case err == nil && form.Code != "" && form.Message != "":
		a.influx, a.message = true, form.Message
	default:
		a.message = tag.ReplaceAllString(string(body[:min(len(body), 4<<10)]), " ")
	}
	return a
}

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

// lineErrors matches InfluxDB's errors about line protocol: of 1.8 and 2 the first line, of 3 the
// second one.
var lineErrors = regexp.MustCompile(`partial write|unable to parse '|field type conflict|beyond retention policy|` +
	`parse line protocol|parsing failed|invalid column type|column type mismatch`)

// rejectsLines reports whether InfluxDB rejects lines of the request as invalid. The message
// counts, not the status: InfluxDB 3 has answered a partial write with 201, and InfluxDB 2.0 with
// 500. With a server error the message must name the reason, because a server that fails says
// "partial write", too.
func (a *answer) rejectsLines() bool {
	if !a.influx || !lineErrors.MatchString(a.message) {
		return false
	}
	return a.code < 500 || reasons.MatchString(a.message)
}

// reasons matches the errors about line protocol that state why, or how many lines.
var reasons = regexp.MustCompile(`dropped=\d|unable to parse '|field type conflict|beyond retention policy`)

// mayBeOfLines reports whether an answer that InfluxDB repeats for a request may be due to some of
// its lines: not if it is about the client, the bucket or the load of the server.
func (a *answer) mayBeOfLines() bool {
	return a.influx && (a.code == http.StatusBadRequest || a.code == http.StatusUnprocessableEntity ||
		a.code == http.StatusInternalServerError)
}

// undelivered returns the error of a request with this answer.
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

// retryAfter returns the time of a Retry-After header, at most 10 minutes.
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
