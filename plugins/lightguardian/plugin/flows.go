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
const abnormalPath = "PATH_CHANGED"

// flowState is a flow in an interval, with its estimates from the sketches.
type flowState struct {
	key    flow.Key
	text   string // text of the flow in the path of a client; empty: the canonical text
	from   string // host that sent the flow; empty: not known
	to     string
	sent   uint64
	got    uint64
	known  [2]bool // whether sent and got are known
	hops   []hop   // switches in order
	faults []fault
	votes  analysis.Votes[string] // votes of the flow; nil: it shows no fault

	compared int    // neighbors of the path that reroute compared
	late     uint64 // packets that were sent in the interval and arrived in the next one
	rerouted bool   // several paths were in force
	queued   bool   // many packets were slow at the last switch while the receiver saw a long gap
}

// counted reports whether both hosts counted the flow.
func (f *flowState) counted() bool { return f.known[0] && f.known[1] }

// lost returns the packets that were sent and did not arrive, not even late.
func (f *flowState) lost() uint64 { return f.sent - min(f.sent, f.got+f.late) }

// hop is a flow at a switch.
type hop struct {
	analysis.Hop
	name  string
	last  uint32 // time of the last packet since the interval began, in the unit of sketches
	share float64
	off   bool // whether the hop is off the expected path
	whole bool // whether later columns do not change the hop

	seen   uint32 // packets that the sketch has; Packets may be fewer
	capped bool   // the sketch has more packets than the sender sent
	// unjudged hops are not compared with others: they are not on all paths that were in force, or
	// off the path and not in front of its next place, so that packets were lost anywhere between.
	unjudged bool
	doubt    float64 // probability that the flow did not pass a hop that is not on its path
}

// fault is a fault of a flow at a switch.
type fault struct {
	kind   string
	name   string // name of the switch, or of the receiving host if its link is to blame
	after  string // place before the hop at which the flow was measured; empty: none
	value  float64
	doubt  float64 // the probability that other flows cause it, or hide where it begins
	wrong  float64 // the probability that the flow has no such fault at this place
	turned bool    // a neighbor of the path has the packets that a switch of the path lacks
	unsure bool    // switches between after and name were not measured, or a host did not count the flow
	early  bool    // whether later columns may change the fault
	queued bool    // the packets may have waited in a queue at the end of the interval
}

// place is a fault of a flow at a switch, over time.
type place struct {
	key        flow.Key
	name, kind string
}

// follow returns the flow with its hops and faults, on the path of the newest routes. If several
// paths were in force, only the switches of all paths are judged.
func (i *interval) follow(k flow.Key) *flowState {
	r := i.routes[len(i.routes)-1]
	paths := i.paths(&k)
	f := &flowState{key: k, rerouted: len(paths) > 1}
	f.from, f.to = r.Ends(&k)
	e := i.flows[k]
	if e == nil {
		e = &ends{}
	}
	f.sent, f.got = e.sent, e.received
	f.known = [2]bool{i.measures(f.from), i.measures(f.to)}
	f.late = i.late(k, f.from, f.to)
	f.from, f.to = cmp.Or(e.from, f.from), cmp.Or(e.to, f.to)
	path := r.Path(&k)
	for _, name := range path {
		f.hops = append(f.hops, i.hop(&k, name, f))
	}
	f.wait()
	if !f.rerouted {
		f.reroute(i, r, path)
	}
	for j := range f.hops {
		h := &f.hops[j]
		h.unjudged = !h.off && slices.ContainsFunc(paths, func(p []string) bool { return !slices.Contains(p, h.name) }) ||
			h.off && (j+1 == len(f.hops) || !slices.Contains(r.Neighbors(h.name), f.hops[j+1].name))
	}
	f.confirm(i, r)
	f.locate(i, e, r)
	if !f.rerouted {
		f.strays(i, e, path)
	}
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

// unlikely is the probability below which other flows are excluded as the cause of a finding.
const unlikely = 0.001

// hop returns a flow at a switch. Estimates are not too low, so a flow has at most the packets that
// its host sent, unless it is in a loop: other flows are unlikely to add that many. Packets that
// are late count as if they had left the switch.
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
	h.seen = h.Packets
	h.whole = c.sketch.Whole(key)
	h.Delays, _ = c.sketch.Delays(nil, key)
	_, h.last, _ = c.sketch.MaxInterval(key)
	h.Interval, h.Mixed, _ = c.sketch.OwnInterval(key, h.Packets)
	h.Mixed = !h.Mixed
	h.Excess = func(n uint32) float64 { return c.sketch.Excess(key, n) }
	if f.counted() {
		h.Counted, h.Least = true, uint32(min(f.sent, f.got, math.MaxUint32))
	}
	if !f.known[0] {
		return h
	}
	more := h.Packets - uint32(min(uint64(h.Packets), f.sent))
	h.Shared = more >= max(i.config.Rules.DropPackets, 1)
	h.Mixed = h.Mixed || h.Shared
	if float64(h.Packets) < max(i.config.Rules.Loop, 1)*float64(f.sent) || h.Excess(more) > unlikely {
		h.capped = more > 0
		h.Packets = uint32(min(uint64(h.Packets)+f.late, f.sent))
	}
	return h
}

