// SPDX-License-Identifier: Apache-2.0

// Package bustest runs NATS servers for tests.
package bustest

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/netsketch/netsketch/collector/cluster/bus"
)

// startTimeout bounds the start of a server on a busy machine.
const startTimeout = 20 * time.Second

// Server starts a NATS server with JetStream on a random port of the loopback interface, which
// ends with the test, and returns its address. Create buckets and streams in memory.
func Server(tb testing.TB) string {
	tb.Helper()
	s, err := server.NewServer(&server.Options{
		ServerName: tb.Name(), Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: tb.TempDir(),
		NoSigs: true, NoLog: true,
	})
	if err != nil {
		tb.Fatal(err)
	}
	s.Start()
	tb.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(startTimeout) {
		tb.Fatal("the NATS server does not accept connections")
	}
	return s.Addr().String()
}

// Connect returns a connection to a server that closes with the test.
func Connect(tb testing.TB, cluster, member, address string) *bus.Bus {
	tb.Helper()
	b, err := bus.Connect(tb.Context(), bus.Config{Name: cluster, Member: member, Servers: []string{address}})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(b.Close)
	return b
}

// Proxy forwards connections to an address until cut is called, which also closes them. Calling it
// again forwards new connections.
func Proxy(tb testing.TB, to string) (address string, cut func()) {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	var mu sync.Mutex
	var work sync.WaitGroup
	isCut, open := false, map[net.Conn]bool{}
	closeAll := func() {
		for c := range open {
			_ = c.Close() // both ends are closed
			delete(open, c)
		}
	}
	forward := func(from, to net.Conn) {
		_, _ = io.Copy(to, from) // it ends with either
		mu.Lock()
		defer mu.Unlock()
		for _, c := range []net.Conn{from, to} {
			delete(open, c)
			_ = c.Close()
		}
	}
	work.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			mu.Lock()
			if err != nil || isCut {
				_ = in.Close()
				if out != nil {
					_ = out.Close()
				}
			} else {
				open[in], open[out] = true, true
				work.Go(func() { forward(in, out) })
				work.Go(func() { forward(out, in) })
			}
			mu.Unlock()
		}
	})
	tb.Cleanup(func() {
		_ = listener.Close()
		mu.Lock()
		isCut = true
		closeAll()
		mu.Unlock()
		work.Wait()
	})
	return listener.Addr().String(), func() {
		mu.Lock()
		defer mu.Unlock()
		isCut = !isCut
		closeAll()
	}
}
