// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/plugins/omnimon/analysis"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/alert"
	"github.com/netsketch/netsketch/sketch/flow"
)

// run is the analysis of one epoch.
type run struct {
	*setup
	epoch    *sdk.Epoch
	hosts    []hostState   // hosts by number
	switches []switchState // switches by number
	input    analysis.Epoch
	result   *analysis.Result // nil without an analyzer
	elapsed  time.Duration
	problems []alert.Problem
	lateness []late
	settled  *held  // the epoch that is settled in this epoch; nil: no epoch is
	doubt    string // why the losses of that epoch are not known; "" if they are
	pending  bool   // packets are missing, and may arrive later
	settling bool   // tables are built with the values that are final once the epoch is settled
	// inexact are the reasons why no result is exact. Reasons that concern a flow, a host, a switch or
	// a link are its own.
	inexact []string
	// warned: an accuracy warning concerns the counters of all switches too.
	warned     bool
	uses       [kinds][]use    // uses of units in the epoch
	lossAlerts []alert.Problem // lossy and dead switches and links, which are alerts when they are settled
	traffic    *traffic
}

// hostState is the data that a host delivered.
type hostState struct {
	name      string
	delivered bool
	problem   string
	summary   wire.Summary
	flows     int
}

// switchState is the data that a switch delivered.
type switchState struct {
	delivered         bool
	problem           string // why nothing was delivered, or why its counts are not right
	arrived, departed uint64
	noHeader          uint64
	units             [kinds][]uint64 // sums of units
	queue             [][]uint32      // words of used units in egress, by unit, array and slot
}

// Analyze implements sdk.Plugin.
func (p *Plugin) Analyze(ctx context.Context, epoch *sdk.Epoch) (*sdk.Results, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.setup == nil {
		return nil, fmt.Errorf("omnimon: epoch %d before a configuration", epoch.Number)
	}
	p.epoch, p.lag = epoch.Number, max(epoch.Open, epoch.Number+1)-epoch.Number-1
	p.fail(epoch.Plans)
	r := &run{setup: p.setup, epoch: epoch, uses: p.uses}
	if p.unsettled > 0 {
		p.unsettled--
		r.warn("the configuration, hosts or routes changed")
	}
	for _, w := range epoch.AccuracyWarnings {
		if _, ok := r.network.byName[w.Device]; !ok {
			r.warn("%s", cmp.Or(w.Device, "all devices")+": "+w.Reason)
			r.warned = true
		}
	}
	r.readHosts(p.unknown)
	p.refuse(r)
	if err := r.readSwitches(ctx); err != nil {
		return nil, err
	}
	for _, o := range epoch.Plans {
		if o.Status != sdk.PlanApplied {
			r.problem(o.Device, planFailed, "the plan of this configuration is %v: %s", o.Status, o.Reason)
		}
	}
	if r.analyzer != nil {
		start := time.Now()
		r.input.Number = epoch.Number
		r.result = r.analyzer.Analyze(&r.input)
		r.elapsed = time.Since(start)
	}
	r.notices()
	r.traffic = r.summarize()
	r.pending = r.result != nil && r.missing()
	p.results.withdraw(r)
	r.findLosses()
	p.results.settle(r)
	changed := p.request(epoch.Watched) && r.analyzer != nil
	var writes []sdk.DeviceWrite
	if changed {
		writes = p.assign(p.setup, p.queries(), epoch.Number+1+p.lag)
	}
	out, err := r.publish(p)
	if err != nil {
		return nil, fmt.Errorf("epoch %d: %w", epoch.Number, err)
	}
	if changed {
		hosts, err := r.hostSettings(p.queries())
		if err != nil {
			return nil, fmt.Errorf("epoch %d: %w", epoch.Number, err)
		}
		p.plans++
		out.Plans = append(out.Plans, sdk.Plan{ID: p.plans, FromEpoch: epoch.Number + 1 + p.lag, Writes: writes,
			Hosts: hosts})
	}
	p.newest.Store(&flowIndex{r})
	return out, nil
}

