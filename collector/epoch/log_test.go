// SPDX-License-Identifier: Apache-2.0

package epoch_test

import (
	"io"
	"log/slog"
	"sync"
)

// logTo writes text lines, safe for concurrent use.
func logTo(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(&locked{w: w}, nil))
}

type locked struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
