// SPDX-License-Identifier: Apache-2.0

package member

import (
	"context"

	"github.com/netsketch/netsketch/collector/analysis"
	"github.com/netsketch/netsketch/collector/intent"
	"github.com/netsketch/netsketch/collector/network"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// Plans returns c with its settings of hosts shared among all members. A nil member returns c.
func (m *Component) Plans(c *intent.Component) analysis.Plans {
	if m == nil {
		return c
	}
	return clusterPlans{c, m}
}

type clusterPlans struct {
	*intent.Component
	m *Component
}

// Add takes a plugin's plan; see intent.Component.Add.
func (p clusterPlans) Add(ctx context.Context, plugin string, plan sdk.Plan) {
	if j := p.m.joined.Load(); j != nil {
		j.plans.Settings(plugin, plan)
	}
	p.Component.Add(ctx, plugin, plan)
}

// ForwardOutcome sends the outcome of a setting of a host to the member at which the plugin is at
// home; false if it is this one.
func (m *Component) ForwardOutcome(o intent.HostOutcome) bool {
	j := m.joined.Load()
	if j == nil || m.Home(o.Plugin, 0) {
		return false
	}
	j.plans.Outcome(o)
	return true
}

var _ intent.Shared = (*Component)(nil)

// Take implements intent.Shared.
func (m *Component) Take(ctx context.Context, device string) (held p4rt.Desired, own bool, err error) {
	j := m.joined.Load()
	if j == nil {
		return held, false, errNotJoined
	}
	return j.plans.Take(ctx, device)
}

// Store implements intent.Shared.
func (m *Component) Store(ctx context.Context, device string, held p4rt.Desired) error {
	j := m.joined.Load()
	if j == nil {
		return errNotJoined
	}
	return j.plans.Store(ctx, device, held)
}

var _ network.Owners = (*Component)(nil)

// Ready implements network.Owners.
func (m *Component) Ready(owner string) error {
	j := m.joined.Load()
	if j == nil {
		return errNotJoined
	}
	return j.plans.Ready(owner)
}

// Apply implements network.Owners.
func (m *Component) Apply(ctx context.Context, plugin, owner, device string, updates []p4rt.Update) (
	undo func(context.Context) error, err error,
) {
	j := m.joined.Load()
	if j == nil {
		return nil, errNotJoined
	}
	return j.plans.Apply(ctx, plugin, owner, device, updates)
}
