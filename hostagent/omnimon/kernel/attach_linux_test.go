// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/internal/test/kerneltest"
	"github.com/netsketch/netsketch/internal/test/testkit"
)

// TestInterfaceAgain: the interface is deleted and created again. The programs are attached to the
// new one, and the reports of the epochs in between are inexact.
func TestInterfaceAgain(t *testing.T) {
	for name, cfg := range map[string]Config{"TCX": {}, "clsact": {Clsact: true, Generic: true}} {
		t.Run(name, func(t *testing.T) { interfaceAgain(t, cfg) })
	}
}

func interfaceAgain(t *testing.T, cfg Config) {
	if !kerneltest.Isolated(t) {
		return
	}
	cfg.Interface, cfg.DisableOffloads, cfg.Pin = "host", true, filepath.Join(kerneltest.BPFFS(t), wire.Role)
	p, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	p.Advance(100)
	if err := p.Apply(encoded(t, defaults(0))); err != nil {
		t.Fatal(err)
	}
	p.Advance(101)
	kerneltest.Recreate(t)
	seal := func(e uint64) *wire.Report {
		t.Helper()
		p.Advance(e + 1)
		r, err := p.Seal(e)
		if err != nil || r == nil {
			t.Fatalf("epoch %d: %v", e, err)
		}
		defer r.Release()
		parsed, err := wire.Open(r.Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	testkit.Until(t, "the reports of new epochs are exact again", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.restarts[101] > 0
	})
	if n := seal(101).Counters[wire.Restarted]; n == 0 {
		t.Error("the epoch in which the interface was deleted is exact")
	}
	next := p.Epoch() + 1
	p.Advance(next)
	if n := seal(next).Counters[wire.Restarted]; n != 0 {
		t.Errorf("a later epoch has %d restarts", n)
	}
	if cfg.Clsact {
		out, err := exec.Command("tc", "filter", "show", "dev", "host", "egress").CombinedOutput()
		if !errors.Is(err, exec.ErrNotFound) && !strings.Contains(string(out), "netsketch-omnimon-egress") {
			t.Errorf("no program at clsact of the new interface: %v: %s", err, out)
		}
	}
}
