// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"context"
	_ "embed"
	"reflect"
	"slices"
	"sync"

	"github.com/netsketch/netsketch/plugins/sdk"
)

//go:embed netsketch-chamelemon.yang
var module string

// Version is the plugin's own version.
const Version = "0.1.0"

// Plugin is ChameleMon. New makes one.
type Plugin struct {
	mu      sync.Mutex // guards what follows
	config  Configuration
	binding *binding
	// held is what the switches are set to, by time bit: in force from an epoch on.
	held [2][]heldFrom
	// settled is the first epoch that was measured under what this process has set; 0:
	// not known yet.
	settled  uint64
	previous *previous
	state    State             // that was told last
	told     map[string]string // newest event by subject, so that each is told once
}

// heldFrom is an attention and the first epoch that it holds in.
type heldFrom struct {
	from      uint64
	attention Attention
}

// previous is the epoch before.
type previous struct {
	number   uint64
	readings map[string]*reading // by edge
}

// New returns the plugin.
func New() *Plugin {
	return &Plugin{config: DefaultConfiguration(), binding: &binding{}, told: make(map[string]string)}
}

// The optional parts of the contract that the plugin fulfils.
var (
	_ sdk.Plugin  = (*Plugin)(nil)
	_ sdk.Watcher = (*Plugin)(nil)
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
		for bit := range uint64(2) {
			if !anew {
				break // an epoch is open with it
			}
			held := p.held[bit]
			plan.Writes = append(plan.Writes, held[len(held)-1].attention.writes(e, &b.room, bit)...)
		}
	}
	b.settings.Plan = plan
	return b.settings, nil
}

// take begins anew with other edges or another memory, and goes on otherwise. The caller
// holds the lock.
func (p *Plugin) take(b *binding) (anew bool) {
	same := p.held[0] != nil && p.binding.layout == b.layout && p.binding.room == b.room &&
		slices.Equal(p.binding.names(), b.names())
	if !same || !reflect.DeepEqual(p.binding.edges, b.edges) {
		p.settled = 0
	}
	p.binding = b
	if !same {
		for bit := range p.held {
			p.held[bit] = []heldFrom{{0, begin(&b.room, b.names())}}
		}
		p.previous = nil
	}
	return !same
}

// inForce returns the attention that an epoch was measured with, and forgets older ones.
func (p *Plugin) inForce(epoch uint64) Attention {
	held := p.held[bitOf(epoch)]
	i := len(held) - 1
	for i > 0 && held[i].from > epoch {
		i--
	}
	p.held[bitOf(epoch)] = held[i:]
	return held[i].attention
}

// WatchesChanged implements sdk.Watcher; Analyse finds the set in its epoch.
func (p *Plugin) WatchesChanged(context.Context, []sdk.Watch) {}
