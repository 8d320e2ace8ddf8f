// SPDX-License-Identifier: Apache-2.0

// Package device has one switch: its P4Runtime session, its pipeline, the flip and the read-out of
// its banks, and the writes to its tables.
//
// New checks the configuration, Start begins the session and Close ends it. In between, the
// session is lost and reopened as the switch becomes unreachable and returns; Ready returns
// whether the switch can be measured. A Device is a banks.Switch. A switch that cannot be set up
// is also a Device, which has no session and states the reason (Config.Fault).
//
// # Concurrency
//
// All methods may be called from any goroutine.
package device

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// Config identifies a switch.
type Config struct {
	// Name is the name of the switch.
	Name string
	// Role is the role of the switch, for plugins.
	Role string
	// Session configures the P4Runtime session; its Logger is not used. With a nil Program, the
	// switch keeps its pipeline.
	Session p4rt.Config
	// Fault is the reason why the switch cannot be set up as configured, in which case it has no
	// session; nil otherwise.
	Fault error
	// MayWrite returns why entries may not be written now; nil if they may. Without MayWrite, they
	// always may.
	MayWrite func() error
}

// Dependencies are what New needs from its caller. Zero values are usable.
type Dependencies struct {
	// Logger receives changes of the session; nil disables logging.
	Logger *slog.Logger
	// OnChange, if set, is called after each change of the session, one call at a time. It must not
	// call Close.
	OnChange func(*Device)
}

// session are the methods of a p4rt.Client that a Device needs.
type session interface {
	Status() p4rt.Status
	Watch(ctx context.Context) <-chan p4rt.Status
	Catalog() (*p4values.Catalog, error)
	Capabilities() (p4rt.Capabilities, error)
	Stats() p4rt.Stats
	Write(ctx context.Context, updates ...p4rt.Update) error
	Reconcile(ctx context.Context, parts ...p4rt.Desired) error
	SetDefaultAction(ctx context.Context, table, action string, params ...p4rt.Param) error
	ReadBanks(ctx context.Context, bank int, registers ...string) ([]*p4rt.Cells, error)
	Moved(ctx context.Context, cells ...*p4rt.Cells) (packets uint64, err error)
	Close() error
}

// Errors that callers distinguish.
var (
	// ErrNoBanks is wrapped if the pipeline cannot be measured because it has no bank table.
	ErrNoBanks = errors.New("the program has no bank table (@netsketch_bank), so it cannot be measured")
	// ErrNotStarted is wrapped before Start.
	ErrNotStarted = fmt.Errorf("%w: not started", p4rt.ErrNotReady)
	// ErrSuspended is wrapped between Suspend and Resume.
	ErrSuspended = fmt.Errorf("%w: the session is closed while the device is configured over gNMI", p4rt.ErrNotReady)
)

// FaultError is the reason why a switch cannot be set up as configured and has no session.
// errors.Is matches it with p4rt.ErrNotReady.
type FaultError struct{ Err error }

// Error is the reason.
func (e *FaultError) Error() string { return e.Err.Error() }

// Is makes errors.Is work for p4rt.ErrNotReady.
func (e *FaultError) Is(target error) bool { return target == p4rt.ErrNotReady }

// Unwrap returns the reason.
func (e *FaultError) Unwrap() error { return e.Err }

// Device is one switch.
type Device struct {
	cfg      Config
	log      *slog.Logger
	onChange func(*Device)

	mu       sync.Mutex
	ctx      context.Context // context of Start; nil before Start
	paused   bool            // set by Suspend
	ended    bool            // set by Close
	fault    error           // why the device has no session
	session  session         // nil before Start
	binding  *binding        // nil until the pipeline is known
	bindErr  error
	epochs   int      // number of epochs that share a bank, as set by SetBankEpochs
	selected []string // full names of the registers to read; nil means all
	contents contents
	stats    Stats

	watcher sync.WaitGroup
}

