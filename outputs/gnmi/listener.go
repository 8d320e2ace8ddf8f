// SPDX-License-Identifier: Apache-2.0

// A bound on connections, for memory and file descriptors.

package gnmi

import (
	"fmt"
	"net"
	"sync"

	"github.com/netsketch/netsketch/outputs/gnmi/server"
)

// listener accepts connections up to a limit, in all and per client address, and closes further
// ones at once.
type listener struct {
	net.Listener
	limit, perClient int
	refused          func(kind server.Kind, client string, err error)

	mu      sync.Mutex
	open    int
	clients map[string]int // open, by address
}

// Accept returns the next connection within the limits.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		address := server.Address(c.RemoteAddr())
		if err := l.enter(address); err != nil {
			c.Close()
			l.refused(server.Connection, "client "+address, err)
			continue
		}
		return &conn{Conn: c, leave: sync.OnceFunc(func() { l.leave(address) })}, nil
	}
}

func (l *listener) enter(address string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.clients[address] >= l.perClient:
		return fmt.Errorf("the address has %d connections, the limit of max-connections-per-client; "+
			"close some, or raise it", l.perClient)
	case l.open >= l.limit:
		return fmt.Errorf("all clients have %d connections, the limit of max-connections; close some, or raise it",
			l.limit)
	}
	l.open++
	l.clients[address]++
	return nil
}

func (l *listener) leave(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if l.clients[address]--; l.clients[address] == 0 {
		delete(l.clients, address)
	}
}

// count returns the number of open connections.
func (l *listener) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
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
