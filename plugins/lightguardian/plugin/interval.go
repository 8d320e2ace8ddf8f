// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/netsketch/netsketch/hostagent/lightguardian/wire"
	"github.com/netsketch/netsketch/plugins/lightguardian/analysis"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/routes"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/sumax"
)

// lateEpochs is by how many epochs a report may be late. Columns of an interval that arrive later,
// counted from the last epoch in which switches carry them, are dropped.
const lateEpochs = 4

// interval has the data of one interval: the flows that hosts sent and received in it, and the
// columns of the sketches of switches, which arrive in the next interval.
type interval struct {
	*setup
	number      uint64
	first, last uint64 // epochs
	flows       map[flow.Key]*ends
	switches    map[string]*column
	routes      []*routes.Routes  // routes in force in the interval, the newest last
	reports     map[report]bool   // reports that were read
	parts       map[report]uint64 // parts of each report that were read
	full        map[string]bool   // hosts that did not count the packets of all flows
	hidden      bool              // another role of a host hid the flows of packets
	next        *interval         // next interval, in which the columns arrive; nil: not yet
	votes       analysis.Votes[string]
	unreached   map[string]bool // switches that did not change to its sketch in time, or to the next one
}

// report is the report of a host in an epoch.
type report struct {
	host  string
	epoch uint64
}

// ends is a flow at its hosts.
type ends struct {
	from, to       string // hosts that sent and received the flow; "" if no host reported it
	sent, received uint64
	sentGap        time.Duration // longest time between two packets within one epoch
	receivedGap    time.Duration
	devices        []uint16 // devices whose sketchlets came with the flow's packets, ascending
}

// column is the sketch of a switch.
type column struct {
	sketch      *sumax.Sketch[family.P4] // nil: no column has been received
	late        int                      // columns that arrived first in late reports
	disagreeing uint64                   // columns that arrived with different cells
	unmeasured  uint64                   // unused sketchlets of intervals that the switch did not measure whole
	was         []uint32                 // earlier cells of columns that arrive again
}

// numberOf returns the number of the interval that an epoch is part of.
func (p *Plugin) numberOf(epoch uint64) uint64 { return (epoch + p.shift) / p.setup.epochs }

// at returns an interval by its number; nil if it is over for good, or older than the plugin.
func (p *Plugin) at(number uint64) *interval { return p.intervals[number] }

// open makes the interval of an epoch, and drops the intervals that are over for good.
func (p *Plugin) open(epoch *sdk.Epoch) *interval {
	if p.shift != epoch.BankShift {
		p.shift, p.intervals, p.newest, p.reached = epoch.BankShift, map[uint64]*interval{}, nil, map[uint64][]string{}
	}
	n := p.numberOf(epoch.Number)
	i := p.intervals[n]
	if i == nil {
		first := n * p.setup.epochs
		i = &interval{setup: p.setup, number: n, first: first - min(first, p.shift), flows: map[flow.Key]*ends{},
			switches: map[string]*column{}, reports: map[report]bool{}, parts: map[report]uint64{},
			full: map[string]bool{}, unreached: map[string]bool{}}
		i.last = first + p.setup.epochs - 1 - min(first+p.setup.epochs-1, p.shift)
		p.intervals[n] = i
	}
	i.setup = p.setup
	if len(i.routes) == 0 && p.newest != nil && len(p.newest.routes) > 0 {
		i.routes = p.newest.routes[len(p.newest.routes)-1:] // analysis is later than packets
	}
	if len(i.routes) == 0 || i.routes[len(i.routes)-1] != p.setup.routes {
		i.routes = append(i.routes[:len(i.routes):len(i.routes)], p.setup.routes)
	}
	maps.DeleteFunc(p.intervals, func(_ uint64, old *interval) bool {
		return old.lastReports() < epoch.Number || old.first > epoch.Number
	})
	return i
}

// reach takes from an epoch which switches the collector could not reach. They go on with the
// sketch of their interval. When one is back, it sends sketches that it did not measure, or not
// from the begin to the end: all cells are zero, or too large. These columns are dropped.
func (p *Plugin) reach(epoch *sdk.Epoch) {
	reached := slices.Clone(p.setup.own)
	for _, m := range epoch.Missing {
		if at, ok := slices.BinarySearch(reached, m.Name); ok && !m.Host {
			reached = slices.Delete(reached, at, at+1)
		}
	}
	p.reached[epoch.Number] = reached
	oldest := epoch.Number
	for _, i := range p.intervals {
		oldest = min(oldest, i.first)
		for _, name := range i.own {
			if i.unreached[name] || !p.missed(i.first, name) && !p.missed(i.last+1, name) {
				continue
			}
			i.unreached[name] = true
			if c := i.switches[name]; c != nil && c.sketch != nil {
				c.unmeasured += uint64(math.Round(c.sketch.Received() * float64(i.config.Sketch.Columns)))
				c.sketch = nil
			}
		}
	}
	maps.DeleteFunc(p.reached, func(n uint64, _ []string) bool { return n+1 < oldest })
}

