// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fsnotify/fsnotify"
)

// TestWatchWithoutEvents: a changed file is read even if the kernel lost events or sends none, and
// the log reports both cases.
func TestWatchWithoutEvents(t *testing.T) {
	for _, lost := range []bool{true, false} {
		path := filepath.Join(t.TempDir(), "n.yaml")
		if err := os.WriteFile(path, []byte("name: two\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		var got []Loaded
		w := &watch{path: path, seen: contentsOf([]byte("name: one\n"), nil), log: slog.New(slog.NewTextHandler(&log, nil)),
			read: func(l Loaded) { got = append(got, l); cancel() }}
		var errs chan error
		if lost {
			errs = make(chan error, 1)
			errs <- fsnotify.ErrEventOverflow
			close(errs)
		}
		w.run(ctx, nil, errs, nil)
		if len(got) != 1 || got[0].Err != nil || got[0].Config.Name != "two" {
			t.Errorf("lost %v: %+v", lost, got)
		}
		if strings.Contains(log.String(), "queue or buffer overflow") != lost {
			t.Errorf("lost %v: log %q", lost, &log)
		}
	}
}