// refused are packets that a host refused because of their epoch.
type refused struct {
	host    string
	epoch   uint64 // epoch of the report
	packets uint64
}

// refuse notes which hosts may have refused packets of the epoch, in this epoch or in one of the
// last few: packets of an epoch that had not begun.
func (p *Plugin) refuse(r *run) {
	number := r.epoch.Number
	p.refused = slices.DeleteFunc(p.refused, func(x refused) bool {
		return x.epoch+settleEpochs < number || x.epoch >= number
	})
	r.input.Refused = make([]uint64, len(r.hosts))
	for _, x := range p.refused {
		if n, ok := r.numbers[x.host]; ok {
			r.input.Refused[n] += x.packets
		}
	}
	for n := range r.hosts {
		if h := &r.hosts[n]; h.delivered && h.summary.Counters[wire.UnknownEpoch] > 0 {
			p.refused = append(p.refused, refused{h.name, number, h.summary.Counters[wire.UnknownEpoch]})
		}
	}
}

// notices takes over the findings of the analysis about hosts and switches, and begins their
// alerts.
func (r *run) notices() {
	for _, w := range r.inexact[:min(len(r.inexact), 1)] {
		r.problem(networkLocation, inexact, "%s (%d reasons)", w, len(r.inexact))
	}
	if r.result == nil {
		return
	}
	settled := len(r.inexact) == 0
	for n := range r.hosts {
		h, reason := &r.hosts[n], r.result.Hosts[n]
		if h.name == "" || !h.delivered || reason == "" {
			continue
		}
		h.delivered, h.problem = r.result.Delivered(n), reason
		if settled {
			r.problem(h.name, inexact, "%s", reason)
		}
	}
	for i, reason := range r.result.Elements {
		subject := ""
		if i < len(r.switches) {
			s := &r.switches[i]
			s.problem = cmp.Or(s.problem, reason)
			if s.delivered {
				subject, reason = r.network.switches[i].name, s.problem
			}
		} else {
			subject = r.network.links[i-len(r.switches)].name
		}
		if settled && subject != "" && reason != "" {
			r.problem(subject, inexact, "%s", reason)
		}
	}
}

// warn adds a reason why no result is exact.
func (r *run) warn(format string, args ...any) {
	r.inexact = append(r.inexact, fmt.Sprintf(format, args...))
}

func (r *run) problem(subject string, k alert.Kind, format string, args ...any) {
	r.problems = append(r.problems, alert.Problem{Location: subject, Kind: k, Text: fmt.Sprintf(format, args...)})
}

// missing reports whether packets are missing, or may be, so that a later count may change the
// results.
func (r *run) missing() bool {
	x := r.result
	unknown := func(f analysis.Flow) bool { return !f.Known() }
	loses := func(b analysis.Bounds) bool { return b != analysis.Bounds{} }
	return r.traffic.lost > 0 || x.Unknown || len(x.Open)+len(x.Odd)+len(x.Contradictions) > 0 ||
		slices.ContainsFunc(x.Unplaced, unknown) || slices.ContainsFunc(x.Switches, loses) ||
		slices.ContainsFunc(x.Links, loses)
}

// provisional reports whether the losses in the tables may change until the epoch is settled.
func (r *run) provisional() bool { return r.pending && !r.settling }

// pendingReason is the reason why values that depend on missing packets are not exact, "" if they
// are.
func (r *run) pendingReason(missing bool) string {
	if missing && r.provisional() {
		return "packets are missing and may be late: settled four epochs later"
	}
	return ""
}

// exact reports whether values without bounds are exact.
func (r *run) exact() bool { return r.result != nil && len(r.inexact) == 0 }

