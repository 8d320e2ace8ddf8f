// SPDX-License-Identifier: Apache-2.0

// Package network owns the sessions of all devices and the network model: devices, hosts and links.
//
// A device that the configuration adds gets a session, and the epoch engine collects from it. A
// device that cannot be set up has no session and is missing from epochs with the reason; each
// reload tries again. The model is what plugins receive. It changes with the configuration, with
// discovered links and device ids, and when a device that keeps its own pipeline reports its
// registers. A device that another collector of the cluster owns is in the model and has no session
// (Assign).
//
// # Concurrency
//
// Methods may be called from any goroutine, but Start, Stop, Reload, Add, SetTopology and Assign
// one at a time. Stop waits for the sessions and for the component's goroutines.
package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/netsketch/netsketch/collector/cluster/ownership"
	"github.com/netsketch/netsketch/collector/device"
	"github.com/netsketch/netsketch/collector/device/banks"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/collector/intent"
	"github.com/netsketch/netsketch/collector/topology"
	"github.com/netsketch/netsketch/internal/certs"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// Dependencies are what New needs from its caller. All but NewDevice are required.
type Dependencies struct {
	Clock  epoch.Clock
	Logger *slog.Logger
	// Programs returns a built-in pipeline by name.
	Programs func(name string) (*p4rt.Program, error)
	Engine   *epoch.Engine
	Banks    *banks.Group
	Intent   *intent.Component
	// Certificates loads the certificates of sessions.
	Certificates *certs.Store
	// PortName returns the interface name of a port, "" if it is not known.
	PortName func(device string, port uint32) string
	// OnModel is called when the model has changed, before sessions of new devices start.
	OnModel func(context.Context)
	// OnDevice is called when the state of a device has changed. It must not block.
	OnDevice func()
	// NewDevice creates a device; nil creates a device.Device.
	NewDevice func(device.Config) (Device, error)
	// Shared makes this collector own no device until Assign is called. Otherwise it owns all
	// devices.
	Shared bool
	// Elsewhere returns the source of a device that another collector owns; nil if the engine must
	// not wait for the device. Only used if Shared.
	Elsewhere func(device string) epoch.Source
	// OnTaken is called when a session becomes the primary, or another collector outbids it, if the
	// ownership of the device may change. The caller then calls Observe. OnTaken must not block.
	// Only used if Shared.
	OnTaken func()
}

// Device is what the component needs of a device: a device.Device, or a fake.
type Device interface {
	banks.Switch
	Role() string
	Program() string
	Address() string
	DeviceID() uint64
	Measured() bool
	Objects() []sdk.Object
	Unread() []sdk.Object
	SelectObjects(names []string)
	SetBankEpochs(epochs int)
	Key(e p4rt.Entry) (string, error)
	Write(ctx context.Context, updates ...p4rt.Update) error
	Reconcile(ctx context.Context, parts ...p4rt.Desired) error
	Status() device.Status
	Start(ctx context.Context) error
	Suspend()
	Resume()
	Close() error
}

// Component owns the devices and the network model. Create it with New.
type Component struct {
	deps   Dependencies
	log    *slog.Logger
	ctx    context.Context // context of the sessions; ends with Stop
	cancel context.CancelFunc
	work   sync.WaitGroup

	cfg       *config.Config            // the configuration of New: the schedule of epochs is fixed
	ownership atomic.Pointer[Ownership] // nil if this collector owns all devices

	mu       sync.Mutex
	topology *topology.Topology
	devices  map[string]*managed
	objects  map[string]int      // number of registers of devices that keep their own pipeline
	bound    map[string][]string // registers to read, as set by Bind
	epochs   map[string]int      // epochs in a bank, as set by Bind
	// suspended are the devices between Suspend and Resume. A device may be replaced meanwhile.
	suspended map[string]bool
	version   uint64 // version of the model

	binding sync.Mutex // held while the selection of Bind is passed to devices
}

// managed is what the component knows of a device beside its session: its configuration, and the
// collector that owns it.
type managed struct {
	device  Device
	cfg     config.Device
	program *p4rt.Program // nil if the device keeps its own program, or the program could not be loaded
	fault   error         // why the device cannot be set up
	own     atomic.Pointer[ownership.Device]
	awaited bool // the engine collects from Dependencies.Elsewhere; see await
}

// name is the name of the device.
func (m *managed) name() string { return m.cfg.Name }

