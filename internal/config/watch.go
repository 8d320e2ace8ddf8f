// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/netsketch/netsketch/settings/yaml"
)

const (
	// settle is how long a file must keep its contents before it is loaded: editors write in several
	// steps.
	settle = 100 * time.Millisecond
	// lookEvery is how often the file is compared with the version that was read last. Some changes
	// send no event: a symbolic link on the way to the file is replaced, another machine changes the
	// file on a network file system, or the kernel's event queue is full.
	lookEvery = 2 * time.Second
)

// Loaded is the result of reading the file again.
type Loaded struct {
	// Config is nil after an error.
	Config *Config
	Err    error
	// Requested is set if the file was read on request, not because it changed.
	Requested bool
}

// Watch loads the configuration when the contents of the file differ from current or from the last
// load, and for each value received from requests, which may be nil. It calls read with each
// result, and returns when ctx ends.
func Watch(ctx context.Context, path string, current *Config, requests <-chan struct{}, log *slog.Logger,
	read func(Loaded)) {
	w := &watch{path: path, seen: current.contents, log: log, read: read}
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		defer watcher.Close()
		err = watcher.Add(filepath.Dir(path))
	}
	if err != nil {
		err = limited(err)
		log.Warn("the directory of the configuration file cannot be watched; the file itself is compared", "file", path,
			"every", lookEvery, "error", err)
		w.run(ctx, nil, nil, requests)
		return
	}
	w.run(ctx, watcher.Events, watcher.Errors, requests)
}

// limited adds to an inotify error the Linux limit that was reached, because the error's text does
// not name it.
func limited(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%w: fs.inotify.max_user_watches is used up", err)
	case errors.Is(err, syscall.EMFILE):
		return fmt.Errorf("%w: fs.inotify.max_user_instances or the limit of open files is used up", err)
	}
	return err
}

// contents is a digest of a file's bytes, or of the error of reading it.
type contents [sha256.Size]byte

func contentsOf(data []byte, err error) contents {
	if err != nil {
		return sha256.Sum256([]byte("error: " + err.Error()))
	}
	return sha256.Sum256(data)
}

// watch is the state of Watch.
type watch struct {
	path string
	seen contents // the contents at the last load
	log  *slog.Logger
	read func(Loaded)
}

// run compares the file after each event, each error, each request and each lookEvery, until ctx
// ends.
func (w *watch) run(ctx context.Context, events <-chan fsnotify.Event, errs <-chan error, requests <-chan struct{}) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	timer := time.NewTimer(settle) // start with a comparison: the file may have changed since current was read
	defer timer.Stop()
	// pending is set while the timer runs; before is the digest of the file's contents when the timer
	// was set. Events do not set the timer anew, because events of other files in the directory may
	// never end.
	pending, before := true, w.contents()
	look := func() {
		if !pending {
			pending, before = true, w.contents()
			timer.Reset(settle)
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			look()
		case err, ok := <-errs:
			if !ok {
				errs = nil
				continue
			}
			w.log.Warn("events of the configuration file were lost; the file itself is compared", "file", w.path,
				"every", lookEvery, "error", err)
			look()
		case <-ticker.C:
			look()
		case <-timer.C:
			pending = false
			switch w.contents() {
			case w.seen:
			case before:
				w.read(w.load())
			default: // the file is still being written
				look()
			}
		case <-requests:
			l := w.load()
			l.Requested = true
			w.read(l)
		}
	}
}

// contents is the digest of the file now.
func (w *watch) contents() contents { return contentsOf(yaml.Read(w.path)) }

func (w *watch) load() Loaded {
	data, err := yaml.Read(w.path)
	w.seen = contentsOf(data, err)
	if err != nil {
		return Loaded{Err: err}
	}
	c, err := Parse(w.path, data)
	return Loaded{Config: c, Err: err}
}
