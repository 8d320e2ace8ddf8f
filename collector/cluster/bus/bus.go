// SPDX-License-Identifier: Apache-2.0

// Package bus connects the collectors of a cluster: one NATS connection with JetStream, to servers
// of their own or to one that runs in this process.
//
// # Concurrency
//
// Methods may be called from any goroutine. Close waits for the goroutines of the connection and of
// the server.
package bus

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/netsketch/netsketch/internal/files"
)

const (
	// reconnectWait is the time between two attempts to connect to a server.
	reconnectWait = 250 * time.Millisecond
	// pingInterval is the time between pings; after two pings without an answer the connection to a
	// server counts as lost.
	pingInterval = 2 * time.Second
	// reconnectBuffer is the number of bytes that are kept for sending while there is no connection:
	// none, so that publishing fails at once and the caller decides.
	reconnectBuffer = -1
)

// Config configures a Bus.
type Config struct {
	// Name is the name of the cluster, the prefix of all subjects, buckets and streams: letters,
	// digits, - and _.
	Name string
	// Member is the name of this collector in the cluster, for the logs of servers.
	Member string
	// Servers are the addresses of NATS servers, host:port. With Embedded they may be empty.
	Servers []string
	// TLS secures the connection; nil means plaintext.
	TLS *tls.Config
	// CredentialsFile holds the user's JWT and key; "" means that the user has no such file.
	CredentialsFile string
	// Username and Password identify the collector; they are not sent if empty.
	Username, Password string
	// Embedded configures a server to run in this process; nil runs no server.
	Embedded *Embedded
	// Serve starts the embedded server: natsserver.Start.
	Serve func(context.Context, Config) (Server, error)
	// Replicas is the number of servers that hold each bucket and stream: 1 or 3, and 1 if 0.
	Replicas int
	// Logger receives changes of the connection; nil disables logging.
	Logger *slog.Logger
}

// Embedded configures a NATS server in this process.
type Embedded struct {
	// Listen is the address for clients, host:port; an empty host is every interface.
	Listen string
	// Directory holds the streams and buckets; empty keeps them in memory of a temporary directory.
	Directory string
	// RouteListen is the address for the other servers, host:port; "" runs a server without a
	// cluster of servers.
	RouteListen string
	// Routes are the RouteListen addresses of all servers.
	Routes []string
}

// Server is a NATS server in this process.
type Server interface {
	// Addr returns the address for clients.
	Addr() net.Addr
	// Shutdown begins to end the server, WaitForShutdown waits until it has ended.
	Shutdown()
	WaitForShutdown()
}

// Bus is a connection to NATS.
type Bus struct {
	cfg    Config
	server Server // the embedded NATS server; nil if the servers are other processes
	conn   *nats.Conn
	closed chan struct{}
	js     jetstream.JetStream

	servers string                // addresses of the NATS servers
	last    atomic.Pointer[error] // why the connection is missing; nil if that is not known
	refused atomic.Bool           // whether servers refuse the connection; a refusal is logged once
}

