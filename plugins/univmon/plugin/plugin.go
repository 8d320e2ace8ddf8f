// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	_ "embed" // the YANG module
	"fmt"
	"slices"
	"sync"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/settings"
	"github.com/netsketch/netsketch/sketch/universal"
	"github.com/netsketch/netsketch/yang/table"
)

//go:embed netsketch-univmon.yang
var module string

// Version is the plugin's own version.
const Version = "0.1.0"

// Plugin is UnivMon. New makes one.
type Plugin struct {
	functions []Function // registered in Go
	watchdog  watchdog   // used by Analyze, which one goroutine calls at a time

	mu       sync.Mutex // guards the fields below: Query may run during Analyze
	config   Configuration
	plan     *plan
	measured map[scope]*result // newest results of the switches' sketches, which are saved
	previous map[scope]*result // latest result of each scope
	reported map[string]string // latest problem by subject; a problem that lasts is logged once
	network  sdk.Network       // newest model
	duties   duties
	// hostSettings are the settings that hosts were sent, by name; chosen is the action of switches'
	// choice of a flow.
	hostSettings, chosen map[string]string
}

// scope is the device and dimension of a result.
type scope struct{ device, dimension string }

// result is the result of an epoch for a scope.
type result struct {
	scope
	epoch    uint64
	status   sdk.Status
	problem  string              // why data is missing
	small    bool                // whether the problem is that the sketch is too small
	from     []string            // switches whose sketches the result contains
	whole    bool                // whether the switches delivered all cells
	inexact  bool                // whether packets may have counted twice or not at all
	complete bool                // whether nothing is missing, and manifests did not change when the epoch began
	restored bool                // whether the result is from a saved state
	unparsed *unparsed           // nil: not known
	sealed   *sealed             // nil for a view of several switches
	estimate *universal.Estimate // nil when lost
	change   *universal.Change   // nil without a comparable preceding epoch
}

// doubt returns which results are unknown because the sketch is too small for the traffic; empty if
// none is.
func (r *result) doubt() string {
	if r.estimate == nil {
		return ""
	}
	changes := ""
	if r.change != nil && !r.change.Known() {
		changes = "changes, "
	}
	switch {
	case !r.estimate.CountsFlows():
		return "more flows than the sketch can count: their number, " + changes + "entropy, functions and DDoS victims are " +
			"unknown; a program with more levels or counters measures them"
	case !r.estimate.Represents():
		return "the sketch is too small for this many flows: " + changes + "entropy, functions and DDoS victims are " +
			"unknown; a program with more levels, counters or slots measures them"
	case changes != "":
		return "more flows changed than the sketch can count: changes are unknown; a program with more levels or counters " +
			"measures them"
	}
	return ""
}

// An Option changes a Plugin in New.
type Option func(*Plugin)

// New returns the plugin with the options applied.
func New(options ...Option) *Plugin {
	p := &Plugin{config: settings.Default[Configuration](), plan: &plan{}, previous: make(map[scope]*result),
		reported: make(map[string]string)}
	for _, o := range options {
		o(p)
	}
	return p
}

// The interfaces of the plugin contract that Plugin implements.
var (
	_ sdk.Plugin         = (*Plugin)(nil)
	_ sdk.Querier        = (*Plugin)(nil)
	_ sdk.Merger         = (*Plugin)(nil)
	_ sdk.NetworkUpdater = (*Plugin)(nil)
	_ sdk.Stateful       = (*Plugin)(nil)
)

