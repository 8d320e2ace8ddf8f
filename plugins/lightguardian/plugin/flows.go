// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/netsketch/netsketch/plugins/lightguardian/analysis"
	"github.com/netsketch/netsketch/plugins/sdk/routes"
	"github.com/netsketch/netsketch/sketch/flow"
)

// abnormalPath is the name of the fault that sketches alone do not show.
const abnormalPath = "abnormal-path"

// flowState is a flow in an interval, with what the sketches have of it.
type flowState struct {
	key    flow.Key
	text   string // of the flow in the path of a client; empty: the canonical text
	from   string // host that sent it; empty: not known
	to     string
	sent   uint64
	got    uint64
	known  [2]bool // that sent and got are known
	hops   []hop   // switches in order
	faults []fault
	votes  analysis.Votes[string] // its own; nil: it shows no fault

	rerouted bool // several routes were in force
}

// hop is a flow at a switch.
type hop struct {
	analysis.Hop
	name  string
	last  uint32 // time of the last packet since the interval began, in the unit of sketches
	share float64
	off   bool // it is not on the expected path
	whole bool // later columns do not change it
}

// fault is a fault of a flow at a switch.
type fault struct {
	kind   string
	name   string // of the switch; of the host that received the flow, if its link is to blame
	after  string // where the flow was measured before it; empty: nowhere
	value  float64
	unsure bool // switches between after and name were not measured
	early  bool // later columns may change it
}

// place is a fault of a flow at a switch, over time.
type place struct {
	key        flow.Key
	name, kind string
}

// follow returns the flow with its hops and faults. Of several routes that were in force it takes
// those with the fewest faults.
func (i *interval) follow(k flow.Key) *flowState {
	var best *flowState
	for _, r := range slices.Backward(i.routes) {
		f := i.ends(k, r)
		if best == nil || len(f.faults) < len(best.faults) {
			best = f
		}
	}
	return best
}

// ends returns a flow on routes.
func (i *interval) ends(k flow.Key, r *routes.Routes) *flowState {
	f := &flowState{key: k, rerouted: len(i.routes) > 1}
	f.from, f.to = r.Ends(&k)
	e := i.flows[k]
	if e == nil {
		e = &ends{}
	}
	f.sent, f.got = e.sent, e.received
	f.known = [2]bool{i.measures(f.from), i.measures(f.to)}
	f.from, f.to = cmp.Or(e.from, f.from), cmp.Or(e.to, f.to)
	path := r.Path(&k)
	for _, name := range path {
		f.hops = append(f.hops, i.hop(&k, name, f))
	}
	f.reroute(i, r, path)
	f.locate(i)
	f.strays(i, e)
	return f
}

// measures reports whether a host has reported the flows of the whole interval.
func (i *interval) measures(host string) bool {
	for e := i.first; e <= i.last; e++ {
		if !i.reports[report{host, e}] {
			return false
		}
	}
	return host != ""
}

// hop returns a flow at a switch. Estimates are not too low, so a flow has at most the packets that
// its host sent, unless it is in a loop.
func (i *interval) hop(k *flow.Key, name string, f *flowState) hop {
	h := hop{name: name, share: i.share(name)}
	c := i.switches[name]
	if c == nil || c.sketch == nil {
		return h
	}
	key := k.AppendBinary(nil)
	h.Packets, h.Valid = c.sketch.Query(key)
	if !h.Valid {
		return h
	}
	h.whole = c.sketch.Whole(key)
	h.Delays, _ = c.sketch.Delays(nil, key)
	h.Interval, h.last, _ = c.sketch.MaxInterval(key)
	h.Shared = f.known[0] && uint64(h.Packets) >= f.sent+uint64(max(i.config.Rules.DropPackets, 1))
	if f.known[0] && float64(h.Packets) < max(i.config.Rules.Loop, 1)*float64(f.sent) {
		h.Packets = uint32(min(uint64(h.Packets), f.sent))
	}
	return h
}

// reroute replaces a switch that the flow did not pass by a neighbor of the one before that it
// passed, if that is not on the path.
func (f *flowState) reroute(i *interval, r *routes.Routes, path []string) {
	least := i.config.Rules.Path
	if least == 0 {
		return
	}
	for at := 1; at < len(f.hops); at++ {
		before, h := &f.hops[at-1], &f.hops[at]
		if !before.Valid || !h.Valid || before.Packets < i.config.Rules.Packets ||
			float64(h.Packets) > (1-least)*float64(before.Packets) {
			continue
		}
		for _, name := range r.Neighbors(before.name) {
			if slices.Contains(path, name) || slices.ContainsFunc(f.hops, func(h hop) bool { return h.name == name }) {
				continue
			}
			other := i.hop(&f.key, name, f)
			if other.Valid && float64(other.Packets) >= least*float64(before.Packets) && other.Packets > h.Packets {
				other.off, other.whole = true, other.whole && h.whole
				*h = other
				break
			}
			h.whole = h.whole && other.whole // it may turn out to be the one
		}
	}
}