// wait takes the packets that are late from the hops that they had left: if a hop has a queue and
// the next place lacks packets, they wait there. Otherwise any hop may lack them.
func (f *flowState) wait() {
	behind, here := uint64(0), f.got // late packets that wait behind a hop, and packets at the next place
	for j := len(f.hops) - 1; j >= 0 && f.known[0]; j-- {
		h := &f.hops[j]
		if !h.Valid {
			return
		}
		if slow := len(h.Delays); slow > 0 && h.Delays[slow-1] > 0 {
			passed := min(uint64(h.seen), f.sent)
			behind += min(f.late-behind, passed-min(passed, here))
		}
		if uint64(h.Packets) <= f.sent {
			h.Packets = uint32(min(uint64(h.seen)+f.late-behind, f.sent))
		}
		here = uint64(h.seen)
	}
}

const (
	sameGap = 0.1 // the share by which two measurements of a gap may differ
	// otherGap is the probability that two buckets of a flow have the same gap of another flow.
	otherGap = 0.001
	// nearGap is the share by which a single bucket's gap may differ, and otherNearGap the probability
	// that another flow has a gap so near.
	nearGap      = 0.001
	otherNearGap = 0.01
)

// gap compares the gaps of a flow's buckets at a switch, which other flows share, with the gap
// that the receiver saw. If two have the same one, the packets of the flow came with it; if none
// has one, others may hide it.
func (i *interval) gap(h *hop, f *flowState, e *ends) {
	if !h.Mixed || !h.Valid {
		return
	}
	long := float64(i.config.units(e.receivedGap))
	length := float64(i.config.units(i.length)) * float64(i.epochs)
	gap, seen, ok := i.switches[h.name].sketch.Gap(f.key.AppendBinary(nil), uint32(min(f.sent, uint64(h.seen))),
		uint32(long*(1-sameGap)), uint32(min(long*(1+sameGap), math.MaxUint32)), min(1, long/max(length, 1)))
	h.Seen = seen
	switch {
	case ok:
		h.Interval, h.Mixed, h.Chance = gap, false, otherGap
	case math.Abs(float64(gap)-long) <= nearGap*long:
		h.Interval, h.Mixed, h.Chance = gap, false, otherNearGap
	}
}

const (
	// held compares the slow packets of a flow at a switch with the packets that the flow sends on
	// average in its gap. Below fewHeld times that average, the slow packets do not come from the gap;
	// from someHeld to manyHeld times, they do.
	fewHeld, someHeld, manyHeld = 1. / 3, 0.5, 2
	mostHeld                    = 0.9 // share of all packets of the flow above which there is a queue
	mostSeen                    = 0.9 // probability of showing the gap above which a hop does not have it
	// leastHeld is the least average for which held judges the slow packets.
	leastHeld = 10
	// unheld is the probability that the switch where the gap begins has fewer slow packets than
	// fewHeld times that average, because the flow did not send evenly. surelyUnheld replaces it if
	// the sender never paused for so long that so few packets could be sent in the gap.
	unheld, surelyUnheld = 0.02, 0.001
	// otherHeld is the probability that as many packets of a flow are slow for another reason.
	otherHeld = 0.02
)

