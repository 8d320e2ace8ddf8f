// SPDX-License-Identifier: Apache-2.0

// Package devconfig configures devices over gNMI: what P4Runtime needs before it works (the device
// id, the numbers of ports), enabled ports, LLDP where links are discovered, and descriptions.
//
// Diff compares the file with the state of a device, and returns a Plan: the state of each desired
// leaf, and the changes. The table paths has every leaf that can be sent. A plan is carried out on
// command (Apply, by the digest of the plan), or in mode enforce whenever a device differs.
//
// A change runs through states (State) by one table, transitions:
//
//	setting         the Set is sent; devices that can take it back unless it is confirmed do so
//	reading-back    the configuration is read until it has the changes
//	awaiting-state  the state is read until it has them, too
//	connecting      the P4Runtime session opens
//	confirming      the device is told to keep the changes
//
// Any other event leads to undoing: the device takes the changes back, or the collector restores
// the earlier value of each leaf that still holds the collector's value. The record of a device has
// the state before its step begins, so that a collector that was killed, or the next owner of the
// device in a cluster, confirms or undoes the change.
//
// Concurrency: methods of Component may be called from any goroutine. Each device has one
// goroutine, and one comparison or change at a time.
package devconfig

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/netsketch/netsketch/collector/southbound"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/internal/suggest"
	"github.com/netsketch/netsketch/yang"
)

// Sessions are the P4Runtime sessions of the devices.
type Sessions interface {
	// Suspend ends the session of a device; none opens until Resume.
	Suspend(device string)
	Resume(device string)
	// Connected returns nil if the device has accepted the session, and otherwise why it has not.
	Connected(device string) error
}

// Dependencies are what New needs from its caller. Dial, Schema and Sessions are required.
type Dependencies struct {
	// Dial returns a connection with the gNMI server of a device.
	Dial func(config.Device) (func(...grpc.DialOption) (*grpc.ClientConn, error), error)
	// Form returns the form of requests in which the device of a gNMI session sends values, and false
	// if that is not known; nil if there are no sessions.
	Form func(device string) (southbound.Form, bool)
	// Known waits until a device's disabled ports are known, or cannot be known, or ctx ends; nil if
	// there are no routes.
	Known func(ctx context.Context, device string)
	// Schema returns the schema of devices.
	Schema func() *yang.Schema
	// Sessions are the P4Runtime sessions.
	Sessions Sessions
	// Owner returns which collector has a device, and whether it is this one; nil if it is always
	// this one.
	Owner func(device string) (owner string, own bool)
	// Records keep what was written; nil is files in the directory of the configuration.
	Records Records
	// OnChange is called when the state of a device has changed. It must not block.
	OnChange func()
	// Now returns the time of day; nil is time.Now.
	Now func() time.Time
	// Logger receives changes; nil disables logging.
	Logger *slog.Logger
	// Times are for tests.
	Times Times
}

// Component compares and configures devices. Create it with New.
type Component struct {
	deps   Dependencies
	times  Times
	ctx    context.Context // context of comparisons and changes
	cancel context.CancelFunc
	work   sync.WaitGroup
	socket *server // nil without a directory

	mu      sync.Mutex
	cfg     *config.Config
	devices map[string]*running
	started bool
}

// running is a device with its goroutine.
type running struct {
	*device
	wake chan struct{}
	stop context.CancelFunc
	done chan struct{}
}

