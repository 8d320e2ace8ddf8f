// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/alert"
	"github.com/netsketch/netsketch/yang/table"
)

// Packets that arrive after the report of their epoch look like lost ones. Hosts and switches count
// them in a later epoch, by the epoch that they carry. So an epoch without missing packets is exact
// at once: all counts agree, and none of its packets can be late. What any other epoch says of
// losses is provisional until the epoch is settled; then it is published as exact, or with the
// reason why it is not.

// settleEpochs is how many epochs later an epoch is settled. Then switches have read all banks that
// could have had its packets, and the reports of hosts show which ones were late.
const settleEpochs = 4

// history has the published results that later epochs may show to be wrong. The plugin saves it.
type history struct {
	// Exact are the newest settled epochs with missing packets that were published with exact results.
	Exact []uint64 `json:",omitempty"`
	// Last is the newest epoch, Delivered the hosts and switches with results in it, and Unreported
	// the newest epoch that lacks a host or switch of the epoch before.
	Last       uint64   `json:",omitempty"`
	Delivered  []string `json:",omitempty"`
	Unreported uint64   `json:",omitempty"`
	// Withdrawn are the newest epochs whose results were exact no longer, in their order.
	Withdrawn []withdrawal `json:",omitempty"`
	// Held are the epochs that are not settled, and the one that is settled in the newest epoch.
	Held []held `json:",omitempty"`
}

// Bounds of a history.
const (
	maxExact     = 512 // most epochs after which switches still find late packets
	maxWithdrawn = 100
)

// withdrawal is an epoch whose results are not exact although they were published as exact.
type withdrawal struct {
	Index  uint8 // of its row, below maxWithdrawn
	Epoch  uint64
	Found  uint64 // epoch that showed the late packets
	Reason string
}

// held is an epoch that waits until it is settled.
type held struct {
	Epoch   uint64
	Losses  []alert.Problem // lossy and dead elements, which are alerts when the epoch is settled
	Pending bool            `json:",omitempty"` // packets are missing
	Nothing bool            `json:",omitempty"` // no result is exact
	Problem string          `json:",omitempty"` // why not all results are exact
	Reason  string          `json:",omitempty"` // what is missing, as a condition
	Status  sdk.Status
	Late    string `json:",omitempty"` // says which of the epoch's packets were late

	LossyFlows, LostPackets int64
	tables                  []*table.Table // tables of losses; nil after a restart of the plugin
	answers                 []*answer      // of queries that read losses
}

// late is a reason why the results of an earlier epoch are not exact.
type late struct {
	epoch  uint64
	reason string
}

// late notes the late packets that a report of a host has. Those whose epoch it does not state may
// be of any epoch that is not settled.
func (r *run) late(host string, s *wire.Summary) {
	rest := s.Counters[wire.Late]
	note := func(epoch, packets uint64, of string) {
		r.lateness = append(r.lateness, late{epoch, fmt.Sprintf("%d packets of %s arrived at host %s after the report: "+
			"raise epoch.drain", packets, of, host)})
	}
	for _, x := range s.Late {
		note(x.Epoch, x.Packets, "it")
		rest -= min(rest, x.Packets)
	}
	for n := uint64(1); rest > 0 && n <= settleEpochs && n < s.Epoch; n++ {
		note(s.Epoch-n, rest, "it or of another epoch")
	}
}

// withdraw notes which epochs had late packets, and withdraws those epochs that were published as
// exact.
func (h *history) withdraw(r *run) {
	// After a change of its clock, the collector may use epoch numbers again.
	number := r.epoch.Number
	h.Exact = slices.DeleteFunc(h.Exact, func(n uint64) bool { return n >= number })
	h.Withdrawn = slices.DeleteFunc(h.Withdrawn, func(w withdrawal) bool { return w.Epoch >= number })
	settled := min(h.Last, number-1)
	h.Held = slices.DeleteFunc(h.Held, func(x held) bool { return x.Epoch+settleEpochs <= settled || x.Epoch >= number })
	for _, w := range r.epoch.LateWarnings {
		r.lateness = append(r.lateness, late{w.Epoch, cmp.Or(w.Device, "all devices") + ": " + w.Reason})
	}
	for _, l := range r.lateness {
		if i := slices.IndexFunc(h.Held, func(x held) bool { return x.Epoch == l.epoch }); i >= 0 {
			h.Held[i].Late = cmp.Or(h.Held[i].Late, alert.Clip(l.reason))
		}
		if i := slices.Index(h.Exact, l.epoch); i >= 0 {
			h.Exact = slices.Delete(h.Exact, i, i+1)
			h.add(withdrawal{Epoch: l.epoch, Found: number, Reason: alert.Clip(l.reason)})
		}
	}
	delivered := r.delivered()
	missing := func(name string) bool { _, ok := slices.BinarySearch(delivered, name); return !ok }
	if number != h.Last+1 {
		h.Unreported = number - 1
	}
	if r.result == nil || r.status() == sdk.StatusLost || slices.ContainsFunc(h.Delivered, missing) {
		h.Unreported = number
	}
	h.Last, h.Delivered = number, delivered
}

// doubt returns why the losses of a held epoch are not known, "" if they are. A late packet of an
// epoch is in the host's report, and in the switch's read-out, of one of the four epochs after it.
func (h *history) doubt(x *held) string {
	switch {
	case x.Nothing:
		return x.Problem
	case x.Pending && x.Late != "":
		return x.Late
	case x.Pending && h.Unreported > x.Epoch:
		return "a host or switch that delivered the epoch did not deliver all of the four epochs after it, in which " +
			"it may have counted late packets"
	case x.tables == nil:
		return "the plugin was restarted since"
	}
	return ""
}

