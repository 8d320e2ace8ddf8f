// SPDX-License-Identifier: Apache-2.0

// The processes of a trial.

package faults

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/netsketch/netsketch/internal/test/testkit"
)

// binaries are the programs under test, built once.
type binaries struct {
	netsketch string
	plugins   string // directory
}

// build returns the programs: those of NETSKETCH_BIN, which make passes, or built into dir.
func build(dir string) (binaries, error) {
	b := binaries{netsketch: filepath.Join(dir, "netsketch"), plugins: filepath.Join(dir, "plugins")}
	if bin := os.Getenv("NETSKETCH_BIN"); bin != "" {
		b.netsketch = filepath.Join(bin, "netsketch")
	} else if err := goBuild(b.netsketch, "./cmd/netsketch"); err != nil {
		return b, err
	}
	if err := errors.Join(os.Mkdir(b.plugins, 0o700), testkit.BuildPlugins(b.plugins, "univmon")); err != nil {
		return b, err
	}
	return b, testkit.InstallSelf(filepath.Join(b.plugins, faultyFile))
}

// faultyFile is the file of plugin faulty, by whose name this binary is the plugin.
const faultyFile = "netsketch-plugin-faulty"

func goBuild(out, pkg string, flags ...string) error {
	args := append(append([]string{"build", "-buildvcs=false", "-ldflags=-s -w", "-o", out}, flags...), pkg)
	c := exec.Command("go", args...)
	c.Dir = filepath.Join("..", "..")
	if text, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, text)
	}
	return nil
}

// process is a program under test. Its output is in a file of the trial's directory.
type process struct {
	tb     testing.TB
	name   string
	log    string
	cmd    *exec.Cmd
	exited chan struct{}
}

// start runs a program until the end of the trial.
func (t *trial) start(name, program string, args ...string) *process {
	t.Helper()
	p := &process{tb: t, name: name, log: filepath.Join(t.dir, name+".log"), exited: make(chan struct{})}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p.cmd = exec.Command(program, args...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = t.dir, out, out
	p.cmd.Env = append([]string{"HOME=" + t.dir, "PATH=" + os.Getenv("PATH")}, t.environment...)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // the exit code is in ProcessState
		close(p.exited)
	}()
	t.Cleanup(p.kill)
	return p
}

func (p *process) signal(s syscall.Signal) {
	_ = p.cmd.Process.Signal(s) // fails if the process has ended
}

// kill ends the process at once and waits for its end.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.exited
}

// terminate ends the process in order and returns whether it did so with exit code 0.
func (p *process) terminate() bool {
	p.signal(syscall.SIGTERM)
	testkit.Until(p.tb, p.name+" ends after SIGTERM", func() bool { return !p.running() })
	return p.cmd.ProcessState.ExitCode() == 0
}

func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// text returns what the process has logged.
func (p *process) text() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		p.tb.Fatal(err)
	}
	return string(b)
}

// logged counts the lines of the log that contain all of the words.
func (p *process) logged(words ...string) int {
	n := 0
	for line := range strings.Lines(p.text()) {
		has := true
		for _, w := range words {
			has = has && strings.Contains(line, w)
		}
		if has {
			n++
		}
	}
	return n
}

// rss returns the memory of the process in MiB.
func (p *process) rss() int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.tb.Fatal(err)
	}
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte("VmRSS:")); ok {
			kib, err := strconv.Atoi(string(bytes.Fields(rest)[0]))
			if err != nil {
				p.tb.Fatal(err)
			}
			return kib >> 10
		}
	}
	p.tb.Fatalf("%s has no memory", p.name)
	return 0
}

// alive reports whether a process that the trial did not start runs; a zombie does not.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, ok := bytes.Cut(b, []byte(") "))
	return ok && rest[0] != 'Z'
}

// freeAddress returns an address of the loopback interface that nothing listens on. Its port is not
// one that systems give to outgoing connections: such a connection may take a free port at any
// time.
func freeAddress(tb testing.TB) string {
	tb.Helper()
	for range 1000 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(12_000)))
		if err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	tb.Fatal("no port from 20000 to 31999 is free")
	return ""
}

// listening reports whether something accepts connections on an address.
func listening(address string) bool {
	c, err := net.DialTimeout("tcp", address, time.Second)
	if err == nil {
		c.Close()
	}
	return err == nil
}