// held compares the delays of a flow whose packets all arrived, some after a long gap: the packets
// that the sender sent in the gap were slow where it began. Switches with few slow packets are
// excluded if one behind them has more, and the first one with as many as expected has the gap.
func (f *flowState) held(i *interval, e *ends) {
	length := float64(i.length) * float64(i.epochs)
	if e.sentGap <= 0 || length <= 0 || f.lost() >= uint64(max(i.config.Rules.DropPackets, 1)) {
		return
	}
	mean := float64(f.sent) * min(1, float64(e.receivedGap)/length)
	least := float64(e.receivedGap)/float64(e.sentGap) - 2
	var hidden []float64 // by switch: probability that the gap began there or at an earlier switch
	for j := range f.hops {
		h := &f.hops[j]
		if !h.Valid || h.unjudged || len(h.Delays) <= i.config.rules.SlowRange {
			return
		}
		fast, slow := uint64(0), uint64(0)
		for k, n := range h.Delays {
			if k < i.config.rules.SlowRange {
				fast += uint64(n)
			} else {
				slow += uint64(n)
			}
		}
		doubt := unheld
		if float64(slow) < least {
			doubt = surelyUnheld
		}
		if j > 0 {
			doubt += hidden[j-1]
		}
		if float64(slow) < fewHeld*mean {
			hidden = append(hidden, doubt)
			continue
		}
		f.queued = j+1 == len(f.hops)
		if f.late > 0 || mean < leastHeld { // held packets have not left yet
			return
		}
		for k, doubt := range hidden {
			if f.hops[k].Mixed {
				f.hops[k].Seen = max(f.hops[k].Seen, 1-doubt)
			}
		}
		own, most := float64(f.sent-min(f.sent, fast)), min(manyHeld*mean, mostHeld*float64(f.sent))
		if h.Mixed && h.Seen < mostSeen && own >= someHeld*mean && float64(slow) <= most {
			h.Interval, h.Mixed, h.Chance = i.config.units(e.receivedGap), false, otherHeld
		}
		return
	}
}

// reroute replaces a switch that the flow did not pass by the most likely neighbor of the switch
// before it, unless the neighbor is on the path. The flow passed at least the sender's packets, and
// at most the packets of each hop before.
func (f *flowState) reroute(i *interval, r *routes.Routes, path []string) {
	least := i.config.Rules.Path
	if least == 0 {
		return
	}
	for at := 1; at < len(f.hops); at++ {
		before, h := &f.hops[at-1], &f.hops[at]
		if !before.Valid || !h.Valid {
			continue
		}
		base := uint32(math.MaxUint32)
		if f.known[0] {
			base = uint32(min(f.sent, math.MaxUint32))
		}
		for j := range f.hops[:at] {
			if f.hops[j].Valid {
				base = min(base, f.hops[j].Packets)
			}
		}
		if base < i.config.Rules.Packets || float64(h.Packets) > (1-least)*float64(base) {
			continue
		}
		if f.known[0] && float64(before.Packets) >= max(i.config.Rules.Loop, 1)*float64(f.sent) {
			base = before.Packets // in a loop, the neighbor sees about as many packets as the switch before
		}
		enough, best, doubt := uint32(math.Ceil(least*float64(base))), hop{}, undecided
		for _, name := range r.Neighbors(before.name) {
			if slices.Contains(path, name) || slices.ContainsFunc(f.hops, func(h hop) bool { return h.name == name }) {
				continue
			}
			other := i.hop(&f.key, name, f)
			f.compared++
			if !other.whole {
				h.whole = false // the neighbor may be on the path after all
			}
			if other.Valid && other.Packets >= enough && other.Packets > h.Packets && other.Excess(enough) < doubt {
				best, doubt = other, other.Excess(enough)
			}
		}
		if best.name != "" {
			best.off, best.doubt, best.whole = true, doubt, best.whole && h.whole
			*h = best
		}
	}
}

// rare is the probability below which other flows are excluded as the cause of a detour. Each
// interval compares all places, also of a healthy network.
const rare = 0.0001

// undecided is the doubt about an event that is as likely as not.
const undecided = 0.5

