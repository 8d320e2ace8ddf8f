// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"context"
	_ "embed"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/netsketch/netsketch/plugins/sdk"
)

//go:embed netsketch-chamelemon.yang
var module string

// Version is the plugin's own version.
const Version = "0.1.0"

// Plugin is ChameleMon. New makes one.
type Plugin struct {
	now func() time.Time

	mu      sync.Mutex // guards what follows
	config  Configuration
	binding *binding
	ledger  ledger
	settled uint64 // first epoch measured under what has been planned; 0: not known yet
	// straggled is the newest epoch in which more packets left than entered: the next one in its bank
	// holds what was counted late.
	straggled uint64
	previous  *previous
	turns     turns
	alerts    alerts
	restored  *snapshot // until the first Configure
}

// turns are the network's changes of state, as they are decided.
type turns struct {
	State State  // that was decided last
	From  uint64 // first epoch measured in it; 0: from the beginning
	At    int64  // end of the epoch that it was decided in, in nanoseconds since 1970
	Count uint64
}

// previous is the epoch before.
type previous struct {
	number uint64
	edges  map[string]*sizer
}

// New returns the plugin.
func New() *Plugin { return NewAt(time.Now) }

// NewAt returns the plugin with another clock: plans are told apart by its time, and how long
// an analysis takes is told by it. A clock of processor time leaves out other work of the machine.
func NewAt(now func() time.Time) *Plugin {
	return &Plugin{now: now, config: DefaultConfiguration(), binding: &binding{}, alerts: alerts{{Subject: Network, Kind: networkIll}}}
}

// The optional parts of the contract that the plugin fulfils.
var (
	_ sdk.Plugin   = (*Plugin)(nil)
	_ sdk.Watcher  = (*Plugin)(nil)
	_ sdk.Merger   = (*Plugin)(nil)
	_ sdk.Stateful = (*Plugin)(nil)
)

// Describe implements sdk.Plugin.
func (p *Plugin) Describe() sdk.Description {
	return sdk.Description{
		Name:         "chamelemon",
		Version:      Version,
		Summary:      "flows that lost packets and how many, heavy hitters, changes, sizes, cardinality and entropy, with memory shifted between them as the network changes",
		Programs:     []sdk.ProgramNeed{{Role: "edge", Program: "chamelemon"}, {Role: "transit", Program: "forwarding"}},
		Objects:      []sdk.ObjectNeed{classifierNeed, encoderNeed},
		ConfigSchema: configSchema,
		Modules:      []sdk.Module{{Name: "netsketch-chamelemon", Text: module}},
		Lists: []sdk.List{
			{Path: victimList, Summary: "a flow that lost packets between its entry and its exit"},
			{Path: summaryList, Summary: "packets, flows, entropy and losses of an edge switch or the network"},
			{Path: hitterList, Summary: "a flow of many packets"},
			{Path: changeList, Summary: "a flow that changed much from one epoch to the next"},
			{Path: rangeList, Summary: "the flows of a range of sizes"},
			{Path: flowList, Summary: "any flow that somebody asks for", Watchable: true},
			{Path: attentionList, Summary: "the network's state and what is measured because of it"},
			{Path: thresholdList, Summary: "the thresholds of an edge switch"},
			{Path: encoderList, Summary: "division, load and decoding of the parts of the encoders"},
			{Path: alertList, Summary: "what is, or was, wrong: to alarm on"},
		},
	}
}

// Configure implements sdk.Plugin. Edges that stay as they were keep their attention.
func (p *Plugin) Configure(_ context.Context, config sdk.Config, network sdk.Network) (sdk.Settings, error) {
	c := DefaultConfiguration()
	if err := config.Decode(&c); err != nil {
		return sdk.Settings{}, err
	}
	if errs := c.check(); len(errs) > 0 {
		return sdk.Settings{}, errs
	}
	b, err := bind(&c, &network)
	if err != nil {
		return sdk.Settings{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.config = c
	anew := p.take(b)
	plan := &sdk.Plan{}
	for i := range b.edges {
		e := &b.edges[i]
		plan.Writes = append(plan.Writes, portWrites(e)...)
		for bank := range 2 {
			if anew != nil { // otherwise an epoch is open with it
				plan.Writes = append(plan.Writes, anew.writes(e, &b.room, uint64(bank))...)
			}
		}
	}
	if anew != nil {
		plan.ID = p.ledger.add(0, anyBank, *anew, p.id())
	}
	b.settings.Plan = plan
	return b.settings, nil
}

// id is the least number for a plan: none of an earlier process is as large.
func (p *Plugin) id() uint64 { return uint64(max(p.now().UnixNano(), 1)) }

// take begins anew with other edges or another memory, and goes on otherwise, also where an
// earlier process was. The caller holds the lock.
func (p *Plugin) take(b *binding) (anew *Attention) {
	if s := p.restored; s != nil {
		p.restored = nil
		p.ledger.Last, p.turns, p.alerts = s.Ledger.Last, s.Turns, s.Alerts
		if s.fits(b) {
			p.ledger, p.settled, p.straggled, p.previous = s.Ledger, s.Settled, s.Straggled, s.previous
			p.binding = b
			return nil
		}
	}
	same := len(p.ledger.Plans) > 0 && p.binding.layout == b.layout && p.binding.room == b.room &&
		slices.Equal(p.binding.names(), b.names())
	if !same || !reflect.DeepEqual(p.binding.edges, b.edges) {
		p.settled = 0
	}
	p.binding = b
	if same {
		return nil
	}
	p.ledger.Plans, p.previous = nil, nil
	a := begin(&p.config, &b.room, b.names())
	return &a
}

// WatchesChanged implements sdk.Watcher; Analyse finds the set in its epoch.
func (p *Plugin) WatchesChanged(context.Context, []sdk.Watch) {}
