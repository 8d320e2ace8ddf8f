// SPDX-License-Identifier: Apache-2.0

// A bound on connections, for memory and file descriptors.

package gnmi

import (
	"log/slog"
	"net"
	"sync"
)

// listener accepts connections up to a limit, and closes further ones at once.
type listener struct {
	net.Listener
	limit  int
	logger *slog.Logger

	mu      sync.Mutex
	open    int
	refused uint64
	full    bool // logged once per change
}

// Accept returns the next connection within the limit.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.enter() {
			return &conn{Conn: c, leave: sync.OnceFunc(l.leave)}, nil
		}
		c.Close()
	}
}

func (l *listener) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open < l.limit {
		l.open++
		return true
	}
	l.refused++
	if !l.full {
		l.full = true
		l.logger.Warn("gNMI connections are refused: max-connections are open; close some, or raise the limit", "open",
			l.open)
	}
	return false
}

func (l *listener) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if l.full && l.open <= l.limit/2 {
		l.full = false
		l.logger.Info("gNMI connections are accepted again", "open", l.open, "refused", l.refused)
	}
}

// counts returns the numbers of open and of refused connections.
func (l *listener) counts() (open int, refused uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open, l.refused
}

// conn is a connection that leaves the listener when it is closed.
type conn struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.leave()
	return err
}
