// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/netsketch/netsketch/collector/device"
	"github.com/netsketch/netsketch/collector/intent"
	"github.com/netsketch/netsketch/collector/topology"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// errNoDeviceID is the reason why a device has no session yet.
var errNoDeviceID = errors.New("no device-id: it is not configured, and the gNMI server has not reported one")

// deviceConfig translates the configuration of a device. If it fails, the result lacks the parts
// that could not be loaded.
func (c *Component) deviceConfig(d config.Device, topo *topology.Topology, loaded pipelines) (device.Config, error) {
	dc := device.Config{
		Name: d.Name, Role: string(d.Role), MayWrite: c.mayWrite,
		Session: p4rt.Config{
			Target: d.Address, DeviceID: d.DeviceID, Role: d.P4RuntimeRole,
			ElectionID:  p4rt.ElectionID{High: d.ElectionID.High, Low: d.ElectionID.Low},
			CallTimeout: c.deps.Clock.IOLimit(d.Timeout), ReadoutTimeout: c.replyTimeout(),
			PipelineTimeout: c.deps.Clock.IOLimit(time.Minute), ReadTimeout: c.deps.Clock.IOLimit(time.Minute),
			Reconcile: func(ctx context.Context, sw *p4rt.Client) error {
				return c.deps.Intent.Reconcile(ctx, d.Name, sw)
			},
		},
	}
	if d.Mode == config.ModeBackup {
		dc.Session.Mode = p4rt.Backup
	}
	var err error
	if dc.Session.Program, err = c.pipeline(d.Pipeline, loaded); err != nil {
		return dc, fmt.Errorf("device %s: pipeline %s: %w", d.Name, d.Pipeline, err)
	}
	if dc.Session.TLS, err = d.TLS.Client(c.deps.Certificates, d.Address); err != nil {
		return dc, fmt.Errorf("device %s: %w", d.Name, err)
	}
	return dc, checkRoutes(d, dc.Session.Program, topo)
}

// checkRoutes fails if the collector manages the routes of a device whose program lacks the tables
// for them.
func checkRoutes(d config.Device, p *p4rt.Program, topo *topology.Topology) error {
	if p == nil || d.Forwarding != config.ForwardingManaged {
		return nil
	}
	return intent.CheckRoutes(p, d.Name, topo.Routes(d.Name))
}

// replyTimeout bounds the wait for a reply during a read-out. It ends well before the next
// boundary, so that a lost reply costs one epoch only.
func (c *Component) replyTimeout() time.Duration {
	d := max(50*time.Millisecond, min(2*time.Second, c.cfg.Epoch.Deadline/2))
	return max(d, c.deps.Clock.IOLimit(d)/2) // half of the timeout, because the whole read-out has the same limit
}

// pipelines holds the programs that were loaded for one configuration.
type pipelines map[config.Pipeline]*p4rt.Program

// pipeline loads a pipeline once for all devices that run it; nil keeps the device's own pipeline.
func (c *Component) pipeline(p config.Pipeline, loaded pipelines) (*p4rt.Program, error) {
	if p.Keep || loaded[p] != nil {
		return loaded[p], nil
	}
	program, err := c.loadPipeline(p)
	if err != nil {
		return nil, err
	}
	if _, err := p4values.NewCatalog(program.P4Info); err != nil {
		return nil, err
	}
	loaded[p] = program
	return program, nil
}

func (c *Component) loadPipeline(p config.Pipeline) (*p4rt.Program, error) {
	if p.Name != "" {
		return c.deps.Programs(p.Name)
	}
	return p4rt.ReadProgram(p.DeviceConfig, p.P4Info)
}