// readHosts sorts the reports by host number. Of a late report only the count of late packets is
// used: its epoch was published without it.
func (r *run) readHosts(unknown map[string]bool) {
	r.hosts = make([]hostState, len(r.network.hosts))
	r.input.Reports = make([][]byte, len(r.network.hosts))
	for name, n := range r.numbers {
		r.hosts[n].name = name
	}
	double := map[int]bool{} // hosts with two reports
	for i := range r.epoch.Hosts {
		report := &r.epoch.Hosts[i]
		if report.Role != wire.Role {
			continue
		}
		n, ok := r.numbers[report.Host]
		if !ok {
			if !unknown[report.Host] {
				unknown[report.Host] = true
				r.problem(report.Host, hostMissing, "a report of a host that is not in the network model")
			}
			continue
		}
		h := &r.hosts[n]
		rep, err := wire.Open(report.Data)
		switch {
		case err != nil:
			h.problem = err.Error()
		case rep.Epoch != r.epoch.Number:
			h.problem = cmp.Or(h.problem, fmt.Sprintf("its report of epoch %d arrived too late", rep.Epoch))
		case rep.Host != n:
			h.problem = fmt.Sprintf("it has number %d in its report instead of %d: its settings are outdated", rep.Host, n)
		case double[n]:
		case h.delivered:
			h.delivered, h.problem = false, "two agents have its name"
			r.input.Reports[n] = nil
			double[n] = true
		default:
			r.late(h.name, &rep.Summary)
			h.delivered, h.summary, h.flows = true, rep.Summary, rep.EgressRows
			r.input.Reports[n] = report.Data
		}
	}
	for i := range r.epoch.Late {
		report := &r.epoch.Late[i]
		if n, ok := r.numbers[report.Host]; ok && report.Role == wire.Role {
			if rep, err := wire.Open(report.Data); err == nil && rep.Host == n && rep.Epoch == report.Epoch {
				r.late(report.Host, &rep.Summary)
			}
		}
	}
	missing := r.epoch.MissingHosts()
	for n := range r.hosts {
		h := &r.hosts[n]
		if h.name == "" { // the host has left and has no flows
			r.input.Reports[n] = emptyReport(n, r.epoch.Number, r.config.SlotsPerFlow)
			continue
		}
		if h.delivered {
			continue
		}
		m := missing[h.name]
		h.problem = cmp.Or(h.problem, m.Reason, "no report arrived")
		r.problems = append(r.problems, alert.OfMissing(h.name, hostMissing, h.problem, m))
	}
}

// emptyReport is the report of a host without traffic.
func emptyReport(host int, epoch uint64, slotsPerFlow int) []byte {
	var b wire.Builder
	b.Begin(&wire.Summary{Host: host, Epoch: epoch}, slotsPerFlow, 0)
	b.BeginIngress(0)
	return b.Data
}

