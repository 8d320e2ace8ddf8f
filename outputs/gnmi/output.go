// SPDX-License-Identifier: Apache-2.0

// Package gnmi is the northbound output, which serves the results in the store over gNMI. Package
// server implements the protocol; this package adds the address, TLS, credentials, health and
// reflection.
//
// Concurrency: as for outputs.Output.
package gnmi

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/collector/store"
	"github.com/netsketch/netsketch/internal/certs"
	"github.com/netsketch/netsketch/outputs"
	"github.com/netsketch/netsketch/outputs/gnmi/server"
	"github.com/netsketch/netsketch/yang"
)

// handshakeTimeout bounds the handshakes of a new connection.
const handshakeTimeout = 20 * time.Second

// Dependencies are what an output needs from the collector.
type Dependencies struct {
	// Schema returns the current schema, with the modules of the running plugins.
	Schema func() *yang.Schema
	// Querier computes rows that are not in the store; nil answers only from the store.
	Querier server.Querier
	// Certificates loads those of the server.
	Certificates *certs.Store
	Logger       *slog.Logger
}

// Output serves a store over gNMI. It is an outputs.Output.
type Output struct {
	name   string
	config Config
	deps   Dependencies
	logger *slog.Logger
	creds  credentials.TransportCredentials
	health *health.Server

	stopping context.Context // ends when stop begins
	endOther context.CancelFunc

	mu     sync.Mutex
	lis    *listener
	rpc    *grpc.Server
	gnmi   *server.Server
	status outputs.Status
	err    string
}

var _ outputs.Output = (*Output)(nil)

// New returns an output with these settings. It fails if the settings contradict each other, or a
// file that they name cannot be read.
func New(name string, c Config, deps Dependencies) (*Output, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	o := &Output{
		name: name, config: c, deps: deps, logger: deps.Logger.With("output", name),
		creds: insecure.NewCredentials(), health: health.NewServer(), status: outputs.Down,
	}
	o.stopping, o.endOther = context.WithCancel(context.Background())
	if !c.TLS.Plaintext {
		files := certs.Files{Cert: c.TLS.CertFile, Key: c.TLS.KeyFile, CA: c.TLS.ClientCAFile}
		t, err := deps.Certificates.Server(files)
		if err != nil {
			return nil, err
		}
		deps.Certificates.Declare("output "+name, certs.Use{Name: "server of output " + name, Server: true, Files: files})
		o.creds = credentials.NewTLS(t)
	}
	return o, nil
}

// Name returns the output's name in the configuration.
func (o *Output) Name() string { return o.name }

// Type returns "gnmi".
func (o *Output) Type() string { return "gnmi" }

// Start listens on the configured address.
func (o *Output) Start(s *store.Store) error {
	gnmi, err := server.New(server.Options{
		Store: s, Schema: o.deps.Schema, Querier: o.deps.Querier, Atomic: o.config.Atomic,
		LowestInterval: o.config.SampleInterval, MaxStreams: o.config.MaxStreams, MaxPaths: o.config.MaxPaths,
		MaxGetLeaves: o.config.MaxGetLeaves, Logger: o.logger,
	})
	if err != nil {
		return err
	}
	lis, err := net.Listen("tcp", o.config.Address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("gNMI address %s is in use by another program; stop it, or set another address: %w",
			o.config.Address, err)
	}
	if err != nil {
		return fmt.Errorf("cannot listen on gNMI address %s: %w", o.config.Address, err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gnmi, o.lis = gnmi, &listener{Listener: lis, limit: o.config.MaxConnections, logger: o.logger}
	o.rpc = grpc.NewServer(
		grpc.Creds(o.creds),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 20 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second,
			PermitWithoutStream: true}),
		grpc.MaxConcurrentStreams(uint32(o.config.MaxStreams)),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.UnaryInterceptor(o.unary), grpc.StreamInterceptor(o.stream),
	)
	gnmi.Register(o.rpc)
	healthpb.RegisterHealthServer(o.rpc, o.health)
	o.health.SetServingStatus(gpb.GNMI_ServiceDesc.ServiceName, healthpb.HealthCheckResponse_SERVING)
	reflection.Register(o.rpc)
	o.status = outputs.Up
	return nil
}

// Address returns the address of the started server, with the actual port for port 0; empty before.
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
	o.logger.Info("serving gNMI", "address", o.Address(), "tls", !o.config.TLS.Plaintext)
	served := make(chan error, 1)
	go func() { served <- o.rpc.Serve(o.lis) }()
	var err error
	select {
	case err = <-served:
	case <-ctx.Done():
		o.stop()
		if err = <-served; errors.Is(err, grpc.ErrServerStopped) {
			err = nil // stopped before Serve began
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

// stop ends streams in order. After StopTimeout it closes the connections of clients that do not
// read.
func (o *Output) stop() {
	o.health.Shutdown()
	o.endOther()
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

// State returns the output's state.
func (o *Output) State() outputs.State {
	o.mu.Lock()
	defer o.mu.Unlock()
	st := outputs.State{Status: o.status, LastError: o.err}
	if o.gnmi != nil {
		st.Sent = o.gnmi.Stats().Updates
		if _, refused := o.lis.counts(); refused > 0 && st.LastError == "" {
			st.LastError = fmt.Sprintf("%d connections were refused because %d were open, the limit of max-connections",
				refused, o.config.MaxConnections)
		}
	}
	return st
}

// Stats returns the server's counts.
func (o *Output) Stats() server.Stats {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gnmi == nil {
		return server.Stats{}
	}
	return o.gnmi.Stats()
}

// unary authorizes the calls of all services.
func (o *Output) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := o.authorize(ctx); err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

// stream authorizes the streams of all services, and ends those of other services than gNMI when
// the output stops. The gNMI server ends its own streams in order.
func (o *Output) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
	handler grpc.StreamHandler,
) error {
	if err := o.authorize(stream.Context()); err != nil {
		return err
	}
	if strings.HasPrefix(info.FullMethod, "/"+gpb.GNMI_ServiceDesc.ServiceName+"/") {
		return handler(srv, stream)
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(o.stopping, cancel)()
	return handler(srv, &boundStream{stream, ctx})
}

// boundStream is a stream with another context.
type boundStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s *boundStream) Context() context.Context { return s.ctx }

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
		return status.Error(codes.Unauthenticated,
			"username or password is missing or wrong; both are expected as gRPC metadata")
	}
	return nil
}
