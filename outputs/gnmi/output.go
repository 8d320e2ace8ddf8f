// SPDX-License-Identifier: Apache-2.0

// Package gnmi is the northbound output: the results in the store, served over gNMI.
// The protocol is package server's; this package gives it an address, encryption and
// credentials.
//
// Concurrency: as outputs.Output says.
package gnmi

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/collector/store"
	"github.com/netsketch/netsketch/outputs"
	"github.com/netsketch/netsketch/outputs/gnmi/server"
	"github.com/netsketch/netsketch/yang"
)

// handshakeTimeout is how long a new connection has until it speaks gRPC.
const handshakeTimeout = 20 * time.Second

// Output serves a store over gNMI. It is an outputs.Output.
type Output struct {
	name   string
	config Config
	schema func() *yang.Schema
	logger *slog.Logger
	creds  credentials.TransportCredentials

	mu     sync.Mutex
	lis    *listener
	rpc    *grpc.Server
	gnmi   *server.Server
	status outputs.Status
	err    string
}

var _ outputs.Output = (*Output)(nil)

// New returns an output with these settings. schema returns the schema of now, with
// the modules of the plugins that run. It fails when the settings are wrong, or a file
// that they name cannot be read.
func New(name string, c Config, schema func() *yang.Schema, logger *slog.Logger) (*Output, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	t, err := c.tlsConfig()
	if err != nil {
		return nil, err
	}
	o := &Output{name: name, config: c, schema: schema, logger: logger.With("output", name), creds: insecure.NewCredentials(), status: outputs.Down}
	if t != nil {
		o.creds = credentials.NewTLS(t)
	}
	return o, nil
}

// Name is the output's name in the configuration.
func (o *Output) Name() string { return o.name }

// Type is "gnmi".
func (o *Output) Type() string { return "gnmi" }

// Start listens. An address that is taken is an error that names it.
func (o *Output) Start(s *store.Store) error {
	gnmi, err := server.New(server.Options{
		Store: s, Schema: o.schema, Atomic: o.config.Atomic, Authorize: o.authorize,
		LowestInterval: o.config.SampleInterval, MaxStreams: o.config.MaxStreams, MaxPaths: o.config.MaxPaths,
		MaxGetLeaves: o.config.MaxGetLeaves, Logger: o.logger,
	})
	if err != nil {
		return err
	}
	lis, err := net.Listen("tcp", o.config.Address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("gNMI address %s is taken by another program; stop it, or set another address: %w", o.config.Address, err)
	}
	if err != nil {
		return fmt.Errorf("gNMI address %s cannot be listened on: %w", o.config.Address, err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gnmi, o.lis = gnmi, &listener{Listener: lis, limit: o.config.MaxConnections, logger: o.logger}
	o.rpc = grpc.NewServer(
		grpc.Creds(o.creds),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 20 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.MaxConcurrentStreams(uint32(o.config.MaxStreams)),
		grpc.ConnectionTimeout(handshakeTimeout),
	)
	gnmi.Register(o.rpc)
	o.status = outputs.Up
	return nil
}

// Address is where the server listens once started, with the port that was chosen
// for port 0; "" before.
func (o *Output) Address() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lis == nil {
		return ""
	}
	return o.lis.Addr().String()
}

// Run serves until ctx ends, and then ends the streams.
func (o *Output) Run(ctx context.Context) error {
	o.logger.Info("gNMI is served", "address", o.Address(), "tls", !o.config.TLS.Plaintext)
	served := make(chan error, 1)
	go func() { served <- o.rpc.Serve(o.lis) }()
	var err error
	select {
	case err = <-served:
	case <-ctx.Done():
		o.stop()
		if err = <-served; errors.Is(err, grpc.ErrServerStopped) {
			err = nil // it was told to stop before it had begun
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.status = outputs.Stopped
	if err != nil {
		o.err = err.Error()
		return fmt.Errorf("gNMI on %s: %w", o.lis.Addr(), err)
	}
	return nil
}

// stop ends streams in order, and after the time allowed for that breaks what is
// left: a client that does not read.
func (o *Output) stop() {
	limit, cancel := context.WithTimeout(context.Background(), o.config.StopTimeout)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if o.gnmi.Close(limit) == nil {
			o.rpc.GracefulStop()
		}
	}()
	select {
	case <-done:
	case <-limit.Done():
	}
	o.rpc.Stop()
	<-done
}

// State is how the output is doing.
func (o *Output) State() outputs.State {
	o.mu.Lock()
	defer o.mu.Unlock()
	st := outputs.State{Status: o.status, LastError: o.err}
	if o.gnmi != nil {
		st.Sent = o.gnmi.Stats().Updates
		if _, refused := o.lis.counts(); refused > 0 && st.LastError == "" {
			st.LastError = fmt.Sprintf("%d connections were refused, because %d were open, as max-connections allows", refused, o.config.MaxConnections)
		}
	}
	return st
}

// Stats are the server's counts.
func (o *Output) Stats() server.Stats {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gnmi == nil {
		return server.Stats{}
	}
	return o.gnmi.Stats()
}

// authorize checks the credentials that clients send as metadata.
func (o *Output) authorize(ctx context.Context) error {
	if o.config.Username == "" {
		return nil
	}
	md, _ := metadata.FromIncomingContext(ctx)
	get := func(key string) []byte {
		if v := md.Get(key); len(v) == 1 {
			return []byte(v[0])
		}
		return nil
	}
	user := subtle.ConstantTimeCompare(get("username"), []byte(o.config.Username))
	pass := subtle.ConstantTimeCompare(get("password"), []byte(o.config.Password.Reveal()))
	if user&pass != 1 {
		return status.Error(codes.Unauthenticated, "username or password is missing or wrong; both are expected as gRPC metadata")
	}
	return nil
}
