// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"errors"
	"fmt"
	"slices"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// history holds the outcomes of one plugin's plans. Component.mu guards it.
type history struct {
	states   map[string][]planState // by device, in the order in which they came into force
	outcomes []sdk.PlanOutcome      // outcomes that the plugin has not received yet, the oldest first
	counts   Counts
}

// Counts are the numbers of outcomes by kind, one outcome for each plan and device.
type Counts struct {
	Applied, Late, Failed uint64
	// LastProblem is the newest reason why a plan was not applied.
	LastProblem string
}

// planState is a state of a device that is in force from an epoch on.
type planState struct {
	from  uint64
	until uint64 // last epoch with this state; 0 if the state has no end
	bank  int    // bank with this state, or allBanks
	plan  uint64
	mixed bool // the device may hold only some entries of the plan
}

// maxOutcomes bounds the outcomes that wait for delivery to a plugin, and maxStates the states of
// a device. The oldest are dropped.
const (
	maxOutcomes = 4096
	maxStates   = 64
)

// history returns a plugin's history. The caller holds c.mu.
func (c *Component) history(plugin string) *history {
	h := c.plugins[plugin]
	if h == nil {
		h = &history{states: map[string][]planState{}}
		c.plugins[plugin] = h
	}
	return h
}

// enter adds a state of a device.
func (h *history) enter(device string, s planState) {
	list := append(h.states[device], s)
	if len(list) > maxStates {
		list = slices.Delete(list, 0, len(list)-maxStates)
	}
	h.states[device] = list
}

// record counts an outcome and keeps it for delivery to the plugin, unless the plan has no ID.
func (h *history) record(p part, status sdk.PlanStatus, reason string) {
	switch status {
	case sdk.PlanApplied:
		h.counts.Applied++
	case sdk.PlanLate:
		h.counts.Late++
	case sdk.PlanFailed:
		h.counts.Failed++
	}
	if reason != "" {
		h.counts.LastProblem = reason
	}
	if p.plan == 0 {
		return
	}
	if len(h.outcomes) == maxOutcomes {
		h.outcomes = slices.Delete(h.outcomes, 0, 1)
	}
	h.outcomes = append(h.outcomes, sdk.PlanOutcome{
		Plan: p.plan, FromEpoch: p.from, Device: p.device, Status: status, Reason: reason,
	})
}

// States returns which plans were in force on devices in an epoch, and drops states that concern
// only older epochs.
func (c *Component) States(plugin string, number uint64, devices []string) []sdk.DeviceState {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.history(plugin)
	out := make([]sdk.DeviceState, 0, len(devices))
	for _, name := range devices {
		s := sdk.DeviceState{Device: name}
		if d := c.devices[name]; d != nil {
			s.Plan, s.Mixed = inForce(h.states[name], number, c.bankOf(number, d))
			h.states[name] = prune(h.states[name], number)
		}
		out = append(out, s)
	}
	return out
}

// inForce returns the newest state of a bank in an epoch.
func inForce(states []planState, number uint64, bank int) (plan uint64, mixed bool) {
	found := false
	for _, s := range slices.Backward(states) {
		switch {
		case s.from > number || s.bank != allBanks && s.bank != bank || s.until != 0 && s.until < number:
		case s.until != 0:
			mixed = true
		case !found:
			found = true
			plan, mixed = s.plan, mixed || s.mixed
		}
	}
	return plan, mixed
}

// prune drops states that are not needed for any epoch after number, because a later state of the
// same banks replaces them.
func prune(states []planState, number uint64) []planState {
	kept := states[:0]
	for i, s := range states {
		over := s.until != 0 && s.until < number || slices.ContainsFunc(states[i+1:], func(later planState) bool {
			return later.until == 0 && later.from <= number && (later.bank == s.bank || later.bank == allBanks)
		})
		if !over {
			kept = append(kept, s)
		}
	}
	return kept
}

// Outcomes lists the outcomes that have not been delivered to a plugin, the oldest first.
func (c *Component) Outcomes(plugin string) []sdk.PlanOutcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]sdk.PlanOutcome(nil), c.history(plugin).outcomes...)
}

// Delivered drops the oldest n outcomes, which the plugin has received.
func (c *Component) Delivered(plugin string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.history(plugin)
	h.outcomes = slices.Delete(h.outcomes, 0, min(n, len(h.outcomes)))
}

// Counts returns a plugin's outcomes by their kind.
func (c *Component) Counts(plugin string) Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.history(plugin).counts
}

// recordPreEpoch records the outcome of a pre-epoch plan. refused is the device that refused the
// plan; empty if no device did.
func (c *Component) recordPreEpoch(a *preEpochPlan, results []result, refused string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, r := range results {
		p := a.parts[i]
		d := c.devices[p.device]
		if d != nil {
			p.bank = c.bankOf(p.from, d)
		}
		h := c.history(a.plugin)
		switch {
		case errors.Is(r.err, ErrPartiallyApplied):
			h.enter(p.device, planState{from: p.from, bank: p.bank, mixed: true})
			c.fail(p, oneLine(r.err))
		case r.away && refused == "":
			if d != nil {
				c.addPending(d, p)
			}
			h.record(p, sdk.PlanFailed, "the device is away; the plan is applied when it returns: "+oneLine(r.err))
		case r.away:
			h.record(p, sdk.PlanFailed, oneLine(r.err))
		case r.err != nil:
			c.fail(p, oneLine(r.err))
		case refused != "":
			h.record(p, sdk.PlanFailed, fmt.Sprintf("undone, because %s did not apply the plan", refused))
		default:
			if p.plan != 0 {
				h.enter(p.device, planState{from: p.from, bank: p.bank, plan: p.plan})
			}
			h.record(p, sdk.PlanApplied, "")
		}
	}
}

// recordLate records that a plan is not written because it is late.
func (c *Component) recordLate(a *preEpochPlan, reason string) {
	if len(a.parts) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range a.parts {
		c.history(a.plugin).record(p, sdk.PlanLate, reason)
	}
	c.log.Warn("plan is late and is not applied", "plugin", a.plugin, "plan", a.plan, "epoch", a.from, "reason", reason)
}

// recordPending records the outcome of a part that was pending. Epochs that were open while the
// part was written are mixed: some of their packets were counted before.
func (c *Component) recordPending(p part, number uint64, atFlip bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.history(p.plugin)
	p.from = number
	last := number // the last mixed epoch, if there is one
	if open, _ := c.epochs.Current(); open > number || !atFlip && number > 0 {
		last = max(open, number)
		p.from = last + 1
	}
	partial := errors.Is(err, ErrPartiallyApplied)
	if err == nil && p.plan != 0 || partial {
		if p.from > number {
			h.enter(p.device, planState{from: number, until: last, bank: allBanks, mixed: true})
		}
		h.enter(p.device, planState{from: p.from, bank: p.bank, plan: p.plan, mixed: partial})
	}
	if err != nil {
		c.fail(p, oneLine(err))
		return
	}
	h.record(p, sdk.PlanApplied, "")
}
