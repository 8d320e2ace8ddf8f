// SPDX-License-Identifier: Apache-2.0

// Package ownership decides which member of a cluster has the session with a device, and when the
// session begins and ends.
//
// Each member has one Device for each device of the configuration. A method of Device takes one
// event: a view of the cluster, the state of the session, an offer of another member, or the end of
// an epoch. It returns the next Device and the actions that lead there. One table, transitions, has
// the answer of every state to every event; docs/cluster.md shows it.
//
// The package has no clock, no lock and no connection. Package network carries the actions out.
//
// A device moves from its owner to the next one without a lost epoch in this way:
//
//	next owner   standby  its session is a backup as long as the owner has one
//	owner        leaving  when the bank of an epoch has been read, offers the device with its banks
//	next owner   taking   accepts the offer
//	owner                 ends its session: elsewhere
//	next owner   owner    its session becomes the primary, and seals the open epoch at its end
package ownership

import "slices"

// State is the relation of a member to a device.
type State uint8

// The states of a member at a device.
const (
	// Elsewhere has no session: another member owns the device, or none does.
	Elsewhere State = iota
	// Standby has a backup session: the device is to become this member's when its holder hands it
	// over, or when the holder's session ends.
	Standby
	// Taking has accepted the device. The session becomes the primary when the former owner has
	// ended its own.
	Taking
	// Owner measures the device and writes its entries.
	Owner
	// Leaving is an owner that offers the device to the next one.
	Leaving
	// Outbid was the owner until a member with a newer lease took the switch. The view does not have
	// that member.
	Outbid

	states = iota
)

// String returns the name of the state.
func (s State) String() string {
	return [states]string{"elsewhere", "standby", "taking", "owner", "leaving", "outbid"}[s]
}

// Action is a set of things that a member does because of an event.
type Action uint8

// The actions of a member.
const (
	// Open ends the session, if there is one, and opens one that bids with the newest lease.
	Open Action = 1 << iota
	// OpenBackup ends the session, if there is one, and opens one that bids only when the switch has
	// no primary.
	OpenBackup
	// Close ends the session.
	Close
	// Offer offers the device and the state of its banks to Device.Next.
	Offer
	// Accept accepts an offer, and Refuse refuses it.
	Accept
	Refuse
	// Adopt continues with the banks of the offer.
	Adopt
	// Force counts a device that moves without a handover.
	Force

	actions = iota
)

// Has reports whether the set has one of the actions of another set.
func (a Action) Has(some Action) bool { return a&some != 0 }

// Device is a device as one member sees it. The zero value is a device of a member without a view.
type Device struct {
	State State
	// Holder is the member that has the session, as far as this member knows; "" if it does not.
	Holder string
	// Stale reports that this member has been without a lease since it knew the holder.
	Stale bool
	// Next is the member that a Leaving device is offered to.
	Next string
	// Epochs counts the epochs that have ended in this state.
	Epochs int
}

// Foreign reports whether another member measures the device, or none does.
func (d Device) Foreign() bool { return d.State == Elsewhere || d.State == Standby }

// View is a member's knowledge of a device's place in the cluster.
type View struct {
	// Self is this member.
	Self string
	// Leased reports that this member holds its lease. Without one, the view is old.
	Leased bool
	// Owner is the member that the view gives the device to. Before is the owner that the device would
	// have without this member. "" is no member.
	Owner, Before string
	// Present are the members that can take a device, or hand one over.
	Present []string
}

// has reports whether another member can hand a device over, or take it.
func (v View) has(other string) bool {
	return other != "" && other != v.Self && slices.Contains(v.Present, other)
}

// View takes a new view. measured reports that the device takes part in epochs here, so that there
// are banks to hand over.
func (d Device) View(v View, measured bool) (Device, Action) {
	holder := d.Holder
	if holder == "" || d.Stale || !d.Foreign() {
		holder = v.Before
	}
	e := theirsNow
	switch {
	case !v.Leased:
		e = unleased
	case v.Owner == v.Self && v.has(holder):
		e = oursHeld
	case v.Owner == v.Self:
		e = ours
	case measured && v.has(v.Owner):
		e = theirs
	}
	next, do := d.step(e)
	next.Stale = e == unleased && next.State == Elsewhere
	switch {
	case e == unleased:
	case next.State == Elsewhere:
		next.Holder = v.Owner
	case next.State == Standby:
		next.Holder = holder
	case next.State == Leaving:
		next.Next = v.Owner
	}
	return next, do
}

// Session is the state of a session with a device.
type Session struct {
	// Primary reports that the switch obeys this member. Otherwise, Deposed reports that it obeys a
	// member with a newer lease.
	Primary, Deposed bool
}

// Session takes the state of the session. v is the newest view, from which follows who deposed this
// member.
func (d Device) Session(s Session, v View) (Device, Action) {
	switch {
	case s.Primary:
		return d.step(primary)
	case !s.Deposed:
		return d, 0
	case v.Before == "":
		return d.step(outbid)
	}
	next, do := d.step(deposed)
	if next.State == Standby && d.State != Standby {
		next.Holder = v.Before
	}
	return next, do
}

// Offered takes an offer of another member. s is the session with the device; possible reports that
// this member can take the device now.
func (d Device) Offered(from string, s Session, possible bool) (Device, Action) {
	e := offeredEarly
	switch {
	case s.Primary:
		e = offeredHeld
	case possible:
		e = offered
	}
	next, do := d.step(e)
	if next.State == Taking {
		next.Holder = from
	}
	return next, do
}

// Accepted takes the answer of a member that accepts an offer of this epoch.
func (d Device) Accepted(by string) (Device, Action) {
	if by != d.Next { // the view has changed since
		return d, 0
	}
	next, do := d.step(accepted)
	if next.State == Elsewhere {
		next.Holder = by
	}
	return next, do
}

// Epoch signals that the banks of an epoch have been read, to a member that holds its lease. free
// reports that the device can be handed over now.
func (d Device) Epoch(free bool) (Device, Action) {
	e := epochBusy
	switch limit := patience[d.State]; {
	case limit > 0 && d.Epochs >= limit:
		e = overdue
	case free:
		e = epochFree
	}
	if patience[d.State] > 0 {
		d.Epochs++
	}
	next, do := d.step(e)
	if next.State == Elsewhere && d.State == Leaving {
		next.Holder = d.Next
	}
	return next, do
}

// Reopened signals that a change of the configuration replaces the device.
func (d Device) Reopened() (Device, Action) { return d.step(reopened) }

// step takes an event.
func (d Device) step(e event) (Device, Action) {
	t := transitions[e][d.State]
	if t.to != d.State {
		d.State, d.Next, d.Epochs = t.to, "", 0
	}
	return d, t.do
}
