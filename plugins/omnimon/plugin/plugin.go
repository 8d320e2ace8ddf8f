// SPDX-License-Identifier: Apache-2.0

// Package plugin is the OmniMon plugin: it configures hosts and switches, decodes their reports and
// registers, runs the collective analysis, and publishes its results. docs/omnimon.md describes it.
package plugin

import (
	"bytes"
	"context"
	_ "embed" // the YANG module
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/plugins/omnimon/analysis"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/alert"
	"github.com/netsketch/netsketch/settings"
)

//go:embed netsketch-omnimon.yang
var module string

// Version is the plugin's own version.
const Version = "0.1.0"

// Plugin is OmniMon. New makes one.
type Plugin struct {
	mu      sync.Mutex // guards the fields below
	setup   *setup     // nil before Configure
	state   saved
	unknown map[string]bool // hosts without number whose report has been logged
	// unsettled is the count of coming epochs in which hosts, switches or routes may have changed.
	unsettled int
	plans     uint64 // newest Plan.ID
	alerts    alert.List
	requests  []*running   // queries that clients requested
	uses      [kinds][]use // uses of units, by number
	epoch     uint64       // newest analyzed epoch
	lag       uint64       // epochs that had ended when it was delivered and were not collected
	results   history
	refused   []refused

	newest atomic.Pointer[flowIndex] // flows of the newest analyzed epoch, for Query
}

// setup is a configuration applied to a network.
type setup struct {
	config   Configuration
	network  *network
	analyzer *analysis.Analyzer // nil without a measuring switch or host
	slots    int                // K
	numbers  map[string]int     // numbers of hosts with an agent
	text     string             // text of everything that the results depend on
	settings sdk.Settings
	queries  []*running    // queries of the configuration
	hosts    wire.Settings // settings of all hosts, without number and queries
	units    [kinds]int    // units for queries that each measuring switch has
}

// New returns the plugin.
func New() *Plugin { return &Plugin{unknown: map[string]bool{}} }

// The interfaces of the plugin contract that Plugin implements.
var (
	_ sdk.Plugin   = (*Plugin)(nil)
	_ sdk.Querier  = (*Plugin)(nil)
	_ sdk.Stateful = (*Plugin)(nil)
)

// Describe implements sdk.Plugin.
func (p *Plugin) Describe() sdk.Description {
	return sdk.Description{
		Name:    "omnimon",
		Version: Version,
		Summary: "every flow exactly at every host and switch, its path, and lost packets by flow, switch and link",
		Programs: []sdk.ProgramNeed{
			{Program: "omnimon"},
		},
		Objects:      []sdk.ObjectNeed{countsNeed, uncountedNeed},
		ConfigSchema: configSchema,
		Modules:      []sdk.Module{{Name: "netsketch-omnimon", Text: module}},
		Lists: []sdk.List{
			{Path: summaryList, Summary: "totals of the network"},
			{Path: flowList, Summary: "a flow from its source to its destination", Watchable: true},
			{Path: hopList, Summary: "a flow at one switch of its path", Watchable: true},
			{Path: lossList, Summary: "packets that a flow lost at a switch or link"},
			{Path: switchList, Summary: "load and lost packets of a switch"},
			{Path: linkList, Summary: "load and lost packets of a directed link"},
			{Path: settledList, Summary: "the epoch that is settled"},
			{Path: settledOf(flowList), Summary: "a flow with missing packets in the settled epoch"},
			{Path: settledOf(hopList), Summary: "such a flow at one switch of its path"},
			{Path: settledOf(lossList), Summary: "packets that a flow lost at a switch or link in the settled epoch"},
			{Path: settledOf(switchList), Summary: "load and lost packets of a switch in the settled epoch"},
			{Path: settledOf(linkList), Summary: "load and lost packets of a directed link in the settled epoch"},
			{Path: settledOf(linkFlowList), Summary: "a flow with many packets on a link in the settled epoch"},
			{Path: linkFlowList, Summary: "a flow with many packets on a link"},
			{Path: hostList, Summary: "flows, mappings and counters of a host"},
			{Path: completionList, Summary: "ended flows by their duration in epochs"},
			{Path: alertList, Summary: "present and past problems, for alarms"},
			{Path: withdrawalList, Summary: "an epoch whose results were published as exact and are not"},
			{Path: requestList, Summary: "a query that runs while a client subscribes to it by its text", Watchable: true},
			{Path: queryList, Summary: "a running query"},
			{Path: countList, Summary: "what a unit of a switch counted for a query"},
			{Path: resultList, Summary: "one result of a query"},
		},
	}
}

