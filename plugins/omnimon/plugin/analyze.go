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
	hosts    []hostState   // by number
	switches []switchState // by number
	input    analysis.Epoch
	result   *analysis.Result // nil without an analyzer
	elapsed  time.Duration
	problems []alert.Problem
	lateness []late
	// confirmed is the epoch whose results are final since this one; 0: none.
	confirmed uint64
	// inexact are the reasons why results are not exact, apart from bounds.
	inexact []string
	// warned: an accuracy warning concerns the counters of switches too.
	warned bool
	uses   [kinds][]use // of units, in the epoch
	// held are losses that only the report of the host at the end of a link shows, by host.
	held    []heldLoss
	traffic *traffic
}

// hostState is what a host delivered.
type hostState struct {
	name      string
	delivered bool
	problem   string
	summary   wire.Summary
	flows     int
}

// switchState is what a switch delivered.
type switchState struct {
	delivered         bool
	problem           string
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
	p.epoch = epoch.Number
	p.fail(epoch.Plans)
	r := &run{setup: p.setup, epoch: epoch, uses: p.uses}
	if p.unsettled > 0 {
		p.unsettled--
		r.warn("the configuration, hosts or routes changed")
	}
	for _, w := range epoch.AccuracyWarnings {
		r.warn("%s", cmp.Or(w.Device, "all devices")+": "+w.Reason)
	}
	r.warned = len(r.inexact) > 0
	r.readHosts(p.unknown)
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
		for _, w := range r.result.Warnings {
			r.warn("%s", w)
		}
	}
	r.traffic = r.summarize()
	p.results.withdraw(r)
	r.findLosses()
	p.results.confirm(r)
	changed := p.request(epoch.Watched) && r.analyzer != nil
	var writes []sdk.DeviceWrite
	if changed {
		writes = p.assign(p.setup, p.queries(), epoch.Number+1)
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
		out.Plans = append(out.Plans, sdk.Plan{ID: p.plans, FromEpoch: epoch.Number + 1, Writes: writes,
			Hosts: hosts})
	}
	p.newest.Store(&flowIndex{r})
	return out, nil
}

// warn adds an accuracy warning: a reason why results are not exact.
func (r *run) warn(format string, args ...any) {
	r.inexact = append(r.inexact, fmt.Sprintf(format, args...))
}

func (r *run) problem(subject string, k alert.Kind, format string, args ...any) {
	r.problems = append(r.problems, alert.Problem{Subject: subject, Kind: k, Text: fmt.Sprintf(format, args...)})
}

// exact reports whether values without bounds are exact.
func (r *run) exact() bool { return r.result != nil && len(r.inexact) == 0 }

// readHosts sorts the reports by host number. Of a late report only the count of late packets is
// used: its epoch was published as partial.
func (r *run) readHosts(unknown map[string]bool) {
	r.hosts = make([]hostState, len(r.network.hosts))
	r.input.Reports = make([][]byte, len(r.network.hosts))
	for name, n := range r.numbers {
		r.hosts[n].name = name
	}
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
		case h.delivered:
			h.problem = "two agents have its name"
			r.warn("host %s: %s", h.name, h.problem)
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
		if h.name == "" { // it has left; no flow is its own
			r.input.Reports[n] = emptyReport(n, r.epoch.Number, r.config.SlotsPerFlow)
			continue
		}
		if h.delivered {
			for c, count := range h.summary.Counters {
				if c := wire.Counter(c); count > 0 && c.Inexact() && h.problem == "" {
					h.problem = fmt.Sprintf("%d %v", count, c)
				}
			}
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
		} else if state.problem != "" {
			r.warn("switch %s: %s", s.name, state.problem)
		}
	}
	return nil
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
		recorded := make([]int64, r.slots*statistics)
		at := a * c.slots * c.words
		for slot := range r.slots {
			for j, v := range cells[at+slot*c.words : at+slot*c.words+statistics] {
				recorded[slot*statistics+j] = int64(v)
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
	links                []load
	completions          [65]uint64 // by the logarithm of the duration, rounded up
	top                  []*published
	watched              map[flow.Key]*published
}

// load is the flows on a link.
type load struct {
	flows, packets, bytes uint64
	exact                 bool
	top                   top
}

// published is a flow that gets a row.
type published struct {
	analysis.Flow
	lossy *analysis.LossyFlow // nil: it arrived completely
	text  string              // of the flow in the path of a client; empty: the canonical text
}

// top is a heap of the flows with the most packets, the smallest first. order breaks ties, so that
// results do not depend on the workers.
type top []analysis.Flow

func order(a, b *analysis.Flow) int {
	return cmp.Or(cmp.Compare(a.Sent[wire.Packets], b.Sent[wire.Packets]), b.Key.Compare(a.Key))
}

func (t top) Len() int           { return len(t) }
func (t top) Less(i, j int) bool { return order(&t[i], &t[j]) < 0 }
func (t top) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t *top) Push(x any)        { *t = append(*t, x.(analysis.Flow)) }
func (t *top) Pop() any {
	last := (*t)[len(*t)-1]
	*t = (*t)[:len(*t)-1]
	return last
}

