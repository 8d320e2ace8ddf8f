// SPDX-License-Identifier: Apache-2.0

package command

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// loadPeriod is how long the traffic is measured at least.
const loadPeriod = 100 * time.Millisecond

// meter measures the traffic of an interface. It is used by one goroutine at a time.
type meter struct {
	dir   string  // directory of the kernel's counters of the interface
	limit float64 // bytes a second
	now   func() time.Time

	at    time.Time
	bytes [2]uint64 // received, sent
	high  bool
}

// busy reports whether the traffic in a direction was above the limit between the latest two
// readings. Counters that cannot be read are no load.
func (l *meter) busy() bool {
	now := l.now()
	since := now.Sub(l.at)
	if since < loadPeriod {
		return l.high
	}
	l.high = false
	for i, name := range []string{"rx_bytes", "tx_bytes"} {
		text, err := os.ReadFile(filepath.Join(l.dir, name))
		if err != nil {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			continue
		}
		if !l.at.IsZero() && n > l.bytes[i] && float64(n-l.bytes[i]) > l.limit*since.Seconds() {
			l.high = true
		}
		l.bytes[i] = n
	}
	l.at = now
	return l.high
}