// Configure implements sdk.Plugin.
func (p *Plugin) Configure(_ context.Context, config sdk.Config, model sdk.Network) (sdk.Settings, error) {
	var c Configuration
	if err := config.Decode(&c); err != nil {
		return sdk.Settings{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	state := p.state.number(&c, &model)
	s, err := newSetup(&c, &model, &state, config.EpochLength)
	if err == nil && s.analyzer != nil {
		uses := p.uses
		s.settings.Plan.Writes = append(s.settings.Plan.Writes, p.assign(s, slices.Concat(s.queries, p.requests), 0)...)
		for _, uses := range p.uses {
			for i := range uses {
				uses[i].From, uses[i].Plan, uses[i].Failed = max(uses[i].From, p.epoch+unsettledEpochs+p.lag), p.plans+1, ""
			}
		}
		for i, q := range s.queries {
			if q.problem != "" {
				p.uses = uses
				return sdk.Settings{}, settings.KeyErrors{{Key: fmt.Sprintf("queries[%d].text", i), Message: q.problem}}
			}
		}
		s.settings.Plan.Hosts, err = s.hostSettings(slices.Concat(s.queries, p.requests))
	}
	if err != nil {
		return sdk.Settings{}, err
	}
	p.state = state
	p.plans++
	s.settings.Plan.ID = p.plans
	if p.setup != nil && p.setup.text != s.text {
		p.unsettled = unsettledEpochs + int(p.lag)
	}
	p.setup = s
	return s.settings, nil
}

// unsettledEpochs is the number of epochs in which packets and reports of an earlier configuration
// may arrive: the epoch of the change and the epochs that are not yet analyzed.
const unsettledEpochs = 4

// maxHosts bounds the hosts. Each host has the addresses of all hosts in its memory.
const maxHosts = 1 << 14

func newSetup(c *Configuration, model *sdk.Network, state *saved, epochLength time.Duration) (*setup, error) {
	s := &setup{config: *c, slots: c.Slots, numbers: map[string]int{}}
	for _, q := range c.Queries {
		s.queries = append(s.queries, newRunning(q.Name, q.Text, false))
	}
	found := map[string]*counts{}
	for i := range model.Devices {
		d := &model.Devices[i]
		r, err := find(d, c)
		if err != nil {
			s.missing(d.Name, countsNeed.String(), "no paths through this switch: %v", err)
			continue
		}
		if r == nil {
			continue
		}
		found[d.Name] = r
		s.settings.Bindings = append(s.settings.Bindings, sdk.Binding{Device: d.Name, Object: r.object})
		for k := range s.units {
			if n := len(r.units[k]); len(found) == 1 || n < s.units[k] {
				s.units[k] = n
			}
		}
		if r.uncounted != "" {
			s.settings.Bindings = append(s.settings.Bindings, sdk.Binding{Device: d.Name, Object: r.uncounted})
		}
		if c.Slots == 0 && (s.slots == 0 || r.slots < s.slots) {
			s.slots = r.slots
		}
	}
	if len(found) == 0 && len(model.Devices) > 0 {
		s.missing("", countsNeed.String(), "no results")
	}
	agents, numbers := 0, positions(state.Hosts)
	for i := range model.Hosts {
		h := &model.Hosts[i]
		switch {
		case !h.Agent:
		case len(agentAddresses(h)) == 0:
			s.missing(h.Name, "address", "not measured: the host has prefixes only")
		default:
			s.numbers[h.Name] = numbers[h.Name]
			agents++
		}
	}
	if c.Shares > 0 && len(state.Hosts) > c.Shares {
		return nil, settings.KeyErrors{{Key: "shares", Message: fmt.Sprintf("is %d; expected at least %d, one for each host",
			c.Shares, len(state.Hosts))}}
	}
	if agents > maxHosts {
		return nil, fmt.Errorf("%d hosts with an agent; at most %d are possible: set agent on fewer hosts, or give each "+
			"part of the network a collector of its own", agents, maxHosts)
	}
	if agents == 0 && len(model.Hosts) > 0 {
		s.missing("", "host agents", "no results: set agent on the hosts that run one")
	}
	s.network = newNetwork(model, found, state.Hosts)
	s.settings.Plan = &sdk.Plan{}
	s.text = s.describe(model, state)
	if agents == 0 || len(found) == 0 {
		return s, nil
	}
	net := s.network.model(c.SinglePath)
	net.Flows, net.Slots, net.SlotsPerFlow, net.Extremes = c.Flows, s.slots, c.SlotsPerFlow, len(c.Extremes)
	var err error
	if s.analyzer, err = analysis.New(net); err != nil {
		return nil, err
	}
	s.plan(model, state, epochLength)
	return s, nil
}

func (s *setup) missing(device, object, consequence string, args ...any) {
	s.settings.Missing = append(s.settings.Missing, sdk.MissingObject{Device: device, Object: object,
		Consequence: fmt.Sprintf(consequence, args...)})
}

// describe returns a text that differs if an epoch would be measured or computed differently.
func (s *setup) describe(model *sdk.Network, state *saved) string {
	var b strings.Builder
	c := s.config
	fmt.Fprint(&b, c.Carrier, c.EtherType, s.slots, c.SlotsPerFlow, c.Seed, c.Flows, c.FlowletGap, c.Match,
		c.Extremes, c.SinglePath, *state)
	for i := range model.Devices {
		d := &model.Devices[i]
		fmt.Fprint(&b, d.Name, d.Program, d.Forwarding)
	}
	fmt.Fprint(&b, model.Hosts, model.Links)
	return b.String()
}

// plan prepares the settings of hosts and adds the entries of switches.
func (s *setup) plan(model *sdk.Network, state *saved, epochLength time.Duration) {
	c := &s.config
	s.hosts = wire.Settings{
		Carrier: c.Carrier, KeepMSS: !c.ClampMSS, EtherType: c.EtherType, Slots: s.slots, SlotsPerFlow: c.SlotsPerFlow,
		Seed: c.Seed, Shares: state.Shares,
		Flows: c.Flows, IngressSlots: c.IngressSlots, IdleEpochs: uint64(max(c.IdleTime/max(epochLength, 1), 1)),
		UDPIdleEpochs: uint64(max(c.UDPIdleTime/max(epochLength, 1), 1)),
		Match:         c.Match, Extremes: c.Extremes, FlowletGap: c.FlowletGap, QueryTuples: c.QueryTuples,
	}
	s.hosts.Hosts = state.addresses(model, s.numbers)
	for i := range s.network.switches {
		w := &s.network.switches[i]
		if w.counts == nil || w.counts.arrays == 1 {
			continue
		}
		for _, port := range slices.Sorted(maps.Keys(w.arrayOf)) {
			s.settings.Plan.Writes = append(s.settings.Plan.Writes, sdk.DeviceWrite{Device: w.name, Op: sdk.Insert,
				Entry: sdk.TableEntry{Table: "ingress.omnimon.port_array",
					Matches: []sdk.FieldMatch{{Field: "port", Value: bigEndian(uint64(port), 2), PrefixLen: -1}},
					Action:  "ingress.omnimon.use_array",
					Params:  []sdk.ActionParam{{Name: "array", Value: bigEndian(uint64(w.arrayOf[port]), 2)}}}})
		}
	}
}

// hostSettings returns the settings of each host with an agent.
func (s *setup) hostSettings(queries []*running) (out []sdk.HostSetting, err error) {
	settings := s.hosts
	settings.Queries = hostQueries(queries)
	settings.Host = -1 // encoded once, since only the number differs
	data, err := settings.Append(nil)
	if err != nil {
		return nil, err
	}
	tail := bytes.TrimPrefix(data, []byte(`{"host":-1`))
	for _, name := range slices.Sorted(maps.Keys(s.numbers)) {
		out = append(out, sdk.HostSetting{Host: name, Role: wire.Role, Tail: tail,
			Data: fmt.Appendf(nil, `{"host":%d`, s.numbers[name])})
	}
	return out, nil
}

func bigEndian(v uint64, size int) []byte {
	b := make([]byte, size)
	for i := size - 1; i >= 0; i, v = i-1, v>>8 {
		b[i] = byte(v)
	}
	return b
}
