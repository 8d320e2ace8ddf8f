// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// Outcome is the outcome of a plan at a device, or of a setting at a host.
type Outcome struct {
	Plugin string
	Plan   uint64 // the plugin's ID of the plan
	// Maker is the member that made the plan; "" is this collector. Number is SharedPlan.Number.
	Maker  string
	Number uint64
	// Device is the device; "" for a setting.
	Device     string
	Host, Role string
	Result     Result
	// Begin is the epoch that was open when the device was written, and From the first epoch that is
	// measured completely with the plan or the setting. Epochs from Begin until From are mixed. If
	// Begin is 0, no epoch is mixed.
	Begin, From uint64
	// Reason is why the plan or the setting is not in force; "" if it is.
	Reason string
}

// Result is the outcome of a plan at a device.
type Result uint8

// The results of a plan at a device. After Away, the device has another result when it returns; the
// other results are final.
const (
	Applied Result = iota
	Refused
	Partial // refused, and the device may hold some of the entries
	Late
	Away
	Undone
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
	maxOutcomes = 1 << 15
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
func (h *history) record(o Outcome, status sdk.PlanStatus, reason string) {
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
	if o.Plan == 0 {
		return
	}
	if len(h.outcomes) == maxOutcomes {
		h.outcomes = slices.Delete(h.outcomes, 0, 1)
	}
	h.outcomes = append(h.outcomes, sdk.PlanOutcome{
		Plan: o.Plan, FromEpoch: o.From, Device: cmp.Or(o.Device, o.Host), Status: status, Reason: reason,
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

// outcome completes the outcome of a part.
func (c *Component) outcome(p *part, o Outcome) Outcome {
	o.Plugin, o.Plan, o.Maker, o.Number, o.Device = p.of.plugin, p.of.id, p.of.maker, p.of.number, p.device
	return o
}

// report keeps the outcome of a part for the next owner of the device, and passes it to the member
// that made the plan. The caller holds c.mu.
func (c *Component) report(p *part, o Outcome) {
	o = c.outcome(p, o)
	if d := c.devices[p.device]; o.Number != 0 && o.Result != Away && d != nil && !d.foreign {
		d.done[p.of.key()] = o
	}
	c.pass(p.of, o)
}

// pass passes an outcome to the member that made the plan. The caller holds c.mu.
func (c *Component) pass(a *plan, o Outcome) {
	if a.maker == "" {
		c.take(a, o)
	} else {
		c.cluster.Forward(o)
	}
}

// take takes the outcome of a plan that was made here. The caller holds c.mu.
func (c *Component) take(a *plan, o Outcome) {
	before, answered := a.answers[o.Device]
	switch {
	case !a.open[o.Device] || answered && before.Result != Away: // repeated
	case a.answers == nil:
		c.record(a, o)
	// an applied outcome during an undo means that the device has not undone the plan yet
	case !a.undo || o.Result != Applied:
		a.answers[o.Device] = o
		select {
		case a.arrived <- struct{}{}:
		default:
		}
	}
}

// record records the outcome of a plan at a device. The caller holds c.mu.
func (c *Component) record(a *plan, o Outcome) {
	h := c.history(a.plugin)
	if o.Result == Applied && a.id != 0 || o.Result == Partial {
		if o.Begin != 0 && o.Begin < o.From {
			h.enter(o.Device, planState{from: o.Begin, until: o.From - 1, bank: allBanks, mixed: true})
		}
		s := planState{from: o.From, bank: allBanks, mixed: o.Result == Partial}
		if !s.mixed {
			s.plan = a.id
		}
		if d := c.devices[o.Device]; d != nil && a.preEpoch {
			s.bank = c.bankOf(a.from, d)
		}
		h.enter(o.Device, s)
	}
	switch o.Result {
	case Applied:
		h.record(o, sdk.PlanApplied, "")
	case Late:
		h.record(o, sdk.PlanLate, o.Reason)
	case Undone:
		h.record(o, sdk.PlanFailed, o.Reason)
	case Away:
		h.record(o, sdk.PlanFailed, "the device is away; the plan is applied when it returns: "+o.Reason)
		return
	default:
		c.fail(o, o.Reason)
	}
	c.close(a, o.Device)
}

// fail records and logs that a plan is not applied at a device or host. The caller holds c.mu.
func (c *Component) fail(o Outcome, reason string) {
	c.history(o.Plugin).record(o, sdk.PlanFailed, reason)
	c.log.Error("plan not applied", "plugin", o.Plugin, "plan", o.Plan, "device", cmp.Or(o.Device, o.Host), "epoch",
		o.From, "error", reason)
}

// conclude records the outcomes of a pre-epoch plan. refused is the device that refused the plan;
// empty if no device did. Devices that are away receive the plan when they return.
func (c *Component) conclude(a *plan, refused string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	answers := a.answers
	a.answers = nil
	for _, p := range a.parts {
		o, answered := answers[p.device]
		switch {
		case !answered && refused == "":
			o = Outcome{Result: Away, Reason: noAnswer}
			if a.number != 0 {
				c.history(a.plugin).enter(p.device, planState{from: a.from, bank: allBanks, mixed: true})
			}
		case !answered:
			o = Outcome{Result: Partial, Reason: fmt.Sprintf("%v: %s", ErrPartiallyApplied, noAnswer)}
		case o.Result == Away && refused != "":
			o.Result = Undone
		case o.Result == Undone:
			o.Reason = fmt.Sprintf("undone, because %s did not apply the plan", refused)
		}
		o.From = a.from
		c.record(a, c.outcome(p, o))
	}
}

// noAnswer is why the outcome at a device of another collector is not known.
const noAnswer = "the collector that owns the device has not answered in time"

// recordLate records that a plan is not written because it is late.
func (c *Component) recordLate(a *plan, reason string) {
	if len(a.parts) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range a.parts {
		if c.reports(p) {
			c.report(p, Outcome{Result: Late, From: a.from, Reason: reason})
		}
	}
	c.log.Warn("plan is late and is not applied", "plugin", a.plugin, "plan", a.id, "epoch", a.from, "reason", reason)
}

// recordPending records the outcome of a part that was pending. Epochs that were open while the
// part was written are mixed: some of their packets were counted before the write.
func (c *Component) recordPending(p *part, number uint64, atFlip bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := result(err)
	o.Begin, o.From = number, number
	switch open, _ := c.epochs.Current(); {
	case p.of.preEpoch && open < p.of.from: // the device was away, and has returned in time
		o.Begin, o.From = 0, p.of.from
	case open > number || !atFlip && number > 0:
		o.Begin, o.From = max(number, 1), max(open, number)+1
	}
	c.report(p, o)
}

// result is the outcome of a write.
func result(err error) (o Outcome) {
	switch {
	case err == nil:
		return o
	case errors.Is(err, ErrPartiallyApplied):
		o.Result = Partial
	case errors.Is(err, p4rt.ErrNotReady):
		o.Result = Away
	default:
		o.Result = Refused
	}
	o.Reason = oneLine(err)
	return o
}
