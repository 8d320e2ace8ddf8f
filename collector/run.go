// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"errors"
	"time"

	"github.com/netsketch/netsketch/collector/analysis"
	"github.com/netsketch/netsketch/collector/epoch"
)

// Report is the outcome of an epoch with the results of its devices and plugins.
type (
	Report       = analysis.Report
	DeviceReport = analysis.DeviceReport
	PluginReport = analysis.PluginReport
	Stages       = analysis.Stages
)

// WaitReady waits until every measured device takes part in the epochs and has the entries that
// plugins planned, or until ctx ends. It returns the names of the devices that do not take part
// yet.
func (c *Collector) WaitReady(ctx context.Context) []string {
	c.member.WaitView(ctx)
	missing := c.banks.WaitJoined(ctx)
	c.network.ApplyPending(ctx)
	return missing
}

// Run drives the epochs until ctx ends, and waits for the analysis in progress. In a cluster, it
// first hands devices, hosts and plugins over to the other members. Call Start before Run, and
// Stop after it.
func (c *Collector) Run(ctx context.Context) error {
	if !c.health.Components.Load() {
		return errors.New("collector: Run without Start, or after Stop")
	}
	grace, cancel := context.WithTimeout(ctx, c.deps.StartGrace)
	missing := c.WaitReady(grace)
	cancel()
	if ctx.Err() != nil {
		return nil
	}
	if len(missing) > 0 {
		c.log.Warn("epochs begin without some devices", "missing", missing)
	}
	c.log.Info("epochs begin", "interval", c.Config().Epoch.Interval, "devices", len(c.network.Devices()), "plugins",
		c.analysis.Running())
	c.banks.Prepare(ctx)
	c.health.Epochs.Store(true)
	defer c.health.Epochs.Store(false)
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() {
		c.member.Drain()
		stop()
	})()
	err := c.epochs.Run(running, func(ep *epoch.Epoch) {
		c.analysis.Deliver(ep)
		c.member.Delivered(ep.Number)
	})
	c.analysis.Settle(c.deps.StopGrace / 2)
	return err
}

// Open begins the first epoch at the given time; see epoch.Engine.Open. An emulation calls it
// instead of Run.
func (c *Collector) Open(ctx context.Context, at time.Time, wait epoch.WaitFunc) error {
	err := c.epochs.Open(ctx, at, wait)
	c.health.Epochs.Store(err == nil)
	return err
}

// Epoch returns the number of the open epoch, 0 before the first one, and the time at which it
// ends.
func (c *Collector) Epoch() (number uint64, end time.Time) { return c.epochs.Current() }

// Step closes the open epoch at the given time and returns when the results of the epoch that has
// drained are published. The report is empty if no epoch has drained (epoch.Engine.Close). During
// wait, which waits for the guard, an emulation moves its packets.
func (c *Collector) Step(ctx context.Context, at time.Time, wait epoch.WaitFunc) (Report, error) {
	ep, err := c.epochs.Close(ctx, at, wait)
	if err != nil || ep == nil {
		return Report{}, err
	}
	delivery := c.analysis.Deliver(ep)
	c.member.Delivered(ep.Number)
	c.member.Settle() // devices, plugins and hosts that move with this epoch move before the next one ends
	return delivery.Wait(), nil
}
