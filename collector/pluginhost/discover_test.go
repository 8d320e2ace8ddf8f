// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestFilesThatAreNotRun(t *testing.T) {
	h := newHost(t, Options{})
	outside := pluginDir(t, "good")
	dir := pluginDir(t, "good")
	for name, mode := range map[string]os.FileMode{"plain": 0o644, "open": 0o757} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	links := map[string]string{"inside": testPrefix + "good", "outside": filepath.Join(outside, testPrefix+"good"),
		"nowhere": "gone"}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".hidden"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	found, rejected, err := Discover(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range found {
		names = append(names, c.Name)
	}
	if strings.Join(names, " ") != "inside test-good" {
		t.Errorf("found %v", found)
	}
	want := map[string]string{"plain": "not executable", "open": "everyone may write to it",
		"outside": "outside of the plugin directory",
		"nowhere": "no such file", "fifo": "a pipe, not a program"}
	for _, r := range rejected {
		name := filepath.Base(r.Path)
		if !errors.Is(r.Err, ErrUntrusted) || want[name] == "" || !strings.Contains(r.Err.Error(), want[name]) {
			t.Errorf("%s: %v", name, r.Err)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("not rejected: %v", want)
	}
	if path, err := Find(dir, "test-good"); err != nil || filepath.Base(path) != testPrefix+"good" {
		t.Errorf("found %v, %v", path, err)
	}
	for name, text := range map[string]string{"plain": "not executable", "frob": "there are inside, test-good"} {
		if _, err := Find(dir, name); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("find %s: %v", name, err)
		}
	}
	if path, err := Find(dir, "./x/y"); err != nil || path != "./x/y" {
		t.Errorf("found %v, %v", path, err)
	}
	if _, err := Find(t.TempDir(), "x"); err == nil || !strings.Contains(err.Error(), "netsketch-plugin-x") {
		t.Errorf("find in an empty directory: %v", err)
	}
	for _, name := range []string{"plain", "open"} {
		if _, err := h.Start(t.Context(), Spec{Path: filepath.Join(dir, name)}); !errors.Is(err, ErrUntrusted) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Discover(dir); !errors.Is(err, ErrUntrusted) {
		t.Errorf("world-writable directory: %v", err)
	}
	if _, err := h.Start(t.Context(), Spec{Path: filepath.Join(dir, testPrefix+"good")}); !errors.Is(err,
		ErrUntrusted) {
		t.Errorf("in a world-writable directory: %v", err)
	}
	if _, _, err := Discover(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing directory: %v", err)
	}
}

func TestForeignOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("giving a file away takes root")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "theirs")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if _, rejected, err := Discover(dir); err != nil || len(rejected) != 1 ||
		!strings.Contains(rejected[0].Err.Error(), "user 12345") {
		t.Errorf("%v, %v", rejected, err)
	}
}

// A directory has plugins, and files that are no plugins. If two files contain the same plugin, the
// file with the plugin's name is used.
func TestCatalog(t *testing.T) {
	h := newHost(t, Options{})
	dir := pluginDir(t, "good", "twin", "moody", "exit")
	script := fmt.Sprintf("#!/bin/sh\nexec %s\n", filepath.Join(dir, testPrefix+"twin"))
	for _, name := range []string{"another", "good"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "README"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	entries, err := h.Catalog(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		reason := "-"
		for name, target := range map[string]error{"not a plugin": ErrNotPlugin, "description": ErrDescription,
			"untrusted": ErrUntrusted} {
			if errors.Is(e.Err, target) {
				reason = name
			}
		}
		got = append(got, fmt.Sprintf("%s %s %d %d", e.Name, reason, len(e.SHA256), len(e.Description.Lists)))
	}
	want := "good description 64 1, good - 64 1, test-exit not a plugin 64 0, good description 64 1, moody - 64 1, " +
		"good description 64 1, README untrusted 0 0"
	if strings.Join(got, ", ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, ", "), want)
	}
}
