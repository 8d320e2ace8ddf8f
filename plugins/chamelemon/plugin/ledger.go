// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// anyBank is the bank of a plan for both banks.
const anyBank = -1

// held is a plan and its attention.
type held struct {
	ID        uint64 // ID of the plan
	From      uint64 // first epoch of the plan
	Bank      int
	Attention Attention
	Seen      uint64 // latest epoch that a switch measured under the plan
}

// ledger holds the plans that the switches measure under now or will measure under. Plans that no
// switch uses any more are dropped.
type ledger struct {
	Last  uint64 // latest plan ID
	Plans []held // oldest first
}

// Bounds of the ledger: the number of plans, and the number of epochs that an unused plan is kept.
const (
	keptPlans  = 256
	keptEpochs = 8
)

// add adds a plan and returns its ID. IDs increase; least, derived from the time, makes them larger
// than the IDs of earlier processes.
func (l *ledger) add(from uint64, bank int, a Attention, least uint64) uint64 {
	l.Last = max(l.Last+1, least)
	l.Plans = append(l.Plans, held{ID: l.Last, From: from, Bank: bank, Attention: a, Seen: from})
	if len(l.Plans) > keptPlans {
		l.Plans = slices.Delete(l.Plans, 0, len(l.Plans)-keptPlans)
	}
	return l.Last
}

// latest returns the latest plan for a bank that applies at an epoch.
func (l *ledger) latest(epoch uint64, bank int) *held {
	for i := len(l.Plans) - 1; i >= 0; i-- {
		if p := &l.Plans[i]; p.From <= epoch && (p.Bank == bank || p.Bank == anyBank) {
			return p
		}
	}
	return nil
}

func (l *ledger) byID(id uint64) *held {
	i := slices.IndexFunc(l.Plans, func(p held) bool { return p.ID == id })
	if i < 0 {
		return nil
	}
	return &l.Plans[i]
}

// prune drops the plans that are neither in force nor pending.
func (l *ledger) prune(epoch uint64) {
	newest := [2]*held{l.latest(epoch, 0), l.latest(epoch, 1)}
	kept := l.Plans[:0]
	for i := range l.Plans {
		p := &l.Plans[i]
		if p == newest[0] || p == newest[1] || max(p.Seen, p.From)+keptEpochs > epoch {
			kept = append(kept, *p)
		}
	}
	clear(l.Plans[len(kept):])
	l.Plans = kept
}

// applied is the attention that an epoch was measured under.
type applied struct {
	attention Attention // common to the switches; Th by switch
	// uncertain lists the switches whose attention is uncertain, with the reasons.
	uncertain map[string]string
	// mismatch is set if the switches had different divisions, so that their cells cannot be added.
	mismatch string
}

// appliedTo returns the attention that the edge switches measured under in an epoch: the plan that
// the collector reports as applied on each, or the planned one if the epoch carries no reports.
func (l *ledger) appliedTo(epoch *sdk.Epoch, edges []edge) applied {
	bank := epoch.BankOf(epoch.Number, 2)
	f := applied{uncertain: make(map[string]string)}
	planned := l.latest(epoch.Number, bank)
	if planned == nil { // the collector restarted its epoch numbers
		planned = l.latest(math.MaxUint64, bank)
		for i := range edges {
			f.uncertain[edges[i].name] = "epoch numbers restarted, and the plan in force is not reported"
		}
	}
	f.attention = planned.Attention
	f.attention.Th = maps.Clone(planned.Attention.Th)
	planned.Seen = epoch.Number
	if len(epoch.States) == 0 {
		return f
	}
	clear(f.uncertain)
	var base *held // plan of the first switch with a reported plan
	for i := range edges {
		name := edges[i].name
		state := epoch.State(name)
		if state == nil {
			continue // the switch was not collected in this epoch
		}
		p := l.byID(state.Plan)
		switch {
		case state.Plan == 0:
			f.uncertain[name] = "no ChameleMon plan was in force on the switch"
		case p == nil:
			f.uncertain[name] = "the plan in force on the switch is of an earlier process without a saved state"
		case state.Mixed:
			f.uncertain[name] = "the plan in force on the switch changed during the epoch"
		}
		if p == nil {
			continue
		}
		p.Seen = epoch.Number
		f.attention.Th[name] = p.Attention.Th[name]
		if base == nil {
			base = p
			th := f.attention.Th
			f.attention = p.Attention
			f.attention.Th = th
		} else if a, b := &p.Attention, &base.Attention; a.Parts != b.Parts || a.Tl != b.Tl || a.Sample != b.Sample {
			f.mismatch = "the switches had different divisions: the latest plan was not applied on all of them"
		} else if a.Seed != b.Seed {
			f.uncertain[name] = "the switch sampled its light flows with the seed of an earlier plan"
		}
	}
	return f
}

// reasons returns the uncertain switches and their reasons as text.
func (f *applied) reasons() string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(f.uncertain)) {
		out = append(out, fmt.Sprintf("%s: %s", name, f.uncertain[name]))
	}
	return strings.Join(out, "; ")
}