// add keeps a flow if it is among the largest.
func (t *top) add(f *analysis.Flow, limit int) {
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
	for i := range out.links {
		out.links[i].exact = true
	}
	if r.result == nil {
		return out
	}
	type share struct {
		traffic
		top top
	}
	shares := make([]share, r.result.Workers())
	for i := range shares {
		shares[i].links = make([]load, len(r.network.links))
	}
	limits := r.config.Limits
	add := func(s *share, f *analysis.Flow) {
		s.packets += uint64(f.Sent[wire.Packets])
		s.bytes += uint64(f.Sent[wire.Bytes])
		if f.Sent[wire.FinRst] > 0 {
			s.completions[bits.Len64(f.Age)]++
		}
		s.top.add(f, limits.Flows)
	}
	on := func(l *load, f *analysis.Flow, v *wire.Values) {
		l.flows++
		l.packets += uint64(v[wire.Packets])
		l.bytes += uint64(v[wire.Bytes])
		l.top.add(f, limits.LinkFlows)
	}
	r.result.Each(func(worker int, f *analysis.Flow) {
		s := &shares[worker]
		add(s, f)
		for i := range f.Path.Hops {
			on(&s.links[f.Path.Hops[i].Link], f, &f.Sent)
		}
		on(&s.links[f.Path.Last], f, &f.Sent)
		if len(out.watched) > 0 {
			if w := out.watched[f.Key]; w != nil {
				w.Flow = *f
			}
		}
	})
	lossy := map[flow.Key]*analysis.LossyFlow{}
	for i := range r.result.Lossy {
		f := &r.result.Lossy[i]
		lossy[f.Key] = f
		s := &shares[0]
		add(s, &f.Flow)
		s.lost += uint64(f.Lost[wire.Packets])
		if w := out.watched[f.Key]; w != nil {
			w.Flow, w.lossy = f.Flow, f
		}
		for hop := range len(f.Path.Hops) + 1 {
			link := f.Path.Last
			if hop < len(f.Path.Hops) {
				link = f.Path.Hops[hop].Link
			}
			v, exact := before(f, 2*hop)
			on(&s.links[link], &f.Flow, &v)
			out.links[link].exact = out.links[link].exact && exact
		}
	}
	for i := range r.result.Unplaced { // between switches, any link may have had them
		f := &r.result.Unplaced[i]
		s := &shares[0]
		add(s, f)
		s.lost += uint64(f.Lost[wire.Packets])
		if w := out.watched[f.Key]; w != nil {
			w.Flow = *f
		}
		received := f.Sent
		received.Sub(&f.Lost)
		on(&s.links[f.Path.From], f, &f.Sent)
		on(&s.links[f.Path.Last], f, &received)
		out.links[f.Path.Last].exact = out.links[f.Path.Last].exact && received == f.Sent
	}
	for i := range out.links {
		_, from := r.network.byName[r.network.links[i].from.Node]
		_, to := r.network.byName[r.network.links[i].to.Node]
		out.links[i].exact = out.links[i].exact && (len(r.result.Unplaced) == 0 || !from || !to)
	}
	var all top
	for i := range shares {
		s := &shares[i]
		out.packets, out.bytes, out.lost = out.packets+s.packets, out.bytes+s.bytes, out.lost+s.lost
		for j, n := range s.completions {
			out.completions[j] += n
		}
		for j := range s.links {
			from, to := &s.links[j], &out.links[j]
			to.flows, to.packets, to.bytes = to.flows+from.flows, to.packets+from.packets, to.bytes+from.bytes
			for k := range from.top {
				to.top.add(&from.top[k], limits.LinkFlows)
			}
		}
		for j := range s.top {
			all.add(&s.top[j], limits.Flows)
		}
	}
	largest := func(a, b analysis.Flow) int { return order(&b, &a) }
	slices.SortFunc(all, largest)
	for i := range out.links {
		slices.SortFunc(out.links[i].top, largest)
	}
	for i := range all {
		out.top = append(out.top, &published{Flow: all[i], lossy: lossy[all[i].Key]})
	}
	return out
}

