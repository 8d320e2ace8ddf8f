// SPDX-License-Identifier: Apache-2.0

// Package intent owns the desired state of every device: the forwarding entries that follow from
// the topology, the plans of plugins that are applied, those that are pending, and what was in
// force on a device in an epoch. It also owns the settings of roles at hosts, which host agents
// request.
//
// A pre-epoch plan is written before its epoch, when the bank of the epoch is free: to all its
// devices in parallel, and on all of them or on none. Any other plan is pending at each
// device until the flip that begins its epoch. A device that is away receives its pending plans
// when it returns.
//
// Each new session of a device reconciles the switch with the desired state: forwarding first, then
// the entries of plans. What a plan writes to one device is written as a whole or undone. In a
// cluster, the entries of plans move with the device (Shared).
//
// # Concurrency
//
// All methods may be called from any goroutine. Stop waits for the goroutines of the component.
package intent

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/netsketch/netsketch/collector/device/banks"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/p4/p4rt"
)

// Config is what New needs of the collector's configuration.
type Config struct {
	// Guard is the wait between a flip and the read-out of the sealed bank. Pre-epoch plans are not
	// written in the last Guard, at most 2 ms, before the flip that begins their epoch.
	Guard time.Duration
}

// Dependencies are what New needs from its caller.
type Dependencies struct {
	Logger *slog.Logger // nil disables logging
	Clock  epoch.Clock  // nil is the wall clock
	Epochs Epochs       // required
	// BankShift is added to an epoch's number; modulo a device's banks that is its bank. Required.
	BankShift func() uint64
	Hosts     Hosts // nil: no host has an agent
	// Forward sends the outcome of a setting at a host to the collector at which its plugin is at
	// home, and returns false if it is this one; nil: it is. It must not block.
	Forward func(HostOutcome) bool
	// Shared is where applied entries are kept in a cluster; nil: there is none.
	Shared Shared
}

// Epochs is what the component needs of the epoch engine.
type Epochs interface {
	// Current returns the number of the open epoch, 0 before the first, and its end.
	Current() (number uint64, end time.Time)
}

// Device is what the component needs of a device.
type Device interface {
	Name() string
	Banks() int
	// Ready fails when the device is away.
	Ready() (banks.Incarnation, error)
	// Key returns what identifies an entry on the device.
	Key(e p4rt.Entry) (string, error)
	// Write sends updates; see p4rt.Client.Write.
	Write(ctx context.Context, updates ...p4rt.Update) error
	Reconciler
}

// Elsewhere is a Device that another collector of a cluster may own. Its owner writes what plans
// contain, and keeps the entries as applied.
type Elsewhere interface {
	Device
	// Owner returns the collector that writes the entries; "" if this one does.
	Owner() string
	// Settle waits while the device moves to or from this collector. It may be another Device then.
	Settle(ctx context.Context)
	// Apply makes the owner write updates of a plugin's plan, as a whole or not at all. An error wraps
	// p4rt.ErrNotReady if the device is away, and ErrPartiallyApplied if it may hold some of the
	// entries.
	Apply(ctx context.Context, plugin string, updates []p4rt.Update) (undo func(context.Context) error, err error)
}

// elsewhere returns the device if another collector owns it; otherwise nil.
func (d *deviceIntent) elsewhere() Elsewhere {
	if e, ok := d.Device.(Elsewhere); ok && e.Owner() != "" {
		return e
	}
	return nil
}

// Reconciler is a switch whose entries can be brought up to date; see p4rt.Client.Reconcile.
type Reconciler interface {
	Reconcile(ctx context.Context, parts ...p4rt.Desired) error
}

