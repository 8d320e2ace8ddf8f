// SPDX-License-Identifier: Apache-2.0

package devconfig

// State is how far the configuration of a device is.
type State string

// The states of a device. Those from Setting to Undoing are of a change in progress: they are kept
// on disk.
const (
	// Unread: the device has not been read since the collector started, or cannot be read.
	Unread State = "UNREAD"
	// Clean: everything that the file says is in effect.
	Clean State = "IN_EFFECT"
	// Differs: the device differs from the file, and nothing is being changed.
	Differs State = "DIFFERS"
	// Blocked: a leaf is refused, so nothing of the device is changed.
	Blocked State = "REFUSED"
	// Ended: somebody else has taken the changes back again and again, and enforce has ended.
	Ended State = "ENFORCEMENT_ENDED"
	// Setting: the Set has been sent, or is about to be.
	Setting State = "SETTING"
	// ReadingBack: the Set has succeeded or failed; the device's configuration is being read.
	ReadingBack State = "READING_BACK"
	// AwaitingState: the configuration has the changes; the device's state is awaited.
	AwaitingState State = "AWAITING_STATE"
	// Connecting: the state has the changes; the P4Runtime session is awaited.
	Connecting State = "CONNECTING"
	// Confirming: all is proved; the device is told to keep the changes.
	Confirming State = "CONFIRMING"
	// Undoing: the changes are taken back.
	Undoing State = "UNDOING"
)

// event is what happens to a device.
type event uint8

const (
	// Events that result from comparing the device with the file.
	foundClean event = iota
	foundDifference
	foundRefusal
	unreadable
	// Events that start a change or end enforcement.
	begin
	revertedAgain
	// Events that result from a step of a change.
	answered
	proved
	disproved
	unproved
	broken
	// The collector starts, and finds the state on disk.
	restarted

	events = iota
)

// transaction reports whether a state is one of a change in progress.
func (s State) transaction() bool {
	switch s {
	case Setting, ReadingBack, AwaitingState, Connecting, Confirming, Undoing:
		return true
	}
	return false
}

// transitions has the answer of each state to each event that it can get. States that an event does
// not list ignore it. A change that is not proved as a whole, over one connection, is undone. Only
// a change that was proved before a crash is confirmed after it.
var transitions = [events]map[State]State{
	foundClean:      {Unread: Clean, Clean: Clean, Differs: Clean, Blocked: Clean, Ended: Clean},
	foundDifference: {Unread: Differs, Clean: Differs, Differs: Differs, Blocked: Differs},
	foundRefusal:    {Unread: Blocked, Clean: Blocked, Differs: Blocked, Blocked: Blocked},
	unreadable:      {Clean: Unread, Differs: Unread, Blocked: Unread},
	begin:           {Differs: Setting, Ended: Setting, Clean: Setting},
	revertedAgain:   {Differs: Ended},
	answered:        {Setting: ReadingBack},
	proved: {
		ReadingBack: AwaitingState, AwaitingState: Connecting, Connecting: Confirming, Confirming: Clean,
		Undoing: Differs,
	},
	disproved: {
		ReadingBack: Undoing, AwaitingState: Undoing, Connecting: Undoing, Confirming: Undoing,
	},
	unproved: {
		ReadingBack: Undoing, AwaitingState: Undoing, Connecting: Undoing,
	},
	broken: {
		Setting: Undoing, ReadingBack: Undoing, AwaitingState: Undoing, Connecting: Undoing,
	},
	restarted: {
		Setting: Undoing, ReadingBack: Undoing, AwaitingState: Undoing, Connecting: Undoing,
	},
}

// next returns the state to which an event leads from s.
func (s State) next(e event) State {
	if to, ok := transitions[e][s]; ok {
		return to
	}
	return s
}
