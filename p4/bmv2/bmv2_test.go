// SPDX-License-Identifier: Apache-2.0

package bmv2_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/netsketch/netsketch/internal/test/switchtest"
	"github.com/netsketch/netsketch/p4/bmv2"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNotInstalled(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := bmv2.Start(t.Context(), bmv2.Config{}); !errors.Is(err, bmv2.ErrNotInstalled) {
		t.Errorf("start: %v", err)
	}
	if _, err := switchtest.BMv2Version(t.Context()); !errors.Is(err, bmv2.ErrNotInstalled) {
		t.Errorf("version: %v", err)
	}
}

// program installs a shell script as BMv2's program.
func program(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, bmv2.Program), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
}

func TestStartReportsAnExit(t *testing.T) {
	program(t, "echo no such option; exit 1")
	_, err := bmv2.Start(t.Context(), bmv2.Config{})
	if err == nil || err.Error() !=
		"simple_switch_grpc: it ended before it took connections: exit status 1\nno such option" {
		t.Errorf("%v", err)
	}
}

// A program that does not even answer --help is given up.
func TestStartGivesUp(t *testing.T) {
	program(t, `[ "$1" != --help ] || exec sleep 60; exit 1`)
	_, err := bmv2.Start(t.Context(), bmv2.Config{})
	if err == nil || !strings.Contains(err.Error(), "exit status 1") {
		t.Errorf("%v", err)
	}
}

func TestStartEndsASilentProgram(t *testing.T) {
	program(t, "exec sleep 60")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := bmv2.Start(ctx, bmv2.Config{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

func TestStart(t *testing.T) {
	version, err := switchtest.BMv2Version(t.Context())
	if errors.Is(err, bmv2.ErrNotInstalled) {
		t.Skipf("%v: nothing to start", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	sw, err := bmv2.Start(t.Context(), bmv2.Config{DeviceID: 9})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("BMv2 %s on %s, packets on %s", version, sw.P4Runtime(), sw.DataPlane())
	select {
	case <-sw.Ended():
		t.Errorf("it has ended:\n%s", sw.Log())
	default:
	}
	sw.Close()
	<-sw.Ended()
	sw.Close()
}