// locate finds the faults that the sketches show. If both hosts have measured the flow, it has
// drops, a loop or a blackhole only if packets are missing (paper, section 6.2: the hosts report
// victim flows).
func (f *flowState) locate(i *interval) {
	rules := i.config.rules
	size := f.sent
	for j := range f.hops {
		if f.hops[j].Valid && !f.known[0] {
			size = max(size, uint64(f.hops[j].Packets))
		}
	}
	if size < uint64(i.config.Rules.Packets) {
		return
	}
	if f.known[0] && f.known[1] && f.sent < f.got+uint64(max(rules.DropPackets, 1)) {
		rules.Drops, rules.Blackhole, rules.Loop = 0, 0, 0
	}
	path := make([]analysis.Hop, 0, len(f.hops)+2)
	path = append(path, analysis.Hop{Valid: f.known[0], Packets: uint32(min(f.sent, math.MaxUint32))})
	nodes := []string{f.from}
	for j := range f.hops {
		path, nodes = append(path, f.hops[j].Hop), append(nodes, f.hops[j].name)
	}
	if len(f.hops) > 0 {
		path = append(path, analysis.Hop{Valid: f.known[1], Packets: uint32(min(f.got, math.MaxUint32))})
		nodes = append(nodes, f.to)
	}
	alone := rules.Locate(nil, path)
	if len(alone) > 0 {
		f.votes = analysis.Votes[string]{}
		f.votes.Count(&rules, nodes, path, alone)
	}
	for _, found := range i.votes.Settle(&rules, nodes, path, slices.Clone(alone)) {
		x := fault{kind: found.Fault.String(), name: nodes[found.Hop], value: found.Value,
			early: !slices.Contains(alone, found)}
		for j := found.Hop - 1; j >= 0; j-- {
			if path[j].Valid {
				x.after = nodes[j]
				break
			}
			x.unsure = true
		}
		for j := 1; j < found.Hop; j++ {
			x.early = x.early || rules.Open(path, j) // votes may move it there
		}
		first := 0
		if found.Fault == analysis.InflatedLatency {
			x.after, x.unsure, x.early, first = "", false, false, max(found.Hop-1, 0)
		}
		x.early = x.early || f.early(first, found.Hop)
		f.faults = append(f.faults, x)
	}
	for j := range f.hops {
		if h := &f.hops[j]; h.off {
			f.faults = append(f.faults, fault{kind: abnormalPath, name: h.name, after: f.hops[max(j-1, 0)].name,
				value: float64(h.Packets) / float64(max(f.hops[max(j-1, 0)].Packets, 1)), early: f.early(0, j+1)})
		}
	}
}

// early reports whether columns or reports that arrive later may change what the hops from first
// to end, without it, show.
func (f *flowState) early(first, end int) bool {
	if !f.known[0] || !f.known[1] || f.rerouted {
		return true
	}
	for j := first; j < min(end, len(f.hops)); j++ {
		if !f.hops[j].whole {
			return true
		}
	}
	return false
}

// strays adds the switches that are not on the path and whose sketchlets came with packets of the
// flow.
func (f *flowState) strays(i *interval, e *ends) {
	if len(f.hops) == 0 || i.config.Rules.Path == 0 {
		return
	}
	for _, id := range e.devices {
		name, known := i.names[id]
		if !known || slices.ContainsFunc(f.hops, func(h hop) bool { return h.name == name }) {
			continue
		}
		h := i.hop(&f.key, name, f)
		h.off = true
		f.hops = append(f.hops, h)
		x := fault{kind: abnormalPath, name: name}
		if f.sent > 0 && h.Valid {
			x.value = float64(h.Packets) / float64(f.sent)
		}
		f.faults = append(f.faults, x)
	}
}

// all returns all flows of the interval: those with faults first, then the largest. Each fault is
// where most flows have it.
func (i *interval) all() []*flowState {
	out := make([]*flowState, 0, len(i.flows))
	votes := analysis.Votes[string]{}
	i.votes = nil
	for k := range maps.Keys(i.flows) {
		f := i.follow(k)
		for at, n := range f.votes {
			votes[at] += n
		}
		out = append(out, f)
	}
	i.votes = votes
	for j, f := range out {
		if f.votes != nil {
			out[j] = i.follow(f.key)
		}
	}
	slices.SortFunc(out, func(a, b *flowState) int {
		return cmp.Or(cmp.Compare(min(len(b.faults), 1), min(len(a.faults), 1)), cmp.Compare(b.size(), a.size()),
			a.key.Compare(b.key))
	})
	return out
}

// size returns the packets of a flow that its hosts reported.
func (f *flowState) size() uint64 { return max(f.sent, f.got) }
