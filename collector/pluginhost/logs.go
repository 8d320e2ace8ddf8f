// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"golang.org/x/time/rate"

	"github.com/netsketch/netsketch/plugins/sdk"
)

const (
	maxLogLine   = 16 << 10 // bytes of a line that are parsed
	maxLogText   = 2 << 10  // bytes of a message or value that are logged
	maxLogAttrs  = 32       // attributes of a line that are logged
	maxLogNumber = 64       // digits of a number that is logged as a number
	tailLines    = 6        // lines kept for error messages
	tailBytes    = 1 << 10  // bytes of the last lines together
)

// panicTime is how long a process may take to end after a Go panic. A later line shows that the
// plugin has recovered, or has only printed the text of a panic.
const panicTime = 10 * time.Second

// dropInterval is the shortest time between two reports of dropped lines while lines arrive.
const dropInterval = 10 * time.Second

// logSink logs a plugin's standard output and standard error, across its restarts. Lines beyond the
// rate limit are dropped; the log reports their count.
type logSink struct {
	logger  *slog.Logger
	limiter *rate.Limiter
	now     func() time.Time

	dropped   atomic.Uint64 // lines dropped in total
	truncated atomic.Uint64 // lines cut to maxLogLine in total

	mu         sync.Mutex
	unreported uint64    // dropped lines that the log has not reported yet
	reported   time.Time // when the log reported dropped lines last
	tail       []string  // the last plain lines and errors of the current process
	panicking  bool      // tail begins with a Go panic
	panicked   time.Time // when the panic began
}

func newLogSink(logger *slog.Logger, perSecond float64, burst int) *logSink {
	return &logSink{logger: logger, limiter: rate.NewLimiter(rate.Limit(perSecond), burst), now: time.Now}
}

// writer returns a writer for one stream of the plugin, for use by one goroutine.
func (s *logSink) writer(stream string) *lineWriter { return &lineWriter{sink: s, stream: stream} }

// lineWriter splits its input into lines.
type lineWriter struct {
	sink   *logSink
	stream string
	line   []byte
	cut    bool // the line was longer than maxLogLine
}

func (w *lineWriter) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		piece, rest, whole := bytes.Cut(b, []byte{'\n'})
		if room := maxLogLine - len(w.line); len(piece) > room {
			piece, w.cut = piece[:room], true
		}
		w.line = append(w.line, piece...)
		if whole {
			w.sink.take(w.stream, w.line, w.cut)
			w.line, w.cut = w.line[:0], false
		}
		b = rest
	}
	return n, nil
}

// flush logs a last line that has no end.
func (w *lineWriter) flush() {
	w.sink.take(w.stream, w.line, w.cut)
	w.line, w.cut = nil, false
}

// take logs one line, or counts it as dropped.
func (s *logSink) take(stream string, line []byte, cut bool) {
	line = bytes.TrimRight(line, "\r")
	if cut {
		s.truncated.Add(1)
	}
	if len(line) == 0 {
		return
	}
	now := s.now()
	if !s.limiter.AllowN(now, 1) {
		s.dropped.Add(1)
		s.mu.Lock()
		s.unreported++
		s.mu.Unlock()
		// a dropped line may still say why the plugin died, so it is kept for the exit error
		if line[0] != '{' {
			s.remember(clean(string(line[:min(len(line), tailBytes)])))
		} else if bytes.Contains(line, []byte(`"error"`)) {
			s.rememberError(parseLine(line))
		}
		return
	}
	level, message, attrs := parseLine(line)
	if message == "" {
		message = clean(string(line))
		level = s.remember(message)
	} else {
		s.rememberError(level, message, attrs)
	}
	if cut {
		attrs = append(attrs, slog.Bool("cut", true))
	}
	if stream == "stdout" {
		attrs = append(attrs, slog.String("stream", stream))
	}
	s.flushDrops(dropInterval)
	s.logger.LogAttrs(context.Background(), level, message, attrs...)
}

