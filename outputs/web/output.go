// SPDX-License-Identifier: Apache-2.0

// Package web is the console: pages for people over HTTP, with the values that the gNMI server of
// the same store sends. The pages are built from the sources in console and embedded from dist.
//
// A browser subscribes as a gNMI client does: api.go translates its request to a gNMI Subscribe of
// a server.Server in this process, and the answers to server-sent events. That server applies
// permissions, limits, watched flows and coalescing.
//
// Concurrency: as for outputs.Output.
package web

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/netsketch/netsketch/internal/certs"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/outputs"
	"github.com/netsketch/netsketch/outputs/access"
	"github.com/netsketch/netsketch/outputs/gnmi/server"
	"github.com/netsketch/netsketch/yang"
)

// Bounds of connections and requests.
const (
	headerTimeout  = 10 * time.Second // until a request has arrived, TLS handshake included
	idleConnection = 2 * time.Minute  // until a connection without requests is closed
	maxHeader      = 32 << 10         // bytes of a request's header
	maxBody        = 512 << 10        // bytes of a request's body
)

// Dependencies are the parts of the collector that an output uses.
type Dependencies struct {
	// Schema returns the current schema, with the modules of the running plugins.
	Schema func() *yang.Schema
	// Querier, if set, computes rows that are not in the store.
	Querier server.Querier
	// Watchable returns the schema paths of the lists whose plugins compute any row that a client
	// names with all keys.
	Watchable func() []string
	// Certificates loads the certificates of the server.
	Certificates *certs.Store
	// Endpoint returns the gNMI server that the console names in its commands; nil without one.
	Endpoint func() *Endpoint
	// Measurement returns the name of a list's points in InfluxDB; keyed reports that the list has
	// keys.
	Measurement func(list string, keyed bool) string
	// Tag returns the name of the tag for a key of a list.
	Tag    func(key string) string
	Logger *slog.Logger
}

// Endpoint is a gNMI server as its clients name it.
type Endpoint struct {
	Address   string `json:"address"`
	Plaintext bool   `json:"plaintext"`
	Login     bool   `json:"login"` // clients need a username
}

// Output serves the console. It is an outputs.Output.
type Output struct {
	name   string
	config Config
	deps   Dependencies
	logger *slog.Logger
	users  access.Users
	tls    *tls.Config // nil without TLS

	serving access.Serving
	lis     *access.Listener
	http    *http.Server
	gnmi    *server.Server
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
		users: access.UsersOf(c.Username, c.Password, c.Users), serving: access.Serving{Name: "console"},
	}
	t, err := c.TLS.Load(deps.Certificates, name)
	if err != nil {
		return nil, err
	}
	if t != nil {
		o.tls = withHTTP(t)
	}
	return o, nil
}

// withHTTP returns the configuration with the protocols of HTTP. A browser needs the second version
// for more than six streams.
func withHTTP(t *tls.Config) *tls.Config {
	t, inner := t.Clone(), t.GetConfigForClient
	t.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		c, err := inner(hello)
		if err != nil {
			return nil, err
		}
		c = c.Clone()
		c.NextProtos = []string{"h2", "http/1.1"}
		return c, nil
	}
	return t
}

// Name returns the output's name in the configuration.
func (o *Output) Name() string { return o.name }

// Type returns "web".
func (o *Output) Type() string { return "web" }

// Start listens on the configured address.
func (o *Output) Start(s *store.Store) error {
	gnmi, err := server.New(server.Options{
		Store: s, Schema: o.deps.Schema, Querier: o.deps.Querier, User: access.UserOf, MaxStreams: o.config.MaxStreams,
		MaxStreamsPerClient: o.config.MaxStreamsPerClient, MaxStreamsPerUser: o.config.MaxStreamsPerUser,
		MaxPaths: o.config.MaxPaths, Logger: o.logger,
	})
	if err != nil {
		return err
	}
	pages, err := loadAssets()
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
	a := &api{output: o, gnmi: gnmi, target: s.DefaultTarget()}
	o.http = &http.Server{
		Handler: o.guard(a.handler(pages)), TLSConfig: o.tls, ReadHeaderTimeout: headerTimeout,
		ReadTimeout: headerTimeout, IdleTimeout: idleConnection, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(o.logger.Handler(), slog.LevelDebug),
	}
	return nil
}

// Address returns the address of the started server, with the actual port for port 0; empty before.
func (o *Output) Address() string { return o.serving.Address() }

// URL returns where a browser on this machine finds the started console; empty before.
func (o *Output) URL() string {
	address := o.Address()
	if address == "" {
		return ""
	}
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && ip.IsUnspecified() {
		address = net.JoinHostPort("localhost", port)
	}
	if o.tls != nil {
		return "https://" + address + "/"
	}
	return "http://" + address + "/"
}

// Run serves until ctx ends, and then ends the streams.
func (o *Output) Run(ctx context.Context) error {
	o.logger.Info("serving the console", "url", o.URL())
	served := make(chan error, 1)
	go func() {
		if o.tls != nil {
			served <- o.http.ServeTLS(o.lis, "", "")
			return
		}
		served <- o.http.Serve(o.lis)
	}()
	var err error
	select {
	case err = <-served:
	case <-ctx.Done():
		o.stop()
		err = <-served
	}
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return o.serving.End(err)
}

// stop ends streams in order. After StopTimeout it closes the connections of browsers that do not
// read.
func (o *Output) stop() {
	limit, cancel := context.WithTimeout(context.Background(), o.config.StopTimeout)
	defer cancel()
	if o.gnmi.Close(limit) == nil && o.http.Shutdown(limit) == nil {
		return
	}
	o.http.Close()
	_ = o.gnmi.Close(context.Background()) // returns once the streams have ended with their connections
}

// State returns the output's state.
func (o *Output) State() outputs.State { return o.serving.State() }

// identify returns the user of a request.
func (o *Output) identify(r *http.Request) (server.User, bool) {
	var login *access.Login
	if name, password, ok := r.BasicAuth(); ok {
		login = &access.Login{Name: name, Password: password}
	} else if r.Header.Get("Authorization") != "" {
		login = &access.Login{}
	}
	return o.users.Identify(login, r.TLS)
}
