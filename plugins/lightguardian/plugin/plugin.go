// SPDX-License-Identifier: Apache-2.0

// Package plugin is the LightGuardian plugin: it lets switches send their sketches in passing
// packets, reconstructs the sketches from the sketchlets that hosts received, and publishes for
// every flow and switch of its path the size, delays, gaps, losses, and faults.
// docs/lightguardian.md describes it.
package plugin

import (
	"context"
	_ "embed" // the YANG module
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/netsketch/netsketch/hostagent/lightguardian/wire"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/alert"
	"github.com/netsketch/netsketch/plugins/sdk/routes"
)

//go:embed netsketch-lightguardian.yang
var module string

// Version is the plugin's own version.
const Version = "0.1.0"

// Plugin is LightGuardian. New makes one.
type Plugin struct {
	mu     sync.Mutex // guards the fields below
	setup  *setup     // nil before Configure
	unfit  error      // why setup does not fit the programs of the newest network
	ids    map[string]uint16
	writes []sdk.DeviceWrite // entries that the switches have
	plans  uint64            // newest Plan.ID
	alerts alert.List
	since  map[place]uint64
	lambda map[string]float64 // λc of switches, where it was chosen

	// Doubts about faults in an interval, by its number, and in the interval before.
	doubts, doubtsBefore map[sub]*evidence
	doubtsOf             uint64

	// Doubts about faults whose packets may wait in a queue, in the same intervals as doubts and
	// doubtsBefore.
	waiting, waitingBefore map[place]awaited

	// Packets that flows lack at a place at the end of an interval, by its number, and that may wait
	// in a queue.
	owed   map[place]uint64
	owedOf uint64

	few int // intervals in a row of which too few sketchlets arrived

	shift     uint64               // shift of the banks of epochs, when intervals began
	intervals map[uint64]*interval // intervals that are not final, by number
	reached   map[uint64][]string  // switches that measured an epoch whole, sorted, by epoch
	newest    *interval            // interval that was published last, in this epoch
	epoch     uint64
}

// setup is a configuration applied to a network.
type setup struct {
	config   Configuration
	epochs   uint64            // epochs of an interval
	length   time.Duration     // length of an epoch
	ids      map[string]uint16 // ids of switches by name
	names    map[uint16]string // names of switches by id
	own      []string          // switches that send sketchlets, sorted
	hosts    []string          // hosts with an agent, sorted
	routes   *routes.Routes
	lambda   map[string]float64 // λc of switches, where it was chosen
	settings sdk.Settings
}

