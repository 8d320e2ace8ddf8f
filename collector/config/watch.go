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

// Loaded is a file that was read again.
type Loaded struct {
	// Config is nil after an error.
	Config *Config
	Err    error
	// Requested is set if the file was read on request, not because it changed.
	Requested bool
}

// Watch loads the configuration each time the file is written or replaced (also by a rename, or by
// a Kubernetes symbolic link), and for each value received from requests, which may be nil. It
// calls read with the result. It returns nil when ctx ends, or an error at once if the directory
// cannot be watched and requests is nil.
func Watch(ctx context.Context, path string, requests <-chan struct{}, read func(Loaded)) error {
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		defer watcher.Close()
		err = watcher.Add(filepath.Dir(path))
	}
	var events chan fsnotify.Event
	switch {
	case err == nil:
		events = watcher.Events
	case requests == nil:
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
			c, err := Load(path)
			read(Loaded{Config: c, Err: err})
		case <-requests:
			c, err := Load(path)
			read(Loaded{Config: c, Err: err, Requested: true})
		}
	}
}

func resolve(path string) string {
	if r, err := filepath.EvalSymlinks(path); err == nil {
		return r
	}
	return path
}