// delivered are the names of the hosts and switches with results, sorted.
func (r *run) delivered() (names []string) {
	for i := range r.hosts {
		if r.hosts[i].delivered {
			names = append(names, "host "+r.hosts[i].name)
		}
	}
	for i := range r.switches {
		if r.switches[i].delivered {
			names = append(names, r.network.switches[i].name)
		}
	}
	slices.Sort(names)
	return names
}

// check returns an error if the contents of a saved state are no valid history.
func (h *history) check() error {
	if len(h.Exact) > maxExact || len(h.Withdrawn) > maxWithdrawn || len(h.Held) > settleEpochs+1 {
		return fmt.Errorf("%d exact, %d withdrawn and %d held epochs", len(h.Exact), len(h.Withdrawn), len(h.Held))
	}
	var used [maxWithdrawn]bool
	for i, w := range h.Withdrawn {
		if i > 0 && h.Withdrawn[i-1].Epoch >= w.Epoch {
			return fmt.Errorf("withdrawn epoch %d after %d", h.Withdrawn[i-1].Epoch, w.Epoch)
		}
		if w.Index >= maxWithdrawn || used[w.Index] {
			return fmt.Errorf("index %d of withdrawn epoch %d", w.Index, w.Epoch)
		}
		used[w.Index] = true
	}
	return nil
}

// settle holds the newest epoch, and settles the epoch four before it: losses of that epoch begin
// alerts, unless packets of it were late. So do losses of earlier epochs that wait still.
func (h *history) settle(r *run) {
	number := r.epoch.Number
	h.Held = append(h.Held, held{Epoch: number, Status: r.status(), Losses: r.lossAlerts, Pending: r.pending,
		LossyFlows: int64(r.lossyFlows()), LostPackets: int64(r.traffic.lost)})
	for ; h.Held[0].Epoch+settleEpochs < number; h.Held = h.Held[1:] { // its fourth epoch was never sealed
		if x := &h.Held[0]; x.Late == "" {
			r.problems = append(r.problems, x.Losses...)
		}
	}
	if x := &h.Held[0]; x.Epoch+settleEpochs == number {
		if r.settled, r.doubt = x, h.doubt(x); x.Pending && r.doubt == "" {
			h.Exact = append(h.Exact, x.Epoch)
			h.Exact = h.Exact[max(0, len(h.Exact)-maxExact):]
		}
		if x.Late == "" || !slices.ContainsFunc(x.Losses, func(p alert.Problem) bool { return !p.Unsure }) {
			r.problems = append(r.problems, x.Losses...)
			return
		}
	}
	unsure := func(subject string) { // alerts neither begin nor end
		r.problems = append(r.problems, alert.Problem{Location: subject, Kind: lossy, Unsure: true},
			alert.Problem{Location: subject, Kind: dead, Unsure: true})
	}
	for i := range r.network.switches {
		unsure(r.network.switches[i].name)
	}
	for i := range r.network.links {
		unsure(r.network.links[i].name)
	}
}

// hold keeps the tables of the newest epoch, and its answers to queries that read losses, until the
// epoch is settled. It returns the answers to publish now: for queries that read losses, those of
// the settled epoch.
func (h *history) hold(r *run, tables []*table.Table, answers []*answer) (out []*answer) {
	newest := &h.Held[len(h.Held)-1]
	newest.tables, newest.Nothing, newest.Problem = tables, !r.exact(), alert.Clip(r.reason())
	newest.Reason = r.condition()
	for _, a := range answers {
		if !a.reads("losses") {
			out = append(out, a)
			continue
		}
		newest.answers = append(newest.answers, a)
		settled := &answer{running: a.running, epoch: r.epoch.Number, waiting: true,
			inexact: "losses are settled four epochs later: none is known of this query yet"}
		if r.settled != nil {
			if i := slices.IndexFunc(r.settled.answers, func(x *answer) bool { return x.running == a.running }); i >= 0 {
				settled = r.settled.answers[i]
				if r.doubt != "" {
					settled.doubt("%s", r.doubt)
				}
			}
		}
		out = append(out, settled)
	}
	return out
}

// add adds a withdrawn epoch in a free row, or else in the row of the oldest epoch.
func (h *history) add(w withdrawal) {
	if len(h.Withdrawn) == maxWithdrawn {
		if w.Epoch < h.Withdrawn[0].Epoch {
			return
		}
		w.Index = h.Withdrawn[0].Index
		h.Withdrawn = h.Withdrawn[1:]
	} else {
		for slices.ContainsFunc(h.Withdrawn, func(o withdrawal) bool { return o.Index == w.Index }) {
			w.Index++
		}
	}
	h.Withdrawn = append(h.Withdrawn, w)
	slices.SortFunc(h.Withdrawn, func(a, b withdrawal) int { return cmp.Compare(a.Epoch, b.Epoch) })
}

func (h *history) table() (*table.Table, error) {
	b := table.NewBuilder(withdrawalList)
	index, epoch, found, reason := b.UintKey("index"), b.Uint("state/withdrawn-epoch"), b.Uint("state/found-in"),
		b.Text("state/problem")
	for _, w := range h.Withdrawn {
		index.Append(uint64(w.Index))
		epoch.Append(w.Epoch)
		found.Append(w.Found)
		reason.Append(w.Reason)
	}
	return b.Table()
}
