// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/netsketch/netsketch/collector/pluginhost/recorder"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/record"
)

// played is an entry of a recording: the number of an epoch and its count of watched rows, or the
// network version and configuration of a setup.
type played struct {
	epoch   uint64
	watched int
	version uint64
	config  string
}

// play reads a recording to its end.
func play(t *testing.T, in io.Reader) (all []played) {
	t.Helper()
	r, err := record.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	for {
		e, setup, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		p := played{epoch: e.Number, watched: len(e.Watched)}
		if setup != nil {
			p.version, p.config = setup.Network.Version, string(setup.Config)
		}
		if e.Device("s2").Object("r").At(2) != 30 {
			t.Errorf("epoch %d has other cells", e.Number)
		}
		all = append(all, p)
	}
}

func TestRecording(t *testing.T) {
	path := filepath.Join(t.TempDir(), "epochs")
	if err := os.WriteFile(path, []byte("an earlier recording"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := newHost(t, Options{})
	inst, err := h.Start(t.Context(), Spec{
		Path: filepath.Join(pluginDir(t, "good"), testPrefix+"good"), Config: []byte(`{"greet":"hello"}`),
		Network:     sdk.Network{Version: 4},
		EpochLength: time.Second, Record: recorder.Recording{Path: path},
	})
	if err != nil {
		t.Fatal(err)
	}
	for n := range uint64(4) {
		switch n {
		case 1:
			inst.SetWatched([]sdk.RowKey{{List: testList, Keys: map[string]string{"node": "a"}}})
		case 2:
			if err := inst.SetNetwork(t.Context(), sdk.Network{Version: 5}); err != nil {
				t.Fatal(err)
			}
		case 3:
			if err := inst.Configure(t.Context(), []byte(`{"greet":"servus"}`), sdk.Network{Version: 5}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := analyze(t, inst, epoch(n, ""), time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	inst.Stop(t.Context())
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got := play(t, bytes.NewReader(content))
	want := []played{{0, 0, 4, `{"greet":"hello"}`}, {1, 1, 0, ""}, {2, 1, 5, `{"greet":"hello"}`},
		{3, 1, 5, `{"greet":"servus"}`}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(played{})); diff != "" {
		t.Error(diff)
	}
	if old, err := os.ReadFile(path + ".old"); err != nil || string(old) != "an earlier recording" {
		t.Errorf("the earlier recording: %q, %v", old, err)
	}
}

// TestRecordingThatCannotBeWritten checks that the plugin works without its recording, and that
// the log names the file.
func TestRecordingThatCannotBeWritten(t *testing.T) {
	for _, path := range []string{filepath.Join(t.TempDir(), "missing", "epochs"), os.DevNull} {
		var log testkit.Log
		h := newHost(t, Options{Logger: log.Logger()})
		inst, err := h.Start(t.Context(), Spec{Path: filepath.Join(pluginDir(t, "good"), testPrefix+"good"),
			Record: recorder.Recording{Path: path}})
		if err != nil {
			t.Fatal(err)
		}
		for n := range uint64(2) {
			if sums, err := analyze(t, inst, epoch(n, ""), time.Minute); err != nil || sums["s2"] != 60 {
				t.Errorf("%s: %v, %v", path, sums, err)
			}
		}
		inst.Stop(t.Context())
		if text := log.String(); strings.Count(text, "recording ended") != 1 || !strings.Contains(text, path) {
			t.Errorf("%s: log %s", path, text)
		}
	}
}
