// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// anyBank is the bank of a plan that is for both.
const anyBank = -1

// held is an attention that a plan carries.
type held struct {
	ID        uint64 // of the plan
	From      uint64 // first epoch that it is for
	Bank      int
	Attention Attention
	Seen      uint64 // newest epoch that a switch measured under it
}

// ledger is what the switches have been set to, and what they will be. In a network with
// many changes it stays small: what no switch measures under any more is forgotten.
type ledger struct {
	Last  uint64 // newest ID given out
	Plans []held // oldest first
}

// Most plans that are kept, and for how many epochs one that is not in force.
const (
	keptPlans  = 256
	keptEpochs = 8
)

// add enters a plan and returns its ID, which grows. least makes it larger than any that a
// process before this one gave out: the time.
func (l *ledger) add(from uint64, bank int, a Attention, least uint64) uint64 {
	l.Last = max(l.Last+1, least)
	l.Plans = append(l.Plans, held{ID: l.Last, From: from, Bank: bank, Attention: a, Seen: from})
	if len(l.Plans) > keptPlans {
		l.Plans = slices.Delete(l.Plans, 0, len(l.Plans)-keptPlans)
	}
	return l.Last
}

// latest returns the newest plan for a bank that is for an epoch or an earlier one.
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

// forget drops what is neither in force nor to come.
func (l *ledger) forget(epoch uint64) {
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

// force is what an epoch was measured under.
type force struct {
	attention Attention // common to the switches; Th by switch
	// unsure names the switches of which it is not certain, and why.
	unsure map[string]string
	// divided: the switches were not under one division, so that nothing adds up.
	divided string
}

// inForce says what the edges measured under in an epoch: by what the collector knows to have
// been carried out on each, or, where nobody keeps account, by what was planned.
func (l *ledger) inForce(epoch *sdk.Epoch, edges []edge) force {
	bank := epoch.BankOf(epoch.Number, 2)
	f := force{unsure: make(map[string]string)}
	planned := l.latest(epoch.Number, bank)
	if planned == nil { // a collector that counts epochs anew
		planned = l.latest(math.MaxUint64, bank)
		for i := range edges {
			f.unsure[edges[i].name] = "epochs are numbered anew, and nothing says under which plan it was"
		}
	}
	f.attention = planned.Attention
	f.attention.Th = maps.Clone(planned.Attention.Th)
	planned.Seen = epoch.Number
	if len(epoch.States) == 0 {
		return f
	}
	clear(f.unsure)
	var base *held // of the first switch of which it is known
	for i := range edges {
		name := edges[i].name
		state := epoch.State(name)
		if state == nil {
			continue // not asked in this epoch
		}
		p := l.byID(state.Plan)
		switch {
		case state.Plan == 0:
			f.unsure[name] = "no configuration of ChameleMon's was in force there"
		case p == nil:
			f.unsure[name] = "its configuration is of an earlier process that nothing is known of"
		case state.Mixed:
			f.unsure[name] = "its configuration changed in the midst of the epoch"
		}
		if p == nil {
			continue
		}
		p.Seen = epoch.Number
		f.attention.Th[name] = p.Attention.Th[name]
		if base == nil {
			base = p
			f.attention.State, f.attention.Tl, f.attention.Sample, f.attention.Parts = p.Attention.State, p.Attention.Tl, p.Attention.Sample, p.Attention.Parts
		} else if a, b := &p.Attention, &base.Attention; a.Parts != b.Parts || a.Tl != b.Tl || a.Sample != b.Sample {
			f.divided = "the switches were divided differently: not all have carried out the newest plan"
		}
	}
	return f
}

// reasons lists what is not certain, for people.
func (f *force) reasons() string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(f.unsure)) {
		out = append(out, fmt.Sprintf("%s: %s", name, f.unsure[name]))
	}
	return strings.Join(out, "; ")
}
