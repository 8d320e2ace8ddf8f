// SPDX-License-Identifier: Apache-2.0

// Package grpctest serves gRPC in tests. It is not part of testkit, so that tests of packages
// without gRPC do not link gRPC.
package grpctest

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip" // clients may compress
	"google.golang.org/grpc/test/bufconn"
)

// Serve serves gRPC services over memory until the test ends, and returns a connection to them.
func Serve(tb testing.TB, register func(grpc.ServiceRegistrar), opts ...grpc.DialOption) *grpc.ClientConn {
	tb.Helper()
	rpc := grpc.NewServer()
	register(rpc)
	lis := bufconn.Listen(256 << 10)
	served := make(chan error, 1)
	go func() { served <- rpc.Serve(lis) }()
	opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	conn, err := grpc.NewClient("passthrough:server", opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		conn.Close()
		rpc.Stop()
		if err := <-served; err != nil {
			tb.Error(err)
		}
	})
	return conn
}