// readSwitches decodes the slots and port counters of all switches.
func (r *run) readSwitches(ctx context.Context) error {
	n := r.network
	r.switches = make([]switchState, len(n.switches))
	r.input.Recorded = make([][]int64, n.arrays)
	r.input.Arrived, r.input.Departed = make([]int64, len(n.links)), make([]int64, len(n.links))
	for i := range n.links {
		r.input.Arrived[i], r.input.Departed[i] = -1, -1
	}
	missing := map[string]string{}
	for _, m := range r.epoch.Missing {
		if !m.Host {
			missing[m.Name] = cmp.Or(m.Reason, "no reason given")
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for i := range n.switches {
		s, state := &n.switches[i], &r.switches[i]
		if s.counts == nil {
			state.problem = "its program does not measure"
			continue
		}
		if state.problem = missing[s.name]; state.problem != "" {
			continue
		}
		group.Go(func() error {
			r.readSwitch(s, state)
			return ctx.Err()
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i := range n.switches {
		s, state := &n.switches[i], &r.switches[i]
		if s.counts == nil {
			continue
		}
		if !state.delivered {
			r.problem(s.name, switchMissing, "%s", state.problem)
			continue
		}
		for _, w := range r.epoch.AccuracyWarnings {
			if w.Device == s.name {
				state.problem = cmp.Or(state.problem, w.Reason)
			}
		}
		if state.problem != "" {
			r.leaveOut(int32(i))
		}
	}
	return nil
}

// leaveOut leaves the counts of a switch out of the equations.
func (r *run) leaveOut(number int32) {
	s := &r.network.switches[number]
	clear(r.input.Recorded[s.array : int(s.array)+s.counts.arrays])
	for port := range s.arrayOf {
		ends := r.network.at[sdk.Endpoint{Node: s.name, Port: port}]
		r.input.Arrived[ends[0]], r.input.Departed[ends[1]] = -1, -1
	}
}

// readSwitch decodes one switch. It is called concurrently for different switches.
func (r *run) readSwitch(s *swtch, state *switchState) {
	data := r.epoch.Device(s.name)
	if data == nil {
		state.problem = "nothing was delivered"
		return
	}
	cells, err := cellsOf(data, s.counts.object)
	c := s.counts
	if err == nil && len(cells) < max(c.arrays*c.slots*c.words, c.arrived+c.ports, c.departed+c.ports) {
		err = fmt.Errorf("%s: %d cells were delivered, too few", c.object, len(cells))
	}
	if err != nil {
		state.problem = err.Error()
		return
	}
	for a := range c.arrays {
		words := statistics + len(r.config.Extremes)
		recorded := make([]int64, r.slots*words)
		at := a * c.slots * c.words
		for slot := range r.slots {
			for j, v := range cells[at+slot*c.words : at+slot*c.words+words] {
				recorded[slot*words+j] = int64(v)
			}
		}
		r.input.Recorded[int(s.array)+a] = recorded
	}
	for _, v := range cells[c.arrived : c.arrived+c.ports] {
		state.arrived += uint64(v)
	}
	for _, v := range cells[c.departed : c.departed+c.ports] {
		state.departed += uint64(v)
	}
	for port := range s.arrayOf {
		if int(port) >= c.ports {
			continue
		}
		ends := r.network.at[sdk.Endpoint{Node: s.name, Port: port}]
		r.input.Arrived[ends[0]] = int64(cells[c.arrived+int(port)])
		r.input.Departed[ends[1]] = int64(cells[c.departed+int(port)])
	}
	state.units = c.sumUnits(cells)
	state.queue = c.queueWords(cells, r.uses[inEgress])
	state.delivered = true
	if c.uncounted == "" {
		return
	}
	if cells, err = cellsOf(data, c.uncounted); err != nil {
		state.problem = err.Error()
		return
	}
	if c.noHeader >= 0 && c.noHeader < len(cells) {
		state.noHeader = uint64(cells[c.noHeader])
	}
	if c.badSlot >= 0 && c.badSlot < len(cells) && cells[c.badSlot] > 0 {
		state.problem = fmt.Sprintf("%d packets had a slot that does not exist", cells[c.badSlot])
	}
}

func cellsOf(d *sdk.DeviceData, object string) ([]uint32, error) {
	c := d.Object(object)
	if c == nil {
		return nil, fmt.Errorf("%s was not delivered", object)
	}
	if err := c.Check(); err != nil {
		return nil, err
	}
	if c.Width != 32 {
		return nil, fmt.Errorf("%s: cells of %d bits were delivered, expected 32", object, c.Width)
	}
	return c.Uint32s(), nil
}

// traffic is the sums over all flows of an epoch.
type traffic struct {
	packets, bytes, lost uint64
	untagged             uint64 // packets without a header, of flows with an entry
	untracked, foreign   uint64 // packets of flows that no report has
	headerless           uint64 // packets that hosts received without a header
	inexact              uint64 // flows whose results are not exact
	rows                 uint64 // rows of flows, hops and flows of links without limits
	links                []load
	completions          [65]uint64 // completions by the logarithm of the duration, rounded up
	top                  []*published
	watched              map[flow.Key]*published
}

// load is the flows on a link.
type load struct {
	flows, packets, bytes uint64
	tagged                int64 // packets with a header
	inexact               bool
	undetermined          bool // whether flows lost packets here or elsewhere is not known
	lossy                 bool // packets of flows on the link are missing
	top                   top
}

// published is a flow that has a row of its own in the results.
type published struct {
	analysis.Flow
	lossy  *analysis.LossyFlow // nil: the flow has no known losses
	text   string              // text of the flow in the path of a client; empty: the canonical text
	reason string              // reason for which the flow's values at its source are unknown
	// reported: a report has the flow.
	reported bool
}

// volume returns the packets and bytes that the source sent of a flow, with and without a header.
func volume(f *analysis.Flow) (packets, bytes uint64) {
	return uint64(f.Sent[wire.Packets]) + f.Untagged.Packets, uint64(f.Sent[wire.Bytes]) + f.Untagged.Bytes
}

// amount is the packets and bytes that a flow sent on a link, with and without a header.
type amount struct {
	packets analysis.Bounds
	bytes   int64 // at most
	exact   bool  // bytes are exact
}

// ranked is a flow and the amount by which it is ranked.
type ranked struct {
	analysis.Flow
	amount
}

// top is a heap of the flows with the most packets, the smallest first. order breaks ties, so that
// results do not depend on the workers.
type top []ranked

// order compares what flows sent at least, then at most.
func order(a, b *ranked) int {
	return cmp.Or(cmp.Compare(a.packets.Low, b.packets.Low), cmp.Compare(a.packets.High, b.packets.High),
		b.Key.Compare(a.Key))
}

func (t top) Len() int           { return len(t) }
func (t top) Less(i, j int) bool { return order(&t[i], &t[j]) < 0 }
func (t top) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t *top) Push(x any)        { *t = append(*t, x.(ranked)) }
func (t *top) Pop() any {
	last := (*t)[len(*t)-1]
	*t = (*t)[:len(*t)-1]
	return last
}

// add keeps a flow if it is among the largest.
func (t *top) add(f *ranked, limit int) {
	switch {
	case len(*t) < limit:
		heap.Push(t, *f)
	case limit > 0 && order(&(*t)[0], f) < 0:
		(*t)[0] = *f
		heap.Fix(t, 0)
	}
}

// summarize adds up all flows.
func (r *run) summarize() *traffic {
	out := &traffic{links: make([]load, len(r.network.links)), watched: r.watched()}
	if r.result == nil {
		return out
	}
	ofLink := r.config.Limits.LinkFlows
	ofLink = max(ofLink/max(len(r.network.links), 1), min(ofLink, 1))
	shares := make([]subtotal, r.result.Workers())
	for i := range shares {
		shares[i].run, shares[i].links, shares[i].ofLink = r, make([]load, len(r.network.links)), ofLink
	}
	r.result.Each(func(worker int, f *analysis.Flow) {
		s := &shares[worker]
		s.flow(f)
		for hop := range len(f.Path.Hops) + 1 {
			s.link(f, hop, analysis.Bounds{}, 0, true)
		}
		if len(out.watched) > 0 {
			if w := out.watched[f.Key]; w != nil {
				w.Flow, w.reason, w.reported = *f, "", true
			}
		}
	})
	s, lossy := &shares[0], map[flow.Key]*analysis.LossyFlow{}
	for _, flows := range [][]analysis.LossyFlow{r.result.Lossy, r.result.Open} {
		for i := range flows {
			lossy[flows[i].Key] = &flows[i]
			s.lossy(&flows[i], out.watched)
		}
	}
	for _, flows := range [][]analysis.Flow{r.result.Unplaced, r.result.Odd} {
		for i := range flows {
			s.unplaced(&flows[i], out.watched)
		}
	}
	var top top
	for i := range shares {
		out.add(&shares[i].traffic, ofLink)
		for j := range shares[i].top {
			top.add(&shares[i].top[j], r.config.Limits.Flows)
		}
	}
	largest := func(a, b ranked) int { return order(&b, &a) }
	slices.SortFunc(top, largest)
	for i := range out.links {
		slices.SortFunc(out.links[i].top, largest)
	}
	for i := range top {
		out.top = append(out.top, &published{Flow: top[i].Flow, lossy: lossy[top[i].Key], reported: true})
	}
	for n := range r.hosts {
		c := &r.hosts[n].summary.Counters
		out.untracked += c[wire.Untracked]
		out.foreign += c[wire.Foreign]
		out.headerless += c[wire.NoHeader]
	}
	return out
}

// subtotal is the traffic of the flows of one worker.
type subtotal struct {
	*run
	traffic
	top    top
	ofLink int // flows that each link has
}

// flow adds a flow to the totals.
func (s *subtotal) flow(f *analysis.Flow) {
	packets, bytes := volume(f)
	s.packets, s.bytes, s.untagged = s.packets+packets, s.bytes+bytes, s.untagged+f.Untagged.Packets
	if !s.result.Exact(f) {
		s.traffic.inexact++
	}
	if f.Sent[wire.FinRst] > 0 {
		s.completions[bits.Len64(f.Age)]++
	}
	s.rows += 1 + uint64(len(f.Path.Hops))
	sent := analysis.Bounds{Low: int64(packets), High: int64(packets)}
	s.top.add(&ranked{*f, amount{packets: sent}}, s.config.Limits.Flows)
}

// link adds a flow to the link in front of a hop of its path, or to its last link. lost are the
// packets that the flow lost before, and bytes are their bytes, at least; exact: they are exact. It
// is not known where packets without a header were lost, but the first link had them.
func (s *subtotal) link(f *analysis.Flow, hop int, lost analysis.Bounds, bytes int64, exact bool) {
	link := f.Path.Last
	switch {
	case hop < len(f.Path.Hops):
		link = f.Path.Hops[hop].Link
	case hop == 0:
		link = f.Path.From
	}
	packets, size := volume(f)
	v := amount{packets: analysis.Bounds{Low: int64(packets) - lost.High, High: int64(packets) - lost.Low},
		bytes: int64(size) - bytes, exact: exact && s.result.AllSent(f)}
	if hop > 0 {
		v.packets.Low = max(v.packets.Low-int64(f.Untagged.Packets), 0)
	}
	l := &s.links[link]
	l.flows++
	l.tagged += f.Sent[wire.Packets] - lost.Low
	l.packets += uint64(v.packets.High)
	l.bytes += uint64(v.bytes)
	l.inexact = l.inexact || !s.result.AllSent(f)
	l.undetermined, l.lossy = l.undetermined || !exact, l.lossy || lacksPackets(f)
	if v.packets.High > 0 {
		s.rows++
		l.top.add(&ranked{*f, v}, s.ofLink)
	}
}

// inexactFlow adds a flow with losses, or with an unknown path, to the totals and to the watched
// flows.
func (s *subtotal) inexactFlow(f *analysis.Flow, l *analysis.LossyFlow, watched map[flow.Key]*published) {
	s.flow(f)
	if f.Known() {
		s.lost += uint64(f.Lost[wire.Packets])
	}
	if w := watched[f.Key]; w != nil {
		w.Flow, w.lossy, w.reason, w.reported = *f, l, "", true
	}
}

// lossy adds a flow that lost packets on a known path.
func (s *subtotal) lossy(f *analysis.LossyFlow, watched map[flow.Key]*published) {
	s.inexactFlow(&f.Flow, f, watched)
	for hop := range len(f.Path.Hops) + 1 {
		lost, bytes, exact := lostBefore(f, 2*hop)
		s.link(&f.Flow, hop, lost, bytes, exact)
	}
}

// unplaced adds a flow whose losses have no place. All of its packets may have reached each link of
// its path; only the first and the last link count them if the path is not known.
func (s *subtotal) unplaced(f *analysis.Flow, watched map[flow.Key]*published) {
	s.inexactFlow(f, nil, watched)
	if f.Path.Last < 0 {
		return
	}
	lost := analysis.Bounds{High: f.Lost[wire.Packets]}
	if !f.Known() { // more packets may have arrived than were sent
		lost = analysis.Bounds{Low: min(f.Lost[wire.Packets], 0), High: f.Sent[wire.Packets]}
	}
	s.link(f, 0, analysis.Bounds{Low: lost.Low}, 0, true)
	hops := max(len(f.Path.Hops), 1)
	for hop := 1; hop <= hops; hop++ {
		s.link(f, hop, lost, 0, lost == analysis.Bounds{})
	}
}

// add adds the totals and links of a worker; linkFlows bounds the flows of a link.
func (t *traffic) add(s *traffic, linkFlows int) {
	t.packets, t.bytes, t.lost = t.packets+s.packets, t.bytes+s.bytes, t.lost+s.lost
	t.untagged, t.inexact, t.rows = t.untagged+s.untagged, t.inexact+s.inexact, t.rows+s.rows
	for i, n := range s.completions {
		t.completions[i] += n
	}
	for i := range s.links {
		from, to := &s.links[i], &t.links[i]
		to.flows, to.packets, to.bytes = to.flows+from.flows, to.packets+from.packets, to.bytes+from.bytes
		to.tagged, to.inexact = to.tagged+from.tagged, to.inexact || from.inexact
		to.undetermined, to.lossy = to.undetermined || from.undetermined, to.lossy || from.lossy
		for k := range from.top {
			to.top.add(&from.top[k], linkFlows)
		}
	}
}

// linkReason returns why the load of a link is not exact, "" if it is.
func (r *run) linkReason(number int) string {
	l, load := &r.network.links[number], &r.traffic.links[number]
	from, isSwitch := r.network.byName[l.from.Node]
	_, toSwitch := r.network.byName[l.to.Node]
	element := r.result.Elements[len(r.switches)+number]
	switch host := r.numbers[l.from.Node]; {
	case len(r.inexact) > 0:
		return r.inexact[0]
	case element != "":
		return element
	case !isSwitch && r.hosts[host].name == l.from.Node && !r.result.Complete(host):
		return fmt.Sprintf("host %s: %s", l.from.Node, cmp.Or(r.hosts[host].problem, "its flows are unknown"))
	case load.inexact:
		return "flows on it are not exact"
	case len(r.result.Unplaced) > 0 && isSwitch && toSwitch:
		return "the path of a flow is not determined"
	case r.result.Unknown && isSwitch && r.input.Departed[number] != load.tagged:
		return "flows that no host reported may have passed it"
	case isSwitch && r.traffic.untracked > 0 && (!r.switches[from].delivered || r.switches[from].noHeader > 0):
		return "packets of flows that a full flow table has no entry for may have passed it"
	case load.undetermined:
		return undetermined
	}
	return r.pendingReason(load.lossy)
}

// undetermined is the reason of a load of which an upper bound is known.
const undetermined = "it is not determined where flows on it lost packets"

// lostBefore returns the packets that a flow lost at the first elements of its path, and at least
// the bytes of these packets. exact states that the bytes are exact.
func lostBefore(f *analysis.LossyFlow, elements int) (packets analysis.Bounds, bytes int64, exact bool) {
	exact = true
	for i := range f.Losses[:elements] {
		l := &f.Losses[i]
		packets.Low, packets.High = packets.Low+l.Packets.Low, packets.High+l.Packets.High
		if l.Exact {
			bytes += l.Values[wire.Bytes]
		}
		exact = exact && l.Exact
	}
	behind, lost := analysis.Bounds{}, f.Lost[wire.Packets]
	for i := range f.Losses[elements:] {
		l := &f.Losses[elements+i]
		behind.Low, behind.High = behind.Low+l.Packets.Low, behind.High+l.Packets.High
	}
	packets.High = min(packets.High, lost-behind.Low)
	if !f.Open {
		packets.Low = max(packets.Low, lost-behind.High)
	}
	switch {
	case packets.High == 0:
		return packets, 0, true
	case packets.Low == lost:
		return packets, f.Lost[wire.Bytes], true
	}
	return packets, bytes, exact
}

// watched returns the flows that clients subscribe to, or to their hops, without values.
func (r *run) watched() map[flow.Key]*published {
	out := map[flow.Key]*published{}
	for _, row := range r.epoch.Watched {
		if row.List != flowList && row.List != hopList {
			continue
		}
		key, err := flow.Parse(flow.FiveTuple, row.Keys["flow"])
		if err != nil {
			continue
		}
		if p := r.silent(key); p != nil {
			p.text = row.Keys["flow"]
			out[key] = p
		}
	}
	return out
}

// silent returns a flow that no report has: without packets, or with a reason why it may have some.
// It returns nil if its hosts have no agent.
func (r *run) silent(key flow.Key) *published {
	source, ok := r.network.addresses[key.SrcAddr()]
	if !ok || r.result == nil {
		return nil
	}
	destination, path := r.network.route(int(source.host), &key)
	if path == nil {
		return nil
	}
	f := &published{Flow: analysis.Flow{Key: key, Source: int(source.host), Destination: destination, Path: path}}
	switch h := &r.hosts[source.host]; {
	case h.name == "":
		return nil
	case !h.delivered:
		f.reason = fmt.Sprintf("host %s, its source, is missing", h.name)
	case !r.result.Complete(int(source.host)):
		f.reason = fmt.Sprintf("host %s: %s", h.name, h.problem)
	}
	return f
}

// flowReason returns why a flow is not exact, "" if it is.
func (r *run) flowReason(f *published) string {
	if len(r.inexact) > 0 {
		return r.inexact[0]
	}
	return cmp.Or(f.reason, r.result.Reason(&f.Flow))
}

// findLosses names lossy and dead switches and links. Where nothing is exact, only the counters of
// switches are evidence of a loss, unless a warning concerns them too.
func (r *run) findLosses() {
	if r.result == nil {
		return
	}
	for i, lost := range r.result.Switches {
		s, sure := &r.switches[i], r.exact() && r.switches[i].problem == ""
		if !sure && !r.warned && s.delivered && s.problem == "" {
			lost, sure = counted(int64(s.arrived), int64(s.departed)), true
		}
		all := s.delivered && s.departed == 0 && uint64(lost.Low) == s.arrived
		r.loss(r.network.switches[i].name, lost, sure, all, "arrived")
	}
	for i, lost := range r.result.Links {
		sent, received, problem := r.input.Departed[i], r.input.Arrived[i], r.result.Elements[len(r.switches)+i]
		sure := r.exact() && problem == ""
		if !sure && !r.warned && problem == "" && sent >= 0 && received >= 0 {
			lost, sure = counted(sent, received), true
		}
		all := received == 0 && sent == lost.Low
		r.loss(r.network.links[i].name, lost, sure, all, "were sent on it")
	}
}

// counted is the loss between two counters of switches.
func counted(before, after int64) analysis.Bounds {
	return analysis.Bounds{Low: before - after, High: before - after}
}

// loss begins or ends the alert of a switch or link that lost packets. all states that it lost all
// of them. Without certainty, alerts neither begin nor end.
func (r *run) loss(subject string, lost analysis.Bounds, sure, all bool, packets string) {
	switch {
	case !sure:
		r.lossAlerts = append(r.lossAlerts, alert.Problem{Location: subject, Kind: lossy, Unsure: true},
			alert.Problem{Location: subject, Kind: dead, Unsure: true})
	case lost.Low <= 0:
	case all:
		r.lossAlerts = append(r.lossAlerts, alert.Problem{Location: subject, Kind: dead,
			Text: fmt.Sprintf("it lost all %d packets that %s in epoch %d", lost.Low, packets, r.epoch.Number)})
	default:
		r.lossAlerts = append(r.lossAlerts, alert.Problem{Location: subject, Kind: lossy,
			Text: fmt.Sprintf("it lost %s in epoch %d", span(lost), r.epoch.Number)})
	}
}

// span describes bounds.
func span(b analysis.Bounds) string {
	switch {
	case b.Exact():
		return fmt.Sprintf("%d packets", b.Low)
	case b.High == analysis.Unlimited:
		return fmt.Sprintf("at least %d packets", b.Low)
	}
	return fmt.Sprintf("%d to %d packets", b.Low, b.High)
}
