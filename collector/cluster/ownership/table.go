// SPDX-License-Identifier: Apache-2.0

package ownership

// event is a kind of event; transitions has the answer of each state to each kind.
type event uint8

const (
	// Events of views of the cluster. A view without a lease changes nothing.
	unleased event = iota
	ours
	oursHeld
	theirs
	theirsNow
	// States of the session.
	primary
	deposed
	outbid
	// Handovers.
	offered
	offeredHeld
	offeredEarly
	accepted
	// After an epoch has been read.
	epochFree
	epochBusy
	overdue
	// The configuration.
	reopened

	events = iota
)

// String returns the event's description in docs/cluster.md.
func (e event) String() string {
	return [events]string{
		unleased:     "the member holds no lease",
		ours:         "the view gives it the device, and no other member holds it",
		oursHeld:     "the view gives it the device, which another member holds",
		theirs:       "the view gives the device to another member, and it is measured here",
		theirsNow:    "the view gives it to another member or none, and there is nothing to hand over",
		primary:      "its session is the primary",
		deposed:      "a member of the view with a newer lease is the primary",
		outbid:       "a member with a newer lease that the view does not have is the primary",
		offered:      "another member offers the device",
		offeredHeld:  "the same, and its session is the primary already",
		offeredEarly: "the same, and it cannot take the device yet",
		accepted:     "the next owner accepts the device",
		epochFree:    "an epoch has been read, and the device can be handed over",
		epochBusy:    "an epoch has been read, and a bank of the device is in use",
		overdue:      "the state has lasted too many epochs",
		reopened:     "the configuration of the device has changed",
	}[e]
}

// patience is the largest number of epochs that a state may last; then the event overdue occurs. A
// state without a number may last.
var patience = [states]int{Standby: 20, Taking: 1, Leaving: 10, Outbid: 10}

// transition is an answer to an event.
type transition struct {
	to    State
	do    Action
	given bool // distinguishes an answer from a missing answer
}

func to(s State, do ...Action) transition {
	t := transition{to: s, given: true}
	for _, a := range do {
		t.do |= a
	}
	return t
}

// transitions has the answer of each state to each event.
var transitions = [events][states]transition{
	unleased: {
		Elsewhere: to(Elsewhere), Standby: to(Standby), Taking: to(Taking),
		Owner: to(Owner), Leaving: to(Leaving), Outbid: to(Outbid),
	},
	ours: {
		Elsewhere: to(Owner, Open), Standby: to(Owner, Open), Taking: to(Taking),
		Owner: to(Owner), Leaving: to(Owner), Outbid: to(Outbid),
	},
	oursHeld: {
		Elsewhere: to(Standby, OpenBackup), Standby: to(Standby), Taking: to(Taking),
		Owner: to(Owner), Leaving: to(Owner), Outbid: to(Standby),
	},
	theirs: {
		Elsewhere: to(Elsewhere), Standby: to(Elsewhere, Close), Taking: to(Leaving),
		Owner: to(Leaving), Leaving: to(Leaving), Outbid: to(Elsewhere, Close),
	},
	theirsNow: {
		Elsewhere: to(Elsewhere), Standby: to(Elsewhere, Close), Taking: to(Elsewhere, Close),
		Owner: to(Elsewhere, Close), Leaving: to(Elsewhere, Close), Outbid: to(Elsewhere, Close),
	},
	primary: {
		Elsewhere: to(Elsewhere), Standby: to(Owner), Taking: to(Owner),
		Owner: to(Owner), Leaving: to(Leaving), Outbid: to(Owner),
	},
	deposed: { // a member that takes over a device is deposed until the former owner has ended its session
		Elsewhere: to(Elsewhere), Standby: to(Standby), Taking: to(Taking),
		Owner: to(Standby), Leaving: to(Elsewhere, Close), Outbid: to(Standby),
	},
	outbid: {
		Elsewhere: to(Elsewhere), Standby: to(Standby), Taking: to(Taking),
		Owner: to(Outbid), Leaving: to(Elsewhere, Close), Outbid: to(Outbid),
	},
	offered: {
		Elsewhere: to(Elsewhere, Refuse), Standby: to(Taking, Accept, Adopt), Taking: to(Taking, Accept, Adopt),
		Owner: to(Owner, Refuse), Leaving: to(Leaving, Refuse), Outbid: to(Taking, Accept, Adopt),
	},
	offeredHeld: { // the answer to an earlier offer was lost, or the owner's session ended before its offer arrived
		Elsewhere: to(Elsewhere, Refuse), Standby: to(Owner, Accept, Adopt), Taking: to(Owner, Accept),
		Owner: to(Owner, Accept), Leaving: to(Leaving, Accept), Outbid: to(Owner, Accept),
	},
	offeredEarly: {
		Elsewhere: to(Elsewhere, Refuse), Standby: to(Standby, Refuse), Taking: to(Taking, Refuse),
		Owner: to(Owner, Refuse), Leaving: to(Leaving, Refuse), Outbid: to(Outbid, Refuse),
	},
	accepted: {
		Elsewhere: to(Elsewhere), Standby: to(Standby), Taking: to(Taking),
		Owner: to(Owner), Leaving: to(Elsewhere, Close), Outbid: to(Outbid),
	},
	epochFree: {
		Elsewhere: to(Elsewhere), Standby: to(Standby), Taking: to(Taking),
		Owner: to(Owner), Leaving: to(Leaving, Offer), Outbid: to(Outbid),
	},
	epochBusy: {
		Elsewhere: to(Elsewhere), Standby: to(Standby), Taking: to(Taking),
		Owner: to(Owner), Leaving: to(Leaving), Outbid: to(Outbid),
	},
	overdue: { // states without a limit stay
		Elsewhere: to(Elsewhere), Standby: to(Owner, Open, Force), Taking: to(Standby),
		Owner: to(Owner), Leaving: to(Elsewhere, Close, Force), Outbid: to(Owner, Open, Force),
	},
	reopened: {
		Elsewhere: to(Elsewhere), Standby: to(Standby, OpenBackup), Taking: to(Standby, OpenBackup),
		Owner: to(Owner, Open), Leaving: to(Leaving, Open), Outbid: to(Outbid, OpenBackup),
	},
}
