// SPDX-License-Identifier: Apache-2.0

// Package gnmi is the northbound output, which serves the results in the store over gNMI. Package
// server implements the protocol; this package adds the address, TLS, credentials, health and
// reflection.
//
// Concurrency: as for outputs.Output.
package gnmi

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip" // clients may compress
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/tap"

	"github.com/netsketch/netsketch/internal/certs"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/outputs"
	"github.com/netsketch/netsketch/outputs/access"
	"github.com/netsketch/netsketch/outputs/gnmi/server"
	"github.com/netsketch/netsketch/yang"
)

// Bounds of connections and calls.
const (
	handshakeTimeout = 20 * time.Second // limit for a new connection
	idleConnection   = 5 * time.Minute  // time after which a connection without calls is closed
	unaryTimeout     = time.Minute      // limit from the headers of a Get or Capabilities to the reply
	// concurrent calls per connection, in addition to streams: health, reflection, and calls to
	// refuse
	otherCalls = 64
)

// Dependencies are the parts of the collector that an output uses.
type Dependencies struct {
	// Schema returns the current schema, with the modules of the running plugins.
	Schema func() *yang.Schema
	// Querier computes rows that are not in the store; nil serves only rows in the store.
	Querier server.Querier
	// Certificates loads the server's certificates.
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
	users  access.Users
	health *health.Server

	stopping context.Context // ends when the stop begins
	endOther context.CancelFunc

	serving access.Serving
	lis     *access.Listener
	rpc     *grpc.Server
	gnmi    *server.Server
}

var _ outputs.Output = (*Output)(nil)

// New returns an output with these settings. It fails if the settings contradict each other, or if
// a file that they name cannot be read.
func New(name string, c Config, deps Dependencies) (*Output, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	o := &Output{
		name: name, config: c, deps: deps, logger: deps.Logger.With("output", name),
		users: access.UsersOf(c.Username, c.Password, c.Users),
		creds: insecure.NewCredentials(), health: health.NewServer(), serving: access.Serving{Name: "gNMI"},
	}
	o.stopping, o.endOther = context.WithCancel(context.Background())
	t, err := c.TLS.Load(deps.Certificates, name)
	if err != nil {
		return nil, err
	}
	if t != nil {
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
		User: access.UserOf, LowestInterval: o.config.SampleInterval, MaxStreams: o.config.MaxStreams,
		MaxStreamsPerClient: o.config.MaxStreamsPerClient, MaxStreamsPerUser: o.config.MaxStreamsPerUser,
		FirstMessageTimeout: o.config.FirstMessageTimeout, PollIdleTimeout: o.config.PollIdleTimeout,
		MaxGets: o.config.MaxGets, MaxGetsPerClient: o.config.MaxGetsPerClient,
		MaxPaths: o.config.MaxPaths, MaxGetLeaves: o.config.MaxGetLeaves, Logger: o.logger,
	})
	if err != nil {
		return err
	}
	limits := access.Limits{Total: o.config.MaxConnections, PerClient: o.config.MaxConnectionsPerClient}
	lis, err := o.serving.Listen(o.config.Address, limits, gnmi)
	if err != nil {
		return err
	}
	o.gnmi, o.lis = gnmi, lis
	o.users.WarnUnknownPaths(o.deps.Schema(), o.logger)
	o.rpc = grpc.NewServer(
		grpc.Creds(o.creds),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 20 * time.Second,
			MaxConnectionIdle: idleConnection}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second,
			PermitWithoutStream: true}),
		grpc.MaxConcurrentStreams(uint32(o.config.MaxStreamsPerClient+o.config.MaxGetsPerClient+otherCalls)),
		grpc.InTapHandle(boundUnary),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.UnaryInterceptor(o.unary), grpc.StreamInterceptor(o.stream),
	)
	gnmi.Register(o.rpc)
	healthpb.RegisterHealthServer(o.rpc, o.health)
	o.health.SetServingStatus(gpb.GNMI_ServiceDesc.ServiceName, healthpb.HealthCheckResponse_SERVING)
	reflection.Register(o.rpc)
	return nil
}

// Address returns the address of the started server, with the actual port if the setting is port
// 0; empty before Start.
func (o *Output) Address() string { return o.serving.Address() }

// Plaintext reports whether clients connect without TLS.
func (o *Output) Plaintext() bool { return o.config.TLS.Plaintext }

// Login reports whether clients need a username or a certificate of a user.
func (o *Output) Login() bool { return len(o.users) > 0 }

// Run serves until ctx ends, and then ends all streams.
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
	return o.serving.End(err)
}

// stop ends the streams. After StopTimeout, it closes the connections of clients that do not read.
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
func (o *Output) State() outputs.State { return o.serving.State() }

// boundUnary ends a Get, Set or Capabilities that takes longer than unaryTimeout, for example
// because its request never arrives.
func boundUnary(ctx context.Context, call *tap.Info) (context.Context, error) {
	if !strings.HasPrefix(call.FullMethodName, "/"+gpb.GNMI_ServiceDesc.ServiceName+"/") ||
		call.FullMethodName == gpb.GNMI_Subscribe_FullMethodName {
		return ctx, nil
	}
	ctx, cancel := context.WithTimeout(ctx, unaryTimeout)
	context.AfterFunc(ctx, cancel)
	return ctx, nil
}

// Stats returns the server's counts.
func (o *Output) Stats() server.Stats { return o.serving.Stats() }

// unary authorizes the unary calls of all services.
func (o *Output) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	ctx, err := o.authorize(ctx)
	if err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

// stream authorizes the streams of all services. When the output stops, it ends the streams of
// services other than gNMI; the gNMI server ends its own streams.
func (o *Output) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
	handler grpc.StreamHandler,
) error {
	ctx, err := o.authorize(stream.Context())
	if err != nil {
		return err
	}
	if strings.HasPrefix(info.FullMethod, "/"+gpb.GNMI_ServiceDesc.ServiceName+"/") {
		return handler(srv, &boundStream{stream, ctx})
	}
	ctx, cancel := context.WithCancel(ctx)
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
