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
// can be late. An alert of a loss that only the report of a host shows begins when the next report
// of the host has no such packets.

// history is what later epochs may show to be wrong. The plugin saves it.
type history struct {
	// Exact are the newest epochs that were published with exact results that are not final: packets
	// are missing.
	Exact []uint64 `json:",omitempty"`
	// Last is the newest epoch, and Unreported the newest one in which a host or switch is missing.
	Last       uint64 `json:",omitempty"`
	Unreported uint64 `json:",omitempty"`
	// Withdrawn are the newest epochs whose results were exact no longer, in their order.
	Withdrawn []withdrawal `json:",omitempty"`
	// Held are losses of the epoch HeldIn that are not confirmed.
	Held   []heldLoss `json:",omitempty"`
	HeldIn uint64     `json:",omitempty"`
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

// heldLoss is a problem that is an alert when the next report of its host confirms it.
type heldLoss struct {
	Host string
	alert.Problem
}

// late is a reason why the results of an earlier epoch are not exact.
type late struct {
	epoch  uint64
	reason string
}

// lateEpochs is how many epochs late a packet may be to be counted as late by a host: one that is
// later is counted as unknown-epoch. The report does not state the epoch of late packets.
const lateEpochs = 4

// late notes the late packets that a report of a host has.
func (r *run) late(host string, s *wire.Summary) {
	packets := s.Counters[wire.Late]
	if packets == 0 {
		return
	}
	for n := uint64(1); n <= lateEpochs && n < s.Epoch; n++ {
		r.lateness = append(r.lateness, late{s.Epoch - n, fmt.Sprintf("%d packets, of it or of an epoch next to it, arrived "+
			"at host %s after the report: raise epoch.drain", packets, host)})
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
	if r.epoch.Number != h.Last+1 {
		h.Unreported = r.epoch.Number - 1
	}
	h.Last = r.epoch.Number
	if r.result == nil || r.status() != sdk.StatusComplete {
		h.Unreported = r.epoch.Number
	}
	// A late packet of the epoch is in one of the next lateEpochs reports of its host, and in the
	// read-out of its bank, which is that of the last of these epochs.
	if n := int64(r.epoch.Number) - lateEpochs; n > 0 && h.Unreported <= uint64(n) && slices.Contains(h.Exact, uint64(n)) {
		r.confirmed = uint64(n)
	}
}

// check returns why a history that was read from a saved state is not one.
func (h *history) check() error {
	if len(h.Exact) > maxExact || len(h.Withdrawn) > maxWithdrawn {
		return fmt.Errorf("%d exact and %d withdrawn epochs", len(h.Exact), len(h.Withdrawn))
	}
	for i := 1; i < len(h.Withdrawn); i++ {
		if h.Withdrawn[i-1].Epoch >= h.Withdrawn[i].Epoch {
			return fmt.Errorf("withdrawn epoch %d after %d", h.Withdrawn[i].Epoch, h.Withdrawn[i-1].Epoch)
		}
	}
	return nil
}

// hold holds the problems from the given one on, of a link, if only a host's report shows them: the
// missing packets may be late.
func (r *run) hold(link, from int) {
	to := r.network.links[link].to.Node
	if _, isSwitch := r.network.byName[to]; isSwitch {
		return
	}
	for i := from; i < len(r.problems); i++ {
		if p := &r.problems[i]; !p.Unsure {
			r.held = append(r.held, heldLoss{to, *p})
			p.Unsure = true
		}
	}
}

// confirm adds the problems that the epoch before held, if that was not withdrawn and the epoch has
// the report that would show late packets.
func (h *history) confirm(r *run) {
	if h.HeldIn+1 == r.epoch.Number && slices.Contains(h.Exact, h.HeldIn) {
		for _, p := range h.Held {
			if n, ok := r.numbers[p.Host]; ok && r.hosts[n].delivered {
				r.problems = append(r.problems, p.Problem)
			}
		}
	}
	h.Held, h.HeldIn = r.held, r.epoch.Number
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
