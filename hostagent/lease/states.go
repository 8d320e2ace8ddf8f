// SPDX-License-Identifier: Apache-2.0

package lease

// State is the state of a pair of hosts: of this host and an address of a peer.
type State uint8

// The states. Only a pair that is Leased renews its lease; a lease that is not renewed lasts until
// its end unless it is revoked.
const (
	Offline   State = iota // no session with the collector: no probes
	Searching              // one source port looks for the longest packet that arrives
	Proving                // all source ports prove the length
	Leased                 // the carrier arrives; probes renew the lease
	Lost                   // the network loses the carrier, and not packets without it
	Slow                   // packets in the carrier are clearly slower
	Silent                 // the peer does not answer
	Refused                // the agent of the peer ends
	states
	Waiting = states // of a peer without a pair: other pairs use the budget of probes
)

var stateNames = [states + 1]string{"offline", "searching", "proving", "leased", "lost", "slow", "silent",
	"refused", "waiting"}

// String returns the name of the state, as in the tree of the collector.
func (s State) String() string { return stateNames[s] }

// probing reports whether answers to probes decide what comes next.
func (s State) probing() bool { return s == Searching || s == Proving || s == Leased }

// event moves a pair from one state to another.
type event uint8

const (
	started    event = iota // the collector is connected
	resumed                 // the collector is connected again, and the lease has not ended
	stopped                 // the collector is not connected any more
	found                   // the search is over: a length arrives from one source port
	proved                  // the length arrives from all source ports
	shorter                 // a length did not arrive, and shorter lengths remain
	failed                  // the network removes the carrier, or loses more packets with it than without
	unanswered              // neither probe arrives at any length
	delayed                 // the carrier is clearly slower than its twin
	refused                 // the peer refuses
	again                   // the time of the next attempt has come
	lapsed                  // the lease ended before probes came back
	events
)

// same marks an event that does not change the state of a pair.
const same = states

// transitions is the state machine of a pair. Prober.enter does what belongs to a new state.
var transitions = withLapse([states][events]State{
	// started resumed found proved shorter failed unanswered delayed refused again
	Offline:   row(Searching, Leased, same, same, same, same, same, same, same, same),
	Searching: row(same, same, Proving, same, same, Lost, Silent, same, Refused, same),
	Proving:   row(same, same, same, Leased, Searching, Lost, Silent, Slow, Refused, same),
	Leased:    row(same, same, same, same, same, Lost, same, Slow, Refused, same),
	Lost:      row(same, same, same, same, same, same, same, same, Refused, Searching),
	Slow:      row(same, same, same, same, same, same, same, same, Refused, Searching),
	Silent:    row(same, same, same, same, same, same, same, same, Refused, Searching),
	Refused:   row(same, same, same, same, same, same, same, same, same, Searching),
})

// row is a row of transitions. Every state goes to Offline when the session ends.
func row(start, resume, find, prove, shorten, fail, silent, delay, refuse, retry State) [events]State {
	return [events]State{started: start, resumed: resume, stopped: Offline, found: find,
		proved: prove, shorter: shorten, failed: fail, unanswered: silent, delayed: delay, refused: refuse, again: retry,
		lapsed: same}
}

// withLapse adds that a lease which ended is proved again.
func withLapse(t [states][events]State) [states][events]State {
	t[Leased][lapsed] = Proving
	return t
}
