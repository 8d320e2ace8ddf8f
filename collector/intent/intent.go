// SPDX-License-Identifier: Apache-2.0

// Package intent owns the desired state of every device: the forwarding entries that follow from
// the topology, the applied and the pending plans of plugins, and a record of what was in force on
// a device in each epoch. It also owns the settings of roles at hosts, which host agents request.
//
// A pre-epoch plan is written before its epoch, when the bank of the epoch is free: to all its
// devices in parallel, and on all of them or on none. Any other plan is pending at each
// device until the flip that begins its epoch. A device that is away receives its pending plans
// when it returns.
//
// Each new session of a device reconciles the switch with the desired state: forwarding first,
// then the entries of plans. A plan's entries for one device are all written, or undone.
//
// In a cluster (Cluster), every member has the plans of all plugins, and writes the parts for the
// devices that it owns. The outcome of a part goes to the member at which the plugin is at home.
// The entries of plans move with the device.
//
// # Concurrency
//
// All methods may be called from any goroutine. Stop waits for the goroutines of the component.
package intent

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/netsketch/netsketch/collector/device/banks"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/p4/p4rt"
)

// Config is the part of the collector's configuration that New needs.
type Config struct {
	// Guard is the wait between a flip and the read-out of the sealed bank. During the last Guard
	// before a flip, but at most 2 ms, no pre-epoch plan for the next epoch is written.
	Guard time.Duration
}

// Dependencies are what New needs from its caller.
type Dependencies struct {
	Logger *slog.Logger // nil disables logging
	Clock  epoch.Clock  // nil is the wall clock
	Epochs Epochs       // required
	// BankShift returns the shift of banks: a device with n banks counts epoch e in bank (e +
	// BankShift()) modulo n. Required.
	BankShift func() uint64
	// Cluster is what the other members of a cluster share with this one; nil without a cluster.
	Cluster Cluster
}

// Epochs are the methods of the epoch engine that this package needs.
type Epochs interface {
	// Current returns the number of the open epoch, 0 before the first one, and the time at which it
	// ends.
	Current() (number uint64, end time.Time)
}

// Device are the methods of a device that this package needs.
type Device interface {
	Name() string
	Banks() int
	// Ready returns an error if the device is away.
	Ready() (banks.Incarnation, error)
	// Key returns a text that identifies an entry on the device.
	Key(e p4rt.Entry) (string, error)
	// Write sends updates; see p4rt.Client.Write.
	Write(ctx context.Context, updates ...p4rt.Update) error
	Reconciler
}

// Reconciler is a switch whose entries can be compared and corrected; see p4rt.Client.Reconcile.
type Reconciler interface {
	Reconcile(ctx context.Context, parts ...p4rt.Desired) error
}

// Component owns the desired state.
type Component struct {
	log       *slog.Logger
	clock     epoch.Clock
	epochs    Epochs
	bankShift func() uint64
	margin    time.Duration // during this time before a flip, only undoing a failed plan may write

	work sync.WaitGroup // waits for goroutines of Collected

	mu        sync.Mutex
	devices   map[string]*deviceIntent
	early     []*plan       // plans whose bank is still in use by an earlier epoch
	collected uint64        // the newest epoch whose banks have been read
	lastWrite time.Duration // duration of the latest write of a pre-epoch plan
	plugins   map[string]*history

	cluster Cluster           // nil without a cluster
	plans   []*plan           // the plans that are not concluded, in the order of their arrival
	number  uint64            // the newest number of a plan of this member
	seen    map[string]uint64 // the newest number of a plan of each other member

	hosts         Hosts // nil if no host has an agent
	settings      hostSettings
	warnedNoHosts bool
}

// deviceIntent is a device and its desired state.
type deviceIntent struct {
	Device
	*desiredState
	c         *Component
	forwards  bool          // the component owns the forwarding tables
	foreign   bool          // another collector owns the device, or none does
	leaving   atomic.Bool   // the session is about to end; see Leave
	undoLimit time.Duration // bounds undoing a plan that the device refused
}

// desiredState is the desired state of one device.
type desiredState struct {
	writing    sync.Mutex            // held while entries are written; taken before Component.mu
	forwarding []p4rt.Desired        // guarded by writing
	applied    map[string]p4rt.Entry // entries of plans by their keys; guarded by writing
	sharedState

	pending []*part // in the order of arrival; guarded by Component.mu
}

// maxMargin is the greatest margin before a flip.
const maxMargin = 2 * time.Millisecond

// leaveTime bounds, on the wall clock, how long Leave waits.
const leaveTime = time.Second

// New returns a component without devices.
func New(cfg Config, deps Dependencies) *Component {
	c := &Component{
		log: deps.Logger, clock: deps.Clock, epochs: deps.Epochs, bankShift: deps.BankShift,
		margin:  min(cfg.Guard, maxMargin),
		devices: map[string]*deviceIntent{}, plugins: map[string]*history{}, cluster: deps.Cluster,
		seen:     map[string]uint64{},
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

// SetHosts sets the component of host agents, which is built with this one. Without a call, no host
// has an agent. Call it before plans are added.
func (c *Component) SetHosts(hosts Hosts) { c.hosts = hosts }

// Stop waits for the component's goroutines, whose contexts the callers have ended.
func (c *Component) Stop() { c.work.Wait() }

// AddDevice begins the desired state of a device. If the device replaces another one, it takes
// over the pending plans, and also the applied entries unless it is foreign: then another collector
// owns it, or none does. With forwards, the component owns the device's forwarding tables; see
// SetRoutes.
func (c *Component) AddDevice(d Device, forwards, foreign bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := &deviceIntent{Device: d, c: c, forwards: forwards, foreign: foreign,
		undoLimit: c.clock.IOLimit(undoTime), desiredState: &desiredState{applied: map[string]p4rt.Entry{},
			sharedState: sharedState{done: map[planKey]Outcome{}}}}
	if before := c.devices[d.Name()]; before != nil && !foreign {
		next.desiredState = before.desiredState
	} else if before != nil {
		next.pending = before.pending
	}
	c.devices[d.Name()] = next
}

// Leave signals that this collector is about to end its session with a device. No write begins from
// now on, so that parts stay pending for the next session, which another collector may have. Leave
// waits for the write in progress, for leaveTime at most.
func (c *Component) Leave(name string) {
	d := c.device(name)
	if d == nil {
		return
	}
	d.leaving.Store(true)
	idle := make(chan struct{})
	c.work.Go(func() {
		d.writing.Lock()
		defer d.writing.Unlock()
		close(idle)
	})
	limit := time.NewTimer(leaveTime)
	defer limit.Stop()
	select {
	case <-idle:
	case <-limit.C:
	}
}

// RemoveDevice removes a device and its parts of plans.
func (c *Component) RemoveDevice(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.devices, name)
	for _, h := range c.plugins {
		delete(h.states, name)
	}
	for _, a := range slices.Clone(c.plans) {
		if a.maker == "" {
			c.close(a, name)
		}
	}
}

// Drop removes the outcomes of a plugin that has stopped.
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

// bankOf returns the bank in which a device counts an epoch.
func (c *Component) bankOf(number uint64, d *deviceIntent) int {
	return int((number + c.bankShift()) % uint64(max(d.Banks(), 1)))
}

// oneLine joins the lines of an error for a leaf or a log.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
