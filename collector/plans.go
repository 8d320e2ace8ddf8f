// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"log/slog"
	"sync"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// plans holds what plugins want written to devices from some epoch on, until it is.
type plans struct {
	log *slog.Logger

	mu      sync.Mutex
	open    uint64 // the epoch that is open now
	waiting map[string][]planned
	hosts   bool // it was said that host settings go nowhere
}

// planned is a plan's writes for one device, in order.
type planned struct {
	plugin string
	from   uint64
	writes []sdk.DeviceWrite
}

func newPlans(log *slog.Logger) *plans { return &plans{log: log, waiting: map[string][]planned{}} }

// add takes a plugin's plan. A plan for an epoch that has begun holds from the next boundary on.
func (p *plans) add(plugin string, plan sdk.Plan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if plan.FromEpoch != 0 && plan.FromEpoch <= p.open && len(plan.Writes) > 0 {
		p.log.Info("plan came late and holds from the next epoch", "plugin", plugin, "planned-from", plan.FromEpoch, "open", p.open)
	}
	if len(plan.Hosts) > 0 && !p.hosts {
		p.hosts = true
		p.log.Warn("plugin plans settings for host agents, and there are none", "plugin", plugin)
	}
	var order []string
	byDevice := map[string][]sdk.DeviceWrite{}
	for _, w := range plan.Writes {
		if byDevice[w.Device] == nil {
			order = append(order, w.Device)
		}
		byDevice[w.Device] = append(byDevice[w.Device], w)
	}
	for _, name := range order {
		p.waiting[name] = append(p.waiting[name], planned{plugin, plan.FromEpoch, byDevice[name]})
	}
}

// opened is the number of the open epoch.
func (p *plans) opened() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open
}

// due takes the plans for a device that hold in epoch next, and notes that it is open.
func (p *plans) due(device string, next uint64) []planned {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = max(p.open, next)
	var due, later []planned
	for _, w := range p.waiting[device] {
		if w.from <= next {
			due = append(due, w)
		} else {
			later = append(later, w)
		}
	}
	if later == nil {
		delete(p.waiting, device)
	} else {
		p.waiting[device] = later
	}
	return due
}

// applier is a device that writes can be applied to.
type applier interface {
	Name() string
	Apply(ctx context.Context, writes []sdk.DeviceWrite) error
}

// apply writes what is due at a device.
func (p *plans) apply(ctx context.Context, d applier, next uint64) {
	for _, w := range p.due(d.Name(), next) {
		if err := d.Apply(ctx, w.writes); err != nil {
			p.log.Error("plan was not carried out in full", "plugin", w.plugin, "device", d.Name(), "epoch", next, "error", err)
		}
	}
}

// forget drops what waits for a device that has left.
func (p *plans) forget(device string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, device)
}