// Describe implements sdk.Plugin.
func (p *Plugin) Describe() sdk.Description {
	return sdk.Description{
		Name:    "univmon",
		Version: Version,
		Summary: "heavy hitters, changes, DDoS victims, entropy, distinct flows and other sums from universal sketches, " +
			"per switch, per host and network-wide",
		Programs: []sdk.ProgramNeed{
			{Program: "univmon"}, {Program: "univmon-300k"}, {Program: "univmon-pairs"},
		},
		Objects:      []sdk.ObjectNeed{countersNeed, heavyNeed},
		ConfigSchema: configSchema,
		Modules:      []sdk.Module{{Name: "netsketch-univmon", Text: module}},
		Lists: []sdk.List{
			{Path: totalList, Summary: "the epoch, and how complete its results are"},
			{Path: summaryList, Summary: "packets, distinct flows, entropy and F2 of a switch or the network"},
			{Path: hitterList, Summary: "a flow with a large share of the packets"},
			{Path: changeList, Summary: "a flow that changed much from one epoch to the next"},
			{Path: victimList, Summary: "a destination of unusually many sources"},
			{Path: flowList, Summary: "packets of a watched flow", Watchable: true},
			{Path: unparsedList, Summary: "packets of a device or the network without a flow, by reason"},
			{Path: manifestList, Summary: "a pair of switches whose packets a switch counts in a dimension"},
			{Path: alertList, Summary: "attacks, heavy changes and shifts of entropy, for alarms"},
			{Path: functionList, Summary: "the sum of a registered function of the flows' packets"},
		},
	}
}

// Configure implements sdk.Plugin. Results of earlier epochs are kept.
func (p *Plugin) Configure(_ context.Context, config sdk.Config, network sdk.Network) (sdk.Settings, error) {
	var c Configuration
	if err := config.Decode(&c); err != nil {
		return sdk.Settings{}, err
	}
	plan, err := newPlan(&c, &network)
	if err != nil {
		return sdk.Settings{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.config, p.plan, p.network = c, plan, network
	if hosts := slices.Concat(plan.hostPlan, p.withdrawn()); len(hosts)+len(plan.choices) > 0 {
		plan.settings.Plan = &sdk.Plan{Writes: plan.choices, Hosts: hosts}
	}
	p.planned()
	p.duties.stale = true
	if len(p.previous) == 0 {
		p.resume()
	}
	return plan.settings, nil
}

// resume turns the restored results into the results of the preceding epoch. The caller holds the
// lock.
func (p *Plugin) resume() {
	run := analysis{plan: p.plan}
	for _, r := range p.measured {
		run.epoch = &sdk.Epoch{Number: r.epoch} // same epoch for all results
		if p.config.Switches && !r.sealed.merged {
			p.previous[r.scope] = r
		}
	}
	for _, v := range p.plan.views {
		if run.epoch == nil {
			return
		}
		if r, _ := run.add(v, p.measured); r.estimate != nil {
			r.restored = true
			p.previous[r.scope] = r
		}
	}
}

// NetworkChanged implements sdk.NetworkUpdater. If the configuration
// does not fit the changed network, for example because the last switch of a role is gone, the
// network-wide view is disabled.
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
	p.plan, p.network = plan, network
	p.duties.stale = true
	if c.Network.Enabled && c.Network.Scheme != SchemeWeights {
		if m, err := c.read(&network); err == nil { // else the next epoch has no manifests, and the reason
			p.duties.route(m)
		}
	}
}

// Query implements sdk.Querier: the packets of one flow in the latest analyzed epoch, on a switch
// or in the network.
func (p *Plugin) Query(_ context.Context, row sdk.RowKey) ([]*table.Table, uint64, error) {
	if row.List != flowList {
		return nil, 0, fmt.Errorf("univmon: rows of %s cannot be queried; use %s", row.List, flowList)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.previous[scope{row.Keys["node"], row.Keys["dimension"]}]
	if r == nil || r.estimate == nil {
		return nil, 0, nil
	}
	t, problem, err := watchedTable(&sdk.Epoch{Number: r.epoch, Watched: []sdk.RowKey{row}}, p.previous)
	if err != nil {
		return nil, 0, err
	}
	if problem != "" {
		return nil, 0, fmt.Errorf("univmon: %s", problem)
	}
	return []*table.Table{t}, r.epoch, nil
}
