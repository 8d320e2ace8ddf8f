// SPDX-License-Identifier: Apache-2.0

// A bound on connections, for memory and file descriptors.

package access

import (
	"fmt"
	"net"
	"sync"

	"github.com/netsketch/netsketch/outputs/gnmi/server"
)

// Limits bound the open connections: in all, and per client address.
type Limits struct{ Total, PerClient int }

// Listener accepts connections within the limits, and closes further ones at once.
type Listener struct {
	net.Listener
	limits  Limits
	refused func(kind server.Kind, client string, err error)

	mu      sync.Mutex
	open    int
	clients map[string]int // open, by address
}

// NewListener limits the connections of a listener. It calls refused for each connection that it
// closes.
func NewListener(l net.Listener, limits Limits, refused func(kind server.Kind, client string, err error)) *Listener {
	return &Listener{Listener: l, limits: limits, refused: refused, clients: map[string]int{}}
}

// Accept returns the next connection within the limits.
func (l *Listener) Accept() (net.Conn, error) {
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

func (l *Listener) enter(address string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.clients[address] >= l.limits.PerClient:
		return fmt.Errorf("the address has %d connections, the limit of max-connections-per-client; "+
			"close some, or raise it", l.limits.PerClient)
	case l.open >= l.limits.Total:
		return fmt.Errorf("all clients have %d connections, the limit of max-connections; close some, or raise it",
			l.limits.Total)
	}
	l.open++
	l.clients[address]++
	return nil
}

func (l *Listener) leave(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if l.clients[address]--; l.clients[address] == 0 {
		delete(l.clients, address)
	}
}

// Count returns the number of open connections.
func (l *Listener) Count() int {
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