// locate finds the faults that the sketches show. If both hosts have counted the flow, it has
// drops, a loop or a blackhole only if packets are missing, and an abnormal jitter only if the
// receiver sees it and the sender does not (paper, section 6.2: the hosts report victim flows).
// Counts of one host alone are unsure.
func (f *flowState) locate(i *interval, e *ends, r *routes.Routes) {
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
	lost := f.lost()
	// Hosts report the gaps within each epoch, but no gap across the end of an epoch.
	partial := i.config.IntervalEpochs > 1
	if f.counted() {
		if lost < uint64(max(rules.DropPackets, 1)) {
			rules.Drops, rules.Blackhole, rules.Loop = 0, 0, 0
		}
		late := e.receivedGap >= i.config.Rules.JitterTime && float64(e.receivedGap) >= rules.Jitter*float64(e.sentGap)
		if late && !partial {
			for j := range f.hops {
				i.gap(&f.hops[j], f, e)
			}
			f.held(i, e)
		} else if !partial {
			rules.Jitter = 0
		}
	}
	if f.got < uint64(i.config.Rules.Packets) && f.counted() {
		rules.SlowShare = 0 // the delays of so few packets are not known
	}
	path, nodes := f.measured(i, e)
	alone := rules.Locate(nil, path)
	if len(alone) > 0 {
		f.votes = analysis.Votes[string]{}
		f.votes.Count(&rules, nodes, path, alone)
	}
	slow := uint32(0)
	for _, found := range i.votes.Settle(&rules, nodes, path, slices.Clone(alone)) {
		moved := !slices.Contains(alone, found)
		x := fault{kind: found.Fault.String(), name: nodes[found.Hop], value: found.Value, doubt: rules.Doubt(path, found),
			early: moved}
		if moved {
			x.doubt = undecided
		}
		x.wrong = i.votes.Doubt(nodes, found, x.doubt)
		for j := found.Hop - 1; j >= 0; j-- {
			if path[j].Valid {
				x.after = nodes[j]
				break
			}
			x.unsure = true
		}
		for j := 1; j < found.Hop; j++ {
			x.early = x.early || rules.Open(found.Fault, path, j) // votes may move the fault to this hop
		}
		first := 0
		if found.Fault == analysis.InflatedLatency {
			x.after, x.unsure, x.early, first = "", false, false, max(found.Hop-1, 0)
		}
		if found.Fault == analysis.RandomDrops || found.Fault == analysis.Blackhole {
			for j := range f.hops[:min(found.Hop, len(f.hops))] {
				if d := f.hops[j].Delays; len(d) > 0 {
					slow = max(slow, d[len(d)-1])
				}
			}
			x.queued = uint64(slow)*4 >= lost
		}
		if found.Fault == analysis.Loop && f.known[0] {
			// The hop has more packets than were sent, so the hops before it decide nothing.
			x.unsure, x.early, first = false, moved, max(found.Hop-1, 0)
		}
		if found.Fault == analysis.AbnormalJitter && found.Hop > len(f.hops) && f.queued {
			x.unsure = true // the last switch, or a queue behind it, held the packets
		}
		x.unsure = x.unsure || !f.counted()
		x.early = x.early || f.early(first, found.Hop)
		if found.Fault == analysis.Loop && found.Hop <= len(f.hops) {
			x.wrong = f.alone(i, r, f.hops[found.Hop-1])
		}
		f.faults = append(f.faults, x)
		if found.Fault == analysis.Loop && found.Hop <= len(f.hops) {
			f.circle(i, r, f.hops[found.Hop-1], x)
		}
	}
	for j := range f.hops {
		if h := &f.hops[j]; h.off {
			f.faults = append(f.faults, fault{kind: abnormalPath, name: h.name, after: f.hops[max(j-1, 0)].name,
				value: float64(h.Packets) / float64(max(f.hops[max(j-1, 0)].Packets, 1)), doubt: h.doubt,
				unsure: !f.counted(), early: f.early(0, j+1), turned: true})
		}
	}
}

// lack is what a flow lacks at a switch or the receiver, whose place before is measured.
type lack struct {
	name    string
	packets uint64
	of      uint64                 // packets at the place before
	excess  func(n uint32) float64 // probability that other flows add so many packets before
}

// lacks returns where packets of a flow are missing, or wait, in the order of its path.
func (f *flowState) lacks() (out []lack) {
	before, known, excess := f.sent, true, func(uint32) float64 { return 0 }
	for j := range len(f.hops) + 1 {
		name, here, valid := f.to, f.got, true
		if j < len(f.hops) {
			h := &f.hops[j]
			name, here, valid = h.name, uint64(h.seen), h.Valid && !h.unjudged
		}
		if valid && here < before {
			if known {
				out = append(out, lack{name, before - here, before, excess})
			}
			if before = here; j < len(f.hops) {
				excess = f.hops[j].Excess
			}
		}
		known = valid
	}
	return out
}