// New returns the plugin.
func New() *Plugin {
	return &Plugin{ids: map[string]uint16{}, since: map[place]uint64{}, lambda: map[string]float64{},
		intervals: map[uint64]*interval{}, reached: map[uint64][]string{}}
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
		Name:         "lightguardian",
		Version:      Version,
		Summary:      "size, delays, gaps, losses and path of every flow at every switch, and their faults, from sketchlets",
		Programs:     []sdk.ProgramNeed{{Program: program}},
		ConfigSchema: configSchema,
		Modules:      []sdk.Module{{Name: "netsketch-lightguardian", Text: module}},
		Lists: []sdk.List{
			{Path: summaryList, Summary: "totals of the network"},
			{Path: flowList, Summary: "a flow and its path", Watchable: true},
			{Path: hopList, Summary: "a flow at a switch of its path", Watchable: true},
			{Path: delayList, Summary: "packets of a flow at a switch in a range of delays", Watchable: true},
			{Path: faultList, Summary: "a fault of a flow at a switch"},
			{Path: summariesList, Summary: "flows, packets and entropy of a switch"},
			{Path: rangeList, Summary: "flows of a switch in a range of sizes"},
			{Path: coverageList, Summary: "columns of a switch that were received of an interval"},
			{Path: hostList, Summary: "report and counters of a host"},
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
	unknown, err := c.differs(&model)
	if err != nil {
		if p.setup != nil { // the earlier configuration stays in force, with new programs
			_, p.unfit = p.setup.config.differs(&model)
		}
		return sdk.Settings{}, err
	}
	ids, err := assign(&c, &model, p.ids)
	if err != nil {
		return sdk.Settings{}, err
	}
	s := newSetup(&c, &model, ids, config.EpochLength)
	for _, name := range unknown {
		s.settings.Missing = append(s.settings.Missing, sdk.MissingObject{Device: name, Object: "register @" + annotation,
			Consequence: "results are wrong if its program was compiled for another sketch than the key sketch says"})
	}
	hosts, err := s.hostSettings()
	if err != nil {
		return sdk.Settings{}, err
	}
	if c.Copies == 0 {
		clear(p.lambda)
	}
	s.lambda = p.lambda
	writes := s.entries(&model)
	p.plans++
	s.settings.Plan = &sdk.Plan{ID: p.plans, Writes: sdk.Replace(p.writes, writes, s.owns), Hosts: hosts}
	if p.setup == nil || !p.setup.sameSketches(s) {
		p.intervals, p.newest = map[uint64]*interval{}, nil
	}
	p.setup, p.ids, p.writes, p.unfit = s, s.ids, writes, nil
	return s.settings, nil
}

func newSetup(c *Configuration, model *sdk.Network, ids map[string]uint16, epoch time.Duration) *setup {
	s := &setup{config: *c, epochs: uint64(c.IntervalEpochs), length: epoch, ids: ids, names: map[uint16]string{},
		own: devices(model), routes: routes.New(model)}
	s.settings.BankEpochs = c.IntervalEpochs
	for _, name := range s.own {
		s.names[ids[name]] = name
	}
	for i := range model.Hosts {
		if model.Hosts[i].Agent {
			s.hosts = append(s.hosts, model.Hosts[i].Name)
		}
	}
	slices.Sort(s.hosts)
	if len(s.own) == 0 && len(model.Devices) > 0 {
		s.missing("program "+program, "no results: no switch sends sketchlets")
	}
	if len(s.hosts) == 0 && len(model.Hosts) > 0 {
		s.missing("host agents", "no results: set agent on the hosts that run one")
	}
	return s
}

func (s *setup) missing(object, consequence string) {
	s.settings.Missing = append(s.settings.Missing, sdk.MissingObject{Object: object, Consequence: consequence})
}

// sameSketches reports whether columns received under s are columns of other.
func (s *setup) sameSketches(other *setup) bool {
	a, b := &s.config.Sketch, &other.config.Sketch
	if a.Rows != b.Rows || a.Columns != b.Columns || a.Sizes != b.Sizes || a.Gaps != b.Gaps ||
		!slices.Equal(a.Delays, b.Delays) || s.config.TimeUnit != other.config.TimeUnit || s.epochs != other.epochs {
		return false
	}
	for id, name := range s.names {
		if now, ok := other.names[id]; ok && now != name {
			return false
		}
	}
	return true
}

// hostSettings returns the settings of each host with an agent.
func (s *setup) hostSettings() (out []sdk.HostSetting, err error) {
	k := &s.config.Sketch
	settings := wire.Settings{Kept: int(s.config.ReportSize), Flows: s.config.ReportFlows,
		Interval: s.config.IntervalEpochs,
		Sketch:   &wire.Sketch{Rows: k.Rows, Delays: k.micros(), Sizes: k.Sizes, Gaps: k.Gaps, Unit: s.config.unit()}}
	for _, name := range s.own {
		settings.Devices = append(settings.Devices, wire.Device{ID: s.ids[name], Name: name, Seed: seedOf(name),
			Columns: k.Columns, Words: k.words()})
	}
	data, err := settings.Append(nil)
	if err != nil {
		return nil, fmt.Errorf("settings of hosts: %w", err)
	}
	for _, name := range s.hosts {
		out = append(out, sdk.HostSetting{Host: name, Role: wire.Role, Data: data})
	}
	return out, nil
}

// owns reports whether a switch sends sketchlets.
func (s *setup) owns(name string) bool {
	_, ok := slices.BinarySearch(s.own, name)
	return ok
}
