// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// The next collector gives a plugin the state that it saved. A damaged state file is not used, and
// the log says so.
func TestPluginStateOutlivesTheCollector(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "states")
	yaml := devicesYAML(1) + strings.Replace(pluginsYAML(t, "fake"), "plugins:\n",
		fmt.Sprintf("plugins:\n  state-directory: %q\n", folder), 1)
	r := newRig(t, yaml, nil)
	if got := r.plugins["fake"].spec.State; got != nil {
		t.Errorf("a state out of nothing: %+v", got)
	}
	want := &sdk.State{Epoch: 7, Version: 3, Data: []byte("memory")}
	r.plugins["fake"].do(func(p *fakePlugin) { p.state = want })
	r.step()
	newest := &sdk.State{Epoch: 8, Version: 3, Data: []byte("more of it")}
	r.plugins["fake"].do(func(p *fakePlugin) { p.state = newest })
	r.step() // too soon after the previous write: the state is not written
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
	for _, spoilt := range []string{"{", `{"format":2}`, `{"format":1,"plugin":"other"}`,
		strings.Repeat(" ", 2*sdk.MaxState)} {
		if err := os.WriteFile(path, []byte(spoilt), 0o600); err != nil {
			t.Fatal(err)
		}
		s := newRig(t, yaml, nil)
		if got := s.plugins["fake"].spec.State; got != nil ||
			!strings.Contains(s.log.String(), "saved state of a plugin is not used") {
			t.Errorf("%.20q: state %+v, log:\n%s", spoilt, got, s.log)
		}
	}
}
