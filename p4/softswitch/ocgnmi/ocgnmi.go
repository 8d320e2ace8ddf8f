// SPDX-License-Identifier: Apache-2.0

// Package ocgnmi serves a soft switch's interfaces over gNMI, in OpenConfig's model:
// names, states, counters, and the number by which P4Runtime knows each port
// (/interfaces/interface/state/id).
//
// It is the collector's gNMI server over a store of its own. Ports are read when
// somebody asks; while a STREAM is open, also at an interval, and whenever a port's
// state changes.
//
// Concurrency: a Server may be used from any goroutine. It has a goroutine of its
// own only while a STREAM is open.
package ocgnmi

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"

	"github.com/netsketch/netsketch/collector/store"
	"github.com/netsketch/netsketch/outputs/gnmi/server"
	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/yang"
)

// Ports is what is served of a switch; softswitch.Switch is one.
type Ports interface {
	Ports() []softswitch.PortStatus
	WatchPorts(func(softswitch.PortStatus)) (stop func())
}

// Options say how a switch's gNMI behaves. The zero value works.
type Options struct {
	// Name is the switch's name, for the log.
	Name string
	// Interval is how often ports are read while a STREAM is open, and the lowest
	// sample interval; 0 is 200 ms.
	Interval time.Duration
	// Started is the wall clock at time 0 of the switch's clock. Revisions of the
	// model that have last-change in nanoseconds since 1970 need it; without it they
	// go without that leaf.
	Started time.Time
	// Now is the wall clock; nil is time.Now.
	Now func() time.Time
	// Authorize, Set and Logger are the gNMI server's.
	Authorize func(context.Context) error
	Set       func(context.Context, *gpb.SetRequest) (*gpb.SetResponse, error)
	Logger    *slog.Logger
}

// Server is the gNMI server of one switch.
type Server struct {
	opts  Options
	ports Ports
	shape shape
	store *store.Store
	gnmi  *server.Server

	read   sync.Mutex // one reading at a time
	poller *poller    // while a STREAM is open; the gNMI server calls one at a time
}

// schema is compiled once for all the switches of a process.
var schema = sync.OnceValues(func() (*yang.Schema, error) { return yang.Load(yang.SwitchModules()...) })

// New returns the server of a switch. Close it.
func New(ports Ports, o Options) (*Server, error) {
	if o.Interval <= 0 {
		o.Interval = 200 * time.Millisecond
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	sch, err := schema()
	if err != nil {
		return nil, fmt.Errorf("gNMI of switch %s: %w", o.Name, err)
	}
	sh, err := shapeOf(sch)
	if err != nil {
		return nil, fmt.Errorf("gNMI of switch %s: %w", o.Name, err)
	}
	s := &Server{opts: o, ports: ports, shape: sh, store: store.New(store.Options{Schema: sch})}
	s.gnmi, err = server.New(server.Options{
		Store: s.store, Schema: func() *yang.Schema { return sch }, AnyTarget: true,
		Refresh: s.refresh, Streaming: s.streaming, LowestInterval: o.Interval,
		Authorize: o.Authorize, Set: o.Set, Logger: o.Logger, Now: o.Now,
	})
	if err != nil {
		s.store.Close()
		return nil, fmt.Errorf("gNMI of switch %s: %w", o.Name, err)
	}
	return s, nil
}

// Register serves a switch's gNMI on a gRPC server, with no options but the name and
// until the gRPC server stops.
func Register(r grpc.ServiceRegistrar, sw *softswitch.Switch, name string) error {
	s, err := New(sw, Options{Name: name})
	if err != nil {
		return err
	}
	s.Register(r)
	return nil
}

// Register registers the server with a gRPC server.
func (s *Server) Register(r grpc.ServiceRegistrar) { s.gnmi.Register(r) }

// Close ends streams, waiting for them until ctx ends, and the store.
func (s *Server) Close(ctx context.Context) error {
	err := s.gnmi.Close(ctx)
	s.store.Close()
	return err
}

// refresh reads the ports into the store.
func (s *Server) refresh() {
	s.read.Lock()
	defer s.read.Unlock()
	t, err := s.table(s.ports.Ports())
	if err == nil {
		err = s.store.Publish(store.Batch{Time: s.opts.Now(), Tables: []store.Publication{{Table: t, Replace: true}}})
	}
	if err != nil {
		s.opts.Logger.Error("gNMI: ports cannot be published", "switch", s.opts.Name, "error", err)
	}
}

// poller reads the ports while a STREAM is open.
type poller struct {
	stop, done chan struct{}
}

func (s *Server) streaming(on bool) {
	if !on {
		close(s.poller.stop)
		<-s.poller.done
		s.poller = nil
		return
	}
	p := &poller{stop: make(chan struct{}), done: make(chan struct{})}
	s.poller = p
	changed := make(chan struct{}, 1)
	unwatch := s.ports.WatchPorts(func(softswitch.PortStatus) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	go func() {
		defer close(p.done)
		defer unwatch()
		tick := time.NewTicker(s.opts.Interval)
		defer tick.Stop()
		for {
			select {
			case <-p.stop:
				return
			case <-tick.C:
			case <-changed:
			}
			s.refresh()
		}
	}()
}
