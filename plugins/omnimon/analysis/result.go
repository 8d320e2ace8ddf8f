// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"cmp"
	"fmt"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/plugins/omnimon/linear"
	"github.com/netsketch/netsketch/sketch/flow"
)

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
	// Hosts holds for each host the reason why its report is missing or not complete. Elements holds
	// for each switch, and then for each link, why its counts are not right. "" is no reason.
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

	first int // number of the unknown that stands for Losses[0]
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
	return r.paths[host][row]
}

// Workers is the count of workers that call the function of Each.
func (r *Result) Workers() int { return len(r.analyzer.workers) }

// Each calls f for every flow in no list of the result, all of whose packets with a header arrived,
// concurrently with the numbers of different workers. The flow is valid until f returns. It must be
// called before the next Analyze.
func (r *Result) Each(f func(worker int, flow *Flow)) {
	apart := map[[2]uint32]bool{}
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
		rep, _ := wire.Open(r.reports[host]) // a missing report has no rows
		var row wire.EgressRow
		var out Flow
		for n := 0; rep.NextEgress(&row); n++ {
			if len(apart) > 0 && apart[[2]uint32{uint32(host), row.Index}] {
				continue
			}
			out = Flow{Key: row.Key, Source: host, Index: row.Index, Age: row.Age, Slots: row.Slots,
				Untagged: row.Untagged}
			out.Destination, out.Path = r.route(host, n, &row.Key)
			_ = out.Sent.Decode(row.Values) // join has decoded them before
			f(w.number, &out)
		}
	})
}
