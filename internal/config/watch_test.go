// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

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

// TestWatchBesideBusyFiles: a changed file is loaded although other files of its directory change
// all the time, and is loaded once, when it keeps its contents.
func TestWatchBesideBusyFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "n.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("name: one\n")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got []string
	w := &watch{path: path, seen: contentsOf([]byte("name: one\n"), nil), log: slog.New(slog.DiscardHandler),
		read: func(l Loaded) {
			got = append(got, l.Config.Name)
			cancel()
		}}
	events := make(chan fsnotify.Event)
	var work sync.WaitGroup
	work.Go(func() {
		for i := 0; ; i++ {
			if i < 20 { // written in steps for five times the settle time
				write("name: " + strings.Repeat("x", i+1) + "\n")
			}
			select {
			case events <- fsnotify.Event{Name: filepath.Join(filepath.Dir(path), "other.log"), Op: fsnotify.Write}:
			case <-ctx.Done():
				return
			}
			time.Sleep(settle / 4)
		}
	})
	w.run(ctx, events, nil, nil)
	work.Wait()
	if len(got) != 1 || got[0] != strings.Repeat("x", 20) {
		t.Errorf("loaded %q", got)
	}
}

// TestWatchReplacedDirectories: the newest contents are loaded when a directory on the way to the
// file is exchanged: as Kubernetes does with ..data, or above the directory that is watched; and
// when the file is written in two steps, taken away and put back.
func TestWatchReplacedDirectories(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// link makes a symbolic link, which replaces another one in one step.
	link := func(to, name string) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.Symlink(to, name+"_tmp"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(name+"_tmp", name); err != nil {
			t.Fatal(err)
		}
	}
	write("mount/..1/n.yaml", "name: one\n")
	link("..1", "mount/..data")
	link("..data/n.yaml", "mount/n.yaml")
	link("mount", "above")
	path := filepath.Join(dir, "above", "n.yaml")
	current, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	loaded := make(chan Loaded, 100)
	var work sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	work.Go(func() {
		Watch(ctx, path, current, nil, slog.New(slog.DiscardHandler), func(l Loaded) { loaded <- l })
	})
	defer work.Wait()
	defer cancel()
	expect := func(step, name string) {
		t.Helper()
		for {
			l := <-loaded // in between, the file may be cut or missing
			if l.Config != nil && l.Config.Name == name {
				return
			}
			t.Logf("%s: %+v", step, l.Err)
		}
	}
	write("mount/..2/n.yaml", "name: two\n")
	link("..2", "mount/..data")
	if err := os.RemoveAll(filepath.Join(dir, "mount/..1")); err != nil {
		t.Fatal(err)
	}
	expect("..data", "two")
	write("elsewhere/n.yaml", "name: three\n")
	link("elsewhere", "above")
	expect("a link above", "three")
	write("elsewhere/n.yaml", "name: fo")
	write("elsewhere/n.yaml", "name: four\n")
	expect("two steps", "four")
	if err := os.Rename(filepath.Join(dir, "elsewhere"), filepath.Join(dir, "away")); err != nil {
		t.Fatal(err)
	}
	for l := range loaded {
		if l.Err != nil {
			break
		}
	}
	write("elsewhere/n.yaml", "name: five\n")
	expect("a new directory", "five")
}

// The error of a watch names the limit of inotify that is used up. The kernel's text would name the
// disk or the open files.
func TestWatchLimits(t *testing.T) {
	for err, want := range map[error]string{syscall.ENOSPC: "max_user_watches", syscall.EMFILE: "max_user_instances",
		syscall.EACCES: "permission denied"} {
		if got := limited(os.NewSyscallError("inotify", err)); !errors.Is(got, err) || !strings.Contains(got.Error(), want) {
			t.Errorf("%v: %v, want %q", err, got, want)
		}
	}
}
