// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"fmt"

	"github.com/netsketch/netsketch/collector/cluster/plans"
	"github.com/netsketch/netsketch/collector/intent"
	"github.com/netsketch/netsketch/collector/network"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// startPlans begins to exchange plans with the other members.
func (c *Collector) startPlans() error {
	x := plans.New(plans.Dependencies{Bus: c.bus, Logger: c.log, Member: c.Config().Cluster.Member, View: c.cluster.View,
		Incarnation: c.cluster.Incarnation(), Epoch: c.openEpoch,
		Write: c.intent.Write, Settings: c.intent.Add, Outcome: c.intent.TakeOutcome})
	if err := x.Start(); err != nil {
		return err
	}
	c.plans.Store(x)
	return nil
}

// clusterPlans are the plans of plugins in a cluster: settings of hosts go to all members.
type clusterPlans struct {
	*intent.Component
	c *Collector
}

// Add takes a plugin's plan; see intent.Component.Add.
func (p clusterPlans) Add(ctx context.Context, plugin string, plan sdk.Plan) {
	if x := p.c.plans.Load(); x != nil {
		x.Settings(plugin, plan)
	}
	p.Component.Add(ctx, plugin, plan)
}

// forwardOutcome sends the outcome of a setting of a host to the member at which the plugin is at
// home; false if it is this one.
func (c *Collector) forwardOutcome(o intent.HostOutcome) bool {
	x := c.plans.Load()
	if x == nil || c.home(o.Plugin, 0) {
		return false
	}
	x.Outcome(o)
	return true
}

// sharedEntries are the entries of plans that move with devices between the members.
type sharedEntries struct{ c *Collector }

var _ intent.Shared = sharedEntries{}

// Take implements intent.Shared.
func (s sharedEntries) Take(ctx context.Context, device string) (held p4rt.Desired, own bool, err error) {
	x := s.c.plans.Load()
	if x == nil {
		return held, false, errNotJoined
	}
	return x.Take(ctx, device)
}

// Store implements intent.Shared.
func (s sharedEntries) Store(ctx context.Context, device string, held p4rt.Desired) error {
	x := s.c.plans.Load()
	if x == nil {
		return errNotJoined
	}
	return x.Store(ctx, device, held)
}

// errNotJoined is why nothing is exchanged before the start of the cluster.
var errNotJoined = fmt.Errorf("%w: the collector has not joined its cluster", p4rt.ErrNotReady)

// owners writes plans to devices of other members.
type owners struct{ c *Collector }

var _ network.Owners = owners{}

// Ready implements network.Owners.
func (o owners) Ready(owner string) error {
	x := o.c.plans.Load()
	if x == nil {
		return errNotJoined
	}
	return x.Ready(owner)
}

// Apply implements network.Owners.
func (o owners) Apply(ctx context.Context, plugin, owner, device string, updates []p4rt.Update) (
	undo func(context.Context) error, err error,
) {
	if err := o.Ready(owner); err != nil {
		return nil, err
	}
	return o.c.plans.Load().Apply(ctx, plugin, owner, device, updates)
}

// applyElsewhere applies pending plans at devices of other members, if the last time is over.
func (c *Collector) applyElsewhere(ctx context.Context) {
	if c.plans.Load() == nil || !c.applying.CompareAndSwap(false, true) {
		return
	}
	c.applies.Go(func() {
		defer c.applying.Store(false)
		c.intent.ApplyElsewhere(ctx)
	})
}
