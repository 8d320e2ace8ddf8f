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
// them in a later epoch; the results of their own, which were published as exact, are withdrawn.
// Results of an epoch without missing packets are final: all counts agree, so none of its packets
// can be late. Until an epoch is settled, its losses are provisional: none begins an alert.

// settleEpochs is how many epochs later the losses of an epoch begin alerts. Then switches have
// read all banks that could have had its packets, and the reports of hosts show which ones were
// late.
const settleEpochs = 4

// history is what later epochs may show to be wrong. The plugin saves it.
type history struct {
	// Exact are the newest epochs that were published with exact results that are not final: packets
	// are missing.
	Exact []uint64 `json:",omitempty"`
	// Last is the newest epoch, Delivered the hosts and switches with results in it, and Unreported
	// the newest epoch that lacks one of those that the epoch before had.
	Last       uint64   `json:",omitempty"`
	Delivered  []string `json:",omitempty"`
	Unreported uint64   `json:",omitempty"`
	// Withdrawn are the newest epochs whose results were exact no longer, in their order.
	Withdrawn []withdrawal `json:",omitempty"`
	// Held are the losses of epochs that are not settled.
	Held []heldLosses `json:",omitempty"`
}

// Bounds of a history.
const (
	maxExact     = 512 // switches find late packets of that many epochs
	maxWithdrawn = 100
)

// withdrawal is an epoch whose results are not exact although they were published as exact.
type withdrawal struct {
	Epoch  uint64
	Found  uint64 // the epoch that showed it
	Reason string
}

// heldLosses are the lossy and dead elements of an epoch, which are alerts when it is settled.
type heldLosses struct {
	Epoch  uint64
	Losses []alert.Problem
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

// withdraw withdraws the results of epochs that were published as exact and are not.
func (h *history) withdraw(r *run) {
	// After a change of its clock, the collector may use numbers again.
	h.Exact = slices.DeleteFunc(h.Exact, func(n uint64) bool { return n >= r.epoch.Number })
	h.Withdrawn = slices.DeleteFunc(h.Withdrawn, func(w withdrawal) bool { return w.Epoch >= r.epoch.Number })
	for _, w := range r.epoch.LateWarnings {
		r.lateness = append(r.lateness, late{w.Epoch, cmp.Or(w.Device, "all devices") + ": " + w.Reason})
	}
	for _, l := range r.lateness {
		i := slices.Index(h.Exact, l.epoch)
		if i < 0 {
			continue
		}
		h.Exact = slices.Delete(h.Exact, i, i+1)
		h.Withdrawn = append(h.Withdrawn, withdrawal{l.epoch, r.epoch.Number, alert.Clip(l.reason)})
	}
	slices.SortFunc(h.Withdrawn, func(a, b withdrawal) int { return cmp.Compare(a.Epoch, b.Epoch) })
	h.Withdrawn = h.Withdrawn[max(0, len(h.Withdrawn)-maxWithdrawn):]
	if r.exact() && r.traffic.lost > 0 {
		h.Exact = append(h.Exact, r.epoch.Number)
		h.Exact = h.Exact[max(0, len(h.Exact)-maxExact):]
	}
	delivered := r.delivered()
	for _, name := range h.Delivered {
		if _, ok := slices.BinarySearch(delivered, name); !ok {
			h.Unreported = r.epoch.Number
		}
	}
	if r.epoch.Number != h.Last+1 {
		h.Unreported = r.epoch.Number - 1
	}
	h.Last, h.Delivered = r.epoch.Number, delivered
	if r.result == nil || r.status() == sdk.StatusLost {
		h.Unreported = r.epoch.Number
	}
	// Hosts count a late packet of the epoch in one of the next reports, and the read-out of its bank
	// has it, which is that of the last of these epochs.
	n := int64(r.epoch.Number) - settleEpochs
	if n > 0 && h.Unreported <= uint64(n) && slices.Contains(h.Exact, uint64(n)) {
		r.confirmed = uint64(n)
	}
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

// check returns why a history that was read from a saved state is not one.
func (h *history) check() error {
	if len(h.Exact) > maxExact || len(h.Withdrawn) > maxWithdrawn || len(h.Held) > settleEpochs+1 {
		return fmt.Errorf("%d exact, %d withdrawn and %d held epochs", len(h.Exact), len(h.Withdrawn), len(h.Held))
	}
	for i := 1; i < len(h.Withdrawn); i++ {
		if h.Withdrawn[i-1].Epoch >= h.Withdrawn[i].Epoch {
			return fmt.Errorf("withdrawn epoch %d after %d", h.Withdrawn[i].Epoch, h.Withdrawn[i-1].Epoch)
		}
	}
	return nil
}

// settle adds the problems that the epoch that is settled now held, if its results were not
// withdrawn. The problems of the newest epoch are held.
func (h *history) settle(r *run) {
	number := r.epoch.Number
	h.Held = slices.DeleteFunc(h.Held, func(x heldLosses) bool {
		return x.Epoch+settleEpochs < number || x.Epoch >= number
	})
	h.Held = append(h.Held, heldLosses{number, r.lossAlerts})
	settled := h.Held[0]
	sure := !slices.ContainsFunc(settled.Losses, func(p alert.Problem) bool { return !p.Unsure }) ||
		!slices.ContainsFunc(h.Withdrawn, func(w withdrawal) bool { return w.Epoch == settled.Epoch })
	if settled.Epoch+settleEpochs == number && sure {
		r.problems = append(r.problems, settled.Losses...)
		return
	}
	unsure := func(subject string, kinds ...alert.Kind) { // alerts neither begin nor end
		for _, k := range kinds {
			r.problems = append(r.problems, alert.Problem{Subject: subject, Kind: k, Unsure: true})
		}
	}
	for i := range r.network.switches {
		unsure(r.network.switches[i].name, switchLossy, switchDead)
	}
	for i := range r.network.links {
		unsure(r.network.links[i].name, linkLossy, linkDead)
	}
}

func (h *history) table() (*table.Table, error) {
	b := table.NewBuilder(withdrawalList)
	epoch, found, reason := b.UintKey("epoch"), b.Uint("state/found-in"), b.Text("state/reason")
	for _, w := range h.Withdrawn {
		epoch.Append(w.Epoch)
		found.Append(w.Found)
		reason.Append(w.Reason)
	}
	return b.Table()
}
