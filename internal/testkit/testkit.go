// SPDX-License-Identifier: Apache-2.0

// Package testkit is what the tests of all rooms share. Its types may be used by any number of goroutines.
package testkit

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

// Log keeps what is written to it, to be looked into. The zero value is empty.
type Log struct {
	mu sync.Mutex
	b  strings.Builder
}

// Write implements io.Writer.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

// String returns what was written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Logger writes lines of text, from debug level on.
func (l *Log) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// patience is how long a busy machine may take for anything.
const patience = 30 * time.Second

// Until waits for what another goroutine or process does without telling, and ends the test when it never does. It is to be
// called by the test's goroutine.
func Until(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("not within %v: %s", patience, what)
		}
	}
}
