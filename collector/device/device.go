// SPDX-License-Identifier: Apache-2.0

// Package device is one switch as the collector uses it: a P4Runtime session, the program that runs
// in its pipeline, the flip of its banks, the read-out of a sealed one, and the table entries that
// the collector wants on it.
//
// A Device is a member of an epoch.Engine. New checks the configuration, Start begins the session
// and Close ends it; in between the session comes and goes with the switch, and Ready says how it
// stands.
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
	"slices"
	"strings"
	"sync"
	"time"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/collector/topology"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/p4/p4rt/p4values"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// Config says which switch it is and how to treat it.
type Config struct {
	// Name is the switch's name.
	Name string
	// Role is the switch's role, as plugins see it.
	Role string
	// Session is how to reach the switch; Logger in it is not used. A nil Program keeps whatever runs on the switch.
	Session p4rt.Config
	// Routes are written when Forwarding is set.
	Routes topology.Routes
	// Forwarding makes the collector own the forwarding tables.
	Forwarding bool
	// Logger hears of changes of the session; nil discards.
	Logger *slog.Logger
	// OnChange, when set, is called after each change of the session, one call at a time. It must
	// not call Close.
	OnChange func(*Device)
}

// session is what a Device needs of a p4rt.Client.
type session interface {
	Status() p4rt.Status
	Watch(ctx context.Context) <-chan p4rt.Status
	Catalog() (*p4values.Catalog, error)
	Capabilities() (p4rt.Capabilities, error)
	Stats() p4rt.Stats
	Write(ctx context.Context, updates ...*p4v1.Update) error
	Desire(ctx context.Context, owner string, d p4rt.Desired) error
	SetDefaultAction(ctx context.Context, table, action string, params ...p4rt.Param) error
	ReadBanks(ctx context.Context, bank int, registers ...string) ([]*p4rt.Cells, error)
	Moved(ctx context.Context, cells ...*p4rt.Cells) (packets uint64, err error)
	Close() error
}

// Errors that callers decide by.
var (
	// ErrNoBanks is wrapped when the program cannot be measured because it has no bank table.
	ErrNoBanks = errors.New("the program has no bank table (@netsketch_bank), so it cannot be measured")
	// ErrNotStarted is wrapped before Start.
	ErrNotStarted = errors.New("not started")
)

// Device is one switch.
type Device struct {
	cfg  Config
	log  *slog.Logger
	dial func(context.Context, p4rt.Config) (session, error)

	mu        sync.Mutex
	session   session
	binding   *binding // nil until the program on the switch is known
	bindErr   error
	wanted    []string // full names of the registers to read; nil means all
	life      uint64   // grows with what makes the banks' contents unknown
	lifeClean bool
	seen      uint64 // number of the session that life stands for
	routes    topology.Routes
	planned   map[string]p4rt.Entry // by what identifies them, written again after a push
	stats     Stats

	applying sync.Mutex // held around the writes of a plan

	watcher sync.WaitGroup
}

// New checks the configuration. When the program is given, its bank table and registers are known
// from then on, without a connection.
func New(cfg Config) (*Device, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	d := &Device{
		cfg: cfg, log: cfg.Logger.With("device", cfg.Name), routes: cfg.Routes, planned: map[string]p4rt.Entry{},
		dial: func(ctx context.Context, c p4rt.Config) (session, error) { return p4rt.Dial(ctx, c) },
	}
	if p := cfg.Session.Program; p != nil {
		cat, err := p4values.NewCatalog(p.P4Info)
		if err != nil {
			return nil, fmt.Errorf("device %s: program %s: %w", cfg.Name, p.Name, err)
		}
		if d.binding, err = bind(cat); err != nil {
			d.bindErr = fmt.Errorf("program %s: %w", p.Name, err)
		}
		if cfg.Forwarding {
			if _, err := forwardingEntries(cat, cfg.Name, cfg.Routes); err != nil {
				return nil, fmt.Errorf("device %s: program %s cannot forward: %w", cfg.Name, p.Name, err)
			}
		}
	}
	return d, nil
}

