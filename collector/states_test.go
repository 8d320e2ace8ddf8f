// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// What a plugin saved is given to it again by the next collector; a file that is spoilt is not used, and said.
func TestPluginStateOutlivesTheCollector(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "states")
	yaml := devicesYAML(1) + strings.Replace(pluginsYAML(t, "fake"), "plugins:\n", fmt.Sprintf("plugins:\n  state-directory: %q\n", folder), 1)
	r := newRig(t, yaml, nil)
	if got := r.plugins["fake"].spec.State; got != nil {
		t.Errorf("a state out of nothing: %+v", got)
	}
	want := &sdk.State{Epoch: 7, Version: 3, Data: []byte("memory")}
	r.plugins["fake"].do(func(p *fakePlugin) { p.state = want })
	r.step()
	newest := &sdk.State{Epoch: 8, Version: 3, Data: []byte("more of it")}
	r.plugins["fake"].do(func(p *fakePlugin) { p.state = newest })
	r.step() // too soon after the one before to be written
	if err := r.c.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	next := newRig(t, yaml, nil)
	if diff := cmp.Diff(newest, next.plugins["fake"].spec.State); diff != "" {
		t.Error(diff)
	}
	path := filepath.Join(folder, "fake.state.json")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info, err)
	}
	for _, spoilt := range []string{"{", `{"format":2}`, `{"format":1,"plugin":"other"}`, strings.Repeat(" ", maxStateFile+1)} {
		if err := os.WriteFile(path, []byte(spoilt), 0o600); err != nil {
			t.Fatal(err)
		}
		s := newRig(t, yaml, nil)
		if got := s.plugins["fake"].spec.State; got != nil || !strings.Contains(s.log.String(), "saved state of a plugin is not used") {
			t.Errorf("%.20q: state %+v, log:\n%s", spoilt, got, s.log)
		}
	}
}

// Where a state cannot be written that is said once, with the way out, nothing is left lying about, and the epochs go
// on; as soon as it can be written it is, and that is said, too.
func TestPluginStateThatCannotBeKept(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "states")
	path := filepath.Join(folder, "fake.state.json")
	if err := os.MkdirAll(filepath.Join(path, "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, devicesYAML(1)+strings.Replace(pluginsYAML(t, "fake"), "plugins:\n", fmt.Sprintf("plugins:\n  state-directory: %q\n", folder), 1), nil)
	r.plugins["fake"].do(func(p *fakePlugin) { p.state = &sdk.State{Epoch: 7, Data: []byte("memory")} })
	if rep := r.step(); rep.Plugins[0].Err != nil {
		t.Error(rep.Plugins[0].Err)
	}
	run := r.c.plugins.runs["fake"]
	run.end() // what follows belongs to its goroutine
	for epoch := uint64(8); epoch < 10; epoch++ {
		r.plugins["fake"].do(func(p *fakePlugin) { p.state = &sdk.State{Epoch: epoch, Data: []byte("memory")} })
		run.keepState(true)
	}
	const said = "the state of a plugin cannot be kept"
	if log := r.log.String(); strings.Count(log, said) != 1 || !strings.Contains(log, "plugins.state-directory") || !strings.Contains(log, path) {
		t.Errorf("log:\n%s", log)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) != 1 {
		t.Errorf("left in the folder: %v (%v)", left, err)
	}
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	r.plugins["fake"].do(func(p *fakePlugin) { p.state = &sdk.State{Epoch: 11, Data: []byte("memory")} })
	run.keepState(true)
	if s, err := readState(path, "fake"); err != nil || s.Epoch != 11 || !strings.Contains(r.log.String(), "the state of a plugin is kept again") {
		t.Errorf("state %+v, %v; log:\n%s", s, err, r.log)
	}
}

// A pipe in the file's place is refused, not waited on.
func TestPluginStateIsAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fake.state.json")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skipf("no named pipe can be made here: %v", err)
	}
	if s, err := readState(path, "fake"); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("%+v, %v", s, err)
	}
}
