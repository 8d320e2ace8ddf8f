// SPDX-License-Identifier: Apache-2.0

package member

import (
	"context"

	"github.com/netsketch/netsketch/collector/devconfig"
	"github.com/netsketch/netsketch/collector/intent"
	"github.com/netsketch/netsketch/plugins/sdk"
)

var _ intent.Cluster = (*Component)(nil)

// Member implements intent.Cluster.
func (m *Component) Member() string { return m.deps.Config().Cluster.Member }

// AtHome implements intent.Cluster.
func (m *Component) AtHome(plugin string) bool {
	view := m.view()
	return view.Leased && view.In(m.openEpoch()).Plugin(plugin) == view.Self
}

// Present implements intent.Cluster. Without a lease, the view is old, and nothing is written.
func (m *Component) Present(member string) bool {
	view := m.view()
	return !view.Leased || view.Present(member)
}

// Share implements intent.Cluster.
func (m *Component) Share(plans []intent.SharedPlan) {
	if j := m.joined.Load(); j != nil {
		j.plans.Share(plans)
	}
}

// Settings implements intent.Cluster.
func (m *Component) Settings(plugin string, plan sdk.Plan) {
	if j := m.joined.Load(); j != nil {
		j.plans.Settings(plugin, plan)
	}
}

// Forward implements intent.Cluster.
func (m *Component) Forward(o intent.Outcome) bool {
	j := m.joined.Load()
	if j == nil || o.Maker == "" && m.Home(o.Plugin, 0) {
		return false
	}
	j.plans.Outcome(o)
	return true
}

// Take implements intent.Cluster.
func (m *Component) Take(ctx context.Context, device string) (held intent.Held, own bool, err error) {
	j := m.joined.Load()
	if j == nil {
		return held, false, errNotJoined
	}
	return j.plans.Take(ctx, device)
}

// Store implements intent.Cluster.
func (m *Component) Store(ctx context.Context, device string, held intent.Held) error {
	j := m.joined.Load()
	if j == nil {
		return errNotJoined
	}
	return j.plans.Store(ctx, device, held)
}

// records are the cluster's records of what was written to devices over gNMI.
type records struct{ *Component }

// Records returns the cluster's records of what was written to devices over gNMI; nil for a nil
// member.
func (m *Component) Records() devconfig.Records {
	if m == nil {
		return nil
	}
	return records{m}
}

// Load implements devconfig.Records.
func (r records) Load(ctx context.Context, device string) (data []byte, revision uint64, err error) {
	j := r.joined.Load()
	if j == nil {
		return nil, 0, errNotJoined
	}
	return j.records.Load(ctx, device)
}

// Save implements devconfig.Records.
func (r records) Save(ctx context.Context, device string, data []byte, revision uint64) (next uint64, err error) {
	j := r.joined.Load()
	if j == nil {
		return 0, errNotJoined
	}
	return j.records.Save(ctx, device, data, revision)
}
