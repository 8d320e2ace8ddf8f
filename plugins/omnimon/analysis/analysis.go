// SPDX-License-Identifier: Apache-2.0

// Package analysis is OmniMon's collective analysis (paper, algorithm 4): it joins the counts of
// hosts and switches of one epoch, and attributes lost packets to switches and links.
//
// A flow that arrived completely has the values of its source at every switch of its path. Losses
// of lossy flows are inferred, see losses.go. Missing data of a host, a switch or a flow does not
// affect the others. docs/omnimon.md describes the method.
package analysis

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
)

// Epoch has the counts of hosts and switches in one epoch.
type Epoch struct {
	Number uint64
	// Reports are the hosts' reports by host number; nil, or beyond the end: missing.
	Reports [][]byte
	// Refused counts, by host, the packets that the host refused in an earlier epoch and that may
	// belong to this one. Optional.
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
	for r.read(e) { // a pass that finds invalid reports removes them, and the next pass reads the others
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

// read indexes and joins the reports. If it finds invalid reports, it removes them and returns
// true: read must then be called again.
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
	if err != nil { // no report
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