// New returns a component with the configured devices. It opens no connection.
func New(cfg *config.Config, deps Dependencies) (*Component, error) {
	topo, err := topology.Of(cfg)
	if err != nil {
		return nil, err
	}
	c := &Component{
		deps: deps, log: deps.Logger, cfg: cfg, topology: topo,
		devices: map[string]*managed{}, objects: map[string]int{}, suspended: map[string]bool{},
	}
	if deps.NewDevice == nil {
		c.deps.NewDevice = func(dc device.Config) (Device, error) {
			return device.New(dc, device.Dependencies{Logger: c.log, OnChange: func(d *device.Device) { c.changed(d) }})
		}
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	if deps.Shared {
		c.ownership.Store(&Ownership{View: func(string) ownership.View { return ownership.View{} }})
	}
	loaded := pipelines{}
	for _, d := range cfg.Devices {
		m, err := c.create(d, topo, loaded)
		if err == nil {
			err = c.add(m)
		}
		if err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Start opens the sessions of all devices.
func (c *Component) Start() {
	for _, m := range c.all() {
		c.connect(m)
	}
}

// Stop closes all sessions and waits.
func (c *Component) Stop() {
	c.cancel()
	var sessions sync.WaitGroup
	for _, d := range c.Devices() {
		sessions.Go(func() { c.close(d) })
	}
	sessions.Wait()
	c.work.Wait()
}

func (c *Component) close(d Device) {
	if err := d.Close(); err != nil {
		c.log.Warn("closing a session", "device", d.Name(), "error", err)
	}
}

// Plan is a configuration that Prepare has checked and that Reload applies.
type Plan struct {
	topology *topology.Topology
	changes  config.Changes
	devices  []*managed // devices to add or to replace
	// pipelines are the devices whose pipeline files have changed under the same names.
	pipelines []string
}

// Prepare checks a changed configuration and loads the pipelines that its devices need. It changes
// no state. The error joins the errors of changed and added devices that cannot be set up, and of
// devices whose program does not fit the new routes. Devices that could not be set up before are
// tried again, and devices whose pipeline files have changed are replaced.
func (c *Component) Prepare(next *config.Config, topo *topology.Topology, changes config.Changes) (*Plan, error) {
	p, loaded := &Plan{topology: topo, changes: changes}, pipelines{}
	var errs []error
	for _, cfg := range slices.Concat(changes.DevicesChanged, changes.DevicesAdded) {
		m, err := c.create(cfg, topo, loaded)
		if err == nil && m.fault != nil && !errors.Is(m.fault, errNoDeviceID) {
			err = m.fault
		}
		errs, p.devices = append(errs, err), append(p.devices, m)
	}
	for _, cfg := range next.Devices {
		m := c.find(cfg.Name)
		if m == nil || slices.ContainsFunc(changes.DevicesChanged,
			func(d config.Device) bool { return d.Name == cfg.Name }) {
			continue
		}
		if m.fault == nil {
			program, err := c.pipeline(cfg.Pipeline, loaded)
			switch {
			case err != nil:
				errs = append(errs, fmt.Errorf("device %s: pipeline %s: %w", cfg.Name, cfg.Pipeline, err))
			case program.Same(m.program):
				errs = append(errs, checkRoutes(cfg, program, topo))
			default: // the contents of the pipeline's files have changed under the same names
				again, err := c.create(cfg, topo, loaded)
				errs, p.devices = append(errs, err, again.fault), append(p.devices, again)
				p.pipelines = append(p.pipelines, cfg.Name)
			}
		} else if again, err := c.create(m.cfg, topo, loaded); err == nil && !sameText(again.fault, m.fault) {
			p.devices = append(p.devices, again)
		}
	}
	return p, errors.Join(errs...)
}

// Empty reports whether no device is to be added, replaced or tried again.
func (p *Plan) Empty() bool { return len(p.devices) == 0 }

func sameText(a, b error) bool { return a != nil && b != nil && a.Error() == b.Error() }

// Reload applies a plan. The errors of routes that a device refuses are joined.
func (c *Component) Reload(ctx context.Context, p *Plan) error {
	c.mu.Lock()
	c.topology = p.topology
	c.version++
	c.mu.Unlock()
	for _, name := range p.changes.DevicesRemoved {
		c.remove(name)
	}
	if len(p.pipelines) > 0 {
		c.log.Info("the files of pipelines have changed", "devices", p.pipelines)
	}
	var errs []error
	for _, m := range p.devices {
		c.remove(m.name())
		errs = append(errs, c.add(m))
	}
	if p.changes.Network() {
		errs = append(errs, c.setRoutes(ctx))
	}
	if p.changes.Network() || len(p.devices) > 0 || len(p.changes.DevicesRemoved) > 0 {
		c.deps.OnModel(ctx)
	}
	for _, m := range p.devices {
		c.connect(m)
	}
	return errors.Join(errs...)
}

// Add replaces a device whose device-id was discovered, and opens its session.
func (c *Component) Add(cfg config.Device) error {
	c.mu.Lock()
	topo := c.topology
	c.mu.Unlock()
	m, err := c.create(cfg, topo, pipelines{})
	if err == nil {
		err = m.fault
	}
	if err != nil {
		return err
	}
	c.remove(cfg.Name)
	err = c.add(m)
	c.deps.OnModel(c.ctx)
	c.connect(m)
	return err
}

// Suspend ends the P4Runtime session of a device; none opens until Resume. The device may be added
// later.
func (c *Component) Suspend(name string) {
	c.mu.Lock()
	c.suspended[name] = true
	m := c.devices[name]
	c.mu.Unlock()
	if m != nil {
		m.device.Suspend()
	}
}

// Resume opens the session of a suspended device.
func (c *Component) Resume(name string) {
	c.mu.Lock()
	delete(c.suspended, name)
	m := c.devices[name]
	c.mu.Unlock()
	if m != nil {
		m.device.Resume()
	}
}

// Connected returns nil if a device has accepted its P4Runtime session, as primary or as backup,
// and otherwise why it has not.
func (c *Component) Connected(name string) error {
	m := c.find(name)
	if m == nil {
		return fmt.Errorf("there is no device %s", name)
	}
	st := m.device.Status()
	switch st.Session.State {
	case p4rt.Connecting, p4rt.Arbitrating, p4rt.Down, p4rt.Closed:
		if st.LastError != "" {
			return errors.New(st.LastError)
		}
		return fmt.Errorf("the session is %s", st.Session.State)
	}
	return nil
}

// SetTopology replaces the topology and updates the routes.
func (c *Component) SetTopology(topo *topology.Topology) {
	c.mu.Lock()
	c.topology = topo
	c.version++
	c.mu.Unlock()
	if err := c.setRoutes(c.ctx); err != nil && c.ctx.Err() == nil {
		c.log.Error("some routes could not be written after a change of links or ports", "error", err)
	}
	c.deps.OnModel(c.ctx)
}

// setRoutes makes the routes of the topology the desired state of all devices.
func (c *Component) setRoutes(ctx context.Context) error {
	var errs []error
	c.mu.Lock()
	topo := c.topology
	c.mu.Unlock()
	for _, d := range c.Devices() {
		if err := c.deps.Intent.SetRoutes(ctx, d.Name(), topo.Routes(d.Name())); err != nil {
			errs = append(errs, fmt.Errorf("device %s: routes: %w", d.Name(), err))
		}
	}
	return errors.Join(errs...)
}

// create makes a device of a new configuration. A device that replaces another one stays with the
// collector that owns it.
func (c *Component) create(cfg config.Device, topo *topology.Topology, loaded pipelines) (*managed, error) {
	d, do := ownership.Device{State: ownership.Owner}, ownership.Open
	if o := c.ownership.Load(); o != nil {
		if before := c.find(cfg.Name); before != nil {
			d, do = before.decided().Reopened()
		} else {
			d, do = ownership.Device{}.View(o.View(cfg.Name), false)
		}
	}
	return c.build(cfg, topo, loaded, d, do)
}

// build makes a device with a session as package ownership decided. build fails only for faults
// that device.New finds; other faults are stored in the device.
func (c *Component) build(cfg config.Device, topo *topology.Topology, loaded pipelines, d ownership.Device,
	do ownership.Action,
) (*managed, error) {
	dc, err := c.deviceConfig(cfg, topo, loaded)
	if err == nil && cfg.DeviceID == 0 {
		err = errNoDeviceID
	}
	m := &managed{cfg: cfg, program: dc.Session.Program, fault: err}
	m.own.Store(&d)
	dc.Fault = err
	c.session(m, &dc, do)
	m.device, err = c.deps.NewDevice(dc)
	return m, err
}

// add adds a device without a session.
func (c *Component) add(m *managed) error {
	name := m.name()
	c.binding.Lock()
	c.mu.Lock()
	c.devices[name] = m
	if c.suspended[name] {
		m.device.Suspend() // the device has no session yet
	}
	c.version++
	topo := c.topology
	objects, isBound := c.bound[name]
	epochs := c.epochs[name]
	c.mu.Unlock()
	if isBound { // the device replaces one whose registers plugins read
		m.device.SelectObjects(append([]string{}, objects...))
		m.device.SetBankEpochs(epochs)
	}
	c.binding.Unlock()
	c.deps.Intent.AddDevice(m.device, m.cfg.Forwarding == config.ForwardingManaged, m.decided().Foreign())
	return c.deps.Intent.SetRoutes(c.ctx, name, topo.Routes(name))
}

// connect opens the session of a device, unless another collector has it. The engine collects from
// the device if its pipeline has banks or is not known yet.
func (c *Component) connect(m *managed) {
	d := m.decided()
	if d.Foreign() {
		c.await(m)
	}
	if d.State != ownership.Elsewhere {
		if err := m.device.Start(c.ctx); err != nil {
			c.log.Error("device cannot be set up; it is missing from epochs", "device", m.name(), "error", err)
		}
	}
	if !d.Foreign() {
		c.measure(m, nil)
	}
}

// measure makes the engine collect from a device that has a session. h is the state of the banks
// that another collector handed over; nil if there was no handover.
func (c *Component) measure(m *managed, h *banks.Handover) {
	if !m.device.Measured() {
		return
	}
	open, _ := c.deps.Engine.Current()
	c.deps.Banks.Opened(open)
	c.deps.Engine.Add(c.deps.Banks.Adopt(m.device, h))
}

// remove closes the session of a device.
func (c *Component) remove(name string) {
	c.mu.Lock()
	d := c.devices[name]
	delete(c.devices, name)
	c.version++
	c.mu.Unlock()
	c.deps.Engine.Remove(name)
	c.deps.Banks.Remove(name)
	c.deps.Intent.RemoveDevice(name)
	if d != nil {
		c.close(d.device)
	}
}

// changed handles a change of a device's session. The device calls it.
func (c *Component) changed(d Device) {
	_, err := d.Ready()
	m := c.find(d.Name())
	if m != nil && c.ownership.Load() != nil {
		if next, _ := c.observed(m); next != m.decided() {
			c.deps.OnTaken()
		}
	}
	if err == nil {
		if d.Program() == "" {
			c.setObjects(d.Name(), len(d.Objects()))
		}
		c.deps.Intent.ApplyPending(c.ctx, d.Name())
		c.deps.Banks.Check(d.Name())
	}
	c.deps.OnDevice()
}

// setObjects updates the model when a device that keeps its own pipeline reports other registers.
func (c *Component) setObjects(name string, objects int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before, known := c.objects[name]; known && before == objects {
		return
	}
	c.objects[name] = objects
	c.version++
	c.work.Go(func() { c.deps.OnModel(c.ctx) })
}

// ApplyPending applies pending plans on all devices that are ready.
func (c *Component) ApplyPending(ctx context.Context) {
	for _, d := range c.Devices() {
		if _, err := d.Ready(); err == nil {
			c.deps.Intent.ApplyPending(ctx, d.Name())
		}
	}
}

// Bind sets the registers to read from each device and, for devices without registers to read, how
// many epochs a bank covers. Both maps are keyed by device.
func (c *Component) Bind(objects map[string][]string, bankEpochs map[string]int) {
	c.binding.Lock()
	defer c.binding.Unlock()
	c.mu.Lock()
	c.bound, c.epochs = objects, bankEpochs
	c.mu.Unlock()
	for _, d := range c.Devices() {
		d.SelectObjects(append([]string{}, objects[d.Name()]...))
		d.SetBankEpochs(bankEpochs[d.Name()])
	}
}

// Devices returns the devices, sorted by name.
func (c *Component) Devices() (all []Device) {
	for _, m := range c.all() {
		all = append(all, m.device)
	}
	return all
}

func (c *Component) all() []*managed {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.SortedFunc(maps.Values(c.devices),
		func(a, b *managed) int { return strings.Compare(a.name(), b.name()) })
}

func (c *Component) find(name string) *managed {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.devices[name]
}

// Faults returns why devices cannot be set up. A device that waits for its device id from the gNMI
// server has no fault.
func (c *Component) Faults() (faults []error) {
	for _, m := range c.all() {
		switch {
		case m.fault != nil && !errors.Is(m.fault, errNoDeviceID):
			faults = append(faults, m.fault)
		case m.program != nil:
			if err := device.CheckProgram(m.program); err != nil {
				faults = append(faults, fmt.Errorf("device %s: %w", m.cfg.Name, err))
			}
		}
	}
	return faults
}

// Unmeasured returns why devices have nothing to measure, an error for each such device.
func (c *Component) Unmeasured() (faults []error) {
	for _, m := range c.all() {
		if m.program == nil {
			continue
		}
		if why := device.Unmeasured(m.program); why != nil {
			faults = append(faults, fmt.Errorf("device %s: %w", m.cfg.Name, why))
		}
	}
	return faults
}

// Programs returns the programs that devices run from files, each once.
func (c *Component) Programs() (programs []*p4rt.Program) {
	for _, m := range c.all() {
		if m.program != nil && m.cfg.Pipeline.Name == "" && !slices.Contains(programs, m.program) {
			programs = append(programs, m.program)
		}
	}
	return programs
}

// IsDevice reports whether there is a device of this name.
func (c *Component) IsDevice(name string) bool { return c.find(name) != nil }