// Connect starts the embedded server, if there is one, and the connection. Servers that cannot be
// reached are no error: the connection is made when they can.
func Connect(ctx context.Context, cfg Config) (*Bus, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Replicas == 0 {
		cfg.Replicas = 1
	}
	if err := CheckName(cfg.Name); err != nil {
		return nil, fmt.Errorf("cluster.name: %w", err)
	}
	b := &Bus{cfg: cfg, closed: make(chan struct{})}
	servers := slices.Clone(cfg.Servers) // the caller keeps its slice
	if cfg.Embedded != nil {
		if cfg.Serve == nil {
			return nil, errors.New("cluster.nats.embedded: this program has no NATS server; expected addresses of servers")
		}
		var err error
		if b.server, err = cfg.Serve(ctx, cfg); err != nil {
			return nil, err
		}
		servers = append([]string{b.server.Addr().String()}, servers...)
	}
	if len(servers) == 0 {
		return nil, errors.New("cluster.nats: no server; expected addresses, or an embedded server")
	}
	options := []nats.Option{
		nats.Name("netsketch " + cfg.Member), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait), nats.ReconnectJitter(reconnectWait/2, reconnectWait/2),
		nats.PingInterval(pingInterval), nats.ReconnectBufSize(reconnectBuffer), nats.Timeout(pingInterval),
		nats.IgnoreAuthErrorAbort(), // a server may accept the same or renewed credentials later
		nats.ConnectHandler(func(*nats.Conn) { b.changed(true, nil) }),
		nats.ReconnectHandler(func(*nats.Conn) { b.changed(true, nil) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { b.changed(false, err) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { b.failed(err) }),
		nats.ClosedHandler(func(*nats.Conn) { close(b.closed) }),
	}
	if b.server != nil { // connects to the own server first: it knows the other servers of the cluster
		options = append(options, nats.DontRandomize())
	}
	scheme := "nats://"
	if cfg.TLS != nil {
		scheme = "tls://"
		options = append(options, nats.Secure(cfg.TLS))
	}
	if cfg.CredentialsFile != "" {
		options = append(options, nats.UserCredentials(cfg.CredentialsFile))
	}
	if cfg.Username != "" {
		options = append(options, nats.UserInfo(cfg.Username, cfg.Password))
	}
	b.servers = strings.Join(servers, ", ")
	for i, s := range servers {
		servers[i] = scheme + s
	}
	conn, err := nats.Connect(strings.Join(servers, ","), options...)
	if err == nil {
		b.conn = conn
		b.js, err = jetstream.New(conn)
	}
	if err != nil {
		b.Close()
		return nil, fmt.Errorf("cluster.nats: %w", err)
	}
	return b, nil
}

// WaitConnected waits until there is a connection. When ctx ends first, it returns why the
// connection is missing.
func (b *Bus) WaitConnected(ctx context.Context) error {
	for !b.conn.IsConnected() {
		select {
		case <-time.After(reconnectWait / 10):
		case <-ctx.Done():
			return fmt.Errorf("cluster %s: %w", b.cfg.Name, b.Connected())
		}
	}
	return nil
}

// Connected returns why there is no connection; nil if there is one.
func (b *Bus) Connected() error {
	if b.conn.IsConnected() {
		b.last.Store(nil)
		return nil
	}
	err := fmt.Errorf("no NATS server can be reached at %s", b.servers)
	if last := b.conn.LastError(); last != nil { // a server that is tried later may leave no error
		last = explain(last)
		b.last.Store(&last)
	}
	if last := b.last.Load(); last != nil {
		err = fmt.Errorf("%w: %w", err, *last)
	}
	return err
}

// explain names the keys of the configuration that an error of a connection is about.
func explain(err error) error {
	var op *net.OpError
	alert := false
	if errors.As(err, &op) { // leaves out this side's port, which differs each time
		err, alert = op.Err, op.Op == "remote error"
	}
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.Is(err, nats.ErrAuthorization):
		return fmt.Errorf("%w: the server does not accept cluster.nats.username and password, or "+
			"credentials-file", err)
	case errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked),
		errors.Is(err, nats.ErrAccountAuthExpired):
		return fmt.Errorf("%w: expected a newer user in cluster.nats.credentials-file", err)
	case errors.Is(err, nats.ErrSecureConnWanted):
		return fmt.Errorf("%w: the server has no TLS; expected it there, or cluster.nats.tls: {plaintext: true}", err)
	case errors.As(err, &certificate):
		return fmt.Errorf("%w: the certificate of the server is not valid by cluster.nats.tls", err)
	case alert && strings.Contains(err.Error(), "certificate"): // the type of alerts is not exported
		return fmt.Errorf("%w: the server does not accept cluster.nats.tls.cert-file", err)
	}
	return err
}

// CheckCredentials returns why a file cannot be the credentials of a NATS user. They are read again
// for each connection.
func CheckCredentials(file string) error {
	text, err := files.ReadText(file)
	if err != nil {
		return err
	}
	if _, err := nkeys.ParseDecoratedUserNKey(text); err != nil {
		return fmt.Errorf("%s has no key of a NATS user: %w", file, err)
	}
	return nil
}

// CheckName returns why a text cannot be the name of a cluster.
func CheckName(name string) error {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	}) {
		return fmt.Errorf("expected letters, digits, - and _; found %q", name)
	}
	return nil
}

// changed logs a change of the connection.
func (b *Bus) changed(connected bool, err error) {
	switch {
	case connected:
		b.last.Store(nil)
		b.refused.Store(false)
		b.cfg.Logger.Info("connected to NATS")
	case err != nil:
		b.cfg.Logger.Warn("the connection to NATS is lost", "error", err)
	}
}

// failed logs an error of the connection. An error that repeats at each attempt to connect is
// logged once.
func (b *Bus) failed(err error) {
	level, why := slog.LevelWarn, explain(err)
	if why.Error() != err.Error() && b.refused.Swap(true) {
		level = slog.LevelDebug
	}
	b.cfg.Logger.Log(context.Background(), level, "NATS reports an error", "error", why)
}

// Conn returns the connection.
func (b *Bus) Conn() *nats.Conn { return b.conn }

// JetStream returns the JetStream context of the connection.
func (b *Bus) JetStream() jetstream.JetStream { return b.js }

// Name returns the name of the cluster.
func (b *Bus) Name() string { return b.cfg.Name }

// Replicas returns the number of servers that hold each bucket and stream.
func (b *Bus) Replicas() int { return b.cfg.Replicas }

// Subject returns a subject of the cluster: netsketch.NAME and the tokens.
func (b *Bus) Subject(tokens ...string) string {
	return "netsketch." + b.cfg.Name + "." + strings.Join(tokens, ".")
}

// Bucket returns the name of a bucket or stream of the cluster: netsketch_NAME_ and the name.
func (b *Bus) Bucket(name string) string { return "netsketch_" + b.cfg.Name + "_" + name }

// Close closes the connection and ends the embedded server.
func (b *Bus) Close() {
	if b.conn != nil {
		b.conn.Close()
		<-b.closed
	}
	if b.server != nil {
		b.server.Shutdown()
		b.server.WaitForShutdown()
	}
}

// Unanswered adds advice to the error of a JetStream call that has timed out: the servers of a
// stream do not answer while their disks are full, or while they have no leader.
func Unanswered(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) {
		return fmt.Errorf("%w: JetStream does not answer; see the disks and the logs of the NATS servers", err)
	}
	return err
}
