// SPDX-License-Identifier: Apache-2.0

package member

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/netsketch/netsketch/collector/analysis"
	"github.com/netsketch/netsketch/collector/cluster/exchange"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/collector/pluginhost"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// The parts of other collectors have the last 1/handOverShare of an epoch's deadline to arrive.
const handOverShare = 4

// HandOverAt returns the time of an epoch's deadline that is left for parts of other members.
func HandOverAt(deadline time.Duration) time.Duration { return deadline / handOverShare }

// Warnings returns accuracy warnings of an epoch: members whose clocks are apart by more than
// epoch.guard.
func (m *Component) Warnings() []string {
	if j := m.joined.Load(); j != nil {
		return j.cluster.ClockWarnings(m.deps.Config().Epoch.Guard)
	}
	return nil
}

// HandOver sends this member's measurements of an epoch to the others, and hands devices over.
func (m *Component) HandOver(ep *epoch.Epoch) {
	if j := m.joined.Load(); j != nil {
		j.exchange.HandOver(ep)
	}
	m.move()
}

// Elsewhere returns the source of a device that another member owns; nil if no plugin is at home at
// this member.
func (m *Component) Elsewhere(device string) epoch.Source { return m.awaited(device, false) }

// awaited returns the source of a device or host that another collector owns; nil if this
// collector runs no plugin.
func (m *Component) awaited(name string, host bool) epoch.Source {
	j := m.joined.Load()
	if j == nil {
		return nil
	}
	for _, p := range m.deps.Config().Plugins.Instances {
		if m.Home(p.Name, 0) {
			return j.exchange.Source(name, host)
		}
	}
	return nil
}

var _ analysis.Cluster = (*Component)(nil)

// Home implements analysis.Cluster. Without a lease, a member analyzes its own devices' epochs for
// all plugins, because the other members may be unreachable.
func (m *Component) Home(plugin string, number uint64) bool {
	if m.joined.Load() == nil {
		return false
	}
	if number == 0 {
		number = m.openEpoch()
	}
	view := m.view()
	return !view.Leased && len(view.Members) > 0 || view.In(number).Plugin(plugin) == view.Self
}

// Keep implements analysis.Cluster.
func (m *Component) Keep(instance, plugin string, state *sdk.State) {
	if j := m.joined.Load(); j != nil {
		j.exchange.Keep(instance, plugin, state)
	}
}

// State implements analysis.Cluster.
func (m *Component) State(ctx context.Context, instance, plugin string) *sdk.State {
	if j := m.joined.Load(); j != nil {
		return j.exchange.State(ctx, instance, plugin)
	}
	return nil
}

// Watch implements analysis.Cluster.
func (m *Component) Watch(rows []store.Watch) {
	if j := m.joined.Load(); j != nil {
		j.exchange.Watch(rows)
	}
}

// Watched implements analysis.Cluster.
func (m *Component) Watched() []store.Watch {
	if j := m.joined.Load(); j != nil {
		return j.exchange.Watched()
	}
	return nil
}

// Query implements analysis.Cluster.
func (m *Component) Query(ctx context.Context, plugin string, row sdk.RowKey) ([]sdk.TableResult, uint64, error) {
	j := m.joined.Load()
	if j == nil {
		return nil, 0, pluginhost.ErrNotRunning
	}
	tables, number, err := j.exchange.Query(ctx, plugin, row)
	var there *exchange.QueryError
	switch {
	case errors.As(err, &there) && queryCodes[there.Code] != nil:
		err = fmt.Errorf("%w: %w", queryCodes[there.Code], err)
	case errors.Is(err, exchange.ErrNoHome):
		err = fmt.Errorf("%w: %w", pluginhost.ErrNotRunning, err)
	}
	return tables, number, err
}

// queryCodes maps status codes to the errors of queries that one collector passes to another.
var queryCodes = map[string]error{
	"no-capability": pluginhost.ErrNoCapability, "refused": pluginhost.ErrRefused, "not-running": pluginhost.ErrNotRunning,
	"stopped": pluginhost.ErrStopped, "invalid": pluginhost.ErrInvalidResults,
}

// answer replies to a query of another collector.
func (m *Component) answer(ctx context.Context, plugin string, row sdk.RowKey) ([]sdk.TableResult, uint64, string,
	error,
) {
	tables, number, err := m.parts.Analysis.Answer(ctx, plugin, row)
	code := "failed"
	for name, known := range queryCodes {
		if errors.Is(err, known) {
			code = name
		}
	}
	return tables, number, code, err
}
