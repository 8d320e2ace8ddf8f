// SPDX-License-Identifier: Apache-2.0

// Package analysis is OmniMon's collective analysis (paper, algorithm 4): it joins what the hosts
// and the switches counted in one epoch, and attributes lost packets to switches and links.
//
// A flow that arrived completely has the values of its source at every switch of its path. Lossy
// flows are inferred, see losses.go. docs/omnimon.md describes the method.
package analysis

import (
	"bytes"
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/sketch/flow"
)

// Hop is a switch on a path.
type Hop struct {
	// Link is the directed link by which packets enter the switch.
	Link int32
	// Switch is the number of the switch.
	Switch int32
	// Array is the slot array that counts the packets: that of the switch, or of its port.
	Array int32
}

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

// Network is what the analysis needs of the network and of the hosts' settings. Route is called
// concurrently.
type Network struct {
	Hosts, Switches, Arrays int
	Links                   []Link
	// Flows is the size of the hosts' flow tables.
	Flows int
	// Slots of an array per epoch, and slots per flow.
	Slots, SlotsPerFlow int
	// Values is the count of statistics that switches record, the first ones of wire.Values.
	Values int
	// Bits is the width of the switches' counters. A slot must lose less than 2^(Bits-1) of any
	// statistic in an epoch.
	Bits int
	// Route returns the destination of a flow and its path, or nil if it has none.
	Route func(source int, k *flow.Key) (destination int, path *Path)
	// Search, if set, replaces Route.
	Search *Search
	// HostNames and ElementNames, of switches and then links, are for warnings; numbers without them.
	HostNames, ElementNames []string
}

// Epoch is what hosts and switches counted in one epoch.
type Epoch struct {
	Number uint64
	// Reports are the hosts' reports by host number; nil, or beyond the end: missing.
	Reports [][]byte
	// Recorded are the slots by array, Values numbers for each slot; nil: missing.
	Recorded [][]int64
	// Arrived and Departed count the packets with a header that switches received and sent, by link;
	// -1: not counted. They are optional.
	Arrived, Departed []int64
}

// Analyzer analyzes epochs one after the other. It keeps memory between epochs.
type Analyzer struct {
	net       Network
	refs      [][]atomic.Uint64 // by source host and host index: the row at the destination, plus one
	workers   []worker
	distances []int32 // of switches from hosts, with Search
}

// worker is one goroutine's share of the work.
type worker struct {
	number         int
	expected       []int64 // by array, slot and statistic
	sent, received []int64 // packets by link
	lossy          []LossyFlow
	unplaced       []LossyFlow // with or without losses
	// flows that were sent, rows of flows that arrived, and those of them with a sender
	flows, arrived, matched int
	warnings                []string
	more                    int // warnings that are left out
}

// maxWarnings bounds the warnings of a worker.
const maxWarnings = 20

// New returns an analyzer that uses all processors.
func New(net Network) (*Analyzer, error) {
	switch {
	case net.Values < 1 || net.Values > int(wire.Statistics):
		return nil, fmt.Errorf("%d statistics: 1 to %d are possible", net.Values, wire.Statistics)
	case net.Bits < 8 || net.Bits > 64:
		return nil, fmt.Errorf("counters of %d bits: 8 to 64 are possible", net.Bits)
	case net.Hosts > 1<<16:
		return nil, fmt.Errorf("%d hosts: at most %d", net.Hosts, 1<<16)
	}
	a := &Analyzer{net: net, workers: make([]worker, runtime.GOMAXPROCS(0))}
	a.refs = make([][]atomic.Uint64, net.Hosts)
	for i := range a.refs {
		a.refs[i] = make([]atomic.Uint64, net.Flows)
	}
	if net.Search != nil {
		a.distances = distancesOf(&net)
	}
	for i := range a.workers {
		w := &a.workers[i]
		w.number = i
		w.expected = make([]int64, net.Arrays*net.Slots*net.Values)
		w.sent, w.received = make([]int64, len(net.Links)), make([]int64, len(net.Links))
	}
	return a, nil
}

// Result is what an epoch shows.
type Result struct {
	Epoch uint64
	// Flows is the count of flows with packets in the epoch.
	Flows int
	// Lossy are the flows of which packets were lost, by source and host index.
	Lossy []LossyFlow
	// Unplaced are flows whose path was sought and is not determined, by source and host index.
	Unplaced []Flow
	// Variables counts what was unknown about lossy flows: one number of lost packets for each switch
	// and link on a flow's path. Determined of them have one possible value.
	Variables, Determined int
	// Switches and Links are the lost packets.
	Switches, Links []Bounds
	// Missing is the count of hosts without a valid report. Losses are then bounded by the flows of
	// the other hosts only, and their sums leave out the flows of missing hosts.
	Missing int
	// Warnings are reasons why the results are inexact. Without any they are exact, except where
	// bounds differ.
	Warnings []string

	analyzer *Analyzer
	reports  [][]byte
	paths    [][]*Path // by host and row, if they are sought
}

