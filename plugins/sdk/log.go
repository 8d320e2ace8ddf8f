// SPDX-License-Identifier: Apache-2.0

// Log lines in the format that the collector parses.

package sdk

import (
	"io"
	"log/slog"
	"strings"
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
