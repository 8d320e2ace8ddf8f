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

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/netsketch/netsketch/hostagent/command"
	"github.com/netsketch/netsketch/hostagent/kernel"
	"github.com/netsketch/netsketch/internal/test/kerneltest"
	"github.com/netsketch/netsketch/internal/test/testkit"
)

// TestStripAndRemove: programs that strip what arrives are attached without an agent, by an agent,
// and after it was killed. The command remove ends the agent and takes them away, also when pins,
// the interface or the settings are gone, and may be run again.
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
	// Without settings that can be loaded, remove finds pins of another directory than the default,
	// an agent that has pinned nothing, and programs at clsact, which no process and no pin holds.
	run("strip")
	if err := os.WriteFile(file, []byte("packets: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := run("remove"); !strings.Contains(out, "cannot be used") || !strings.Contains(out, "omnimon/ingress") {
		t.Errorf("remove without settings: %s", out)
	}
	stripped("without settings", false)
	if _, err := os.Stat(pin); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without settings, pins remain: %v", err)
	}

	if err := os.WriteFile(file, []byte(strings.Replace(text, fmt.Sprintf("%q", pin), `""`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	agent = start()
	stripped("without pins", true)
	if err := os.WriteFile(file, []byte("packets: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := run("remove"); !strings.Contains(out, "ending the agent") {
		t.Errorf("remove of an agent without pins: %s", out)
	}
	if err := agent.Wait(); err == nil || agent.ProcessState.ExitCode() != 3 {
		t.Errorf("the agent without pins ended with %v, want code 3", err)
	}
	stripped("an agent without pins", false)

	clsact(t)
	if out := run("remove"); strings.Count(out, "netsketch-omnimon-") != 2 || !strings.Contains(out, "nsketch_sketch") {
		t.Errorf("remove of programs at clsact and XDP: %s", out)
	}
	stripped("XDP", false)
	if out := run("remove"); !strings.HasSuffix(out, "nothing to remove\n") {
		t.Errorf("the second time: %s", out)
	}
}

// clsact leaves programs at clsact of the interface host, as an agent that was killed does, and one
// at XDP.
func clsact(t *testing.T) {
	t.Helper()
	program := func(kind ebpf.ProgramType) *ebpf.Program {
		spec := &ebpf.CollectionSpec{Programs: map[string]*ebpf.ProgramSpec{"first": {Type: kind, License: "Apache-2.0",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}}}}
		kernel.Name(spec, "sketchint")
		p, err := ebpf.NewProgram(spec.Programs["first"])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		return p
	}
	a := kernel.NewAttachment(kernel.Config{Role: "omnimon", Interface: "host", Clsact: true,
		Pin: filepath.Join(kerneltest.BPFFS(t), "clsact")}, nil)
	err := a.Set(nil, kernel.Hook{Name: "ingress", Program: program(ebpf.SchedCLS), At: ebpf.AttachTCXIngress},
		kernel.Hook{Name: "egress", Program: program(ebpf.SchedCLS), At: ebpf.AttachTCXEgress},
		kernel.Hook{Name: "first", Program: program(ebpf.XDP), At: ebpf.AttachXDP})
	if err := errors.Join(err, a.Close()); err != nil {
		t.Fatal(err)
	}
}
