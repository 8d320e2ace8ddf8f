// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// A state that cannot be written is logged once, with the way out. No file is left behind, and
// epochs continue. The first successful write is logged, too.
func TestStateThatCannotBeSaved(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "states")
	path := filepath.Join(directory, "fake.state.json")
	if err := os.MkdirAll(filepath.Join(path, "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, func(c *Config) { c.Plugins.StateDirectory = directory }, "fake")
	r.plugins["fake"].do(func(p *fakePlugin) {
		p.analyze = func(context.Context, *sdk.Epoch) (*sdk.Results, error) {
			return &sdk.Results{State: &sdk.State{Epoch: 7, Data: []byte("memory")}}, nil
		}
	})
	if rep := r.deliver().Wait(); rep.Plugins[0].Err != nil {
		t.Error(rep.Plugins[0].Err)
	}
	p := r.c.plugin("fake")
	p.end() // the test now acts as the worker
	setState := func(epoch uint64) { p.keep(&sdk.State{Epoch: epoch, Data: []byte("memory")}) }
	for epoch := uint64(8); epoch < 10; epoch++ {
		setState(epoch)
		p.saveState(true)
	}
	const message = "the state of a plugin cannot be saved"
	if log := r.log.String(); strings.Count(log, message) != 1 || !strings.Contains(log, "plugins.state-directory") ||
		!strings.Contains(log, path) {
		t.Errorf("log:\n%s", log)
	}
	if left, err := os.ReadDir(directory); err != nil || len(left) != 1 {
		t.Errorf("left in the directory: %v (%v)", left, err)
	}
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	setState(11)
	p.saveState(true)
	if s, err := readState(path, "fake"); err != nil || s.Epoch != 11 ||
		!strings.Contains(r.log.String(), "the state of a plugin is saved again") {
		t.Errorf("state %+v, %v; log:\n%s", s, err, r.log)
	}
}

// A pipe instead of the state file is refused, without waiting for a writer.
func TestStateFileIsRegular(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fake.state.json")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skipf("no named pipe can be made here: %v", err)
	}
	if s, err := readState(path, "fake"); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("%+v, %v", s, err)
	}
}