// Bounds is a number of packets of which only bounds may be known.
type Bounds struct{ Low, High int64 }

// Exact reports whether the number is known.
func (b Bounds) Exact() bool { return b.Low == b.High }

// host names a host in warnings.
func (a *Analyzer) host(number int) string { return name("host", a.net.HostNames, number) }

func name(kind string, names []string, number int) string {
	if number < len(names) {
		return kind + " " + names[number]
	}
	return fmt.Sprintf("%s %d", kind, number)
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
	for i := range a.workers {
		w := &a.workers[i]
		clear(w.expected)
		clear(w.sent)
		clear(w.received)
		w.lossy, w.unplaced, w.flows, w.arrived, w.matched, w.warnings, w.more = nil, nil, 0, 0, 0, nil, 0
	}
	r := &Result{Epoch: e.Number, analyzer: a, reports: make([][]byte, a.net.Hosts)}
	copy(r.reports, e.Reports)
	a.parallel(len(a.refs), func(_ *worker, host int) { clear(a.refs[host]) })
	a.parallel(len(r.reports), func(w *worker, host int) {
		if err := a.index(host, r.reports[host], e.Number, w); err != nil {
			w.warn("%s: %v", a.host(host), err)
			r.reports[host] = nil
		}
	})
	if a.net.Search != nil {
		r.paths = a.search(r.reports, e.Recorded)
	}
	a.parallel(len(r.reports), func(w *worker, host int) { a.join(r, host, w) })

	total, matched, more := 0, 0, 0
	for i := range a.workers {
		w := &a.workers[i]
		total, matched, r.Flows = total+w.arrived, matched+w.matched, r.Flows+w.flows
		r.Lossy = append(r.Lossy, w.lossy...)
		r.Warnings, more = append(r.Warnings, w.warnings...), more+w.more
	}
	for _, data := range r.reports {
		if data == nil {
			r.Missing++
		}
	}
	if r.Missing == 0 && matched < total {
		r.warn("%d flows arrived that their source did not send", total-matched)
	}
	slices.Sort(r.Warnings)
	if more > 0 {
		r.warn("%d more warnings", more)
	}
	slices.SortFunc(r.Lossy, func(a, b LossyFlow) int { return a.compare(&b.Flow) })
	in := a.merge(e, r.Missing > 0)
	for i := range a.workers {
		for j := range a.workers[i].unplaced {
			f := &a.workers[i].unplaced[j]
			r.Unplaced = append(r.Unplaced, f.Flow)
			in.leaveOut(f)
		}
	}
	slices.SortFunc(r.Unplaced, func(a, b Flow) int { return a.compare(&b) })
	in.infer(r)
	return r
}

func (w *worker) warn(format string, args ...any) {
	if len(w.warnings) == maxWarnings {
		w.more++
		return
	}
	w.warnings = append(w.warnings, fmt.Sprintf(format, args...))
}

func (r *Result) warn(format string, args ...any) {
	r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...))
}

// offsetBits is the width of the position of a row in a reference; the host is above it.
const offsetBits = 40

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
		return fmt.Errorf("%d slots per flow instead of %d", rep.SlotsPerFlow, a.net.SlotsPerFlow)
	}
	rep.SkipEgress()
	var row wire.IngressRow
	for {
		source, ok := rep.NextHost()
		if !ok {
			break
		}
		if source >= a.net.Hosts {
			return fmt.Errorf("packets from host %d of %d", source, a.net.Hosts)
		}
		refs := a.refs[source]
		for rep.NextIngress(&row) {
			if int(row.Index) >= len(refs) {
				return fmt.Errorf("host index %d in a table of %d flows", row.Index, len(refs))
			}
			w.arrived++
			if !refs[row.Index].CompareAndSwap(0, uint64(host)<<offsetBits|uint64(row.At+1)) {
				w.warn("flow %d of %s arrived at two hosts", row.Index, a.host(source))
			}
		}
	}
	if err := rep.Err(); err != nil {
		return err
	}
	for c, n := range rep.Counters {
		if c := wire.Counter(c); n > 0 && c.Inexact() {
			remedy := ""
			if c == wire.Late {
				remedy = ", lost in their epoch: raise epoch.drain"
			}
			w.warn("%s: %d packets %v%s", a.host(host), n, c, remedy)
		}
	}
	return nil
}