// missed reports whether a switch may have kept its sketch when an epoch began. The switch is then
// missing from the epoch before and from this epoch, of which it measures at most a part. missed
// returns false for an epoch that was skipped or in which the plugin did not run.
func (p *Plugin) missed(epoch uint64, name string) bool {
	reached, known := p.reached[epoch]
	_, now := slices.BinarySearch(reached, name)
	_, before := slices.BinarySearch(p.reached[epoch-1], name)
	return known && !now && !before
}

// settled is the epoch whose results of the interval are the last ones: the last epoch in which
// switches carry it.
func (i *interval) settled() uint64 { return i.last + i.epochs }

// lastReports is the epoch whose reports, late reports included, bring the last columns of the
// interval.
func (i *interval) lastReports() uint64 { return i.settled() + lateEpochs }

// reported is a report of the role of a host.
type reported struct {
	host    string
	epoch   uint64
	late    bool
	report  *wire.Report // nil: the report cannot be used
	problem string
	old     uint64 // sketchlets of older intervals
}

// read parses a report and adds it to the intervals that it is about.
func (p *Plugin) read(h *sdk.HostReport, epoch uint64, late bool) *reported {
	r := &reported{host: h.Host, epoch: epoch, late: late}
	rep, err := wire.ParseReport(h.Data)
	switch {
	case err != nil:
		r.problem = err.Error()
		return r
	case rep.Epoch != epoch:
		r.problem = fmt.Sprintf("the report is of epoch %d; expected %d", rep.Epoch, epoch)
		return r
	}
	i := p.at(p.numberOf(epoch))
	if rep.Part > 0 {
		if i != nil {
			i.parts[report{h.Host, epoch}]++
		}
		r.report = rep
		p.addSketchlets(r)
		return r
	}
	if i != nil && i.reports[report{h.Host, epoch}] {
		r.problem = "a second report of the epoch: two agents have this name"
		return r
	}
	r.report = rep
	for c, n := range rep.Counters {
		if c := wire.Counter(c); n > 0 && inexact(c) {
			r.problem = cmp.Or(r.problem, fmt.Sprintf("%d %v", n, c))
		}
	}
	if i != nil {
		if n := i.parts[report{h.Host, epoch}]; n < rep.Parts {
			r.problem = cmp.Or(r.problem, fmt.Sprintf("%d of %d parts of the report have not arrived", rep.Parts-n, rep.Parts))
		}
		if rep.Counters[wire.Hidden] > 0 { // the flows of the report lack packets
			i.hidden = true
		} else {
			i.reports[report{h.Host, epoch}] = true
			i.addFlows(h.Host, rep.Flows)
		}
		if rep.Counters[wire.FlowsFull] > 0 {
			i.full[h.Host] = true
		}
	}
	p.addSketchlets(r)
	return r
}

// inexact reports whether a counter of a report shows that the report lacks data.
func inexact(c wire.Counter) bool {
	switch c {
	case wire.Full, wire.FlowsFull, wire.Missed, wire.Stale, wire.Unread, wire.WrongWords, wire.UnknownColumn,
		wire.Hidden:
		return true
	}
	return false
}

func (i *interval) addFlows(host string, flows []wire.Flow) {
	for j := range flows {
		f := &flows[j]
		e := i.flows[f.Key]
		if e == nil {
			e = &ends{}
			i.flows[f.Key] = e
		}
		if f.Sent > 0 {
			e.from, e.sent = host, e.sent+f.Sent
			e.sentGap = max(e.sentGap, time.Duration(f.SentGap)*time.Microsecond)
		}
		if f.Received > 0 {
			e.to, e.received = host, e.received+f.Received
			e.receivedGap = max(e.receivedGap, time.Duration(f.ReceivedGap)*time.Microsecond)
		}
		for _, id := range f.Devices {
			if at, known := slices.BinarySearch(e.devices, id); !known {
				e.devices = slices.Insert(e.devices, at, id)
			}
		}
	}
}