// New checks the configuration. If the configuration has a program, the bank table and the
// registers are known before the session begins.
func New(cfg Config, deps Dependencies) (*Device, error) {
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	d := &Device{cfg: cfg, log: deps.Logger.With("device", cfg.Name), onChange: deps.OnChange, fault: ErrNotStarted}
	if cfg.Fault != nil {
		d.setFault(cfg.Fault)
	}
	if p := cfg.Session.Program; p != nil {
		cat, err := p4values.NewCatalog(p.P4Info)
		if err != nil {
			return nil, fmt.Errorf("device %s: program %s: %w", cfg.Name, p.Name, err)
		}
		if d.binding, err = bind(cat); err != nil {
			d.bindErr = fmt.Errorf("program %s: %w", p.Name, err)
		}
	}
	return d, nil
}

// Start begins the session, which lasts until ctx ends or Close is called. It fails with the
// device's fault.
func (d *Device) Start(ctx context.Context) error {
	if d.cfg.Fault != nil {
		return d.cfg.Fault
	}
	d.mu.Lock()
	d.ctx = ctx
	d.mu.Unlock()
	return d.begin()
}

// Suspend ends the session of a device, or keeps it from beginning, until Resume is called.
func (d *Device) Suspend() {
	d.mu.Lock()
	s := d.session
	d.paused, d.session = true, nil
	d.contents.term = 0 // the next session counts its terms from 1, as a new incarnation
	if d.cfg.Fault == nil {
		d.fault = ErrSuspended
	}
	d.mu.Unlock()
	if s == nil {
		return
	}
	if err := s.Close(); err != nil {
		d.log.Warn("closing a session", "error", err)
	}
	d.watcher.Wait()
	if d.onChange != nil {
		d.onChange(d)
	}
}

// Resume begins the session of a suspended device.
func (d *Device) Resume() {
	d.mu.Lock()
	d.paused = false
	d.mu.Unlock()
	if err := d.begin(); err != nil {
		d.log.Error("session cannot begin again", "error", err)
	}
}

// begin begins a session, unless the device has one, is suspended or ended, or has not been
// started.
func (d *Device) begin() error {
	cfg := d.cfg.Session
	cfg.Logger = slog.New(debugOnly{d.log.Handler()})
	d.mu.Lock() // Reconcile may be called before Dial returns
	ctx := d.ctx
	if ctx == nil || d.paused || d.ended || d.session != nil {
		d.mu.Unlock()
		return nil
	}
	s, err := p4rt.Dial(ctx, cfg)
	if err == nil {
		d.session = s
	}
	d.mu.Unlock()
	if err != nil {
		d.setFault(err)
		return err
	}
	changes := s.Watch(ctx)
	d.watcher.Go(func() { d.watch(changes) })
	return nil
}

// setFault records why the device has no session.
func (d *Device) setFault(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault, d.stats.LastError = &FaultError{err}, err.Error()
}

// Close ends the session and waits for all goroutines.
func (d *Device) Close() error {
	d.mu.Lock()
	d.ended = true
	d.mu.Unlock()
	s, err := d.started()
	if err != nil {
		return nil
	}
	err = s.Close()
	d.watcher.Wait()
	return err
}

// started returns the session, or an error that says why there is none.
func (d *Device) started() (session, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.session == nil {
		return nil, fmt.Errorf("device %s: %w", d.cfg.Name, d.fault)
	}
	return d.session, nil
}

// Name is the name of the switch.
func (d *Device) Name() string { return d.cfg.Name }

// Role is the role of the switch.
func (d *Device) Role() string { return d.cfg.Role }

// Program is the name of the configured program; empty if the switch keeps its pipeline.
func (d *Device) Program() string {
	if d.cfg.Session.Program == nil {
		return ""
	}
	return d.cfg.Session.Program.Name
}

// Address is the address of the switch's P4Runtime server.
func (d *Device) Address() string { return d.cfg.Session.Target }

// DeviceID is the P4Runtime device ID of the switch.
func (d *Device) DeviceID() uint64 { return d.cfg.Session.DeviceID }
