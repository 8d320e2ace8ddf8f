// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	_ "embed"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/alert"
	"github.com/netsketch/netsketch/settings"
)

//go:embed netsketch-chamelemon.yang
var module string

// Version is the plugin's own version.
const Version = "0.1.0"

// Plugin is ChameleMon. New makes one.
type Plugin struct {
	now func() time.Time

	mu      sync.Mutex // guards the fields below
	config  Configuration
	binding *binding
	ledger  ledger
	settled uint64 // first epoch measured entirely under this process's plans; 0: undetermined
	// straggled is the latest epoch in which more packets left than entered. The next epoch in the
	// same bank contains the packets counted after its read-out.
	straggled   uint64
	share       [families]float64 // victim flows per flow, of the newest healthy epoch with decoded losses
	previous    *previous
	transitions transitions
	alerts      alert.List
	restored    *snapshot // until the first Configure

	newest atomic.Pointer[flowSizes] // sizes of the newest analyzed epoch, for Query
}

// transitions records the changes of the network state.
type transitions struct {
	State State  // the latest decision
	From  uint64 // first epoch measured in this state; 0: since the start
	At    int64  // end of the epoch of the decision, in nanoseconds since 1970
	Count uint64
}

// previous holds the flow sizes of the preceding epoch.
type previous struct {
	number uint64
	edges  map[string]*sizer
}

// New returns the plugin.
func New() *Plugin { return NewAt(time.Now) }

// NewAt returns the plugin with another clock, which numbers plans and measures response and
// analysis times. A clock of processor time excludes other load of the machine.
func NewAt(now func() time.Time) *Plugin {
	return &Plugin{now: now, config: settings.Default[Configuration](), binding: &binding{},
		alerts: alert.List{{Location: Network, Kind: networkIll}}}
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
		Name:    "chamelemon",
		Version: Version,
		Summary: "lost packets by flow, heavy hitters, heavy changes, flow sizes, cardinality and entropy, with memory " +
			"divided by network state",
		Programs: []sdk.ProgramNeed{{Role: "edge", Program: "chamelemon"},
			{Role: "transit", Program: "forwarding"}},
		Objects:      []sdk.ObjectNeed{classifierNeed, encoderNeed},
		ConfigSchema: configSchema,
		Modules:      []sdk.Module{{Name: "netsketch-chamelemon", Text: module}},
		Lists: []sdk.List{
			{Path: victimList, Summary: "a victim flow: it lost packets between entry and exit"},
			{Path: totalList, Summary: "the epoch, and how complete its results are"},
			{Path: summaryList, Summary: "packets, flows, entropy and losses of an edge switch or the network"},
			{Path: hitterList, Summary: "a heavy hitter"},
			{Path: changeList, Summary: "a flow that changed much from one epoch to the next"},
			{Path: rangeList, Summary: "the flows of a range of sizes"},
			{Path: flowList, Summary: "packets of a watched flow", Watchable: true},
			{Path: attentionList, Summary: "the state of the network and the measurement"},
			{Path: thresholdList, Summary: "the thresholds of an edge switch"},
			{Path: encoderList, Summary: "division, load and decoding of the parts of the encoders"},
			{Path: alertList, Summary: "present and past problems, for alarms"},
		},
	}
}

// Configure implements sdk.Plugin. If the edge switches and their memory are unchanged, the
// attention in force stays.
func (p *Plugin) Configure(_ context.Context, config sdk.Config, network sdk.Network) (sdk.Settings, error) {
	var c Configuration
	if err := config.Decode(&c); err != nil {
		return sdk.Settings{}, err
	}
	b, err := bind(&c, &network)
	if err != nil {
		return sdk.Settings{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.config = c
	initial := p.adopt(b)
	plan := &sdk.Plan{}
	for i := range b.edges {
		e := &b.edges[i]
		plan.Writes = append(plan.Writes, portWrites(e, b.problem == "")...)
		for bank := range 2 {
			if initial != nil { // without initial entries, an open epoch may use the entries in force
				plan.Writes = append(plan.Writes, initial.writes(e, &b.room, uint64(bank))...)
			}
		}
	}
	if initial != nil {
		plan.ID = p.ledger.add(0, anyBank, *initial, p.id())
	}
	b.settings.Plan = plan
	return b.settings, nil
}

// id returns a lower bound for the next plan ID, above all IDs of earlier processes.
func (p *Plugin) id() uint64 { return uint64(max(p.now().UnixNano(), 1)) }

// adopt makes b the current binding. It returns the initial attention if the edge switches or their
// memory changed, and nil if the current or the restored attention stays. The caller holds the
// lock.
func (p *Plugin) adopt(b *binding) (initial *Attention) {
	if s := p.restored; s != nil {
		p.restored = nil
		p.ledger.Last, p.transitions, p.alerts = s.Ledger.Last, s.Transitions, s.Alerts
		if s.fits(b) {
			p.ledger, p.settled, p.straggled, p.share, p.previous = s.Ledger, s.Settled, s.Straggled, s.Share, s.previous
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
	p.ledger.Plans, p.previous, p.share = nil, nil, [families]float64{}
	a := begin(&p.config, &b.room, b.names())
	return &a
}
