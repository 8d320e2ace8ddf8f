// SPDX-License-Identifier: Apache-2.0

// Package analysis is OmniMon's collective analysis (paper, algorithm 4): it joins the counts of
// hosts and switches of one epoch, and attributes lost packets to switches and links.
//
// A flow that arrived completely has the values of its source at every switch of its path. Losses
// of lossy flows are inferred, see losses.go. Missing data of a host, a switch or a flow does not
// affect the others. docs/omnimon.md describes the method.
package analysis

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/plugins/omnimon/linear"
	"github.com/netsketch/netsketch/sketch/flow"
)

// Hop is a switch on a path.
type Hop struct {
	// Link is the directed link by which packets enter the switch.
	Link int32
	// Switch is the number of the switch.
	Switch int32
	// Array is the slot array that counts the packets: the switch's, or the array of its port. None:
	// the switch does not measure.
	Array int32
}

// None is the Array of a switch that does not measure. It leaves the count of hops in the header as
// it is, so the next switch that measures uses the slot in its place.
const None = -1

// Path is the path of a flow through at least one switch.
type Path struct {
	// Hops are empty if they were sought and are not determined.
	Hops []Hop
	// Last is the link to the destination.
	Last int32
	// From is the link from the source. It is set if Hops are empty.
	From int32
}

// first is the link from the source.
func (p *Path) first() int32 {
	if len(p.Hops) == 0 {
		return p.From
	}
	return p.Hops[0].Link
}

// Host is the end of a link that is no switch.
const Host = -1

// Link is a directed link between two switches, or between a switch and a Host.
type Link struct{ From, To int32 }

// Network has the facts about the network and the hosts' settings that the analysis needs. Route is
// called concurrently.
type Network struct {
	Hosts, Switches, Arrays int
	Links                   []Link
	// Uplinks and Downlinks are by host the links from it and to it; -1: none.
	Uplinks, Downlinks []int32
	// SwitchOf is the switch of each array.
	SwitchOf []int32
	// Flows is the size of the hosts' flow tables.
	Flows int
	// Slots of an array per epoch, and slots per flow.
	Slots, SlotsPerFlow int
	// Values is the count of statistics that switches record, the first ones of wire.Values. A slot
	// has the sums of their values, then the sums of the differences of Extremes maxima and minima.
	Values, Extremes int
	// Bits is the width of the switches' counters. A slot must lose less than 2^(Bits-1) of any
	// statistic in an epoch.
	Bits int
	// Route returns the destination of a flow and its path, or nil if it has none.
	Route func(source int, k *flow.Key) (destination int, path *Path)
	// Search, if set, replaces Route.
	Search *Search
	// HostNames are the hosts' names in reasons; without names, reasons have numbers.
	HostNames []string
}

// words is the count of numbers in a slot.
func (n *Network) words() int { return n.Values + n.Extremes }

// statistic is the statistic of a number in a slot.
func (n *Network) statistic(word int) wire.Statistic {
	if word < n.Values {
		return wire.Statistic(word)
	}
	return wire.FirstExtreme + wire.Statistic(word-n.Values)
}

// Epoch has the counts of hosts and switches in one epoch.
type Epoch struct {
	Number uint64
	// Reports are the hosts' reports by host number; nil, or beyond the end: missing.
	Reports [][]byte
	// Refused are by host packets of this epoch that it may have received and refused to count in an
	// earlier one. They are optional.
	Refused []uint64
	// Recorded are the slots by array, Values and Extremes numbers for each slot; nil: missing.
	Recorded [][]int64
	// Arrived and Departed count the packets with a header that switches received and sent, by link;
	// -1: not counted. They are optional.
	Arrived, Departed []int64
}

// Analyzer analyzes epochs one after the other. It keeps memory between epochs.
type Analyzer struct {
	net       Network
	refs      [][]atomic.Pointer[refPage] // by source host and host index
	workers   []worker
	distances []int32 // distances of switches from hosts, with Search
}

// refPage has references for host indexes that follow one another: where the row of a flow is at
// its destination, plus one. Pages are allocated as flows appear.
type refPage [256]atomic.Uint64

