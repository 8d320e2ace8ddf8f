// SPDX-License-Identifier: Apache-2.0

package afport

import (
	"net"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A port that waits for a processor loses no frame, although each frame is in a block of its own,
// which the kernel hands over before the next frame comes.
func TestSlowReader(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a network namespace needs root")
	}
	runtime.LockOSThread() // for good: the thread, and with it the namespace, ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skip("no network namespace:", err)
	}
	if out, err := exec.Command("ip", "link", "set", "dev", "lo", "up").CombinedOutput(); err != nil {
		t.Skipf("ip: %v: %s", err, out)
	}
	s, err := openRing("lo", defaultRingBytes, false)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	c, err := net.Dial("udp", "127.0.0.1:9")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const frames = 50
	for range frames {
		_, _ = c.Write([]byte("frame")) // may return the refusal of the frame before
		time.Sleep(2 * handOver)
	}
	if n := s.lost(); n != 0 {
		t.Errorf("%d of %d frames lost", n, frames)
	}
}