// flushDrops logs how many lines were dropped since the last report, unless that was less than
// interval ago.
func (s *logSink) flushDrops(interval time.Duration) {
	now := s.now()
	s.mu.Lock()
	n := s.unreported
	if n == 0 || now.Sub(s.reported) < interval {
		s.mu.Unlock()
		return
	}
	s.unreported, s.reported = 0, now
	s.mu.Unlock()
	s.logger.Warn("plugin exceeds its log rate; lines were dropped", "dropped", n)
}

// remember keeps a line for the exit error, and returns the level at which the line is
// logged.
func (s *logSink) remember(line string) slog.Level {
	if len(line) > tailBytes/2 {
		line = strings.ToValidUTF8(line[:tailBytes/2], "") + "…"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.panicking = s.panicking && now.Sub(s.panicked) < panicTime
	if !s.panicking && (strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:")) {
		s.panicking, s.panicked, s.tail = true, now, nil
	}
	if len(s.tail) < tailLines {
		s.tail = append(s.tail, line)
	} else if !s.panicking { // the first lines of a stack trace are kept
		s.tail = append(s.tail[1:], line)
	}
	if s.panicking {
		return slog.LevelError
	}
	return slog.LevelInfo
}

// rememberError keeps a structured line of level error, with its attribute "error", for the exit
// error.
func (s *logSink) rememberError(level slog.Level, message string, attrs []slog.Attr) {
	if level < slog.LevelError || message == "" {
		return
	}
	for _, a := range attrs {
		if a.Key == "error" || a.Key == "err" {
			message += ": " + a.Value.String()
		}
	}
	s.remember(message)
}

// stderrTail returns the last plain lines and errors of the current process, joined to one line.
func (s *logSink) stderrTail() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := strings.Join(s.tail, " | ")
	if len(text) > tailBytes {
		text = strings.ToValidUTF8(text[:tailBytes], "") + "…"
	}
	return text
}

// reset clears the tail for a new process.
func (s *logSink) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tail, s.panicking = nil, false
}

// parseLine reads a structured line: a JSON object whose message is a string. For any other line,
// it returns an empty message.
func parseLine(line []byte) (slog.Level, string, []slog.Attr) {
	if line[0] != '{' {
		return 0, "", nil
	}
	var fields map[string]any
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber() // keeps 64-bit numbers exact
	if d.Decode(&fields) != nil || d.More() {
		return 0, "", nil
	}
	message, ok := fields[sdk.LogKeyMessage].(string)
	if !ok || message == "" {
		return 0, "", nil
	}
	level := slog.LevelInfo
	if name, ok := fields[sdk.LogKeyLevel].(string); ok {
		if strings.EqualFold(name, "trace") {
			name = "debug"
		}
		_ = level.UnmarshalText([]byte(name)) // an unknown level counts as info
	}
	for _, key := range []string{sdk.LogKeyMessage, sdk.LogKeyLevel, sdk.LogKeyTime} {
		delete(fields, key)
	}
	var attrs []slog.Attr
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if len(attrs) == maxLogAttrs {
			break
		}
		switch value := fields[key].(type) {
		case string:
			attrs = append(attrs, slog.String(clean(key), clean(value)))
		case json.Number:
			if len(value) > maxLogNumber {
				attrs = append(attrs, slog.String(clean(key), clean(value.String())))
			} else {
				attrs = append(attrs, slog.Any(clean(key), value))
			}
		case bool, nil:
			attrs = append(attrs, slog.Any(clean(key), value))
		default:
			text, err := json.Marshal(value)
			if err != nil {
				text = fmt.Append(nil, value)
			}
			attrs = append(attrs, slog.String(clean(key), clean(string(text))))
		}
	}
	return level, clean(message), attrs
}

// clean shortens a text and replaces control characters, because they could control a terminal.
func clean(text string) string {
	if len(text) > maxLogText {
		text = text[:maxLogText] + "…"
	}
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || r < ' ' && r != '\t' || r >= 0x7f && r < 0xa0 {
			return '·'
		}
		return r
	}, text)
}