// Start begins the session, which lasts until ctx ends or Close.
func (d *Device) Start(ctx context.Context) error {
	cfg := d.cfg.Session
	cfg.Logger = slog.New(quiet{d.log.Handler()})
	s, err := d.dial(ctx, cfg)
	if err != nil {
		return fmt.Errorf("device %s: %w", d.cfg.Name, err)
	}
	d.mu.Lock()
	d.session = s
	d.mu.Unlock()
	if d.cfg.Forwarding {
		if err := d.SetRoutes(ctx, d.cfg.Routes); err != nil {
			d.note(fmt.Errorf("routes: %w", err))
		}
	}
	changes := s.Watch(ctx)
	d.watcher.Go(func() { d.watch(ctx, changes) })
	return nil
}

// Close ends the session and waits for all goroutines.
func (d *Device) Close() error {
	d.mu.Lock()
	s := d.session
	d.mu.Unlock()
	if s == nil {
		return nil
	}
	err := s.Close()
	d.watcher.Wait()
	return err
}

// Name is the switch's name.
func (d *Device) Name() string { return d.cfg.Name }

// Role is the switch's role.
func (d *Device) Role() string { return d.cfg.Role }

// Program is the name of the program that is asked for; empty when any will do.
func (d *Device) Program() string {
	if d.cfg.Session.Program == nil {
		return ""
	}
	return d.cfg.Session.Program.Name
}

// Address is where the switch's P4Runtime server is.
func (d *Device) Address() string { return d.cfg.Session.Target }

// DeviceID is the switch's P4Runtime number.
func (d *Device) DeviceID() uint64 { return d.cfg.Session.DeviceID }

// Measured reports whether the device can be a member of epochs at all: a backup cannot, since
// only a primary may flip banks, nor a switch whose program is given and counts nothing.
func (d *Device) Measured() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	countsNothing := d.cfg.Session.Program != nil && (errors.Is(d.bindErr, ErrNoBanks) || d.bindErr == nil && len(d.binding.objects) == 0)
	return d.cfg.Session.Mode == p4rt.Primary && !countsNothing
}

// Banks is the number of banks; 2 until the program is known.
func (d *Device) Banks() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.binding == nil {
		return 2
	}
	return d.binding.banks
}

// Objects lists the registers of the program that can be read, by name; nil until it is known.
func (d *Device) Objects() []sdk.Object {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.binding == nil {
		return nil
	}
	return slices.Clone(d.binding.objects)
}

// Want sets the registers to read from now on, by full name; nil means all that can be read.
// Registers that were not read before make the device join the epochs anew, from clean banks.
func (d *Device) Want(objects []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if objects != nil {
		sorted := append([]string{}, objects...) // not nil even when empty
		slices.Sort(sorted)
		objects = slices.Compact(sorted)
	}
	if d.wanted != nil && (objects == nil || slices.ContainsFunc(objects, func(o string) bool { return !slices.Contains(d.wanted, o) })) {
		d.life++
		d.lifeClean = false
	}
	d.wanted = objects
}

// Ready returns the incarnation of the switch's registers, or why it cannot be measured now.
func (d *Device) Ready() (epoch.Incarnation, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.session == nil {
		return epoch.Incarnation{}, fmt.Errorf("device %s: %w", d.cfg.Name, ErrNotStarted)
	}
	st := d.session.Status()
	if st.State != p4rt.Ready {
		return epoch.Incarnation{}, &p4rt.NotReadyError{Target: d.cfg.Session.Target, Status: st}
	}
	if st.Session != d.seen {
		d.newLife(st)
	}
	if d.bindErr != nil {
		return epoch.Incarnation{}, d.bindErr
	}
	if d.binding == nil {
		return epoch.Incarnation{}, errors.New("the program on the switch is not known yet")
	}
	return epoch.Incarnation{ID: d.life, Clean: d.lifeClean}, nil
}