// join compares what a host sent with what arrived, and adds the flows to the slots on their paths.
func (a *Analyzer) join(r *Result, host int, w *worker) {
	reports := r.reports
	if reports[host] == nil {
		return
	}
	rep, err := wire.Open(reports[host])
	if err != nil {
		return
	}
	var row wire.EgressRow
	var sent, received wire.Values
	for n := 0; rep.NextEgress(&row); n++ {
		if err := sent.Decode(row.Values); err != nil {
			w.warn("%s: %v", a.host(host), err)
			return
		}
		if slot := slices.Max(row.Slots[:a.net.SlotsPerFlow]); int(slot) >= a.net.Slots {
			w.warn("%s: slot %d of %d", a.host(host), slot, a.net.Slots)
			return
		}
		destination, path := r.route(host, n, &row.Key)
		if path == nil {
			w.warn("flow %v of %s has no path", row.Key, a.host(host))
			continue
		}
		w.flows++
		a.add(w, path, &row.Slots, &sent)
		w.sent[path.first()] += sent[wire.Packets]
		if reports[destination] == nil {
			continue
		}
		received = wire.Values{}
		values, own := a.arrived(reports, host, &row, destination)
		if !own {
			w.warn("%s counted packets of another flow as %v", a.host(destination), row.Key)
			continue
		}
		if values != nil {
			w.matched++
			if bytes.Equal(values, row.Values) && len(path.Hops) > 0 {
				w.received[path.Last] += sent[wire.Packets]
				continue
			}
			if err := received.Decode(values); err != nil {
				w.warn("%s: %v", a.host(destination), err)
				return
			}
		}
		w.received[path.Last] += received[wire.Packets]
		f := LossyFlow{Flow: Flow{Key: row.Key, Source: host, Destination: destination, Index: row.Index, Age: row.Age,
			Path: path, Slots: row.Slots, Sent: sent, Lost: sent}}
		f.Lost.Sub(&received)
		if slices.Min(f.Lost[:wire.FirstExtreme]) < 0 {
			w.warn("more packets of %v arrived than were sent", row.Key)
			continue
		}
		if len(path.Hops) == 0 {
			w.unplaced = append(w.unplaced, f)
		} else {
			w.lossy = append(w.lossy, f)
		}
	}
	if err := rep.Err(); err != nil {
		w.warn("%s: %v", a.host(host), err)
	}
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
// they are those of another flow.
func (a *Analyzer) arrived(reports [][]byte, host int, row *wire.EgressRow, destination int) (values []byte, own bool) {
	refs, ref := a.refs[host], uint64(0)
	if int(row.Index) < len(refs) {
		ref = refs[row.Index].Load()
	}
	if ref == 0 || int(ref>>offsetBits) != destination || reports[destination] == nil {
		return nil, true
	}
	check, values := wire.IngressAt(reports[destination], int(ref&(1<<offsetBits-1))-1)
	return values, check == wire.Check(&row.Key)
}

// add adds the values of a flow to the slot of each switch on its path.
func (a *Analyzer) add(w *worker, path *Path, slots *[4]uint16, v *wire.Values) {
	n := a.net.Values
	for i := range path.Hops {
		at := a.cell(path.Hops[i].Array, slots[i%a.net.SlotsPerFlow])
		cell := w.expected[at : at+n]
		for j := range cell {
			cell[j] += v[j]
		}
	}
}

// cell is the position of a slot's first value.
func (a *Analyzer) cell(array int32, slot uint16) int {
	return (int(array)*a.net.Slots + int(slot)) * a.net.Values
}

// Flow is one flow in an epoch.
type Flow struct {
	Key                 flow.Key
	Source, Destination int
	Index               uint32
	Age                 uint64 // epochs since the first packet
	Path                *Path
	Slots               [4]uint16 // the first ones are used, as many as a flow has
	Sent, Lost          wire.Values
}

func (f *Flow) compare(g *Flow) int {
	return cmp.Or(cmp.Compare(f.Source, g.Source), cmp.Compare(f.Index, g.Index))
}

// LossyFlow is a flow of which packets were lost.
type LossyFlow struct {
	Flow
	// Losses are the lost packets along the path: the first link, the first switch, the second link,
	// and so on to the last link.
	Losses []Loss

	first int // unknown of Losses[0]; -1 for each that is known to be zero
}

// Loss is what was lost at one switch or link.
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

// Each calls f for every flow that arrived completely and is not unplaced, concurrently with the
// numbers of different workers. The flow is valid until f returns. Flows to or from missing hosts
// are left out. It must be called before the next Analyze.
func (r *Result) Each(f func(worker int, flow *Flow)) {
	lossy := make(map[[2]uint32]bool, len(r.Lossy)+len(r.Unplaced))
	for i := range r.Lossy {
		lossy[[2]uint32{uint32(r.Lossy[i].Source), r.Lossy[i].Index}] = true
	}
	for i := range r.Unplaced {
		lossy[[2]uint32{uint32(r.Unplaced[i].Source), r.Unplaced[i].Index}] = true
	}
	r.analyzer.parallel(len(r.reports), func(w *worker, host int) {
		rep, err := wire.Open(r.reports[host])
		if r.reports[host] == nil || err != nil {
			return
		}
		var row wire.EgressRow
		var out Flow
		for n := 0; rep.NextEgress(&row); n++ {
			if len(lossy) > 0 && lossy[[2]uint32{uint32(host), row.Index}] {
				continue
			}
			out = Flow{Key: row.Key, Source: host, Index: row.Index, Age: row.Age, Slots: row.Slots}
			out.Destination, out.Path = r.route(host, n, &row.Key)
			if out.Path == nil || r.reports[out.Destination] == nil || out.Sent.Decode(row.Values) != nil {
				continue
			}
			f(w.number, &out)
		}
	})
}
