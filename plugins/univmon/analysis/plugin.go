// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"context"
	"fmt"
	"sync"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/sketch/universal"
	"github.com/netsketch/netsketch/yang"
	"github.com/netsketch/netsketch/yang/table"
)

// Version is the plugin's own version.
const Version = "0.1.0"

// Plugin is UnivMon. New makes one.
type Plugin struct {
	functions []Function // registered in Go

	mu       sync.Mutex // guards what follows against Query beside Analyse
	config   Configuration
	plan     *plan
	previous map[scope]*result // newest result of each scope
	told     map[string]string // newest event by subject, so that each is told once
}

// scope is what a result is of.
type scope struct{ device, dimension string }

// result is what an epoch gave for a scope.
type result struct {
	scope
	epoch    uint64
	status   sdk.Status
	from     []string            // switches that it rests on
	whole    bool                // these delivered all that they recorded
	estimate *universal.Estimate // nil when lost
	change   *universal.Change   // nil when there is nothing to compare with
}

// An Option changes a Plugin in New.
type Option func(*Plugin)

// New returns the plugin, with further functions if any (WithFunction).
func New(options ...Option) *Plugin {
	p := &Plugin{config: DefaultConfiguration(), plan: &plan{}, previous: make(map[scope]*result), told: make(map[string]string)}
	for _, o := range options {
		o(p)
	}
	return p
}

// The optional parts of the contract that UnivMon fulfils.
var (
	_ sdk.Plugin         = (*Plugin)(nil)
	_ sdk.Querier        = (*Plugin)(nil)
	_ sdk.Merger         = (*Plugin)(nil)
	_ sdk.Watcher        = (*Plugin)(nil)
	_ sdk.NetworkUpdater = (*Plugin)(nil)
)

// Describe implements sdk.Plugin.
func (p *Plugin) Describe() sdk.Description {
	d := sdk.Description{
		Name:    "univmon",
		Version: Version,
		Summary: "heavy hitters, changes, DDoS victims, entropy, distinct flows and other sums from universal sketches, per switch and network-wide",
		Programs: []sdk.ProgramNeed{
			{Program: "univmon"}, {Program: "univmon-300k"},
		},
		Objects:      []sdk.ObjectNeed{countersNeed, heavyNeed},
		ConfigSchema: configSchema,
		Lists: []sdk.List{
			{Path: summaryList, Summary: "packets, distinct flows, entropy and F2 of a switch or the network"},
			{Path: hitterList, Summary: "a flow with a large share of the packets"},
			{Path: changeList, Summary: "a flow that changed much from one epoch to the next"},
			{Path: victimList, Summary: "a destination of unusually many sources"},
			{Path: flowList, Summary: "any flow that somebody asks for", Watchable: true},
			{Path: functionList, Summary: "the sum of a registered function of the flows' packets"},
		},
	}
	for _, m := range yang.UnivMonModules() {
		d.Modules = append(d.Modules, sdk.Module{Name: m.Name, Text: m.Text})
	}
	return d
}

// Configure implements sdk.Plugin. Earlier epochs stay known.
func (p *Plugin) Configure(_ context.Context, config sdk.Config, network sdk.Network) (sdk.Settings, error) {
	c := DefaultConfiguration()
	if err := config.Decode(&c); err != nil {
		return sdk.Settings{}, err
	}
	if errs := c.check(p.functions); len(errs) > 0 {
		return sdk.Settings{}, errs
	}
	plan, err := newPlan(&c, &network)
	if err != nil {
		return sdk.Settings{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.config, p.plan = c, plan
	return plan.settings, nil
}

// NetworkChanged implements sdk.NetworkUpdater. A change with which the configuration
// does not work, as when the last switch of a role is gone, costs the network-wide view.
func (p *Plugin) NetworkChanged(_ context.Context, network sdk.Network) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.config
	plan, err := newPlan(&c, &network)
	if err != nil {
		c.Network.Enabled = false
		if plan, err = newPlan(&c, &network); err != nil {
			return // only weights can be wrong
		}
	}
	p.plan = plan
}

// WatchesChanged implements sdk.Watcher; Analyse finds the set in its epoch.
func (p *Plugin) WatchesChanged(context.Context, []sdk.Watch) {}

// Query implements sdk.Querier: the packets of one flow in the newest epoch.
func (p *Plugin) Query(_ context.Context, row sdk.Watch) ([]*table.Table, uint64, error) {
	if row.List != flowList {
		return nil, 0, fmt.Errorf("%s: single rows can be asked for in %s only", row.List, flowList)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.previous[scope{row.Keys["device"], row.Keys["dimension"]}]
	if r == nil || r.estimate == nil {
		return nil, 0, nil
	}
	t, problem, err := watchedTable([]sdk.Watch{row}, p.previous)
	if err != nil {
		return nil, 0, err
	}
	if problem != "" {
		return nil, 0, fmt.Errorf("univmon: %s", problem)
	}
	return []*table.Table{t}, r.epoch, nil
}

// Merge implements sdk.Merger: parts of disjoint switches become one epoch. Sketches of
// different switches stay apart, because each switch has results of its own.
func (p *Plugin) Merge(_ context.Context, parts []*sdk.Epoch) (*sdk.Epoch, error) {
	whole, err := sdk.MergeParts(parts, func(_ string, a, _ sdk.Cells) (sdk.Cells, error) {
		return a, fmt.Errorf("%s is in two parts", a.Object)
	})
	if err != nil {
		return nil, fmt.Errorf("univmon: %w", err)
	}
	return whole, nil
}