// came returns how many packets of earlier intervals came to a place at least: those that it has
// and the place before lacks. Losses before the place do not hide them.
func (f *flowState) came(name string) uint64 {
	before := f.sent
	for j := range f.hops {
		if h := &f.hops[j]; h.Valid && !h.unjudged {
			if h.name == name {
				return uint64(h.seen) - min(uint64(h.seen), before)
			}
			before = uint64(h.seen)
		}
	}
	if name != f.to {
		return 0
	}
	return f.got - min(f.got, before)
}

// measured returns the hops that the rules compare, and their names: the sender, if it counted the
// flow, the switches, and the receiver.
func (f *flowState) measured(i *interval, e *ends) (path []analysis.Hop, nodes []string) {
	partial := i.config.IntervalEpochs > 1
	path = append(path, analysis.Hop{Valid: f.known[0], Packets: uint32(min(f.sent, math.MaxUint32)),
		Interval: i.config.units(e.sentGap), Mixed: partial})
	nodes = []string{f.from}
	for j := range f.hops {
		h := f.hops[j].Hop
		h.Valid = h.Valid && !f.hops[j].unjudged
		path, nodes = append(path, h), append(nodes, f.hops[j].name)
	}
	if len(f.hops) > 0 {
		path = append(path, analysis.Hop{Valid: f.known[1], Packets: uint32(min(f.got+f.late, f.sent, math.MaxUint32)),
			Interval: i.config.units(e.receivedGap), Mixed: partial})
		if !f.known[0] {
			path[len(path)-1].Packets = uint32(min(f.got, math.MaxUint32))
		}
		nodes = append(nodes, f.to)
	}
	return path, nodes
}

// confirm restores the packets of hops whose sketches do not exclude that other flows cause a loop:
// if a neighbor is in the loop, too. Switches hash independently of each other, so other flows must
// add the packets at both.
func (f *flowState) confirm(i *interval, r *routes.Routes) {
	if !f.known[0] || f.sent < uint64(i.config.Rules.Packets) ||
		f.counted() && f.lost() < uint64(max(i.config.Rules.DropPackets, 1)) {
		return
	}
	packets := map[string]uint32{}
	for j := range f.hops {
		h := &f.hops[j]
		if !h.capped {
			continue
		}
		names, own := r.Neighbors(h.name), h.Excess
		for _, name := range names {
			other := i.hop(&f.key, name, f)
			doubt := i.looped(f, h, &other)
			if doubt*float64(len(names)) > unlikely {
				continue
			}
			packets[h.name], h.whole = h.seen, h.whole && other.whole
			h.Excess = func(n uint32) float64 { return min(own(n), doubt) }
			break
		}
	}
	for j := range f.hops {
		if n, ok := packets[f.hops[j].name]; ok {
			f.hops[j].Packets, f.hops[j].capped = n, false
		}
	}
}

// looped returns the probability that two neighbors look like a loop of a flow only because other
// flows share its buckets; 1 if they do not look like one. A packet passes all switches of a loop
// equally often, or once more, so the flow's counts at two switches of the loop differ at most by
// the number of sent packets.
func (i *interval) looped(f *flowState, a, b *hop) float64 {
	most, least := max(a.seen, b.seen), min(a.seen, b.seen)
	if !a.Valid || !b.Valid || float64(least) < max(i.config.Rules.Loop, 1)*float64(f.sent) ||
		uint64(most-least) > f.sent {
		return 1
	}
	sent := uint32(f.sent)
	return a.Excess(a.seen-sent) * b.Excess(b.seen-sent)
}

// alone returns the probability that a hop is in no loop because no neighbor of it is: 0 if a
// neighbor has the packets of the loop, too, and 1 if all are measured and none has them.
func (f *flowState) alone(i *interval, r *routes.Routes, at hop) float64 {
	wrong := 1.0
	for _, name := range r.Neighbors(at.name) {
		h := i.hop(&f.key, name, f)
		if !h.Valid || !f.known[0] {
			wrong = undecided
		} else if i.looped(f, &at, &h) < 1 {
			return 0
		}
	}
	return wrong
}

