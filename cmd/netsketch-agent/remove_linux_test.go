// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/netsketch/netsketch/hostagent/command"
	"github.com/netsketch/netsketch/hostagent/kernel/kerneltest"
	"github.com/netsketch/netsketch/internal/testkit"
)

// TestStripAndRemove: programs that strip what arrives are attached without an agent, by an agent,
// and after it was killed. The command remove ends the agent and takes them away, also when pins or
// the interface are gone, and may be run again.
func TestStripAndRemove(t *testing.T) {
	if !kerneltest.Isolated(t) {
		return
	}
	pin := filepath.Join(kerneltest.BPFFS(t), "agent")
	file := filepath.Join(t.TempDir(), "agent.yaml")
	text := fmt.Sprintf(`host: h1
collector: {address: "127.0.0.1:1", tls: {plaintext: true}}
roles: [lightguardian, omnimon]
packets: {interface: host, pin: %q}
state: %q
`, pin, t.TempDir())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		var out bytes.Buffer
		cmd := command.New("test", roles()...)
		cmd.SetArgs(append(args, "--config", file))
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		if err := cmd.ExecuteContext(context.Background()); err != nil {
			t.Fatalf("%s: %v\n%s", args, err, &out)
		}
		return out.String()
	}
	stripped := func(what string, want bool) {
		t.Helper()
		if xdp, ingress, _ := kerneltest.Hooks(t, "host"); (xdp || ingress > 0) != want {
			t.Fatalf("%s: programs are attached: %v, want %v", what, !want, want)
		}
	}
	start := func() *exec.Cmd {
		t.Helper()
		cmd := exec.Command(os.Args[0], "--config", file)
		cmd.Env = append(os.Environ(), runMain+"=1")
		log := &testkit.Log{}
		cmd.Stderr = log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		testkit.Until(t, "the agent runs", func() bool { return strings.Contains(log.String(), "no session") })
		return cmd
	}
	gone := func(what string) {
		t.Helper()
		stripped(what, false)
		if _, err := os.Stat(pin); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: pins remain: %v", what, err)
		}
		if out := run("remove"); out != "nothing to remove\n" {
			t.Errorf("%s: the second time: %s", what, out)
		}
	}

	run("strip")
	stripped("without an agent", true)
	agent := start()
	if out := run("strip"); !strings.Contains(out, "an agent runs") {
		t.Errorf("strip while an agent runs: %s", out)
	}
	if out := run("remove"); !strings.Contains(out, "ending the agent") || !strings.Contains(out, "removed: ") {
		t.Errorf("remove: %s", out)
	}
	if err := agent.Wait(); err == nil || agent.ProcessState.ExitCode() != 3 {
		t.Errorf("the agent ended with %v; want code 3, after which systemd does not start it again", err)
	}
	gone("an agent that runs")

	agent = start()
	if err := agent.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = agent.Wait()
	stripped("after the agent was killed", true)
	run("remove")
	gone("an agent that was killed")

	run("strip")
	files, err := filepath.Glob(filepath.Join(pin, "*", "*"))
	if err != nil || len(files) < 2 {
		t.Fatalf("pins %v: %v", files, err)
	}
	if err := os.RemoveAll(files[0]); err != nil {
		t.Fatal(err)
	}
	kerneltest.IP(t, "link del dev net")
	run("remove")
	kerneltest.Veth(t)
	gone("pins and interface that are gone")
}
