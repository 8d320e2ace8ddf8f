// SPDX-License-Identifier: Apache-2.0

// Package plugin is the SketchINT plugin: it lets switches add INT to packets and hosts compress
// it, and publishes latencies by flow and switch, heavy hitters and changes by switch, and paths.
// docs/sketchint.md describes it.
package plugin

import (
	"context"
	_ "embed" // the YANG module
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/netsketch/netsketch/hostagent/sketchint/wire"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/alert"
	"github.com/netsketch/netsketch/settings"
)

//go:embed netsketch-sketchint.yang
var module string

// Version is the plugin's own version.
const Version = "0.1.0"

// Plugin is SketchINT. New makes one.
type Plugin struct {
	mu     sync.Mutex // guards the fields below
	setup  *setup     // nil before Configure
	nodes  map[string]uint32
	writes []sdk.DeviceWrite // entries that the switches have
	undone []sdk.DeviceWrite // entries before the newest plan; a switch where the plan fails keeps them
	agents presence
	plans  uint64 // newest Plan.ID
	alerts alert.List
	// inflated are flows at switches that had inflated latencies in the newest interval.
	inflated map[place]*inflation
	collects collection
	edges    map[string]*gathered
	routes   []*routing      // routes of this interval and the one before, the newest last
	failures []alert.Problem // failures of plans since the newest interval
	previous *interval       // newest interval, with its reports that arrived late

	newest atomic.Pointer[interval] // newest interval, for Query
}

// setup is a configuration applied to a network.
type setup struct {
	model    *sdk.Network
	config   Configuration
	epochs   uint64            // epochs of an interval
	length   time.Duration     // length of an epoch
	nodes    map[string]uint32 // ids by the name of the switch
	names    map[uint32]string // names of switches by id
	own      []string          // switches that insert INT, sorted
	hosts    map[string]bool   // hosts with an agent
	at       map[string]string // observers by the addresses of hosts
	edges    []*edge           // sorted by name
	reports  *reporting        // nil: no reports of switches
	settings sdk.Settings
	towers   [2]int // bytes of the towers of flows and of latencies, in reports
}

// New returns the plugin.
func New() *Plugin {
	return &Plugin{nodes: map[string]uint32{}, inflated: map[place]*inflation{},
		agents: presence{Silent: map[string]uint64{}}}
}

// The interfaces of the plugin contract that Plugin implements.
var (
	_ sdk.Plugin   = (*Plugin)(nil)
	_ sdk.Querier  = (*Plugin)(nil)
	_ sdk.Stateful = (*Plugin)(nil)
)

