// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/collector/config"
	"github.com/netsketch/netsketch/collector/device"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/collector/topology"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// managed is what the collector needs of a device.
type managed interface {
	epoch.Member[*device.Reading]
	Role() string
	Program() string
	Address() string
	DeviceID() uint64
	Measured() bool
	Objects() []sdk.Object
	Want(objects []string)
	SetRoutes(ctx context.Context, r topology.Routes) error
	Apply(ctx context.Context, writes []sdk.DeviceWrite) (undo func(context.Context) error, err error)
	Status() device.Status
	Start(ctx context.Context) error
	Close() error
}

// deviceConfig translates the configuration of a switch.
func (c *Collector) deviceConfig(d config.Device) (device.Config, error) {
	dc := device.Config{
		Name: d.Name, Role: string(d.Role), Forwarding: d.Forwarding == config.ForwardingManaged, Logger: c.log,
		OnChange: c.deviceChanged,
		Session: p4rt.Config{
			Target: d.Address, DeviceID: d.DeviceID, Role: d.P4RuntimeRole, CallTimeout: d.Timeout,
			ElectionID: p4rt.ElectionID{High: d.ElectionID.High, Low: d.ElectionID.Low}, Yield: d.ElectionID == (config.ElectionID{}),
			ReadoutTimeout: c.replyTimeout(),
		},
	}
	if d.Mode == config.ModeBackup {
		dc.Session.Mode = p4rt.Backup
	}
	c.mu.Lock()
	dc.Routes = c.topo.Routes(d.Name)
	c.mu.Unlock()
	var err error
	if !d.TLS.Plaintext {
		if dc.Session.TLS, err = device.TLS(d.TLS.CAFile, d.TLS.CertFile, d.TLS.KeyFile, d.TLS.ServerName); err != nil {
			return dc, fmt.Errorf("device %s: %w", d.Name, err)
		}
	}
	if dc.Session.Program, err = c.program(d.Pipeline); err != nil {
		return dc, fmt.Errorf("device %s: pipeline %s: %w", d.Name, d.Pipeline, err)
	}
	return dc, nil
}

// replyTimeout is after how long a reply of a read-out is given up: well before the next boundary, so that one that
// was lost costs its epoch only. A virtual clock stands still meanwhile; there no slow machine should make a reply a lost one.
func (c *Collector) replyTimeout() time.Duration {
	deadline := c.Config().Epoch.Deadline
	if _, wall := c.clock.(epoch.Wall); wall {
		return max(50*time.Millisecond, min(2*time.Second, deadline/2))
	}
	ctx, cancel := c.clock.WithTimeout(context.Background(), deadline)
	defer cancel()
	at, _ := ctx.Deadline()
	return max(2*time.Second, time.Until(at)/2)
}

// program loads a pipeline, once for all switches that run it; nil means to keep the switch's own.
func (c *Collector) program(p config.Pipeline) (*p4rt.Program, error) {
	if p.Keep {
		return nil, nil
	}
	c.mu.Lock()
	loaded := c.programs[p]
	c.mu.Unlock()
	if loaded != nil {
		return loaded, nil
	}
	loaded, err := c.loadProgram(p)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.programs[p] = loaded
	return loaded, nil
}

func (c *Collector) loadProgram(p config.Pipeline) (*p4rt.Program, error) {
	if p.Name != "" {
		return c.deps.Programs(p.Name)
	}
	deviceConfig, err := os.ReadFile(p.DeviceConfig)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(p.P4Info)
	if err != nil {
		return nil, err
	}
	info := &p4configv1.P4Info{}
	if textErr := prototext.Unmarshal(text, info); textErr != nil {
		if err := proto.Unmarshal(text, info); err != nil {
			return nil, fmt.Errorf("%s is neither text-format nor binary P4Info: %w", p.P4Info, textErr)
		}
	}
	return &p4rt.Program{Name: p.DeviceConfig, DeviceConfig: deviceConfig, P4Info: info}, nil
}

