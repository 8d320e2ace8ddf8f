// SPDX-License-Identifier: Apache-2.0

package p4rt

import (
	"context"
	"fmt"
	"time"
)

// State is the state of a session.
type State uint8

// The states of a session.
const (
	Connecting   State = iota // opening the connection, reading capabilities
	Arbitrating               // the bid is sent
	Provisioning              // comparing cookies, pushing the pipeline
	Reconciling               // writing the desired entries
	Ready                     // primary: all calls work
	Standby                   // outbid: reads work, writes fail
	ReadOnly                  // mode Backup: reads work
	Down                      // lost; the next session follows after the backoff
	Closed                    // the client was closed
)

var stateNames = [...]string{
	"connecting", "arbitrating", "provisioning", "reconciling", "ready", "standby", "read-only", "down", "closed",
}

// String returns the state's name in lower case.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// Status describes a session.
type Status struct {
	State   State
	Since   time.Time
	Reason  error      // Down, Standby: why. Ready: the error that names refused entries, or nil
	Session uint64     // number of the session, from 1
	Bid     ElectionID // election id that a Primary bids
	Highest ElectionID // highest election id that the switch reported
	Version string     // P4Runtime version of the switch; "1.0" for a switch without the Capabilities call
	Term    uint64     // number of times that the client became the primary
	Pushed  bool       // the pipeline was pushed in this term: the switch's state was cleared
}

// Status returns the status of the session.
func (c *Client) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

// Watch returns a channel of the session's status: the current one, then each change. A slow
// receiver misses statuses in between, never the last. The channel is closed when ctx ends or the
// client is closed.
func (c *Client) Watch(ctx context.Context) <-chan Status {
	w := make(chan Status, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	w <- c.status
	if c.status.State == Closed {
		close(w)
		return w
	}
	c.watchers[w] = context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if _, there := c.watchers[w]; there {
			delete(c.watchers, w)
			close(w)
		}
	})
	return w
}

// WaitReady waits until the session is Ready or, in mode Backup, ReadOnly. If ctx ends before, the
// error contains the status of the session.
func (c *Client) WaitReady(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	last := c.Status()
	for st := range c.Watch(ctx) {
		last = st
		if st.State == Ready || st.State == ReadOnly {
			return nil
		}
	}
	if last.State == Closed {
		return fmt.Errorf("p4rt %s: %w", c.cfg.Target, ErrClosed)
	}
	return &NotReadyError{Target: c.cfg.Target, Status: c.Status(), Cause: ctx.Err()}
}

// setStatus changes the status and signals the watchers.
func (c *Client) setStatus(change func(*Status)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.status.State
	change(&c.status)
	if c.status.State != before {
		c.status.Since = c.cfg.Clock.Now()
	}
	for w := range c.watchers {
		select {
		case <-w: // the receiver misses a status, and gets the next one
		default:
		}
		w <- c.status
	}
	if c.status.State == Closed {
		for w, stop := range c.watchers {
			stop()
			close(w)
		}
		clear(c.watchers)
	}
}
