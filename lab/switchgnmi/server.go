// SPDX-License-Identifier: Apache-2.0

// Package switchgnmi serves a soft switch over gNMI, in OpenConfig's models: interfaces with their
// counters and P4Runtime port numbers, LLDP neighbors, components (with P4Runtime's device id), and
// the system. Set changes interfaces and LLDP on or off, descriptions, the host name, and
// P4Runtime's numbers; it can be taken back unless it is confirmed.
//
// The server is the northbound gNMI server over a store of its own. It reads the switch on each
// request; while a STREAM is open, also at an interval and whenever a port's state or a neighbor
// changes.
//
// Concurrency: a Server may be used from any goroutine. It has a goroutine of its own while a
// STREAM is open.
package switchgnmi

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/outputs/gnmi/server"
	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/p4/softswitch/lldp"
	"github.com/netsketch/netsketch/yang"
	"github.com/netsketch/netsketch/yang/table"
)

// Ports is the part of a switch that is served; softswitch.Switch implements it.
type Ports interface {
	Ports() []softswitch.PortStatus
	WatchPorts(func(softswitch.PortStatus)) (stop func())
	SetPortEnabled(id uint32, enabled bool) error
}

// Options are the options of a Server. The zero value is usable.
type Options struct {
	// Name is the switch's name and initial host name.
	Name string
	// DeviceID is P4Runtime's device_id, a leaf of the integrated circuit's component; 0 omits it.
	DeviceID uint64
	// SetDeviceID changes the device_id; 0 is none. If nil, the id cannot be set.
	SetDeviceID func(id uint64) error
	// Unconfigured starts a switch without device_id, whose ports have no numbers and take no packets,
	// until these are set.
	Unconfigured bool
	// Version is the switch's software version; empty omits it.
	Version string
	// LLDP is the switch's agent; nil for a switch without LLDP.
	LLDP *lldp.Agent
	// Interval is the interval at which ports are read while a STREAM is open, and the lowest
	// sample interval; 0 is 200 ms.
	Interval time.Duration
	// Started is the wall clock at time 0 of the switch's clock, and the boot time; zero is the
	// time of New. Model revisions with last-change in nanoseconds since 1970 need it.
	Started time.Time
	// Now is the wall clock; nil is time.Now.
	Now func() time.Time
	// Logger is the gNMI server's logger.
	Logger *slog.Logger
}

// Server is the gNMI server of one switch.
type Server struct {
	opts  Options
	ports Ports
	shape shape
	store *store.Store
	gnmi  *server.Server

	applying sync.Mutex // serializes Sets
	mu       sync.Mutex // guards settings
	settings settings

	read   sync.Mutex // serializes reads of the switch
	poller *poller    // while a STREAM is open; the gNMI server calls one at a time
}

// schema is compiled once for all switches of a process.
var schema = sync.OnceValues(func() (*yang.Schema, error) { return yang.Load(yang.SwitchModules()...) })

// New returns the server of a switch. The caller closes it.
func New(ports Ports, o Options) (*Server, error) {
	if o.Interval <= 0 {
		o.Interval = 200 * time.Millisecond
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Started.IsZero() {
		o.Started = o.Now()
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
	s := &Server{opts: o, ports: ports, shape: sh, store: store.New(store.Options{Schema: sch}),
		settings: newSettings()}
	s.gnmi, err = server.New(server.Options{
		Store: s.store, Schema: func() *yang.Schema { return sch }, AnyTarget: true,
		Refresh: s.refresh, Streaming: s.streaming, LowestInterval: o.Interval,
		Apply: s.apply, Checkpoint: s.checkpoint, Logger: o.Logger, Now: o.Now,
	})
	if err != nil {
		s.store.Close()
		return nil, fmt.Errorf("gNMI of switch %s: %w", o.Name, err)
	}
	if o.Unconfigured {
		s.commit(s.current(), ports.Ports())
	}
	return s, nil
}

// Register registers the server with a gRPC server.
func (s *Server) Register(r grpc.ServiceRegistrar) { s.gnmi.Register(r) }

// Close ends the streams, waits for them until ctx ends, and closes the store.
func (s *Server) Close(ctx context.Context) error {
	err := s.gnmi.Close(ctx)
	s.store.Close()
	return err
}

// refresh reads the switch into the store.
func (s *Server) refresh() {
	s.read.Lock()
	defer s.read.Unlock()
	set := s.current()
	ports := s.ports.Ports()
	b := store.Batch{Time: s.opts.Now()}
	for _, make := range []func([]softswitch.PortStatus, settings) (*table.Table, error){
		s.interfaces, s.components, s.system, s.lldp, s.lldpInterfaces, s.neighbors,
	} {
		t, err := make(ports, set)
		if err != nil {
			s.opts.Logger.Error("gNMI: state cannot be published", "switch", s.opts.Name, "error", err)
			continue
		}
		if t != nil {
			b.Tables = append(b.Tables, store.Publication{Table: t, Replace: true})
		}
	}
	if err := s.store.Publish(b); err != nil {
		s.opts.Logger.Error("gNMI: state cannot be published", "switch", s.opts.Name, "error", err)
	}
}

// poller reads the switch while a STREAM is open.
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
	notify := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	unwatch := s.ports.WatchPorts(func(softswitch.PortStatus) { notify() })
	unwatchLLDP := func() {}
	if s.opts.LLDP != nil {
		unwatchLLDP = s.opts.LLDP.Watch(notify)
	}
	go func() {
		defer close(p.done)
		defer unwatch()
		defer unwatchLLDP()
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
