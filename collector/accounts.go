// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"slices"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// account is what became of one plugin's plans. plans.mu guards it.
type account struct {
	held   map[string][]holding // by device, in the order in which they came into force
	untold []sdk.PlanOutcome
	counts planCounts
}

// planCounts are outcomes by their kind, one per device and plan.
type planCounts struct {
	applied, late, failed uint64
	last                  string // the newest reason why one was not carried out
}

// holding is what a device measures under from an epoch on.
type holding struct {
	from  uint64
	until uint64 // the last epoch that it concerns; 0: all that follow
	bank  int    // that it concerns; allBanks
	id    uint64
	mixed bool
}

// maxUntold bounds the outcomes that a plugin has not heard of yet, maxHeld what is remembered of a device.
const (
	maxUntold = 4096
	maxHeld   = 64
)

// account returns a plugin's account. p.mu is held.
func (p *plans) account(plugin string) *account {
	acc := p.accounts[plugin]
	if acc == nil {
		acc = &account{held: map[string][]holding{}}
		p.accounts[plugin] = acc
	}
	return acc
}

// hold notes what came into force.
func (a *account) hold(device string, h holding) {
	list := append(a.held[device], h)
	if len(list) > maxHeld {
		list = slices.Delete(list, 0, len(list)-maxHeld)
	}
	a.held[device] = list
}

// tell keeps an outcome until the plugin has heard of it.
func (a *account) tell(w planned, device string, status sdk.PlanStatus, reason string) {
	switch status {
	case sdk.PlanApplied:
		a.counts.applied++
	case sdk.PlanLate:
		a.counts.late++
	case sdk.PlanFailed:
		a.counts.failed++
	}
	if reason != "" {
		a.counts.last = reason
	}
	if w.id == 0 {
		return
	}
	if len(a.untold) == maxUntold {
		a.untold = slices.Delete(a.untold, 0, 1)
	}
	a.untold = append(a.untold, sdk.PlanOutcome{Plan: w.id, FromEpoch: w.from, Device: device, Status: status, Reason: reason})
}

// states tells what devices measured an epoch under, and forgets what is older.
func (p *plans) states(plugin string, number uint64, devices []string) []sdk.DeviceState {
	p.mu.Lock()
	defer p.mu.Unlock()
	acc := p.account(plugin)
	out := make([]sdk.DeviceState, 0, len(devices))
	for _, name := range devices {
		s := sdk.DeviceState{Device: name}
		if d := p.device(name); d != nil {
			s.Plan, s.Mixed = inForce(acc.held[name], number, p.bankOf(number, d))
			acc.held[name] = prune(acc.held[name], number)
		}
		out = append(out, s)
	}
	return out
}

// inForce looks up a device's newest holding for a bank in an epoch.
func inForce(held []holding, number uint64, bank int) (plan uint64, mixed bool) {
	found := false
	for _, h := range slices.Backward(held) {
		switch {
		case h.from > number || h.bank != allBanks && h.bank != bank || h.until != 0 && h.until < number:
		case h.until != 0:
			mixed = true
		case !found:
			found = true
			plan, mixed = h.id, mixed || h.mixed
		}
	}
	return plan, mixed
}

// prune drops holdings that cannot concern an epoch after number any more: those that a later one of the same scope
// has taken the place of.
func prune(held []holding, number uint64) []holding {
	kept := held[:0]
	for i, h := range held {
		over := h.until != 0 && h.until < number || slices.ContainsFunc(held[i+1:], func(later holding) bool {
			return later.until == 0 && later.from <= number && (later.bank == h.bank || later.bank == allBanks)
		})
		if !over {
			kept = append(kept, h)
		}
	}
	return kept
}

// outcomes lists what a plugin has not heard of yet.
func (p *plans) outcomes(plugin string) []sdk.PlanOutcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]sdk.PlanOutcome(nil), p.account(plugin).untold...)
}

// told says that the plugin has heard of the oldest n of them.
func (p *plans) told(plugin string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	acc := p.account(plugin)
	acc.untold = slices.Delete(acc.untold, 0, min(n, len(acc.untold)))
}

// counted returns a plugin's counts.
func (p *plans) counted(plugin string) planCounts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.account(plugin).counts
}