// Describe implements sdk.Plugin.
func (p *Plugin) Describe() sdk.Description {
	return sdk.Description{
		Name:         "sketchint",
		Version:      Version,
		Summary:      "latencies of every flow at every switch, heavy hitters and changes by switch, and paths, from INT",
		Programs:     []sdk.ProgramNeed{{Program: program}},
		Objects:      []sdk.ObjectNeed{flowsNeed, latenciesNeed},
		ConfigSchema: configSchema,
		Modules:      []sdk.Module{{Name: "netsketch-sketchint", Text: module}},
		Lists: []sdk.List{
			{Path: summaryList, Summary: "totals of the network"},
			{Path: flowList, Summary: "a heavy or watched flow, its path and latency", Watchable: true},
			{Path: hopList, Summary: "latency of a flow at a switch", Watchable: true},
			{Path: inflationList, Summary: "a flow at a switch with inflated latencies"},
			{Path: hitterList, Summary: "a heavy hitter at a host or switch"},
			{Path: changeList, Summary: "a heavy change at a host or switch"},
			{Path: pathList, Summary: "a heavy flow whose path changed"},
			{Path: summariesList, Summary: "flows and entropy of a host"},
			{Path: rangeList, Summary: "flows of a range of sizes"},
			{Path: switchList, Summary: "latency and drops of a switch"},
			{Path: queueList, Summary: "latency and occupancy of a queue"},
			{Path: hostList, Summary: "report and counters of a host"},
			{Path: sourceList, Summary: "telemetry reports of a sender"},
			{Path: faultList, Summary: "packets of a sender whose INT could not be read"},
			{Path: costList, Summary: "bytes and packets of collection, and those of INT"},
			{Path: alertList, Summary: "present and past problems, for alarms"},
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
	s, err := newSetup(&c, &model, assign(&c, &model, p.nodes), config.EpochLength)
	if err != nil {
		return sdk.Settings{}, err
	}
	writes, missing, err := s.entries(p.agents.gone(s.hosts))
	if err != nil {
		return sdk.Settings{}, err
	}
	s.settings.Missing = append(s.settings.Missing, missing...)
	hosts, err := s.hostSettings(&model)
	if err != nil {
		return sdk.Settings{}, err
	}
	p.plans++
	s.settings.Plan = &sdk.Plan{ID: p.plans, Writes: sdk.Replace(p.writes, writes, s.owns), Hosts: hosts}
	p.setup, p.nodes, p.writes, p.undone, p.agents.Ended = s, s.nodes, writes, nil, p.agents.gone(s.hosts)
	p.routes = append(p.routes, newRouting(&model, s.nodes))
	return s.settings, nil
}

func newSetup(c *Configuration, model *sdk.Network, nodes map[string]uint32, epoch time.Duration) (*setup, error) {
	s := &setup{model: model, config: *c, epochs: 1, length: epoch, nodes: nodes, names: map[uint32]string{},
		own: devices(model), hosts: map[string]bool{}, at: map[string]string{}}
	if epoch > 0 {
		s.epochs = uint64((c.Interval + epoch - 1) / epoch)
	}
	for name, id := range nodes {
		s.names[id] = name
	}
	for _, n := range c.Nodes {
		s.names[n.ID] = n.Name
	}
	s.findEdges(model)
	if err := s.collect(model); err != nil {
		return nil, err
	}
	if len(s.edges) > 0 && c.instructions() != edgeInstructions {
		const text = "the towers of edge switches read latencies alone"
		if c.Sinks == sinksSwitches {
			return nil, settings.KeyErrors{{Key: "metadata", Message: fmt.Sprintf(
				"is %q; %s: expected [\"latency\"], or sinks hosts", c.Metadata, text)}}
		}
		s.missing("metadata latency alone", "edge switches have no latencies of other switches: "+text)
	}
	if len(s.edges) > 0 && c.TimeUnit != time.Nanosecond {
		return nil, settings.KeyErrors{{Key: "time-unit", Message: fmt.Sprintf(
			"is %v; the towers of edge switches have nanoseconds: expected 1ns", c.TimeUnit)}}
	}
	for i := range model.Hosts {
		h := &model.Hosts[i]
		if s.measures(h) {
			s.hosts[h.Name] = true
		}
		for _, a := range h.Addresses {
			if at := s.edgeOf(model, h.Name); at != "" && (!h.Agent || s.countsAtEdges()) {
				s.at[a] = at
			} else if s.reports != nil {
				s.at[a] = s.reports.host
			} else if h.Agent {
				s.at[a] = h.Name
			}
		}
	}
	if len(s.own) == 0 && len(model.Devices) > 0 {
		s.missing("program "+program, "no switch is configured for INT; that of other switches is read")
	}
	if len(s.hosts) == 0 && len(model.Hosts) > 0 {
		s.missing("host agents", "no results: set agent on the hosts that run one")
	}
	return s, nil
}

// findEdges finds the switches with towers.
func (s *setup) findEdges(model *sdk.Network) {
	for i := range model.Devices {
		d := &model.Devices[i]
		e, err := findEdge(d)
		if err != nil {
			s.settings.Missing = append(s.settings.Missing, sdk.MissingObject{Device: d.Name, Object: "towers",
				Consequence: fmt.Sprintf("the towers of this switch are not read: %v", err)})
		}
		if e != nil {
			s.edges = append(s.edges, e)
			s.settings.Bindings = append(s.settings.Bindings, sdk.Binding{Device: d.Name, Object: e.flows.object},
				sdk.Binding{Device: d.Name, Object: e.latencies.object})
		}
	}
	slices.SortFunc(s.edges, func(a, b *edge) int { return strings.Compare(a.name, b.name) })
}

// edgeOf returns the edge switch of a host, or "".
func (s *setup) edgeOf(model *sdk.Network, host string) string {
	for _, l := range model.Links {
		for _, e := range [][2]string{{l.A.Node, l.B.Node}, {l.B.Node, l.A.Node}} {
			if e[0] == host && slices.ContainsFunc(s.edges, func(x *edge) bool { return x.name == e[1] }) {
				return e[1]
			}
		}
	}
	return ""
}

// countsAtEdges reports whether edge switches count all packets, so that hosts count them again.
func (s *setup) countsAtEdges() bool { return s.config.Sinks == sinksSwitches && len(s.edges) > 0 }

// counted reports whether an observer is part of sums over the network, which have each packet
// once.
func (s *setup) counted(o *observer) bool { return o.report != nil && (o.edge || !s.countsAtEdges()) }

// owns reports whether a switch inserts INT.
func (s *setup) owns(name string) bool {
	_, ok := slices.BinarySearch(s.own, name)
	return ok
}

func (s *setup) missing(object, consequence string) {
	s.settings.Missing = append(s.settings.Missing, sdk.MissingObject{Object: object, Consequence: consequence})
}

// measures reports whether the agent of a host measures. With reports of switches, only one host's
// agent measures.
func (s *setup) measures(h *sdk.Host) bool {
	return h.Agent && (s.reports == nil || h.Name == s.reports.host)
}

// hostSettings returns the settings of each host with an agent.
func (s *setup) hostSettings(model *sdk.Network) (out []sdk.HostSetting, err error) {
	c := &s.config
	settings := wire.Settings{Marks: c.Marks, Interval: s.epochs, Flows: int(c.FlowTower), Latencies: int(c.LatencyTower),
		Conservative: c.Conservative, Heavy: c.threshold(), HeavyFlows: c.HeavyFlows, Inflation: c.Inflation,
		InflatedFlows: c.InflatedFlows, SinkReports: s.reports != nil}
	flows, latencies, err := settings.NewTowers()
	if err != nil {
		return nil, err
	}
	s.towers = [2]int{flows.Memory(), latencies.Memory()}
	data, err := settings.Append(nil)
	if err != nil {
		return nil, fmt.Errorf("settings of hosts: %w", err)
	}
	for i := range model.Hosts {
		if s.measures(&model.Hosts[i]) {
			out = append(out, sdk.HostSetting{Host: model.Hosts[i].Name, Role: wire.Role, Data: data})
		}
	}
	return out, nil
}

// name returns the name of a switch, or its node id if it has no name.
func (s *setup) name(node uint32) string {
	if name, ok := s.names[node]; ok {
		return name
	}
	return fmt.Sprint(node)
}