// ref returns the reference for a flow. Without a page it allocates one, or returns nil.
func (a *Analyzer) ref(source int, index uint32, allocate bool) *atomic.Uint64 {
	at := &a.refs[source][index/uint32(len(refPage{}))]
	p := at.Load()
	if p == nil {
		if !allocate {
			return nil
		}
		if p = new(refPage); !at.CompareAndSwap(nil, p) {
			p = at.Load()
		}
	}
	return &p[index%uint32(len(p))]
}

// worker is one goroutine's share of the work.
type worker struct {
	number         int
	expected       []int64 // expected counts, by array, slot and statistic
	sent, received []int64 // packets by link
	lossy          []LossyFlow
	open           []LossyFlow
	unplaced       []LossyFlow // flows without a path, with or without losses
	odd            []Flow
	arrived        []int // flows that arrived less flows that were sent, by source
	flows          int   // number of flows that were sent
}

// New returns an analyzer that uses all processors.
func New(net Network) (*Analyzer, error) {
	switch {
	case net.Values < 1 || net.Values > int(wire.FirstExtreme):
		return nil, fmt.Errorf("%d statistics: 1 to %d are possible", net.Values, wire.FirstExtreme)
	case net.Extremes < 0 || net.Extremes > wire.MaxExtremes:
		return nil, fmt.Errorf("%d maxima and minima: at most %d are possible", net.Extremes, wire.MaxExtremes)
	case net.Bits < 8 || net.Bits > 64:
		return nil, fmt.Errorf("counters of %d bits: 8 to 64 are possible", net.Bits)
	case net.Hosts > 1<<16:
		return nil, fmt.Errorf("%d hosts: at most %d", net.Hosts, 1<<16)
	case len(net.Uplinks) != net.Hosts || len(net.Downlinks) != net.Hosts || len(net.SwitchOf) != net.Arrays:
		return nil, fmt.Errorf("links of %d and %d hosts, switches of %d arrays; expected %d, %d and %d", len(net.Uplinks),
			len(net.Downlinks), len(net.SwitchOf), net.Hosts, net.Hosts, net.Arrays)
	}
	a := &Analyzer{net: net, workers: make([]worker, runtime.GOMAXPROCS(0))}
	a.refs = make([][]atomic.Pointer[refPage], net.Hosts)
	for i := range a.refs {
		a.refs[i] = make([]atomic.Pointer[refPage], (net.Flows+len(refPage{})-1)/len(refPage{}))
	}
	if net.Search != nil {
		a.distances = distancesOf(&net)
	}
	for i := range a.workers {
		w := &a.workers[i]
		w.number = i
		w.expected = make([]int64, net.Arrays*net.Slots*net.words())
		w.sent, w.received = make([]int64, len(net.Links)), make([]int64, len(net.Links))
		w.arrived = make([]int, net.Hosts)
	}
	return a, nil
}

// Result is the outcome of an epoch. A reason names the host, switch, link or flow that it
// concerns; the results of all others are exact.
type Result struct {
	Epoch uint64
	// Flows is the count of flows with packets in the epoch, of the hosts that reported.
	Flows int
	// Lossy are the flows that lost packets, by source and host index.
	Lossy []LossyFlow
	// Open are flows with an unknown number of arrived packets: their destination is missing, or
	// counted packets that it could not attribute to a flow. Lost is the most that may be lost.
	Open []LossyFlow
	// Unplaced are flows whose path was sought and is not determined, by source and host index.
	Unplaced []Flow
	// Odd are flows with counts that contradict each other, or without a path. Their losses are
	// unknown.
	Odd []Flow
	// Variables counts the unknowns of flows: one number of lost packets for each switch and link on
	// the path of a lossy flow, and for each of an open flow that counters do not exclude. Determined
	// counts the unknowns with one possible value.
	Variables, Determined int
	// Switches and Links are the lost packets. Without a limit, High is Unlimited.
	Switches, Links []Bounds
	// Missing is the count of hosts without a valid report. Their flows are unknown.
	Missing int
	// Hosts are by host why its report is missing or not complete, Elements by switch, and then by
	// link, why its counts are not right; "" without a reason.
	Hosts, Elements []string
	// Unknown: flows that no report has may have passed any switch and link.
	Unknown bool
	// Contradictions are reasons why losses have wide bounds: equations that no losses solve.
	Contradictions []string

	analyzer *Analyzer
	reports  [][]byte
	// uncounted counts, by host, packets that it received and could not attribute; untracked counts
	// packets that it sent without an entry in the flow table.
	uncounted, untracked []uint64
	// incomplete: flows of the host are not in its report.
	incomplete []bool
	// strangers states, by host, whether it received packets of a source that is no host, or of
	// another flow than the index names.
	strangers []bool
	paths     [][]*Path // paths by host and row, if paths are searched
}

