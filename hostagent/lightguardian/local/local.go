// SPDX-License-Identifier: Apache-2.0

// Package local is LightGuardian's local analysis mode (paper, sections 3.1 and 6.1): it answers
// queries of programs on a host about the flows of the host, and about the switches whose
// sketchlets arrived at it, over gNMI on a socket of the host. It needs no collector to answer, but
// the settings that the collector sent.
//
// The sketches are reconstructed when a client asks, from the newest epoch that is over.
package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // clients may compress

	"github.com/netsketch/netsketch/hostagent/lightguardian/wire"
	"github.com/netsketch/netsketch/hostagent/role"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/outputs/gnmi/server"
	"github.com/netsketch/netsketch/yang"
)

// Scheme begins the address of a socket: unix:///run/netsketch/hostagent.sock.
const Scheme = "unix://"

const (
	refreshInterval = time.Second // time between refreshes of open streams
	stopTimeout     = time.Second
	maxConnections  = 64
)

// Path is a data path whose role is LightGuardian's; *agent.RolePath implements it.
type Path interface{ Inspect(f func(role.Role)) }

// source is LightGuardian's role, in Go or in the kernel.
type source interface {
	Latest() (wire.Settings, wire.Report, bool)
}

// Config configures a server.
type Config struct {
	// Address is the address of the socket, with Scheme.
	Address string
	// Host is the name of the host.
	Host string
	// Logger receives errors; nil disables logging.
	Logger *slog.Logger
}

// Server answers queries at one host.
type Server struct {
	cfg    Config
	path   Path
	store  *store.Store
	gnmi   *server.Server
	rpc    *grpc.Server
	socket string
	lis    net.Listener

	mu        sync.Mutex
	published uint64 // epoch
	some      bool   // an epoch was published
	stop      context.CancelFunc
}

// Listen opens the socket. A file of a process that has ended is replaced.
func Listen(cfg Config, path Path) (*Server, error) {
	socket, ok := strings.CutPrefix(cfg.Address, Scheme)
	if !ok || !strings.HasPrefix(socket, "/") {
		return nil, fmt.Errorf("local address %q: expected %s and an absolute file name", cfg.Address, Scheme)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	schema, err := yang.HostSchema()
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, path: path, store: store.New(store.Options{Schema: schema}), socket: socket}
	s.gnmi, err = server.New(server.Options{Store: s.store, Schema: func() *yang.Schema { return schema },
		AnyTarget: true, Refresh: s.refresh, Streaming: s.streaming, LowestInterval: refreshInterval, Logger: cfg.Logger})
	if err == nil {
		s.lis, err = listen(socket)
	}
	if err != nil {
		s.store.Close()
		return nil, fmt.Errorf("local address %s: %w", cfg.Address, err)
	}
	s.rpc = grpc.NewServer(grpc.MaxConcurrentStreams(maxConnections))
	s.gnmi.Register(s.rpc)
	return s, nil
}

// listen opens a socket that the user and the group of this process may use.
func listen(socket string) (net.Listener, error) {
	if c, err := net.Dial("unix", socket); err == nil {
		return nil, errors.Join(errors.New("another process listens there; stop it, or set another address"), c.Close())
	}
	if i, err := os.Lstat(socket); err == nil && i.Mode()&fs.ModeSocket != 0 {
		if err := os.Remove(socket); err != nil {
			return nil, err
		}
	}
	lis, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(socket, 0o660); err != nil {
		return nil, errors.Join(err, lis.Close())
	}
	return lis, nil
}

// Run answers until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- s.rpc.Serve(s.lis) }()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		_ = s.gnmi.Close(stopping) // streams that do not end are cut
		cancel()
		s.rpc.Stop()
		<-ended
	}
	s.store.Close()
	return err
}

// streaming refreshes the results while a STREAM is open. The gNMI server does not call it
// concurrently.
func (s *Server) streaming(on bool) {
	if !on {
		s.stop()
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	go func() {
		tick := time.NewTicker(refreshInterval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				s.refresh()
			}
		}
	}()
}

// refresh publishes the newest epoch, if it has not been published.
func (s *Server) refresh() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var settings wire.Settings
	var report wire.Report
	found := false
	s.path.Inspect(func(r role.Role) {
		if l, ok := r.(source); ok {
			settings, report, found = l.Latest()
		}
	})
	if !found || s.some && report.Epoch == s.published {
		return
	}
	b := store.Batch{Time: time.Now()}
	tables, err := analyze(s.cfg.Host, &settings, &report)
	for _, t := range tables {
		b.Tables = append(b.Tables, store.Publication{Table: t, Replace: true})
	}
	if err == nil {
		err = s.store.Publish(b)
	}
	if err != nil {
		s.cfg.Logger.Error("local results cannot be published", "epoch", report.Epoch, "error", err)
		return
	}
	s.published, s.some = report.Epoch, true
}