// addSketchlets adds the columns of a report to their intervals. In the epochs of an interval
// switches carry the interval before. At its beginning, packets on their way carry an even earlier
// interval, and at its end a host whose epochs begin late receives the next one.
func (p *Plugin) addSketchlets(r *reported) {
	carried := p.numberOf(r.epoch) - 1
	var cells []uint32
	for s := range r.report.All {
		number := carried
		switch uint8(carried) - s.Interval() {
		case 0:
		case 1:
			number--
		case 255:
			number++
		default:
			r.old++
			continue
		}
		i := p.at(number)
		name, known := p.setup.names[s.Device()]
		if !known || i == nil || int(s.Column()) >= p.setup.config.Sketch.Columns {
			r.old++
			continue
		}
		cells = s.Cells(cells[:0])
		if !i.add(name, int(s.Column()), cells, r.late) {
			r.old++
		}
	}
}

// add adds a column of a switch. Of different cells it keeps those with the largest sum, because
// cells only grow while an interval is measured.
func (i *interval) add(name string, at int, cells []uint32, late bool) bool {
	c := i.switches[name]
	if c == nil {
		c = &column{}
		i.switches[name] = c
	}
	if i.unreached[name] {
		c.unmeasured++
		return true
	}
	if c.sketch == nil {
		var err error
		if c.sketch, err = i.config.Sketch.partial(seedOf(name)); err != nil {
			return false // checked with the configuration
		}
	}
	var err error
	if c.was, err = c.sketch.Column(c.was[:0], at); err != nil {
		return false
	}
	receipt, err := c.sketch.SetColumn(at, cells)
	switch {
	case err != nil:
		return false
	case receipt == sumax.First:
		if late {
			c.late++
		}
	case receipt == sumax.Replaced:
		c.disagreeing++
		if sum(c.was) > sum(cells) {
			_, err = c.sketch.SetColumn(at, c.was)
		}
	}
	return err == nil
}

func sum(cells []uint32) (n uint64) {
	for _, c := range cells {
		n += uint64(c)
	}
	return n
}

// late returns the packets that were sent in the interval and arrived in the next one, because they
// waited in a queue: packets that arrived in the next interval and were not sent in it. The true
// number is higher if packets also wait at the end of the next interval. It returns 0 unless both
// hosts have reported the next interval.
func (i *interval) late(k flow.Key, from, to string) uint64 {
	if i.next == nil || i.next.flows[k] == nil {
		return 0
	}
	for e := i.next.first; e <= i.next.last; e++ {
		if i.next.reports[report{from, e}] != i.next.reports[report{to, e}] {
			return 0
		}
	}
	e := i.next.flows[k]
	return e.received - min(e.received, e.sent)
}

// paths returns the paths of a flow by the routes in force in the interval and in those beside it:
// a switch may take its routes before the plugin or after it.
func (i *interval) paths(k *flow.Key) (paths [][]string) {
	all := i.routes
	if i.next != nil {
		all = slices.Concat(all, i.next.routes)
	}
	for j, r := range slices.Backward(all) {
		if slices.Contains(all[j+1:], r) {
			continue
		}
		if p := r.Path(k); !slices.ContainsFunc(paths, func(o []string) bool { return slices.Equal(o, p) }) {
			paths = append(paths, p)
		}
	}
	return paths
}

// share returns the share of the columns of a switch that were received.
func (i *interval) share(name string) float64 {
	if c := i.switches[name]; c != nil && c.sketch != nil {
		return c.sketch.Received()
	}
	return 0
}

// received returns the mean share over all switches.
func (i *interval) received() float64 {
	all := 0.0
	for _, name := range i.own {
		all += i.share(name)
	}
	return all / float64(max(len(i.own), 1))
}

// delivered returns the count of hosts that have reported the whole interval.
func (i *interval) delivered() (n int) {
	for _, host := range i.hosts {
		if i.measures(host) {
			n++
		}
	}
	return n
}

// status is complete if all hosts have reported the interval and all switches have sent columns of
// it.
func (i *interval) status() sdk.Status {
	sending := 0
	for _, name := range i.own {
		if i.share(name) > 0 {
			sending++
		}
	}
	switch {
	case sending == 0:
		return sdk.StatusLost
	case sending < len(i.own) || i.delivered() < len(i.hosts):
		return sdk.StatusPartial
	}
	return sdk.StatusComplete
}