// Unlimited is an upper bound without a limit.
const Unlimited = linear.Unlimited

// Bounds is a number of packets that is known exactly, or only to be within two bounds.
type Bounds struct{ Low, High int64 }

// Exact reports whether the number is known.
func (b Bounds) Exact() bool { return b.Low == b.High }

// host names a host in reasons.
func (a *Analyzer) host(number int) string {
	if number < len(a.net.HostNames) {
		return "host " + a.net.HostNames[number]
	}
	return fmt.Sprintf("host %d", number)
}

// parallel runs f for each of n items on all workers.
func (a *Analyzer) parallel(n int, f func(w *worker, item int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for i := range a.workers {
		wg.Go(func() {
			for item := int(next.Add(1) - 1); item < n; item = int(next.Add(1) - 1) {
				f(&a.workers[i], item)
			}
		})
	}
	wg.Wait()
}

// Analyze analyzes one epoch. The result refers to the reports, which must not change.
func (a *Analyzer) Analyze(e *Epoch) *Result {
	r := a.analyze(e)
	if a.net.Search == nil || !slices.ContainsFunc(r.Elements, func(reason string) bool { return reason != "" }) {
		return r
	}
	// Slots that contradict the arrived packets may have shown wrong paths, also at other switches.
	reasons, again := r.Elements, *e
	again.Recorded = nil
	r = a.analyze(&again)
	for i, reason := range reasons {
		r.Elements[i] = cmp.Or(reason, r.Elements[i])
	}
	return r
}

func (a *Analyzer) analyze(e *Epoch) *Result {
	r := &Result{Epoch: e.Number, analyzer: a, reports: make([][]byte, a.net.Hosts), Hosts: make([]string, a.net.Hosts),
		uncounted: make([]uint64, a.net.Hosts), untracked: make([]uint64, a.net.Hosts),
		incomplete: make([]bool, a.net.Hosts), strangers: make([]bool, a.net.Hosts)}
	copy(r.reports, e.Reports)
	for host, data := range r.reports {
		if data == nil {
			r.Hosts[host] = "no report"
		}
	}
	for r.read(e) { // each pass may find an invalid report, without which the next one reads
	}
	flows := make([]int, a.net.Hosts) // by host: flows that arrived and are missing from their source's report
	for i := range a.workers {
		w := &a.workers[i]
		r.Flows += w.flows
		r.Lossy, r.Open, r.Odd = append(r.Lossy, w.lossy...), append(r.Open, w.open...), append(r.Odd, w.odd...)
		for host, n := range w.arrived {
			flows[host] += n
		}
	}
	for host, data := range r.reports {
		if data == nil {
			r.Missing++
		} else if flows[host] > 0 {
			r.incomplete[host] = true
			r.note(host, "%d flows of it arrived that are not in its report", flows[host])
		}
	}
	slices.SortFunc(r.Lossy, func(a, b LossyFlow) int { return a.compare(&b.Flow) })
	slices.SortFunc(r.Open, func(a, b LossyFlow) int { return a.compare(&b.Flow) })
	slices.SortFunc(r.Odd, func(a, b Flow) int { return a.compare(&b) })
	in := a.merge(r, e)
	for i := range a.workers {
		for j := range a.workers[i].unplaced {
			f := &a.workers[i].unplaced[j]
			r.Unplaced = append(r.Unplaced, f.Flow)
			in.leaveOut(&f.Flow)
		}
	}
	slices.SortFunc(r.Unplaced, func(a, b Flow) int { return a.compare(&b) })
	in.infer(r, e)
	return r
}

// read indexes and joins the reports. It returns true if a report is invalid, which is missing
// then.
func (r *Result) read(e *Epoch) (again bool) {
	a := r.analyzer
	for i := range a.workers {
		w := &a.workers[i]
		clear(w.expected)
		clear(w.sent)
		clear(w.received)
		clear(w.arrived)
		w.lossy, w.open, w.unplaced, w.odd, w.flows = nil, nil, nil, nil, 0
	}
	var invalid atomic.Bool
	each := func(f func(w *worker, host int) error) {
		a.parallel(len(r.reports), func(w *worker, host int) {
			if err := f(w, host); err != nil {
				r.Hosts[host], r.reports[host] = err.Error(), nil
				invalid.Store(true)
			}
		})
	}
	clear(r.strangers)
	a.parallel(len(a.refs), func(_ *worker, host int) {
		for i := range a.refs[host] {
			if p := a.refs[host][i].Load(); p != nil {
				clear(p[:])
			}
		}
	})
	each(func(w *worker, host int) error { return a.index(host, r.reports[host], e.Number, w) })
	if invalid.Load() {
		return true
	}
	for host := range r.reports {
		r.count(host, e)
	}
	if a.net.Search != nil {
		r.paths = a.search(r.reports, e.Recorded)
	}
	each(func(w *worker, host int) error { return a.join(r, host, w) })
	return invalid.Load()
}

// count notes the consequences of a report's counters for its flows.
func (r *Result) count(host int, e *Epoch) {
	rep, err := wire.Open(r.reports[host])
	if r.reports[host] == nil || err != nil {
		return
	}
	c := &rep.Counters
	r.untracked[host] = c[wire.Untracked]
	r.uncounted[host] = c[wire.UnknownEpoch] + c[wire.BadIndex] + c[wire.Forged] + c[wire.IngressFull]
	if host < len(e.Refused) {
		r.uncounted[host] += e.Refused[host]
	}
	r.strangers[host] = c[wire.UnknownHost]+c[wire.BadIndex]+c[wire.Forged] > 0
	for i, n := range c {
		switch c := wire.Counter(i); {
		case n == 0 || c == wire.Late || !c.Inexact():
		case c == wire.UnknownHost: // packets of no flow between hosts
		default:
			r.note(host, "%d packets %v", n, c)
		}
	}
	if host < len(e.Refused) && e.Refused[host] > 0 {
		r.note(host, "%d packets that it refused in an earlier epoch may be of this one", e.Refused[host])
	}
}

// note notes why the report of a host is not complete. The first reason is kept.
func (r *Result) note(host int, format string, args ...any) {
	if r.Hosts[host] == "" {
		r.Hosts[host] = fmt.Sprintf(format, args...)
	}
}

// offsetBits is the width of the position of a row in a reference; the host is above it.
const offsetBits = 40

// twice is the reference of a flow that two hosts counted.
const twice = ^uint64(0)

// index stores where each incoming flow of a report is, so that join finds it by source and index.
func (a *Analyzer) index(host int, data []byte, epoch uint64, w *worker) error {
	if data == nil {
		return nil
	}
	rep, err := wire.Open(data)
	switch {
	case err != nil:
		return err
	case rep.Host != host || rep.Epoch != epoch:
		return fmt.Errorf("report of host %d, epoch %d, instead of epoch %d", rep.Host, rep.Epoch, epoch)
	case rep.SlotsPerFlow != a.net.SlotsPerFlow:
		return fmt.Errorf("its flows have %d slots each, expected %d", rep.SlotsPerFlow, a.net.SlotsPerFlow)
	}
	if n := rep.Counters[wire.Restarted]; n > 0 {
		return fmt.Errorf("its flow table was restarted in the epoch, %d times", n)
	}
	rep.SkipEgress()
	var row wire.IngressRow
	for {
		source, ok := rep.NextHost()
		if !ok {
			break
		}
		if source >= a.net.Hosts {
			return fmt.Errorf("packets from host number %d; the network has %d hosts, from number 0 on", source, a.net.Hosts)
		}
		for rep.NextIngress(&row) {
			if int(row.Index) >= a.net.Flows {
				return fmt.Errorf("host index %d in a table of %d flows", row.Index, a.net.Flows)
			}
			if down := a.net.Downlinks[host]; down >= 0 {
				w.received[down] += packets(row.Values)
			}
			if ref := a.ref(source, row.Index, true); ref.CompareAndSwap(0, uint64(host)<<offsetBits|uint64(row.At+1)) {
				w.arrived[source]++
			} else {
				ref.Store(twice)
			}
		}
	}
	return rep.Err()
}

// packets decodes the first of encoded values, the number of packets.
func packets(values []byte) int64 {
	mask, n := binary.Uvarint(values)
	if n <= 0 || mask&1 == 0 {
		return 0
	}
	v, _ := binary.Varint(values[n:])
	return v
}

// join compares the packets that a host sent with the arrived packets, and adds the flows to the
// slots on their paths.
func (a *Analyzer) join(r *Result, host int, w *worker) error {
	reports := r.reports
	if reports[host] == nil {
		return nil
	}
	rep, err := wire.Open(reports[host])
	if err != nil {
		return err
	}
	var row wire.EgressRow
	var sent, received wire.Values
	for n := 0; rep.NextEgress(&row); n++ {
		if err := sent.Decode(row.Values); err != nil {
			return err
		}
		if slot := slices.Max(row.Slots[:a.net.SlotsPerFlow]); int(slot) >= a.net.Slots {
			return fmt.Errorf("a flow has slot %d, but switches have %d slots", slot, a.net.Slots)
		}
		w.flows++
		destination, path := r.route(host, n, &row.Key)
		f := func() Flow {
			return Flow{Key: row.Key, Source: host, Destination: destination, Index: row.Index, Age: row.Age, Path: path,
				Slots: row.Slots, Untagged: row.Untagged, Sent: sent, Lost: sent}
		}
		odd := func(reason string) {
			x := f()
			x.odd = reason
			w.odd = append(w.odd, x)
		}
		values, own := a.arrived(reports, host, &row, destination)
		if values != nil || !own {
			w.arrived[host]--
		}
		if path == nil {
			path = &Path{From: -1, Last: -1}
			odd("the collector knows no path of it")
			continue
		}
		a.add(w, path, &row.Slots, &sent)
		w.sent[path.first()] += sent[wire.Packets]
		if !own {
			odd("hosts counted packets of several flows as those of this one")
			continue
		}
		received = wire.Values{}
		if values != nil {
			if bytes.Equal(values, row.Values) && len(path.Hops) > 0 {
				continue
			}
			if err := received.Decode(values); err != nil {
				return err
			}
		} else if sent == (wire.Values{}) { // without a header only
			continue
		}
		x := LossyFlow{Flow: f()}
		x.Lost.Sub(&received)
		x.Open = x.Lost != (wire.Values{}) && (reports[destination] == nil || r.uncounted[destination] > 0)
		switch {
		case x.Lost[wire.Packets] < 0:
			odd("more packets of it arrived than were sent")
		case slices.Min(x.Lost[:wire.FirstExtreme]) < 0:
			odd("more bytes, or packets of a kind, arrived of it than were sent: a device changed its packets")
		case len(path.Hops) == 0:
			w.unplaced = append(w.unplaced, x)
		case x.Open:
			w.open = append(w.open, x)
		default:
			w.lossy = append(w.lossy, x)
		}
	}
	return rep.Err()
}

// route returns the destination and the path of the flow in a row of a host's report.
func (r *Result) route(host, row int, k *flow.Key) (destination int, path *Path) {
	net := &r.analyzer.net
	if net.Search == nil {
		return net.Route(host, k)
	}
	destination, _, _ = net.Search.Ends(host, k)
	return destination, r.Path(host, row, nil)
}

// arrived returns the values of a flow at its destination, nil if nothing arrived. own is false if
// the values belong to another flow.
func (a *Analyzer) arrived(reports [][]byte, host int, row *wire.EgressRow, destination int) (values []byte, own bool) {
	ref := uint64(0)
	if int(row.Index) < a.net.Flows {
		if at := a.ref(host, row.Index, false); at != nil {
			ref = at.Load()
		}
	}
	switch {
	case ref == twice:
		return nil, false
	case ref == 0 || int(ref>>offsetBits) != destination || reports[destination] == nil:
		return nil, true
	}
	check, values := wire.IngressAt(reports[destination], int(ref&(1<<offsetBits-1))-1)
	return values, check == wire.Check(&row.Key)
}

// add adds the values of a flow to the slot of each switch on its path.
func (a *Analyzer) add(w *worker, path *Path, slots *[4]uint16, v *wire.Values) {
	n := a.net.words()
	counted := 0
	for i := range path.Hops {
		array := path.Hops[i].Array
		if array == None {
			continue
		}
		at := a.cell(array, slots[counted%a.net.SlotsPerFlow])
		counted++
		cell := w.expected[at : at+n]
		for j := range cell {
			cell[j] += v[a.net.statistic(j)]
		}
	}
}

// cell is the position of a slot's first value.
func (a *Analyzer) cell(array int32, slot uint16) int {
	return (int(array)*a.net.Slots + int(slot)) * a.net.words()
}

// Flow is one flow in an epoch.
type Flow struct {
	Key                 flow.Key
	Source, Destination int
	Index               uint32
	Age                 uint64 // epochs since the first packet
	Path                *Path
	Slots               [4]uint16 // the first SlotsPerFlow slots are used
	// Sent are the packets with the header. Untagged are the packets without it, of which only the
	// source's count is known.
	Sent, Lost wire.Values
	Untagged   wire.Untagged
	// Open: it is not known how much arrived, and Lost is the most that may be lost.
	Open bool

	odd string // contradiction between the flow's counts
}

func (f *Flow) compare(g *Flow) int {
	return cmp.Or(cmp.Compare(f.Source, g.Source), cmp.Compare(f.Index, g.Index))
}

// LossyFlow is a flow with lost packets, and where it lost them.
type LossyFlow struct {
	Flow
	// Losses are the lost packets along the path: the first link, the first switch, the second link,
	// and so on to the last link.
	Losses []Loss

	first int // position of the unknown of Losses[0]
}

// Exact reports whether all that was sent, received and lost of a flow is known.
func (r *Result) Exact(f *Flow) bool { return r.AllSent(f) && !f.Open }

// AllSent reports whether Sent has all packets of a flow, and nothing contradicts them.
func (r *Result) AllSent(f *Flow) bool {
	return f.odd == "" && f.Untagged == (wire.Untagged{}) && !r.incomplete[f.Source] &&
		(f.Age > 0 || r.untracked[f.Source] == 0)
}

// AtLeast returns what is known about the packets that a flow sent: ok means that they are at least
// Sent, and most that they are at most Sent and the source's packets without a header together.
func (r *Result) AtLeast(f *Flow) (ok, most bool) {
	return f.odd == "" && !r.incomplete[f.Source], f.Age > 0 || r.untracked[f.Source] == 0
}

// Known reports whether Lost is known.
func (f *Flow) Known() bool { return f.odd == "" && !f.Open }

// Reason returns why a flow is not exact, "" if it is.
func (r *Result) Reason(f *Flow) string {
	a := r.analyzer
	switch {
	case r.Exact(f):
		return ""
	case f.odd != "":
		return f.odd
	case f.Open && r.reports[f.Destination] == nil:
		return fmt.Sprintf("%s, its destination, is missing", a.host(f.Destination))
	case f.Untagged != (wire.Untagged{}):
		return fmt.Sprintf("%d packets were sent without a header", f.Untagged.Packets)
	case f.Open:
		return fmt.Sprintf("%s received %d packets that it could not attribute to a flow", a.host(f.Destination),
			r.uncounted[f.Destination])
	case r.incomplete[f.Source]:
		return fmt.Sprintf("%s: %s", a.host(f.Source), r.Hosts[f.Source])
	}
	return fmt.Sprintf("it is new, and the flow table of %s was full for %d packets", a.host(f.Source),
		r.untracked[f.Source])
}

// Complete reports whether a report has all flows that its host sent.
func (r *Result) Complete(host int) bool {
	return r.reports[host] != nil && !r.incomplete[host] && r.untracked[host] == 0
}

// Delivered reports whether a host has a valid report.
func (r *Result) Delivered(host int) bool { return r.reports[host] != nil }

// Loss is the loss at one switch or link.
type Loss struct {
	Packets Bounds
	// Values are all statistics of the lost packets if Exact is set.
	Values wire.Values
	Exact  bool
}

// At returns the values of the flow at hop number hop, where the packets arrived that were not lost
// before it. exact is false if they are not determined.
func (f *LossyFlow) At(hop int) (v wire.Values, exact bool) {
	v = f.Sent
	for i := range f.Losses[:2*hop+1] {
		if !f.Losses[i].Exact {
			return v, false
		}
		v.Sub(&f.Losses[i].Values)
	}
	return v, true
}

// Extreme returns the configured maximum or minimum number i over the packets that arrived at hop
// number hop. ok is false if it is not known: a packet that raised the maximum, or lowered the
// minimum, was lost before this hop or may have been.
func (f *LossyFlow) Extreme(i int, minimum bool, hop int) (v int64, ok bool) {
	at, exact := f.At(hop)
	s := wire.FirstExtreme + wire.Statistic(i)
	// Lost differences of a maximum are not negative. Those of a minimum add up to zero only if there
	// are none, or if the minimum fell to zero.
	v = f.Sent[s]
	return v, exact && at[wire.Packets] > 0 && at[s] == v && (v != 0 || !minimum)
}

// Path returns the path of the flow in a row of a host's report if paths are sought, otherwise
// route.
func (r *Result) Path(host, row int, route *Path) *Path {
	if r.paths == nil {
		return route
	}
	if row < len(r.paths[host]) {
		return r.paths[host][row]
	}
	return nil
}

// Workers is the count of workers that call the function of Each.
func (r *Result) Workers() int { return len(r.analyzer.workers) }

// Each calls f for every flow in no list of the result, all of whose packets with a header arrived,
// concurrently with the numbers of different workers. The flow is valid until f returns. It must be
// called before the next Analyze.
func (r *Result) Each(f func(worker int, flow *Flow)) {
	apart := make(map[[2]uint32]bool, len(r.Lossy)+len(r.Open)+len(r.Unplaced)+len(r.Odd))
	leave := func(f *Flow) { apart[[2]uint32{uint32(f.Source), f.Index}] = true }
	for _, flows := range [][]LossyFlow{r.Lossy, r.Open} {
		for i := range flows {
			leave(&flows[i].Flow)
		}
	}
	for _, flows := range [][]Flow{r.Unplaced, r.Odd} {
		for i := range flows {
			leave(&flows[i])
		}
	}
	r.analyzer.parallel(len(r.reports), func(w *worker, host int) {
		rep, err := wire.Open(r.reports[host])
		if r.reports[host] == nil || err != nil {
			return
		}
		var row wire.EgressRow
		var out Flow
		for n := 0; rep.NextEgress(&row); n++ {
			if len(apart) > 0 && apart[[2]uint32{uint32(host), row.Index}] {
				continue
			}
			out = Flow{Key: row.Key, Source: host, Index: row.Index, Age: row.Age, Slots: row.Slots,
				Untagged: row.Untagged}
			out.Destination, out.Path = r.route(host, n, &row.Key)
			if out.Path == nil || out.Sent.Decode(row.Values) != nil {
				continue
			}
			f(w.number, &out)
		}
	})
}