// before returns the values of a lossy flow in front of an element of its path, the largest that
// are possible unless exact.
func before(f *analysis.LossyFlow, element int) (v wire.Values, exact bool) {
	v, exact = f.Sent, true
	for i := range f.Losses[:element] {
		l := &f.Losses[i]
		switch {
		case l.Exact:
			v.Sub(&l.Values)
		default:
			v[wire.Packets] -= l.Packets.Low
			exact = false
		}
	}
	return v, exact
}

// watched returns the flows that clients subscribe to, without values.
func (r *run) watched() map[flow.Key]*published {
	out := map[flow.Key]*published{}
	for _, row := range r.epoch.Watched {
		if row.List != flowList {
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

// silent returns a flow without packets, or nil if it is not known whether it had any.
func (r *run) silent(key flow.Key) *published {
	source, ok := r.network.addresses[key.SrcAddr()]
	if !ok || r.result == nil || !r.hosts[source.host].delivered {
		return nil
	}
	destination, path := r.network.route(int(source.host), &key)
	if path == nil || !r.hosts[destination].delivered {
		return nil
	}
	return &published{Flow: analysis.Flow{Key: key, Source: int(source.host), Destination: destination, Path: path}}
}

// findLosses names lossy and dead switches and links. In an inexact epoch only the counters of
// switches are evidence of a loss, unless an accuracy warning concerns them too.
func (r *run) findLosses() {
	if r.result == nil {
		return
	}
	for _, w := range r.inexact[:min(len(r.inexact), 1)] {
		r.problem(networkSubject, inexact, "%s (%d reasons)", w, len(r.inexact))
	}
	for i, lost := range r.result.Switches {
		s, sure := &r.switches[i], r.exact()
		if !sure && !r.warned && s.delivered && s.problem == "" {
			lost, sure = counted(int64(s.arrived), int64(s.departed)), true
		}
		all := s.delivered && s.departed == 0 && uint64(lost.Low) == s.arrived
		r.loss(r.network.switches[i].name, lost, sure, all, switchLossy, switchDead, "arrived")
	}
	for i, lost := range r.result.Links {
		sent, received, sure := r.input.Departed[i], r.input.Arrived[i], r.exact()
		if !sure && !r.warned && sent >= 0 && received >= 0 {
			lost, sure = counted(sent, received), true
		}
		all := received == 0 && sent == lost.Low
		found := len(r.problems)
		r.loss(r.network.links[i].name, lost, sure, all, linkLossy, linkDead, "were sent on it")
		r.hold(i, found)
	}
}

// counted is the loss between two counters of switches.
func counted(before, after int64) analysis.Bounds {
	return analysis.Bounds{Low: before - after, High: before - after}
}

// loss names what a switch or link lost, all or not. If that is not sure, alerts neither begin nor
// end.
func (r *run) loss(subject string, lost analysis.Bounds, sure, all bool, lossy, dead alert.Kind, packets string) {
	switch {
	case !sure:
		r.problems = append(r.problems, alert.Problem{Subject: subject, Kind: lossy, Unsure: true},
			alert.Problem{Subject: subject, Kind: dead, Unsure: true})
	case lost.Low <= 0:
	case all:
		r.problem(subject, dead, "it lost all %d packets that %s", lost.Low, packets)
	default:
		r.problem(subject, lossy, "it lost %s", span(lost))
	}
}

// span describes bounds.
func span(b analysis.Bounds) string {
	if b.Exact() {
		return fmt.Sprintf("%d packets", b.Low)
	}
	return fmt.Sprintf("%d to %d packets", b.Low, b.High)
}