// Component is the owner of the desired state.
type Component struct {
	log       *slog.Logger
	clock     epoch.Clock
	epochs    Epochs
	bankShift func() uint64
	margin    time.Duration // before a flip, in which only undo writes

	work sync.WaitGroup // of Collected

	mu        sync.Mutex
	devices   map[string]*deviceIntent
	early     []*preEpochPlan // the banks of their epochs are in use
	collected uint64          // the newest epoch whose banks have been read
	lastWrite time.Duration   // duration of the latest write of a pre-epoch plan
	plugins   map[string]*history

	shared        Shared                 // nil: there is no cluster
	forward       func(HostOutcome) bool // nil: all plugins are at home here
	hosts         Hosts                  // nil: none
	settings      hostSettings
	warnedNoHosts bool
}

// deviceIntent is a device with its desired state.
type deviceIntent struct {
	Device
	*desiredState
	c         *Component
	forwards  bool          // the component owns the forwarding tables
	shared    Shared        // nil: there is no cluster
	undoLimit time.Duration // for the undoing of a plan that the device refused
}

// desiredState is the desired state of one device.
type desiredState struct {
	writing    sync.Mutex            // held while entries are written; taken before Component.mu
	forwarding []p4rt.Desired        // guarded by writing
	applied    map[string]p4rt.Entry // entries of plans by their keys; guarded by writing
	sharedState

	pending []part // in the order of arrival; guarded by Component.mu
	numbers uint64 // of the newest part that was pending; guarded by Component.mu
}

// maxMargin is the greatest margin before a flip.
const maxMargin = 2 * time.Millisecond

// New makes the component without any device.
func New(cfg Config, deps Dependencies) *Component {
	c := &Component{
		log: deps.Logger, clock: deps.Clock, epochs: deps.Epochs, bankShift: deps.BankShift,
		margin:  min(cfg.Guard, maxMargin),
		devices: map[string]*deviceIntent{}, plugins: map[string]*history{}, hosts: deps.Hosts, shared: deps.Shared,
		forward:  deps.Forward,
		settings: hostSettings{inForce: map[string]map[string]hostPlan{}, outcomes: map[hostRole]uint64{}},
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.clock == nil {
		c.clock = epoch.Wall{}
	}
	return c
}

// Stop waits for the component's goroutines, whose contexts the callers have ended.
func (c *Component) Stop() { c.work.Wait() }

// AddDevice begins the desired state of a device, or goes on with that of the device that it
// replaces: pending plans, and what is applied unless another collector writes it from now on.
// forwards makes the component own the device's forwarding tables; see SetRoutes.
func (c *Component) AddDevice(d Device, forwards bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := &deviceIntent{Device: d, c: c, forwards: forwards, shared: c.shared, undoLimit: c.clock.IOLimit(undoTime),
		desiredState: &desiredState{applied: map[string]p4rt.Entry{}}}
	if before := c.devices[d.Name()]; before != nil && next.elsewhere() == nil {
		next.desiredState = before.desiredState
	} else if before != nil {
		next.pending = before.pending
	}
	c.devices[d.Name()] = next
}

// RemoveDevice drops a device with its pending plans.
func (c *Component) RemoveDevice(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.devices, name)
	for _, h := range c.plugins {
		delete(h.states, name)
	}
}

// Drop drops the outcomes of a plugin that has left.
func (c *Component) Drop(plugin string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.plugins, plugin)
	c.dropHosts(plugin)
}

// device returns a device, nil when there is none of that name.
func (c *Component) device(name string) *deviceIntent {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.devices[name]
}

// settled is device for a caller that writes: it waits while the device moves between collectors.
func (c *Component) settled(ctx context.Context, name string) *deviceIntent {
	d := c.device(name)
	if d == nil {
		return nil
	}
	e, ok := d.Device.(Elsewhere)
	if !ok {
		return d
	}
	e.Settle(ctx)
	return c.device(name)
}

// bankOf returns the bank that a device counts an epoch in.
func (c *Component) bankOf(number uint64, d *deviceIntent) int {
	return int((number + c.bankShift()) % uint64(max(d.Banks(), 1)))
}

// oneLine joins the lines of an error for a leaf or a log.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
