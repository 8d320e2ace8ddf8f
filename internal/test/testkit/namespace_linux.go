// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
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
