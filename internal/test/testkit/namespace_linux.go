// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// IP runs the command ip with arguments, which are separated by spaces.
func IP(args string) error {
	if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w\n%s", args, err, out)
	}
	return nil
}

// Isolated runs a test or benchmark again in a process and a network namespace of its own, and
// returns true there: whatever it makes is gone with the namespace, however it ends. flags are
// further flags of that process.
func Isolated(t testing.TB, flags ...string) bool {
	t.Helper()
	const inside = "NETSKETCH_TEST_NETNS"
	if os.Getenv(inside) != "" {
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("network namespaces and AF_PACKET need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("veth pairs are made with ip (iproute2), which is not on the PATH")
	}
	_, benchmark := t.(*testing.B)
	args := []string{"-test.run=^" + t.Name() + "$", "-test.v", "-test.count=1"}
	if benchmark {
		args = []string{"-test.run=^$", "-test.bench=^" + t.Name() + "$"}
	}
	cmd := exec.Command(os.Args[0], append(args, flags...)...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	switch {
	case errors.Is(err, unix.EPERM):
		t.Skipf("this system forbids new network namespaces: %v", err)
	case err != nil:
		t.Fatalf("%v:\n%s", err, out)
	case !benchmark && !bytes.Contains(out, []byte("--- PASS: "+t.Name())):
		t.Skipf("the test did not run in its namespace:\n%s", out)
	}
	t.Logf("%s", out)
	return false
}

// InNamespace runs f in a goroutine with its own network namespace, after moving an interface of
// the caller's namespace into it and running ip there with each of the given arguments. Sockets
// that f opens in its goroutine are in the namespace.
func InNamespace(t testing.TB, name string, args []string, f func() error) <-chan error {
	t.Helper()
	ready, moved, done := make(chan string), make(chan struct{}), make(chan error, 1)
	go func() {
		// never unlocked: the thread ends with the goroutine, and the namespace with the thread
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			close(ready)
			done <- err
			return
		}
		ready <- fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
		<-moved
		for _, a := range args {
			if err := IP(a); err != nil {
				done <- err
				return
			}
		}
		done <- f()
	}()
	if ns, ok := <-ready; ok {
		if err := IP(fmt.Sprintf("link set dev %s netns %s", name, ns)); err != nil {
			t.Fatal(err)
		}
		close(moved)
	}
	return done
}
