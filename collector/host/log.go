// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/netsketch/netsketch/collector/epoch"
)

// gatherTime is how long the log collects sessions that begin or end before it writes one line for
// all of them.
const gatherTime = time.Second

// connections logs sessions that begin and end. Many at the same time share one line.
type connections struct {
	c     *Component
	after time.Duration

	mu       sync.Mutex
	up, down []string
	reason   error // reason of the first session in down
	timer    *time.Timer
}

// connected notes a session that has begun.
func (x *connections) connected(host string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.up = append(x.up, host)
	x.wait()
}

// ended notes a session that has ended.
func (x *connections) ended(host string, reason error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.down) == 0 {
		x.reason = reason
	}
	x.down = append(x.down, host)
	x.wait()
}

// wait starts the timer if it is not running. The caller holds x.mu.
func (x *connections) wait() {
	if x.timer == nil {
		x.timer = time.AfterFunc(x.after, x.flush)
	}
}

// flush logs the gathered sessions.
func (x *connections) flush() {
	count := x.c.connected()
	x.mu.Lock()
	up, down, reason := x.up, x.down, x.reason
	x.up, x.down, x.reason = nil, nil, nil
	if x.timer != nil {
		x.timer.Stop()
		x.timer = nil
	}
	x.mu.Unlock()
	if len(down) > 0 {
		level := slog.LevelWarn
		if x.c.ctx.Err() != nil { // the collector is stopping
			level = slog.LevelInfo
		}
		x.c.log.Log(x.c.ctx, level, "sessions of host agents ended", "connected", count, "hosts", epoch.Names(down),
			"reason", reason)
	}
	if len(up) > 0 {
		x.c.log.Info("host agents connected", "connected", count, "hosts", epoch.Names(up))
	}
}

// connected returns how many hosts have a session.
func (c *Component) connected() string {
	connected, all := 0, c.Hosts()
	for i := range all {
		if all[i].Connected {
			connected++
		}
	}
	return fmt.Sprintf("%d of %d", connected, len(all))
}