// New returns a component for the devices of a configuration. It opens no connection.
func New(cfg *config.Config, deps Dependencies) *Component {
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	if deps.OnChange == nil {
		deps.OnChange = func() {}
	}
	if deps.Form == nil {
		deps.Form = func(string) (southbound.Form, bool) { return southbound.Form{}, false }
	}
	if deps.Known == nil {
		deps.Known = func(context.Context, string) {}
	}
	if deps.Owner == nil {
		deps.Owner = func(string) (string, bool) { return "", true }
	}
	c := &Component{deps: deps, times: deps.Times.withDefaults(), cfg: cfg, devices: map[string]*running{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Start begins to compare the devices. The P4Runtime session of a device in mode apply is closed
// until its disabled ports are known, because its first routes must not use them. In mode enforce,
// it is closed until the device has been compared, too, and changed if it differs. Call Start
// before sessions open. It fails if another collector uses the directory.
func (c *Component) Start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.started = true
	if dir := c.cfg.DeviceConfiguration.Directory; dir != "" {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("device-configuration.directory: %w", err)
		}
		var err error
		if c.socket, err = serve(dir, c); err != nil {
			return fmt.Errorf("device-configuration.directory: %w", err)
		}
	}
	for _, d := range c.cfg.Devices {
		c.add(d, true)
	}
	return nil
}

// Stop ends all comparisons and changes and waits. A change in progress is undone by the next
// collector.
func (c *Component) Stop() {
	c.cancel()
	c.work.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.devices {
		r.end()
	}
	if c.socket != nil {
		c.socket.close()
		c.socket = nil
	}
}

// Reload follows a changed configuration. Call it before sessions of new devices open.
func (c *Component) Reload(next *config.Config) {
	c.mu.Lock()
	cfg := c.cfg
	c.cfg = next
	gone := maps.Clone(c.devices)
	for _, d := range next.Devices {
		if r := gone[d.Name]; r != nil && r.same(cfg, next, d) {
			delete(gone, d.Name)
		}
	}
	for name := range gone {
		delete(c.devices, name)
	}
	c.mu.Unlock()
	for _, r := range gone {
		r.end()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range next.Devices {
		if c.devices[d.Name] == nil && c.started && c.ctx.Err() == nil {
			i := slices.IndexFunc(cfg.Devices, func(x config.Device) bool { return x.Name == d.Name })
			c.add(d, i < 0 || !reflect.DeepEqual(cfg.Devices[i], d)) // the session of an equal device goes on
		}
	}
}

// end ends the goroutine and the command that may be under way, and waits for both.
func (r *running) end() {
	r.stop()
	<-r.done
	r.op.Lock()
	defer r.op.Unlock()
	r.resume()
}

// same reports whether a device needs no new goroutine for a new configuration.
func (r *running) same(old, next *config.Config, d config.Device) bool {
	i := slices.IndexFunc(old.Devices, func(x config.Device) bool { return x.Name == d.Name })
	return i >= 0 && fmt.Sprint(old.Devices[i]) == fmt.Sprint(d) &&
		fmt.Sprint(r.wanted) == fmt.Sprint(WantedOf(next, d))
}

// newDevice returns a device of a configuration; nil if it is not compared.
func (c *Component) newDevice(dev config.Device) *device {
	if dev.GNMI.Address == "" || dev.GNMI.Configure == config.ConfigureOff {
		return nil
	}
	d := &device{ctx: c.ctx, name: dev.Name, mode: dev.GNMI.Configure, wanted: WantedOf(c.cfg, dev),
		addr: dev.GNMI.Address, limit: dev.Timeout, deps: &c.deps, times: c.times, records: c.deps.Records,
		directory: c.cfg.DeviceConfiguration.Directory, log: c.deps.Logger.With("device", dev.Name),
		status: DeviceStatus{Mode: dev.GNMI.Configure, State: Unread}}
	if d.records == nil {
		d.records = records(d.directory)
	}
	d.dial, d.fault = c.deps.Dial(dev)
	return d
}

// add begins to compare a device. opens is set if its P4Runtime session is about to open: the
// session is closed until run opens it. The caller holds mu.
func (c *Component) add(dev config.Device, opens bool) {
	d := c.newDevice(dev)
	if d == nil {
		return
	}
	if opens && d.sets() {
		d.closed = true
		c.deps.Sessions.Suspend(d.name)
	}
	ctx, stop := context.WithCancel(c.ctx)
	d.ctx = ctx
	r := &running{device: d, wake: make(chan struct{}, 1), stop: stop, done: make(chan struct{})}
	c.devices[dev.Name] = r
	interval := c.cfg.DeviceConfiguration.Interval
	c.work.Go(func() {
		defer close(r.done)
		r.run(ctx, interval)
	})
}

// run compares the device until ctx ends: at once, when it is woken, and at an interval.
func (r *running) run(ctx context.Context, interval time.Duration) {
	r.op.Lock()
	opens := r.closed
	r.op.Unlock()
	if opens {
		known, cancel := context.WithTimeout(ctx, r.times.Known)
		r.deps.Known(known, r.name)
		cancel()
	}
	if r.mode != config.ConfigureEnforce {
		r.op.Lock()
		r.resume()
		r.op.Unlock()
	}
	for {
		r.check(ctx)
		r.op.Lock()
		r.resume()
		r.op.Unlock()
		wait := time.NewTimer(interval)
		if _, own := r.deps.Owner(r.name); !own || r.state().transaction() { // may change soon
			wait.Reset(min(interval, r.times.Retry))
		}
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-r.wake:
		case <-wait.C:
		}
		wait.Stop()
	}
}

// Wake compares a device at once, because it may have changed. It does not block.
func (c *Component) Wake(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.devices[name]; r != nil {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// Status returns the state of a device; ok is false if it is not compared.
func (c *Component) Status(name string) (s DeviceStatus, ok bool) {
	c.mu.Lock()
	r := c.devices[name]
	c.mu.Unlock()
	if r == nil {
		return DeviceStatus{}, false
	}
	return r.Status(), true
}

// named returns the devices with some names, or all that are compared, in the order of the file.
func (c *Component) named(names []string) (all []*device, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var known []string
	for _, dev := range c.cfg.Devices {
		known = append(known, dev.Name)
		asked := slices.Contains(names, dev.Name)
		if len(names) > 0 && !asked {
			continue
		}
		r := c.devices[dev.Name]
		switch {
		case r != nil:
			all = append(all, r.device)
		case !c.started: // called by a command that runs without a collector
			if d := c.newDevice(dev); d != nil {
				all = append(all, d)
				continue
			}
			fallthrough
		case asked:
			if dev.GNMI.Address == "" {
				err = errors.Join(err, fmt.Errorf("device %s has no gnmi.address; add host:port of its gNMI server", dev.Name))
			} else if asked {
				err = errors.Join(err, fmt.Errorf("device %s: gnmi.configure is off; write check to compare it", dev.Name))
			}
		}
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			hint := "the file has " + strings.Join(known[:min(len(known), 8)], ", ")
			if near := suggest.Nearest(name, known); near != "" {
				hint = fmt.Sprintf("did you mean %s?", near)
			}
			err = errors.Join(err, fmt.Errorf("there is no device %q; %s", name, hint))
		}
	}
	if err == nil && len(all) == 0 {
		err = errors.New("no device of the file has a gnmi.address, so none can be configured over gNMI")
	}
	return all, err
}

// Plan compares devices with the file, all if none is named.
func (c *Component) Plan(ctx context.Context, names ...string) ([]*Plan, error) {
	devices, err := c.named(names)
	if err != nil {
		return nil, err
	}
	plans := make([]*Plan, len(devices))
	limit := make(chan struct{}, parallel)
	var work sync.WaitGroup
	for i, d := range devices {
		work.Go(func() {
			limit <- struct{}{}
			plans[i] = d.Plan(ctx)
			<-limit
		})
	}
	work.Wait()
	return plans, nil
}

// parallel is the number of devices that are read at the same time.
const parallel = 16

// Apply carries out the plans that a digest names: of all devices together, or of one of them. It
// returns the names of the devices that agree with the file afterwards.
func (c *Component) Apply(ctx context.Context, digest string, names ...string) (applied []string, err error) {
	plans, err := c.Plan(ctx, names...)
	if err != nil {
		return nil, err
	}
	devices, err := c.named(names)
	if err != nil {
		return nil, err
	}
	byDigest := map[string]string{}
	all := Digest(plans) == digest
	for _, p := range plans {
		if p.Digest != "" && (all || p.Digest == digest) {
			byDigest[p.Device] = p.Digest
		}
	}
	for _, p := range plans {
		if len(byDigest) == 0 && p.Refused() {
			err = errors.Join(err, fmt.Errorf("device %s is not changed: %s", p.Device, p.refusal()))
		}
	}
	if len(byDigest) == 0 {
		return nil, errors.Join(err, fmt.Errorf("no plan has the digest %q now: a device or the file has changed since, or "+
			"the plan is carried out already; see devices plan", digest))
	}
	for _, d := range devices {
		if want := byDigest[d.name]; want != "" {
			// The change goes on if the command that requested it ends.
			if e := d.Apply(d.ctx, want); e != nil {
				err = errors.Join(err, e)
				continue
			}
			applied = append(applied, d.name)
		}
	}
	return applied, err
}

// Revert restores a device's values from before the collector wrote. restored is false if the
// device has no value that the collector wrote.
func (c *Component) Revert(_ context.Context, name string) (restored bool, err error) {
	devices, err := c.named([]string{name})
	if err != nil {
		return false, err
	}
	return devices[0].Revert(devices[0].ctx)
}
