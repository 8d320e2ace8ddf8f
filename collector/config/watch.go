// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settle is how long a file must remain unchanged before it is read: editors write in several
// steps.
const settle = 100 * time.Millisecond

// Watch loads the configuration each time the file is written or replaced (also by a rename, or by
// a Kubernetes symbolic link), and for each value received from reload, which may be nil. It calls
// changed with the result. It returns nil when ctx ends, or an error at once if the directory
// cannot be watched and reload is nil.
func Watch(ctx context.Context, path string, reload <-chan struct{}, changed func(*Config, error)) error {
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		defer watcher.Close()
		err = watcher.Add(filepath.Dir(path))
	}
	var events chan fsnotify.Event
	switch {
	case err == nil:
		events = watcher.Events
	case reload == nil:
		return fmt.Errorf("watching %s: %w", path, err)
	}
	resolved := resolve(path)
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			now := resolve(path)
			if filepath.Clean(e.Name) == filepath.Clean(path) && !e.Has(fsnotify.Chmod) || now != resolved {
				resolved = now
				timer.Reset(settle)
			}
		case <-timer.C:
			changed(Load(path))
		case <-reload:
			changed(Load(path))
		}
	}
}

func resolve(path string) string {
	if r, err := filepath.EvalSymlinks(path); err == nil {
		return r
	}
	return path
}