// newLife begins an incarnation for a new session. d.mu is held.
func (d *Device) newLife(st p4rt.Status) {
	d.seen = st.Session
	d.life++
	d.lifeClean = st.Pushed
	if d.cfg.Session.Program != nil {
		return
	}
	cat, err := d.session.Catalog()
	if err == nil {
		d.binding, err = bind(cat)
	}
	d.bindErr = err
}

// Flip makes packets count in bank from now on.
func (d *Device) Flip(ctx context.Context, bank int) error {
	d.mu.Lock()
	s, b := d.session, d.binding
	d.mu.Unlock()
	if s == nil || b == nil {
		return fmt.Errorf("device %s: %w", d.cfg.Name, ErrNotStarted)
	}
	begin := time.Now()
	err := s.SetDefaultAction(ctx, b.table, b.action, p4rt.Uint(b.param, uint64(bank)))
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stats.FlipTime = time.Since(begin)
	if err != nil {
		d.stats.LastError = err.Error()
	}
	return err
}

// Reading is the contents of one bank.
type Reading struct {
	// Objects are sorted by name.
	Objects []sdk.Cells
}

// Cells is the number of cells in it.
func (r *Reading) Cells() int {
	n := 0
	for _, o := range r.Objects {
		n += o.Len()
	}
	return n
}

// Read returns what the bank holds and clears it: first the registers that no packet writes to any more, then,
// when drained has returned, those that packets on their way through the network are counted in. It fails as a
// whole, and reads all the same what it can: cells that got lost on the way are never taken for zeros. Where the
// program counts packets by bank, and some came into this one meanwhile, the reading comes with an
// [epoch.InexactError]: the switch has not flipped when it said so.
func (d *Device) Read(ctx context.Context, bank int, drained epoch.Drained) (*Reading, error) {
	d.mu.Lock()
	s, b, wanted := d.session, d.binding, d.wanted
	d.mu.Unlock()
	if s == nil || b == nil {
		return nil, fmt.Errorf("device %s: %w", d.cfg.Name, ErrNotStarted)
	}
	soon, late := b.readable(wanted)
	r := &Reading{Objects: make([]sdk.Cells, 0, len(soon)+len(late))}
	begin := time.Now()
	first, err := r.add(ctx, s, bank, soon)
	took := time.Since(begin)
	if len(late) > 0 {
		err = errors.Join(err, drained(ctx))
		begin = time.Now()
		_, lateErr := r.add(ctx, s, bank, late)
		err = errors.Join(err, lateErr)
		took += time.Since(begin)
		slices.SortFunc(r.Objects, func(x, y sdk.Cells) int { return strings.Compare(x.Object, y.Object) })
	}
	var packets uint64
	if err == nil {
		packets, err = s.Moved(ctx, first...)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stats.ReadTime = took
	switch {
	case err != nil:
		d.stats.LastError = err.Error()
		return nil, err
	case packets > 0:
		err = &epoch.InexactError{Reason: fmt.Sprintf("%d packets were counted in bank %d after it had been sealed: the switch flips later than it says, or the guard is too short", packets, bank)}
		d.stats.LastError = err.Error()
		return r, err
	}
	d.stats.LastError = "" // flipped, read: all is well again
	return r, nil
}

// add reads registers into r.
func (r *Reading) add(ctx context.Context, s session, bank int, names []string) ([]*p4rt.Cells, error) {
	if len(names) == 0 {
		return nil, nil
	}
	cells, err := s.ReadBanks(ctx, bank, names...)
	if err != nil {
		return nil, err
	}
	for _, c := range cells {
		r.Objects = append(r.Objects, sdk.Cells{Object: c.Register.Name, Width: 32, Packed: c.Data})
	}
	return cells, nil
}

// note keeps an error for the status and logs it.
func (d *Device) note(err error) {
	d.mu.Lock()
	d.stats.LastError = err.Error()
	d.mu.Unlock()
	d.log.Error("device refused what was asked of it", "error", err)
}
