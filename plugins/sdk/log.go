// SPDX-License-Identifier: Apache-2.0

// Log lines in the format that the collector parses.

package sdk

import (
	"io"
	"log/slog"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/plugins/sdk/pluginv1"
)

// Keys of a structured log line: one JSON object per line of standard error. go-plugin's loggers
// use the same keys.
const (
	LogKeyTime    = "@timestamp"
	LogKeyLevel   = "@level"
	LogKeyMessage = "@message"
)

// newLogHandler returns a handler that writes JSON lines to w, for records at or above the named
// level.
func newLogHandler(w io.Writer, least string) slog.Handler {
	level := slog.LevelInfo
	if least != "" {
		_ = level.UnmarshalText([]byte(least)) // an unknown name means info
	}
	return slog.NewJSONHandler(w, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) > 0 {
				return a
			}
			switch a.Key {
			case slog.TimeKey:
				a.Key = LogKeyTime
			case slog.LevelKey:
				level, _ := a.Value.Any().(slog.Level)
				a = slog.String(LogKeyLevel, strings.ToLower(level.String()))
			case slog.MessageKey:
				a.Key = LogKeyMessage
			}
			return a
		},
	})
}

// logLines passes the lines of the log to the collectors that are connected.
type logLines struct {
	mu      sync.Mutex
	readers map[chan string]bool
}

// maxLogLines is how many lines wait for a collector; further lines are dropped.
const maxLogLines = 1024

// Write takes one line, as slog's handlers write it.
func (l *logLines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for reader := range l.readers {
		select {
		case reader <- strings.TrimSuffix(string(line), "\n"):
		default:
		}
	}
	return len(line), nil
}

func (l *logLines) join() (lines <-chan string, leave func()) {
	reader := make(chan string, maxLogLines)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.readers == nil {
		l.readers = map[chan string]bool{}
	}
	l.readers[reader] = true
	return reader, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.readers, reader)
	}
}

// Log implements the contract.
func (s *Server) Log(_ *pluginv1.LogRequest, stream grpc.ServerStreamingServer[pluginv1.LogLine]) error {
	if s.log == nil {
		return status.Error(codes.Unimplemented, "the log is on standard error")
	}
	lines, leave := s.log.join()
	defer leave()
	if err := stream.SendHeader(metadata.MD{}); err != nil {
		return err
	}
	for {
		select {
		case line := <-lines:
			if err := stream.Send(&pluginv1.LogLine{Line: strings.ToValidUTF8(line, "�")}); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}
