// SPDX-License-Identifier: Apache-2.0

// Package bustest runs NATS servers for tests.
package bustest

import (
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