// checkDevices reports every device that could never work.
func (c *Collector) checkDevices() error {
	var errs []error
	for _, d := range c.cfg.Devices {
		dc, err := c.deviceConfig(d)
		if err == nil {
			_, err = device.New(dc)
		}
		if err == nil {
			_, err = c.gnmiConfig(d)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// addDevice makes a device part of the collector; startDevice begins its session. A device whose number
// has to be asked for becomes part of it later.
func (c *Collector) addDevice(d config.Device) error {
	if d.DeviceID == 0 {
		return nil
	}
	dc, err := c.deviceConfig(d)
	if err != nil {
		return err
	}
	m, err := c.newDevice(dc)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.devices[d.Name] = m
	c.version++
	c.mu.Unlock()
	return nil
}

func (c *Collector) startDevice(m managed) {
	if err := m.Start(c.ctx); err != nil {
		c.log.Error("device cannot be used", "device", m.Name(), "error", err)
		return
	}
	if m.Measured() {
		c.engine.Add(m)
	}
}

// removeDevice ends a device's session.
func (c *Collector) removeDevice(name string) {
	c.mu.Lock()
	m := c.devices[name]
	delete(c.devices, name)
	c.version++
	c.mu.Unlock()
	c.engine.Remove(name)
	c.plans.forget(name)
	c.discovery.remove(name)
	if m != nil {
		if err := m.Close(); err != nil {
			c.log.Warn("closing a session", "device", name, "error", err)
		}
	}
}

// managedDevices lists the devices by name.
func (c *Collector) managedDevices() []managed {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]managed, 0, len(c.devices))
	for _, m := range c.devices {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b managed) int { return strings.Compare(a.Name(), b.Name()) })
	return out
}

func (c *Collector) device(name string) managed {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.devices[name]
}

// deviceChanged hears of a session's changes, in a goroutine of the device.
func (c *Collector) deviceChanged(d *device.Device) {
	if _, err := d.Ready(); err == nil {
		if d.Program() == "" {
			c.learned(d.Name(), len(d.Objects()))
		}
		c.plans.apply(c.ctx, d, c.opened(), false)
		c.engine.Check(d.Name())
	}
	c.metrics.changed()
}

// learned notes that a switch that keeps its own pipeline told what it has.
func (c *Collector) learned(name string, objects int) {
	if !c.plugins.knows(name, objects) {
		c.mu.Lock()
		c.version++
		c.mu.Unlock()
		c.work.Go(func() {
			c.plugins.setNetwork(c.ctx)
			c.bindAll()
		})
	}
}

// opened is the number of the open epoch, 0 before the first.
func (c *Collector) opened() uint64 {
	number, _ := c.engine.Current()
	return number
}

// afterFlip applies what plugins planned for the epoch that begins.
func (c *Collector) afterFlip(ctx context.Context, member string, next uint64) {
	if m := c.device(member); m != nil {
		c.plans.apply(ctx, m, next, true)
	}
}

// bindAll makes every device read what some plugin wants.
func (c *Collector) bindAll() {
	wanted := c.plugins.bindings()
	for _, m := range c.managedDevices() {
		m.Want(append([]string{}, wanted[m.Name()]...))
	}
}

// networkVersion changes with every change of the model.
func (c *Collector) networkVersion() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.version
}

// network is the model that plugins see.
func (c *Collector) network() sdk.Network {
	devices := c.managedDevices()
	c.mu.Lock()
	topo, version := c.topo, c.version
	c.mu.Unlock()
	n := sdk.Network{Version: version}
	for _, m := range devices {
		d := sdk.Device{Name: m.Name(), Role: m.Role(), Program: m.Program()}
		if m.Measured() {
			d.Objects = m.Objects()
		}
		for _, p := range topo.Ports(m.Name()) {
			d.Ports = append(d.Ports, sdk.Port{Number: p, Name: c.discovery.portName(m.Name(), p)})
		}
		n.Devices = append(n.Devices, d)
	}
	for _, h := range topo.Hosts() {
		host := sdk.Host{Name: h.Name}
		for _, p := range h.Prefixes {
			if p.IsSingleIP() {
				host.Addresses = append(host.Addresses, p.Addr().String())
			} else {
				host.Addresses = append(host.Addresses, p.String())
			}
		}
		n.Hosts = append(n.Hosts, host)
		n.Links = append(n.Links, sdk.Link{A: sdk.Endpoint{Node: h.Name}, B: sdk.Endpoint{Node: h.Port.Switch, Port: h.Port.Number}})
	}
	slices.SortFunc(n.Hosts, func(a, b sdk.Host) int { return strings.Compare(a.Name, b.Name) })
	for _, l := range topo.Links() {
		n.Links = append(n.Links, sdk.Link{
			A: sdk.Endpoint{Node: l.A.Switch, Port: l.A.Number}, B: sdk.Endpoint{Node: l.B.Switch, Port: l.B.Number}, CapacityBPS: l.Capacity,
		})
	}
	return n
}