// circle adds the neighbors that are not on the path and are in the loop of a hop.
func (f *flowState) circle(i *interval, r *routes.Routes, at hop, x fault) {
	for _, name := range r.Neighbors(at.name) {
		if slices.ContainsFunc(f.hops, func(h hop) bool { return h.name == name }) ||
			slices.ContainsFunc(f.faults, func(o fault) bool { return o.kind == x.kind && o.name == name }) {
			continue
		}
		h := i.hop(&f.key, name, f)
		if doubt := i.looped(f, &at, &h); doubt <= unlikely {
			x.name, x.after, x.value = name, at.name, float64(h.seen)/float64(max(f.sent, 1))
			x.doubt, x.early = doubt, x.early || !h.whole
			f.faults = append(f.faults, x)
		}
	}
}

// early reports whether later columns or reports may change the findings at the hops from first to
// end, without end.
func (f *flowState) early(first, end int) bool {
	if !f.counted() || f.rerouted {
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
// flow. A switch of the path that reroute replaced has some of the packets, too.
func (f *flowState) strays(i *interval, e *ends, path []string) {
	if len(f.hops) == 0 || i.config.Rules.Path == 0 {
		return
	}
	for _, id := range e.devices {
		name, known := i.names[id]
		if !known || slices.Contains(path, name) ||
			slices.ContainsFunc(f.hops, func(h hop) bool { return h.name == name }) {
			continue
		}
		h := i.hop(&f.key, name, f)
		h.off = true
		f.hops = append(f.hops, h)
		x := fault{kind: abnormalPath, name: name} // a sketchlet cannot be another flow's
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
	i.detours(out)
	i.weigh(out)
	slices.SortFunc(out, func(a, b *flowState) int {
		return cmp.Or(cmp.Compare(min(len(b.faults), 1), min(len(a.faults), 1)), cmp.Compare(b.size(), a.size()),
			a.key.Compare(b.key))
	})
	return out
}

// detours adds the switches of detours that come back to the path, so that no switch of the path
// lacks packets: neighbors of a switch that have the packets of so many flows to one host that
// other flows are unlikely to add them, in any of the places that are compared.
func (i *interval) detours(flows []*flowState) {
	type place struct{ before, name, to string }
	type group struct {
		tested int
		shown  []*flowState
		doubt  float64
	}
	groups := map[place]*group{}
	r, least := i.routes[len(i.routes)-1], i.config.Rules.Path
	known := func(x fault) bool { return x.kind == abnormalPath || x.kind == analysis.Loop.String() }
	for _, f := range flows {
		if least == 0 || !f.counted() || f.rerouted || f.sent < uint64(i.config.Rules.Packets) ||
			slices.ContainsFunc(f.faults, known) {
			continue
		}
		key, enough := f.key.AppendBinary(nil), uint32(math.Ceil(least*float64(min(f.sent, math.MaxUint32))))
		for j := range f.hops[:max(len(f.hops)-1, 0)] {
			for _, name := range r.Neighbors(f.hops[j].name) {
				c := i.switches[name]
				if c == nil || c.sketch == nil || slices.ContainsFunc(f.hops, func(h hop) bool { return h.name == name }) {
					continue
				}
				n, valid := c.sketch.Query(key)
				if !valid {
					continue
				}
				at := place{f.hops[j].name, name, f.to}
				g := groups[at]
				if g == nil {
					g = &group{doubt: 1}
					groups[at] = g
				}
				// Each packet passes a detour once: more than twice the packets are mostly other flows'.
				if g.tested++; n >= enough && uint64(n) <= 2*f.sent {
					g.shown, g.doubt = append(g.shown, f), g.doubt*c.sketch.Excess(key, enough)
				}
			}
		}
	}
	for at, g := range groups {
		doubt := g.doubt * choices(g.tested, len(g.shown)) * float64(len(groups))
		if len(g.shown) == 0 || doubt > rare {
			continue
		}
		// Each flow gets a share of the doubt, so that the shares multiply to the doubt about the place.
		doubt = math.Pow(doubt, 1/float64(len(g.shown)))
		for _, f := range g.shown {
			f.faults = append(f.faults, fault{kind: abnormalPath, name: at.name, after: at.before, value: 1, doubt: doubt,
				early: true})
		}
	}
}

// size returns the packets of a flow that its hosts reported.
func (f *flowState) size() uint64 { return max(f.sent, f.got) }
