// SPDX-License-Identifier: Apache-2.0

package command

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// TestMeter: the load is high after a period in which a direction had more bytes than the limit.
func TestMeter(t *testing.T) {
	now := time.Unix(1000, 0)
	l := &meter{dir: t.TempDir(), limit: 1000, now: func() time.Time { return now }}
	for i, step := range []struct {
		after  time.Duration
		rx, tx int
		want   bool
	}{
		{0, 1 << 40, 5, false}, {100 * time.Millisecond, 1<<40 + 100, 5, false},
		{100 * time.Millisecond, 1<<40 + 201, 5, true},
		{99 * time.Millisecond, 1<<40 + 201, 5, true}, {time.Millisecond, 1<<40 + 201, 105, false},
		{time.Second, 1<<40 + 201, 1106, true}, {time.Second, 0, 0, false}, {time.Second, -1, 1001, true},
	} {
		now = now.Add(step.after)
		for name, n := range map[string]int{"rx_bytes": step.rx, "tx_bytes": step.tx} {
			if err := os.WriteFile(filepath.Join(l.dir, name), []byte(strconv.Itoa(n)+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := l.busy(); got != step.want {
			t.Errorf("step %d: %v", i, got)
		}
	}
	if now = now.Add(time.Second); (&meter{dir: "/nowhere", now: l.now}).busy() {
		t.Error("counters that cannot be read are a load")
	}
}
