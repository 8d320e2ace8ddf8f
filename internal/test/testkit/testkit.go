// SPDX-License-Identifier: Apache-2.0

// Package testkit contains helpers of all tests.
//
// Its types may be used from any goroutine.
package testkit

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

// Log stores the text written to it, for checks. The zero value is empty.
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

// String returns the text written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Logger returns a logger that writes text lines to the log, from debug level on.
func (l *Log) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// patience is the time that Until waits, enough for a busy machine.
const patience = 2 * time.Minute

// Until polls until ok returns true, for conditions that another goroutine or process sets without
// a notification. It fails the test if ok stays false for too long. Only the test's goroutine may
// call it.
func Until(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	pause := time.Millisecond
	for end := time.Now().Add(patience); !ok(); time.Sleep(pause) {
		if time.Now().After(end) {
			tb.Fatalf("not within %v: %s", patience, what)
		}
		pause = min(pause*3/2, 10*time.Millisecond)
	}
}
