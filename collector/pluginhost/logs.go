// SPDX-License-Identifier: Apache-2.0

// What a plugin writes to its standard output and error, into the collector's log.

package pluginhost

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
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
	maxLogLine   = 16 << 10 // bytes of a line that are looked at
	maxLogText   = 2 << 10  // bytes of a message or value that are logged
	maxLogAttrs  = 32       // attributes of a line that are logged
	maxLogNumber = 64       // digits of a number that is logged as one
	tailLines    = 6        // lines kept for error messages
	tailBytes    = 1 << 10  // of them together
)

// logSink takes the lines of one plugin, over all its restarts. Lines beyond the
// rate are dropped and counted, and the log says how many.
type logSink struct {
	logger  *slog.Logger
	limiter *rate.Limiter
	now     func() time.Time

	dropped   atomic.Uint64 // lines, in all
	truncated atomic.Uint64 // lines cut to maxLogLine, in all

	mu     sync.Mutex
	unsaid uint64   // dropped lines the log does not tell of yet
	tail   []string // the last plain lines of the current process
	dying  bool     // it is writing what a Go program dies with; tail begins there
}

func newLogSink(logger *slog.Logger, perSecond float64, burst int) *logSink {
	return &logSink{logger: logger, limiter: rate.NewLimiter(rate.Limit(perSecond), burst), now: time.Now}
}

// writer returns a writer for one stream of the plugin. It belongs to one
// goroutine.
func (s *logSink) writer(stream string) io.Writer { return &lineWriter{sink: s, stream: stream} }

// lineWriter cuts what is written into lines.
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
		s.unsaid++
		s.mu.Unlock()
		return
	}
	level, message, attrs := parseLine(line)
	if message == "" {
		message = clean(string(line))
		level = s.remember(message)
	}
	if cut {
		attrs = append(attrs, slog.Bool("cut", true))
	}
	if stream == "stdout" {
		attrs = append(attrs, slog.String("stream", stream))
	}
	s.flushDrops()
	s.logger.LogAttrs(context.Background(), level, message, attrs...)
}

// flushDrops tells the log of lines that were dropped since it last did.
func (s *logSink) flushDrops() {
	s.mu.Lock()
	n := s.unsaid
	s.unsaid = 0
	s.mu.Unlock()
	if n > 0 {
		s.logger.Warn("plugin logs too fast; lines were dropped", "dropped", n)
	}
}

// remember keeps the line for the message on how the process ended, and returns
// the level that it has by its looks.
func (s *logSink) remember(line string) slog.Level {
	if len(line) > tailBytes/2 {
		line = strings.ToValidUTF8(line[:tailBytes/2], "") + "…"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.dying && (strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:")) {
		s.dying, s.tail = true, nil
	}
	if len(s.tail) < tailLines {
		s.tail = append(s.tail, line)
	} else if !s.dying { // of a stack trace the beginning counts
		s.tail = append(s.tail[1:], line)
	}
	if s.dying {
		return slog.LevelError
	}
	return slog.LevelInfo
}

// lastWords returns what the current process last wrote that was no structured
// log line, on one line.
func (s *logSink) lastWords() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := strings.Join(s.tail, " | ")
	if len(text) > tailBytes {
		text = strings.ToValidUTF8(text[:tailBytes], "") + "…"
	}
	return text
}

// forget begins the tail anew, for a new process.
func (s *logSink) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tail, s.dying = nil, false
}

// parseLine reads a structured line: a JSON object with a text as its message. For
// any other line the message is empty.
func parseLine(line []byte) (slog.Level, string, []slog.Attr) {
	if line[0] != '{' {
		return 0, "", nil
	}
	var fields map[string]any
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber() // an epoch's number stays what it is
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
		_ = level.UnmarshalText([]byte(name)) // unknown: info
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

// clean bounds a text and takes out what could play with a terminal.
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
